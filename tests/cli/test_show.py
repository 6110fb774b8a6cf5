"""`status` and `show`: what the index holds, for programs and for people."""

import json
import os
import re
import sqlite3

import pytest

from graphrag_local.records import Document
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.reading import StoredIndex
from graphrag_local.store.runlog import RunLog
from tests.cli.shell import ESCAPE, sh


def texts(folder) -> dict[str, Document]:
    """The stored documents by path."""
    index = StoredIndex.open(folder / "index")
    try:
        return {document.path: document for document in index.documents()}
    finally:
        index.close()


def opens(source, documents) -> bool:
    """Whether a source is the document's text at its place."""
    return source["quote"] == documents[source["document"]].text[source["start"] : source["end"]] != ""


# --- status


def test_status_is_one_object_with_everything(town):
    """`status --json` has the generation, counts, costs, shares of names, models and failures, and names what has no report."""
    status = sh(f"graphrag-local status {town} --json").json

    assert status["generation"].startswith("000001-")
    assert {key: status["counts"][key] for key in ("documents", "chunks", "entities", "failures")} == {
        "documents": 3, "chunks": 3, "entities": 5, "failures": 0,
    }  # fmt: skip
    assert isinstance(status["counts"]["communities"], list)
    assert status["last_build"]["calls"] > 0
    assert set(status["last_build"]["by_stage"]["extraction"]) == {"calls", "prompt_tokens", "cached_tokens", "completion_tokens", "seconds"}
    assert sum(status["names"].values()) == pytest.approx(1)
    assert set(status["names"]) == {"anchored", "composed", "unanchored"}
    assert {"name", "revision", "context", "embedder", "dimension"} <= set(status["models"])
    assert set(status["without_report"]) == {"folded", "unwritten", "stale"}
    assert [document["path"] for document in status["documents"]] == ["letters/larsen.txt", "minutes.md", "news.html"]
    assert (status["left_out"], status["failures"], status["problems"], status["running"], status["interrupted"]) == (0, [], [], None, None)


def test_status_for_people_has_the_same(town):
    """The text names generation, counts, names, reports, model with revision, and the cost by stage."""
    done = sh(f"graphrag-local status {town}")
    status = sh(f"graphrag-local status {town} --json").json

    assert done.code == 0
    for part in (
        f"generation {status['generation']}", "3 documents, 3 chunks, 5 entities", "% anchored", "are kept apart and used for nothing",
        "are not written (reports.write)", "had no room in a report", f"model: local-model ({status['models']['revision']})", "what this generation cost",
        "extraction",
    ):  # fmt: skip
        assert part in done.out
    assert not ESCAPE.search(done.out)


def test_status_without_an_index_is_no_failure(tmp_path):
    """A project that was never indexed has nothing, and says so; programs get the same keys as ever."""
    (tmp_path / "input").mkdir()

    assert sh(f"graphrag-local status {tmp_path}").out == "There is no finished index yet.\n"
    empty = sh(f"graphrag-local status {tmp_path} --json").json
    assert empty["generation"] == ""
    assert empty["counts"]["documents"] == 0


def test_status_tells_a_run_that_goes_on_from_one_that_stopped(spoilt):
    """While the lock is held the run is going on, process and place named; afterwards an unfinished one is said to have stopped there."""
    with BuildLock(spoilt / "index"):
        log = RunLog(spoilt / "index")
        log.write("progress", stage="extraction", done=12, failed=0, total=43)
        log.close()
        live = sh(f"graphrag-local status {spoilt}").out
        state = sh(f"graphrag-local status {spoilt} --json").json
    after = sh(f"graphrag-local status {spoilt}").out

    assert live.startswith(f"A run is going on (process {os.getpid()}), in extraction, 12 of 43 done.")
    assert (state["running"]["pid"], state["running"]["done"], state["interrupted"]) == (os.getpid(), 12, None)
    assert after.startswith("The last run stopped in extraction, 12 of 43 done. `graphrag-local index` continues it.")


