"""What is said to wrong input, and what help says."""

import contextlib
import json
import re
import shlex
import subprocess
import sys
import tomllib

import pytest
import typer
from typer.main import get_command

from graphrag_local.cli.main import app
from graphrag_local.configuration import load
from graphrag_local.presets import PRESETS
from tests.cli.shell import ROOT, environment, sh
from tests.test_docs import docs_script
from tests.test_layout import HEAVY

COMMANDS = [" ".join(path) for path in docs_script().command_paths()]
README = (ROOT / "README.md").read_text(encoding="utf-8")
WRONG = [
    ("graphrag-local", 2, "Usage"),
    ("graphrag-local indx", 2, "No such command 'indx'"),
    ("graphrag-local index --frob", 2, "No such option: --frob"),
    ("graphrag-local query", 2, "Missing argument"),
    ("graphrag-local index {nowhere}", 2, "There is no folder {nowhere}. | Make a project: graphrag-local init {nowhere}"),
    ("graphrag-local index {town} --set engine.urll=x", 2, "there is no setting 'engine.urll'. | Did you mean 'engine.url'?"),
    ("graphrag-local index {town} --set engine.concurrency=many", 2, "Setting 'engine.concurrency': | 'many'"),
    ("graphrag-local index {town} --set engine.concurrency", 2, "is not section.key=value. | Write --set engine.url="),
    ("graphrag-local index {town} --set engine.url=localhost", 2, "write http://host:port/v1"),
    ("graphrag-local index {town} --set extraction.types= --set extraction.other_type=false", 2, "name a type or allow `other`"),
    ("graphrag-local index {town} --set chunks.min_tokens=5000", 2, "chunks.min_tokens (5000) is larger than chunks.max_tokens (900)"),
    ("graphrag-local index {town} --set chunks.overlap_tokens=700", 2, "chunks.overlap_tokens (700) must be smaller"),
    ("graphrag-local index {town} --set documents.encoding=nope", 2, "there is no encoding 'nope'; write a name such as utf-8"),
    ("graphrag-local index {town} --set documents.ocr_command=ocr", 2, "{{path}} is missing in documents.ocr_command"),
    ("graphrag-local index {town} --set preset=big", 2, "Setting 'preset': | 'paper'"),
    ("graphrag-local init {empty} --preset big", 2, "There is no preset 'big'. | Presets: paper, graphrag, demo."),
    ("graphrag-local init {town} --sample --preset demo", 2, "has another preset than 'demo' | --force"),
    ("graphrag-local init {town}", 2, "graphrag.toml exists. | --force"),
    ("graphrag-local query 'Who?' {empty}", 1, "There is no finished index in {empty}/index. | graphrag-local index {empty}"),
    ("graphrag-local show entity Mira {empty}", 1, "There is no finished index in {empty}/index. | graphrag-local index {empty}"),
    ("graphrag-local query '' {town}", 2, "The question is empty. | Write a question in quotes"),
    ("graphrag-local query ' ?! ' {town}", 2, "The question is empty."),
    ("graphrag-local query 'Who?' {town} --mode wise", 2, "There is no mode 'wise'. | global, source, basic"),
    ("graphrag-local query 'Who?' {town} --level 9", 2, "There is no community level 9; | level 0"),
    ("graphrag-local query 'Who?' {town} --level root", 2, "Invalid value for '--level'"),
    ("graphrag-local show", 2, "Missing argument"),
    ("graphrag-local show person Mira {town}", 2, "'person' | entity, community, report, document, failures"),
    ("graphrag-local show entity {town}", 2, "Which entity? | Give a name"),
    ("graphrag-local show entity 'Mira Hold' {town}", 2, "there is no entity of that name | Did you mean 'Mira Holt'?"),
    ("graphrag-local show entity Zzz {town}", 2, "there is no entity of that name | There are 5: Ada Brandt; Harbour Board;"),
    ("graphrag-local show document mail.txt {town}", 2, "there is no document of that name"),
    ("graphrag-local index {empty} --set engine.url=http://127.0.0.1:9/v1 --set engine.clock_scale=100", 1, "The model server is not there: | correct engine.url"),
    ("graphrag-local index {empty} --set engine.model=my-own", 1, "There is no model 'my-own' in | or take one of: smollm2-135m-instruct"),
    ("graphrag-local models verify my-own", 1, "There is no model 'my-own' in"),
    ("graphrag-local models verify qwen3-8b", 1, "The model 'qwen3-8b' is not in | graphrag-local models fetch qwen3-8b"),
    ("graphrag-local models fetch my-own", 1, "There is no model 'my-own' in | not in the catalogue"),
    ("graphrag-local serve {town} --engine-only", 2, "--engine-only starts a model server, but | Leave out one of them."),
]


