"""Published generations of an index: which there are, which is current, whether they are whole.

    index/
    ├── CURRENT                    the id of the current generation; replaced in one step
    ├── generations/
    │   ├── 000007-3fa9c1d2e4b5/   manifest.json, one <table>.lance folder per table, attached files
    │   └── .building-… .removing-…    left by a build that was killed; the next `collect` removes them
    ├── ledger.sqlite              (see ledger.py)
    └── run/                       build.lock, verified.json: of this machine, never needed elsewhere

The number of a generation counts up; the rest of its name is the start of the SHA-256 of its manifest, and the manifest has the SHA-256 of every
file, so the name vouches for all of it. Nothing in a published folder is ever changed; files may have a second name in the next generation.
Whoever has a generation open holds a shared lock on its manifest, which needs no right to write.
"""

import dataclasses
import fcntl
import json
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import graphrag_local
from graphrag_local.errors import IndexCorrupt, IndexMismatch, IndexMissing, UsageError
from graphrag_local.ids import canonical_json
from graphrag_local.store.files import files_under, remove_tree, replace_file, sha256_of, storage, sync_folder
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.stamps import Stamps, identity

FORMAT = 1  # counts up whenever an older program could not read what this one writes, or the other way round
MANIFEST = "manifest.json"
BUILDING, REMOVING = ".building-", ".removing-"
REPAIR = "Run `graphrag-local index`: it builds a new generation, and replies already paid for are not asked again; or use `graphrag-local rollback`."
_ID = re.compile(r"(\d{6,})-([0-9a-f]{12})")
_OPEN_TRIES = 200  # of 10 ms each, while the pointer moves on under a reader


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of a generation: POSIX path inside it, size in bytes, SHA-256."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """One table: its LanceDB version, number of rows, and the digest of its schema and rows."""

    version: int
    rows: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a generation is: made when (UTC) and by which version, from which parent ("" for none), and every file in it.

    `digest` is that of the content, `dimension` the embedder's (0: no vectors), `counts` are for `status`; `about` holds the caller's
    fingerprints (settings, prompts, model, embedder). No path of this machine, no user and no host is in it.
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
        """The manifest as it is written: JSON for people to read, always the same for the same content."""
        content = {"format": FORMAT, **dataclasses.asdict(self)}
        return (json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One generation as `list_generations` sees it; `problem` is a sentence, "" where its manifest can be read."""

    id: str
    current: bool
    problem: str = ""
    manifest: Manifest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What `collect` did: generations removed, and generations that stay only because somebody is reading them."""

    removed: tuple[str, ...]
    held: tuple[str, ...]


class Generation:
    """An open generation: its files are as they were published, and stay until `close`, whatever is published meanwhile."""

    def __init__(self, index: Path, id_: str, manifest: Manifest, lock: int, notes: tuple[str, ...]) -> None:
        self.index = index
        self.id = id_
        self.folder = _folder(index, id_)
        self.manifest = manifest
        self.notes = notes
        self._lock = lock

    def attached(self, name: str) -> bytes:
        """The content of an attached file (see `publish.Contents.files`); raises KeyError where there is none of that name."""
        if name not in {entry.path for entry in self.manifest.files}:
            raise KeyError(name)
        with storage(self.folder / name):
            return (self.folder / name).read_bytes()

    def close(self) -> None:
        """Let go: the generation may be collected from now on."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _folder(index: Path, id_: str) -> Path:
    return index / "generations" / id_


def number_of(id_: str) -> int:
    """The count in a generation's id."""
    match = _ID.fullmatch(id_)
    return int(match.group(1)) if match else -1


def make_id(number: int, manifest: bytes) -> str:
    """The id of the generation with this manifest."""
    return f"{number:06d}-{_short(manifest)}"


def ids(index: Path) -> list[str]:
    """Every generation on disk, oldest first; folders of unfinished ones are not among them."""
    folder = index / "generations"
    with storage(folder):
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted((name for name in names if _ID.fullmatch(name)), key=lambda name: (number_of(name), name))


def current_id(index: Path) -> str:
    """The id of the current generation; cheap enough to ask before every question."""
    path = index / "CURRENT"
    try:
        with storage(path):
            content = path.read_bytes()
    except Exception as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            raise _missing(index) from None
        raise
    name = content.decode("ascii", "replace").removesuffix("\n")
    if not _ID.fullmatch(name):
        raise IndexCorrupt(f"{path} does not name a generation.", hint=REPAIR)
    return name
