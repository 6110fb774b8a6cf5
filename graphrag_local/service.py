"""Questions to a project: opens the index and the model side once and answers; the door for the command line and the HTTP service."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from graphrag_local.answers import Answer, Event, Hit, Listener, Turn
from graphrag_local.engine.base import NO_MODEL, Embedder, EmbedderCard
from graphrag_local.errors import GraphragError, IndexBusy, IndexMismatch, IndexMissing, StorageError, UsageError
from graphrag_local.project import ProjectFolder
from graphrag_local.query.ask import MODES, ask, ask_nobody, retrieve
from graphrag_local.query.parts import PARTS
from graphrag_local.query.trace import Replay
from graphrag_local.query.trace import Trace as Trace
from graphrag_local.settings import QuerySettings, VectorsSettings
from graphrag_local.store.forgotten import read_forgotten
from graphrag_local.store.generations import current_id
from graphrag_local.store.reading import StoredIndex
from graphrag_local.store.traces import drop_trace, write_trace
from graphrag_local.store.traces import read_trace as read_trace
from graphrag_local.store.turns import next_turn
from graphrag_local.text import is_question
from graphrag_local.unwritten import may_lack
from graphrag_local.wiring import ModelSide, open_embedder, open_embedder_of, open_model_side, tokenizer_of

Say = Callable[[str], None]
WITHOUT = "This index was made without a model, and `graphrag-local query --no-model` answers from it without one."
ONE_WINDOW = ("basic", "local")  # modes that never go through several
FOLLOW_S = 1.0
CHECK_S = 3.0  # who asks whether the service is ready does not wait for a model to load


class Asker:
    """Answers questions about one project; notices a new generation at the next question, and never changes one under a question."""

    def __init__(self, project: ProjectFolder, say: Say = lambda text: None) -> None:
        self._project, self._say = project, say
        self._index: StoredIndex | None = None
        self._users: dict[str, int] = {}
        self._retired: list[StoredIndex] = []
        self._side: ModelSide | None = None
        self._embedder: Embedder | None = None
        self._own: dict[EmbedderCard, Embedder] = {}
        self._opening = asyncio.Lock()
        self._turn = 0
        self._writing, self._level = asyncio.Lock(), -1
        self._looked: dict[tuple[str, int], str] = {}
        self._follower: asyncio.Task[None] | None = None

    async def _open(self) -> tuple[StoredIndex, ModelSide]:
        async with self._opening:
            index = await self._open_index()
            try:
                return index, await self._open_side()
            except GraphragError as error:
                if index.manifest["about"]["models"]["name"] == NO_MODEL:
                    error.hint = f"{error.hint} {WITHOUT}".strip()
                raise

    async def _open_index(self) -> StoredIndex:
        newest = current_id(self._project.index)
        if self._index is None or self._index.generation != newest:
            fresh = await asyncio.to_thread(_ready, self._project.index)
            if self._index is not None:
                self._retired.append(self._index)
            self._index = fresh
            self._close_unused()
        if self._follower is None:
            self._follower = asyncio.create_task(self._follow())
        return self._index

    async def _follow(self) -> None:
        """Go on to new generations also while nobody asks: one that is open here cannot be removed, with all that was forgotten since."""
        while True:
            await asyncio.sleep(FOLLOW_S)
            with contextlib.suppress(GraphragError):  # the next question says it
                async with self._opening:
                    await self._open_index()

    async def _open_side(self) -> ModelSide:
        if self._side is None:
            self._side = await open_model_side(self._project, None, self._say)
        return self._side

    def _next_turn(self) -> int:
        """Which way this question goes through windows (see `mapreduce`): the other way than the last one."""
        self._turn += 1
        kept = next_turn(self._project.index)
        return self._turn if kept is None else kept

    def _close_unused(self) -> None:
        for old in [old for old in self._retired if not self._users.get(old.generation)]:
            old.close()
            self._retired.remove(old)

    async def ask(
        self, question: str, mode: str, level: int | None, *, strict: bool = False, dynamic: bool = False, history: Sequence[Turn] = (),
        listen: Listener | None = None, trace: Trace | None = None,
    ) -> Answer:  # fmt: skip
        """The answer; a bad question or mode is refused before anything is opened. `history` are earlier turns, oldest first. Whoever listens is told the
        whole answer last; `trace` is written from the moment on at which the model side is asked."""
        refuse_bad_question(question, mode)
        note = await self._write_what_is_missing(mode, level)
        index, side = await self._open()
        same_embedder(index.manifest, side.embedder, self._project.settings.vectors)
        turn = self._next_turn() if mode not in ONE_WINDOW else 0
        prompts, settings = self._project.prompts, self._project.settings.query
        settings = settings.model_copy(update={"dynamic": dynamic or settings.dynamic})
        if trace:
            side, prompts = _watched(side, trace), trace.prompts(prompts)
            trace.about |= {
                "question": question, "mode": mode, "level": level, "strict": strict, "turn": turn, "history": [asdict(turn) for turn in history],
                "settings": settings.model_dump(mode="json"), "generation": index.generation, "note": note, "answer": None,
            }  # fmt: skip
        began = time.monotonic()
        with self._using(index):
            answer = await ask(
                question, index, side.model, side.embedder, prompts, settings,
                mode=mode, level=level, turn=turn, strict=strict, entailment=side.entailment, reranker=side.reranker,
                history=history, listen=listen, trace=trace,
            )  # fmt: skip
            # What the asker waited for; the sum over calls, many of which run at once, says little.
            notes = (*answer.notes, note) if note else answer.notes
            answer = replace(answer, notes=notes, usage=replace(answer.usage, seconds=round(time.monotonic() - began, 3)))
            if trace:
                trace.about["answer"] = asdict(answer)
            if listen:
                listen(Event(kind="done", answer=answer))
            return answer

    @contextlib.contextmanager
    def _using(self, index: StoredIndex) -> Iterator[None]:
        """Keep a generation open while somebody reads it."""
        self._users[index.generation] = self._users.get(index.generation, 0) + 1
        try:
            yield
        finally:
            self._users[index.generation] -= 1
            self._close_unused()

    async def brief(self, question: str, mode: str, level: int | None) -> Answer:
        """The answer without a model; no server is asked. An embedder in this process helps where it is the one that made the index's vectors."""
        refuse_bad_question(question, mode)
        began = time.monotonic()
        async with self._opening:
            index = await self._open_index()
            embedder = self._own_embedder(index)
        with self._using(index):
            answer = await ask_nobody(question, index, embedder, self._project.settings.query, mode=mode, level=level)
            return replace(answer, usage=replace(answer.usage, seconds=round(time.monotonic() - began, 3)))

    async def retrieve(self, question: str, mode: str, level: int | None, k: int) -> tuple[Hit, ...]:
        """The ranked records of a question; no language model is asked."""
        refuse_bad_question(question, mode)
        async with self._opening:
            index = await self._open_index()
            if self._embedder is None:
                self._embedder = await open_embedder(self._project, lambda text: None)
            embedder = self._embedder
        same_embedder(index.manifest, embedder, self._project.settings.vectors)
        with self._using(index):
            return await retrieve(question, index, embedder, self._project.settings.query, mode, level, k)

    def _own_embedder(self, index: StoredIndex) -> Embedder:
        """The embedder in this process that made the vectors of an index, or none."""
        models = index.manifest["about"]["models"]
        made = EmbedderCard.of(models)
        if made not in self._own:
            self._own[made] = open_embedder_of(models, self._project, self._say)
        return self._own[made]

    async def _write_what_is_missing(self, mode: str, level: int | None) -> str:
        """Have the reports of the asked level written, where it lacks some; a note for the answer."""
        settings = self._project.settings
        wanted = settings.query.level if level is None else level
        if mode != "global":
            return ""
        index, side = await self._open()
        with self._using(index):
            if not await asyncio.to_thread(may_lack, index, self._project, wanted):  # then it need not wait for what is written for others
                return ""
        if self._writing.locked() and self._level != wanted:
            return f"Reports of level {self._level} are being written; those that level {wanted} lacks were not for this question, their elements were read."
        async with self._writing:
            self._level = wanted
            if (index.generation, wanted) in self._looked:
                return self._looked[index.generation, wanted]
            try:
                write_level = await asyncio.to_thread(_writing)
                note = await write_level(self._project, side, wanted, most=settings.query.first_use_reports, say=self._say)
            except IndexBusy:
                return "The index is being built by another process; reports that this level lacks were not written for this question, their elements were read."
            except StorageError:
                return "The index cannot be written here; reports that this level lacks were not written, their elements were read."
            now = current_id(self._project.index)
            self._looked[now, wanted] = note if now == index.generation else ""  # written once; what is too much to write is said every time
            return note

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
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)
            self._follower = None
        for index in [*self._retired, *([self._index] if self._index else [])]:
            index.close()
        self._retired, self._index = [], None
        for embedder in [*self._own.values(), *([self._embedder] if self._embedder else [])]:
            await embedder.close()
        self._own, self._embedder = {}, None
        if self._side is not None:
            await self._side.close()
            self._side = None


