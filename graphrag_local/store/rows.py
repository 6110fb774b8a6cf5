"""The rows of a table as questions read them: one at a time, from an uncompressed Arrow file in memory-mapped arrays (see `derived`).

LanceDB takes a millisecond to fetch a row and five for two hundred; a question wants some hundreds, of half a dozen tables. Vectors come as
a matrix of their own, over which the search is one product: exhaustive and exact, as LanceDB's is, in a tenth of the time. What a product costs is
the reading of the matrix, so a large one has a narrow one beside it, that of its vectors in the directions in which they differ most: it bounds each
similarity from above, and only rows that may be among the best are read.
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
    return TablePart(name=f"vectors-of-{table}", of=(table,), make=_vectors, form="2")


def _rows(table: pa.Table) -> Arrays:
    plain = table.select([name for name in table.column_names if name not in (VECTOR, VECTOR_TEXT)]).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, plain.schema) as file:
        file.write_table(plain)
    return {"rows": np.frombuffer(sink.getvalue(), np.uint8)}


def _vectors(table: pa.Table) -> Arrays:
    """The ids of the rows that have a vector, their vectors, the lengths of these, and what bounds a similarity (see `_bounds`)."""
    if VECTOR not in table.column_names:
        none = np.zeros((0, 0), np.float32)
        return {"ids": np.zeros(0, "S1"), "matrix": none, "length": np.zeros(0), **_bounds(none, np.zeros(0))}
    table = table.select(["id", VECTOR]).combine_chunks()
    table = table.filter(table.column(VECTOR).is_valid()).combine_chunks()
    ids = [id_.encode("utf-8") for id_ in table.column("id").to_pylist()]
    size = table.schema.field(VECTOR).type.list_size
    vectors = table.column(VECTOR)
    flat = vectors.chunk(0).flatten().to_numpy(zero_copy_only=False) if len(ids) else np.zeros(0, np.float32)
    matrix = np.ascontiguousarray(flat, np.float32).reshape(-1, size)
    length = np.maximum(np.sqrt(np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64)), _TINY)
    return {"ids": np.array(ids or [b""], "S")[: len(ids)], "matrix": matrix, "length": length, **_bounds(matrix, length)}


def _bounds(matrix: npt.NDArray[np.float32], length: npt.NDArray[np.float64]) -> Arrays:
    """The vectors in few of their directions ("head"), those directions, and the length of what each vector has in the others ("tail").

    With a question's head and tail a similarity is at most head . head + tail * tail (Cauchy and Schwarz). The directions are those of the greatest
    variance in a sample; whichever they are, what is found is the same. There are none of a small matrix.
    """
    rows, size = matrix.shape
    width = size // NARROW if rows >= LARGE else 0
    sample = matrix[:: -(-rows // SAMPLE) or 1] / length[:: -(-rows // SAMPLE) or 1, None] if width else np.zeros((0, size))
    if not width or not np.isfinite(sample).all():
        return {"head": np.zeros((rows, 0), np.float32), "tail": np.zeros(0, np.float32), "directions": np.zeros((size, 0), np.float32)}
    directions = np.ascontiguousarray(np.linalg.eigh(sample.T @ sample)[1][:, : -width - 1 : -1], np.float32)
    head = (matrix @ directions) / length[:, None].astype(np.float32)
    tail = np.sqrt(np.maximum(1 - np.einsum("ij,ij->i", head, head, dtype=np.float64), 0))
    return {"head": head, "tail": tail.astype(np.float32), "directions": directions}


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
        self._head, self._tail, self._directions = kept["head"], kept["tail"], kept["directions"]

    def near(self, vector: Sequence[float], k: int) -> list[tuple[str, float]]:
        """The k rows nearest, as (id, cosine similarity), best first, equals by id; raises ValueError for a vector of another dimension."""
        if not len(self._ids) or k < 1:
            return []
        if len(vector) != self._matrix.shape[1]:
            raise ValueError(f"the question's vector has {len(vector)} numbers, the index holds vectors of {self._matrix.shape[1]}")
        wanted = np.asarray(vector, np.float64)
        wanted /= np.sqrt(wanted @ wanted) or 1.0
        some = self._likely(wanted, k)
        rough = self._rough(wanted, some)
        some = np.arange(len(rough)) if some is None else some
        if len(rough) > k:
            some = some[rough >= np.partition(rough, len(rough) - k)[len(rough) - k] - _ROUGH]
        exact = np.round(np.einsum("ij,j->i", self._matrix[some].astype(np.float64), wanted) / self._length[some], _DIGITS)
        order = np.lexsort((some, -exact))[:k]
        return [(self._ids[some[place]].decode(), float(exact[place])) for place in order.tolist()]

    def _rough(self, wanted: npt.NDArray[np.float64], some: npt.NDArray[np.intp] | None) -> npt.NDArray[np.float64]:
        """The similarities of these rows (None: of all) in single precision."""
        # Not `@`: the BLAS library starts threads for it, which cost more than they bring, and is half as fast on rows in a file.
        matrix, length = (self._matrix, self._length) if some is None else (self._matrix[some], self._length[some])
        rough: npt.NDArray[np.float64] = np.einsum("ij,j->i", matrix, wanted.astype(np.float32)) / length
        return rough

    def _likely(self, wanted: npt.NDArray[np.float64], k: int) -> npt.NDArray[np.intp] | None:
        """The rows that may be among the k nearest, in order; None where they are so many that all may as well be read."""
        rows = len(self._tail)
        blocks = rows // BLOCK
        if blocks < BLOCKS * k:
            return None
        head = np.einsum("ij,i->j", self._directions, wanted)
        most = np.einsum("ij,j->i", self._head, head.astype(np.float32))
        most += self._tail * np.float32(np.sqrt(max(1 - float(head @ head), 0.0)))
        # Of the blocks with the greatest bounds the rows that have them: the k-th best of these is no better than the k-th best of all.
        whole = most[: blocks * BLOCK].reshape(BLOCK, blocks)
        best = np.argpartition(whole.max(axis=0), blocks - BLOCKS * k)[blocks - BLOCKS * k :]
        known = self._rough(wanted, whole[:, best].argmax(axis=0) * blocks + best)
        some = np.flatnonzero(most >= np.partition(known, len(known) - k)[len(known) - k] - _ROUGH)
        return some if len(some) * FEW <= rows else None


LARGE = 4096  # rows of a matrix that has a narrow one beside it
NARROW = 3  # times that this is narrower
SAMPLE = 4096  # rows by which its directions are chosen
BLOCK, BLOCKS = 32, 2  # rows of which one is tried, and such blocks for each row that is wanted
FEW = 4  # a part of the rows that is read one by one; more are read as fast all together
_TINY = 1e-30  # the length of a vector without any
_ROUGH = 1e-4  # what single precision may be wrong by, with much to spare
_DIGITS = 12  # of a similarity: what differs less is equal
