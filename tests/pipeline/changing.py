"""A collection that changes, an author who reads it, and what an index of it must be: equal to one built from nothing."""

import asyncio
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphrag_local.communities.detect import modularity
from graphrag_local.communities.stage import build_communities
from graphrag_local.engine.base import EmbedderCard, Model, Reply, Request
from graphrag_local.engine.ledgered import Ledgered, Meter
from graphrag_local.engine.scripted import ScriptedEngine
from graphrag_local.flow import Silent
from graphrag_local.ids import digest_of, document_id
from graphrag_local.indexing import Indexed
from graphrag_local.pipeline import Previous, Run, build
from graphrag_local.records import Anchor, Community, Report
from graphrag_local.reports.stage import stale_reports
from graphrag_local.store.generations import open_current
from graphrag_local.store.lance import Tables
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.publish import index_digest
from graphrag_local.store.snapshot import Snapshot
from graphrag_local.store.tables import TABLES, VECTOR_TABLES, ordered
from tests.fakes import Characters
from tests.pipeline.running import CARD, PROMPTS, Quiet, allowed_ids, index, project_of, scribe

FAMILIES = ("Krol", "Vesa", "Tamm", "Oyen")
FIRST = "Ada Ben Cleo Dov Eli Fay Gus Hana Ivo Jana Kai Lea Max Nora Ole Pia Quin Rut Sven Tove Ulla Vito Wim Yan".split()
HOUSES = tuple(tuple(f"{name}_{family}" for name in FIRST[place % 2 :: 2]) for place, family in enumerate(FAMILIES))
ALONE = 0.12  # of the ends of ties are called by their first name alone
ABROAD = 0.1  # of the ties join two families
RULES = (
    "chunks.min_tokens=20", "chunks.max_tokens=60", "describe.threshold_tokens=100", "describe.group_tokens=300",
    "reports.min_tokens=0", "reports.context_tokens=900", "communities.max_cluster_size=3",
)  # fmt: skip
EXACT = ("reports.write=all", "reports.refresh=exact")
FIXED = ("communities.renew_modularity=0", "communities.renew_roots=1000", "communities.renew_days=0")  # the anchor of the first run stays
LISTED = re.compile(r"^\((\d+)\) (\w+) — ", re.MULTILINE)
STAGES = ("documents", "chunks", "extraction", "graph", "reports", "vectors")


# --- what the model says


def author(request: Request) -> str | Reply:
    """The scribe, whose descriptions and reports are others whenever a letter of what they are made from is another."""
    text = request.messages[-1].content
    if request.purpose == "report":
        mark, ids = digest_of(text), allowed_ids(request)
        cited = [ids[int(mark[place], 16) % len(ids)] for place in range(3)]
        return f"T\tCircle {mark[:8]}\nS\tThey met.\nG\t5\tWhy {mark[8:12]}.\nF\t{','.join(dict.fromkeys(cited))}\tThey meet {mark[12:16]}.\tOften.\n"
    if request.purpose == "describe" and (listed := LISTED.findall(text)):
        full = {name.split("_")[0]: number for number, name in listed if "_" in name}
        return "".join(f"{number}={full[name]}\n" for number, name in listed if name in full) + "."
    return f"Known as {digest_of(text)[:12]} by many." if request.purpose == "describe" else scribe(request)


class Hashes:
    """An embedder that takes no time: four numbers of the text's hash."""

    card = EmbedderCard(name="hashes", revision="1", dimension=4)

    async def embed(self, texts: list[str], *, query: bool = False) -> list[list[float]]:
        """One vector of length 1 per text."""
        rows = [[byte - 127.5 for byte in bytes.fromhex(digest_of(text)[:8])] for text in texts]
        return [[number / sum(other**2 for other in row) ** 0.5 for number in row] for row in rows]

    async def close(self) -> None:
        """Nothing to give back."""


class Killed(BaseException):
    """The process ends here."""


