"""Leiden (leidenalg), made independent of the order of arrival: from nothing, or from a partition that is there already.

The same graph and the same seed give the same communities: nodes are numbered in the order of their ids and edges are sorted before the library
sees them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import igraph
import leidenalg

# Edges by their ends' ids, each end pair once, with its weight.
Edges = Mapping[tuple[str, str], float]
# The members of one community, sorted.
Part = tuple[str, ...]

ITERATIONS = 2  # leidenalg's own default; more gained nothing on the graphs measured, and "until stable" took ten times as long


def partition(nodes: Sequence[str], edges: Edges, seed: int) -> list[Part]:
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
    found = leidenalg.find_partition(graph, leidenalg.ModularityVertexPartition, weights=weights, n_iterations=ITERATIONS, seed=seed % (2**31))
    return pieces([[order[index] for index in part] for part in found], edges)


def improve(parts: Sequence[Part], edges: Edges, free: Collection[str], seed: int, iterations: int = ITERATIONS) -> list[Part]:
    """A better partition, starting from this one, in which only the nodes that are `free` have moved; the order is that of `partition`.

    A part that has fallen into pieces is one part per piece first, and all but its largest piece are free too (our choice: what has come off would
    stay a community by itself for ever). The nodes of a part that stay are one node for the library, so the work grows with what is free.
    Each connected component is improved by itself, with the modularity of the whole graph: what is free in one cannot change another.
    """
    start = pieces(parts, edges)
    loose = set(free) | _come_off(parts, start)
    if not loose:
        return start
    whole = components((node for part in start for node in part), edges)
    number = {node: index for index, component in enumerate(whole) for node in component}
    own_parts: dict[int, list[Part]] = {}
    for part in start:
        own_parts.setdefault(number[part[0]], []).append(part)
    own_edges: dict[int, dict[tuple[str, str], float]] = {}
    for pair in sorted(edges):
        own_edges.setdefault(number[pair[0]], {})[pair] = edges[pair]
    total = sum(weight for inside in own_edges.values() for weight in inside.values())
    found: list[Sequence[str]] = []
    for index, component in enumerate(whole):
        inside = own_edges.get(index, {})
        share = sum(inside.values()) / total if total else 0.0
        found += own_parts[index] if not share or loose.isdisjoint(component) else _moved(own_parts[index], inside, loose, share, seed, iterations)
    return pieces(found, edges)


def _come_off(parts: Iterable[Part], start: Iterable[Part]) -> set[str]:
    """The nodes of all pieces but the largest of each part; of equally large ones the first stays."""
    home = {node: index for index, part in enumerate(parts) for node in part}
    seen: set[int] = set()
    off: set[str] = set()
    for piece in sorted(start, key=lambda piece: (-len(piece), piece)):
        if home[piece[0]] in seen:
            off.update(piece)
        seen.add(home[piece[0]])
    return off


def _moved(parts: Sequence[Part], edges: Edges, loose: Collection[str], share: float, seed: int, iterations: int) -> list[list[str]]:
    """The parts of one component after its loose nodes have moved; `share` is its share of the weight of all edges."""
    held = [[node for node in part if node not in loose] for part in parts]  # these stay together: one node for the library
    groups = [*(group for group in held if group), *([node] for part in parts for node in part if node in loose)]
    number = {node: index for index, group in enumerate(groups) for node in group}
    place = {node: index for index, part in enumerate(parts) for node in part}
    weights: dict[tuple[int, int], float] = {}
    for (a, b), weight in edges.items():
        ends = (min(number[a], number[b]), max(number[a], number[b]))
        weights[ends] = weights.get(ends, 0.0) + weight
    # The library's null model knows the component only; with its share as the resolution it is that of the whole graph.
    found = leidenalg.RBConfigurationVertexPartition(
        igraph.Graph(n=len(groups), edges=sorted(weights)),
        initial_membership=[place[group[0]] for group in groups],
        weights=[weights[ends] for ends in sorted(weights)],
        resolution_parameter=share,
    )
    optimiser = leidenalg.Optimiser()
    optimiser.set_rng_seed(seed % (2**31))
    optimiser.optimise_partition(found, n_iterations=iterations, is_membership_fixed=[group[0] not in loose for group in groups])
    return [[node for index in part for node in groups[index]] for part in found]


def pieces(parts: Iterable[Sequence[str]], edges: Edges) -> list[Part]:
    """The connected pieces of the parts, each sorted, in the order of their first node."""
    place = {node: index for index, part in enumerate(parts) for node in part}
    return components(place, [(a, b) for a, b in edges if a in place and place[a] == place.get(b)])


def components(nodes: Iterable[str], pairs: Iterable[tuple[str, str]]) -> list[Part]:
    """The connected components, each sorted, in the order of their first node."""
    order = sorted(nodes)
    number = {node: index for index, node in enumerate(order)}
    graph = igraph.Graph(n=len(order), edges=[(number[a], number[b]) for a, b in pairs])
    return sorted(tuple(order[index] for index in sorted(part)) for part in graph.connected_components())


def largest_component(nodes: Iterable[str], pairs: Iterable[tuple[str, str]]) -> set[str]:
    """The nodes of the largest connected part; of equally large ones that with the first node."""
    found = sorted(components(nodes, pairs), key=lambda part: (-len(part), part))
    return set(found[0]) if found else set()


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
