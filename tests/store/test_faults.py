"""Kills, full disks, damage, other versions, other users: what is published is whole, or the damage is named before any answer."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphrag_local.errors import IndexCorrupt, IndexMismatch, IndexMissing, StorageError
from graphrag_local.records import Chunk, Document
from graphrag_local.store.files import files_under
from graphrag_local.store.generations import collect, current_id, generation_ids, open_current, verify
from graphrag_local.store.lance import Tables
from graphrag_local.store.listing import list_generations
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.manifest import FORMAT
from graphrag_local.store.publish import content_digest
from tests.store.publishing import put
from tests.store.tools import child, little_disk, small

# One process that starts builders by fork, since importing LanceDB anew for each of them would take most of the time of this test. It must not
# use LanceDB itself: a fork after that crashes now and then.
BUILDERS = """
import os, pathlib, sys, time
import lancedb
from graphrag_local.store.generations import collect, open_current
from graphrag_local.store.lock import BuildLock
from tests.store.publishing import put
from tests.store.tools import small
index = pathlib.Path(sys.argv[1])
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        print(os.getpid(), flush=True)
        version = int(line)
        while True:
            version += 1
            with open_current(index) as parent:
                put(index, small(version), parent)
            with BuildLock(index) as lock:
                collect(lock, 2)
            print("published", flush=True)
    os.waitpid(pid, 0)
    print("gone", flush=True)
"""


def version_of(index: Path) -> int:
    """The version of `small` that an index holds, after comparing all of it."""
    with open_current(index) as generation:
        tables = Tables.of(generation)
        (text,) = [row.text for row in tables.records(Document) if row.path == "notes/mill 0.txt"]
        version = int(text.split("edition ")[1].split(".")[0])
        assert generation.manifest.digest == content_digest(small(version), {"settings": "s"})
        assert {row.text for row in tables.records(Document)} == {row.text for row in small(version).documents}
        return version


def test_kills_while_publishing(tmp_path):
    """A builder is killed 20 times, in its first, second or third publishing at a random moment of it: the index always opens, is whole, and never
    goes back before what was published."""
    chance, version, takes_s = random.Random(20), 0, 0.2
    put(tmp_path, small(0))
    with child(BUILDERS, tmp_path) as builders:
        for time_ in range(20):
            builders.stdin.write(f"{version}\n")
            builders.stdin.flush()
            builder = int(builders.stdout.readline())
            lines, begun = [], time.monotonic()
            for _ in range(time_ % 3):
                lines.append(builders.stdout.readline())
                assert lines[-1] == "published\n", builders.stderr.read()
                takes_s, begun = time.monotonic() - begun, time.monotonic()
            time.sleep(chance.uniform(0.0, 1.1) * takes_s)
            os.kill(builder, signal.SIGKILL)
            while lines[-1:] != ["gone\n"]:
                lines.append(builders.stdout.readline())
                assert lines[-1], builders.stderr.read()
            now = version_of(tmp_path)
            assert now - version in (lines.count("published\n"), lines.count("published\n") + 1)
            version = now
            assert verify(tmp_path, everything=False) == []
    assert version > 10
    with BuildLock(tmp_path) as lock:
        collect(lock, 2)
    assert verify(tmp_path) == []
    assert len(list((tmp_path / "generations").iterdir())) <= 2


def test_eight_readers_while_publishing(tmp_path):
    """Readers that open again and again while generations come and go always get a whole one, none older than the one before."""
    put(tmp_path, small(0))
    script = """
import pathlib, sys, threading
from tests.store.test_faults import version_of
index, done, telling = pathlib.Path(sys.argv[1]), threading.Event(), threading.Lock()
def tell(what):
    with telling:
        print(what, flush=True)
def read():
    last = -1
    while not done.is_set():
        try:
            now = version_of(index)
            assert now >= last, (now, last)
            if now > last:
                tell(now)
            last = now
        except BaseException as error:
            tell(repr(error))
            return
