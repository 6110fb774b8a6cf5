"""The HTTP service: `POST /v1/query`, `POST /v1/retrieve` (ranked records, no language model), `GET /healthz` (the process lives), `GET /readyz`
(it can answer).

With `"stream": true` an answer comes as server-sent events: `text` and `citation`, whose texts joined are the answer's, `sentence` with its verdict,
`progress`, `restart` (what came so far does not count), and at last `done` with the whole answer object, or `error`.

A running server notices a new generation at the next question; a question in progress stays on the one it began with. Requests from a page of
another site are refused: the Host must be loopback or the configured host, and bodies are JSON of bounded size.
"""

import asyncio
import contextlib
import dataclasses
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from graphrag_local.answers import Event, Listener, turns_of
from graphrag_local.errors import EngineError, GraphragError, IndexMissing, UsageError
from graphrag_local.project import ProjectFolder
from graphrag_local.service import Asker

LOOPBACK = {"127.0.0.1", "localhost", "[::1]"}


BODY = {
    "/v1/query": 'Send {"question": "…"}, with "mode", "level", "strict", "dynamic", "no_model", "stream" and "history" where wanted.',
    "/v1/retrieve": 'Send {"question": "…"}, with "mode", "level" and "k" where wanted.',
}


class Sought(BaseModel):
    """The body of `POST /v1/retrieve`."""

    model_config = ConfigDict(extra="forbid")

    question: str = Field(min_length=1, max_length=200_000)
    mode: str = "auto"
    level: int | None = Field(default=None, ge=0)
    k: int = Field(default=20, ge=1, le=1000)


class Question(BaseModel):
    """The body of `POST /v1/query`: what `graphrag-local query` takes."""

    model_config = ConfigDict(extra="forbid")

    question: str = Field(min_length=1, max_length=200_000)
    mode: str = "global"
    level: int | None = Field(default=None, ge=0)
    strict: bool = False
    dynamic: bool = False
    no_model: bool = False
    stream: bool = False
    history: list[dict[str, Any]] = Field(default_factory=list, max_length=200)


def create_app(project: ProjectFolder, stopping: Callable[[], bool] = lambda: False) -> FastAPI:
    """The service of one project folder; once `stopping()` holds, questions in progress are given up."""
    asker = Asker(project)

    @contextlib.asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asker.close()

    app = FastAPI(title="graphrag-local", lifespan=life, docs_url=None, redoc_url=None, openapi_url=None)
    limit = project.settings.server.max_body_kb * 1024
    hosts = LOOPBACK | {_as_in_url(project.settings.server.host)} if project.settings.server.host not in ("0.0.0.0", "::") else set()  # noqa: S104

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        host = re.sub(r":\d+$", "", request.headers.get("host", ""))
        if hosts and host not in hosts:
            return _error(421, "This host name is not served here.", "Ask by the address that `serve` printed.")
        if request.method == "POST":
            if not request.headers.get("content-type", "").startswith("application/json"):
                return _error(415, "The body must be JSON.", "Send Content-Type: application/json.")
            length = request.headers.get("content-length", "")
            if not length.isdigit() or int(length) > limit:
                return _error(413, f"The body must have a Content-Length of at most {limit} bytes.", "Raise server.max_body_kb.")
        return await call_next(request)

    @app.exception_handler(GraphragError)
    async def refused(_: Request, error: GraphragError) -> JSONResponse:
        status = 400 if isinstance(error, UsageError) else 503 if isinstance(error, IndexMissing | EngineError) else 500
        return _error(status, str(error), error.hint)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:] if isinstance(part, str))
        return _error(422, f"The body is not a question: {where + ': ' if where else ''}{first['msg']}.", BODY.get(request.url.path, ""))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        hint = "There are POST /v1/query, POST /v1/retrieve, GET /healthz and GET /readyz."
        return _error(error.status_code, f"{request.method} {request.url.path}: {error.detail}.", hint)

    _add_routes(app, asker, stopping)
    return app


