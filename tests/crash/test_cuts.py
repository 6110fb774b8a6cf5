"""Power cuts in the middle of real builds: what was acknowledged is there, what is published is whole, and the next build ends as if nothing had happened."""

import random
import sqlite3

import pytest

from graphrag_local.errors import GraphragError
from tests.crash.collection import Kept
from tests.crash.cuts import Powered, cuts
from tests.crash.disk import PAGE, ROOT, Change, Disk, File, Folder
from tests.crash.power import why_not

SEED = 11
needs_fuse = pytest.mark.skipif(bool(why_not()), reason=why_not())


@needs_fuse
def test_five_cuts(tmp_path, builds):
    """After each of five cuts, the first of them in a first build, every acknowledged reply, vector and generation is there and every generation is whole;
    the build that follows ends with the digest, the ledger and the files of a twin whose power stayed.
    """
    done = list(cuts(tmp_path, 5, SEED, running=builds))

    assert [cut.first for cut in done] == [True, False, False, False, False]
    assert any(cut.acknowledged for cut in done)


@needs_fuse
def test_three_cuts_of_a_forget(tmp_path, builds):
    """After a power cut in the middle of a `forget` the same holds, the old or the new generation is whole, and once it is done nothing of the document is left."""
    done = list(cuts(tmp_path, 3, SEED, forgets=True, running=builds))

    assert len(done) == 3


def is_broken(powered: Powered, seed: int) -> bool:
    """Whether a cut after the end of a build takes something of what was acknowledged or published."""
    wanted, victim, before = powered.change(), powered.victim, powered.victim.marks()
    kept, built = Kept.of(victim.index), victim.built(powered.builds)
    powered.disk.cut_and_restart(seed)
    try:
        lost = victim.promised(before, kept, Kept.of(powered.twin.index)) - Kept.of(victim.index).keys
        return bool(lost) or powered.state() != (built.said["generation"], wanted)
    except (AssertionError, GraphragError, sqlite3.Error):
        return True


@needs_fuse
@pytest.mark.parametrize("syncs", [True, False])
def test_cuts_break_only_an_index_that_is_not_synced(tmp_path, builds, syncs):
    """Where a sync does nothing, a cut after a build takes what was acknowledged or breaks what was published, so this disk bites; else it never does."""
    with Powered.open(tmp_path, SEED, builds) as powered:
        powered.undisturbed()
        powered.disk.settle()
        if not syncs:
            powered.disk.ignore_syncs()
        assert is_broken(powered, 1) is not syncs
        assert syncs is False or not is_broken(powered, 2)


def outcomes(made: Disk, count: int = 200) -> list[Disk]:
    """What `count` cuts leave of a disk."""
    survivors = []
    for seed in range(count):
        disk = Disk(0)
        disk.nodes = {
            inode: Folder(dict(node.live), dict(node.durable))
            if isinstance(node, Folder)
            else File(bytearray(node.live), bytearray(node.durable), set(node.dirty), list(node.sizes))
            for inode, node in made.nodes.items()
        }
        disk.changes = list(made.changes)
        disk.survive(seed)
        survivors.append(disk)
    return survivors


def test_a_sync_keeps_bytes_and_not_names():
    """A file that was synced comes back whole or not at all; with its folder synced too it always comes back."""
    disk = Disk(0)
    inode = disk.make(File(), (ROOT, "a"))
    disk.file(inode).write(0, b"x" * (3 * PAGE + 5))
    disk.sync(inode)
    left = [bytes(one.file(one.folder(ROOT).live["a"]).live) if one.folder(ROOT).live else None for one in outcomes(disk)]

    assert set(left) == {None, b"x" * (3 * PAGE + 5)}
    disk.sync(ROOT)
    assert {bytes(one.file(inode).live) for one in outcomes(disk)} == {b"x" * (3 * PAGE + 5)}


def test_what_is_not_synced_is_torn():
    """Of bytes that are not synced each page comes back or not, at any size on the way, and the bytes before them are the old ones."""
    disk = Disk(0)
    inode = disk.make(File(), (ROOT, "a"))
    disk.file(inode).write(0, b"old" * PAGE)
    disk.settle()
    disk.file(inode).write(PAGE, b"N" * PAGE)
    disk.file(inode).write(3 * PAGE, b"M" * PAGE)
    left = {bytes(one.file(inode).live) for one in outcomes(disk)}
    old = (b"old" * PAGE)[PAGE : 2 * PAGE]

    assert {(len(content), content[PAGE : 2 * PAGE], content[3 * PAGE :]) for content in left} == {
        (size, middle, end) for middle in (old, b"N" * PAGE) for size, end in ((3 * PAGE, b""), (4 * PAGE, b"M" * PAGE), (4 * PAGE, b"\0" * PAGE))
    }


def test_a_rename_is_whole_or_not_at_all():
    """After a rename over another file that is not synced there is the old file or the new one under the name, never neither; the old name may be there."""
    disk = Disk(0)
    old, new = disk.make(File(), (ROOT, "CURRENT")), disk.make(File(), (ROOT, "CURRENT.tmp"))
    disk.settle()
    disk.change(Change(new, loses=(ROOT, "CURRENT.tmp"), gets=(ROOT, "CURRENT")))

    assert {tuple(sorted(one.folder(ROOT).live.items())) for one in outcomes(disk)} == {(("CURRENT", old), ("CURRENT.tmp", new)), (("CURRENT", new),)}


def test_a_cut_keeps_the_disk_sound():
    """Whatever is done and synced, no name that comes back means a file that is gone, and what was durable before and not touched is there."""
    chance = random.Random(SEED)
    disk = Disk(0)
    kept = disk.make(File(), (ROOT, "kept"))
    disk.settle()
    folders = [ROOT]
    for number in range(200):
        where = chance.choice(folders), f"{number}"
        what = chance.randrange(4)
        if what == 0:
            folders.append(disk.make(Folder(), where))
        elif what == 1:
            disk.write(disk.make(File(), where), chance.randrange(PAGE), b"z" * chance.randrange(3 * PAGE))
        elif what == 2:
            disk.sync(chance.choice(sorted(disk.nodes)))
        else:
            folder = chance.choice(folders)
            files = [name for name, inode in disk.folder(folder).live.items() if isinstance(disk.nodes[inode], File) and inode != kept]
            if files:
                name = chance.choice(sorted(files))
                disk.change(Change(disk.folder(folder).live[name], loses=(folder, name), gets=where))
    for one in outcomes(disk, 50):
        assert one.folder(ROOT).live["kept"] == kept
        assert {inode for node in one.nodes.values() if isinstance(node, Folder) for inode in node.live.values()} | {ROOT} == set(one.nodes)
