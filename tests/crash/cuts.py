"""Builds on a disk that loses its power at random operations, each beside a twin on an ordinary disk that nobody disturbs."""

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from graphrag_local.errors import IndexMissing
from tests.crash.builder import IN_FLIGHT, Builds
from tests.crash.collection import Collection, Kept, differences, left_over, read_all
from tests.crash.kills import GOLDEN, Journaled
from tests.crash.power import PowerDisk

SERIES = 10  # cuts of one disk, the first of which meets its first build
OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One cut: whether there was an index before the build, the phase it hit, what was acknowledged by then, what was asked again, and whether the new
    generation was what the disk came back with.
    """

    first: bool
    phase: str
    acknowledged: int
    twice: int
    is_new: bool
    seconds: float


class Powered:
    """A project on a disk whose power is cut, and its twin on an ordinary one."""

    def __init__(self, disk: PowerDisk, folder: Path, seed: int, builds: Builds) -> None:
        self.disk, self.builds = disk, builds
        self.victim, self.twin = Journaled(folder / "victim", disk.folder / "project"), Journaled(folder / "twin")
        self.collection = Collection(random.Random(seed))

    @classmethod
    @contextmanager
    def open(cls, folder: Path, seed: int, builds: Builds) -> Iterator["Powered"]:
        """A new disk without an index."""
        with PowerDisk.mounted(folder, seed) as disk:
            yield cls(disk, folder, seed, builds)

    def state(self) -> tuple[str, str] | None:
        """Id and digest of the current generation, whole as it is; None where there is none."""
        try:
            return read_all(self.victim.index)
        except IndexMissing:
            return None

    def change(self, gone: str = "") -> str:
        """New documents, durable on both disks; the digest that the next build (or `forget` of the document `gone`) must come to."""
        if self.collection.files:
            self.collection.change(but=gone)
        else:
            self.collection.begin()
        for one in (self.victim, self.twin):
            self.collection.write_to(one.folder / "input")
        done = self.twin.finished(self.builds, gone, by_index=False) if gone else self.twin.built(self.builds)
        return str(done.said["digest"])

    def one(self) -> str:
        """Any of the documents."""
        return self.collection.chance.choice(sorted(self.collection.files))

    def undisturbed(self, *, forgets: bool = False) -> int:
        """A change and a build (or a `forget`) without a cut; how many operations it took the disk."""
        gone = self.one() if forgets else ""
        wanted, before = self.change(gone), self.disk.operations()
        assert self.victim.built(self.builds, gone).said["digest"] == wanted
        self.collection.files.pop(gone, None)
        return self.disk.operations() - before

    def cut(self, operations: int, seed: int, *, forgets: bool = False) -> Cut:
        """A change, and a build whose power goes after so many operations; what comes back is looked at, and built to the end.

        With `forgets` it is a `forget` of a document, and what it leaves undone is done by itself or, by the seed, by `index`.
        Raises AssertionError or GraphragError where it is not whole, something acknowledged is gone, or the end differs from the twin's.
        """
        begun, victim = time.monotonic(), self.victim
        gone = self.one() if forgets else ""
        old, wanted = self.state(), self.change(gone)
        before, kept = victim.marks(), Kept.of(victim.index)
        self.disk.arm(operations, seed)
        ended = victim.build(self.builds, kill_when=self.disk.events, forget=gone)
        is_over = self.disk.cut_and_restart(seed)
        assert (ended.said.get("digest"), ended.code) == (wanted, 0) or not is_over

        now, acknowledged = self.state(), victim.since(before, "acknowledged")
        assert now == old or (now and now[1] == wanted)
        assert victim.since(before, "published") in ([], [now and now[0]])
        assert victim.promised(before, kept, Kept.of(self.twin.index)) <= Kept.of(victim.index).keys
        phase = OVER if is_over else victim.phase(before)
        assert kept.keys.isdisjoint(victim.since(before, "asked"))
        in_flight = Counter(victim.since(before, "asked")) - Counter(acknowledged)

        again, kept = victim.marks(), Kept.of(victim.index)
        end = victim.finished(self.builds, gone, by_index=seed % 2 == 1) if gone else victim.built(self.builds)
        twice = victim.repeated(before, again, kept, in_flight)
        assert end.said == {"generation": end.said["generation"], "digest": wanted} | ({"published": now == old} if "published" in end.said else {})
        assert (end.said["generation"], wanted) == self.state()
        assert twice <= in_flight.total() <= IN_FLIGHT
        assert differences(Kept.of(victim.index), Kept.of(self.twin.index)) == {}, differences(Kept.of(victim.index), Kept.of(self.twin.index))
        assert left_over(victim.index, self.twin.index) == {}, left_over(victim.index, self.twin.index)
        self.collection.files.pop(gone, None)
        return Cut(first=old is None, phase=phase, acknowledged=len(acknowledged), twice=twice, is_new=now != old, seconds=time.monotonic() - begun)


def cuts(folder: Path, count: int, seed: int, *, forgets: bool = False, running: Builds | None = None) -> Iterator[Cut]:
    """`count` cuts before operations spread evenly over the builds, the last of them after the end; every SERIES of them on a new disk.

    With `forgets` they are cuts of `forget`s, over an index that is there. Builds are those of a server that is `running`, or of one of their own.
    """
    chance, moment = random.Random(seed), 0.0
    with Builds.open(running) as builds:
        with Powered.open(folder / "calm", seed, builds) as calm:
            first, later = calm.undisturbed(), calm.undisturbed(forgets=forgets)
        for series in range(0, count, SERIES):
            with Powered.open(folder / f"series {series}", chance.randrange(2**32), builds) as powered:
                if forgets:
                    powered.undisturbed()
                for number in range(min(SERIES, count - series)):
                    moment = (moment + GOLDEN) % 1.0
                    yield powered.cut(round(moment * 1.02 * (later if number or forgets else first)), chance.randrange(2**32), forgets=forgets)
