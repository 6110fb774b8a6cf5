"""What questions derive from a generation: the same from the files beside its tables as from its records, never trusted blindly, and gone with it."""

import asyncio
import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphrag_local import ids
from graphrag_local.query.arrays import Ids, Strings
from graphrag_local.query.ask import retrieve
from graphrag_local.query.cite import first_source, sources_of
from graphrag_local.query.context import Ref
from graphrag_local.query.parts import PARTS
from graphrag_local.query.retrieve import WordIndex, terms
from graphrag_local.query.view import RECORDS, View
from graphrag_local.records import Chunk, Claim, Community, Document, Entity, Mention, Relationship, Span, Vector
from graphrag_local.settings import QuerySettings
from graphrag_local.store import derived, stamps
from graphrag_local.store.generations import collect, discard, folder_of, open_current, open_generation
from graphrag_local.store.lance import Tables
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.reading import StoredIndex
from graphrag_local.store.scan import scan
from graphrag_local.store.snapshot import Snapshot
from graphrag_local.text import name_key
from tests.query.world import MemoryIndex, WordEmbedder, report_of
from tests.store.publishing import put

NAMES = ("Ottilie Brandt", "Karl Vessel", "The Salt Road", "Tarnholm", "Лотарь Ветров", "陈大海", "سالم البحري", "O'Neil & Sons", "Émile Zoëga", "ﷺ")
SAID = ("was paid by", "wrote to", "is a town", "женат", "是一位船长", "كان ملاحا", "kept 12 lamps.\n\n", "(1901), known as", "and the")
QUESTIONS = (
    "Who was paid by Ottilie Brandt?",
    "who wrote to otilie brand",
    "Кто была жена Лотаря Ветрова?",
    "陈大海的妻子是谁？",
    "What is said of lamps?",
    "xyzzy",
)
KINDS: dict[str, Any] = {"chunks": "chunk", "entities": "entity", "reports": "report"}


class Beside(MemoryIndex):
    """An index over lists whose vectors are asked of another one."""

    other: StoredIndex

    def near(self, kind: str, vector: Sequence[float], k: int) -> list[tuple[str, float]]:
        return self.other.near(kind, vector, k)


@st.composite
def collections(draw: st.DrawFn) -> Snapshot:
    """Some documents in several scripts, what they name and tie, and groups of that."""
    pieces = st.lists(st.sampled_from(NAMES + SAID), min_size=1, max_size=14).map(" ".join)
    texts = draw(st.lists(st.lists(pieces, min_size=1, max_size=5), min_size=1, max_size=4))
    rows: dict[str, list[Any]] = {name: [] for name in RECORDS}
    for number, parts in enumerate(texts):
        path, text = f"{draw(st.sampled_from('ab'))} {number}.txt", "\n".join(parts)
        owner, begin = ids.document_id(path), 0
        title = draw(st.sampled_from(("", *NAMES)))
        rows["documents"].append(Document(id=owner, path=path, title=title, text=text, content_hash="c", file_hash="f", format="txt"))
        for place, part in enumerate(parts):
            id_ = ids.chunk_id(owner, part, place)
            rows["chunks"].append(Chunk(id=id_, document_id=owner, index=place, start=begin, end=begin + len(part), text=part))
            begin += len(part) + 1
    known = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=6))
    for name in known:
        aliases = tuple(draw(st.lists(st.sampled_from(NAMES), max_size=2)))
        row = Entity(
            id=ids.entity_id(name_key(name)), key=name_key(name), name=name, type="x", types=(), aliases=aliases, description=f"{name} {draw(pieces)}", mentions=0
        )
        told = draw(st.lists(st.sampled_from(rows["chunks"]), max_size=4))
        rows["mentions"] += [_mention(draw, chunk, row.id, "entity", len(rows["mentions"]) + number) for number, chunk in enumerate(told)]
        rows["entities"].append(dataclasses.replace(row, mentions=len(told)))
    owners = [row.id for row in rows["entities"]]
    for ends in draw(st.sets(st.tuples(st.sampled_from(owners), st.sampled_from(owners)), max_size=6)) if owners else ():
        id_, (source, target) = ids.relationship_id(*ends), sorted(ends)
        if id_ not in {edge.id for edge in rows["relationships"]}:
            rows["relationships"].append(
                Relationship(id=id_, source_id=source, target_id=target, description=draw(pieces), weight=draw(st.sampled_from((1.0, 2.5))), mentions=1)
            )
            rows["mentions"].append(_mention(draw, draw(st.sampled_from(rows["chunks"])), id_, "relationship", len(rows["mentions"])))
    for number, owner in enumerate(draw(st.lists(st.sampled_from(owners), max_size=3)) if owners else ()):
        chunk = draw(st.sampled_from(rows["chunks"]))
        said = {"object_id": "", "type": "T", "status": "TRUE", "period": "NA", "description": draw(pieces)}
        rows["claims"].append(Claim(id=ids.claim_id(chunk.id, str(number)), subject_id=owner, chunk_id=chunk.id, document_id=chunk.document_id, **said))
    _grouped(draw, rows, sorted(owners))
    vectors = tuple(
        Vector(owner_id=row.id, owner_kind=kind, text_hash="t", values=tuple(WordEmbedder().vector(repr(row))))
        for name, kind in KINDS.items() for row in rows[name] if draw(st.booleans())
    )  # fmt: skip
    return Snapshot(**{name: tuple(own) for name, own in rows.items()}, vectors=vectors, dimension=32)


