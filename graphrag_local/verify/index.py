"""`status --verify`: every file hashed, every derived hash computed again, every row of the ledger read.

What a file's checksum cannot tell, since it vouches only for what was written, is whether what was written is right: so the records of the current
generation are read back, and their digests, ids, counts and ties are made anew, by the same functions that made them in the build (`graph.merge`,
`communities` and `vectors.texts` are imported for that: a second version of a rule would check nothing). Of older generations the digest is made anew.
Whether a report's context is what the model would be shown today takes its tokenizer: that is `verify.reports`.

A table with a damaged file is not decoded: on altered bytes a decoder may do anything. All that does not need it is still checked.
"""

import contextlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from graphrag_local.engine.base import EmbedderCard
from graphrag_local.errors import GraphragError, IndexMissing
from graphrag_local.records import RecordKind, Vector
from graphrag_local.store import derived, receipts, stamps, stand, traces
from graphrag_local.store.forgotten import read_forgotten, unfinished
from graphrag_local.store.generations import Generation, current_id, folder_of, generation_ids, open_damaged, problems
from graphrag_local.store.lance import Tables, Vectors, folder_name
from graphrag_local.store.manifest import MANIFEST
from graphrag_local.store.peek import Peek
from graphrag_local.store.publish import counts_of, index_digest
from graphrag_local.store.snapshot import Snapshot
from graphrag_local.store.tables import TABLES, rows_digest, to_arrow
from graphrag_local.vectors.texts import cache_key
from graphrag_local.verify.records import check

SAID = 50  # problems told of one generation's records; a program at fault can make them all wrong
_KINDS: Final[dict[str, RecordKind]] = {"chunks": "chunk", "entities": "entity", "reports": "report"}


def damages(index: Path) -> list[str]:
    """What does not match in the published generations, the ledger and the list of what is forgotten, a sentence each; none when all is well or nothing is there.

    Files found altered under an unchanged time and size are hashed again by whoever opens them next, and so refused.
    """
    found: list[str] = []
    current, ids = "", generation_ids(index)
    try:
        current = current_id(index)
        found += [] if current in ids else [f"{folder_of(index, current)} is missing, although CURRENT names it."]
    except IndexMissing:
        pass
    except GraphragError as error:
        found.append(str(error))
    for read in (read_forgotten, unfinished):
        try:
            read(index)
        except GraphragError as error:
            found.append(str(error))
    for look in (receipts.problems, stand.problems, traces.problems):
        try:
            found += look(index)
        except GraphragError as error:
            found.append(str(error))
    with contextlib.ExitStack() as stack:
        ledger, known = None, dict[str, str]()
        try:
            ledger = stack.enter_context(Peek.open(index / "ledger.sqlite"))
        except GraphragError as error:
            found.append(str(error))
        for id_ in ids:
            try:
                with open_damaged(index, id_) as generation:
                    found += _generation(generation, known, ledger, whole=id_ == current)
            except GraphragError as error:
                if id_ in generation_ids(index):  # else it was collected meanwhile
                    found.append(str(error))
        if ledger is not None:
            found += _ledger(ledger, known)
        if ids:
            stamps.save(index, known)
    return found


def _ledger(ledger: Peek, known: dict[str, str]) -> list[str]:
    """What is wrong with the ledger; a sound one is noted, unless it changed meanwhile."""
    before = stamps.ledger_identity(ledger.path)
    try:
        found = ledger.verify()
    except GraphragError as error:
        return [str(error)]
    if before and not found and before == stamps.ledger_identity(ledger.path):
        known[before] = stamps.SOUND
    return found


def not_checked(index: Path) -> str:
    """What of an index has no checksum by which it could be checked, as a sentence; "" where all has."""
    return receipts.unchecked(index)


