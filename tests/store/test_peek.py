"""Who only looks at the ledger reads what is there and leaves no trace."""

import asyncio
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from graphrag_local.errors import IndexCorrupt, StorageError
from graphrag_local.records import LedgerRow
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.peek import Peek


def row(key: str, **rest) -> LedgerRow:
    whole = LedgerRow(
        key=key, purpose="extract", model="m", revision="1", outcome="ok", text="Tëxt.", gate=None, logprobs="", prompt_tokens=10, cached_tokens=0,
        completion_tokens=4, seconds=0.5, groups=(("d1",),),
    )  # fmt: skip
    return replace(whole, **rest)


def kept(path: Path, *rows: LedgerRow) -> None:
    async def put(ledger: Ledger) -> None:
        for one in rows:
            await ledger.put(one)

    with Ledger.open(path) as ledger:
        asyncio.run(put(ledger))


def test_no_file_is_made(tmp_path):
    """Where there is no ledger nothing is known, and none comes into being; where there is one, nothing comes to lie beside it, and not a byte changes."""
    path = tmp_path / "index" / "ledger.sqlite"
    with Peek.open(path) as peek:
        assert (peek.get("a"), peek.history("m", "1")) == (None, {})
    assert not path.parent.exists()

    kept(path, row("a"))
    before = path.read_bytes()
    with Peek.open(path) as peek:
        assert (peek.get("a"), peek.get("b")) == (row("a"), None)
        asyncio.run(peek.put(row("b")))
        asyncio.run(peek.link({"a": [("d2",)]}))
        assert peek.get("b") is None
    assert ([file.name for file in path.parent.iterdir()], path.read_bytes()) == ([path.name], before)


def test_what_a_running_build_has_kept_is_seen(tmp_path):
    """Replies that are in the log only are read, also beside the build that writes them, which is not disturbed."""
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path) as ledger:
        asyncio.run(ledger.put(row("a")))
        with Peek.open(path) as peek:
            assert peek.get("a") == row("a")
            asyncio.run(ledger.put(row("b")))
            assert peek.get("b") == row("b")
    with Peek.open(path) as peek:
        assert peek.get("b") == row("b")


def test_history_sums_usable_replies_of_one_model(tmp_path):
    """By purpose: how many, sums, squares and the largest; replies of other models, and those that cannot be used, do not count."""
    path = tmp_path / "ledger.sqlite"
    kept(
        path, row("a"), row("b", prompt_tokens=20, completion_tokens=6), row("c", model="other"), row("d", outcome="loop"), row("e", purpose="report")
    )  # fmt: skip
    with Peek.open(path) as peek:
        found = peek.history("m", "1")
    assert sorted(found) == ["extract", "report"]
    assert (found["extract"].calls, found["extract"].prompt, found["extract"].completion) == (2, (30, 500, 20), (10, 52, 6))
    assert (found["extract"].products, found["extract"].seconds) == (160, 1.0)


def test_an_altered_reply_is_not_there(tmp_path):
    """A row that fails its checksum would be asked for again, so it is missing."""
    path = tmp_path / "ledger.sqlite"
    kept(path, row("a"))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE replies SET text = 'Else.'")
    connection.close()
    with Peek.open(path) as peek:
        assert peek.get("a") is None


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be looked at" * 100, b""])
def test_a_file_that_is_no_ledger_is_named(tmp_path, content):
    """One sentence with the path."""
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(content)
    if not content:  # what a ledger is that was killed while it was made
        with Peek.open(path) as peek:
            assert peek.get("a") is None
        return
    with pytest.raises((StorageError, IndexCorrupt), match=r"ledger\.sqlite"):
        Peek.open(path)


def test_a_build_that_starts_meanwhile_is_followed(tmp_path):
    """A file that was opened as one that nobody changes, and changes, is opened anew: what is read is what is there now, and never called damaged."""
    path = tmp_path / "ledger.sqlite"
    kept(path, row("a"))
    with Peek.open(path) as peek:
        assert peek.get("b") is None
        kept(path, *(row(f"k{number}", text="x" * 3000) for number in range(50)), row("b"))
        assert peek.get("b") == row("b")
        with sqlite3.connect(path) as connection:
            connection.execute("DELETE FROM replies WHERE key <> 'b'")
        connection.execute("VACUUM")
        connection.close()
        assert (peek.get("b"), peek.get("a")) == (row("b"), None)
        with Ledger.open(path) as ledger:
            asyncio.run(ledger.put(row("c")))
            assert peek.get("c") == row("c")
        assert all("a link of the reply" in problem for problem in peek.verify())


def test_a_log_without_its_index_is_read_and_left(tmp_path):
    """A copy of ledger and log, without the index of the log, tells all that was kept; not a file is made and not a byte changes, and no copy stays."""
    here, scratch = tmp_path / "here", tmp_path / "scratch"
    here.mkdir()
    scratch.mkdir()
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        asyncio.run(ledger.put(row("a")))
        for name in ("ledger.sqlite", "ledger.sqlite-wal"):
            shutil.copyfile(tmp_path / name, here / name)
    before = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in here.iterdir()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(scratch))
        with Peek.open(here / "ledger.sqlite") as peek:
            assert (peek.get("a"), peek.verify()) == (row("a"), [])
            assert len(list(scratch.iterdir())) == 1
    assert {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in here.iterdir()} == before
    assert list(scratch.iterdir()) == []
