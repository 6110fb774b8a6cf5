"""One collection, one model server, one bad day: what happens is done once and told to all tests of this folder."""

import asyncio
import json
import random
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from graphrag_local.engine.base import Model, Reply, Request
from graphrag_local.engine.ledgered import Ledgered
from graphrag_local.engine.models import Catalogue, models_folder
from graphrag_local.errors import ReplyInvalid
from graphrag_local.flow import Silent
from graphrag_local.pipeline import Run, build
from graphrag_local.project import ProjectFolder, open_project
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.reading import StoredIndex
from graphrag_local.wiring import SMALL_MODEL, open_model_side
from tests.e2e import hostile
from tests.e2e.asking import MODES as ALL_MODES
from tests.e2e.asking import SHORT, Asked, Said, Way, ask_here, ask_served, ask_typed
from tests.e2e.programs import Program, gone, rows, run_json, start, until
from tests.ports import free_port

QUESTION = "What do the people of the town quarrel about?"
MODES = {"global": "command line", "basic": "HTTP", "source": "HTTP"}
NUMBERS = "numbers.txt"
COLLECTION = ("minutes/2023-03-*", "minutes/2023-05-*", "letters/2023-05-*", NUMBERS)
CRAMPED = ("letters/2023-05-*",)
EDITED, DELETED = "letters/2023-05-*", "minutes/2023-03-*"  # of the collection: what a later day changes
NEWS = "Ottoline Varga carried the brass lantern to the north pier in 1954."
WHO = "Who carried the brass lantern to the north pier in 1954?"
HERE = (*(Way(mode, "grammar", True, QUESTION) for mode in ALL_MODES), Way("dynamic", question=QUESTION), Way("drift", "schema", question=QUESTION))
HOSTILE = (
    *(Way(mode, "grammar", question=hostile.QUESTION) for mode in ALL_MODES),
    *(Way(mode, strict=True, question=hostile.QUESTION) for mode in ("basic", "global", "lazy")),  # one call, map and reduce, and passages tested alone
    Way("basic", "schema", True, hostile.QUESTION),
)
# One line of ten thousand words is few chunks then; windows below the gate are left, and what is no better than nothing is no answer.
HOSTILE_SETTINGS = ("chunks.max_tokens=1800", "query.window_tokens=5000", "query.gate=0.2", "query.refusal_margin=0")
NEXT_DAY = "next day"
TOO_FEW = 5  # reply tokens in which no record fits, with any model
BEFORE_THE_KILL = 3  # replies that are paid for when the server dies
SCHEMA = {
    "type": "object",
    "properties": {"town": {"enum": ["Skeldray"]}, "years": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}},
    "required": ["town", "years"],
    "additionalProperties": False,
}
SETTINGS = """
preset = "demo"
[documents]
include = [{include}]
[chunks]
min_tokens = 60
max_tokens = 160
[extraction]
grounding = "span"
text = "quote"
max_entities = 3
max_relationships = 3
max_gleanings = 1
max_reply_tokens = {reply}
canonical = true
[reports]
write = "all"
[query]
always_read = 1
[engine]
kind = "vllm"
url = "{url}"
concurrency = 4
[server]
port = {port}
engine_port = {engine_port}
"""


@dataclass(slots=True)
class Story:
    """What happened. `used` are the requests of a whole build with what the ledger answered: a reply, or the outcome of an unusable one."""

    folder: Path
    url: str
    first: dict[str, Any] = field(default_factory=dict)
    first_code: int = -1
    first_said: str = ""
    replies_before_the_kill: int = -1
    left_after_the_kill: list[str] = field(default_factory=list)
    second: dict[str, Any] = field(default_factory=dict)
    cramped: tuple[dict[str, Any], ...] = ()
    cramped_outcomes: tuple[str, ...] = ()
    compact: str = ""
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    said: Said | None = None
    hostile: list[Asked] = field(default_factory=list)
    hostile_index: dict[str, Any] = field(default_factory=dict)
    edited: str = ""
    deleted: str = ""
    after_edit: dict[str, Any] = field(default_factory=dict)
    after_deletion: dict[str, Any] = field(default_factory=dict)
    serve_code: int = -1
    left_at_the_end: list[str] = field(default_factory=list)
    announced_at_the_end: bool = True
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    used: dict[str, tuple[Request, Reply | str]] = field(default_factory=dict)
    window: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


def make_project(folder: Path, include: tuple[str, ...], reply: int, *, url: str = "", port: int = 0, engine_port: int = 0) -> None:
    """A project with a part of the sample collection and a page of long numbers, which have made a server's lexer give up."""
    made = start(folder, "init", "init", str(folder), "--sample")
    assert made.process.wait(300) == 0, made.said
    patterns = ", ".join(f'"{pattern}"' for pattern in include)
    settings = SETTINGS.format(include=patterns, reply=reply, url=url, port=port, engine_port=engine_port)
    (folder / "graphrag.toml").write_text(settings, encoding="utf-8")
    digits = random.Random(7)
    lines = ["Numbers heard at Tellers Point on the night of 4 May.", *("".join(digits.choice("0123456789") for _ in range(200)) for _ in range(3))]
    (folder / "input" / NUMBERS).write_text("\n\n".join(lines), encoding="utf-8")


