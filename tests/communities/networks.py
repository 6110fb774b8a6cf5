"""Graphs for the tests of communities: records from a table of edges, cliques, a larger synthetic graph, and checks of a hierarchy."""

import random
from itertools import combinations

from hypothesis import strategies as st

from graphrag_local.communities.detect import components, modularity
from graphrag_local.communities.stage import build_communities
from graphrag_local.ids import digest_of
from graphrag_local.records import Entity, Relationship
from graphrag_local.settings import CommunitiesSettings

RULES = CommunitiesSettings()


def entity(name):
    return Entity(id=name, key=name, name=name, type="thing", types=("thing",), aliases=(), description="", mentions=1)


def relationship(pair, weight):
    a, b = pair
    return Relationship(id=f"{a} {b}", source_id=a, target_id=b, description="", weight=weight, mentions=1)


def records(edges, nodes=()):
    """The entities and relationships of a graph: the ends of its edges, and further nodes."""
    return [entity(name) for name in sorted({*nodes, *(end for pair in edges for end in pair)})], [relationship(p, w) for p, w in edges.items()]


def build(edges, anchor=None, *, nodes=(), rules=RULES, renew=""):
    return build_communities(*records(edges, nodes), rules, anchor, renew=renew)


def clique(prefix, size):
    return dict.fromkeys(combinations([f"{prefix}{index:03d}" for index in range(size)], 2), 1.0)


def roots(communities):
    return [row.member_ids for row in communities if not row.parent_id]


def level_0(communities, edges):
    return modularity(roots(communities), edges)


def assert_sound(communities, nodes, edges):
    """Every level is a partition of all nodes into connected parts; ids are single; parents, children and levels agree."""
    by_id = {row.id: row for row in communities}
    assert len(by_id) == len(communities)
    assert list(communities) == sorted(communities, key=lambda row: (row.first_level, row.id))
    for level in range(max((row.last_level for row in communities), default=-1) + 1):
        assert sorted(m for row in communities if row.first_level <= level <= row.last_level for m in row.member_ids) == sorted(nodes)
    for row in communities:
        own = set(row.member_ids)
        assert len(components(own, [pair for pair in edges if own.issuperset(pair)])) == 1
        children = [by_id[child] for child in row.child_ids]
        assert row.child_ids == tuple(sorted(row.child_ids))
        assert not children or sorted(m for child in children for m in child.member_ids) == list(row.member_ids)
        assert all(child.parent_id == row.id and child.first_level == row.last_level + 1 for child in children)
        assert row.first_level == 0 if not row.parent_id else row.id in by_id[row.parent_id].child_ids


def topics(count, links, seed):
    """A graph of `count` nodes and about `links` edges in which half of the edges stay in a group of 8 and a third in a topic of 200, with hubs."""
    dice = random.Random(seed)
    names = [digest_of(str(index)) for index in range(count)]
    edges = {}
    while len(edges) < links:
        a, kind = dice.randrange(count), dice.random()
        if kind < 0.5:
            b = a - a % 8 + dice.randrange(8)
        elif kind < 0.85:
            b = a - a % 200 + int(200 * dice.random() ** 2)
        else:
            b = int(count * dice.random() ** 2)
        if a != b and b < count:
            edges[min(names[a], names[b]), max(names[a], names[b])] = float(dice.randint(1, 10))
    return edges


def edited(edges, count, seed):
    """The graph with `count` edges taken out and as many others put in between its nodes."""
    dice = random.Random(seed)
    names = sorted({end for pair in edges for end in pair})
    gone = set(dice.sample(sorted(edges), count))
    result = {pair: weight for pair, weight in edges.items() if pair not in gone}
    while len(result) < len(edges):
        a, b = sorted(dice.sample(names, 2))
        result.setdefault((a, b), float(dice.randint(1, 10)))
    return result


@st.composite
def graphs(draw, nodes=30, links=70):
    """Edges between a few nodes, often in several parts."""
    ends = st.integers(0, nodes - 1)
    rows = draw(st.lists(st.tuples(ends, ends, st.integers(0, 4)), max_size=links))
    return {(f"n{min(a, b):02d}", f"n{max(a, b):02d}"): float(weight) for a, b, weight in rows if a != b}


@st.composite
def changes(draw, nodes=33):
    """What happens to some edges: a weight, or None where one goes."""
    ends = st.integers(0, nodes - 1)
    rows = draw(st.lists(st.tuples(ends, ends, st.sampled_from([None, None, 0.0, 1.0, 3.0])), max_size=12))
    return {(f"n{min(a, b):02d}", f"n{max(a, b):02d}"): weight for a, b, weight in rows if a != b}


def changed(edges, change):
    return {pair: weight for pair, weight in {**edges, **change}.items() if weight is not None}
