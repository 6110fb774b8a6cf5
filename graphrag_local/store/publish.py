"""Publishing: from records in memory to the next generation on disk, whole or not at all.

The order is what survives a power cut (LanceDB itself never syncs): write all tables into a folder of their own; sync files, then folders; write
and sync the manifest; rename the folder to its id; sync its parent; replace CURRENT in one step; sync the index folder. Up to that last rename
readers see the old generation, and what a crash leaves is an unfinished folder that nobody looks into. A crash between the two renames leaves a whole
generation that was never current, known by a hidden file: the next publication removes it, or it would take the place of one to roll back to.

A table whose rows are those of the parent generation is not written: its files get a second name. A changed table is written anew, whole, so that no
deleted row survives in it.
"""

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import graphrag_local
from graphrag_local.errors import IndexCorrupt
from graphrag_local.records import Vector
from graphrag_local.store import derived, lance, stamps
from graphrag_local.store.derived import Part
from graphrag_local.store.files import files_under, link_or_copy, make_folder, sha256_of, storage, sync_folder, sync_tree, write_file
from graphrag_local.store.generations import BUILDING, NEVER_CURRENT, Generation, folder_of, generation_ids, index_of, point_to, remove_never_current
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.manifest import MANIFEST, REPAIR, FileEntry, Manifest, TableEntry, make_id, number_of
from graphrag_local.store.rows import rows_part, vectors_part
from graphrag_local.store.snapshot import Held, Snapshot
from graphrag_local.store.tables import TABLES, VECTOR_TABLES, digest_records, rows_digest, to_arrow

_FOR_BUILDS = ("failures", "anchor_communities", "anchor_edges")  # tables that no question reads


def content_digest(snapshot: Snapshot, extra: Mapping[str, Any]) -> str:
    """The digest of everything a snapshot holds and of `extra` (settings, anchor); see `tables.digest_records`."""
    return digest_records({name: getattr(snapshot, name) for name in (*TABLES, "vectors")}, extra)


def index_digest(snapshot: Snapshot, about: Mapping[str, Any]) -> str:
    """The digest of a generation: all that it holds and, of the `about` of its manifest, what decided it. The same in a build and in a verification."""
    return content_digest(snapshot, {name: about[name] for name in ("settings", "prompts", "models")})


def counts_of(snapshot: Snapshot) -> dict[str, Any]:
    """What a manifest says of how much a generation holds; communities by level."""
    names = ("documents", "chunks", "entities", "relationships", "claims", "reports", "failures")
    return {**{name: len(getattr(snapshot, name)) for name in names}, "communities": snapshot.communities_by_level()}


def publish(
    lock: BuildLock,
    snapshot: Snapshot,
    *,
    digest: str,
    counts: Mapping[str, Any],
    about: Mapping[str, Any],
    files: Mapping[str, bytes] | None = None,
    parent: Generation | None = None,
    derive: Sequence[Part] = (),
) -> str:
    """Write a snapshot as the next generation, make it the current one, and return its id.

    `digest`, `counts` and `about` (any JSON, without paths of this machine) go into the manifest as they are; `files` are attached under their
    names. Tables that are equal in `parent`, which must be open, are taken from it. `derive` is what questions want beside the tables; with
    anything of it goes what they want of single tables. Raises StorageError, ValueError for rows that
    cannot be stored (see `tables.to_arrow`); then the index is as it was.
    """
    assert lock.held
    remove_never_current(lock)
    number = 1 + max((number_of(id_) or 0 for id_ in generation_ids(lock.index)), default=0)
    building = folder_of(lock.index, f"{BUILDING}{number:06d}-{os.getpid()}")
    with storage(building):
        make_folder(building.parent)
        try:
            building.mkdir()
            draft = _Draft(building, parent, for_questions=bool(derive))
            draft.add_tables(snapshot)
            draft.attach(files or {})
            draft.derive(derive, snapshot)
            manifest = Manifest(
                package=graphrag_local.__version__,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                parent=parent.id if parent else "",
                digest=digest,
                dimension=snapshot.dimension,
                counts=dict(counts),
                about=dict(about),
                tables=draft.tables,
                files=draft.entries(),
            ).to_bytes()
            sync_tree(building, skip=draft.linked)
            write_file(building / MANIFEST, manifest)
            (building / NEVER_CURRENT).touch()
            sync_folder(building)
            id_ = make_id(number, manifest)
            building.rename(folder_of(lock.index, id_))
            sync_folder(building.parent)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)  # gives the space back; what cannot be removed now is `collect`'s
            raise
    point_to(lock, id_)
    with contextlib.suppress(OSError):  # else the next publication does it
        (folder_of(lock.index, id_) / NEVER_CURRENT).unlink()
    return id_


