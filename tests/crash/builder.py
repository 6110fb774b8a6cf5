"""Real build processes at 0.1 s each: a server that has imported everything forks one per build (`python -m tests.crash.builder`).

Every line on its standard input is a job (JSON: see `build`); it answers with the process id of the build, what the build said, and `gone` with its exit
status. The build is the program's own `run_index`; only the model is scripted. What it asks, what the ledger has acknowledged, and what it has
published it writes into files of a journal, outside the index, at that moment: a kill of the process loses none of it.
"""

import contextlib
import ctypes
import hashlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from graphrag_local import erasing, indexing
from graphrag_local.engine.base import EmbedderCard, Reply, Request
from graphrag_local.engine.scripted import ScriptedEngine
from graphrag_local.errors import GraphragError
from graphrag_local.ids import fingerprint
from graphrag_local.project import open_project
from graphrag_local.records import LedgerRow
from graphrag_local.store import publish as publishing
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.runlog import RunLog
from tests.pipeline.running import CARD, forget, index, scribe

ROOT = Path(__file__).parents[2]
CONCURRENCY = 3
IN_FLIGHT = 2 * CONCURRENCY  # units of work that a stage has open at a time
LATENCY_S = 0.02
DIMENSION = 8
OVERRIDES = (
    f"engine.concurrency={CONCURRENCY}", "vectors.batch=8", "chunks.min_tokens=20", "chunks.max_tokens=90",
    "describe.threshold_tokens=60", "describe.group_tokens=400",
)  # fmt: skip
STARTING, PUBLISHING, POINTING, POINTED, COLLECTING, SWEEPING = "starting", "publishing", "pointing", "pointed", "collecting", "sweeping"
SEARCHING, DISCARDING, ENDING = "searching", "removing generations", "ending"  # of a `forget`
JOURNAL = ("asked", "acknowledged", "published", "phases")
PATIENCE_S = 600.0
LATE = ("bm25s", "lancedb")  # what the program itself imports where it is first used
Selectable = IO[Any]
_PR_SET_PDEATHSIG = 1  # a build never outlives its server


# --- in the build


class Journal:
    """Lines in files of a folder, each line written in one piece and in the page cache before the build goes on."""

    def __init__(self, folder: Path, die_in: str = "") -> None:
        self._die_in = die_in
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._files = {name: os.open(folder / name, flags, 0o644) for name in JOURNAL}

    def write(self, name: str, line: str) -> None:
        """Append a line; a build that is to die in a phase dies at its beginning."""
        os.write(self._files[name], f"{line}\n".encode())
        if (name, line) == ("phases", self._die_in):
            os.kill(os.getpid(), signal.SIGKILL)


class Asked(ScriptedEngine):
    """The scripted engine, noting the key of every request before it works on it."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(scribe, CARD, latency_s=LATENCY_S)
        self._journal = journal

    async def generate(self, request: Request) -> Reply:
        """The reply, noted as asked."""
        self._journal.write("asked", fingerprint(request.key_parts() | {"model": CARD.name, "revision": CARD.revision}))
        return await super().generate(request)


class Acknowledging(Ledger):
    """The ledger, noting what it has acknowledged."""

    journal: Journal

    async def put(self, row: LedgerRow) -> None:
        """Keep a row, noted once it is said to be durable."""
        await super().put(row)
        self.journal.write("acknowledged", row.key)

    async def put_vectors(self, embedder: str, rows: Mapping[str, Sequence[float]]) -> None:
        """Keep vectors, noted once they are said to be durable."""
        await super().put_vectors(embedder, rows)
        for hash_ in rows:
            self.journal.write("acknowledged", f"vector {embedder} {hash_}")

    def sweep(self, *args: Any, **more: Any) -> Any:
        """Forget, noted before."""
        self.journal.write("phases", SWEEPING)
        return super().sweep(*args, **more)

    def drop_vectors(self, *args: Any, **more: Any) -> int:
        """Forget, noted before."""
        self.journal.write("phases", SWEEPING)
        return super().drop_vectors(*args, **more)


class Staged(RunLog):
    """The log of a run, noting each stage that begins."""

    journal: Journal

    def write(self, event: str, **values: Any) -> None:
        """One line, and one in the journal."""
        if event == "begin":
            self.journal.write("phases", values["stage"])
        super().write(event, **values)


class Hashes:
    """An embedder that takes no time to speak of: a few numbers of the text's hash."""

    card = EmbedderCard(name="hashes", revision="1", dimension=DIMENSION)

    async def embed(self, texts: list[str], *, query: bool = False) -> list[list[float]]:
        """One vector of length 1 per text."""
        bytes_ = [hashlib.sha256(text.encode()).digest()[:DIMENSION] for text in texts]
        return [[(one - 127.5) / sum((other - 127.5) ** 2 for other in some) ** 0.5 for one in some] for some in bytes_]

    async def close(self) -> None:
        """Nothing to give back."""


