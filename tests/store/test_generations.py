"""Publishing, opening, collecting and rolling back generations."""

import dataclasses
import errno
import getpass
import json
import os
import platform
import re
import shutil
from pathlib import Path

import pytest

from graphrag_local.errors import IndexBusy, IndexCorrupt, IndexMissing, StorageError, UsageError
from graphrag_local.records import Chunk, Document
from graphrag_local.store import files, generations, stamps
from graphrag_local.store.generations import (
    collect,
    current_id,
    generation_ids,
    open_current,
    open_generation,
    rollback_to,
    verify,
)
from graphrag_local.store.lance import Tables
from graphrag_local.store.listing import list_generations
from graphrag_local.store.lock import BuildLock, holder
from graphrag_local.store.manifest import FORMAT
from graphrag_local.store.publish import content_digest, publish
from graphrag_local.store.snapshot import Snapshot
from graphrag_local.store.tables import TABLES
from tests.store.publishing import put
from tests.store.tools import child, small, vector


def content(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Inode, time and bytes of every file of a folder."""
    found = {path.as_posix(): (folder / path).stat() for path in files.files_under(folder)}
    return {path: (stat.st_ino, stat.st_mtime_ns, (folder / path).read_bytes()) for path, stat in found.items()}


def read(index: Path) -> Snapshot:
    """What the current generation holds, without vectors."""
    with open_current(index) as generation:
        tables = Tables.of(generation)
        return Snapshot(**{name: tuple(tables.records(record)) for name, record in TABLES.items()})


def same(one: Snapshot, two: Snapshot) -> bool:
    """Whether two snapshots hold equal records, vectors apart."""
    bare = [dataclasses.replace(snapshot, vectors=(), dimension=0) for snapshot in (one, two)]
    return content_digest(bare[0], {}) == content_digest(bare[1], {})


def test_what_is_published_is_read(tmp_path):
    """A published snapshot is opened as it was, with its manifest, its counts and a digest that equals the digest of what is read."""
    id_ = put(tmp_path, small(1), files={"anchor.json": b"[1]"})
    assert re.fullmatch(r"000001-[0-9a-f]{12}", id_)
    assert (current_id(tmp_path), generation_ids(tmp_path)) == (id_, [id_])
    assert same(read(tmp_path), small(1))
    with open_current(tmp_path) as generation:
        manifest = generation.manifest
        assert (generation.id, manifest.parent, manifest.counts, manifest.dimension) == (id_, "", {"documents": 3}, 4)
        assert manifest.digest == content_digest(small(1), {"settings": "s"})
        assert manifest.tables["mentions"].rows == 6
        assert (generation.attached("anchor.json"), generation.attached("other.json"), generation.notes) == (b"[1]", None, ())
    assert verify(tmp_path) == []


def test_an_empty_collection_can_be_published(tmp_path):
    """A generation without any row is whole and opens."""
    nothing = Snapshot(**dict.fromkeys(TABLES, ()))
    put(tmp_path, nothing)
    assert read(tmp_path) == nothing


def test_no_index_is_said_so(tmp_path):
    """Without a finished index opening says that there is none, and what to do."""
    for index in (tmp_path, tmp_path / "missing"):
        with pytest.raises(IndexMissing, match="no finished index") as found:
            open_current(index)
        assert "graphrag-local index" in found.value.hint
    (tmp_path / "generations" / ".building-000001-1").mkdir(parents=True)
    with pytest.raises(IndexMissing):
        verify(tmp_path)


def test_unchanged_tables_are_the_same_files(tmp_path):
    """A table with equal rows and vectors is linked, not written; a changed one is new; the parent's files are untouched."""
    first = put(tmp_path, small(0), files={"anchor.json": b"a"})
    parent = open_current(tmp_path)
    before = content(parent.folder)
    put(tmp_path, small(1), parent, files={"anchor.json": b"a"})
    assert content(parent.folder) == before
    with open_current(tmp_path) as generation:
        after = content(generation.folder)
        assert generation.manifest.parent == first
    parent.close()
    linked = {path.split("/")[0] for path in after if path in before and after[path][0] == before[path][0]}
    new = {path.split("/")[0] for path in after if path not in before or after[path][0] != before[path][0]}
    assert linked == {f"{name}.lance" for name in TABLES if name not in ("documents", "chunks", "mentions")}
    assert new == {"documents.lance", "chunks.lance", "mentions.lance", "anchor.json", "manifest.json"}
    assert same(read(tmp_path), small(1))


def test_another_vector_is_another_table(tmp_path):
    """Equal rows with other vectors are written anew, the tables without vectors are linked."""
    put(tmp_path, small())
    snapshot = small()
    other = dataclasses.replace(snapshot, vectors=(vector("chunk", snapshot.vectors[0].owner_id, "another text"), *snapshot.vectors[1:]))
    with open_current(tmp_path) as parent:
        put(tmp_path, other, parent)
        with open_current(tmp_path) as generation:
            now, then = content(generation.folder), content(parent.folder)
    assert {path.split("/")[0] for path in now if path not in then or now[path][0] != then[path][0]} == {"chunks.lance", "manifest.json"}


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_where_links_are_impossible_files_are_copied(tmp_path, monkeypatch, number):
    """Without hard links the new generation has copies, with the same checksums."""
    put(tmp_path, small(0))
    with open_current(tmp_path) as parent:
        monkeypatch.setattr(Path, "hardlink_to", lambda self, target: (_ for _ in ()).throw(OSError(number, os.strerror(number))))
        put(tmp_path, small(1), parent)
        with open_current(tmp_path) as generation:
            inodes = {path: entry[0] for path, entry in content(generation.folder).items()}
            assert all(inodes.get(path) != entry[0] for path, entry in content(parent.folder).items())
    assert verify(tmp_path) == []


def test_a_reader_keeps_its_generation(tmp_path):
    """While three generations are published and old ones collected, an open one goes on answering; closed, it goes."""
    first = put(tmp_path, small(0))
    reader = open_current(tmp_path)
    tables = Tables.of(reader)
    for version in (1, 2, 3):
        with open_current(tmp_path) as parent:
            put(tmp_path, small(version), parent)
        with BuildLock(tmp_path) as lock:
            done = collect(lock, 1)
    assert done.held == (first,)
    assert sorted(tables.records(Document), key=repr) == sorted(small(0).documents, key=repr)
    assert tables.near(Chunk, [1.0, 0, 0, 0], 1)
    assert len(generation_ids(tmp_path)) == 2
    reader.close()
    with BuildLock(tmp_path) as lock:
        assert collect(lock, 1).removed == (first,)
    assert same(read(tmp_path), small(3))
    with pytest.raises(UsageError, match=first):
        open_generation(tmp_path, first)


def test_a_reader_in_another_process_keeps_its_generation(tmp_path):
    """The hold works between processes, and ends with a process that is killed."""
    put(tmp_path, small(0))
    script = "import sys, pathlib; from graphrag_local.store.generations import open_current\n"
    with child(script + "g = open_current(pathlib.Path(sys.argv[1])); print(g.id, flush=True); sys.stdin.read()", tmp_path) as reader:
        first = reader.stdout.readline().strip()
        put(tmp_path, small(1))
        with BuildLock(tmp_path) as lock:
            assert collect(lock, 1).held == (first,)
    with BuildLock(tmp_path) as lock:
        assert collect(lock, 1).removed == (first,)


def test_collect_keeps_the_newest_and_clears_what_builds_left(tmp_path):
    """The current generation and the newest others stay, `keep` in all; folders of unfinished builds and removals go."""
    made = [put(tmp_path, small(version)) for version in range(4)]
    for name in (".building-000009-1", ".removing-000001-aaaaaaaaaaaa-1"):
        (tmp_path / "generations" / name / "chunks.lance").mkdir(parents=True)
        (tmp_path / "generations" / name / "chunks.lance" / "data").write_bytes(b"x")
    with BuildLock(tmp_path) as lock:
        rollback_to(lock, made[1])
        assert collect(lock, 3).removed == (made[0],)
        assert sorted(path.name for path in (tmp_path / "generations").iterdir()) == made[1:]
        assert collect(lock, 1).removed == (made[2], made[3])
    assert current_id(tmp_path) == made[1]
    known = set(stamps.load(tmp_path))
    assert known <= {stamps.identity(tmp_path / path) for path in files.files_under(tmp_path)}


def test_rolling_back_moves_the_pointer(tmp_path):
    """After a rollback the older generation answers, the newer one is still listed, and the next build counts on."""
    one, two = put(tmp_path, small(1)), put(tmp_path, small(2))
    with BuildLock(tmp_path) as lock:
        rollback_to(lock, one)
        assert same(read(tmp_path), small(1))
        assert [(row.id, row.current) for row in list_generations(tmp_path)] == [(one, True), (two, False)]
        for wrong in ("000009-aaaaaaaaaaaa", "../../etc", ""):
            with pytest.raises(UsageError, match="no generation"):
                rollback_to(lock, wrong)
        (data,) = (tmp_path / "generations" / two / "chunks.lance" / "data").iterdir()
        data.write_bytes(data.read_bytes()[:-1])
        with pytest.raises(IndexCorrupt, match=re.escape(data.name)):
            rollback_to(lock, two)
    assert put(tmp_path, small(3)).startswith("000003-")


def test_files_are_hashed_once(tmp_path, monkeypatch):
    """The second opening of an unchanged generation hashes nothing, and of the next generation only what is not linked."""
    hashed: list[str] = []

    def counting(path: Path) -> str:
        hashed.append(path.as_posix())
        return files.sha256_of(path)

    monkeypatch.setattr(generations, "sha256_of", counting)
    put(tmp_path, small(0))
    open_current(tmp_path).close()
    assert len(hashed) > 20
    hashed.clear()
    with open_current(tmp_path) as parent:
        assert hashed == []
        put(tmp_path, small(1), parent)
    open_current(tmp_path).close()
    assert {Path(path).relative_to(tmp_path).parts[2] for path in hashed} == {"documents.lance", "chunks.lance", "mentions.lance"}
    os.utime(next((tmp_path / "generations" / current_id(tmp_path)).glob("claims.lance/data/*")))
    hashed.clear()
    open_current(tmp_path).close()
    assert len(hashed) == 1


def test_all_is_on_the_disk_before_the_pointer_moves(tmp_path, monkeypatch):
    """Every new file and folder is synced before the folder gets its name, that before the pointer moves, and then the pointer's own folder."""
    put(tmp_path, small(0))
    events: list[tuple[str, str]] = []
    fsync, rename, replace = os.fsync, Path.rename, Path.replace

    def recorded(what: str, path: Path) -> None:
        events.append((what, path.relative_to(tmp_path).as_posix()))

    with open_current(tmp_path) as parent:
        monkeypatch.setattr(os, "fsync", lambda fd: (fsync(fd), recorded("sync", Path(f"/proc/self/fd/{fd}").readlink()))[0])
        monkeypatch.setattr(Path, "rename", lambda self, to: (rename(self, to), recorded("name", to))[0])
        monkeypatch.setattr(Path, "replace", lambda self, to: (replace(self, to), recorded("name", to))[0])
        id_ = put(tmp_path, small(1), parent)
        monkeypatch.undo()
        folder = tmp_path / "generations" / id_
        new = [path for path in files.files_under(folder) if not (parent.folder / path).exists()]
    end = [
        ("name", f"generations/{id_}"), ("sync", "generations"), ("sync", "CURRENT.tmp"), ("name", "CURRENT"), ("sync", "."),
    ]  # fmt: skip
    assert events[-5:] == end
    synced = [re.sub(r"\.building-[^/]*", id_, path) for what, path in events[:-5] if what == "sync"]
    folders = [path for path in folder.rglob("*") if path.is_dir()]
    for path in [*(folder / path for path in new), *folders, folder / "manifest.json", folder]:
        assert path.relative_to(tmp_path).as_posix() in synced
    manifest = synced.index(f"generations/{id_}/manifest.json")
    assert synced[manifest:] == [f"generations/{id_}/manifest.json", f"generations/{id_}"]


def test_rows_that_cannot_be_stored_change_nothing(tmp_path):
    """A failed publication leaves the old generation current and no folder behind."""
    put(tmp_path, small(0))
    broken = dataclasses.replace(small(1), claims=(*small().claims, *small().claims))
    with pytest.raises(ValueError, match="two rows of Claim"):
        put(tmp_path, broken)
    with pytest.raises(ValueError, match="attached file"):
        put(tmp_path, small(1), files={"../anchor.json": b""})
    with pytest.raises(ValueError, match="no place for the vector"):
        put(tmp_path, dataclasses.replace(small(1), vectors=(vector("claim", "aa", "text"),)))
    assert same(read(tmp_path), small(0))
    assert [path.name for path in (tmp_path / "generations").iterdir()] == [current_id(tmp_path)]


def test_the_index_knows_nothing_of_the_machine(tmp_path):
    """No path, user or host of the machine is in any byte that is published, tables decoded."""
    index = tmp_path / "some project" / "index"
    put(index, small(0))
    with open_current(index) as parent:
        put(index, small(1), parent)
    words = [str(tmp_path), str(Path.cwd()), "/root", str(Path.home()), platform.node(), f"/{getpass.getuser()}/"]
    published = [path for path in files.files_under(index) if path.parts[0] != "run"]
    raw = b"\0".join((index / path).read_bytes() + str(path).encode() for path in published)
    decoded = repr([list(getattr(read(index), name)) for name in TABLES])
    for word in words:
        assert word.encode() not in raw
        assert word not in decoded
    with open_current(index) as generation:
        assert all(not Path(entry.path).is_absolute() and ".." not in entry.path for entry in generation.manifest.files)


def test_equal_content_equal_digest(tmp_path):
    """Two builds of the same records have the same digest and other ids are all that differs for readers."""
    one, two = tmp_path / "one", tmp_path / "two"
    put(one, small())
    put(two, small())
    with open_current(one) as a, open_current(two) as b:
        assert a.manifest.digest == b.manifest.digest
        assert {name: entry.digest for name, entry in a.manifest.tables.items()} == {name: entry.digest for name, entry in b.manifest.tables.items()}


def test_one_build_at_a_time(tmp_path):
    """A second build is refused with the id and start of the first one; a killed one blocks nobody and can be told apart from a finished one."""
    assert holder(tmp_path) is None
    script = "import sys, pathlib; from graphrag_local.store.lock import BuildLock\n"
    with child(script + "l = BuildLock(pathlib.Path(sys.argv[1])).__enter__(); print('held', flush=True); sys.stdin.read()", tmp_path) as first:
        assert first.stdout.readline() == "held\n"
        with pytest.raises(IndexBusy, match=rf"Process {first.pid} on {re.escape(platform.node())}, running since 2"):
            BuildLock(tmp_path).__enter__()
        assert holder(tmp_path).alive
    left = holder(tmp_path)
    assert (left.pid, left.alive) == (first.pid, False)
    with BuildLock(tmp_path) as lock:
        assert lock.held
        assert holder(tmp_path).pid == os.getpid()
    assert not lock.held
    assert holder(tmp_path) is None


def test_publishing_takes_the_lock(tmp_path):
    """Who does not hold the lock cannot publish."""
    lock = BuildLock(tmp_path)
    with pytest.raises(AssertionError):
        publish(lock, small(), digest="", counts={}, about={})
    assert list(tmp_path.iterdir()) == []


def test_an_index_that_cannot_be_made_is_a_storage_error(tmp_path):
    """A file in the place of the index folder is named, with what to do."""
    (tmp_path / "index").write_text("a file")
    with pytest.raises(StorageError, match="index") as found, BuildLock(tmp_path / "index"):
        pass
    assert found.value.hint


def test_the_manifest_is_for_people(tmp_path):
    """The manifest is indented JSON with the format number in it, and every file is in it once."""
    put(tmp_path, small())
    folder = tmp_path / "generations" / current_id(tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["format"] == FORMAT
    listed = [entry["path"] for entry in manifest["files"]]
    assert sorted([*listed, "manifest.json"]) == [path.as_posix() for path in files.files_under(folder)]
    shutil.rmtree(folder)
    with pytest.raises(IndexCorrupt, match=r"manifest\.json is missing"):
        open_current(tmp_path)
