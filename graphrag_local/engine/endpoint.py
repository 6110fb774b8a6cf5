"""One server under one base URL: its connections, its faults as our errors, and its other pages (models, version, health, metrics, tokenize)."""

import asyncio
import contextlib
import json
import math
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx

from graphrag_local.engine.wire import fault_of
from graphrag_local.errors import EngineError, EngineRefused, EngineUnreachable

CONNECT_S = 10.0  # a host that is there answers a connect within milliseconds; the reply itself has no time limit here
GARBAGE_LIMIT = 3
# Connections are given up before servers close idle ones under our feet (uvicorn after 5 s).
_LIMITS = httpx.Limits(max_connections=None, keepalive_expiry=4.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a metrics page says: requests being worked on, and requests that wait."""

    running: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One model of a server's list. `context_tokens` is 0 and `root` empty where the server does not say."""

    name: str
    context_tokens: int = 0
    root: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What `/tokenize` says: how many tokens, and their ids where it tells them."""

    count: int
    ids: tuple[int, ...] = ()


class Endpoint:
    """A client for one base URL. `refused` are request fields that this server does not take, `down_since` when it last failed."""

    def __init__(self, url: str, api_key: str) -> None:
        self.url = url
        self.in_flight = 0
        self.down_since = -math.inf
        self.refused: set[str] = set()
        self._answered = False
        self._garbage = 0
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.AsyncClient(headers=headers, timeout=httpx.Timeout(None, connect=CONNECT_S), limits=_LIMITS, trust_env=False)

    @property
    def root(self) -> str:
        """vLLM's own pages are beside `/v1`, not under it."""
        return self.url.removesuffix("/v1")

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    # --- requests

    @contextlib.asynccontextmanager
    async def open(self, path: str, body: dict[str, Any] | None, purpose: str, *, root: bool = False) -> AsyncIterator[httpx.Response]:
        """An open response with a 2xx status; everything else, and every fault of the network, is raised as an EngineError.

        The characters of a text are sent themselves, not as escapes (a lone surrogate becomes "?"). Leaving early closes the connection.
        """
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        headers = {"X-Graphrag-Purpose": purpose} | ({} if body is None else {"Content-Type": "application/json"})
        url = (self.root if root else self.url) + path
        try:
            async with self._client.stream("GET" if body is None else "POST", url, content=content, headers=headers) as response:
                if not response.is_success:
                    raise fault_of(response.status_code, response.headers, await response.aread(), self.url)
                yield response
        except httpx.InvalidURL as error:
            raise EngineRefused(f"{url!r} is not a URL: {error}.", hint="Write engine.url as http://host:port/v1") from error
        except httpx.HTTPError as error:
            why = str(error) or type(error).__name__
            raise EngineUnreachable(f"{self.url} cannot be reached or broke off: {why}.", hint="Is the model server running?") from error

    async def fetch(self, path: str, body: dict[str, Any] | None, purpose: str, *, root: bool = False) -> bytes:
        """The whole body of a response."""
        async with self.open(path, body, purpose, root=root) as response:
            return await response.aread()

    def json(self, body: bytes) -> Any:
        """A body as JSON; raises what garbage means."""
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise self.garbage(body.decode("utf-8", "replace")) from None

    def understood(self) -> None:
        """Note that a completion came."""
        self._answered, self._garbage = True, 0

    def garbage(self, body: str) -> EngineError:
        """The error for a 200 that is not what was asked: a passing fault at first, a wrong address when nothing else ever came."""
        self._garbage += 1
        begin = " ".join(body.split())[:120]
        if self._garbage >= GARBAGE_LIMIT and not self._answered:
            hint = "Is engine.url right? It should end in /v1."
            return EngineRefused(f"{self.url} does not speak the OpenAI protocol; it answers {begin!r}.", hint=hint)
        return EngineUnreachable(f"{self.url} sent garbage: {begin!r}")

    # --- pages

    async def models(self, purpose: str) -> list[Served]:
        """The models that this server lists."""
        value = self.json(await self.fetch("/models", None, purpose))
        items = value.get("data") if isinstance(value, dict) else None
        if not isinstance(items, list) or not all(isinstance(item, dict) and "id" in item for item in items):
            raise self.garbage(json.dumps(value))
        return [Served(name=str(item["id"]), context_tokens=_window(item), root=str(item.get("root") or "")) for item in items]

    async def version(self, purpose: str) -> str:
        """The server's version where it tells one, else ""."""
        try:
            value = json.loads(await self.fetch("/version", None, purpose, root=True))
        except (EngineError, ValueError):
            return ""
        return str(value.get("version", "")) if isinstance(value, dict) else ""

    async def ailing(self) -> EngineError | None:
        """The fault of the health page; None where it says that all is well (servers say so while their completions fail) or there is none."""
        try:
            await self.fetch("/health", None, "health", root=True)
        except EngineError as fault:
            return fault if fault.retryable else None
        return None

    async def load(self) -> Load:
        """What the metrics page says; raises EngineRefused where there is none of vLLM's kind."""
        page = (await self.fetch("/metrics", None, "health", root=True)).decode("utf-8", "replace")
        return Load(running=_gauge(page, "vllm:num_requests_running"), waiting=_gauge(page, "vllm:num_requests_waiting"))

    async def tokenize(self, body: dict[str, Any], purpose: str) -> Tokens:
        """Tokens of a text or a chat; raises EngineRefused where the server does not count."""
        value = self.json(await self.fetch("/tokenize", body, purpose, root=True))
        try:
            return Tokens(count=int(value["count"]), ids=tuple(int(one) for one in value.get("tokens") or ()))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise EngineRefused(f"{self.url}/tokenize does not count tokens.") from None


def _window(item: dict[str, Any]) -> int:
    """The window of a listed model: vLLM and SGLang say max_model_len, others use one of these names."""
    meta = item.get("meta")
    values = [item.get(name) for name in ("max_model_len", "context_length", "max_context_length", "context_window")]
    values.append(meta.get("n_ctx") if isinstance(meta, dict) else None)
    return next((int(value) for value in values if isinstance(value, int) and value > 0), 0)


def _gauge(page: str, name: str) -> int:
    """The sum of a gauge over its labels."""
    found = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})?\s+([0-9.e+]+)\s*$", page, re.MULTILINE)
    if not found:
        raise EngineRefused(f"The metrics page has no {name}.")
    return int(sum(float(value) for value in found))


async def events(response: httpx.Response) -> AsyncIterator[str]:
    """The data of server-sent events. Lines end at line feeds only: a text may hold U+2028 and other ends of line as themselves."""
    rest = b""
    async for piece in response.aiter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip().decode("utf-8", "replace")


async def gathered(endpoints: list[Endpoint], purpose: str) -> tuple[Served, ...]:
    """The models that every endpoint which answers has; raises the first fault when none answers."""
    results = await asyncio.gather(*(endpoint.models(purpose) for endpoint in endpoints), return_exceptions=True)
    faults = [result for result in results if isinstance(result, BaseException)]
    lists = [result for result in results if not isinstance(result, BaseException)]
    if not lists or any(not isinstance(fault, EngineError) for fault in faults):
        raise faults[0]
    return tuple(model for model in lists[0] if all(any(model.name == other.name for other in models) for models in lists))
