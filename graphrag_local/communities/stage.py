"""Drives community detection over the merged graph."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from graphrag_local.communities.anchor import Grower, Reference, anchor_of, edge_table
from graphrag_local.communities.detect import Edges, components, largest_component
from graphrag_local.communities.match import inherit
from graphrag_local.communities.renew import renewal
from graphrag_local.communities.tree import grow, rows
from graphrag_local.records import Anchor, AnchorCommunity, Community, Entity, Relationship
from graphrag_local.settings import CommunitiesSettings

STAGE = "communities"


@dataclass(frozen=True, slots=True)
class Partitioned:
    """The communities and the anchor they stand on; `renewed` says why that is a new one, "" where it is the one that was given."""

    communities: tuple[Community, ...]
    anchor: Anchor
    renewed: str


def build_communities(
    entities: Iterable[Entity],
    relationships: Iterable[Relationship],
    settings: CommunitiesSettings,
    anchor: Anchor | None = None,
    *,
    renew: str = "",
) -> Partitioned:
    """The hierarchy of a graph, nodes outside the largest connected part included (unless the setting leaves them as single nodes).

    It is a function of the anchor and of the graph, whatever the order of the rows. `renew` is a reason to set a new anchor even if this one serves;
    "age" is none where the graph has not changed. An anchor belongs to the settings it was made with: give None when they are others.
    """
    nodes = sorted(entity.id for entity in entities)
    edges = _edges(nodes, relationships, settings)
    if anchor is None:
        found = grow(nodes, edges, max_size=settings.max_cluster_size, seed=settings.seed)
        return Partitioned(found, anchor_of(found, edges), "first")
    grower = Grower(nodes, edges, anchor, settings)
    roots = grower.roots()
    why, better = renewal(grower, roots, "" if renew == "age" and grower.unchanged else renew)
    if not why:
        return Partitioned(inherit(rows(grower.anchored(better)), anchor.communities), anchor, "")
    found = inherit(rows(grower.warmed(better, Reference(rows(grower.anchored(roots)), edges))), anchor.communities)
    return Partitioned(found, anchor_of(found, edges), why)


def conditions(settings: CommunitiesSettings) -> dict[str, Any]:
    """What a partition depends on besides the graph, the anchor and the decisive settings, as manifests keep it: what renews an anchor, and which
    versions of the libraries moved the nodes."""
    versions = {name: version(name) for name in ("leidenalg", "igraph")}
    return {"renew_modularity": settings.renew_modularity, "renew_roots": settings.renew_roots, **versions}


def rebased(
    anchor: Anchor,
    communities: Iterable[Community],
    relationships: Iterable[Relationship],
    entities: Iterable[Entity],
    gone: Collection[str],
    settings: CommunitiesSettings | None = None,
) -> Anchor:
    """The anchor without what a forgotten document left in it; the communities, made with the anchor and the settings, are what it gives as well.

    `gone` are the ids of the entities that the document mentioned, whether they exist or not. The connected parts that they touch, in the anchor's
    graph and today's laid over each other, are anchored as they are today; elsewhere the anchor stays. Where that would give other communities
    (a small graph's are compared as a whole), all of it is today's.
    """
    rules = settings or CommunitiesSettings()
    today, entities, relationships = tuple(communities), tuple(entities), tuple(relationships)
    nodes = {entity.id for entity in entities}
    edges, before = _edges(nodes, relationships, rules), edge_table(anchor)
    everybody = nodes.union(*(row.member_ids for row in anchor.communities))
    touched = {node for part in components(everybody, {**before, **edges}) if not set(gone).isdisjoint(part) for node in part}
    mixed: list[AnchorCommunity | Community] = [row for row in anchor.communities if row.member_ids[0] not in touched]
    mixed += [row for row in today if row.member_ids[0] in touched]
    kept = {pair: weight for pair, weight in before.items() if pair[0] not in touched}
    result = anchor_of(mixed, kept | {pair: weight for pair, weight in edges.items() if pair[0] in touched})
    again = build_communities(entities, relationships, rules, result)
    return result if (again.communities, again.renewed) == (today, "") else anchor_of(today, edges)


def _edges(nodes: Iterable[str], relationships: Iterable[Relationship], settings: CommunitiesSettings) -> Edges:
    """The edges between these nodes, in the order of their ends; of the largest connected part only, by the setting."""
    known = set(nodes)
    pairs = sorted((edge.source_id, edge.target_id, edge.weight) for edge in relationships)
    edges = {(a, b): weight for a, b, weight in pairs if a != b and a in known and b in known}
    if settings.largest_component_only:
        kept = largest_component(known, edges)
        edges = {pair: weight for pair, weight in edges.items() if pair[0] in kept}
    return edges
