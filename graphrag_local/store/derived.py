"""What questions derive from a generation's tables, kept beside them as plain arrays and mapped into memory: derived once, opened in milliseconds.

    generations/000007-…/retrieval/links.arrays      one file per part

A file is the SHA-256 of all that follows it, a line about its arrays, and the arrays themselves, uncompressed, as they lie in memory. That line holds the
key: the digest of the tables that the part was made from, of the form in which it was made, and of the program and the Unicode tables that made it. A file
with another key, or with another checksum, is not read: what it held is made anew from the tables, and the file is replaced where the index can be written.

These files are in no manifest and no digest, since a generation is the same without them, and one that was published without them is given them by its
first reader. They hold words of documents, and go with the generation; since a file whose key and checksum are right is a function of the generation's
tables, a search through the tables is one through it.
"""

import hashlib
import json
import mmap
import os
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

import graphrag_local
from graphrag_local.ids import digest_of
from graphrag_local.store import stamps
from graphrag_local.store.files import link_or_copy, sync_folder
from graphrag_local.store.manifest import TableEntry

FOLDER: Final = "retrieval"
SUFFIX: Final = ".arrays"
_FORMAT: Final = 1
_SUM: Final = 64  # hex digits
_ALIGN: Final = 64
_HEAD: Final = 1 << 16  # bytes that a head has at most
_BY: Final = f"{graphrag_local.__version__}, Unicode {unicodedata.unidata_version}"

Arrays = Mapping[str, npt.NDArray[Any]]
Tables = Mapping[str, TableEntry]


class Part(Protocol):
    """One file: its name, the tables it is made from, and how. `form` is another whenever `make` gives other arrays."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def of(self) -> tuple[str, ...]:
        """Names of tables."""

    @property
    def form(self) -> str:
        """The form of its arrays."""

    @property
    def make(self) -> Callable[[Any], Arrays]:
        """What makes the arrays of the records."""


def _key(of: Iterable[str], form: str, by: str, tables: Tables) -> str:
    return digest_of(str(_FORMAT), by, form, *(f"{name} {tables[name].digest}" for name in of))


def key_of(part: Part, tables: Tables) -> str:
    """The key of a part that is made here and now from these tables; "" where one of them is not there."""
    return _key(part.of, part.form, _BY, tables) if all(name in tables for name in part.of) else ""


def place_of(folder: Path, name: str) -> Path:
    """The file of a part in a generation's folder."""
    return folder / FOLDER / f"{name}{SUFFIX}"


def is_derived(path: Path) -> bool:
    """Whether a path inside a generation's folder (relative to it) is that of such a file."""
    return len(path.parts) == 2 and path.parts[0] == FOLDER and path.suffix == SUFFIX


def write(path: Path, part: Part, tables: Tables, arrays: Arrays) -> None:
    """Write a part in one step: its bytes are synced before it has its name. Raises OSError."""
    path.parent.mkdir(exist_ok=True)
    clear(path.parent.parent)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    about, at = {}, 0
    for name, array in arrays.items():
        about[name] = [array.dtype.str, list(array.shape), at]
        at += -(-array.nbytes // _ALIGN) * _ALIGN
    head = {"key": key_of(part, tables), "by": _BY, "form": part.form, "of": part.of, "arrays": about}
    line = json.dumps(head).encode()
    line += b" " * (-(_SUM + 2 + len(line)) % _ALIGN) + b"\n"
    file = beside.open("xb")  # two threads of a process that make the same part: the second finds the name taken, and leaves it
    try:
        with file:
            digest = hashlib.sha256()
            file.write(b"0" * _SUM)
            for piece in (b"\n", line, *(piece for array in arrays.values() for piece in _pieces(array))):
                digest.update(piece)
                file.write(piece)
            file.seek(0)
            file.write(digest.hexdigest().encode())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _pieces(array: npt.NDArray[Any]) -> Iterable[memoryview | bytes]:
    if array.nbytes:
        yield np.ascontiguousarray(array).reshape(-1).data.cast("B")
        yield bytes(-array.nbytes % _ALIGN)


def clear(folder: Path) -> None:
    """Remove what processes that were killed while they wrote into a generation's folder have left there."""
    for left in (folder / FOLDER).glob(f".*{SUFFIX}.*"):
        if not stamps.runs(left.name.rpartition(".")[2]):
            left.unlink(missing_ok=True)


def read(path: Path, part: Part, tables: Tables, known: dict[str, str]) -> Arrays | None:
    """The arrays of a part, mapped into memory; None where they are not there, of another key or not as they were written.

    Files in `known` (see `stamps`) are not hashed; sound ones are added to it.
    """
    if problem_of(path, tables, known, key_of(part, tables)):
        return None
    with path.open("rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    head, start = _head(mapped)
    return {name: _array(mapped, start, *about) for name, about in head["arrays"].items()}


def _array(mapped: memoryview, start: int, kind: str, shape: Sequence[int], at: int) -> npt.NDArray[Any]:
    size = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(mapped, kind, size, start + at).reshape(shape) if size else np.zeros(shape, kind)


def _head(content: memoryview | bytes) -> tuple[dict[str, Any], int]:
    end = bytes(content[:_HEAD]).index(b"\n", _SUM + 1) + 1
    return json.loads(bytes(content[_SUM + 1 : end])), end


def problem_of(path: Path, tables: Tables, known: dict[str, str], key: str = "") -> str:
    """Why a file is not to be read, as a sentence, "" where it is; without a `key` any that was made from these tables will do, by whatever program."""
    try:
        stamp = stamps.identity(path)
        with path.open("rb") as file:
            said = file.read(_SUM).decode("ascii", "replace")
            if known.get(stamp) != said:
                if hashlib.file_digest(file, "sha256").hexdigest() != said:
                    return f"{path} was altered: its content is not what was written. What it holds is derived, and is made anew by the next question."
                known[stamp] = said
            file.seek(0)
            head, _ = _head(file.read(_HEAD))
        sound = all(name in tables for name in head["of"]) and head["key"] == _key(head["of"], head["form"], head["by"], tables)
    except FileNotFoundError:
        return f"{path} is missing."
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}."
    except (ValueError, LookupError, TypeError):  # altered under an unchanged stamp
        return f"{path} cannot be read: its head is damaged."
    return "" if sound and key in ("", head["key"]) else f"{path} was made from other tables than those beside it, or in another way; it is not used."


def problems(folder: Path, tables: Tables, known: dict[str, str]) -> list[str]:
    """What is wrong with the files of a generation's folder, a sentence each."""
    paths = sorted((folder / FOLDER).glob(f"*{SUFFIX}")) if (folder / FOLDER).is_dir() else []
    return [problem for path in paths if (problem := problem_of(path, tables, known))]


def take(part: Part, folder: Path, tables: Tables, source: Path, before: Tables, known: dict[str, str]) -> bool:
    """Give the part of another generation (its folder and tables) a second name in `folder`, where it is sound and would be the same; True when it was."""
    key = key_of(part, tables)
    old, new = place_of(source, part.name), place_of(folder, part.name)
    if not key or key_of(part, before) != key or problem_of(old, before, known, key):
        return False
    new.parent.mkdir(exist_ok=True)
    link_or_copy(old, new)
    return True
