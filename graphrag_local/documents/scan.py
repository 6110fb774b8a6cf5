"""Which files there are, without reading any: regular files inside the input folder, in a fixed order.

Names that begin with a dot and the temporary files of editors are passed over silently. So are links to what is in the
collection anyway; a link to another place inside the folder is followed once. Everything else that is not read is a `Failed` row.
"""

import os
import re
import stat
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from graphrag_local.documents.formats import never_read
from graphrag_local.documents.parsed import MB
from graphrag_local.errors import CollectionMissing
from graphrag_local.ids import document_id
from graphrag_local.records import Failed
from graphrag_local.settings import DocumentsSettings

STAGE = "documents"
_SILENT = re.compile(r"\..*|~\$.*|.*~|#.*#|.*\.(?:swp|swo|part|crdownload)|Thumbs\.db|desktop\.ini", re.IGNORECASE | re.DOTALL)
_SPECIAL = ((stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A file of the collection: its identity, where it really is, its size in bytes and its time of change in nanoseconds."""

    path: str
    absolute: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The files to read and the entries that cannot be, both sorted by path; a folder that cannot be listed ends with a slash."""

    found: tuple[Found, ...]
    failures: tuple[Failed, ...]


def failed(path: str, reason: str, *, where: str = "", retryable: bool = False) -> Failed:
    """The row for a file (or one record of it, `where`) that is not read."""
    shown = f"{path} {where}".rstrip()
    return Failed(stage=STAGE, input_id=document_id(shown), input=shown, reason=reason, retryable=retryable)


def scan(root: Path, settings: DocumentsSettings) -> Scan:
    """List the collection. Raises CollectionMissing when its folder is not there."""
    hint = "Create the folder, mount it, or point documents.input at your collection."
    try:
        top = os.path.realpath(root, strict=True)
        os.scandir(top).close()
    except OSError as error:
        raise CollectionMissing(f"The input folder {str(root)!r} cannot be read ({error.strerror}).", hint=hint) from error
    walk = _Walk(top=top, settings=settings)
    walk.folder(top, "")
    while walk.links:
        walk.links.sort()
        walk.follow(*walk.links.pop(0))
    found: dict[str, Found] = {}
    # Of two names that normalise to one path the one that is normalised already is read, else the first in order of its bytes.
    for name, entry in sorted(walk.files, key=lambda pair: (pair[1].path, pair[0] != pair[1].path, os.fsencode(pair[0]))):
        if entry.path in found:
            reason = f"has the same name as {entry.path!r} after Unicode normalisation; rename one of them"
            walk.failures.append(failed(_shown(ascii(name)[1:-1]), reason))
        else:
            found[entry.path] = entry
    return Scan(found=tuple(found[path] for path in sorted(found)), failures=tuple(sorted(walk.failures, key=lambda row: row.input)))


@dataclass(slots=True, kw_only=True)
class _Walk:
    """The state of one scan: what was seen so far and which links wait (they come last, so that real names win)."""

    top: str
    settings: DocumentsSettings
    files: list[tuple[str, Found]] = field(default_factory=list)
    failures: list[Failed] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def folder(self, folder: str, prefix: str) -> None:
        """List a real folder and all below it; `prefix` is its path with a slash."""
        waiting = [(folder, prefix)]
        while waiting:
            folder, prefix = waiting.pop()
            if folder in self.seen:
                continue
            self.seen.add(folder)
            try:
                with os.scandir(folder) as entries:
                    below = [(entry, f"{prefix}{entry.name}") for entry in entries if not _SILENT.fullmatch(entry.name)]
            except OSError as error:
                self.failures.append(failed(_shown(prefix), f"cannot be listed ({error.strerror})", retryable=True))
                continue
            for entry, name in below:
                if self._left_out(name):
                    continue
                if entry.is_symlink():
                    self.links.append((name, entry.path))
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, f"{name}/"))
                else:
                    self.file(entry.path, name)

    def follow(self, name: str, path: str) -> None:
        """Take what a link leads to, if it is inside the folder and not there already."""
        try:
            target = os.path.realpath(path, strict=True)
        except OSError as error:
            self.failures.append(failed(_shown(name), f"is a link that leads nowhere ({error.strerror})"))
            return
        if target != self.top and not target.startswith(self.top.rstrip("/") + "/"):
            self.failures.append(failed(_shown(name), "is a link that leads out of the input folder; copy what it points to"))
        elif target not in self.seen and os.path.isdir(target):  # noqa: PTH112 - a string is at hand
            self.folder(target, f"{name}/")
        elif target not in self.seen:
            self.file(target, name)

    def file(self, absolute: str, name: str) -> None:
        """Take a file, or say why not; nothing is opened, so a pipe cannot block."""
        self.seen.add(absolute)
        if self.settings.include and not matches(self.settings.include, name):
            return
        try:
            status = os.lstat(absolute)
        except OSError as error:
            self.failures.append(failed(_shown(name), f"cannot be looked at ({error.strerror})", retryable=True))
            return
        special = next((what for test, what in _SPECIAL if test(status.st_mode)), "")
        if special or not stat.S_ISREG(status.st_mode):
            self.failures.append(failed(_shown(name), f"is {special or 'something else'}, not a regular file"))
        elif reason := _bad_name(name) or never_read(name):
            self.failures.append(failed(_shown(name), reason))
        elif status.st_size > self.settings.max_file_mb * MB:
            limit = self.settings.max_file_mb
            self.failures.append(failed(_shown(name), f"is {status.st_size / MB:.1f} MB large, over the {limit} MB of documents.max_file_mb"))
        else:
            path = unicodedata.normalize("NFC", name)
            self.files.append((name, Found(path=path, absolute=absolute, size=status.st_size, mtime_ns=status.st_mtime_ns)))

    def _left_out(self, name: str) -> bool:
        return bool(self.settings.exclude) and matches(self.settings.exclude, name)


def _bad_name(name: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in name):
        return "has a name that is not UTF-8; rename it"
    if any(unicodedata.category(character) == "Cc" for character in name):
        return "has a control character in its name; rename it"
    return ""


def _shown(name: str) -> str:
    """A name as it can be stored and printed: NFC, with escapes for what is not text."""
    name = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(ascii(c)[1:-1] if unicodedata.category(c) == "Cc" else c for c in unicodedata.normalize("NFC", name))


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Whether one of these globs (see `_glob`) means the file of this name, relative to the input folder."""
    path = unicodedata.normalize("NFC", name)
    return any(_glob(pattern).fullmatch(path) for pattern in patterns)


@lru_cache(maxsize=256)
def _glob(pattern: str) -> re.Pattern[str]:
    """A glob as people write it: without a slash it means a name anywhere, `**` any folders, and a folder means all in it."""
    text = unicodedata.normalize("NFC", pattern).removeprefix("./").strip("/")
    tokens = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", text)
    body = "".join(tokens.get(part, re.escape(part)) for part in parts)
    return re.compile(("" if "/" in text else "(?:.*/)?") + body + "(?:/.*)?", re.DOTALL)
