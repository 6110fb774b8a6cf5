"""Drives community detection over the merged graph."""

from collections.abc import Iterable

from graphrag_local.communities.detect import largest_component
from graphrag_local.communities.tree import grow
from graphrag_local.records import Community, Entity, Relationship
from graphrag_local.settings import CommunitiesSettings

STAGE = "communities"


def build_communities(
    entities: Iterable[Entity], relationships: Iterable[Relationship], settings: CommunitiesSettings
) -> tuple[Community, ...]:
    """The hierarchy of a graph, nodes outside the largest connected part included (unless the setting leaves them as single nodes)."""
    nodes = [entity.id for entity in entities]
    edges = {(edge.source_id, edge.target_id): edge.weight for edge in relationships}
    if settings.largest_component_only:
        kept = largest_component(nodes, edges)
        edges = {pair: weight for pair, weight in edges.items() if pair[0] in kept}
    return grow(nodes, edges, max_size=settings.max_cluster_size, seed=settings.seed)
