"""Extractions -> one graph: mentions of a name become a node, statements about a pair become an edge (paper §3.1.3).

Nothing depends on the order in which extractions arrive: they are sorted by document and place first, counts decide names and types, and ties
are broken by the string itself. Descriptions are left empty; `describe` fills them.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from graphrag_local.ids import claim_id, digest_of, entity_id, mention_id, relationship_id
from graphrag_local.records import (
    Chunk,
    Claim,
    ClaimMention,
    Dropped,
    Entity,
    EntityMention,
    Extraction,
    Grounding,
    Mention,
    RecordKind,
    Relationship,
    RelationshipMention,
)
from graphrag_local.text import clean_name, name_key, one_line

_RANK: dict[Grounding, int] = {"anchored": 0, "composed": 1, "unanchored": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The graph before descriptions and measures, sorted by id; mentions by document, place and number. `dropped` says what did not get in."""

    entities: tuple[Entity, ...]
    relationships: tuple[Relationship, ...]
    claims: tuple[Claim, ...]
    mentions: tuple[Mention, ...]
    dropped: tuple[Dropped, ...]


_clean = lru_cache(maxsize=1 << 17)(clean_name)
_id = lru_cache(maxsize=1 << 17)(entity_id)


@dataclass(slots=True)
class _Node:
    """What is counted about one node while merging."""

    key: str
    mentions: int = 0
    types: Counter[str] = field(default_factory=Counter)
    surfaces: Counter[str] = field(default_factory=Counter)
    rank: dict[str, int] = field(default_factory=dict)  # surface form -> its best grounding
    canonical: set[str] = field(default_factory=set)

    def add(self, surface: str, mention: EntityMention) -> None:
        """Count one mention."""
        self.mentions += 1
        self.types[mention.type] += 1
        self.surfaces[surface] += 1
        self.rank[surface] = min(self.rank.get(surface, 9), _RANK[mention.grounding])
        if mention.canonical:
            self.canonical.add(_clean(mention.canonical))

    def entity(self) -> Entity:
        """The node as a record, named by a form that stands in the text where there is one, then by one with its own key, then by the commonest."""
        name = min(self.surfaces, key=lambda s: (self.rank[s], name_key(s) != self.key, -self.surfaces[s], s))
        types = tuple(sorted(self.types, key=lambda t: (-self.types[t], t)))
        aliases = tuple(sorted((set(self.surfaces) | self.canonical) - {name, ""}))
        return Entity(
            id=entity_id(self.key), key=self.key, name=name, type=types[0], types=types, aliases=aliases, description="", mentions=self.mentions
        )


@dataclass(slots=True)
class _Ledger:
    """What one pass over the extractions gathers."""

    nodes: dict[str, _Node] = field(default_factory=dict)  # by key
    edges: dict[tuple[str, str], list[float]] = field(default_factory=dict)  # ends' ids, sorted -> strengths
    claims: dict[str, Claim] = field(default_factory=dict)
    mentions: list[Mention] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)

    def drop(self, what: str, reason: str) -> None:
        """Remember what did not get in."""
        self.dropped.append(Dropped(what=one_line(what)[:120], reason=reason))


def merge(extractions: Iterable[Extraction], chunks: Mapping[str, Chunk]) -> Merged:
    """The graph of all extractions; `chunks` (by id) says where each of them stands."""
    ledger = _Ledger()
    for extraction in sorted(extractions, key=lambda x: (x.document_id, chunks[x.chunk_id].index, x.chunk_id)):
        keys = [_entity(ledger, extraction, number, mention) for number, mention in enumerate(extraction.entities)]
        for number, edge in enumerate(extraction.relationships):
            _relationship(ledger, extraction, number, edge, keys)
        for number, claim in enumerate(extraction.claims):
            _claim(ledger, extraction, number, claim, keys)
    edges = [
        Relationship(id=relationship_id(a, b), source_id=a, target_id=b, description="", weight=math.fsum(strengths), mentions=len(strengths))
        for (a, b), strengths in ledger.edges.items()
    ]
    return Merged(
        entities=tuple(sorted((node.entity() for node in ledger.nodes.values()), key=lambda entity: entity.id)),
        relationships=tuple(sorted(edges, key=lambda edge: edge.id)),
        claims=tuple(sorted(ledger.claims.values(), key=lambda claim: claim.id)),
        mentions=tuple(ledger.mentions),
        dropped=tuple(ledger.dropped),
    )


