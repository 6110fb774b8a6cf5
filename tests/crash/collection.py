"""A collection that changes, and what an index of it must be, seen from outside."""

import random
import re
import shutil
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from graphrag_local.records import Chunk
from graphrag_local.store.files import files_under, make_folder, sync_tree
from graphrag_local.store.generations import generation_ids, verify
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.reading import StoredIndex
from tests.pipeline.running import told_as

PEOPLE = tuple(f"{first}{last}" for first in ("Ada", "Ben", "Cleo", "Dov", "Eli", "Fay") for last in "krstvz")
TABLES = ("documents", "chunks", "entities", "relationships", "claims", "communities", "reports", "mentions", "failures")
DOCUMENTS = 7
TIES = 9


@dataclass
class Collection:
    """Documents about a few dozen people; the same chance gives the same ones."""

    chance: random.Random
    files: dict[str, str] = field(default_factory=dict)
    _made: int = 0

    def begin(self) -> None:
        """The first documents."""
        for _ in range(DOCUMENTS):
            self._add()

    def change(self, but: str = "") -> None:
        """An edit in two documents, two documents more, and, where there are many, two less; nothing is done to the one of that name."""
        edited = self.chance.sample(sorted(set(self.files) - {but}), 2)
        for name in edited:
            lines = self.files[name].splitlines()
            lines[self.chance.randrange(len(lines))] = told_as([self._tie()]).strip()
            self.files[name] = "\n".join(lines) + "\n"
        for name in self.chance.sample(sorted(set(self.files) - {but, *edited}), 2 if len(self.files) > DOCUMENTS else 0):
            del self.files[name]
        self._add()
        self._add()

    def write_to(self, folder: Path) -> None:
        """Make an input folder hold exactly these documents, durably."""
        make_folder(folder)
        for path in folder.iterdir():
            if path.name not in self.files:
                path.unlink()
        for name, text in self.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        sync_tree(folder)

    def _add(self) -> None:
        self._made += 1
        ties = [self._tie() for _ in range(TIES)]
        self.files[f"note{self._made:03}.txt"] = told_as([*ties, (f"Hermit{self._made:03}", ties[0][0])])

    def _tie(self) -> tuple[str, str]:
        one, other = self.chance.sample(PEOPLE, 2)
        return one, other


def marks_of(name: str) -> tuple[str, str]:
    """What no other document says than the one of that name, as it stands and as the key of a name."""
    number = name.removeprefix("note").removesuffix(".txt")
    return f"Hermit{number}", f"hermit{number}"


def read_all(index: Path) -> tuple[str, str]:
    """Id and digest of the current generation, after opening it, hashing every file of every generation, and reading every table, vectors too."""
    assert verify(index) == []
    stored = StoredIndex.open(index)
    try:
        counts = {name: len(getattr(stored, name)()) for name in TABLES}
        expected = {name: entry["rows"] for name, entry in stored.manifest["tables"].items() if name in counts}
        assert counts == counts | expected
        near = stored.near("chunk", [1.0] * stored.manifest["dimension"], 3)
        assert len(near) == min(3, counts["chunks"])
        assert {id_ for id_, _ in near} <= {chunk.id for chunk in stored.chunks() if isinstance(chunk, Chunk)}
        return stored.generation, stored.manifest["digest"]
    finally:
        stored.close()


@dataclass(frozen=True, slots=True)
class Kept:
    """What a ledger holds: keys of replies, `vector EMBEDDER HASH` for vectors; and the names of what it notes about itself."""

    keys: frozenset[str] = frozenset()
    notes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, index: Path) -> "Kept":
        """What the ledger of an index holds and reads without a problem; looked at in a copy, so that the next build finds it as it was left."""
        if not (index / "ledger.sqlite").exists():
            return cls()
        with tempfile.TemporaryDirectory() as folder:
            for path in index.glob("ledger.sqlite*"):
                if not path.name.endswith("-shm"):
                    shutil.copyfile(path, Path(folder) / path.name)
            ledger = Path(folder) / "ledger.sqlite"
            with Ledger.open(ledger) as opened:
                assert opened.verify() == []
            with closing(sqlite3.connect(ledger)) as connection:
                replies = {key for (key,) in connection.execute("SELECT key FROM replies")}
                vectors = {f"vector {embedder} {hash_}" for embedder, hash_ in connection.execute("SELECT embedder, text_hash FROM vectors")}
                notes = {name for (name,) in connection.execute("SELECT name FROM meta")}
        return cls(frozenset(replies | vectors), frozenset(notes))


def differences(kept: Kept, other: Kept) -> dict[str, int]:
    """What two ledgers do not have in common, counted."""
    pairs = {
        "more": kept.keys - other.keys, "missing": other.keys - kept.keys, "notes more": kept.notes - other.notes, "notes missing": other.notes - kept.notes,
    }  # fmt: skip
    counted = {
        f"{name}, {kind}": sum(key.startswith("vector") is (kind == "vectors") for key in keys) for name, keys in pairs.items() for kind in ("vectors", "rest")
    }
    return {name: count for name, count in counted.items() if count}


def left_over(index: Path, other: Path) -> dict[str, int]:
    """The files that an index has and another has not, and fewer than none for those that it lacks; names that are random count as equal.

    Three do not count: the list of files that were hashed, since the one index is read more often here, in the current generation the mark that the
    next publication takes away, and receipts, of which a `forget` that is cut short at its very end leaves two.
    """
    here, there = _shape(index), _shape(other)
    return {name: here[name] - there[name] for name in sorted(here | there) if here[name] != there[name]}


def _shape(index: Path) -> Counter[str]:
    ordinal = {id_: f"generation {n}" for n, id_ in enumerate(reversed(generation_ids(index)))}

    def plain(path: Path) -> str:
        parts = [ordinal.get(part, part) for part in path.parts]
        return re.sub(r"[0-9a-f]{8}-?[0-9a-f-]{20,}|\d{10,}|[01]{20,}[0-9a-f]*", "*", "/".join(parts))

    passed_over = {"run/verified.json", "generations/generation 0/.never-current"}
    return Counter(name for path in files_under(index) if path.parts[0] not in ("runs", "receipts") and (name := plain(path)) not in passed_over)
