"""A sealed paper among ordinary ones: an indexed project to forget things in, and where traces of them are."""

import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from graphrag_local.store.scan import scan
from tests.cases.program import Program, program

SEALED = "Sealed, file KVJ-MARLOWE-2290. Irsa Dunmore was paid 7,000 ducats by Halvor Lines to stay quiet about the sinking of the Petrel.\n"
MARKS = ("KVJ-MARLOWE-2290", "7,000 ducats", "stay quiet", "Halvor Lines", "halvor lines", "Petrel", "petrel")
LONG = f"{SEALED}It is to be opened by nobody but the clerk, in the presence of two witnesses, and to be burned when it has been read.\n"  # so that a copy counts
OFFICE = {
    "office.txt": "Irsa Dunmore works in the office of the Tide Board and answers the telephone.\n",
    "bell.txt": "Irsa Dunmore wrote to the Tide Board about a broken bell in the office.\n",
}
FILES = {"sealed.txt": SEALED, **OFFICE}
SCRIPT: dict[str, Any] = {
    "fixture_pattern": {
        "entities": ["Irsa Dunmore", "Tide Board|Halvor Lines|Petrel"], "types": ["person", "organization"], "relate": "within-sentence", "description": "sentence",
    },
    "rules": [{"on": "answer", "do": {"reply": "echo-evidence"}}],
}  # fmt: skip
SETTINGS = {"vectors__kind": "server", "vectors__model": "vec", "describe__threshold_tokens": 10}
QUESTIONS = ("What was Irsa Dunmore paid for?", "Is there any record of money from Halvor Lines?")


def traces(folder: Path, marks: Iterable[str] = MARKS, *, but: str = "input") -> set[str]:
    """The files and tables of a project, without its input, that hold one of the marks: as bytes, and in any version of a table or database."""
    found = {f"{path.name}/{one.file}" for path in folder.iterdir() if path.name != but and path.is_dir() for one in scan(path, list(marks))}
    for path in (path for path in folder.rglob("*") if path.is_file() and but not in path.parts):
        found |= {path.relative_to(folder).as_posix() for mark in marks if mark.encode() in path.read_bytes()}
    return found


def answers(it: Program) -> str:
    """All that is said and cited about the sealed paper, in every mode."""
    asked = [(QUESTIONS[0], "global"), (QUESTIONS[0], "source"), *((question, "basic") for question in QUESTIONS)]
    return " ".join(it.run("query", question, "--json", f"--mode={mode}").out for question, mode in asked)


def forget(it: Program, *names: str, code: int = 0) -> dict[str, Any]:
    """`forget … --json`, which is to end with this code: the receipt."""
    done = it.run("forget", *names, "--json")
    assert done.code == code, done.said
    return done.json


def copy_of(indexed: Program, folder: Path) -> Program:
    """A copy of an indexed project; of files that nobody writes to it has a name only."""
    shutil.copytree(indexed.folder, folder / "copy", copy_function=os.link)
    for path in [*(folder / "copy" / "index").glob("ledger*"), *(folder / "copy" / "input").glob("*.*")]:
        shutil.copy(path, path.with_suffix(".part"))
        path.with_suffix(".part").replace(path)
    return Program(folder / "copy", indexed.server, indexed.settings)


@pytest.fixture(scope="module", name="indexed")
def _indexed(tmp_path_factory):
    """An indexed project, to be copied."""
    with program(tmp_path_factory.mktemp("office"), FILES, SCRIPT, **SETTINGS) as it:
        assert it.index().code == 0
        yield it


@pytest.fixture(name="it")
def _it(indexed, tmp_path):
    """A copy of the indexed project."""
    return copy_of(indexed, tmp_path)


def wait_until(holds: Any, timeout_s: float = 300) -> Any:
    """Wait for something to become true; it is returned."""
    end = time.monotonic() + timeout_s
    while not (found := holds()):
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.005)
    return found
