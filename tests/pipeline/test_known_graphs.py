"""Graphs whose communities are known, read from documents; and the same index whatever is shuffled, parallel, moved or hashed otherwise."""

import asyncio
import os
import random
import shutil
import subprocess
import sys
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from graphrag_local.communities.stage import build_communities
from graphrag_local.engine.base import Reply, Request
from graphrag_local.errors import EngineRefused
from graphrag_local.query.view import View
from tests.pipeline.running import index, opened, project_of, scribe, scripted, told_as
from tests.pipeline.test_conservation import collection

ROOT = Path(__file__).parents[2]
VECTORS = "vectors.kind=none"


def clique(prefix: str, size: int) -> list[tuple[str, str]]:
    """Everybody knows everybody."""
    return list(combinations([f"{prefix}{number}" for number in range(size)], 2))


def star(prefix: str, size: int) -> list[tuple[str, str]]:
    """Everybody knows one."""
    return [(f"{prefix}0", f"{prefix}{number}") for number in range(1, size)]


def members_of(prefix: str, size: int) -> frozenset[str]:
    return frozenset(f"{prefix}{number}" for number in range(size))


BRIDGED = [*clique("A", 8), *clique("B", 8), ("A0", "B0")]
GRAPHS: dict[str, tuple[list[tuple[str, str]], list[str], set[frozenset[str]]]] = {  # edges, loners, communities of the root level
    "two cliques and a bridge": (BRIDGED, [], {members_of("A", 8), members_of("B", 8)}),
    "a complete graph": (clique("A", 14), [], {members_of("A", 14)}),
    "pairs": ([("A0", "A1"), ("B0", "B1"), ("C0", "C1")], [], {members_of(prefix, 2) for prefix in "ABC"}),
    "a star": (star("A", 14), [], {members_of("A", 14)}),
    "no edges": ([], ["A0", "B0", "C0"], {frozenset([name]) for name in ("A0", "B0", "C0")}),
    "one node": ([], ["A0"], {frozenset(["A0"])}),
    "disconnected parts": (
        [*clique("A", 4), *star("B", 5), ("C0", "C1")],
        ["D0"],
        {members_of("A", 4), members_of("B", 5), members_of("C", 2), members_of("D", 1)},
    ),
}


