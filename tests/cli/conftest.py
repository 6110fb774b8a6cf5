"""What all tests of the command line share: one indexed project, to be read, and a copy of it, to be spoilt."""

import shutil
from pathlib import Path

import pytest

from tests.cli.shell import _alone, project, settings, sh  # noqa: F401
from tests.modelserver import ModelServer


@pytest.fixture(scope="session", name="served")
def _served(tmp_path_factory):
    """An indexed project and the model server of its settings."""
    folder = tmp_path_factory.mktemp("served") / "town"
    with project(folder) as server:
        done = sh(f"graphrag-local index {folder} --json")
        assert done.code == 0, done.err
        yield folder, server


@pytest.fixture(name="town")
def _town(served) -> Path:
    """The indexed project."""
    return served[0]


@pytest.fixture(name="server")
def _server(served) -> ModelServer:
    """Its model server."""
    return served[1]


@pytest.fixture(name="spoilt")
def _spoilt(served, tmp_path) -> Path:
    """A copy of the indexed project."""
    folder = tmp_path / "copy"
    shutil.copytree(served[0], folder)
    return folder
