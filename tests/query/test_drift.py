"""Drift search: what it begins with, how it asks on, how many calls that takes, and what it does where the model cannot."""

import asyncio
import json
import re
from dataclasses import replace

import pytest

from graphrag_local.engine.base import Reply
from graphrag_local.errors import ContextOverflow, ReplyInvalid
from graphrag_local.prompting import load_all
from graphrag_local.query.ask import ask, retrieve
from graphrag_local.query.followups import LONGEST, constraint, distinct, read_step
from graphrag_local.settings import QuerySettings
from tests.fakes import model_of
from tests.query.asking import asked
from tests.query.test_local import QUESTION, Quarters, village
from tests.query.world import NoEmbedder, Reader, WordEmbedder, evidence, text_index

PROMPTS = load_all()


def step(request):
    """Which prompt this is."""
    system = request.messages[0].content
    return "primer" if "You begin to answer" in system else "followup" if "on the way to a main question" in system else "reduce"


class Detective:
    """Takes the first lines of each step for points and asks `number` new questions each time; the score rises with the steps."""

    def __init__(self, form="grammar", number=9, points=1):
        self.form, self.number, self.points, self.steps = form, number, points, 0

    def __call__(self, request):
        if step(request) == "reduce":
            return Reader(form=self.form)(request)
        self.steps += 1
        lines = list(evidence(request).items())[: self.points]
        told = [(text, [short], min(100, 10 * self.steps)) for short, text in lines]
        asks = [f"Where is place {self.steps} of number {n}?" for n in range(self.number)] if "questions" in request.messages[0].content else []
        if self.form == "schema":
            points = [{"text": text, "sources": cited, "score": score} for text, cited, score in told]
            return json.dumps({"useful": "Y" if told else "N", "points": points, "questions": asks})
        lines = [f"{text}\t{','.join(cited)}\t{score}\n" for text, cited, score in told] + [f"?\t{question}\n" for question in asks]
        return ("Y\n" if told else "N\n") + "".join(lines)


def drift(index, answer, *, form="grammar", window=32_000, tiny=False, embedder=None, history=None, question=QUESTION, level=None, **options):
    model = model_of(answer, form=form, window=window, tiny=tiny, counter=Quarters(), history=history)
    settings = QuerySettings(**{"support": "off", **options})
    return asyncio.run(ask(question, index, model, embedder or WordEmbedder(), PROMPTS, settings, mode="drift", level=level))


@pytest.mark.parametrize("form", ["grammar", "schema"])
@pytest.mark.parametrize("embedder", [WordEmbedder(), NoEmbedder()])
def test_reports_then_questions_then_one_answer(form, embedder):
    """Two rounds of three questions by default: eight calls, whose citations are all of their own windows, and notes that say so."""
    history = []
    done = drift(village(), Detective(form), form=form, embedder=embedder, history=history)

    assert [step(request) for request in history] == ["primer", *["followup"] * 6, "reduce"]
    assert shown_kinds(history[0]) == {"R"}
    assert "C" in shown_kinds(history[1])
    assert all(QUESTION in request.messages[-1].content for request in history)
    assert done.answered
    assert done.citations
    assert done.level == 0
    assert sum(note.startswith("Round ") for note in done.notes) == 2
    assert any(note.startswith("8 calls of at most 8 made, 7 points found") for note in done.notes)
    assert done.usage.calls == 8


def shown_kinds(request):
    return {short[0] for short in evidence(request)}


@pytest.mark.parametrize(("rounds", "followups", "calls"), [(0, 3, 2), (1, 2, 4), (2, 3, 8), (3, 1, 5), (2, 0, 2)])
def test_calls_are_bounded_by_the_settings(rounds, followups, calls):
    """One call for the reports, at most so many questions a round, one for the answer, whatever the model would ask."""
    history = []
    drift(village(), Detective(), history=history, drift_rounds=rounds, drift_followups=followups)

    assert len(history) == calls
    asks = [request.constraint.lark for request in history if step(request) != "reduce"]
    assert all((f"ask{{0,{followups}}}" in lark) == bool(followups and rounds and number < calls - 1 - followups) for number, lark in enumerate(asks))


def test_bounds_hold_with_checks_of_support():
    """Checks of sentences are the only calls beyond the bound, and there are no more of them than sentences allowed."""
    done = asked(village(), Detective(), question=QUESTION, mode="drift", support_calls=3)

    assert len(done.history) - len(done.checks) <= 8
    assert len(done.checks) <= 3
    assert done.heard == done.answer.answer
    assert any("Asking on" in event.text for event in done.of("progress"))


def test_the_questions_of_the_best_step_go_first():
    """The second round has the questions of the step whose point helped most, none twice."""
    history = []
    drift(village(), Detective(number=3), history=history)
    second = [request.messages[-1].content.rpartition("Question: ")[2] for request in history[4:7]]

    assert second == [f"Where is place 4 of number {n}?" for n in range(3)]


def test_a_model_that_does_not_ask_reads_what_is_near_the_question():
    """Without follow-up questions the question itself is read in its neighbourhood, once."""
    history = []
    drift(village(), Detective(number=0), history=history)

    assert [step(request) for request in history] == ["primer", "followup", "reduce"]
    assert history[1].messages[-1].content.endswith(f"Question: {QUESTION}")
    assert any("Tarnholm" in text for short, text in evidence(history[1]).items() if short.startswith("C"))


