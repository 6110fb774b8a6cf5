"""Who may write: one build at a time per index."""

import contextlib
import fcntl
import json
import os
import socket
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from graphrag_local.errors import IndexBusy
from graphrag_local.store.files import make_folder, storage

_NAME = "run/build.lock"
_TRIES = 10  # `holder` takes the lock for an instant to see whether it is free; that must not make a build fail


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that took the lock last: its id, machine and start (UTC). `alive` is False when it ended without giving it back."""

    pid: int
    host: str
    started: str
    alive: bool


class BuildLock:
    """The right to change an index; functions that do so take it as an argument.

    The kernel holds the lock (flock) and drops it when the process ends, however it ends, so a killed build never blocks the next one.
    The file only says who it is; it stays, empty, after a clean end.
    """

    def __init__(self, index: Path) -> None:
        self.index = index
        self._file = -1

    @property
    def held(self) -> bool:
        """Whether this object holds the lock now."""
        return self._file >= 0

    def __enter__(self) -> Self:
        path = self.index / _NAME
        with storage(path):
            make_folder(path.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if not _try_lock(descriptor):
            os.close(descriptor)
            raise busy(self.index)
        self._file = descriptor
        entry = {"pid": os.getpid(), "host": socket.gethostname(), "started": datetime.now(UTC).isoformat(timespec="seconds")}
        with contextlib.suppress(OSError):  # a full disk must not keep `collect` from making room; the lock is held without a name, too
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(entry).encode(), 0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):  # a disk that fails must not hide why the build ended
            os.ftruncate(self._file, 0)
        os.close(self._file)
        self._file = -1


def holder(index: Path) -> Holder | None:
    """Who builds this index, or who was killed while building it; None when the last build ended by itself."""
    try:
        descriptor = os.open(index / _NAME, os.O_RDONLY)
    except OSError:
        return None
    try:
        entry = json.loads(os.pread(descriptor, 4096, 0) or b"{}")
        alive = not _free(descriptor)
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    if "pid" not in entry:
        return None
    return Holder(pid=int(entry["pid"]), host=str(entry.get("host", "?")), started=str(entry.get("started", "?")), alive=alive)


def busy(index: Path) -> IndexBusy:
    """The error that names the holder of the lock."""
    who = holder(index)
    name = f"Process {who.pid} on {who.host}, running since {who.started}," if who else "Another process"
    return IndexBusy(f"{name} is building {index}.", hint="Wait until it has finished, or stop it: nothing that it has paid for is lost.")


def _try_lock(descriptor: int) -> bool:
    for attempt in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01 * attempt)
        else:
            return True
    return False


def _free(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True
