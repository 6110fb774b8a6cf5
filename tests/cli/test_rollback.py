"""`rollback` and `status --generations`: an older generation answers again, and which ones there are."""

import json
import os
from pathlib import Path

import pytest

from graphrag_local.store.generations import current_id, generation_ids, open_generation
from graphrag_local.store.lock import BuildLock
from tests.cli.shell import FILES, put, sh

EDITED = {"news.html": FILES["news.html"].replace("bought", "sold")}
QUESTION = "'Who owns Tallow Bridge?'"


@pytest.fixture(name="two")
def _two(spoilt) -> tuple[Path, str, str]:
    """A project with two generations: its folder and their ids."""
    put(spoilt, EDITED)
    assert sh(f"graphrag-local index {spoilt}").code == 0
    old, new = generation_ids(spoilt / "index")
    return spoilt, old, new


def damage(folder: Path, generation: str) -> Path:
    """Turn a bit round in a table of a generation that no other has."""
    mine = {path.stat().st_ino: path for path in (folder / "index" / "generations" / generation).rglob("data/*.lance") if path.stat().st_nlink == 1}
    path = mine[min(mine)]
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    return path


def test_a_rollback_and_the_next_index(two):
    """After `rollback` the older generation answers and is current; it says what the next `index` does, and that brings the input's state back."""
    folder, old, new = two
    before = sh(f"graphrag-local status {folder} --json").json
    done = sh(f"graphrag-local rollback {folder}")
    assert done.code == 0, done.err
    assert f"generation {old} of " in done.out
    assert f"before: {new}. The next `graphrag-local index` brings the index to the state of the input again." in done.out
    assert current_id(folder / "index") == old
    assert sh(f"graphrag-local query {QUESTION} {folder} --json").json["generation"] == old
    again = sh(f"graphrag-local index {folder} --json").json
    assert (again["published"], again["digest"]) == (True, before["digest"])
    assert sh(f"graphrag-local status {folder} --verify").code == 0


def test_json_says_what_was_done(two):
    """`rollback --json` is one object with the generation, the one before, its counts and those passed over; `--to` takes the beginning of an id."""
    folder, old, new = two
    done = sh(f"graphrag-local rollback {folder} --json").json
    assert (done["generation"], done["before"], done["passed_over"]) == (old, new, [])
    assert done["counts"]["documents"] == 3
    assert done["digest"] == sh(f"graphrag-local status {folder} --json").json["digest"]
    assert sh(f"graphrag-local rollback {folder} --to {new[:8]} --json").json["generation"] == new


@pytest.mark.parametrize("to", ["000009-aaaaaaaaaaaa", "00000", "../etc", "current"])
def test_an_id_that_does_not_fit_is_wrong_use(two, to):
    """An unknown id, one that fits several, and that of the current generation exit with 2, name what there is and change nothing."""
    folder, old, new = two
    done = sh(f"graphrag-local rollback {folder} --to {new if to == 'current' else to}")
    assert done.code == 2
    assert old in done.err
    assert current_id(folder / "index") == new


def test_with_one_generation_there_is_nothing_to_roll_back_to(spoilt, tmp_path):
    """One generation: exit code 2 and what to do instead; none at all: there is no index."""
    done = sh(f"graphrag-local rollback {spoilt}")
    assert done.code == 2
    assert "no generation to roll back to: there is no older one" in done.err
    assert "graphrag-local index" in done.err
    (tmp_path / "empty").mkdir()
    none = sh(f"graphrag-local rollback {tmp_path / 'empty'}")
    assert (none.code, "no finished index" in none.err) == (1, True)
    assert not (tmp_path / "empty" / "index").exists()


def test_from_a_damaged_index_the_last_whole_generation_answers(two):
    """A question to a damaged generation is refused with both ways out; `rollback` makes the last whole one answer; `index` makes a whole one anew, and
    the damaged one goes."""
    folder, old, new = two
    path = damage(folder, new)
    refused = sh(f"graphrag-local query {QUESTION} {folder}")
    assert refused.code == 1
    assert f"{path} was altered" in refused.err
    assert "graphrag-local rollback" in refused.err
    assert "graphrag-local index" in refused.err
    assert sh(f"graphrag-local rollback {folder}").code == 0
    assert sh(f"graphrag-local query {QUESTION} {folder} --json").json["generation"] == old
    assert sh(f"graphrag-local index {folder}").code == 0
    assert new not in generation_ids(folder / "index")
    assert sh(f"graphrag-local status {folder} --verify").code == 0


