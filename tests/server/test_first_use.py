"""Reports that are written for a question keep no other question waiting."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from graphrag_local import service, settling
from graphrag_local.engine.base import Reply, Request
from graphrag_local.engine.ledgered import Ledgered, Meter
from graphrag_local.engine.scripted import ScriptedEngine
from graphrag_local.ids import document_id
from graphrag_local.project import ProjectFolder
from graphrag_local.service import Asker
from graphrag_local.store.forgotten import Forgotten, remember
from graphrag_local.store.generations import current_id
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.lock import BuildLock
from graphrag_local.wiring import ModelSide
from tests.pipeline.changing import Hashes
from tests.pipeline.running import CARD, index, model_of, project_of, scribe, told_as

RULES = ("vectors.kind=auto", "reports.write=lazy", "reports.min_tokens=0", "communities.max_cluster_size=4")
RINGS = [[f"{name}{letter}" for letter in "abcdef"] for name in ("Ada", "Ben", "Cleo", "Dov")]
TIES = [(ring[n], ring[(n + step) % 6]) for ring in RINGS for n in range(6) for step in (1, 2)] + [(RINGS[n][0], RINGS[n + 1][0]) for n in range(3)]
QUESTION = "Who knows Adaa?"
PATIENCE_S = 120.0  # a condition that does not come in so long never comes


class Held(ScriptedEngine):
    """A scripted engine that answers in the loop that it was made for, and nobody about reports before it is let go."""

    def __init__(self) -> None:
        super().__init__(scribe, CARD)
        self.loop = asyncio.get_running_loop()
        self.open, self.waiting = asyncio.Event(), asyncio.Event()

    async def generate(self, request: Request) -> Reply:
        """The reply, once it may come."""
        assert asyncio.get_running_loop() is self.loop
        if request.purpose == "report":
            self.waiting.set()
            await self.open.wait()
        return await super().generate(request)


def asking(project: ProjectFolder, story: Callable[[Asker, Held], Awaitable[None]]) -> None:
    """Let things happen with an asker and its engine."""

    async def main() -> None:
        engine = Held()

        async def opened(*_: object, **__: object) -> ModelSide:
            return ModelSide(model=model_of(engine), embedder=Hashes(), ledgered=Ledgered(engine, None), meter=Meter(), kind="scripted")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(service, "open_model_side", opened)
            asker = Asker(project)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await story(asker, engine)
            finally:
                engine.open.set()
                await asker.close()

    asyncio.run(main())


@pytest.fixture(name="project")
def _project(tmp_path: Path) -> ProjectFolder:
    """An index without a report."""
    project = project_of(tmp_path, {"a.txt": told_as(TIES)}, *RULES)
    assert index(project, embedder=Hashes()).built.without_report["unwritten"] > 3
    return project


def test_others_are_answered_while_it_is_reckoned(project, monkeypatch):
    """While contexts are reckoned, which takes a processor and no model, another question is answered; the reports are written in the end."""
    entered, go_on, real = threading.Event(), threading.Event(), settling.reportable

    def slowly(*args: Any) -> Any:
        entered.set()
        assert go_on.wait(PATIENCE_S)
        return real(*args)

    monkeypatch.setattr(settling, "reportable", slowly)

    async def story(asker: Asker, engine: Held) -> None:
        engine.open.set()
        first = asyncio.create_task(asker.ask(QUESTION, "global", 0))
        while not entered.is_set():
            await asyncio.sleep(0.01)
        other = await asker.ask(QUESTION, "basic", None)
        assert other.answer
        assert not first.done()
        go_on.set()
        assert any("were written for this question" in note for note in (await first).notes)

    asking(project, story)


def test_others_are_answered_while_it_is_written(project):
    """While reports are asked for, a question in another mode is answered, one about another level at once and with a note; one about the same level waits."""

    async def story(asker: Asker, engine: Held) -> None:
        first = asyncio.create_task(asker.ask(QUESTION, "global", 0))
        await engine.waiting.wait()
        assert (await asker.ask(QUESTION, "basic", None)).answer
        deeper = await asker.ask(QUESTION, "global", 1)
        assert any("Reports of level 0 are being written" in note for note in deeper.notes)
        same = asyncio.create_task(asker.ask(QUESTION, "global", 0))
        await asyncio.sleep(0)
        assert not first.done()
        engine.open.set()
        generations = {(await first).generation, (await same).generation}
        assert generations == {current_id(project.index)}

    asking(project, story)


def test_who_hangs_up_ends_the_writing(project):
    """Once the one who asked is gone, nothing more is asked for, nobody holds the lock, and nothing is published."""
    before = current_id(project.index)

    async def story(asker: Asker, engine: Held) -> None:
        first = asyncio.create_task(asker.ask(QUESTION, "global", 0))
        await engine.waiting.wait()
        first.cancel()
        await asyncio.wait({first})
        assert first.cancelled()
        with BuildLock(project.index), Ledger.open(project.index / "ledger.sqlite") as ledger:
            assert ledger.verify() == []
        assert not [request for request in engine.history if request.purpose == "report"]

    asking(project, story)
    assert current_id(project.index) == before


def test_while_another_process_builds(project):
    """With the lock in other hands the answer comes with a note that says so, and no report is asked for."""

    async def story(asker: Asker, engine: Held) -> None:
        with BuildLock(project.index):
            answer = await asker.ask(QUESTION, "global", 0)
        assert any("is being built by another process" in note for note in answer.notes)
        assert not engine.waiting.is_set()

    asking(project, story)


def test_nothing_is_written_of_what_is_being_forgotten(project):
    """Where a document of the index is on the list of what is left out, a `forget` is not finished: no report is asked for, and the note says so."""
    before = current_id(project.index)
    with BuildLock(project.index) as lock:
        remember(lock, [Forgotten(document=document_id("a.txt"), texts=(), at="2026-01-01T00:00:00+00:00")])

    async def story(asker: Asker, engine: Held) -> None:
        engine.open.set()
        answer = await asker.ask(QUESTION, "global", 0)
        assert any("is being forgotten" in note for note in answer.notes)
        assert not [request for request in engine.history if request.purpose == "report"]

    asking(project, story)
    assert current_id(project.index) == before
