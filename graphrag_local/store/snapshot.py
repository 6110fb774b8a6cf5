"""Everything a generation holds, in memory: what a build makes and a publish writes."""

from dataclasses import dataclass

from graphrag_local.records import AnchorCommunity, AnchorEdge, Chunk, Claim, Community, Document, Entity, Failed, Mention, Relationship, Report, Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All records of one generation; `dimension` is the embedder's, 0 without one."""

    documents: tuple[Document, ...]
    chunks: tuple[Chunk, ...]
    mentions: tuple[Mention, ...]
    entities: tuple[Entity, ...]
    relationships: tuple[Relationship, ...]
    claims: tuple[Claim, ...]
    communities: tuple[Community, ...]
    reports: tuple[Report, ...]
    failures: tuple[Failed, ...] = ()
    anchor_communities: tuple[AnchorCommunity, ...] = ()
    anchor_edges: tuple[AnchorEdge, ...] = ()
    vectors: tuple[Vector, ...] = ()
    dimension: int = 0

    def communities_by_level(self) -> list[int]:
        """How many communities each level has."""
        deepest = max((community.last_level for community in self.communities), default=-1)
        return [sum(1 for c in self.communities if c.first_level <= level <= c.last_level) for level in range(deepest + 1)]
