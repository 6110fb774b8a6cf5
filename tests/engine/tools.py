"""Small makers shared by the tests of the engine."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from graphrag_local.engine.base import Constraint, FreeText, ModelCard, Request, schema_of
from graphrag_local.engine.vllm import VLLM
from graphrag_local.prompting import Message
from graphrag_local.records import LedgerRow
from graphrag_local.settings import EngineSettings
from tests.clock import run_unhurried
from tests.modelserver import ModelServer

TITLE = schema_of(
    {"type": "object", "properties": {"title": {"type": "string", "minLength": 1}}, "required": ["title"], "additionalProperties": False}
)
CARD = ModelCard(name="local-model", revision="r1", context_tokens=0, form="schema")
GRAMMAR_CARD = ModelCard(name="local-model", revision="r1", context_tokens=0, form="grammar")
ALL = frozenset({"choice", "schema", "grammar", "logprobs", "tokenize", "priority"})


def ask_for(text: str = "Say something.", constraint: Constraint | None = None, **rest: Any) -> Request:
    """A request with sensible values for what a test does not care about."""
    values = {"max_tokens": 200, "purpose": "extract"} | rest
    return Request(messages=(Message(role="user", content=text),), constraint=constraint or FreeText(), **values)


def settings_for(*urls: str, **rest: Any) -> EngineSettings:
    """Engine settings for some servers."""
    return EngineSettings(url=",".join(urls), model="local-model", **rest)


def engine_for(*urls: str, card: ModelCard = CARD, obeys: frozenset[str] = frozenset(), **rest: Any) -> VLLM:
    """An engine that has taken over a card."""
    engine = VLLM(settings_for(*urls, **rest))
    engine.adopt(card, obeys)
    return engine


def run(engine: Any, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """The result of some work with an engine, which is closed afterwards."""

    async def main() -> Any:
        try:
            return await work(engine)
        finally:
            await engine.close()

    return asyncio.run(main())


def unhurried(make: Callable[[], Any], work: Callable[[Any], Awaitable[Any]], server: ModelServer | None = None) -> Any:
    """The same on a clock that does not depend on the machine (tests/clock.py), which is also the clock of the model server; it serves meanwhile."""

    async def main() -> Any:
        async with server.here() if server else contextlib.nullcontext():
            engine = make()
            try:
                return await work(engine)
            finally:
                await engine.close()

    return run_unhurried(main)


async def timed(work: Awaitable[Any]) -> tuple[Any, float]:
    """What some work gives, and the seconds of the loop's clock that it took."""
    begun = asyncio.get_running_loop().time()
    return await work, asyncio.get_running_loop().time() - begun


def said_by(engine: Any, *requests: Request) -> Any:
    """The replies to some requests, one after the other; one reply for one request."""

    async def work(engine: Any) -> Any:
        replies = [await engine.generate(request) for request in requests]
        return replies if len(replies) > 1 else replies[0]

    return run(engine, work)


async def all_of(engine: Any, requests: list[Request]) -> list[Any]:
    """Replies or errors of requests that are sent at once."""
    return await asyncio.gather(*(engine.generate(request) for request in requests), return_exceptions=True)


def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    """Whether a condition comes true in time."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return condition()


class MemoryLedger:
    """A ledger that is a dictionary."""

    def __init__(self) -> None:
        self.rows: dict[str, LedgerRow] = {}

    def get(self, key: str) -> LedgerRow | None:
        """The row of a key."""
        return self.rows.get(key)

    async def put(self, row: LedgerRow) -> None:
        """Keep a row."""
        await asyncio.sleep(0)
        known = self.rows[row.key].groups if row.key in self.rows else ()
        self.rows[row.key] = replace(row, groups=tuple(sorted({*known, *row.groups})))

    async def link(self, groups: Mapping[str, Iterable[tuple[str, ...]]]) -> None:
        """Add groups to rows."""
        for key, more in groups.items():
            self.rows[key] = replace(self.rows[key], groups=tuple(sorted({*self.rows[key].groups, *more})))


class RawServer:
    """An HTTP server whose every answer is a function of (method, path, headers, body): (status, headers, body). Keeps what it was asked."""

    def __init__(self, answer: Callable[[str, str, dict[str, str], bytes], tuple[int, dict[str, str], bytes]]) -> None:
        asked = self.asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked.append((self.path, headers, body))
                status, more, content = answer(self.command, self.path, headers, body)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **more}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def bodies(self) -> list[dict[str, Any]]:
        """The completion requests, decoded."""
        return [json.loads(body) for path, _, body in self.asked if path.endswith("/chat/completions")]


def completion(text: str, **rest: Any) -> bytes:
    """A whole completion as a server sends it."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"} | rest
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}, ensure_ascii=False).encode()
