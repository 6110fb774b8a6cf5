"""The stage: extractions in, a described and measured graph out."""

import asyncio

import pytest

from graphrag_local.flow import Silent
from graphrag_local.graph.measure import measure
from graphrag_local.graph.stage import build_graph
from graphrag_local.prompting import load
from graphrag_local.records import Entity, Relationship
from graphrag_local.settings import DescribeSettings
from tests.fakes import model_of
from tests.graph.extractions import chunks_of, named, said, tied


def node(name):
    return Entity(id=name, key=name, name=name, type="t", types=("t",), aliases=(), description="", mentions=1)


def edge(a, b, weight=1.0):
    return Relationship(id=a + b, source_id=a, target_id=b, description="", weight=weight, mentions=1)


def build(*extractions, quote=False, answer=lambda request: '{"description": "A summary."}', history=None, rules=None, text="Ann. met Bo."):
    model = model_of(answer, history=history)
    chunks = list(chunks_of(*extractions, text=text).values())
    return asyncio.run(
        build_graph(extractions, chunks, model, load("describe"), rules or DescribeSettings(), quote=quote, progress=Silent(), limit=4)
    )


def test_degrees_are_counted():
    """Degree counts edges, and combined degree adds those of both ends."""
    measured = measure([node(name) for name in "dabcxyl"], [edge("a", "b"), edge("b", "c"), edge("b", "d"), edge("x", "y")])

    assert {entity.id: entity.degree for entity in measured.entities} == {"a": 1, "b": 3, "c": 1, "d": 1, "x": 1, "y": 1, "l": 0}
    assert {r.id: r.combined_degree for r in measured.relationships} == {"ab": 4, "bc": 4, "bd": 4, "xy": 2}
    assert [entity.id for entity in measured.entities] == list("dabcxyl")


def test_pagerank_follows_weights_and_sums_to_one():
    """The centre of a star ranks first, a heavier edge counts more, loners have some rank."""
    ranks = {e.id: e.pagerank for e in measure([node(n) for n in "abcdl"], [edge("a", "b", 9.0), edge("a", "c"), edge("a", "d")]).entities}

    assert sum(ranks.values()) == pytest.approx(1)
    assert ranks["a"] > ranks["b"] > ranks["c"] == ranks["d"] > ranks["l"] > 0


def test_measures_do_not_depend_on_order():
    """Shuffled rows have the same numbers."""
    nodes, edges = [node(name) for name in "abcdef"], [edge("a", "b", 0.1), edge("b", "c", 0.7), edge("c", "d", 0.3), edge("a", "f", 0.2)]
    one, other = measure(nodes, edges), measure(nodes[::-1], edges[::-1])

    assert set(one.entities) == set(other.entities)


@pytest.mark.parametrize("names", ["", "a"])
def test_graphs_without_edges_have_measures(names):
    """No node and one node are graphs."""
    assert [entity.pagerank for entity in measure([node(name) for name in names], []).entities] == [1.0] * len(names)


def test_a_graph_is_described_without_calls_where_descriptions_are_short():
    """Nodes and edges carry what their mentions say; nothing fails."""
    history = []
    extraction = said(named("Ann", description="A miller."), named("Bo", description="A baker."), relationships=[tied(0, 1, description="sells rye to")])
    graph = build(extraction, history=history)

    assert {entity.name: entity.description for entity in graph.entities} == {"Ann": "A miller.", "Bo": "A baker."}
    assert [(r.description, r.combined_degree) for r in graph.relationships] == [("sells rye to", 2)]
    assert (history, graph.failures) == ([], ())


def test_long_descriptions_are_summarised_and_failures_are_data():
    """A node whose summary fails keeps a cut description and has a failure that names it; others are summarised."""

    def answer(request):
        return "nonsense" if "Entity: Bo" in request.messages[-1].content else '{"description": "A summary."}'

    extractions = [
        said(named("Ann", description=f"Ann said the number {n}."), named("Bo", description=f"Bo said the number {n}."), index=n) for n in range(30)
    ]
    graph = build(*extractions, answer=answer, rules=DescribeSettings(threshold_tokens=100))
    texts = {entity.name: entity.description for entity in graph.entities}

    assert texts["Ann"] == "A summary."
    assert texts["Bo"].startswith("Bo said the number 0. Bo said the number 1.")
    assert len(texts["Bo"]) <= 100
    assert [(failure.stage, failure.input, failure.retryable) for failure in graph.failures] == [("graph", "Bo", False)]
    assert "cut instead of summarised" in graph.failures[0].reason


def test_quotes_take_the_place_of_descriptions():
    """In quote mode no model is called; where a model described nothing, quotes stand in too."""
    history = []
    quoted = build(said(named("Ann", description="An invention.")), quote=True, history=history)
    silent = build(said(named("Ann", description="")), history=history)

    assert [graph.entities[0].description for graph in (quoted, silent)] == ["Ann.", "Ann."]
    assert history == []


def test_an_empty_collection_is_an_empty_graph():
    """No extractions, or empty ones, give no rows and no error."""
    assert build().entities == build(said()).entities == ()