def _entity(ledger: _Ledger, extraction: Extraction, number: int, mention: EntityMention) -> str:
    """The key of the node that a mention belongs to, "" where it cannot have one."""
    surface = _clean(mention.name)
    called = (_clean(mention.canonical) if mention.canonical else "") or surface
    if not surface:
        ledger.drop(mention.name, "a name without a visible character")
        return ""
    key = name_key(called)
    node = ledger.nodes.setdefault(key, _Node(key))
    node.add(surface, mention)
    row = _mention(extraction, "entity", _id(key), number, mention, surface, type_=mention.type, grounding=mention.grounding)
    ledger.mentions.append(row)
    return key


def _relationship(ledger: _Ledger, extraction: Extraction, number: int, edge: RelationshipMention, keys: list[str]) -> None:
    source, target = _end(edge.source, keys), _end(edge.target, keys)
    if not source or not target:
        ledger.drop(edge.description, "an end of the relationship is no entity of its passage")
        return
    names = [_clean(extraction.entities[end].name) for end in (edge.source, edge.target)]
    if source == target:
        ledger.drop(f"{names[0]} - {names[1]}: {edge.description}", "both ends are one entity")
        return
    a, b = sorted((_id(source), _id(target)))
    ledger.edges.setdefault((a, b), []).append(edge.strength)
    row = _mention(extraction, "relationship", relationship_id(a, b), number, edge, " - ".join(names), strength=edge.strength)
    ledger.mentions.append(row)


def _claim(ledger: _Ledger, extraction: Extraction, number: int, claim: ClaimMention, keys: list[str]) -> None:
    subject, other = _end(claim.subject, keys), _end(claim.object, keys)
    if not subject:
        ledger.drop(claim.description, "the subject of the claim is no entity of its passage")
        return
    said = one_line(claim.description)
    row = Claim(
        id="",
        subject_id=_id(subject),
        object_id=_id(other) if other else "",
        type=claim.type,
        status=claim.status,
        period=claim.period,
        description=said,
        chunk_id=extraction.chunk_id,
        document_id=extraction.document_id,
    )
    key = claim_key(row)
    if key in ledger.claims:
        ledger.drop(said, "the same claim twice in one passage")
        return
    ledger.claims[key] = replace(row, id=key)
    name = _clean(extraction.entities[claim.subject].name)
    ledger.mentions.append(_mention(extraction, "claim", key, number, claim, name, type_=claim.type))


def claim_key(claim: Claim) -> str:
    """The id of a claim: its chunk and all that it says."""
    said = (claim.subject_id, claim.object_id, claim.type, claim.status, claim.period, claim.description)
    return claim_id(claim.chunk_id, digest_of(*said))


def _mention(
    extraction: Extraction,
    kind: RecordKind,
    owner: str,
    number: int,
    said: EntityMention | RelationshipMention | ClaimMention,
    name: str,
    *,
    type_: str = "",
    strength: float = 0.0,
    grounding: Grounding | None = None,
) -> Mention:
    """The row of one thing said; its id is its place in its chunk's reply, and cited sentences count as anchored."""
    return Mention(
        id=mention_id(extraction.chunk_id, kind, number),
        owner_id=owner,
        owner_kind=kind,
        chunk_id=extraction.chunk_id,
        document_id=extraction.document_id,
        number=number,
        name=name,
        type=type_,
        description=one_line(said.description),
        strength=strength,
        spans=said.spans,
        grounding=grounding or ("anchored" if said.spans else "unanchored"),
    )


def _end(index: int, keys: list[str]) -> str:
    return keys[index] if 0 <= index < len(keys) else ""
