"""Published generations of an index: which there are, which is current, whether they are whole.

    index/
    ├── CURRENT                    the id of the current generation; replaced in one step
    ├── generations/
    │   ├── 000007-3fa9c1d2e4b5/   manifest.json, one <table>.lance folder per table, attached files; retrieval/, which is derived (derived.py)
    │   └── .building-… .removing-…    left by a build that was killed; the next `collect` removes them
    ├── ledger.sqlite              every paid reply (ledger.py)
    └── run/                       build.lock, verified.json: of this machine, never needed elsewhere

The name of a generation vouches for its manifest, and the manifest for every file. Nothing in a published folder is ever changed; files may have
a second name in the next generation. Whoever has a generation open holds a shared lock on its manifest, which takes no right to write.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from graphrag_local.errors import IndexCorrupt, IndexMismatch, IndexMissing, UsageError
from graphrag_local.store import derived, stamps
from graphrag_local.store.files import files_under, remove_tree, replace_file, sha256_of, storage, sync_folder
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.manifest import MANIFEST, REPAIR, FileEntry, Manifest, number_of, read_manifest

BUILDING, REMOVING = ".building-", ".removing-"
NEVER_CURRENT = ".never-current"  # in the folder of a generation between its renaming and the moment at which CURRENT names it
_READ_ONLY = "This index cannot be written here, so its files are checked anew each time it is opened."
_TRIES = 200  # of 10 ms: the pointer moves on under a reader at most once per publication


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What `collect` did: the generations removed, and those that stay only because somebody reads them."""

    removed: tuple[str, ...]
    held: tuple[str, ...]


class Generation:
    """An open generation: its files are as they were published, and stay until `close`, whatever is published meanwhile."""

    def __init__(self, folder: Path, manifest: Manifest, hold: int, notes: tuple[str, ...]) -> None:
        self.folder = folder
        self.id = folder.name
        self.manifest = manifest
        self.notes = notes
        self._hold = hold

    def attached(self, name: str) -> bytes | None:
        """The content of an attached file (`files` of `publish`), None where there is none of that name."""
        if name not in {entry.path for entry in self.manifest.files}:
            return None
        with storage(self.folder / name):
            return (self.folder / name).read_bytes()

    def close(self) -> None:
        """Let go: from now on it may be collected."""
        if self._hold >= 0:
            os.close(self._hold)
            self._hold = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def folder_of(index: Path, id_: str) -> Path:
    """Where a generation is, or will be."""
    return index / "generations" / id_


def index_of(folder: Path) -> Path:
    """The index that a generation's folder is in."""
    return folder.parent.parent


def generation_ids(index: Path) -> list[str]:
    """Every generation on disk, oldest first; folders of unfinished ones are not among them."""
    folder = index / "generations"
    with storage(folder):
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return [name for _, name in sorted((number_of(name) or 0, name) for name in names if number_of(name) is not None)]


def current_id(index: Path) -> str:
    """The id of the current generation; cheap enough to ask before every question. Raises IndexMissing, IndexCorrupt."""
    path = index / "CURRENT"
    with storage(path):
        content = path.read_bytes() if path.exists() else b""
    if not content and not path.exists():
        raise IndexMissing(f"There is no finished index in {index}.", hint=f"Build it: graphrag-local index {index.parent}")
    name = content.decode("ascii", "replace").removesuffix("\n")
    if number_of(name) is None:
        raise IndexCorrupt(f"{path} does not name a generation.", hint=REPAIR)
    return name


def open_current(index: Path) -> Generation:
    """Open the current generation; every file is checked the first time, and by its stamp after that.

    Raises IndexMissing, IndexMismatch (another format), IndexCorrupt naming the first file that is missing, altered or too many.
    """
    for _ in range(_TRIES):
        id_ = current_id(index)
        hold = _hold(folder_of(index, id_))
        if hold is not None:
            return _open(index, id_, hold)
        if current_id(index) == id_ and not (folder_of(index, id_) / MANIFEST).exists():
            raise IndexCorrupt(f"{folder_of(index, id_) / MANIFEST} is missing.", hint=REPAIR)
        time.sleep(0.01)  # it was collected between the two looks: the pointer has moved on
    raise IndexCorrupt(f"{folder_of(index, id_)} is locked by another program.", hint="Close the program that locks it.")