def _add_routes(app: FastAPI, asker: Asker, stopping: Callable[[], bool]) -> None:
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        checks = await asker.checks()
        return JSONResponse(checks, status_code=200 if all(value == "ok" for value in checks.values()) else 503)

    @app.post("/v1/query")
    async def query(body: Question, request: Request) -> Response:
        return await (_streamed if body.stream else _whole)(request, asker, body, stopping)

    @app.post("/v1/retrieve")
    async def retrieve(body: Sought, request: Request) -> Response:
        hits = await _unless_gone(request, asker.retrieve(body.question, body.mode, body.level, body.k), stopping)
        return _stopped() if hits is None else JSONResponse([dataclasses.asdict(hit) for hit in hits])


async def _asked(asker: Asker, body: Question, listen: Listener | None = None) -> dict[str, Any]:
    """The answer object. Raises UsageError for wishes that exclude each other."""
    if body.no_model:
        if wrong := [name for name in ("stream", "strict", "dynamic", "history") if getattr(body, name)]:
            raise UsageError(f"no_model does not go with {', '.join(wrong)}.", hint="Leave one of them out.")
        return dataclasses.asdict(await asker.brief(body.question, body.mode, body.level))
    turns = turns_of(body.history)
    return dataclasses.asdict(await asker.ask(body.question, body.mode, body.level, strict=body.strict, dynamic=body.dynamic, history=turns, listen=listen))


async def _whole(request: Request, asker: Asker, body: Question, stopping: Callable[[], bool]) -> Response:
    """The answer object."""
    answer = await _unless_gone(request, _asked(asker, body), stopping)
    return _stopped() if answer is None else JSONResponse(answer)


async def _unless_gone(request: Request, work: Awaitable[Any], stopping: Callable[[], bool]) -> Any:
    """The result of `work`; None once the client has hung up (a closed tab must not keep a hundred calls alive) or the service stops."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.wait({task}, timeout=1.0)
        if not task.done() and (stopping() or await request.is_disconnected()):
            task.cancel()
            await asyncio.wait({task})
            return None
    return task.result()


async def _streamed(request: Request, asker: Asker, body: Question, stopping: Callable[[], bool]) -> Response:
    """An answer as events. What fails before the first of them is an error with its own status; who hangs up ends the work."""
    heard: asyncio.Queue[Event | None] = asyncio.Queue()
    task = asyncio.create_task(_asked(asker, body, heard.put_nowait))
    task.add_done_callback(lambda _: heard.put_nowait(None))

    async def events() -> AsyncIterator[str]:
        try:
            event = first
            while event is not None:
                yield _as_event(event)
                while (event := await _next(heard)) is WAITING:
                    if stopping() or await request.is_disconnected():
                        return
            if isinstance(error := task.exception(), GraphragError):
                yield _as_event(Event(kind="error", text=str(error), hint=error.hint))
            elif error is not None:
                raise error
        finally:
            task.cancel()
            await asyncio.wait({task})

    try:
        while (first := await _next(heard)) is WAITING:
            if stopping() or await request.is_disconnected():
                task.cancel()
                return _stopped()
        if first is None:
            task.result()  # raises what went wrong
    except BaseException:
        task.cancel()
        raise
    return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


WAITING = Event(kind="progress")


async def _next(heard: asyncio.Queue[Event | None]) -> Event | None:
    """The next event, None at the end, WAITING where there is none yet."""
    try:
        async with asyncio.timeout(1.0):
            return await heard.get()
    except TimeoutError:
        return WAITING


def _as_event(event: Event) -> str:
    """An event as it is sent. Its data is one line: JSON has no line breaks of its own."""
    return f"event: {event.kind}\ndata: {json.dumps(event.data())}\n\n"


def _as_in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _stopped() -> JSONResponse:
    """For who still listens."""
    return _error(503, "The service was stopped before the answer was there.", "Ask again when it runs.")


def _error(status: int, message: str, hint: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "hint": hint}}, status_code=status)
