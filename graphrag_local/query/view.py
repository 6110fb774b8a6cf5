"""What a question sees of an index: the protocol it is read through, and its records by id.

What belongs to what comes from arrays (see `shape`) that lie beside the records; a record itself is read when somebody wants to know what it says.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np

from graphrag_local.query.arrays import Arrays, Ids, Ints, Kept, Lists, Longs, Strings, below
from graphrag_local.query.shape import GROUNDING, before, on_level, placed, ranges, shape_of
from graphrag_local.records import Chunk, Claim, Community, Document, Entity, Mention, Relationship, Report

T = TypeVar("T")
VectorKind = Literal["chunk", "entity", "report"]
RECORDS = ("documents", "chunks", "entities", "relationships", "claims", "communities", "reports", "mentions")


class Index(Protocol):
    """One published generation, opened for reading. Lists are cached by the implementation and come in a fixed order; some read a record at its first use.

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

    def kept(self, part: "Part") -> Kept:
        """The arrays of a part: those that are kept beside the records, else made from them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Arrays that are derived from tables and kept beside them: from which, and how. `form` is another whenever `make` gives other arrays."""

    name: str
    of: tuple[str, ...]
    form: str
    make: Callable[[Index], Arrays]


SHAPE = Part(name="shape", of=RECORDS, form="3", make=lambda index: shape_of(**{name: getattr(index, name)() for name in RECORDS}))


class Shelf(Mapping[str, T]):
    """Records by id."""

    def __init__(self, ids: Ids, rows: Sequence[T], places: Ints) -> None:
        self.ids, self._rows, self._places = ids, rows, places

    def __getitem__(self, id_: str) -> T:
        number = self.ids.number(id_)
        if number < 0:
            raise KeyError(id_)
        return self.at(number)

    def at(self, number: int) -> T:
        """The record with a number."""
        return self._rows[int(self._places[number])]

    def __contains__(self, id_: object) -> bool:
        return self.ids.number(id_) >= 0

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def values(self) -> list[T]:  # type: ignore[override]
        """Every record, in the order of the ids."""
        rows = list(self._rows)
        return [rows[place] for place in self._places.tolist()]

    def items(self) -> Iterator[tuple[str, T]]:  # type: ignore[override]
        """Every id with its record."""
        return zip(self.ids, self.values(), strict=True)


class Grouped(Mapping[str, list[T]], Generic[T]):
    """Records by the id of another one to which they belong."""

    def __init__(self, owners: Ids, lists: Lists, record: Callable[[int], T]) -> None:
        self._owners, self._lists, self._record = owners, lists, record

    def __getitem__(self, owner: str) -> list[T]:
        number = self._owners.number(owner)
        if number < 0:
            raise KeyError(owner)
        return list(map(self._record, self._lists.row(number).tolist()))

    def __contains__(self, owner: object) -> bool:
        return self._owners.number(owner) >= 0

    def __len__(self) -> int:
        return len(self._owners)

    def __iter__(self) -> Iterator[str]:
        return iter(self._owners)


