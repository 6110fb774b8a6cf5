"""Drives extraction over a collection: chunks of all documents at once, each document settled as soon as its own chunks are read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from graphrag_local.engine.base import Model, Tagger
from graphrag_local.errors import EngineHung, EngineRefused, reason_of
from graphrag_local.extraction.canonical import make_canonical
from graphrag_local.extraction.extract import Extractor, extract_chunk
from graphrag_local.extraction.fast import extract_fast
from graphrag_local.extraction.ground import settle
from graphrag_local.flow import Progress, for_each, in_thread
from graphrag_local.prompting import Prompt
from graphrag_local.records import Chunk, Extraction, Failed
from graphrag_local.settings import ExtractionSettings

STAGE = "extraction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """The extractions in the order of their chunks, and what failed. `quote` says that descriptions are quotes."""

    extractions: tuple[Extraction, ...]
    failures: tuple[Failed, ...]
    quote: bool


async def extract(
    chunks: Sequence[Chunk],
    paths: dict[str, str],
    model: Model,
    prompts: dict[str, Prompt],
    settings: ExtractionSettings,
    *,
    progress: Progress,
    limit: int,
) -> Extracted:
    """The extractions of all chunks (sorted by document, then place); `paths` maps document ids to paths for messages."""
    if settings.method == "fast":
        return await _fast(chunks, model.tagger, settings, progress)
    extractor = Extractor(model=model, prompt=prompts["extract"], glean_prompt=prompts["glean"], settings=settings)
    if chunks:
        extractor.check_window()
    groups = [list(group) for _, group in groupby(chunks, key=lambda chunk: chunk.document_id)]
    open_chunks = {group[0].document_id: len(group) for group in groups}
    found: dict[str, Extraction] = {}
    failures: list[Failed] = []
    progress.begin(STAGE, len(chunks))
    by_document = {group[0].document_id: group for group in groups}

    async def one(chunk: Chunk) -> None:
        failed = await _one_chunk(chunk, extractor, found)
        failures.extend(replace(f, input=f"{paths.get(chunk.document_id, chunk.document_id)}, {f.input}") for f in failed)
        progress.advance(STAGE, done=not failed, failed=bool(failed))
        open_chunks[chunk.document_id] -= 1
        if open_chunks[chunk.document_id] == 0:
            await _settle(by_document[chunk.document_id], extractor, prompts["canonical"], found, failures, paths)

    await for_each(chunks, one, limit=limit)
    order = [chunk.id for chunk in chunks if chunk.id in found]
    failures.sort(key=lambda failure: (failure.input, failure.input_id, failure.reason))
    return Extracted(extractions=tuple(found[key] for key in order), failures=tuple(failures), quote=extractor.quote)


async def _fast(chunks: Sequence[Chunk], tagger: Tagger | None, settings: ExtractionSettings, progress: Progress) -> Extracted:
    """The same without a model."""
    progress.begin(STAGE, len(chunks))
    found = await in_thread(lambda go_on: extract_fast(chunks, tagger, settings, advance=lambda: progress.advance(STAGE, done=1), go_on=go_on))
    return Extracted(extractions=found, failures=(), quote=True)


async def _one_chunk(chunk: Chunk, extractor: Extractor, found: dict[str, Extraction]) -> tuple[Failed, ...]:
    try:
        found[chunk.id], failed = await extract_chunk(chunk, extractor)
    except (EngineHung, EngineRefused) as error:
        hung = isinstance(error, EngineHung)
        return (Failed(stage=STAGE, input_id=chunk.id, input=f"chunk {chunk.index + 1}", reason=reason_of(error), retryable=hung),)
    return failed


async def _settle(group: list[Chunk], extractor: Extractor, prompt: Prompt, found: dict[str, Extraction], failures: list[Failed], paths: dict[str, str]) -> None:
    """Names kept apart or used, and made canonical, once all chunks of a document are there."""
    extractions = settle([found[chunk.id] for chunk in group if chunk.id in found])
    if extractor.settings.canonical and extractions:
        extractions, error = await make_canonical(group, extractions, extractor.model, prompt)
        if error is not None:
            document = group[0].document_id
            reason = f"the names of this document stay as they are: {reason_of(error)}"
            where = paths.get(document, document)
            failures.append(Failed(stage="canonical names", input_id=document, input=where, reason=reason, retryable=error.retryable))
    found.update({extraction.chunk_id: extraction for extraction in extractions})
