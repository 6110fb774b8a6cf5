"""What a ledger holds and whether it is sound, by any connection that can read it."""

import array
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphrag_local.ids import digest_of
from graphrag_local.store.ledger_schema import SELECT, is_sound_group, to_row


def problems(reader: sqlite3.Connection, path: Path) -> list[str]:
    """Read all of it; one sentence per problem, none when all is well."""
    found = [f"{path}: {line}." for (line,) in reader.execute("PRAGMA integrity_check").fetchall() if line != "ok"]
    keys = [key for (key,) in reader.execute("SELECT key FROM replies ORDER BY key").fetchall()]
    vectors = reader.execute("SELECT embedder, text_hash, numbers, checksum FROM vectors").fetchall()
    links = reader.execute("SELECT key, grp FROM reply_groups ORDER BY key, grp").fetchall()
    groups = {grp: is_sound_group(grp, documents) for grp, documents in reader.execute("SELECT grp, documents FROM groups").fetchall()}
    found += [f"{path}: the reply {key} was altered; it will be asked for again." for key in keys if not _is_sound_reply(reader, key)]
    altered = [hash_ for embedder, hash_, numbers, sum_ in vectors if not _is_sound_vector(embedder, hash_, numbers, sum_)]
    found += [f"{path}: the vector of the text {hash_} was altered; it will be made again." for hash_ in altered]
    known, named = set(keys), {grp for _, grp in links}
    unsure = [f"of the reply {key}" for key, grp in links if key not in known or not groups.get(grp)]
    unsure += [f"to the documents {grp}" for grp in groups if grp not in named]
    return found + [f"{path}: a link {name} was altered; the next forgetting takes what may have seen its documents." for name in unsure]


def kept_vectors(reader: sqlite3.Connection, embedder: str, hashes: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """The sound vectors of these texts, by text hash."""
    found: dict[str, tuple[float, ...]] = {}
    for start in range(0, len(hashes), 500):
        some = hashes[start : start + 500]
        query = f"SELECT text_hash, numbers, checksum FROM vectors WHERE embedder = ? AND text_hash IN ({', '.join('?' * len(some))})"  # noqa: S608
        rows = reader.execute(query, (embedder, *some)).fetchall()
        found |= {hash_: tuple(array.array("f", numbers)) for hash_, numbers, sum_ in rows if _is_sound_vector(embedder, hash_, numbers, sum_)}
    return found


def _is_sound_reply(reader: sqlite3.Connection, key: str) -> bool:
    rows = reader.execute(SELECT, (key,)).fetchall()
    return bool(rows) and to_row(rows[0]) is not None


def _is_sound_vector(embedder: Any, hash_: Any, numbers: Any, checksum: Any) -> bool:
    """Whether a row of `vectors` is as it was written; a flipped bit may make any of its values another type, or none."""
    return isinstance(embedder, str) and isinstance(hash_, str) and isinstance(numbers, bytes) and checksum == digest_of(embedder, hash_, numbers)
