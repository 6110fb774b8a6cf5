"""What an update had to ask about, found from the records before and after it, without a look at how the program decides."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from graphrag_local.engine.base import Request
from graphrag_local.records import Mention, Report
from graphrag_local.store.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Call:
    """One request that was paid for: its stage ("extraction", "names", "describe", "reports") and its tokens, prompt and reply."""

    stage: str
    request: Request
    tokens: int


@dataclass(frozen=True, slots=True)
class Touched:
    """Texts of chunks that are new, documents (ids) with such a chunk, names of entities and relationships about which other things are said, and
    communities (ids) with other members or elements or on another level, `changed` (a root has a report that would be too small below one), and
    those with all that is above them, `communities`."""

    texts: frozenset[str]
    documents: frozenset[str]
    subjects: frozenset[str]
    changed: frozenset[str]
    communities: frozenset[str]

    @classmethod
    def between(cls, before: Snapshot, after: Snapshot) -> Self:
        """The difference of two snapshots."""
        texts = {chunk.text for chunk in after.chunks} - {chunk.text for chunk in before.chunks}
        old, new = _statements(before), _statements(after)
        names = {record.id: record.name for record in after.entities}
        names |= {edge.id: " - ".join(sorted((names[edge.source_id], names[edge.target_id]))) for edge in after.relationships}
        known, now = ({(row.first_level, inside[row.id]): row.id for row in rows} for rows, inside in ((s.communities, insides(s)) for s in (before, after)))
        changed = {id_ for place, id_ in now.items() if place not in known}
        parent = {community.id: community.parent_id for community in after.communities}
        above = set(changed)
        for id_ in changed:
            while id_ := parent[id_]:
                above.add(id_)
        return cls(
            texts=frozenset(texts),
            documents=frozenset(chunk.document_id for chunk in after.chunks if chunk.text in texts),
            subjects=frozenset(names[owner] for owner, said in new.items() if old.get(owner) != said),
            changed=frozenset(changed),
            communities=frozenset(above),
        )

    def outside(self, calls: Iterable[Call], after: Snapshot) -> list[str]:
        """What is wrong with the calls: outside of what is touched, the same chunk twice, or a new chunk that was not read."""
        text_of = {chunk.id: chunk.text for chunk in after.chunks}
        about = {report.fingerprint: report.community_id for report in after.reports}
        read: Counter[str] = Counter()
        wrong = []
        for call in calls:
            affinity = call.request.affinity
            if call.stage == "extraction":
                read[text_of[affinity]] += 1
            elif call.stage == "names" and affinity not in self.documents:
                wrong.append("the names of a document without a new chunk")
            elif call.stage == "describe" and affinity not in self.subjects:
                wrong.append("a description of what nothing else is said about")
            elif call.stage == "reports" and about.get(affinity) not in self.communities:
                wrong.append("a report about an unchanged community")
        wrong += ["a chunk that is not new, or one twice" for text, count in read.items() if text not in self.texts or count > 1]
        return wrong + ["a new chunk was not read"] * len(self.texts - read.keys())


def _statements(snapshot: Snapshot) -> dict[str, list[list[str]]]:
    """What is said about each entity and relationship, document by document."""
    said: dict[str, dict[str, list[str]]] = {}
    for mention in snapshot.mentions:
        said.setdefault(mention.owner_id, {}).setdefault(mention.document_id, []).append(mention.description)
    return {owner: sorted(by_document.values()) for owner, by_document in said.items()}


def insides(snapshot: Snapshot) -> dict[str, frozenset[Any]]:
    """All that is inside each community, by id: its entities with what is said of each and whether beside another member, and the edges between them
    with their weights."""
    homes: dict[str, list[str]] = {}
    for community in snapshot.communities:
        for member in community.member_ids:
            homes.setdefault(member, []).append(community.id)
    members = {community.id: set(community.member_ids) for community in snapshot.communities}
    mentions: dict[str, list[Mention]] = {}
    named: dict[str, set[str]] = {}
    for mention in snapshot.mentions:
        if mention.owner_kind == "entity":
            mentions.setdefault(mention.owner_id, []).append(mention)
            named.setdefault(mention.chunk_id, set()).add(mention.owner_id)
    inside: dict[str, set[Any]] = {community.id: set() for community in snapshot.communities}
    for entity in snapshot.entities:
        for id_ in homes[entity.id]:
            said = Counter((one.description, len(named[one.chunk_id] & members[id_]) > 1) for one in mentions[entity.id])
            inside[id_].add((entity.id, entity.name, entity.type, entity.description, frozenset(said.items())))
    for edge in snapshot.relationships:
        for id_ in set(homes[edge.source_id]).intersection(homes[edge.target_id]):
            inside[id_].add((edge.id, edge.description, edge.weight))
    return {id_: frozenset(rows) for id_, rows in inside.items()}


def causes(calls: Iterable[Call], before: Snapshot, after: Snapshot) -> list[tuple[Call, int, str]]:
    """Each report's call with the level of its community, and why it was made.

    "new": there was no report; "members": the community has others; "order": the lines of its context are the same; "elements": what is said inside
    is other; "summaries": that is so of nothing but descriptions that were summarised anew; "below": only a report of a part of it is other.
    """
    communities, earlier = {row.id: row for row in after.communities}, {row.id: row for row in before.communities}
    old: dict[str, Report] = {report.community_id: report for report in before.reports}
    new = {report.fingerprint: report for report in after.reports}
    was, now = insides(before), insides(after)
    summarised = {call.request.affinity for call in calls if call.stage == "describe"}
    edges = {edge.id: edge for edge in after.relationships}
    names = {entity.id: entity.name for entity in after.entities}
    names |= {id_: " - ".join(sorted((names[edge.source_id], names[edge.target_id]))) for id_, edge in edges.items()}
    found = []
    for call in calls:
        if call.stage != "reports":
            continue
        report = new[call.request.affinity]
        id_ = report.community_id
        if id_ not in old:
            why = "new"
        elif communities[id_].member_ids != earlier[id_].member_ids:
            why = "members"
        elif Counter(old[id_].context) == Counter(report.context):
            why = "order"
        else:
            differ = {names.get(row[0], "") for row in was[id_] ^ now[id_]}
            why = "below" if not differ else "summaries" if differ <= summarised else "elements"
        found.append((call, communities[id_].first_level, why))
    return found
