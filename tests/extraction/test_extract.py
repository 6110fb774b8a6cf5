"""Calls about chunks: budgets, halving, gleaning, canonical names, failures as data."""

import asyncio
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrag_local.engine.base import Reply, Request
from graphrag_local.errors import EngineHung, EngineRefused
from graphrag_local.extraction.stage import extract
from graphrag_local.flow import Silent
from graphrag_local.prompting import load_all
from graphrag_local.settings import ExtractionSettings
from tests.fakes import Bytes, Characters, chunk_of, model_of

NAME = re.compile(r"\b[A-Z][a-z]+\b")


def passage(request: Request) -> str:
    return re.search(r"<text>\n(.*)\n</text>", request.messages[-1].content, re.DOTALL).group(1)


def by_capitals(request: Request) -> str:
    """Lists every capitalised word of the passage and chains them."""
    if request.purpose == "describe":
        return '{"same": []}'
    names = []
    for number, line in re.findall(r"^\[(\d+)\] (.*)$", passage(request), re.MULTILINE):
        names += [(name, int(number)) for name in NAME.findall(line)]
    entities = [{"name": n, "type": "person", "description": f"{n} is here", "sentences": [s]} for n, s in names]
    edges = [{"source": i, "target": i + 1, "description": "next", "strength": 3, "sentences": [names[i][1]]} for i in range(1, len(names))]
    return json.dumps({"entities": entities, "relationships": edges, "missed": "N", "more_entities": [], "more_relationships": []})


def run(chunks, model, **options):
    return asyncio.run(extract(chunks, {"d0": "a.txt"}, model, load_all(), ExtractionSettings(**options), progress=Silent(), limit=8))


def test_a_chunk_is_read_in_one_call():
    """One chunk, one call; every mention's span lies in the chunk and holds its name."""
    history = []
    text = "Ann met Bo. Cy left for Tarn."
    found = run([chunk_of(text, start=10)], model_of(by_capitals, history=history))

    assert len(history) == 1
    assert [e.name for e in found.extractions[0].entities] == ["Ann", "Bo", "Cy", "Tarn"]
    assert all(e.name in "".join(text[s.start - 10 : s.end - 10] for s in e.spans) for e in found.extractions[0].entities)


@pytest.mark.parametrize("text", ["* * *\n\n---", "7" * 400, ("ab" * 300 + "\n\n") * 2])
def test_what_holds_no_name_costs_no_call(text):
    """A tiny model, which may take names from the passage only, is not asked about ornaments and endless words: its grammar would allow nothing."""
    history = []
    found = run([chunk_of(text)], model_of(by_capitals, form="grammar", tiny=True, history=history))

    assert history == []
    assert found.failures == ()
    assert found.extractions[0].entities == ()


def test_a_cut_off_reply_is_asked_again_in_halves():
    """A reply at its length limit is not repaired: each half of the sentences is asked, and both count."""
    history = []

    def answer(request):
        cut = passage(request).count("[") > 2
        return Reply(text='{"entities": [', finish_reason="length") if cut else by_capitals(request)

    found = run([chunk_of("Ann sat. Bo ran. Cy ate. Di lay.")], model_of(answer, history=history))

    assert len(history) == 3
    assert {e.name for e in found.extractions[0].entities} == {"Ann", "Bo", "Cy", "Di"}
    assert found.failures == ()


def test_what_stays_unreadable_is_a_failure_and_the_rest_is_kept():
    """When one half fails too, the other half's records are kept and the failure names the document."""

    def answer(request):
        return "[]" if "Ann" in passage(request) else by_capitals(request)

    found = run([chunk_of("Ann sat. Bo ran. Cy ate. Di lay.")], model_of(answer))

    assert {e.name for e in found.extractions[0].entities} == {"Cy", "Di"}
    (failure,) = found.failures
    assert failure.input == "a.txt, part of chunk 1"
    assert not failure.retryable


def test_a_hung_request_fails_its_chunk_only():
    """One request that never came back is one failed chunk, to be tried again."""

    def answer(request):
        if "Ann" in passage(request):
            raise EngineHung("overtaken")
        return by_capitals(request)

    found = run([chunk_of("Ann sat."), chunk_of("Bo ran.", index=1)], model_of(answer))

    assert [e.name for x in found.extractions for e in x.entities] == ["Bo"]
    assert [f.retryable for f in found.failures] == [True]


def test_gleaning_happens_in_the_reply():
    """`missed: Y` adds the further records, whose numbers count on."""

    def answer(request):
        one = {"name": "Ann", "type": "person", "description": "", "sentences": [1]}
        two = {"name": "Bo", "type": "person", "description": "", "sentences": [1]}
        edge = {"source": 1, "target": 2, "description": "met", "strength": 4, "sentences": [1]}
        return json.dumps({"entities": [one], "relationships": [], "missed": "Y", "more_entities": [two], "more_relationships": [edge]})

    (extraction,) = run([chunk_of("Ann met Bo.")], model_of(answer)).extractions

    assert extraction.gleaned
    assert [e.name for e in extraction.entities] == ["Ann", "Bo"]
    assert [(r.source, r.target) for r in extraction.relationships] == [(0, 1)]


