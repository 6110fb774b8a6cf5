"""`index`: what goes where, what it costs, what a second run asks, and what is said of what failed."""

import json
import re

from tests.cli.shell import ESCAPE, FILES, NAMES, on_terminal, project, put, sh
from tests.modelserver.script import WORK

STAGES = ["documents", "chunks", "extraction", "graph", "communities", "reports", "vectors"]
NUMBERS = ["calls", "prompt_tokens", "cached_tokens", "completion_tokens", "seconds"]


def test_only_the_result_goes_to_standard_output(tmp_path):
    """Without a terminal: the table of costs and one line per fact on standard output, a line per stage on standard error, no escapes, no padding."""
    with project(tmp_path):
        done = sh(f"graphrag-local index {tmp_path}")

    rows = [line.split() for line in done.out.splitlines()]
    assert done.code == 0
    assert rows[0] == ["stage", "calls", "prompt", "tokens", "cached", "tokens", "completion", "tokens", "seconds"]
    assert [row[0] for row in rows[1:9]] == [*STAGES, "all"]
    assert int(rows[8][1]) == sum(int(row[1]) for row in rows[1:8]) > 0
    assert "3 documents, 3 chunks, 5 entities," in done.out
    assert "published generation 000001-" in done.out
    assert not ESCAPE.search(done.out + done.err)
    assert [line for line in done.out.splitlines() if line != line.rstrip()] == []
    assert [line.split(":")[0] for line in done.err.splitlines() if line.endswith("to do")][:3] == ["documents", "chunks", "extraction"]


def test_a_second_index_asks_nothing(tmp_path):
    """Nothing changed: no call, no token, the same generation, and not even a look into the ledger; `--json` is one object with every number."""
    with project(tmp_path) as server:
        first = sh(f"graphrag-local index {tmp_path} --json").json
        asked = len(server.requests(*WORK))
        second = sh(f"graphrag-local index {tmp_path} --json").json
        again = len(server.requests(*WORK))

    assert first["published"]
    assert first["failures"] == []
    assert first["last_build"]["calls"] == asked > 0
    assert list(first["last_build"]["by_stage"]) == STAGES
    assert all(sorted(row) == sorted(NUMBERS) for row in first["last_build"]["by_stage"].values())
    assert first["counts"] == {
        "documents": 3, "chunks": 3, "entities": 5, "relationships": first["counts"]["relationships"], "claims": 0,
        "reports": first["counts"]["reports"], "failures": 0, "communities": first["counts"]["communities"],
    }  # fmt: skip
    assert again == asked
    assert not second["published"]
    assert (second["generation"], second["digest"]) == (first["generation"], first["digest"])
    assert [second["last_build"][key] for key in NUMBERS[:4]] == [0, 0, 0, 0]
    assert second["last_build"]["replayed"] == 0


def test_what_failed_is_named_and_the_command_exits_with_3(tmp_path):
    """A chunk whose reply cannot be used and a file that cannot be read are named with reasons; the rest is published; `show` has them too."""
    script = {"fixture_pattern": NAMES, "window_tokens": 16_000, "rules": [{"on": "extract", "when_prompt_has": "Ada Brandt bought", "do": {"text": "No."}}]}
    with project(tmp_path, {**FILES, "empty.txt": ""}, script):
        done = sh(f"graphrag-local index {tmp_path}")
        told = sh(f"graphrag-local index {tmp_path} --json")
        shown = sh(f"graphrag-local show failures {tmp_path} --json")
        text = sh(f"graphrag-local show failures {tmp_path}")

    assert done.code == told.code == 3
    failed = {failure["stage"]: failure for failure in told.json["failures"]}
    assert failed["documents"]["input"] == "empty.txt"
    assert failed["documents"]["reason"] == "is empty"
    assert failed["extraction"]["input"].startswith("news.html")
    assert failed["extraction"]["reason"]
    assert shown.json == told.json["failures"]
    for failure in told.json["failures"]:
        assert f"failed: {failure['stage']}: {failure['input']}: {failure['reason']}" in done.out
        assert f"{failure['stage']}: {failure['input']}: {failure['reason']} (" in text.out
    assert "published generation" in done.out


def test_the_run_log_is_json_lines_without_anything_of_the_documents(tmp_path):
    """Each line of index/runs is an object with an event and the seconds since the start; no name, path or text of the collection is in it."""
    with project(tmp_path):
        sh(f"graphrag-local index {tmp_path}")
    (log,) = (tmp_path / "index" / "runs").glob("*.jsonl")
    text = log.read_text(encoding="utf-8")
    events = [json.loads(line) for line in text.splitlines()]

    assert [event["event"] for event in events][0 :: len(events) - 1] == ["start", "end"]
    assert [event["stage"] for event in events if event["event"] == "begin"] == STAGES
    assert all(event["s"] >= 0 for event in events)
    assert events[-1]["last_build"]["calls"] > 0
    for word in ("Mira", "larsen", "minutes.md", "Tallow"):
        assert word not in text


def test_progress_on_a_terminal_fits_it(tmp_path):
    """On 80 columns each stage has a line with a bar, done of all, what is open, tokens a second and the time; NO_COLOR leaves out the colours."""
    slow = {"on": "extract", "do": {"delay_s": 0.4}}
    many = {f"{number:02}.txt": f"{FILES['letters/larsen.txt']}Letter number {number}.\n" for number in range(8)}
    with project(tmp_path, many, {"fixture_pattern": NAMES, "window_tokens": 16_000, "rules": [slow]}):
        seen = on_terminal(f"graphrag-local index {tmp_path} --set engine.concurrency=2", 80, NO_COLOR="1")
    lines = [line for line in re.split(r"[\r\n]+", ESCAPE.sub("", seen)) if line]
    extraction = [line for line in lines if line.startswith("extraction ") and "open" in line]

    assert max(map(len, lines)) <= 80
    assert any(re.search(r"━ +[1-7]/8 [1-7] open, [\d,]+ tokens/s 0:00:\d\d$", line.rstrip()) for line in extraction), extraction
    assert not re.search(r"\x1b\[(?:\d+;)*[349]\d(?:;\d+)*m", seen)
    assert any(line.startswith("all ") for line in lines)


def test_a_changed_file_is_all_that_is_asked_again(tmp_path):
    """After one file of three has changed, one chunk is read anew, the changes say which file, and a new generation is published."""
    with project(tmp_path) as server:
        first = sh(f"graphrag-local index {tmp_path} --json").json
        before = len(server.requests("extract"))
        put(tmp_path, {"news.html": FILES["news.html"].replace("bought", "sold")})
        second = sh(f"graphrag-local index {tmp_path} --json").json

        assert len(server.requests("extract")) == before + 1
    assert second["changes"]["edited"] == ["news.html"]
    assert second["published"]
    assert second["generation"] != first["generation"]
