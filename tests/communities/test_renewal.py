"""When an anchor is renewed, and how it forgets."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrag_local.communities.detect import components
from graphrag_local.communities.stage import rebased
from graphrag_local.settings import CommunitiesSettings
from tests.communities.networks import RULES, build, changed, changes, clique, edited, graphs, level_0, records, roots, topics


def cliques(count, size):
    return {pair: 1.0 for number in range(count) for pair in clique(f"k{number:03d}", size)}


def ring(count, size):
    """Cliques, each tied to the next by one edge."""
    links = {tuple(sorted((f"k{n:03d}000", f"k{(n + 1) % count:03d}001"))): 1.0 for n in range(count)}
    return cliques(count, size) | links


def test_too_many_roots_renew_the_anchor():
    """Cliques that a ring ties together by now are pairs in a warm pass; those of the anchor cannot pair, so there are too many on level 0."""
    before = build(cliques(40, 8))
    found = build(ring(70, 8), before.anchor)

    assert found.renewed == "roots"
    assert len(roots(found.communities)) < 44
    again = build(ring(70, 8), found.anchor)
    assert (again.communities, again.anchor, again.renewed) == (found.communities, found.anchor, "")
    patient = build(ring(70, 8), before.anchor, rules=CommunitiesSettings(renew_roots=2))
    assert patient.renewed == ""
    assert patient.anchor is before.anchor
    assert len(roots(patient.communities)) > 50


def test_nodes_without_edges_are_no_roots_too_many():
    """A hundred entities that nothing is known of leave the anchor alone."""
    before = build(ring(8, 6))
    assert build(ring(8, 6), before.anchor, nodes=[f"z{n}" for n in range(100)]).renewed == ""


def test_a_partition_much_worse_than_it_was_renews_the_anchor():
    """Cliques that should be pairs by now, each with members that did not change: modularity is below the anchor's share, and a warm pass mends it."""
    before = build(cliques(60, 5))
    rules = CommunitiesSettings(renew_roots=9)
    found = build(ring(110, 5), before.anchor, rules=rules)

    assert found.renewed == "modularity"
    assert level_0(found.communities, ring(110, 5)) >= 0.99 * level_0(build(ring(110, 5)).communities, ring(110, 5))


def test_in_a_large_graph_a_few_edges_can_do_it():
    """Where too little differs for a comparison with a fresh partition, the share of the anchor's modularity decides."""
    edges = cliques(70, 8)
    before = build(edges)
    links = {(f"k{n:03d}000", f"k{n + 1:03d}000"): 5.0 for n in range(0, 70, 2)}  # too weak to draw one node over, but the cliques are pairs by now
    found, patient = build(edges | links, before.anchor), build(edges | links, before.anchor, rules=CommunitiesSettings(renew_modularity=0.9))

    assert (found.renewed, len(roots(found.communities))) == ("modularity", 35)
    assert (patient.renewed, len(roots(patient.communities))) == ("", 70)
    again = build(edges | links, found.anchor)
    assert (again.communities, again.anchor, again.renewed) == (found.communities, found.anchor, "")


def one_of_two():
    """Two cliques, and an anchor that has them as one community."""
    edges = clique("a", 6) | clique("b", 6) | {("a000", "b000"): 1.0}
    anchor = build(edges).anchor
    one = replace(anchor.communities[0], member_ids=tuple(sorted({end for pair in edges for end in pair})))
    return edges, replace(anchor, communities=(one,))


def test_a_small_graph_is_as_good_as_fresh_and_keeps_its_anchor():
    """Up to some size level 0 is held to a fresh partition: two cliques that the anchor has as one become two, and the anchor stays."""
    edges, anchor = one_of_two()
    found = build(edges | {("a001", "c"): 1.0}, anchor)

    assert sorted(len(part) for part in roots(found.communities)) == [6, 7]
    assert (found.renewed, found.anchor) == ("", anchor)


def test_a_small_graph_of_many_other_edges_gets_another_anchor():
    """Once more edges differ than one document brings, a small graph that the anchor does not fit has a new one."""
    edges, anchor = one_of_two()
    found = build(edges | clique("z", 12), anchor)

    assert sorted(len(part) for part in roots(found.communities)) == [6, 6, 12]
    assert found.renewed == "modularity"
    assert len(found.anchor.communities) == 3


def test_another_graph_alone_is_no_reason():
    """A document without any structure lowers every partition's modularity: the anchor stays, since nothing better is to be had."""
    edges = cliques(70, 8)
    before = build(edges)
    after = edges | {(f"k{n:03d}{n % 8:03d}", f"k{(n * 3 + 1) % 70:03d}{n * 5 % 8:03d}"): 1.0 for n in range(0, 70, 2)}
    found = build(after, before.anchor)

    assert level_0(found.communities, after) < 0.995 * level_0(before.communities, edges)
    assert found.renewed == ""
    assert found.anchor is before.anchor


