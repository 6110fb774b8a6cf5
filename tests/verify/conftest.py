"""A sound index, which each file of this folder makes once, and copies of it."""

import shutil

import pytest

from graphrag_local.project import ProjectFolder, open_project
from tests.verify.worlds import RULES, world


@pytest.fixture(scope="module", name="made")
def _made(tmp_path_factory) -> ProjectFolder:
    """A sound index, whose tokens were counted by letters."""
    return world(tmp_path_factory.mktemp("made") / "project")


@pytest.fixture(name="project")
def _project(made, tmp_path) -> ProjectFolder:
    """A copy of it, to be spoilt."""
    shutil.copytree(made.folder, tmp_path / "project")
    return open_project(tmp_path / "project", RULES)