class Mortal(ScriptedEngine):
    """The author's engine, which dies after so many replies."""

    def __init__(self, lives: int | None = None) -> None:
        super().__init__(author, CARD)
        self._lives = lives

    async def generate(self, request: Request) -> Reply:
        """The reply, unless it died before."""
        if self._lives is not None and len(self.history) >= self._lives:
            raise Killed
        return await super().generate(request)


class Interrupting(Quiet):
    """Progress that ends the process when a stage begins."""

    def __init__(self, stage: str) -> None:
        self._stage = stage

    def begin(self, stage: str, total: int) -> None:
        """Where it ends."""
        if stage == self._stage:
            raise Killed


# --- the collection


def tie(dice: random.Random) -> str:
    """A sentence that joins two people: mostly neighbours of one house, so that there are circles within circles; some by their first name alone."""
    house, place = dice.choice(HOUSES), dice.randrange(len(HOUSES[0]))
    one, other = house[place], house[(place + dice.choice((1, 1, 1, 2, 5))) % len(house)]
    if dice.random() < ABROAD:
        other = dice.choice([name for elsewhere in HOUSES if elsewhere is not house for name in elsewhere])
    said = (name.split("_")[0] if dice.random() < ALONE else name for name in (one, other))
    return f"{' knows '.join(said)} ({dice.randint(1, 9)})."


@dataclass
class World:
    """A project whose collection changes; `files` are its documents as lists of sentences."""

    folder: Path
    rules: tuple[str, ...]
    files: dict[str, list[str]] = field(default_factory=dict)
    asked: list[Request] = field(default_factory=list)
    made: Indexed | None = None
    kept: Counter[str] = field(default_factory=Counter)  # how often what was the case, so that no check is vacuous

    @classmethod
    def begun(cls, folder: Path, *rules: str, documents: int = 3, seed: int = 0) -> "World":
        """A collection of some documents, indexed."""
        world = cls(folder, ("documents.missing_limit=1", *RULES, *rules))
        folder.mkdir(exist_ok=True)
        for number in range(documents):
            world.add(seed + number)
        world.index()
        return world

    @property
    def project(self):
        return project_of(self.folder, {}, *self.rules)

    @property
    def input(self) -> Path:
        return self.folder / "input"

    def pick(self, seed: int) -> str:
        """One of the documents."""
        return sorted(self.files)[seed % len(self.files)]

    @staticmethod
    def path_of(seed: int) -> str:
        """The path of the document of that seed."""
        return f"{'sub/' if seed % 3 else ''}{seed}.txt"

    def add(self, seed: int) -> str:
        """A document more; one in three begins with the text of another one."""
        dice = random.Random(seed)
        path = self.path_of(seed)
        shared = list(self.files[self.pick(seed)]) if self.files and dice.random() < 1 / 3 else []
        self.write(path, [*shared, *(tie(dice) for _ in range(dice.randint(3, 14)))])
        return path

    def edit(self, seed: int, path: str = "") -> None:
        """Another sentence in the place of one, one more, or one less."""
        dice, path = random.Random(seed), path or self.pick(seed)
        lines = list(self.files[path])
        at = dice.randrange(len(lines))
        lines[at : at + dice.randint(0, 1)] = [tie(dice)] if dice.random() < 0.8 else []
        self.write(path, lines or [tie(dice)])

    def rename(self, seed: int) -> None:
        """A document under another path."""
        path = self.pick(seed)
        other = f"moved/{seed}-{len(path)}.txt"
        if other not in self.files:
            lines = self.files[path]
            self.delete(path)
            self.write(other, lines)

    def delete(self, path: str) -> None:
        """A document less."""
        del self.files[path]
        (self.input / path).unlink()

    def write(self, path: str, lines: list[str]) -> None:
        """Make a document of these sentences."""
        self.files[path] = lines
        target = self.input / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("\n".join(lines) + "\n")

    def index(self, crash: int | str | None = None, **order: Any) -> Indexed:
        """One run to its end, after one that was ended after so many replies or at the beginning of that stage; `asked` is what both asked."""
        self.asked = []
        if crash is not None:
            engine = Mortal(crash if isinstance(crash, int) else None)
            try:
                index(self.project, engine, embedder=Hashes(), progress=Interrupting(crash) if isinstance(crash, str) else None, **order)
                self.kept["not killed"] += 1
            except Killed:
                self.kept[f"killed {'among replies' if isinstance(crash, int) else crash}"] += 1
            self.asked += engine.history
        engine = Mortal()
        self.made = index(self.project, engine, embedder=Hashes(), **order)
        self.asked += engine.history
        return self.made

    def twin(self, folder: Path) -> "World":
        """A copy of it all."""
        shutil.copytree(self.folder, folder)
        return World(folder, self.rules, dict(self.files), made=self.made)

    def published(self) -> "Published":
        """What is on disk now."""
        return Published.read(self.folder / "index")


