"""What the program costs beside the model: CPU seconds and memory by size, model tokens, and how well it keeps a model busy.

    python scripts/bench_pipeline.py [--sizes 200,2000,10000] [--quick] [--parts cpu,tokens,wall] [--models FOLDER] [--profile FILE]

The whole pipeline runs on a made-up collection (see synthetic.py) with the default settings: files, ledger and LanceDB tables on disk, the
tokenizer of the small packaged model. The model is an author in this process that answers at once; the embedder gives ready-made vectors of 384
numbers. What these two cost is measured around each call and taken off. Each size runs in a process of its own.

    cpu     CPU seconds a chunk, by stage, peak memory, and how they grow with the collection
    tokens  tokens a corpus token (cl100k): all, those that a prefix cache does not serve (blocks of 16, any earlier request of the run), completion
    wall    wall time with a model of known speed and 32 places against the ideal: work / places, or the longest chain of calls that need each other

A figure over its aim is marked and makes the exit code 1.
"""

import argparse
import asyncio
import cProfile
import json
import math
import resource
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from synthetic import DESCRIBED_WORDS, FIRST_ROUND, GLEANED, SECOND_ROUND, answer, write_collection

from graphrag_local.engine.base import EmbedderCard, Engine, Model, ModelCard, Reply, Request
from graphrag_local.engine.ledgered import Ledgered, Meter
from graphrag_local.engine.models import models_folder
from graphrag_local.engine.scripted import ScriptedEngine, SimulatedEngine
from graphrag_local.flow import Silent
from graphrag_local.pipeline import Built, Run, build
from graphrag_local.prompting import load_all
from graphrag_local.query.parts import PARTS
from graphrag_local.settings import Settings
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.publish import content_digest, publish
from graphrag_local.store.runlog import RunLog
from graphrag_local.tokens import FileTokenizer, cl100k

CPU_MS, MEMORY_MIB, GROWTH, WALL_RATIO, TOKENS, UNCACHED = 10.0, 2048.0, 1.1, 1.10, 7.0, 5.0  # the aims
DIMENSION = 384
BLOCK = 16  # tokens of a block of the prefix cache
SLOTS = 32
CLOCK_SCALE = 2.5  # the model's speed: 0.2 ms a prompt token, 8 ms a reply token and place


class Timed:
    """An engine in the same thread whose CPU seconds are counted apart from the program's."""

    def __init__(self, inner: ScriptedEngine) -> None:
        self.inner = inner
        self.cpu_s = 0.0

    @property
    def card(self) -> ModelCard:
        """The inner engine's."""
        return self.inner.card

    async def generate(self, request: Request) -> Reply:
        """The inner engine's reply; it comes without a pause, so that the thread's clock shows this call alone."""
        began = time.thread_time()
        reply = await self.inner.generate(request)
        self.inner.history.clear()
        self.cpu_s += time.thread_time() - began
        return reply

    async def close(self) -> None:
        """Nothing to close."""


class ReadyVectors:
    """An embedder that gives one of 1,000 ready-made unit vectors, as fresh lists of numbers, as a real one does."""

    card = EmbedderCard(name="ready-made", revision="1", dimension=DIMENSION)

    def __init__(self) -> None:
        numbers = np.random.default_rng(5).normal(size=(1000, DIMENSION)).astype(np.float32)
        self._rows = numbers / np.linalg.norm(numbers, axis=1, keepdims=True)
        self.cpu_s = 0.0

    async def embed(self, texts: list[str], *, query: bool = False) -> list[list[float]]:
        """A vector per text."""
        began = time.thread_time()
        vectors: list[list[float]] = self._rows[[len(text) % 1000 for text in texts]].tolist()
        self.cpu_s += time.thread_time() - began
        return vectors

    async def close(self) -> None:
        """Nothing to close."""


class Prefixes:
    """Counts the tokens of requests as a server with an endless prefix cache would: whole blocks that began an earlier request are cached."""

    def __init__(self, models: Path) -> None:
        self._encoding = cl100k(models)
        self._seen: set[int] = set()
        self._known: dict[str, list[int]] = {}
        self.by_purpose: dict[str, list[int]] = {}

    def count(self, request: Request, reply: Reply) -> None:
        """Add a call: its prompt, of which cached, its reply. A turn costs four tokens more than its text."""
        tokens: list[int] = []
        for message in request.messages:
            tokens += [-1, -2, -3, *self._encode(message.content, keep=message.role == "system"), -4]
        cached, mark, hit = 0, 0, True
        for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
            mark = hash((mark, *tokens[start : start + BLOCK]))
            hit = hit and mark in self._seen
            cached += BLOCK if hit else 0
            self._seen.add(mark)
        row = self.by_purpose.setdefault(request.purpose, [0, 0, 0, 0])
        for place, number in enumerate((1, len(tokens), cached, len(self._encode(reply.text, keep=False)))):
            row[place] += number

    def _encode(self, text: str, *, keep: bool) -> list[int]:
        if not keep:
            return self._encoding.encode_ordinary(text)
        if text not in self._known:
            self._known[text] = self._encoding.encode_ordinary(text)
        return self._known[text]


