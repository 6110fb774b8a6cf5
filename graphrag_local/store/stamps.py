"""Which files this machine has already hashed: a file with the same inode, size and modification time need not be hashed again.

The ledger, which is not hashed as a whole, is on the list once all of it was read and found sound. What rots under an unchanged stamp is found by
`status --verify`, which hashes and reads everything and leaves only what is sound on the list; no row of the ledger is used without its checksum anyway.

The list is a convenience of one machine (`index/run/verified.json`): without it, and where it cannot be written, files are hashed at every
opening. A hard link in the next generation is the same inode, so it is not hashed twice.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

_NAME = "run/verified.json"
SOUND = "sound"  # in place of the SHA-256 of a ledger


def identity(path: Path) -> str:
    """What stands for a file's content as long as nobody writes to it."""
    found = path.stat()
    return f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"


def ledger_identity(path: Path) -> str:
    """The same for a ledger, "" while part of it is in its log or it is not there."""
    log = path.with_name(f"{path.name}-wal")
    try:
        return "" if log.is_file() and log.stat().st_size else identity(path)
    except FileNotFoundError:
        return ""


def load(index: Path) -> dict[str, str]:
    """SHA-256 by identity; empty where there is no list or it cannot be read."""
    try:
        content = json.loads((index / _NAME).read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(key): str(value) for key, value in content.items()} if isinstance(content, dict) else {}


def save(index: Path, stamps: dict[str, str]) -> bool:
    """Keep the list; False where the index cannot be written. Not synced: losing it costs one hashing."""
    path = index / _NAME
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(exist_ok=True)
        beside.write_text(json.dumps(stamps, indent=0, sort_keys=True))
        beside.replace(path)
    except OSError:
        return False
    return True


def prune(index: Path, files: Iterable[Path]) -> None:
    """Forget the stamps of all files but these, and remove what a process that was killed while it saved has left."""
    for path in (index / _NAME).parent.glob(f"{Path(_NAME).name}.*.tmp"):
        if not runs(path.name.split(".")[-2]):
            path.unlink(missing_ok=True)
    stamps = load(index)
    present = {identity(path) for path in files if path.is_file()}
    if stamps.keys() - present:
        save(index, {key: value for key, value in stamps.items() if key in present})


def runs(process: str) -> bool:
    """Whether a process with this number runs on this machine."""
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:  # of another user
        pass
    return True
