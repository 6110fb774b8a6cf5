"""Drives chunking over a collection: no model, no state, a moment per document."""

from collections.abc import Callable, Iterable
from pathlib import Path

from graphrag_local.chunks.split import split
from graphrag_local.flow import Progress
from graphrag_local.records import Chunk, Document
from graphrag_local.settings import ChunksSettings

STAGE = "chunks"


def build_chunks(
    documents: Iterable[Document], settings: ChunksSettings, models: Path, *, progress: Progress, go_on: Callable[[], None] = lambda: None
) -> tuple[Chunk, ...]:
    """The chunks of all documents, by path and then by place; `models` is the models folder, read for `window` only.

    `go_on` is called before each document and may raise, to stop.
    """
    ordered = sorted(documents, key=lambda document: document.path)
    progress.begin(STAGE, len(ordered))
    chunks: list[Chunk] = []
    for document in ordered:
        go_on()
        chunks += split(document, settings, models)
        progress.advance(STAGE, done=1)
    return tuple(chunks)
