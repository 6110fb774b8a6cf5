"""`index`: opens everything, builds, publishes what changed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from graphrag_local.engine.base import EmbedderCard
from graphrag_local.engine.models import models_folder
from graphrag_local.errors import GraphragError, IndexCorrupt, IndexMismatch, IndexMissing
from graphrag_local.flow import Progress
from graphrag_local.pipeline import Built, Run, build
from graphrag_local.project import ProjectFolder
from graphrag_local.records import Document, Report, Usage
from graphrag_local.store.generations import Generation, collect, open_current
from graphrag_local.store.lance import Tables
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.publish import content_digest, publish
from graphrag_local.store.runlog import RunLog
from graphrag_local.wiring import ModelSide, open_model_side

R = TypeVar("R")


class ShownProgress(Progress, AbstractContextManager[Any], Protocol):
    """Progress that is on screen for as long as its context lasts."""


MakeProgress = Callable[[Callable[[], Usage], Callable[..., None]], ShownProgress]


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """The result of `index`: which generation is current now, and whether it is a new one."""

    generation: str
    digest: str
    published: bool
    counts: dict[str, Any]
    built: Built

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
            "names": self.built.names,
            "apart": self.built.apart,
            "dropped": self.built.dropped,
            "empty_chunks": self.built.empty_chunks,
            "failures": failures,
        }


async def run_index(project: ProjectFolder, progress: MakeProgress, *, retry_failed: bool, accept_missing: bool) -> Indexed:
    """Build the index of a project, or bring it up to date; publishes only when something differs."""
    with BuildLock(project.index) as lock:
        log = RunLog(project.index)
        try:
            return await _locked(project, lock, log, progress, retry_failed, accept_missing)
        except BaseException as error:
            log.write("stopped", error=type(error).__name__)
            raise
        finally:
            log.close()


async def _locked(project: ProjectFolder, lock: BuildLock, log: RunLog, make: MakeProgress, retry_failed: bool, accept_missing: bool) -> Indexed:
    log.write("start")
    meters: list[ModelSide] = []

    def usage() -> Usage:
        return meters[0].meter.total if meters else Usage()

    with make(usage, log.write) as progress, Ledger.open(project.index / "ledger.sqlite") as ledger:
        parent = _published(project.index, progress.say)
        try:
            side = await open_model_side(project, ledger, progress.say, retry_failed=retry_failed)
            meters.append(side)
            if parent is not None:
                side.keep_embedder(EmbedderCard.of(parent.manifest.about["models"]))
            try:
                built = await build(_run(project, side, ledger, progress, log, accept_missing), _records(parent, Document), _records(parent, Report))
            finally:
                await side.close()
            _refuse_if_nothing_was_read(parent, built)
            return _publish(project, lock, parent, built, side, log)
        finally:
            if parent is not None:
                parent.close()


def _published(index: Path, say: Callable[[str], None]) -> Generation | None:
    """The current generation, None where there is none or it cannot be used: then everything is made anew from the ledger."""
    try:
        return open_current(index)
    except IndexMissing:
        return None
    except (IndexCorrupt, IndexMismatch) as error:
        say(f"The published index cannot be used ({str(error).rstrip('.')}); it is built anew from the replies in the ledger.")
        return None


def _records(parent: Generation | None, record: type[R]) -> tuple[R, ...]:
    return tuple(Tables.of(parent).records(record)) if parent is not None else ()


def _run(project: ProjectFolder, side: ModelSide, ledger: Ledger, progress: Progress, log: RunLog, accept_missing: bool) -> Run:
    return Run(
        settings=project.settings,
        input_root=project.input_root,
        models_folder=models_folder(),
        model=side.model,
        embedder=side.embedder,
        cache=ledger,
        prompts=project.prompts,
        progress=progress,
        log=log.write,
        usage=lambda: dict(side.meter.by_purpose),
        replayed=lambda: side.meter.replayed,
        wasted=lambda: side.meter.wasted,
        accept_missing=accept_missing,
    )


def _publish(project: ProjectFolder, lock: BuildLock, parent: Generation | None, built: Built, side: ModelSide, log: RunLog) -> Indexed:
    snapshot = built.snapshot
    card, embedder = side.model.card, side.embedder.card
    models = {
        "name": card.name, "revision": card.revision, "context": card.context_tokens, "form": card.form,
        "embedder": embedder.name, "embedder_revision": embedder.revision, "dimension": embedder.dimension, **project.settings.vectors.prefixes(),
    }  # fmt: skip
    counts: dict[str, Any] = {name: len(getattr(snapshot, name)) for name in ("documents", "chunks", "entities", "relationships", "claims", "reports", "failures")}
    counts["communities"] = snapshot.communities_by_level()
    digest = content_digest(snapshot, {"settings": project.settings.fingerprint(), "models": models, "anchor": ""})
    about = {
        "settings": project.settings.fingerprint(),
        "prompts": {name: prompt.fingerprint() for name, prompt in project.prompts.items()},
        "models": models,
        "names": built.names,
        "apart": built.apart,
        "without_report": built.without_report,
        "dropped": built.dropped,
        "empty_chunks": built.empty_chunks,
        "last_build": built.last_build,
    }
    fresh = parent is None or parent.manifest.digest != digest
    generation = publish(lock, snapshot, digest=digest, counts=counts, about=about, parent=parent) if fresh else _id(parent)
    removed = collect(lock, project.settings.keep_generations)
    log.write("end", generation=generation, published=fresh, removed=len(removed.removed), last_build=built.last_build)
    return Indexed(generation=generation, digest=digest, published=fresh, counts=counts, built=built)


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


def _id(parent: Generation | None) -> str:
    if parent is None:
        raise GraphragError("There is nothing to publish.")
    return parent.id
