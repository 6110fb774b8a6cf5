"""What a linguistic pipeline marks in the passages, in the place of what `recurring` and `spot` find by statistics: names with types, and noun phrases.

Its names are taken as they are, but for numbers and pronouns. Its noun phrases have to pass the same tests as any key phrase (see `recurring`): most of
what a text says is said once. One that is written like a name, and that was marked as one elsewhere, is that name: who speaks in a transcript stands there
in capitals, which pipelines seldom know.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from graphrag_local.engine.base import Marked, Tagger
from graphrag_local.extraction.closed import OPENERS, PRONOUNS
from graphrag_local.extraction.lexis import Lexis, Sentence, sentences_of
from graphrag_local.extraction.recurring import Recurring, says_something
from graphrag_local.extraction.spot import CONCEPT, LETTER, LONGEST_NAME, MOST_WORDS, POSSESSIVE, Seen, concept, is_free, picked, seen_as
from graphrag_local.records import Chunk
from graphrag_local.settings import ExtractionSettings
from graphrag_local.text import ARTICLES, INSIDE, PlacedWord, name_key

SMALL = OPENERS | PRONOUNS | INSIDE
OTHER = "other"
MAYBE = ""  # the type of a noun phrase that is written like a name
LOOSE_ENDS = "-‐‑–—,;: \n"
# The labels of the pipelines that there are for some thirty languages, by our types; a label that is one of `extraction.types` itself is that type.
LABELS = {
    label: kind
    for kind, labels in {
        "person": "person per prs persname pet_name",
        "organization": "organization org organisation orgname gpe_org",
        "geo": "gpe loc location fac facility placename geogname gpe_loc",
        "event": "event evt evn",
        "": "date time datetime period tme money percent quantity ordinal cardinal numeric_value numeric msr phone_number age",
    }.items()
    for label in labels.split()
}


class _Place(NamedTuple):
    """A name or noun phrase in a sentence (a number) of a passage: where it is, its key, its type, and whether it has more than one word."""

    sentence: int
    start: int
    end: int
    key: str
    type: str
    is_long: bool


def type_of(label: str, settings: ExtractionSettings) -> str:
    """Our type for a label of a pipeline; "" for numbers and dates, and for what the settings have no type for."""
    known = {kind.strip().casefold(): kind for kind in settings.types}
    label = label.casefold()
    kind = LABELS.get(label, OTHER)
    return known.get(label) or known.get(kind) or (OTHER if kind and settings.other_type else "")


@dataclass(slots=True)
class Marks:
    """What a tagger marks over a collection: each passage is read once (`add`), then what recurs is known (`settle`), then each can be `spot`ted."""

    lexis: Lexis
    tagger: Tagger
    settings: ExtractionSettings
    recurring: Recurring = field(init=False)
    _places: dict[str, list[_Place]] = field(default_factory=dict)
    _names: dict[str, Counter[str]] = field(default_factory=dict)  # key -> how often it was marked as each type

    def __post_init__(self) -> None:
        self.recurring = Recurring(self.lexis)

    def add(self, chunk: Chunk) -> None:
        """Read a passage."""
        sentences = list(sentences_of(chunk.text))
        places = self._places[chunk.id] = list(self._placed(self.tagger.mark(chunk.text), sentences))
        said: dict[int, list[str]] = {}
        for place in places:
            if place.type == CONCEPT:
                said.setdefault(place.sentence, []).append(place.key)
            elif place.type != MAYBE:
                self._names.setdefault(place.key, Counter())[place.type] += 1
        self.recurring.count(said.values())

    def settle(self) -> None:
        """Decide which noun phrases are kept."""
        self.recurring.settle()

    def spot(self, chunk: Chunk) -> tuple[list[Sentence], list[Seen]]:
        """The sentences of a passage and what is seen in them, as `spot.spot` gives them."""
        sentences = list(sentences_of(chunk.text))
        seen: list[Seen] = []
        loose: list[Seen] = []
        taken: dict[int, list[tuple[int, int]]] = {}
        for place in sorted(self._places[chunk.id], key=lambda place: (place.type == CONCEPT, place.type == MAYBE, place)):
            text = sentences[place.sentence].text[place.start : place.end]
            spans = taken.setdefault(place.sentence, [])
            kind = self._known_as(place.key) if place.type == MAYBE else place.type
            if not kind or not is_free(place.start, place.end, spans) or (kind == CONCEPT and place.key not in self.recurring.words):
                continue
            spans.append((place.start, place.end))
            if kind == CONCEPT:
                (seen if place.is_long else loose).extend(concept(text.casefold(), place.sentence, place.start))
            else:
                seen += seen_as(kind, text, place.sentence, place.start)
        return sentences, picked(seen, loose, self.recurring)

    def _known_as(self, key: str) -> str:
        """The type of a name that was marked elsewhere, the commonest where there are several; "" for others."""
        found = self._names.get(key)
        return min(found, key=lambda kind: (-found[kind], kind)) if found else ""

    def _placed(self, marks: list[Marked], sentences: list[Sentence]) -> Iterator[_Place]:
        starts = [sentence.start for sentence in sentences]
        for mark in marks:
            number = bisect_right(starts, mark.start) - 1
            if number < 0:
                continue
            sentence = sentences[number]
            start, end = mark.start - sentence.start, mark.end - sentence.start
            words = [word for word in sentence.words if word.start < end and start < word.end]
            if not words or end > len(sentence.text):  # what begins in one sentence and ends in another is no name of either
                continue
            kind = type_of(mark.label, self.settings) if mark.label else CONCEPT
            if kind == CONCEPT:
                if all(word.capital or word.bare for word in words):
                    yield from _name(number, start, end, words, sentence.text, MAYBE)
                yield from self._phrase(number, start, end, words, sentence.text)
            elif kind:
                yield from _name(number, start, end, words, sentence.text, kind)

    def _phrase(self, number: int, start: int, end: int, words: list[PlacedWord], text: str) -> Iterator[_Place]:
        """A noun phrase from the first word that says something to the last, where all those between do."""
        if all(word.bare for word in words):
            if len(words) > 1:
                yield _Place(number, start, end, name_key(text[start:end]), CONCEPT, True)
            return
        telling = [place for place, word in enumerate(words) if says_something(word, text, self.lexis)]
        if telling and len(telling) == telling[-1] + 1 - telling[0]:
            words = words[telling[0] : telling[-1] + 1]
            yield _Place(number, words[0].start, words[-1].end, " ".join(word.key for word in words), CONCEPT, len(words) > 1)


def _name(number: int, start: int, end: int, words: list[PlacedWord], text: str, kind: str) -> Iterator[_Place]:
    """A name without its article and without the ending of who owns something; none where it is a number, a pronoun, or as long as a sentence."""
    while words and words[0].key in ARTICLES:
        words = words[1:]
    if not words or (len(words) > MOST_WORDS and not words[0].bare):
        return
    start = max(start, words[0].start)
    end = start + len(text[start:end].rstrip(LOOSE_ENDS))
    end -= len(match.group()) if (match := POSSESSIVE.search(text[start:end])) else 0
    is_small_word = len(words) == 1 and not words[0].bare and (words[0].key in SMALL or len(words[0].key) < 2)
    if LETTER.search(text[start:end]) and end - start <= LONGEST_NAME and not is_small_word:
        yield _Place(number, start, end, name_key(text[start:end]), kind, len(words) > 1)
