"""Extraction without a model: three passes over the passages, linear in their number, and the same extractions on every run.

The first learns how the collection uses its words (`lexis`), the second which phrases recur (`recurring`), the third finds what each passage speaks of
(`spot`) and what stands together there (`together`). Where a linguistic pipeline is given, it says what a passage speaks of instead (`marked`).
What comes out has the form of a model's extraction: the sentences that mention a thing stand for its description, and the graph, its communities and
reports are made of it as of any other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from graphrag_local.engine.base import Tagger
from graphrag_local.extraction.lexis import Lexis, Sentence, sentences_of
from graphrag_local.extraction.marked import Marks
from graphrag_local.extraction.recurring import Recurring
from graphrag_local.extraction.spot import Forms, Seen, forms, spot
from graphrag_local.extraction.together import Pair, Tie, Together, kept, shares, ties
from graphrag_local.records import Chunk, EntityMention, Extraction, RelationshipMention, Span
from graphrag_local.settings import ExtractionSettings
from graphrag_local.text import name_key, one_line

STANDARD = ExtractionSettings()
QUOTED = 3  # sentences of a passage that stand for what it says about a thing


@dataclass(frozen=True, slots=True)
class _Read:
    """A passage that was read: the spans of its sentences, what is seen there, how its document writes names, and what stands together."""

    chunk: Chunk
    sentences: tuple[tuple[int, int], ...]
    seen: tuple[Seen, ...]
    forms: Forms
    ties: tuple[Tie, ...]


class _Finder(Protocol):
    """What finds the things that a passage speaks of, once every passage was added."""

    def add(self, chunk: Chunk) -> None: ...

    def settle(self) -> None: ...

    def spot(self, chunk: Chunk) -> tuple[list[Sentence], list[Seen]]: ...


@dataclass(slots=True)
class _Statistics:
    """Our own finder: for every language, without anything to install."""

    lexis: Lexis
    recurring: Recurring
    capital_nouns: bool

    def add(self, chunk: Chunk) -> None:
        self.recurring.add(list(sentences_of(chunk.text)))

    def settle(self) -> None:
        self.recurring.settle()

    def spot(self, chunk: Chunk) -> tuple[list[Sentence], list[Seen]]:
        return spot(chunk, self.lexis, self.recurring, capital_nouns=self.capital_nouns)


def extract_fast(
    chunks: Sequence[Chunk],
    tagger: Tagger | None = None,
    settings: ExtractionSettings = STANDARD,
    *,
    advance: Callable[[], None] = lambda: None,
    go_on: Callable[[], None] = lambda: None,
) -> tuple[Extraction, ...]:
    """The extractions of all chunks (sorted by document, then place), without a model; `advance` is called for each that is done, `go_on` may stop the work.

    Names and noun phrases are the `tagger`'s, where there is one, with the types of the `settings`.
    """
    lexis = Lexis()
    for chunk in chunks:
        go_on()
        lexis.add(chunk.text)
    finder: _Finder = Marks(lexis, tagger, settings) if tagger else _Statistics(lexis, Recurring(lexis), lexis.has_capital_nouns())
    for chunk in chunks:
        go_on()
        finder.add(chunk)
        if tagger:  # it takes far longer than the rest together
            advance()
    finder.settle()
    read: list[_Read] = []
    together = Together()
    for _, group in groupby(chunks, key=lambda chunk: chunk.document_id):
        spotted = []
        for chunk in group:
            go_on()
            spotted.append((chunk, *finder.spot(chunk)))
        own = forms(one for _, _, seen in spotted for one in seen)
        for chunk, sentences, seen in spotted:
            read.append(_tied(chunk, sentences, seen, own))
            together.add(read[-1].seen, read[-1].ties)
            if not tagger:
                advance()
    weights = together.weights(lexis.magnitude)
    left = dict(together.passages)
    return tuple(_extraction(one, weights, together, left) for one in read)


def _tied(chunk: Chunk, sentences: list[Sentence], seen: list[Seen], own: Forms) -> _Read:
    """What a passage speaks of, under full names, and what of it stands together."""
    named = tuple(Seen(own.full.get(one.key, one.key), one.name, one.sentence, one.start, one.type) for one in seen)
    return _Read(chunk, tuple((sentence.start, sentence.end) for sentence in sentences), named, own, tuple(ties(named)))


def _extraction(read: _Read, weights: dict[Pair, float], together: Together, left: dict[Pair, int]) -> Extraction:
    """A passage as a model's extraction; `left` counts the passages of each pair that are still to come, the last of which takes what is left over."""
    by_key: dict[str, list[Seen]] = {}
    for one in read.seen:
        by_key.setdefault(one.key, []).append(one)
    numbers = {key: number for number, key in enumerate(by_key)}
    relationships = []
    for tie in kept(read.ties, weights):
        left[tie.pair] -= 1
        each, last = shares(weights[tie.pair], together.passages[tie.pair])
        spans = tuple(_span(read, number) for number in sorted({number for place in tie.places for number in place}))
        relationships.append(
            RelationshipMention(
                source=numbers[tie.pair[0]], target=numbers[tie.pair[1]], description=_said(read, spans), strength=each if left[tie.pair] else last, spans=spans
            )
        )
    return Extraction(
        chunk_id=read.chunk.id,
        document_id=read.chunk.document_id,
        entities=tuple(_entity(read, key, seen) for key, seen in by_key.items()),
        relationships=tuple(relationships),
    )


def _entity(read: _Read, key: str, seen: list[Seen]) -> EntityMention:
    spans = tuple(_span(read, number) for number in sorted({one.sentence for one in seen})[:QUOTED])
    said = _said(read, spans)
    name, best = seen[0].name, read.forms.best
    if name_key(name) != key:
        return EntityMention(name=name, type=seen[0].type, description=said, spans=spans, grounding="anchored", canonical=best.get(key, key))
    return EntityMention(name=best.get(key, name), type=seen[0].type, description=said, spans=spans, grounding="anchored")


def _span(read: _Read, number: int) -> Span:
    start, end = read.sentences[number]
    return Span(start=read.chunk.start + start, end=read.chunk.start + end)


def _said(read: _Read, spans: Sequence[Span]) -> str:
    return one_line(" ".join(read.chunk.text[span.start - read.chunk.start : span.end - read.chunk.start] for span in spans))
