"""`query`: the answer object for programs, the answer for people."""

import re

import pytest

from graphrag_local.query.mapreduce import EMPTY_WINDOW
from tests.cli.shell import ESCAPE, SCRIPT, project, sh
from tests.cli.test_show import opens, texts
from tests.modelserver import ModelServer

ANSWER = {"answer", "mode", "level", "generation", "citations", "answered", "stale", "sentences", "missing", "nearest", "usage", "notes"}
QUESTION = "Who asked for a lamp on Tallow Bridge?"


@pytest.mark.parametrize(("mode", "level"), [("global", 0), ("source", None), ("basic", None)])
def test_the_answer_object_is_the_promised_one(town, mode, level):
    """`query --json` is the answer object with exactly its keys; every citation opens at the words it quotes and is named in the text."""
    done = sh(f"graphrag-local query '{QUESTION}' {town} --mode {mode} --json")
    answer, documents = done.json, texts(town)

    assert done.code == 0
    assert set(answer) == ANSWER
    assert (answer["mode"], answer["level"], answer["answered"], answer["stale"]) == (mode, level, True, False)
    assert set(answer["usage"]) == {"calls", "prompt_tokens", "cached_tokens", "completion_tokens", "seconds"}
    assert {int(number) for number in re.findall(r"\[(\d+)\]", answer["answer"])} == {citation["n"] for citation in answer["citations"]} != set()
    for citation in answer["citations"]:
        assert set(citation) == {"n", "kind", "id", "title", "sources"}
        assert citation["sources"]
        for source in citation["sources"]:
            assert set(source) == {"document", "chunk", "start", "end", "quote", "place"}
            assert opens(source, documents)
    for sentence in answer["sentences"]:
        assert set(sentence) == {"text", "cites", "verdict", "p"}


def test_people_get_text_citations_and_cost(town):
    """In a file: the text, then each citation with its document, place, offsets and quote on one line, then what it cost; model talk is on stderr."""
    done = sh(f"graphrag-local query '{QUESTION}' {town} --mode basic")
    answer = sh(f"graphrag-local query '{QUESTION}' {town} --mode basic --json").json

    lines = done.out.splitlines()
    assert lines[0] == answer["answer"].splitlines()[0]
    for citation in answer["citations"]:
        assert f"[{citation['n']}] {citation['kind']}: {citation['title']}" in lines
        for source in citation["sources"]:
            place = f", {source['place']}" if source["place"] else ""
            quote = " ".join(source["quote"].split())
            assert f"    {source['document']}{place} ({source['start']}-{source['end']}): “{quote}”" in lines
    assert re.search(r"mode basic; generation 000001-\w+; \d+ calls?, [\d,]+ prompt \([\d,]+ cached\) \+ [\d,]+ completion tokens, [\d.]+ s", done.out)
    assert "Model: local-model" in done.err
    assert not ESCAPE.search(done.out)


@pytest.mark.parametrize("width", [80, 120])
def test_an_answer_fits_a_terminal(town, width, monkeypatch):
    """Lines break between words at the terminal's width, quotations stay indented, and NO_COLOR leaves no colour."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    seen = sh(f"graphrag-local query '{QUESTION}' {town}", terminal=True).out
    lines = [ESCAPE.sub("", line).rstrip() for line in seen.splitlines()]

    assert max(map(len, lines)) <= width
    assert any(line.startswith("    ") and "“" in line for line in lines)
    assert not re.search(r"\x1b\[(?:\d+;)*[349]\d(?:;\d+)*m", seen)


def test_retrieve_only_calls_no_model(town, server):
    """The ranked records have the promised fields and places that open; no request reaches the model server."""
    before = len(server.log)

    hits = sh(f"graphrag-local query 'Tallow Bridge' {town} --retrieve-only --mode basic -k 2 --json").json
    table = sh(f"graphrag-local query 'Tallow Bridge' {town} --retrieve-only").out

    assert len(server.log) == before
    assert len(hits) == 2
    assert all(set(hit) == {"id", "kind", "document", "start", "end", "score"} for hit in hits)
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
    assert table.splitlines()[0].split() == ["id", "kind", "document", "start", "end", "score"]
    assert float(table.splitlines()[1].split()[-1]) > 0


def test_retrieve_only_takes_the_mode_that_a_question_is_for(town):
    """Without `--mode` a question with a name has passages and what is around it, as with `--mode auto`, and not the reports of the whole."""
    line = f"graphrag-local query 'Who asked for Tallow Bridge?' {town} --retrieve-only --json"
    hits = sh(line).json

    assert hits == sh(f"{line} --mode auto").json
    assert hits[0]["kind"] == "chunk"


@pytest.mark.parametrize("mode", ["global", "source"])
def test_a_question_the_collection_does_not_answer_is_declined(town, mode):
    """Where no window is likelier to help than one without content, nothing is invented: a sentence says so, the notes say why, and the exit code is 0."""
    unsure = {"token_p": {"Y": 0.3, "N": 0.7}}
    empty = {"on": ["answer"], "when_prompt_has": f"<text>\n{EMPTY_WINDOW}\n</text>", "do": {"token_p": {"Y": 0.4, "N": 0.6}}}
    with ModelServer({"rules": [empty, {"on": ["answer"], "do": unsure}]}) as doubtful:
        line = f"graphrag-local query 'Who won the chess cup?' {town} --mode {mode} --set engine.url={doubtful.url}"
        answer, people = sh(f"{line} --json"), sh(line)

    assert answer.code == people.code == 0
    assert (answer.json["answered"], answer.json["citations"], answer.json["sentences"]) == (False, [], [])
    assert answer.json["answer"] == people.out.splitlines()[0] == "The documents do not answer this question."
    assert any("0.30" in note and "0.40" in note for note in answer.json["notes"])


def test_the_seconds_of_an_answer_are_what_the_asker_waited(tmp_path):
    """Windows that are read at the same time count once."""
    slow = SCRIPT | {"rules": [{"on": ["answer"], "do": {"delay_s": 0.5}}]}
    with project(tmp_path, script=slow):
        assert sh(f"graphrag-local index {tmp_path}").code == 0
        line = f"graphrag-local query '{QUESTION}' {tmp_path} --mode source --set query.window_tokens=64 --json"
        usage = sh(line).json["usage"]

    assert usage["calls"] >= 4
    assert 1.0 <= usage["seconds"] < 0.5 * usage["calls"]


def test_a_project_in_place_of_the_question_is_pointed_out(town):
    """Who forgets the question is told so, not that a folder without an index is asked."""
    done = sh(f"graphrag-local query {town}")

    assert (done.code, done.out) == (2, "")
    assert "The question comes first" in done.err


def test_a_level_in_a_mode_without_levels_is_noted(town):
    """A level given to a mode without levels is noted, not an error."""
    answer = sh(f"graphrag-local query '{QUESTION}' {town} --mode basic --level 1 --json").json

    assert any("has no levels" in note for note in answer["notes"])
