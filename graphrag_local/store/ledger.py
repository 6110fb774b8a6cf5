"""The ledger: every model reply that was paid for, and every vector, each durable before it is used.

SQLite, because many small durable writes are what it is for: WAL, `synchronous=FULL` (a commit is on the disk when it returns), `secure_delete`
(what is deleted is overwritten). One thread writes; puts that come while it is busy, or within a few milliseconds, share a commit. Reading has a
connection of its own and waits for nobody.

SQLite has no checksums of what it stores, so every row carries one. A row that fails it counts as not there: it is asked for again and replaced.
"""

import array
import asyncio
import contextlib
import dataclasses
import json
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from graphrag_local.errors import GraphragError, IndexBusy, IndexCorrupt, IndexMismatch, StorageError
from graphrag_local.ids import digest_of
from graphrag_local.records import LedgerRow
from graphrag_local.store.files import make_folder, storage, sync_folder

SCHEMA = 1
_COLUMNS: Final = tuple(field.name for field in dataclasses.fields(LedgerRow) if field.name != "documents")
_REALS: Final = ("gate", "seconds")
_TABLES: Final = """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE replies (key TEXT PRIMARY KEY, purpose TEXT, model TEXT, revision TEXT, outcome TEXT, text TEXT, gate REAL, logprobs TEXT,
        prompt_tokens INTEGER, cached_tokens INTEGER, completion_tokens INTEGER, seconds REAL, checksum TEXT NOT NULL);
    CREATE TABLE reply_documents (key TEXT, position INTEGER, document TEXT NOT NULL, PRIMARY KEY (key, position)) WITHOUT ROWID;
    CREATE INDEX reply_documents_by_document ON reply_documents (document);
    CREATE TABLE vectors (embedder TEXT, text_hash TEXT, numbers BLOB NOT NULL, checksum TEXT NOT NULL, PRIMARY KEY (embedder, text_hash));
"""
_DOCUMENTS: Final = "(SELECT json_group_array(document) FROM (SELECT document FROM reply_documents WHERE key = replies.key ORDER BY position))"
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)}, {_DOCUMENTS}, checksum FROM replies WHERE key = ?"  # noqa: S608 - names of fields, not data
_SET: Final = ", ".join(f"{name} = excluded.{name}" for name in (*_COLUMNS[1:], "checksum"))
_PLACES: Final = ", ".join("?" * (len(_COLUMNS) + 1))
_PUT: Final = f"INSERT INTO replies ({', '.join(_COLUMNS)}, checksum) VALUES ({_PLACES}) "  # noqa: S608
_INSERT: Final = f"{_PUT} ON CONFLICT (key) DO UPDATE SET {_SET} WHERE replies.outcome <> 'ok'"
_ASIDE: Final = "Move it aside, with the -wal and -shm files beside it if there are any, and run `graphrag-local index`, which pays for replies anew."

