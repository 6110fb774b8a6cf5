"""Nothing is lost on the way from what the model said to what a question reads."""

import math
import random
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrag_local.engine.base import Request
from graphrag_local.graph.merge import merge
from graphrag_local.query.global_search import level_windows
from graphrag_local.query.view import View
from graphrag_local.records import RelationshipMention, Report
from graphrag_local.reports.context import Budget, build_context
from graphrag_local.reports.elements import Elements
from tests.fakes import Characters
from tests.graph.extractions import chunks_of, said
from tests.pipeline.running import TIE, in_memory, index, opened, project_of, scribe, scripted, told_as

COUNTER = Characters()


def clustered(seed: int, size: int, group: int) -> list[tuple[str, str]]:
    """Edges of a graph of `size` people in groups of `group`, nine in ten inside their group; some people may have none."""
    dice = random.Random(seed)
    found = set()
    for _ in range(2 * size):
        one = dice.randrange(size)
        other = min(size - 1, one // group * group + dice.randrange(group)) if dice.random() < 0.9 else dice.randrange(size)
        if one != other:
            found.add((f"P{one}x", f"P{other}x"))
    return sorted(found)


def collection(seed: int, size: int, group: int, documents: int = 3) -> dict[str, str]:
    """The same graph told by several documents; a third of the people is named in a sentence of their own too."""
    edges = clustered(seed, size, group)
    return {f"{number}.txt": told_as(edges[number::documents], [f"P{one}x" for one in range(number, size, 3)], strength=number + 2) for number in range(documents)}


def told_by(requests: Iterable[Request], reports: Iterable[Report]) -> dict[str, set[str]]:
    """The names that each report's request tells, those that the reports standing in it tell included; by community.

    Read off the prompts alone: a described entity's line, and the headings of earlier reports, which have a title of their own each.
    """
    texts = {request.affinity: request.messages[-1].content for request in requests if request.purpose == "report"}
    by_title = {report.title: report for report in reports}

    def names(report: Report) -> set[str]:
        text = texts[report.fingerprint]
        own = set(re.findall(r"^E\d+ (P\w+x) \(person\): ", text, re.MULTILINE))
        return own.union(*(names(by_title[title]) for title in re.findall(r"^## (Circle \w+)$", text, re.MULTILINE)))

    return {report.community_id: names(report) for report in reports}


def missing_at_each_level(stored, requests: list[Request], budget: int) -> list[set[str]]:
    """The names of entities that no window of a level tells, by level."""
    view = View(stored)
    told = told_by(requests, stored.reports())
    found = []
    for level in view.levels:
        refs = [ref for window in level_windows(view, level, budget, COUNTER) for ref in window.ids.values()]
        shown = {view.entities[ref.id].name for ref in refs if ref.kind == "entity"}
        shown |= {name for ref in refs if ref.kind == "report" for name in told[view.reports[ref.id].community_id]}
        found.append({entity.name for entity in view.entities.values()} - shown)
    return found


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 36),
    group=st.integers(2, 15),
    write=st.sampled_from(["eager", "lazy", "all"]),
    least=st.sampled_from([0, 20, 60, 600]),
    context=st.sampled_from([300, 700, 8000]),
)
def test_no_node_is_missing_from_the_windows_of_any_level(seed, size, group, write, least, context):
    """Whatever is written, folded, unwritten, single, or left out of a full context: every node is told at every level."""
    with tempfile.TemporaryDirectory() as folder:
        rules = (f"reports.write={write}", f"reports.min_tokens={least}", f"reports.context_tokens={context}", "communities.max_cluster_size=3")
        project, engine = project_of(Path(folder), collection(seed, size, group), *rules), scripted()
        assert not any(missing_at_each_level(in_memory(project, engine), engine.history, 2000))


@pytest.mark.parametrize("write", ["eager", "lazy", "all"])
def test_no_node_is_missing_in_a_large_graph(tmp_path, write):
    """The same with 400 people, whose communities overflow their contexts on several levels."""
    rules = (f"reports.write={write}", "reports.context_tokens=1500", "reports.min_tokens=40", "communities.max_cluster_size=8")
    project, engine = project_of(tmp_path, collection(1, 400, 50), *rules), scripted()
    made = index(project, engine)

    with opened(project) as stored:
        assert len(made.counts["communities"]) >= 3
        assert not any(missing_at_each_level(stored, engine.history, 6000))


def test_a_hub_too_large_for_any_context_is_told_whole(tmp_path):
    """Four hundred people around one, who cannot be split: what the report has no room for follows it as element text, and is counted."""
    project, engine = project_of(tmp_path, {"hub.txt": told_as(("P0x", f"P{n}x") for n in range(1, 401))}, "reports.context_tokens=2000"), scripted()
    index(project, engine)

    with opened(project) as stored:
        (report,) = stored.reports()
        assert report.left_out > 300
        assert len(report.untold) > 300
        assert not any(missing_at_each_level(stored, engine.history, 4000))
        windows = level_windows(View(stored), 0, 4000, COUNTER)
        assert max(window.tokens for window in windows) <= 4000


