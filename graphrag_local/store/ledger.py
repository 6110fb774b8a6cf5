"""The ledger: every model reply that was paid for, and every vector, each durable before it is used.

SQLite, because many small durable writes are what it is for: WAL, `synchronous=FULL` (a commit is on the disk when it returns), `secure_delete`
(what is deleted is overwritten). One thread writes; puts that come while it is busy, or within a few milliseconds, share a commit. Reading has a
connection of its own and waits for nobody.

SQLite has no checksums of what it stores, so every row carries one. A row that fails it counts as not there: it is asked for again and replaced.
"""

import array
import asyncio
import contextlib
import json
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from graphrag_local.errors import GraphragError, IndexBusy
from graphrag_local.ids import digest_of
from graphrag_local.records import LedgerRow
from graphrag_local.store import stamps
from graphrag_local.store.files import make_folder, storage, sync_folder
from graphrag_local.store.ledger_check import kept_vectors, problems
from graphrag_local.store.ledger_errors import translated
from graphrag_local.store.ledger_schema import INSERT, SELECT, add_links, connect, is_sound_group, prepare, to_row, to_stored

_UNSWEPT: Final = "unswept"  # in `meta` from the moment something is forgotten until no byte of it is left in the files

Job = Callable[[sqlite3.Connection], Any]


@dataclass(frozen=True, slots=True)
class _Task:
    """A job of the writing thread, and who waits for it; `alone` is for what cannot be part of a transaction."""

    job: Job
    future: "Future[Any]"
    alone: bool = False


