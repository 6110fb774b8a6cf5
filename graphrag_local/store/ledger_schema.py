"""The tables of the ledger, the rows in them, and how an older ledger becomes one of today's.

A reply may be the answer to several requests: documents that share a text ask with equal prompts, and so does a renamed file. A group is the
documents of one such request; `reply_groups` ties a reply to each of its groups, so that forgetting a document finds every reply that saw it.

Every row vouches for itself. Replies and vectors carry a checksum; a group is named by the digest of its documents; a link is two such names,
and one with a flipped bit names nothing that is there.
"""

import dataclasses
import json
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from graphrag_local.errors import IndexCorrupt, IndexMismatch
from graphrag_local.ids import digest_of
from graphrag_local.records import LedgerRow

SCHEMA: Final = 2
ASIDE: Final = "Move it aside, with the -wal and -shm files beside it if there are any, and run `graphrag-local index`, which pays for replies anew."
_COLUMNS: Final = tuple(field.name for field in dataclasses.fields(LedgerRow) if field.name != "groups")
_REALS: Final = ("gate", "seconds")
_LINKS: Final = """
    CREATE TABLE groups (grp TEXT PRIMARY KEY, documents TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE reply_groups (key TEXT, grp TEXT, PRIMARY KEY (key, grp)) WITHOUT ROWID;
"""
_TABLES: Final = f"""
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE replies (key TEXT PRIMARY KEY, purpose TEXT, model TEXT, revision TEXT, outcome TEXT, text TEXT, gate REAL, logprobs TEXT,
        prompt_tokens INTEGER, cached_tokens INTEGER, completion_tokens INTEGER, seconds REAL, checksum TEXT NOT NULL);
    CREATE TABLE vectors (embedder TEXT, text_hash TEXT, numbers BLOB NOT NULL, checksum TEXT NOT NULL, PRIMARY KEY (embedder, text_hash));
    {_LINKS}
"""
_GROUPS: Final = "(SELECT group_concat(documents) FROM reply_groups JOIN groups USING (grp) WHERE key = replies.key)"
_ROW: Final = f"SELECT {', '.join(_COLUMNS)}, checksum"
SELECT: Final = f"{_ROW}, {_GROUPS} FROM replies WHERE key = ?"
_SET: Final = ", ".join(f"{name} = excluded.{name}" for name in (*_COLUMNS[1:], "checksum"))
_PLACES: Final = ", ".join("?" * (len(_COLUMNS) + 1))
_PUT: Final = f"INSERT INTO replies ({', '.join(_COLUMNS)}, checksum) VALUES ({_PLACES}) "  # noqa: S608
INSERT: Final = f"{_PUT} ON CONFLICT (key) DO UPDATE SET {_SET} WHERE replies.outcome <> 'ok'"
# A group whose documents were altered is mended by whoever names it next.
_GROUP: Final = "INSERT INTO groups VALUES (?, ?) ON CONFLICT (grp) DO UPDATE SET documents = excluded.documents WHERE documents <> excluded.documents"


def connect(path: Path, patience_s: float) -> sqlite3.Connection:
    """A connection that commits statement by statement, for use from any thread."""
    connection = sqlite3.connect(path, timeout=patience_s, isolation_level=None, check_same_thread=False)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")  # damaged text fails its checksum, not the query
    return connection


