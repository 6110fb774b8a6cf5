"""Turns chunks, entities and reports into vectors; a text that was embedded before costs nothing."""

from collections.abc import Sequence
from typing import Protocol

from graphrag_local.engine.base import Embedder
from graphrag_local.flow import Progress, for_each
from graphrag_local.records import Chunk, Entity, RecordKind, Report, Vector
from graphrag_local.vectors.texts import cache_key, chunk_text, entity_text, report_text, text_hash

STAGE = "vectors"


class VectorCache(Protocol):
    """Vectors by (embedder, text hash), kept across generations."""

    def get_vectors(self, embedder: str, hashes: Sequence[str]) -> dict[str, tuple[float, ...]]:
        """The cached ones among these hashes."""

    async def put_vectors(self, embedder: str, rows: dict[str, tuple[float, ...]]) -> None:
        """Keep them, durably."""


def texts_of(chunks: Sequence[Chunk], entities: Sequence[Entity], reports: Sequence[Report]) -> list[tuple[RecordKind, str, str]]:
    """(kind, id, text) of every record that gets a vector."""
    return (
        [("chunk", chunk.id, chunk_text(chunk)) for chunk in chunks]
        + [("entity", entity.id, entity_text(entity)) for entity in entities]
        + [("report", report.id, report_text(report)) for report in reports]
    )


def without_vector(owners: Sequence[tuple[RecordKind, str, str]], embedder: Embedder, cache: VectorCache, *, prefix: str) -> list[tuple[RecordKind, str, str]]:
    """Those whose text was not embedded before: what is left out where the embedder is away."""
    if embedder.card.dimension == 0:
        return []
    known = cache.get_vectors(cache_key(embedder.card, prefix), sorted({text_hash(text) for _, _, text in owners}))
    return [owner for owner in owners if text_hash(owner[2]) not in known]


async def embed(
    owners: Sequence[tuple[RecordKind, str, str]], embedder: Embedder, cache: VectorCache, *, prefix: str, batch: int, progress: Progress
) -> tuple[Vector, ...]:
    """One vector per (kind, id, text), in that order; texts that occur twice are embedded once. Nothing when there is no embedder."""
    card = embedder.card
    if card.dimension == 0:
        return ()
    key = cache_key(card, prefix)
    hashes = [text_hash(text) for _, _, text in owners]
    known = cache.get_vectors(key, sorted(set(hashes)))
    missing = {hash_: text for hash_, (_, _, text) in zip(hashes, owners, strict=True) if hash_ not in known}
    # Texts of like length together: a batch costs as much as its longest text.
    order = sorted(missing, key=lambda hash_: (len(missing[hash_]), hash_))
    progress.begin(STAGE, len(order))

    async def one(group: list[str]) -> None:
        values = await embedder.embed([prefix + missing[hash_] for hash_ in group])
        rows = {hash_: tuple(vector) for hash_, vector in zip(group, values, strict=True)}
        await cache.put_vectors(key, rows)
        known.update(rows)
        progress.advance(STAGE, done=len(group))

    await for_each([order[at : at + batch] for at in range(0, len(order), batch)], one, limit=4)
    return tuple(Vector(owner_id=owner, owner_kind=kind, text_hash=hash_, values=known[hash_]) for (kind, owner, _), hash_ in zip(owners, hashes, strict=True))
