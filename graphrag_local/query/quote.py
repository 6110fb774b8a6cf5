"""Sentences that stand for ids, for models too small to write: the model chooses ids, what is said about them is quoted. Pure.

A model of some hundred million parameters repeats itself or copies the prompt where it writes freely, so an answer of one is put together from
sentences of the documents, each cited where it stands. What such a model says about importance is little better than chance; so each sentence has
a measure of its own besides: the words it shares with the question, and how much of the graph stands on it.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphrag_local.query.cite import Place, clean, holds, places_of
from graphrag_local.query.context import Ref, cut_text
from graphrag_local.query.language import asked_for, language_of
from graphrag_local.query.retrieve import CHUNK_WORDS, words_of
from graphrag_local.query.schema import Answered, Said, read_choice
from graphrag_local.query.view import RECORDS, Part, View, remembered, view_of
from graphrag_local.records import Span
from graphrag_local.text import sentences, words

TOO_SMALL = "The model is too small to write: the answer quotes the passages it chose."
LEAST_WORDS = 8  # a shorter sentence hardly stands alone (our choice)
MOST_CHARACTERS = 400
BIT_CHARACTERS = 80  # by which a sentence that is longer is gone through
FOREIGN = 0.25  # what a sentence keeps of its measure that is not in the language of the question
TITLE = 0.5  # what a word of the question counts that only the title of the document has: texts often call "it" what their title names
MODEL_SHARE = 0.1  # of a score; the rest is the sentence's own measure, because such a model mostly repeats the number of the id as its importance
_BEGINS = re.compile(r"[\w\"'“‘«„(¿¡「『《]")
_ENDS = re.compile(r"[.!?…。！？｡．؟۔।॥։።][\"'’”»)」』》]*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """The sentence that stands for an id: what it cites, which is that sentence alone, its words, and its measure (0 to 1)."""

    ref: Ref
    text: str
    readable: bool
    worth: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a sentence is measured by: the words of the question with their shares, its language, and the weight of the graph against the words."""

    words: Mapping[str, float]
    language: str
    central: float


def quotes_of(ids: Mapping[str, Ref], view: View, question: str, *, central: float) -> dict[str, Quote]:
    """A sentence for each id that has one which no earlier id stands for, in their order; headings, dates and fragments only where there is nothing else.

    `central` is the weight of the graph against that of the question's words.
    """
    asked = Asked(words=_weights(question, view), language=language_of(question), central=central)
    found: dict[str, Quote] = {}
    told: set[str] = set()
    for short, ref in ids.items():
        told_by = set(words(_finding(ref, view)))
        fresh = [quote for quote in _sentences(ref, view, asked) if quote.text not in told]
        if fresh:
            best = max(fresh, key=lambda quote: (quote.readable, len(told_by.intersection(words(quote.text))), quote.worth))
            told.add(best.text)
            found[short] = best
    readable = {short: quote for short, quote in found.items() if quote.readable}
    return readable or found


def best(quotes: Mapping[str, Quote], most: int) -> dict[str, Quote]:
    """The quotes of most worth, best first."""
    return {short: quotes[short] for short in sorted(quotes, key=lambda short: -quotes[short].worth)[:most]}


def varied(scored: Sequence[tuple[Ref, int]], most: int, view: View) -> list[int]:
    """Which of these sentences to tell, in order: each time the one with the best score, where one loses up to half of it for being about what the
    ones before it are about already."""
    about = [_about(ref, view) for ref, _ in scored]
    told: set[int] = set()
    chosen: list[int] = []

    def value(number: int) -> float:
        whole, fresh = sum(about[number].values()), sum(count for owner, count in about[number].items() if owner not in told)
        return scored[number][1] * (1 + (fresh / whole if whole else 1)) / 2

    while len(chosen) < min(most, len(scored)):
        chosen.append(max((number for number in range(len(scored)) if number not in chosen), key=value))
        told.update(about[chosen[-1]])
    return chosen


def read_chosen(text: str, quotes: Mapping[str, Quote]) -> Answered:
    """A window's reply read; the score of a choice is for the most part the measure of its sentence, 0 where the model says that it does not help."""
    answer = read_choice(text, {short: quote.text for short, quote in quotes.items()}, scored=True)

    def weighed(item: Said) -> Said:
        worth = 100 * quotes[item.sources[0]].worth
        return replace(item, score=item.score and max(1, round(MODEL_SHARE * item.score + (1 - MODEL_SHARE) * worth)))

    return replace(answer, items=tuple(map(weighed, answer.items)))


def read_headed(text: str, texts: Mapping[str, str], top: str, most: int) -> Answered:
    """An answer's choice of ids with the best one at its head, chosen or not, since such a model cannot tell whether it helps."""
    answer = read_choice(text, texts, scored=False)
    others = tuple(item for item in answer.items if top not in item.sources)
    return replace(answer, items=(Said(text=texts[top], sources=(top,)), *others)[:most]) if answer.useful else answer


def readable(text: str) -> bool:
    """Whether a sentence can stand alone: of some length, whole, and no heading, label or row of a table."""
    if not _BEGINS.match(text) or not _ENDS.search(text) or text[0].islower() or text.count("**") % 2 or "|" in text:
        return False
    return len(text) <= MOST_CHARACTERS and sum(1 for _ in words(text)) >= LEAST_WORDS


