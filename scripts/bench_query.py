"""What a question costs beside the models: CPU milliseconds by mode and size, memory, and the time to open an index.

    python -m scripts.bench_query [--sizes 1000,10000,100000] [--questions 40] [--models FOLDER] [--profile FILE] [--keep FOLDER]

A made-up index (texts of synthetic.py, five relationships an entity, two levels of reports, vectors of 384 numbers, random with a
falling spectrum) is published as `index` does it. Then one process per size opens it and asks: the model is scripted and answers at once, tokens are counted by the
tokenizer of the small packaged model, the questions' vectors are ready-made. What the model and the vectors cost is measured around each call and taken off.

    open     CPU milliseconds to open the index and its arrays: cold (files hashed, as after a build), then in a new process, with the first question
    a mode   CPU milliseconds a question, median and the worst of all, once the first question of the mode has been asked; every mode has questions
             of its own, so that none finds what another one left behind. Fewer are asked where one means hundreds of calls
    retrieve the same without a prompt (`--retrieve-only`)
    briefing without a model (`--no-model`); dynamic is `global --dynamic`; source, which reads all text in every question, stops at 5,000 passages

It ends with 1 where ranking for `local` costs more than 20 ms at the largest size, or grows faster than with the square root of the size.
"""

import argparse
import asyncio
import cProfile
import json
import math
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from graphrag_local import ids
from graphrag_local.engine.base import EmbedderCard, Model, ModelCard, Reply, Request
from graphrag_local.engine.models import models_folder
from graphrag_local.prompting import Prompt, load_all
from graphrag_local.query.ask import ask, ask_nobody, retrieve
from graphrag_local.query.parts import PARTS
from graphrag_local.records import Chunk, Community, Document, Entity, Finding, Mention, RecordKind, Relationship, Report, Span, Usage, Vector
from graphrag_local.settings import QuerySettings
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.publish import publish
from graphrag_local.store.reading import StoredIndex
from graphrag_local.store.snapshot import Snapshot
from graphrag_local.text import name_key
from graphrag_local.tokens import FileTokenizer
from scripts import synthetic
from tests.query.test_drift import Detective
from tests.query.world import Reader

EDGES = 5  # relationships an entity
PER_CHUNK = 18  # entities of a chunk
TOPIC_NAMES = 200
PER_TOPIC = 205  # entities of a topic, about: names that several topics share make it fewer the more topics there are
TOPICS_TOGETHER = 20  # topics of a community of level 0
DIMENSION = 384
DECAY = 0.55  # of the spectrum of vectors: the standard deviation of direction i is 1 / i^DECAY
AIM, AIM_MS, AIM_GROWTH = "retrieve local", 20.0, 0.5
FEWER = {"lazy": 10, "drift": 10, "global": 10, "dynamic": 5, "source": 3}  # questions
ALL_TEXT = 5000  # chunks up to which all text is read


@dataclass(slots=True)
class World:
    """What has been made up so far."""

    documents: list[Document]
    chunks: list[Chunk]
    entities: dict[str, list[Mention]]
    edges: dict[tuple[str, str], list[Mention]]
    topic_of: dict[str, int]
    names: dict[str, str]


class Evenly(synthetic.Names):
    """Names that are drawn equally often, so that a collection of some size names as many things as it can."""

    def draw(self, dice: random.Random) -> str:
        """One of them."""
        return dice.choice(self.names)


def texts(entities: int, seed: int) -> Iterator[tuple[int, str, str]]:
    """(topic, path, text) of documents that name about so many entities."""
    topics = max(1, round(entities / PER_TOPIC))
    listed = synthetic.names(random.Random(f"{seed} names"), synthetic.HUBS + topics * TOPIC_NAMES)
    hubs, listed = listed[: synthetic.HUBS], listed[synthetic.HUBS :]
    pools = [listed[n * TOPIC_NAMES : (n + 1) * TOPIC_NAMES] for n in range(topics)]
    for number in range(topics * synthetic.DOCUMENTS_PER_TOPIC):
        dice = random.Random(f"{seed} document {number}")
        at = number // synthetic.DOCUMENTS_PER_TOPIC
        own = [pools[at], hubs, pools[at - 1][: synthetic.BORROWED], synthetic.names(dice, synthetic.OWN_NAMES)]
        text = "".join(synthetic._paragraphs(dice, [Evenly(names) for names in own], synthetic.CHUNKS_PER_DOCUMENT))
        yield at, f"topic-{at:04d}/document-{number:05d}.txt", text


