"""The story that all tests of this folder look at: it is told once."""

import pytest

from tests.e2e.story import Story, tell


@pytest.fixture(name="story", scope="session")
def _story(tmp_path_factory) -> Story:
    return tell(tmp_path_factory.mktemp("e2e") / "project")
