"""The server that forks builds for all tests of this folder: it takes longer to start than a build takes."""

from collections.abc import Iterator

import pytest

from tests.crash.builder import Builds


@pytest.fixture(name="builds", scope="session")
def _builds() -> Iterator[Builds]:
    with Builds.open() as opened:
        yield opened
