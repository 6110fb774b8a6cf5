"""`index`: opens everything, builds, publishes what changed, and lets go of what nothing holds any more."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from graphrag_local.absent import open_without_model
from graphrag_local.changes import PROMPTS, refuse_unasked
from graphrag_local.collection import Gathered, as_published
from graphrag_local.communities.stage import conditions
from graphrag_local.engine.base import EmbedderCard, Engine
from graphrag_local.engine.budget import budgeted
from graphrag_local.engine.models import models_folder
from graphrag_local.erasing import Made, Receipt, Work, orphans_of, sweep
from graphrag_local.errors import GraphragError, IndexBusy, IndexCorrupt, IndexMismatch, IndexMissing, StorageError
from graphrag_local.flow import Progress
from graphrag_local.pipeline import Built, Previous, Run, VectorCache, build, gather, unchanged
from graphrag_local.project import ProjectFolder
from graphrag_local.query.parts import PARTS
from graphrag_local.records import Anchor, AnchorCommunity, AnchorEdge, Document, Failed, Report, Usage
from graphrag_local.standing import digest_of_all, stands
from graphrag_local.store.forgotten import entities_of, hashes, read_forgotten, unfinished
from graphrag_local.store.generations import Generation, collect, generation_ids, open_current, open_generation
from graphrag_local.store.lance import Tables
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.publish import counts_of, index_digest, publish
from graphrag_local.store.runlog import RunLog
from graphrag_local.store.stand import Stand, note, noted
from graphrag_local.tokens import described
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
    `whole` computes everything also where nothing has changed. `without_model` only takes out of the published index what was forgotten since: what has
    changed in the folder, and what needs a model, waits for the next run.
    """

    retry_failed: bool = False
    allow_empty: bool = False
    yes: bool = False
    repartition: bool = False
    settle: bool = False
    budget: int | None = None
    around: Callable[[Engine], Engine] | None = None
    whole: bool = False
    without_model: bool = False


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
    receipt: Receipt | None = field(default=None, repr=False)
    without_model: bool = False

    def summary(self) -> dict[str, Any]:
        """What `index --json` prints."""
        told = sorted(self.built.snapshot.failures, key=lambda f: (f.stage, f.input, f.reason))  # the same whether they are new or were read from the index
        failures = [{"stage": f.stage, "input": f.input, "reason": f.reason, "retryable": f.retryable} for f in told]
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
            "finished_forget": self.receipt.to_json(names=False) if self.receipt else None,
            "names": self.built.names,
            "apart": self.built.apart,
            "dropped": self.built.dropped,
            "empty_chunks": self.built.empty_chunks,
            "failures": failures,
        }


async def run_index(project: ProjectFolder, progress: MakeProgress, order: Order | None = None) -> Indexed:
    """Build the index of a project, or bring it up to date; publishes only when something differs."""
    order = order or Order()
    with BuildLock(project.index) as lock:
        left = Work.left_over(project, lock)
        indexed = await index_locked(project, lock, progress, replace(order, whole=order.whole or left is not None))
        if left is None:
            return indexed
        with progress(Usage, lambda *_, **__: None) as shown:
            receipt = await left.finish(project, lock, what_was_made(indexed), shown.say)
        return replace(indexed, receipt=receipt, kept_in=tuple(id_ for id_ in indexed.kept_in if id_ not in receipt.generations_removed))


def what_was_made(indexed: Indexed) -> Made:
    """The new generation, as `erasing` looks at it."""
    return Made(
        snapshot=indexed.built.snapshot,
        generation=indexed.generation,
        digest=indexed.digest,
        used=indexed.used,
        swept=indexed.swept,
        without_model=indexed.without_model,
    )


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
            side = await _open_side(project, ledger, order, progress.say, None if broken else parent)
            meters.append(side)
            update = _Update(project=project, lock=lock, log=log, order=order, ledger=ledger, side=side, parent=parent, broken=broken)
            try:
                done = await update.make(progress)
            finally:
                await side.close()
            return done if isinstance(done, Indexed) else update.publish(done)
        finally:
            if parent is not None:
                parent.close()