def _mention(draw: st.DrawFn, chunk: Chunk, owner: str, kind: Any, number: int) -> Mention:
    """A mention with some spans, of which one may be nowhere in its document."""
    begin = chunk.start + draw(st.integers(0, max(0, len(chunk.text) - 1)))
    spans = [Span(start=begin, end=draw(st.integers(begin, chunk.end))), Span(start=begin, end=10_000)][: draw(st.integers(0, 2))]
    return Mention(
        id=ids.mention_id(chunk.id, kind, number), owner_id=owner, owner_kind=kind, chunk_id=chunk.id, document_id=chunk.document_id, number=number,
        name="n", type="x", description="d", strength=1.0, spans=tuple(spans), grounding=draw(st.sampled_from(("anchored", "composed", "unanchored"))),
    )  # fmt: skip


def _grouped(draw: st.DrawFn, rows: dict[str, list[Any]], owners: list[str]) -> None:
    """Communities of two levels, some of them with a report."""
    half = len(owners) // 2
    for level, members in ((0, owners), (1, owners[:half]), (1, owners[half:])):
        if members:
            id_ = ids.community_id(level, tuple(members))
            rows["communities"].append(Community(id=id_, first_level=level, last_level=level, parent_id="", child_ids=(), member_ids=tuple(members)))
            if draw(st.booleans()):
                rows["reports"].append(report_of(id_, f"Group {level}", [("It is told.", "At length.", (members[0],))][: draw(st.integers(0, 1))]))


def memory(snapshot: Snapshot) -> MemoryIndex:
    """The same records as lists, in the order of their ids."""
    return MemoryIndex(rows={name: sorted(getattr(snapshot, name), key=lambda row: row.id) for name in RECORDS})


def same(a: Any, b: Any) -> None:
    """Arrays by name that are equal, in kind too."""
    assert a.keys() == b.keys()
    for name in a:
        assert (a[name].dtype, a[name].shape) == (b[name].dtype, b[name].shape), name
        assert np.array_equal(a[name], b[name]), name


