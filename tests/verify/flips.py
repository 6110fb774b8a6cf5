"""Single flipped bits in every kind of file of an index: what they change, and whether the verification finds it.

A flip is made in place under the file's old time, tried, and taken back. What it changes is read past all checks, the way somebody would who trusts the
files. LanceDB is given altered bytes in a process of its own (`python -m tests.verify.flips`), because it may end that process.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphrag_local.errors import GraphragError
from graphrag_local.ids import digest_of
from graphrag_local.project import ProjectFolder
from graphrag_local.status import status_of
from graphrag_local.store import stamps
from graphrag_local.store.files import files_under, sha256_of
from graphrag_local.store.forgotten import read_forgotten, unfinished
from graphrag_local.store.generations import generation_ids, open_current
from graphrag_local.store.lance import Tables, folder_name
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.manifest import read_manifest
from graphrag_local.store.tables import TABLES, VECTOR_TABLES
from graphrag_local.verify.index import damages

ROOT = Path(__file__).parents[2]
PAGE = 4096  # SQLite's
HEAD = 128  # bytes at the beginning of a page in which half of the ledger's flips are made: headers and pointers are few among many bytes
UNREADABLE = "cannot be read"
SHARES = {
    "ledger": 40, "table data": 22, "derived": 8, "table versions": 8, "table transactions": 8, "manifest": 6, "CURRENT": 4, "forgotten list": 4,
    "begun forget": 4, "standing": 4, "receipt": 4, "trace": 3, "stamps": 4, "run log": 6, "run state": 6,
}  # fmt: skip
PUBLISHED = ("ledger", "table data", "derived", "table versions", "table transactions", "table indices", "manifest", "CURRENT")
KEPT = ("forgotten list", "begun forget", "standing", "receipt", "trace")
FOUND = (*PUBLISHED, *KEPT)
# What is in none of these cannot do harm: stamps only spare the hashing of a file whose checksum they name together with what it is on the disk, and one bit
# makes of a pair no other that is right; they are never believed by the verification, which writes them anew. What is known of a model server has a checksum, and is
# asked anew where it is wrong. Logs and the lock hold no content.


@dataclass(frozen=True, slots=True)
class Flip:
    """One bit of one file."""

    kind: str
    path: Path
    byte: int
    bit: int


@dataclass(slots=True)
class Tally:
    """What the flips of one kind of file did."""

    flips: int = 0
    changed: int = 0
    found: int = 0
    needless: int = 0  # found, although nothing reads differently: checksums do not ask
    missed: list[Flip] = field(default_factory=list)
    raised: list[tuple[Flip, str]] = field(default_factory=list)


def kind_of(path: Path) -> str:
    """What kind of file a path of an index is."""
    match path.parts:
        case ("ledger.sqlite",):
            return "ledger"
        case ("CURRENT",):
            return "CURRENT"
        case ("forgotten.jsonl",):
            return "forgotten list"
        case ("forgetting.json",):
            return "begun forget"
        case ("standing.json",):
            return "standing"
        case ("receipts", _):
            return "receipt"
        case ("traces", _):
            return "trace"
        case ("run", "verified.json"):
            return "stamps"
        case ("generations", _, "manifest.json"):
            return "manifest"
        case ("generations", _, "retrieval", _):
            return "derived"
        case ("generations", _, _, inner, *_):
            return {"data": "table data", "_versions": "table versions", "_transactions": "table transactions"}.get(inner, "table indices")
        case ("runs", *_):
            return "run log"
        case _:
            return "run state"


def chosen(index: Path, count: int, seed: int) -> list[Flip]:
    """Random flips, each kind of file that is there with its share of them."""
    chance = random.Random(seed)
    files: dict[str, list[Path]] = {}
    for path in files_under(index):
        if (index / path).stat().st_size and not path.name.startswith("ledger.sqlite-"):
            files.setdefault(kind_of(path), []).append(path)
    kinds = {kind: SHARES.get(kind, 5) for kind in sorted(files)}
    flips = []
    for kind, share in kinds.items():
        for number in range(max(1, round(count * share / sum(kinds.values())))):
            path = chance.choice(files[kind])
            size = (index / path).stat().st_size
            byte = chance.randrange(size)
            if kind == "ledger" and number % 2:
                byte = min(byte // PAGE * PAGE + chance.randrange(HEAD), size - 1)
            flips.append(Flip(kind, path, byte, chance.randrange(8)))
    return flips


@contextmanager
def flipped(index: Path, flip: Flip) -> Iterator[None]:
    """The bit is the other way round for as long as the context lasts; size and time of the file stay."""
    path = index / flip.path
    good, times = path.read_bytes(), path.stat()
    bad = bytearray(good)
    bad[flip.byte] ^= 1 << flip.bit
    _overwrite(path, bytes(bad), times)
    try:
        yield
    finally:
        if flip.kind == "ledger":
            for name in ("ledger.sqlite-wal", "ledger.sqlite-shm"):
                (index / name).unlink(missing_ok=True)
        _overwrite(path, good, times)


def _overwrite(path: Path, content: bytes, times: os.stat_result) -> None:
    with path.open("r+b") as file:  # the same file, whatever other names it has
        file.write(content)
        file.truncate()
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


# --- what there is to read


def table_part(index: Path, generation: str, name: str) -> str:
    """The digest of what a table of a generation says, whatever its checksums say."""
    folder = index / "generations" / generation
    try:
        version = json.loads((folder / "manifest.json").read_bytes())["tables"][name]["version"]
        tables = Tables(folder, {name: version})
        said = [repr(tables.records(TABLES[name]))]
        if name in VECTOR_TABLES.values():
            vectors = tables.vectors(TABLES[name])
            said += [repr((vectors.ids, vectors.texts)), repr(vectors.matrix.tolist())]
        return digest_of(*said)
    except GraphragError:
        return UNREADABLE


def ledger_part(path: Path, keys: list[str], hashes: dict[str, list[str]]) -> str:
    """The digest of what a ledger says of these replies and vectors."""
    try:
        with Ledger.open(path) as ledger:
            rows = [ledger.get(key) for key in keys]
            vectors = [sorted(ledger.get_vectors(embedder, texts).items()) for embedder, texts in hashes.items()]
            return digest_of(repr(rows), repr(vectors), repr(sorted(ledger.counts().items())))
    except Exception:  # noqa: BLE001 - reading differently is all that counts here
        return UNREADABLE


def believed_wrongly(index: Path) -> list[str]:
    """The published files that would be taken for sound by their stamps alone, and are not."""
    stamped, wrong = stamps.load(index), []
    for id_ in generation_ids(index):
        for entry in read_manifest(index / "generations" / id_).files:
            path = index / "generations" / id_ / entry.path
            if stamped.get(stamps.identity(path)) == entry.sha256 and sha256_of(path) != entry.sha256:
                wrong.append(str(path))
    return wrong


class Reading:
    """Reads one part of an index at a time, tables in a process of its own."""

    def __init__(self, project: ProjectFolder, scratch: Path) -> None:
        self.project, self.index, self.scratch = project, project.index, scratch
        self._process: subprocess.Popen[str] | None = None
        with Ledger.open(self.index / "ledger.sqlite") as ledger:
            read = ledger._reader.execute
            self.keys = [key for (key,) in read("SELECT key FROM replies ORDER BY key").fetchall()]
            self.hashes: dict[str, list[str]] = {}
            for embedder, text in read("SELECT embedder, text_hash FROM vectors ORDER BY embedder, text_hash").fetchall():
                self.hashes.setdefault(embedder, []).append(text)

    def part(self, path: Path) -> str:
        """What the part of the index that a file belongs to says."""
        match kind_of(path):
            case "CURRENT":
                return (self.index / path).read_bytes().decode("latin-1").strip()
            case "manifest" | "receipt" | "standing" | "trace":
                try:
                    return json.dumps(json.loads((self.index / path).read_bytes()), sort_keys=True)
                except ValueError:
                    return UNREADABLE
            case "derived":
                return digest_of((self.index / path).read_bytes())  # every bit of it is read as it is
            case "forgotten list" | "begun forget" as kind:
                try:
                    return repr((read_forgotten if kind == "forgotten list" else unfinished)(self.index))
                except GraphragError:
                    return UNREADABLE
            case "stamps":
                return repr(believed_wrongly(self.index))
            case "ledger":
                copy = self.scratch / "ledger.sqlite"
                for old in self.scratch.glob("ledger.sqlite*"):
                    old.unlink()
                shutil.copyfile(self.index / path, copy)
                return ledger_part(copy, self.keys, self.hashes)
            case "run log" | "run state":
                return ""
        return self._table(path.parts[1], next(name for name in TABLES if folder_name(name) == path.parts[2]))

    def _table(self, generation: str, name: str) -> str:
        if self._process is None:
            command = [sys.executable, "-W", "ignore", "-m", "tests.verify.flips"]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            self._process = subprocess.Popen(command, text=True, cwd=ROOT, **pipes)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(self.index), generation, name]) + "\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline().strip()
        if not said:
            self.close()
        return said or UNREADABLE

    def close(self) -> None:
        """End the other process."""
        if self._process is not None:
            with self._process as process:
                process.kill()
            self._process = None


def try_flips(project: ProjectFolder, flips: list[Flip], scratch: Path) -> dict[str, Tally]:
    """Make each flip, read what it changes, verify, and take it back; by kind of file."""
    reading, tallies = Reading(project, scratch), dict[str, Tally]()
    before: dict[str, str] = {}
    try:
        for flip in flips:
            tally = tallies.setdefault(flip.kind, Tally())
            name = str(flip.path)
            if name not in before:
                before[name] = reading.part(flip.path)
            with flipped(project.index, flip):
                changed = reading.part(flip.path) != before[name]
                found = _found(project, flip, tally)
            tally.flips += 1
            tally.changed += changed
            tally.found += found
            tally.needless += found and not changed
            tally.missed += [flip] if changed and not found else []
    finally:
        reading.close()
    return tallies


def _found(project: ProjectFolder, flip: Flip, tally: Tally) -> bool:
    try:
        if flip.kind not in FOUND:
            status_of(project)
            with open_current(project.index):
                pass
        return bool(damages(project.index))
    except Exception as error:  # noqa: BLE001 - that nothing comes through is what is tried
        tally.raised.append((flip, repr(error)))
        return False


def main() -> None:
    """Answer requests for tables on standard input, a line each."""
    for line in sys.stdin:
        index, generation, name = json.loads(line)
        try:
            said = table_part(Path(index), generation, name)
        except Exception:  # noqa: BLE001
            said = "raised"
        sys.stdout.write(said + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
