"""What has been forgotten for good (`index/forgotten.jsonl`): one line per document, with hashes in place of its path and its texts.

The list shows neither, but who has a path or a text can tell by its hash whether it is on it: it keeps no secret that can be guessed.
A document on it that is still in the input folder is left out of every build, also of one that comes after a `forget` that was killed. What such a
`forget` has left to do says `index/forgetting.json`, which is there from the moment it begins until its receipt is written.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from graphrag_local.errors import IndexCorrupt, IndexMismatch
from graphrag_local.ids import digest_of
from graphrag_local.records import Document, Mention
from graphrag_local.store.files import replace_file, storage, sync_folder
from graphrag_local.store.generations import generation_ids, open_generation
from graphrag_local.store.lance import Tables
from graphrag_local.store.lock import BuildLock

_NAME, _UNFINISHED = "forgotten.jsonl", "forgetting.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """One forgotten document: its id, the hashes of its texts (the indexed one, and the one in the input folder), and when (UTC)."""

    document: str
    texts: tuple[str, ...]
    at: str


def read_forgotten(index: Path) -> tuple[Forgotten, ...]:
    """What is on the list, oldest first; raises IndexCorrupt for a line that is not as it was written: a forgotten document must not come back by accident."""
    path = index / _NAME
    with storage(path):
        lines = path.read_bytes().splitlines() if path.exists() else []
    try:
        return tuple(_entry(line) for line in lines)
    except (ValueError, TypeError, KeyError) as error:
        hint = "Restore the file, or delete it and forget those documents again before the next index."
        raise IndexCorrupt(f"{path} was altered and cannot be read.", hint=hint) from error


def _entry(line: bytes) -> Forgotten:
    content = json.loads(line)
    entry = Forgotten(document=str(content["document"]), texts=tuple(map(str, content["texts"])), at=str(content["at"]))
    if line != _line(entry):
        raise ValueError("a line is not what its checksum vouches for")
    return entry


def _line(entry: Forgotten) -> bytes:
    """A line of the list, which ends with the checksum of its fields."""
    return json.dumps(asdict(entry) | {"checksum": digest_of(entry.document, *entry.texts, entry.at)}).encode()


def hashes(entries: Iterable[Forgotten]) -> frozenset[str]:
    """Ids of documents and hashes of texts, as a build leaves them out."""
    return frozenset(hash_ for entry in entries for hash_ in (entry.document, *entry.texts))


def remember(lock: BuildLock, entries: Iterable[Forgotten]) -> None:
    """Put documents on the list, durably; one that is there has the texts of both."""
    assert lock.held
    listed = {entry.document: entry for entry in read_forgotten(lock.index)}
    for entry in entries:
        before = listed.pop(entry.document, entry)
        texts = tuple(dict.fromkeys((*before.texts, *entry.texts)))
        listed[entry.document] = Forgotten(document=entry.document, texts=texts, at=entry.at)
    _write(lock, listed.values())


def bring_back(lock: BuildLock, documents: Collection[str]) -> int:
    """Take documents (ids) off the list; how many were on it."""
    assert lock.held
    listed = read_forgotten(lock.index)
    left = [entry for entry in listed if entry.document not in documents]
    if len(left) < len(listed):
        _write(lock, left)
    return len(listed) - len(left)


def _write(lock: BuildLock, entries: Iterable[Forgotten]) -> None:
    path = lock.index / _NAME
    with storage(path):
        replace_file(path, b"".join(_line(entry) + b"\n" for entry in entries))


# --- a `forget` that is under way


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A `forget` that was begun: ids of its documents, when (UTC), the generation that answered then with its digest ("" for none), and whether older
    ones are to stay.

    `sought` is how many strings of its documents were searched for and not found anywhere but in the generations that were then removed; None before that.
    """

    documents: tuple[str, ...]
    at: str
    before: str
    digest: str
    keep_generations: bool
    sought: int | None = None


def unfinished(index: Path) -> Unfinished | None:
    """What was begun and not finished, None where there is nothing; raises IndexCorrupt where that cannot be read."""
    path = index / _UNFINISHED
    with storage(path):
        content = path.read_bytes() if path.exists() else b""
    if not content:
        return None
    try:
        fields = json.loads(content)
        found = Unfinished(**{**fields, "documents": tuple(fields["documents"])} if fields.pop("checksum", "") else {})
        if content != _noted(found):
            raise ValueError("it is not what its checksum vouches for")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise IndexCorrupt(f"{path} was altered and cannot be read.", hint="Delete it, and forget those documents again.") from error
    return found


def begin(lock: BuildLock, work: Unfinished) -> None:
    """Note durably what is to be done, in place of what was noted before."""
    assert lock.held
    path = lock.index / _UNFINISHED
    with storage(path):
        replace_file(path, _noted(work))


def finish(lock: BuildLock) -> None:
    """All of it is done."""
    assert lock.held
    with storage(lock.index):
        (lock.index / _UNFINISHED).unlink(missing_ok=True)
        sync_folder(lock.index)


def _noted(work: Unfinished) -> bytes:
    fields: dict[str, Any] = asdict(work)
    return json.dumps(fields | {"checksum": digest_of(json.dumps(fields))}).encode() + b"\n"


def entities_of(index: Path, documents: Collection[str]) -> frozenset[str]:
    """Ids of the entities that these documents (ids) name in any generation that can be read."""
    found: set[str] = set()
    for id_ in generation_ids(index) if documents else ():
        try:
            with open_generation(index, id_) as generation:
                tables = Tables.of(generation)
                held = set(documents).intersection(tables.columns(Document, ["id"])["id"])
                found |= {row.owner_id for row in tables.rows(Mention, held, by="document_id") if row.owner_kind == "entity"} if held else set()
        except (IndexCorrupt, IndexMismatch):
            continue
    return frozenset(found)