def test_what_does_not_help_is_no_answer():
    """N at every step is a refusal without a final call; points of score 0 are none."""
    history = []
    done = drift(village(), lambda request: "N\n", history=history)

    assert not done.answered
    assert [step(request) for request in history] == ["primer", "followup"]
    assert any("none holds anything" in note for note in done.notes)
    assert not drift(village(), lambda request: f"Y\nSo it is.\t{next(iter(evidence(request)))}\t0\n").answered


def test_a_step_that_fails_does_not_end_it():
    """A reply that cannot be used in two tries is counted; where every step fails that is an error."""

    def answer(request):
        return Reply(text="??", finish_reason="stop") if step(request) == "primer" else Detective(number=0)(request)

    done = drift(village(), answer)

    assert done.answered
    assert any(note.startswith("1 gave no usable reply") for note in done.notes)
    with pytest.raises(ReplyInvalid, match="any of 2 steps"):
        drift(village(), lambda request: "??")


def test_a_window_that_the_server_refuses_is_made_smaller_once():
    """A step that is too long for the server is asked again with less."""
    history = []

    def answer(request):
        if len(history) == 1:
            raise ContextOverflow("too long", window=8000)
        return Detective()(request)

    assert drift(village(long=20), answer, history=history).answered
    assert len(history[1].messages[-1].content) < len(history[0].messages[-1].content)


@pytest.mark.parametrize("window", [2000, 8000, 32_000])
def test_every_prompt_fits_the_model(window):
    """Prompt and reply fit whatever the window."""
    history = []
    drift(village(long=30), Detective(), window=window, history=history)

    for request in history:
        assert sum(Quarters().count(message.content) + 10 for message in request.messages) + 16 + request.max_tokens <= window


def test_communities_without_a_report_are_read_as_elements():
    """Without any report it begins with entities and their edges; without entities it reads passages as `basic` does."""
    history = []
    assert drift(village(reported=False), Detective(), history=history).answered
    assert shown_kinds(history[0]) >= {"E", "K"}
    done = drift(text_index(a="The board paid for the mole."), Reader(), question="Who paid for the mole?")
    assert done.answered
    assert any("no entities" in note for note in done.notes)


def test_a_tiny_model_chooses_and_asks_nothing():
    """A model too small to write chooses sentences of the reports and of what is near the question: three calls, all of it quoted."""
    history = []

    def choose(request):
        known = re.findall(r'p\d+: "([A-Z]\d+)', request.constraint.lark)
        return "Y\n" + "".join(f"{short}\t50\n" if step(request) != "reduce" else f"{short}\n" for short in known[:3])

    index = village()
    done = drift(index, choose, tiny=True, history=history)

    assert len(history) == 3
    assert any(note.startswith("3 calls of at most 3 made") for note in done.notes)
    assert '"N"' not in history[-1].constraint.lark
    assert done.sentences
    assert all(any(sentence.text in document.text for document in index.documents()) for sentence in done.sentences)


def test_a_question_near_to_nothing_begins_with_the_most_important_reports():
    """Where neither words nor vectors find a report, those with the best rating are read, as many as the settings say."""
    history = []
    index = village()
    one, two = index.reports()
    index.rows["reports"] = [replace(one, rating=2.0), replace(two, rating=8.0)]
    drift(index, Detective(), question="Xyzzy plugh?", embedder=NoEmbedder(), history=history, drift_reports=1)

    assert f"# {two.title}" in history[0].messages[-1].content
    assert one.title not in history[0].messages[-1].content


def test_questions_are_read_and_made_distinct():
    """Questions of another wording count, numbers before them and repeated ones do not; texts and marks are none."""
    assert distinct(["1. Who is Karl?", "who is KARL", "?", "Why?", "x " * LONGEST], ["Why"]) == ("Who is Karl?",)
    read = read_step("grammar", "Y\nHe swam.\tC1,C9\t40\n?\tWhere did he swim?\n?\tWhen?\n", ["C1"], 1)
    assert (read.questions, read.answered.items[0].sources, read.answered.items[0].score) == (("Where did he swim?",), ("C1",), 40)
    assert read_step("schema", '{"useful":"N","points":[],"questions":["Where?"]}', ["C1"], 3).questions == ("Where?",)
    assert read_step("grammar", "N\n?\tWhere?\n", ["C1"], 3).answered.useful is False
    with pytest.raises(ValueError, match="nothing complete"):
        read_step("grammar", "Y\nHe swam.\tC1", ["C1"], 3)


def test_the_last_round_cannot_ask():
    """Where no round follows, no question can be decoded."""
    assert "?" not in constraint("grammar", ["C1"], 3, 0).lark.replace("[0-9]/", "")
    assert "questions" not in constraint("schema", ["C1"], 3, 0).text


def test_hits_are_the_reports_it_begins_with():
    """Without a model the records are those of the first step."""
    hits = asyncio.run(retrieve(QUESTION, village(), WordEmbedder(), QuerySettings(), "drift", None, 5))

    assert {hit.kind for hit in hits} == {"report"}


def test_the_order_of_rows_does_not_matter():
    """The same records in another order give the same prompts."""
    one, two = [], []
    drift(village(), Detective(), history=one)
    drift(village().shuffled(3), Detective(), history=two)

    assert [request.messages for request in one] == [request.messages for request in two]
