"""`forget` while no model is at hand: what came only from the document is gone at once, and nothing else is lost; the next `index` writes what waits for it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from graphrag_local import absent
from graphrag_local.erasing import Receipt
from graphrag_local.errors import GraphragError, IndexMissing, UsageError
from graphrag_local.ids import document_id
from graphrag_local.indexing import Indexed
from graphrag_local.store.generations import current_id, open_current
from graphrag_local.store.lance import Tables
from graphrag_local.store.scan import scan
from graphrag_local.tokens import Estimate
from graphrag_local.verify.index import damages
from tests.pipeline.changing import FIXED, Hashes, Mortal, World, check_whole, saw
from tests.pipeline.running import forget
from tests.pipeline.test_forget_cut import MARKS, PATH, TIES

# Much is said about Ada_Krol, so that it is summarised, by the sealed document as well.
SHARED = [*TIES, *(f"Ada_Krol knows Ben_Vesa ({n})." for n in range(1, 9)), "Ada_Krol knows Zoe_Quell (3)."]
OTHER = "note.txt"
SAID = [f"Ada_Krol knows Cleo_Krol ({n}). Ada_Krol knows Eli_Krol ({n})." for n in range(1, 41)]


def indexed(world: World, **order: bool) -> Indexed:
    """One run, counted by an estimate, which an index remembers whole."""
    return world.index(counter=Estimate(), **order)


@pytest.fixture(scope="module", params=["eager", "lazy"], name="made")
def _made(request, tmp_path_factory) -> World:
    """A collection with the sealed document in it, all of whose reports were written once."""
    folder = tmp_path_factory.mktemp("world") / "project"
    world = World.begun(folder, f"reports.write={request.param}", "reports.refresh=exact", *FIXED, documents=4, seed=5)
    world.write(PATH, SHARED)
    world.write(OTHER, SAID)
    indexed(world, yes=True, repartition=True, settle=True)
    return world


@pytest.fixture(name="world")
def _world(made, tmp_path) -> World:
    """A copy of it."""
    return made.twin(tmp_path / "project")


def forgotten(world: World) -> Receipt:
    """A `forget` without a model; the file goes as well."""
    receipt = forget(world.project, PATH, without_model=True)
    world.delete(PATH)
    return receipt


def test_it_is_gone_at_once(world, tmp_path):
    """Nothing of it is in any file or row, no report is left that saw it, everything else is there; what waits is named, and nothing is damaged."""
    before = world.published().snapshot
    assert saw(before.reports, PATH)
    receipt = forgotten(world)
    now = world.published().snapshot

    assert (receipt.clean, receipt.documents) == (True, (document_id(PATH),))
    assert receipt.strings_sought >= 4
    assert scan(world.folder / "index", MARKS) == []
    assert not saw(now.reports, PATH)
    assert len(saw(now.reports, OTHER)) < len(saw(before.reports, OTHER))
    assert {chunk.id for chunk in now.chunks} == {chunk.id for chunk in before.chunks if chunk.document_id != document_id(PATH)}
    gone = {entity.name for entity in before.entities} - {entity.name for entity in now.entities}
    assert gone == {"Zoe_Quell", "Yara_Quell", "Xeno_Quell"}
    assert damages(world.folder / "index") == []
    ada = next(entity for entity in now.entities if entity.name == "Ada_Krol")
    assert ada.id in receipt.waiting["descriptions"]
    assert "Seen:" in ada.description  # as the mentions that stay have it
    assert {ada.id} <= set(receipt.waiting["vectors"]) <= {failure.input_id for failure in now.failures}
    assert set(receipt.waiting["reports"]) == {report.community_id for report in before.reports if document_id(PATH) in report.documents} & {
        community.id for community in now.communities
    }


def test_an_embedder_at_hand_is_used(world, monkeypatch):
    """Where what made the vectors is in this process, nothing is left without one, and reading nothing but the ledger is no reason to wait."""
    monkeypatch.setattr(absent, "open_embedder_of", lambda *_: Hashes())
    receipt = forgotten(world)
    now = world.published().snapshot
    assert receipt.clean
    assert receipt.waiting["descriptions"]
    assert receipt.waiting["vectors"] == ()
    assert [failure for failure in now.failures if failure.stage == "vectors"] == []
    with open_current(world.folder / "index") as generation:
        for rows in (now.chunks, now.entities, now.reports):
            assert set(Tables.of(generation).vectors(type(rows[0])).ids) == {row.id for row in rows}
    assert damages(world.folder / "index") == []


def test_the_next_index_makes_up_for_it(world, tmp_path):
    """Once a model is there again the index is the one that `forget` with a model comes to, whatever `reports.write` says, and a further run does nothing."""
    calm = world.twin(tmp_path / "calm")
    forgotten(world)
    made = indexed(world)
    forget(calm.project, PATH, embedder=Hashes(), counter=Estimate(), engine=Mortal())
    calm.delete(PATH)

    assert made.published
    check_whole(world, world.published())
    ours, theirs = world.published().snapshot, calm.published().snapshot
    for name in ("documents", "chunks", "entities", "relationships", "communities", "anchor_communities", "anchor_edges"):
        assert getattr(ours, name) == getattr(theirs, name), name
    wanted = {report.community_id for report in theirs.reports if not report.stale}
    assert wanted <= {report.community_id for report in ours.reports if not report.stale}
    assert not indexed(world).published


def test_what_else_has_changed_waits(world):
    """An edit and a new file in the folder are not looked at: without a model they could not be read."""
    texts = {document.path: document.text for document in world.published().snapshot.documents}
    world.edit(3, OTHER)
    world.write("new.txt", ["Max_Tamm knows Nora_Tamm (5)."])
    forgotten(world)
    assert {document.path: document.text for document in world.published().snapshot.documents} == {
        path: text for path, text in texts.items() if path != PATH
    }  # fmt: skip
    assert set(indexed(world).built.changes.new) == {"new.txt"}
    check_whole(world, world.published())


def test_nothing_that_was_read_gets_lost(world):
    """Where the ledger has lost replies, the index stays as it was, with a sentence; with the model it goes on."""
    before = current_id(world.folder / "index")
    with closing(sqlite3.connect(world.folder / "index" / "ledger.sqlite")) as ledger, ledger:
        ledger.execute("DELETE FROM replies WHERE purpose = 'extract'")
    with pytest.raises(GraphragError, match="without a model they would be lost") as caught:
        forgotten(world)
    assert "every run from now on leaves them out" in caught.value.hint
    assert current_id(world.folder / "index") == before
    world.delete(PATH)
    assert indexed(world).receipt.clean
    check_whole(world, world.published())


def test_what_cannot_be_done_is_said(world, tmp_path):
    """Redoing changed settings takes a model, and so does an index that is not there."""
    with pytest.raises(UsageError, match="exclude each other"):
        forget(world.project, PATH, without_model=True, yes=True)
    empty = World(tmp_path / "empty", world.rules)
    empty.write("a.txt", ["Max_Tamm knows Nora_Tamm (5)."])
    with pytest.raises((IndexMissing, UsageError)):
        forget(empty.project, "a.txt", without_model=True)


def test_a_folder_is_not_needed(world):
    """An input folder that is away is no obstacle either."""
    Path(world.input).rename(world.folder / "away")
    assert forget(world.project, PATH, without_model=True).clean
    assert scan(world.folder / "index", MARKS) == []
