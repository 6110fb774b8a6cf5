"""What changed since a generation was published: documents, by path and content hash, and what decides its records. Pure."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from graphrag_local.errors import CollectionMissing, NotConfirmed
from graphrag_local.records import Document, Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Paths of documents, sorted: new, edited, renamed (old, new: the same text), gone, and kept because their file is there but cannot be read now.

    `forgotten` are those that are in the collection and left out for good.
    """

    new: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    gone: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    same: int = 0
    forgotten: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        """Whether anything differs."""
        return bool(self.new or self.edited or self.renamed or self.gone)


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
    gone = sorted(path for path in missing if not is_kept(path))
    new = sorted(path for path in current if path not in before)
    renamed = _renamed({path: before[path] for path in gone}, {path: current[path] for path in new})
    return Changes(
        new=tuple(path for path in new if path not in renamed.values()),
        edited=tuple(sorted(path for path in current if path in before and before[path] != current[path])),
        renamed=tuple(sorted(renamed.items())),
        gone=tuple(path for path in gone if path not in renamed),
        kept=tuple(sorted(path for path in missing if is_kept(path))),
        same=sum(1 for path in current if before.get(path) == current[path]),
    )


def _renamed(gone: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Old path -> new path of documents that went under one name and came with the same text under another; of equal ones in the order of their paths."""
    waiting: dict[str, list[str]] = {}
    for path in sorted(new, reverse=True):
        waiting.setdefault(new[path], []).append(path)
    return {path: waiting[text].pop() for path, text in sorted(gone.items()) if waiting.get(text)}


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
    hint = "Mount it or point documents.input at it. If they are meant to go, make it an empty folder and run with --allow-empty."
    return CollectionMissing(f"{error} {before} of {before} indexed documents are missing; nothing was changed.", hint=hint)


def refuse_if_most_is_gone(gone: int, before: int, limit: float) -> None:
    """Raise CollectionMissing when `gone` is more than the share `limit` of `before` documents: an unmounted folder looks just like that."""
    if before and gone > limit * before:
        raise CollectionMissing(
            f"{gone} of {before} indexed documents are missing from the input folder; nothing was changed.",
            hint="Is the folder mounted? If they are meant to go, run again with --allow-empty (limit: documents.missing_limit).",
        )


# What is done anew when a part of what decides an index changes; the first that fits counts, so the widest come first.
_EVERYTHING = "all {chunks:,} chunks are read by the model again, and all descriptions and {reports:,} reports written anew"
_REDONE = (
    (("documents.",), "the documents are read anew; those whose text comes out as another are cut anew and read by the model again"),
    (("chunks.",), "the documents are cut anew; chunks that come out as others are read by the model again, with what stands on them"),
    (("extraction.", "prompt extract", "prompt glean", "prompt canonical", "model name", "model revision", "model form", "model temp", "model seed"), _EVERYTHING),
    (("model context",), "calls whose room changes with the model's window are asked anew"),
    (("describe.", "prompt describe"), "long descriptions of entities and relationships are written anew, with the reports that hold them"),
    (("communities.",), "the {entities:,} entities are grouped anew, and the reports of all groups that come out as others are written anew"),
    (("reports.", "prompt report"), "{reports:,} reports are written anew"),
    (("embedder ", "vectors."), "{chunks:,} chunks, {entities:,} entities and {reports:,} reports are embedded anew (no chat model is asked)"),
)
_CHAT = ("name", "revision", "form", "context", "temperature", "seed")
PROMPTS = ("extract", "glean", "canonical", "describe", "report")  # those that an index depends on
_WHICH = ("include", "exclude")  # which documents there are: what is new costs what new documents cost, without a question


def refuse_unasked(before: Mapping[str, Any], now: Mapping[str, Any], counts: Mapping[str, Any]) -> None:
    """Raise NotConfirmed, which says what differs and exactly what is redone, where something else decides the index than what made it.

    `before` and `now` are what a manifest says about its making (`decisive` settings by section, `prompts`, `models`).
    """
    if (was := _method(before)) != (is_ := _method(now)):
        raise NotConfirmed(
            f"The index was made by extraction.method {was!r}, now it is {is_!r}. {_BY_METHOD[is_].format(**{'chunks': 0, 'reports': 0} | dict(counts))}",
            hint=f"If that is meant, run again with --yes; else set it back (--set extraction.method={was}, or in graphrag.toml). Documents and chunks stay, "
            "and the index answers as it is until it is done.",
        )
    differs = _differences(before, now)
    redone = [text for starts, text in _REDONE if any(line.startswith(starts) for line in differs)]
    if not redone:
        return
    if _EVERYTHING in redone:
        redone = [text for text in redone if text == _EVERYTHING or "embedded" in text]
    said = "; ".join(text.format(**{"chunks": 0, "entities": 0, "reports": 0} | dict(counts)) for text in redone)
    if is_ == "fast":
        said = said.replace("read by the model again", "read anew, without a model")
    raise NotConfirmed(
        f"What decides this index has changed: {', '.join(differs)}. So {said}.",
        hint="If that is meant, run again with --yes (replies that the ledger holds cost nothing); else set it back. The index answers as it is.",
    )


_BY_METHOD = {
    "standard": "So a model reads all {chunks:,} chunks for the first time, at least one call each and as many tokens as the collection has with the "
    "instructions of each call, and writes the descriptions and reports (`index --dry-run` says how much that is; replies that the ledger holds cost nothing).",
    "fast": "So no model is asked, and what one said about {chunks:,} chunks and wrote in {reports:,} reports leaves the index; its replies stay in the "
    "ledger, and going back costs nothing.",
}  # fmt: skip


def _method(decided: Mapping[str, Any]) -> str:
    return str(decided["decisive"].get("extraction", {}).get("method", "standard"))


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs, as `section.key: old -> new`, `prompt name`, `model …`, `embedder …`, in this order."""
    lines = []
    for section, values in now["decisive"].items():
        old = before["decisive"].get(section, {})
        changed = [key for key in sorted({*values, *old}) if values.get(key) != old.get(key)]
        lines += [f"{section}.{key}: {old.get(key)!r} -> {values.get(key)!r}" for key in changed if section != "documents" or key not in _WHICH]
    lines += [f"prompt {name}" for name in PROMPTS if before["prompts"].get(name) != now["prompts"].get(name)]
    old, new = before["models"], now["models"]
    lines += [f"model {key}: {old.get(key)!r} -> {new.get(key)!r}" for key in _CHAT if old.get(key) != new.get(key)]
    names = [key for key in new if key not in _CHAT and old.get(key) != new.get(key)]
    return lines + [f"{'vectors.' if key.endswith('prefix') else 'embedder '}{key}: {old.get(key)!r} -> {new.get(key)!r}" for key in names]