def _ready(path: Path) -> StoredIndex:
    """The current generation with what questions derive from it: found beside its tables, or made once, which takes long where there is much."""
    index = StoredIndex.open(path)
    try:
        for part in PARTS:
            index.kept(part)
    except BaseException:
        index.close()
        raise
    return index


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
    hint = "Configure the first one again, or run `graphrag-local index --yes`: it embeds anew what has to be, and asks no chat model."
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


async def run_query(
    project: ProjectFolder, question: str, mode: str, level: int | None, say: Say, *, strict: bool = False, history: Sequence[Turn] = (),
    listen: Listener | None = None, trace: Trace | None = None,
) -> Answer:  # fmt: skip
    """One question from the command line."""
    asker = Asker(project, say)
    try:
        return await asker.ask(question, mode, level, strict=strict, history=history, listen=listen, trace=trace)
    finally:
        await asker.close()


def _watched(side: ModelSide, trace: Trace) -> ModelSide:
    """The same model side with every reply written down."""
    return replace(
        side, model=trace.model(side.model), embedder=trace.embedder(side.embedder), reranker=trace.reranker(side.reranker),
        entailment=trace.entailment(side.entailment),
    )  # fmt: skip


def keep_trace(project: ProjectFolder, trace: Trace) -> Path | None:
    """Write a trace into the index; None where the question was refused before anything was asked, or where it names a document that is forgotten now.

    It is written first and looked at then, so that a `forget` at the same time either finds it or is seen here.
    """
    if not trace.about:
        return None
    path = write_trace(project.index, trace.content())
    return None if drop_trace(path, {entry.document for entry in read_forgotten(project.index)}) else path