threads = [threading.Thread(target=read) for _ in range(4)]
[thread.start() for thread in threads]
sys.stdin.read()
done.set()
[thread.join() for thread in threads]
"""

    def seen(reader, version):
        """What the threads of a reader have told until each of them has seen a version, or one has failed."""
        lines = []
        while lines.count(f"{version}\n") < 4:
            lines.append(reader.stdout.readline())
            assert lines[-1].strip().isdigit(), (lines[-1], lines[-1] or reader.stderr.read())
        return lines

    with child(script, tmp_path) as one, child(script, tmp_path) as two:
        for reader in (one, two):
            seen(reader, 0)
        for version in range(1, 16):
            with open_current(tmp_path) as parent:
                put(tmp_path, small(version), parent)
            with BuildLock(tmp_path) as lock:
                collect(lock, 1)
        for reader in (one, two):
            seen(reader, 15)
            assert reader.communicate()[0] == ""


def damaged(index: Path, to: Path) -> Path:
    """A copy of an index without what this machine knows about it."""
    shutil.copytree(index, to, ignore=shutil.ignore_patterns("run"))
    return to


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """An index of two generations; tests copy it."""
    index = tmp_path_factory.mktemp("whole") / "index"
    put(index, small(0))
    with open_current(index) as parent:
        put(index, small(1), parent, files={"anchor.json": b"{}"})
    return index


def test_every_damaged_file_is_found(whole, tmp_path):
    """One flipped bit, one byte less or one missing file, in any file of the current generation, is named when it is opened."""
    index = damaged(whole, tmp_path / "copy")
    folder = index / "generations" / current_id(index)
    chance = random.Random(7)
    for path in files_under(folder):
        good = (folder / path).read_bytes()
        place = chance.randrange(len(good))
        flipped = good[:place] + bytes([good[place] ^ 1 << chance.randrange(8)]) + good[place + 1 :]
        for bad in (flipped, good[:-1], None):
            if bad is None:
                (folder / path).unlink()
            else:
                (folder / path).write_bytes(bad)
            with pytest.raises((IndexCorrupt, IndexMismatch), match=path.name):
                open_current(index)
            assert len(verify(index)) == 1
        (folder / path).write_bytes(good)
    open_current(index).close()


def test_flipped_bits_are_always_found(whole, tmp_path):
    """Every one of 300 random bit flips in the published files, pointer and manifest too, is found by opening, or by verifying all generations."""
    index = damaged(whole, tmp_path / "copy")
    chance = random.Random(11)
    paths = [path for path in files_under(index) if path.parts[0] == "generations" or path.name == "CURRENT"]
    for _ in range(300):
        path = index / chance.choice(paths)
        good = path.read_bytes()
        place = chance.randrange(len(good))
        path.write_bytes(good[:place] + bytes([good[place] ^ 1 << chance.randrange(8)]) + good[place + 1 :])
        try:
            found = verify(index)
        except IndexCorrupt as error:
            found = [str(error)]
        path.write_bytes(good)
        assert found, path
    assert verify(index) == []


def test_damage_after_the_first_opening_is_found(whole, tmp_path):
    """A file that is written to after it was checked is checked again, because its time or size is another."""
    index = damaged(whole, tmp_path / "copy")
    open_current(index).close()
    data = next((index / "generations" / current_id(index)).glob("chunks.lance/data/*"))
    raw = data.read_bytes()
    data.write_bytes(raw[:50] + bytes([raw[50] ^ 1]) + raw[51:])
    with pytest.raises(IndexCorrupt, match="was altered"):
        open_current(index)


def test_a_missing_table_is_named(whole, tmp_path):
    """An index that was copied without one table does not open, and says which file is missing."""
    index = damaged(whole, tmp_path / "copy")
    shutil.rmtree(index / "generations" / current_id(index) / "claims.lance")
    with pytest.raises(IndexCorrupt, match=r"claims\.lance.* is missing") as found:
        open_current(index)
    assert "graphrag-local index" in found.value.hint
    assert all("claims.lance" in problem for problem in verify(index))


def test_a_file_too_many_is_named(whole, tmp_path):
    """A file that was not published, such as a newer version of a table, is not read past."""
    index = damaged(whole, tmp_path / "copy")
    extra = index / "generations" / current_id(index) / "chunks.lance" / "_versions" / "18446744073709551613.manifest"
    extra.with_name(".DS_Store").write_bytes(b"")
    open_current(index).close()
    extra.write_bytes(b"")
    with pytest.raises(IndexCorrupt, match=r"18446744073709551613\.manifest does not belong"):
        open_current(index)


@pytest.mark.parametrize("content", [b"", b"\n", b"../../etc\n", b"000002-\xff\n", b"{}", b"000007-aaaaaaaaaaaa\n"])
def test_a_damaged_pointer_is_named(whole, tmp_path, content):
    """A pointer that names nothing, or nothing that is there, is damage and not a missing index."""
    index = damaged(whole, tmp_path / "copy")
    (index / "CURRENT").write_bytes(content)
    with pytest.raises(IndexCorrupt, match=r"CURRENT|000007"):
        open_current(index)


@pytest.mark.parametrize(("change", "advice"), [(-1, "graphrag-local index"), (1, "Install graphrag-local")])
def test_another_format_is_named(whole, tmp_path, change, advice):
    """An index of an older or a newer format names both versions and what to do, whatever else is in its manifest."""
    index = damaged(whole, tmp_path / "copy")
    path = index / "generations" / current_id(index) / "manifest.json"
    manifest = json.loads(path.read_text())
    for content in (manifest | {"format": FORMAT + change}, {"format": FORMAT + change, "package": manifest["package"], "new": 1}):
        path.write_text(json.dumps(content))
        with pytest.raises(IndexMismatch) as found:
            open_current(index)
        assert f"made by graphrag-local {manifest['package']} (format {FORMAT + change}); this is graphrag-local" in str(found.value)
        assert advice in found.value.hint
        assert len(verify(index)) == 1
        assert [bool(row.problem) for row in list_generations(index)] == [False, True]


def test_a_copy_elsewhere_for_another_user(whole):
    """A copy at another path, that its user may only read, answers as the original does; every opening checks it and says so."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user")
    home = Path("/var/tmp") / f"other name {os.getpid()}"
    try:
        shutil.copytree(whole, home / "the index")
        subprocess.run(["chown", "-R", "root:root", home], check=True)
        subprocess.run(["chmod", "-R", "a+rX,go-w", home], check=True)
        script = """
import pathlib, sys
from graphrag_local.records import Chunk
from graphrag_local.store.generations import open_current, verify
from graphrag_local.store.lance import Tables
from tests.store.test_faults import version_of
index = pathlib.Path(sys.argv[1])
generation = open_current(index)
print(version_of(index), Tables.of(generation).near(Chunk, [1, 0, 0, 0], 1)[0][0], len(generation.notes), verify(index))
"""
        as_nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs")
        with child(script, home / "the index", start=as_nobody, cwd="/") as other:
            said, complaint = other.communicate()
        if "Permission denied" in complaint and sys.executable in complaint:
            pytest.skip("another user may not start this Python")
        with open_current(whole) as generation:
            nearest = Tables.of(generation).near(Chunk, [1, 0, 0, 0], 1)[0][0]
        assert said == f"1 {nearest} 1 []\n", complaint
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.mark.parametrize("room", [0, 10_000, 50_000, 100_000, 150_000])
def test_a_full_disk_leaves_what_was_published(tmp_path, room):
    """Wherever in a publication the disk fills up, it fails with advice, the old generation answers, and with room again the next build works."""
    with little_disk(tmp_path / "disk", "1m") as disk:
        index = disk / "index"
        put(index, small(0))
        open_current(index).close()
        free = os.statvfs(disk)
        (disk / "filler").write_bytes(b"\0" * (free.f_bavail * free.f_frsize - room))
        with pytest.raises(StorageError, match="No space left") as found:
            put(index, small(1, documents=100))
        assert "Free some space" in found.value.hint
        assert (version_of(index), len(list((index / "generations").iterdir()))) == (0, 1)
        (disk / "filler").unlink()
        put(index, small(2))
        assert version_of(index) == 2


