"""The anchored partition: a function of the anchor and today's graph, in which what did not change stays."""

import os
import random
import subprocess
import sys
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrag_local.communities.anchor import Grower
from graphrag_local.communities.detect import improve, modularity, partition
from graphrag_local.communities.match import inherit
from graphrag_local.communities.stage import build_communities
from graphrag_local.communities.tree import grow
from graphrag_local.ids import community_id
from graphrag_local.records import AnchorCommunity, Community
from graphrag_local.settings import CommunitiesSettings
from tests.communities.networks import RULES, assert_sound, build, changed, changes, clique, edited, graphs, level_0, records, roots, topics

quick = settings(max_examples=60, deadline=None, derandomize=True)
SIZES = st.sampled_from([3, 6, 10])


def sized(size, **more):
    return CommunitiesSettings(max_cluster_size=size, **more)


def exact(communities):
    """The communities with what is below them, without ids."""
    by_id = {row.id: row for row in communities}

    def below(row):
        return row.member_ids, tuple(sorted(below(by_id[child]) for child in row.child_ids))

    return {below(row) for row in communities}


def test_without_an_anchor_it_is_a_fresh_run_and_its_own_anchor():
    """The first partition is the recursion from nothing, and the anchor holds its rows and its edges."""
    edges = topics(200, 600, 1)
    first = build(edges)

    assert first.renewed == "first"
    assert first.communities == grow(sorted({end for pair in edges for end in pair}), edges, max_size=10, seed=RULES.seed)
    assert [(row.id, row.member_ids, row.parent_id, row.last_level) for row in first.anchor.communities] == [
        (row.id, row.member_ids, row.parent_id, row.last_level) for row in first.communities
    ]
    assert {(edge.source_id, edge.target_id): edge.weight for edge in first.anchor.edges} == edges


@quick
@given(graphs(), changes(), SIZES, st.sampled_from(["", "asked"]))
def test_every_anchored_hierarchy_is_sound(edges, change, size, renew):
    """On any graph, whatever changed, each level is a partition of all nodes into connected parts, and a node without edges is alone."""
    after, nodes = changed(edges, change), ["n00", "n31", "z"]
    found = build(after, build(edges, rules=sized(size)).anchor, nodes=nodes, rules=sized(size), renew=renew).communities
    assert_sound(found, {*nodes, *(end for pair in after for end in pair)}, after)
    assert ("z",) in roots(found)


@quick
@given(graphs(), changes(), SIZES, st.randoms())
def test_the_order_of_rows_does_not_matter(edges, change, size, dice):
    """Shuffled entities, relationships and anchor rows give the same communities and the same anchor."""
    anchor = build(edges, rules=sized(size)).anchor
    entities, relationships = records(changed(edges, change))
    mixed = type(anchor)(communities=tuple(dice.sample(anchor.communities, len(anchor.communities))), edges=tuple(dice.sample(anchor.edges, len(anchor.edges))))
    one = build_communities(entities, relationships, sized(size), anchor)
    other = build_communities(dice.sample(entities, len(entities)), dice.sample(relationships, len(relationships)), sized(size), mixed)

    assert (other.communities, other.renewed) == (one.communities, one.renewed)
    assert other.anchor == (one.anchor if one.renewed else mixed)


def test_the_hash_seed_does_not_matter():
    """Two processes with other hash seeds give the same communities, anchored and renewed."""
    script = (
        "from tests.communities.networks import build, edited, topics\n"
        "edges = topics(300, 900, 2); anchor = build(edges).anchor; after = edited(edges, 9, 3)\n"
        "print([(row.id, row.member_ids) for renew in ('', 'asked') for row in build(after, anchor, renew=renew).communities])"
    )
    runs = [
        subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1] != ""


@quick
@given(graphs(), changes(), SIZES)
def test_add_then_remove_restores(edges, change, size):
    """What is changed and changed back, with a build between, leaves what was there, ids and anchor included: a few edges renew no anchor."""
    first = build(edges, rules=sized(size))
    between = build(changed(edges, change), first.anchor, rules=sized(size))
    back = build(dict(reversed(edges.items())), between.anchor, rules=sized(size))

    assert between.renewed == ""
    assert (back.communities, back.anchor, back.renewed) == (first.communities, first.anchor, "")