def _generation(generation: Generation, known: dict[str, str], ledger: Peek | None, *, whole: bool) -> Iterator[str]:
    """What is wrong with one generation: its files and, unless they are, its digest; with `whole` everything in its records."""
    folder, manifest = generation.folder, generation.manifest
    damaged = list(problems(folder, manifest, known))
    yield from damaged
    yield from derived.problems(folder, manifest.tables, known)
    unread = {name for name in TABLES if name not in manifest.tables or any(line.startswith(f"{_place(generation, name)}/") for line in damaged)}
    rows: dict[str, tuple[Any, ...]] = dict.fromkeys(TABLES, ())
    owners: list[Vector] = []
    for name in [name for name in TABLES if name not in unread]:
        try:
            rows[name], vectors = _read(generation, name)
        except GraphragError as error:
            yield str(error)
            unread.add(name)
            continue
        if vectors is not None:
            owners += [Vector(owner_id=id_, owner_kind=_KINDS[name], text_hash=text, values=()) for id_, text in zip(vectors.ids, vectors.texts, strict=True)]
        if whole:
            yield from _table(generation, name, rows[name], vectors)
        if whole and vectors is not None and ledger is not None:
            yield from _cached(generation, name, vectors, ledger)
    snapshot = Snapshot(**rows, vectors=tuple(owners), dimension=manifest.dimension)
    if not unread and (digest := index_digest(snapshot, manifest.about)) != manifest.digest:
        yield f"{folder}: its records have the digest {digest}, its manifest says {manifest.digest}."
    if whole:
        yield from _records(generation, snapshot, unread)


def _place(generation: Generation, table: str) -> Path:
    return generation.folder / folder_name(table)


def _read(generation: Generation, name: str) -> tuple[tuple[Any, ...], Vectors | None]:
    tables = Tables(generation.folder, {name: generation.manifest.tables[name].version})
    return tuple(tables.records(TABLES[name])), tables.vectors(TABLES[name]) if name in _KINDS else None


def _table(generation: Generation, name: str, rows: tuple[Any, ...], vectors: Vectors | None) -> Iterator[str]:
    """Whether the rows of a table, written again, would be those that were published."""
    entry, dimension = generation.manifest.tables[name], generation.manifest.dimension
    if len(rows) != entry.rows:
        yield f"{_place(generation, name)}: it has {len(rows)} rows instead of {entry.rows}."
    try:
        same = rows_digest(to_arrow(name, rows, _each(name, vectors) if vectors else (), dimension=dimension)) == entry.digest
    except ValueError as error:
        yield f"{_place(generation, name)}: its rows cannot be those that were published: {error}."
    else:
        if not same:
            yield f"{_place(generation, name)}: its rows have another digest than the one in the manifest."


def _each(name: str, vectors: Vectors) -> Iterator[Vector]:
    for id_, text, numbers in zip(vectors.ids, vectors.texts, vectors.matrix, strict=True):
        yield Vector(owner_id=id_, owner_kind=_KINDS[name], text_hash=text, values=tuple(numbers.tolist()))


def _cached(generation: Generation, name: str, vectors: Vectors, ledger: Peek) -> Iterator[str]:
    """Whether the vectors are those that the ledger keeps of the same texts, where it keeps any."""
    models = generation.manifest.about["models"]
    key = cache_key(EmbedderCard.of(models), models["text_prefix"])
    for start in range(0, len(vectors.ids), 500):
        some = slice(start, start + 500)
        try:
            kept = ledger.get_vectors(key, vectors.texts[some])
        except GraphragError:
            return  # the ledger's own check says what is wrong with it
        for id_, text, numbers in zip(vectors.ids[some], vectors.texts[some], vectors.matrix[some], strict=True):
            if text in kept and tuple(numbers.tolist()) != kept[text]:
                yield f"{_place(generation, name)}: the vector of {id_} is not the one that the ledger keeps of its text."


def _records(generation: Generation, snapshot: Snapshot, unread: set[str]) -> Iterator[str]:
    if not unread:
        for name, count in counts_of(snapshot).items():
            if (said := generation.manifest.counts.get(name)) != count:
                yield f"{generation.folder / MANIFEST}: it counts {said} {name}, there are {count}."
    found = check(snapshot, unread, generation.manifest.about)
    for line in islice(found, SAID):
        yield f"{generation.folder}: {line}."
    more = sum(1 for _ in found)
    if more:
        yield f"{generation.folder}: {more:,} more of its records do not fit together."
