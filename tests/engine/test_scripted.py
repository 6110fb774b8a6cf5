"""Engines without a model."""

import pytest

from graphrag_local.engine.base import Gate, Reply
from graphrag_local.engine.scripted import ScriptedEngine, SimulatedEngine
from tests.clock import run_unhurried
from tests.engine.tools import all_of, ask_for, said_by, timed


def test_it_answers_from_a_function_and_remembers():
    """A text or a whole reply is given back, with a cost in tokens of four characters."""
    engine = ScriptedEngine(lambda request: request.messages[-1].content.upper())
    reply = said_by(engine, ask_for("hello"))
    assert (reply.text, reply.finish_reason) == ("HELLO", "stop")
    assert (reply.usage.calls, reply.usage.prompt_tokens, reply.usage.completion_tokens) == (1, 2, 2)
    assert [request.messages[-1].content for request in engine.history] == ["hello"]
    assert said_by(ScriptedEngine(lambda _: Reply(text="x", finish_reason="length")), ask_for()).finish_reason == "length"


def test_a_low_gate_ends_the_reply():
    """A reply whose gate is under the threshold is cut to its option, as a server's is."""
    engine = ScriptedEngine(lambda _: Reply(text="N\tmore", finish_reason="stop", gate=0.1))
    left, read = said_by(engine, ask_for(gate=Gate(threshold=0.2)), ask_for(gate=Gate(threshold=0.1)))
    assert (left.text, left.finish_reason, read.text, read.finish_reason) == ("N", "gate", "N\tmore", "stop")


@pytest.mark.parametrize(("slots", "rounds"), [(1, 8), (4, 2)])
def test_a_simulated_engine_takes_its_time(slots, rounds):
    """Eight replies of ten tokens at a fixed rate take as many rounds as the slots make necessary."""
    engine = SimulatedEngine(lambda _: "x" * 40, slots=slots, prompt_token_s=0.0, reply_token_s=0.2, clock_scale=100)
    _, took = run_unhurried(lambda: timed(all_of(engine, [ask_for(f"{n}") for n in range(8)])))
    assert took == pytest.approx(rounds * 0.02)