# --- what is published


@dataclass
class Published:
    """A generation as it is read back, and what its manifest says of its making."""

    snapshot: Snapshot
    digest: str
    about: dict[str, Any]
    vectors: dict[str, dict[str, tuple[str, tuple[float, ...]]]]

    @classmethod
    def read(cls, index_folder: Path) -> "Published":
        """Everything in the current generation."""
        with open_current(index_folder) as generation:
            tables = Tables.of(generation)
            rows = {name: tuple(tables.records(kind)) for name, kind in TABLES.items()}
            vectors = {}
            for name in VECTOR_TABLES.values():
                found = tables.vectors(TABLES[name])
                vectors[name] = dict(zip(found.ids, zip(found.texts, map(tuple, found.matrix.tolist()), strict=True), strict=True))
            return cls(Snapshot(**rows), generation.manifest.digest, generation.manifest.about, vectors)

    @property
    def anchor(self) -> Anchor:
        return Anchor(communities=self.snapshot.anchor_communities, edges=self.snapshot.anchor_edges)


def built_from_nothing(world: World, published: Published, folder: Path) -> tuple[Snapshot, int]:
    """The index of the same documents with a copy of the ledger and the published anchor, and how many replies had to be paid for."""
    folder.mkdir(parents=True)
    shutil.copyfile(world.folder / "index" / "ledger.sqlite", folder / "ledger.sqlite")
    meter, engine = Meter(), Mortal()
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        run = Run(
            settings=world.project.settings, input_root=world.input, models_folder=folder,
            model=Model(generate=Ledgered(engine, ledger, meter=meter).generate, card=CARD, counter=Characters()),
            embedder=Hashes(), cache=ledger, prompts=PROMPTS, progress=Silent(), log=lambda *_, **__: None,
            usage=lambda: dict(meter.by_purpose), replayed=lambda: meter.replayed, wasted=lambda: meter.wasted,
        )  # fmt: skip
        made = asyncio.run(build(run, Previous(anchor=published.anchor)))
    return made.snapshot, len(engine.history)


def check_equal_to_rebuild(world: World, published: Published, folder: Path) -> None:
    """Same records in every table, same vectors, same digest, and everything that it takes is in the ledger."""
    fresh, calls = built_from_nothing(world, published, folder)
    for name, kind in TABLES.items():
        assert list(getattr(published.snapshot, name)) == ordered(kind, getattr(fresh, name)), name
    assert published.digest == index_digest(fresh, published.about)
    owners = {name: {vector.owner_id: vector.text_hash for vector in fresh.vectors if VECTOR_TABLES[vector.owner_kind] == name} for name in published.vectors}
    assert {name: {id_: text for id_, (text, _) in rows.items()} for name, rows in published.vectors.items()} == owners
    assert calls == 0


