"""`forget` where generations stay, where it is killed, and where something is in its way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphrag_local import erasing
from graphrag_local.records import Entity
from graphrag_local.store.generations import current_id, generation_ids
from graphrag_local.store.reading import StoredIndex
from tests.cases.program import Program
from tests.cases.sealed import FILES, OFFICE, QUESTIONS, _indexed, _it, copy_of, forget, traces, wait_until  # noqa: F401

# --- generations that stay


def test_generations_that_are_to_stay_are_named(it):
    """With --keep-generations the words stay in the generation that the receipt names and nowhere else, the ledger included; then they can go, too."""
    old = it.status()["generation"]
    receipt = forget(it, "sealed.txt", "--keep-generations")
    assert (receipt["generations_kept"], receipt["generations_removed"]) == ([old], [])
    assert (receipt["found"], receipt["replies_removed"] > 0) == ([], True)
    places = traces(it.folder)
    assert places
    assert all(place.startswith(f"index/generations/{old}") for place in places)
    assert it.run("rollback").code == 0
    assert "Petrel" in it.names()
    done = it.index()
    assert (done.json["changes"]["forgotten"], done.json["last_build"]["calls"]) == (["sealed.txt"], 0)
    assert forget(it, "sealed.txt")["generations_kept"] == []
    assert traces(it.folder) == set()


def test_a_generation_that_somebody_reads_is_named(it, monkeypatch):
    """Who reads an older generation is waited for and can go on; the receipt, which is not clean, names it with the process and says what to do; the same
    command removes it once nobody reads it."""
    monkeypatch.setattr(erasing, "WAIT_S", 0.5)
    index = StoredIndex.open(it.folder / "index")
    try:
        receipt = forget(it, "sealed.txt", code=1)
        assert receipt["generations_kept"] == receipt["generations_read"] == [index.generation]
        assert (receipt["generations_removed"], receipt["clean"], receipt["found"]) == ([], False, [])
        assert f"still reads generation {index.generation}" in receipt["to_do"]
        assert "run the same command again" in receipt["to_do"]
        assert {document.path for document in index.documents()} == set(FILES)
        assert all(place.startswith(f"index/generations/{index.generation}") for place in traces(it.folder))
        said = it.run("forget", "sealed.txt")
        assert said.code == 1
        assert f"STILL in generation {index.generation}: Process {os.getpid()} still reads" in said.out or not Path("/proc/locks").is_file()
        assert f"Generation {index.generation} is to go and is being read by" in said.err
        assert "0.5 s at most" in said.err
    finally:
        index.close()
    done = forget(it, "sealed.txt")
    assert (done["generations_removed"], done["to_do"]) == ([index.generation], "")
    assert traces(it.folder) == set()


def test_no_way_back(it):
    """After `forget` there is no older generation with the document to roll back to."""
    it.put({"more.txt": "Irsa Dunmore counts the bells.\n"})
    assert it.index().code == 0
    assert len(generation_ids(it.folder / "index")) == 2
    forget(it, "sealed.txt")
    assert generation_ids(it.folder / "index") == [current_id(it.folder / "index")]
    done = it.run("rollback")
    assert (done.code, "no older one" in done.err) == (2, True)


# --- killed


def _listed(it: Program, old: str) -> bool:
    return (it.folder / "index" / "forgetting.json").exists()


def _published(it: Program, old: str) -> bool:
    return current_id(it.folder / "index") != old


def _removed(it: Program, old: str) -> bool:
    return old not in generation_ids(it.folder / "index")


def _sweeping(it: Program, old: str) -> bool:
    return _published(it, old) and '"end"' in max((it.folder / "index" / "runs").iterdir()).read_text()


@pytest.fixture(scope="module", name="undisturbed")
def _undisturbed(indexed, tmp_path_factory) -> str:
    """The digest of the index after a `forget` that nothing cuts short."""
    return forget(copy_of(indexed, tmp_path_factory.mktemp("calm")), "sealed.txt")["digest_after"]


@pytest.mark.parametrize("moment", [_listed, _published, _removed, _sweeping])
def test_killed_in_the_middle(it, moment, undisturbed):
    """Killed anywhere, the document is in the index whole or not at all, `index` does not bring it back, the same command finishes: as if undisturbed."""
    old = it.status()["generation"]
    with it.start("forget", "sealed.txt", "--json") as child:
        wait_until(lambda: moment(it, old) or child.poll() is not None)
        child.kill()
    assert it.run("status", "--json", "--verify").code == 0
    whole = "sealed.txt" in it.texts()
    assert whole == (current_id(it.folder / "index") == old)
    assert {"Petrel" in it.names(), "ducats" in it.query(QUESTIONS[0], "--mode=basic")["answer"]} == {whole}
    done = it.index()
    assert (done.code, done.json["changes"]["forgotten"]) == (0, ["sealed.txt"])
    assert "sealed.txt" not in it.texts()
    assert traces(it.folder) == set()
    receipt = forget(it, "sealed.txt")
    assert (receipt["found"], receipt["generations_kept"], traces(it.folder)) == ([], [], set())
    assert receipt["digest_after"] == undisturbed
    assert not [path for path in (it.folder / "index").rglob(".*") if path.name.startswith((".building", ".removing"))]


# --- what can go wrong


def test_an_input_that_is_away_takes_nothing_else(it):
    """`forget` while the input folder is empty or missing does not take the other documents with it: it stops, and can be finished later."""
    it.input.rename(it.folder / "away")
    for make in (lambda: None, it.input.mkdir):
        make()
        done = it.run("forget", "sealed.txt")
        assert done.code == 1
        assert "missing" in done.err
        assert set(it.texts()) == set(FILES)
    it.input.rmdir()
    (it.folder / "away").rename(it.input)
    assert forget(it, "sealed.txt")["clean"]
    assert set(it.texts()) == set(OFFICE)


def test_a_change_that_needs_a_yes(it):
    """Where settings have changed too, `forget` ends with 2 and says that the documents are marked; with --yes it goes on."""
    it.settings["extraction.claims"] = True
    done = it.run("forget", "sealed.txt")
    assert done.code == 2
    assert "extraction.claims" in done.err
    assert "sealed.txt" in it.texts()
    assert "every run from now on leaves them out" in done.err
    assert it.status()["forgetting"] == 1
    assert "A forget of 1 document was begun and is not finished" in it.run("status").out
    assert forget(it, "sealed.txt", "--yes")["clean"]
    assert it.status()["forgetting"] == 0


def test_who_sits_at_the_terminal_is_asked(it):
    """The same question as in `index` is put to whoever can answer it; after a yes the documents are forgotten."""
    it.settings["extraction.claims"] = True
    ours, theirs = os.openpty()
    try:
        os.write(ours, b"y\n")
        done = subprocess.run([sys.executable, "-m", "graphrag_local", *it.arguments("forget", "sealed.txt")], stdin=theirs, stderr=theirs, stdout=subprocess.PIPE)
    finally:
        os.close(theirs)
        said = os.read(ours, 1 << 16)
        os.close(ours)
    assert done.returncode == 0
    assert b"extraction.claims" in said
    assert b"Go on?" in said
    assert "sealed.txt" not in it.texts()


def test_a_forgotten_file_that_cannot_be_read_is_no_failure(it):
    """A file that was forgotten and cannot be read is left out like any other; no failure tells of it."""
    it.put({"sealed.docx": b"PK\x03\x04 this is no document"})
    assert it.index().code == 3
    (it.input / "sealed.docx").rename(it.input / "later.docx")
    forget(it, "sealed.txt", code=3)
    (it.input / "later.docx").unlink()
    it.put({"sealed.txt": b"\x00\x01\x02\x03" * 200})
    done = it.index()
    assert (done.code, done.json["failures"]) == (0, [])
    assert traces(it.folder, ["sealed.txt"]) == set()


def test_while_the_model_server_is_away(it):
    """Where nobody answers, `forget` says how to go on, and `--without-model` takes the paper out at once and says what waits; the next `index` writes that."""
    it.put({f"more{number}.txt": f"Irsa Dunmore counted {number} bells for the Tide Board in the yard behind the office.\n" for number in range(5)})
    assert it.index().code == 0
    there = dict(it.settings)
    it.settings |= {"engine.url": "http://127.0.0.1:9/v1", "engine.patience_s": 0.1}
    failed = it.run("forget", "sealed.txt")
    assert failed.code not in (0, 3)
    assert "--without-model" in failed.said
    assert "sealed.txt" in it.texts()
    done = it.run("forget", "sealed.txt", "--without-model")
    assert done.code == 0, done.said
    assert "waiting for a model: " in done.out
    assert "found none" in done.out
    assert traces(it.folder) == set()
    assert "sealed.txt" not in it.texts()
    assert "Petrel" not in it.names()
    assert not any("ducats" in entity.description for entity in it.records(Entity))
    assert it.run("status", "--json", "--verify").json["problems"] == []
    it.settings.clear()
    it.settings |= there
    assert "ducats" not in it.query(QUESTIONS[0], "--mode=basic")["answer"]
    made = it.index()
    assert (made.code, made.json["published"], made.json["failures"]) == (0, True, [])
    assert it.run("status", "--json", "--verify").json["problems"] == []
