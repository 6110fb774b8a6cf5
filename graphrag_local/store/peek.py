"""The ledger for who only looks: nothing is written to it, no file is made beside it, and a build that is going on is not disturbed.

SQLite makes files even for a reader of a log, so how the ledger is opened depends on what lies there:

- A log with its index (`-wal`, `-shm`): somebody has it open, or was killed. Both are read where they are; SQLite may note readers in the index, which
  holds nothing of the ledger.
- A log without its index, as a copy of the folder can have it: nobody has it open, since whoever does makes the index first. To read it SQLite would
  make one; so file and log are copied into a temporary folder, and read there.
- No log: the file is taken for one that nobody changes. A build that starts meanwhile may change it all the same; that shows in the files, and what was
  read, or could not be, is read again.
"""

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from graphrag_local.errors import GraphragError
from graphrag_local.records import LedgerRow
from graphrag_local.store.files import storage
from graphrag_local.store.ledger_check import kept_vectors, problems
from graphrag_local.store.ledger_errors import translated
from graphrag_local.store.ledger_schema import SCHEMA, SELECT, prepare, to_row

PATIENCE_S: Final = 5.0
_READ: Final = ("read", "read")
_TRIES: Final = 3  # a build changes the file under a reader when it folds its log in: at its end, and a few times a minute at most
T = TypeVar("T")
_SUMS: Final = """
    SELECT purpose, count(*), sum(prompt_tokens), sum(prompt_tokens * prompt_tokens), max(prompt_tokens),
        sum(completion_tokens), sum(completion_tokens * completion_tokens), max(completion_tokens),
        sum(prompt_tokens * completion_tokens), sum(seconds)
    FROM replies WHERE model = ? AND revision = ? AND outcome = 'ok' GROUP BY purpose
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What replies of one purpose took: how many there are; of prompt and completion tokens the sum, the sum of squares and the largest; and the sum
    of their products."""

    calls: int
    prompt: tuple[int, int, int]
    completion: tuple[int, int, int]
    products: int
    seconds: float


class Peek:
    """Replies by key, as `Ledger.get` gives them; an empty one where there is no ledger. What is put is not kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held = contextlib.ExitStack()
        self._connection: sqlite3.Connection | None = None
        self._state: tuple[Any, ...] | None = None  # of the files when they were opened, None where SQLite itself sees what others write

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open what is there; raises StorageError where it cannot be read, IndexCorrupt and IndexMismatch where it is something else."""
        peek = cls(path)
        if path.is_file():
            try:
                peek._read(lambda _: None)
            except BaseException:
                peek.close()
                raise
        return peek

    def get(self, key: str) -> LedgerRow | None:
        """The row with this key, None where there is none that is sound."""
        if self._connection is None:
            return None
        rows = self._read(lambda reader: reader.execute(SELECT, (key,)).fetchall())
        return to_row(rows[0]) if rows else None

    async def put(self, row: LedgerRow) -> None:
        """Nothing."""

    async def link(self, groups: Mapping[str, Iterable[tuple[str, ...]]]) -> None:
        """Nothing."""

    def get_vectors(self, embedder: str, hashes: Sequence[str]) -> dict[str, tuple[float, ...]]:
        """The vectors that are kept of these texts, by text hash."""
        return {} if self._connection is None else self._read(lambda reader: kept_vectors(reader, embedder, hashes))

    def verify(self) -> list[str]:
        """Read all of it; one sentence per problem, none when all is well. An older schema is read as what it would become."""
        return [] if self._connection is None else self._read(lambda reader: problems(reader, self.path))

    async def put_vectors(self, embedder: str, rows: Mapping[str, Sequence[float]]) -> None:
        """Nothing."""

    def history(self, model: str, revision: str) -> dict[str, History]:
        """What the usable replies of a model took, by purpose."""
        if self._connection is None:
            return {}
        rows = self._read(lambda reader: reader.execute(_SUMS, (model, revision)).fetchall())
        return {row[0]: History(calls=row[1], prompt=tuple(row[2:5]), completion=tuple(row[5:8]), products=row[8], seconds=row[9] or 0.0) for row in rows}

    def close(self) -> None:
        """Let go of the file."""
        self._held.close()

    def _read(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """What a job reads, opened anew and read again where the files changed under a connection that took them for still."""
        with translated(self.path, _READ), storage(self.path):
            for last in (False,) * (_TRIES - 1) + (True,):
                try:
                    found = job(self._connection or self._connect())
                except (sqlite3.Error, UnicodeDecodeError, GraphragError):
                    if last or not self._has_changed():
                        raise
                else:
                    if last or not self._has_changed():
                        return found
                self._held.close()
                self._connection = None
        raise AssertionError("the last try returns or raises")

    def _has_changed(self) -> bool:
        return self._state is not None and self._state != _state(self.path)

    def _connect(self) -> sqlite3.Connection:
        path, log, index = _files(self.path)
        self._state = _state(path)
        follows = log.is_file() and index.is_file()
        if not follows and log.is_file() and log.stat().st_size:
            folder = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="graphrag-local-")))
            path = Path(shutil.copyfile(path, folder / path.name))
            shutil.copyfile(log, folder / log.name)
        how = "mode=ro" if follows or path != self.path else "mode=ro&immutable=1"
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False)
        self._held.callback(connection.close)
        connection.text_factory = _text
        self._connection = self._held.enter_context(contextlib.closing(_current(connection, self.path)))
        if follows:
            self._state = None
        return self._connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _files(path: Path) -> tuple[Path, Path, Path]:
    """The ledger, its log, and the log's index."""
    return path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def _state(path: Path) -> tuple[Any, ...]:
    """What tells whether the files of a ledger are still those that they were."""
    return tuple(_stamp(file) for file in _files(path))


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _current(connection: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    """The connection itself, or one to a copy in memory where the tables are those of an older version."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
    found = connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchall() if "meta" in tables else []
    if found == [(str(SCHEMA),)]:
        return connection
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        connection.backup(copy)
        copy.text_factory = _text
        prepare(copy, path)
    except BaseException:
        copy.close()
        raise
    return copy
