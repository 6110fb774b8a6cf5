"""The base package, without any extra: everything works against a server, and what needs an extra says which, and what does without."""

import json
import os
import subprocess
import sys

import pytest

from tests.cli.shell import SCRIPT, environment, project

EXTRAS = ("torch", "vllm", "transformers", "sentence_transformers", "gguf", "accelerate", "spacy")
BASE = f"""
import sys
sys.modules.update(dict.fromkeys({EXTRAS!r}))  # None: neither found nor imported
from graphrag_local.cli.main import main
main()
"""


def base(*arguments, cwd):
    """Run one command as an installation without extras does."""
    command = [sys.executable, "-c", BASE, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, env=environment(), check=False)


def test_a_server_is_all_that_the_base_package_needs(tmp_path):
    """Index, status, doctor and a question run without torch, transformers and vLLM."""
    with project(tmp_path, script=SCRIPT | {"dimension": 8}):
        vectors = ("--set", "vectors.kind=server")
        built = base("index", ".", *vectors, "--json", cwd=tmp_path)
        asked = base("query", "Who asked for a lamp?", ".", *vectors, "--mode", "basic", "--json", cwd=tmp_path)
        told = base("doctor", ".", *vectors, "--json", cwd=tmp_path)

    assert (built.returncode, asked.returncode, told.returncode) == (0, 0, 0), built.stderr + asked.stderr + told.stderr
    assert json.loads(built.stdout)["counts"]["entities"] > 0
    assert json.loads(asked.stdout)["citations"]
    assert {"what": "embedder", "state": "ok"}.items() <= json.loads(told.stdout)[-2].items()


def test_a_server_that_serve_is_attached_to_embeds_too(tmp_path):
    """A run that finds its model server through a live `serve` uses that server's embeddings, as one that is given its address does."""
    with project(tmp_path, script=SCRIPT | {"dimension": 8}) as server:
        (tmp_path / "graphrag.toml").write_text("", encoding="utf-8")
        announced = tmp_path / "index/run/serve.json"
        announced.parent.mkdir(parents=True)
        announced.write_text(json.dumps({"url": server.url, "pid": os.getpid()}), encoding="utf-8")

        built = base("index", ".", cwd=tmp_path)
        told = base("status", ".", "--json", cwd=tmp_path)

    assert built.returncode == 0, built.stderr
    assert json.loads(told.stdout)["models"]["dimension"] == 8


@pytest.mark.parametrize(
    ("line", "extra", "instead"),
    [
        ("index .", "embedded", "--set engine.url=http://127.0.0.1:8000/v1"),
        ("serve . --set server.port=0", "vllm", "--engine-url http://127.0.0.1:8000/v1"),
        ("index . --method fast --set extraction.spacy=some_pipeline", "spacy", 'Set extraction.spacy to ""'),
    ],
)
def test_what_needs_an_extra_says_what_does_without(tmp_path, line, extra, instead):
    """What stops is told which extra to install and, first, what does without it, such as a server; no model has to be fetched for that."""
    (tmp_path / "input").mkdir()

    done = base(*line.split(), cwd=tmp_path)

    assert done.returncode == 1
    assert f'pip install "graphrag-local[{extra}]"' in done.stderr
    assert instead in done.stderr
