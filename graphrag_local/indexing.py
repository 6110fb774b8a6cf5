"""`index`: opens everything, builds, publishes what changed, and lets go of what nothing holds any more."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from graphrag_local.changes import PROMPTS, refuse_unasked
from graphrag_local.communities.stage import conditions
from graphrag_local.engine.base import EmbedderCard, Engine
from graphrag_local.engine.budget import budgeted
from graphrag_local.engine.models import models_folder
from graphrag_local.errors import GraphragError, IndexBusy, IndexCorrupt, IndexMismatch, IndexMissing, StorageError
from graphrag_local.flow import Progress
from graphrag_local.pipeline import Built, Previous, Run, VectorCache, build
from graphrag_local.project import ProjectFolder
from graphrag_local.records import Anchor, AnchorCommunity, AnchorEdge, Document, Mention, Report, Usage
from graphrag_local.store.forgotten import hashes, read_forgotten
from graphrag_local.store.generations import Generation, collect, generation_ids, open_current, open_generation
from graphrag_local.store.lance import Tables
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.publish import counts_of, index_digest, publish
from graphrag_local.store.runlog import RunLog
from graphrag_local.store.snapshot import Snapshot
from graphrag_local.wiring import ModelSide, open_model_side, open_no_model


class ShownProgress(Progress, AbstractContextManager[Any], Protocol):
    """Progress that is on screen for as long as its context lasts."""


MakeProgress = Callable[[Callable[[], Usage], Callable[..., None]], ShownProgress]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a run is asked to do besides bringing the index up to date.

    `retry_failed`: ask again what failed for good. `allow_empty`: go on although most documents are gone. `yes`: redo what changed settings, prompts or
    models ask for. `repartition`: a new anchor for the communities. `settle`: write every report.
    `budget` is the most tokens to pay for; `around` wraps the engine below the ledger.
    `erased` are ids of entities that documents forgotten in this run name in older generations.
    """

    retry_failed: bool = False
    allow_empty: bool = False
    yes: bool = False
    repartition: bool = False
    settle: bool = False
    budget: int | None = None
    around: Callable[[Engine], Engine] | None = None
    erased: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """The result of `index`: which generation is current now, and whether it is a new one; `swept` counts replies of documents that are gone for good."""

    generation: str
    digest: str
    published: bool
    counts: dict[str, Any]
    built: Built
    swept: int = 0
    kept_in: tuple[str, ...] = ()
    used: frozenset[str] = field(default=frozenset(), repr=False)

    def summary(self) -> dict[str, Any]:
        """What `index --json` prints."""
        failures = [{"stage": f.stage, "input": f.input, "reason": f.reason, "retryable": f.retryable} for f in self.built.snapshot.failures]
        return {
            "generation": self.generation,
            "digest": self.digest,
            "published": self.published,
            "counts": self.counts,
            "changes": asdict(self.built.changes),
            "last_build": self.built.last_build,
            "reports": {"written": self.built.rewritten, **self.built.without_report},
            "anchor_renewed": self.built.renewed,
            "swept_replies": self.swept,
            "gone_but_kept_in": list(self.kept_in),
            "names": self.built.names,
            "apart": self.built.apart,
            "dropped": self.built.dropped,
            "empty_chunks": self.built.empty_chunks,
            "failures": failures,
        }


async def run_index(project: ProjectFolder, progress: MakeProgress, order: Order | None = None) -> Indexed:
    """Build the index of a project, or bring it up to date; publishes only when something differs."""
    with BuildLock(project.index) as lock:
        return await index_locked(project, lock, progress, order or Order())


async def index_locked(project: ProjectFolder, lock: BuildLock, progress: MakeProgress, order: Order) -> Indexed:
    """`run_index` for who holds the lock already."""
    log = RunLog(project.index)
    try:
        return await _logged(project, lock, log, progress, order)
    except BaseException as error:
        log.write("stopped", error=type(error).__name__)
        raise
    finally:
        log.close()


