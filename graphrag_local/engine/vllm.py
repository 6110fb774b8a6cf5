"""A model behind one or several servers that speak OpenAI's protocol; vLLM's extensions are used where the server knows them.

This engine has no clock and never asks twice: how long to wait and when to ask again is the business of `patient.Patient`. It does learn: a field
that a server refuses by name (`priority` without priorities, `chat_template_kwargs` without templates) is left out from then on.
`repetition_penalty` is never sent: it counts the prompt's tokens and punishes copying, which is what we want of a model.
"""

import asyncio
import math
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from graphrag_local.engine.base import ModelCard, Reply, Request
from graphrag_local.engine.endpoint import Endpoint, Load, Served, Tokens, events, gathered
from graphrag_local.engine.grammar import request_fields
from graphrag_local.engine.wire import GATE, Draft, GateReader, Token, fault_of, unwanted_field, without_thoughts
from graphrag_local.errors import EngineBusy, EngineError, EngineRefused, EngineUnreachable
from graphrag_local.ids import digest_of
from graphrag_local.prompting import Message
from graphrag_local.settings import EngineSettings

DOWN_S = 15.0  # an endpoint that failed is left alone for so long while others answer
SPILL = 4  # how many more requests than the least loaded endpoint one may have in flight before its requests go elsewhere
TOP = 20  # most alternatives that servers give per token
_OPTIONAL = (
    "chat_template_kwargs", "priority", "continuous_usage_stats", "stream_options", "logprob_token_ids", "top_logprobs", "logprobs", "seed",
)  # fmt: skip


