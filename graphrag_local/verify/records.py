"""What the records of one generation must be to each other; pure functions of the records, a sentence per problem, named by table and id.

Ids and hashes are computed again from what they are ids and hashes of, counts are counted again, and every id that a record names must be there.
The communities are a function of the anchor and the graph: they are made again. Nothing here needs a model: what only its tokenizer could tell (the
fingerprint of a report's context) is left to the next build, which compares it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from graphrag_local.communities.stage import build_communities, conditions
from graphrag_local.graph.merge import claim_key
from graphrag_local.ids import chunk_id, digest_of, document_id, entity_id, mention_id, relationship_id, report_id
from graphrag_local.records import Anchor, AnchorCommunity, Community, Mention, Report
from graphrag_local.settings import CommunitiesSettings
from graphrag_local.store.snapshot import Snapshot
from graphrag_local.text import name_key
from graphrag_local.vectors.texts import chunk_text, entity_text, report_text, text_hash

Problems = Iterator[str]
_OWNERS: Final = {"entity": "entities", "relationship": "relationships", "claim": "claims"}


def _documents(it: Snapshot) -> Problems:
    for document in it.documents:
        if document.id != document_id(document.path):
            yield f"documents {document.id}: its id is not that of its path {document.path}"
        if document.content_hash != digest_of(document.text):
            yield f"documents {document.id}: its content hash is not that of its text"
        if not all(0 <= place.start <= len(document.text) for place in document.places):
            yield f"documents {document.id}: a page or slide begins outside its text"


def _chunks(it: Snapshot) -> Problems:
    documents = {document.id: document for document in it.documents}
    for document, group in groupby(sorted(it.chunks, key=lambda c: (c.document_id, c.index, c.id)), key=lambda c: c.document_id):
        seen: Counter[str] = Counter()
        last = -1
        for place, chunk in enumerate(group):
            if document not in documents:
                yield f"chunks {chunk.id}: its document {document} does not exist"
                continue
            if documents[document].text[chunk.start : chunk.end] != chunk.text:
                yield f"chunks {chunk.id}: its text is not what {documents[document].path} holds from {chunk.start} to {chunk.end}"
            if chunk.id != chunk_id(document, chunk.text, seen[chunk.text]):
                yield f"chunks {chunk.id}: its id is not that of its document and text"
            if chunk.index != place or chunk.start <= last:
                yield f"chunks {chunk.id}: it is not in its place among the chunks of {documents[document].path}"
            seen[chunk.text] += 1
            last = chunk.start


def _mentions(it: Snapshot) -> Problems:
    chunks = {chunk.id: chunk for chunk in it.chunks}
    owners = {kind: {row.id for row in getattr(it, table)} for kind, table in _OWNERS.items()}
    for mention in it.mentions:
        if mention.id != mention_id(mention.chunk_id, mention.owner_kind, mention.number):
            yield f"mentions {mention.id}: its id is not that of its chunk, kind and number"
        if mention.owner_id not in owners.get(mention.owner_kind, ()):
            yield f"mentions {mention.id}: its {mention.owner_kind} {mention.owner_id} does not exist"
        chunk = chunks.get(mention.chunk_id)
        if chunk is None:
            yield f"mentions {mention.id}: its chunk {mention.chunk_id} does not exist"
        elif chunk.document_id != mention.document_id:
            yield f"mentions {mention.id}: its chunk {chunk.id} is not of its document {mention.document_id}"
        elif not all(chunk.start <= span.start < span.end <= chunk.end for span in mention.spans):
            yield f"mentions {mention.id}: it quotes words outside its chunk {chunk.id}"


def _by_owner(it: Snapshot) -> dict[str, list[Mention]]:
    found: dict[str, list[Mention]] = defaultdict(list)
    for mention in it.mentions:
        found[mention.owner_id].append(mention)
    return found


def _entities(it: Snapshot) -> Problems:
    said = _by_owner(it)
    degree = Counter(end for edge in it.relationships for end in (edge.source_id, edge.target_id))
    for entity in it.entities:
        if entity.id != entity_id(entity.key):
            yield f"entities {entity.id}: its id is not that of its key {entity.key!r}"
        if entity.key not in map(name_key, (entity.name, *entity.aliases)):
            yield f"entities {entity.id}: its key {entity.key!r} is that of none of its names"
        if entity.mentions != len(said[entity.id]):
            yield f"entities {entity.id}: it counts {entity.mentions} mentions, there are {len(said[entity.id])}"
        if entity.type not in entity.types or set(entity.types) != {mention.type for mention in said[entity.id]}:
            yield f"entities {entity.id}: its types are not those of its mentions"
        if entity.degree != degree[entity.id]:
            yield f"entities {entity.id}: its degree is {entity.degree}, it has {degree[entity.id]} relationships"


def _relationships(it: Snapshot) -> Problems:
    said, entities = _by_owner(it), {entity.id: entity for entity in it.entities}
    for edge in it.relationships:
        ends = edge.source_id, edge.target_id
        if edge.id != relationship_id(*ends) or not edge.source_id < edge.target_id:
            yield f"relationships {edge.id}: its id is not that of its ends, or they are not in order"
        for end in ends:
            if end not in entities:
                yield f"relationships {edge.id}: its end {end} does not exist"
        if edge.mentions != len(said[edge.id]) or edge.weight != math.fsum(mention.strength for mention in said[edge.id]):
            yield f"relationships {edge.id}: its weight or its number of mentions is not that of its mentions"
        if edge.combined_degree != sum(entities[end].degree for end in ends if end in entities):
            yield f"relationships {edge.id}: its combined degree is not the sum of its ends'"


def _claims(it: Snapshot) -> Problems:
    entities, chunks = {entity.id for entity in it.entities}, {chunk.id: chunk.document_id for chunk in it.chunks}
    for claim in it.claims:
        if claim.id != claim_key(claim):
            yield f"claims {claim.id}: its id is not that of what it says"
        for end in filter(None, (claim.subject_id, claim.object_id)):
            if end not in entities:
                yield f"claims {claim.id}: its entity {end} does not exist"
        if chunks.get(claim.chunk_id) != claim.document_id:
            yield f"claims {claim.id}: its chunk {claim.chunk_id} does not exist or is of another document"


def _levels(table: str, rows: Sequence[Community] | Sequence[AnchorCommunity], nodes: set[str]) -> Problems:
    """Every level is a partition of the same nodes, and a community lies within its parent, which ends where it begins."""
    by_id = {row.id: row for row in rows}
    for level in range(max((row.last_level for row in rows), default=-1) + 1):
        members = [member for row in rows if row.first_level <= level <= row.last_level for member in row.member_ids]
        if len(members) != len(nodes) or set(members) != nodes:
            yield f"{table}: level {level} is no partition: {len(members)} places for {len(nodes)} entities"
    for row in rows:
        if list(row.member_ids) != sorted(set(row.member_ids)) or not row.member_ids or not 0 <= row.first_level <= row.last_level:
            yield f"{table} {row.id}: its members are not in order, or its levels are not"
        parent = by_id.get(row.parent_id)
        if parent is None:
            if row.parent_id or row.first_level:
                yield f"{table} {row.id}: its parent {row.parent_id or '(none)'} does not exist"
        elif parent.last_level != row.first_level - 1 or not set(row.member_ids) <= set(parent.member_ids):
            yield f"{table} {row.id}: it does not lie within its parent {parent.id}, or not on the level below it"


def _communities(it: Snapshot) -> Problems:
    nodes = {entity.id for entity in it.entities}
    if nodes and not it.communities:
        yield "communities: there are none, although there are entities"
    yield from _levels("communities", it.communities, nodes)
    children: dict[str, list[str]] = defaultdict(list)
    for row in it.communities:
        children[row.parent_id].append(row.id)
    for row in it.communities:
        if sorted(row.child_ids) != sorted(children[row.id]):
            yield f"communities {row.id}: its children are not those that name it as parent"


def _anchor(it: Snapshot) -> Problems:
    nodes = {member for row in it.anchor_communities if row.first_level == 0 for member in row.member_ids}
    yield from _levels("anchor_communities", it.anchor_communities, nodes)
    pairs = Counter((edge.source_id, edge.target_id) for edge in it.anchor_edges)
    for pair, count in pairs.items():
        if count > 1 or not pair[0] < pair[1] or not nodes.issuperset(pair):
            yield f"anchor_edges {pair[0]} - {pair[1]}: it is there twice, its ends are not in order, or one is in no community"


def _reports(it: Snapshot) -> Problems:
    communities, entities = {row.id for row in it.communities}, {entity.id for entity in it.entities}
    citable = entities | {edge.id for edge in it.relationships} | {claim.id for claim in it.claims}
    documents = {document.id for document in it.documents}
    for report in it.reports:
        if report.id != report_id(report.community_id) or report.community_id not in communities:
            yield f"reports {report.id}: its community {report.community_id} does not exist or is not that of its id"
        for what, ids, there in (("source", _sources(report), citable), ("entity without room", report.untold, entities), ("document", report.documents, documents)):
            for id_ in ids:
                if id_ not in there:
                    yield f"reports {report.id}: its {what} {id_} does not exist"


def _sources(report: Report) -> Iterable[str]:
    return dict.fromkeys(source for finding in report.findings for source in finding.sources)


def _vectors(it: Snapshot) -> Problems:
    texts = {
        "chunk": {chunk.id: chunk_text(chunk) for chunk in it.chunks},
        "entity": {entity.id: entity_text(entity) for entity in it.entities},
        "report": {report.id: report_text(report) for report in it.reports},
    }
    made: dict[str, set[str]] = defaultdict(set)
    for vector in it.vectors:
        text = texts.get(vector.owner_kind, {}).get(vector.owner_id)
        if text is None:
            yield f"vectors: the {vector.owner_kind} {vector.owner_id} of a vector does not exist"
        elif vector.text_hash != text_hash(text):
            yield f"vectors: that of the {vector.owner_kind} {vector.owner_id} was made from another text than the record's"
        made[vector.owner_kind].add(vector.owner_id)
    waiting = {row.input_id for row in it.failures if row.stage == "vectors"}
    for kind, owners in texts.items() if it.dimension else ():
        for id_ in sorted(owners.keys() - made[kind] - waiting):
            yield f"vectors: the {kind} {id_} has none"


def _failures(it: Snapshot) -> Problems:
    there = {row.id for table in ("documents", "chunks", "entities", "relationships", "communities") for row in getattr(it, table)}
    for failed in it.failures:
        if failed.stage not in ("documents", "vectors") and failed.input_id not in there:
            yield f"failures: what failed in {failed.stage}, {failed.input_id}, does not exist"


CHECKS: Final[tuple[tuple[Callable[[Snapshot], Problems], str], ...]] = (  # a check, and the tables that it reads
    (_documents, "documents"),
    (_chunks, "chunks documents"),
    (_mentions, "mentions chunks entities relationships claims"),
    (_entities, "entities mentions relationships"),
    (_relationships, "relationships mentions entities"),
    (_claims, "claims entities chunks"),
    (_communities, "communities entities"),
    (_anchor, "anchor_communities anchor_edges"),
    (_reports, "reports communities entities relationships claims documents"),
    (_vectors, "chunks entities reports"),
    (_failures, "failures documents chunks entities relationships communities"),
)


_GRAPH: Final = frozenset(("entities", "relationships", "communities", "anchor_communities"))  # first tables of the checks that a partition stands on


def check(snapshot: Snapshot, unread: set[str], about: Mapping[str, Any] | None = None) -> Problems:
    """What does not fit, by check; those that need a table in `unread` are left out. `about` is what the manifest says of the making: with it the
    communities are made again, where the graph and the anchor are sound."""
    spoilt = unread & {*_GRAPH, "anchor_edges"}
    for one, tables in CHECKS:
        if not unread.intersection(tables.split()):
            for line in one(snapshot):
                spoilt |= _GRAPH.intersection(tables.split()[:1])
                yield line
    if about is not None and not spoilt:
        yield from _partition(snapshot, about)


def _partition(it: Snapshot, about: Mapping[str, Any]) -> Problems:
    """Whether the anchor and the graph give these communities, by the settings they were made with; another version of Leiden may give others."""
    made = about.get("partition", {})
    renewing = {name: made[name] for name in ("renew_modularity", "renew_roots") if name in made}
    settings = CommunitiesSettings.model_validate({**about["decisive"]["communities"], **renewing})
    if made != conditions(settings):
        return
    anchor = Anchor(communities=it.anchor_communities, edges=it.anchor_edges)
    again = {row.id: row for row in build_communities(it.entities, it.relationships, settings, anchor).communities}
    for row in it.communities:
        if again.get(row.id) != row:
            yield f"communities {row.id}: it is not what the anchor and the graph give"
