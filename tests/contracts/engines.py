"""Every implementation of the engine protocol, opened in a way that makes it obey constraints.

To put another one under the contract, add a context manager that yields an Engine to ENGINES; raise `pytest.skip` in it where what it needs
(a model folder, a library) is not there.
"""

import contextlib
import json
from collections.abc import Callable, Iterator

from graphrag_local.engine.base import Choice, Engine, Form, Grammar, JsonSchema, ModelCard, Reply, Request
from graphrag_local.engine.ledgered import Ledgered
from graphrag_local.engine.patient import Patient
from graphrag_local.engine.scripted import ScriptedEngine, SimulatedEngine
from graphrag_local.engine.vllm import VLLM
from graphrag_local.settings import EngineSettings
from tests.engine.tools import ALL, MemoryLedger
from tests.fakes import Characters
from tests.modelserver import ModelServer

WINDOW = 4000
WORD = "zq7"  # what the contract's grammar allows


def obedient(request: Request) -> Reply:
    """The reply of a model that does what it is told: it repeats the prompt where it is free."""
    match request.constraint:
        case Choice(options=options):
            text = options[-1]
        case JsonSchema():
            text = json.dumps({"useful": "Y", "title": "A title"}, separators=(",", ":"))
        case Grammar():
            text = WORD
        case _:
            text = request.messages[-1].content
    room = 4 * request.max_tokens
    return Reply(
        text=text[:room],
        finish_reason="length" if len(text) > room else "stop",
        gate=0.75 if request.gate else None,
        logprobs=tuple((piece, -0.5) for piece in text.split()),
    )


def card_of(form: Form) -> ModelCard:
    """A card of one form."""
    return ModelCard(name="local-model", revision="r1", context_tokens=WINDOW, form=form)


@contextlib.contextmanager
def scripted() -> Iterator[Engine]:
    """The engine that answers from a function."""
    yield ScriptedEngine(obedient, card_of("grammar"))


@contextlib.contextmanager
def simulated() -> Iterator[Engine]:
    """The engine that takes a model's time."""
    yield SimulatedEngine(obedient, card=card_of("grammar"), clock_scale=1000)


def served(form: Form) -> Callable[[], contextlib.AbstractContextManager[Engine]]:
    """The HTTP engine against a server of vLLM's kind, with constraints in one form."""

    @contextlib.contextmanager
    def opened() -> Iterator[Engine]:
        with ModelServer({"grammar": "walk", "tokenize": True, "window_tokens": WINDOW}) as server:
            engine = VLLM(EngineSettings(url=server.url))
            engine.adopt(card_of(form), ALL)
            yield engine

    return opened


def wrapped(wrap: Callable[[Engine], Engine], opened: Callable[[], contextlib.AbstractContextManager[Engine]]) -> Callable[..., object]:
    """An engine around another one."""

    @contextlib.contextmanager
    def around() -> Iterator[Engine]:
        with opened() as inner:
            yield wrap(inner)

    return around


def patient(inner: Engine) -> Engine:
    """The waiting engine."""
    return Patient(inner, EngineSettings(clock_scale=20), counter=Characters())


def ledgered(inner: Engine) -> Engine:
    """The engine that asks once."""
    return Ledgered(inner, MemoryLedger())


ENGINES: dict[str, Callable[..., object]] = {
    "scripted": scripted,
    "simulated": simulated,
    "vllm, grammar": served("grammar"),
    "vllm, schema": served("schema"),
    "patient vllm": wrapped(patient, served("grammar")),
    "ledgered scripted": wrapped(ledgered, scripted),
    "ledgered patient vllm": wrapped(lambda inner: ledgered(patient(inner)), served("schema")),
}
