"""`forget`: takes documents out of an index with all that came from them, and proves it with a receipt.

The order makes a kill harmless: first it is noted, durably, what is to be done, and the documents go on the list of what is left out for good; then an index
without them is built and published; then `erasing` removes what is left of them and searches the rest for their words. Whatever was cut short is done
by the same command again, or by the next `index`.
"""

import contextlib
import difflib
import os
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from graphrag_local.changes import file_of
from graphrag_local.documents.formats import kind_of
from graphrag_local.documents.scan import matches
from graphrag_local.erasing import Receipt as Receipt
from graphrag_local.erasing import Target, Work, in_input
from graphrag_local.errors import EngineError, GraphragError, IndexCorrupt, IndexMismatch, IndexMissing, UsageError
from graphrag_local.ids import document_id
from graphrag_local.indexing import MakeProgress, Order, index_locked, what_was_made
from graphrag_local.project import ProjectFolder
from graphrag_local.records import Document, Usage
from graphrag_local.store.forgotten import Unfinished, begin, bring_back, finish, read_forgotten, unfinished
from graphrag_local.store.generations import generation_ids, open_current, open_generation
from graphrag_local.store.lance import Tables
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.lock import BuildLock

LISTED = 12
MARKED = "The documents are marked: every run from now on leaves them out, and the next `index` or the same command finishes their removal."
AWAY = " Or take them out at once, without the model: the same command with --without-model."
NO_NAMES = "What is forgotten and is nowhere any more is known by its whole path alone: the list of it holds no names."
WITH_RECORDS = {"csv", "tsv", "json", "jsonl"}  # kinds of files that come apart into one document per record


async def run_forget(
    project: ProjectFolder, names: Sequence[str], make: MakeProgress, *, keep_generations: bool = False, yes: bool = False, allow_empty: bool = False,
    without_model: bool = False,
) -> Receipt:  # fmt: skip
    """Forget documents by path (a table file or a folder stands for all in it, a glob for all that it fits). Raises UsageError for what is known nowhere.

    `keep_generations` leaves older generations that hold them in place; the receipt names these. `yes` and `allow_empty` are those of `index`:
    what else has changed meanwhile is brought up to date, too, and what an earlier `forget` left undone is done with this one. `without_model` changes nothing
    else and asks no model: what the documents shared with others is told from what those said, summaries and reports that they were in wait for `index`.
    """
    if without_model and yes:
        raise UsageError("--yes and --without-model exclude each other.", hint="Changed settings are redone with a model: leave one of them out.")
    _refuse_where_nothing_is(project)
    with BuildLock(project.index) as lock:
        project = project if yes else _made_as_it_is(project)
        work = _begun(project, lock, names, keep_generations=keep_generations)
        try:
            indexed = await index_locked(project, lock, make, Order(allow_empty=allow_empty, yes=yes, whole=True, without_model=without_model))
        except GraphragError as error:
            away = isinstance(error, EngineError) and not without_model
            error.hint = f"{error.hint} {MARKED}{AWAY if away else ''}".strip()
            raise
        with make(Usage, lambda *_, **__: None) as shown:
            return await work.finish(project, lock, what_was_made(indexed), shown.say)


def _refuse_where_nothing_is(project: ProjectFolder) -> None:
    """Raise IndexMissing where there is neither an index nor a collection, before anything is written there."""
    if not (project.index / "ledger.sqlite").exists() and not project.input_root.is_dir():
        raise IndexMissing(
            f"There is no index in {project.index}.", hint="Name the project after the documents, or with --project: graphrag-local forget DOC… --project DIR"
        )


def _made_as_it_is(project: ProjectFolder) -> ProjectFolder:
    """The project with the method of its index where that was made without a model (`index --method fast`): to forget is no reason to have one read it all."""
    with contextlib.suppress(IndexMissing, IndexCorrupt, IndexMismatch), open_current(project.index) as generation:
        if generation.manifest.about["decisive"].get("extraction", {}).get("method") == "fast":
            extraction = project.settings.extraction.model_copy(update={"method": "fast"})
            return replace(project, settings=project.settings.model_copy(update={"extraction": extraction}))
    return project


def _begun(project: ProjectFolder, lock: BuildLock, names: Sequence[str], *, keep_generations: bool) -> Work:
    """Look for the documents, note what is to be done, and put them on the list."""
    left = unfinished(project.index)
    documents, files = in_input(project)
    with Ledger.open(project.index / "ledger.sqlite") as ledger:
        listed = ledger.documents() | {entry.document for entry in read_forgotten(project.index)}
    meant = _meant(project, names, [*documents, *_indexed(project.index)], files, listed, "There is no document {!r} in the index or in the input folder.")
    wanted = {*meant, *(left.documents if left else ())}
    target = Target.of(project, lambda document: document.id in wanted, documents)
    target.paths |= meant
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


