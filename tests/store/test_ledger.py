"""The ledger: what it acknowledges is kept, whatever happens next."""

import asyncio
import dataclasses
import os
import random
import signal
import sqlite3
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings

from graphrag_local.errors import IndexBusy, IndexCorrupt, IndexMismatch, StorageError
from graphrag_local.ids import digest_of
from graphrag_local.records import LedgerRow
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.ledger_schema import SCHEMA
from tests.clock import effort_of
from tests.store.tools import child, little_disk, reply, values


@pytest.fixture
def ledger(tmp_path):
    """An empty ledger."""
    with Ledger.open(tmp_path / "index" / "ledger.sqlite") as opened:
        yield opened


def put(ledger: Ledger, *rows: LedgerRow) -> None:
    """Put rows, all in flight at once."""

    async def all_of_them() -> None:
        await asyncio.gather(*map(ledger.put, rows))

    asyncio.run(all_of_them())


@given(row=values(LedgerRow))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_reply_comes_back_as_it_was(ledger, row):
    """Any row is the same when it is read, of the same types, its groups sorted and without repetition, and an unknown key has none."""
    row = dataclasses.replace(row, key=os.urandom(16).hex(), outcome="ok")
    groups = tuple(sorted({tuple(sorted(set(group))) for group in row.groups if group}))
    assert ledger.get(row.key) is None
    put(ledger, row)
    assert ledger.get(row.key) == dataclasses.replace(row, groups=groups)
    assert list(map(type, dataclasses.astuple(ledger.get(row.key)))) == list(map(type, dataclasses.astuple(row)))
    assert ledger.verify() == []


def test_a_reply_that_is_no_proper_text_is_kept(ledger):
    """Half of an emoji in a reply (a server's JSON may hold it) and control characters come back as they were."""
    row = reply(1, text="half \ud83d and \0 and \x1b[31m 李明", logprobs='[["\udc00", -0.1]]', seconds=1)
    put(ledger, row)
    assert ledger.get(row.key) == row


def test_rows_outlive_the_process(tmp_path):
    """Closed and opened again, the ledger has its rows, in one file."""
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path) as first:
        put(first, *map(reply, range(10)))
        first.close()
    with Ledger.open(path) as second:
        assert [second.get(reply(n).key) for n in range(10)] == [reply(n) for n in range(10)]
        assert second.counts() == {"replies": 10, "vectors": 0, "damaged": 0, "ok": 10}
    assert [file.name for file in tmp_path.iterdir()] == ["ledger.sqlite"]
    with pytest.raises(ValueError, match="closed"):
        put(second, reply(11))


def test_puts_share_commits(ledger):
    """Puts in flight together are committed together; puts one after the other are each durable before they return."""
    put(ledger, *map(reply, range(300)))
    assert ledger.commits < 30
    before = ledger.commits

    async def one_by_one() -> None:
        for n in range(300, 310):
            await ledger.put(reply(n))
            assert ledger.get(reply(n).key) is not None

    asyncio.run(one_by_one())
    assert ledger.commits - before == 10
    assert ledger.counts()["replies"] == 310


def test_what_is_usable_is_not_replaced(ledger):
    """A reply that cannot be used gives way to a later one, a usable one stays; the groups of all who asked are known."""
    for outcome, text in [("cut_off", ""), ("loop", ""), ("ok", "first"), ("ok", "second"), ("invalid", "")]:
        put(ledger, reply(1, outcome=outcome, text=text, groups=((outcome, text or "none"),)))
    groups = (("cut_off", "none"), ("first", "ok"), ("invalid", "none"), ("loop", "none"), ("ok", "second"))
    assert ledger.get(reply(1).key) == reply(1, text="first", groups=groups)
    put(ledger, reply(2, outcome="thinking", text=""))
    assert ledger.counts() == {"replies": 2, "vectors": 0, "damaged": 0, "ok": 1, "thinking": 1}


def test_many_threads_and_loops(ledger):
    """Event loops of several threads put at the same time, equal keys too; every row is there once."""

    async def run(first: int) -> None:
        loops = [asyncio.to_thread(put, ledger, *map(reply, range(start, start + 100))) for start in range(first, first + 300, 50)]
        await asyncio.gather(*loops)

    asyncio.run(run(0))
    assert ledger.counts()["replies"] == 350
    assert ledger.verify() == []


