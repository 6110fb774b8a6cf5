"""Everything a generation holds, in memory: what a build makes and a publish writes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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


class Derivation(Protocol):
    """What is derived from records (see `derived.Part`)."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def make(self) -> Callable[[Any], Mapping[str, Any]]:
        """What makes it."""


class Held:
    """A snapshot as questions see an index, for what they derive from it; there is nothing to ask vectors of."""

    generation = ""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._made: dict[str, Mapping[str, Any]] = {}
        self.manifest: dict[str, Any] = {}
        self.memo: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        """Each list of records is what a function of its name gives."""
        rows = _sorted(getattr(self._snapshot, name))
        setattr(self, name, lambda: rows)
        return getattr(self, name)

    def kept(self, part: Derivation) -> Mapping[str, Any]:
        """What is derived, made once."""
        if part.name not in self._made:
            self._made[part.name] = part.make(self)
        return self._made[part.name]


def _sorted(rows: Sequence[Any]) -> Sequence[Any]:
    return sorted(rows, key=lambda row: row.id)
