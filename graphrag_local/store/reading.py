"""A published generation as questions see it: its records, what is derived from them, and its nearest vectors.

What is kept beside the tables (see `derived`) is used where it is sound; else the tables are read.
"""

import contextlib
import dataclasses
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from graphrag_local.records import Chunk, Claim, Community, Document, Entity, Failed, Mention, RecordKind, Relationship, Report, Vector
from graphrag_local.store import derived, stamps
from graphrag_local.store.generations import Generation, index_of, open_current, open_generation
from graphrag_local.store.lance import Tables
from graphrag_local.store.rows import LazyRows, Vectors, rows_part, vectors_part
from graphrag_local.store.snapshot import Snapshot
from graphrag_local.store.tables import TABLES, table_name

R = TypeVar("R")
_KINDS: dict[str, type] = {"chunk": Chunk, "entity": Entity, "report": Report}


class StoredIndex:
    """One open generation; it stays as it is, whatever is published meanwhile, until `close`."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._lists: dict[type, Sequence[Any]] = {}
        self._vectors: dict[str, Vectors] = {}
        self._known = stamps.load(index_of(generation.folder))
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
        """Let the generation go, with all that is mapped of it: the blocks of removed files are free only then."""
        self._generation.close()
        for held in (self.memo, self._lists, self._vectors):
            held.clear()

    @property
    def generation(self) -> str:
        """Id of the generation."""
        return self._generation.id

    @property
    def manifest(self) -> dict[str, Any]:
        """Its manifest."""
        return dataclasses.asdict(self._generation.manifest)

    @cached_property
    def _tables(self) -> Tables:
        """The tables, whose files were all checked when the generation was opened; most questions need none (see `derived`)."""
        return Tables.of(self._generation)

    def _all(self, record: type[R]) -> Sequence[R]:
        if record not in self._lists:
            part = rows_part(table_name(record))
            kept = self._read(part)
            if kept is None and derived.place_of(self._generation.folder, part.name).exists():  # damaged
                kept = self._made(part, self._tables.arrow(record))
            self._lists[record] = self._tables.records(record) if kept is None else LazyRows(record, kept)
        return self._lists[record]

    def _read(self, part: derived.Part) -> derived.Arrays | None:
        before = len(self._known)
        found = derived.read(derived.place_of(self._generation.folder, part.name), part, self._generation.manifest.tables, self._known)
        if len(self._known) > before:
            stamps.save(index_of(self._generation.folder), self._known)
        return found

    def _made(self, part: derived.Part, source: Any) -> derived.Arrays:
        """The arrays of a part that is not there, made and, where that is possible, kept for the next reader."""
        arrays = part.make(source)
        with contextlib.suppress(OSError):
            derived.write(derived.place_of(self._generation.folder, part.name), part, self._generation.manifest.tables, arrays)
        return arrays

    def kept(self, part: derived.Part) -> derived.Arrays:
        """The arrays of a part: as they are kept beside the tables, else made from the records and kept."""
        found = self._read(part)
        if found is not None:
            return found
        for name in part.of:
            rows = rows_part(name)
            if self._read(rows) is None:
                self._made(rows, self._tables.arrow(TABLES[name]))
        return self._made(part, self)

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
        if kind not in self._vectors:
            table = table_name(_KINDS[kind])
            kept = self._read(vectors_part(table))
            self._vectors[kind] = Vectors(self._made(vectors_part(table), self._tables.arrow(_KINDS[kind])) if kept is None else kept)
        return self._vectors[kind].near(vector, k)


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