class View:
    """The records of an index by id, and what is inside what."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.shape = kept = index.kept(SHAPE)
        self.documents: Shelf[Document] = self._shelf("documents")
        self.chunks: Shelf[Chunk] = self._shelf("chunks")
        self.entities: Shelf[Entity] = self._shelf("entities")
        self.relationships: Shelf[Relationship] = self._shelf("relationships")
        self.claims: Shelf[Claim] = self._shelf("claims")
        self.reports: Shelf[Report] = self._shelf("reports")
        self.report_of: Shelf[Report] = Shelf(Ids(kept["reported"]), index.reports(), kept["place.reports"][kept["report_of"]])
        self.edges = Lists(below(kept, "edges_of"))
        self.edges_of = Grouped(self.entities.ids, self.edges, self.relationships.at)
        self.claims_of = Grouped(Ids(kept["subjects"]), Lists(below(kept, "claims_of")), self.claims.at)
        self.mentions = Lists(below(kept, "mentions_of"))
        self.mentions_in = Lists(below(kept, "mentions_in"))
        self.members = Lists(below(kept, "members"))
        self.communities: Shelf[Community] = self._shelf("communities")
        self.mentions_of = Grouped(Ids(kept["owners"]), self.mentions, index.mentions().__getitem__)
        self.reports_about = Lists(below(kept, "reports_about"))
        self.told_in = Lists(below(kept, "told_in"))
        self._owners, self._told, self._documents = Ids(kept["owners"]), Ids(kept["told.chunks"]), Ids(kept["told.documents"])
        self._titles = Strings(below(kept, "titles"))

    def _shelf(self, kind: str) -> Shelf[Any]:
        return Shelf(Ids(self.shape[f"ids.{kind}"]), getattr(self.index, kind)(), self.shape[f"place.{kind}"])

    @property
    def levels(self) -> range:
        """The levels of the hierarchy; there is always a level 0."""
        return range(int(self.shape["levels"][0]))

    def level(self, number: int) -> list[Community]:
        """The communities that are valid on a level: a partition of the entities."""
        return [c for c in self.index.communities() if c.first_level <= number <= c.last_level]

    def on_level(self, number: int) -> Longs:
        """The numbers of the same communities, by their ids in order."""
        return on_level(self.shape, number)

    def inside(self, members: Sequence[str]) -> list[Relationship]:
        """The relationships with both ends among these entities, each once."""
        group = self.entities.ids.numbers(members)
        return list(map(self.relationships.at, self.between(group[group >= 0]).tolist()))

    def between(self, group: Longs) -> Longs:
        """The numbers of the relationships with both ends among the entities of these numbers, each once."""
        begin, end = self.edges.begin[group], self.edges.begin[group + 1]
        owner = np.repeat(group, end - begin)
        edges = self.edges.target[ranges(begin, end)].astype(np.int64)
        known = np.zeros(len(self.entities), bool)
        known[group] = True
        found: Longs = edges[(self.shape["edge.source"][edges] == owner) & known[self.shape["edge.target"][edges]]]
        return found

    def claims_about(self, group: Longs) -> Longs:
        """The numbers of the claims about the entities of these numbers."""
        if not len(self.claims):
            return np.zeros(0, np.int64)
        subjects = Ids(self.shape["subjects"]).among(self.entities.ids.kept[group])
        begin, end = (self.shape["claims_of.begin"][subjects[subjects >= 0] + more] for more in (0, 1))
        return self.shape["claims_of.target"][ranges(begin, end)].astype(np.int64)

    def documents_of(self, record_ids: Iterable[str]) -> tuple[str, ...]:
        """The ids of the documents that these records came from."""
        return self._documents_of(self._owners.numbers(list(record_ids)))

    def documents_behind(self, entities: Longs, edges: Longs, claims: Longs) -> tuple[str, ...]:
        """The same of the records of these numbers."""
        told = self._owners.numbers([self.claims.ids[number] for number in claims.tolist()])
        return self._documents_of(np.concatenate((self._owner_of["entity"][entities], self._owner_of["edge"][edges], told)))

    @cached_property
    def _owner_of(self) -> dict[str, Longs]:
        """The number among what is mentioned of each entity and of each relationship, -1 where it is not."""
        found = {"entity": np.full(len(self.entities), -1, np.int64), "edge": np.full(len(self.relationships), -1, np.int64)}
        for kind, numbers in found.items():
            owners = np.flatnonzero(self.shape[f"owner.{kind}"] >= 0)
            numbers[self.shape[f"owner.{kind}"][owners]] = owners
        return found

    def _documents_of(self, owners: Longs) -> tuple[str, ...]:
        told = np.zeros(len(self._documents), bool)
        told[self.shape["mention.document"][self._mentions(owners)]] = True
        return tuple(self._documents.some(told))

    def _mentions(self, owners: Longs) -> Ints:
        """The numbers of all mentions of what has these numbers among what is mentioned, record by record."""
        owners = owners[owners >= 0]
        return self.mentions.target[ranges(self.mentions.begin[owners], self.mentions.begin[owners + 1])]

    def standing(self, chunk_id: str) -> tuple[Longs, Longs, Longs]:
        """Where entities are told in a chunk: number of the entity, start and end."""
        number = self._told.number(chunk_id)
        mentions = self.mentions_in.row(number) if number >= 0 else np.zeros(0, np.int32)
        entity = self.shape["owner.entity"][self.shape["mention.owner"][mentions]].astype(np.int64)
        mentions, entity = mentions[entity >= 0], entity[entity >= 0]
        begin, end = self.shape["mention.spans"][mentions], self.shape["mention.spans"][mentions + 1]
        spans = ranges(begin, end)
        return np.repeat(entity, end - begin), self.shape["span.start"][spans], self.shape["span.end"][spans]

    def places(self, record_ids: Iterable[str]) -> Longs:
        """Where these records are told, each place once, those that are in their document: rows of the number of the document, the number of the chunk
        (see `chunk_told`), start, end, and how well it is anchored (0 the best), in the order of the mentions."""
        spans, mention, sound = placed(self.shape, self._mentions(self._owners.numbers(list(record_ids))))
        rows = self._rows(spans[sound], mention[sound])
        document, chunk, start, end, grounding = rows.T
        keys = end, start * len(GROUNDING) + grounding, (document << 32) + chunk
        order = np.lexsort(keys)
        fresh = np.ones(len(order), bool)
        fresh[1:] = np.any([key[order[1:]] != key[order[:-1]] for key in keys], axis=0)
        once: Longs = rows[np.sort(order[fresh])]
        return once

    def first_place(self, record_ids: Iterable[str]) -> Longs | None:
        """The first of the places where these records are told, by how well it is anchored, then in the order of paths and of the text."""
        owners = self._owners.numbers(list(record_ids))
        spans = self.shape["owner.first"][owners[owners >= 0]].astype(np.int64)
        spans = spans[spans >= 0]
        if not len(spans):
            return None
        mention = np.searchsorted(self.shape["mention.spans"], spans, side="right") - 1
        best = np.lexsort(before(self.shape, spans, mention))[:1]
        row: Longs = self._rows(spans[best], mention[best])[0]
        return row

    def _rows(self, spans: Longs, mention: Longs) -> Longs:
        shape = self.shape
        document = shape["told.document"][shape["mention.document"][mention]]
        columns = document, shape["mention.chunk"][mention], shape["span.start"][spans], shape["span.end"][spans], shape["mention.grounding"][mention]
        return np.stack(columns, axis=1).astype(np.int64)

    def chunk_told(self, number: int) -> str:
        """The id of a chunk in which something is told."""
        return self._told[number]

    def chunks_told(self) -> Iterator[str]:
        """The ids of all chunks in which something is told."""
        return iter(self._told)

    def told(self, chunk_ids: Iterable[str], kind: Literal["entity", "edge"]) -> list[Longs]:
        """The numbers of the entities, or of the relationships, that each of these chunks mentions."""
        found: list[Longs] = []
        for chunk_id in chunk_ids:
            number = self._told.number(chunk_id)
            numbers = self.shape[f"owner.{kind}"][self.told_in.row(number)] if number >= 0 else np.zeros(0, np.int32)
            found.append(numbers[numbers >= 0].astype(np.int64))
        return found

    def title(self, document_id: str) -> str:
        """What a document is called: its title, else its path; "" when it is gone."""
        number = self.documents.ids.number(document_id)
        return str(self._titles[number]) if number >= 0 else ""


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
