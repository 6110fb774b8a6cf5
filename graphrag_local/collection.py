"""The collection as it is now, beside the documents that the published generation holds: what is read, kept, left out and refused."""

from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from graphrag_local.changes import Changes, all_is_gone, compare, file_of, refuse_if_most_is_gone, say_what_is_kept
from graphrag_local.documents.stage import read_collection
from graphrag_local.errors import CollectionMissing
from graphrag_local.flow import Progress
from graphrag_local.ids import document_id
from graphrag_local.records import Document, Failed
from graphrag_local.settings import DocumentsSettings

COPY_CHARS = 200  # from here on two equal texts are copies; what is shorter, say "n/a" in a record, many documents say


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Documents in the order of their paths, what could not be read, and what differs from the published generation; `seconds` is what reading took."""

    documents: tuple[Document, ...]
    failures: tuple[Failed, ...]
    changes: Changes
    seconds: float = 0.0


def read(
    root: Path, settings: DocumentsSettings, published: Collection[Document], *, paid_for: Collection[str], forgotten: frozenset[str], allow_empty: bool,
    progress: Progress, go_on: Callable[[], None],
) -> Gathered:  # fmt: skip
    """The documents of the collection, with those of files that are there but cannot be read now as they were `published`.

    `forgotten` holds ids of documents and hashes of texts that are left out; `paid_for` ids that stand for the published documents where no
    generation can be read. Raises CollectionMissing where there is nothing, or where most is gone and that is not meant (`allow_empty`).
    """
    known = {document.path: document for document in published if document.id not in forgotten}
    try:
        found, failures, present = read_collection(root, settings, progress=progress, go_on=go_on)
    except CollectionMissing as error:
        raise all_is_gone(error, len(known)) from error
    texts = {document.content_hash for document in known.values()}
    out = {document.path for document in found if _is_forgotten(document, known, texts, forgotten)}
    out |= {row.input for row in failures if document_id(row.input) in forgotten}
    found = [document for document in found if document.path not in out]
    failures = [row for row in failures if row.input not in out]
    files = set(present)  # of which a table that holds nothing but forgotten records is not one that cannot be read
    changes = compare({path: document.content_hash for path, document in known.items()}, found, files - {file_of(path, files) for path in out})
    changes = replace(changes, forgotten=tuple(sorted(out)))
    if not allow_empty:
        refuse_if_most_is_gone(len(changes.gone), len(known), settings.missing_limit)
        there = {document.id for document in found} | {document_id(path) for path in present}
        refuse_if_most_is_gone(len(set(paid_for) - there), len(paid_for), settings.missing_limit)
    documents = sorted([*found, *(known[path] for path in changes.kept)], key=lambda document: document.path)
    failures = say_what_is_kept(failures, changes)
    if not documents and not published and not out:
        raise _nothing_there(root, failures)
    return Gathered(documents=tuple(documents), failures=tuple(failures), changes=changes)


def as_published(documents: Collection[Document], failures: Iterable[Failed], *, forgotten: frozenset[str]) -> Gathered:
    """The collection as it was published, without what is forgotten since: what is in the folder now is not looked at."""
    left = tuple(sorted((one for one in documents if one.id not in forgotten), key=lambda document: document.path))
    kept = tuple(row for row in failures if row.stage == "documents" and document_id(row.input) not in forgotten)
    out = tuple(sorted(one.path for one in documents if one.id in forgotten))
    return Gathered(documents=left, failures=kept, changes=Changes(same=len(left), forgotten=out))


def _nothing_there(root: Path, failures: Iterable[Failed]) -> CollectionMissing:
    reasons = "; ".join(f"{failure.input}: {failure.reason}" for failure in list(failures)[:5])
    return CollectionMissing(
        f"There is no document to index in {root}{': ' + reasons if reasons else ''}.",
        hint="Put files there, or point documents.input at the folder that has them.",
    )


def _is_forgotten(document: Document, known: Container[str], texts: Container[str], forgotten: frozenset[str]) -> bool:
    """By its path, or as a copy of a forgotten text under a new one.

    A text that the index holds anyway (`texts` by hash, `known` by path) is no secret: a copy that was there all along stays, also when it is renamed.
    Nor is one so short that documents have it by chance.
    """
    is_copy = document.content_hash in forgotten and len(document.text) >= COPY_CHARS
    return document.id in forgotten or (is_copy and document.path not in known and document.content_hash not in texts)