def run_bring_back(project: ProjectFolder, names: Sequence[str]) -> dict[str, bool]:
    """Take documents off the list of what is left out; they are named as for `run_forget`, and the next `index` reads them again.

    The list knows no names: what a folder, table or glob stands for shows in the input folder and in the generations that are left. Returns the paths,
    and whether there is such a document in the input folder now. Raises UsageError for a name that stands for nothing that is forgotten.
    """
    _refuse_where_nothing_is(project)
    with BuildLock(project.index) as lock:
        left = unfinished(project.index)
        listed = {entry.document for entry in read_forgotten(project.index)} | set(left.documents if left else ())
        documents, files = in_input(project)
        known = [document for document in (*documents, *_indexed(project.index)) if document.id in listed]
        meant = _meant(project, names, known, files, listed, "Nothing that is forgotten fits {!r}.")
        if left:
            others = tuple(id_ for id_ in left.documents if id_ not in meant)
            begin(lock, replace(left, documents=others)) if others else finish(lock)
        bring_back(lock, meant.keys())
        there = {document.id for document in documents}
        return {path: id_ in there for id_, path in sorted(meant.items(), key=lambda one: one[1])}


def _current(index: Path) -> tuple[str, str]:
    """Id and digest of the current generation, "" and "" where it cannot be read."""
    try:
        with open_current(index) as generation:
            return generation.id, generation.manifest.digest
    except (IndexMissing, IndexCorrupt, IndexMismatch):
        return "", ""


def _indexed(index: Path) -> list[Document]:
    """The documents of all generations that can be read, one that several have several times."""
    found: list[Document] = []
    for id_ in generation_ids(index):
        with contextlib.suppress(IndexCorrupt, IndexMismatch), open_generation(index, id_) as generation:
            found += Tables.of(generation).records(Document)
    return found


def _meant(
    project: ProjectFolder, names: Sequence[str], documents: Iterable[Document], files: Collection[str], listed: Collection[str], missing: str
) -> dict[str, str]:
    """Paths of the documents that these names stand for, by id. What is no document may still be an id that is `listed`; else it is a mistake.

    A name is that of a document, of the table whose records they are or of the folder that they are in, else a path of this machine that leads to one
    in the input folder, else a glob as in `documents.exclude`. `missing` is what to say of one that stands for nothing.
    """
    by_path = {document.path: document for document in documents}
    found: dict[str, str] = {}
    for name in names:
        hits: Mapping[str, str] = {}
        ways = tuple(dict.fromkeys(way for way in (_plain(name), _inside(project, Path(name)), _inside(project, project.folder / name)) if name and way))
        for way in ways:
            hits = hits or {document.id: path for path, document in by_path.items() if _is_of(document, way, files)}
        if not hits and any(sign in name for sign in "*?"):
            hits = {document.id: path for path, document in by_path.items() if _fits(document, _plain(name), files)}
        if not hits:
            hits = {document_id(way): way for way in ways if document_id(way) in listed}
        if not hits:
            raise UsageError(missing.format(name), hint=_near(_plain(name), by_path))
        found |= hits
    return found


def _near(name: str, paths: Collection[str]) -> str:
    if near := difflib.get_close_matches(name, sorted(paths), n=LISTED, cutoff=0.5):
        return f"Did you mean {', '.join(near)}?"
    some = ", ".join(sorted(paths)[:LISTED]) + (", …" if len(paths) > LISTED else "")
    return f"Paths are relative to the input folder. {f'There are: {some}.' if paths else NO_NAMES}"


def _is_of(document: Document, name: str, files: Collection[str]) -> bool:
    """Whether a document has that name, is a record of that file, or is below that folder."""
    return name in (document.path, _file(document, files)) or document.path.startswith(f"{name}/")


def _fits(document: Document, glob: str, files: Collection[str]) -> bool:
    return matches((glob,), document.path) or matches((glob,), _file(document, files))


def _file(document: Document, files: Collection[str]) -> str:
    """The file that a document is or is a record of; names of files may hold a `#` too, and only tables have records."""
    path = document.path
    if document.format not in WITH_RECORDS:
        return path
    if is_there := file_of(path, files):
        return is_there
    parts = path.split("#")  # of a file that is gone its name has to do
    return next((name for n in range(1, len(parts)) if kind_of(name := "#".join(parts[:n])) == document.format), path)


def _plain(name: str) -> str:
    """A path as the index has it, if it is relative to the input folder."""
    return unicodedata.normalize("NFC", os.path.normpath(name)) if name else ""


def _inside(project: ProjectFolder, path: Path) -> str:
    """The path of a document, of a path of this machine that leads into the input folder; "" for what does not."""
    root = project.input_root.resolve()
    path = path.parent.resolve() / path.name  # what a link is called counts, not where it leads
    return _plain(path.relative_to(root).as_posix()) if path.is_relative_to(root) and path != root else ""
