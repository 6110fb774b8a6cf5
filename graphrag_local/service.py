"""Questions to a project: opens the index and the model side once and answers; the door for the command line and the HTTP service."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from graphrag_local.engine.base import Embedder, EmbedderCard
from graphrag_local.errors import GraphragError, IndexMismatch, UsageError
from graphrag_local.project import ProjectFolder
from graphrag_local.query.ask import MODES, ask, retrieve
from graphrag_local.records import Answer, Hit
from graphrag_local.settings import VectorsSettings
from graphrag_local.store.generations import current_id
from graphrag_local.store.reading import StoredIndex
from graphrag_local.text import is_question
from graphrag_local.wiring import ModelSide, open_embedder, open_model_side

Say = Callable[[str], None]
CHECK_S = 3.0  # who asks whether the service is ready does not wait for a model to load


class Asker:
    """Answers questions about one project; notices a new generation at the next question, and never changes one under a question."""

    def __init__(self, project: ProjectFolder, say: Say = lambda text: None) -> None:
        self._project, self._say = project, say
        self._index: StoredIndex | None = None
        self._users: dict[str, int] = {}
        self._retired: list[StoredIndex] = []
        self._side: ModelSide | None = None
        self._opening = asyncio.Lock()
        self._turn = 0

    async def _open(self) -> tuple[StoredIndex, ModelSide]:
        async with self._opening:
            return await self._open_index(), await self._open_side()

    async def _open_index(self) -> StoredIndex:
        newest = current_id(self._project.index)
        if self._index is None or self._index.generation != newest:
            fresh = await asyncio.to_thread(StoredIndex.open, self._project.index)
            if self._index is not None:
                self._retired.append(self._index)
            self._index = fresh
            self._close_unused()
        return self._index

    async def _open_side(self) -> ModelSide:
        if self._side is None:
            self._side = await open_model_side(self._project, None, self._say)
        return self._side

    def _close_unused(self) -> None:
        for old in [old for old in self._retired if not self._users.get(old.generation)]:
            old.close()
            self._retired.remove(old)

    async def ask(self, question: str, mode: str, level: int | None) -> Answer:
        """The answer; a bad question or mode is refused before anything is opened."""
        refuse_bad_question(question, mode)
        index, side = await self._open()
        same_embedder(index.manifest, side.embedder, self._project.settings.vectors)
        self._users[index.generation] = self._users.get(index.generation, 0) + 1
        self._turn += 1
        began = time.monotonic()
        try:
            answer = await ask(
                question, index, side.model, side.embedder, self._project.prompts, self._project.settings.query,
                mode=mode, level=level, turn=self._turn,
            )  # fmt: skip
            # What the asker waited for; the sum over calls, many of which run at once, says little.
            return replace(answer, usage=replace(answer.usage, seconds=round(time.monotonic() - began, 3)))
        finally:
            self._users[index.generation] -= 1
            self._close_unused()

    async def checks(self) -> dict[str, str]:
        """What is needed to answer, each "ok" or a sentence."""
        found = {"index": "ok", "model": "ok"}
        try:
            async with self._opening:
                await self._open_index()
        except GraphragError as error:
            found["index"] = f"{error} {error.hint}".strip()
        try:
            async with asyncio.timeout(CHECK_S):
                async with self._opening:
                    side = await self._open_side()
                found["model"] = await side.alive()
        except TimeoutError:
            found["model"] = f"The model server has not answered within {CHECK_S:g} s."
        except GraphragError as error:
            found["model"] = f"{error} {error.hint}".strip()
        return found

    async def close(self) -> None:
        """Close everything."""
        for index in [*self._retired, *([self._index] if self._index else [])]:
            index.close()
        self._retired, self._index = [], None
        if self._side is not None:
            await self._side.close()
            self._side = None


def refuse_bad_question(question: str, mode: str) -> None:
    """Raise UsageError for a question without a letter or digit, or an unknown mode."""
    if not is_question(question):
        raise UsageError("The question is empty.", hint='Write a question in quotes, such as "What are the main themes?"')
    if mode not in MODES:
        raise UsageError(f"There is no mode {mode!r}.", hint=f"Modes: {', '.join(MODES)}.")


def same_embedder(manifest: dict[str, Any], embedder: Embedder, settings: VectorsSettings) -> None:
    """Raise IndexMismatch when the index's vectors were made by another embedder, or with other instructions, than those at hand."""
    models, now = manifest["about"]["models"], embedder.card
    made = EmbedderCard.of(models)
    if not made.dimension or not now.dimension:
        return
    hint = "Configure the first one again, or run `graphrag-local index`: it embeds anew what has to be, and asks no chat model."
    if not now.same_as(made):
        raise IndexMismatch(
            f"The index's vectors were made by {made.name} ({made.revision}, {made.dimension} numbers); "
            f"now {now.name} ({now.revision}, {now.dimension}) is configured.",
            hint=hint,
        )
    for name, value in settings.prefixes().items():
        if models.get(name, "") != value:
            message = f"The index's vectors were made for vectors.{name} {models.get(name, '')!r}; now it is {value!r}."
            raise IndexMismatch(message, hint=hint)


async def run_query(project: ProjectFolder, question: str, mode: str, level: int | None, say: Say) -> Answer:
    """One question from the command line."""
    asker = Asker(project, say)
    try:
        return await asker.ask(question, mode, level)
    finally:
        await asker.close()


async def run_retrieve(project: ProjectFolder, question: str, mode: str, level: int | None, k: int) -> tuple[Hit, ...]:
    """The ranked records of a question; no language model is called."""
    refuse_bad_question(question, mode)
    index = StoredIndex.open(project.index)
    embedder = await open_embedder(project, lambda text: None)
    try:
        same_embedder(index.manifest, embedder, project.settings.vectors)
        return await retrieve(question, index, embedder, project.settings.query, mode, level, k)
    finally:
        index.close()
        await embedder.close()
