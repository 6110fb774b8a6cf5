"""How a collection uses its words: what `fast` extraction knows before it looks at a passage. No model, one pass.

Names are told by their capitals inside sentences, since at its opening every word has one; words of the language by their being everywhere, verbs by what
stands before them. In German every noun has a capital, so that those of German passages say nothing of other passages.
Every threshold is on counts of the word itself, or on orders of magnitude of the collection, so that an edit changes what is found near it and
hardly ever elsewhere.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import regex

from graphrag_local.extraction.closed import OPENERS, PRONOUNS, is_german, uses
from graphrag_local.text import INSIDE, PlacedWord, placed_words, sentences

LONGEST_SMALL = 60  # characters of a text without capitals that is one sentence, whatever stops are in it
LONGEST_SENTENCE = 3000  # characters that are read of one; more is a table or a dump
EVERYWHERE = 0.4  # share of passages that a word of the language is in
OFTEN_SHORT, OFTEN_LONG = 0.015, 0.06  # share of sentences that one of at most `SHORT` letters, or a longer one, is in
LEAST_SHORT, LEAST_LONG = 4, 8  # sentences in which it is at least
SHORT = 4
VERBAL = 0.2  # share of its sentences that shows a verb
CAPITAL_NOUNS = 0.14  # share of capitals inside sentences from which a language writes all nouns with one (English prose has 0.03 to 0.09, German 0.25)
LEAST_COLLECTION = 256  # sentences; a smaller collection counts as one of this size
_BREAK = regex.compile(r"[^\s,'’\-‐‑/&]")
_STOP = regex.compile(r"(?<=\p{L}{2})[.!?…]+[\"'”’»)]*\s+")
_CONTRACTED = regex.compile(r"\p{Lu}['’ʼ]\p{Ll}")  # "I'm" has a capital wherever it stands, and names nobody
_SHORTENED = regex.compile(r"['’ʼ]\p{L}{1,2}$")  # "you've"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a passage: its place in the passage, its text, and its words with places in that text; `loud` is one in capitals throughout."""

    start: int
    end: int
    text: str
    words: list[PlacedWord]
    loud: bool


def sentences_of(text: str) -> Iterator[Sentence]:
    """The sentences of a passage. Where nothing is written with a capital, a stop ends one all the same."""
    for start, end in sentences(text):
        if end - start > LONGEST_SMALL and (said := text[start:end]).islower():
            cuts = [start, *(start + match.end() for match in _STOP.finditer(said)), end]
            yield from (_sentence(text, a, start + len(said[: b - start].rstrip())) for a, b in pairwise(cuts) if text[a:b].strip())
        else:
            yield _sentence(text, start, end)


def _sentence(text: str, start: int, end: int) -> Sentence:
    said = text[start : min(end, start + LONGEST_SENTENCE)]
    words = placed_words(said)
    return Sentence(start, end, said, words, len(words) > 2 and said.isupper())


def opens(text: str, words: list[PlacedWord], place: int) -> bool:
    """Whether a word stands where any word has a capital: first, or after a mark that begins something."""
    return place == 0 or _BREAK.search(text, words[place - 1].end, words[place].start) is not None


def is_contracted(text: str) -> bool:
    """Whether a text is a word like "I'm"."""
    return _CONTRACTED.match(text) is not None


def is_shortened(text: str) -> bool:
    """Whether a word ends in what is left of another ("you've", "can't", "speaker's")."""
    return _SHORTENED.search(text) is not None