Job = Callable[[sqlite3.Connection], Any]


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
        self._jobs: queue.SimpleQueue[tuple[Job, Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="ledger", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, path: Path, *, window_s: float = 0.003, patience_s: float = 5.0) -> Self:
        """Open or create a ledger. A put waits up to `window_s` for others to share its commit, any call `patience_s` for another process."""
        with storage(path):
            make_folder(path.parent)
        with _translated(path):
            writer = _connect(path, patience_s)
            try:
                writer.execute("PRAGMA journal_mode = WAL")
                writer.execute("PRAGMA synchronous = FULL")
                writer.execute("PRAGMA secure_delete = ON")
                _prepare(writer, path)
                reader = _connect(path, patience_s)
                reader.text_factory = lambda raw: raw.decode("utf-8", "replace")  # damaged text fails its checksum, not the query
            except BaseException:
                writer.close()
                raise
        with storage(path):
            sync_folder(path.parent)
        return cls(path, reader, writer, window_s)

    def get(self, key: str) -> LedgerRow | None:
        """The row with this key, None where there is none that is sound."""
        with _translated(self.path), self._reading:
            rows = self._reader.execute(_SELECT, (key,)).fetchall()
        row = _row(rows[0]) if rows else None
        if rows and row is None:
            self._damaged.add(key)
        return row

    async def put(self, row: LedgerRow) -> None:
        """Keep a row; returns when it is durable. A usable reply stays as it is, any other is replaced by a later one.

        A caller that is cancelled while it waits has its row kept all the same: it is paid for.
        """
        values = (*map(_stored, _values(row)), _checksum(row))
        documents = [(row.key, position, document) for position, document in enumerate(row.documents)]
        await self._durable(lambda writer: self._put(writer, values, documents))

    def documents_of(self, key: str) -> tuple[str, ...]:
        """The documents whose text the prompt of this reply held."""
        with _translated(self.path), self._reading:
            rows = self._reader.execute("SELECT document FROM reply_documents WHERE key = ? ORDER BY position", (key,)).fetchall()
        return tuple(document for (document,) in rows)

    def delete_replies_of(self, document: str) -> int:
        """Delete every reply whose prompt held text of this document, overwrite what it leaves in the files, and say how many there were."""
        count = self._submit(lambda writer: _delete(writer, document)).result()
        with _translated(self.path), self._reading:
            _truncate(self._reader, self.path)
        return int(count)

    def get_vectors(self, embedder: str, hashes: Sequence[str]) -> dict[str, tuple[float, ...]]:
        """The vectors that are kept of these texts, by text hash."""
        found: dict[str, tuple[float, ...]] = {}
        for start in range(0, len(hashes), 500):
            some = hashes[start : start + 500]
            query = f"SELECT text_hash, numbers, checksum FROM vectors WHERE embedder = ? AND text_hash IN ({', '.join('?' * len(some))})"  # noqa: S608
            with _translated(self.path), self._reading:
                rows = self._reader.execute(query, (embedder, *some)).fetchall()
            found |= {hash_: tuple(array.array("f", numbers)) for hash_, numbers, sum_ in rows if sum_ == digest_of(embedder, hash_, numbers)}
        return found

    async def put_vectors(self, embedder: str, rows: Mapping[str, Sequence[float]]) -> None:
        """Keep vectors by text hash, as float32; returns when they are durable."""
        blobs = [(hash_, array.array("f", numbers).tobytes()) for hash_, numbers in rows.items()]
        values = [(embedder, hash_, blob, digest_of(embedder, hash_, blob)) for hash_, blob in blobs]
        await self._durable(lambda writer: _put_vectors(writer, values))

    def counts(self) -> dict[str, int]:
        """How many replies (in all and by outcome), vectors, and damaged rows seen by this process."""
        with _translated(self.path), self._reading:
            outcomes = self._reader.execute("SELECT outcome, count(*) FROM replies GROUP BY outcome ORDER BY outcome").fetchall()
            ((vectors,),) = self._reader.execute("SELECT count(*) FROM vectors").fetchall()
        return {"replies": sum(count for _, count in outcomes), "vectors": vectors, "damaged": len(self._damaged), **dict(outcomes)}

    def verify(self) -> list[str]:
        """Read all of it; one sentence per problem, none when all is well."""
        with _translated(self.path), self._reading:
            found = [f"{self.path}: {line}." for (line,) in self._reader.execute("PRAGMA integrity_check").fetchall() if line != "ok"]
            keys = [key for (key,) in self._reader.execute("SELECT key FROM replies ORDER BY key").fetchall()]
            vectors = self._reader.execute("SELECT embedder, text_hash, numbers, checksum FROM vectors").fetchall()
        found += [f"{self.path}: the reply {key} was altered; it will be asked for again." for key in keys if self.get(key) is None]
        altered = [hash_ for embedder, hash_, numbers, sum_ in vectors if sum_ != digest_of(embedder, hash_, numbers)]
        return found + [f"{self.path}: the vector of the text {hash_} was altered; it will be made again." for hash_ in altered]

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

    def _submit(self, job: Job) -> "Future[Any]":
        if not self._thread.is_alive():
            raise ValueError("the ledger is closed")
        future: Future[Any] = Future()
        self._jobs.put((job, future))
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
            self._commit([entry for entry in batch if entry is not None])
        with contextlib.suppress(sqlite3.Error, IndexBusy):  # a reader of another process is in the way: the next closing will do
            _truncate(self._writer, self.path)
        self._writer.close()

    def _commit(self, batch: list[tuple[Job, "Future[Any]"]]) -> None:
        """One transaction for all; where it fails, one for each, so that only those fail that must."""
        if not batch:
            return
        try:
            with _translated(self.path):
                self._writer.execute("BEGIN IMMEDIATE")
                results = [job(self._writer) for job, _ in batch]
                self._writer.execute("COMMIT")
        except (GraphragError, sqlite3.Error, ValueError, TypeError, OverflowError) as error:
            self._undo()
            if len(batch) > 1:
                for entry in batch:
                    self._commit([entry])
            else:
                batch[0][1].set_exception(error)
            return
        self.commits += 1
        for (_, future), result in zip(batch, results, strict=True):
            future.set_result(result)

    def _undo(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # of a disk that takes nothing: the next BEGIN shows it to those who wait
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")

    def _put(self, writer: sqlite3.Connection, values: tuple[Any, ...], documents: list[tuple[str, int, str]]) -> None:
        key = values[0]
        if key in self._damaged:
            writer.execute("DELETE FROM replies WHERE key = ?", (key,))
        if writer.execute(_INSERT, values).rowcount:
            writer.execute("DELETE FROM reply_documents WHERE key = ?", (key,))
            writer.executemany("INSERT INTO reply_documents VALUES (?, ?, ?)", documents)


def _connect(path: Path, patience_s: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=patience_s, isolation_level=None, check_same_thread=False)


def _prepare(writer: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new ledger; refuse a file that is something else or newer."""
    writer.execute("BEGIN IMMEDIATE")
    names = {name for (name,) in writer.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
    if not names:
        for statement in _TABLES.split(";"):
            writer.execute(statement)
        writer.execute("INSERT INTO meta VALUES ('schema', ?)", (str(SCHEMA),))
    found = writer.execute("SELECT value FROM meta WHERE name = 'schema'").fetchall() if {"meta", "replies"} <= names or not names else []
    writer.execute("COMMIT")
    if not found:
        raise IndexCorrupt(f"{path} is a database, but not a ledger of this program.", hint=_ASIDE)
    if found[0][0] != str(SCHEMA):
        raise IndexMismatch(
            f"{path} was made by another version of graphrag-local (ledger {found[0][0]}, this one reads {SCHEMA}).",
            hint="Use the version that made it, or a later one; or move the file aside and pay for replies anew.",
        )


def _values(row: LedgerRow) -> tuple[Any, ...]:
    values = {name: getattr(row, name) for name in _COLUMNS}
    return tuple(float(value) + 0.0 if name in _REALS and value is not None else value for name, value in values.items())  # SQLite has no -0.0


def _stored(value: Any) -> Any:
    """A lone surrogate, which a server's JSON can hold, is no UTF-8: such a text is stored as bytes."""
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
    return value


def _row(stored: Sequence[Any]) -> LedgerRow | None:
    """The row as it was put, None where its checksum says that it is not."""
    try:
        values = [value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value for value in stored[: len(_COLUMNS)]]
        fields: dict[str, Any] = dict(zip(_COLUMNS, values, strict=True))
        row = LedgerRow(**fields, documents=tuple(json.loads(stored[len(_COLUMNS)])))
        return row if stored[-1] == _checksum(row) else None
    except (ValueError, TypeError):
        return None


def _checksum(row: LedgerRow) -> str:
    return digest_of(repr((*_values(row), row.documents)))


def _put_vectors(writer: sqlite3.Connection, rows: list[tuple[str, str, bytes, str]]) -> None:
    """Gives nothing back: a cursor that ends in another thread resets the statement, which the writing thread may be running again."""
    writer.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", rows)


def _delete(writer: sqlite3.Connection, document: str) -> int:
    keys = writer.execute("SELECT DISTINCT key FROM reply_documents WHERE document = ?", (document,)).fetchall()
    writer.executemany("DELETE FROM replies WHERE key = ?", keys)
    writer.executemany("DELETE FROM reply_documents WHERE key = ?", keys)
    return len(keys)


def _truncate(connection: sqlite3.Connection, path: Path) -> None:
    """Fold the log into the file and empty it; raises IndexBusy where a reader of another process is in the way."""
    ((blocked, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    if blocked:
        raise IndexBusy(f"{path}-wal cannot be emptied while another process reads it.", hint="Close the other process and run the command again.")


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except sqlite3.Error as error:
        ours = _error(path, getattr(error, "sqlite_errorcode", 0) & 0xFF, str(error))
        if ours is None:
            raise
        raise ours from error


def _error(path: Path, code: int, text: str) -> GraphragError | None:
    match code:
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return IndexCorrupt(f"{path} is damaged ({text}).", hint=_ASIDE)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return IndexBusy(f"{path} is locked by another process.", hint="Wait until it has finished, or stop it.")
        case sqlite3.SQLITE_FULL:
            return StorageError(f"{path}: the disk is full.", hint="Free some space and run the command again: what was paid for before is kept.")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_PERM:
            return StorageError(f"{path} cannot be written ({text}).", hint="Check the disk, and that this user may write the file and its folder.")
    return None
