"""Records as Arrow tables and back, for every table of a generation; written once, over the types of the records' fields.

    str, Literal -> large string (2 GB of text in a column is possible)      int -> int64      float -> double      bool -> bool
    float | None -> double, null for None      tuple[X, ...] -> list of X      a record inside a record -> struct

Work goes column by column, nested ones flattened, because that is about ten times as fast as row by row.
Chunks, entities and reports also carry their vectors: `vector` (float32, fixed length; null for none) and `vector_text`, the hash of the
text it was made from.
"""

import dataclasses
import hashlib
import json
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphrag_local.ids import digest_of, fingerprint
from graphrag_local.records import (
    AnchorCommunity,
    AnchorEdge,
    Chunk,
    Claim,
    Community,
    Document,
    Entity,
    Failed,
    Mention,
    Relationship,
    Report,
    Vector,
)

R = TypeVar("R")
Matrix = npt.NDArray[np.float32]

TABLES: Final[Mapping[str, type]] = types.MappingProxyType({
    "documents": Document, "chunks": Chunk, "mentions": Mention, "entities": Entity, "relationships": Relationship,
    "claims": Claim, "communities": Community, "reports": Report, "failures": Failed,
    "anchor_communities": AnchorCommunity, "anchor_edges": AnchorEdge,
})  # fmt: skip
VECTOR_TABLES: Final[Mapping[str, str]] = types.MappingProxyType({"chunk": "chunks", "entity": "entities", "report": "reports"})
VECTOR, VECTOR_TEXT = "vector", "vector_text"
_HINTS: dict[Any, dict[str, Any]] = {}  # read from the annotations once per record type
_BATCH = 1000  # rows encoded to JSON at a time; part of what the digest means


def table_name(record: type) -> str:
    """The name of the table that holds this type of record."""
    return next(name for name, kind in TABLES.items() if kind is record)


def hints(record: Any) -> dict[str, Any]:
    """The fields of a record in order, with their types."""
    if record not in _HINTS:
        found = get_type_hints(record)
        _HINTS[record] = {field.name: found[field.name] for field in dataclasses.fields(record)}
    return _HINTS[record]


def sort_key(record: Any) -> Callable[[Any], Any]:
    """What rows of a table are sorted by: the id, or every text field where a row has none."""
    if "id" in hints(record):
        return attrgetter("id")
    return attrgetter(*(name for name, hint in hints(record).items() if hint is str))


def ordered(record: type[R], rows: Iterable[R]) -> list[R]:
    """The rows in the order in which they are stored; raises ValueError where two have the same id."""
    result = sorted(rows, key=sort_key(record))
    if "id" in hints(record):
        ids: list[str] = list(map(attrgetter("id"), result))
        twice = next((a for a, b in pairwise(ids) if a == b), None)
        if twice is not None:
            raise ValueError(f"two rows of {record.__name__} have the id {twice}")
    return result


def _is_record(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint)


# Records to Arrow


@cache
def arrow_type(hint: Any) -> pa.DataType:
    """The Arrow type that holds a field of this type."""
    if get_origin(hint) is tuple:
        return pa.list_(arrow_type(get_args(hint)[0]))
    if get_origin(hint) is types.UnionType:
        return arrow_type(get_args(hint)[0])
    if _is_record(hint):
        return pa.struct([(name, arrow_type(inner)) for name, inner in hints(hint).items()])
    if get_origin(hint) is Literal:
        return pa.large_string()
    return {str: pa.large_string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}[hint]


def schema_of(name: str, dimension: int) -> pa.Schema:
    """The schema of a table; `dimension` is the embedder's, 0 for none."""
    fields = [(field, arrow_type(hint)) for field, hint in hints(TABLES[name]).items()]
    if dimension and name in VECTOR_TABLES.values():
        fields += [(VECTOR_TEXT, pa.large_string()), (VECTOR, pa.list_(pa.float32(), dimension))]
    return pa.schema(fields)


def to_arrow(name: str, rows: Sequence[Any], vectors: Iterable[Vector] = (), *, dimension: int = 0) -> pa.Table:
    """The table of these records, sorted, with the vectors of those that have one.

    Raises ValueError for two rows with one id, a value outside its type (a lone surrogate is not text), a vector that is not finite,
    not of this dimension or of no row here.
    """
    record = TABLES[name]
    rows = ordered(record, rows)
    columns = [_column(hint, list(map(attrgetter(field), rows))) for field, hint in hints(record).items()]
    schema = schema_of(name, dimension)
    if VECTOR in schema.names:
        columns += _vector_columns([row.id for row in rows], vectors, dimension)
    return pa.Table.from_arrays(columns, schema=schema)


def _column(hint: Any, values: list[Any]) -> pa.Array:
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        offsets = np.zeros(len(values) + 1, np.int32)
        np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=offsets[1:])
        return pa.ListArray.from_arrays(pa.array(offsets), _column(inner, list(chain.from_iterable(values))))
    if _is_record(hint):
        arrays = [_column(inner, list(map(attrgetter(name), values))) for name, inner in hints(hint).items()]
        return pa.StructArray.from_arrays(arrays, fields=list(arrow_type(hint)))
    if get_origin(hint) is Literal and not set(values) <= set(get_args(hint)):
        raise ValueError(f"{sorted(map(repr, set(values) - set(get_args(hint))))} are not among {get_args(hint)}")
    array = pa.array(values, arrow_type(hint))
    if array.null_count and get_origin(hint) is not types.UnionType:
        raise ValueError(f"a field of type {hint} holds None")
    return array