def open_generation(index: Path, id_: str) -> Generation:
    """Open one generation by its id, like `open_current`; raises UsageError where there is none."""
    return _open(index, id_, _held(index, id_))


def open_damaged(index: Path, id_: str) -> Generation:
    """Open one generation to look at, whatever its files are like; raises UsageError where there is none, IndexCorrupt or IndexMismatch for its manifest."""
    hold = _held(index, id_)
    try:
        return Generation(folder_of(index, id_), read_manifest(folder_of(index, id_)), hold, ())
    except BaseException:
        os.close(hold)
        raise


def _held(index: Path, id_: str) -> int:
    folder = folder_of(index, id_)
    for _ in range(_TRIES if number_of(id_) is not None and folder.is_dir() else 0):
        hold = _hold(folder)
        if hold is not None:
            return hold
        if not (folder / MANIFEST).exists():
            if folder.is_dir():
                raise IndexCorrupt(f"{folder / MANIFEST} is missing.", hint=REPAIR)
            break
        time.sleep(0.01)  # somebody looks whether it is being read
    raise UsageError(f"There is no generation {id_} in {index}.", hint=f"There are: {', '.join(generation_ids(index)) or 'none'}.")


def _open(index: Path, id_: str, hold: int) -> Generation:
    folder = folder_of(index, id_)
    try:
        manifest = read_manifest(folder)
        known = stamps.load(index)
        before = len(known)
        problem = next(problems(folder, manifest, known), None)
        if problem:
            raise IndexCorrupt(problem, hint=REPAIR)
        saved = len(known) == before or stamps.save(index, known)
    except BaseException:
        os.close(hold)
        raise
    return Generation(folder, manifest, hold, () if saved else (_READ_ONLY,))


def _hold(folder: Path) -> int | None:
    """A descriptor that keeps `collect` away from this generation, None where it is gone or going."""
    path = folder / MANIFEST
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        with storage(path):
            raise
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        return descriptor  # a file system without locks: readable all the same, only not protected from `collect`
    os.close(descriptor)
    return None


def problems(folder: Path, manifest: Manifest, known: dict[str, str]) -> Iterator[str]:
    """What is wrong with a generation's files, a sentence each; files in `known` (see `stamps`) are not hashed, sound ones are added to it.

    Hidden files are passed over: file managers and copying programs leave them, and LanceDB has none. So are those of `derived`, which are no part of it.
    """
    expected = {entry.path for entry in manifest.files} | {MANIFEST}
    for entry in manifest.files:
        if wrong := _problem(folder / entry.path, entry, known):
            yield wrong
    for path in files_under(folder):
        if path.as_posix() not in expected and not path.name.startswith(".") and not derived.is_derived(path):
            yield f"{folder / path} does not belong to this generation."


def _problem(path: Path, entry: FileEntry, known: dict[str, str]) -> str:
    try:
        stamp, size = stamps.identity(path), path.stat().st_size
        if size != entry.size:
            return f"{path} has {size} bytes instead of {entry.size}."
        if known.get(stamp) != entry.sha256:
            if sha256_of(path) != entry.sha256:
                return f"{path} was altered: its content is not what was published."
            known[stamp] = entry.sha256
    except (FileNotFoundError, NotADirectoryError):
        return f"{path} is missing."
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}."
    return ""


def named_id(index: Path) -> str:
    """The id that CURRENT names, "" where it names none."""
    try:
        return current_id(index)
    except (IndexMissing, IndexCorrupt):
        return ""


def verify(index: Path, *, everything: bool = True) -> list[str]:
    """Hash every file of all generations (else of the current one), whatever was hashed before; one sentence per problem, none when all is well."""
    current = current_id(index)
    every = generation_ids(index)
    found = [] if current in every else [f"{folder_of(index, current)} is missing, although CURRENT names it."]
    for id_ in every if everything else [id_ for id_ in every if id_ == current]:
        try:
            found += problems(folder_of(index, id_), read_manifest(folder_of(index, id_)), {})
        except (IndexCorrupt, IndexMismatch) as error:
            found.append(str(error))
    return found


def point_to(lock: BuildLock, id_: str) -> None:
    """Make a generation that is whole and durable the current one, in one step."""
    assert lock.held
    with storage(lock.index):
        replace_file(lock.index / "CURRENT", f"{id_}\n".encode())


