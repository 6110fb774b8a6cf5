"""A run over an unchanged collection leaves off after reading it, and only then."""

import contextlib
import json
import os
import sqlite3

import pytest

from graphrag_local.records import Failed
from graphrag_local.store import stamps
from graphrag_local.store.generations import open_current
from graphrag_local.store.lance import Tables
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.publish import publish
from graphrag_local.store.reading import snapshot_of
from graphrag_local.verify.index import damages
from tests.fakes import Characters
from tests.pipeline.running import index, project_of, scribe, scripted, told_as

FILES = {f"{name}.txt": told_as([(f"{name}{n}x", f"{name}{n + 1}x") for n in range(4)]) for name in ("Ann", "Bo", "Cy")}
SIZES = ("reports.min_tokens=0",)


def stages(project) -> list[str]:
    """The stages that the last run came to."""
    lines = max((project.index / "runs").glob("*.jsonl")).read_text().splitlines()
    return [event["stage"] for event in map(json.loads, lines) if event["event"] == "begin"]


def leaves_off(project, engine=None, **order) -> bool:
    """Whether one more run does no more than to read the documents; if so, it is the published index that it names."""
    made = index(project, engine, **order)
    if stages(project) != ["documents"]:
        return False
    with open_current(project.index) as generation:
        assert (made.published, made.generation, made.digest, made.counts) == (False, generation.id, generation.manifest.digest, generation.manifest.counts)
        assert set(made.built.snapshot.failures) == set(Tables.of(generation).records(Failed))
        assert made.summary()["reports"] == {"written": 0, **generation.manifest.about["without_report"]}
    return True


def test_nothing_changed(tmp_path):
    """The same files, also where one was touched, are read and no more is done; what is asked for in so many words is."""
    project = project_of(tmp_path, FILES, *SIZES)
    first = index(project)
    (project.input_root / "Ann.txt").touch()

    assert leaves_off(project)
    assert not leaves_off(project, whole=True)
    assert not leaves_off(project, repartition=True)
    assert leaves_off(project, settle=True)  # every report is there
    assert leaves_off(project, retry_failed=True)  # nothing failed
    assert index(project, whole=True).digest == first.digest


@pytest.mark.parametrize("change", ["edited", "new", "gone", "renamed"])
def test_something_changed(tmp_path, change):
    """An edit, a new file, one that is gone or has another name: everything is computed."""
    project = project_of(tmp_path, FILES, *SIZES)
    first = index(project)
    path = project.input_root / "Ann.txt"
    match change:
        case "edited":
            path.write_text(path.read_text() + "Ann0x knows Ann3x (2).\n")
        case "new":
            path.with_name("Di.txt").write_text(told_as([("Di1x", "Di2x")]))
        case "gone":
            path.unlink()
        case _:
            path.rename(path.with_name("Anne.txt"))
    made = index(project)

    assert made.published
    assert made.digest != first.digest
    assert leaves_off(project)


def test_other_settings_of_when_to_work(tmp_path):
    """Settings that do not decide the index but say when its reports are written are heeded at once."""
    lazy = project_of(tmp_path, FILES, *SIZES, "reports.write=lazy")
    assert index(lazy).counts["reports"] == 0
    assert leaves_off(lazy)
    made = index(project_of(tmp_path, FILES, *SIZES))

    assert made.counts["reports"] > 0


def test_reports_that_are_asked_for(tmp_path):
    """With reports unwritten, `settle` has work to do."""
    lazy = project_of(tmp_path, FILES, *SIZES, "reports.write=lazy")
    index(lazy)

    assert not leaves_off(lazy, settle=True)
    assert leaves_off(lazy, settle=True)


def test_what_failed_is_tried_again(tmp_path):
    """A chunk that failed for good waits until it is asked for."""
    project = project_of(tmp_path, FILES, *SIZES)
    index(project, scripted(lambda request: "nonsense" if request.purpose == "extract" and "Bo1x" in request.messages[-1].content else scribe(request)))

    assert leaves_off(project)
    made = index(project, retry_failed=True)
    assert (made.published, made.built.snapshot.failures) == (True, ())


def test_a_file_that_can_be_read_again(tmp_path):
    """What could not be read is no change while it stays so, and one as soon as it can be."""
    project = project_of(tmp_path, FILES, *SIZES)
    index(project)
    path = project.input_root / "Ann.txt"
    text = path.read_bytes()
    path.write_bytes(b"%PDF-1.7 broken\x00")
    index(project)
    assert leaves_off(project)
    path.write_bytes(text)

    assert not leaves_off(project)
    assert leaves_off(project)


