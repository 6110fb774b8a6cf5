"""What a disk holds, and what of it is left when the power goes: a model of files and folders in memory.

Every file has its bytes as programs see them and as they are on the platter; every folder its names likewise. A sync of a file makes its bytes and its
size durable, and not its name; a sync of a folder makes its names durable, and nothing else. Of all else the power cut keeps some and loses some: each
page of 4 KiB by itself (a page that a size covers and that never came reads as zeros), of the sizes since the last sync any, and of creations,
links, removals and renames each by itself. A rename happens whole or not at all, whichever folders it touches. That is as harsh as POSIX allows; the
journals of ext4 and xfs would keep names in order.
"""

import random
import time
from dataclasses import dataclass, field

PAGE = 4096
ROOT = 1
WRITEBACK = 0.02  # chance per write that the kernel writes some page by itself
KEPT = (0.0, 0.3, 0.7, 1.0)  # of what is not synced, a cut keeps one of these shares, of pages and of names each


@dataclass(slots=True)
class File:
    """Bytes; `dirty` are the pages that differ from `durable`, `sizes` those it had since the last sync, the durable one first."""

    live: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)
    sizes: list[int] = field(default_factory=lambda: [0])
    mode: int = 0o644
    mtime: int = 0

    def write(self, at: int, data: bytes) -> None:
        """Bytes at an offset; a gap before them reads as zeros."""
        if at > len(self.live):
            self.resize(at)
        self.live[at : at + len(data)] = data
        self._touched(at, at + len(data))

    def resize(self, size: int) -> None:
        """Cut off, or lengthen with zeros."""
        before = len(self.live)
        if size < before:
            del self.live[size:]
        else:
            self.live.extend(bytes(size - before))
        self._touched(min(size, before), max(size, before))

    def _touched(self, start: int, end: int) -> None:
        self.dirty |= set(range(start // PAGE, (end + PAGE - 1) // PAGE))
        self.mtime = time.time_ns()
        if self.sizes[-1] != len(self.live):
            self.sizes.append(len(self.live))

    def write_back(self, pages: set[int]) -> None:
        """Make pages durable, without a size."""
        for page in pages:
            start, end = page * PAGE, (page + 1) * PAGE
            if len(self.durable) < end:
                self.durable.extend(bytes(end - len(self.durable)))
            self.durable[start:end] = bytes(self.live[start:end]).ljust(PAGE, b"\0")
        self.dirty -= pages

    def sync(self) -> None:
        """Make all of it durable."""
        self.write_back(set(self.dirty))
        self.sizes = [len(self.live)]

    def survive(self, chance: random.Random, kept: float) -> None:
        """Become what a cut leaves."""
        self.write_back({page for page in sorted(self.dirty) if chance.random() < kept})
        size = chance.choice(self.sizes[1:]) if len(self.sizes) > 1 and chance.random() < kept else self.sizes[0]
        self.live = bytearray(self.durable[:size].ljust(size, b"\0"))
        self.durable = bytearray(self.live)
        self.dirty, self.sizes = set(), [size]


@dataclass(slots=True)
class Folder:
    """Names to inodes, as programs see them and as they are on the platter."""

    live: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)
    mode: int = 0o755
    mtime: int = field(default_factory=time.time_ns)


@dataclass(frozen=True, slots=True)
class Change:
    """One change of names, atomic: an inode loses a name (folder, name), gets one, or both."""

    inode: int
    loses: tuple[int, str] | None = None
    gets: tuple[int, str] | None = None


class Disk:
    """Files and folders by inode; `changes` are those of names that are not durable, oldest first."""

    def __init__(self, seed: int) -> None:
        self.nodes: dict[int, File | Folder] = {ROOT: Folder()}
        self.changes: list[Change] = []
        self._next = ROOT + 1
        self._chance = random.Random(seed)

    def folder(self, inode: int) -> Folder:
        """A folder by inode; NotADirectoryError for a file."""
        node = self.nodes[inode]
        if not isinstance(node, Folder):
            raise NotADirectoryError
        return node

    def file(self, inode: int) -> File:
        """A file by inode; IsADirectoryError for a folder."""
        node = self.nodes[inode]
        if not isinstance(node, File):
            raise IsADirectoryError
        return node

    def make(self, node: File | Folder, where: tuple[int, str]) -> int:
        """A new file or folder with a name."""
        inode, self._next = self._next, self._next + 1
        node.mtime = time.time_ns()
        self.nodes[inode] = node
        self.change(Change(inode, gets=where))
        return inode

    def change(self, change: Change) -> None:
        """Change names, for programs at once, on the platter some time."""
        self._apply(change, durable=False)
        self.changes.append(change)

    def write(self, inode: int, at: int, data: bytes) -> None:
        """Write into a file; now and then the kernel writes a page back by itself."""
        file = self.file(inode)
        file.write(at, data)
        if file.dirty and self._chance.random() < WRITEBACK:
            file.write_back({self._chance.choice(sorted(file.dirty))})

    def sync(self, inode: int) -> None:
        """What fsync promises: the bytes of a file, the names in a folder."""
        node = self.nodes[inode]
        if isinstance(node, File):
            node.sync()
            return
        for change in self.changes:
            if inode in {place[0] for place in (change.loses, change.gets) if place}:
                self._apply(change, durable=True)
        self.changes = [c for c in self.changes if inode not in {place[0] for place in (c.loses, c.gets) if place}]

    def settle(self) -> None:
        """Make everything durable."""
        for change in self.changes:
            self._apply(change, durable=True)
        self.changes = []
        for node in self.nodes.values():
            if isinstance(node, File):
                node.sync()

    def survive(self, seed: int) -> None:
        """Become what a power cut leaves."""
        chance = random.Random(seed)
        names, pages = chance.choice(KEPT), chance.choice(KEPT)
        for change in self.changes:
            if chance.random() < names:
                self._apply(change, durable=True)
        self.changes = []
        for node in self.nodes.values():
            if isinstance(node, File):
                node.survive(chance, pages)
            else:
                node.live = dict(node.durable)
        reached, todo = {ROOT}, [ROOT]
        while todo:
            node = self.nodes[todo.pop()]
            more = set(node.live.values()) - reached if isinstance(node, Folder) else set()
            reached |= more
            todo += sorted(more)
        self.nodes = {inode: self.nodes[inode] for inode in sorted(reached)}

    def _apply(self, change: Change, *, durable: bool) -> None:
        """A change of which an earlier one was lost takes a name away only where the name means this inode."""
        if change.loses:
            names = self._names(change.loses[0], durable)
            if names.get(change.loses[1]) == change.inode:
                del names[change.loses[1]]
        if change.gets:
            self._names(change.gets[0], durable)[change.gets[1]] = change.inode

    def _names(self, inode: int, durable: bool) -> dict[str, int]:
        folder = self.folder(inode)
        folder.mtime = time.time_ns()
        return folder.durable if durable else folder.live
