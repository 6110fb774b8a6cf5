"""From paragraphs and what they cite to the answer: numbered citations that open at exact words. Pure.

An id can only have come from its prompt (see `schema`), and a number is only given to what opens at a passage that is in its document.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from graphrag_local.answers import AnswerSentence, Citation, Source
from graphrag_local.query.context import Ref
from graphrag_local.query.inquiry import Paragraph
from graphrag_local.query.shape import GROUNDING
from graphrag_local.query.view import View, remembered
from graphrag_local.records import Document, Grounding, Span
from graphrag_local.text import neutralise, one_line, place_of, sentences, words

NAMED = 3  # reports in a note
REMEMBERED = 1 << 16  # places whose words are known
# Groups of ids that a model writes into its text, although citing has a field of its own; and bare numbers, which would look like our markers.
_ONE_ID = r"[RECSKD]\s?\d{1,6}(?:\s*[-–]\s*[RECSKD]?\s?\d{1,6})?"
_WRITTEN_IDS = re.compile(rf"\s*(?:\[|\(also)(?=[^\])]*\d)(?:\s*(?:{_ONE_ID}|\+\s?more|[,;]))+\s*(?:[\])]|\Z)", re.IGNORECASE)
_NUMBERED = re.compile(r"\[(\s*\d[\d\s,;–-]*)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """An answer in pieces of text and `[n]` markers, what these open, and its sentences; there are no pieces when nothing could be kept."""

    segments: tuple["Segment", ...]
    citations: tuple[Citation, ...]
    sentences: tuple[AnswerSentence, ...]
    stale: bool
    notes: tuple[str, ...]

    @property
    def text(self) -> str:
        """The text with its markers."""
        return "".join(text for text, _ in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A span of a document that a citation may open, as it is ranked."""

    document_id: str
    chunk_id: str
    span: Span
    grounding: Grounding


Opened = tuple[str, int, int]  # a document's path, start and end
Segment = tuple[str, Citation | None]  # a piece of an answer's text: words, or one marker with what it opens


class Composer:
    """Puts an answer together paragraph by paragraph. Numbers count up in the order of first use; a paragraph that opens nowhere is left out.

    A record that is told in more places than a citation opens has a number for each choice of them, so that what a paragraph cites opens at the words
    that it was checked against.
    """

    def __init__(self, view: View, max_spans: int) -> None:
        self.segments: list[Segment] = []
        self.sentences: list[AnswerSentence] = []
        self.citations: dict[tuple[Ref, frozenset[Opened]], Citation] = {}
        self.homeless = 0
        self._cited: dict[tuple[Ref, str], Citation | None] = {}  # a paragraph is shown again with each word of it
        self._view, self._max_spans = view, max_spans

    def cite(self, ref: Ref, said: str) -> Citation | None:
        """The citation of a reference for a paragraph's text, made at its first use; None where it opens nowhere."""
        if (ref, said) not in self._cited:
            self._cited[ref, said] = self._opening(ref, opened(ref, self._view, said, self._max_spans) if said else ())
        return self._cited[ref, said]

    def _opening(self, ref: Ref, sources: tuple[Source, ...]) -> Citation | None:
        """The citation that opens at these sources, in whatever order."""
        if not sources:
            return None
        key = ref, frozenset((source.document, source.start, source.end) for source in sources)
        if key not in self.citations:
            self.citations[key] = Citation(n=len(self.citations) + 1, kind=ref.kind, id=ref.id, title=title_of(ref, self._view), sources=sources)
        return self.citations[key]

    def shown(self, text: str, refs: Sequence[Ref], said: str) -> list[Segment]:
        """The pieces that a paragraph adds, whole or in part: its clean text so far, and markers of the references known so far."""
        cited = [citation for ref in refs if (citation := self.cite(ref, said))]
        gap = "\n\n" if self.segments else ""
        return [(gap + text, None), *((f"{'' if number else ' '}[{citation.n}]", citation) for number, citation in enumerate(cited))]

    def add(self, paragraph: Paragraph) -> tuple[int, ...]:
        """Add a paragraph; the numbers that it cites, none where it is left out."""
        text = clean(paragraph.text)
        segments = self.shown(text, paragraph.refs, paragraph.said or text)
        numbers = tuple(citation.n for _, citation in segments if citation)
        if not text or not numbers:
            self.homeless += 1
            return ()
        self.segments += segments
        told = paragraph.sentences or tuple(AnswerSentence(text=text[start:end], cites=()) for start, end in sentences(text))
        self.sentences += [replace(sentence, cites=numbers) for sentence in told]
        return numbers