class VLLM:
    """The engine of `engine.url`. `adopt` tells it what the probe found out; until then it assumes the least."""

    def __init__(self, settings: EngineSettings) -> None:
        urls = [url.strip().rstrip("/") for url in settings.url.split(",") if url.strip()]
        if not urls:
            raise EngineRefused("engine.url is empty.", hint="Set it to the server's base URL, such as http://127.0.0.1:8000/v1")
        self.urls = tuple(dict.fromkeys(urls))
        self.seen: set[str] = set()
        """What replies have shown so far: "logprobs", "usage_details"."""
        self._endpoints = [Endpoint(url, settings.api_key) for url in self.urls]
        self._scale = settings.clock_scale
        self._priority = False
        self._can_tokenize = self._has_metrics = True
        self._option_ids: dict[tuple[str, ...], asyncio.Task[list[int]]] = {}
        self._card = ModelCard(name=settings.model, revision=settings.revision or "unpinned", context_tokens=settings.context_tokens, form="schema", logprobs=False)

    @property
    def card(self) -> ModelCard:
        """Which model this is, as far as is known."""
        return self._card

    def adopt(self, card: ModelCard, obeys: frozenset[str]) -> None:
        """Take over what was found out about the server (see `probe.Verdict`)."""
        self._card = card
        self._priority = "priority" in obeys
        self._can_tokenize = "tokenize" in obeys

    def refused(self) -> frozenset[str]:
        """Request fields that some endpoint does not take."""
        return frozenset().union(*(endpoint.refused for endpoint in self._endpoints))

    async def close(self) -> None:
        """Close all connections."""
        for task in self._option_ids.values():
            task.cancel()
        for endpoint in self._endpoints:
            await endpoint.close()

    # --- which endpoint

    async def generate(self, request: Request) -> Reply:
        """The reply to one request, from the first endpoint in order of preference that can be reached."""
        fault: EngineError | None = None
        for endpoint in self._preferred(request.affinity):
            endpoint.in_flight += 1
            try:
                reply = await self._ask(endpoint, request)
            except (EngineUnreachable, EngineBusy) as error:
                endpoint.down_since = time.monotonic()
                fault = error
            else:
                endpoint.down_since = -math.inf
                return reply
            finally:
                endpoint.in_flight -= 1
        raise fault or EngineUnreachable("There is no endpoint to ask.")

    def _preferred(self, affinity: str) -> list[Endpoint]:
        """Endpoints in the order in which to try them.

        Rendezvous hashing keeps what shares a prefix together and moves only its own share when an endpoint comes or goes. Endpoints that
        failed a moment ago are left out, unless all did: then only the best is tried, and waiting is up to the caller.
        """
        ranked = sorted(self._endpoints, key=lambda endpoint: digest_of(endpoint.url, affinity))
        if not affinity:
            ranked.sort(key=lambda endpoint: endpoint.in_flight)
        now = time.monotonic()
        up = [endpoint for endpoint in ranked if now - endpoint.down_since >= DOWN_S / self._scale] or ranked[:1]
        if up[0].in_flight > min(endpoint.in_flight for endpoint in up) + SPILL:
            up.sort(key=lambda endpoint: endpoint.in_flight)
        return up

    # --- one completion

    async def _ask(self, endpoint: Endpoint, request: Request) -> Reply:
        """One completion, sent again without the fields that the endpoint refuses by name."""
        while True:
            body = await self._body(endpoint, request)
            try:
                reply = await (self._streamed(endpoint, request, body) if request.gate or request.heard else self._whole(endpoint, request, body))
            except EngineRefused as refusal:
                name = unwanted_field(refusal, self._optional(body))
                if not name:
                    raise
                endpoint.refused.add(name)
                continue
            endpoint.understood()
            if reply.logprobs:
                self.seen.add("logprobs")
            return reply if request.logprobs else replace(reply, logprobs=())

    def _optional(self, body: dict[str, Any]) -> list[str]:
        """Fields of a body that a reply can do without: a constraint can where it goes out twice, and is checked anyway."""
        twice = [name for name in ("structured_outputs", "response_format") if self._card.form == "schema" and name in body]
        return twice + [name for name in _OPTIONAL if name in body or name in body.get("stream_options", {})]

    async def _body(self, endpoint: Endpoint, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._card.name,
            "messages": _turns(request.messages),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
            "chat_template_kwargs": {"enable_thinking": False},
        } | request_fields(request.constraint, self._card.form)
        if self._priority:
            body["priority"] = request.priority
        if request.logprobs or request.gate:
            body["logprobs"] = True
        if request.gate or request.heard:
            usage = {"include_usage": True, "continuous_usage_stats": True}
            options = {name: value for name, value in usage.items() if name not in endpoint.refused}
            body |= {"stream": True, "stream_options": options}
        if request.gate:
            body["top_logprobs"] = TOP
            if ids := await self._ids_of(request.gate.options):
                body["logprob_token_ids"] = ids
        without = endpoint.refused | ({"top_logprobs", "logprob_token_ids"} if "logprobs" in endpoint.refused else set())
        return {name: value for name, value in body.items() if name not in without}

    async def _ids_of(self, options: tuple[str, ...]) -> list[int]:
        """The token ids of gate options, so that the server tells exactly their probabilities and not those of the likeliest tokens.

        Empty where the server does not tokenize or an option is not one token; asked once.
        """
        if options not in self._option_ids:
            self._option_ids[options] = asyncio.create_task(self._single_tokens(options))
        return await asyncio.shield(self._option_ids[options])

    async def _single_tokens(self, options: tuple[str, ...]) -> list[int]:
        found = [await self._tokenized({"prompt": option, "add_special_tokens": False}, "tokenize") for option in options]
        return [tokens.ids[0] for tokens in found if tokens] if all(tokens and len(tokens.ids) == 1 for tokens in found) else []

    async def _whole(self, endpoint: Endpoint, request: Request, body: dict[str, Any]) -> Reply:
        begun = time.monotonic()
        draft = Draft()
        self._add(endpoint, draft, await endpoint.fetch("/chat/completions", body, request.purpose))
        return self._made(request, draft, time.monotonic() - begun)

    async def _streamed(self, endpoint: Endpoint, request: Request, body: dict[str, Any]) -> Reply:
        """A reply read as it comes, and left (the connection is closed, so that the server stops) when its gate is too low."""
        begun = time.monotonic()
        draft, gate = Draft(), GateReader(request.gate, request.constraint) if request.gate else None
        async with endpoint.open("/chat/completions", body, request.purpose) as response:
            if "event-stream" not in response.headers.get("content-type", ""):  # a server that does not stream
                self._add(endpoint, draft, await response.aread())
                return self._made(request, draft, time.monotonic() - begun)
            async for event in events(response):
                if event == "[DONE]":
                    draft.finish = draft.finish or "stop"
                    break
                tokens = self._add(endpoint, draft, event.encode("utf-8", "replace"))
                if gate and any(gate.feed(token) for token in tokens) and gate.value is not None and gate.value < gate.gate.threshold:
                    draft.finish = GATE
                    break
                if request.heard:
                    request.heard(without_thoughts(draft.text))
        if draft.finish is None:
            raise EngineUnreachable(f"{endpoint.url} broke off in the middle of a reply.")
        return self._made(request, draft, time.monotonic() - begun)

    def _add(self, endpoint: Endpoint, draft: Draft, body: bytes) -> list[Token]:
        """Add a whole completion or one event of a stream to a draft; the tokens it brings."""
        value = endpoint.json(body)
        if isinstance(value, dict) and "choices" not in value and value.get("error"):  # an error after the headers were sent
            code = value["error"].get("code") if isinstance(value["error"], dict) else None
            raise fault_of(code if isinstance(code, int) and code >= 400 else 500, {}, body, endpoint.url)
        try:
            return draft.add(value)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError):
            raise endpoint.garbage(body.decode("utf-8", "replace")) from None

    def _made(self, request: Request, draft: Draft, seconds: float) -> Reply:
        if isinstance(draft.usage, dict) and draft.usage.get("prompt_tokens_details"):
            self.seen.add("usage_details")
        return draft.reply(request, self._card.form, seconds)

    # --- the server's other pages

    async def tokenize(self, what: tuple[Message, ...] | str, purpose: str = "tokenize") -> int | None:
        """Tokens of a rendered chat (template included) or of a text, by the server's own count; None where it offers none or is away."""
        if isinstance(what, str):
            found = await self._tokenized({"prompt": what, "add_special_tokens": False}, purpose)
        else:
            template = {"add_generation_prompt": True, "chat_template_kwargs": {"enable_thinking": False}}
            found = await self._tokenized({"messages": _turns(what)} | template, purpose)
        return found.count if found else None

    async def _tokenized(self, body: dict[str, Any], purpose: str) -> Tokens | None:
        if not self._can_tokenize:
            return None
        try:
            return await self._preferred("")[0].tokenize({"model": self._card.name} | body, purpose)
        except EngineRefused:
            self._can_tokenize = False  # a server without this page will not grow one during a run
        except EngineError:
            pass
        return None

    async def models(self, purpose: str = "models") -> tuple[Served, ...]:
        """The models that every endpoint which answers has; raises EngineError when none answers."""
        return await gathered(self._endpoints, purpose)

    async def version(self, purpose: str = "health") -> str:
        """The first server's version where it tells one, else ""."""
        return await self._endpoints[0].version(purpose)

    async def ailing(self) -> EngineError | None:
        """A fault when no endpoint's health page is well; None proves little, since these pages say 200 while completions fail."""
        faults = await asyncio.gather(*(endpoint.ailing() for endpoint in self._endpoints))
        return faults[0] if all(faults) else None

    async def metrics(self) -> Load | None:
        """How many requests run and wait on all endpoints, from vLLM's metrics pages; None where there are none."""
        if not self._has_metrics:
            return None
        try:
            loads = [await endpoint.load() for endpoint in self._endpoints]
        except EngineRefused:
            self._has_metrics = False
            return None
        except EngineError:
            return None
        return Load(running=sum(load.running for load in loads), waiting=sum(load.waiting for load in loads))


def _turns(messages: Iterable[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]
