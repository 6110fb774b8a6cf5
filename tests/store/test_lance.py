"""LanceDB tables: what is written is read, by id and by nearness."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphrag_local.errors import IndexCorrupt
from graphrag_local.records import Chunk, Community, Document, Entity, Failed, Mention, Relationship, Report, Vector
from graphrag_local.store import lance
from graphrag_local.store.files import files_under
from graphrag_local.store.tables import TABLES, to_arrow
from tests.store.tools import DIMENSION, rows_of, small


def written(folder: Path, snapshot) -> lance.Tables:
    """The tables of a snapshot, written and opened."""
    versions = {}
    for name in TABLES:
        vectors = [row for row in snapshot.vectors if row.owner_kind == {"chunks": "chunk", "entities": "entity", "reports": "report"}.get(name)]
        versions[name] = lance.write(folder, name, to_arrow(name, getattr(snapshot, name), vectors, dimension=snapshot.dimension))
    return lance.Tables(folder, versions)


def chunk(id_: str) -> Chunk:
    """A chunk that is only an id."""
    return Chunk(id=id_, document_id="d", index=0, start=0, end=0, text="")


def near_tables(folder: Path, values: dict[str, tuple[float, ...] | None]) -> lance.Tables:
    """A chunks table with these vectors, None for a row without."""
    dimension = max(len(value) for value in values.values() if value)
    vectors = [Vector(owner_id=id_, owner_kind="chunk", text_hash=id_, values=value) for id_, value in values.items() if value]
    table = to_arrow("chunks", [chunk(id_) for id_ in values], vectors, dimension=dimension)
    return lance.Tables(folder, {"chunks": lance.write(folder, "chunks", table)})


def test_every_table_comes_back(tmp_path):
    """Each table of a snapshot is read as it was written, in the order of its ids, and counted."""
    snapshot = small(documents=5)
    tables = written(tmp_path, snapshot)
    for name, record in TABLES.items():
        assert sorted(tables.records(record), key=repr) == sorted(getattr(snapshot, name), key=repr)
        assert tables.count(record) == len(getattr(snapshot, name))
    ids = tables.columns(Mention, ["id", "spans"])["id"]
    assert ids == sorted(ids)


@given(data=st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("record", [Document, Report, Community, Failed], ids=lambda record: record.__name__)
def test_any_text_survives_the_disk(record, data, tmp_path_factory):
    """Rows with any characters and any nesting, or none, are the same after LanceDB."""
    folder = tmp_path_factory.mktemp("any")
    rows = data.draw(rows_of(record))
    name = next(name for name, kind in TABLES.items() if kind is record)
    version = lance.write(folder, name, to_arrow(name, rows, dimension=DIMENSION))
    assert sorted(lance.Tables(folder, {name: version}).records(record), key=repr) == sorted(rows, key=repr)


def test_a_table_is_one_commit_and_reading_leaves_nothing(tmp_path):
    """A table has one version and one manifest; opening and reading adds no file."""
    tables = written(tmp_path, small())
    before = files_under(tmp_path)
    assert len([path for path in before if path.parent.name == "_versions" and path.suffix == ".manifest"]) == len(TABLES)
    tables.records(Chunk)
    tables.near(Chunk, [1.0] * DIMENSION, 3)
    assert files_under(tmp_path) == before


def test_rows_by_a_field(tmp_path):
    """Rows are found by id or another field, unknown values find nothing, an unknown field is an error."""
    snapshot = small(documents=4)
    tables = written(tmp_path, snapshot)
    wanted = snapshot.chunks[2]
    assert tables.rows(Chunk, [wanted.id, "00", wanted.id]) == [wanted]
    assert tables.rows(Chunk, []) == []
    assert {row.chunk_id for row in tables.rows(Mention, [wanted.id], by="chunk_id")} == {wanted.id}
    assert tables.rows(Entity, ["李明"], by="name") == [row for row in snapshot.entities if row.name == "李明"]
    with pytest.raises(ValueError, match="no field"):
        tables.rows(Chunk, ["x"], by="1=1 OR id")
    with pytest.raises(ValueError, match="no field"):
        tables.columns(Relationship, ["vector"])


_SHARED: dict[str, lance.Tables] = {}
HOSTILE = ["' OR 1=1 --", "\\' OR '1'='1", "''", "\\", "%", "_", "\0", "“”", "'; DROP TABLE chunks", "NULL", "é", "e\u0301", "𝔛", "?", "/*", '"']


@given(text=st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8))
@settings(max_examples=150, deadline=None)
def test_no_value_breaks_out_of_a_filter(text, tmp_path_factory):
    """Whatever a value holds, the filter finds the row that has it and no other."""
    if not _SHARED:
        rows = [chunk(value) for value in {*HOSTILE, "plain"}]
        folder = tmp_path_factory.mktemp("filters")
        _SHARED["chunks"] = lance.Tables(folder, {"chunks": lance.write(folder, "chunks", to_arrow("chunks", rows))})
    assert [row.id for row in _SHARED["chunks"].rows(Chunk, [text])] == ([text] if text in {*HOSTILE, "plain"} else [])


@given(st.integers(0, 10_000), st.integers(1, 60))
@settings(max_examples=10, deadline=None)
def test_near_is_the_true_order(tmp_path_factory, seed, k):
    """The nearest rows and their cosine similarities are those of exact arithmetic; rows without a vector are never among them."""
    random = np.random.default_rng(seed)
    matrix = random.standard_normal((50, 8)).astype(np.float32)
    values = {f"{n:04x}": tuple(row.tolist()) for n, row in enumerate(matrix)}
    tables = near_tables(tmp_path_factory.mktemp("near"), values | {f"a{n:03x}": None for n in range(20)})
    question = random.standard_normal(8)
    exact = matrix @ question / np.linalg.norm(matrix, axis=1) / np.linalg.norm(question)
    found = tables.near(Chunk, question.tolist(), k)
    assert [id_ for id_, _ in found] == [f"{n:04x}" for n in np.argsort(-exact)[:k]]
    assert np.allclose([score for _, score in found], np.sort(exact)[::-1][:k], atol=1e-5)


def test_equally_near_rows_come_by_id(tmp_path):
    """Of 300 rows with the same vector the first by id are taken, so that equal builds answer equally."""
    tables = near_tables(tmp_path, {f"{n:04x}": (1.0, 0.0) for n in range(300)} | {"ffff": (1.0, 0.1)})
    assert [id_ for id_, _ in tables.near(Chunk, [2.0, 0.0], 5)] == [f"{n:04x}" for n in range(5)]
    assert [id_ for id_, _ in tables.near(Chunk, [1.0, 0.1], 2)] == ["ffff", "0000"]


def test_near_among_some(tmp_path):
    """A search among given ids finds only those, and one among none finds none."""
    tables = near_tables(tmp_path, {"aa": (1.0, 0.0), "bb": (0.0, 1.0), "cc": (1.0, 1.0), "dd": None})
    assert [id_ for id_, _ in tables.near(Chunk, [1.0, 0.0], 9, ids=["bb", "cc", "dd", "ee"])] == ["cc", "bb"]
    assert tables.near(Chunk, [1.0, 0.0], 9, ids=[]) == []
    assert tables.near(Chunk, [1.0, 0.0], 0) == []
    with pytest.raises(ValueError, match="3 numbers"):
        tables.near(Chunk, [1.0, 0.0, 0.0], 1)


def test_a_vector_of_zeros_breaks_nothing(tmp_path):
    """A row whose vector has no direction is found last, or not at all, and its score is a number."""
    found = near_tables(tmp_path, {"aa": (0.0, 0.0), "bb": (1.0, 0.0), "cc": (-1.0, 0.0)}).near(Chunk, [1.0, 0.0], 3)
    assert found[0] == ("bb", 1.0)
    assert all(score == score for _, score in found)


def test_an_index_without_an_embedder_has_no_vectors(tmp_path):
    """Without vectors nothing is near anything, and that is no error."""
    tables = written(tmp_path, small(dimension=0))
    assert tables.near(Chunk, [1.0], 3) == []
    assert tables.vectors(Chunk).ids == []


def test_vectors_are_read_as_a_matrix(tmp_path):
    """All vectors of a table come as one matrix beside their ids and text hashes."""
    snapshot = small()
    found = written(tmp_path, snapshot).vectors(Entity)
    expected = {row.owner_id: row for row in snapshot.vectors if row.owner_kind == "entity"}
    assert {id_: tuple(row) for id_, row in zip(found.ids, found.matrix.tolist(), strict=True)} == {id_: row.values for id_, row in expected.items()}
    assert found.texts == [expected[id_].text_hash for id_ in found.ids]


def test_a_missing_table_or_another_version_is_named(tmp_path):
    """A table that is not there, or is not the one that was published, is an error that names it."""
    written(tmp_path, small())
    with pytest.raises(IndexCorrupt, match=r"nothing\.lance"):
        lance.Tables(tmp_path, {"nothing": 1})
    with pytest.raises(IndexCorrupt, match=r"chunks\.lance is at version 1, not at 2"):
        lance.Tables(tmp_path, {"chunks": 2})