def test_a_cancelled_put_is_kept(ledger):
    """Who is interrupted while a reply is being written finds it in the ledger afterwards: it is paid for."""

    async def interrupted() -> None:
        task = asyncio.create_task(ledger.put(reply(1)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(interrupted())
    ledger.close()
    with Ledger.open(ledger.path) as again:
        assert again.get(reply(1).key) == reply(1)


PUTTER = """
import asyncio, pathlib, sys
from graphrag_local.store.ledger import Ledger
from tests.store.tools import reply
ledger = Ledger.open(pathlib.Path(sys.argv[1]))
async def one(n, slots):
    async with slots:
        await ledger.put(reply(n))
        print(n, flush=True)
async def main():
    slots = asyncio.Semaphore(8)
    await asyncio.gather(*(one(n, slots) for n in range(int(sys.argv[2]), int(sys.argv[2]) + 500)))
print("ready", flush=True)
sys.stdin.readline()
asyncio.run(main())
"""


def test_kills_lose_nothing_that_was_acknowledged(tmp_path):
    """After kill -9 in the middle of 500 puts, several times over one ledger, every row that was acknowledged is there, and whole."""
    path, chance, acknowledged = tmp_path / "ledger.sqlite", random.Random(3), []
    for turn in range(4):
        with child(PUTTER, path, turn * 500) as writer:
            assert writer.stdout.readline() == "ready\n", writer.stderr.read()
            writer.stdin.write("\n")
            writer.stdin.flush()
            heard = [writer.stdout.readline() for _ in range(1 + chance.randrange(300))]
            os.kill(writer.pid, signal.SIGKILL)
            heard += writer.stdout.readlines()
        acknowledged += [int(line) for line in heard if line.endswith("\n")]
    assert 4 <= len(acknowledged) < 2000
    with Ledger.open(path) as ledger:
        assert [n for n in acknowledged if ledger.get(reply(n).key) != reply(n)] == []
        assert ledger.verify() == []


def test_vectors_are_kept_by_embedder_and_text(ledger):
    """A vector comes back as float32 for its embedder and text hash, and only for them; a later one replaces it."""

    async def run() -> None:
        await ledger.put_vectors("one", {f"h{n}": (n / 8, 1.5, -2.0) for n in range(1200)})
        await asyncio.gather(ledger.put_vectors("two", {"h0": [0.1]}), ledger.put_vectors("one", {}))
        await ledger.put_vectors("one", {"h1": [9.0]})

    asyncio.run(run())
    found = ledger.get_vectors("one", [f"h{n}" for n in range(1300)])
    assert len(found) == 1200
    assert (found["h8"], found["h1"]) == ((1.0, 1.5, -2.0), (9.0,))
    assert ledger.get_vectors("two", ["h0", "h1"])["h0"] == pytest.approx((0.1,))
    assert ledger.get_vectors("three", ["h0"]) == {}
    assert ledger.get_vectors("one", []) == {}
    assert ledger.counts()["vectors"] == 1201


def test_no_cursor_leaves_the_writing_thread(ledger):
    """What a put hands back to its caller holds no cursor: one that ended in the caller's thread would reset a statement that the writer is running."""
    handed = []

    class Watched(Ledger):
        """Keeps what the writing thread hands back."""

        def _submit(self, job, **more):
            handed.append(super()._submit(job, **more))
            return handed[-1]

    async def run(watched: Ledger) -> None:
        await watched.put_vectors("one", {"h": [0.5]})
        await watched.put(reply(1))
        await watched.link({reply(1).key: [("d2",)]})

    with Watched.open(ledger.path.with_name("watched.sqlite")) as watched:
        asyncio.run(run(watched))
        watched.sweep(["d1", "d2"], [])
        watched.drop_vectors([])

    assert [type(future.result()).__name__ for future in handed] == ["NoneType"] * 3 + ["int", "NoneType", "int", "NoneType"]


def test_a_flipped_bit_counts_as_no_reply(tmp_path):
    """A reply or vector whose bytes changed on the disk is not used: it is reported, asked for again, and replaced."""
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path) as ledger:
        put(ledger, reply(1, text="a marked reply über"), reply(2))
        asyncio.run(ledger.put_vectors("e", {"h": [0.25, 0.5], "g": [1.0]}))
    raw = bytearray(path.read_bytes())
    raw[raw.index("über".encode())] ^= 0x04
    raw[raw.index(bytes.fromhex("0000803e0000003f"))] ^= 1
    path.write_bytes(raw)
    with Ledger.open(path) as ledger:
        assert len(ledger.verify()) == 2
        assert (ledger.get(reply(1).key), ledger.get(reply(2).key)) == (None, reply(2))
        assert list(ledger.get_vectors("e", ["h", "g"])) == ["g"]
        assert ledger.counts()["damaged"] == 1
        put(ledger, reply(1, text="asked again"))
        asyncio.run(ledger.put_vectors("e", {"h": [0.25, 0.5]}))
        assert ledger.get(reply(1).key) == reply(1, text="asked again")
        assert ledger.verify() == []


def test_random_damage_never_gives_another_reply(tmp_path):
    """Whatever bit of the file is flipped, a reply is the one that was put, or absent, or the damage is an error that says what to do; links tell."""
    path, chance = tmp_path / "ledger.sqlite", random.Random(5)
    rows = [reply(n, key=digest_of(str(n)), text=f"réply {n} " * 20, groups=((digest_of("d", str(n % 7)),),)) for n in range(100)]
    with Ledger.open(path) as ledger:
        put(ledger, *rows)
    good = path.read_bytes()
    noticed: list[str] = []
    for _ in range(90):
        raw = bytearray(good)
        raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        path.write_bytes(raw)
        try:
            with Ledger.open(path) as ledger:
                found = [ledger.get(row.key) for row in rows]
                problems = ledger.verify()
            noticed += problems[:1]
            assert all(row is None or dataclasses.replace(row, groups=was.groups) == was for row, was in zip(found, rows, strict=True))
            assert problems or found == rows
        except (IndexCorrupt, IndexMismatch, StorageError) as error:
            noticed.append(error.hint)
        for beside in ("-wal", "-shm"):
            path.with_name(path.name + beside).unlink(missing_ok=True)
    assert len(noticed) > 15
    assert all(noticed)


@pytest.mark.parametrize("content", [b"this is no database at all, but long enough to look at" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_ledger_is_named(tmp_path, content):
    """A file that is not a database is an error that names it and says what to do, and is left as it is."""
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(content)
    with pytest.raises(IndexCorrupt, match=r"ledger\.sqlite") as found:
        Ledger.open(path)
    assert "aside" in found.value.hint
    assert path.read_bytes() == content


def test_another_database_is_not_touched(tmp_path):
    """A database of another program is refused, unchanged."""
    path = tmp_path / "ledger.sqlite"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE notes (text)")
    other.close()
    with pytest.raises(IndexCorrupt, match="not a ledger"):
        Ledger.open(path)


def test_a_newer_ledger_is_refused(tmp_path):
    """A ledger of a schema this program does not know names both numbers."""
    path = tmp_path / "ledger.sqlite"
    Ledger.open(path).close()
    newer = sqlite3.connect(path)
    newer.execute("UPDATE meta SET value = ? WHERE name = 'schema'", (str(SCHEMA + 1),))
    newer.commit()
    newer.close()
    with pytest.raises(IndexMismatch, match=f"ledger {SCHEMA + 1}, this one reads {SCHEMA}"):
        Ledger.open(path)


def test_a_locked_ledger_is_busy(tmp_path):
    """While another process holds the file for itself, opening and putting say so instead of hanging."""
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path, patience_s=0.05) as ledger:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(IndexBusy, match="locked by another process"):
            put(ledger, reply(1), reply(2))
        with pytest.raises(IndexBusy):
            Ledger.open(path, patience_s=0.05)
        assert ledger.get(reply(1).key) is None
        other.execute("ROLLBACK")
        other.close()
        put(ledger, reply(1))
        assert ledger.get(reply(1).key) == reply(1)


def test_one_bad_row_fails_alone(ledger):
    """A row that SQLite refuses fails by itself; those that shared its commit are kept."""

    async def run() -> list[object]:
        rows = [reply(1), reply(2, prompt_tokens=2**70), reply(3)]
        return await asyncio.gather(*map(ledger.put, rows), return_exceptions=True)

    outcomes = asyncio.run(run())
    assert [type(outcome) for outcome in outcomes] == [type(None), OverflowError, type(None)]
    assert ledger.counts()["replies"] == 2


async def one_by_one(ledger: Ledger, count: int) -> None:
    """Put large rows one after the other."""
    for n in range(count):
        await ledger.put(reply(n, text="x" * 5000))


def test_a_full_disk_keeps_what_was_put(tmp_path):
    """When the disk is full a put says so; the rows before it are there, and with room again puts go on."""
    with little_disk(tmp_path / "disk", "600k") as disk:
        with Ledger.open(disk / "ledger.sqlite") as ledger:
            with pytest.raises(StorageError, match="disk is full") as found:
                asyncio.run(one_by_one(ledger, 500))
            assert found.value.hint
            kept = ledger.counts()["replies"]
            assert 5 < kept < 500
            subprocess.run(["mount", "-o", "remount,size=4m", disk], check=True)
            put(ledger, reply(1000))
        with Ledger.open(disk / "ledger.sqlite") as ledger:
            assert all(ledger.get(reply(n).key) is not None for n in range(kept))
            assert ledger.verify() == []


def test_reading_is_quick(ledger):
    """10,000 look-ups take well under a second of processor time (measured 0.3 s)."""
    put(ledger, *map(reply, range(2000)))
    found, seconds = effort_of(lambda: [ledger.get(f"{n % 2000:032x}") for n in range(10_000)])
    assert None not in found
    assert seconds < 2
