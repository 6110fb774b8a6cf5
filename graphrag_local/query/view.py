"""What a question sees of an index: the protocol it is read through, and its records by id."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar

from graphrag_local.records import Chunk, Claim, Community, Document, Entity, Mention, Relationship, Report

T = TypeVar("T")
VectorKind = Literal["chunk", "entity", "report"]


class Index(Protocol):
    """One published generation, opened for reading. Lists are cached by the implementation and come in a fixed order.

    `memo` is an empty dictionary at first; questions keep there what they derive from this generation (windows, word index), so that it
    goes when the generation goes.
    """

    memo: dict[Any, Any]

    @property
    def generation(self) -> str:
        """Id of the generation."""

    @property
    def manifest(self) -> dict[str, Any]:
        """Its manifest."""

    def documents(self) -> Sequence[Document]:
        """All documents."""

    def chunks(self) -> Sequence[Chunk]:
        """All chunks."""

    def entities(self) -> Sequence[Entity]:
        """All entities."""

    def relationships(self) -> Sequence[Relationship]:
        """All relationships."""

    def claims(self) -> Sequence[Claim]:
        """All claims."""

    def communities(self) -> Sequence[Community]:
        """All communities."""

    def reports(self) -> Sequence[Report]:
        """The reports that are written."""

    def mentions(self) -> Sequence[Mention]:
        """Every tie between a record and the words it came from."""

    def near(self, kind: VectorKind, vector: Sequence[float], k: int) -> list[tuple[str, float]]:
        """Ids and similarities of the k records of a kind nearest to a vector, best first; fewer where there are fewer vectors."""


class View:
    """The records of an index by id, and what is inside what."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.documents = {document.id: document for document in index.documents()}
        self.chunks = {chunk.id: chunk for chunk in index.chunks()}
        self.entities = {entity.id: entity for entity in index.entities()}
        ends_known = (r for r in index.relationships() if r.source_id in self.entities and r.target_id in self.entities)
        self.relationships = {relationship.id: relationship for relationship in ends_known}
        self.claims = {claim.id: claim for claim in index.claims()}
        self.reports = {report.id: report for report in index.reports()}
        self.report_of = {report.community_id: report for report in index.reports()}

    @cached_property
    def edges_of(self) -> dict[str, list[Relationship]]:
        """The relationships of each entity."""
        return _grouped(self.relationships.values(), lambda edge: (edge.source_id, edge.target_id))

    @cached_property
    def claims_of(self) -> dict[str, list[Claim]]:
        """The claims about each entity."""
        return _grouped(self.claims.values(), lambda claim: (claim.subject_id,))

    @cached_property
    def mentions_of(self) -> dict[str, list[Mention]]:
        """The mentions of each entity, relationship and claim."""
        return _grouped(self.index.mentions(), lambda mention: (mention.owner_id,))

    @property
    def levels(self) -> range:
        """The levels of the hierarchy; there is always a level 0."""
        return range(max((community.last_level for community in self.index.communities()), default=0) + 1)

    def level(self, number: int) -> list[Community]:
        """The communities that are valid on a level: a partition of the entities."""
        return [c for c in self.index.communities() if c.first_level <= number <= c.last_level]

    def inside(self, members: Sequence[str]) -> list[Relationship]:
        """The relationships with both ends among these entities, each once."""
        group = set(members)
        edges = (edge for member in members for edge in self.edges_of.get(member, ()) if edge.source_id == member or edge.source_id not in group)
        return [edge for edge in edges if edge.source_id in group and edge.target_id in group]

    def documents_of(self, record_ids: Iterable[str]) -> tuple[str, ...]:
        """The ids of the documents that these records came from."""
        found = {mention.document_id for record in record_ids for mention in self.mentions_of.get(record, ())}
        return tuple(sorted(found))

    def title(self, document_id: str) -> str:
        """What a document is called: its title, else its path; "" when it is gone."""
        document = self.documents.get(document_id)
        return (document.title or document.path) if document else ""


def view_of(index: Index) -> View:
    """The view of an index, made once."""
    view: View = remembered(index, "view", lambda: View(index))
    return view


def remembered(index: Index, key: Any, make: Callable[[], T]) -> T:
    """What `make` gives, made once per generation."""
    if key not in index.memo:
        index.memo[key] = make()
    value: T = index.memo[key]
    return value


def _grouped(items: Iterable[T], owners: Callable[[T], tuple[str, ...]]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = {}
    for item in items:
        for owner in owners(item):
            groups.setdefault(owner, []).append(item)
    return groups
