"""What an index holds, for people and programs: `status` and `show`."""

import difflib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from graphrag_local.errors import IndexCorrupt, IndexMismatch, IndexMissing, UsageError
from graphrag_local.project import ProjectFolder
from graphrag_local.records import Document, Entity, Mention, Span
from graphrag_local.store import forgotten
from graphrag_local.store.lock import holder
from graphrag_local.store.reading import StoredIndex
from graphrag_local.store.runlog import last_run
from graphrag_local.text import name_key, one_line, place_of

Verified = dict[str, list[str]]  # `problems` that were found, and what was `unchecked`, a sentence each
UNCHECKED: Verified = {"problems": [], "unchecked": []}
KINDS = ("entity", "community", "report", "document", "failures")
LISTED = 12  # candidates named when a name fits none or several
SHORT = 60  # characters of a title among others


def status_of(project: ProjectFolder, *, check: Callable[[Path], Verified] | None = None) -> dict[str, Any]:
    """The status object (architecture §7); `check` looks at all of the index (see `verify`, which is slow to load) and says what is wrong with it.

    Of an unfinished run, `running` says how far it is while its process lives, `interrupted` how far it came. `forgetting` is the number of documents
    whose `forget` was begun and is not finished.
    """
    run = last_run(project.index)
    unfinished = {key: run[key] for key in ("stage", "done", "total")} if run and not run["ended"] else None
    builder = holder(project.index)
    running = {"pid": builder.pid, "started": builder.started, **(unfinished or {})} if builder and builder.alive else None
    state: dict[str, Any] = {"running": running, "interrupted": None if running else unfinished, "forgetting": _forgetting(project.index)}
    state |= check(project.index) if check else UNCHECKED
    try:
        index = StoredIndex.open(project.index)
    except IndexMissing:
        return _nothing() | state
    except (IndexCorrupt, IndexMismatch):
        if check is None:
            raise
        return _nothing() | state
    try:
        manifest = index.manifest
        about = manifest["about"]
        return {
            "generation": index.generation,
            "digest": manifest["digest"],
            "created": manifest["created"],
            "counts": manifest["counts"],
            "last_build": _as_whole((run or {}).get("last_build"), about["last_build"]),
            "generation_build": about["last_build"],
            "names": about["names"],
            "apart": about["apart"],
            "left_out": sum(report.left_out for report in index.reports()),
            "without_report": about.get("without_report", {}),
            "dropped": about.get("dropped", {}),
            "empty_chunks": about.get("empty_chunks", 0),
            "failures": [{"stage": f.stage, "input": f.input, "reason": f.reason, "retryable": f.retryable} for f in index.failures()],
            "models": about["models"],
            "documents": [_document_row(document) for document in sorted(index.documents(), key=lambda document: document.path)],
            **state,
        }
    finally:
        index.close()


def _forgetting(index: Path) -> int:
    try:
        begun = forgotten.unfinished(index)
    except IndexCorrupt:  # a verification says so
        return 0
    return len(begun.documents) if begun else 0


def _as_whole(logged: Any, published: dict[str, Any]) -> dict[str, Any]:
    """What the log says of the last run, unless nothing is there or keys are missing: a log has no checksum."""
    return logged if isinstance(logged, dict) and logged.keys() >= published.keys() else published


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