def test_replies_that_nothing_holds_any_more(tmp_path):
    """A run that was cut short before it let go of a gone document's replies is made up for, although nothing has changed since."""
    project = project_of(tmp_path, FILES, *SIZES, "keep_generations=1")
    index(project)
    with Ledger.open(project.index / "ledger.sqlite") as ledger:
        before = ledger.path.read_bytes()
    (project.input_root / "Cy.txt").unlink()
    index(project)
    for name in ("ledger.sqlite-wal", "ledger.sqlite-shm"):
        (project.index / name).unlink(missing_ok=True)
    (project.index / "ledger.sqlite").write_bytes(before)

    assert not leaves_off(project)
    assert leaves_off(project)


def test_an_anchor_that_is_due_is_tried_once(tmp_path):
    """With an old anchor one run is a whole one; where nothing comes of it, because the graph is the anchor's, the next leaves off again."""
    project = project_of(tmp_path, FILES, *SIZES)
    index(project)
    old = "2001-01-01T00:00:00+00:00"
    with BuildLock(project.index) as lock, open_current(project.index) as parent:
        publish(lock, snapshot_of(parent), digest=parent.manifest.digest, counts=parent.manifest.counts, about=parent.manifest.about | {"anchored": old})

    assert not leaves_off(project)  # another generation than the last run left
    assert leaves_off(project)
    with open_current(project.index) as generation:
        assert generation.manifest.about["anchored"] == old


def test_another_way_to_count_tokens_is_noticed(tmp_path):
    """What is not in the digest but decides what fits, such as how tokens are counted, makes a run a whole one, once."""
    project = project_of(tmp_path, FILES, *SIZES)
    index(project)

    class Words(Characters):
        """Another counter."""

        name = "words"

    assert not leaves_off(project, counter=Words())
    assert leaves_off(project, counter=Words())


def test_a_damaged_ledger_is_mended(tmp_path):
    """A reply that was altered on the disk makes the run a whole one, which asks for it again; then all is well."""
    project = project_of(tmp_path, FILES, *SIZES)
    first = index(project)
    with contextlib.closing(sqlite3.connect(project.index / "ledger.sqlite")) as connection, connection:
        connection.execute("UPDATE replies SET text = text || 'x' WHERE key = (SELECT min(key) FROM replies WHERE purpose = 'extract')")
    engine = scripted()

    assert not leaves_off(project, engine)
    assert len(engine.history) == 1
    assert leaves_off(project)
    assert index(project, whole=True).digest == first.digest


def rot(path, where: bytes) -> None:
    """Flip a bit in these bytes of a file, whose time stays."""
    raw, times = bytearray(path.read_bytes()), path.stat()
    raw[raw.index(where)] ^= 1
    with path.open("r+b") as file:
        file.write(raw)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_the_ledger_is_read_once_after_each_change(tmp_path):
    """A ledger that is as it was when all of it was read is not read again by a run without changes; what rots in it meanwhile `status --verify` finds, and
    from then on the next run mends it. A verification that finds nothing spares the next run the reading as well."""
    project = project_of(tmp_path, FILES, *SIZES)
    first = index(project)
    ledger = project.index / "ledger.sqlite"
    assert stamps.ledger_identity(ledger) not in stamps.load(project.index)
    assert leaves_off(project)
    assert stamps.load(project.index)[stamps.ledger_identity(ledger)] == stamps.SOUND
    assert leaves_off(project)
    assert stamps.load(project.index)[stamps.ledger_identity(ledger)] == stamps.SOUND

    rot(ledger, b"Ann0x\t")
    engine = scripted()
    assert leaves_off(project, engine)
    assert any("was altered; it will be asked for again" in line for line in damages(project.index))
    assert stamps.ledger_identity(ledger) not in stamps.load(project.index)
    assert not leaves_off(project, engine)
    assert len(engine.history) == 1
    assert damages(project.index) == []
    assert stamps.load(project.index)[stamps.ledger_identity(ledger)] == stamps.SOUND
    assert index(project, whole=True).digest == first.digest


def test_a_ledger_whose_log_is_not_folded_in_is_read(tmp_path):
    """What a killed process left in the log of the ledger is no part of its file: there is nothing that could stand for it."""
    (tmp_path / "ledger.sqlite").write_bytes(b"1")
    assert stamps.ledger_identity(tmp_path / "ledger.sqlite")
    (tmp_path / "ledger.sqlite-wal").write_bytes(b"2")
    assert stamps.ledger_identity(tmp_path / "ledger.sqlite") == ""
    assert stamps.ledger_identity(tmp_path / "none.sqlite") == ""


def test_what_a_lost_note_costs(tmp_path):
    """Without the note of the last run, or with one that cannot be read, a run is a whole one and publishes nothing."""
    project = project_of(tmp_path, FILES, *SIZES)
    index(project)
    for content in (None, b"", b"{}", b'{"generation": 1}', b"\xff"):
        (project.index / "standing.json").unlink() if content is None else (project.index / "standing.json").write_bytes(content)
        assert not leaves_off(project)
        assert leaves_off(project)