def rollback_to(lock: BuildLock, id_: str) -> None:
    """Make an older (or newer) generation the current one, after hashing all of it; raises UsageError, IndexCorrupt, IndexMismatch."""
    with open_damaged(lock.index, id_) as target:
        if problem := next(problems(target.folder, target.manifest, {}), None):
            raise IndexCorrupt(problem, hint="Choose another generation: graphrag-local status --generations --verify says which are whole.")
        point_to(lock, id_)


def roll_back(lock: BuildLock) -> tuple[str, ...]:
    """Make the newest whole generation before the current one current (of all, where CURRENT names none of them), and return those passed over.

    Raises UsageError where there is none.
    """
    ids, current = generation_ids(lock.index), named_id(lock.index)
    passed: list[str] = []
    for id_ in reversed(ids[: ids.index(current)] if current in ids else ids):
        try:
            rollback_to(lock, id_)
        except (IndexCorrupt, IndexMismatch):
            passed.append(id_)
        else:
            return tuple(passed)
    why = f"{len(passed)} older ones are damaged or of another version" if passed else "there is no older one"
    raise UsageError(
        f"There is no generation to roll back to: {why}.", hint="`graphrag-local index` builds a whole one; replies that are in the ledger cost nothing."
    )


def remove_never_current(lock: BuildLock) -> None:
    """Remove the generations that a crash kept from becoming current; of the current one, make durable that it is none of them."""
    current = folder_of(lock.index, named_id(lock.index) or "none")
    with storage(lock.index):
        if current.is_dir():
            (current / NEVER_CURRENT).unlink(missing_ok=True)
            sync_folder(current)
        discard(lock, [id_ for id_ in generation_ids(lock.index) if (folder_of(lock.index, id_) / NEVER_CURRENT).exists()])


def collect(lock: BuildLock, keep: int) -> Collected:
    """Remove what killed builds left, and old generations: the current one and the newest others stay, `keep` in all, and those being read.

    Damaged ones go first: they can answer nothing, and would take the place of one that can.
    """
    assert lock.held
    folder = lock.index / "generations"
    removed, held = [], []
    remove_never_current(lock)
    with storage(folder):
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name.startswith((BUILDING, REMOVING)):  # only the holder of the lock builds, and it is not building now
                remove_tree(path)
        current = current_id(lock.index)
        others = [id_ for id_ in generation_ids(lock.index) if id_ != current]
        damaged = _damaged(lock.index, others)
        whole = [id_ for id_ in others if id_ not in damaged]
        for id_ in [*damaged, *whole[: max(0, len(whole) - max(0, keep - 1))]]:
            if _remove(folder / id_):
                removed.append(id_)
            else:
                held.append(id_)
        for id_ in generation_ids(lock.index):
            derived.clear(folder / id_)
        kept = [folder / id_ / path for id_ in generation_ids(lock.index) for path in files_under(folder / id_)]
        stamps.prune(lock.index, [*kept, lock.index / "ledger.sqlite"])
    return Collected(removed=tuple(removed), held=tuple(held))


def _damaged(index: Path, ids: list[str]) -> list[str]:
    known = stamps.load(index)
    before, found = len(known), []
    for id_ in ids:
        try:
            damaged = any(problems(folder_of(index, id_), read_manifest(folder_of(index, id_)), known))
        except IndexMismatch:  # of another version of this program, which may be installed again
            damaged = False
        except IndexCorrupt:
            damaged = True
        found += [id_] if damaged else []
    if len(known) > before:
        stamps.save(index, known)
    return found


def discard(lock: BuildLock, ids: Iterable[str]) -> Collected:
    """Remove these generations, of which none may be the current one; those that somebody reads stay."""
    assert lock.held
    folder = lock.index / "generations"
    with storage(folder):
        done = {id_: _remove(folder / id_) for id_ in ids}
    return Collected(removed=tuple(id_ for id_, gone in done.items() if gone), held=tuple(id_ for id_, gone in done.items() if not gone))


def _remove(folder: Path) -> bool:
    """Remove a generation unless somebody reads it: out of sight in one step, then piece by piece."""
    descriptor = os.open(folder / MANIFEST, os.O_RDONLY) if (folder / MANIFEST).exists() else -1
    try:
        if descriptor >= 0:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        gone = folder.with_name(f"{REMOVING}{folder.name}-{os.getpid()}")
        folder.rename(gone)
        sync_folder(folder.parent)
        remove_tree(gone)
    except BlockingIOError:
        return False
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return True
