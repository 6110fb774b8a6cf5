"""Questions in every way there is, to a running model server: by the service as events, by the command line, and in this process, where a model may write.

The packaged model is too small to write: the product has it choose what is quoted. Here it is also taken for a model that writes, held to short texts
by its grammar, because it does not end them by itself. What it says then is nonsense; what holds whatever a model says is what the tests look at.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from graphrag_local.answers import Event
from graphrag_local.engine.base import TEXT_TERMINAL, Constraint, Form, Grammar, JsonSchema, Model, Reply, Request
from graphrag_local.errors import ReplyInvalid, UsageError
from graphrag_local.project import ProjectFolder
from graphrag_local.query.ask import ask
from graphrag_local.query.global_search import level_windows
from graphrag_local.query.inquiry import Inquiry
from graphrag_local.query.mapreduce import map_room
from graphrag_local.query.source_search import text_windows
from graphrag_local.query.trace import Trace
from graphrag_local.query.view import view_of
from graphrag_local.service import keep_trace, read_trace, run_replay
from graphrag_local.store.reading import StoredIndex
from graphrag_local.wiring import ModelSide, open_model_side
from tests.e2e.programs import Program, start

MODES = ("global", "dynamic", "source", "basic", "local", "drift", "lazy", "auto")  # dynamic: `global --dynamic`
SERVED = tuple(mode for mode in MODES if mode != "dynamic")  # what a request of its own can ask the service for
SIDE_BY_SIDE = 4
LONGEST = 90  # characters of a text that the model writes
SHORT = (
    "query.map_reply_tokens=150", "query.reply_tokens=200", "query.max_points=2", "query.max_paragraphs=2", "query.always_read=1", "query.rate_calls=4",
    "query.relevance_budget=4", "query.drift_rounds=1", "query.drift_followups=2", "query.support_calls=4", "engine.concurrency=16",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Way:
    """A way to ask. `form` is what the model writes in, "" where it only chooses."""

    mode: str
    form: Form | None = None
    strict: bool = False
    question: str = ""

    def __str__(self) -> str:
        return f"{self.mode}, {self.form or 'chosen'}{', strict' if self.strict else ''}"


@dataclass(slots=True, kw_only=True)
class Asked:
    """What came of a question: its answer object, or the error; what was heard, as (kind, data); and in this process the trace and the answer from it.

    `windows` are those of the level (`global`), of all levels (`dynamic`), of all text, or the more of both (`auto`), before any was chosen.
    """

    name: str
    mode: str
    answer: dict[str, Any]
    error: str = ""
    heard: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    strict: bool = False
    form: Form | None = None
    trace: dict[str, Any] = field(default_factory=dict)
    again: str = ""
    windows: int = 0


# --- in this process


async def ask_here(project: ProjectFolder, ways: Iterable[Way]) -> list[Asked]:
    """The answers of a project with what a trace says about each, and each again from its trace alone."""

    def silent(_: str) -> None:
        pass

    side = await open_model_side(project, None, silent)
    index = StoredIndex.open(project.index)
    places = asyncio.Semaphore(SIDE_BY_SIDE)

    async def one(turn: int, way: Way) -> Asked:
        async with places:
            return await _asked(project, side, index, way, turn)

    try:
        return list(await asyncio.gather(*(one(turn, way) for turn, way in enumerate(ways))))
    finally:
        index.close()
        await side.close()


async def _asked(project: ProjectFolder, side: ModelSide, index: StoredIndex, way: Way, turn: int) -> Asked:
    model = _writing(side.model, way.form) if way.form else side.model
    settings = project.settings.query.model_copy(update={"dynamic": way.mode == "dynamic"})
    mode, trace, heard = "global" if way.mode == "dynamic" else way.mode, Trace(), list[Event]()
    asked = Asked(name=str(way), mode=way.mode, answer={}, strict=way.strict, form=way.form)
    watched = trace.model(model)
    trace.about |= {
        "question": way.question, "mode": mode, "level": None, "strict": way.strict, "turn": turn, "history": [], "note": "",
        "settings": settings.model_dump(mode="json"), "generation": index.generation, "answer": None, "entailment": False,
    }  # fmt: skip
    try:
        answer = await ask(
            way.question, index, watched, trace.embedder(side.embedder), trace.prompts(project.prompts), settings,
            mode=mode, level=None, turn=turn, strict=way.strict, listen=heard.append, trace=trace,
        )  # fmt: skip
        asked.answer = trace.about["answer"] = json.loads(json.dumps(asdict(answer)))
    except ReplyInvalid as error:
        asked.error = str(error)
    path = keep_trace(project, trace)
    assert path is not None
    asked.trace = read_trace(path)
    asked.heard = [(event.kind, json.loads(json.dumps(event.data()))) for event in heard]
    if asked.answer:
        try:
            asked.again = json.dumps(asdict(await run_replay(project, asked.trace)))
        except UsageError as error:
            asked.again = str(error)
    inquiry = Inquiry(question=way.question, view=view_of(index), model=model, prompts=project.prompts, settings=settings)
    room = map_room(inquiry)
    levels = inquiry.view.levels if way.mode == "dynamic" else (settings.level,)
    told = sum(len(level_windows(inquiry.view, level, room, model.counter)) for level in levels)
    text = len(text_windows(inquiry.view, room, model.counter))
    asked.windows = told if mode == "global" else max(told, text) if mode == "auto" else text
    return asked


def _writing(model: Model, form: Form) -> Model:
    """The model as one that is large enough to write, in short texts."""

    async def generate(request: Request) -> Reply:
        return await model.generate(replace(request, constraint=_short(request.constraint)))

    return replace(model, generate=generate, card=replace(model.card, tiny=False, form=form))


def _short(constraint: Constraint) -> Constraint:
    match constraint:
        case Grammar(lark=lark):
            return Grammar(lark=lark.replace(TEXT_TERMINAL, f"{TEXT_TERMINAL.removesuffix('+/')}{{1,{LONGEST}}}/"))
        case JsonSchema(text=text):
            return JsonSchema(text=text.replace('{"type":"string"}', f'{{"type":"string","maxLength":{LONGEST}}}'))
    return constraint


# --- over HTTP


async def ask_served(url: str, question: str) -> list[Asked]:
    """The answers of the service in every mode, each as events."""
    async with httpx.AsyncClient(timeout=900, trust_env=False) as client:

        async def one(mode: str) -> Asked:
            reply = await client.post(f"{url}/v1/query", json={"question": question, "mode": mode, "stream": True})
            assert reply.status_code == 200, reply.text
            assert reply.headers["content-type"].startswith("text/event-stream")
            heard = []
            for block in filter(None, reply.text.split("\n\n")):
                kind, data = block.splitlines()
                heard.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
            return Asked(name=f"{mode}, events", mode=mode, answer=heard[-1][1] if heard[-1][0] == "done" else {}, heard=heard)

        return list(await asyncio.gather(*map(one, SERVED)))


# --- on the command line


@dataclass(slots=True, kw_only=True)
class Said:
    """What the command line printed: of a question that is shown to people while it is written, of one as JSON with its trace, each again from its
    trace, and of one as events."""

    shown: str
    shown_trace: dict[str, Any]
    shown_again: dict[str, Any]
    json: str
    json_again: str
    events: Asked


def ask_typed(folder: Path, question: str, programs: list[Program]) -> Said:
    """Questions on the command line, side by side, and then from their traces."""

    def run(name: str, *arguments: str) -> Program:
        programs.append(start(folder, f"typed-{name}", "query", *arguments))
        return programs[-1]

    shown = run("shown", question, str(folder), "--mode", "global", "--dynamic", "--stream", "--trace")
    whole = run("json", question, str(folder), "--mode", "drift", "--strict", "--trace", "--json")
    lines = run("events", question, str(folder), "--mode", "lazy", "--strict", "--stream", "--json")
    told = [_printed(program) for program in (shown, whole, lines)]
    trace = shown.said.rpartition("Trace (it holds text of the documents): ")[2].strip()
    again = run("shown-again", "--replay", trace, "", str(folder), "--json")
    same = run("json-again", "--replay", json.loads(told[1])["trace"], "", str(folder), "--json")
    heard = [(event.pop("event"), event) for event in map(json.loads, told[2].splitlines())]
    return Said(
        shown=told[0],
        shown_trace=read_trace(Path(trace)),
        shown_again=json.loads(_printed(again)),
        json=told[1],
        json_again=_printed(same),
        events=Asked(name="lazy, events on the command line", mode="lazy", answer=heard[-1][1], heard=heard, strict=True),
    )


def _printed(program: Program) -> str:
    try:
        assert program.process.wait(900) == 0, program.said
    finally:
        program.process.kill()
    return program.out.read_text(encoding="utf-8")


Check = Callable[[Asked], None]