def check_whole(world: World, published: Published) -> None:
    """Every id leads to a record, every record to words that stand in a document, and every level holds every entity once."""
    snapshot = published.snapshot
    documents = {document.id: document for document in snapshot.documents}
    assert {document.path: document.text for document in documents.values()} == {path: "\n".join(lines) + "\n" for path, lines in world.files.items()}
    chunks = {chunk.id: chunk for chunk in snapshot.chunks}
    for chunk in chunks.values():
        assert documents[chunk.document_id].text[chunk.start : chunk.end] == chunk.text
    entities = {entity.id: entity for entity in snapshot.entities}
    edges = {edge.id: edge for edge in snapshot.relationships}
    for mention in snapshot.mentions:
        chunk = chunks[mention.chunk_id]
        assert mention.document_id == chunk.document_id
        assert all(chunk.start <= span.start < span.end <= chunk.end for span in mention.spans)
    mentioned = Counter(mention.owner_id for mention in snapshot.mentions)
    assert mentioned == {record.id: record.mentions for record in (*entities.values(), *edges.values())}
    assert {end for edge in edges.values() for end in (edge.source_id, edge.target_id)} <= entities.keys()
    assert not snapshot.claims
    assert not snapshot.failures
    check_levels(snapshot.communities, entities)
    by_community = {community.id: community for community in snapshot.communities}
    for report in snapshot.reports:
        members = set(by_community[report.community_id].member_ids)
        for source in (source for finding in report.findings for source in finding.sources):
            ends = {source} if source in entities else {edges[source].source_id, edges[source].target_id}
            assert ends <= members or report.stale
        assert set(report.untold) <= entities.keys()
        assert set(report.documents) <= documents.keys()
    assert len({report.community_id for report in snapshot.reports}) == len(snapshot.reports)
    assert {name: set(rows) for name, rows in published.vectors.items()} == {
        "chunks": set(chunks), "entities": set(entities), "reports": {report.id for report in snapshot.reports},
    }  # fmt: skip


def check_levels(communities: Sequence[Community], entities: Iterable[str]) -> None:
    """A tree whose every level is a partition."""
    by_id = {community.id: community for community in communities}
    everybody = Counter(list(entities))
    for level in range(max((community.last_level for community in communities), default=-1) + 1):
        assert Counter(member for one in communities if one.first_level <= level <= one.last_level for member in one.member_ids) == everybody
    for community in communities:
        assert {by_id[child].parent_id for child in community.child_ids} <= {community.id}
        assert not community.parent_id or community.id in by_id[community.parent_id].child_ids


def check_current(world: World, published: Published) -> None:
    """No report says that it is current and is not."""
    snapshot = published.snapshot
    model = Model(generate=Ledgered(Mortal(), None).generate, card=CARD, counter=Characters())
    rows = (snapshot.communities, snapshot.entities, snapshot.relationships, snapshot.claims, snapshot.mentions, snapshot.reports)
    assert stale_reports(*rows, model, PROMPTS["report"], world.project.settings.reports) == ()


def check_modularity(world: World, published: Published) -> None:
    """Level 0 is at least 0.99 as good as that of a run from nothing."""
    snapshot = published.snapshot
    edges = {(edge.source_id, edge.target_id): edge.weight for edge in snapshot.relationships}
    fresh = build_communities(snapshot.entities, snapshot.relationships, world.project.settings.communities, None).communities
    ours, best = (modularity([c.member_ids for c in rows if not c.parent_id], edges) for rows in (snapshot.communities, fresh))
    world.kept["modularity compared"] += bool(edges)
    assert ours >= 0.99 * best, f"{ours:.4f} of {best:.4f}"


def check_ledger(world: World) -> None:
    """No reply is linked to a document that is not there."""
    with Ledger.open(world.folder / "index" / "ledger.sqlite") as ledger:
        assert ledger.documents() <= {document_id(path) for path in world.files}


def saw(reports: Iterable[Report], path: str) -> list[Report]:
    """The reports whose context held text of a document."""
    return [report for report in reports if document_id(path) in report.documents]
