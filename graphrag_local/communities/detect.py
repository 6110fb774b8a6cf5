"""Leiden (leidenalg), made independent of the order of arrival, and applied again inside each community that is too large.

The same graph and the same seed give the same communities: nodes are numbered in the order of their ids and edges are sorted before the library
sees them. The recursion is a pure function of the induced subgraph, so an unchanged community has an identical subtree.
"""

from collections.abc import Mapping, Sequence

import igraph
import leidenalg

# Edges by their ends' ids, each end pair once, with its weight.
Edges = Mapping[tuple[str, str], float]

ITERATIONS = 2  # leidenalg's own default; more gained nothing on the graphs measured, and "until stable" took ten times as long


def partition(nodes: Sequence[str], edges: Edges, seed: int) -> list[tuple[str, ...]]:
    """A modularity partition of these nodes, each part sorted, parts in the order of their first node.

    Parts are connected: a part that falls into pieces is one part per piece. A node without edges is a part by itself.
    """
    order = sorted(nodes)
    number = {node: index for index, node in enumerate(order)}
    inside = sorted((*sorted((number[a], number[b])), weight) for (a, b), weight in edges.items() if a in number and b in number and a != b)
    graph = igraph.Graph(n=len(order), edges=[(a, b) for a, b, _ in inside])
    if not inside:
        return [(node,) for node in order]
    weights = [weight for _, _, weight in inside]
    found = leidenalg.find_partition(
        graph, leidenalg.ModularityVertexPartition, weights=weights, n_iterations=ITERATIONS, seed=seed % (2**31)
    )
    parts = [tuple(order[index] for index in sorted(piece)) for part in found for piece in _pieces(graph, part)]
    return sorted(parts)


def _pieces(graph: igraph.Graph, part: Sequence[int]) -> list[list[int]]:
    """The connected pieces of a part, as node numbers."""
    members = list(part)
    if len(members) == 1:
        return [members]
    return [[members[index] for index in piece] for piece in graph.induced_subgraph(members).connected_components()]


def largest_component(nodes: Sequence[str], edges: Edges) -> set[str]:
    """The nodes of the largest connected part; of equally large ones that with the first node."""
    order = sorted(nodes)
    number = {node: index for index, node in enumerate(order)}
    graph = igraph.Graph(n=len(order), edges=[(number[a], number[b]) for a, b in edges])
    parts = sorted(graph.connected_components(), key=lambda part: (-len(part), min(part)))
    return {order[index] for index in parts[0]} if parts else set()


def modularity(parts: Sequence[Sequence[str]], edges: Edges) -> float:
    """The weighted modularity of a partition; 0.0 for a graph without edges."""
    place = {node: index for index, part in enumerate(parts) for node in part}
    order = sorted(place)
    number = {node: index for index, node in enumerate(order)}
    pairs = [(number[a], number[b]) for a, b in edges]
    if not pairs:
        return 0.0
    graph = igraph.Graph(n=len(order), edges=pairs)
    return float(graph.modularity([place[node] for node in order], weights=list(edges.values())))
