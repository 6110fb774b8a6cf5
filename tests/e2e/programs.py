"""The product as people start it: processes with logs, their whole families, and what is left of them."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from graphrag_local.configuration import ENV_PREFIX
from graphrag_local.engine.models import ENVIRONMENT_VARIABLE, models_folder


@dataclass(slots=True)
class Program:
    """A running `graphrag-local`; `family` and its process groups grow with every look: an orphan is no longer found through its parent."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path
    family: dict[int, psutil.Process] = field(default_factory=dict)
    groups: set[int] = field(default_factory=set)

    @property
    def said(self) -> str:
        """What it has told people so far."""
        return self.err.read_text(encoding="utf-8", errors="replace")

    def look(self) -> None:
        """Take note of all processes that descend from it now."""
        with contextlib.suppress(psutil.NoSuchProcess):
            own = psutil.Process(self.process.pid)
            self.family |= {member.pid: member for member in [own, *own.children(recursive=True)]}
        self.groups |= self._live_groups()

    def _live_groups(self) -> set[int]:
        return {_group(member.pid) for member in self.family.values() if _runs(member)} - {0, os.getpgid(0)}

    def left(self) -> list[str]:
        """Those of the family that still run, its process groups included."""
        others = [other for other in psutil.process_iter() if _group(other.pid) in self.groups]
        return sorted({f"{member.pid} {_name(member)}" for member in [*self.family.values(), *others] if _runs(member)})

    def kill_all(self) -> None:
        """Kill every process group of the family outright, as a machine short of memory would."""
        self.look()
        for group in self._live_groups():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self.process.wait(300)

    def end(self, number: int, timeout_s: float = 300) -> int:
        """Send it a signal, as Ctrl-C does; its exit code."""
        self.look()
        self.process.send_signal(number)
        return self.process.wait(timeout_s)


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _runs(process: psutil.Process) -> bool:
    """A process that is dead but not yet collected does not count."""
    try:
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def _name(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:120] or process.name()
    except psutil.Error:
        return "?"


def start(folder: Path, name: str, *arguments: str) -> Program:
    """Start a command in a session of its own; what it prints goes to files `name`.out and `name`.err beside the project."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ENV_PREFIX)}
    environment[ENVIRONMENT_VARIABLE] = str(models_folder())
    out, err = folder.parent / f"{name}.out", folder.parent / f"{name}.err"
    with out.open("wb") as told, err.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "graphrag_local", *arguments], stdin=subprocess.DEVNULL, stdout=told, stderr=said,
            env=environment, cwd=folder.parent, start_new_session=True,
        )  # fmt: skip
    return Program(process, out, err)


def run_json(folder: Path, name: str, *arguments: str, timeout_s: float = 900) -> Any:
    """What a command prints as JSON; 3 (done, with failed units) is success too."""
    program = start(folder, name, *arguments, "--json")
    try:
        code = program.process.wait(timeout_s)
    finally:
        program.process.kill()
    assert code in (0, 3), program.said
    return json.loads(program.out.read_text(encoding="utf-8"))


def until(holds: Callable[[], Any], program: Program, timeout_s: float = 900) -> None:
    """Wait; fail with the program's own words when it ends or the time is over."""
    end = time.monotonic() + timeout_s
    while not holds():
        assert program.process.poll() is None, f"it ended with {program.process.returncode}: {program.said}"
        assert time.monotonic() < end, f"not within {timeout_s:.0f} s: {program.said}"
        time.sleep(0.1)


def gone(programs: Iterable[Program], timeout_s: float = 60) -> list[str]:
    """What is still left of some programs when there was time enough for it to go."""
    programs = list(programs)
    end = time.monotonic() + timeout_s
    while (left := [line for program in programs for line in program.left()]) and time.monotonic() < end:
        time.sleep(0.2)
    return left


def rows(ledger: Path) -> list[dict[str, Any]]:
    """The replies in a ledger, oldest first; none before it is there."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute("SELECT * FROM replies ORDER BY rowid")]
    except sqlite3.OperationalError:
        return []
