"""The whole program where room or rights end in mid-run: a sentence, exit code 1, the old index answers, and afterwards the run goes on without paying twice."""

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.cases.program import Done, Program, program
from tests.cli.shell import ended
from tests.store.tools import little_disk

FIRST = {"keeper.txt": "Anna Berg keeps the Hill Mill."}
MORE = {f"n{n:02}.txt": f"Dora Eck met Finn Gast{n} at Pier {chr(65 + n)}side. " * 12 for n in range(14)}
PEOPLE = {"fixture_pattern": {"entities": [r"\b[A-Z][a-z]+ [A-Z][a-z]+\d*\b"], "types": ["person"], "relate": "chain"}}
QUESTION = "Who keeps the Hill Mill?"
AT_ONCE = 2


def paid_twice(it: Program) -> int:
    """How many requests were asked again."""
    asked = Counter(r.prompt for r in it.server.log if r.purpose in ("extract", "describe", "report"))
    return sum(times - 1 for times in asked.values())


def fill(disk: Path, *, room: int) -> Path:
    """A file that leaves this much room."""
    free = os.statvfs(disk)
    filler = disk / "filler"
    filler.write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - room)))
    return filler


def is_said_and_old_answers(it: Program, done: Done, generation: str, *words: str) -> None:
    """A failed run has said why and what to do, and the index is as it was."""
    assert done.code == 1, done.said
    assert "Traceback" not in done.said
    assert [word for word in words if word not in done.said] == []
    assert it.query(QUESTION, "--mode=basic")["generation"] == generation
    it.under = ()  # a process less to start for each of the rest
    assert it.run("status", "--verify", "--json").code == 0
    assert [path.name for path in (it.folder / "index" / "generations").iterdir()] == [generation]


@pytest.fixture
def indexed(tmp_path):
    """A program on a small disk with an index of one document, the others put there."""
    with little_disk(tmp_path / "disk", "3m") as disk, program(disk / "project", FIRST, PEOPLE, engine__concurrency=AT_ONCE) as it:
        assert it.index().code == 0
        it.put(MORE)
        yield it


def test_no_room_for_the_ledger(tmp_path, indexed):
    """A disk that fills up while replies come: what was written down is not asked again once there is room."""
    generation = indexed.status()["generation"]
    filler = fill(tmp_path / "disk", room=120_000)
    done = indexed.run("index")
    is_said_and_old_answers(indexed, done, generation, "full", "Free some space")
    asked = len(indexed.server.requests("extract"))
    filler.unlink()

    assert 2 < asked < 1 + len(MORE)
    assert indexed.index().code == 0
    assert paid_twice(indexed) <= 2 * AT_ONCE
    assert indexed.status()["counts"]["documents"] == 1 + len(MORE)


@pytest.mark.parametrize("room", [60_000, 120_000, 180_000])
def test_no_room_for_the_tables(tmp_path, indexed, room):
    """A disk that fills up while the index is published: with every reply in the ledger the run is finished without asking, once there is room."""
    generation = indexed.status()["generation"]
    twin = Program(tmp_path / "twin", indexed.server, indexed.settings)
    for files in (FIRST, MORE):  # the same history
        twin.put(files)
        wanted = twin.index().json["digest"]
    shutil.copyfile(twin.folder / "index" / "ledger.sqlite", indexed.folder / "index" / "ledger.sqlite")
    since = len(indexed.server.requests("extract"))
    filler = fill(tmp_path / "disk", room=room)
    done = indexed.run("index")
    is_said_and_old_answers(indexed, done, generation, "No space left", "Free some space")
    filler.unlink()

    assert indexed.index().json["digest"] == wanted
    assert len(indexed.server.requests("extract")) == since


def test_rights_that_are_lost_in_mid_run(tmp_path):
    """An index folder that becomes unwritable in mid-run: the run says so at the end, its replies are kept, and it is finished once the rights are back."""
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere, and there is no setpriv to give that up")
    with program(tmp_path, FIRST, PEOPLE, engine__concurrency=AT_ONCE) as it:
        generation = it.index().json["generation"]
        it.put(MORE)
        it.server.set_script({**PEOPLE, "rules": [{"on": "extract", "calls": "5-", "do": {"reply": "valid", "hold": True}}]})
        if os.getuid() == 0:
            it.under = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search")
        shut = [tmp_path / "index", tmp_path / "index" / "generations"]
        with it.start("index") as child:
            it.server.wait_for("extract", 4)
            for folder in shut:
                folder.chmod(0o555)
            it.server.release()
            out, err = ended(child, 600)
        done = Done(child.returncode, out.decode(), err.decode())
        try:
            is_said_and_old_answers(it, done, generation, "Permission denied", "right to read and write")
            since = len(it.server.log)
        finally:
            for folder in shut:
                folder.chmod(0o755)

        assert it.index().code == 0
        assert not [r for r in it.server.log[since:] if r.purpose in ("extract", "describe")]
        assert paid_twice(it) == 0
        assert it.status()["counts"]["documents"] == 1 + len(MORE)
