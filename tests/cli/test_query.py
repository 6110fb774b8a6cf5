"""`query`: the answer object for programs, the answer for people."""

import re

import pytest

from tests.cli.shell import ESCAPE, sh
from tests.cli.test_show import opens, texts

ANSWER = {"answer", "mode", "level", "generation", "citations", "answered", "stale", "sentences", "usage", "notes"}
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


def test_a_question_the_collection_does_not_answer_is_declined(town):
    """A level given to a mode without levels is noted, not an error."""
    answer = sh(f"graphrag-local query '{QUESTION}' {town} --mode basic --level 1 --json").json

    assert any("has no levels" in note for note in answer["notes"])
