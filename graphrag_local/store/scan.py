"""The proof that something is gone: a search for strings in all that an index folder holds, read in every way it can be read.

Bytes alone prove nothing, since columns of tables are compressed, and texts of the ledger lie in pieces on several pages. So every version of
every table and every row of every database is decoded as well, and archives are unpacked. What is derived from tables has to be just that. What
cannot be decoded is reported as found, because nothing is known of it.
"""

import bz2
import gzip
import io
import lzma
import math
import os
import re
import sqlite3
import zipfile
import zlib
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

import numpy as np

from graphrag_local.errors import IndexCorrupt, IndexMismatch
from graphrag_local.store import derived, lance
from graphrag_local.store.files import storage
from graphrag_local.store.manifest import MANIFEST, read_manifest
from graphrag_local.store.needles import Column, Needles

_PIECE: Final = 1 << 20
_DEPTH: Final = 4  # archives inside archives
_BROKEN: Final = (OSError, EOFError, ValueError, RuntimeError, NotImplementedError, lzma.LZMAError, zlib.error, zipfile.BadZipFile)
_SQLITE: Final = b"SQLite format 3\0"
_LANCE: Final = ".lance"
_ENOUGH: Final = 1 << 30  # bytes that are read outside the index, unpacked ones included: some seconds, our choice
_KNOWN: Final = ("_versions", "_transactions", "_deletions")  # of a table's folder: names, numbers and no rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A string that is there, as it was given: in which file or table (POSIX path inside the index), and where in it ("" for its name).

    `string` is "" for what could not be decoded; `place` says why.
    """

    file: str
    place: str
    string: str


def scan(index: Path, strings: Collection[str]) -> list[Found]:
    """Every file, table and database below a folder (or in a file) in which one of the strings is, each place once; nothing is written.

    No ledger of this process may be open in the folder: closing a file drops the locks that SQLite has on it (ValueError). Raises StorageError.
    """
    with storage(index):
        paths = [index] if index.is_file() else sorted(index.rglob("*"))
        one = _Scan(Needles.of(strings))
        return [found for path in paths for found in one.at(path, path.name if path == index else path.relative_to(index).as_posix())]


def scan_around(folder: Path, strings: Collection[str], *, but: Collection[Path], enough: int = _ENOUGH) -> tuple[list[Found], list[str]]:
    """The same for a project folder without `but`, which may hold anything: what was found, and what was not searched, with the reason.

    Not searched are hidden folders, virtual environments, the models of the project, what cannot be read, and all that comes after `enough` bytes.
    """
    one, found, skipped = _Scan(Needles.of(strings), enough), list[Found](), list[str]()
    for path in _around(folder, but, folder / "models", skipped):
        name = path.relative_to(folder).as_posix()
        try:
            found += one.at(path, name)
        except OSError as error:
            skipped.append(f"{name} ({error.strerror})")
        if one.spent:
            return found, [*skipped, f"{name} from where {enough:,} bytes were read, and what comes after it"]
    return found, skipped


def _around(folder: Path, but: Collection[Path], models: Path, skipped: list[str]) -> Iterator[Path]:
    """What is below a folder and is to be searched, in the order of its names; links to folders are not followed."""
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        skipped.append(f"{folder.relative_to(models.parent).as_posix()}/ ({error.strerror})")
        return
    for path in paths:
        is_folder = path.is_dir() and not path.is_symlink()
        if path in but:
            continue
        if is_folder and (path.name.startswith(".") or path == models or (path / "pyvenv.cfg").exists()):
            skipped.append(f"{path.relative_to(models.parent).as_posix()}/")
            continue
        yield path
        if is_folder:
            yield from _around(path, but, models, skipped)


class _Scan:
    def __init__(self, needles: Needles, enough: float = math.inf) -> None:
        self._needles = needles
        self._left = enough
        self._known: dict[tuple[object, ...], list[tuple[str, str]]] = {}

    @property
    def spent(self) -> bool:
        """Whether as many bytes were read as are to be, or more."""
        return self._left < 0

    def at(self, path: Path, name: str) -> list[Found]:
        """Where the strings are in one file or table, and in its name."""
        places = [("", string) for string in self._needles.first(os.fsencode(name))]
        if path.is_file():
            places += self._once("file", [path], lambda: self._in_file(path))
            places += [(f"cannot be decoded: {problem}", "") for problem in _underived(path)]
        elif _is_table(path):
            places += self._once("table", sorted(path.rglob("*")), lambda: self._in_table(path))
        return [Found(file=name, place=place, string=string) for place, string in places]

    def _once(self, kind: str, paths: Sequence[Path], look: Callable[[], Iterable[tuple[str, str]]]) -> list[tuple[str, str]]:
        """What there is to find; looked for once where several names have the same files."""
        stats = [path.stat() for path in paths if path.is_file()]
        key = (kind, *((stat.st_dev, stat.st_ino) for stat in stats))
        if key not in self._known:
            self._known[key] = sorted(look())
        return self._known[key]

    def _in_file(self, path: Path) -> Iterator[tuple[str, str]]:
        if ".sqlite" in path.name and _is_open_here(path):
            raise ValueError(f"{path} is open in this process; close it before its folder is scanned")
        is_columns = path.suffix == _LANCE  # may begin with anything, also like an archive
        with path.open("rb") as file:
            start = yield from self._in_stream(file, "", _DEPTH if is_columns else 0)
        if start.startswith(_SQLITE):
            yield from self._in_database(path)

    def _in_stream(self, stream: IO[bytes], label: str, depth: int) -> Generator[tuple[str, str], None, bytes]:
        """Search the bytes of a stream, and those packed in it; gives back the first ones."""
        found: dict[str, int] = {}
        before, at, start = b"", 0, b""
        while not self.spent and (piece := stream.read(_PIECE)):
            self._left -= len(piece)
            start = start or piece[:16]
            data = before + piece
            for string, begin in self._needles.first(data).items():
                found.setdefault(string, at - len(before) + begin)
            at += len(piece)
            before = data[max(0, len(data) - self._needles.longest + 1) :]
        yield from ((f"{label}byte {begin}", string) for string, begin in found.items())
        if depth < _DEPTH and not self.spent:
            stream.seek(0)
            yield from self._in_archive(stream, start, label, depth + 1)
        return start

    def _in_archive(self, stream: IO[bytes], start: bytes, label: str, depth: int) -> Iterator[tuple[str, str]]:
        try:
            for name, inner in _unpacked(stream, start):
                yield from ((f"{label}name of a packed file", string) for string in self._needles.first(name.encode()))
                yield from self._in_stream(inner, f"{label}unpacked {name}, ", depth)
        except _BROKEN as error:
            yield f"{label}cannot be unpacked ({type(error).__name__})", ""

    def _in_table(self, folder: Path) -> Iterator[tuple[str, str]]:
        try:
            versions = lance.versions(folder)
            for version in versions:
                for column in lance.texts(folder, version):
                    yield from self._in_column(f"version {version}", column)
        except IndexCorrupt as error:
            yield f"cannot be decoded: {error}", ""
            return
        yield from ((reason, "") for reason in _hidden(folder, versions))

    def _in_database(self, path: Path) -> Iterator[tuple[str, str]]:
        try:
            for table, column in _rows(path):
                yield from self._in_column(f"table {table}", column)
        except sqlite3.Error as error:
            yield f"cannot be decoded: {error}", ""

    def _in_column(self, where: str, column: Column) -> Iterator[tuple[str, str]]:
        self._left -= len(column.data)
        if self.spent:
            return
        for string, row in self._needles.first_rows(column).items():
            yield f"{where}, column {column.name}, row {row}", string


def _underived(path: Path) -> Iterator[str]:
    """Why a file of what is derived from tables (see `derived`) may hold words that those do not: it holds texts as numbers of words, too."""
    if path.parent.name == derived.FOLDER and (path.parent.parent / MANIFEST).is_file():
        try:
            problem = derived.problem_of(path, read_manifest(path.parent.parent).tables, {})
        except (IndexCorrupt, IndexMismatch) as error:
            problem = str(error)
        if problem:
            yield problem


def _is_table(path: Path) -> bool:
    return (path / "_versions").is_dir()


def _hidden(folder: Path, versions: Sequence[int]) -> Iterator[str]:
    """Why the versions of a table may not show all rows that are in its files.

    A row that was written is whole in the version that wrote it: where all versions from the first one on are there, nothing is hidden but in
    files that none of them names.
    """
    if list(versions) != list(range(1, len(versions) + 1)):
        yield "cannot be decoded: older versions were removed, and rows deleted before may be in its files"
    manifests = b"".join(path.read_bytes() for path in sorted((folder / "_versions").iterdir()))
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and parts[0] not in _KNOWN and not (parts[0] == "data" and path.name.encode() in manifests):
            yield f"cannot be decoded: {'/'.join(parts)} belongs to no version of the table"


def _is_open_here(path: Path) -> bool:
    """Whether this process has the file open, where the system tells."""
    ours = path.stat()
    for descriptor in Path("/dev/fd").glob("*"):
        try:
            other = os.fstat(int(descriptor.name))
        except OSError:  # the descriptor of this very listing
            continue
        if (other.st_dev, other.st_ino) == (ours.st_dev, ours.st_ino):
            return True
    return False


def _rows(path: Path) -> Iterator[tuple[str, Column]]:
    """All texts and bytes in the rows of a database, thousands of rows at a time; what is in its log counts."""
    log = path.with_name(path.name + "-wal")
    mode = "mode=ro" if log.exists() and log.stat().st_size else "immutable=1"  # the latter makes no file beside it
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)) as database:
        database.text_factory = bytes
        names = [name.decode("utf-8", "replace") for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()]
        for table in ["sqlite_master", *names]:
            quoted = table.replace('"', '""')
            cursor = database.execute(f'SELECT * FROM "{quoted}"')  # noqa: S608 - a name of the database itself
            number = 0
            while rows := cursor.fetchmany(2000):
                for (column, *_), values in zip(cursor.description, zip(*rows, strict=True), strict=True):
                    pieces = [value if isinstance(value, bytes) else b"" for value in values]
                    ends = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
                    yield table, Column(name=column, data=b"".join(pieces), offsets=ends, rows=np.arange(number, number + len(rows)))
                number += len(rows)


def _unpacked(stream: IO[bytes], start: bytes) -> Iterator[tuple[str, IO[bytes]]]:
    """What is packed in a stream that begins like an archive: (name, content)."""
    if start.startswith(b"\x1f\x8b\x08"):
        yield "gzip", cast(IO[bytes], gzip.GzipFile(fileobj=stream, mode="rb"))
    elif re.match(rb"BZh[1-9]1AY&SY", start):
        yield "bzip2", bz2.BZ2File(stream)
    elif start.startswith(b"\xfd7zXZ\0"):
        yield "xz", lzma.LZMAFile(stream)  # noqa: SIM115 - the stream is its caller's
    elif start.startswith(b"\x28\xb5\x2f\xfd"):
        yield "zstd", io.BytesIO(lance.unzstd(stream))
    elif start.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(stream) as archive:
            for name in archive.namelist():
                yield name, archive.open(name)