def answers(index: Any) -> list[Any]:
    """Everything that is ranked for some questions."""
    modes = ("basic", "local", "global")
    return [asyncio.run(retrieve(question, index, WordEmbedder(), QuerySettings(), mode, None, 12)) for question in QUESTIONS for mode in modes]


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(snapshot=collections())
def test_from_files_and_from_records_everything_is_the_same(snapshot, tmp_path_factory):
    """Arrays, records one by one, and every ranking with its scores: from the files that a build wrote, from those that the first reader of a generation
    without files wrote, and from the records alone."""
    folder = tmp_path_factory.mktemp("kept")
    put(folder / "built", snapshot, derive=PARTS)
    put(folder / "old", snapshot)
    built, old = StoredIndex.open(folder / "built"), StoredIndex.open(folder / "old")
    plain = Beside(rows=memory(snapshot).rows)
    plain.other = built
    expected = answers(plain)
    for index in (built, old, StoredIndex.open(folder / "old")):
        for part in PARTS:
            same(index.kept(part), part.make(memory(snapshot)))
        for name in RECORDS:
            rows = getattr(index, name)()
            assert [rows[number] for number in range(len(rows))] == plain.rows[name]
            assert list(rows) == plain.rows[name]
        assert answers(index) == expected
        index.close()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(snapshot=collections())
def test_arrays_say_what_the_records_say(snapshot):
    """What belongs to what, by arrays, is what going through all records finds."""
    view = View(memory(snapshot))
    edges, mentions = sorted(snapshot.relationships, key=lambda edge: edge.id), sorted(snapshot.mentions, key=lambda mention: mention.id)
    owners = [row.id for row in (*snapshot.entities, *edges, *snapshot.claims)]
    for entity in snapshot.entities:
        assert {edge.id for edge in view.edges_of[entity.id]} == {edge.id for edge in edges if entity.id in (edge.source_id, edge.target_id)}
        assert view.claims_of.get(entity.id, []) == sorted((claim for claim in snapshot.claims if claim.subject_id == entity.id), key=lambda claim: claim.id)
    group = [entity.id for entity in snapshot.entities][::2]
    assert {edge.id for edge in view.inside(group)} == {edge.id for edge in edges if {edge.source_id, edge.target_id} <= set(group)}
    for owner in owners:
        own = [mention for mention in mentions if mention.owner_id == owner]
        assert view.mentions_of.get(owner, []) == own
        assert view.documents_of([owner, "?"]) == tuple(sorted({mention.document_id for mention in own}))
    for entity in snapshot.entities:
        ref = Ref(kind="entity", id=entity.id)
        assert first_source(ref, view) == next(iter(sources_of(ref, view, "", 1)), None)
    for chunk in snapshot.chunks:
        told = {mention.owner_id for mention in mentions if mention.chunk_id == chunk.id}
        assert {view.entities.ids[number] for number in view.told([chunk.id], "entity")[0].tolist()} == told & {entity.id for entity in snapshot.entities}
        assert {view.relationships.ids[number] for number in view.told([chunk.id], "edge")[0].tolist()} == told & {edge.id for edge in edges}
    for document in snapshot.documents:
        assert view.title(document.id) == (document.title or document.path)


@given(st.lists(st.text(max_size=6), max_size=20), st.text(max_size=6))
def test_strings_are_found_by_halving(texts, other):
    """Each string has the number of its first place, others none, and every number its string."""
    strings = Strings.of(texts)

    assert list(strings) == texts
    assert [strings.number(text) for text in texts] == [texts.index(text) for text in texts]
    assert strings.number(other) == (texts.index(other) if other in texts else -1)
    unique = sorted({text for text in texts if "\0" not in text and text})
    assert [Ids(Ids.of(unique)).number(text) for text in [*unique, "?!"]] == [*range(len(unique)), -1]


@given(st.lists(st.lists(st.sampled_from("lamp harbour кит 海 the of".split()), max_size=8).map(" ".join), max_size=12))
def test_words_score_as_the_library_scores_them(texts):
    """The scores over kept arrays are those that bm25s itself gives."""
    listed = {f"{number:03}": text for number, text in enumerate(texts) if text}
    found = dict(WordIndex.of(listed.items()).best("the lamp кит 海", 20))
    if listed:
        bm25 = bm25s.BM25(method="lucene")
        bm25.index([list(terms(text)) for text in listed.values()], show_progress=False)
        scores = bm25.get_scores(list(terms("the lamp кит 海", pairs_only=True)))
        assert found == {owner: float(score) for owner, score in zip(listed, scores, strict=True) if score > 0}
    else:
        assert found == {}


