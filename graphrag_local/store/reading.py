"""A published generation as questions see it: its records as lists, read once, and its nearest vectors."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from graphrag_local.records import Chunk, Claim, Community, Document, Entity, Failed, Mention, RecordKind, Relationship, Report, Vector
from graphrag_local.store.generations import Generation, open_current, open_generation
from graphrag_local.store.lance import Tables
from graphrag_local.store.snapshot import Snapshot
from graphrag_local.store.tables import TABLES

R = TypeVar("R")
_KINDS: dict[str, type] = {"chunk": Chunk, "entity": Entity, "report": Report}


class StoredIndex:
    """One open generation; it stays as it is, whatever is published meanwhile, until `close`."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._tables = Tables.of(generation)
        self._lists: dict[type, Sequence[Any]] = {}
        self.memo: dict[Any, Any] = {}

    @classmethod
    def open(cls, index: Path, id_: str = "") -> Self:
        """The current generation, or the one of this id; raises IndexMissing, IndexCorrupt, IndexMismatch, or UsageError where there is none of that id."""
        generation = open_generation(index, id_) if id_ else open_current(index)
        try:
            return cls(generation)
        except BaseException:
            generation.close()
            raise

    def close(self) -> None:
        """Let the generation go."""
        self._generation.close()

    @property
    def generation(self) -> str:
        """Id of the generation."""
        return self._generation.id

    @property
    def manifest(self) -> dict[str, Any]:
        """Its manifest."""
        return dataclasses.asdict(self._generation.manifest)

    def _all(self, record: type[R]) -> Sequence[R]:
        if record not in self._lists:
            self._lists[record] = self._tables.records(record)
        return self._lists[record]

    def documents(self) -> Sequence[Document]:
        """All documents."""
        return self._all(Document)

    def chunks(self) -> Sequence[Chunk]:
        """All chunks."""
        return self._all(Chunk)

    def entities(self) -> Sequence[Entity]:
        """All entities."""
        return self._all(Entity)

    def relationships(self) -> Sequence[Relationship]:
        """All relationships."""
        return self._all(Relationship)

    def claims(self) -> Sequence[Claim]:
        """All claims."""
        return self._all(Claim)

    def communities(self) -> Sequence[Community]:
        """All communities."""
        return self._all(Community)

    def reports(self) -> Sequence[Report]:
        """The reports that are written."""
        return self._all(Report)

    def mentions(self) -> Sequence[Mention]:
        """Every tie between a record and the words it came from."""
        return self._all(Mention)

    def failures(self) -> Sequence[Failed]:
        """What failed in the build that made this generation."""
        return self._all(Failed)

    def near(self, kind: str, vector: Sequence[float], k: int) -> list[tuple[str, float]]:
        """Ids and cosine similarities of the k nearest records of a kind, best first."""
        return self._tables.near(_KINDS[kind], vector, k)


def snapshot_of(generation: Generation) -> Snapshot:
    """Everything that an open generation holds, with its vectors; raises IndexCorrupt."""
    tables = Tables.of(generation)
    rows: dict[str, Any] = {name: tuple(tables.records(record)) for name, record in TABLES.items()}
    vectors: list[Vector] = []
    for kind, record in _KINDS.items():
        found = tables.vectors(record)
        vectors += [
            Vector(owner_id=id_, owner_kind=cast("RecordKind", kind), text_hash=text, values=tuple(numbers))
            for id_, text, numbers in zip(found.ids, found.texts, found.matrix.tolist(), strict=True)
        ]
    return Snapshot(**rows, vectors=tuple(vectors), dimension=generation.manifest.dimension)