def test_a_limit_on_file_size_leaves_what_was_published(tmp_path):
    """A limit on the size of files is named, and the old generation stays."""
    put(tmp_path, small(0))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, hard))
    try:
        with pytest.raises(StorageError, match="File too large") as found:
            put(tmp_path, small(1, documents=200))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "ulimit" in found.value.hint
    assert version_of(tmp_path) == 0
    assert [path.name for path in (tmp_path / "generations").iterdir()] == [current_id(tmp_path)]


def test_a_read_only_disk_answers_and_refuses_builds(tmp_path):
    """On a disk that is mounted read-only the index is read; a build is refused with advice."""
    with little_disk(tmp_path / "disk", "2m") as disk:
        put(disk / "index", small(3))
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        assert version_of(disk / "index") == 3
        with open_current(disk / "index") as generation:
            assert "cannot be written" in generation.notes[0]
        with pytest.raises(StorageError, match="Read-only") as found, BuildLock(disk / "index"):
            pass
        assert "writable" in found.value.hint


def test_a_first_build_that_is_killed_leaves_no_index(tmp_path):
    """Whatever a first build has written before its pointer, there is no finished index, and the next build clears it away."""
    put(tmp_path, small(0))
    (tmp_path / "CURRENT").unlink()
    with pytest.raises(IndexMissing):
        open_current(tmp_path)
    put(tmp_path, small(1))
    assert version_of(tmp_path) == 1
    with BuildLock(tmp_path) as lock:
        collect(lock, 1)
    assert len(generation_ids(tmp_path)) == 1