def built(tmp_path: Path, edges, loners, *overrides: str):
    """The published communities by name, and the names of all entities."""
    third = -(-len(edges) // 3) or 1
    files = {f"{part}.txt": told_as(edges[part * third : (part + 1) * third], loners if part == 0 else ()) for part in range(3)}
    project = project_of(tmp_path, {name: text for name, text in files.items() if text.strip()}, *overrides)
    index(project)
    with opened(project) as stored:
        view = View(stored)
        names = {entity.id: entity.name for entity in stored.entities()}
        levels = [[frozenset(names[member] for member in community.member_ids) for community in view.level(level)] for level in view.levels]
        return levels, set(names.values()), list(stored.communities())


@pytest.mark.parametrize("name", GRAPHS)
def test_every_level_holds_every_node_once(tmp_path, name):
    """Whatever the graph and however small its communities should be, a level is a partition of all nodes, and each splits the one above."""
    edges, loners, _ = GRAPHS[name]
    for size in (1, 3, 10):
        levels, everybody, communities = built(tmp_path / str(size), edges, loners, f"communities.max_cluster_size={size}")
        assert everybody == {end for edge in edges for end in edge} | set(loners)
        for level in levels:
            assert sorted(member for group in level for member in group) == sorted(everybody)
        for upper, lower in pairwise(levels):
            assert all(any(group <= above for above in upper) for group in lower)
        by_id = {community.id: community for community in communities}
        for community in communities:
            assert not community.parent_id or set(community.member_ids) < set(by_id[community.parent_id].member_ids)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_root_communities_are_the_known_ones(tmp_path, name):
    """Cliques stay whole, parts without a path between them stay apart, single nodes are communities of their own."""
    edges, loners, expected = GRAPHS[name]

    assert set(built(tmp_path, edges, loners)[0][0]) == expected


def test_no_community_joins_parts_without_a_path(tmp_path):
    """A hundred small parts give a hundred roots."""
    edges = [edge for number in range(100) for edge in clique(f"N{number}x", 3)]
    levels, _, _ = built(tmp_path, edges, ())

    assert len(levels[0]) == 100
    assert all(len({member.split("x")[0] for member in group}) == 1 for group in levels[0])


def test_shuffled_records_give_the_same_communities(tmp_path):
    """The order in which nodes and edges arrive, and which end comes first in a document, changes neither members nor ids."""
    project = project_of(tmp_path, collection(4, 80, 10), "communities.max_cluster_size=4")
    index(project)

    with opened(project) as stored:
        entities, edges, expected = list(stored.entities()), list(stored.relationships()), set(stored.communities())
    for seed in range(5):
        dice = random.Random(seed)
        dice.shuffle(entities)
        dice.shuffle(edges)
        assert set(build_communities(entities, edges, project.settings.communities, None).communities) == expected


def test_another_seed_is_another_setting(tmp_path):
    """The seed of the partition is part of what an index is made from."""
    files = collection(4, 80, 10)
    first = index(project_of(tmp_path / "a", files)).digest

    assert index(project_of(tmp_path / "b", files, "communities.seed=7")).digest != first
    assert index(project_of(tmp_path / "c", files)).digest == first


class Late:
    """An engine whose replies come in an order of their own."""

    def __init__(self, seed: int) -> None:
        self._inner, self._dice = scripted(), random.Random(seed)
        self.card = self._inner.card
        self.at_once = self.most = 0

    async def generate(self, request: Request) -> Reply:
        """The reply, some moments later."""
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        for _ in range(self._dice.randrange(20)):
            await asyncio.sleep(0)
        self.at_once -= 1
        return await self._inner.generate(request)

    async def close(self) -> None:
        """Nothing to close."""


def test_concurrency_changes_nothing(tmp_path):
    """One request at a time or many, in whatever order they come back: the same digest."""
    files = {f"{name}{number}": text for number in range(4) for name, text in collection(number, 50, 10, documents=5).items()}
    rules = ("communities.max_cluster_size=4", "reports.write=all", "reports.min_tokens=0", "reports.context_tokens=900", "chunks.max_tokens=60",
             "chunks.min_tokens=20")  # fmt: skip
    engines = [Late(1), Late(2), Late(3)]
    digests = {
        index(project_of(tmp_path / str(number), files, *rules, f"engine.concurrency={limit}"), engine).digest
        for number, (engine, limit) in enumerate(zip(engines, (1, 3, 64), strict=True))
    }

    assert len(digests) == 1
    assert engines[0].most <= 2 < engines[2].most


def test_the_same_ledger_gives_the_same_index_in_another_folder(tmp_path):
    """Documents, settings and ledger in a fresh folder: no call, and the same digest, tables and all."""
    files, rules = collection(6, 60, 10), ("reports.context_tokens=900", "communities.max_cluster_size=4")
    first = project_of(tmp_path / "here", files, *rules)
    made = index(first)
    second = project_of(tmp_path / "far" / "away", files, *rules)
    second.index.mkdir()
    shutil.copy(first.index / "ledger.sqlite", second.index / "ledger.sqlite")

    def refusing(request):
        raise EngineRefused("asked although the ledger knows")

    engine = scripted(refusing)
    again = index(second, engine)
    assert engine.history == []
    assert again.digest == made.digest
    with opened(first) as one, opened(second) as other:
        for kind in ("documents", "chunks", "mentions", "entities", "relationships", "communities", "reports", "failures"):
            assert list(getattr(one, kind)()) == list(getattr(other, kind)())


def test_a_second_run_asks_and_publishes_nothing(tmp_path):
    """Nothing changed, so nothing is asked and the generation stays, also where everything is computed."""
    project = project_of(tmp_path, collection(6, 40, 10))
    first = index(project)
    engine = scripted()
    again = index(project, engine, whole=True)

    assert engine.history == []
    assert (again.generation, again.published, again.digest) == (first.generation, False, first.digest)


def test_the_hash_seed_changes_nothing(tmp_path):
    """Another PYTHONHASHSEED, and so another order of sets and dictionaries' keys, gives the same digest."""
    files, rules = collection(7, 70, 10), ("communities.max_cluster_size=4", "reports.context_tokens=900", VECTORS)
    here = index(project_of(tmp_path / "here", files, *rules)).digest
    there = project_of(tmp_path / "there", files).folder
    environment = {**os.environ, "PYTHONHASHSEED": "4242", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.digest", str(there), *rules], capture_output=True, text=True, env=environment, cwd=ROOT, check=False
    )

    assert done.stdout.strip() == here, done.stderr[-2000:]


def test_an_edit_and_its_undoing_restore_the_digest(tmp_path):
    """What is changed and changed back leaves the index as it was; in between only the edited document's chunks are asked about."""
    files = {f"{number}.txt": told_as(clique(f"G{number}x", 5)) for number in range(6)}
    project = project_of(tmp_path, files)
    first = index(project)
    path = project.input_root / "3.txt"
    path.write_text(files["3.txt"] + "G3x0 knows G3x9 (4).\n")
    engine = scripted()
    edited = index(project, engine)
    path.write_text(files["3.txt"])
    asked_again = scripted(scribe)

    assert edited.digest != first.digest
    assert [request.purpose for request in engine.history].count("extract") == 1
    assert [request.purpose for request in engine.history].count("report") == 1
    assert index(project, asked_again).digest == first.digest
    assert asked_again.history == []
