"""Mode lazy: the budget, where it goes, what is read, and that citations stay within what was read."""

import asyncio
from dataclasses import replace

import pytest

from graphrag_local.engine.base import Gate, Reply
from graphrag_local.query.ask import ask
from graphrag_local.query.lazy_search import DRY, ROUND, groups_of
from graphrag_local.query.view import View
from graphrag_local.records import Community
from graphrag_local.settings import QuerySettings
from tests.fakes import Characters, model_of
from tests.query.test_mapreduce import PROMPTS
from tests.query.world import MemoryIndex, NoEmbedder, Reader, evidence, graph_index, is_empty_window, text_index

QUESTION = "Which keeper paid for a lamp?"


def is_check(request):
    """Whether this is the call that tests a passage."""
    return "one passage" in request.messages[0].content


def harbour(number=60, good=lambda n: n % 10 == 3):
    """So many one-sentence documents that all share words with the question; in `good` ones the keeper paid."""
    said = {f"d{n:02}": f"Keeper {n} {'paid for' if good(n) else 'only saw'} a lamp at pier {n}." for n in range(number)}
    return text_index(**said)


class Hunter(Reader):
    """Says Y to passages where somebody paid, by a letter or, where `odds` are set, by a probability; reads as Reader does."""

    odds = None

    def __call__(self, request):
        if not is_check(request):
            return super().__call__(request)
        good = not is_empty_window(request) and "paid for" in request.messages[-1].content.split("</text>")[0]
        p = None if self.odds is None else self.odds[2] if is_empty_window(request) else self.odds[0] if good else self.odds[1]
        return Reply(text="Y" if good else "N", finish_reason="stop", gate=p)


def hunter(odds=None):
    made = Hunter()
    made.odds = odds
    return made


def asked(index, reader, *, logprobs=None, question=QUESTION, **options):
    history = []
    model = model_of(reader, form="grammar", counter=Characters(), history=history)
    told = reader.odds is not None if logprobs is None else logprobs
    model = replace(model, card=replace(model.card, logprobs=told))
    settings = QuerySettings(**{"support": "off", "window_tokens": 900, "map_reply_tokens": 600, "reply_tokens": 600, **options})
    answer = asyncio.run(ask(question, index, model, NoEmbedder(), PROMPTS, settings, mode="lazy", level=None))
    return answer, [r for r in history if is_check(r)], [r for r in history if not is_check(r)]


def read_of(requests):
    """What the map step was shown."""
    return [line for r in requests if "one part" in r.messages[0].content and not is_empty_window(r) for line in evidence(r).values()]


@pytest.mark.parametrize("budget", [1, 2, 7, 16, 40, 1000])
@pytest.mark.parametrize("odds", [None, (0.9, 0.1, 0.2)])
def test_the_budget_of_calls_is_kept(budget, odds):
    """No more passages are tested than the budget allows, the probe of an empty passage included, and none twice."""
    answer, tests, _ = asked(harbour(), hunter(odds), relevance_budget=budget)

    assert 0 < len(tests) <= min(budget, 60 + 1)
    assert len({r.messages for r in tests}) == len(tests)
    assert all(r.gate == Gate() and r.max_tokens <= 8 for r in tests)
    assert answer.mode == "lazy"


def test_only_what_proved_relevant_is_read_and_cited():
    """The passages that were found relevant, all of them, are what the map step sees; citations open in them."""
    answer, tests, others = asked(harbour(), hunter((0.9, 0.1, 0.2)), relevance_budget=100)

    said = read_of(others)
    assert len(tests) <= 61
    assert said
    assert all("paid for" in line for line in said)
    assert answer.citations
    assert all("paid for" in source.quote for citation in answer.citations for source in citation.sources)
    assert any(note.startswith(f"{len(tests) - 1} of 60 passages tested, {len(set(said))} relevant") for note in answer.notes)


def test_a_letter_decides_where_there_are_no_probabilities():
    """Without log-probabilities Y and N are believed, and there is no probe."""
    _, tests, others = asked(harbour(), hunter(), relevance_budget=100)

    assert not any(is_empty_window(r) for r in tests)
    assert read_of(others)
    assert all("paid for" in line for line in read_of(others))


