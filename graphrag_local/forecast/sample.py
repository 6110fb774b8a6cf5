"""The sample of `estimate`: a few of the new chunks are really read, and what that took says what the others will take."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from graphrag_local.engine.base import Model, Reply, Request
from graphrag_local.errors import EngineHung, EngineRefused, reason_of
from graphrag_local.extraction.extract import Extractor, extract_chunk
from graphrag_local.flow import Progress, for_each
from graphrag_local.forecast.look import Looked
from graphrag_local.ids import digest_of
from graphrag_local.records import Chunk, Failed, LedgerRow
from graphrag_local.store.ledger import Ledger

STAGE = "sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What reading some chunks took: for each chunk the tokens of its replies; `tokens` in all, of which `paid` now, in so many seconds."""

    chunks: frozenset[str]
    replies: tuple[int, ...]
    calls: int
    tokens: int
    paid: int
    seconds: float
    failures: tuple[Failed, ...]

    def summary(self) -> dict[str, Any]:
        """For people."""
        return {"chunks": len(self.chunks), "calls": self.calls, "tokens": self.tokens, "paid_tokens": self.paid, "seconds": round(self.seconds, 3)}


def choose(looked: Looked, number: int) -> list[Chunk]:
    """So many of the chunks that the published index does not have, or would have anew, by a hash: the same the next time, so that they are paid for once."""
    kept = frozenset() if looked.is_redone else looked.published - looked.unasked.unread
    new = [chunk for chunk in looked.built.snapshot.chunks if chunk.id not in kept]
    return sorted(new, key=lambda chunk: digest_of("estimate", chunk.id))[:number]


async def read_sample(looked: Looked, chunks: list[Chunk], ledger: Ledger, progress: Progress) -> Sampled:
    """Ask about these chunks as a build does, all at once."""
    side = looked.side
    paths = {document.id: document.path for document in looked.built.snapshot.documents}
    asked: dict[str, dict[str, None]] = {chunk.id: {} for chunk in chunks}
    failures: list[Failed] = []
    progress.begin(STAGE, len(chunks))

    def model_for(chunk: Chunk) -> Model:
        async def generate(request: Request) -> Reply:
            asked[chunk.id][side.ledgered.key(request)] = None
            return await side.model.generate(request)

        return replace(side.model, generate=generate)

    async def one(chunk: Chunk) -> None:
        failed = await _read(chunk, _extractor(looked, model_for(chunk)))
        failures.extend(replace(row, input=f"{paths.get(chunk.document_id, chunk.document_id)}, {row.input}") for row in failed)
        progress.advance(STAGE, done=not failed, failed=bool(failed))

    before, began = side.meter.total, time.monotonic()
    await for_each(chunks, one, limit=max(1, min(len(chunks), 2 * looked.project.settings.engine.concurrency)))
    seconds, after = time.monotonic() - began, side.meter.total
    rows = {chunk: _rows(ledger, keys) for chunk, keys in asked.items()}
    read = {chunk: found for chunk, found in rows.items() if found}
    every = [row for found in read.values() for row in found]
    return Sampled(
        chunks=frozenset(read),
        replies=tuple(sum(row.completion_tokens for row in found) for found in read.values()),
        calls=len(every),
        tokens=sum(row.prompt_tokens + row.completion_tokens for row in every),
        paid=after.prompt_tokens + after.completion_tokens - before.prompt_tokens - before.completion_tokens,
        seconds=seconds,
        failures=tuple(sorted(failures, key=lambda row: (row.input, row.reason))),
    )


def _extractor(looked: Looked, model: Model) -> Extractor:
    prompts = looked.project.prompts
    return Extractor(model=model, prompt=prompts["extract"], glean_prompt=prompts["glean"], settings=looked.project.settings.extraction)


async def _read(chunk: Chunk, extractor: Extractor) -> tuple[Failed, ...]:
    try:
        return (await extract_chunk(chunk, extractor))[1]
    except (EngineHung, EngineRefused) as error:
        return (Failed(stage="extraction", input_id=chunk.id, input=f"chunk {chunk.index + 1}", reason=reason_of(error), retryable=error.retryable),)


def _rows(ledger: Ledger, keys: Iterable[str]) -> list[LedgerRow]:
    return [row for row in map(ledger.get, keys) if row is not None]