async def _open_side(project: ProjectFolder, ledger: Ledger, order: Order, say: Callable[[str], None], parent: Generation | None) -> ModelSide:
    if order.without_model and parent is None:
        raise IndexMissing("Without a model there must be an index that can be read.", hint="Run it again without --without-model.")
    if order.without_model and parent is not None:
        return await open_without_model(project, ledger, parent.manifest.about, say)
    if project.settings.extraction.method == "fast":
        return await open_no_model(project, ledger, say)
    around = budgeted(order.budget) if order.budget is not None else order.around
    return await open_model_side(project, ledger, say, retry_failed=order.retry_failed, around=around)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Update:
    """One run: what it works on and with. `broken` says that the current generation cannot be used; `parent` then is the newest whole one, if any."""

    project: ProjectFolder
    lock: BuildLock
    log: RunLog
    order: Order
    ledger: Ledger
    side: ModelSide
    parent: Generation | None
    broken: bool

    async def make(self, progress: Progress) -> Built | Indexed:
        """What is to be published, or the published index where it is that already."""
        project, parent, order = self.project, self.parent, self.order
        if parent is not None:
            self.side.keep_embedder(EmbedderCard.of(parent.manifest.about["models"]))
        if parent is not None and not order.yes:
            refuse_unasked(parent.manifest.about, decided_by(project, self.side), parent.manifest.counts)
        run = run_of(project, self.side, self.ledger, progress, self.log.write, order, parent)
        paid_for = self.ledger.documents() if self.broken and parent is None else ()
        if parent is not None and order.without_model:
            tables = Tables.of(parent)
            gathered = as_published(tables.records(Document), tables.records(Failed), forgotten=run.forgotten)
        else:
            gathered = await gather(run, Tables.of(parent).records(Document) if parent is not None else (), paid_for)
        if parent is not None and (done := self._unchanged(parent, run, gathered)) is not None:
            return done
        built = await build(run, previous_of(project, parent), gathered)
        await self.side.ledgered.save_links()
        if parent is not None and order.without_model:
            _refuse_if_replies_are_gone(parent, built)
        _refuse_if_nothing_was_read(parent, built)
        return built

    def _unchanged(self, parent: Generation, run: Run, gathered: Gathered) -> Indexed | None:
        """The published index, where a build would make it again, nothing is to be let go of, and the ledger is sound."""
        project, about, tables, stand = self.project, parent.manifest.about, Tables.of(parent), noted(self.project.index)
        if self.broken or self.order.whole or self.order.without_model or run.renew == "asked" or stand is None:
            return None
        if (stand.generation, stand.decided) != (parent.id, digest_of_all(self._deciding(), project.settings)) or (run.renew and not stand.aged):
            return None
        failures = tables.records(Failed)
        if not stands(
            tables.records(Document), failures, about["without_report"], gathered=gathered, settle=run.settle, retry_failed=self.order.retry_failed
        ) or _erased(project.index, parent):  # fmt: skip
            return None
        removed = collect(self.lock, project.settings.keep_generations)
        orphans, kept_in = orphans_of(project.index, parent.id, self.ledger, gathered.documents)
        if orphans or not self.ledger.is_sound():
            return None
        self._reclaim()
        built = unchanged(run, gathered, about, failures)
        self.log.write("end", generation=parent.id, published=False, removed=len(removed.removed), swept=0, last_build=built.last_build)
        return Indexed(generation=parent.id, digest=parent.manifest.digest, published=False, counts=parent.manifest.counts, built=built, kept_in=kept_in)

    def _deciding(self) -> dict[str, Any]:
        """What decides a build besides documents and replies, as manifests keep it."""
        return {
            **decided_by(self.project, self.side),
            "model": {"card": asdict(self.side.model.card), "counter": described(self.side.model.counter)},
            "partition": conditions(self.project.settings.communities),
        }

    def _reclaim(self) -> None:
        with contextlib.suppress(IndexBusy, StorageError):  # somebody reads the ledger, or the disk is full: the next run does it
            self.ledger.reclaim()

    def publish(self, built: Built) -> Indexed:
        """Publish what was built where it differs, and let go of what nothing holds any more."""
        about = {
            **self._deciding(),
            **built.about(),
            **_about_anchor(built, self.parent),
            "without_model": self.order.without_model,
            "forgotten": sorted(entry.document for entry in read_forgotten(self.project.index)),
        }
        indexed = publish_built(self.lock, self.parent, built, about, anew=self.broken)
        if self.parent is not None and indexed.published:
            self.parent.close()  # so that it can be removed, where it is not to be kept
        keep = 10**9 if unfinished(self.project.index) else self.project.settings.keep_generations  # from the old ones it is known what to search for
        removed = collect(self.lock, keep)
        used = frozenset(self.side.ledgered.used)
        # Beside an index that could not be used it is not known what it held: the next run lets go.
        swept, kept_in = (0, ()) if self.broken else sweep(self.project.index, indexed.generation, self.ledger, built.snapshot, used)
        self._reclaim()
        if not self.order.without_model:
            with contextlib.suppress(StorageError):  # then the next run is a whole one
                decided = digest_of_all(self._deciding(), self.project.settings)
                note(self.project.index, Stand(generation=indexed.generation, decided=decided, aged=bool(_age(self.project, self.parent))))
        self.log.write("end", generation=indexed.generation, published=indexed.published, removed=len(removed.removed), swept=swept, last_build=built.last_build)
        return replace(indexed, swept=swept, kept_in=kept_in, used=used, without_model=self.order.without_model)


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


def previous_of(project: ProjectFolder, parent: Generation | None) -> Previous:
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
        erased=_erased(project.index, parent),
    )


def _erased(index: Path, parent: Generation) -> frozenset[str]:
    """Ids of the entities that documents name, in any generation, which were forgotten since this one was built: its anchor may know of them."""
    forgotten = {entry.document for entry in read_forgotten(index)}
    return entities_of(index, forgotten.difference(parent.manifest.about.get("forgotten", ())))


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
        replayed_only=order.without_model,
        embeds=side.embeds,
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
    generation = publish(lock, snapshot, digest=digest, counts=counts, about=about, parent=parent, derive=PARTS)
    return Indexed(generation=generation, digest=digest, published=True, counts=counts, built=built)


def _refuse_if_replies_are_gone(parent: Generation, built: Built) -> None:
    """Without a model nothing that was read must get lost: GraphragError where a passage of the published index has no reply in the ledger any more."""
    lost = built.holes - {row.input_id for row in Tables.of(parent).records(Failed) if row.stage == "extraction"}
    if lost:
        raise GraphragError(
            f"The ledger has no reply any more for {len(lost):,} of the chunks that stay; without a model they would be lost.",
            hint="Run it again with the model: what is missing is asked anew.",
        )


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