def test_a_damaged_pointer_is_rolled_back_to_the_newest_whole_generation(two):
    """Where CURRENT names nothing, the newest generation that is whole answers."""
    folder, _, new = two
    (folder / "index" / "CURRENT").write_text("000002-\n")
    assert "graphrag-local rollback" in sh(f"graphrag-local query {QUESTION} {folder}").err
    done = sh(f"graphrag-local rollback {folder} --json").json
    assert (done["generation"], done["before"]) == (new, "")


def test_damaged_generations_are_passed_over_and_refused(two):
    """An older generation that is damaged, under an unchanged time too, is no target: exit code 2 by default, 1 where it is asked for by name."""
    folder, old, new = two
    path = folder / "index" / "generations" / old / "manifest.json"
    data = next(path.parent.glob("chunks.lance/data/*"))
    times, raw = data.stat(), bytearray(data.read_bytes())
    raw[40] ^= 16
    data.write_bytes(raw)
    os.utime(data, ns=(times.st_atime_ns, times.st_mtime_ns))
    done = sh(f"graphrag-local rollback {folder}")
    assert (done.code, "1 older ones are damaged" in done.err) == (2, True)
    named = sh(f"graphrag-local rollback {folder} --to {old}")
    assert (named.code, "was altered" in named.err) == (1, True)
    assert current_id(folder / "index") == new


def test_no_rollback_while_a_build_runs(two):
    """While somebody builds, `rollback` says who, and changes nothing."""
    folder, _, new = two
    with BuildLock(folder / "index"):
        done = sh(f"graphrag-local rollback {folder}")
    assert (done.code, f"Process {os.getpid()}" in done.err) == (1, True)
    assert current_id(folder / "index") == new


def test_generations_are_listed(two):
    """`status --generations`: newest first, with date, counts, digest, own and shared bytes, which is current, which is read, and which is damaged."""
    folder, old, new = two
    with open_generation(folder / "index", old):
        rows = sh(f"graphrag-local status {folder} --generations --json").json["generations"]
        text = sh(f"graphrag-local status {folder} --generations")
    assert [(row["id"], row["current"], row["read"], row["problem"]) for row in rows] == [(new, True, False, ""), (old, False, True, "")]
    for row in rows:
        size = sum(path.stat().st_size for path in (folder / "index" / "generations" / row["id"]).rglob("*") if path.is_file())
        own = sum(p.stat().st_size for p in (folder / "index" / "generations" / row["id"]).rglob("*") if p.is_file() and p.stat().st_nlink == 1)
        assert (row["own_bytes"], row["own_bytes"] + row["shared_bytes"]) == (own, size)
        assert (row["documents"], row["chunks"], row["entities"]) == (3, 3, 5)
    assert rows[0]["digest"] == sh(f"graphrag-local status {folder} --json").json["digest"] != rows[1]["digest"]
    assert text.code == 0
    first, second = text.out.splitlines()
    assert first.startswith(f"{new} of {rows[0]['created']}, current: 3 documents, 3 chunks, 5 entities, ")
    assert f"{old} of {rows[1]['created']}, being read: 3 documents" in second
    damage(folder, old)
    told = sh(f"graphrag-local status {folder} --generations --verify")
    assert told.code == 1
    assert told.out.splitlines()[2].startswith("    damaged: ")
    assert sh(f"graphrag-local status {folder} --generations").code == 0  # the current one answers


def test_generations_of_a_damaged_index_are_listed(two):
    """A manifest that cannot be read, and a pointer that names nothing, do not keep the others from being listed."""
    folder, old, new = two
    (folder / "index" / "generations" / new / "manifest.json").write_text(json.dumps({"format": "?"}))
    rows = sh(f"graphrag-local status {folder} --generations --json")
    assert rows.code == 1
    assert [(row["id"], bool(row["problem"])) for row in rows.json["generations"]] == [(new, True), (old, False)]
    (folder / "index" / "CURRENT").unlink()
    assert [row["current"] for row in sh(f"graphrag-local status {folder} --generations --json").json["generations"]] == [False, False]


def test_without_generations_that_is_said(tmp_path):
    """Before the first build the list is empty."""
    assert sh(f"graphrag-local status {tmp_path} --generations").out == "There is no generation yet.\n"
    assert sh(f"graphrag-local status {tmp_path} --generations --json").json == {"generations": []}
