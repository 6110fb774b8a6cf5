"""Plays a script over HTTP: routes, the order of events within one request, and the log."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

from tests.modelserver import wire
from tests.modelserver.connection import Connection, Fault, HttpRequest
from tests.modelserver.log import Record
from tests.modelserver.prompts import Prompt
from tests.modelserver.replies import Call, ChatReply, OnGrammar, constraint_of, reply_to
from tests.modelserver.script import PURPOSES, WORK, Script
from tests.modelserver.sizes import Slots, filled_in
from tests.modelserver.vectors import embed, encoded

Do = Mapping[str, Any]

JSON = {"Content-Type": "application/json"}
SSE = {"Content-Type": "text/event-stream; charset=utf-8"}
PATHS = {
    "/v1/chat/completions": "answer", "/v1/completions": "answer", "/v1/embeddings": "embed", "/v1/models": "models",
    "/tokenize": "tokenize", "/health": "health", "/ping": "health", "/version": "health", "/metrics": "metrics",
}  # fmt: skip
ANSWERS = frozenset({"reply", "text", "message", "body", "status"})
BEFORE_S = 1e-3


def now() -> float:
    """The loop's time: `time.monotonic()`, but for a loop with a clock of its own."""
    return asyncio.get_running_loop().time()


class Player:
    """One server's state; everything here runs in its event loop."""

    def __init__(self, script: Script, clock_scale: float, on_grammar: OnGrammar | None) -> None:
        self.clock_scale = clock_scale
        self.on_grammar = on_grammar
        self.log: list[Record] = []
        self.run = 1
        self.hanging = 0
        self.play(script)

    def play(self, script: Script) -> None:
        """Begin a script from its start; the log and the number of the run stay."""
        self.script = script
        self.released = asyncio.Event()
        self.started: float | None = None
        self.slots = Slots(script.get("capacity"))
        self.cache: dict[tuple[str, bytes], tuple[Any, dict[str, Any]]] = {}

    def elapsed(self) -> float:
        """Seconds of the script since the first work request; -1 before it. They stand still just before what must be met first ends."""
        if self.started is None:
            return -1.0
        elapsed = (now() - self.started) * self.clock_scale
        if (end := self.script.stops_at(elapsed)) is not None:
            self.started += (elapsed - end + BEFORE_S) / self.clock_scale
            elapsed = end - BEFORE_S
        return elapsed

    async def sleep(self, seconds: float) -> None:
        """Wait so many seconds of the script."""
        if seconds > 0:
            await asyncio.sleep(seconds / self.clock_scale)

    # --- requests

    async def handle(self, request: HttpRequest, connection: Connection) -> None:
        """Answer one request and log it."""
        if request.path == "/_log":
            connection.send(200, wire.dumped([asdict(record) for record in self.log]), JSON)
            return
        in_flight = self.slots.running + self.slots.waiting + self.hanging + 1
        record = Record(number=len(self.log) + 1, arrived=now(), run=self.run, path=request.path, in_flight=in_flight)
        self.log.append(record)
        exchange = Exchange(self, request, connection, record)
        try:
            await exchange.answer()
        except ValueError as error:
            record.error = str(error)
            exchange.send(500, wire.error(500, f"model server for tests: {error}", "InternalServerError"))
        except asyncio.CancelledError:
            record.cancelled = connection.left_by_client
            raise
        finally:
            record.ended = now()


