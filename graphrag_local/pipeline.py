"""What runs and when: STAGES in order, and `build`, which runs them, counts, and publishes.

Where anything has changed, everything but the model's replies is recomputed: a reply that the ledger holds costs a look-up.
"""

import asyncio
import contextlib
import gc
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from graphrag_local.changes import Changes
from graphrag_local.chunks.stage import build_chunks
from graphrag_local.collection import Gathered, read
from graphrag_local.communities.stage import Partitioned, build_communities, rebased
from graphrag_local.engine.base import Embedder, Model
from graphrag_local.extraction.stage import Extracted, extract
from graphrag_local.flow import Progress, in_thread
from graphrag_local.graph.stage import Graph, build_graph
from graphrag_local.ids import document_id
from graphrag_local.prompting import Prompt
from graphrag_local.records import Anchor, Chunk, Document, Dropped, Extraction, Failed, Report, Usage, Vector
from graphrag_local.reports.elements import Elements
from graphrag_local.reports.stage import ReportsResult, write_reports
from graphrag_local.reports.tree import Tree
from graphrag_local.settings import Settings
from graphrag_local.store.snapshot import Snapshot
from graphrag_local.vectors.stage import VectorCache as VectorCache
from graphrag_local.vectors.stage import embed, texts_of, without_vector