async def _logged(project: ProjectFolder, lock: BuildLock, log: RunLog, make: MakeProgress, order: Order) -> Indexed:
    log.write("start")
    meters: list[ModelSide] = []

    def usage() -> Usage:
        return meters[0].meter.total if meters else Usage()

    with make(usage, log.write) as progress, Ledger.open(project.index / "ledger.sqlite") as ledger:
        parent, broken = _published(project.index, progress.say)
        try:
            around = budgeted(order.budget) if order.budget is not None else order.around
            if project.settings.extraction.method == "fast":
                side = await open_no_model(project, ledger, progress.say)
            else:
                side = await open_model_side(project, ledger, progress.say, retry_failed=order.retry_failed, around=around)
            meters.append(side)
            if parent is not None:
                side.keep_embedder(EmbedderCard.of(parent.manifest.about["models"]))
            try:
                decided = decided_by(project, side)
                if parent is not None and not order.yes:
                    refuse_unasked(parent.manifest.about, decided, parent.manifest.counts)
                previous = previous_of(project, parent, order)
                if broken and parent is None:
                    previous = replace(previous, paid_for=frozenset(ledger.documents()))
                built = await build(run_of(project, side, ledger, progress, log.write, order, parent), previous)
                await side.ledgered.save_links()
            finally:
                await side.close()
            _refuse_if_nothing_was_read(parent, built)
            return await _publish(project, lock, parent, built, decided, ledger, side, log, broken=broken)
        finally:
            if parent is not None:
                parent.close()


def _published(index: Path, say: Callable[[str], None]) -> tuple[Generation | None, bool]:
    """The current generation; where it cannot be used the newest that is whole, if any, and True: then a new one is made from the ledger."""
    try:
        return open_current(index), False
    except IndexMissing:
        return None, False
    except (IndexCorrupt, IndexMismatch) as error:
        say(f"The published index cannot be used ({str(error).rstrip('.')}); it is built anew from the replies in the ledger.")
    for id_ in reversed(generation_ids(index)):
        with contextlib.suppress(IndexCorrupt, IndexMismatch):
            return open_generation(index, id_), True
    return None, True


def previous_of(project: ProjectFolder, parent: Generation | None, order: Order) -> Previous:
    """What the published generation gives to the next."""
    if parent is None:
        return Previous()
    tables = Tables.of(parent)
    before, now = parent.manifest.about["decisive"], project.settings.decisive()
    grouped_alike = before["communities"] == now["communities"] and before["extraction"].get("method") == now["extraction"].get("method")
    anchor = Anchor(communities=tuple(tables.records(AnchorCommunity)), edges=tuple(tables.records(AnchorEdge))) if grouped_alike else None
    return Previous(
        documents=tuple(tables.records(Document)),
        reports=tuple(tables.records(Report)),
        anchor=anchor,
        holes=frozenset(parent.manifest.about["anchor_holes"]),
        erased=order.erased | _erased(project.index, tables),
    )


def _erased(index: Path, tables: Tables) -> frozenset[str]:
    """Ids of the entities that forgotten documents name in the published generation, also where the `forget` itself was cut short."""
    forgotten = {entry.document for entry in read_forgotten(index)}
    held = forgotten.intersection(tables.columns(Document, ["id"])["id"]) if forgotten else ()
    return frozenset(row.owner_id for row in tables.rows(Mention, held, by="document_id") if row.owner_kind == "entity") if held else frozenset()


def run_of(
    project: ProjectFolder, side: ModelSide, cache: VectorCache, progress: Progress, log: Callable[..., None], order: Order, parent: Generation | None
) -> Run:
    """What a build is given."""
    return Run(
        settings=project.settings,
        input_root=project.input_root,
        models_folder=models_folder(),
        model=side.model,
        embedder=side.embedder,
        cache=cache,
        prompts=project.prompts,
        progress=progress,
        log=log,
        usage=lambda: dict(side.meter.by_purpose),
        replayed=lambda: side.meter.replayed,
        wasted=lambda: side.meter.wasted,
        allow_empty=order.allow_empty,
        forgotten=hashes(read_forgotten(project.index)),
        renew="asked" if order.repartition else _age(project, parent),
        settle=order.settle,
    )


def _age(project: ProjectFolder, parent: Generation | None) -> str:
    """ "age" where the anchor is older than the settings let it become."""
    days = project.settings.communities.renew_days
    if parent is None or not days:
        return ""
    made = datetime.fromisoformat(parent.manifest.about["anchored"])
    return "age" if datetime.now(UTC) - made > timedelta(days=days) else ""


def decided_by(project: ProjectFolder, side: ModelSide) -> dict[str, Any]:
    """What decides the records of an index besides the documents, as manifests keep it."""
    card, embedder, model = side.model.card, side.embedder.card, side.model
    models = {
        "name": card.name, "revision": card.revision, "context": card.context_tokens, "form": card.form,
        "temperature": model.temperature, "seed": model.seed,
        "embedder": embedder.name, "embedder_revision": embedder.revision, "dimension": embedder.dimension, **project.settings.vectors.prefixes(),
    }  # fmt: skip
    return {
        "settings": project.settings.fingerprint(),
        "decisive": project.settings.decisive(),
        "prompts": {name: project.prompts[name].fingerprint() for name in PROMPTS},
        "models": models,
    }


