"""What keeps a run from paying, or from letting go of what was paid for, without being asked to."""

import asyncio
import json
import sqlite3
from dataclasses import replace

import pytest

from graphrag_local.engine.embed import NoEmbedder
from graphrag_local.engine.ledgered import Ledgered, Meter
from graphrag_local.errors import CollectionMissing, NotConfirmed
from graphrag_local.forgetting import run_forget
from graphrag_local.ids import document_id
from graphrag_local.settling import write_level
from graphrag_local.store.generations import current_id, folder_of, generation_ids
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.manifest import MANIFEST
from graphrag_local.wiring import ModelSide
from tests.fakes import Characters
from tests.pipeline.running import CARD, Quiet, _side, index, model_of, opened, project_of, scripted, told_as

PEOPLE = {f"{name}.txt": told_as([(f"{name}{n}x", f"{name}{n + 1}x") for n in range(9)]) for name in ("Al", "Bo", "Cy", "Di", "Ed", "Fay")}
SIZES = ("chunks.min_tokens=20", "chunks.max_tokens=60", "reports.min_tokens=1")


def replies(project) -> int:
    with Ledger.open(project.index / "ledger.sqlite") as ledger:
        return ledger.counts()["replies"]


def break_manifest(project) -> None:
    manifest = folder_of(project.index, current_id(project.index)) / MANIFEST
    manifest.write_bytes(manifest.read_bytes() + b" ")


def test_a_broken_index_and_a_folder_that_is_half_gone_lose_nothing(tmp_path):
    """Where no generation can be read, the ledger says what there was: a folder that misses most of it is refused, and no reply is let go of."""
    project = project_of(tmp_path, PEOPLE, *SIZES)
    index(project)
    before = replies(project)
    break_manifest(project)
    kept = {path.name: path.read_text() for path in sorted(project.input_root.iterdir())}
    for name in list(kept)[1:]:
        (project.input_root / name).unlink()

    with pytest.raises(CollectionMissing, match=r"5 of 6 indexed documents are missing"):
        index(project)
    assert replies(project) == before
    index(project, allow_empty=True)
    assert replies(project) >= before
    for name, text in kept.items():
        (project.input_root / name).write_text(text)
    engine = scripted()
    index(project, engine)
    assert [request for request in engine.history if request.purpose == "extract"] == []


def test_a_broken_index_goes_on_from_the_generation_before(tmp_path):
    """The newest whole generation gives its anchor and reports to the new one, which is published although it may be the same."""
    project = project_of(tmp_path, PEOPLE, *SIZES, "reports.write=all", "keep_generations=3")
    index(project)
    (project.input_root / "Al.txt").write_text(told_as([("Al0x", "Al5x"), ("Al5x", "Al9x")]))
    index(project)
    digest = index(project).digest
    break_manifest(project)
    engine = scripted()
    again = index(project, engine)

    assert (again.published, again.digest, engine.history) == (True, digest, [])
    with opened(project) as stored:
        assert stored.manifest["digest"] == digest
    assert again.generation in generation_ids(project.index)


def test_a_prompt_that_changes_no_record_is_asked_about_once(tmp_path):
    """Prompts are part of what a generation is: after a yes the next run has nothing to ask."""
    project = project_of(tmp_path, PEOPLE, *SIZES)
    first = index(project)
    glean = replace(project.prompts["glean"], user="Look again.")
    changed = replace(project, prompts=project.prompts | {"glean": glean})
    with pytest.raises(NotConfirmed, match="prompt glean"):
        index(changed)
    second = index(changed, yes=True)

    assert second.published
    assert second.digest != first.digest
    assert not index(changed).published


@pytest.mark.parametrize("setting", ["documents.text_field=body", "documents.boilerplate=false"])
def test_what_decides_a_documents_text_is_asked_about(tmp_path, setting):
    """Settings by which a text comes out as another cost paid work, so they need a yes; which documents are read does not."""
    rows = "\n".join(json.dumps({"id": n, "text": f"Al{n}x knows Bo{n}x (5).", "body": f"Cy{n}x knows Di{n}x (5)."}) for n in range(3))
    index(project_of(tmp_path, {**PEOPLE, "rows.jsonl": rows}, *SIZES))
    engine = scripted()
    with pytest.raises(NotConfirmed, match=setting.partition("=")[0]):
        index(project_of(tmp_path, {}, *SIZES, setting), engine)

    assert engine.history == []
    index(project_of(tmp_path, {}, *SIZES, "documents.exclude=Al*"))


def test_a_question_with_another_model_writes_no_report(tmp_path):
    """Reports on first use are the index's model's to write: a question that brings another one publishes nothing, and says so."""
    project = project_of(tmp_path, PEOPLE, *SIZES, "reports.write=lazy")
    index(project)
    before = current_id(project.index)
    engine = scripted(card=replace(CARD, name="other"))
    side = ModelSide(model=model_of(engine), embedder=NoEmbedder(), ledgered=Ledgered(engine, None), meter=Meter(), kind="scripted")
    note = asyncio.run(write_level(project, side, 0, most=99, say=lambda text: None))

    assert "were not written" in note
    assert engine.history == []
    assert current_id(project.index) == before


def test_a_reader_of_the_ledger_does_not_make_a_run_fail(tmp_path):
    """Pages of what is gone cannot be given back while another process reads; the run is done all the same, and the next one gives them back."""
    project = project_of(tmp_path, PEOPLE, *SIZES, "keep_generations=1")
    index(project)
    (project.input_root / "Al.txt").unlink()
    reader = sqlite3.connect(project.index / "ledger.sqlite", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM replies").fetchall()
    try:
        done = index(project, allow_empty=True)
    finally:
        reader.close()
    assert done.published
    index(project)
    files = [path for path in project.index.glob("ledger.sqlite*") if path.is_file()]
    assert not any(b"Seen: Al3x knows" in path.read_bytes() for path in files)


def test_forgetting_beside_a_broken_index_lets_go_of_that_document_only(tmp_path):
    """Where no generation can be read, `forget` still takes every reply of its document, and none of documents that are away for the moment."""
    project = project_of(tmp_path, PEOPLE, *SIZES)
    index(project)
    break_manifest(project)
    (project.input_root / "Bo.txt").unlink()
    with _side(scripted(), Characters(), NoEmbedder()):
        receipt = asyncio.run(run_forget(project, ["Al.txt"], lambda usage, log: Quiet()))
    with Ledger.open(project.index / "ledger.sqlite") as ledger:
        linked = ledger.documents()

    assert receipt.replies_removed > 0
    assert receipt.links_left == 0
    assert document_id("Al.txt") not in linked
    assert document_id("Bo.txt") in linked
