"""`forget`: takes documents out of an index with all that came from them, and proves it with a receipt.

The order makes a kill harmless: first it is noted, durably, what is to be done, and the documents go on the list of what is left out for good; then an index
without them is built and published; then `erasing` removes what is left of them and searches the rest for their words. Whatever was cut short is done
by the same command again, or by the next `index`.
"""

import difflib
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from graphrag_local.changes import file_of
from graphrag_local.documents.formats import kind_of
from graphrag_local.erasing import Receipt as Receipt
from graphrag_local.erasing import Target, Work, in_input
from graphrag_local.errors import EngineError, GraphragError, IndexCorrupt, IndexMismatch, IndexMissing, UsageError
from graphrag_local.ids import document_id
from graphrag_local.indexing import MakeProgress, Order, index_locked, what_was_made
from graphrag_local.project import ProjectFolder
from graphrag_local.records import Document
from graphrag_local.store.forgotten import Unfinished, begin, bring_back, finish, read_forgotten, unfinished
from graphrag_local.store.generations import open_current
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.lock import BuildLock

LISTED = 12
MARKED = "The documents are marked: every run from now on leaves them out, and the next `index` or the same command finishes their removal."
AWAY = " Or take them out at once, without the model: the same command with --without-model."
WITH_RECORDS = {"csv", "tsv", "json", "jsonl"}  # kinds of files that come apart into one document per record


async def run_forget(
    project: ProjectFolder, names: Sequence[str], make: MakeProgress, *, keep_generations: bool = False, yes: bool = False, allow_empty: bool = False,
    without_model: bool = False,
) -> Receipt:  # fmt: skip
    """Forget documents by path (a table file or a folder stands for all in it). Raises UsageError for what is known nowhere.

    `keep_generations` leaves older generations that hold them in place; the receipt names these. `yes` and `allow_empty` are those of `index`:
    what else has changed meanwhile is brought up to date, too, and what an earlier `forget` left undone is done with this one. `without_model` changes nothing
    else and asks no model: what the documents shared with others is told from what those said, summaries and reports that they were in wait for `index`.
    """
    if without_model and yes:
        raise UsageError("--yes and --without-model exclude each other.", hint="Changed settings are redone with a model: leave one of them out.")
    with BuildLock(project.index) as lock:
        work = _begun(project, lock, names, keep_generations=keep_generations)
        try:
            indexed = await index_locked(project, lock, make, Order(allow_empty=allow_empty, yes=yes, whole=True, without_model=without_model))
        except GraphragError as error:
            away = isinstance(error, EngineError) and not without_model
            error.hint = f"{error.hint} {MARKED}{AWAY if away else ''}".strip()
            raise
        return await work.finish(project, lock, what_was_made(indexed))


def _begun(project: ProjectFolder, lock: BuildLock, names: Sequence[str], *, keep_generations: bool) -> Work:
    """Look for the documents, note what is to be done, and put them on the list."""
    left = unfinished(project.index)
    documents, files = in_input(project)
    wanted = _Wanted(project, names, files, left.documents if left else ())
    target = Target.of(project, wanted.takes, documents)
    unseen = wanted.unseen(project.index)
    target.paths |= unseen
    before, digest = _current(project.index)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    ids = tuple(sorted({*target.paths, *(left.documents if left else ())}))
    noted = Unfinished(documents=ids, at=now, before=before, digest=digest, keep_generations=keep_generations)
    if left is not None:  # what was asked for first holds on; what it searched for is known no more where its generations are gone
        keep = keep_generations and left.keep_generations
        noted = replace(noted, before=left.before, digest=left.digest, keep_generations=keep, sought=left.sought if ids == left.documents else None)
    begin(lock, noted)
    work = Work(noted=noted, target=target)
    work.leave_out(lock)
    return work


def run_bring_back(project: ProjectFolder, names: Sequence[str]) -> int:
    """Take documents off the list of what is left out; the next `index` reads them again. Returns how many were on it."""
    with BuildLock(project.index) as lock:
        ids = {document_id(name) for name in names}
        if left := unfinished(project.index):
            others = tuple(id_ for id_ in left.documents if id_ not in ids)
            begin(lock, replace(left, documents=others)) if others else finish(lock)
        return bring_back(lock, ids)


def _current(index: Path) -> tuple[str, str]:
    """Id and digest of the current generation, "" and "" where it cannot be read."""
    try:
        with open_current(index) as generation:
            return generation.id, generation.manifest.digest
    except (IndexMissing, IndexCorrupt, IndexMismatch):
        return "", ""


class _Wanted:
    """Which documents are meant: by these names, or by an id that was meant before."""

    def __init__(self, project: ProjectFolder, names: Sequence[str], files: Collection[str], ids: Collection[str]) -> None:
        self._names = [_relative(project, name) for name in names]
        self._files, self._ids = frozenset(files), frozenset(ids)
        self._seen: set[str] = set()
        self._others: set[str] = set()

    def takes(self, document: Document) -> bool:
        """Whether a document is one of those: by its path, as a record of that file, or below that folder."""
        path = document.path
        hits = [name for name in self._names if path == name or self._is_record(document, name) or path.startswith(f"{name.rstrip('/')}/")]
        self._seen.update(hits)
        if not hits:
            self._others.add(path)
        return bool(hits) or document.id in self._ids

    def _is_record(self, document: Document, name: str) -> bool:
        """Whether a document is a record of that file; names of files may hold a `#` too, and only tables have records."""
        is_there = file_of(document.path, self._files) or name  # of a file that is gone its name has to do
        return document.path.startswith(f"{name}#") and is_there == name and document.format in WITH_RECORDS and document.format == kind_of(name)

    def unseen(self, index: Path) -> dict[str, str]:
        """Names (by id) that are in no generation and not in the input, but in the ledger or on the list; else they are mistakes."""
        found = {}
        with Ledger.open(index / "ledger.sqlite") as ledger:
            known = ledger.documents() | {entry.document for entry in read_forgotten(index)}
        for name in self._names:
            if name in self._seen:
                continue
            if document_id(name) not in known:
                near = difflib.get_close_matches(name, sorted(self._others), n=LISTED, cutoff=0.5)
                hint = f"Did you mean {', '.join(near)}?" if near else "`graphrag-local show document PATH` opens a document by its path."
                raise UsageError(f"There is no document {name!r} in the index.", hint=hint)
            found[document_id(name)] = name
        return found


def _relative(project: ProjectFolder, name: str) -> str:
    """The path of a document as the index has it; a path of this machine that leads into the input folder is one, too."""
    path = Path(name)
    if path.is_absolute() and path.is_relative_to(project.input_root):
        return path.relative_to(project.input_root).as_posix()
    return name.removeprefix("./")
