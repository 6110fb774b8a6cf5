"""`status --verify`: that a sound index passes, and that whatever does not match is named and no more than that."""

import contextlib
import dataclasses
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphrag_local.errors import IndexCorrupt
from graphrag_local.project import ProjectFolder, open_project
from graphrag_local.records import AnchorEdge, Community, Failed, Mention, Span
from graphrag_local.store import receipts, stamps, stand, traces
from graphrag_local.store.files import files_under
from graphrag_local.store.forgotten import unfinished
from graphrag_local.store.generations import current_id, generation_ids, open_current
from graphrag_local.store.lance import Tables
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.publish import counts_of, index_digest, publish
from graphrag_local.store.reading import snapshot_of
from graphrag_local.store.receipts import keep
from graphrag_local.store.snapshot import Snapshot
from graphrag_local.store.tables import TABLES
from graphrag_local.verify.index import SAID, damages, not_checked
from graphrag_local.verify.records import check
from tests.verify.flips import FOUND, ROOT, chosen, try_flips
from tests.verify.worlds import RULES, build, full_world


@pytest.fixture(scope="module", name="full_made")
def _full_made(tmp_path_factory) -> ProjectFolder:
    """One with every kind of file."""
    return full_world(tmp_path_factory.mktemp("full") / "project")


@pytest.fixture(name="full")
def _full(full_made, tmp_path) -> ProjectFolder:
    """A copy of it, to be spoilt."""
    shutil.copytree(full_made.folder, tmp_path / "project")
    return open_project(tmp_path / "project", RULES)


@pytest.fixture(scope="module", name="sound")
def _sound(made) -> Snapshot:
    """All of its records."""
    with open_current(made.index) as generation:
        return snapshot_of(generation)


def data_file(index: Path, table: str, generation: str = "") -> Path:
    """The file with the rows of a table."""
    return next((index / "generations" / (generation or current_id(index)) / f"{table}.lance" / "data").iterdir())


