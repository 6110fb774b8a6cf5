"""The rows of a table as questions read them: one at a time, from an uncompressed Arrow file in memory-mapped arrays (see `derived`).

LanceDB takes a millisecond to fetch a row and five for two hundred; a question wants some hundreds, of half a dozen tables. Vectors come as
a matrix of their own, over which the search is one product: exhaustive and exact, as LanceDB's is, in a tenth of the time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args, get_origin, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphrag_local.store.tables import VECTOR, VECTOR_TEXT, hints, to_records

R = TypeVar("R")
Arrays = Mapping[str, npt.NDArray[Any]]
REMEMBERED = 4096  # records of a table that were read one at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePart:
    """A part that is made from one table as it is (see `derived.Part`)."""

    name: str
    of: tuple[str, ...]
    make: Callable[[pa.Table], Arrays]
    form: str = "1"


def rows_part(table: str) -> TablePart:
    """The rows of a table, without vectors."""
    return TablePart(name=f"rows-of-{table}", of=(table,), make=_rows)


def vectors_part(table: str) -> TablePart:
    """The vectors of a table."""
    return TablePart(name=f"vectors-of-{table}", of=(table,), make=_vectors)


def _rows(table: pa.Table) -> Arrays:
    plain = table.select([name for name in table.column_names if name not in (VECTOR, VECTOR_TEXT)]).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, plain.schema) as file:
        file.write_table(plain)
    return {"rows": np.frombuffer(sink.getvalue(), np.uint8)}


def _vectors(table: pa.Table) -> Arrays:
    """The ids of the rows that have a vector, their vectors, and the lengths of these."""
    if VECTOR not in table.column_names:
        return {"ids": np.zeros(0, "S1"), "matrix": np.zeros((0, 0), np.float32), "length": np.zeros(0)}
    table = table.select(["id", VECTOR]).combine_chunks()
    table = table.filter(table.column(VECTOR).is_valid()).combine_chunks()
    ids = [id_.encode("utf-8") for id_ in table.column("id").to_pylist()]
    size = table.schema.field(VECTOR).type.list_size
    vectors = table.column(VECTOR)
    flat = vectors.chunk(0).flatten().to_numpy(zero_copy_only=False) if len(ids) else np.zeros(0, np.float32)
    matrix = np.ascontiguousarray(flat, np.float32).reshape(-1, size)
    length = np.maximum(np.sqrt(np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64)), _TINY)
    return {"ids": np.array(ids or [b""], "S")[: len(ids)], "matrix": matrix, "length": length}


class LazyRows(Sequence[R], Generic[R]):
    """The records of a table, each made when it is asked for; all at once, and kept, where they are gone through."""

    def __init__(self, record: type[R], kept: Arrays) -> None:
        self._record = record
        self._table = pa.ipc.open_file(pa.py_buffer(kept["rows"])).read_all()
        columns = [(name, _reader(hint), self._table.column(name)) for name, hint in hints(record).items()]
        self._columns = [(name, read, column.chunk(0)) for name, read, column in columns if column.num_chunks]
        self._made: dict[int, R] = {}
        self._all: list[R] | None = None

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @overload
    def __getitem__(self, number: int) -> R: ...
    @overload
    def __getitem__(self, number: slice) -> list[R]: ...
    def __getitem__(self, number: int | slice) -> R | list[R]:
        if self._all is not None or isinstance(number, slice):
            return self._read_all()[number]
        found = self._made.get(number)
        if found is None:
            if len(self._made) >= REMEMBERED:
                self._made = {}
            row = range(len(self))[number]
            found = self._made[number] = self._record(**{name: read(column[row].as_py()) for name, read, column in self._columns})
        return found

    def __iter__(self) -> Iterator[R]:
        return iter(self._read_all())

    def _read_all(self) -> list[R]:
        if self._all is None:
            self._all, self._made = to_records(self._record, self._table), {}
        return self._all


def _reader(hint: Any) -> Callable[[Any], Any]:
    """What makes a field's value of what Arrow gives."""
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        read = _reader(inner)
        return tuple if read is _same else lambda values: tuple(map(read, values))
    if isinstance(hint, type) and hint not in (str, int, float, bool):
        fields = {name: _reader(inner) for name, inner in hints(hint).items()}
        return lambda value: hint(**{name: read(value[name]) for name, read in fields.items()})
    return _same


def _same(value: Any) -> Any:
    return value


class Vectors:
    """The vectors of a table, searched exhaustively."""

    def __init__(self, kept: Arrays) -> None:
        self._ids, self._matrix, self._length = kept["ids"], kept["matrix"], kept["length"]

    def near(self, vector: Sequence[float], k: int) -> list[tuple[str, float]]:
        """The k rows nearest, as (id, cosine similarity), best first, equals by id; raises ValueError for a vector of another dimension."""
        if not len(self._ids) or k < 1:
            return []
        if len(vector) != self._matrix.shape[1]:
            raise ValueError(f"the question's vector has {len(vector)} numbers, the index holds vectors of {self._matrix.shape[1]}")
        wanted = np.asarray(vector, np.float64)
        wanted /= np.sqrt(wanted @ wanted) or 1.0
        length = self._length
        # Not `@`: the BLAS library starts threads for it, which cost more than they bring, and is half as fast on rows in a file.
        rough = np.einsum("ij,j->i", self._matrix, wanted.astype(np.float32)) / length
        some = np.arange(len(rough))
        if len(rough) > k:
            some = np.flatnonzero(rough >= np.partition(rough, len(rough) - k)[len(rough) - k] - _ROUGH)
        exact = np.round(np.einsum("ij,j->i", self._matrix[some].astype(np.float64), wanted) / length[some], _DIGITS)
        order = np.lexsort((some, -exact))[:k]
        return [(self._ids[some[place]].decode(), float(exact[place])) for place in order.tolist()]


_TINY = 1e-30  # the length of a vector without any
_ROUGH = 1e-4  # what single precision may be wrong by, with much to spare
_DIGITS = 12  # of a similarity: what differs less is equal
