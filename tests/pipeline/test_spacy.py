"""Indexes made by `fast` with a spaCy pipeline: what is in them, what decides them, and that they are made offline and the same each time."""

import asyncio
import json
import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("spacy")

from graphrag_local.errors import ModelMissing, NotConfirmed
from graphrag_local.forecast.forecast import forecast
from graphrag_local.store.generations import open_current
from tests.engine.pipelines import save_names
from tests.pipeline.running import Quiet, project_of
from tests.pipeline.test_fast import FAST, FILES, indexed


def with_pipeline(folder, source):
    return project_of(folder, FILES, FAST, f"extraction.spacy={source}")


def models_of(project) -> dict:
    with open_current(project.index) as generation:
        return dict(generation.manifest.about["models"])


def test_the_pipeline_names_things_and_decides_the_index(tmp_path):
    """Entities have the types of its labels; the same files elsewhere are the same index, others are asked about, and without one it is our finder again."""
    one, project = save_names(tmp_path / "one"), tmp_path / "project"
    first = indexed(with_pipeline(project, one))
    shutil.move(one, tmp_path / "moved")
    again = indexed(with_pipeline(project, tmp_path / "moved"))
    newer = save_names(tmp_path / "newer", version="2.0.0")
    with pytest.raises(NotConfirmed, match=r"spaCy xx_pipeline 0\.0\.0.*spaCy xx_pipeline 2\.0\.0.*read anew, without a model") as asked:
        indexed(with_pipeline(project, newer))
    indexed(with_pipeline(project, newer), yes=True)
    named = models_of(with_pipeline(project, newer))
    with pytest.raises(NotConfirmed):
        indexed(project_of(project, FILES, FAST))
    indexed(project_of(project, FILES, FAST), yes=True)

    kinds = {entity.name: entity.type for entity in first.built.snapshot.entities}
    assert kinds == {"Mira Holt": "person", "Tomas Brandt": "person", "Salt Company": "organization", "Port Ellis": "geo"}
    assert first.built.last_build["calls"] == 0
    assert first.counts["relationships"]
    assert (again.published, again.digest) == (False, first.digest)
    assert "--yes" in asked.value.hint
    assert named["name"] == "none"
    assert named["revision"].startswith("spaCy xx_pipeline 2.0.0 (")
    assert models_of(project_of(project, FILES, FAST))["revision"] == ""


def test_the_setting_is_for_fast_only(tmp_path):
    """With `standard` it decides nothing; where the pipeline went, `fast` says so and the index stays."""
    folder = save_names(tmp_path / "names")
    plain, named = project_of(tmp_path / "project", FILES), project_of(tmp_path / "project", FILES, f"extraction.spacy={folder}")
    project = with_pipeline(tmp_path / "project", folder)
    first = indexed(project)
    shutil.rmtree(folder)
    with pytest.raises(ModelMissing, match="There is no spaCy pipeline"):
        indexed(project)

    assert plain.settings.fingerprint() == named.settings.fingerprint()
    assert first.published
    assert models_of(project)["revision"].startswith("spaCy ")


def test_a_dry_run_reads_with_the_pipeline(tmp_path):
    """The forecast says that no model is asked, and that the pipeline's time is its own."""
    found = asyncio.run(forecast(with_pipeline(tmp_path / "project", save_names(tmp_path / "names")), lambda usage, log: Quiet()))

    assert found.calls == 0
    assert any("spaCy pipeline" in note for note in found.notes)


def test_offline_and_the_same_under_any_hash_seed(tmp_path):
    """From the command line, with every connection refused, another interpreter makes the same index, which names no folder of this machine."""
    folder = save_names(tmp_path / "names")
    code = (
        "import socket, sys\n"
        "def refused(*args, **rest): raise AssertionError('a connection was opened')\n"
        "socket.socket.connect = refused\n"
        "from graphrag_local.cli.main import app\n"
        "app(sys.argv[1:])\n"
    )
    here, there = with_pipeline(tmp_path / "here", folder), project_of(tmp_path / "there", FILES)
    line = ("index", str(there.folder), "--method", "fast", "--set", f"extraction.spacy={folder}", "--set", "vectors.kind=none", "--json")
    done = subprocess.run([sys.executable, "-c", code, *line], stdout=subprocess.PIPE, check=True, env=os.environ | {"PYTHONHASHSEED": "7"}, timeout=600)

    assert json.loads(done.stdout)["digest"] == indexed(here).digest
    with open_current(there.index) as generation:
        assert str(tmp_path) not in json.dumps(generation.manifest.about)
