"""Reports that are written when somebody asks for them: those of a level that `reports.write` left out, or that an update left stale."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from graphrag_local.changes import refuse_unasked
from graphrag_local.engine.base import Embedder, EmbedderCard, Engine, ModelCard, Reply, Request
from graphrag_local.engine.ledgered import Ledgered, Meter
from graphrag_local.errors import NotConfirmed
from graphrag_local.flow import Silent, in_own_loop
from graphrag_local.indexing import Indexed, Order, decided_by, publish_built, run_of
from graphrag_local.pipeline import reportable, write_missing
from graphrag_local.project import ProjectFolder
from graphrag_local.records import Document
from graphrag_local.store.forgotten import read_forgotten, unfinished
from graphrag_local.store.generations import Generation, discard, open_current
from graphrag_local.store.lance import Tables
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.reading import snapshot_of
from graphrag_local.store.runlog import RunLog
from graphrag_local.unwritten import lacking_on
from graphrag_local.wiring import ModelSide, on_ledger

Say = Callable[[str], None]
T = TypeVar("T")


async def write_level(project: ProjectFolder, side: ModelSide, level: int, *, most: int, say: Say) -> str:
    """Write and publish the reports that a level lacks, with the model side of the asker; a note for the answer, "" where nothing was to be done.

    All but the calls themselves happens in a thread of its own: whoever asks something else meanwhile is answered. More than `most` are not written for
    one question: the note says how to write them all. Raises IndexBusy while somebody builds.
    """
    here = asyncio.get_running_loop()
    engine, embedder = _EngineOf(side.ledgered.inner, here), _EmbedderOf(side.embedder, here)
    there = replace(side, ledgered=Ledgered(engine, None), embedder=embedder)
    return await in_own_loop(lambda: _write_level(project, there, level, most=most, say=say))


class _EngineOf:
    """An engine whose connections belong to another event loop."""

    def __init__(self, inner: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self.inner, self._loop = inner, loop

    @property
    def card(self) -> ModelCard:
        """The inner engine's."""
        return self.inner.card

    async def generate(self, request: Request) -> Reply:
        """The reply, asked for in the other loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_awaited(self.inner.generate(request)), self._loop))

    async def close(self) -> None:
        """That is the business of who opened it."""


class _EmbedderOf:
    """An embedder of another event loop."""

    def __init__(self, inner: Embedder, loop: asyncio.AbstractEventLoop) -> None:
        self.inner, self._loop = inner, loop

    @property
    def card(self) -> EmbedderCard:
        """The inner embedder's."""
        return self.inner.card

    @card.setter
    def card(self, card: EmbedderCard) -> None:
        self.inner.card = card  # type: ignore[misc]  # see ModelSide.keep_embedder

    async def embed(self, texts: list[str], *, query: bool = False) -> list[list[float]]:
        """The vectors, made in the other loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_awaited(self.inner.embed(texts, query=query)), self._loop))

    async def close(self) -> None:
        """That is the business of who opened it."""


async def _awaited(work: Awaitable[T]) -> T:
    return await work


async def _write_level(project: ProjectFolder, side: ModelSide, level: int, *, most: int, say: Say) -> str:
    with BuildLock(project.index) as lock:
        with open_current(project.index) as parent:
            done, note = await _written(project, side, lock, parent, level, most=most)
        if done is not None and done.published:
            # The generation that only lacked those reports is none to go back to, and older ones are not to make room for it.
            discard(lock, [parent.id])
            say(f"Wrote {done.built.rewritten:,} reports of level {level} for the first question about it.")
    return note


async def _written(project: ProjectFolder, side: ModelSide, lock: BuildLock, parent: Generation, level: int, *, most: int) -> tuple[Indexed | None, str]:
    """What was published, if anything, and the note for the answer."""
    if unfinished(project.index) or {row.document for row in read_forgotten(project.index)}.intersection(Tables.of(parent).columns(Document, ["id"])["id"]):
        return None, "A document of this index is being forgotten (`graphrag-local index` finishes it), so reports that this level lacks were not written."
    side.keep_embedder(EmbedderCard.of(parent.manifest.about["models"]))
    try:
        refuse_unasked(parent.manifest.about, decided_by(project, side), parent.manifest.counts)
    except NotConfirmed:
        return None, "Other settings, prompts or models hold now than made the index: reports that this level lacks were not written."
    snapshot = snapshot_of(parent)
    lacking = lacking_on(snapshot.communities, snapshot.reports, snapshot.failures, level) & reportable(snapshot, project.settings)
    if not lacking:
        return None, ""
    if len(lacking) > most:
        return None, (
            f"{len(lacking):,} communities of level {level} have no report that is current; their elements were read instead. "
            "Write them all: graphrag-local index --settle"
        )
    log = RunLog(project.index)
    try:
        with Ledger.open(project.index / "ledger.sqlite") as ledger:
            asking = on_ledger(side, ledger, Meter())
            built = await write_missing(run_of(project, asking, ledger, Silent(), log.write, Order(), None), snapshot, lacking)
            await asking.ledgered.save_links()
        about = parent.manifest.about | {"without_report": built.without_report, "last_build": built.last_build}
        indexed = publish_built(lock, parent, built, about)
        log.write("end", generation=indexed.generation, published=indexed.published, last_build=built.last_build)
    finally:
        log.close()
    return indexed, f"{built.rewritten:,} reports of level {level} were written for this question." if indexed.published else ""
