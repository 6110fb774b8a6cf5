"""`forget`: takes documents out of an index with all that came from them, and proves it with a receipt.

The order makes a kill harmless: first the documents go on the list of what is left out for good, durably; then an index without them is built and
published; then the generations that hold them, the replies and vectors that only they caused, and the free pages of the ledger go; then all
that is left is searched for their words. Whatever was cut short is done by the same command again, and the next `index` leaves them out in any case.
"""

import asyncio
import dataclasses
import difflib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphrag_local.changes import file_of
from graphrag_local.documents.formats import kind_of
from graphrag_local.documents.stage import read_collection
from graphrag_local.errors import GraphragError, IndexCorrupt, IndexMismatch, IndexMissing, UsageError
from graphrag_local.ids import document_id
from graphrag_local.indexing import Indexed, MakeProgress, Order, index_locked
from graphrag_local.project import ProjectFolder
from graphrag_local.records import Chunk, Document, Entity, Mention, Relationship
from graphrag_local.store.distinctive import distinctive
from graphrag_local.store.files import make_folder, replace_file, storage
from graphrag_local.store.forgotten import Forgotten, bring_back, read_forgotten, remember
from graphrag_local.store.generations import discard, generation_ids, open_current, open_generation
from graphrag_local.store.lance import Tables
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.reading import snapshot_of
from graphrag_local.store.scan import Found, scan, scan_around
from graphrag_local.store.snapshot import Snapshot
from graphrag_local.store.tables import TABLES
from graphrag_local.store.traces import remove_traces