def test_age_renews_only_what_changed():
    """An old anchor of the same graph is kept as it is; of another graph it is renewed, and ids live on."""
    edges = topics(400, 1600, 2)
    before = build(edges)
    same, other = build(edges, before.anchor, renew="age"), build(edited(edges, 8, 3), before.anchor, renew="age")

    assert (same.renewed, same.anchor, same.communities) == ("", before.anchor, before.communities)
    assert other.renewed == "age"
    assert {(e.source_id, e.target_id) for e in other.anchor.edges} == set(edited(edges, 8, 3))
    assert len({row.id for row in other.communities} & {row.id for row in before.communities}) > 0.8 * len(before.communities)


def test_asking_renews_even_the_same_graph():
    """A warm pass over an unchanged graph is no worse, and where a community stays so does what is below it."""
    edges = topics(400, 1600, 4)
    before = build(edges)
    asked = build(edges, before.anchor, renew="asked")

    assert asked.renewed == "asked"
    assert level_0(asked.communities, edges) >= level_0(before.communities, edges)
    old = {row.member_ids: row for row in before.communities}
    stayed = [row for row in asked.communities if row.member_ids in old and row.first_level == old[row.member_ids].first_level]
    assert stayed
    assert all((row.id, row.child_ids) == (old[row.member_ids].id, old[row.member_ids].child_ids) for row in stayed)


def forget(before, found, edges, gone, nodes=(), rules=RULES):
    entities, relationships = records(edges, nodes)
    return rebased(found.anchor, found.communities, relationships, entities, gone, rules)


def test_a_forgotten_part_leaves_nothing_in_the_anchor():
    """The part that the document touched is anchored as it is today; another part stays anchored as it was."""
    left, right = topics(300, 1200, 5), {(f"x{a}", f"x{b}"): w for (a, b), w in topics(300, 1200, 6).items()}
    before = build(left | right | {("x", pair[1]): 1.0 for pair in list(right)[:3]})
    after = edited(left, 2, 7) | right
    found = build(after, before.anchor)
    result = forget(before, found, after, {"x"})

    assert found.renewed == ""
    assert "x" not in {member for row in result.communities for member in row.member_ids}
    assert "x" not in {end for edge in result.edges for end in (edge.source_id, edge.target_id)}
    theirs = {(edge.source_id, edge.target_id) for edge in result.edges}
    assert theirs == set(left) | set(right)
    assert {row for row in result.communities if row.member_ids[0][0] != "x"} >= {
        row for row in before.anchor.communities if row.member_ids[0][0] != "x" and row.last_level == 0
    }
    again = build(after, result)
    assert (again.communities, again.renewed) == (found.communities, "")


@settings(max_examples=80, deadline=None, derandomize=True)
@given(graphs(links=30), changes(), st.sets(st.integers(0, 32), max_size=4), st.sampled_from([3, 10]), st.booleans())
def test_the_rebased_anchor_gives_the_same_communities(edges, change, gone, size, largest):
    """Whatever was forgotten: the anchor names only what exists in the parts it touched, and gives the communities that were there, ids included."""
    rules = CommunitiesSettings(max_cluster_size=size, largest_component_only=largest)
    after, gone = changed(edges, change), {f"n{number:02d}" for number in gone}
    first = build(edges, rules=rules)
    found = build(after, first.anchor, rules=rules)
    result = forget(first, found, after, gone, rules=rules)
    again = build(after, result, rules=rules)

    assert (again.communities, again.renewed) == (found.communities, "")
    existing = {end for pair in after for end in pair}
    everybody = existing | {member for row in first.anchor.communities for member in row.member_ids}
    pairs = {(edge.source_id, edge.target_id) for edge in (*first.anchor.edges, *result.edges)}
    touched = {node for part in components(everybody, pairs) if gone & set(part) for node in part}
    assert {member for row in result.communities for member in row.member_ids} & touched <= existing
    assert {end for edge in result.edges for end in (edge.source_id, edge.target_id)} & touched <= existing
    assert forget(first, replace(again, anchor=result), after, gone, rules=rules) == result


@pytest.mark.parametrize("renew", ["", "asked"])
def test_forgetting_what_nothing_knows_changes_nothing(renew):
    """An entity that neither the anchor nor the graph has leaves the anchor as it is."""
    edges = topics(100, 300, 8)
    before = build(edges)
    found = build(edited(edges, 1, 9), before.anchor, renew=renew)
    assert forget(before, found, edited(edges, 1, 9), {"nobody"}) == found.anchor