def noted(work: Callable[..., Any], journal: Journal, phase: str, then: str = "") -> Callable[..., Any]:
    """The same work, noting that it begins, and what comes after it."""

    def begun(*args: Any, **more: Any) -> Any:
        journal.write("phases", phase)
        done = work(*args, **more)
        if then:
            journal.write("phases", then)
        return done

    return begun


def build(job: Mapping[str, Any]) -> dict[str, Any]:
    """One `index` of the project `job["project"]`, or a `forget` of the document `job["forget"]`, with its journal in `job["journal"]`, to the phase
    `job["die_in"]` or its end; what came of it."""
    journal = Journal(Path(job["journal"]), job["die_in"])
    Acknowledging.journal = Staged.journal = journal
    indexing.Ledger = erasing.Ledger = Acknowledging  # type: ignore[misc]
    indexing.RunLog = Staged  # type: ignore[misc]
    indexing.publish, indexing.collect = noted(indexing.publish, journal, PUBLISHING), noted(indexing.collect, journal, COLLECTING)
    publishing.point_to = noted(publishing.point_to, journal, POINTING, POINTED)
    for phase, work in ((SEARCHING, "scan"), (DISCARDING, "discard"), (ENDING, "keep")):
        setattr(erasing, work, noted(getattr(erasing, work), journal, phase))
    project, engine = open_project(Path(job["project"]), OVERRIDES), Asked(journal)
    try:
        if job["forget"]:
            receipt = forget(project, job["forget"], engine=engine, embedder=Hashes())
            said = {"generation": receipt.generation, "digest": receipt.digest_after}
        else:
            made = index(project, engine, embedder=Hashes())
            receipt = made.receipt
            said = {"generation": made.generation, "digest": made.digest, "published": made.published}
    except GraphragError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    journal.write("published", said["generation"])
    return said | ({"clean": receipt.clean, "kept": len(receipt.generations_kept), "sought": receipt.strings_sought} if receipt else {})


def serve() -> None:
    """Fork a build for every job on standard input, one at a time."""
    for name in LATE:  # or every build would, which takes longer than the build
        importlib.import_module(name)
    for line in sys.stdin:
        job = json.loads(line)
        begun = time.monotonic()
        pid = os.fork()
        if not pid:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            code = 1
            try:
                _say(os.getpid())
                _say(build(job))
                code = 0
            finally:
                if code:
                    traceback.print_exc()
                os._exit(code)  # nothing of the parent's is torn down twice
        _, status = os.waitpid(pid, 0)
        _say({"gone": os.waitstatus_to_exitcode(status), "seconds": time.monotonic() - begun})


def _say(value: object) -> None:
    os.write(1, json.dumps(value).encode() + b"\n")


# --- outside


@dataclass(slots=True)
class Ended:
    """How a build ended: what it said before, its exit code (-9: killed), and how long it took."""

    said: dict[str, Any] = field(default_factory=dict)
    code: int = 0
    seconds: float = 0.0


class Builds:
    """The server's other end."""

    def __init__(self, server: "subprocess.Popen[bytes]") -> None:
        self._server = server

    @classmethod
    @contextlib.contextmanager
    def open(cls, running: "Builds | None" = None) -> Iterator["Builds"]:
        """A server for as long as the context lasts, unless one runs; it goes with its builds, however that ends."""
        if running is not None:
            yield running
            return
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "LANCE_CPU_THREADS": "2"}
        command = [sys.executable, "-W", "ignore", "-m", "tests.crash.builder"]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        try:
            yield cls(process)
        finally:
            process.kill()
            with process:
                pass

    def run(
        self, project: Path, journal: Path, *, kill_after_s: float | None = None, kill_when: Selectable | None = None, die_in: str = "", forget: str = ""
    ) -> Ended:
        """One build (or `forget` of a document), to its end, or killed so many seconds after it was told to begin, or when there is something to read from
        `kill_when`, or at the beginning of a phase.

        Raises TimeoutError for one that hangs.
        """
        begun, job = time.monotonic(), {"project": str(project), "journal": str(journal), "die_in": die_in, "forget": forget}
        self._server.stdin.write(json.dumps(job).encode() + b"\n")  # type: ignore[union-attr]
        pid = self._line()
        ended = Ended()
        patience_s = PATIENCE_S if kill_after_s is None else kill_after_s
        ready = self._ready(patience_s - (time.monotonic() - begun), *([kill_when] if kill_when else []))
        if self._server.stdout not in ready:
            os.kill(pid, signal.SIGKILL)
            if not ready and kill_after_s is None:
                raise TimeoutError("a build hangs")
        while "gone" not in (line := self._line()):
            ended.said = line
        ended.code, ended.seconds = line["gone"], line["seconds"]
        return ended

    def _ready(self, patience_s: float, *others: Selectable) -> list[Selectable]:
        return select.select([self._server.stdout, *others], [], [], max(0.0, patience_s))[0]

    def _line(self) -> Any:
        assert self._ready(PATIENCE_S), "the build server hangs"
        line = self._server.stdout.readline()  # type: ignore[union-attr]
        assert line, f"the build server ended with {self._server.wait()}"
        return json.loads(line)


if __name__ == "__main__":
    serve()