LISTED = 12
LOOK_S, LOOKS = 0.2, 20  # four seconds in all, several times what a running service takes to notice a new generation
MARKED = "The documents are marked: every run from now on leaves them out, and the same command finishes their removal."
RECORDS = tuple(name for name in TABLES if name not in {"failures", "anchor_communities", "anchor_edges"})
WITH_RECORDS = {"csv", "tsv", "json", "jsonl"}  # kinds of files that come apart into one document per record
NAMING = {"paths", "still_in_input", "found", "elsewhere", "not_searched"}  # of a receipt, what tells names of files


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a `forget` did. `removed` and `rewritten` are ids by table; `found` is where words of the documents still are, `elsewhere` outside the index,
    where `not_searched` was left aside. `rows_left` and `links_left` count what still names them in tables and in the ledger.
    """

    documents: tuple[str, ...]
    paths: tuple[str, ...]
    at: str
    digest_before: str
    digest_after: str
    generation: str
    removed: dict[str, tuple[str, ...]]
    rewritten: dict[str, tuple[str, ...]]
    replies_removed: int
    traces_removed: int
    generations_removed: tuple[str, ...]
    generations_kept: tuple[str, ...]
    rows_left: int
    links_left: int
    strings_sought: int
    found: tuple[str, ...]
    elsewhere: tuple[str, ...]
    not_searched: tuple[str, ...]
    still_in_input: tuple[str, ...]
    indexed: Indexed = field(repr=False)

    @property
    def clean(self) -> bool:
        """Whether nothing of the documents is left in the index, but for generations that were to stay."""
        return not (self.found or self.rows_left or self.links_left)

    def to_json(self, *, names: bool = True) -> dict[str, Any]:
        """The receipt; without names it can stay in the index."""
        content = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.name != "indexed"}
        content |= {"clean": self.clean, "failures": len(self.indexed.built.snapshot.failures)}
        return content if names else {key: value for key, value in content.items() if key not in NAMING}


@dataclass(slots=True)
class _Target:
    """What is to be forgotten: ids with paths, the texts that are known of it, and the ids of entities that it names."""

    paths: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    hashes: dict[str, set[str]] = field(default_factory=dict)
    entities: set[str] = field(default_factory=set)
    held_by: set[str] = field(default_factory=set)
    in_input: set[str] = field(default_factory=set)

    def saw(self, document: Document) -> None:
        """Take in one version of a document."""
        self.paths[document.id] = document.path
        self.texts.append(document.text)
        self.hashes.setdefault(document.id, set()).add(document.content_hash)


async def run_forget(
    project: ProjectFolder, names: Sequence[str], make: MakeProgress, *, keep_generations: bool = False, yes: bool = False, allow_empty: bool = False
) -> Receipt:
    """Forget documents by path (a table file or a folder stands for all in it). Raises UsageError for what is known nowhere.

    `keep_generations` leaves older generations that hold them in place; the receipt names these. `yes` and `allow_empty` are those of `index`:
    what else has changed meanwhile is brought up to date, too.
    """
    with BuildLock(project.index) as lock:
        target = _target(project, names)
        before, digest = _current(project.index)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        remember(lock, [Forgotten(document=id_, texts=tuple(sorted(target.hashes.get(id_, ()))), at=now) for id_ in sorted(target.paths)])
        try:
            indexed = await index_locked(project, lock, make, Order(allow_empty=allow_empty, erased=frozenset(target.entities), yes=yes))
        except GraphragError as error:
            error.hint = f"{error.hint} {MARKED}".strip()
            raise
        holders = [id_ for id_ in generation_ids(project.index) if id_ in target.held_by and id_ != indexed.generation]
        if not keep_generations:
            await _discard(lock, holders)
        left = indexed.built.snapshot
        with Ledger.open(project.index / "ledger.sqlite") as ledger:
            # The run has let go of them already, but not beside an index that could not be read, of which it lets go of nothing.
            ledger.drop_vectors({vector.text_hash for vector in left.vectors}, reclaim=False)
            swept = ledger.sweep(target.paths.keys(), indexed.used).deleted
            links = ledger.documents() & target.paths.keys()
        here = generation_ids(project.index)
        kept = tuple(id_ for id_ in holders if id_ in here)
        sought = distinctive(target.texts, [document.text for document in left.documents])
        traces = remove_traces(project.index, target.paths, sought, set(here) - target.held_by)
        rows, unread = rows_left(project.index, target.paths, kept)
        found, elsewhere, not_searched = _found(project, sought, kept)
        removed, rewritten = _compared(before, left)
        receipt = Receipt(
            documents=tuple(sorted(target.paths)),
            paths=tuple(sorted(target.paths.values())),
            at=now,
            digest_before=digest,
            digest_after=indexed.digest,
            generation=indexed.generation,
            removed=removed,
            rewritten=rewritten,
            replies_removed=indexed.swept + swept,
            traces_removed=traces,
            generations_removed=tuple(sorted(target.held_by.difference(here))),
            generations_kept=kept,
            rows_left=rows,
            links_left=len(links),
            strings_sought=len(sought),
            found=(*found, *unread),
            elsewhere=elsewhere,
            not_searched=not_searched,
            still_in_input=tuple(sorted(target.in_input)),
            indexed=indexed,
        )
        _keep(project.index, receipt)
        return receipt


async def _discard(lock: BuildLock, ids: Sequence[str]) -> None:
    """Remove generations; those that are being read are waited for: a running service goes on to the new one by itself."""
    for _ in range(LOOKS):
        ids = discard(lock, ids).held
        if not ids:
            return
        await asyncio.sleep(LOOK_S)


def run_bring_back(project: ProjectFolder, names: Sequence[str]) -> int:
    """Take documents off the list of what is left out; the next `index` reads them again. Returns how many were on it."""
    with BuildLock(project.index) as lock:
        return bring_back(lock, {document_id(name) for name in names})


def _current(index: Path) -> tuple[Snapshot | None, str]:
    """The records and the digest of the current generation, None and "" where it cannot be read."""
    try:
        with open_current(index) as generation:
            return snapshot_of(generation), generation.manifest.digest
    except (IndexMissing, IndexCorrupt, IndexMismatch):
        return None, ""


def _target(project: ProjectFolder, names: Sequence[str]) -> _Target:
    """Everything that is known of the named documents: in any generation, in the input folder, on the list, in the ledger."""
    documents, files = _in_input(project)
    wanted = _Wanted(project, names, files)
    target = _Target()
    for id_ in generation_ids(project.index):
        try:
            with open_generation(project.index, id_) as generation:
                tables = Tables.of(generation)
                here = [document for document in tables.records(Document) if wanted.takes(document)]
                if here:
                    target.held_by.add(id_)
                    ids = {document.id for document in here}
                    target.entities |= {row.owner_id for row in tables.records(Mention) if row.document_id in ids and row.owner_kind == "entity"}
        except (IndexCorrupt, IndexMismatch):
            continue  # nobody can read it; `status --verify` names it, and the scan looks at its bytes
        for document in here:
            target.saw(document)
    for document in documents:
        if wanted.takes(document):
            target.saw(document)
            target.in_input.add(document.path)
    wanted.finish(target, project.index)
    return target


def _in_input(project: ProjectFolder) -> tuple[list[Document], tuple[str, ...]]:
    """The documents of the input folder, and its files."""
    try:
        documents, _, files = read_collection(project.input_root, project.settings.documents)
    except GraphragError:
        return [], ()
    return documents, files


class _Wanted:
    """Which paths are meant."""

    def __init__(self, project: ProjectFolder, names: Sequence[str], files: Collection[str]) -> None:
        self._names = [_relative(project, name) for name in names]
        self._files = frozenset(files)
        self._seen: set[str] = set()
        self._others: set[str] = set()

    def takes(self, document: Document) -> bool:
        """Whether a document is one of those: by its path, as a record of that file, or below that folder."""
        path = document.path
        hits = [name for name in self._names if path == name or self._is_record(document, name) or path.startswith(f"{name.rstrip('/')}/")]
        self._seen.update(hits)
        if not hits:
            self._others.add(path)
        return bool(hits)

    def _is_record(self, document: Document, name: str) -> bool:
        """Whether a document is a record of that file; names of files may hold a `#` too, and only tables have records."""
        is_there = file_of(document.path, self._files) or name  # of a file that is gone its name has to do
        return document.path.startswith(f"{name}#") and is_there == name and document.format in WITH_RECORDS and document.format == kind_of(name)

    def finish(self, target: _Target, index: Path) -> None:
        """Names that are in no generation and not in the input may still be in the ledger or on the list; else they are mistakes."""
        with Ledger.open(index / "ledger.sqlite") as ledger:
            known = ledger.documents() | {entry.document for entry in read_forgotten(index)}
        for name in self._names:
            if name in self._seen:
                continue
            if document_id(name) not in known:
                near = difflib.get_close_matches(name, sorted(self._others), n=LISTED, cutoff=0.5)
                hint = f"Did you mean {', '.join(near)}?" if near else "`graphrag-local show document PATH` opens a document by its path."
                raise UsageError(f"There is no document {name!r} in the index.", hint=hint)
            target.paths[document_id(name)] = name


def _relative(project: ProjectFolder, name: str) -> str:
    """The path of a document as the index has it; a path of this machine that leads into the input folder is one, too."""
    path = Path(name)
    if path.is_absolute() and path.is_relative_to(project.input_root):
        return path.relative_to(project.input_root).as_posix()
    return name.removeprefix("./")


def rows_left(index: Path, documents: Collection[str], kept: Sequence[str]) -> tuple[int, list[str]]:
    """How many rows of all generations but `kept` belong to these documents (ids), and the generations that nobody can read."""
    count, unread = 0, []
    for id_ in (id_ for id_ in generation_ids(index) if id_ not in kept):
        try:
            with open_generation(index, id_) as generation:
                tables = Tables.of(generation)
                for record, field_ in ((Document, "id"), (Chunk, "document_id"), (Mention, "document_id")):
                    count += sum(document in documents for document in tables.columns(record, [field_])[field_])
        except (IndexCorrupt, IndexMismatch):
            unread.append(f"generations/{id_} (cannot be read, so nothing is known of it)")
    return count, unread


def _found(project: ProjectFolder, sought: Iterable[str], kept: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Where those strings still are: in the index (generations that were to stay excepted), and in other files of the project but the input.

    Last what of the project was not searched.
    """
    sought = list(sought)
    meant = tuple(f"generations/{id_}/" for id_ in kept)
    inside = {_place(one) for one in scan(project.index, sought) if not meant or not one.file.startswith(meant)}
    outside, skipped = scan_around(project.folder, sought, but=(project.index, project.input_root)) if sought else ([], [])
    return tuple(sorted(inside)), tuple(sorted({_place(one) for one in outside})), tuple(skipped)


