"""When an answer from one window is declined: by the probability of Y beside that without evidence, not by the letter alone."""

import asyncio

import pytest

from graphrag_local.query.ask import ask
from graphrag_local.query.single import MOST_CALLS
from graphrag_local.settings import QuerySettings
from tests.fakes import Characters, model_of
from tests.query.test_mapreduce import PROMPTS, islands
from tests.query.world import Reader, WordEmbedder, is_empty_window

QUESTION = "Who keeps the lighthouse of harbour 2?"


def asked(mode: str, p: float | None, floor: float | None, form: str = "grammar", answers: bool = False, **settings):
    """The answer of a model that says N (or Y) wherever it may and gives Y these probabilities, with evidence and without, and its calls."""
    history = []
    reader = Reader(form=form, answers=answers, gate=lambda request: floor if is_empty_window(request) else p)
    model = model_of(reader, form=form, counter=Characters(), history=history)
    rules = QuerySettings(support="off", window_tokens=4000, local_tokens=4000, reply_tokens=600, **settings)
    done = asyncio.run(ask(QUESTION, islands(), model, WordEmbedder(), PROMPTS, rules, mode=mode, level=None))
    return done, history


@pytest.mark.parametrize("form", ["grammar", "schema"])
@pytest.mark.parametrize("mode", ["basic", "local"])
def test_a_doubtful_no_is_not_believed(mode, form):
    """Y was not improbable, and more probable than with nothing to read: the model answers without the choice, and the notes say so."""
    done, history = asked(mode, 0.4, 0.1, form)

    assert done.answered
    assert len(history) == MOST_CALLS
    assert any("0.40" in note and "0.10" in note for note in done.notes)


@pytest.mark.parametrize("mode", ["basic", "local"])
@pytest.mark.parametrize(
    ("p", "floor", "calls", "settings"),
    [
        (0.4, 0.4, 2, {}),  # the evidence changes nothing
        (0.4, 0.6, 2, {}),
        (0.4, 0.3, 2, {"refusal_margin": 0.2}),
        (0.1, 0.0, 1, {}),  # improbable: nothing to measure
        (0.4, 0.1, 1, {"gate": 0.5}),
        (None, None, 1, {}),  # a server that gives no probabilities is believed
    ],
)
def test_a_plain_no_is_believed(mode, p, floor, calls, settings):
    """Where Y was improbable, or no more probable than with nothing to read, nothing is answered; without need nothing more is asked."""
    done, history = asked(mode, p, floor, **settings)

    assert not done.answered
    assert done.citations == ()
    assert len(history) == calls


@pytest.mark.parametrize("form", ["grammar", "schema"])
@pytest.mark.parametrize("mode", ["basic", "local"])
def test_a_yes_to_everything_is_not_believed(mode, form):
    """Y was less probable than with nothing to read: nothing is answered, and the notes say so."""
    done, history = asked(mode, 0.7, 0.8, form, answers=True)

    assert not done.answered
    assert done.citations == ()
    assert len(history) == 2
    assert any("0.70" in note and "0.80" in note for note in done.notes)


@pytest.mark.parametrize("mode", ["basic", "local"])
@pytest.mark.parametrize(
    ("p", "floor", "calls", "settings"),
    [
        (0.7, 0.2, 2, {}),
        (0.7, 0.7, 2, {}),  # nothing speaks against its letter
        (0.7, 0.6, 2, {"refusal_margin": 0.05}),
        (0.995, 1.0, 1, {}),  # so sure that nothing is measured
        (None, None, 1, {}),  # a server that gives no probabilities is believed
        (0.7, 0.8, 1, {"refusal_margin": -1}),  # nothing is ever declined
    ],
)
def test_a_plain_yes_is_believed(mode, p, floor, calls, settings):
    """Where the evidence makes Y no less probable it answers, in one call where it is sure."""
    done, history = asked(mode, p, floor, answers=True, **settings)

    assert done.answered
    assert done.citations
    assert len(history) == calls