def tell(folder: Path) -> Story:
    """Index while the server dies and comes back, index again, ask in every mode, stop everything, and go through the ledger without a server."""
    Catalogue.load().require(SMALL_MODEL)
    port, engine_port = free_port(), free_port()
    make_project(folder, COLLECTION, 140, port=port, engine_port=engine_port)
    story = Story(folder=folder, url=f"http://127.0.0.1:{engine_port}/v1")
    clock = _Clock(story)
    programs: list[Program] = []
    try:
        _index(story, programs, clock)
        serve = programs[-1]
        shutil.copytree(folder, folder.parent / NEXT_DAY, ignore=shutil.ignore_patterns("run"))  # before somebody asks, who may write in it
        with ThreadPoolExecutor(1) as beside:  # one core is the model's, for those who ask; the other is for programs that start
            hostile_index, *others = [beside.submit(part, story, programs) for part in (_index_what_is_hostile, _type, _cramp, _next_day)]
            _ask(story, f"http://127.0.0.1:{port}", clock)
            _ask_every_way(story, f"http://127.0.0.1:{port}", clock)
            hostile_index.result()
            _ask_what_is_hostile(story, clock)
            for other in others:
                other.result()
        clock.lap("rest of what happened beside")
        story.serve_code = serve.end(signal.SIGINT)
        story.left_at_the_end = gone(programs)
        story.announced_at_the_end = (folder / "index" / "run" / "serve.json").exists()
        clock.lap("stop")
    finally:
        for program in programs:
            program.kill_all()
    story.rows = {row["key"]: row for row in rows(folder / "index" / "ledger.sqlite")}
    asyncio.run(_replay(story, open_project(folder, (f"engine.url={story.url}",))))
    clock.lap("replay")
    (folder.parent / "story.json").write_text(json.dumps(story.seconds), encoding="utf-8")
    return story