@pytest.mark.parametrize(("line", "code", "said"), WRONG, ids=[line.removeprefix("graphrag-local ") for line, _, _ in WRONG])
def test_wrong_input_gets_a_sentence_and_an_exit_code(line, code, said, town, tmp_path):
    """Whatever is wrong is said on standard error with what to do, without a traceback, and nothing goes to standard output."""
    places = {"town": str(town), "empty": str(tmp_path / "empty"), "nowhere": str(tmp_path / "nowhere")}
    (tmp_path / "empty").mkdir()

    done = sh(line.format(**places))

    assert done.code == code, done
    for part in said.format(**places).split(" | "):
        assert part in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_an_unexpected_error_is_one_line_with_a_way_to_see_more(town, monkeypatch):
    """A bug of ours does not throw a page of frames at people; they are told how to get it."""
    monkeypatch.setattr("graphrag_local.status.status_of", lambda *_, **__: 1 / 0)

    done = sh(f"graphrag-local status {town}")

    assert done.code == 1
    assert done.err.splitlines()[0] == "graphrag-local: unexpected ZeroDivisionError: division by zero"
    assert "GRAPHRAG_LOCAL_DEBUG=1" in done.err


def test_a_fresh_project_says_where_documents_go(tmp_path):
    """`init` makes the folder, its settings and its input folder, and names the next command; with a preset the settings have it."""
    for preset in ("", *PRESETS):
        folder = tmp_path / f"p-{preset}"

        done = sh(f"graphrag-local init {folder} {f'--preset {preset}' if preset else ''}")

        assert done.code == 0
        assert f"graphrag-local index {folder}" in done.out
        assert (folder / "input").is_dir()
        assert load(folder, environment={}).preset == preset
    told = json.loads(sh(f"graphrag-local init {tmp_path / 'with'} --sample --json").out)
    assert told == {"project": f"{tmp_path}/with", "settings": f"{tmp_path}/with/graphrag.toml", "input": f"{tmp_path}/with/input", "sample": True}
    assert len(list((tmp_path / "with" / "input").rglob("*.*"))) > 30


def test_the_version_is_that_of_the_package():
    """`--version` prints the version in pyproject.toml and nothing else."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

    assert sh("graphrag-local --version").out == f"{version}\n"


# --- help


def parses(line: str) -> None:
    """Raise what the command line raises when it cannot read a line; nothing is run."""
    words = shlex.split(line.split(" #")[0].removesuffix(" &"))[1:]
    command, context = get_command(app), None
    while hasattr(command, "commands"):
        context = command.make_context(words[0], words, parent=context)
        _, command, words = command.resolve_command(context, words)
    with contextlib.suppress(typer.Exit):
        command.make_context(command.name, words, parent=context)
    for at, word in enumerate(words):
        if word == "--set":
            load(ROOT, (words[at + 1],), {})


@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_of_help_can_be_pasted(command):
    """Each example in a command's help is a command line that this program reads."""
    shown = sh(f"graphrag-local {command} --help")
    examples = re.findall(rf"^ +(graphrag-local {command}\b.*)$", shown.out, re.MULTILINE)

    assert shown.code == 0
    assert examples
    for example in examples:
        parses(example)


def test_the_commands_of_the_readme_can_be_pasted():
    """Each `graphrag-local` line of the README's code blocks is read by this program, and each setting it names exists."""
    blocks = re.findall(r"^```bash\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("graphrag-local ")]
    inline = re.findall(r"--set ([a-z_]+\.[a-z_]+=[^` ]+)", README)

    assert len(lines) >= 6
    for line in lines:
        parses(line)
    for override in inline:
        assert load(ROOT, (override,), {})


def test_the_list_of_commands_breaks_off_no_sentence():
    """On 80 columns each command is told in a whole sentence."""
    listed = sh("graphrag-local --help").out.partition("Commands:")[2].strip().splitlines()

    assert len(listed) == 11
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []


def test_help_of_every_command_is_light():
    """No help, of the program or of a command, loads a library that takes long to load."""
    code = f"""
import sys
from graphrag_local.cli.main import app
for command in {["", *COMMANDS]!r}:
    app([*command.split(), "--help"], standalone_mode=False)
print(*sorted(sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)

    assert done.stdout.count("Usage:") == len(COMMANDS) + 1
    assert set(done.stderr.split()) & (HEAVY | {"httpx", "rich.console", "uvicorn", "jinja2"}) == set()