class Exchange:
    """One request and its reply."""

    def __init__(self, player: Player, request: HttpRequest, connection: Connection, record: Record) -> None:
        self.player = player
        self.script, self.released = player.script, player.released
        self.request = request
        self.connection = connection
        self.record = record
        self.body: dict[str, Any] = {}
        self.do: Do = {}

    def send(self, status: int, value: Any, headers: Mapping[str, str] = JSON) -> None:
        """A response that is whole unless the rule drops it; strings and bytes go out as they are."""
        self.record.status = status
        body = value if isinstance(value, bytes) else value.encode("utf-8") if isinstance(value, str) else wire.dumped(value)
        self.connection.send(status, body, headers, self._fault())

    def _fault(self) -> Fault | None:
        return Fault(int(self.do.get("after_bytes", 20))) if self.do.get("drop") == "mid-body" else None

    async def answer(self) -> None:
        """Find out what the request is and answer it."""
        path, record = self.request.path, self.record
        guess = PATHS.get(path)
        if guess is None:
            self.send(404, {"detail": "Not Found"})
            return
        given = self.request.headers.get("x-graphrag-purpose", "")
        record.purpose = given if given in PURPOSES else guess
        if guess in ("models", "health", "metrics"):
            self._page(path)
            return
        self.body = record.body = self.request.json()
        record.model = str(self.body.get("model") or self.script.model)
        if guess == "tokenize":
            await self._tokenize()
        elif guess == "embed":
            await self._embed()
        else:
            await self._chat()

    def _page(self, path: str) -> None:
        status = self.script.health(self.player.elapsed())
        slots = self.player.slots
        match path:
            case "/metrics":
                running = slots.running + self.player.hanging
                self.send(200, wire.metrics(self.script.model, running, slots.waiting), {"Content-Type": "text/plain; version=0.0.4"})
            case "/version":
                self.send(200, {"version": self.script.get("version", "0.32.0")})
            case "/v1/models" if status == 200:
                self.send(200, self.script.get("models_body", self._models()))
            case "/v1/models":
                self.send(status, wire.error(status, "not ready", "ServiceUnavailable"))
            case _:
                self.send(status, b"")

    def _models(self) -> dict[str, Any]:
        window = self.script.window or 32768
        names = [self.script.model, *self.script.get("embedders", {})]
        rest = {"object": "model", "owned_by": "vllm", "max_model_len": window}
        return {"object": "list", "data": [{"id": name, "root": name, **rest} for name in names]}

    # --- the order of events

    def _choose(self, prompt: Prompt) -> None:
        """Take the rule that the request meets; the first request that is work starts the script's clock."""
        player, record = self.player, self.record
        if player.started is None and record.purpose in WORK:
            player.started = now()
        record.rule, self.do = self.script.choose(record.purpose, prompt, record.model, player.run, player.elapsed())
        self.prompt = prompt

    async def _ended_early(self) -> bool:
        """Faults that come before any work: a refused or hanging connection, a full queue."""
        if self.do.get("refuse_connection"):
            self.connection.abort()
            return True
        if "hang_s" in self.do:
            self.player.hanging += 1
            try:
                await self.player.sleep(self.do["hang_s"])
            finally:
                self.player.hanging -= 1
            if not ANSWERS & set(self.do):
                self.connection.close()
                return True
        queue = self.script.get("queue", "unlimited")
        if isinstance(queue, int) and self.player.slots.waiting >= queue:
            self.send(429, wire.error(429, "The queue is full.", "TooManyRequests"))
            return True
        return False

    @asynccontextmanager
    async def _worked_on(self) -> AsyncIterator[None]:
        """A slot of the machine, and the rule's delay in it; a probe is answered at once."""
        if self.record.purpose == "probe":
            self.record.began = now()
            yield
            return
        slots = self.player.slots
        await slots.acquire(int(self.body.get("priority") or 0))
        try:
            self.record.began = now()
            by_text = self.do.get("delay_s_by_text", {})
            delay = next((seconds for text, seconds in by_text.items() if self.prompt.has(text)), self.do.get("delay_s", 0))
            await self.player.sleep(delay)
            if self.do.get("hold"):
                await self.released.wait()
            yield
        finally:
            slots.release()

    def _scripted(self) -> bool:
        """Send what the rule writes out in full: nothing at all, a status, or a body."""
        if self.do.get("drop") == "before-headers":
            self.connection.close()
            return True
        if "status" not in self.do and "body" not in self.do:
            return False
        body = self.do.get("body", "")
        kind = "text/plain" if isinstance(body, str) else "application/json"
        headers = {"Content-Type": kind} | {name: self._scaled(name, value) for name, value in self.do.get("headers", {}).items()}
        self.send(int(self.do.get("status", 200)), body, headers)
        return True

    def _scaled(self, name: str, value: Any) -> str:
        """A header's value; a wait in seconds shrinks with the clock."""
        if name.casefold() == "retry-after" and str(value).replace(".", "", 1).isdigit():
            return f"{float(value) / self.player.clock_scale:g}"
        return str(value)

    # --- chat

    async def _chat(self) -> None:
        record, script = self.record, self.script
        if self.request.path == "/v1/completions":
            self.body["messages"] = [{"role": "user", "content": str(self.body.get("prompt", ""))}]
        prompt = Prompt(self.body.get("messages") or [])
        call = Call(record.purpose, self.body, prompt, record.model, *constraint_of(self.body))
        named = "x-graphrag-purpose" in self.request.headers
        if not named and call.form == "schema" and "entities" in call.constraint.get("properties", {}):
            call.purpose = record.purpose = "extract"
        record.prompt, record.form, record.stream = prompt.text, call.form, bool(self.body.get("stream"))
        record.prompt_tokens, record.max_tokens = script.count.messages(prompt.contents), call.max_tokens
        if self._over_window() or self._grammar_refused(call):
            return
        key = (self.request.path, self.request.body)
        if script.get("proxy_cache") and key in self.player.cache:
            record.cached = True
            reply, head = self.player.cache[key]
            await self._send_reply(reply, head)
            return
        self._choose(prompt)
        if await self._ended_early():
            return
        if record.stream and not {"status", "body"} & set(self.do) and self.do.get("drop") != "before-headers":
            await self._send_reply(reply_to(call, self.do, script, self.player.on_grammar), self._head())
            return
        async with self._worked_on():
            if not self._scripted():
                reply = reply_to(call, self.do, script, self.player.on_grammar)
                await self._pause(script.count.text(reply.content), now())
                await self._send_reply(reply, self._head())

    def _head(self) -> dict[str, Any]:
        return {"id": f"chatcmpl-{self.record.number}", "created": int(time.time()), "model": self.record.model}

    async def _pause(self, tokens: float, since: float) -> None:
        """Wait until the rule's pace allows so many tokens, counted from a moment."""
        if rate := self.do.get("tokens_per_s"):
            await self.player.sleep(tokens / rate - (now() - since) * self.player.clock_scale)

    async def _send_reply(self, reply: ChatReply, head: dict[str, Any]) -> None:
        record = self.record
        record.reply, record.completion_tokens = reply.content, self.script.count.text(reply.content + reply.reasoning)
        sizes = (record.prompt_tokens, record.completion_tokens)
        if record.stream:
            record.status = 200
            await self.connection.stream(200, self._events(reply, head, sizes), SSE, self._fault())
        elif self.request.path == "/v1/completions":
            self.send(200, wire.text_completion(reply, head, sizes))
        else:
            self.send(200, wire.completion(reply, self.body, head, sizes))
        if self.script.get("proxy_cache") and "drop" not in self.do:
            self.player.cache[self.request.path, self.request.body] = (reply, head)

    async def _events(self, reply: ChatReply, head: dict[str, Any], sizes: tuple[int, int]) -> AsyncGenerator[bytes, None]:
        """The events of a stream at the rule's pace; as with vLLM the headers are out before the request has its slot."""
        if self.record.cached:
            for _, event in wire.events(reply, self.body, head, sizes):
                yield event
            return
        async with self._worked_on():
            since = now()
            for share, event in wire.events(reply, self.body, head, sizes):
                await self._pause(share * sizes[1], since)
                yield event

    def _over_window(self) -> bool:
        """Refuse a chat that does not fit the window, in the script's words or in vLLM's."""
        window, prompt, room = self.script.window, self.record.prompt_tokens, self.record.max_tokens or 0
        if not window or (prompt < window and prompt + room <= window):
            return False
        message = (
            "This model's maximum context length is {window} tokens. However, you requested {room} output tokens and your prompt contains "
            "{prompt} input tokens, for a total of {total} tokens."
        )
        refusal = self.script.get("over_window", {"status": 400, "body": wire.error(400, message)})
        sizes = {"window": window, "prompt": prompt, "room": room, "total": prompt + room}
        self.record.rule = "over_window"
        self.send(int(refusal.get("status", 400)), filled_in(refusal.get("body", ""), sizes), JSON | refusal.get("headers", {}))
        return True

    def _grammar_refused(self, call: Call) -> bool:
        refused = call.form == "grammar" and self.player.on_grammar is None and self.script.get("grammar") == "refuse"
        if refused:
            self.send(400, wire.error(400, "Grammars are not supported by this server."))
        return refused

    # --- embeddings and tokens

    async def _embed(self) -> None:
        record, script = self.record, self.script
        given = self.body.get("input", [])
        texts = [given] if isinstance(given, str) else [one if isinstance(one, str) else str(one) for one in given]
        counts = [script.count.text(text) for text in texts]
        record.prompt, record.prompt_tokens = "\n".join(texts), sum(counts)
        key = (self.request.path, self.request.body)
        if script.get("proxy_cache") and key in self.player.cache:
            record.cached = True
            self.send(200, self.player.cache[key][0])
            return
        self._choose(Prompt([{"role": "user", "content": record.prompt}]))
        if await self._ended_early():
            return
        async with self._worked_on():
            if self._scripted():
                return
            limit, model = script.get("embed_limit_tokens"), script.embedder(record.model, self.player.run)
            if model is None:
                self.send(404, wire.error(404, f"The model `{record.model}` does not exist.", "NotFoundError"))
            elif limit and max(counts, default=0) > limit:
                words = f"This model's maximum context length is {limit} tokens. However, your prompt contains {max(counts)} input tokens."
                self.send(400, wire.error(400, words))
            else:
                vectors = embed(texts, model, script.get("embed_rules", []))
                form = self.body.get("encoding_format", "float")
                data = [{"object": "embedding", "index": n, "embedding": encoded(v, form)} for n, v in enumerate(vectors)]
                reply = {"object": "list", "model": record.model, "data": data, "usage": wire.usage(record.prompt_tokens, 0)}
                self.send(200, reply)
                if script.get("proxy_cache"):
                    self.player.cache[key] = (reply, {})

    async def _tokenize(self) -> None:
        """Count tokens; a token's id is the code point of its first character, so that single letters have ids of their own."""
        if not self.script.get("tokenize"):
            self.send(404, {"detail": "Not Found"})
            return
        chat = Prompt(self.body.get("messages") or [])
        text = str(self.body.get("prompt", chat.text))
        count = self.script.count.messages(chat.contents) if "messages" in self.body else self.script.count.text(text)
        self.record.prompt, self.record.prompt_tokens = text, count
        self._choose(Prompt([{"role": "user", "content": text}]))
        if await self._ended_early():
            return
        await self.player.sleep(self.do.get("delay_s", 0))
        if not self._scripted():
            tokens = [ord(text[min(number * len(text) // count, len(text) - 1)]) if text else 0 for number in range(count)]
            self.send(200, {"count": count, "max_model_len": self.script.window or 32768, "tokens": tokens, "token_strs": None})
