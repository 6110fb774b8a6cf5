"""The manifest of a generation: what it is, where it came from, and the checksum of every file in it."""

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import graphrag_local
from graphrag_local.errors import IndexCorrupt, IndexMismatch

FORMAT = 3  # counts up whenever an older program could not read what this one writes, or this one what older ones wrote
MANIFEST = "manifest.json"
REPAIR = (
    "Run `graphrag-local index` to build it anew (what the ledger has is not paid again); "
    "until then `graphrag-local rollback` answers from the last whole generation, where there is one."
)
_ID = re.compile(r"(\d{6,12})-([0-9a-f]{12})")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of a generation: POSIX path inside it, size in bytes, SHA-256."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """One table: its LanceDB version, its number of rows, and the digest of its schema and rows."""

    version: int
    rows: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a generation is: when (UTC) and by which version of this package it was made, from which parent ("" for none), and its files.

    `digest` is that of the content, `dimension` the embedder's (0: no vectors), `counts` are for `status`, `about` are the caller's
    fingerprints (settings, prompts, model, embedder). No path, user or host of the machine that made it is in it.
    """

    package: str
    created: str
    parent: str
    digest: str
    dimension: int
    counts: dict[str, Any]
    about: dict[str, Any]
    tables: dict[str, TableEntry]
    files: tuple[FileEntry, ...]

    def to_bytes(self) -> bytes:
        """The manifest as it is written: JSON that people can read, the same bytes for the same content."""
        content = {"format": FORMAT, **dataclasses.asdict(self)}
        return (json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def make_id(number: int, manifest: bytes) -> str:
    """The id of a generation: a number that counts up, and the start of its manifest's SHA-256, so that the name vouches for the manifest."""
    return f"{number:06d}-{hashlib.sha256(manifest).hexdigest()[:12]}"


def number_of(id_: str) -> int | None:
    """The number in a generation's id; None for what is no id."""
    match = _ID.fullmatch(id_)
    return int(match.group(1)) if match else None


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a generation's folder, checked against the folder's name.

    Raises IndexMismatch for another format, before anything else of it is looked at; IndexCorrupt for one that is missing or altered.
    """
    path = folder / MANIFEST
    try:
        raw = path.read_bytes()
        content = json.loads(raw)
        number = content.pop("format")
    except FileNotFoundError:
        raise IndexCorrupt(f"{path} is missing.", hint=REPAIR) from None
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise IndexCorrupt(f"{path} cannot be read as a manifest.", hint=REPAIR) from error
    if number != FORMAT:
        raise _other_format(folder, content, number)
    if folder.name != make_id(number_of(folder.name) or 0, raw):
        raise IndexCorrupt(f"{path} was altered: it does not fit the name of its folder.", hint=REPAIR)
    tables = {name: TableEntry(**entry) for name, entry in content.pop("tables").items()}
    files = tuple(FileEntry(**entry) for entry in content.pop("files"))
    return Manifest(tables=tables, files=files, **content)


def _other_format(folder: Path, content: Any, number: Any) -> IndexMismatch:
    maker = content.get("package", "?") if isinstance(content, dict) else "?"
    newer = isinstance(number, int) and number > FORMAT
    advice = f"Install graphrag-local {maker} or later" if newer else "Run `graphrag-local index` to build it anew from the replies in its ledger"
    this = f"graphrag-local {graphrag_local.__version__} (format {FORMAT})"
    return IndexMismatch(
        f"The index generation {folder} was made by graphrag-local {maker} (format {number}); this is {this}.",
        hint=f"{advice}, or open it with graphrag-local {maker}.",
    )