class Ledger:
    """Replies by key and vectors by (embedder, text hash). Open one per process; `get` and the puts may be used from any thread or event loop.

    Raises IndexCorrupt, IndexBusy, IndexMismatch and StorageError, from the call whose row is concerned.
    """

    def __init__(self, path: Path, reader: sqlite3.Connection, writer: sqlite3.Connection, window_s: float) -> None:
        self.path = path
        self.commits = 0
        self._reader = reader
        self._writer = writer
        self._window_s = window_s
        self._reading = threading.Lock()
        self._damaged: set[str] = set()
        self._jobs: queue.Queue[_Task | None] = queue.Queue()  # a SimpleQueue that runs out of time on a busy machine waits for ever (Python 3.9 to 3.12)
        self._thread = threading.Thread(target=self._write, name="ledger", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, path: Path, *, window_s: float = 0.003, patience_s: float = 5.0) -> Self:
        """Open or create a ledger. A put waits up to `window_s` for others to share its commit, any call `patience_s` for another process."""
        with storage(path):
            make_folder(path.parent)
        with translated(path):
            writer = connect(path, patience_s)
            try:
                writer.execute("PRAGMA journal_mode = WAL")
                writer.execute("PRAGMA synchronous = FULL")
                writer.execute("PRAGMA secure_delete = ON")
                prepare(writer, path)
                reader = connect(path, patience_s)
            except BaseException:
                writer.close()
                raise
        with storage(path):
            sync_folder(path.parent)
        return cls(path, reader, writer, window_s)

    def get(self, key: str) -> LedgerRow | None:
        """The row with this key and all groups that are known, None where there is none that is sound."""
        with translated(self.path), self._reading:
            rows = self._reader.execute(SELECT, (key,)).fetchall()
        row = to_row(rows[0]) if rows else None
        if rows and row is None:
            self._damaged.add(key)
        return row

    async def put(self, row: LedgerRow) -> None:
        """Keep a row; returns when it is durable. A usable reply stays as it is, any other is replaced by a later one; groups are added.

        A caller that is cancelled while it waits has its row kept all the same: it is paid for.
        """
        values = to_stored(row)
        await self._durable(lambda writer: self._put(writer, values, row.groups))

    async def link(self, groups: Mapping[str, Iterable[tuple[str, ...]]]) -> None:
        """Add groups of documents to replies, by key; returns when they are durable. Keys without a reply are passed over."""
        links = [(key, group) for key, several in groups.items() for group in several]
        await self._durable(lambda writer: add_links(writer, links))

    def sweep(self, documents: Collection[str], used: Collection[str], *, reclaim: bool = True) -> int:
        """Forget documents, by id; returns how many replies are deleted, when no byte of them is in the files.

        `used` are the keys of the replies that the index without these documents asks for: those stay, linked to their other groups. Every other
        reply loses the groups that hold one of the documents, and is deleted when none is left. One that has no group at all, as damage leaves it, may
        have seen them too. Without `reclaim` the bytes stay until `reclaim()`. Raises IndexBusy, after deleting, where a reader is in the way.
        """
        gone, wanted = frozenset(documents), frozenset(used)
        deleted: int = self._submit(lambda writer: _sweep(writer, gone, wanted)).result()
        if reclaim:
            self.reclaim()
        return deleted

    def drop_vectors(self, keep: Collection[str], *, reclaim: bool = True) -> int:
        """Delete the vectors of all texts but these (hashes), as `sweep` deletes, and say how many there were."""
        wanted = frozenset(keep)
        count: int = self._submit(lambda writer: _drop_vectors(writer, wanted)).result()
        if reclaim:
            self.reclaim()
        return count

    def reclaim(self) -> None:
        """Write the file anew when something was forgotten since the last time, also by a process that was killed; raises IndexBusy.

        `secure_delete` is not enough: where SQLite moves rows between pages it leaves copies of them in the gaps. SQLite keeps the new file as a
        temporary one meanwhile, which holds only what stays.
        """
        self._submit(lambda writer: _reclaim(writer, self.path), alone=True).result()

    def get_vectors(self, embedder: str, hashes: Sequence[str]) -> dict[str, tuple[float, ...]]:
        """The vectors that are kept of these texts, by text hash."""
        with translated(self.path), self._reading:
            return kept_vectors(self._reader, embedder, hashes)

    async def put_vectors(self, embedder: str, rows: Mapping[str, Sequence[float]]) -> None:
        """Keep vectors by text hash, as float32; returns when they are durable."""
        blobs = [(hash_, array.array("f", numbers).tobytes()) for hash_, numbers in rows.items()]
        values = [(embedder, hash_, blob, digest_of(embedder, hash_, blob)) for hash_, blob in blobs]
        await self._durable(lambda writer: _put_vectors(writer, values))

    def documents(self) -> set[str]:
        """The documents that any reply is linked to."""
        with translated(self.path), self._reading:
            rows = self._reader.execute("SELECT grp, documents FROM groups WHERE grp IN (SELECT grp FROM reply_groups)").fetchall()
        return {document for grp, documents in rows if is_sound_group(grp, documents) for document in json.loads(documents)}

    def counts(self) -> dict[str, int]:
        """How many replies (in all and by outcome), vectors, and damaged rows seen by this process."""
        with translated(self.path), self._reading:
            outcomes = self._reader.execute("SELECT outcome, count(*) FROM replies GROUP BY outcome ORDER BY outcome").fetchall()
            ((vectors,),) = self._reader.execute("SELECT count(*) FROM vectors").fetchall()
        return {"replies": sum(count for _, count in outcomes), "vectors": vectors, "damaged": len(self._damaged), **dict(outcomes)}

    def verify(self) -> list[str]:
        """Read all of it; one sentence per problem, none when all is well."""
        with translated(self.path), self._reading:
            return problems(self._reader, self.path)

    def is_sound(self) -> bool:
        """Whether nothing is wrong with it; it is read unless its file is as it was when all of it was read last."""
        index, identity = self.path.parent, stamps.ledger_identity(self.path)
        if identity and stamps.load(index).get(identity) == stamps.SOUND:
            return True
        if self.verify():
            return False
        if identity and identity == stamps.ledger_identity(self.path):
            stamps.save(index, {**stamps.load(index), identity: stamps.SOUND})
        return True

    def close(self) -> None:
        """Finish what is waiting, fold the log into the file, and close. Closing twice does nothing."""
        if self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join()
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # The writing thread

    def _submit(self, job: Job, *, alone: bool = False) -> "Future[Any]":
        if not self._thread.is_alive():
            raise ValueError("the ledger is closed")
        future: Future[Any] = Future()
        self._jobs.put(_Task(job, future, alone))
        return future

    async def _durable(self, job: Job) -> None:
        future = asyncio.wrap_future(self._submit(job))
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # who was cancelled meanwhile does not ask how it ended
        await asyncio.shield(future)

    def _write(self) -> None:
        """Take what is waiting, commit it together, tell those who wait; until None comes."""
        last = False
        while not last:
            batch = [self._jobs.get()]
            until = time.monotonic() + self._window_s
            while batch[-1] is not None:
                try:
                    batch.append(self._jobs.get(timeout=max(0.0, until - time.monotonic())))
                except queue.Empty:
                    break
            last = batch[-1] is None
            tasks = [task for task in batch if task is not None]
            self._commit([task for task in tasks if not task.alone])
            for task in tasks:
                if task.alone:
                    self._run_alone(task)
        with contextlib.suppress(sqlite3.Error, IndexBusy):  # a reader of another process is in the way: the next closing will do
            _truncate(self._writer, self.path)
        self._writer.close()

    def _run_alone(self, task: _Task) -> None:
        try:
            with translated(self.path):
                result = task.job(self._writer)
        except (GraphragError, sqlite3.Error) as error:
            task.future.set_exception(error)
        else:
            task.future.set_result(result)

    def _commit(self, batch: list[_Task]) -> None:
        """One transaction for all; where it fails, one for each, so that only those fail that must."""
        if not batch:
            return
        try:
            with translated(self.path):
                self._writer.execute("BEGIN IMMEDIATE")
                results = [task.job(self._writer) for task in batch]
                self._writer.execute("COMMIT")
        except (GraphragError, sqlite3.Error, ValueError, TypeError, OverflowError) as error:
            self._undo()
            if len(batch) > 1:
                for task in batch:
                    self._commit([task])
            else:
                batch[0].future.set_exception(error)
            return
        self.commits += 1
        for task, result in zip(batch, results, strict=True):
            task.future.set_result(result)

    def _undo(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # of a disk that takes nothing: the next BEGIN shows it to those who wait
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")

    def _put(self, writer: sqlite3.Connection, values: tuple[Any, ...], groups: Sequence[tuple[str, ...]]) -> None:
        key = values[0]
        if key in self._damaged:
            writer.execute("DELETE FROM replies WHERE key = ?", (key,))
        writer.execute(INSERT, values)
        add_links(writer, [(key, group) for group in groups])


def _put_vectors(writer: sqlite3.Connection, rows: list[tuple[str, str, bytes, str]]) -> None:
    """Gives nothing back: a cursor that ends in another thread resets the statement, which the writing thread may be running again."""
    writer.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", rows)


def _sweep(writer: sqlite3.Connection, gone: frozenset[str], used: frozenset[str]) -> int:
    """All sets are made here, not in SQL: one pass over the names, without a copy of them in the file."""
    if not gone:
        return 0
    left_groups: set[str] = set()
    cut_groups: set[str] = set()
    for grp, documents in writer.execute("SELECT grp, documents FROM groups"):
        sees = not is_sound_group(grp, documents) or not gone.isdisjoint(json.loads(documents))
        (cut_groups if sees else left_groups).add(grp)
    replies = {key for (key,) in writer.execute("SELECT key FROM replies")}
    left, cut = set(), []
    for key, grp in writer.execute("SELECT key, grp FROM reply_groups"):
        if grp in left_groups and key in replies:
            left.add(key)
        else:
            cut.append((key, grp))
    doomed = replies - left - used
    _forget(writer, "DELETE FROM reply_groups WHERE key = ? AND grp = ?", cut)
    _forget(writer, "DELETE FROM groups WHERE grp = ?", [(grp,) for grp in cut_groups])
    _forget(writer, "DELETE FROM replies WHERE key = ?", [(key,) for key in doomed])
    writer.execute("DELETE FROM groups WHERE grp NOT IN (SELECT grp FROM reply_groups)")
    return len(doomed)


def _drop_vectors(writer: sqlite3.Connection, keep: frozenset[str]) -> int:
    rows = [(row,) for row, hash_ in writer.execute("SELECT rowid, text_hash FROM vectors") if hash_ not in keep]
    _forget(writer, "DELETE FROM vectors WHERE rowid = ?", rows)
    return len(rows)


def _forget(writer: sqlite3.Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Delete rows, and note in the same transaction that their bytes are still to be reclaimed."""
    if rows:
        writer.executemany(statement, rows)
        writer.execute("INSERT OR IGNORE INTO meta VALUES (?, '')", (_UNSWEPT,))


def _reclaim(writer: sqlite3.Connection, path: Path) -> None:
    if writer.execute("SELECT value FROM meta WHERE name = ?", (_UNSWEPT,)).fetchall():
        writer.execute("VACUUM")
        _truncate(writer, path)
        writer.execute("DELETE FROM meta WHERE name = ?", (_UNSWEPT,))


def _truncate(connection: sqlite3.Connection, path: Path) -> None:
    """Fold the log into the file and empty it; raises IndexBusy where a reader of another process is in the way."""
    ((blocked, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    if blocked:
        raise IndexBusy(f"{path}-wal cannot be emptied while another process reads it.", hint="Close the other process and run the command again.")
