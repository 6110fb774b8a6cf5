"""Durable file operations: what this package writes into an index goes through here, so that order and syncing are in one place.

A rename is atomic but not durable: a file's bytes must be synced before its name counts, and a name lasts only when its folder is synced.
A failed sync is final: the kernel may have dropped the pages, so nothing is tried twice and the caller gives the generation up.
"""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from graphrag_local.errors import StorageError

_WHOLE = "What was published before is whole."
_HINTS = {
    errno.ENOSPC: f"Free some space on that disk and run the command again. {_WHOLE}",
    errno.EDQUOT: f"Raise the disk quota or free some space and run the command again. {_WHOLE}",
    errno.EFBIG: f"Raise the limit on the size of a file (ulimit -f) and run the command again. {_WHOLE}",
    errno.EROFS: "The file system is mounted read-only: mount it writable, or copy the index to a writable place.",
    errno.EACCES: "Give this user the right to read and write the index folder, or run as its owner.",
    errno.EPERM: "Give this user the right to read and write the index folder, or run as its owner.",
    errno.EMFILE: "Raise the limit on open files (ulimit -n) and run the command again.",
    errno.EIO: f"The disk reports errors: check it, then run the command again. {_WHOLE}",
}
_OTHER_HINT = f"Check the disk and its permissions, then run the command again. {_WHOLE}"
_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES, errno.EINVAL}
_OS_ERROR = re.compile(r"\(os error (\d+)\)")


def storage_error(number: int, path: Path | str) -> StorageError:
    """The error to raise when the operating system refuses an operation on `path` with this errno."""
    return StorageError(f"{path}: {os.strerror(number)}.", hint=_HINTS.get(number, _OTHER_HINT))


def os_error_number(message: str) -> int:
    """The errno inside a message of a native library ("… (os error 28)"), 0 where there is none."""
    match = _OS_ERROR.search(message)
    return int(match.group(1)) if match else 0


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Operating system errors inside become a StorageError that names the file, or `path` where the error names none."""
    try:
        yield
    except OSError as error:
        raise storage_error(error.errno or errno.EIO, error.filename or path) from error


def sync_file(path: Path) -> None:
    """Return when the file's bytes are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Return when the names in this folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a folder and say so this way
            raise
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Create a folder with the missing ones above it, durably."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def files_under(folder: Path) -> list[Path]:
    """Every file below a folder, relative to it, sorted."""
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())


def sync_tree(folder: Path, skip: Iterable[Path] = ()) -> None:
    """Sync every file below a folder but those in `skip` (relative; already durable under another name), then every folder, deepest first."""
    durable = set(skip)
    for path in files_under(folder):
        if path not in durable:
            sync_file(folder / path)
    below = [path for path in folder.rglob("*") if path.is_dir()]
    for path in [*sorted(below, key=lambda path: -len(path.parts)), folder]:
        sync_folder(path)


def write_file(path: Path, content: bytes) -> None:
    """Write a new file and sync its bytes; its name lasts once the folder is synced."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file in one step: whoever looks sees the old content or the new one, also after a power cut."""
    beside = path.with_name(path.name + ".tmp")
    beside.unlink(missing_ok=True)
    write_file(beside, content)
    beside.replace(path)
    sync_folder(path.parent)


def link_or_copy(source: Path, target: Path) -> bool:
    """Give a file a second name, or copy it where links are impossible (other disk, no support, too many); True when linked."""
    try:
        target.hardlink_to(source)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(source, target)
        return False
    return True


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_tree(folder: Path) -> None:
    """Remove a folder and all below it; what cannot be removed raises OSError."""
    if folder.exists():
        shutil.rmtree(folder)