def pieces(text: str, split: Callable[[str], Iterable[str]], shares: Mapping[str, float]) -> list[tuple[int, int]]:
    """A text as (start, end) of its sentences; of one too long to be quoted, as a text without full stops is, the part that has most of what is asked for:
    `shares` of the words that `split` makes of a text."""
    return [each if each[1] - each[0] <= MOST_CHARACTERS else _part(text, each, split, shares) for each in sentences(text)]


def _part(text: str, sentence: tuple[int, int], split: Callable[[str], Iterable[str]], shares: Mapping[str, float]) -> tuple[int, int]:
    """The part of a long sentence that has most of what is asked for, with that in its middle."""
    begin, until = sentence
    bits = [(begin + a, begin + b) for a, b in cut_text(text[begin:until], lambda bit: len(bit) <= BIT_CHARACTERS)]
    said = [shares.keys() & set(split(text[a:b])) for a, b in bits]
    found: list[tuple[float, int, int]] = []
    for first, (start, _) in enumerate(bits):
        last = first
        while last + 1 < len(bits) and bits[last + 1][1] - start <= MOST_CHARACTERS:
            last += 1
        has = set[str]().union(*said[first : last + 1])
        found.append((round(math.fsum(sorted(shares[word] for word in has)), 9), start, bits[last][1]))
    most = max(share for share, _, _ in found)
    best = [(start, end) for share, start, end in found if share == most]
    return best[0] if most == 0 else best[len(best) // 2]


def _finding(ref: Ref, view: View) -> str:
    if ref.kind != "report" or ref.finding < 0:
        return ""
    finding = view.reports[ref.id].findings[ref.finding]
    return f"{finding.summary} {finding.explanation}"


def _sentences(ref: Ref, view: View, asked: Asked) -> list[Quote]:
    """The sentences of what a reference may open, each once."""
    found: dict[tuple[str, Span], Quote] = {}
    for place in places_of(ref, view):
        if not holds(view, place):
            continue
        document = view.documents[place.document_id].text
        for start, end in pieces(document[place.span.start : place.span.end], words, asked.words):
            span = Span(start=place.span.start + start, end=place.span.start + end)
            text = clean(document[span.start : span.end])
            if (place.document_id, span) not in found and text:
                cited = replace(ref, span=span, document="" if ref.kind == "chunk" else place.document_id)
                worth = _worth(text, replace(place, span=span), view, asked)
                found[place.document_id, span] = Quote(ref=cited, text=text, readable=readable(text), worth=worth)
    return list(found.values())


def _worth(text: str, place: Place, view: View, asked: Asked) -> float:
    said, title = set(words(text)), set(words(view.title(place.document_id)))
    shared = sum(share if word in said else TITLE * share for word, share in asked.words.items() if word in said or word in title)
    foreign = asked.language and language_of(text) not in ("", asked.language)
    worth = (shared + asked.central * _centrality(place, view)) / (1 + asked.central)
    return round(worth * FOREIGN if foreign else worth, 6)


def _weights(question: str, view: View) -> dict[str, float]:
    """How much each word that the question is about counts, in shares of 1: rare words much, words of every passage hardly, unknown ones nothing."""
    index, passages = words_of(view, CHUNK_WORDS), len(view.chunks)
    spread = {word: len(index.texts(number)) for word in asked_for(question) if (number := index.words.number(word)) >= 0}
    rare = {word: max(0.0, math.log((passages + 1) / (count + 0.5))) for word, count in spread.items()}
    total = sum(rare.values())
    return {word: weight / total for word, weight in rare.items()} if total else {}


def _centrality(place: Place, view: View) -> float:
    """The mentions of all entities that are told in a sentence, as a share of those of the best sentence of the index."""
    most = remembered(view.index, MOST.name, lambda: int(view.index.kept(MOST)["most"][0]))
    return min(1.0, sum(_told(place, view).values()) / most)


def _about(ref: Ref, view: View) -> dict[int, int]:
    """The entities (by number) that are told in a quoted sentence, with all their mentions."""
    return {owner: count for place in places_of(ref, view) for owner, count in _told(place, view).items()}


def _told(place: Place, view: View) -> dict[int, int]:
    entity, begin, end = view.standing(place.chunk_id)
    told = np.unique(entity[(begin < place.span.end) & (place.span.start < end)])
    return dict(zip(told.tolist(), view.shape["entity.mentions"][told].tolist(), strict=True))


def _most(view: View) -> int:
    """The most mentions that the entities have together which are told where one of them is."""
    most = 1
    for chunk_id in view.chunks_told():
        entity, begin, end = (column[None] for column in view.standing(chunk_id))
        order = np.argsort(entity[0], kind="stable")
        entity, begin, end = entity[:, order], begin[:, order], end[:, order]
        first = np.flatnonzero(np.diff(entity[0], prepend=-1))
        if len(first):
            told = np.logical_or.reduceat((begin < end.T) & (end > begin.T), first, axis=1)
            most = max(most, int((told @ view.shape["entity.mentions"][entity[0, first]]).max()))
    return most


MOST = Part(name="most-mentions", of=RECORDS, form="1", make=lambda index: {"most": np.array([_most(view_of(index))], np.int64)})