class _Clock:
    """Seconds per part of the story."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        """The part that ends now."""
        now = time.monotonic()
        self._story.seconds[name], self._last = round(now - self._last, 1), now


def _serve(story: Story, name: str, programs: list[Program], *options: str) -> Program:
    program = start(story.folder, name, "serve", str(story.folder), *options)
    programs.append(program)
    return program


def _index(story: Story, programs: list[Program], clock: _Clock) -> None:
    """The first index, in whose middle the server and all it started are killed, and the second one."""
    folder, ledger = story.folder, story.folder / "index" / "ledger.sqlite"
    serve = _serve(story, "serve-1", programs, "--engine-only")
    until((folder / "index" / "run" / "serve.json").is_file, serve)
    clock.lap("first start")

    index = start(folder, "index-1", "index", str(folder), "--json")
    programs.append(index)
    until(lambda: len(rows(ledger)) >= BEFORE_THE_KILL, index)
    serve.kill_all()
    story.left_after_the_kill = gone([serve])
    story.replies_before_the_kill = len(rows(ledger))
    clock.lap("until the kill")
    again = _serve(story, "serve-2", programs)
    until(lambda: "Ask at" in again.said, again)
    clock.lap("second start")
    story.first_code = index.process.wait(900)
    story.first_said = index.said
    clock.lap("rest of the index")
    assert story.first_code in (0, 3), index.said
    story.first = json.loads(index.out.read_text(encoding="utf-8"))
    story.second = run_json(folder, "index-2", "index", str(folder))
    clock.lap("second index")


def _ask(story: Story, service: str, clock: _Clock) -> None:
    """A question in every mode, on the command line or over HTTP, and JSON in the plain form that every server knows."""

    def answer(mode: str, door: str) -> dict[str, Any]:
        if door == "HTTP":
            reply = httpx.post(f"{service}/v1/query", json={"question": QUESTION, "mode": mode}, timeout=900, trust_env=False)
            assert reply.status_code == 200, reply.text
            return dict(reply.json())
        return dict(run_json(story.folder, f"query-{mode}", "query", QUESTION, str(story.folder), "--mode", mode))

    with ThreadPoolExecutor() as threads:
        story.answers |= dict(zip(MODES, threads.map(answer, MODES, MODES.values()), strict=True))
    clock.lap("three at once")
    body = {
        "model": SMALL_MODEL, "messages": [{"role": "user", "content": "Write JSON, well indented."}], "max_tokens": 60, "temperature": 0,
        "response_format": {"type": "json_schema", "json_schema": {"name": "town", "schema": SCHEMA, "strict": True}},
    }  # fmt: skip
    reply = httpx.post(f"{story.url}/chat/completions", json=body, timeout=900, trust_env=False)
    story.compact = reply.json()["choices"][0]["message"]["content"]


def _ask_every_way(story: Story, service: str, clock: _Clock) -> None:
    """The question in all modes, over HTTP and in this process."""
    story.asked += asyncio.run(ask_served(service, QUESTION))
    clock.lap("events")
    story.asked += asyncio.run(ask_here(open_project(story.folder, SHORT), HERE))
    clock.lap("in this process")


def _type(story: Story, programs: list[Program]) -> None:
    """The question on the command line."""
    clock = _Clock(story)
    story.said = ask_typed(story.folder, QUESTION, programs)
    story.asked.append(story.said.events)
    clock.lap("beside: command line")


def _index_what_is_hostile(story: Story, _: list[Program]) -> None:
    """Another project, whose documents give orders and imitate all marks there are."""
    clock, folder = _Clock(story), story.folder.parent / "hostile"
    make_project(folder, ("*",), 140, url=story.url)
    shutil.rmtree(folder / "input")
    (folder / "input").mkdir()
    for name, text in hostile.DOCUMENTS.items():
        (folder / "input" / name).write_text(text, encoding="utf-8", newline="")
    settings = [part for setting in HOSTILE_SETTINGS for part in ("--set", setting)]
    story.hostile_index = run_json(folder, "hostile-index", "index", str(folder), *settings)
    clock.lap("beside: hostile index")


def _ask_what_is_hostile(story: Story, clock: _Clock) -> None:
    """A question to it in all modes."""
    story.hostile += asyncio.run(ask_here(open_project(story.folder.parent / "hostile", (*SHORT, *HOSTILE_SETTINGS)), HOSTILE))
    clock.lap("hostile questions")


def _cramp(story: Story, _: list[Program]) -> None:
    """Another project, whose replies are all cut off, indexed twice."""
    clock, folder = _Clock(story), story.folder.parent / "cramped"
    make_project(folder, CRAMPED, TOO_FEW, url=story.url)
    story.cramped = tuple(run_json(folder, f"cramped-{turn}", "index", str(folder)) for turn in (1, 2))
    story.cramped_outcomes = tuple(row["outcome"] for row in rows(folder / "index" / "ledger.sqlite"))
    clock.lap("beside: cramped")


def _next_day(story: Story, programs: list[Program]) -> None:
    """A copy of the project with a service of its own, in which a document gets a new sentence, and then another one is deleted; after each an index and
    questions."""
    clock, folder, port = _Clock(story), story.folder.parent / NEXT_DAY, free_port()
    attached = ("--set", f"engine.url={story.url}")
    serve = start(folder, "serve-3", "serve", str(folder), *attached, "--set", f"server.port={port}")
    programs.append(serve)
    edited, deleted = (next((folder / "input").glob(pattern)) for pattern in (EDITED, DELETED))
    story.edited, story.deleted = (path.relative_to(folder / "input").as_posix() for path in (edited, deleted))
    edited.write_text(f"{edited.read_text(encoding='utf-8').rstrip()}\n\n{NEWS}\n", encoding="utf-8")
    index = run_json(folder, "index-edit", "index", str(folder), *attached)
    until(lambda: "Ask at" in serve.said, serve)
    story.after_edit = _day(folder, index, port, WHO)
    deleted.unlink()
    index = run_json(folder, "index-deletion", "index", str(folder), *attached)
    story.after_deletion = _day(folder, index, port, QUESTION)
    assert serve.end(signal.SIGINT) == 0
    clock.lap("beside: next day")


def _day(folder: Path, index: dict[str, Any], port: int, question: str) -> dict[str, Any]:
    """What an index has said, and a search and answers say after it; the texts of the documents as they are now."""

    def told(page: str, mode: str) -> Any:
        reply = httpx.post(f"http://127.0.0.1:{port}/v1/{page}", json={"question": question, "mode": mode}, timeout=900, trust_env=False)
        assert reply.status_code == 200, reply.text
        return reply.json()

    found = told("retrieve", "basic")
    answers = {mode: told("query", mode) for mode in ("basic", "global")}
    stored = StoredIndex.open(folder / "index")
    try:
        texts = {document.path: document.text for document in stored.documents()}
    finally:
        stored.close()
    return {"index": index, "found": found, "answers": answers, "texts": texts}


async def _replay(story: Story, project: ProjectFolder) -> None:
    """Build everything once more, from the ledger alone, and note every request with what it was answered."""

    def silent(_: str) -> None:
        pass

    with Ledger.open(project.index / "ledger.sqlite") as ledger:
        side = await open_model_side(project, ledger, silent)
        story.window = side.model.card.context_tokens
        run = Run(
            settings=project.settings, input_root=project.input_root, models_folder=models_folder(), model=_noted(story, side.model, side.ledgered),
            embedder=side.embedder, cache=ledger, prompts=project.prompts, progress=Silent(), log=lambda *_, **__: None,
            usage=lambda: dict(side.meter.by_purpose), replayed=lambda: side.meter.replayed, wasted=lambda: side.meter.wasted,
        )  # fmt: skip
        try:
            await build(run)
        finally:
            await side.close()


def _noted(story: Story, model: Model, engine: Ledgered) -> Model:
    async def generate(request: Request) -> Reply:
        key = engine.key(request)
        try:
            reply = await model.generate(request)
        except ReplyInvalid as error:
            story.used[key] = (request, error.outcome)
            raise
        story.used[key] = (request, reply)
        return reply

    return replace(model, generate=generate)
