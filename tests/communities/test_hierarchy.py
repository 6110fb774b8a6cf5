"""The hierarchy on graphs with known answers: every level is a partition of all nodes, whatever the order of arrival."""

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrag_local.communities.detect import modularity, partition
from graphrag_local.communities.tree import grow

SEED = 3735928559


def clique(prefix, size):
    return dict.fromkeys(combinations([f"{prefix}{index:03d}" for index in range(size)], 2), 1.0)


def nodes_of(edges):
    return sorted({node for pair in edges for node in pair})


def hierarchy(edges, nodes=None, *, max_size=10):
    return grow(nodes if nodes is not None else nodes_of(edges), edges, max_size=max_size, seed=SEED)


def test_two_cliques_and_a_bridge_are_two_communities():
    """The bridge does not join what is dense on each side."""
    found = hierarchy(clique("a", 6) | clique("b", 6) | {("a000", "b000"): 1.0})

    assert sorted({m[0] for m in c.member_ids} for c in found) == [{"a"}, {"b"}]


def test_a_complete_graph_stays_one_community():
    """Modularity does not split a clique: it is one row, larger than the aim, and no node is lost."""
    (only,) = hierarchy(clique("a", 100))

    assert len(only.member_ids) == 100


def test_pairs_are_communities():
    """Pairs without a connection are a community each."""
    assert [len(c.member_ids) for c in hierarchy({("a", "b"): 1.0, ("c", "d"): 1.0, ("e", "f"): 2.0})] == [2, 2, 2]


def test_a_star_is_one_community():
    """A star is not split, however large."""
    assert len(hierarchy({("a", f"b{index:02d}"): 1.0 for index in range(40)})) == 1


@pytest.mark.parametrize(("nodes", "sizes"), [([], []), (["a"], [1]), (["a", "b", "c"], [1, 1, 1])])
def test_nodes_without_edges_are_single(nodes, sizes):
    """No edges, one node, no node at all: defined results, each node by itself."""
    assert [len(c.member_ids) for c in hierarchy({}, nodes)] == sizes


def test_disconnected_parts_and_loners_are_all_there():
    """Unconnected parts have a community each, a loner is a row of its own."""
    found = hierarchy(clique("a", 4) | clique("b", 3), [*nodes_of(clique("a", 4) | clique("b", 3)), "z"])

    assert sorted(len(c.member_ids) for c in found) == [1, 3, 4]


GRAPHS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 9)), max_size=160)


@settings(max_examples=60, deadline=None)
@given(rows=GRAPHS, max_size=st.integers(2, 12))
def test_every_level_covers_every_node_once(rows, max_size):
    """On any graph each level is a partition, and parents and children agree."""
    edges = {(f"n{min(a, b):02d}", f"n{max(a, b):02d}"): float(w) for a, b, w in rows if a != b}
    nodes = [f"n{index:02d}" for index in range(41)]
    found = hierarchy(edges, nodes, max_size=max_size)
    by_id = {c.id: c for c in found}

    for level in range(max((c.last_level for c in found), default=-1) + 1):
        assert sorted(m for c in found if c.first_level <= level <= c.last_level for m in c.member_ids) == nodes
    for community in found:
        children = [by_id[child] for child in community.child_ids]
        assert not children or sorted(m for c in children for m in c.member_ids) == list(community.member_ids)
        assert all(child.parent_id == community.id and child.first_level == community.last_level + 1 for child in children)


@settings(max_examples=40, deadline=None)
@given(rows=GRAPHS, shuffle=st.integers(0, 10**6))
def test_the_order_of_arrival_does_not_matter(rows, shuffle):
    """Shuffled nodes and edges give the same communities with the same ids."""
    edges = {(f"n{min(a, b):02d}", f"n{max(a, b):02d}"): float(w) for a, b, w in rows if a != b}
    nodes = nodes_of(edges)
    mixed = random.Random(shuffle)
    other = dict(mixed.sample(list(edges.items()), len(edges)))

    assert hierarchy(edges, nodes) == hierarchy(other, mixed.sample(nodes, len(nodes)))


def test_an_unchanged_community_keeps_its_subtree():
    """What happens in another part of the graph leaves a community's ids alone."""
    left = clique("a", 8) | clique("b", 8) | {("a000", "b000"): 1.0}
    before, after = hierarchy(left | clique("c", 5)), hierarchy(left | clique("c", 6))

    kept = {c.id for c in before if c.member_ids[0][0] in "ab"}
    assert kept <= {c.id for c in after}


def test_modularity_prefers_the_cliques():
    """The partition found is better than one community of all."""
    edges = clique("a", 6) | clique("b", 6) | {("a000", "b000"): 1.0}

    assert modularity(partition(nodes_of(edges), edges, SEED), edges) > modularity([nodes_of(edges)], edges)
    assert modularity([["a"], ["b"]], {}) == 0.0
