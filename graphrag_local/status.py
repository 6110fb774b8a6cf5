"""What an index holds, for people and programs: `status` and `show`."""

from collections.abc import Callable, Iterable
from typing import Any

from graphrag_local.errors import IndexMissing, UsageError
from graphrag_local.project import ProjectFolder
from graphrag_local.records import Document, Entity, Mention, Span
from graphrag_local.store.generations import verify
from graphrag_local.store.reading import StoredIndex
from graphrag_local.store.runlog import last_run

KINDS = ("entity", "community", "report", "document", "failures")
LISTED = 12  # candidates named when a name fits none or several


def status_of(project: ProjectFolder, *, check_files: bool = False) -> dict[str, Any]:
    """The status object (architecture §7); `check_files` hashes every file of the published generation."""
    run = last_run(project.index)
    interrupted = {key: run[key] for key in ("stage", "done", "total")} if run and not run["ended"] else None
    try:
        index = StoredIndex.open(project.index)
    except IndexMissing:
        return _nothing(interrupted)
    try:
        manifest = index.manifest
        about = manifest["about"]
        return {
            "generation": index.generation,
            "digest": manifest["digest"],
            "created": manifest["created"],
            "counts": manifest["counts"],
            "last_build": (run or {}).get("last_build") or about["last_build"],
            "names": about["names"],
            "apart": about["apart"],
            "failures": [{"stage": f.stage, "input": f.input, "reason": f.reason, "retryable": f.retryable} for f in index.failures()],
            "models": about["models"],
            "documents": [_document_row(document) for document in index.documents()],
            "interrupted": interrupted,
            "problems": list(verify(project.index)) if check_files else [],
        }
    finally:
        index.close()


def _document_row(document: Document) -> dict[str, Any]:
    cuts = [f"{cut.reason}: {cut.characters} characters left out" for cut in document.cuts]
    return {
        "path": document.path,
        "title": document.title,
        "format": document.format,
        "encoding": document.encoding,
        "characters": len(document.text),
        "notices": [*document.notices, *cuts],
    }


def _nothing(interrupted: dict[str, Any] | None) -> dict[str, Any]:
    counts = dict.fromkeys(("documents", "chunks", "entities", "relationships", "claims", "reports", "failures"), 0)
    return {
        "generation": "", "digest": "", "created": "", "counts": counts | {"communities": []},
        "last_build": {"seconds": 0.0, "calls": 0, "prompt_tokens": 0, "cached_tokens": 0, "completion_tokens": 0, "by_stage": {}},
        "names": {}, "apart": 0, "failures": [], "models": {}, "documents": [], "interrupted": interrupted, "problems": [],
    }  # fmt: skip


def show_record(project: ProjectFolder, what: str, name: str) -> Any:
    """One record with all that belongs to it, as plain data; raises UsageError naming what there is."""
    if what not in KINDS:
        raise UsageError(f"There is nothing of the kind {what!r} to show.", hint=f"Say one of: {', '.join(KINDS)}.")
    if what != "failures" and not name:
        raise UsageError(f"Which {what}?", hint=f'Give a name, a path or the beginning of an id: graphrag-local show {what} "NAME"')
    index = StoredIndex.open(project.index)
    try:
        if what == "failures":
            return [{"stage": f.stage, "input": f.input, "reason": f.reason, "retryable": f.retryable} for f in index.failures()]
        shown: dict[str, Callable[[StoredIndex, str], dict[str, Any]]] = {
            "entity": _entity, "document": _document, "community": _community, "report": _report
        }  # fmt: skip
        return shown[what](index, name)
    finally:
        index.close()


def _pick(rows: Iterable[Any], name: str, names: Callable[[Any], tuple[str, ...]]) -> Any:
    """The one row that a name or the beginning of an id (six digits or more) means."""
    rows = list(rows)
    wanted = name.casefold()
    found = [r for r in rows if wanted in (n.casefold() for n in names(r))] or [r for r in rows if len(name) >= 6 and r.id.startswith(name)]
    found = found or [r for r in rows if any(wanted in n.casefold() for n in names(r))]
    if len(found) == 1:
        return found[0]
    some = sorted(names(r)[0] for r in (found or rows))[:LISTED]
    kind = "fits several" if found else "fits none"
    raise UsageError(f"{name!r} {kind} of {len(found or rows)}: {', '.join(some)}{' …' if len(found or rows) > LISTED else ''}.", hint="Be more exact.")


def _quotes(index: StoredIndex, mentions: Iterable[Mention]) -> list[dict[str, Any]]:
    documents = {document.id: document for document in index.documents()}

    def quote(document: Document, span: Span) -> dict[str, Any]:
        return {"document": document.path, "start": span.start, "end": span.end, "quote": document.text[span.start : span.end]}

    return [quote(documents[m.document_id], span) for m in mentions for span in m.spans if m.document_id in documents]


def _entity(index: StoredIndex, name: str) -> dict[str, Any]:
    entity: Entity = _pick(index.entities(), name, lambda e: (e.name, *e.aliases))
    names = {e.id: e.name for e in index.entities()}
    edges = [r for r in index.relationships() if entity.id in (r.source_id, r.target_id)]
    return {
        "id": entity.id, "name": entity.name, "type": entity.type, "types": entity.types, "aliases": entity.aliases,
        "description": entity.description, "mentions": entity.mentions, "degree": entity.degree, "pagerank": round(entity.pagerank, 6),
        "relationships": [
            {"with": names[r.target_id if r.source_id == entity.id else r.source_id], "weight": r.weight, "description": r.description, "id": r.id}
            for r in sorted(edges, key=lambda r: (-r.weight, r.id))
        ],
        "communities": [c.id for c in index.communities() if entity.id in c.member_ids],
        "sources": _quotes(index, (m for m in index.mentions() if m.owner_id == entity.id)),
    }  # fmt: skip


def _document(index: StoredIndex, name: str) -> dict[str, Any]:
    document: Document = _pick(index.documents(), name, lambda d: (d.path, d.title))
    mentioned = {m.owner_id for m in index.mentions() if m.document_id == document.id}
    return {
        "id": document.id,
        **_document_row(document),
        "content_hash": document.content_hash,
        "chunks": [{"id": c.id, "start": c.start, "end": c.end} for c in index.chunks() if c.document_id == document.id],
        "entities": sorted(e.name for e in index.entities() if e.id in mentioned),
    }


def _community(index: StoredIndex, name: str) -> dict[str, Any]:
    report_of = {report.community_id: report.title for report in index.reports()}
    community = _pick(index.communities(), name, lambda c: (c.id, report_of.get(c.id, c.id)))
    names = {e.id: e.name for e in index.entities()}
    return {
        "id": community.id, "levels": [community.first_level, community.last_level], "parent": community.parent_id,
        "children": community.child_ids, "report": report_of.get(community.id, ""),
        "members": sorted(names[member] for member in community.member_ids),
    }  # fmt: skip


def _report(index: StoredIndex, name: str) -> dict[str, Any]:
    report = _pick(index.reports(), name, lambda r: (r.title, r.community_id))
    by_owner: dict[str, list[Mention]] = {}
    for mention in index.mentions():
        by_owner.setdefault(mention.owner_id, []).append(mention)
    return {
        "id": report.id, "community": report.community_id, "title": report.title, "summary": report.summary, "rating": report.rating,
        "rating_explanation": report.rating_explanation, "stale": report.stale,
        "findings": [
            {"summary": f.summary, "explanation": f.explanation, "sources": _quotes(index, (m for s in f.sources for m in by_owner.get(s, ())))[:5]}
            for f in report.findings
        ],
    }  # fmt: skip
