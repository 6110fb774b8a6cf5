"""A disk whose power can be cut, mounted for a test (see powerfs.py)."""

import os
import pickle
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.crash.disk import Disk

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 30.0


class PowerDisk:
    """A mounted disk: `folder` is where. Files may be open on it when the power goes."""

    def __init__(self, folder: Path, state: Path) -> None:
        self.folder, self._state = folder, state
        self._server: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextmanager
    def mounted(cls, folder: Path, seed: int) -> Iterator["PowerDisk"]:
        """An empty disk, mounted at `folder`/disk for as long as the context lasts."""
        (folder / "disk").mkdir(parents=True)
        disk = cls(folder / "disk", folder / "disk.state")
        disk._state.write_bytes(pickle.dumps(Disk(seed)))
        try:
            disk._start()
            yield disk
        finally:
            disk._stop()

    # --- power

    @property
    def events(self):  # type: ignore[no-untyped-def]  # IO[bytes]
        """There is something to read here once an armed cut has come."""
        assert self._server
        return self._server.stdout

    def operations(self) -> int:
        """How many operations changed something since the disk was switched on."""
        return int(self._ask("count"))

    def settle(self) -> None:
        """Make everything durable."""
        self._ask("settle")

    def ignore_syncs(self) -> None:
        """From now on, and until the next cut, a sync does nothing."""
        self._ask("ignore")

    def arm(self, operations: int, seed: int) -> None:
        """Cut the power before the operation after so many; `seed` decides what is left."""
        self._ask(f"arm {operations} {seed}")

    def cut_and_restart(self, seed: int) -> bool:
        """Cut the power now, unless an armed cut came before; then switch on again with what was left. Whether it was now."""
        came = bool(select.select([self.events], [], [], 0)[0])
        assert (self._read() if came else self._ask(f"cut {seed}")) == "cut"
        self._stop()
        self._start()
        return not came

    # --- the file system's process

    def _start(self) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "tests.crash.powerfs", str(self.folder), str(self._state)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self._server = subprocess.Popen(command, cwd=REPOSITORY, bufsize=0, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, **pipes)
        assert self._read() == "ready"

    def _stop(self) -> None:
        """Unmount, even under files that are open, and end the process, at which they break."""
        if self._server is None:
            return
        subprocess.run(["umount", "-l", self.folder], capture_output=True, check=False)
        self._server.kill()
        with self._server:
            pass
        self._server = None

    def _ask(self, command: str) -> str:
        assert self._server
        assert self._server.stdin
        self._server.stdin.write(f"{command}\n".encode())
        return self._read()

    def _read(self) -> str:
        assert self._server
        assert self._server.stdout
        assert self._server.stderr
        if select.select([self._server.stdout], [], [], PATIENCE_S)[0] and (line := self._server.stdout.readline()):
            return line.decode().strip()
        self._server.kill()
        raise OSError(f"the file system does not answer: {self._server.stderr.read().decode()}")


@cache
def why_not() -> str:
    """Why no such disk can be mounted here; "" where it can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse cannot be opened"
    if shutil.which("umount") is None:
        return "there is no umount"
    with TemporaryDirectory() as folder:
        try:
            with PowerDisk.mounted(Path(folder), 0) as disk:
                (disk.folder / "a").write_text("a")
        except OSError as error:
            reason = str(error).strip().splitlines()[-1]
            install = " (apt-get install fuse3, say)" if "libfuse" in reason else ""
            return f"no FUSE file system can be mounted: {reason}{install}"
    return ""