def test_the_order_of_edits_does_not_matter():
    """Four edits in any order, a build after each, end in the same communities."""
    edges = topics(400, 1600, 4)
    first = build(edges)
    edits = [edited(edges, 2, seed) for seed in range(4)]
    steps = [{pair: step.get(pair) for pair in {**edges, **step} if step.get(pair) != edges.get(pair)} for step in edits]
    ends = []
    for order in list(permutations(steps))[::7]:
        graph, found = edges, first
        for step in order:
            graph = changed(graph, step)
            found = build(graph, found.anchor)
            assert found.renewed == ""
        ends.append(found)
    assert all(end == ends[0] for end in ends)
    assert ends[0].communities != first.communities


@quick
@given(graphs(), changes(), SIZES, st.sampled_from(["", "asked", "age"]))
def test_a_build_with_its_own_anchor_changes_nothing(edges, change, size, renew):
    """The anchor that a build returns gives the same communities on the same graph, and is kept."""
    found = build(changed(edges, change), build(edges, rules=sized(size)).anchor, rules=sized(size), renew=renew)
    again = build(changed(edges, change), found.anchor, rules=sized(size))

    assert (again.communities, again.anchor, again.renewed) == (found.communities, found.anchor, "")


@quick
@given(graphs(), changes(), SIZES)
def test_level_0_comes_up_to_a_fresh_run(edges, change, size):
    """The modularity of level 0 is at least 0.99 of a fresh run's."""
    after = changed(edges, change)
    if any(after.values()):
        anchored = level_0(build(after, build(edges, rules=sized(size)).anchor, rules=sized(size)).communities, after)
        fresh = level_0(build(after, rules=sized(size)).communities, after)
        assert anchored >= fresh - 0.01 * abs(fresh)


def test_what_did_not_change_stays():
    """With 1% of the edges changed nine communities in ten are as they were, with all below them and their ids; a fresh run keeps clearly fewer."""
    edges = topics(2000, 12000, 5)
    after = edited(edges, 60, 6)
    before, found, fresh = build(edges), build(after, build(edges).anchor), build(after)
    kept, freshly = ({(row.id, row.member_ids) for row in before.communities} & {(row.id, row.member_ids) for row in f.communities} for f in (found, fresh))

    assert found.renewed == ""
    assert len(kept) >= 0.9 * len(before.communities) > 1.4 * len(freshly)
    assert len({row.id for row in before.communities} & {row.id for row in found.communities}) >= 0.98 * len(before.communities)
    assert level_0(found.communities, after) >= 0.99 * level_0(fresh.communities, after)
    touched = {end for pair in edges.keys() ^ after.keys() for end in pair}
    whole = {tree for tree in exact(before.communities) if touched.isdisjoint(tree[0])}
    assert len(whole & exact(found.communities)) >= 0.95 * len(whole)


def test_an_untouched_component_stays_exactly():
    """Where nothing differs, a community and its subtree are the anchor's, with their ids, whatever happens in another component."""
    left, right = topics(300, 1200, 7), {(f"x{a}", f"x{b}"): w for (a, b), w in topics(300, 1200, 8).items()}
    before = build(left | right)
    found = build(left | edited(right, 40, 9), before.anchor)

    assert found.renewed == ""
    ours = [row for row in before.communities if row.member_ids[0][0] != "x"]
    assert len(ours) > 20
    assert {(row.id, row.member_ids, row.parent_id, row.child_ids) for row in ours} <= {
        (row.id, row.member_ids, row.parent_id, row.child_ids) for row in found.communities
    }


def test_a_community_that_changes_a_little_keeps_its_id():
    """A member that comes or goes leaves the id; a community of new members gets the id of its birth."""
    before = build(clique("a", 6) | clique("b", 6) | {("a000", "b000"): 1.0})
    after = clique("a", 7) | {pair: 1.0 for pair in clique("b", 6) if "b005" not in pair} | clique("c", 4) | {("a000", "b000"): 1.0}
    found = build(after, before.anchor)
    ids, old = ({row.member_ids[0][0]: row.id for row in p.communities} for p in (found, before))

    assert [len(row.member_ids) for row in sorted(found.communities, key=lambda row: row.member_ids)] == [7, 5, 4]
    assert (ids["a"], ids["b"]) == (old["a"], old["b"])
    assert ids["c"] == community_id(0, ("c000", "c001", "c002", "c003"))


