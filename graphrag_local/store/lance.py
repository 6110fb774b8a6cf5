"""LanceDB tables of one generation: written once, in one commit each, and read from then on; nothing else imports lancedb.

Vector search is exhaustive, in LanceDB itself: exact, without an index to build, sync or forget in; 100,000 vectors of 384 numbers take about
0.2 s, little beside one call to a model. An approximate index pays above that, and would make two builds of the same rows answer differently.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphrag_local.errors import IndexCorrupt
from graphrag_local.store.files import os_error_number, storage, storage_error
from graphrag_local.store.generations import Generation
from graphrag_local.store.manifest import REPAIR
from graphrag_local.store.needles import Column, Numbers
from graphrag_local.store.tables import VECTOR, VECTOR_TEXT, Matrix, hints, table_name, to_records, to_vectors

R = TypeVar("R")
_SUFFIX = ".lance"
_DISTANCE = "_distance"
_DAMAGE = (ValueError, RuntimeError, OSError, LookupError, TypeError, ArithmeticError, MemoryError, pa.ArrowException)


def _connected(folder: Path) -> Any:
    """The database in a folder; its library is imported with the first, for that takes longer than a question that needs no table."""
    import lancedb

    return lancedb.connect(folder)


def folder_name(table: str) -> str:
    """The folder of a table, inside its generation's."""
    return table + _SUFFIX


def write(folder: Path, name: str, table: pa.Table) -> int:
    """Make a new table in `folder` (one commit, nothing synced) and return its version; raises StorageError."""
    with storage(folder):
        try:
            # "null": rows without a vector keep their null; `tables.to_arrow` has already refused vectors that are not finite
            return int(_connected(folder).create_table(name, table, on_bad_vectors="null").version)
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
        self._database = _connected(folder)
        self._folder = folder
        self._open = {name: self._checked(name, version) for name, version in versions.items()}

    @classmethod
    def of(cls, generation: Generation) -> Self:
        """The tables of an open generation; they are valid as long as it stays open."""
        return cls(generation.folder, {name: entry.version for name, entry in generation.manifest.tables.items()})

    def _checked(self, name: str, version: int) -> Any:
        with self._sound(name, "opened"):
            table = self._database.open_table(name)
            found = table.version
        if found != version:
            raise IndexCorrupt(f"The table {self._folder / folder_name(name)} is at version {found}, not at {version}.", hint=REPAIR)
        return table

    def _read(self, record: type, filter_: str | None, columns: Sequence[str] | None) -> pa.Table:
        query = self._open[table_name(record)].search()
        query = query.where(filter_) if filter_ else query
        query = query.select(list(columns)) if columns else query
        return query.to_arrow()

    @contextmanager
    def _sound(self, name: str, done: str = "read") -> Iterator[None]:
        """What Lance and Arrow raise on files that were altered under an unchanged stamp, which can be nearly anything, as IndexCorrupt."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, _DAMAGE) and type(error).__name__ != "PanicException":  # a panic in Rust is a BaseException of its own
                raise
            raise IndexCorrupt(f"The table {self._folder / folder_name(name)} cannot be {done}: {_first_line(error)}.", hint=REPAIR) from error

    def count(self, record: type) -> int:
        """How many rows there are."""
        with self._sound(table_name(record)):
            return int(self._open[table_name(record)].count_rows())

    def records(self, record: type[R]) -> list[R]:
        """Every row."""
        with self._sound(table_name(record)):
            return to_records(record, self._read(record, None, list(hints(record))))

    def arrow(self, record: type) -> pa.Table:
        """Every row with its vector, as Arrow has it."""
        with self._sound(table_name(record)):
            return self._read(record, None, None)

    def rows(self, record: type[R], values: Iterable[str], *, by: str = "id") -> list[R]:
        """The rows whose field `by` is one of these values; unknown values have none."""
        filter_ = among(_field(record, by), sorted(set(values)))
        with self._sound(table_name(record)):
            return to_records(record, self._read(record, filter_, list(hints(record))))

    def columns(self, record: type, names: Sequence[str]) -> dict[str, list[Any]]:
        """Some fields of every row, as one list per field; cheaper than whole records (a nested record comes as a dict)."""
        fields = [_field(record, name) for name in names]
        with self._sound(table_name(record)):
            table = self._read(record, None, fields)
            return {name: table.column(name).to_pylist() for name in names}

    def vectors(self, record: type) -> Vectors:
        """The vectors of every row that has one."""
        with self._sound(table_name(record)):
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
        limit, total = k + 8, self.count(record)
        query = table.search(np.asarray(vector, np.float32), vector_column_name=VECTOR).distance_type("cosine")
        query = query.where(among("id", sorted(set(ids))), prefilter=True) if ids is not None else query
        while True:
            with self._sound(table_name(record)):
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


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].partition(", /")[0].rstrip(".")


# What `scan` reads: tables of any kind and version, wherever they lie


def versions(folder: Path) -> list[int]:
    """The versions of the table in this folder that can be read, oldest first; raises IndexCorrupt."""
    with _decodable(folder):
        return sorted(int(version["version"]) for version in _table(folder).list_versions())


def texts(folder: Path, version: int) -> Iterator[Column]:
    """Every text and every run of bytes in one version of a table, also those inside lists and records; raises IndexCorrupt."""
    with _decodable(folder):
        table = _table(folder)
        table.checkout(version)
        for field in table.schema:
            if _holds_text(field.type):
                column = table.search().select([field.name]).to_arrow().column(field.name).combine_chunks()
                yield from _leaves(field.name, column, np.arange(len(column)))


def _table(folder: Path) -> Any:
    return _connected(folder.parent).open_table(folder.name.removesuffix(_SUFFIX))


@contextmanager
def _decodable(folder: Path) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if not isinstance(error, _DAMAGE) and type(error).__name__ != "PanicException":
            raise
        raise IndexCorrupt(f"The table {folder} cannot be read: {_first_line(error)}.", hint=REPAIR) from error


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_text(kind.field(number).type) for number in range(kind.num_fields))
    return not pa.types.is_primitive(kind) and not pa.types.is_null(kind)


def _leaves(name: str, values: pa.Array, rows: Numbers) -> Iterator[Column]:
    """The texts below a column; `rows[i]` is the row of the table that `values[i]` belongs to."""
    kind = values.type
    if pa.types.is_struct(kind):
        for number, inner in enumerate(values.flatten()):
            yield from _leaves(f"{name}.{kind.field(number).name}", inner, rows)
    elif pa.types.is_nested(kind):  # a list of some sort; what is none raises
        yield from _leaves(name, pc.list_flatten(values), rows[pc.list_parent_indices(values).to_numpy(zero_copy_only=False)])
    elif _holds_text(kind) and len(values):
        plain = values.cast(pa.large_binary())
        _, offsets, data = plain.buffers()
        ends = np.frombuffer(offsets, np.int64, len(plain) + 1, plain.offset * 8)
        yield Column(name=name, data=memoryview(data) if data else b"", offsets=ends, rows=rows)


def unzstd(stream: IO[bytes]) -> bytes:
    """What a zstd stream holds (Arrow brings the library); raises OSError for one that is broken."""
    return bytes(pa.CompressedInputStream(stream, "zstd").read())