def compose(paragraphs: Sequence[Paragraph], view: View, max_spans: int) -> Composed:
    """The answer from its paragraphs; those that open nowhere are dropped with a note."""
    composer = Composer(view, max_spans)
    for paragraph in paragraphs:
        composer.add(paragraph)
    homeless = composer.homeless
    reports = dict.fromkeys(ref.id for ref, _ in composer.citations if ref.kind == "report" and ref.id in view.reports)
    stale = [one_line(view.reports[id_].title) for id_ in reports if view.reports[id_].stale]
    plural = ("paragraph has", "was") if homeless == 1 else ("paragraphs have", "were")
    notes = (f"{homeless} {plural[0]} no source that opens at a passage and {plural[1]} dropped.",) if homeless else ()
    return Composed(
        segments=tuple(composer.segments),
        citations=tuple(composer.citations.values()),
        sentences=tuple(composer.sentences),
        stale=bool(stale),
        notes=(*notes, *_from_before(stale)),
    )


def _from_before(titles: Sequence[str]) -> tuple[str, ...]:
    """A note that names the reports used that are from before a change."""
    if not titles:
        return ()
    named = "; ".join(f"“{title}”" for title in titles[:NAMED]) + (f" and {len(titles) - NAMED:,} more" if len(titles) > NAMED else "")
    return (f"From before a change of the documents: {named}. `graphrag-local index --settle` writes such reports anew.",)


def clean(text: str) -> str:
    """A model's text without anything that looks like a citation: groups of ids are taken out, also one that breaks off at the end of the text, and
    numbers in square brackets become round ones. Cleaning twice is cleaning once."""
    text = one_line(text)
    while (bare := _WRITTEN_IDS.sub("", text)) != text:  # one group inside another leaves a group
        text = bare
    return neutralise(_NUMBERED.sub(r"(\1)", bare)).strip()


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


def opened(ref: Ref, view: View, said: str, max_spans: int) -> tuple[Source, ...]:
    """The spans that a citation of a paragraph opens: of each of its sentences in turn the likest, at most `max_spans`."""
    each = [sources_of(ref, view, said[start:end], max_spans) for start, end in sentences(said)] or [sources_of(ref, view, said, max_spans)]
    found = dict.fromkeys(source for turn in zip_longest(*each) for source in turn if source is not None)
    return tuple(found)[:max_spans]


def sources_of(ref: Ref, view: View, said: str, max_spans: int) -> tuple[Source, ...]:
    """The spans that a citation opens: the exact piece of a chunk, or of the mentions of a record those most like what was said, then the
    best anchored, at most `max_spans`."""
    if ref.kind == "chunk" or ref.document:
        places = sorted((place for place in places_of(ref, view) if holds(view, place)), key=lambda place: GROUNDING[place.grounding])
        return tuple(_source(place, view.documents[place.document_id]) for place in places[: min(1, max_spans)])  # they are all the same words
    told = _told_of(_owners(ref, view), view)
    order = np.argsort(-told.overlap(set(words(said)), view), kind="stable")
    rows = told.rows
    found: dict[tuple[int, int, int], Source] = {}
    for row in (rows[place].tolist() for place in order):
        if len(found) == max_spans:
            break
        document, _, start, end, _ = row
        if (document, start, end) not in found:
            found[document, start, end] = _told_at(row, view)
    return tuple(found.values())


