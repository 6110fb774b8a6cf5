"""Builds that are killed at random moments, each beside a twin that nobody disturbs."""

import random
import time
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from graphrag_local.store.forgotten import unfinished
from graphrag_local.store.scan import scan
from tests.crash.builder import IN_FLIGHT, JOURNAL, STARTING, SWEEPING, Builds, Ended, Selectable
from tests.crash.collection import Collection, Kept, differences, left_over, marks_of, read_all

GOLDEN = 0.618034  # shares that lie this far apart, modulo 1, are spread evenly, however many there are
Marks = dict[str, int]
IDLE = 0.4  # a build that has nothing to do takes about this share of the time of one that has


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Kills of one build and of those that continued it: the phases they hit, the requests that were in flight then, and those that were asked again."""

    phases: tuple[str, ...]
    in_flight: int
    twice: int
    seconds: float


class Journaled:
    """A project, with the journal of its builds beside it."""

    def __init__(self, folder: Path, project: Path | None = None) -> None:
        self.folder, self.journal = project or folder / "project", folder / "journal"
        self.index = self.folder / "index"
        self.journal.mkdir(parents=True)

    def lines(self, name: str) -> list[str]:
        """The lines of a file of the journal; one that a kill cut short is not there, since each is written in one piece."""
        path = self.journal / name
        return path.read_text().splitlines() if path.exists() else []

    def marks(self) -> Marks:
        """Where each file of its journal ends now."""
        return {name: len(self.lines(name)) for name in JOURNAL}

    def since(self, marks: Marks, name: str) -> list[str]:
        """The lines of a file of the journal that came after that."""
        return self.lines(name)[marks[name] :]

    def phase(self, marks: Marks) -> str:
        """Where the build was that ended now and began then."""
        return [STARTING, *self.since(marks, "phases")][-1]

    def repeated(self, begun: Marks, marks: Marks, kept: Kept, lost: Container[str]) -> int:
        """How many requests after `marks` had been asked since `begun`; each must be one of the `lost`, and none of all may be in the ledger of then."""
        now = self.since(marks, "asked")
        paid = set(self.lines("asked")[begun["asked"] : marks["asked"]])
        assert kept.keys.isdisjoint(now), "paid for, kept, and asked again"
        assert {key for key in now if key in paid and key not in lost} == set()
        return sum(key in paid for key in now)

    def promised(self, marks: Marks, kept: Kept, swept: Kept) -> frozenset[str]:
        """What the ledger must hold: what it had then, and all that it has acknowledged since; where a sweep has begun, what is left after it (`swept`)."""
        held = kept.keys.union(self.since(marks, "acknowledged"))
        return held & swept.keys if SWEEPING in self.since(marks, "phases") else held

    def build(
        self, builds: Builds, *, kill_after_s: float | None = None, kill_when: Selectable | None = None, die_in: str = "", forget: str = ""
    ) -> Ended:  # fmt: skip
        """One build of it, or a `forget` of one of its documents."""
        return builds.run(self.folder, self.journal, kill_after_s=kill_after_s, kill_when=kill_when, die_in=die_in, forget=forget)

    def built(self, builds: Builds, forget: str = "") -> Ended:
        """A build (or a `forget`) that comes to its end."""
        ended = self.build(builds, forget=forget)
        assert (ended.code, "digest" in ended.said) == (0, True), ended
        return ended

    def finished(self, builds: Builds, name: str, *, by_index: bool) -> Ended:
        """What was a `forget` of that document brought to its end: by itself, or by `index` where it had begun; nothing of the document is left then."""
        by_index = by_index and unfinished(self.index) is not None
        ended = self.built(builds, "" if by_index else name)
        assert (ended.said.pop("clean"), ended.said.pop("kept")) == (True, 0)
        assert ended.said.pop("sought") > 0
        assert scan(self.index, marks_of(name)) == []
        assert unfinished(self.index) is None
        return ended


@dataclass
class Pair:
    """A project whose builds are killed, and its twin; both have the same documents and, whenever they are undisturbed, the same history."""

    victim: Journaled
    twin: Journaled
    collection: Collection
    builds: Builds

    @classmethod
    @contextmanager
    def open(cls, folder: Path, seed: int, running: Builds | None = None) -> Iterator["Pair"]:
        """A pair with a first generation each, built by a server of its own or by one that runs."""
        collection = Collection(random.Random(seed))
        collection.begin()
        with Builds.open(running) as builds:
            pair = cls(Journaled(folder / "victim"), Journaled(folder / "twin"), collection, builds)
            pair.write()
            assert pair.victim.built(builds).said["digest"] == pair.twin.built(builds).said["digest"]
            yield pair

    def write(self) -> None:
        """Bring the documents to both."""
        for one in (self.victim, self.twin):
            self.collection.write_to(one.folder / "input")


def kills(pair: Pair, count: int, seed: int, *, forgets: bool = False) -> Iterator[Round]:
    """`count` kills (at least) at moments spread evenly over a build, in rounds of one to three; every round begins with a change of the documents.

    With `forgets` it is a `forget` of one of them that is killed and done again, every other time by `index`.
    A build that has ended before its moment counts for none.

    Raises AssertionError where an index is not whole, something acknowledged is gone, more is paid for than was in flight, the end
    differs from the twin's, or something is left over.
    """
    chance, moment, killed = random.Random(seed), 0.0, 0
    while killed < count:
        shares = []
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            moment = (moment + GOLDEN) % 1.0
            shares.append(moment)
        one = kill_round(pair, shares, forgets=forgets, by_index=killed % 2 == 1)
        killed += len(one.phases)
        yield one


def kill_round(pair: Pair, moments: Sequence[float | str], *, forgets: bool = False, by_index: bool = False) -> Round:
    """A change of the documents, a build killed at these moments (shares of its duration, or the phases at whose beginning), and one to the end.

    `forgets`: the build is a `forget` of a document, and what it leaves undone is done by itself or `by_index`.
    """
    begun = time.monotonic()
    gone = pair.collection.chance.choice(sorted(pair.collection.files)) if forgets else ""
    pair.collection.change(but=gone)
    pair.write()
    victim, twin = pair.victim, pair.twin
    old = now = read_all(victim.index)
    calm = twin.finished(pair.builds, gone, by_index=False) if forgets else twin.built(pair.builds)
    wanted = calm.said["digest"]
    assert old[1] != wanted, "the change of the documents changed nothing"
    phases, lost, twice, begin = [], Counter[str](), 0, victim.marks()
    for moment in moments:
        before, kept = victim.marks(), Kept.of(victim.index)
        after_s = moment * calm.seconds * (1.0 if now == old else IDLE) if isinstance(moment, float) else None
        ended = victim.build(pair.builds, kill_after_s=after_s, die_in="" if isinstance(moment, float) else moment, forget=gone)
        assert ended.code in (-9, 0), ended
        was, now = now, read_all(victim.index)
        assert now == was or (was, now[1]) == (old, wanted)
        assert victim.since(before, "published") in ([], [now[0]])
        twice += victim.repeated(begin, before, kept, lost)
        lost += Counter(victim.since(before, "asked")) - Counter(victim.since(before, "acknowledged"))
        assert victim.promised(before, kept, Kept.of(twin.index)) <= Kept.of(victim.index).keys
        if ended.code:
            phases.append(victim.phase(before))

    before, kept = victim.marks(), Kept.of(victim.index)
    end = victim.finished(pair.builds, gone, by_index=by_index) if forgets else victim.built(pair.builds)
    twice += victim.repeated(begin, before, kept, lost)
    assert end.said == {"generation": end.said["generation"], "digest": wanted} | ({"published": now == old} if "published" in end.said else {})
    assert now in (old, (end.said["generation"], wanted))
    assert twice <= lost.total() <= IN_FLIGHT * len(moments)
    assert read_all(victim.index) == (end.said["generation"], wanted)
    assert differences(Kept.of(victim.index), Kept.of(twin.index)) == {}, differences(Kept.of(victim.index), Kept.of(twin.index))
    assert left_over(victim.index, twin.index) == {}, left_over(victim.index, twin.index)
    pair.collection.files.pop(gone, None)
    return Round(phases=tuple(phases), in_flight=lost.total(), twice=twice, seconds=time.monotonic() - begun)