class Counting(Timed):
    """Counts tokens besides."""

    def __init__(self, inner: ScriptedEngine, prefixes: Prefixes) -> None:
        super().__init__(inner)
        self.prefixes = prefixes

    async def generate(self, request: Request) -> Reply:
        """The inner engine's reply, counted."""
        reply = await super().generate(request)
        self.prefixes.count(request, reply)
        return reply


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer when nothing else is to be done: sleeping costs no time, but takes some on its clock."""

    def __init__(self) -> None:
        self.skipped = 0.0
        super().__init__(_SkippingSelector(self))

    def time(self) -> float:
        """Seconds slept so far; work takes none."""
        return self.skipped


class _SkippingSelector(selectors.DefaultSelector):
    def __init__(self, loop: SkippingLoop) -> None:
        super().__init__()
        self._owner = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        found = super().select(0)
        if not found:
            self._owner.skipped += timeout
        return found


@dataclass(slots=True)
class Clock:
    """CPU seconds of this process by stage, read off the run log's events, and of the two stand-ins within them."""

    stand_ins: Callable[[], float]
    spent: dict[str, float] = field(default_factory=dict)
    aside: float = 0.0
    _stage: str = ""
    _cpu: float = 0.0
    _aside: float = 0.0

    def log(self, event: str, **values: Any) -> None:
        """An event of the run log; `begin` ends the stage before."""
        if event == "begin":
            self.begin(str(values["stage"]))

    def begin(self, stage: str) -> None:
        """End a stage and begin the next; "" begins none."""
        cpu, aside = time.process_time(), self.stand_ins()
        if self._stage:
            self.spent[self._stage] = self.spent.get(self._stage, 0.0) + cpu - self._cpu - (aside - self._aside)
            self.aside += aside - self._aside
        self._stage, self._cpu, self._aside = stage, cpu, aside


def run_of(engine: Engine, vectors: ReadyVectors, folder: Path, ledger: Ledger, options: argparse.Namespace, log: Callable[..., None]) -> Run:
    """A run over `folder/input`; a ledger is used for vectors in any case, for replies where the engine is wrapped so."""
    meter = Meter()
    settings = Settings()
    wrapped = engine if isinstance(engine, Ledgered) else Ledgered(engine, ledger, meter=meter)
    counter = FileTokenizer(options.models / "smollm2-135m-instruct")
    return Run(
        settings=settings, input_root=folder / "input", models_folder=options.models,
        model=Model(generate=wrapped.generate, card=engine.card, counter=counter),
        embedder=vectors, cache=ledger, prompts=load_all(), progress=Silent(), log=log,
        usage=lambda: dict(meter.by_purpose), replayed=lambda: meter.replayed, wasted=lambda: meter.wasted,
    )  # fmt: skip


async def built_and_published(run: Run, folder: Path, began: Callable[[str], None]) -> Built:
    """Everything `index` does; `began` hears when publishing begins and when it has ended."""
    with BuildLock(folder / "index") as lock:
        built = await build(run)
        began("publish")
        digest = content_digest(built.snapshot, {"settings": run.settings.fingerprint()})
        publish(lock, built.snapshot, digest=digest, counts={}, about={"last_build": built.last_build}, derive=PARTS)
        began("")
    return built