@dataclass(slots=True)
class Lexis:
    """Counts over a collection: words written small, with a capital inside or at the opening of a sentence, and how many sentences and passages have each.

    `nouns` are capitals inside sentences of German, `loud` those of long words in capitals throughout; `verbal` is how often more a word is used as a verb
    than as a noun.

    As a container it holds the words that name nobody although they may have a capital.
    """

    small: Counter[str] = field(default_factory=Counter)
    inside: Counter[str] = field(default_factory=Counter)
    loud: Counter[str] = field(default_factory=Counter)
    nouns: Counter[str] = field(default_factory=Counter)
    opening: Counter[str] = field(default_factory=Counter)
    aside: Counter[str] = field(default_factory=Counter)  # at the opening, with a comma or a stop right after it, as "Yeah," has
    in_sentences: Counter[str] = field(default_factory=Counter)
    in_passages: Counter[str] = field(default_factory=Counter)
    verbal: Counter[str] = field(default_factory=Counter)
    sentences: int = 0
    passages: int = 0
    _verdicts: dict[str, bool] = field(default_factory=dict)

    def add(self, text: str) -> None:
        """Count a passage."""
        self.passages += 1
        there: set[str] = set()
        sentences = list(sentences_of(text))
        self.sentences += len(sentences)
        inside = self.nouns if self.is_german(sentences) else self.inside
        for sentence in sentences:
            words = sentence.words
            in_order = [word.key for word in words]
            keys = set(in_order)
            self.in_sentences.update(keys)
            there |= keys
            for key, as_verb in uses(in_order):
                self.verbal[key] += 1 if as_verb else -1
            for place, word in enumerate(words):
                if not word.capital:
                    self.small[word.key] += 1
                elif sentence.loud:
                    continue
                elif opens(sentence.text, words, place):
                    self.opening[word.key] += 1
                    self.aside[word.key] += sentence.text[word.end : word.end + 1] in ",.!?;…—–"
                elif len(word.key) > SHORT and sentence.text[word.start : word.end].isupper():
                    self.loud[word.key] += 1
                else:
                    inside[word.key] += 1
        self.in_passages.update(there)

    @staticmethod
    def is_german(sentences: Sequence[Sentence]) -> bool:
        """Whether a passage is German."""
        return is_german([word.key for sentence in sentences for word in sentence.words if not word.capital])

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.is_usual(key)

    def is_usual(self, key: str) -> bool:
        """Whether a word is mostly written small, or a pronoun; one that only opens sentences is where a mark mostly follows it, or a list has it."""
        if key in PRONOUNS:
            return True
        if capitals := self.inside[key] + self.loud[key] or self.nouns[key]:
            return self.small[key] >= capitals
        return self.small[key] > 0 or 2 * self.aside[key] > self.opening[key] or key in INSIDE or key in OPENERS

    def is_name(self, key: str) -> bool:
        """Whether a word is a name by itself: it is written with a capital inside sentences, and mostly so."""
        return (self.inside[key] > 0 or self.loud[key] > 0) and not self.is_usual(key)

    def is_noun(self, key: str) -> bool:
        """Whether a word with a capital in a German passage may be a noun: it has one inside sentences too, and mostly so."""
        return (self.nouns[key] > 0 or self.inside[key] > 0) and not self.is_usual(key)

    def is_verb(self, key: str) -> bool:
        """Whether a word stands after those that act ("I tell", "may hang") more often than after those that a noun has before it, and not seldom."""
        return self.verbal[key] > 0 and self.verbal[key] >= VERBAL * self.in_sentences[key]

    def has_capital_nouns(self) -> bool:
        """Whether the collection writes all nouns with a capital in passages that are not German, too."""
        inside, small = self.inside.total(), self.small.total()
        return inside > 20 and inside > CAPITAL_NOUNS * (inside + small)

    def is_function(self, key: str) -> bool:
        """Whether a word belongs to the language and not to the matter: it is short and in many sentences, and all over the collection.

        Asked once everything is counted; a verdict is remembered.
        """
        if key not in self._verdicts:
            self._verdicts[key] = self._is_function(key)
        return self._verdicts[key]

    def _is_function(self, key: str) -> bool:
        if key in INSIDE or len(key) < 2 or any(character.isdigit() for character in key):
            return True
        share, least = (OFTEN_SHORT, LEAST_SHORT) if len(key) <= SHORT else (OFTEN_LONG, LEAST_LONG)
        return self.in_sentences[key] >= max(least, share * self.sentences) and self.in_passages[key] >= EVERYWHERE * self.passages

    @property
    def magnitude(self) -> int:
        """The sentences of the collection, rounded up to a power of four: measures that need their number change a few times in its life, and not daily."""
        return magnitude(self.sentences)


def magnitude(count: int) -> int:
    """A number of sentences rounded up to a power of four."""
    return int(4 ** math.ceil(math.log(max(count, LEAST_COLLECTION), 4) - 1e-9))
