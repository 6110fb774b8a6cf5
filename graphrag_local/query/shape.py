"""The shape of a generation as arrays: which records there are, and which belong to which, without what they say.

Records have the numbers of their ids in order; a relationship counts where both of its ends are there.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from graphrag_local.query.arrays import Arrays, Ids, Ints, Lists, Strings, above
from graphrag_local.records import Chunk, Claim, Community, Document, Entity, Grounding, Mention, Relationship, Report

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
    return (
        kept
        | _edges([relationships[at] for at in kept["place.relationships"].tolist()], entity_ids)
        | _claims([claims[at] for at in kept["place.claims"].tolist()])
        | _mentions(mentions, entity_ids, Ids(kept["ids.relationships"]), Ids(kept["ids.documents"]))
        | _reports(communities, reports, entity_ids, Ids(kept["ids.reports"]))
    )


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
        "owners": owners, **above("mentions_of", Lists.grouped(owner, len(owners))),
        "owner.entity": entity.astype(np.int32), "owner.edge": edge.astype(np.int32),
        "told.chunks": chunks, **above("told_in", Lists.grouped(in_chunk[known], len(chunks), told[known])),
        "told.documents": documents, "told.document": there.among(documents).astype(np.int32), "mention.document": document.astype(np.int32),
    }  # fmt: skip


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
