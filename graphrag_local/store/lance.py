"""LanceDB tables of one generation: written once, in one commit each, and read from then on; nothing else imports lancedb.

Vector search is exhaustive, in LanceDB itself: exact, without an index to build, sync or forget in; 100,000 vectors of 384 numbers take about
0.2 s, little beside one call to a model. An approximate index pays above that, and would make two builds of the same rows answer differently.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import lancedb
import numpy as np
import pyarrow as pa

from graphrag_local.errors import IndexCorrupt
from graphrag_local.store.files import os_error_number, storage, storage_error
from graphrag_local.store.generations import Generation
from graphrag_local.store.manifest import REPAIR
from graphrag_local.store.tables import VECTOR, VECTOR_TEXT, Matrix, hints, table_name, to_records, to_vectors

R = TypeVar("R")
_SUFFIX = ".lance"
_DISTANCE = "_distance"


def folder_name(table: str) -> str:
    """The folder of a table, inside its generation's."""
    return table + _SUFFIX


def write(folder: Path, name: str, table: pa.Table) -> int:
    """Make a new table in `folder` (one commit, nothing synced) and return its version; raises StorageError."""
    with storage(folder):
        try:
            # "null": rows without a vector keep their null; `tables.to_arrow` has already refused vectors that are not finite
            return int(lancedb.connect(folder).create_table(name, table, on_bad_vectors="null").version)
        except RuntimeError as error:
            number = os_error_number(str(error))
            raise (storage_error(number, folder / folder_name(name)) if number else error) from error


def literal(text: str) -> str:
    """A string as LanceDB's filters want it. Filters have no parameters: this is the only way into one."""
    return "'" + text.replace("'", "''") + "'"


def among(column: str, values: Iterable[str]) -> str:
    """The filter "this column is one of these values"."""
    return f"{column} IN ({', '.join(map(literal, values)) or 'NULL'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """Vectors of a table's rows: `matrix[i]` belongs to `ids[i]` and was made from the text with the hash `texts[i]`."""

    ids: list[str]
    texts: list[str]
    matrix: Matrix


class Tables:
    """The tables of one generation, by type of record; safe to use from several threads.

    Rows come in the order of their ids. Raises IndexCorrupt where a table is missing or not the one that was published.
    """

    def __init__(self, folder: Path, versions: Mapping[str, int]) -> None:
        self._database = lancedb.connect(folder)
        self._folder = folder
        self._open = {name: self._checked(name, version) for name, version in versions.items()}

    @classmethod
    def of(cls, generation: Generation) -> Self:
        """The tables of an open generation; they are valid as long as it stays open."""
        return cls(generation.folder, {name: entry.version for name, entry in generation.manifest.tables.items()})

    def _checked(self, name: str, version: int) -> Any:
        try:
            table = self._database.open_table(name)
            found = table.version
        except (ValueError, RuntimeError, OSError) as error:
            raise IndexCorrupt(f"The table {self._folder / folder_name(name)} cannot be opened: {_first_line(error)}.", hint=REPAIR) from error
        if found != version:
            raise IndexCorrupt(f"The table {self._folder / folder_name(name)} is at version {found}, not at {version}.", hint=REPAIR)
        return table

    def _read(self, record: type, filter_: str | None, columns: Sequence[str] | None) -> pa.Table:
        name = table_name(record)
        query = self._open[name].search()
        query = query.where(filter_) if filter_ else query
        query = query.select(list(columns)) if columns else query
        try:
            return query.to_arrow()
        except (ValueError, RuntimeError, OSError) as error:
            raise IndexCorrupt(f"The table {self._folder / folder_name(name)} cannot be read: {_first_line(error)}.", hint=REPAIR) from error

    def count(self, record: type) -> int:
        """How many rows there are."""
        return int(self._open[table_name(record)].count_rows())

    def records(self, record: type[R]) -> list[R]:
        """Every row."""
        return to_records(record, self._read(record, None, list(hints(record))))

    def rows(self, record: type[R], values: Iterable[str], *, by: str = "id") -> list[R]:
        """The rows whose field `by` is one of these values; unknown values have none."""
        return to_records(record, self._read(record, among(_field(record, by), sorted(set(values))), list(hints(record))))

    def columns(self, record: type, names: Sequence[str]) -> dict[str, list[Any]]:
        """Some fields of every row, as one list per field; cheaper than whole records (a nested record comes as a dict)."""
        table = self._read(record, None, [_field(record, name) for name in names])
        return {name: table.column(name).to_pylist() for name in names}

    def vectors(self, record: type) -> Vectors:
        """The vectors of every row that has one."""
        ids, texts, matrix = to_vectors(self._read(record, None, ["id", VECTOR_TEXT, VECTOR] if self._has_vectors(record) else ["id"]))
        return Vectors(ids=ids, texts=texts, matrix=matrix)

    def near(self, record: type, vector: Sequence[float], k: int, *, ids: Iterable[str] | None = None) -> list[tuple[str, float]]:
        """The `k` rows (among `ids`, where given) whose vectors are nearest, as (id, cosine similarity), best first, equals by id.

        Rows without a vector are never found. Raises ValueError for a vector of another dimension than the index's.
        """
        if not self._has_vectors(record) or k < 1:
            return []
        table = self._open[table_name(record)]
        size = table.schema.field(VECTOR).type.list_size
        if len(vector) != size:
            raise ValueError(f"the question's vector has {len(vector)} numbers, the index holds vectors of {size}")
        limit, total = k + 8, table.count_rows()
        query = table.search(np.asarray(vector, np.float32), vector_column_name=VECTOR).distance_type("cosine")
        query = query.where(among("id", sorted(set(ids))), prefilter=True) if ids is not None else query
        while True:
            found = query.limit(limit).select(["id", _DISTANCE]).to_arrow()
            hits = sorted(zip(found.column(_DISTANCE).to_pylist(), found.column("id").to_pylist(), strict=True))
            # which of equally near rows come first is not LanceDB's to choose: look on until the k-th is better than the last
            if len(hits) < limit or limit >= total or hits[k - 1][0] < hits[-1][0]:
                return [(id_, 1.0 - distance) for distance, id_ in hits[:k]]
            limit *= 4

    def _has_vectors(self, record: type) -> bool:
        return VECTOR in self._open[table_name(record)].schema.names


def _field(record: type, name: str) -> str:
    if name not in hints(record):
        raise ValueError(f"{record.__name__} has no field {name}")
    return name


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(", /")[0].rstrip(".")
