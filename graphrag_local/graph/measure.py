"""Degree and PageRank of the graph."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import rustworkx as rx

from graphrag_local.records import Entity, Relationship

DIGITS = 12  # PageRank is rounded, so that the last bits of a platform's arithmetic are not in a digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The graph with its numbers filled in."""

    entities: tuple[Entity, ...]
    relationships: tuple[Relationship, ...]


def measure(entities: Sequence[Entity], relationships: Sequence[Relationship]) -> Measured:
    """Degree (edges of a node), combined degree (the sum over an edge's ends) and weighted PageRank, in the order given."""
    order = sorted(entity.id for entity in entities)
    place = {key: index for index, key in enumerate(order)}
    edges = sorted((place[r.source_id], place[r.target_id], r.weight) for r in relationships)
    graph = rx.PyGraph(multigraph=False)
    graph.add_nodes_from(order)
    graph.add_edges_from(edges)
    degree = {key: graph.degree(index) for index, key in enumerate(order)}
    ranks = rx.pagerank(graph.to_directed(), weight_fn=float) if edges else dict.fromkeys(range(len(order)), 1 / max(1, len(order)))
    return Measured(
        entities=tuple(replace(e, degree=degree[e.id], pagerank=round(ranks[place[e.id]], DIGITS)) for e in entities),
        relationships=tuple(replace(r, combined_degree=degree[r.source_id] + degree[r.target_id]) for r in relationships),
    )
