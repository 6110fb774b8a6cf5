"""Stopping a run from outside: Ctrl-C and the signal of service managers, while a model works and while a parser does."""

import contextlib
import json
import shutil
import signal
import sqlite3

import pytest

from tests.cli.shell import FILES, NAMES, descendants, ended, memory_mb, project, runs, sh, start, until
from tests.documents.making import word_with_body

LETTERS = {f"{number:02}.txt": f"{FILES['letters/larsen.txt']}This is letter number {number}.\n" for number in range(12)}


def paid(folder) -> int:
    """How many replies the ledger holds; none before it is there."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{folder / 'index' / 'ledger.sqlite'}?mode=ro", uri=True)) as ledger:
            return int(ledger.execute("SELECT count(*) FROM replies").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "kill"])
def test_a_run_that_is_stopped_loses_nothing(tmp_path, number):
    """The process ends soon with 130 and a sentence on how to go on, without a traceback or a process left; the next run asks only for the rest."""
    slow = {"on": "extract", "calls": "4-", "do": {"hold": True}}
    with project(tmp_path, LETTERS, {"fixture_pattern": NAMES, "window_tokens": 16_000, "rules": [slow]}) as server:
        process = start(f"graphrag-local index {tmp_path} --set engine.concurrency=2")
        server.wait_for("extract", 3)
        until(lambda: paid(tmp_path) == 3)
        server.wait_for_open("extract")
        family = descendants(process.pid)
        process.send_signal(number)
        out, err = ended(process)
        kept = paid(tmp_path)
        stopped = sh(f"graphrag-local status {tmp_path}")
        server.set_script({"fixture_pattern": NAMES, "window_tokens": 16_000})
        asked = len(server.requests("extract"))
        second = sh(f"graphrag-local index {tmp_path} --json").json

    assert process.returncode == 130, err
    assert out == ""
    assert err.splitlines()[-2:] == [
        "graphrag-local: Interrupted. Every reply that came is kept.", f"  The same command continues: graphrag-local index {tmp_path}",
    ]  # fmt: skip
    assert "Traceback" not in err
    assert [pid for pid in family if runs(pid)] == []
    assert kept == 3
    assert "The last run stopped in extraction, 3 of 12 done." in stopped.out
    assert second["last_build"]["by_stage"]["extraction"]["calls"] == 12 - kept
    assert len(server.requests("extract")) == asked + 12 - kept
    assert second["published"]


def test_ctrl_c_does_not_wait_for_a_parser(tmp_path):
    """A file that keeps its parser busy for long does not keep the program: it ends soon, and so does the parser."""
    (tmp_path / "input").mkdir()
    paragraph = "<w:p><w:r><w:t>word</w:t></w:r></w:p>"
    (tmp_path / "input" / "long.docx").write_bytes(word_with_body(paragraph * 1_500_000))
    with project(tmp_path, {}):
        process = start(f"graphrag-local index {tmp_path}")
        until(lambda: process.poll() is not None or any(memory_mb(pid) > 150 for pid in descendants(process.pid)))
        family = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        _, err = ended(process)

    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert [pid for pid in family if runs(pid)] == []


def test_a_run_that_is_killed_outright_continues(tmp_path):
    """After kill -9 in mid-run the old answer stands, the lock is free, and the next run takes every paid reply from the ledger."""
    with project(tmp_path, FILES, {"fixture_pattern": NAMES, "window_tokens": 16_000}) as server:
        first = sh(f"graphrag-local index {tmp_path} --json").json
        for name, text in LETTERS.items():
            (tmp_path / "input" / name).write_text(text, encoding="utf-8")
        server.set_script({"fixture_pattern": NAMES, "window_tokens": 16_000, "rules": [{"on": "extract", "calls": "5-", "do": {"hold": True}}]})
        before = paid(tmp_path)
        process = start(f"graphrag-local index {tmp_path} --set engine.concurrency=2")
        until(lambda: paid(tmp_path) == before + 4)
        process.kill()
        process.communicate()
        status = json.loads(sh(f"graphrag-local status {tmp_path} --json").out)
        server.set_script({"fixture_pattern": NAMES, "window_tokens": 16_000})
        second = sh(f"graphrag-local index {tmp_path} --json").json
        third = sh(f"graphrag-local index {tmp_path} --json").json
        shutil.rmtree(tmp_path / "index" / "generations")
        (tmp_path / "index" / "CURRENT").unlink()
        anew = sh(f"graphrag-local index {tmp_path} --json").json

    assert status["generation"] == first["generation"]
    assert status["interrupted"]["stage"] == "extraction"
    assert second["last_build"]["by_stage"]["extraction"]["calls"] == len(LETTERS) - 4
    assert third["last_build"]["calls"] == anew["last_build"]["calls"] == 0
    assert second["digest"] == third["digest"]
    assert {**second["counts"], "communities": 0} == {**anew["counts"], "communities": 0}  # their anchor was in the generations