class _Draft:
    """A generation that is being written into its folder."""

    def __init__(self, folder: Path, parent: Generation | None, *, for_questions: bool) -> None:
        self.folder = folder
        self.for_questions = for_questions
        self._known = stamps.load(index_of(folder))
        self.tables: dict[str, TableEntry] = {}
        self.linked: set[Path] = set()
        self._parent = parent
        self._inherited = {Path(entry.path): entry for entry in parent.manifest.files} if parent else {}

    def add_tables(self, snapshot: Snapshot) -> None:
        """Write each table, or take it from the parent."""
        vectors = _by_table(snapshot)
        for name in TABLES:
            table = to_arrow(name, getattr(snapshot, name), vectors.get(name, ()), dimension=snapshot.dimension)
            digest = rows_digest(table)
            before = self._parent.manifest.tables.get(name) if self._parent else None
            if before and before.digest == digest:
                self._take([path for path in self._inherited if path.parts[0] == lance.folder_name(name)])
                self.tables[name] = before
            else:
                version = lance.write(self.folder, name, table)
                self.tables[name] = TableEntry(version=version, rows=table.num_rows, digest=digest)
            for part in _of_one_table(name) if self.for_questions else ():
                self._keep(part, table)

    def derive(self, parts: Sequence[Part], snapshot: Snapshot) -> None:
        """Keep what questions derive from the tables, or take it from the parent."""
        held = Held(snapshot)
        for part in parts:
            self._keep(part, held)

    def _keep(self, part: Part, source: Any) -> None:
        parent = self._parent
        if parent is None or not derived.take(part, self.folder, self.tables, parent.folder, parent.manifest.tables, self._known):
            arrays = source.kept(part) if isinstance(source, Held) else part.make(source)
            derived.write(derived.place_of(self.folder, part.name), part, self.tables, arrays)

    def attach(self, files: Mapping[str, bytes]) -> None:
        """Write files that are no tables."""
        for name, content in files.items():
            if Path(name).name != name or name.startswith(".") or name == MANIFEST or (self.folder / name).exists():
                raise ValueError(f"{name!r} cannot be the name of an attached file")
            (self.folder / name).write_bytes(content)

    def _take(self, paths: list[Path]) -> None:
        assert self._parent
        for path in paths:
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            if link_or_copy(self._parent.folder / path, self.folder / path):
                self.linked.add(path)
            elif sha256_of(self.folder / path) != self._inherited[path].sha256:
                raise IndexCorrupt(f"{self._parent.folder / path} was altered: its content is not what was published.", hint=REPAIR)

    def entries(self) -> tuple[FileEntry, ...]:
        """Every file with its checksum; a linked one has its parent's."""
        paths = (path for path in files_under(self.folder) if not derived.is_derived(path))
        return tuple(self._inherited[path] if path in self.linked else self._entry(path) for path in paths)

    def _entry(self, path: Path) -> FileEntry:
        return FileEntry(path=path.as_posix(), size=(self.folder / path).stat().st_size, sha256=sha256_of(self.folder / path))


def _of_one_table(name: str) -> tuple[Part, ...]:
    """What questions want of a table as it is: its rows, and its vectors."""
    rows = () if name in _FOR_BUILDS else (rows_part(name),)
    return (*rows, vectors_part(name)) if name in VECTOR_TABLES.values() else rows


def _by_table(snapshot: Snapshot) -> dict[str, list[Vector]]:
    """The vectors of each table that has any."""
    found: dict[str, list[Vector]] = {}
    for vector in snapshot.vectors:
        if vector.owner_kind not in VECTOR_TABLES or not snapshot.dimension:
            raise ValueError(f"there is no place for the vector of {vector.owner_kind} {vector.owner_id}")
        found.setdefault(VECTOR_TABLES[vector.owner_kind], []).append(vector)
    return found
