"""The documents stay true: every command, setting and prompt is described, and the README's generated blocks are current."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
from jinja2 import Environment
from jinja2.meta import find_undeclared_variables
from typer.testing import CliRunner

from graphrag_local.cli.init import template
from graphrag_local.cli.main import app
from graphrag_local.configuration import FILE_NAME, known_keys, load
from graphrag_local.prompting import load_all
from graphrag_local.settings import Settings

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def docs_script():
    spec = importlib.util.spec_from_file_location("docs_script", ROOT / "scripts/docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_blocks_are_current():
    """The README is what `python scripts/docs.py` would write."""
    assert docs_script().render(README) == README


@pytest.mark.parametrize("path", docs_script().command_paths(), ids=" ".join)
def test_every_command_says_what_it_does_with_an_example(path):
    """Help is one sentence, every option is explained, and a pasteable example follows."""
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"}).output

    assert f"graphrag-local {' '.join(path)}" in shown.split("Usage:")[1]
    assert re.search(rf"^\s*graphrag-local {' '.join(path)}\b", shown.split("\n", 3)[3], re.MULTILINE), shown


def test_every_setting_is_explained():
    """Each setting has a sentence of its own."""
    assert [key for key, text in known_keys().items() if len(text) < 10] == []


def test_the_template_names_every_setting_and_loads(tmp_path):
    """A fresh graphrag.toml shows every setting, and stays valid when all of it is uncommented."""
    text = template()
    shown = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    (tmp_path / FILE_NAME).write_text(shown, encoding="utf-8")

    assert load(tmp_path, environment={}) == Settings()
    assert len(tomllib.loads(shown)) == len(Settings.model_fields)


@pytest.mark.parametrize("prompt", load_all().values(), ids=lambda p: p.name)
def test_every_prompt_names_its_user_and_its_variables(prompt):
    """Front matter lists exactly the variables that the templates use, and names a module that exists."""
    jinja = Environment()
    used = find_undeclared_variables(jinja.parse(prompt.system)) | find_undeclared_variables(jinja.parse(prompt.user))

    assert set(prompt.variables) == used
    assert (ROOT / "graphrag_local" / prompt.used_by.replace(".", "/")).with_suffix(".py").is_file()


def test_prompts_have_no_worked_example():
    """No prompt shows an invented person or place that a small model could copy into the graph."""
    for prompt in load_all().values():
        capitals = re.findall(r"(?<=[a-z,] )[A-Z][a-z]+(?: [A-Z][a-z]+)+", prompt.system)
        assert capitals == [], prompt.name