def test_a_model_that_says_yes_to_everything_finds_nothing_by_it():
    """A probability that a passage without content has too says nothing; the nearest few are read, and the notes say that."""
    answer, _, others = asked(harbour(), hunter((0.8, 0.8, 0.8)), always_read=2)

    assert len(set(read_of(others))) == 2
    assert any("No passage proved relevant, so the 2 nearest are read." in note for note in answer.notes)


def test_it_stops_where_nothing_is_found():
    """After two rounds without anything relevant the rest of the budget is not spent."""
    answer, tests, _ = asked(harbour(good=lambda n: False), hunter(), relevance_budget=60)

    assert len(tests) == DRY * ROUND
    assert any("Testing ended after 2 rounds" in note for note in answer.notes)


def grouped(number, size, good):
    """An index of one-chunk documents in communities of `size` by one entity each; the documents of the community `good` answer."""
    index = harbour(number, lambda n: n // size == good)
    facts = {f"Keeper {n // size}x{n}": chunk.text for n, chunk in enumerate(sorted(index.chunks(), key=lambda c: int(c.text.split()[1])))}
    graph = graph_index(facts, [])
    chunk_of = dict(zip(facts, sorted(index.chunks(), key=lambda c: int(c.text.split()[1])), strict=True))
    mentions = [replace(m, chunk_id=chunk_of[m.name].id, document_id=chunk_of[m.name].document_id) for m in graph.mentions()]
    entity = {e.name: e.id for e in graph.entities()}
    names = list(facts)
    communities = [
        Community(id=f"k{at:03}", first_level=0, last_level=0, parent_id="", child_ids=(), member_ids=tuple(sorted(entity[n] for n in names[at : at + size])))
        for at in range(0, number, size)
    ]
    return MemoryIndex(rows={**index.rows, "entities": graph.entities(), "mentions": mentions, "communities": communities})


def test_the_budget_goes_to_communities_that_proved_relevant():
    """Of a hundred passages that are equally near, ten in one community answer: a third of the calls finds most of them, by chance it would be a third."""
    index = grouped(100, 10, good=7)
    assert set(groups_of(View(index)).values()) == {c.id for c in index.communities()}
    _, tests, others = asked(index, hunter(), relevance_budget=40)

    assert len(tests) <= 40
    assert len(set(read_of(others))) >= 8


def test_an_index_without_entities_is_grouped_by_document():
    """Nothing but chunks is needed."""
    index = harbour(8)
    assert groups_of(View(index)) == {chunk.id: chunk.document_id for chunk in index.chunks()}
    assert asked(index, hunter())[0].answered


def test_a_passage_longer_than_its_room_is_tested_by_what_is_like_the_question():
    """Of a long passage the sentences that share words with the question are shown, within the room."""
    filler = " ".join(f"The tide table of day {n} is on the wall." for n in range(400))
    index = text_index(long=f"{filler} Keeper Ada paid for a lamp. {filler}")
    _, tests, _ = asked(index, hunter())

    assert "paid for" in tests[0].messages[-1].content
    assert len(tests[0].messages[-1].content) < 1600


def test_a_test_without_a_usable_reply_keeps_the_passage():
    """What could not be tested counts as relevant and is said."""

    def mumbles(request):
        return "perhaps" if is_check(request) else Reader()(request)

    mumbles.odds = None
    answer, tests, others = asked(harbour(6), mumbles)
    assert len(tests) <= 12
    assert len(set(read_of(others))) == 6
    assert any("6 passages could not be tested" in note for note in answer.notes)


@pytest.mark.parametrize(
    ("odds", "margin", "read"), [((0.95, 0.93, 0.9), -1.0, 3), ((0.95, 0.93, 0.9), 0.0, 3), ((0.95, 0.6, 0.1), -1.0, 6), ((0.95, 0.6, 0.1), 0.0, 60)]
)
def test_probabilities_that_say_nothing_do_not_make_everything_relevant(odds, margin, read):
    """Where every passage passes and hardly one is likelier than an empty one, or none was tested, the nearest few or those clearly likelier are read."""
    answer, _, others = asked(harbour(), hunter(odds), gate=0.0, refusal_margin=margin, always_read=2, top_chunks=3, relevance_budget=100)

    assert len(set(read_of(others))) == read
    assert any("found every passage relevant" in note for note in answer.notes) is (read < 60)
    assert read != 6 or all("paid for" in line for line in read_of(others))