def test_gleaning_in_turns_asks_and_lists():
    """As turns: a constrained Y or N after the first reply, then the missed records."""
    history = []

    def answer(request):
        last = request.messages[-1].content
        if last.startswith("Were"):
            return "Y"
        name = "Bo" if last.startswith("List") else "Ann"
        return json.dumps({"entities": [{"name": name, "type": "person", "sentences": [1]}], "relationships": []})

    found = run([chunk_of("Ann met Bo.")], model_of(answer, history=history), gleaning="turns")

    assert [e.name for e in found.extractions[0].entities] == ["Ann", "Bo"]
    assert len(history) == 3


def test_names_of_a_document_become_canonical():
    """The pairs of one call rename mentions reversibly: the mention keeps its own name."""

    def answer(request):
        if request.purpose == "describe":
            names = re.findall(r"^\((\d+)\) (.*?) —", passage(request), re.MULTILINE)
            number = {name: int(n) for n, name in names}
            return json.dumps({"same": [{"form": number["Moss"], "name": number["Ann Moss"]}, {"form": 1, "name": 1}]})
        found = re.findall(r"Ann Moss|Moss", passage(request))
        return json.dumps({"entities": [{"name": n, "type": "person", "sentences": [1]} for n in found], "relationships": []})

    found = run([chunk_of("Ann Moss came."), chunk_of("Moss left.", index=1)], model_of(answer))

    assert [(e.name, e.canonical) for x in found.extractions for e in x.entities] == [("Ann Moss", ""), ("Moss", "Ann Moss")]


def test_a_book_of_names_is_asked_about_in_several_calls():
    """Each call's pairs count; one that cannot be read costs its own names only, and is told."""
    people = [f"Ann Moss{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(50)]

    def answer(request):
        if request.purpose == "describe":
            number = {name: int(n) for n, name in re.findall(r"^\((\d+)\) (.*?) —", passage(request), re.MULTILINE)}
            if "Mossaa" in number:
                return "nonsense"
            return json.dumps({"same": [{"form": number[name.removeprefix("Ann ")], "name": number[name]} for name in people if name in number]})
        found = re.findall(r"Ann Moss\w+|Moss\w+", passage(request))
        return json.dumps({"entities": [{"name": n, "type": "person", "sentences": [1]} for n in found], "relationships": []})

    text = " and ".join(people)
    found = run([chunk_of(f"{text}."), chunk_of(text.replace("Ann ", ""), index=1)], model_of(answer))
    second = found.extractions[1].entities

    assert [e.canonical for e in second] == [""] * 30 + people[30:]
    assert [f.stage for f in found.failures] == ["canonical names"]


@pytest.mark.parametrize("fault", [EngineHung("overtaken"), EngineRefused("the server says no")], ids=lambda fault: type(fault).__name__)
def test_a_call_about_names_that_fails_costs_the_names_only(fault):
    """A document whose call about names is refused or never answered keeps its names as they are, with a failure of its own; the run goes on."""

    def answer(request):
        if request.purpose == "describe":
            raise fault
        found = re.findall(r"Ann Moss|Moss", passage(request))
        return json.dumps({"entities": [{"name": n, "type": "person", "sentences": [1]} for n in found], "relationships": []})

    found = run([chunk_of("Ann Moss came."), chunk_of("Moss left.", index=1)], model_of(answer))

    assert [(e.name, e.canonical) for x in found.extractions for e in x.entities] == [("Ann Moss", ""), ("Moss", "")]
    assert [(f.stage, f.input, f.retryable) for f in found.failures] == [("canonical names", "a.txt", fault.retryable)]


def test_unrelated_names_cost_no_call():
    """A document whose names have nothing in common is not asked about them."""
    history = []
    run([chunk_of("Ann met Bo.")], model_of(by_capitals, history=history))

    assert [r.purpose for r in history] == ["extract"]


ALPHABET = "Ann Bo 李明在北京。 😀👨‍👩‍👧 é. !?\n abc defg"


@pytest.mark.parametrize("window", [2_000, 8_000, 32_000])
@pytest.mark.parametrize("counter", [Characters(), Bytes()], ids=lambda c: c.name)
@settings(max_examples=15, deadline=None)
@given(text=st.text(alphabet=ALPHABET, min_size=1, max_size=6000))
def test_no_request_exceeds_its_window(window, counter, text):
    """Prompt and reply room fit the window for every tokenizer, and every sentence of the chunk is sent."""
    history = []
    found = run([chunk_of(text)], model_of(by_capitals, window=window, counter=counter, history=history))

    sizes = [sum(counter.count(m.content) for m in r.messages) + r.max_tokens for r in history]
    assert all(size <= window for size in sizes)
    sent = "".join("".join(re.sub(r"^\[\d+\] ", "", passage(r), flags=re.MULTILINE).split()) for r in history if r.purpose == "extract")
    assert found.failures or sum(c.isalnum() for c in sent) >= sum(c.isalnum() for c in text)