def world(entities: int, seed: int = 7) -> World:
    """Documents, chunks, and what each chunk names and ties."""
    made = World([], [], defaultdict(list), defaultdict(list), {}, {})
    for topic, path, text in texts(entities, seed):
        owner = ids.document_id(path)
        made.documents.append(Document(id=owner, path=path, title="", text=text, content_hash=ids.digest_of(text), file_hash="", format="txt"))
        begin = 0
        while begin < len(text):
            end = text.find("\n\n", begin + synthetic.CHUNK_BYTES - 400) + 2
            end = end if end > 1 else len(text)
            part = text[begin:end].rstrip()
            chunk = Chunk(id=ids.chunk_id(owner, part, 0), document_id=owner, index=len(made.chunks), start=begin, end=begin + len(part), text=part)
            made.chunks.append(chunk)
            _read(made, chunk, topic)
            begin = end
    return made


def _read(made: World, chunk: Chunk, topic: int) -> None:
    places: dict[str, tuple[int, int]] = {}
    for match in synthetic.NAME.finditer(chunk.text):
        places.setdefault(match.group(), match.span())
    some = list(places)[:PER_CHUNK]
    for number, name in enumerate(some):
        owner = ids.entity_id(name_key(name))
        made.names[owner] = name
        made.topic_of.setdefault(owner, topic)
        made.entities[owner].append(_mention(chunk, owner, "entity", number, name, places[name]))
    quota = EDGES * len(made.names) - len(made.edges)
    pairs = sorted(combinations(some, 2), key=lambda pair: places[pair[1]][0] - places[pair[0]][0])
    for number, (a, b) in enumerate(pairs):
        ends = tuple(sorted(ids.entity_id(name_key(name)) for name in (a, b)))
        if quota <= 0 or ends[0] == ends[1]:
            continue
        quota -= ends not in made.edges
        span = places[a][0], places[b][1]
        made.edges[ends[0], ends[1]].append(_mention(chunk, ids.relationship_id(*ends), "relationship", number, "", span))


def _mention(chunk: Chunk, owner: str, kind: RecordKind, number: int, name: str, place: tuple[int, int]) -> Mention:
    span = Span(start=chunk.start + place[0], end=chunk.start + place[1])
    said = " ".join(chunk.text[place[0] : place[0] + 120].split()[:12])
    return Mention(
        id=ids.mention_id(chunk.id, kind, number), owner_id=owner, owner_kind=kind, chunk_id=chunk.id, document_id=chunk.document_id, number=number,
        name=name, type="person", description=said, strength=1 + number % 9, spans=(span,), grounding="anchored",
    )  # fmt: skip


def snapshot(made: World) -> Snapshot:
    """All records of the world."""
    degree: dict[str, int] = defaultdict(int)
    edges = []
    for ends, told in made.edges.items():
        for end in ends:
            degree[end] += 1
        weight = sum(mention.strength for mention in told)
        edges.append(Relationship(id=told[0].owner_id, source_id=ends[0], target_id=ends[1], description=told[0].description, weight=weight, mentions=len(told)))
    entities = [
        Entity(
            id=owner, key=name_key(made.names[owner]), name=made.names[owner], type="person", types=("person",), aliases=(),
            description=" ".join(mention.description for mention in told[:3]), mentions=len(told), degree=degree[owner],
        )
        for owner, told in made.entities.items()
    ]  # fmt: skip
    communities, reports = _communities(made, {entity.id: entity for entity in entities})
    mentions = [mention for told in (*made.entities.values(), *made.edges.values()) for mention in told]
    return Snapshot(
        documents=tuple(made.documents), chunks=tuple(made.chunks), mentions=tuple(mentions), entities=tuple(entities), relationships=tuple(edges), claims=(),
        communities=tuple(communities), reports=tuple(reports), vectors=tuple(_vectors(made, reports)), dimension=DIMENSION,
    )  # fmt: skip


