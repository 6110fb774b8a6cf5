"""SQLite's errors about a ledger as ours."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from graphrag_local.errors import GraphragError, IndexBusy, IndexCorrupt, StorageError
from graphrag_local.store.ledger_schema import ASIDE


@contextlib.contextmanager
def translated(path: Path, doing: tuple[str, str] = ("write", "written")) -> Iterator[None]:
    """SQLite's errors inside as IndexCorrupt, IndexBusy and StorageError; `doing` is what could not be done where the file system is in the way."""
    try:
        yield
    except sqlite3.Error as error:
        ours = _error(path, getattr(error, "sqlite_errorcode", 0) & 0xFF, str(error), *doing)
        if ours is None:
            raise
        raise ours from error
    except UnicodeDecodeError as error:  # of a name in a damaged schema, which Python's sqlite3 cannot put into its own message
        raise IndexCorrupt(f"{path} is damaged (its schema is no text).", hint=ASIDE) from error


def _error(path: Path, code: int, text: str, do: str, done: str) -> GraphragError | None:
    match code:
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_ERROR:  # the last: a table or column that the schema should have
            return IndexCorrupt(f"{path} is damaged ({text}).", hint=ASIDE)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return IndexBusy(f"{path} is locked by another process.", hint="Wait until it has finished, or stop it.")
        case sqlite3.SQLITE_FULL:
            return StorageError(f"{path}: the disk is full.", hint="Free some space and run the command again: what was paid for before is kept.")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_PERM:
            return StorageError(f"{path} cannot be {done} ({text}).", hint=f"Check the disk, and that this user may {do} the file and its folder.")
    return None