def prepare(writer: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new ledger, convert an older one; refuse a file that is something else or newer."""
    writer.execute("BEGIN IMMEDIATE")
    names = {name for (name,) in writer.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
    if not names:
        _run(writer, _TABLES)
        writer.execute("INSERT INTO meta VALUES ('schema', ?)", (str(SCHEMA),))
    found = writer.execute("SELECT value FROM meta WHERE name = 'schema'").fetchall() if {"meta", "replies"} <= names or not names else []
    if found == [("1",)]:
        _convert_1(writer)
        found = [(str(SCHEMA),)]
    writer.execute("COMMIT")
    if not found:
        raise IndexCorrupt(f"{path} is a database, but not a ledger of this program.", hint=ASIDE)
    if found[0][0] != str(SCHEMA):
        raise IndexMismatch(
            f"{path} was made by another version of graphrag-local (ledger {found[0][0]}, this one reads {SCHEMA}).",
            hint="Use the version that made it, or a later one; or move the file aside and pay for replies anew.",
        )


def _run(writer: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";"):
        writer.execute(statement)


def _convert_1(writer: sqlite3.Connection) -> None:
    """From schema 1, which knew the documents of the request that paid only, and had them in the reply's checksum. Altered rows stay altered."""
    _run(writer, _LINKS)
    for (key,) in writer.execute("SELECT key FROM replies").fetchall():
        *stored, checksum = writer.execute(f"{_ROW} FROM replies WHERE key = ?", (key,)).fetchone()
        documents = tuple(name for (name,) in writer.execute("SELECT document FROM reply_documents WHERE key = ? ORDER BY position", (key,)).fetchall())
        values = _decoded(stored)
        if values and checksum == digest_of(repr((*values, documents))):
            writer.execute("UPDATE replies SET checksum = ? WHERE key = ?", (digest_of(repr(values)), key))
        add_links(writer, [(key, documents)])
    writer.execute("DROP TABLE reply_documents")
    writer.execute("UPDATE meta SET value = ? WHERE name = 'schema'", (str(SCHEMA),))


def group_of(documents: Iterable[str]) -> tuple[str, ...]:
    """The group of a request with these documents; empty for a request that shows none."""
    return tuple(sorted(set(documents)))


def add_links(writer: sqlite3.Connection, links: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Tie replies, by key, to groups of documents; what is tied already stays so, and what is no reply is passed over."""
    for key, documents in links:
        group = group_of(documents)
        if group and writer.execute("SELECT 1 FROM replies WHERE key = ?", (key,)).fetchall():
            grp = digest_of(*group)
            writer.execute(_GROUP, (grp, json.dumps(group, separators=(",", ":"))))
            writer.execute("INSERT OR IGNORE INTO reply_groups VALUES (?, ?)", (key, grp))


def is_sound_group(grp: str, documents: str) -> bool:
    """Whether a row of `groups` is as it was written."""
    try:
        return bool(digest_of(*json.loads(documents)) == grp)
    except (ValueError, TypeError, AttributeError):
        return False


def to_stored(row: LedgerRow) -> tuple[Any, ...]:
    """The parameters of INSERT."""
    fields = {name: getattr(row, name) for name in _COLUMNS}
    values = tuple(float(value) + 0.0 if name in _REALS and value is not None else value for name, value in fields.items())  # SQLite has no -0.0
    return (*map(_encoded, values), digest_of(repr(values)))


def to_row(stored: Sequence[Any]) -> LedgerRow | None:
    """A row of SELECT as it was put, None where its checksum says that it is not. Groups that cannot be read are not there."""
    *fields, checksum, groups = stored
    values = _decoded(fields)
    if not values or checksum != digest_of(repr(values)):
        return None
    return LedgerRow(**dict(zip(_COLUMNS, values, strict=True)), groups=_groups(groups) if groups else ())


def _groups(stored: str) -> tuple[tuple[str, ...], ...]:
    try:
        return tuple(sorted(map(tuple, json.loads(f"[{stored}]"))))
    except (ValueError, TypeError):
        return ()


def _encoded(value: Any) -> Any:
    """A lone surrogate, which a server's JSON can hold, is no UTF-8: such a text is stored as bytes."""
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
    return value


def _decoded(stored: Sequence[Any]) -> tuple[Any, ...]:
    """The fields as they were put; none where bytes stand that never were a text."""
    try:
        return tuple(value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value for value in stored)
    except ValueError:
        return ()