def child_cpu(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One build that counts CPU and memory."""
    engine, vectors = Timed(ScriptedEngine(answer)), ReadyVectors()
    clock = Clock(lambda: engine.cpu_s + vectors.cpu_s)
    began = time.monotonic()
    log = RunLog(folder / "index")

    def both(event: str, **values: Any) -> None:
        clock.log(event, **values)
        log.write(event, **values)

    with Ledger.open(folder / "index" / "ledger.sqlite") as ledger:
        run = run_of(engine, vectors, folder, ledger, options, both)
        profile = cProfile.Profile() if options.profile else None
        if profile:
            profile.enable()
        built = asyncio.run(built_and_published(run, folder, clock.begin))
        if profile:
            profile.disable()
            profile.dump_stats(options.profile)
    log.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return _about(built) | {"cpu": clock.spent, "aside": clock.aside, "peak_mib": peak, "wall": time.monotonic() - began}


def _about(built: Built) -> dict[str, Any]:
    snapshot, cost = built.snapshot, built.last_build
    if snapshot.failures:
        raise SystemExit(f"The bench's own author failed: {snapshot.failures[0]}")
    counts = {name: len(getattr(snapshot, name)) for name in ("chunks", "mentions", "entities", "relationships", "communities", "reports", "vectors")}
    calls = {stage: row["calls"] for stage, row in cost["by_stage"].items() if row["calls"]}
    return {"counts": counts, "calls": calls, "model_tokens": [cost["prompt_tokens"], cost["completion_tokens"]]}


def child_tokens(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One build that counts tokens."""
    engine = Counting(ScriptedEngine(answer), Prefixes(options.models))
    with Ledger.open(folder / "index" / "ledger.sqlite") as ledger:
        run = run_of(engine, ReadyVectors(), folder, ledger, options, lambda *_, **__: None)
        built = asyncio.run(build(run))
    corpus = sum(len(cl100k(options.models).encode_ordinary(document.text)) for document in built.snapshot.documents)
    return _about(built) | {"corpus": corpus, "tokens": engine.prefixes.by_purpose}


def child_wall(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Two builds with a model of known speed: one with places and a real clock, one with endless places and a clock that only sleeping moves."""
    with Ledger.open(folder / "index" / "ledger.sqlite") as ledger:
        engine = SimulatedEngine(answer, slots=SLOTS, clock_scale=CLOCK_SCALE)
        run = run_of(engine, ReadyVectors(), folder, ledger, options, lambda *_, **__: None)
        began, cpu = time.monotonic(), time.process_time()
        built = asyncio.run(built_and_published(run, folder, lambda _: None))
        wall, cpu = time.monotonic() - began, time.process_time() - cpu
    prompt, reply = built.last_build["prompt_tokens"], built.last_build["completion_tokens"]
    work = (prompt * 0.0005 + reply * 0.02) / CLOCK_SCALE
    endless = SimulatedEngine(answer, slots=10**6, clock_scale=CLOCK_SCALE)
    with Ledger.open(folder / "chain.sqlite") as ledger:
        run = run_of(Ledgered(endless, None), ReadyVectors(), folder, ledger, options, lambda *_, **__: None)
        wide = run.settings.model_copy(update={"engine": run.settings.engine.model_copy(update={"concurrency": 10**6})})
        loop = SkippingLoop()
        try:
            loop.run_until_complete(build(replace(run, settings=wide)))
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
    stages = {
        stage: [row["seconds"], (row["prompt_tokens"] * 0.0005 + row["completion_tokens"] * 0.02) / CLOCK_SCALE / SLOTS]
        for stage, row in built.last_build["by_stage"].items()
    }
    stages["publish"] = [wall - built.last_build["seconds"], 0.0]
    return _about(built) | {"wall": wall, "cpu": cpu, "work": work / SLOTS, "chain": loop.skipped, "stages": stages}


# --- the parent: one process a size, and what is printed


CHILDREN = {"cpu": child_cpu, "tokens": child_tokens, "wall": child_wall}


def measured(part: str, size: int, options: argparse.Namespace) -> dict[str, Any]:
    """What a child process says about a collection of about `size` chunks."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_collection(folder / "input", size)
        command = [sys.executable, __file__, "--child", part, "--folder", name, "--models", str(options.models), "--profile", options.profile]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    result: dict[str, Any] = json.loads(said.splitlines()[-1])
    return result


def aim(value: float, most: float, text: str) -> tuple[str, int]:
    """A figure beside its aim, and 1 where it is over."""
    return f"{text} (aim {most:g}){'  OVER' if value > most else ''}", int(value > most)


def exponent(points: list[tuple[int, float]]) -> float:
    """The b of y = a * n^b, by least squares on logarithms."""
    xs, ys = ([math.log(value) for value in column] for column in zip(*points, strict=True))
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


def show_cpu(sizes: list[int], options: argparse.Namespace) -> int:
    """CPU and memory of every size; how many figures are over."""
    over, points = 0, []
    for size in sizes:
        said = measured("cpu", size, options)
        chunks = said["counts"]["chunks"]
        total = sum(said["cpu"].values())
        points.append((chunks, total))
        print(f"\n{', '.join(f'{count:,} {name}' for name, count in said['counts'].items())}")
        print(f"  calls: {', '.join(f'{count:,} {stage}' for stage, count in said['calls'].items())}; wall {said['wall']:.1f} s")
        for stage, seconds in said["cpu"].items():
            print(f"  {stage:12} {seconds:8.2f} s CPU {seconds * 1000 / chunks:7.2f} ms a chunk")
        print(f"  {'taken off':12} {said['aside']:8.2f} s CPU {said['aside'] * 1000 / chunks:7.2f} ms a chunk (author and ready-made vectors)")
        for value, most, text in (
            (total * 1000 / chunks, CPU_MS, f"in all {total:.2f} s CPU, {total * 1000 / chunks:.2f} ms a chunk"),
            (said["peak_mib"], MEMORY_MIB, f"peak memory {said['peak_mib']:,.0f} MiB"),
        ):
            line, late = aim(value, most, text)
            over += late
            print(f"  {line}", flush=True)
    if len(points) > 1:
        line, late = aim(exponent(points), GROWTH, f"CPU grows with n^{exponent(points):.3f}")
        over += late
        print(f"\n{line}", flush=True)
    return over


def show_tokens(size: int, options: argparse.Namespace) -> int:
    """Model tokens of one build; how many figures are over."""
    said = measured("tokens", size, options)
    corpus, chunks = said["corpus"], said["counts"]["chunks"]
    print(f"\n{chunks:,} chunks of {corpus / chunks:.0f} tokens; every reply has a fixed size: extraction {FIRST_ROUND[0]} entities and {FIRST_ROUND[1]}")
    print(
        f"  relationships, {GLEANED:.0%} of them {SECOND_ROUND[0]} and {SECOND_ROUND[1]} more, summaries {DESCRIBED_WORDS} words, reports as many findings as asked"
    )
    print(f"  {'purpose':10} {'calls':>7} {'tokens a call: prompt':>22} {'cached':>7} {'reply':>6}   a corpus token: {'all':>5} {'uncached':>9} {'reply':>6}")
    total = [0, 0, 0, 0]
    for purpose, row in [*said["tokens"].items(), ("in all", total)]:
        calls, prompt, cached, reply = row
        mean = f"{calls:7,} {prompt / calls:22.0f} {cached / calls:7.0f} {reply / calls:6.0f}"
        print(f"  {purpose:10} {mean} {(prompt + reply) / corpus:22.2f} {(prompt + reply - cached) / corpus:9.2f} {reply / corpus:6.2f}")
        if row is not total:
            total[:] = [a + b for a, b in zip(total, row, strict=True)]
    _, prompt, cached, reply = total
    uncached = (prompt + reply - cached) / corpus
    lines = aim((prompt + reply) / corpus, TOKENS, f"all {(prompt + reply) / corpus:.2f}"), aim(uncached, UNCACHED, f"uncached {uncached:.2f}")
    print(f"  {lines[0][0]}; {lines[1][0]}; completion {reply / corpus:.2f}", flush=True)
    return lines[0][1] + lines[1][1]


def show_wall(size: int, options: argparse.Namespace) -> int:
    """Wall time against the ideal; 1 where it is over."""
    said = measured("wall", size, options)
    ideal = max(said["work"], said["chain"])
    print(f"\n{said['counts']['chunks']:,} chunks, {sum(said['calls'].values()):,} calls, {SLOTS} places: work / places {said['work']:.1f} s,", end=" ")
    print(f"longest chain {said['chain']:.1f} s, program {said['cpu']:.1f} s CPU (the author's included)")
    print("  wall (work / places): " + ", ".join(f"{stage} {wall:.1f} s ({work:.1f})" for stage, (wall, work) in said["stages"].items()))
    line, late = aim(said["wall"] / ideal, WALL_RATIO, f"wall {said['wall']:.1f} s, {said['wall'] / ideal:.3f} of the ideal")
    print(f"  {line}", flush=True)
    return late


def main() -> int:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="200,2000,10000", help="chunks")
    parser.add_argument("--quick", action="store_true", help="200 and 600 chunks, everything in about two minutes")
    parser.add_argument("--parts", default="cpu,tokens,wall")
    parser.add_argument("--models", type=Path, default=models_folder())
    parser.add_argument("--profile", default="", help="file for the profile of the last size (its CPU figures are then worthless)")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(CHILDREN[options.child](options.folder, options)))
        return 0
    sizes = [200, 600] if options.quick else [int(size) for size in options.sizes.split(",")]
    middle = 200 if options.quick else 2000
    parts = options.parts.split(",")
    over = show_cpu(sizes, options) if "cpu" in parts else 0
    over += show_tokens(middle, options) if "tokens" in parts else 0
    over += show_wall(middle, options) if "wall" in parts else 0
    return min(over, 1)


if __name__ == "__main__":
    sys.exit(main())