def test_an_id_that_lives_on_is_not_given_twice():
    """A community born with the members that the bearer of its id had at birth gets an id of its own."""
    born = community_id(0, ("a", "b"))
    anchor = [AnchorCommunity(id=born, first_level=0, last_level=0, parent_id="", member_ids=("c", "d"))]
    rows = [Community(id=community_id(0, m), first_level=0, last_level=0, parent_id="", child_ids=(), member_ids=m) for m in (("a", "b"), ("c", "d", "e"))]
    ids = {row.member_ids: row.id for row in inherit(rows, anchor)}

    assert ids["c", "d", "e"] == born != ids["a", "b"]


def test_the_best_overlap_gets_the_id():
    """Two communities that could both be the old one: the nearer takes its id, the other is born; halves of equal size are told apart by their ids."""
    anchor = [AnchorCommunity(id="old", first_level=0, last_level=0, parent_id="", member_ids=tuple("abcdef"))]

    def ids(*parts):
        rows = [Community(id="".join(part), first_level=0, last_level=0, parent_id="", child_ids=(), member_ids=tuple(part)) for part in parts]
        return {"".join(row.member_ids): row.id for row in inherit(rows, anchor)}

    assert ids("abcd", "ef") == {"abcd": "old", "ef": "ef"}
    assert ids("def", "abc") == {"abc": "old", "def": "def"}
    assert ids("abxy", "cd", "ef") == {"abxy": "abxy", "cd": "cd", "ef": "ef"}


def test_a_community_that_falls_apart_is_its_pieces():
    """Without the node that held them together three cliques are three communities, and one that lost its edges is alone."""
    star = {("hub", f"{prefix}000"): 9.0 for prefix in "xyz"}
    before = build(clique("x", 3) | clique("y", 3) | clique("z", 3) | star)
    found = build(clique("x", 3) | clique("y", 3) | clique("z", 3), before.anchor, nodes=["hub"])

    assert sorted(roots(found.communities)) == [("hub",), *((f"{p}000", f"{p}001", f"{p}002") for p in "xyz")]


def test_sub_communities_of_a_touched_community_stay():
    """One edge more inside a large community splits it as before, but for what its ends do."""
    edges = topics(200, 900, 10)
    before = build(edges)
    big = max((row for row in before.communities if row.child_ids), key=lambda row: len(row.member_ids))
    leaf = next(row for row in before.communities if row.first_level == 1 and row.parent_id == big.id and len(row.member_ids) > 3)
    found = build(edges | {leaf.member_ids[:2]: edges.get(leaf.member_ids[:2], 0.0) + 1.0}, before.anchor)

    assert found.renewed == ""
    assert set(big.child_ids) <= {row.id for row in found.communities}


def test_a_community_that_outgrows_the_aim_is_split():
    """A community that had nothing below is partitioned from nothing once it is too large."""
    rest = dict.fromkeys(clique("y", 9) | clique("z", 9), 100.0) | {("a000", "b000"): 2.0}  # beside so heavy a rest the two cliques are one on level 0
    before = build(clique("a", 5) | clique("b", 5) | rest)
    found = build(clique("a", 5) | clique("b", 6) | rest, before.anchor)
    was, now = (next(row for row in p.communities if row.member_ids[0] == "a000" and not row.parent_id) for p in (before, found))

    assert (len(was.member_ids), len(was.child_ids)) == (10, 0)
    assert (len(now.member_ids), len(now.child_ids)) == (11, 2)
    assert now.id == was.id


def test_the_largest_component_alone():
    """With the setting, nodes outside the largest connected part are single with an anchor too, and the anchor holds the edges of that part."""
    rules = CommunitiesSettings(largest_component_only=True)
    before = build(clique("a", 6) | clique("b", 4), rules=rules)
    found = build(clique("a", 6) | clique("b", 5), before.anchor, rules=rules)

    assert sorted(len(part) for part in roots(found.communities)) == [1] * 5 + [6]
    assert {edge.source_id[0] for edge in before.anchor.edges} == {"a"}
    assert found.renewed == ""
    assert build(clique("a", 6) | clique("b", 7), found.anchor, rules=rules).renewed == ""


