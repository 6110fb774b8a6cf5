"""An engine that asks once: every reply is written down with its outcome before it is used, and answers the same request from then on.

Only here are replies judged. Of a reply that cannot be used the beginning is written down too, so that the next run takes the same branch without
asking again; a server's faults are not.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from graphrag_local.engine.base import Engine, ModelCard, Reply, Request, judge
from graphrag_local.errors import GraphragError, ReplyInvalid
from graphrag_local.ids import fingerprint
from graphrag_local.records import LedgerRow, Outcome, Usage

BEGINNING = 80  # characters that are kept of a reply that cannot be used, for people
_AROUND = " \t\r\n\"'"


class ReplyLedger(Protocol):
    """Where replies are kept (see `store.ledger`)."""

    def get(self, key: str) -> LedgerRow | None:
        """The row of a key."""

    async def put(self, row: LedgerRow) -> None:
        """Keep a row, in place of an older one of its key; returns when it is durable."""

    async def link(self, groups: Mapping[str, Iterable[tuple[str, ...]]]) -> None:
        """Add groups of documents to the rows of these keys; returns when they are durable."""


class Meter:
    """What the model cost, by purpose; `replayed` counts replies that cost nothing, `wasted` the tokens of replies that could not be used."""

    def __init__(self) -> None:
        self.by_purpose: dict[str, Usage] = defaultdict(Usage)
        self.replayed = 0
        self.wasted = 0

    @property
    def total(self) -> Usage:
        """The sum over all purposes."""
        return sum(self.by_purpose.values(), Usage())

    def add(self, purpose: str, usage: Usage, outcome: Outcome) -> None:
        """Count a reply that was paid for."""
        self.by_purpose[purpose] += usage
        if outcome != "ok":
            self.wasted += usage.completion_tokens


@dataclass(slots=True)
class _Flight:
    """A request that is being asked; those who ask the same wait for `done`. Neither row nor error: whoever asked was cancelled."""

    done: asyncio.Event = field(default_factory=asyncio.Event)
    row: LedgerRow | None = None
    reply: Reply | None = None
    error: GraphragError | None = None


class Ledgered:
    """Wraps an engine. Without a ledger it still judges, counts, and asks identical requests in flight once.

    `retry` are the outcomes that are asked again although the ledger has them (`--retry-failed`). With a ledger, `used` are the keys of all replies
    given so far, and `missing_links` the groups of documents for which a reply was replayed that the ledger does not know of (see `save_links`).
    """

    def __init__(self, inner: Engine, ledger: ReplyLedger | None, retry: frozenset[Outcome] = frozenset(), meter: Meter | None = None) -> None:
        self.inner = inner
        self.meter = meter or Meter()
        self.used: set[str] = set()
        self.missing_links: dict[str, set[tuple[str, ...]]] = {}
        self._ledger = ledger
        self._retry = retry
        self._flights: dict[str, _Flight] = {}

    @property
    def card(self) -> ModelCard:
        """The inner engine's."""
        return self.inner.card

    async def close(self) -> None:
        """Close the inner engine."""
        await self.inner.close()

    async def save_links(self) -> None:
        """Write down the missing links; does nothing where none is missing."""
        if self._ledger is None or not self.missing_links:
            return
        saved = {key: frozenset(groups) for key, groups in self.missing_links.items()}
        await self._ledger.link(saved)
        left = {key: groups - saved.get(key, frozenset()) for key, groups in self.missing_links.items()}
        self.missing_links = {key: groups for key, groups in left.items() if groups}

    def key(self, request: Request) -> str:
        """The key of a request to this model: everything that determines the reply."""
        return fingerprint(request.key_parts() | {"model": self.card.name, "revision": self.card.revision})

    async def generate(self, request: Request) -> Reply:
        """The reply, asked for or replayed. Raises ReplyInvalid, on replay too, when it cannot be used."""
        key = self.key(request)
        while (flight := self._flights.get(key)) is not None:
            await flight.done.wait()
            if flight.error is not None:
                raise flight.error
            if flight.row is not None:
                return self._replay(request, flight.row, flight.reply)
        kept = self._ledger.get(key) if self._ledger else None
        if kept is not None and kept.outcome not in self._retry:
            return self._replay(request, kept)
        flight = self._flights[key] = _Flight()
        try:
            flight.row, flight.reply = await self._paid(key, request)
        except GraphragError as error:
            flight.error = error
            raise
        finally:
            del self._flights[key]
            flight.done.set()
        self._note(request, flight.row)
        if flight.row.outcome != "ok":
            raise _unusable(request, flight.row, flight.reply)
        return flight.reply

    async def recall(self, request: Request) -> Reply:
        """The reply, if it was paid for; it is then as much used as any other. Raises ReplyInvalid where there is none."""
        kept = self._ledger.get(self.key(request)) if self._ledger else None
        if kept is None:
            raise ReplyInvalid(f"There is no reply to this call for {request.purpose!r}.", outcome="invalid")
        return self._replay(request, kept)

    async def _paid(self, key: str, request: Request) -> tuple[LedgerRow, Reply]:
        """Ask, judge, count, and write down before anybody uses it."""
        reply = await self.inner.generate(request)
        if request.decides:  # all of them are several times the size of the reply
            kept = tuple(pair for pair in reply.logprobs if pair[0].strip(_AROUND) in request.decides)
            reply = replace(reply, logprobs=kept)
        outcome = judge(request, reply)
        self.meter.add(request.purpose, reply.usage, outcome)
        row = LedgerRow(
            key=key,
            purpose=request.purpose,
            model=self.card.name,
            revision=self.card.revision,
            outcome=outcome,
            text=reply.text if outcome == "ok" else reply.text[:BEGINNING],
            gate=reply.gate,
            logprobs=json.dumps(reply.logprobs, ensure_ascii=False) if reply.logprobs else "",
            prompt_tokens=reply.usage.prompt_tokens,
            cached_tokens=reply.usage.cached_tokens,
            completion_tokens=reply.usage.completion_tokens,
            seconds=reply.usage.seconds,
            groups=(group,) if (group := _group(request)) else (),
        )
        if self._ledger is not None:
            await self._ledger.put(row)
        return row, reply

    def _replay(self, request: Request, row: LedgerRow, reply: Reply | None = None) -> Reply:
        """A reply that was paid for before; it costs nothing now."""
        self.meter.replayed += 1
        self._note(request, row)
        if row.outcome != "ok":
            raise _unusable(request, row, reply)
        left = request.gate is not None and row.gate is not None and row.gate < request.gate.threshold
        return Reply(
            text=row.text,
            finish_reason="gate" if left else "stop",
            gate=row.gate,
            logprobs=tuple((str(token), float(p)) for token, p in json.loads(row.logprobs or "[]")),
            replayed=True,
        )

    def _note(self, request: Request, row: LedgerRow) -> None:
        """Remember that this reply answers this request."""
        if self._ledger is not None:
            self.used.add(row.key)
            group = _group(request)
            if group and group not in row.groups:
                self.missing_links.setdefault(row.key, set()).add(group)


def _group(request: Request) -> tuple[str, ...]:
    """The documents whose text a request shows, as the ledger groups them."""
    return request.documents if len(request.documents) < 2 else tuple(sorted(set(request.documents)))


_WHY = {
    "cut_off": "was cut off before its end (its limit is {limit} tokens)",
    "loop": "repeats itself without end",
    "thinking": "is empty, or holds nothing but thoughts",
    "invalid": "does not fit what was asked",
}


def _unusable(request: Request, row: LedgerRow, reply: Reply | None) -> ReplyInvalid:
    """The error for a reply that cannot be used, the same sentence whether it came now or before."""
    why = _WHY[row.outcome].format(limit=request.max_tokens)
    begin = f"; it begins {row.text!r}" if row.text else ""
    return ReplyInvalid(f"The reply to a call for {request.purpose!r} {why}{begin}.", outcome=row.outcome, reply=reply)