ABOUT = ("names", "apart", "without_report", "dropped", "empty_chunks")  # of what was built, what manifests keep
STAGES = ("documents", "chunks", "extraction", "graph", "communities", "reports", "vectors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a build is given: settings, folders, the model side, and where its progress and its log go.

    `usage` gives what each purpose has cost so far, `replayed` and `wasted` the replies from the ledger and the tokens of unusable replies.
    `forgotten` holds ids of documents and hashes of texts that are left out for good; `renew` why the communities' anchor is to be renewed;
    `settle` has every report written that can be. `replayed_only` says that only replies that are kept can be had: no report is wanted; without `embeds`
    only kept vectors can be had.
    """

    settings: Settings
    input_root: Path
    models_folder: Path
    model: Model
    embedder: Embedder
    cache: VectorCache
    prompts: dict[str, Prompt]
    progress: Progress
    log: Callable[..., None]
    usage: Callable[[], dict[str, Usage]]
    replayed: Callable[[], int]
    wasted: Callable[[], int]
    allow_empty: bool = False
    forgotten: frozenset[str] = frozenset()
    renew: str = ""
    settle: bool = False
    replayed_only: bool = False
    embeds: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Previous:
    """What the current generation gives to the next: its documents, reports and anchor.

    `holes` are the chunks whose extraction had failed when the anchor was made: it is made anew once any of them is read. `erased` are ids of entities that
    forgotten documents name: the anchor is to know nothing of them where they are no more.
    """

    documents: tuple[Document, ...] = ()
    reports: tuple[Report, ...] = ()
    anchor: Anchor | None = None
    holes: frozenset[str] = frozenset()
    erased: frozenset[str] = frozenset()


@dataclass(slots=True)
class Clock:
    """Seconds and model calls per stage, in order."""

    log: Callable[..., None]
    usage: Callable[[], dict[str, Usage]]
    seconds: dict[str, float] = field(default_factory=dict)
    used: dict[str, Usage] = field(default_factory=dict)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time and count what happens inside."""
        began, before = time.monotonic(), self._total()
        self.log("begin", stage=name)
        yield
        self.seconds[name] = time.monotonic() - began
        self.used[name] = _minus(self._total(), before)

    def _total(self) -> Usage:
        return sum(self.usage().values(), Usage())


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a build made: the snapshot to publish (or that is published already), what changed, and what it cost.

    `without_report` counts the communities that are too small for a report (`folded`) and those whose report `reports.write` leaves out (`unwritten`)
    or that have one from before (`stale`), `rewritten` the reports that are new, `renewed` says why the anchor of the communities is a new one,
    `dropped` by stage and reason what models said and could not be kept, `empty_chunks` the chunks that were read and name no entity, `holes`
    those (ids) that were not read.
    """

    snapshot: Snapshot = field(repr=False)  # asyncio prints a task's result on the way out, which would be the whole index as text
    changes: Changes
    last_build: dict[str, Any]
    without_report: dict[str, int]
    rewritten: int
    apart: int = 0
    names: dict[str, float] = field(default_factory=dict)
    dropped: dict[str, dict[str, int]] = field(default_factory=dict)
    empty_chunks: int = 0
    renewed: str = ""
    holes: frozenset[str] = frozenset()

    def about(self) -> dict[str, Any]:
        """What a manifest keeps of it besides the records."""
        return {name: getattr(self, name) for name in (*ABOUT, "last_build")}


async def gather(run: Run, documents: Collection[Document], paid_for: Collection[str] = ()) -> Gathered:
    """The first stage: the documents of the collection, and what differs from those of the published generation; see `collection.read`."""
    clock = Clock(run.log, run.usage)
    with clock.stage("documents"):
        gathered = await in_thread(
            lambda go_on: read(
                run.input_root, run.settings.documents, documents, paid_for=paid_for, forgotten=run.forgotten, allow_empty=run.allow_empty,
                progress=run.progress, go_on=go_on,
            )
        )  # fmt: skip
    changes = gathered.changes
    numbers = {name: len(getattr(changes, name)) for name in ("new", "edited", "renamed", "gone", "forgotten")}
    run.log("documents", read=len(gathered.documents) - len(changes.kept), failed=len(gathered.failures), **numbers)
    return replace(gathered, seconds=clock.seconds["documents"])


async def build(run: Run, previous: Previous | None = None, gathered: Gathered | None = None) -> Built:
    """Make everything that the index holds, of the collection as it is now or as it was `gathered` before.

    A report is kept for as long as its context is what it was written from, so that those written under another `reports.write` are not lost.
    """
    previous = previous or Previous()
    with _collecting_rarely():
        return await _build(run, previous, gathered or await gather(run, previous.documents))


@contextlib.contextmanager
def _collecting_rarely() -> Iterator[None]:
    """Python's search for circular garbage made rare: a build holds millions of records without circles, and it took a tenth of all the time."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def _build(run: Run, previous: Previous, gathered: Gathered) -> Built:
    clock = Clock(run.log, run.usage, {"documents": gathered.seconds})
    began = time.monotonic() - gathered.seconds
    documents = gathered.documents
    with clock.stage("chunks"):
        chunks = await in_thread(lambda go_on: build_chunks(documents, run.settings.chunks, run.models_folder, progress=run.progress, go_on=go_on))
    paths = {document.id: document.path for document in documents}
    limit = 2 * run.settings.engine.concurrency
    with clock.stage("extraction"):
        extracted = await extract(chunks, paths, run.model, run.prompts, run.settings.extraction, progress=run.progress, limit=limit)
    holes = frozenset(row.input_id for row in extracted.failures)
    if previous.holes & {chunk.id for chunk in chunks} - holes:
        previous = replace(previous, anchor=None)
    before = {document.path: document.id for document in previous.documents}
    moved = {before[old]: document_id(new) for old, new in gathered.changes.renamed}
    gone = set(before.values()) - {document.id for document in documents} - moved.keys()
    snapshot, graph, partitioned, written = await _graph_and_reports(run, clock, documents, chunks, extracted, previous, gone, moved, limit)
    failures = (*gathered.failures, *extracted.failures, *snapshot.failures)
    with clock.stage("vectors"):
        vectors, unembedded = await _vectors(run, snapshot)
    snapshot = replace(snapshot, vectors=vectors, failures=(*failures, *unembedded), dimension=run.embedder.card.dimension)
    return Built(
        snapshot=snapshot,
        changes=gathered.changes,
        last_build=_cost(clock, time.monotonic() - began, run),
        apart=sum(len(extraction.apart) for extraction in extracted.extractions),
        names=_names(extracted.extractions),
        without_report=_without(written),
        dropped={
            "extraction": _reasons(row for extraction in extracted.extractions for row in extraction.dropped),
            "graph": _reasons(graph.dropped),
            "reports": _reasons(row for report in snapshot.reports for row in report.dropped),
        },
        empty_chunks=len({one.chunk_id for one in extracted.extractions if not one.entities} - {row.input_id for row in extracted.failures}),
        renewed=partitioned.renewed,
        rewritten=written.written,
        holes=holes,
    )


def unchanged(run: Run, gathered: Gathered, about: Mapping[str, Any], failures: Iterable[Failed]) -> Built:
    """What a build would have made of a collection that has not changed, but for the records: of them it holds the documents and the failures."""
    last_build = _cost(Clock(run.log, run.usage, {"documents": gathered.seconds}), gathered.seconds, run)
    none: dict[str, Any] = dict.fromkeys(("chunks", "mentions", "entities", "relationships", "claims", "communities", "reports"), ())
    snapshot = Snapshot(documents=gathered.documents, failures=tuple(failures), **none)
    return Built(snapshot=snapshot, changes=gathered.changes, last_build=last_build, rewritten=0, **{name: about[name] for name in ABOUT})


def reportable(snapshot: Snapshot, settings: Settings) -> set[str]:
    """Ids of the communities that can have a report."""
    elements = Elements(snapshot.entities, snapshot.relationships, snapshot.claims, snapshot.mentions)
    return Tree(snapshot.communities, elements, settings.reports).reportable


async def write_missing(run: Run, snapshot: Snapshot, only: set[str]) -> Built:
    """A published snapshot with the reports of these communities, where they can have one and have none that is current; nothing else is looked at."""
    clock = Clock(run.log, run.usage)
    began = time.monotonic()
    with clock.stage("reports"):
        written = await write_reports(
            snapshot.communities, snapshot.entities, snapshot.relationships, snapshot.claims, snapshot.mentions, run.model, run.prompts["report"],
            run.settings.reports, previous=snapshot.reports, only=only, progress=run.progress, limit=2 * run.settings.engine.concurrency,
        )  # fmt: skip
    others = [row for row in snapshot.failures if row.stage != "reports" or row.input_id not in only]
    snapshot = replace(snapshot, reports=written.reports, failures=(*others, *written.failures))
    with clock.stage("vectors"):
        snapshot = replace(snapshot, vectors=(await _vectors(run, snapshot))[0], dimension=run.embedder.card.dimension)
    return Built(
        snapshot=snapshot,
        changes=Changes(same=len(snapshot.documents)),
        last_build=_cost(clock, time.monotonic() - began, run),
        without_report=_without(written),
        rewritten=written.written,
    )


async def _vectors(run: Run, snapshot: Snapshot) -> tuple[tuple[Vector, ...], list[Failed]]:
    """The vectors, and what has none for now, which is nothing unless the embedder is known to be away."""
    owners, settings = texts_of(snapshot.chunks, snapshot.entities, snapshot.reports), run.settings.vectors
    left = without_vector(owners, run.embedder, run.cache, prefix=settings.text_prefix) if not run.embeds else []
    vectors = await embed(
        [owner for owner in owners if owner not in left] if left else owners,
        run.embedder, run.cache, prefix=settings.text_prefix, batch=settings.batch, progress=run.progress,
    )  # fmt: skip
    return vectors, [Failed(stage="vectors", input_id=id_, input=f"{kind} {id_}", reason="it has no vector yet", retryable=True) for kind, id_, _ in left]


def _without(written: ReportsResult) -> dict[str, int]:
    return {"folded": len(written.folded), "unwritten": len(written.unwritten), "stale": len(written.stale)}


async def _graph_and_reports(
    run: Run,
    clock: Clock,
    documents: Collection[Document],
    chunks: tuple[Chunk, ...],
    extracted: Extracted,
    previous: Previous,
    gone: Collection[str],
    moved: dict[str, str],
    limit: int,
) -> tuple[Snapshot, Graph, Partitioned, ReportsResult]:
    """The records of those stages, with the failures of these."""
    settings = run.settings
    with clock.stage("graph"):
        graph = await build_graph(
            extracted.extractions, chunks, run.model, run.prompts["describe"], settings.describe,
            quote=extracted.quote, progress=run.progress, limit=limit,
        )  # fmt: skip
    with clock.stage("communities"):
        partitioned = await asyncio.to_thread(_partitioned, run, graph, previous)
    communities, anchor = partitioned.communities, partitioned.anchor
    with clock.stage("reports"):
        written = await write_reports(
            communities, graph.entities, graph.relationships, graph.claims, graph.mentions, run.model, run.prompts["report"],
            settings.reports, previous=previous.reports, gone=gone, moved=moved, settle=run.settle,
            only=set() if run.replayed_only and not run.model.card.absent else None,
            progress=run.progress, limit=limit,
        )  # fmt: skip
    snapshot = Snapshot(
        documents=tuple(documents),
        chunks=chunks,
        mentions=tuple(graph.mentions),
        entities=tuple(graph.entities),
        relationships=tuple(graph.relationships),
        claims=tuple(graph.claims),
        communities=communities,
        reports=written.reports,
        failures=(*graph.failures, *written.failures),
        anchor_communities=anchor.communities,
        anchor_edges=anchor.edges,
    )
    return snapshot, graph, partitioned, written


def _partitioned(run: Run, graph: Graph, previous: Previous) -> Partitioned:
    """Today's communities, and the anchor that the next generation gets."""
    found = build_communities(graph.entities, graph.relationships, run.settings.communities, previous.anchor, renew=run.renew)
    if previous.erased and previous.anchor is not None:
        anchor = rebased(found.anchor, found.communities, graph.relationships, graph.entities, previous.erased, run.settings.communities)
        found = replace(found, anchor=anchor)
    return found


def _minus(a: Usage, b: Usage) -> Usage:
    return Usage(
        calls=a.calls - b.calls,
        prompt_tokens=a.prompt_tokens - b.prompt_tokens,
        cached_tokens=a.cached_tokens - b.cached_tokens,
        completion_tokens=a.completion_tokens - b.completion_tokens,
        seconds=a.seconds - b.seconds,
    )


def _cost(clock: Clock, seconds: float, run: Run) -> dict[str, Any]:
    """`last_build` of the status: calls, tokens and seconds, in all and by stage."""
    by_stage = {
        stage: {
            "calls": used.calls,
            "prompt_tokens": used.prompt_tokens,
            "cached_tokens": used.cached_tokens,
            "completion_tokens": used.completion_tokens,
            "seconds": round(clock.seconds.get(stage, 0.0), 3),
        }
        for stage, used in ((stage, clock.used.get(stage, Usage())) for stage in STAGES)
    }
    total = sum(clock.used.values(), Usage())
    return {
        "seconds": round(seconds, 3),
        "calls": total.calls,
        "prompt_tokens": total.prompt_tokens,
        "cached_tokens": total.cached_tokens,
        "completion_tokens": total.completion_tokens,
        "replayed": run.replayed(),
        "wasted_tokens": run.wasted(),
        "by_stage": by_stage,
    }


def _reasons(rows: Iterable[Dropped]) -> dict[str, int]:
    """How often each reason occurs."""
    return dict(sorted(Counter(row.reason for row in rows).items()))


def _names(extractions: tuple[Extraction, ...]) -> dict[str, float]:
    """Shares of names by how they are grounded (see `extraction.ground`); empty when there are none."""
    counts = {"anchored": 0, "composed": 0, "unanchored": 0}
    for extraction in extractions:
        for mention in (*extraction.entities, *extraction.apart):
            counts[mention.grounding] += 1
    total = sum(counts.values())
    return {kind: round(count / total, 4) for kind, count in counts.items()} if total else {}
