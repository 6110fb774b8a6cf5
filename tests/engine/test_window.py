"""Requests that come close to the model's window."""

from dataclasses import replace

import pytest

from graphrag_local.engine.base import ModelCard
from graphrag_local.engine.patient import Patient
from graphrag_local.engine.scripted import ScriptedEngine
from graphrag_local.errors import ContextOverflow
from graphrag_local.settings import EngineSettings
from graphrag_local.tokens import Estimate
from tests.engine.tools import ALL, CARD, ask_for, engine_for, said_by
from tests.fakes import Characters
from tests.modelserver import ModelServer


def patient_for(server, *, counter, card):
    """A patient engine for a server."""
    return Patient(engine_for(server.url, card=card, obeys=ALL), EngineSettings(), counter=counter)


def test_what_does_not_fit_is_not_sent():
    """Prompt and room together must fit the window; the error tells both and nothing goes out."""
    card = ModelCard(name="m", revision="1", context_tokens=100, form="schema")
    engine = ScriptedEngine(lambda _: "ok", card)
    patient = Patient(engine, EngineSettings(), counter=Characters())
    with pytest.raises(ContextOverflow, match="window of 100") as caught:
        said_by(patient, ask_for("x" * 60, max_tokens=20))
    assert (caught.value.window, caught.value.prompt_tokens) == (100, 86)
    assert engine.history == []
    assert said_by(patient, ask_for("x" * 50, max_tokens=20)).text == "ok"


def test_a_close_estimate_is_checked_with_the_server():
    """An estimate over 85% of the window is replaced by the server's own count; one far below is believed."""
    card = replace(CARD, context_tokens=200)
    with ModelServer({"window_tokens": 200, "tokenize": True}) as server:
        fits = said_by(patient_for(server, card=card, counter=Estimate()), ask_for("12 " * 130, max_tokens=60))
        small = said_by(patient_for(server, card=card, counter=Estimate()), ask_for("short", max_tokens=60))
        with pytest.raises(ContextOverflow) as caught:
            said_by(patient_for(server, card=card, counter=Estimate()), ask_for("12 " * 230, max_tokens=60))
        assert fits.text
        assert small.text
        assert caught.value.prompt_tokens == 173
        assert (len(server.requests("tokenize")), len(server.requests("extract"))) == (2, 2)


def test_a_length_refusal_comes_through_at_once():
    """When the server counts more than we did, its refusal is raised without another try, so that a smaller request can follow."""
    with ModelServer({"window_tokens": 60}) as server:
        with pytest.raises(ContextOverflow):
            said_by(patient_for(server, card=replace(CARD, context_tokens=2000), counter=Characters()), ask_for("x" * 400, max_tokens=20))
        assert len(server.requests("extract")) == 1
