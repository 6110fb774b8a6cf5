"""The records of the graph as lines of text, and which of them are inside a community. No model, no budget."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from graphrag_local.ids import digest_of
from graphrag_local.records import Claim, Entity, Mention, RecordKind, Relationship
from graphrag_local.text import ends_like_a_sentence, neutralise, one_line, sentences, size

PREFIX: dict[RecordKind, str] = {"entity": "E", "relationship": "K", "claim": "D"}  # R is a report's, in questions
AT_HOME = 0.5  # share of an entity's mentions in passages that a group shares with it, from which on its summary is about the group (our choice)
TOLD_TOKENS = 256  # of what is told of another one, as many as are joined without a summary by default
NEAR_TURNS = 3  # statements from shared passages for one from elsewhere (our choice: the rest of its part in the collection stays in view)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What lies inside a set of entities: ids in the order in which they are told. `loose` are the entities without an edge inside."""

    relationships: tuple[str, ...]
    loose: tuple[str, ...]
    claims: tuple[str, ...]


class Elements:
    """Every entity, relationship and claim of a graph, by id.

    Lines are on one line each and neutralised, so that no name or description opens a heading, a tag or a source mark of its own.
    """

    def __init__(self, entities: Iterable[Entity], relationships: Iterable[Relationship], claims: Iterable[Claim] = (), mentions: Iterable[Mention] = ()) -> None:
        self.entities = {entity.id: entity for entity in entities}
        known = self.entities
        self.relationships = {edge.id: edge for edge in relationships if edge.source_id in known and edge.target_id in known}
        self.claims = {claim.id: claim for claim in claims if claim.subject_id in known}
        self._edges = _by_end((edge.id, {edge.source_id, edge.target_id}) for edge in self.relationships.values())
        self._claims = _by_end((claim.id, {claim.subject_id}) for claim in self.claims.values())
        self._ends: dict[str, tuple[str, ...]] = {edge.id: (edge.source_id, edge.target_id) for edge in self.relationships.values()}
        self._ends |= {c.id: tuple(end for end in (c.subject_id, c.object_id) if end in known) for c in self.claims.values()}
        self._bodies: dict[str, str] = {}
        self._inside: dict[tuple[str, ...], Inside] = {}
        self._sizes: dict[tuple[str, ...], float] = {}
        self._documents: dict[str, set[str]] = {claim.id: {claim.document_id} for claim in self.claims.values()}
        self._headings: dict[str, set[str]] = {}
        self._mentions: dict[str, list[Mention]] = {}
        self._named: dict[str, set[str]] = {}  # chunk -> the entities that it mentions
        self._groups: dict[tuple[str, ...], frozenset[str]] = {}
        self._told: dict[tuple[str, frozenset[str]], str] = {}
        for mention in mentions:
            if mention.owner_kind == "entity":
                self._mentions.setdefault(mention.owner_id, []).append(mention)
                self._named.setdefault(mention.chunk_id, set()).add(mention.owner_id)
            self._documents.setdefault(mention.owner_id, set()).add(mention.document_id)
            if not ends_like_a_sentence(mention.description):
                self._headings.setdefault(mention.owner_id, set()).add(mention.description)

    def __contains__(self, record_id: str) -> bool:
        return record_id in self.entities or record_id in self._ends

    def kind(self, record_id: str) -> RecordKind:
        """Which kind of record an id is."""
        if record_id in self.entities:
            return "entity"
        return "relationship" if record_id in self.relationships else "claim"

    def ends(self, record_id: str) -> tuple[str, ...]:
        """The entities a line names by their ids: both ends of an edge, subject and object of a claim, none for an entity."""
        return self._ends.get(record_id, ())

    def label(self, entity_id: str) -> str:
        """An entity's name and type."""
        entity = self.entities[entity_id]
        return neutralise(one_line(f"{entity.name} ({entity.type})" if entity.type else entity.name))

    def body(self, record_id: str) -> str:
        """A record's line without ids: `name (type): description`, an edge's description, or a claim's `description (type, status, period)`."""
        if record_id not in self._bodies:
            self._bodies[record_id] = self._body(record_id)
        return self._bodies[record_id]

    def group(self, members: tuple[str, ...]) -> frozenset[str]:
        """These entities as a set, the same object each time, so that looking things up by it is quick."""
        return self._groups.setdefault(members, frozenset(members))

    def told(self, record_id: str, group: frozenset[str], count: Callable[[str], int]) -> str:
        """A record's line for a group: its body, unless it is an entity of which more is said than its description holds, and most of it elsewhere.

        Of such a hub the summary is about other things, so that its own statements are told, up to `TOLD_TOKENS`: from passages that mention another
        member too, and every fourth from elsewhere, picked by their hash. So what is said of it elsewhere hardly ever moves a report here.
        """
        if record_id not in self._long:
            return self.body(record_id)
        if (record_id, group) not in self._told:
            self._told[record_id, group] = self._hub(record_id, group, count) or self.body(record_id)
        return self._told[record_id, group]

    def _hub(self, entity_id: str, group: frozenset[str], count: Callable[[str], int]) -> str:
        """A hub's line of statements, "" where the entity is at home in the group, or nothing is said of it there."""
        mentions = self._mentions[entity_id]
        shared = [one for one in mentions if any(other in group for other in self._named[one.chunk_id] if other != entity_id)]
        near, said = ({one.description for one in rows} - {""} for rows in (shared, mentions))
        if not near or len(shared) >= AT_HOME * len(mentions):
            return ""
        kept, room = [], TOLD_TOKENS
        for text in _mixed(sorted(near, key=digest_of), sorted(said - near, key=digest_of)):
            room -= count(text)
            if room < 0:
                break
            kept.append(text)
        return neutralise(one_line(f"{self.label(entity_id)}: {' '.join(kept)}")) if kept else ""

    @cached_property
    def _long(self) -> set[str]:
        """The entities of which more is said than their description holds: it is a summary."""
        found = set()
        for entity_id, mentions in self._mentions.items():
            length = len(self.entities[entity_id].description) if entity_id in self.entities else math.inf
            if sum(len(one.description) + 1 for one in mentions) > length + 1 and len(" ".join({one.description for one in mentions} - {""})) > length:
                found.add(entity_id)
        return found

    def said(self, record_id: str) -> str:
        """A record's description alone."""
        record = self.entities.get(record_id) or self.relationships.get(record_id) or self.claims[record_id]
        return neutralise(one_line(record.description))

    def headings(self, record_id: str) -> tuple[str, ...]:
        """What mentions quote that does not end like a sentence, the longest first: in a description the next sentence follows it directly."""
        texts = (one_line(text) for text in self._headings.get(record_id, ()))
        last = {neutralise(text[start:end]) for text in texts for start, end in sentences(text)[-1:]}
        return tuple(sorted(last, key=lambda text: (-len(text), text)))

    def _body(self, record_id: str) -> str:
        if record_id in self.entities:
            description = self.said(record_id)
            return f"{self.label(record_id)}: {description}" if description else self.label(record_id)
        if record_id in self.relationships:
            return self.said(record_id)
        claim = self.claims[record_id]
        marks = ", ".join(filter(None, (claim.type, claim.status, claim.period if claim.period != "NA" else "")))
        return neutralise(one_line(f"{claim.description} ({marks})"))

    def inside(self, members: Sequence[str], apart: Sequence[frozenset[str]] = ()) -> Inside:
        """What is inside these entities: all edges between them, by combined degree within them (never the whole graph's), then the rest.

        Weight plays no part: else a connection told once more in the same words would move lines and cost a report. A claim is inside with its
        subject and, where it has one, its object. What lies wholly inside one of `apart` is left out.
        """
        if apart:
            return self._find(members, apart)
        key = tuple(members)
        if key not in self._inside:
            self._inside[key] = self._find(key, ())
        return self._inside[key]

    def _find(self, members: Sequence[str], apart: Sequence[frozenset[str]]) -> Inside:
        group = {member for member in members if member in self.entities}
        part = {member: number for number, members_of in enumerate(apart) for member in members_of}
        inner = {edge for member in group for edge in self._edges.get(member, ()) if group.issuperset(self.ends(edge))}
        degree = dict.fromkeys(group, 0)
        for edge in inner:
            for end in self.ends(edge):
                degree[end] += 1

        def rank(edge: str) -> tuple[int, str]:
            source, target = self.ends(edge)
            return -degree[source] - degree[target], edge

        def between(record_id: str) -> bool:
            parts = {part.get(end, -1) for end in self.ends(record_id)}
            return len(parts) > 1 or -1 in parts

        claims = (claim for member in group for claim in self._claims.get(member, ()) if group.issuperset(self.ends(claim)))
        return Inside(
            relationships=tuple(sorted((edge for edge in inner if between(edge)), key=rank)),
            loose=tuple(sorted(member for member in group if not degree[member] and member not in part)),
            # By their words: a claim's id is another whenever its chunk is edited.
            claims=tuple(sorted((claim for claim in claims if between(claim)), key=lambda claim: (self.body(claim), self.ends(claim), claim))),
        )

    def size(self, members: tuple[str, ...]) -> float:
        """The element text of these entities in model-free tokens (see `text.size`)."""
        if members not in self._sizes:
            inside = self.inside(members)
            ids = (*(member for member in members if member in self.entities), *inside.relationships, *inside.claims)
            self._sizes[members] = sum(size(self.body(record_id) + "\n") for record_id in ids)
        return self._sizes[members]

    def documents(self, members: Sequence[str]) -> tuple[str, ...]:
        """The documents that speak of these entities or of what is between them."""
        inside = self.inside(members)
        ids = (*members, *inside.relationships, *inside.claims)
        return tuple(sorted({document for record_id in ids for document in self._documents.get(record_id, ())}))


def _mixed(near: Sequence[str], far: Sequence[str]) -> list[str]:
    """So many near ones, then one from afar, and so on, as long as there are any."""
    turns = range(max(-(-len(near) // NEAR_TURNS), len(far)))
    return [text for turn in turns for text in (*near[NEAR_TURNS * turn : NEAR_TURNS * (turn + 1)], *far[turn : turn + 1])]


def _by_end(ends: Iterable[tuple[str, set[str]]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for record_id, entities in ends:
        for entity in entities:
            found.setdefault(entity, []).append(record_id)
    return found
