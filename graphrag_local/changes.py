"""What changed between a published generation and the collection: pure, by path and content hash."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from graphrag_local.errors import CollectionMissing
from graphrag_local.records import Document, Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Paths of documents, sorted: new, edited, gone, and kept because their file is there but cannot be read now."""

    new: tuple[str, ...]
    edited: tuple[str, ...]
    gone: tuple[str, ...]
    kept: tuple[str, ...]
    same: int


def file_of(path: str, files: Container[str]) -> str:
    """The one of `files` that a document came from: that of its path or, for a record, of its path without `#id`; "" where it is not among them."""
    parts = path.split("#")  # names of files and ids of records may hold a `#` themselves
    return next((file for n in range(len(parts), 0, -1) if (file := "#".join(parts[:n])) in files), "")


def compare(before: Mapping[str, str], now: Iterable[Document], present: Iterable[str]) -> Changes:
    """The difference of path -> content hash `before` and the documents read `now`; `present` are the files that exist."""
    current = {document.path: document.content_hash for document in now}
    there = set(present)
    unreadable = there - {file_of(path, there) for path in current}
    folders = tuple(path for path in unreadable if path.endswith("/"))  # folders that cannot be listed may hold anything

    def is_kept(path: str) -> bool:
        return bool(file_of(path, unreadable)) or bool(folders and path.startswith(folders))

    missing = [path for path in before if path not in current]
    return Changes(
        new=tuple(sorted(path for path in current if path not in before)),
        edited=tuple(sorted(path for path in current if path in before and before[path] != current[path])),
        gone=tuple(sorted(path for path in missing if not is_kept(path))),
        kept=tuple(sorted(path for path in missing if is_kept(path))),
        same=sum(1 for path in current if before.get(path) == current[path]),
    )


def say_what_is_kept(failures: Iterable[Failed], changes: Changes) -> list[Failed]:
    """The failures, where those of files that the index still holds from before say so."""
    failures = list(failures)
    failed = {row.input for row in failures}
    kept = {file_of(path, failed) for path in changes.kept}

    def told(row: Failed) -> Failed:
        holds = row.input in kept or (row.input.endswith("/") and any(path.startswith(row.input) for path in changes.kept))
        return replace(row, reason=f"{row.reason}; what was indexed of it before is kept") if holds else row

    return [told(row) for row in failures]


def all_is_gone(error: CollectionMissing, before: int) -> CollectionMissing:
    """The error of an input folder that is not there, with what that means for an index of `before` documents."""
    if not before:
        return error
    hint = "Mount it or point documents.input at it. If they are meant to go, make it an empty folder and run with --accept-missing."
    return CollectionMissing(f"{error} {before} of {before} indexed documents are missing; nothing was changed.", hint=hint)


def refuse_if_most_is_gone(changes: Changes, before: int, limit: float) -> None:
    """Raise CollectionMissing when more than the share `limit` of `before` documents is gone: an unmounted folder looks just like that."""
    if before and len(changes.gone) > limit * before:
        raise CollectionMissing(
            f"{len(changes.gone)} of {before} indexed documents are missing from the input folder; nothing was changed.",
            hint="Is the folder mounted? If they are meant to go, run again with --accept-missing (limit: documents.missing_limit).",
        )
