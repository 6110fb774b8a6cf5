"""An engine that stops at a number of tokens without losing a reply that was paid for."""

import asyncio
from collections import Counter
from collections.abc import Callable

from graphrag_local.engine.base import Engine, ModelCard, Reply, Request
from graphrag_local.errors import BudgetSpent, UsageError

ENOUGH = 8  # replies of a purpose that it takes to say how long others will be
TOKENS_PER_CHARACTER = 0.34  # of a prompt, until one was counted: more than any language in Latin letters takes


def budgeted(tokens: int) -> Callable[[Engine], "Budgeted"]:
    """What puts a limit of so many tokens around an engine; UsageError for a limit that allows nothing."""
    if tokens < 1:
        raise UsageError(f"A budget of {tokens} tokens allows nothing.", hint="Give at least one; the first call is made whatever it takes.")
    return lambda inner: Budgeted(inner, tokens)


class Budgeted:
    """Wraps an engine. Counts prompt and completion tokens of its replies, and starts no request that is expected to go over the limit.

    A request reserves what it may take: by its characters, and by the longest reply to one of its purpose (`max_tokens` for the first few).
    One that has no room waits for those in flight, which may take less than they reserved. When none is in flight and there is still no room, it
    and all others raise BudgetSpent: by then every reply has gone back to whoever asked, who writes it down at once. So the limit is passed at
    most by what replies in flight exceed their reservations. The first request is always made, so that every run gets on.
    """

    def __init__(self, inner: Engine, tokens: int) -> None:
        self.inner = inner
        self.limit = tokens
        self.used = 0
        self.calls = 0
        self._reserved = 0
        self._in_flight = 0
        self._is_spent = False
        self._changed = asyncio.Event()  # of the next reply or failure
        self._seen: Counter[str] = Counter()
        self._longest: dict[str, int] = {}
        self._per_character = TOKENS_PER_CHARACTER

    @property
    def card(self) -> ModelCard:
        """The inner engine's."""
        return self.inner.card

    async def close(self) -> None:
        """Close the inner engine."""
        await self.inner.close()

    async def generate(self, request: Request) -> Reply:
        """The inner engine's reply; raises BudgetSpent when there is no room for it."""
        reserved = await self._reserve(request)
        try:
            reply = await self.inner.generate(request)
            self._count(request, reply)
        finally:
            self._reserved -= reserved
            self._in_flight -= 1
            self._changed.set()
            self._changed = asyncio.Event()
        return reply  # without a pause since it came, so whoever asked goes on, and writes it down, before those who wait for room do

    async def _reserve(self, request: Request) -> int:
        while not self._is_spent:
            wanted = self._expected(request)
            if self.used + self._reserved + wanted <= self.limit or not (self.calls or self._in_flight):
                self._reserved += wanted
                self._in_flight += 1
                return wanted
            if self._in_flight:
                await self._changed.wait()
            else:
                self._is_spent = True
        raise BudgetSpent(
            f"The budget of {self.limit:,} tokens is spent: {self.calls:,} calls took {self.used:,}, and the next has no room. Every reply is kept.",
            hint="The same command goes on from here.",
        )

    def _expected(self, request: Request) -> int:
        reply = min(request.max_tokens, self._longest[request.purpose]) if self._seen[request.purpose] >= ENOUGH else request.max_tokens
        return int(_characters(request) * self._per_character) + reply

    def _count(self, request: Request, reply: Reply) -> None:
        usage = reply.usage
        self.calls += 1
        self.used += usage.prompt_tokens + usage.completion_tokens
        self._seen[request.purpose] += 1
        self._longest[request.purpose] = max(self._longest.get(request.purpose, 0), usage.completion_tokens)
        rate = usage.prompt_tokens / max(1, _characters(request))
        self._per_character = rate if self.calls == 1 else max(self._per_character, rate)


def _characters(request: Request) -> int:
    return sum(len(message.content) for message in request.messages)