def test_a_stage_that_has_just_begun_has_nothing_done(spoilt):
    """A run that was killed at the beginning of a stage is not said to have done there what the stage before did."""
    log = RunLog(spoilt / "index")
    log.write("progress", stage="graph", done=43, failed=0, total=43)
    log.write("begin", stage="communities")
    log.close()

    assert sh(f"graphrag-local status {spoilt}").out.startswith("The last run stopped in communities. ")


def test_verify_finds_what_does_not_match(spoilt):
    """A sound index verifies with 0; an altered reply in the ledger and an altered file each give a sentence that names it, and exit code 1."""
    sound, told = sh(f"graphrag-local status {spoilt} --verify --json"), sh(f"graphrag-local status {spoilt} --verify")
    with sqlite3.connect(spoilt / "index" / "ledger.sqlite") as ledger:
        key = ledger.execute("SELECT min(key) FROM replies").fetchone()[0]
        ledger.execute("UPDATE replies SET text = text || ' ' WHERE key = ?", (key,))
    ledger.close()
    reply = sh(f"graphrag-local status {spoilt} --verify --json")
    table = next((spoilt / "index" / "generations").rglob("*.lance/data/*.lance"))
    table.write_bytes(table.read_bytes()[:-1] + b"\0\0")
    both = sh(f"graphrag-local status {spoilt} --verify")

    assert (sound.code, sound.json["problems"]) == (0, [])
    assert told.out.splitlines()[-1].startswith("verified: every file and every reply is as it was written, every record fits the others, and every report")
    assert reply.code == 1
    (problem,) = reply.json["problems"]
    assert f"the reply {key} was altered" in problem
    assert reply.json["generation"] == sound.json["generation"]
    assert both.code == 1
    assert "verified" not in both.out
    assert f"damaged: {table} has " in both.out
    assert f"the reply {key} was altered" in both.out
    assert sh(f"graphrag-local doctor {spoilt} --json").json[-1]["state"] == "fail"


def test_a_damaged_index_is_made_anew(spoilt, server):
    """What `status --verify` complains of is gone after the next `index`, which asks for no reply that is sound."""
    table = next((spoilt / "index" / "generations").rglob("*.lance/data/*.lance"))
    table.write_bytes(table.read_bytes()[:-1] + b"\0\0")
    assert sh(f"graphrag-local status {spoilt}").code == 1
    before = len(server.requests("extract"))

    assert sh(f"graphrag-local index {spoilt}").code == 0
    assert len(server.requests("extract")) == before
    assert sh(f"graphrag-local query 'Who met whom?' {spoilt}").code == 0


# --- show


def test_an_entity_is_shown_with_the_words_it_comes_from(town):
    """Its relationships, communities, and every place where it is named, which opens at the exact words; the text form quotes them."""
    shown = sh(f"graphrag-local show entity 'mira HOLT' {town} --json").json
    text = sh(f"graphrag-local show entity 'Mira Holt' {town}").out
    documents = texts(town)

    assert (shown["name"], shown["mentions"]) == ("Mira Holt", 2)
    assert {row["with"] for row in shown["relationships"]} == {"Harbour Board", "Tallow Bridge", "Piet Larsen", "Ada Brandt"}
    assert all(opens(source, documents) and "Mira Holt" in source["quote"] for source in shown["sources"])
    assert {source["document"] for source in shown["sources"]} == {"minutes.md", "letters/larsen.txt"}
    for source in shown["sources"]:
        quote = " ".join(source["quote"].split())
        assert f"    {source['document']}, {source['place']} ({source['start']}-{source['end']}): “{quote}”" in text
    assert "()" not in text
    assert sh(f"graphrag-local show entity {shown['id'][:8]} {town} --json").json == shown


