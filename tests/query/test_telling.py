"""An answer heard while it is written: what is shown is the answer, citations come whole, verdicts follow, strict sentences wait for theirs."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrag_local.engine.base import Model, Reply
from graphrag_local.engine.ledgered import Ledgered
from graphrag_local.engine.scripted import CARD, ScriptedEngine
from graphrag_local.query.ask import ask
from graphrag_local.query.cite import clean
from graphrag_local.query.telling import Hearing, settled
from graphrag_local.settings import QuerySettings
from tests.fakes import Characters
from tests.query.asking import PROMPTS, Judge, asked
from tests.query.test_support import INDEX, REPLY, replying
from tests.query.world import Reader, WordEmbedder, graph_index, step

KINDS = ("text", "citation", "sentence")


def test_words_come_one_by_one_and_citations_whole():
    """Text comes in many pieces that end between words, each marker in one piece with what it opens, and all of it joined is the answer."""
    done = asked(INDEX, replying(REPLY))

    assert done.heard == done.answer.answer
    assert done.of("restart") == []
    assert len(done.of("text")) >= 10
    assert [event.text.strip() for event in done.of("citation")] == ["[1]", "[2]", "[3]"]
    assert tuple(event.citation for event in done.of("citation")) == done.answer.citations
    assert all(event.text[:1] in " \n" for event in done.of("text")[1:] if event.text != ".")


def test_each_verdict_follows_its_sentence():
    """A sentence event has the sentence as it stands in the answer object, in order, and never comes before its text and citations."""
    done = asked(INDEX, replying(REPLY), judge=Judge({"whale": ("N", 0.1)}))

    assert tuple(event.sentence for event in done.of("sentence")) == done.answer.sentences
    text = ""
    for event in done.events:
        text += event.text if event.kind in ("text", "citation") else ""
        assert event.kind != "sentence" or (event.text in text and all(f"[{n}]" in text for n in event.sentence.cites))


def test_a_strict_answer_shows_only_what_has_its_verdict():
    """Nothing of a sentence is shown before it is found supported, and what is not is never shown."""
    done = asked(INDEX, replying(REPLY), judge=Judge({"paid": ("N", 0.1)}), strict=True)

    assert done.heard == done.answer.answer == "A whale broke it. [1][2]\n\nIt is said that Nils keeps carp. [3]"
    assert [event.text.strip() for event in done.of("text")] == ["A whale broke it.", "It is said that Nils keeps carp."]
    assert done.of("restart") == []


@pytest.mark.parametrize("form", ["grammar", "schema"])
@pytest.mark.parametrize("mode", ["basic", "global", "source"])
@pytest.mark.parametrize("strict", [False, True])
def test_every_mode_and_form_tells_its_answer(form, mode, strict):
    """Only the last call is told; map windows are progress; a listener changes nothing about the answer."""
    index = graph_index({"Ann": "Ann keeps the lock.", "Bo": "Bo owns a barge.", "Cy": "Cy sails."}, [["Ann"], ["Bo", "Cy"]], [("Ann", "Bo")], [0])
    told = asked(index, Reader(form=form), mode=mode, form=form, strict=strict)
    silent = asked(index, Reader(form=form), mode=mode, form=form, strict=strict, deaf=True)

    assert told.heard == told.answer.answer
    assert told.answer == silent.answer
    assert bool(told.of("progress")) is (mode != "basic")
    assert len([request for request in told.history if isinstance(getattr(request.heard, "__self__", None), Hearing)]) == 1
    assert told.of("restart") == []


def test_a_refusal_is_told_whole():
    """The model's N is never shown as text; the refusal comes in one piece."""
    done = asked(INDEX, replying("N"))

    assert [event.text for event in done.of("text")] == [done.answer.answer] == ["The documents do not answer this question."]
    assert not done.answer.answered


def test_a_reply_that_is_cut_off_restarts():
    """A paragraph that breaks off before its citation does not count; who listened is told so, and then the answer again."""
    cut = Reply(text="Y\nThe mole was paid.\tC1\nIt is said that N", finish_reason="length")
    done = asked(INDEX, lambda request: cut)

    assert done.heard == done.answer.answer == "The mole was paid. [1]"
    assert len(done.of("restart")) == 1


def test_a_second_attempt_that_says_the_same_goes_on():
    """An unusable first reply is not shown twice: what the second has in common with it stands, and where they differ there is one restart."""
    replies = iter(["Y\nThe mole was", "Y\nThe mole was paid by them.\tC1\n", "Y\nA mole was", "Y\nThe mole was paid by them.\tC1\n"])
    same = asked(INDEX, lambda request: next(replies))
    other = asked(INDEX, lambda request: next(replies))

    assert same.heard == same.answer.answer == other.heard
    assert same.of("restart") == []
    assert len(other.of("restart")) == 1


def test_points_that_stand_for_an_answer_are_told():
    """Where the last call fails the points found are the answer, and that is what is heard."""
    reader = Reader()
    index = graph_index({"Ann": "Ann keeps the lock.", "Bo": "Bo owns a barge."}, [["Ann"], ["Bo"]])
    done = asked(index, lambda request: "Sure." if step(request) == "reduce" else reader(request), mode="global")

    assert done.heard == done.answer.answer
    assert done.answer.answered


PIECES = [
    "word", " ", "  ", "[C1]", "[", "]", "(also C2, C1)", "(also", ")", "<text>", "<", ">", "# ", "[12]", "[C1, C2", "李明钓鱼。", "…", "|>", "<|", "؟ ",
    "\u202e", "(a)", ". ",
]  # fmt: skip
WORDS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
CITED = st.sampled_from(["C1", "C1,C4", "C2,C3,C1"])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_what_is_settled_stays(text):
    """What is settled is the beginning of the clean form of every longer text; cleaning twice is cleaning once."""
    whole = clean(text)
    shown = [settled(text[:end]) for end in range(len(text) + 1)]

    assert all(whole.startswith(part) for part in shown)
    assert all(longer.startswith(part) for part, longer in pairwise(shown))
    assert clean(whole) == whole


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(WORDS, CITED), min_size=1, max_size=4), st.booleans())
def test_a_reply_of_the_grammar_never_restarts(paragraphs, strict):
    """Whatever words a model writes, with citations from the context what was heard is the answer, without a restart."""
    said = "".join(f"x {text}\t{cited}\n" for text, cited in paragraphs)
    done = asked(INDEX, replying(f"Y\n{said}"), strict=strict)

    assert done.heard == done.answer.answer
    assert done.of("restart") == []
    assert tuple(event.sentence for event in done.of("sentence")) == done.answer.sentences


def test_who_stops_listening_stops_the_calls():
    """A question that is cancelled while sentences are checked leaves no task behind."""

    class Checking(ScriptedEngine):
        async def generate(self, request):
            if request.purpose == "support":
                started.set()
                await asyncio.Event().wait()
            return await super().generate(request)

    started = asyncio.Event()

    async def main():
        engine = Checking(lambda _: REPLY, replace(CARD))
        model = Model(generate=Ledgered(engine, None).generate, card=engine.card, counter=Characters())
        heard = []
        work = asyncio.create_task(
            ask("Who paid?", INDEX, model, WordEmbedder(), PROMPTS, QuerySettings(window_tokens=4000), mode="basic", level=None, listen=heard.append)
        )
        await started.wait()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return work.cancelled(), len(asyncio.all_tasks())

    assert asyncio.run(main()) == (True, 1)