def flip(path: Path) -> None:
    """Turn a bit round in the middle of a file whose time stays."""
    raw, times = bytearray(path.read_bytes()), path.stat()
    raw[len(raw) // 2] ^= 4
    with path.open("r+b") as file:
        file.write(raw)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_sound_index_passes(made, sound):
    """An index of two generations with rows in every table has no problem, and the files are known as checked afterwards."""
    (made.index / "run" / "verified.json").unlink()
    assert damages(made.index) == []
    assert all(len(getattr(sound, name)) > 0 for name in TABLES)
    assert max(community.last_level for community in sound.communities) >= 2
    assert len({vector.owner_kind for vector in sound.vectors}) == 3
    assert len(generation_ids(made.index)) == 2
    assert set(stamps.load(made.index)) >= {stamps.identity(path) for path in (made.index / "generations").rglob("data/*")}


def test_nothing_to_verify_is_no_damage(tmp_path):
    """Before the first build there is nothing to find."""
    assert damages(tmp_path / "index") == []


# --- records


def first(table: str, **values: Any) -> Callable[[Snapshot], Snapshot]:
    """The snapshot with other values in the first row of a table; a value may be a function of the row."""

    def change(it: Snapshot) -> Snapshot:
        row, *rest = getattr(it, table)
        now = {name: value(row) if callable(value) else value for name, value in values.items()}
        return dataclasses.replace(it, **{table: (dataclasses.replace(row, **now), *rest)})

    return change


def without_first(table: str) -> Callable[[Snapshot], Snapshot]:
    """The snapshot without the first row of a table."""
    return lambda it: dataclasses.replace(it, **{table: getattr(it, table)[1:]})


def orphaned(it: Snapshot) -> Snapshot:
    """A community below the roots whose parent does not name it as a child."""
    inner = next(row for row in it.communities if row.child_ids)
    less = dataclasses.replace(inner, child_ids=inner.child_ids[1:])
    return dataclasses.replace(it, communities=tuple(less if row.id == inner.id else row for row in it.communities))


WRONG = {
    "a document under another path": (first("documents", path="elsewhere.txt"), "documents", "its id is not that of its path"),
    "a text with one letter more": (first("documents", text=lambda row: row.text + "x"), "documents", "its content hash"),
    "a chunk that is not in its document": (first("chunks", text=lambda row: row.text + "x"), "chunks", "its text is not what"),
    "a chunk that begins later": (first("chunks", start=lambda row: row.start + 1), "chunks", "its text is not what"),
    "a chunk with another number": (first("chunks", index=99), "chunks", "not in its place"),
    "a chunk with another id": (first("chunks", id="0" * 32), "chunks", "its id is not that of its document and text"),
    "a document that is not there": (without_first("documents"), "chunks", "does not exist"),
    "a mention with another number": (first("mentions", number=99), "mentions", "its id is not that of"),
    "a mention of nobody": (first("mentions", owner_id="0" * 32), "mentions", "does not exist"),
    "a quotation outside its chunk": (first("mentions", spans=(Span(start=0, end=10**6),)), "mentions", "words outside its chunk"),
    "an entity under another key": (first("entities", key="somebody"), "entities", "its id is not that of its key"),
    "an entity under another name": (first("entities", name="Somebody Else"), "entities", "none of its names"),
    "an entity with a mention more": (first("entities", mentions=99), "entities", "it counts 99 mentions"),
    "an entity of another type": (first("entities", type="place"), "entities", "its types"),
    "an entity of another degree": (first("entities", degree=99), "entities", "its degree is 99"),
    "an edge with other ends": (first("relationships", source_id=lambda row: row.target_id, target_id=lambda row: row.source_id), "relationships", "not in order"),
    "an edge of another weight": (first("relationships", weight=99.0), "relationships", "its weight"),
    "an edge of another combined degree": (first("relationships", combined_degree=99), "relationships", "its combined degree"),
    "an entity that is not there": (without_first("entities"), "mentions", "does not exist"),
    "a claim that says something else": (first("claims", description="It was she."), "claims", "its id is not that of what it says"),
    "a claim of another chunk": (first("claims", document_id="0" * 32), "claims", "is of another document"),
    "a community that is not there": (without_first("communities"), "communities", "is no partition"),
    "a community without its parent": (orphaned, "communities", "its children are not those"),
    "an anchor with a hole": (without_first("anchor_communities"), "anchor_communities", "is no partition"),
    "an anchor edge to nowhere": (
        lambda it: dataclasses.replace(it, anchor_edges=(*it.anchor_edges, AnchorEdge(source_id="0", target_id="1", weight=1.0))),
        "anchor_edges", "in no community",
    ),
    "a report of another community": (first("reports", community_id="0" * 32), "reports", "does not exist or is not that of its id"),
    "a report that cites nothing that is there": (
        first("reports", findings=lambda row: (dataclasses.replace(row.findings[0], sources=("0" * 32,)),)), "reports", "its source",
    ),
    "a report of a text that is gone": (first("reports", documents=("0" * 32,)), "reports", "its document"),
    "a vector of another text": (first("vectors", text_hash="0" * 32), "vectors", "was made from another text"),
    "a vector that is not there": (without_first("vectors"), "vectors", "has none"),
    "a failure of nothing": (
        lambda it: dataclasses.replace(it, failures=(Failed(stage="extraction", input_id="0" * 32, input="a", reason="b"),)), "failures", "does not exist",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_records_that_do_not_fit_are_named(sound, name):
    """Each sentence names the table and the id of what is wrong; the sound records have none."""
    change, table, words = WRONG[name]
    found = list(check(change(sound), set()))
    assert list(check(sound, set())) == []
    assert [line for line in found if line.startswith(table) and words in line], found


def test_what_was_published_wrong_is_found_although_its_files_are_whole(project, sound):
    """A generation whose files are those that were written and whose records are not what its digests, counts and ids say is named by all of them."""
    with open_current(project.index) as parent:
        about, digest = parent.manifest.about, parent.manifest.digest
    wrong = first("entities", degree=99)(dataclasses.replace(sound, failures=()))
    with BuildLock(project.index) as lock:
        id_ = publish(lock, wrong, digest=digest, counts=counts_of(sound), about=about)
    found = damages(project.index)
    assert all(id_ in line for line in found)
    assert f"its records have the digest {index_digest(wrong, about)}, its manifest says {digest}" in " ".join(found)
    assert any("it counts 1 failures, there are 0" in line for line in found)
    assert any(f"entities {wrong.entities[0].id}: its degree is 99" in line for line in found)
    assert len(found) == 3 + sound.entities[0].degree  # of each of its edges the sum of degrees is another, too


def test_communities_that_the_anchor_does_not_give_are_named(made, sound):
    """A hierarchy that is sound in itself and is not what the anchor and the graph give is found, unless other libraries made it, which may differ."""
    with open_current(made.index) as generation:
        about = generation.manifest.about
    old, other = sound.communities[0].id, f"{'0' * 31}1"

    def renamed(row: Community) -> Community:
        children = tuple(sorted(other if child == old else child for child in row.child_ids))
        parent = other if row.parent_id == old else row.parent_id
        return dataclasses.replace(row, id=other if row.id == old else row.id, parent_id=parent, child_ids=children)

    bare = dataclasses.replace(sound, reports=(), vectors=(), dimension=0, failures=())
    wrong = dataclasses.replace(bare, communities=tuple(map(renamed, sound.communities)))
    assert list(check(sound, set(), about)) == list(check(wrong, set())) == []
    found = list(check(wrong, set(), about))
    assert f"communities {other}: it is not what the anchor and the graph give" in found
    assert all(line.startswith("communities ") for line in found)
    assert list(check(wrong, {"anchor_edges"}, about)) == []
    assert list(check(wrong, set(), about | {"partition": about["partition"] | {"leidenalg": "0"}})) == []


def test_the_ledger_is_only_read(project):
    """A verification changes neither bytes nor times of the ledger, makes no file beside it, leaves an older schema as it is, and finds no damage in it."""
    ledger = project.index / "ledger.sqlite"
    with contextlib.closing(sqlite3.connect(ledger)) as connection:
        connection.executescript(
            "DROP TABLE groups; DROP TABLE reply_groups; UPDATE meta SET value = '1' WHERE name = 'schema';"
            "CREATE TABLE reply_documents (key TEXT, position INTEGER, document TEXT NOT NULL, PRIMARY KEY (key, position)) WITHOUT ROWID;"
            "DELETE FROM replies; PRAGMA wal_checkpoint(TRUNCATE);"
        )
    before = ledger.read_bytes(), ledger.stat().st_mtime_ns
    assert damages(project.index) == []
    assert (ledger.read_bytes(), ledger.stat().st_mtime_ns) == before
    assert [path.name for path in project.index.glob("ledger.sqlite*")] == [ledger.name]


def test_an_index_that_may_only_be_read_is_sound(made):
    """Somebody without the right to write anywhere in the index verifies it all the same."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user")
    home = Path("/var/tmp") / f"verified {os.getpid()}"
    script = "import pathlib, sys; from graphrag_local.verify.index import damages; print(damages(pathlib.Path(sys.argv[1])))"
    as_nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs")
    try:
        shutil.copytree(made.index, home)
        subprocess.run(["chmod", "-R", "a+rX,go-w", home], check=True)
        done = subprocess.run([*as_nobody, sys.executable, "-c", script, home], cwd=ROOT, text=True, capture_output=True, check=False)
        if "Permission denied" in done.stderr and sys.executable in done.stderr:
            pytest.skip("another user may not start this Python")
        assert done.stdout == "[]\n", done.stderr
    finally:
        shutil.rmtree(home, ignore_errors=True)


def test_many_problems_are_counted(project, sound):
    """Of very many problems in the records the first are told and the rest are counted."""
    wrong = dataclasses.replace(sound, mentions=tuple(dataclasses.replace(row, owner_id="0" * 32) for row in sound.mentions))
    with open_current(project.index) as parent, BuildLock(project.index) as lock:
        publish(lock, wrong, digest=index_digest(wrong, parent.manifest.about), counts=counts_of(wrong), about=parent.manifest.about)
    found = damages(project.index)
    assert len(found) == SAID + 1
    assert "more of its records do not fit together" in found[-1]


def test_a_vector_that_is_not_the_ledgers_is_named(project, sound):
    """A vector in a table is compared with the one that the ledger keeps of the same text."""
    vector = sound.vectors[0]
    wrong = dataclasses.replace(sound, vectors=(dataclasses.replace(vector, values=vector.values[::-1]), *sound.vectors[1:]))
    with open_current(project.index) as parent, BuildLock(project.index) as lock:
        publish(lock, wrong, digest=parent.manifest.digest, counts=counts_of(wrong), about=parent.manifest.about)
    (problem,) = damages(project.index)
    assert f"the vector of {vector.owner_id} is not the one that the ledger keeps" in problem


# --- files


def test_the_check_goes_on_after_what_it_cannot_read(project):
    """A damaged pointer, manifest, table, and ledger, a file too many and one too few each have a sentence, and nothing is raised."""
    index, (old, new) = project.index, generation_ids(project.index)
    (index / "CURRENT").write_text("nothing\n")
    (index / "generations" / old / "manifest.json").write_text("{")
    flip(data_file(index, "entities", new))
    data_file(index, "claims", new).unlink()
    (data_file(index, "chunks", new).parent / "more.lance").write_bytes(b"x")
    (index / "ledger.sqlite").write_bytes(b"not a database" * 1000)
    found = damages(index)
    words = ["CURRENT does not name", f"{old}/manifest.json cannot be read", "was altered", "is missing", "more.lance does not belong", "ledger.sqlite is damaged"]
    assert [[word in line for word in words].count(True) for line in found] == [1] * 6
    assert all(any(word in line for line in found) for word in words)


def test_what_does_not_need_a_damaged_table_is_still_checked(project, sound):
    """With a damaged file in one table the records of the others are compared all the same."""
    with open_current(project.index) as parent, BuildLock(project.index) as lock:
        about = parent.manifest.about
        wrong = first("documents", content_hash="0" * 32)(sound)
        publish(lock, wrong, digest=index_digest(wrong, about), counts=counts_of(wrong), about=about)
    flip(data_file(project.index, "reports"))
    found = damages(project.index)
    assert len(found) == 2
    assert "reports.lance" in found[0]
    assert f"documents {wrong.documents[0].id}: its content hash is not that of its text" in found[1]


def test_damage_under_an_unchanged_time_is_refused_once_it_was_found_and_then_repaired(project):
    """A bit that rots changes no time: the verification finds it, from then on nothing is answered from it, and the next build makes a whole generation
    anew, takes no damaged file over, asks nothing, and removes the damaged one."""
    index, before = project.index, current_id(project.index)
    open_current(index).close()
    victim = data_file(index, "entities")
    flip(victim)
    open_current(index).close()
    assert any(str(victim) in line for line in damages(index))
    with pytest.raises(IndexCorrupt, match="was altered") as refused:
        open_current(index)
    assert "graphrag-local index" in refused.value.hint
    assert "graphrag-local rollback" in refused.value.hint
    with Ledger.open(index / "ledger.sqlite") as ledger:
        replies = ledger.counts()["replies"]
    damaged = {path.stat().st_ino for path in files_under_path(index / "generations" / before)}
    after = build(project)
    assert after != before
    assert not damaged & {path.stat().st_ino for path in files_under_path(index / "generations" / after)}
    assert before not in generation_ids(index)
    assert damages(index) == []
    with Ledger.open(index / "ledger.sqlite") as ledger:
        assert ledger.counts()["replies"] == replies


@pytest.mark.parametrize("what", ["garbage", "zeros", "cut"])
def test_a_table_that_rots_while_it_is_open_is_never_a_traceback(project, what):
    """Bytes that change under an open generation make reading fail with a sentence that names the table and the ways out."""
    with open_current(project.index) as generation:
        tables = Tables.of(generation)
        path = data_file(project.index, "mentions")
        raw = path.read_bytes()
        with path.open("r+b") as file:
            file.write({"garbage": bytes(byte ^ 0x5A for byte in raw), "zeros": b"\0" * len(raw), "cut": raw[: len(raw) // 2]}[what])
            file.truncate()
        with pytest.raises(IndexCorrupt, match=r"mentions\.lance cannot be read") as refused:
            tables.records(Mention)
    assert "graphrag-local rollback" in refused.value.hint


def files_under_path(folder: Path) -> list[Path]:
    """Every file below a folder."""
    return [folder / path for path in files_under(folder)]


def test_flipped_bits_that_change_content_are_found(full, tmp_path):
    """Of 90 random single bit flips over all kinds of files none changes what is read and stays unfound, none raises anything, and none leaves a trace."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert damages(full.index) == []
    assert not_checked(full.index) == ""
    tallies = try_flips(full, chosen(full.index, 90, seed=60), scratch)
    assert sum(tally.flips for tally in tallies.values()) >= 85
    assert tallies.keys() >= {*FOUND, "stamps", "run log"} - {"table indices"}
    assert {kind: tally.missed for kind, tally in tallies.items() if tally.missed} == {}
    assert [raised for tally in tallies.values() for raised in tally.raised] == []
    assert all(tallies[kind].found == tallies[kind].flips for kind in FOUND if kind in tallies and kind != "ledger")
    assert tallies["ledger"].changed > 5
    assert damages(full.index) == []


@pytest.mark.parametrize("what", ["receipts/*.json", "standing.json", "forgetting.json", "traces/*.json"])
def test_every_bit_of_what_is_kept_beside_the_generations_counts(full, what):
    """Whichever bit of a receipt, of the note of the last run, of a `forget` under way or of a trace is flipped, the file is named."""
    (path,) = full.index.glob(what)
    whole = path.read_bytes()
    look = {"receipts": receipts.problems, "standing": stand.problems, "traces": traces.problems}.get(what.split("/")[0].removesuffix(".json"))
    for place in range(0, len(whole), max(1, len(whole) // 400)):
        for bit in (0, 3, 5, 6):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            if look is None:
                with pytest.raises(IndexCorrupt):
                    unfinished(full.index)
            else:
                assert any(path.name in line for line in look(full.index)), (place, bit)
    assert any(path.name in line for line in damages(full.index))
    path.write_bytes(whole)
    assert damages(full.index) == []


def test_a_receipt_from_before_checksums_is_no_damage(project):
    """It is named as not checked; with the field that the checksum was in under another name it is damaged."""
    keep(project.index, "old", {"documents": ["d"], "at": "2026-01-02T03:04:05+00:00", "clean": True})
    path = project.index / "receipts" / "old.json"
    sealed = path.read_text()
    path.write_text(json.dumps({name: value for name, value in json.loads(sealed).items() if name != "sha256"}))
    assert damages(project.index) == []
    assert "old.json" in not_checked(project.index)
    path.write_text(sealed.replace("sha256", "sha257"))
    assert [str(path) in line for line in damages(project.index)] == [True]


def test_digests_do_not_depend_on_where_an_index_is(made, project):
    """A copy elsewhere verifies as well as the original, and has the same digest."""
    with open_current(made.index) as one, open_current(project.index) as two:
        assert one.manifest.digest == two.manifest.digest == index_digest(snapshot_of(two), two.manifest.about)
    assert damages(project.index) == []
