"""The command line as people meet it: commands typed as one line, in this process, in one of their own, or on a terminal of a given width."""

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import resource
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from graphrag_local.cli import main as door
from tests.modelserver import ModelServer

ROOT = Path(__file__).parents[2]
# Who met whom in an invented harbour town; names are two capitalised words.
FILES = {
    "minutes.md": "# What was said\n\nMira Holt asked the Harbour Board for a lamp on Tallow Bridge.\nPiet Larsen told the Harbour Board what a lamp costs.\n",
    "letters/larsen.txt": "Piet Larsen wrote to Mira Holt that no lamp is free.\nMira Holt showed the letter to Ada Brandt.\n",
    "news.html": "<html><head><title>News</title></head><body><p>Ada Brandt bought Tallow Bridge from the Harbour Board.</p></body></html>",
}
NAMES = {"entities": [r"\b[A-Z][a-z]+ [A-Z][a-z]+\b"], "types": ["person"], "relate": "within-sentence", "description": "sentence"}
SCRIPT: dict[str, Any] = {"fixture_pattern": NAMES, "window_tokens": 16_000}
SOON_S = 60  # on a machine that is slow and does other things too: what the tests have a program not wait for would take for ever
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as data."""
        assert self.out, self.err
        return json.loads(self.out)


class _Stream(io.TextIOWrapper):
    """A standard stream that is kept, and says whether it is a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def sh(line: str, *, terminal: bool = False) -> Done:
    """Run one command line in this process, through the program's own door; its streams are files, or terminals of $COLUMNS columns."""
    out, err = _Stream(is_terminal=terminal), _Stream(is_terminal=terminal)
    argv, handler, code = sys.argv, signal.getsignal(signal.SIGTERM), 0
    sys.argv = shlex.split(line)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            door.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    finally:
        sys.argv = argv
        signal.signal(signal.SIGTERM, handler)
    printed, said = (stream.buffer.getvalue().decode() for stream in (out, err))
    return Done(code, printed, said)


def environment(**more: str) -> dict[str, str]:
    """The environment of a process: this one's, with this checkout in front."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def start(line: str, *, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start one command line as a process, and a group, of its own."""
    command = [sys.executable, "-m", *shlex.split(line.replace("graphrag-local", "graphrag_local", 1))]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**(env or {})), start_new_session=True
    )


def ended(process: subprocess.Popen[Any], timeout_s: float = SOON_S) -> tuple[Any, Any]:
    """What a process says until its end, which is to come soon; one that does not end is killed, and subprocess.TimeoutExpired raised."""
    try:
        return process.communicate(timeout=timeout_s)
    finally:
        process.kill()


def memory_mb(pid: int) -> float:
    """The memory that a process uses."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 1e6
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


def on_terminal(line: str, width: int, **env: str) -> str:
    """Everything one command shows on a terminal, which is its standard output and its standard error."""
    command = [sys.executable, "-m", *shlex.split(line.replace("graphrag-local", "graphrag_local", 1))]
    own, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    variables = {key: value for key, value in environment(TERM="xterm", **env).items() if key not in ("COLUMNS", "LINES", "CI", "NO_COLOR") or key in env}
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=variables)
    os.close(its)
    seen = b""
    with contextlib.suppress(OSError):  # what Linux says when the other end is closed
        while block := os.read(own, 1 << 16):
            seen += block
    os.close(own)
    process.wait(300)
    return seen.decode()


def put(folder: Path, files: Mapping[str, str]) -> None:
    """Write the input files of a project, each in one step: who watches the folder never sees half of one."""
    for name, text in files.items():
        path = folder / "input" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = folder / f".{path.name}.part"
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)


def settings(url: str) -> str:
    """A graphrag.toml for a scripted model server."""
    return f'[engine]\nurl = "{url}"\nconstraints = "schema"\n[vectors]\nkind = "none"\n[reports]\nmin_tokens = 0\n'


@contextlib.contextmanager
def project(folder: Path, files: Mapping[str, str] = FILES, script: Mapping[str, Any] = SCRIPT) -> Iterator[ModelServer]:
    """A project in a folder, whose settings name a model server that plays a script for as long as the context lasts."""
    put(folder, files)
    with ModelServer(script) as server:
        (folder / "graphrag.toml").write_text(settings(server.url), encoding="utf-8")
        yield server


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    """No models and no settings of whoever runs the tests."""
    for name in list(os.environ):
        if name.startswith("GRAPHRAG_LOCAL"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GRAPHRAG_LOCAL_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("COLUMNS", "80")


def until(holds: Callable[[], Any], timeout_s: float = 300) -> Any:
    """Wait for something to become true; it is returned."""
    end = time.monotonic() + timeout_s
    while not (found := holds()):
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.02)
    return found


def descendants(pid: int) -> set[int]:
    """The processes that a process has started, and those they have."""
    parents = {int(stat.parent.name): _parent(stat) for stat in Path("/proc").glob("[0-9]*/stat")}
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1


def runs(pid: int) -> bool:
    """Whether a process is there and not merely waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