@pytest.mark.parametrize("edges", [{}, {("a", "b"): 0.0}, {("a", "b"): 1.0}])
def test_tiny_graphs_are_anchored_too(edges):
    """No edge, an edge without weight, one edge: defined results from any of them to any other."""
    for later in ({}, {("a", "b"): 0.0}, {("b", "c"): 2.0}):
        found = build(later, build(edges, nodes="ab").anchor, nodes="bc")
        assert_sound(found.communities, {"b", "c", *(end for pair in later for end in pair)}, later)
    assert build({}, build(edges).anchor).communities == ()


@quick
@given(graphs(), st.sets(st.integers(0, 29)), st.randoms())
def test_only_free_nodes_move(edges, free, dice):
    """Nodes that are held stay with their neighbours of the same part, and the partition does not get worse."""
    nodes = sorted({end for pair in edges for end in pair})
    start = sorted(tuple(sorted(part)) for part in partition(nodes, dict(dice.sample(list(edges.items()), len(edges) // 2)), 1))
    loose = {f"n{number:02d}" for number in free}
    found = improve(start, edges, loose, 1)
    home = {node: part for part in found for node in part}

    assert sorted(home) == nodes
    place = {node: part for part in start for node in part}
    assert all(home[a] == home[b] for a, b in edges if place[a] == place[b] and loose.isdisjoint((a, b)))
    if any(edges.values()):
        assert modularity(found, edges) >= modularity(start, edges) - 1e-9


def test_a_component_is_improved_by_itself():
    """What is free in one component has no part in what becomes of another, whatever its nodes are called."""
    one, other = topics(120, 400, 11), {(f"x{a}", f"x{b}"): w for (a, b), w in topics(120, 400, 12).items()}
    nodes = sorted({end for pair in one | other for end in pair})
    start = [(node,) for node in nodes]
    ours = {node for node in nodes if node[0] != "x"}
    alone, together = improve(start, one | other, ours, 1), improve(start, one | other, nodes, 1)

    assert [part for part in alone if part[0] in ours] == [part for part in together if part[0] in ours]
    fresh = modularity(partition(nodes, one | other, 1), one | other)
    assert modularity(together, one | other) == pytest.approx(fresh, rel=0.02)


def test_random_edits_for_a_month_do_not_wear_it_out():
    """After thirty days of edits, the anchor handed on from day to day, level 0 is as good as a fresh run's and not in more pieces."""
    edges, found = topics(600, 2400, 13), None
    for day in range(30):
        found = build(edges, found.anchor if found else None)
        assert_sound(found.communities, {end for pair in edges for end in pair}, edges) if day % 10 == 9 else None
        edges = edited(edges, 24, day)
    found, fresh = build(edges, found.anchor), build(edges)

    assert level_0(found.communities, edges) >= 0.99 * level_0(fresh.communities, edges)
    assert len(roots(found.communities)) <= 1.25 * len(roots(fresh.communities)) + 4


def test_the_random_generator_of_the_caller_is_left_alone():
    """Nothing is drawn from the process's own random numbers."""
    random.seed(1)
    state = random.getstate()
    build(clique("a", 12), build(clique("a", 11)).anchor, renew="asked")
    assert random.getstate() == state


def test_a_node_that_keeps_most_of_its_ties_stays_where_it_was():
    """Less than half of a hub's ties moves nothing, even where another community would now be a little better; half of them does."""
    edges = clique("a", 6) | clique("b", 6) | {("a000", "hub"): 4.0, ("a001", "hub"): 4.0, ("b000", "hub"): 3.0, ("b001", "hub"): 3.0}
    anchor = build(edges).anchor
    nodes = sorted({end for pair in edges for end in pair})
    home = next(row for row in Grower(nodes, edges, anchor, RULES).roots() if "hub" in row)

    assert "a000" in home
    assert home in Grower(nodes, edges | {("b002", "hub"): 3.0}, anchor, RULES).roots()
    assert home not in Grower(nodes, edges | {("b002", "hub"): 9.0, ("b003", "hub"): 9.0}, anchor, RULES).roots()
