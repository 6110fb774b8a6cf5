"""The order in which windows are asked: results do not show it, the server's cache does."""

import asyncio
import random

import pytest

from graphrag_local.query.scan import KEPT, LEAST, SHARE, scan
from graphrag_local.query.windows import Window


def windows(count):
    return [Window(units=(), text="", ids={}, tokens=1, documents=(), digest=f"{number:02}") for number in range(count)]


def never(_):
    """No reply was written."""
    return False


def asked(count, ended, *, forwards=True, last=()):
    """The digests in the order in which they are asked for, and what comes back; those of `last` end when all others have."""
    order = []

    async def read(window, begun):
        order.append(window.digest)
        begun("Y")
        while window.digest in last and len(ended) < count - len(last):
            await asyncio.sleep(0)
        return window.digest

    return order, asyncio.run(scan(windows(count), read, ended, forwards=forwards, wrote=never))


@pytest.mark.parametrize("forwards", [True, False])
def test_results_are_in_the_order_of_the_windows(forwards):
    """Windows of which nothing is known are asked forwards or backwards; what comes back does not show which."""
    order, found = asked(10, {}, forwards=forwards)

    assert found == [window.digest for window in windows(10)]
    assert order == (found if forwards else found[::-1])


def test_what_ended_last_is_asked_first():
    """A window that was read to the end ends after those that were left before it; so it is still cached, and the next question begins with it."""
    ended = {}
    asked(10, ended, last=("03", "04"))
    order, found = asked(10, ended)

    assert order == ["04", "03", "09", "08", "07", "06", "05", "02", "01", "00"]
    assert found == sorted(found)


def test_new_windows_come_after_known_ones():
    """Those are certainly not cached; among themselves they go the way of the turn."""
    order, _ = asked(6, {"04": None, "elsewhere": None, "02": None}, forwards=False)

    assert order == ["02", "04", "05", "03", "01", "00"]


def test_no_more_ends_are_remembered_than_a_cache_holds():
    """A service asks for years; the oldest ends are forgotten."""
    ended = {f"old {number}": None for number in range(KEPT)}
    asked(3, ended)

    assert len(ended) == KEPT
    assert list(ended)[-3:] == ["00", "01", "02"]


@pytest.mark.parametrize(("count", "waits", "writes"), [(3, 3, 0), (26, LEAST, 12), (20 * SHARE, 20, 16)])
def test_only_a_share_of_the_windows_waits_for_its_first_token(count, waits, writes):
    """The next is asked when one of them begins its reply, also while that is being written, or ends without one."""
    waiting, writing, most = set(), set(), []
    done = asyncio.Event()

    async def read(window, begun):
        waiting.add(window.digest)
        most.append((len(waiting), len(writing)))
        await asyncio.sleep(0)
        waiting.remove(window.digest)
        if int(window.digest) % 2 and len(writing) < 16:
            writing.add(window.digest)
            begun("Y")
            begun("Y\n")
            await done.wait()

    async def main():
        task = asyncio.ensure_future(scan(windows(count), read, {}, forwards=True, wrote=never))
        while len(most) < count:
            await asyncio.sleep(0)
        done.set()
        await task

    asyncio.run(main())

    assert max(number for number, _ in most) == waits
    assert most[-1][1] == writes


def test_a_fault_is_raised_as_it_is():
    """It ends the scan, and nobody waits for room any more."""

    async def read(window, begun):
        raise LookupError(window.digest)

    with pytest.raises(LookupError, match="00"):
        asyncio.run(scan(windows(20), read, {}, forwards=True, wrote=never))


def test_where_nothing_is_told_while_it_is_written_all_are_asked_at_once():
    """A server that sends whole replies has the first few alone; after the first of them the rest is asked for without a limit."""
    running, most = set(), []

    async def read(window, begun):
        running.add(window.digest)
        most.append(len(running))
        for _ in range(200):
            await asyncio.sleep(0)
        running.remove(window.digest)

    asyncio.run(scan(windows(26), read, {}, forwards=True, wrote=lambda found: True))

    assert max(most[:LEAST]) == LEAST
    assert max(most) > 16


def test_a_window_that_was_given_up_has_not_ended():
    """Only what came back is taken for cached: not what was asked for when the question was given up, nor what waited to be."""
    ended = {}

    async def read(window, begun):
        if window.digest != "00":
            await asyncio.Event().wait()

    async def main():
        task = asyncio.ensure_future(scan(windows(20), read, ended, forwards=True, wrote=never))
        while not ended:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    assert list(ended) == ["00"]


class Cached:
    """A server with room for so many windows, those used last: it takes in at once all requests that it has cached, and one that it has not; what
    is left together it frees in an order of chance, which nobody is told, and what is read to the end some rounds later."""

    def __init__(self, room, seed, slow):
        self.room, self.dice, self.slow = room, random.Random(seed), slow
        self.kept, self.arrived, self.writing, self.hits = {}, [], [], 0

    async def read(self, window, begun):
        done = asyncio.Event()
        self.arrived.append((window.digest, begun, done))
        await done.wait()

    def use(self, digest):
        self.kept.pop(digest, None)
        self.kept[digest] = None
        if len(self.kept) > self.room:
            del self.kept[next(iter(self.kept))]

    async def serve(self):
        while True:
            for _ in range(8):
                await asyncio.sleep(0)  # who has a place sends
            batch, missed = [], False
            while self.arrived and (self.arrived[0][0] in self.kept or not missed):
                batch.append(self.arrived.pop(0))
                missed |= batch[-1][0] not in self.kept
                self.hits += batch[-1][0] in self.kept
            left = []
            for digest, begun, done in batch:
                if self.dice.random() < self.slow:
                    begun("Y")
                    self.writing.append((digest, done))
                else:
                    done.set()
                    left.append(digest)
            for digest in self.dice.sample(left, len(left)):
                self.use(digest)
            if self.writing and (self.dice.random() < 0.1 or not batch):
                digest, done = self.writing.pop(0)
                self.use(digest)
                done.set()


@pytest.mark.parametrize("slow", [0, 0.2])
@pytest.mark.parametrize("count", [24, 96])
def test_most_of_a_cache_is_found_again(count, slow):
    """Of windows half again as large as the cache it could give two thirds to every question after the first; it gives nearly so many, in the
    mean of ten, whether or not some windows are read to the end."""
    shares = []

    async def main(seed):
        server, ended = Cached(count * 2 // 3, seed, slow), {}
        driver = asyncio.ensure_future(server.serve())
        for turn in range(4):
            before = server.hits
            await scan(windows(count), server.read, ended, forwards=turn % 2 == 0, wrote=never)
            shares.append((turn, (server.hits - before) / count))
        driver.cancel()

    for seed in range(10):
        asyncio.run(main(seed))
    for turn in (1, 2, 3):
        found = [share for number, share in shares if number == turn]
        assert sum(found) / len(found) > 0.62
