"""What runs and when: STAGES in order, and `build`, which runs them, counts, and publishes.

Everything but the model's replies is recomputed on every run: a reply that the ledger holds costs a look-up, so a run over an unchanged
collection asks nothing and publishes nothing.
"""

import asyncio
import contextlib
import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from graphrag_local.changes import Changes, all_is_gone, compare, refuse_if_most_is_gone, say_what_is_kept
from graphrag_local.chunks.stage import build_chunks
from graphrag_local.communities.stage import build_communities
from graphrag_local.documents.stage import read_collection
from graphrag_local.engine.base import Embedder, Model
from graphrag_local.errors import CollectionMissing
from graphrag_local.extraction.stage import Extracted, extract
from graphrag_local.flow import Progress, in_thread
from graphrag_local.graph.stage import Graph, build_graph
from graphrag_local.prompting import Prompt
from graphrag_local.records import Chunk, Community, Document, Dropped, Extraction, Failed, Report, Usage
from graphrag_local.reports.stage import write_reports
from graphrag_local.settings import Settings
from graphrag_local.store.snapshot import Snapshot
from graphrag_local.vectors.stage import VectorCache, embed, texts_of

STAGES = ("documents", "chunks", "extraction", "graph", "communities", "reports", "vectors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a build is given: settings, folders, the model side, and where its progress and its log go.

    `usage` gives what each purpose has cost so far, `replayed` and `wasted` the replies from the ledger and the tokens of unusable replies.
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
    accept_missing: bool = False


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

    `without_report` counts the communities that are too small for a report (`folded`) and those whose report `reports.write` leaves out (`unwritten`),
    `dropped` by stage and reason what models said and could not be kept, `empty_chunks` the chunks that were read and name no entity.
    """

    snapshot: Snapshot = field(repr=False)  # asyncio prints a task's result on the way out, which would be the whole index as text
    changes: Changes
    last_build: dict[str, Any]
    apart: int
    names: dict[str, float]
    without_report: dict[str, int]
    dropped: dict[str, dict[str, int]]
    empty_chunks: int


async def build(run: Run, published: tuple[Document, ...], reports: tuple[Report, ...] = ()) -> Built:
    """Read the collection and make everything that the index holds; `published` and `reports` are those of the current generation.

    A report is kept for as long as its context is what it was written from, so that those written under another `reports.write` are not lost.
    """
    with _collecting_rarely():
        return await _build(run, published, reports)


@contextlib.contextmanager
def _collecting_rarely() -> Iterator[None]:
    """Python's search for circular garbage made rare: a build holds millions of records without circles, and it took a tenth of all the time."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def _build(run: Run, published: tuple[Document, ...], reports: tuple[Report, ...]) -> Built:
    clock = Clock(run.log, run.usage)
    began = time.monotonic()
    with clock.stage("documents"):
        documents, failures, changes = await in_thread(lambda go_on: _documents(run, published, go_on))
    with clock.stage("chunks"):
        chunks = await in_thread(lambda go_on: build_chunks(documents, run.settings.chunks, run.models_folder, progress=run.progress, go_on=go_on))
    paths = {document.id: document.path for document in documents}
    limit = 2 * run.settings.engine.concurrency
    with clock.stage("extraction"):
        extracted = await extract(chunks, paths, run.model, run.prompts, run.settings.extraction, progress=run.progress, limit=limit)
    previous = {report.fingerprint: report for report in reports}
    snapshot, graph, without_report = await _graph_and_reports(run, clock, documents, chunks, extracted, previous, limit)
    failures = [*failures, *extracted.failures, *snapshot.failures]
    with clock.stage("vectors"):
        owners = texts_of(snapshot.chunks, snapshot.entities, snapshot.reports)
        vectors = await embed(owners, run.embedder, run.cache, prefix=run.settings.vectors.text_prefix, batch=run.settings.vectors.batch, progress=run.progress)
    snapshot = replace(snapshot, vectors=vectors, failures=tuple(failures), dimension=run.embedder.card.dimension)
    return Built(
        snapshot=snapshot,
        changes=changes,
        last_build=_cost(clock, time.monotonic() - began, run),
        apart=sum(len(extraction.apart) for extraction in extracted.extractions),
        names=_names(extracted.extractions),
        without_report=without_report,
        dropped={
            "extraction": _reasons(row for extraction in extracted.extractions for row in extraction.dropped),
            "graph": _reasons(graph.dropped),
            "reports": _reasons(row for report in snapshot.reports for row in report.dropped),
        },
        empty_chunks=len({one.chunk_id for one in extracted.extractions if not one.entities} - {row.input_id for row in extracted.failures}),
    )


def _documents(run: Run, published: tuple[Document, ...], go_on: Callable[[], None]) -> tuple[list[Document], list[Failed], Changes]:
    """The documents of the collection, with those of files that are there but cannot be read now as they were."""
    known = {document.path: document for document in published}
    try:
        read, failures, present = read_collection(run.input_root, run.settings.documents, progress=run.progress, go_on=go_on)
    except CollectionMissing as error:
        raise all_is_gone(error, len(known)) from error
    changes = compare({path: document.content_hash for path, document in known.items()}, read, present)
    if not run.accept_missing:
        refuse_if_most_is_gone(changes, len(known), run.settings.documents.missing_limit)
    documents = sorted([*read, *(known[path] for path in changes.kept)], key=lambda document: document.path)
    failures = say_what_is_kept(failures, changes)
    if not documents and not known:
        reasons = "; ".join(f"{failure.input}: {failure.reason}" for failure in failures[:5])
        raise CollectionMissing(
            f"There is no document to index in {run.input_root}{': ' + reasons if reasons else ''}.",
            hint="Put files there, or point documents.input at the folder that has them.",
        )
    run.log("documents", read=len(read), failed=len(failures), new=len(changes.new), edited=len(changes.edited), gone=len(changes.gone))
    return documents, failures, changes


async def _graph_and_reports(
    run: Run,
    clock: Clock,
    documents: list[Document],
    chunks: tuple[Chunk, ...],
    extracted: Extracted,
    previous: dict[str, Report],
    limit: int,
) -> tuple[Snapshot, Graph, dict[str, int]]:
    """The records of those stages, with the failures of these; the graph; and the communities without a report."""
    settings = run.settings
    with clock.stage("graph"):
        graph = await build_graph(
            extracted.extractions, chunks, run.model, run.prompts["describe"], settings.describe,
            quote=extracted.quote, progress=run.progress, limit=limit,
        )  # fmt: skip
    with clock.stage("communities"):
        communities: tuple[Community, ...] = await asyncio.to_thread(build_communities, graph.entities, graph.relationships, settings.communities)
    with clock.stage("reports"):
        written = await write_reports(
            communities, graph.entities, graph.relationships, graph.claims, graph.mentions, run.model, run.prompts["report"],
            settings.reports, previous=previous, progress=run.progress, limit=limit,
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
    )
    return snapshot, graph, {"folded": len(written.folded), "unwritten": len(written.unwritten)}


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
            "seconds": round(clock.seconds[stage], 3),
        }
        for stage, used in ((stage, clock.used[stage]) for stage in STAGES)
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
