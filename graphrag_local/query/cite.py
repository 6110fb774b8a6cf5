"""From paragraphs and what they cite to the answer: numbered citations that open at exact words. Pure.

An id can only have come from its prompt (see `schema`), and a number is only given to what opens at a passage that is in its document.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from graphrag_local.query.context import Ref
from graphrag_local.query.inquiry import Paragraph
from graphrag_local.query.view import View
from graphrag_local.records import AnswerSentence, Citation, Document, Grounding, Source, Span
from graphrag_local.text import neutralise, one_line, place_of, sentences, words

_GROUNDING: dict[Grounding, int] = {"anchored": 0, "composed": 1, "unanchored": 2}
# Groups of ids that a model writes into its text, although citing has a field of its own; and bare numbers, which would look like our markers.
_ONE_ID = r"[RECSKD]\s?\d{1,6}(?:\s*[-–]\s*[RECSKD]?\s?\d{1,6})?"
_WRITTEN_IDS = re.compile(rf"\s*(?:\[|\(also)(?=[^\])]*\d)(?:\s*(?:{_ONE_ID}|\+\s?more|[,;]))+\s*[\])]", re.IGNORECASE)
_NUMBERED = re.compile(r"\[(\s*\d[\d\s,;–-]*)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """An answer's text with its `[n]` markers, what they open, and its sentences; `text` is empty when nothing could be kept."""

    text: str
    citations: tuple[Citation, ...]
    sentences: tuple[AnswerSentence, ...]
    stale: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A span of a document that a citation may open, as it is ranked."""

    document_id: str
    chunk_id: str
    span: Span
    grounding: Grounding


def compose(paragraphs: Sequence[Paragraph], view: View, max_spans: int) -> Composed:
    """The answer from its paragraphs. Numbers count up in the order of first use; a paragraph that opens nowhere is dropped with a note."""
    citations: dict[Ref, Citation] = {}
    texts: list[str] = []
    told: list[AnswerSentence] = []
    homeless = 0
    for paragraph in paragraphs:
        text = clean(paragraph.text)
        for ref in paragraph.refs:
            if ref not in citations and text and (sources := sources_of(ref, view, text, max_spans)):
                citations[ref] = Citation(n=len(citations) + 1, kind=ref.kind, id=ref.id, title=title_of(ref, view), sources=sources)
        numbers = tuple(citations[ref].n for ref in paragraph.refs if ref in citations)
        if not text or not numbers:
            homeless += 1
            continue
        texts.append(f"{text} {''.join(f'[{number}]' for number in numbers)}")
        told += [AnswerSentence(text=text[start:end], cites=numbers) for start, end in sentences(text)]
    reports = (view.reports.get(ref.id) for ref in citations if ref.kind == "report")
    plural = "paragraph has" if homeless == 1 else "paragraphs have"
    return Composed(
        text="\n\n".join(texts),
        citations=tuple(citations.values()),
        sentences=tuple(told),
        stale=any(report is not None and report.stale for report in reports),
        notes=(f"{homeless} {plural} no source that opens at a passage and {'was' if homeless == 1 else 'were'} dropped.",) if homeless else (),
    )


def clean(text: str) -> str:
    """A model's text without anything that looks like a citation: groups of ids are taken out, numbers in square brackets become round ones."""
    bare = _NUMBERED.sub(r"(\1)", _WRITTEN_IDS.sub("", one_line(text)))
    return neutralise(bare).strip()


def title_of(ref: Ref, view: View) -> str:
    """What a citation is called."""
    match ref.kind:
        case "report":
            return one_line(view.reports[ref.id].title)
        case "entity":
            return one_line(view.entities[ref.id].name)
        case "relationship":
            edge = view.relationships[ref.id]
            return one_line(" – ".join(view.entities[end].name for end in (edge.source_id, edge.target_id)))
        case "claim":
            claim = view.claims[ref.id]
            return one_line(view.entities[claim.subject_id].name) if claim.subject_id in view.entities else one_line(claim.type)
    return one_line(view.title(view.chunks[ref.id].document_id))


def sources_of(ref: Ref, view: View, said: str, max_spans: int) -> tuple[Source, ...]:
    """The spans that a citation opens: the exact piece of a chunk, or of the mentions of a record those most like what was said, then the
    best anchored, at most `max_spans`."""
    places = [place for place in places_of(ref, view) if holds(view, place)]
    overlap = _overlap(places, view, said)

    def rank(place: Place) -> tuple[float, int, str, int, int]:
        path = view.documents[place.document_id].path
        return -overlap[place], _GROUNDING[place.grounding], path, place.span.start, place.span.end

    chosen: dict[tuple[str, Span], Place] = {}
    for place in sorted(places, key=rank):
        chosen.setdefault((place.document_id, place.span), place)
    return tuple(_source(place, view.documents[place.document_id]) for place in list(chosen.values())[:max_spans])


def first_source(ref: Ref, view: View) -> Source | None:
    """One place where a record can be opened, for lists of records."""
    return next(iter(sources_of(ref, view, "", 1)), None)


def places_of(ref: Ref, view: View) -> Iterable[Place]:
    """The spans that a reference may open, in the order of its mentions."""
    if ref.kind == "chunk":
        chunk = view.chunks.get(ref.id)
        if chunk is not None:
            span = ref.span or Span(start=chunk.start, end=chunk.end)
            yield Place(document_id=chunk.document_id, chunk_id=chunk.id, span=span, grounding="anchored")
        return
    owners: tuple[str, ...] = (ref.id,)
    if ref.kind == "report":
        findings = view.reports[ref.id].findings
        cited = findings[ref.finding : ref.finding + 1] if ref.finding >= 0 else findings
        owners = tuple(source for finding in cited for source in finding.sources)
    for owner in owners:
        for mention in view.mentions_of.get(owner, ()):
            for span in mention.spans:
                place = Place(document_id=mention.document_id, chunk_id=mention.chunk_id, span=span, grounding=mention.grounding)
                if not ref.document:
                    yield place
                elif ref.document == mention.document_id and ref.span and span.start <= ref.span.start and ref.span.end <= span.end:
                    yield replace(place, span=ref.span)


def holds(view: View, place: Place) -> bool:
    """Whether a place is in its document."""
    document = view.documents.get(place.document_id)
    return document is not None and 0 <= place.span.start < place.span.end <= len(document.text)


def _overlap(places: Sequence[Place], view: View, said: str) -> dict[Place, float]:
    """How much of what was said each place says: the words they share, where a word that every place has counts little."""
    asked = set(words(said))
    shared = {
        place: asked.intersection(words(view.documents[place.document_id].text[place.span.start : place.span.end])) if asked else set()
        for place in places
    }
    spread: dict[str, int] = {}
    for found in shared.values():
        for word in found:
            spread[word] = spread.get(word, 0) + 1
    return {place: round(sum(sorted(1 / spread[word] for word in found)), 6) for place, found in shared.items()}


def _source(place: Place, document: Document) -> Source:
    start, end = place.span.start, place.span.end
    return Source(document=document.path, chunk=place.chunk_id, start=start, end=end, quote=document.text[start:end], place=place_of(document, start))
