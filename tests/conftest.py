"""How tests are dealt out where several processes run them (`pytest -n 2`): a file stays whole, and the long story of tests/e2e begins first."""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name the group of each test, and put those first whose set-up takes longest."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group("e2e" if "e2e" in item.path.parts else str(item.path)))
    items.sort(key=lambda item: "e2e" not in item.path.parts)