def _place(found: Found) -> str:
    """Where a string is, without the string: a receipt that repeats it would be a trace."""
    return f"{found.file} ({found.place})" if found.place else found.file


def _compared(before: Snapshot | None, after: Snapshot) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Ids of the records that are no more, and of those that have other content now, by table."""
    removed, rewritten = {}, {}
    for name in RECORDS if before is not None else ():
        old = {row.id: row for row in getattr(before, name)}
        new = {row.id: row for row in getattr(after, name)}
        removed[name] = tuple(sorted(old.keys() - new.keys()))
        rewritten[name] = tuple(sorted(id_ for id_, row in new.items() if id_ in old and _told(old[id_]) != _told(row)))
    return removed, rewritten


def _told(row: Any) -> Any:
    """A record without its measures in the graph, which change a little everywhere when anything goes."""
    if isinstance(row, Entity):
        return dataclasses.replace(row, degree=0, pagerank=0.0)
    return dataclasses.replace(row, combined_degree=0) if isinstance(row, Relationship) else row


def _keep(index: Path, receipt: Receipt) -> None:
    """Keep the receipt in the index, by ids alone."""
    path = index / "receipts" / f"{receipt.at.replace(':', '')}-{receipt.documents[0][:8]}.json"
    with storage(path):
        make_folder(path.parent)
        replace_file(path, json.dumps(receipt.to_json(names=False), indent=1).encode() + b"\n")