def _vector_columns(ids: list[str], vectors: Iterable[Vector], dimension: int) -> list[pa.Array]:
    place = {id_: index for index, id_ in enumerate(ids)}
    values = np.zeros((len(ids), dimension), np.float32)
    texts: list[str | None] = [None] * len(ids)
    for vector in vectors:
        if vector.owner_id not in place:
            raise ValueError(f"the vector of {vector.owner_kind} {vector.owner_id} belongs to no row")
        if len(vector.values) != dimension:
            raise ValueError(f"the vector of {vector.owner_kind} {vector.owner_id} has {len(vector.values)} numbers instead of {dimension}")
        values[place[vector.owner_id]] = vector.values
        texts[place[vector.owner_id]] = vector.text_hash
    if not np.isfinite(values).all():
        raise ValueError("a vector holds a number that is not finite")
    absent = pa.array(np.fromiter((text is None for text in texts), np.bool_, len(texts)))
    return [pa.array(texts, pa.large_string()), pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), dimension, mask=absent)]


# Arrow to records


def to_records(record: type[R], table: pa.Table) -> list[R]:
    """The records of a table, in its order; columns that are no field of the record are passed over."""
    columns = [_values(hint, table.column(name).combine_chunks()) for name, hint in hints(record).items()]
    return _build(record, columns, table.num_rows)


def _build(record: type[R], columns: list[list[Any]], count: int) -> list[R]:
    """Records from columns, without `__init__`, which costs a frozen record more than all the rest; records have no `__post_init__`."""
    made = [record.__new__(record) for _ in range(count)]
    for name, values in zip(hints(record), columns, strict=True):
        deque(map(vars(record)[name].__set__, made, values), maxlen=0)  # the slot's own setter, driven without a Python loop
    return made


def _values(hint: Any, array: pa.Array) -> list[Any]:
    if get_origin(hint) is tuple:
        flat = _values(get_args(hint)[0], array.flatten())
        ends = np.cumsum(array.value_lengths().to_numpy(zero_copy_only=False)).tolist()
        return [tuple(flat[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
    if _is_record(hint):
        columns = [_values(inner, array.field(name)) for name, inner in hints(hint).items()]
        return _build(hint, columns, len(array))
    if array.null_count:
        return list(array.to_pylist())
    return list(array.to_numpy(zero_copy_only=False).tolist())


def to_vectors(table: pa.Table) -> tuple[list[str], list[str], Matrix]:
    """(ids, hashes of the embedded texts, matrix of one row per id) of the rows that have a vector."""
    table = table.select(["id", VECTOR_TEXT, VECTOR]).filter(table.column(VECTOR).is_valid()) if VECTOR in table.column_names else table.slice(0, 0)
    if not table.num_rows:
        return [], [], np.zeros((0, 0), np.float32)
    array = table.column(VECTOR).combine_chunks()
    matrix = array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), -1)
    return table.column("id").to_pylist(), table.column(VECTOR_TEXT).to_pylist(), matrix


# Digests


def rows_digest(table: pa.Table) -> str:
    """The digest of a table's schema and rows with their vectors: equal digests, nothing to write."""
    digest = hashlib.sha256()
    sink = pa.PythonFile(_Hashing(digest), mode="w")
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    return digest.hexdigest()[:32]


class _Hashing:
    """A file that only hashes what is written to it."""

    closed = False

    def __init__(self, digest: Any) -> None:
        self.write = digest.update

    def flush(self) -> None:
        """Nothing is kept back."""

    def close(self) -> None:
        """Nothing to give back."""


def digest_records(tables: Mapping[str, Sequence[Any]], extra: Mapping[str, Any]) -> str:
    """The digest of an index's content: its records in canonical JSON and `extra` (any JSON: settings, anchor), whatever their order.

    `tables` is keyed like TABLES, a missing table counts as empty; "vectors" may hold Vector records, of which owner and text hash count and
    the numbers do not. The digest knows nothing of files, times or libraries: it stays the same across machines and versions of Arrow.
    """
    unknown = set(tables) - set(TABLES) - {"vectors"}
    if unknown:
        raise ValueError(f"there are no tables {sorted(unknown)}")
    parts = [[name, _json_digest(record, tables.get(name, ()))] for name, record in [*TABLES.items(), ("vectors", Vector)]]
    return digest_of(json.dumps(parts), fingerprint(dict(extra)))


def _json_digest(record: type[R], rows: Iterable[R]) -> str:
    fields = {name: hint for name, hint in hints(record).items() if record is not Vector or name != "values"}
    rows = ordered(record, rows)
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    digest = hashlib.blake2b(encode(list(fields)).encode(), digest_size=16)
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        columns = [_plain(hint, list(map(attrgetter(name), batch))) for name, hint in fields.items()]
        digest.update(encode(list(zip(*columns, strict=True))).encode())
    return digest.hexdigest()


def _plain(hint: Any, values: list[Any]) -> list[Any]:
    """A column as JSON values: a record is an array of its fields; 7 and 7.0, 0.0 and -0.0 in a float field are one number."""
    if get_origin(hint) is tuple:
        flat = iter(_plain(get_args(hint)[0], list(chain.from_iterable(values))))
        return [[next(flat) for _ in value] for value in values]
    if _is_record(hint):
        columns = [_plain(inner, list(map(attrgetter(name), values))) for name, inner in hints(hint).items()]
        return list(zip(*columns, strict=True))
    if hint is float or get_origin(hint) is types.UnionType:
        return [None if value is None else float(value) + 0.0 for value in values]
    return values
