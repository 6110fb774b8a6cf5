"""The parent's side of the parser processes: started when first needed, watched, killed and replaced.

Each gets the bytes of a file, never a path, so that a parser in trouble can reach nothing else.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, cast

from graphrag_local.documents.child import frame
from graphrag_local.documents.parsed import MB, Options, Parsed, ReadProblem
from graphrag_local.settings import DocumentsSettings

FILES_PER_WORKER = 200  # then it is replaced: libraries leak, and a long life hides it
START_S = 60.0


class _Gone(Exception):
    """The process ended before it answered."""


class _Late(Exception):
    """The process did not answer in time."""


class _Worker:
    """One process; not for two threads at once."""

    def __init__(self, memory_mb: int, reply_bytes: int) -> None:
        root = str(Path(__file__).parents[2])
        environment = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": root, "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-B", "-X", "utf8", "-m", "graphrag_local.documents.child", str(memory_mb)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, start_new_session=True, env=environment,
        )  # fmt: skip
        self.stdin, self.stdout = cast(IO[bytes], self.process.stdin), cast(IO[bytes], self.process.stdout)
        os.set_blocking(self.stdin.fileno(), False)
        self.reply_bytes = reply_bytes
        self.served = 0
        self.ready = False

    def ask(self, header: dict[str, Any], content: bytes, timeout_s: float) -> dict[str, Any]:
        """The answer to one file; the time to start the process is not counted."""
        if not self.ready:
            self._exchange(b"", START_S)
            self.ready = True
        self.served += 1
        return self._exchange(frame(json.dumps(header).encode()) + frame(content), timeout_s)

    def _exchange(self, message: bytes, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        unsent, received = memoryview(message), bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self.stdout, selectors.EVENT_READ)
            if unsent:
                selector.register(self.stdin, selectors.EVENT_WRITE)
            while len(received) < 8 or len(received) < 8 + int.from_bytes(received[:8], "big"):
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise _Late
                for key, _ in ready:
                    if key.fileobj is self.stdout:
                        _receive(self.stdout, received)
                    else:
                        unsent = unsent[_send(self.stdin, unsent) :]
                        if not unsent:
                            selector.unregister(self.stdin)
                if len(received) > self.reply_bytes:
                    raise ReadProblem("gives more text than documents.max_text_mb allows")
        return cast(dict[str, Any], json.loads(received[8:]))

    def end(self) -> int:
        """Kill the process and give its exit status (negative: the signal that had ended it)."""
        if self.process.poll() is None:
            self.process.kill()
        status = self.process.wait()
        self.stdin.close()
        self.stdout.close()
        return status


def _receive(stream: IO[bytes], received: bytearray) -> None:
    block = os.read(stream.fileno(), 1 << 20)
    if not block:
        raise _Gone
    received += block


def _send(stream: IO[bytes], unsent: memoryview) -> int:
    try:
        return os.write(stream.fileno(), unsent[: 1 << 16])
    except BrokenPipeError as error:
        raise _Gone from error


class Workers:
    """A pool that grows to as many processes as threads ask at once; safe for threads."""

    def __init__(self, settings: DocumentsSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []
        self._closed = False
        self.started = 0

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill every process; whoever waits for one gets a ReadProblem."""
        with self._lock:
            self._closed = True
            for worker in self._busy:
                worker.process.kill()
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()

    def closed(self) -> bool:
        """Whether nothing is to be waited for any more."""
        return self._closed

    def parse(self, kind: str, content: str | bytes, options: Options) -> Parsed:
        """Parse one file in a process; raises ReadProblem when it refuses, takes too long, needs too much or crashes."""
        timeout_s = self._settings.parse_timeout_s
        header = {"kind": kind, "options": asdict(options), "timeout_s": timeout_s}
        raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
        worker = self._take()
        keep = False
        try:
            answer = worker.ask(header, raw, timeout_s)
            keep = "parsed" in answer or ("refused" in answer and "last" not in answer)
        except _Late:
            raise ReadProblem(f"kept its parser busy for more than {timeout_s:g} s (documents.parse_timeout_s)", retryable=True) from None
        except _Gone:
            raise ReadProblem(self._crash(worker.end()), retryable=True) from None
        finally:
            self._give_back(worker, keep=keep)
        if "memory" in answer:
            raise ReadProblem(f"needs more than {self._settings.parse_memory_mb} MB to be parsed (documents.parse_memory_mb)")
        if "refused" in answer:
            raise ReadProblem(answer["refused"])
        return Parsed.from_json(answer["parsed"])

    def _crash(self, status: int) -> str:
        if status == -signal.SIGXCPU:
            return f"kept its parser busy for more than {self._settings.parse_timeout_s:g} s (documents.parse_timeout_s)"
        name = signal.Signals(-status).name if status < 0 else f"status {status}"
        return f"made its parser crash ({name}); a limit such as documents.parse_memory_mb may be the cause"

    def _take(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise ReadProblem("was not parsed, because the run was stopped", retryable=True)
            worker = self._idle.pop() if self._idle else _Worker(self._settings.parse_memory_mb, 4 * self._settings.max_text_mb * MB + 16 * MB)
            self.started += worker.served == 0
            self._busy.append(worker)
            return worker

    def _give_back(self, worker: _Worker, *, keep: bool) -> None:
        with self._lock:
            self._busy.remove(worker)
            if keep and worker.served < FILES_PER_WORKER and not self._closed:
                self._idle.append(worker)
                return
        worker.end()
