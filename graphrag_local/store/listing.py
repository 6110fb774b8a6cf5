"""Which generations there are, for people: what each takes, whether it can answer, and whether somebody reads it."""

import contextlib
import fcntl
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from graphrag_local.errors import IndexCorrupt, IndexMismatch
from graphrag_local.store import stamps
from graphrag_local.store.files import files_under
from graphrag_local.store.generations import folder_of, generation_ids, named_id, problems
from graphrag_local.store.manifest import MANIFEST, Manifest, read_manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One generation as `list_generations` sees it; `problem` is a sentence, "" where it can be opened.

    `own_bytes` are those of files that no other generation has, `shared_bytes` the rest; `read` says whether somebody has it open now.
    """

    id: str
    current: bool
    manifest: Manifest | None = None
    problem: str = ""
    own_bytes: int = 0
    shared_bytes: int = 0
    read: bool = False


def list_generations(index: Path, *, hash_all: bool = False) -> list[Listed]:
    """Every generation, oldest first, checked as opening it would check it; `hash_all`: whatever was hashed before."""
    current, ids = named_id(index), generation_ids(index)
    files = {id_: _inodes(folder_of(index, id_)) for id_ in ids}
    names = Counter(inode for own in files.values() for inode in own)
    known = {} if hash_all else stamps.load(index)
    found = []
    for id_ in ids:
        folder, manifest, own = folder_of(index, id_), None, sum(size for inode, size in files[id_].items() if names[inode] == 1)
        try:
            manifest = read_manifest(folder)
            problem = next(problems(folder, manifest, known), "")
        except (IndexCorrupt, IndexMismatch) as error:
            problem = str(error)
        shared = sum(files[id_].values()) - own
        row = Listed(id=id_, current=id_ == current, manifest=manifest, problem=problem, own_bytes=own, shared_bytes=shared, read=_is_read(folder))
        found.append(row)
    return found


def _inodes(folder: Path) -> dict[tuple[int, int], int]:
    """The size of each file of a folder by what it is on the disk, however many names it has."""
    found = {}
    for path in files_under(folder):
        with contextlib.suppress(FileNotFoundError):  # it is being collected
            stat = (folder / path).lstat()
            found[stat.st_dev, stat.st_ino] = stat.st_size
    return found


def readers(folder: Path) -> list[int]:
    """The processes that have a generation open, as far as the system tells (Linux, and not on every file system)."""
    try:
        stat, locks = (folder / MANIFEST).stat(), Path("/proc/locks").read_text()
    except OSError:
        return []
    place = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}:{stat.st_ino}"
    lines = [line.split() for line in locks.splitlines()]
    return sorted({int(line[4]) for line in lines if len(line) > 5 and line[1] == "FLOCK" and line[5] == place and int(line[4]) > 0})


def _is_read(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / MANIFEST, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # for an instant; who opens it meanwhile tries again
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
