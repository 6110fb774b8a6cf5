"""The shape of a generation as arrays: which records there are, and which belong to which, without what they say.

Records have the numbers of their ids in order; a relationship counts where both of its ends are there.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from graphrag_local.query.arrays import Arrays, Flags, Ids, Ints, Kept, Lists, Longs, Strings, above
from graphrag_local.records import Chunk, Claim, Community, Document, Entity, Grounding, Mention, Relationship, Report

GROUP: Final = 6  # chunks that a community has in the mean at least, so that finding something in it says something about others
GROUNDING: Final[dict[Grounding, int]] = {"anchored": 0, "composed": 1, "unanchored": 2}  # the better one first


def shape_of(
    documents: Sequence[Document], chunks: Sequence[Chunk], entities: Sequence[Entity], relationships: Sequence[Relationship], claims: Sequence[Claim],
    communities: Sequence[Community], reports: Sequence[Report], mentions: Sequence[Mention],
) -> Arrays:  # fmt: skip
    """The arrays of all that. "place.…" is where the record of a number stands in its list; the lists may come in any order."""
    known = {entity.id for entity in entities}
    whole = [(at, edge) for at, edge in enumerate(relationships) if edge.source_id in known and edge.target_id in known]
    kept: Arrays = {}
    for kind, rows in (("documents", documents), ("chunks", chunks), ("entities", entities), ("claims", claims), ("reports", reports)):
        kept |= _listed(kind, [row.id for row in rows], range(len(rows)))
    kept |= _listed("relationships", [edge.id for _, edge in whole], [at for at, _ in whole])
    entity_ids = Ids(kept["ids.entities"])
    placed: Sequence[Document] = [documents[at] for at in kept["place.documents"].tolist()]
    kept |= above("titles", Strings.kept(document.title or document.path for document in placed))
    kept["document.size"] = np.array([len(document.text) for document in placed], np.int64)
    kept["document.by_path"] = np.argsort(np.argsort([*(document.path for document in placed)], kind="stable"), kind="stable").astype(np.int32)
    kept["characters"] = np.array([sum(chunk.end - chunk.start for chunk in chunks)], np.int64)
    kept["entity.mentions"] = np.array([entities[at].mentions for at in kept["place.entities"].tolist()], np.int64)
    kept |= (
        _edges([relationships[at] for at in kept["place.relationships"].tolist()], entity_ids)
        | _claims([claims[at] for at in kept["place.claims"].tolist()])
        | _mentions(mentions, entity_ids, Ids(kept["ids.relationships"]), Ids(kept["ids.documents"]))
        | _reports(communities, reports, entity_ids, Ids(kept["ids.reports"]))
    )
    kept |= _listed("communities", [row.id for row in communities], range(len(communities)))
    kept |= _communities([communities[at] for at in kept["place.communities"].tolist()], entity_ids, kept)
    return kept | {"owner.first": _first(kept), "chunk.group": _groups(kept)}


def _listed(kind: str, ids: Sequence[str], places: Sequence[int]) -> Arrays:
    raw = Ids.of(ids)
    order = np.argsort(raw, kind="stable")
    return {f"ids.{kind}": raw[order], f"place.{kind}": np.array(places, np.int32)[order]}


def _edges(edges: Sequence[Relationship], entities: Ids) -> Arrays:
    source, target = (entities.numbers([getattr(edge, end) for edge in edges]) for end in ("source_id", "target_id"))
    ends = np.stack((source, target), axis=1).ravel() if edges else np.zeros(0, np.int64)
    lists = Lists.grouped(ends, len(entities))
    lists["target"] //= 2
    weight = np.array([edge.weight for edge in edges], np.float64)
    return {"edge.source": source.astype(np.int32), "edge.target": target.astype(np.int32), "edge.weight": weight, **above("edges_of", lists)}


def _claims(claims: Sequence[Claim]) -> Arrays:
    subjects, which = np.unique(Ids.of([claim.subject_id for claim in claims]), return_inverse=True)
    return {"subjects": subjects, **above("claims_of", Lists.grouped(which, len(subjects)))}


def _mentions(mentions: Sequence[Mention], entities: Ids, edges: Ids, there: Ids) -> Arrays:
    """Of each owner its mentions, and of each chunk the entities and relationships that are told in it, both by the order of ids."""
    owners, owner = np.unique(Ids.of([mention.owner_id for mention in mentions]), return_inverse=True)
    chunks, chunk = np.unique(Ids.of([mention.chunk_id for mention in mentions]), return_inverse=True)
    documents, document = np.unique(Ids.of([mention.document_id for mention in mentions]), return_inverse=True)
    entity, edge = entities.among(owners), edges.among(owners)
    pairs = np.unique(chunk * max(1, len(owners)) + owner)
    told, in_chunk = pairs % max(1, len(owners)), pairs // max(1, len(owners))
    known = (entity[told] >= 0) | (edge[told] >= 0)
    spans = [span for mention in mentions for span in mention.spans]
    return {
        "mention.chunk": chunk.astype(np.int32),
        "mention.grounding": np.array([GROUNDING[mention.grounding] for mention in mentions], np.int8),
        "mention.spans": np.cumsum([0, *(len(mention.spans) for mention in mentions)], dtype=np.int64),
        "span.start": np.array([span.start for span in spans], np.int64), "span.end": np.array([span.end for span in spans], np.int64),
        "owners": owners, "mention.owner": owner.astype(np.int32), **above("mentions_of", Lists.grouped(owner, len(owners))),
        **above("mentions_in", Lists.grouped(chunk, len(chunks))),
        "owner.entity": entity.astype(np.int32), "owner.edge": edge.astype(np.int32),
        "told.chunks": chunks, **above("told_in", Lists.grouped(in_chunk[known], len(chunks), told[known])),
        "told.documents": documents, "told.document": there.among(documents).astype(np.int32), "mention.document": document.astype(np.int32),
    }  # fmt: skip


def ranges(begin: Longs, end: Longs) -> Longs:
    """The numbers of several ranges, one range after the other."""
    counts = end - begin
    return np.repeat(begin - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())


def placed(kept: Kept, mentions: Ints) -> tuple[Longs, Longs, Flags]:
    """The spans of these mentions, the mention of each, and which of them are in their document."""
    begin, end = kept["mention.spans"][mentions], kept["mention.spans"][mentions + 1]
    spans, mention = ranges(begin, end), np.repeat(mentions.astype(np.int64), end - begin)
    document, start, end = kept["told.document"][kept["mention.document"][mention]], kept["span.start"][spans], kept["span.end"][spans]
    sound = (document >= 0) & (start >= 0) & (start < end)
    sound[sound] = end[sound] <= kept["document.size"][document[sound]]
    return spans, mention, sound


def before(kept: Kept, spans: Longs, mention: Longs) -> tuple[Longs, ...]:
    """What puts a span before another one, as keys for `np.lexsort`: how well it is anchored, then the path of its document, then its place there."""
    by_path = kept["document.by_path"][kept["told.document"][kept["mention.document"][mention]]]
    return kept["span.end"][spans], kept["span.start"][spans], by_path, kept["mention.grounding"][mention]


def _first(kept: Kept) -> Ints:
    """Of each owner the first of its spans (see `before`) that are in their document, -1 where there is none."""
    mentions, begin = kept["mentions_of.target"], kept["mentions_of.begin"]
    spans, mention, sound = placed(kept, mentions)
    counts = (kept["mention.spans"][mentions + 1] - kept["mention.spans"][mentions]).astype(np.int64)
    of_mention = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
    owner = np.repeat(of_mention, counts)[sound]
    spans, mention = spans[sound], mention[sound]
    order = np.lexsort((*before(kept, spans, mention), owner))
    owners, first = np.unique(owner[order], return_index=True)
    found: Ints = np.full(len(begin) - 1, -1, np.int32)
    found[owners] = spans[order[first]]
    return found


def _reports(communities: Sequence[Community], reports: Sequence[Report], entities: Ids, ids: Ids) -> Arrays:
    """The report of each community, and of each entity the reports that say something about its communities, that of the narrowest first."""
    of = {report.community_id: report for report in reports}
    about: list[tuple[int, int]] = []
    for community in sorted(communities, key=lambda community: (-community.first_level, community.id)):
        report = of.get(community.id)
        if report is not None and report.findings:
            number = ids.number(report.id)
            about += [(member, number) for member in entities.numbers(community.member_ids).tolist() if member >= 0]
    pairs = np.array(about, np.int64).reshape(-1, 2)
    reported = sorted(of)
    number_of: Ints = np.array([ids.number(of[community].id) for community in reported], np.int32)
    return {
        "reported": Ids.of(reported), "report_of": number_of, **above("reports_about", Lists.grouped(pairs[:, 0], len(entities), pairs[:, 1])),
        "levels": np.array([max((community.last_level for community in communities), default=0) + 1], np.int32),
    }  # fmt: skip


def _communities(communities: Sequence[Community], entities: Ids, kept: Kept) -> Arrays:
    """Of each community its levels, its report (-1 where it has none) and its members that are there, in their order."""
    members = [entities.numbers(community.member_ids) for community in communities]
    ids = [community.id for community in communities]
    place = Ids(kept["reported"]).numbers(ids)
    report = np.full(len(ids), -1, np.int32)
    report[place >= 0] = kept["report_of"][place[place >= 0]]
    return {
        "community.first": np.array([community.first_level for community in communities], np.int32),
        "community.last": np.array([community.last_level for community in communities], np.int32),
        "community.report": report, **above("members", Lists.kept([own[own >= 0].tolist() for own in members])),
    }  # fmt: skip


def on_level(kept: Kept, level: int) -> Longs:
    """The numbers of the communities that are valid on a level."""
    return np.flatnonzero((kept["community.first"] <= level) & (level <= kept["community.last"]))


def _groups(kept: Kept) -> Ints:
    """The group of each chunk: the community that it mentions most, on the deepest level whose communities have some chunks each; else -1."""
    chunk = Ids(kept["ids.chunks"]).among(kept["told.chunks"])[kept["mention.chunk"]]
    entity = kept["owner.entity"][kept["mention.owner"]]
    for level in reversed(range(int(kept["levels"][0]))):
        own = on_level(kept, level)
        begin, end = kept["members.begin"][own], kept["members.begin"][own + 1]
        community_of = np.full(len(kept["ids.entities"]) + 1, -1, np.int64)  # the last one stands for what is no entity
        community_of[kept["members.target"][ranges(begin, end)]] = np.repeat(own, end - begin)
        community = community_of[entity]
        there = (chunk >= 0) & (community >= 0)
        pairs, count = np.unique(chunk[there] * max(1, len(kept["ids.communities"])) + community[there], return_counts=True)
        of, which = pairs // max(1, len(kept["ids.communities"])), pairs % max(1, len(kept["ids.communities"]))
        order = np.lexsort((which, -count, of))
        chunks, first = np.unique(of[order], return_index=True)
        if len(chunks) and (level == 0 or len(chunks) >= GROUP * len(np.unique(which[order[first]]))):
            found: Ints = np.full(len(kept["ids.chunks"]), -1, np.int32)
            found[chunks] = which[order[first]]
            return found
    return np.full(len(kept["ids.chunks"]), -1, np.int32)
