"""The whole program, driven from outside: a project folder, a scripted model server, commands, and what they print.

    with program(tmp_path, {"a.txt": "Anna met Bo."}, {"fixture_pattern": {...}}) as it:
        assert it.index().code == 0
        assert it.status()["counts"]["documents"] == 1
        assert it.names() == {"Anna", "Bo"}

Commands run inside the test's own process, through the program's own door (`main`), which is quick; `process=True` starts a real one.
"""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from graphrag_local.cli import main as door
from graphrag_local.query.mapreduce import EMPTY_WINDOW
from graphrag_local.records import Chunk, Document, Entity, Mention, Relationship, Report
from graphrag_local.store.reading import StoredIndex
from tests.cli.shell import ended
from tests.modelserver import ModelServer
from tests.modelserver.log import Record

Files = Mapping[str, str | bytes]
R = TypeVar("R")
PLAIN = {"engine.constraints": "schema", "vectors.kind": "none"}
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as data."""
        return json.loads(self.out)

    @property
    def said(self) -> str:
        """Everything it printed, on one line."""
        return " ".join(f"{self.out} {self.err}".split())


class Program:
    """One project folder and the commands on it; `settings` are given to every command with --set."""

    def __init__(self, folder: Path, server: ModelServer | None = None, settings: Mapping[str, object] | None = None) -> None:
        self.folder, self._server = folder, server
        self.settings: dict[str, object] = {**PLAIN, **({"engine.url": server.url} if server else {}), **(settings or {})}
        self.under: tuple[str, ...] = ()  # a command that runs the command, such as setpriv; then each is a process of its own
        self.input.mkdir(parents=True, exist_ok=True)

    @property
    def input(self) -> Path:
        """The input folder."""
        return self.folder / "input"

    @property
    def server(self) -> ModelServer:
        """The scripted model server."""
        assert self._server is not None, "this program was given no script"
        return self._server

    def answering(self) -> list[Record]:
        """The requests about questions that had something to read (see `mapreduce.baseline` for those that have not)."""
        return [record for record in self.server.requests("answer") if f"<text>\n{EMPTY_WINDOW}\n</text>" not in record.prompt]

    # --- the collection

    def put(self, files: Files) -> None:
        """Write files below the input folder; text is written as UTF-8 with its line ends as they stand."""
        for name, content in files.items():
            path = self.input / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))

    def make_input(self, files: Files) -> None:
        """Make the input folder hold exactly these files."""
        shutil.rmtree(self.input, ignore_errors=True)
        self.input.mkdir(parents=True)
        self.put(files)

    # --- commands

    def arguments(self, *args: str) -> list[str]:
        """A command line: `index`, `status`, `query QUESTION`, `show KIND NAME`, options; the folder and the settings are added."""
        options = [arg for arg in args if arg.startswith("--")]
        return [*(a for a in args if a not in options), str(self.folder), *options, *self._sets(args[0])]

    def _sets(self, command: str) -> list[str]:
        has_settings = command in ("index", "query", "status", "show", "serve", "doctor", "estimate", "export", "forget")
        return [part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")] if has_settings else []

    def run(self, *args: str, process: bool = False, environment: Mapping[str, str] | None = None, timeout_s: float = 600) -> Done:
        """Run one command to its end. Options that take a value are written --name=value."""
        line = self.arguments(*args)
        if process or environment or self.under:
            with self.start(*args, environment=environment) as child:
                out, err = ended(child, timeout_s)
            return Done(child.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
        return _inside(line)

    def start(self, *args: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start one command as a process of its own, to be watched, interrupted or killed."""
        return subprocess.Popen(
            [*self.under, sys.executable, "-m", "graphrag_local", *self.arguments(*args)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env={**os.environ, **(environment or {})},
        )  # fmt: skip

    def index(self, *options: str) -> Done:
        """`index --json`."""
        return self.run("index", "--json", *options)

    def status(self) -> dict[str, Any]:
        """`status --json`."""
        return self._object("status", "--json")

    def query(self, question: str, *options: str) -> dict[str, Any]:
        """`query QUESTION --json`: the answer object."""
        return self._object("query", question, "--json", *options)

    def show(self, what: str, name: str = "") -> Any:
        """`show WHAT NAME --json`."""
        return self._object("show", what, *filter(None, [name]), "--json")

    def _object(self, *args: str) -> Any:
        done = self.run(*args)
        assert done.code == 0, done.said
        return done.json

    # --- what is stored

    def records(self, kind: type[R]) -> list[R]:
        """The stored records of a kind: Document, Chunk, Entity, Relationship, Report or Mention."""
        index = StoredIndex.open(self.folder / "index")
        try:
            by_kind: dict[type, Any] = {
                Document: index.documents, Chunk: index.chunks, Entity: index.entities,
                Relationship: index.relationships, Report: index.reports, Mention: index.mentions,
            }  # fmt: skip
            return list(by_kind[kind]())
        finally:
            index.close()

    def texts(self) -> dict[str, str]:
        """The stored text of every document by its path."""
        return {document.path: document.text for document in self.records(Document)}

    def names(self) -> set[str]:
        """The names of all entities in the graph."""
        return {entity.name for entity in self.records(Entity)}

    def edges(self) -> set[tuple[str, str]]:
        """The relationships as pairs of names, each in alphabetical order."""
        names = {entity.id: entity.name for entity in self.records(Entity)}
        pairs = (sorted((names[edge.source_id], names[edge.target_id])) for edge in self.records(Relationship))
        return {(first, second) for first, second in pairs}


def _inside(line: list[str]) -> Done:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    before, code = sys.argv, 0
    sys.argv = ["graphrag-local", *line]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            door.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    finally:
        sys.argv = before
    printed, said = (stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, err))  # type: ignore[attr-defined]
    return Done(code, printed, said)


@contextlib.contextmanager
def program(folder: Path, files: Files | None = None, script: Mapping[str, Any] | None = None, *, clock_scale: float = 1.0, **settings: object) -> Iterator[Program]:
    """A project with these files and a model server that plays the script; settings are written section__key=value."""
    with ModelServer(script or {}, clock_scale=clock_scale) as server:
        it = Program(folder, server, {key.replace("__", "."): value for key, value in settings.items()})
        it.put(files or {})
        yield it