# --- files


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    """A collection with something of everything."""
    rows = [(f"note {n}.txt", f"{name} wrote to {NAMES[n - 1]}. Zurvanik{n} kept the lamp of {name}.") for n, name in enumerate(NAMES[:4])]
    documents = tuple(Document(id=ids.document_id(path), path=path, title="", text=text, content_hash="", file_hash="", format="txt") for path, text in rows)
    chunks = tuple(Chunk(id=ids.chunk_id(d.id, d.text, 0), document_id=d.id, index=0, start=0, end=len(d.text), text=d.text) for d in documents)
    entities = tuple(
        Entity(id=ids.entity_id(name_key(name)), key=name_key(name), name=name, type="x", types=(), aliases=(), description=name, mentions=1) for name in NAMES[:4]
    )
    mentions = tuple(
        Mention(
            id=ids.mention_id(chunk.id, "entity", 0), owner_id=entity.id, owner_kind="entity", chunk_id=chunk.id, document_id=chunk.document_id, number=0,
            name=entity.name, type="x", description="d", strength=1.0, spans=(Span(start=0, end=9),), grounding="anchored",
        )
        for chunk, entity in zip(chunks, entities, strict=True)
    )  # fmt: skip
    community = Community(id="c", first_level=0, last_level=0, parent_id="", child_ids=(), member_ids=tuple(sorted(e.id for e in entities)))
    reports = (report_of("c", "All", [("They wrote.", "Letters.", (entities[0].id,))]),)
    return Snapshot(
        documents=documents, chunks=chunks, mentions=mentions, entities=entities, relationships=(), claims=(), communities=(community,), reports=reports,
        vectors=tuple(Vector(owner_id=c.id, owner_kind="chunk", text_hash="t", values=tuple(WordEmbedder().vector(c.text))) for c in chunks), dimension=32,
    )  # fmt: skip


def files(index: Path, id_: str) -> dict[str, Path]:
    """The derived files of a generation by name."""
    return {path.stem: path for path in sorted((folder_of(index, id_) / derived.FOLDER).iterdir())}


def ranked(index: Path) -> list[Any]:
    """What is ranked for some questions, by a reader that trusts no file that it has not hashed."""
    stamps.save(index, {})
    stored = StoredIndex.open(index)
    try:
        return answers(stored)
    finally:
        stored.close()


def test_a_damaged_file_is_named_not_read_and_made_anew(snapshot, tmp_path):
    """One flipped bit in any of the files: the verification names the file, questions are answered as before, and the file is whole again."""
    id_ = put(tmp_path, snapshot, derive=PARTS)
    before = ranked(tmp_path)
    assert damages_of(tmp_path) == []
    for number, path in enumerate(files(tmp_path, id_).values()):
        good = path.read_bytes()
        at = len(good) * (number + 1) // 20
        path.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        assert any(str(path) in line for line in damages_of(tmp_path)), path
        assert ranked(tmp_path) == before
        assert path.read_bytes() == good, path


def damages_of(index: Path) -> list[str]:
    """What is wrong with the derived files of the current generation, all of them hashed."""
    with open_current(index) as generation:
        return derived.problems(generation.folder, generation.manifest.tables, {})


def test_files_of_other_tables_are_not_read(snapshot, tmp_path):
    """A sound file that was made from other tables is not used, whoever put it there, and the search for what is forgotten does not take it for decoded."""
    other = dataclasses.replace(snapshot, documents=snapshot.documents[:2], chunks=snapshot.chunks[:2], mentions=snapshot.mentions[:2], vectors=snapshot.vectors[:2])
    old, new = put(tmp_path, snapshot, derive=PARTS), put(tmp_path, other, derive=PARTS)
    before = ranked(tmp_path)
    shutil.copyfile(files(tmp_path, old)["links"], files(tmp_path, new)["links"])

    found = scan(folder_of(tmp_path, new), ["nothing of this"])
    assert [(Path(one.file).name, one.string) for one in found] == [("links.arrays", "")]
    assert ranked(tmp_path) == before


