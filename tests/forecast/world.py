"""A made-up collection that changes, and forecasts over the scripted engine."""

import asyncio
import hashlib
import random
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest

from graphrag_local import indexing
from graphrag_local.engine.base import Engine, Model
from graphrag_local.engine.embed import NoEmbedder
from graphrag_local.engine.ledgered import Ledgered, Meter
from graphrag_local.engine.scripted import ScriptedEngine, tokens_of
from graphrag_local.forecast import forecast as forecasts
from graphrag_local.forecast.forecast import Forecast, estimate, forecast
from graphrag_local.indexing import Indexed, Order, run_index
from graphrag_local.project import ProjectFolder
from graphrag_local.wiring import UNUSABLE, ModelSide
from tests.pipeline.running import Quiet

SMALL = (
    "chunks.min_tokens=30", "chunks.max_tokens=80", "reports.min_tokens=40", "describe.threshold_tokens=60", "describe.group_tokens=200",
    "describe.max_reply_tokens=60", "reports.context_tokens=500", "communities.max_cluster_size=6",
)  # fmt: skip


class Quarters:
    """A tokenizer of one token for four characters: the scripted engine's own."""

    name = "four characters each"
    exact = True

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return tokens_of(text)


def collection(documents: int, sentences: int, seed: int = 1) -> dict[str, str]:
    """Documents of topics with names of their own, some met again and again, and three hubs that stand everywhere."""
    dice = random.Random(seed)
    return {f"d{number:03}.txt": document(dice, number % max(1, documents // 4), sentences) for number in range(documents)}


def document(dice: random.Random, topic: int, sentences: int) -> str:
    """Sentences of which no two are the same."""
    return "".join(f"{sentence(dice, topic)}\n" for _ in range(sentences))


def sentence(dice: random.Random, topic: int) -> str:
    """One tie between two people of a topic, or with a hub."""
    a, b = (f"T{topic}n{min(int(dice.expovariate(0.15)), 40)}" for _ in range(2))
    b = dice.choice(("Hub", "Mayor", "Warden")) if dice.random() < 0.1 or a == b else b
    return f"{a} knows {b} ({dice.randrange(1, 10)}), so {dice.randrange(10**6)}."


@contextmanager
def played(engine: Engine):
    """Runs and forecasts ask this engine."""

    async def opened(project, ledger, say, *, retry_failed=False, around=None, answers=False):
        meter = Meter()
        ledgered = Ledgered(around(engine) if around else engine, ledger, UNUSABLE if retry_failed else frozenset(), meter)
        model = Model(generate=ledgered.generate, card=engine.card, counter=Quarters())
        return ModelSide(model=model, embedder=NoEmbedder(), ledgered=ledgered, meter=meter, kind="scripted")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexing, "open_model_side", opened)
        patch.setattr(forecasts, "open_model_side", opened)
        yield


def indexed(project: ProjectFolder, engine: Engine, **order) -> Indexed:
    """One `index`."""
    with played(engine):
        return asyncio.run(run_index(project, lambda usage, log: Quiet(), Order(**order)))


def foreseen(project: ProjectFolder, engine: ScriptedEngine, **order) -> Forecast:
    """One `index --dry-run`, which asks nobody and writes nothing."""
    before, asked = bytes_of(project.folder), len(engine.history)
    with played(engine):
        found = asyncio.run(forecast(project, lambda usage, log: Quiet(), Order(**order)))
    assert (bytes_of(project.folder), len(engine.history)) == (before, asked)
    return found


def estimated(project: ProjectFolder, engine: Engine, sample: int, **order) -> Forecast:
    """One `estimate`."""
    with played(engine):
        return asyncio.run(estimate(project, lambda usage, log: Quiet(), sample, Order(**order)))


def bytes_of(folder: Path) -> dict[str, str]:
    """Every file below a folder by its hash."""
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*")) if path.is_file()}


def cost_of(engine: ScriptedEngine, act: Callable[[], Indexed]) -> tuple[dict[str, int], int, Indexed]:
    """Calls by purpose that a run really makes, its tokens in all, and its result."""
    asked = len(engine.history)
    result = act()
    calls: dict[str, int] = {}
    for request in engine.history[asked:]:
        calls[request.purpose] = calls.get(request.purpose, 0) + 1
    build = result.built.last_build
    return calls, build["prompt_tokens"] + build["completion_tokens"], result