@pytest.mark.parametrize("seed", range(3))
def test_the_weight_of_the_edges_is_what_the_model_gave(tmp_path, seed):
    """The strengths in all replies add up to the weights in the table, pair by pair."""
    project, engine = project_of(tmp_path, collection(seed, 40, 8)), scripted()
    index(project, engine)
    given_: dict[frozenset[str], float] = {}
    for request in (request for request in engine.history if request.purpose == "extract"):
        for one, other, strength in TIE.findall(request.messages[-1].content):
            pair = frozenset((one, other))
            given_[pair] = given_.get(pair, 0.0) + float(strength)

    with opened(project) as stored:
        names = {entity.id: entity.name for entity in stored.entities()}
        kept = {frozenset((names[edge.source_id], names[edge.target_id])): edge.weight for edge in stored.relationships()}
        strengths = [mention.strength for mention in stored.mentions() if mention.owner_kind == "relationship"]
        assert kept == given_
        assert math.isclose(sum(strengths), sum(kept.values()))


@st.composite
def extractions(draw: st.DrawFn):
    """Passages with invented ties, ends out of range and self loops among them."""
    made = []
    for place in range(draw(st.integers(0, 5))):
        names = draw(st.lists(st.sampled_from(["Ann", "Bo", "ANN", "Cy", "Café", "Cafe\u0301", "東京", "台灣", "台湾", "B o"]), max_size=5))
        ends = st.integers(-1, len(names) + 1)
        ties = draw(st.lists(st.tuples(ends, ends, st.floats(1, 10)), max_size=6))
        edges = tuple(RelationshipMention(source=a, target=b, description="t", strength=s, spans=()) for a, b, s in ties)
        made.append(said(*names, relationships=edges, index=place))
    return made


@given(extractions())
def test_merging_keeps_the_weight_of_every_edge_it_does_not_drop(found):
    """Strengths of ties with two different ends add up to the weights; every other tie is dropped with its reason."""
    graph = merge(found, chunks_of(*found))
    strengths = [mention.strength for mention in graph.mentions if mention.owner_kind == "relationship"]
    ties = sum(len(extraction.relationships) for extraction in found)

    assert math.isclose(sum(strengths), sum(edge.weight for edge in graph.relationships), abs_tol=1e-9)
    assert len(strengths) + sum("end" in loss.reason for loss in graph.dropped) == ties
    assert sum(edge.mentions for edge in graph.relationships) == len(strengths)


@pytest.mark.parametrize("seed", range(3))
def test_every_edge_inside_a_community_is_eligible_for_its_context(tmp_path, seed):
    """On every level, with room enough, a community's context tells all its nodes and all edges between them, and no other."""
    project = project_of(tmp_path, collection(seed, 60, 12), "communities.max_cluster_size=4", "reports.write=lazy")
    index(project)
    roomy = Budget(tokens=10**6, findings=10, count=lambda text: len(text) + 1, shape="")

    with opened(project) as stored:
        elements = Elements(stored.entities(), stored.relationships())
        assert max(community.last_level for community in stored.communities()) >= 1
        for community in stored.communities():
            members = set(community.member_ids)
            inner = {edge.id for edge in stored.relationships() if {edge.source_id, edge.target_id} <= members}
            found = build_context(community, [], {}, elements, roomy)
            assert set(found.ids.values()) == members | inner


@pytest.mark.parametrize("seed", range(3))
def test_all_writes_a_report_for_every_community_of_two_or_more(tmp_path, seed):
    """With `reports.write=all` and no least size, single nodes alone have no report, in the tables as published."""
    rules = ("reports.write=all", "reports.min_tokens=0", "reports.context_tokens=900", "communities.max_cluster_size=3")
    project = project_of(tmp_path, collection(seed, 60, 12), *rules)
    made = index(project)

    with opened(project) as stored:
        large = {community.id for community in stored.communities() if len(community.member_ids) > 1}
        assert {report.community_id for report in stored.reports()} == large
        assert made.counts["reports"] == len(large)
        assert len(made.counts["communities"]) >= 2


def test_reports_that_fail_leave_their_elements(tmp_path):
    """A community whose report cannot be had is told by its elements, and so is everything in it on every level."""

    def answering(request):
        return "nonsense" if request.purpose == "report" and int(request.affinity[:2], 16) % 2 else scribe(request)

    rules = ("reports.write=all", "reports.min_tokens=0", "reports.context_tokens=700", "communities.max_cluster_size=3")
    project, engine = project_of(tmp_path, collection(5, 80, 10), *rules), scripted(answering)
    made = index(project, engine)

    with opened(project) as stored:
        assert made.counts["failures"] > 3
        assert made.counts["reports"] > 3
        assert not any(missing_at_each_level(stored, engine.history, 3000))