def first_source(ref: Ref, view: View) -> Source | None:
    """One place where a record can be opened, for lists of records."""
    if ref.kind == "chunk" or ref.document:
        return next(iter(sources_of(ref, view, "", 1)), None)
    row = view.first_place(_owners(ref, view))
    return None if row is None else _told_at(row.tolist(), view)


def _told_at(row: Sequence[int], view: View) -> Source:
    """The source at a place (see `View.places`)."""
    document, chunk, start, end, _ = row
    place = Place(document_id="", chunk_id=view.chunk_told(chunk), span=Span(start=start, end=end), grounding="anchored")
    return _source(place, view.documents.at(document))


def places_of(ref: Ref, view: View) -> Iterable[Place]:
    """The spans that a reference may open, in the order of its mentions."""
    if ref.kind == "chunk":
        chunk = view.chunks.get(ref.id)
        if chunk is not None:
            span = ref.span or Span(start=chunk.start, end=chunk.end)
            yield Place(document_id=chunk.document_id, chunk_id=chunk.id, span=span, grounding="anchored")
        return
    for owner in _owners(ref, view):
        for mention in view.mentions_of.get(owner, ()):
            for span in mention.spans:
                place = Place(document_id=mention.document_id, chunk_id=mention.chunk_id, span=span, grounding=mention.grounding)
                if not ref.document:
                    yield place
                elif ref.document == mention.document_id and ref.span and span.start <= ref.span.start and ref.span.end <= span.end:
                    yield replace(place, span=ref.span)


def _owners(ref: Ref, view: View) -> tuple[str, ...]:
    """The records by whose mentions a reference opens."""
    if ref.kind != "report":
        return (ref.id,)
    findings = view.reports[ref.id].findings
    cited = findings[ref.finding : ref.finding + 1] if ref.finding >= 0 else findings
    return tuple(source for finding in cited for source in finding.sources)


def holds(view: View, place: Place) -> bool:
    """Whether a place is in its document."""
    document = view.documents.get(place.document_id)
    return document is not None and 0 <= place.span.start < place.span.end <= len(document.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ToldOf:
    """Where a record is told (see `View.places`), the best anchored first, then in the order of paths and of the text; and the words of each place, each
    once: the number of the place, and of the word among all that were looked at."""

    rows: NDArray[np.int64]
    place: NDArray[np.int64]
    word: NDArray[np.int64]

    def overlap(self, asked: set[str], view: View) -> NDArray[np.float64]:
        """How much of what was said each place says: the words they share, where a word that every place has counts little."""
        known: dict[str, int] = remembered(view.index, "words in places", dict)
        shared = np.isin(self.word, [known[word] for word in sorted(asked) if word in known])
        _, which, spread = np.unique(self.word[shared], return_inverse=True, return_counts=True)
        return np.round(np.bincount(self.place[shared], 1 / spread[which], len(self.rows)), 6)


def _told_of(owners: tuple[str, ...], view: View) -> _ToldOf:
    """Where records are told, kept for the next question."""
    told: dict[tuple[str, ...], _ToldOf] = remembered(view.index, "places of records", dict)
    if owners not in told:
        if sum(len(own.rows) for own in told.values()) >= REMEMBERED:
            told.clear()
        rows = view.places(owners)
        rows = rows[np.lexsort((rows[:, 3], rows[:, 2], view.shape["document.by_path"][rows[:, 0]], rows[:, 4]))]
        known: dict[str, int] = remembered(view.index, "words in places", dict)
        said = [dict.fromkeys(words(view.documents.at(document).text[start:end])) for document, _, start, end, _ in rows.tolist()]
        word = np.array([known.setdefault(word, len(known)) for own in said for word in own], np.int64)
        told[owners] = _ToldOf(rows=rows, place=np.repeat(np.arange(len(rows)), [len(own) for own in said]), word=word)
    return told[owners]


def _source(place: Place, document: Document) -> Source:
    start, end = place.span.start, place.span.end
    return Source(document=document.path, chunk=place.chunk_id, start=start, end=end, quote=document.text[start:end], place=place_of(document, start))