def _nothing() -> dict[str, Any]:
    counts = dict.fromkeys(("documents", "chunks", "entities", "relationships", "claims", "reports", "failures"), 0)
    build = {"seconds": 0.0, "calls": 0, "prompt_tokens": 0, "cached_tokens": 0, "completion_tokens": 0, "by_stage": {}}
    return {
        "generation": "", "digest": "", "created": "", "counts": counts | {"communities": []}, "last_build": build, "generation_build": build,
        "names": {}, "apart": 0, "left_out": 0, "without_report": {}, "dropped": {}, "empty_chunks": 0, "failures": [], "models": {}, "documents": [],
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


def _pick(kind: str, rows: Iterable[Any], name: str, names: Callable[[Any], tuple[str, ...]]) -> Any:
    """The one row that a name or the beginning of an id (six digits or more) means; raises UsageError naming those that are near."""
    rows = list(rows)
    wanted, key, path = name.casefold(), name_key(name), os.path.normpath(name)
    tests: tuple[Callable[[Any], bool], ...] = (
        lambda r: name in names(r),
        lambda r: path == names(r)[0],
        lambda r: wanted in (n.casefold() for n in names(r)),
        lambda r: key in map(name_key, names(r)),
        lambda r: len(name) >= 6 and r.id.startswith(name),
        lambda r: any(wanted in n.casefold() for n in names(r)),
    )
    found = next(filter(None, ([row for row in rows if test(row)] for test in tests)), [])
    if len(found) == 1:
        return found[0]
    more = " …" if len(found or rows) > LISTED else "."
    if found:
        some = sorted(f"{row.id[:10]} ({_label(row, names(row))})" for row in found)[:LISTED]
        raise UsageError(f"{name!r} fits several: {len(found)} of kind {kind}.", hint=f"Give one of these ids: {'; '.join(some)}{more}")
    labels = {text.casefold(): _label(row, names(row)) for row in sorted(rows, key=lambda row: row.id) for text in names(row)}
    near = [labels[text] for text in difflib.get_close_matches(wanted, labels, n=5, cutoff=0.6)]
    some = sorted({_label(row, names(row)) for row in rows})[:LISTED]
    hint = f"Did you mean {' or '.join(map(repr, dict.fromkeys(near)))}?" if near else f"There are {len(rows):,}: {'; '.join(some)}{more}"
    raise UsageError(f"{name!r} fits none: there is no {kind} of that name or id.", hint=hint if rows else f"The index holds no {kind} at all.")


def _label(row: Any, names: tuple[str, ...]) -> str:
    """What a row is called among others: its first name that is no id, cut where it is long."""
    text = one_line(next((name for name in names if name not in (row.id, getattr(row, "community_id", ""))), row.id))
    return text if len(text) <= SHORT else f"{text[:SHORT]}…"


def _quotes(index: StoredIndex, mentions: Iterable[Mention]) -> list[dict[str, Any]]:
    documents = {document.id: document for document in index.documents()}

    def quote(document: Document, chunk: str, span: Span) -> dict[str, Any]:
        text = document.text[span.start : span.end]
        return {"document": document.path, "chunk": chunk, "start": span.start, "end": span.end, "quote": text, "place": place_of(document, span.start)}

    spots = {(m.document_id, span.start, span.end): m.chunk_id for m in mentions for span in m.spans if m.document_id in documents}
    ordered = sorted(spots, key=lambda spot: (documents[spot[0]].path, *spot[1:]))
    return [quote(documents[id_], spots[id_, start, end], Span(start=start, end=end)) for id_, start, end in ordered]


def _entity(index: StoredIndex, name: str) -> dict[str, Any]:
    entity: Entity = _pick("entity", index.entities(), name, lambda e: (e.name, *e.aliases))
    names = {e.id: e.name for e in index.entities()}
    edges = [r for r in index.relationships() if entity.id in (r.source_id, r.target_id)]
    return {
        "id": entity.id, "name": entity.name, "type": entity.type, "types": entity.types, "aliases": entity.aliases,
        "description": entity.description, "mentions": entity.mentions, "degree": entity.degree, "pagerank": round(entity.pagerank, 6),
        "relationships": [
            {"with": names[r.target_id if r.source_id == entity.id else r.source_id], "weight": r.weight, "description": r.description, "id": r.id}
            for r in sorted(edges, key=lambda r: (-r.weight, names[r.target_id if r.source_id == entity.id else r.source_id]))
        ],
        "claims": [
            {"type": c.type, "status": c.status, "period": c.period, "description": c.description, "id": c.id}
            for c in index.claims() if entity.id in (c.subject_id, c.object_id)
        ],
        "communities": [c.id for c in index.communities() if entity.id in c.member_ids],
        "sources": _quotes(index, (m for m in index.mentions() if m.owner_id == entity.id)),
    }  # fmt: skip


def _document(index: StoredIndex, name: str) -> dict[str, Any]:
    document: Document = _pick("document", index.documents(), name, lambda d: (d.path, d.title))
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
    community = _pick("community", index.communities(), name, lambda c: (c.id, report_of.get(c.id, c.id)))
    names = {e.id: e.name for e in index.entities()}
    return {
        "id": community.id, "levels": [community.first_level, community.last_level], "parent": community.parent_id,
        "children": community.child_ids, "report": report_of.get(community.id, ""),
        "members": sorted(names[member] for member in community.member_ids),
    }  # fmt: skip


def _report(index: StoredIndex, name: str) -> dict[str, Any]:
    report = _pick("report", index.reports(), name, lambda r: (r.title, r.community_id))
    by_owner: dict[str, list[Mention]] = {}
    for mention in index.mentions():
        by_owner.setdefault(mention.owner_id, []).append(mention)
    return {
        "id": report.id, "community": report.community_id, "title": report.title, "summary": report.summary, "rating": report.rating,
        "rating_explanation": report.rating_explanation, "stale": report.stale, "left_out": report.left_out,
        "findings": [
            {"summary": f.summary, "explanation": f.explanation, "sources": _quotes(index, (m for s in f.sources for m in by_owner.get(s, ())))[:5]}
            for f in report.findings
        ],
    }  # fmt: skip