async def _publish(
    project: ProjectFolder, lock: BuildLock, parent: Generation | None, built: Built, decided: dict[str, Any], ledger: Ledger, side: ModelSide,
    log: RunLog, *, broken: bool,
) -> Indexed:  # fmt: skip
    about = {
        **decided,
        "names": built.names,
        "apart": built.apart,
        "without_report": built.without_report,
        "dropped": built.dropped,
        "empty_chunks": built.empty_chunks,
        "last_build": built.last_build,
        **_about_anchor(built, parent),
        "partition": conditions(project.settings.communities),
    }
    indexed = publish_built(lock, parent, built, about, anew=broken)
    if parent is not None and indexed.published:
        parent.close()  # so that it can be removed, where it is not to be kept
    removed = collect(lock, project.settings.keep_generations)
    used = frozenset(side.ledgered.used)
    # Beside an index that could not be used it is not known what it held: the next run lets go.
    swept, kept_in = (0, ()) if broken else _sweep(project.index, indexed.generation, ledger, built.snapshot, used)
    with contextlib.suppress(IndexBusy, StorageError):  # somebody reads the ledger, or the disk is full: the next run does it
        ledger.reclaim()
    log.write("end", generation=indexed.generation, published=indexed.published, removed=len(removed.removed), swept=swept, last_build=built.last_build)
    return replace(indexed, swept=swept, kept_in=kept_in, used=used)


def _about_anchor(built: Built, parent: Generation | None) -> dict[str, Any]:
    """When the anchor of the communities was made, and which chunks could not be read then."""
    if built.renewed or parent is None:
        return {"anchored": datetime.now(UTC).isoformat(timespec="seconds"), "anchor_holes": sorted(built.holes)}
    return {name: parent.manifest.about[name] for name in ("anchored", "anchor_holes")}


def publish_built(lock: BuildLock, parent: Generation | None, built: Built, about: dict[str, Any], *, anew: bool = False) -> Indexed:
    """Publish what was built, unless the current generation is that already and not to be made `anew`; `about` is what its manifest says of it."""
    snapshot = built.snapshot
    counts, digest = counts_of(snapshot), index_digest(snapshot, about)
    if parent is not None and parent.manifest.digest == digest and not anew:
        return Indexed(generation=parent.id, digest=digest, published=False, counts=counts, built=built)
    generation = publish(lock, snapshot, digest=digest, counts=counts, about=about, parent=parent)
    return Indexed(generation=generation, digest=digest, published=True, counts=counts, built=built)


def _sweep(index: Path, current: str, ledger: Ledger, snapshot: Snapshot, used: frozenset[str]) -> tuple[int, tuple[str, ...]]:
    """Let go of the replies that only documents caused which no generation holds any more: how many, and which generations still hold such documents.

    What is to go shows in the ledger itself, so a run that was killed before this is made up for by the next. The pages are `Ledger.reclaim`'s. Of forgotten
    documents nothing stays, whatever generation holds them.
    """
    orphans = ledger.documents() - {document.id for document in snapshot.documents}
    forgotten = {entry.document for entry in read_forgotten(index)} if orphans else set()
    kept_in = []
    for id_ in generation_ids(index) if orphans - forgotten else ():
        held = (orphans - forgotten) & _documents_in(index, id_) if id_ != current else set()
        if held:
            kept_in.append(id_)
            orphans = orphans - held
    deleted = 0
    if orphans:
        ledger.drop_vectors({vector.text_hash for vector in snapshot.vectors}, reclaim=False)
        deleted = ledger.sweep(orphans, used, reclaim=False).deleted
    return deleted, tuple(kept_in)


def _documents_in(index: Path, id_: str) -> set[str]:
    """Ids of the documents that a generation holds; none where it cannot be read: it answers nothing, and it can be removed."""
    try:
        with open_generation(index, id_) as generation:
            return {document.id for document in Tables.of(generation).records(Document)}
    except (IndexCorrupt, IndexMismatch):
        return set()


def _refuse_if_nothing_was_read(parent: Generation | None, built: Built) -> None:
    """A model that can answer nothing must not replace an index that answers: GraphragError where every chunk of several failed."""
    snapshot = built.snapshot
    failed = {failure.input_id: failure for failure in snapshot.failures if failure.stage == "extraction"}
    chunks = [chunk.id for chunk in snapshot.chunks]
    if parent is None or not parent.manifest.counts.get("entities") or snapshot.entities or len(chunks) < 2 or not failed.keys() >= set(chunks):
        return
    reason = failed[chunks[0]].reason
    raise GraphragError(
        f"Nothing of {len(chunks)} chunks could be extracted (the first: {reason}); the index stays as it was.",
        hint="Look at the model and its server (graphrag-local doctor), then index again; replies that were good are kept.",
    )
