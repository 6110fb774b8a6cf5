"""A disk whose power can be cut, as a FUSE file system: `python -m tests.crash.powerfs MOUNT STATE` serves the disk that the file STATE holds.

Commands on standard input, one a line, each answered with a line: `count` (how many operations that change something there were), `settle` (all of it
becomes durable), `ignore` (from now on a sync returns at once and does nothing), `arm COUNT SEED` (cut when that many have been), `cut SEED` (now). A cut
writes what is left of the disk to STATE and says `cut`; from then on every operation fails.
"""

import errno
import os
import pickle
import stat
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import mfusepy

from tests.crash.disk import PAGE, ROOT, Change, Disk, File, Folder


def changes(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation that counts, and before which the power may go."""

    @wraps(operation)
    def counted(self: "PowerFs", *args: Any) -> Any:
        with self.guard:
            self.tick()
            return operation(self, *args)

    return counted


def looks(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation that changes nothing."""

    @wraps(operation)
    def locked(self: "PowerFs", *args: Any) -> Any:
        with self.guard:
            self.alive()
            return operation(self, *args)

    return locked


class PowerFs(mfusepy.Operations):  # type: ignore[misc]
    """The disk as the kernel sees it; errors are raised as OSError with their number."""

    use_ns = True

    def __init__(self, disk: Disk, state: Path) -> None:
        self.disk, self.guard = disk, threading.RLock()
        self._state = state
        self._open: dict[int, int] = {}
        self._handle = 0
        self.count = 0
        self.ignore = self.dead = False
        self.armed: tuple[int, int] | None = None

    # --- power

    def alive(self) -> None:
        """Fail once the power is gone."""
        if self.dead:
            raise mfusepy.FuseOSError(errno.EIO)

    def tick(self) -> None:
        """Count an operation, unless the power goes before it."""
        if not self.dead and self.armed and self.count >= self.armed[0]:
            self.cut(self.armed[1])
        self.alive()
        self.count += 1

    def cut(self, seed: int) -> None:
        """Keep what survives, and nothing works any more."""
        if not self.dead:
            self.dead = True
            self.disk.survive(seed)
            self._state.write_bytes(pickle.dumps(self.disk))
            say("cut")

    # --- names

    def _find(self, path: str) -> int:
        inode = ROOT
        for name in path.strip("/").split("/") if path != "/" else ():
            try:
                inode = self.disk.folder(inode).live[name]
            except KeyError:
                raise mfusepy.FuseOSError(errno.ENOENT) from None
            except NotADirectoryError:
                raise mfusepy.FuseOSError(errno.ENOTDIR) from None
        return inode

    def _place(self, path: str) -> tuple[int, str]:
        above, _, name = path.rpartition("/")
        return self._find(above or "/"), name

    def _handle_of(self, inode: int) -> int:
        self._handle += 1
        self._open[self._handle] = inode
        return self._handle

    def _inode(self, path: str | None, handle: int | None) -> int:
        return self._open[handle] if handle in self._open else self._find(path or "/")

    @looks
    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        inode = self._inode(path, fh)
        node = self.disk.nodes[inode]
        links = sum(list(folder.live.values()).count(inode) for folder in self.disk.nodes.values() if isinstance(folder, Folder))
        size = len(node.live) if isinstance(node, File) else PAGE
        times = dict.fromkeys(("st_atime", "st_mtime", "st_ctime"), node.mtime)
        return {"st_ino": inode, "st_mode": self._kind(inode) | node.mode, "st_nlink": max(links, 1), "st_size": size, "st_blocks": (size + 511) // 512, **times}

    @looks
    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
        names = {".": ROOT, "..": ROOT} | self.disk.folder(self._find(path)).live
        return [(name, {"st_ino": inode, "st_mode": self._kind(inode)}, 0) for name, inode in names.items()]

    def _kind(self, inode: int) -> int:
        return stat.S_IFREG if isinstance(self.disk.nodes[inode], File) else stat.S_IFDIR

    @looks
    def opendir(self, path: str) -> int:
        return self._handle_of(self._find(path))

    @changes
    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return self._handle_of(self.disk.make(File(mode=stat.S_IMODE(mode)), self._place(path)))

    @changes
    def mkdir(self, path: str, mode: int) -> int:
        self.disk.make(Folder(mode=stat.S_IMODE(mode)), self._place(path))
        return 0

    @changes
    def link(self, target: str, source: str) -> int:
        self.disk.change(Change(self._find(source), gets=self._place(target)))
        return 0

    @changes
    def unlink(self, path: str) -> int:
        self.disk.change(Change(self._find(path), loses=self._place(path)))
        return 0

    @changes
    def rmdir(self, path: str) -> int:
        if self.disk.folder(self._find(path)).live:
            raise mfusepy.FuseOSError(errno.ENOTEMPTY)
        self.disk.change(Change(self._find(path), loses=self._place(path)))
        return 0

    @changes
    def rename(self, old: str, new: str) -> int:
        above, name = self._place(new)
        target = self.disk.folder(above).live.get(name)
        node = self.disk.nodes.get(target) if target is not None else None
        if isinstance(node, Folder) and node.live:
            raise mfusepy.FuseOSError(errno.ENOTEMPTY)
        if target != self._find(old):
            self.disk.change(Change(self._find(old), loses=self._place(old), gets=(above, name)))
        return 0

    # --- bytes

    @looks
    def open(self, path: str, flags: int) -> int:
        inode = self._find(path)
        if flags & os.O_TRUNC:
            self.tick()
            self.disk.file(inode).resize(0)
        return self._handle_of(inode)

    @looks
    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return bytes(self.disk.file(self._inode(path, fh)).live[offset : offset + size])

    @changes
    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self.disk.write(self._inode(path, fh), offset, data)
        return len(data)

    @changes
    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        self.disk.file(self._inode(path, fh)).resize(length)
        return 0

    @changes
    def fsync(self, path: str, datasync: int, fh: int) -> int:
        if not self.ignore:
            self.disk.sync(self._inode(path, fh))
        return 0

    fsyncdir = fsync

    @looks
    def release(self, path: str, fh: int) -> int:
        self._open.pop(fh, None)
        return 0

    releasedir = release

    @looks
    def chmod(self, path: str, mode: int) -> int:
        self.disk.nodes[self._find(path)].mode = stat.S_IMODE(mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        return 0

    @looks
    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        self.disk.nodes[self._find(path)].mtime = times[1] if times else time.time_ns()
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        return {"f_bsize": PAGE, "f_frsize": PAGE, "f_blocks": 1 << 20, "f_bfree": 1 << 19, "f_bavail": 1 << 19, "f_namemax": 255}

    def init(self, path: str) -> None:
        say("ready")

    def command(self, line: str) -> None:
        """Do what a line of standard input says."""
        word, *numbers = line.split()
        with self.guard:
            match word, [int(number) for number in numbers]:
                case "count", []:
                    say(str(self.count))
                case "settle", []:
                    self.disk.settle()
                    say("settled")
                case "ignore", []:
                    self.ignore = True
                    say("ignoring")
                case "arm", [count, seed]:
                    self.armed = self.count + count, seed
                    say("armed")
                case "cut", [seed]:
                    self.cut(seed)


def say(word: str) -> None:
    """One line to whoever started this."""
    os.write(1, f"{word}\n".encode())


def main(mount: str, state: str) -> None:
    """Serve until the input ends; then go at once: whoever still has a file open here gets errors."""
    served = PowerFs(pickle.loads(Path(state).read_bytes()), Path(state))

    def obey() -> None:
        for line in sys.stdin:
            served.command(line)
        os._exit(0)

    threading.Thread(target=obey, daemon=True).start()
    options = {"attr_timeout": 3600, "entry_timeout": 3600, "use_ino": True, "hard_remove": True, "kernel_cache": True}
    large = {"big_writes": True} if mfusepy.fuse_version_major == 2 else {}
    mfusepy.FUSE(served, mount, foreground=True, nothreads=True, fsname="powerfs", **options, **large)


if __name__ == "__main__":
    main(*sys.argv[1:])
