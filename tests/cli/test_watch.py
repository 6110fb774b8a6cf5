"""`index --watch`: a process beside a folder in which things happen."""

import contextlib
import json
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphrag_local.store.lock import BuildLock
from tests.cli.shell import NAMES, SCRIPT, SOON_S, descendants, project, put, runs, sh, start, until

NOTES = {f"note{number}.txt": f"Mira Holt gave lamp {number} to Piet Larsen.\n" for number in range(3)}
SLOW = {**SCRIPT, "rules": [{"on": "extract", "calls": "1-3", "do": {"reply": "valid", "delay_s": 2}}]}
HELD = {**SCRIPT, "rules": [{"on": "extract", "do": {"reply": "valid", "hold": True}}]}


class Watch:
    """A running watch: the runs it has made, as it told them, and what it said."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.input = folder / "input"
        self.process = start(f"graphrag-local index {folder} --watch --json {' '.join(options)}")
        self.runs: list[dict[str, Any]] = []
        self.said = ""
        self._threads = [threading.Thread(target=read, daemon=True) for read in (self._read_out, self._read_err)]
        for thread in self._threads:
            thread.start()

    def _read_out(self) -> None:
        for line in self.process.stdout:
            self.runs.append(json.loads(line))

    def _read_err(self) -> None:
        for line in self.process.stderr:
            self.said += line

    def next_run(self, *, after: int) -> dict[str, Any]:
        """The run after so many."""
        until(lambda: len(self.runs) > after or self.process.poll() is not None)
        assert len(self.runs) > after, self.said
        return self.runs[after]

    def after(self, change: Any) -> dict[str, Any]:
        """Let something happen and wait for the run that it causes."""
        before = len(self.runs)
        change()
        return self.next_run(after=before)

    def ended_by(self, number: int) -> int:
        """Send a signal; the exit code once it has ended and all that it said is read."""
        family = descendants(self.process.pid)
        self.process.send_signal(number)
        code = self.process.wait(SOON_S)
        for thread in self._threads:
            thread.join()
        until(lambda: not [pid for pid in family if runs(pid)])
        return code


@contextlib.contextmanager
def watching(folder: Path, *options: str) -> Iterator[Watch]:
    """A watch for as long as the context lasts."""
    watch = Watch(folder, *options)
    try:
        yield watch
    finally:
        watch.process.kill()
        watch.process.wait()
        for thread in watch._threads:
            thread.join()
        watch.process.stdout.close()
        watch.process.stderr.close()


def edit(folder: Path, name: str, text: str) -> None:
    """Write one input file."""
    put(folder, {name: text})


def test_every_change_brings_a_generation(tmp_path):
    """A file that comes (also while a run is reading others), an edit and a deletion each bring a run of their own; many at once bring few; Ctrl-C ends it."""
    with project(tmp_path, NOTES, SLOW) as server, watching(tmp_path, "--idle=0") as watch:
        until(lambda: server.requests("extract") or watch.process.poll() is not None)
        edit(tmp_path, "early.txt", "Ada Brandt came while others were read.\n")
        first, second = watch.next_run(after=0), watch.next_run(after=1)
        assert (first["counts"]["documents"], first["published"]) == (3, True)
        assert (second["changes"]["new"], second["published"]) == (["early.txt"], True)
        edited = watch.after(lambda: edit(tmp_path, "note1.txt", "Mira Holt took lamp 1 back from Piet Larsen.\n"))
        assert (edited["changes"]["edited"], edited["published"]) == (["note1.txt"], True)
        gone = watch.after((watch.input / "note2.txt").unlink)
        assert (gone["changes"]["gone"], gone["published"]) == (["note2.txt"], True)

        before = len(watch.runs)
        many = tmp_path / "many"
        many.mkdir()
        for number in range(40):
            (many / f"{number}.txt").write_text(f"Ada Brandt counted boat {number}.\n")
        many.rename(watch.input / "many")  # in one step: how many quiet times there are between forty files is up to the machine
        until(lambda: watch.runs[-1]["counts"]["documents"] == 43 or watch.process.poll() is not None)
        assert len(watch.runs) - before <= 2
        assert len({run["generation"] for run in watch.runs}) == sum(run["published"] for run in watch.runs)
        assert watch.ended_by(signal.SIGINT) == 130
        assert "Interrupted. Every reply that came is kept." in watch.said
        assert "Traceback" not in watch.said
        assert sh(f"graphrag-local index {tmp_path} --json").json["published"] is False


def test_a_folder_that_goes_and_comes_back(tmp_path):
    """A folder that is renamed away is said to be missing and takes nothing from the index; back, or replaced by another, it is followed again."""
    with project(tmp_path, NOTES) as server, watching(tmp_path, "--idle=0") as watch:
        first = watch.next_run(after=0)
        watch.input.rename(tmp_path / "away")
        until(lambda: "3 of 3 indexed documents are missing" in watch.said or watch.process.poll() is not None)
        assert sh(f"graphrag-local status {tmp_path} --json").json["generation"] == first["generation"]
        (tmp_path / "away" / "late.txt").write_text("Ada Brandt wrote this while the folder was away.\n")
        back = watch.after(lambda: (tmp_path / "away").rename(watch.input))
        assert back["changes"]["new"] == ["late.txt"]

        def replaced() -> None:
            shutil.copytree(watch.input, tmp_path / "another")
            watch.input.rename(tmp_path / "old")
            (tmp_path / "another").rename(watch.input)

        assert watch.after(replaced)["published"] is False
        assert watch.after(lambda: edit(tmp_path, "new.txt", "Piet Larsen came last.\n"))["changes"]["new"] == ["new.txt"]

        with BuildLock(tmp_path / "index"):
            edit(tmp_path, "busy.txt", "Piet Larsen waited.\n")
            until(lambda: "This run waits for it." in watch.said)
            made = len(watch.runs)
        assert watch.next_run(after=made)["changes"]["new"] == ["busy.txt"]
        assert watch.ended_by(signal.SIGTERM) == 130
        assert "Traceback" not in watch.said
        assert len(server.requests("extract")) == 6


def test_a_forget_beside_a_watch(tmp_path):
    """While a watch is building, a `forget`, an `--undo` and another `index` are told who builds, and change nothing; when it is done the `forget` removes the
    document, and the watch leaves it out from then on.
    """
    with project(tmp_path, NOTES, HELD) as server, watching(tmp_path, "--idle=0") as watch:
        until(lambda: server.requests("extract") or watch.process.poll() is not None)
        for line in (f"forget note1.txt --project {tmp_path}", f"forget --undo note1.txt --project {tmp_path}", f"index {tmp_path}"):
            told = sh(f"graphrag-local {line}")
            assert told.code == 1
            assert f"Process {watch.process.pid} on " in told.err
            assert "Wait until it has finished" in told.err
        assert not (tmp_path / "index" / "forgotten.jsonl").exists()
        server.release()
        first = watch.next_run(after=0)
        assert first["counts"]["documents"] == 3

        receipt = sh(f"graphrag-local forget note1.txt --project {tmp_path} --json").json
        assert (receipt["clean"], receipt["still_in_input"]) == (True, ["note1.txt"])
        after = watch.after(lambda: edit(tmp_path, "note0.txt", "Mira Holt took lamp 0 back from Piet Larsen.\n"))
        assert (after["changes"]["edited"], after["changes"]["forgotten"], after["counts"]["documents"]) == (["note0.txt"], ["note1.txt"], 2)
        assert sh(f"graphrag-local status {tmp_path} --verify --json").json["problems"] == []


def test_what_is_left_is_written_when_nothing_happens(tmp_path):
    """Looking at the files by itself it sees a change as well; in a quiet time the reports that were left out are written once, and what failed is tried again."""
    pairs = {f"{'most/' if number < 3 else ''}{number}.txt": f"Mira Holt{chr(97 + number)} met Piet Larsen{chr(97 + number)}.\n" for number in range(4)}
    with project(tmp_path, pairs, {"fixture_pattern": NAMES, "window_tokens": 16_000}) as server:
        with watching(tmp_path, "--poll", "--idle=2", "--set", "reports.write=lazy") as watch:
            assert watch.next_run(after=0)["reports"]["unwritten"] == 4
            settled = watch.next_run(after=1)
            assert (settled["reports"]["unwritten"], settled["reports"]["written"], settled["published"]) == (0, 4, True)
            assert "Nothing changes: the reports that are left are written." in watch.said
            changed = watch.after(lambda: edit(tmp_path, "most/0.txt", "Mira Holta met Piet Larsena again, at the Harbour Board.\n"))
            assert (changed["changes"]["edited"], changed["reports"]["stale"] + changed["reports"]["unwritten"]) == (["most/0.txt"], 1)
            assert watch.next_run(after=3)["reports"]["written"] == 1
            (watch.input / "most").rename(tmp_path / "away")
            tried = len(list((tmp_path / "index" / "runs").iterdir()))
            until(lambda: len(list((tmp_path / "index" / "runs").iterdir())) >= tried + 3)
            assert watch.said.count("3 of 4 indexed documents are missing") == 1
            assert watch.ended_by(signal.SIGINT) == 130
        assert len(server.requests("report")) == 5
        assert len(watch.runs) == 4


@pytest.mark.parametrize("line", ["--poll", "--watch --dry-run"])
def test_options_that_do_not_go_together(tmp_path, line):
    """Wrong use is said at once."""
    done = sh(f"graphrag-local index {tmp_path} {line}")
    assert done.code == 2


def test_a_change_of_settings_ends_it(tmp_path):
    """A watch without a terminal does not redo paid work for changed settings: it ends with 2 and the question."""
    with project(tmp_path, NOTES):
        assert sh(f"graphrag-local index {tmp_path}").code == 0
        done = sh(f"graphrag-local index {tmp_path} --watch --set extraction.claims=true")
        assert done.code == 2
        assert "extraction.claims: False -> True" in done.err