def _communities(made: World, entities: dict[str, Entity]) -> tuple[list[Community], list[Report]]:
    members: dict[tuple[int, int], list[str]] = defaultdict(list)
    for owner, topic in made.topic_of.items():
        members[0, topic // TOPICS_TOGETHER].append(owner)
        members[1, topic].append(owner)
    communities, reports = [], []
    for (level, number), own in sorted(members.items()):
        id_ = ids.community_id(level, (str(number),))
        children = (
            [ids.community_id(1, (str(n),)) for n in range(number * TOPICS_TOGETHER, (number + 1) * TOPICS_TOGETHER) if (1, n) in members] if not level else []
        )
        parent = ids.community_id(0, (str(number // TOPICS_TOGETHER),)) if level else ""
        communities.append(Community(id=id_, first_level=level, last_level=level, parent_id=parent, child_ids=tuple(children), member_ids=tuple(sorted(own))))
        best = sorted(own, key=lambda owner: (-entities[owner].mentions, owner))[:15]
        findings = [
            Finding(
                summary=entities[owner].description[:80],
                explanation=" ".join(entities[other].description for other in best[n : n + 3]),
                sources=tuple(best[n : n + 3]),
            )
            for n, owner in enumerate(best[:5])
        ]
        title = " and ".join(made.names[owner] for owner in best[:2])
        summary = " ".join(finding.summary for finding in findings[:3])
        reports.append(
            Report(
                id=ids.report_id(id_),
                community_id=id_,
                fingerprint="",
                title=title,
                summary=summary,
                rating=float(number % 10),
                rating_explanation="",
                findings=tuple(findings),
            )
        )
    return communities, reports


def _vectors(made: World, reports: list[Report]) -> Iterator[Vector]:
    dice = np.random.default_rng(3)
    scale = 1 / np.arange(1, DIMENSION + 1) ** DECAY
    owners: list[tuple[str, RecordKind]] = [(chunk.id, "chunk") for chunk in made.chunks]
    owners += [(owner, "entity") for owner in made.entities]
    owners += [(report.id, "report") for report in reports]
    for start in range(0, len(owners), 10_000):
        some = owners[start : start + 10_000]
        rows = dice.normal(size=(len(some), DIMENSION)) * scale
        rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        for (owner, kind), row in zip(some, rows.tolist(), strict=True):
            yield Vector(owner_id=owner, owner_kind=kind, text_hash=ids.digest_of(owner), values=tuple(row))


def questions(index: StoredIndex, count: int, mode: str = "") -> list[str]:
    """Questions about names of the collection, half of them about two, other ones for each mode."""
    dice = random.Random(f"11 {mode}")
    entities = index.entities()
    asked = []
    for number in range(count):
        a, b = (entities[dice.randrange(len(entities))].name for _ in range(2))
        verb = dice.choice(synthetic.VERBS)
        asked.append(f"Who {verb} {a} in that winter, and why?" if number % 2 else f"What did {a} have to do with {b}, and who lent the money?")
    return asked


# --- the stand-ins


class ReadyVectors:
    """An embedder of ready-made vectors."""

    card = EmbedderCard(name="ready-made", revision="1", dimension=DIMENSION)

    def __init__(self) -> None:
        dice = np.random.default_rng(9)
        rows = dice.normal(size=(200, DIMENSION)) / np.arange(1, DIMENSION + 1) ** DECAY
        self._rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).tolist()
        self.aside = 0.0

    async def embed(self, texts: list[str], *, query: bool = False) -> list[list[float]]:
        """A vector per text."""
        began = time.process_time()
        rows = [list(self._rows[int(ids.digest_of(text)[:6], 16) % len(self._rows)]) for text in texts]
        self.aside += time.process_time() - began
        return rows

    async def close(self) -> None:
        """Nothing to close."""


class Author:
    """A model that repeats the beginning of its evidence, finds every sentence supported and asks three more questions where it may."""

    card = ModelCard(name="scripted", revision="1", context_tokens=32_768, form="grammar", logprobs=False, tiny=False)

    def __init__(self) -> None:
        self._reader, self._detective = Reader(), Detective(number=3)
        self.aside = 0.0

    async def generate(self, request: Request) -> Reply:
        """The reply."""
        began = time.process_time()
        if request.purpose == "support":
            text = "Y"
        else:
            system = request.messages[0].content
            asks = "You begin to answer" in system or "on the way to a main question" in system
            text = self._detective(request) if asks else self._reader.text(request)
        self.aside += time.process_time() - began
        return Reply(text=text, finish_reason="stop", usage=Usage(calls=1))


class Timed:
    """A token counter whose CPU is counted apart."""

    exact = True

    def __init__(self, inner: FileTokenizer) -> None:
        self._inner, self.name = inner, inner.name
        self.aside = 0.0

    def count(self, text: str) -> int:
        """The inner one's."""
        began = time.process_time()
        tokens = self._inner.count(text)
        self.aside += time.process_time() - began
        return tokens


# --- one size, in processes of their own


def child_make(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Make and publish an index."""
    made = snapshot(world(options.entities))
    counts = {name: len(getattr(made, name)) for name in ("documents", "chunks", "entities", "relationships", "mentions", "reports")}
    with BuildLock(folder / "index") as lock:
        for derive in ((), PARTS):  # twice, to see what the derived part costs
            began = time.process_time()
            publish(lock, made, digest="", counts=counts, about={}, derive=derive)
            counts[f"publish {'all' if derive else 'tables'}"] = round(time.process_time() - began, 2)
    return counts


def child_open(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Open the index and ask one question."""
    vectors = ReadyVectors()
    began, wall = time.process_time(), time.monotonic()
    index = StoredIndex.open(folder / "index")
    opened, opened_wall = time.process_time() - began, time.monotonic() - wall
    asyncio.run(retrieve("Who paid the clerk of Ada Corow in that winter?", index, vectors, QuerySettings(), "local", None, 20))
    first, first_wall = time.process_time() - began, time.monotonic() - wall
    index.close()
    return {"open": 1000 * opened, "open wall": 1000 * opened_wall, "first": 1000 * first, "first wall": 1000 * first_wall}


def child_ask(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Ask everything, as a running server does: in one event loop over one open index."""
    return asyncio.run(_asked(StoredIndex.open(folder / "index"), options))


async def _asked(index: StoredIndex, options: argparse.Namespace) -> dict[str, Any]:
    vectors, author, counter = ReadyVectors(), Author(), Timed(FileTokenizer(options.models / "smollm2-135m-instruct"))
    model = Model(generate=author.generate, card=author.card, counter=counter)
    prompts = load_all()
    profile = cProfile.Profile() if options.profile else None
    found = {}
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for name in options.modes.split(","):
        if name == "source" and len(index.chunks()) > ALL_TEXT:
            continue
        costs: list[tuple[float, float]] = []
        asked = questions(index, 1 + min(options.questions, FEWER.get(name, options.questions)), name)
        for number, question in enumerate(asked):
            if number == 1 and profile:
                profile.enable()
            before, counted, began = vectors.aside + author.aside, counter.aside, time.process_time()
            await _question(name, question, index, model, vectors, prompts, number)
            spent = time.process_time() - began - (vectors.aside + author.aside - before)
            costs.append((1000 * (spent - counter.aside + counted), 1000 * (counter.aside - counted)))
        if profile:
            profile.disable()
        found[name] = {
            "first": sum(costs[0]),
            "median": _median([a for a, _ in costs[1:]]),
            "most": max(a for a, _ in costs[1:]),
            "tokens": _median([b for _, b in costs[1:]]),
        }
    if profile:
        profile.dump_stats(options.profile)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"modes": found, "resident": resident, "peak": peak}


async def _question(name: str, question: str, index: StoredIndex, model: Model, vectors: ReadyVectors, prompts: Mapping[str, Prompt], turn: int) -> None:
    """Ask one question in a mode of this bench."""
    settings, mode = QuerySettings(), name.removeprefix("retrieve ")
    if mode != name:
        await retrieve(question, index, vectors, settings, mode, None, 20)
    elif mode == "briefing":
        await ask_nobody(question, index, vectors, settings, mode="auto", level=None)
    elif mode == "dynamic":
        await ask(question, index, model, vectors, prompts, settings.model_copy(update={"dynamic": True}), mode="global", level=None, turn=turn)
    else:
        await ask(question, index, model, vectors, prompts, settings, mode=mode, level=None, turn=turn)


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


# --- the parent


CHILDREN = {"make": child_make, "open": child_open, "ask": child_ask}
MODES = "retrieve basic,retrieve local,retrieve auto,retrieve global,basic,local,lazy,drift,global,dynamic,source,briefing"


def run(part: str, folder: Path, entities: int, options: argparse.Namespace) -> dict[str, Any]:
    """What a process of its own says."""
    command = [
        sys.executable, "-m", "scripts.bench_query", "--child", part, "--folder", str(folder), "--entities", str(entities), "--models", str(options.models),
        "--questions", str(options.questions), "--modes", options.modes, "--profile", options.profile,
    ]  # fmt: skip
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]).stdout
    result: dict[str, Any] = json.loads(said.splitlines()[-1])
    return result


def exponent(points: list[tuple[int, float]]) -> float:
    """The b of y = a * n^b, by least squares on logarithms."""
    xs, ys = ([math.log(value) for value in column] for column in zip(*points, strict=True))
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / (sum((a - x) ** 2 for a in xs) or 1.0)


def main() -> int:
    """Measure every size and print the tables; 1 where an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,10000,100000", help="entities")
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--modes", default=MODES)
    parser.add_argument("--models", type=Path, default=models_folder())
    parser.add_argument("--keep", type=Path, help="folder for the indexes that are made, which are used again where they are there")
    parser.add_argument("--profile", default="", help="file for the profile of the last size (its figures are then worthless)")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--entities", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(CHILDREN[options.child](options.folder, options)))
        return 0
    return show([int(size) for size in options.sizes.split(",")], options)


def show(sizes: list[int], options: argparse.Namespace) -> int:
    """Measure and print."""
    points: dict[str, list[tuple[int, float]]] = defaultdict(list)
    counts: dict[str, Any] = {}
    for size in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = options.keep / str(size) if options.keep else Path(name)
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / "index" / "CURRENT").exists():
                (folder / "counts.json").write_text(json.dumps(run("make", folder, size, options)))
            counts = json.loads((folder / "counts.json").read_text())
            (folder / "index" / "run" / "verified.json").unlink(missing_ok=True)
            cold, warm = run("open", folder, size, options), run("open", folder, size, options)
            said = run("ask", folder, size, options)
        print(f"\n{', '.join(f'{count:,} {name}' for name, count in counts.items())}")
        for how, row in (("cold", cold), ("warm", warm)):
            print(f"  open {how}: {row['open']:.0f} ms CPU ({row['open wall']:.0f} wall); with the first question {row['first']:.0f} ({row['first wall']:.0f} wall)")
        print(f"  memory: {said['resident']:.0f} MiB before the first question, {said['peak']:.0f} MiB at most (mapped files included)")
        print(f"  {'mode':16}{'median ms':>10}{'most':>8}{'counting tokens':>17}{'the first':>11}")
        for mode, row in said["modes"].items():
            points[mode].append((counts["entities"], row["median"]))
            print(f"  {mode:16}{row['median']:10.1f}{row['most']:8.1f}{row['tokens']:17.1f}{row['first']:11.1f}", flush=True)
    growth = {mode: exponent(own) for mode, own in points.items() if len(own) > 1}
    if growth:
        print("\ngrowth: " + ", ".join(f"{mode} n^{value:.2f}" for mode, value in growth.items()))
    return verdict(points, growth, counts)


def verdict(points: dict[str, list[tuple[int, float]]], growth: dict[str, float], counts: dict[str, Any]) -> int:
    """Say whether the aims hold; 1 where they do not."""
    if AIM not in points:
        print(f"\nno aim was measured: {AIM!r} is not among the modes")
        return 0
    spent = points[AIM][-1][1]
    missed = spent > AIM_MS or growth.get(AIM, 0.0) > AIM_GROWTH
    grows = f", growing as n^{growth[AIM]:.2f} (aim {AIM_GROWTH:g})" if AIM in growth else ""
    what = f"{counts['entities']:,} entities and {counts['relationships']:,} relationships"
    print(f"\n{AIM}: {spent:.1f} ms of CPU a question at {what} (aim {AIM_MS:g}){grows}: {'MISSED' if missed else 'held'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