def test_a_document_a_report_and_a_community_are_shown(town):
    """A document has its chunks and entities, a report its findings with sources that open, a community its members and report."""
    documents = texts(town)
    document = sh(f"graphrag-local show document news.html {town} --json").json
    community = sh(f"graphrag-local show entity 'Ada Brandt' {town} --json").json["communities"][0]
    group = sh(f"graphrag-local show community {community} {town} --json").json
    report = sh(f"graphrag-local show report {community[:12]} {town} --json")

    assert document["entities"] == ["Ada Brandt", "Harbour Board", "Tallow Bridge"]
    assert [(chunk["start"], chunk["end"]) for chunk in document["chunks"]] == [(0, len(documents["news.html"].text))]
    assert "Ada Brandt" in group["members"]
    assert report.json["title"] == group["report"]
    assert report.json["findings"]
    for finding in report.json["findings"]:
        assert finding["sources"]
        assert all(opens(source, documents) for source in finding["sources"])
    for line in ("document news.html", f"community {community}", f"report {community}"):
        done = sh(f"graphrag-local show {line} {town}")
        assert done.code == 0
        assert "Ada Brandt" in done.out
        assert not ESCAPE.search(done.out)


def test_a_name_that_fits_several_gives_ids_that_fit_one(town):
    """The ids named in the hint can be pasted."""
    done = sh(f"graphrag-local show entity 'a' {town}")
    ids = [part.split(" (")[0] for part in done.err.split("these ids: ")[1].split("; ")]

    assert done.code == 2
    assert len(ids) > 1
    assert sh(f"graphrag-local show entity {ids[0]} {town}").code == 0


def test_no_failures_are_said_to_be_none(town):
    """`show failures` of a clean index says so, and is an empty list for programs."""
    assert sh(f"graphrag-local show failures {town}").out == "Nothing failed.\n"
    assert sh(f"graphrag-local show failures {town} --json").json == []


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_is_not_overrun(town, width, monkeypatch):
    """On a terminal no line of `status`, `show`, `doctor` and `models list` is wider than it, and words are not broken."""
    monkeypatch.setenv("COLUMNS", str(width))
    commands = (f"show entity 'Mira Holt' {town}", f"status {town}", f"doctor {town}", "models list")
    seen = "".join(sh(f"graphrag-local {command}", terminal=True).out for command in commands)
    lines = [ESCAPE.sub("", line).rstrip() for line in seen.splitlines() if "/" not in line]  # a long path is one word

    assert max(map(len, lines)) <= width
    assert "Mira Holt asked the Harbour Board for a lamp on Tallow Bridge." in " ".join(" ".join(lines).split())


# --- doctor


def test_doctor_finds_nothing_wrong_with_a_sound_project(town):
    """Every part is looked at; what is only less than best is a warning with what to do; the exit code is 0."""
    done = sh(f"graphrag-local doctor {town} --json")
    rows = {row["what"]: row for row in done.json}

    assert done.code == 0
    assert {"settings", "collection", "disk", "models", "device", "model", "token counts", "speed", "embedder", "index"} <= set(rows)
    assert not [row for row in done.json if row["state"] == "fail"]
    assert "local-model" in rows["model"]["found"] or "tokenizer" in rows["model"]["found"]
    assert rows["token counts"]["hint"]
    size = sum(path.stat().st_size for path in (town / "input").rglob("*") if path.is_file())
    speed, tokens, alone = re.match(r"([\d.e+]+) tokens/s .* about ([\d,]+) tokens: ([\d,]+) minutes", rows["speed"]["found"]).groups()
    assert int(tokens.replace(",", "")) == round(size / 4.6)
    assert int(alone.replace(",", "")) == pytest.approx(1.6 * size / 4.6 / float(speed) / 60, abs=1)


def test_doctor_says_what_is_wrong_and_what_to_do(tmp_path):
    """No documents, no model and no index are three findings with a hint each; the exit code is 1 and the text form says the same."""
    (tmp_path / "input").mkdir()

    done = sh(f"graphrag-local doctor {tmp_path} --json --set engine.kind=embedded")
    text = sh(f"graphrag-local doctor {tmp_path} --set engine.kind=embedded").out
    rows = {row["what"]: row for row in json.loads(done.out)}

    assert done.code == 1
    assert [rows[what]["state"] for what in ("collection", "model", "index")] == ["fail", "fail", "warn"]
    for row in rows.values():
        assert row["state"] == "ok" or row["hint"]
        assert " ".join(row["hint"].split()) in " ".join(text.split())
