"""Records as tables and back, and their digests."""

import dataclasses
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrag_local.records import Chunk, Claim, Entity, Mention, Span
from graphrag_local.store.snapshot import Snapshot
from graphrag_local.store.tables import TABLES, VECTOR_TABLES, digest_records, ordered, rows_digest, schema_of, to_arrow, to_records, to_vectors
from tests.store.tools import DIMENSION, rows_of, small, vector

EVERY = [pytest.param(name, id=name) for name in TABLES]


def test_a_snapshot_has_exactly_the_tables():
    """What a build hands over and what is stored are the same lists."""
    assert [field.name for field in dataclasses.fields(Snapshot)] == [*TABLES, "vectors", "dimension"]


@pytest.mark.parametrize("name", EVERY)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_records_come_back_as_they_were(name, data):
    """Any rows of any table, none too, come back equal and of the same types, in the order of their ids."""
    rows = data.draw(rows_of(TABLES[name]))
    back = to_records(TABLES[name], to_arrow(name, rows))
    assert back == ordered(TABLES[name], rows)
    assert [repr(row) for row in back] == [repr(row) for row in ordered(TABLES[name], rows)]


@pytest.mark.parametrize("name", EVERY)
def test_no_rows_are_a_table_too(name):
    """A table without rows has its whole schema."""
    table = to_arrow(name, [], dimension=8)
    assert table.schema == schema_of(name, 8)
    assert to_records(TABLES[name], table) == []


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_the_order_of_rows_does_not_matter(data):
    """Rows in another order are the same table and have the same digests."""
    rows = data.draw(rows_of(Entity))
    other = data.draw(st.permutations(rows))
    assert rows_digest(to_arrow("entities", rows)) == rows_digest(to_arrow("entities", other))
    assert digest_records({"entities": rows}, {}) == digest_records({"entities": other}, {})


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_other_rows_have_another_digest(data):
    """Two tables have the same digest exactly when their rows are equal."""
    record = TABLES[data.draw(st.sampled_from(sorted(TABLES)))]
    name = next(name for name, kind in TABLES.items() if kind is record)
    one, two = data.draw(rows_of(record)), data.draw(rows_of(record))
    same = ordered(record, one) == ordered(record, two)
    assert (digest_records({name: one}, {}) == digest_records({name: two}, {})) is same


def another(name: str, value):
    """A value of a field that is not this one."""
    words = {"owner_kind": "claim", "grounding": "composed", "status": "FALSE"}
    match value:
        case str():
            return words.get(name, value + "x")
        case tuple():
            return value[:-1] if value else ("x",)
        case bool():
            return not value
    return value + 1


def test_each_field_counts():
    """A change in any field of any record changes the digest, each in its own way."""
    snapshot = small()
    whole = {name: getattr(snapshot, name) for name in TABLES}
    changed = [
        whole | {name: (dataclasses.replace(row, **{field.name: another(field.name, getattr(row, field.name))}), *rest)}
        for name, (row, *rest) in whole.items()
        for field in dataclasses.fields(row)
    ]
    assert len({digest_records(tables, {}) for tables in [whole, *changed]}) == 1 + len(changed) > 70


def test_a_digest_does_not_see_how_numbers_are_written():
    """7 and 7.0 in a field for numbers with a point are the same content, as they are the same value."""
    (edge,) = small().relationships
    assert digest_records({"relationships": [edge]}, {}) == digest_records({"relationships": [dataclasses.replace(edge, weight=5)]}, {})


def test_of_vectors_only_the_text_counts():
    """The numbers of a vector are not in the digest, the hash of its text is; settings are, and a table without rows is no table."""
    one = vector("chunk", "aa", "text")
    numbers, text = dataclasses.replace(one, values=(1.0,) * DIMENSION), dataclasses.replace(one, text_hash="bb")
    base = digest_records({"vectors": [one]}, {"settings": "s"})
    assert digest_records({"vectors": [numbers], "claims": []}, {"settings": "s"}) == base
    assert digest_records({"vectors": [text]}, {"settings": "s"}) != base
    assert digest_records({"vectors": [one]}, {"settings": "t"}) != base
    with pytest.raises(ValueError, match="misspelt"):
        digest_records({"misspelt": []}, {})


def test_vectors_sit_beside_their_rows():
    """A row has its vector, or none; text hash and numbers come back."""
    snapshot = small()
    some = [row for row in snapshot.vectors if row.owner_kind == "chunk"][1:]
    ids, texts, matrix = to_vectors(to_arrow("chunks", snapshot.chunks, some, dimension=DIMENSION))
    assert {id_: (text, tuple(row)) for id_, text, row in zip(ids, texts, matrix.tolist(), strict=True)} == {
        row.owner_id: (row.text_hash, row.values) for row in some
    }
    assert matrix.dtype == np.float32
    assert to_vectors(to_arrow("chunks", snapshot.chunks))[0] == []
    assert set(VECTOR_TABLES.values()) <= set(TABLES)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"owner_id": "ffff"}, "belongs to no row"),
        ({"values": (1.0,)}, "has 1 numbers instead of 4"),
        ({"values": (1.0, float("nan"), 0.0, 0.0)}, "not finite"),
        ({"values": (1.0, float("inf"), 0.0, 0.0)}, "not finite"),
    ],
)
def test_a_wrong_vector_is_refused(change, problem):
    """A vector of no row, of another length, or with a number that is none, is an error and not a silent gap."""
    snapshot = small()
    wrong = dataclasses.replace(snapshot.vectors[0], **change)
    with pytest.raises(ValueError, match=problem):
        to_arrow("chunks", snapshot.chunks, [wrong], dimension=DIMENSION)


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"description": "half \ud83d"}, "surrogate"), ({"status": "MAYBE"}, "MAYBE"), ({"period": None}, "None"), ({"description": 7}, "int")],
)
def test_a_value_outside_its_type_is_refused(change, problem):
    """Half of an emoji, an unknown word, a missing text and a number for a text never reach the disk."""
    (claim,) = small().claims
    with pytest.raises((ValueError, TypeError), match=problem):
        to_arrow("claims", [dataclasses.replace(claim, **change)])


def test_two_rows_with_one_id_are_refused():
    """An id names one row."""
    (claim,) = small().claims
    other = dataclasses.replace(claim, description="other")
    for make in (lambda: to_arrow("claims", [claim, other]), lambda: digest_records({"claims": [claim, other]}, {})):
        with pytest.raises(ValueError, match=claim.id):
            make()
    assert ordered(Claim, [claim]) == [claim]


def test_a_large_collection_is_quick():
    """10,000 chunks and 100,000 mentions become tables, and records again, in seconds of processor time (measured 0.7 s and 0.5 s)."""
    chunks = [Chunk(id=f"{n:032x}", document_id="d", index=n, start=0, end=9, text="Words of a chunk. " * 100) for n in range(10_000)]
    mentions = [
        Mention(
            id=f"{n:032x}", owner_id="e", owner_kind="entity", chunk_id="c", document_id="d", number=n, name="Name", type="T", description="Is.",
            strength=1.0, spans=(Span(start=n, end=n + 1),), grounding="anchored",
        )
        for n in range(100_000)
    ]  # fmt: skip
    began = time.process_time()
    tables = to_arrow("chunks", chunks), to_arrow("mentions", mentions)
    written = time.process_time() - began
    assert to_records(Mention, tables[1])[99_999] == mentions[99_999]
    assert (written < 4, time.process_time() - began - written < 4) == (True, True)