async def run_replay(project: ProjectFolder, content: dict[str, Any], question: str = "") -> Answer:
    """The answer from a trace alone: no model, embedder or server is asked. Another question than the trace's is tried with what the trace holds.

    Raises IndexMissing where the generation is gone, ModelMissing where the model's tokenizer is not here, and UsageError where the question
    asks for what the trace does not hold.
    """
    replay, generation = Replay(content), content["generation"]
    try:
        index = StoredIndex.open(project.index, generation)
    except UsageError as error:
        hint = f"{error.hint} A trace is replayed over the generation that it was made over.".strip()
        raise IndexMissing(f"Generation {generation} of the trace is gone.", hint=hint) from error
    try:
        counter = replay.counter() or tokenizer_of(content["counter"]["name"], content["model"]["name"])
        answer = await ask(
            question or content["question"], index, replay.model(counter), replay.embedder(), project.prompts, QuerySettings(**content["settings"]),
            mode=content["mode"], level=content["level"], turn=content["turn"], strict=content["strict"], entailment=replay.entailment(),
            reranker=replay.reranker(), history=replay.history(),
        )  # fmt: skip
    finally:
        index.close()
    return replay.checked(answer)


def _writing() -> Callable[..., Awaitable[str]]:
    """What writes reports; all that builds an index is imported with it, which takes longer than a question, so in a thread and when there is something to write."""
    from graphrag_local.settling import write_level

    return write_level


async def run_briefing(project: ProjectFolder, question: str, mode: str, level: int | None, say: Say) -> Answer:
    """One question from the command line, answered without a model."""
    asker = Asker(project, say)
    try:
        return await asker.brief(question, mode, level)
    finally:
        await asker.close()


async def run_retrieve(project: ProjectFolder, question: str, mode: str, level: int | None, k: int) -> tuple[Hit, ...]:
    """The ranked records of a question from the command line."""
    asker = Asker(project)
    try:
        return await asker.retrieve(question, mode, level, k)
    finally:
        await asker.close()