def test_a_generation_holds_nothing_of_what_an_older_one_knew(snapshot, tmp_path):
    """The words of a document are in the files of the generation that has it, in none of the next one without it, and nowhere once the old one is removed."""
    word = "zurvanik3"  # as words are kept, folded
    less = dataclasses.replace(snapshot, documents=snapshot.documents[:3], chunks=snapshot.chunks[:3], mentions=snapshot.mentions[:3], vectors=snapshot.vectors[:3])
    old = put(tmp_path, snapshot, derive=PARTS)
    with open_generation(tmp_path, old) as parent:
        new = put(tmp_path, less, parent, derive=PARTS)

    assert {one.file.split("/")[1] for one in scan(tmp_path, [word])} == {old}
    assert any("links.arrays" in one.file for one in scan(tmp_path, [word]))
    with BuildLock(tmp_path) as lock:
        discard(lock, [old])
    assert scan(tmp_path, [word, "Zurvanik3"]) == []
    assert files(tmp_path, new).keys() == {
        *(f"rows-of-{name}" for name in RECORDS),
        *(part.name for part in PARTS),
        *(f"vectors-of-{name}" for name in KINDS),
    }


def test_what_did_not_change_is_not_derived_again(snapshot, tmp_path):
    """A generation with other reports shares the files of the one before but those that reports go into."""
    old = put(tmp_path, snapshot, derive=PARTS)
    with open_generation(tmp_path, old) as parent:
        new = put(tmp_path, dataclasses.replace(snapshot, reports=()), parent, derive=PARTS)
    before, after = files(tmp_path, old), files(tmp_path, new)

    assert {name for name in after if after[name].stat().st_ino != before[name].stat().st_ino} == {
        "shape",
        "rows-of-reports",
        "vectors-of-reports",
        "words-of-reports",
    }


def test_a_file_that_cannot_be_written_is_done_without(snapshot, tmp_path):
    """Where a file cannot be kept, questions are answered all the same; what a killed writer left is removed with the next collection."""
    id_ = put(tmp_path, snapshot)
    place = folder_of(tmp_path, id_) / derived.FOLDER / "links.arrays"
    place.mkdir(parents=True)
    left = place.with_name(".shape.arrays.999999999")
    left.write_bytes(b"half")

    assert ranked(tmp_path) == ranked(tmp_path)
    assert place.is_dir()
    left.write_bytes(b"half")
    with BuildLock(tmp_path) as lock:
        collect(lock, 1)
    assert not left.exists()


def test_near_is_what_the_tables_say(tmp_path):
    """The vectors beside the tables find the same rows in the same order as LanceDB, equals by id, and refuse vectors of another length."""
    dice = np.random.default_rng(4)
    matrix = dice.normal(size=(300, 32)).astype(np.float32)
    matrix[100:140] = matrix[50:90]  # equals
    owners = [ids.digest_of(str(number)) for number in range(len(matrix))]
    chunks = tuple(Chunk(id=owner, document_id="d", index=0, start=0, end=1, text="x") for owner in owners)
    vectors = tuple(Vector(owner_id=o, owner_kind="chunk", text_hash="t", values=tuple(row)) for o, row in zip(owners, matrix.tolist(), strict=True) if o[0] != "0")
    empty = {name: () for name in RECORDS if name != "chunks"}
    put(tmp_path, Snapshot(chunks=chunks, vectors=vectors, dimension=32, **empty), derive=PARTS)
    index = StoredIndex.open(tmp_path)
    with open_generation(tmp_path, index.generation) as generation:
        tables = Tables.of(generation)
        for k in (1, 7, 60, 400):
            for number in (3, 60, 110):
                vector = (matrix[number] * 3).tolist()
                here, there = index.near("chunk", vector, k), tables.near(Chunk, vector, k)
                assert [owner for owner, _ in here] == [owner for owner, _ in there]
                assert [score for _, score in here] == pytest.approx([score for _, score in there], abs=1e-5)
    assert index.near("entity", matrix[0].tolist(), 3) == index.near("chunk", matrix[0].tolist(), 0) == []
    with pytest.raises(ValueError, match="31 numbers"):
        index.near("chunk", [1.0] * 31, 3)
    index.close()
