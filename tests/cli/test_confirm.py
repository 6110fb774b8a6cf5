"""Changes of what decides an index: nothing is redone, and nothing mixed, before somebody has said yes."""

import contextlib
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from graphrag_local.prompting import PACKAGED
from tests.cli.shell import SCRIPT, environment, project, sh
from tests.modelserver import ModelServer
from tests.modelserver.script import WORK

READ, WRITTEN, EMBEDDED = "read by the model again", "written anew", "embedded anew"
EMBEDDERS = {**SCRIPT, "embedders": {"one": {"dimension": 8}, "two": {"dimension": 8, "vector": "sha256 of reversed text"}}}


def claims(folder: Path, server: ModelServer) -> str:
    return "--set extraction.claims=true"


def prompt(folder: Path, server: ModelServer) -> str:
    packaged = next(path for path in PACKAGED if path.is_dir()) / "report.md"
    (folder / "prompts").mkdir()
    (folder / "prompts" / "report.md").write_text(packaged.read_text(encoding="utf-8").rstrip() + "\nBe brief.\n", encoding="utf-8")
    return ""


def model(folder: Path, server: ModelServer) -> str:
    server.set_script({**EMBEDDERS, "model": "other-model"})
    return ""


def embedder(folder: Path, server: ModelServer) -> str:
    return "--set vectors.model=two"


def groups(folder: Path, server: ModelServer) -> str:
    return "--set communities.max_cluster_size=2"


def set_back(folder: Path, server: ModelServer) -> None:
    """Undo what was changed outside the command line."""
    server.set_script(EMBEDDERS)
    for path in (folder / "prompts").glob("*.md"):
        path.unlink()


@pytest.fixture(name="town", scope="module")
def _town(tmp_path_factory):
    """An indexed project with vectors, and its model server."""
    folder = tmp_path_factory.mktemp("confirm") / "town"
    with project(folder, script=EMBEDDERS) as server:
        toml = folder / "graphrag.toml"
        toml.write_text(toml.read_text().replace('kind = "none"', 'kind = "server"\nmodel = "one"'), encoding="utf-8")
        done = sh(f"graphrag-local index {folder} --json")
        assert done.code == 0, done.err
        yield folder, server


@pytest.fixture(name="spoilt")
def _spoilt(town, tmp_path):
    """A copy of it."""
    subprocess.run(["cp", "-r", town[0], tmp_path / "copy"], check=True)
    yield tmp_path / "copy", town[1]
    set_back(tmp_path / "copy", town[1])


def files_of(folder: Path) -> dict[Path, bytes]:
    """What is published, and the ledger."""
    index = folder / "index"
    return {path: path.read_bytes() for path in [*index.rglob("generations/**/*"), index / "CURRENT", index / "ledger.sqlite"] if path.is_file()}


CHANGES = {
    "claims": (claims, "extraction.claims: False -> True", {READ, WRITTEN}),
    "prompt": (prompt, "prompt report", {WRITTEN}),
    "model": (model, "model name: 'local-model' -> 'other-model'", {READ, WRITTEN}),
    "embedder": (embedder, "embedder embedder: 'one' -> 'two'", {EMBEDDED}),
    "groups": (groups, "communities.max_cluster_size: 10 -> 2", {"grouped anew", WRITTEN}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_asks(spoilt, name):
    """Without a terminal it ends with 2, the difference and what is redone; nothing is asked or written. --yes goes on; set back, nothing is paid again."""
    folder, server = spoilt
    change, difference, redone = CHANGES[name]
    before, asked = files_of(folder), len(server.requests(*WORK))
    first = sh(f"graphrag-local status {folder} --json").json
    options = change(folder, server)
    done = sh(f"graphrag-local index {folder} {options}")
    assert done.code == 2
    assert "What decides this index has changed" in done.err
    assert difference in done.err
    assert {what for what in (READ, WRITTEN, EMBEDDED, "grouped anew") if what in done.err} == redone
    assert "--yes" in done.err
    probes = 1 if name == "embedder" else 0  # one embedding tells which embedder it is
    assert len(server.requests(*WORK)) - asked <= probes
    assert files_of(folder) == before

    redo = sh(f"graphrag-local index {folder} {options} --yes --json")
    assert redo.code == 0, redo.err
    assert redo.json["published"]
    again = sh(f"graphrag-local index {folder} {options} --json").json
    assert (again["published"], again["last_build"]["calls"]) == (False, 0)

    set_back(folder, server)
    assert sh(f"graphrag-local index {folder}").code == 2
    asked = len(server.requests("extract", "describe", "report"))
    back = sh(f"graphrag-local index {folder} --yes --json").json
    assert (back["last_build"]["calls"], len(server.requests("extract", "describe", "report"))) == (0, asked)
    assert back["digest"] == first["digest"]


@pytest.mark.parametrize(
    "options", ["--set documents.exclude=letters/*", "--set reports.write=all --set query.level=1 --set engine.concurrency=2 --set keep_generations=5"]
)
def test_what_decides_nothing_asks_nothing(spoilt, options):
    """Which documents are read, and what only says when or how to work, changes without a question."""
    folder, _ = spoilt
    done = sh(f"graphrag-local index {folder} --json {options}")
    assert done.code == 0, done.err
    assert done.json["changes"]["gone"] == (["letters/larsen.txt"] if "exclude" in options else [])


def typed(line: str, answer: str) -> tuple[int, str]:
    """Run a command on a terminal and type an answer once it asks: its exit code, and all that the terminal showed."""
    own, its = pty.openpty()
    command = [sys.executable, "-m", *shlex.split(line.replace("graphrag-local", "graphrag_local", 1))]
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment(TERM="xterm"), start_new_session=True)
    os.close(its)
    seen = b""
    with contextlib.suppress(OSError):  # what Linux says when the other end is closed
        while block := os.read(own, 1 << 16):
            seen += block
            if answer and b"[y/N]" in seen:
                os.write(own, f"{answer}\n".encode())
                answer = ""
    code = process.wait(300)
    os.close(own)
    return code, " ".join(seen.decode().split())


@pytest.mark.parametrize("answer", ["n", "y"])
def test_on_a_terminal_it_is_a_question(spoilt, answer):
    """Whoever sits there is asked: n leaves the index as it is and ends with 2, y goes on."""
    folder, _ = spoilt
    before = sh(f"graphrag-local status {folder} --json").json
    code, seen = typed(f"graphrag-local index {folder} --set reports.max_findings=3", answer)
    after = sh(f"graphrag-local status {folder} --json").json
    assert "reports.max_findings: 10 -> 3" in seen
    assert "Go on? [y/N]" in seen
    assert "Traceback" not in seen
    assert (code, after["generation"] != before["generation"]) == ((2, False) if answer == "n" else (0, True))
