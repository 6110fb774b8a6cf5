"""From the words of a question to the passages that are *about* what it names. No model; the links are made by `tying`, once per generation.

A passage is about the title of its document, about the subject that its first sentence begins with, and about an entity that either of them names.
Names that differ are tied where one is a shorter form of the other, an entity's other spelling, another inflection, or a misspelling.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from graphrag_local.query.arrays import Flags, Floats, Kept, Lists, Longs, Rows, below
from graphrag_local.query.lexicon import Found, Names, Texts, bare
from graphrag_local.query.spelling import Spellings
from graphrag_local.text import INSIDE, PlacedWord, phrases

QUESTIONS = 64  # whose names are remembered: a question is looked at for its passages, its entities and its mode
MOST_WORDS = 6  # of a name that has shorter forms


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is used; all of it, except where a bench measures what a part is worth."""

    titles: bool = True
    heads: bool = True
    ties: bool = True
    spelling: bool = True
    cues: bool = True
    bridge: bool = True
    gate: bool = True


ALL = Rules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """What a question names: a name, the words of the question that name it (begin, end), how sure that is."""

    phrase: int
    begin: int
    end: int
    weight: float


class Links:
    """The names of a generation, what is about them, where they stand, and how a question's words reach them.

    Targets are numbers of chunks; ~n stands for all chunks of the long document n (see `chunks_of`). `entities` are the numbers of entities by name.
    """

    def __init__(self, kept: Kept, rules: Rules) -> None:
        self.rules = rules
        self.texts = Texts(below(kept, "texts"))
        self.names = Names(below(kept, "names"), self.texts)
        self.spellings = Spellings(below(kept, "spellings"), self.names.key)
        self.chunks_of = Lists(below(kept, "chunks_of"))  # of each long document, in the order of the text
        self.subjects: Flags = kept["subjects"]  # names that something was meant to be about
        self.about, self.ties = Rows(below(kept, "about")), Rows(below(kept, "ties"))
        self.reaches: Flags = kept["reaches"]
        self.found = Found(start=kept["found.start"], length=kept["found.length"], phrase=kept["found.phrase"])
        self.found_begin: Longs = kept["found_begin"]
        self.mentions = Lists(below(kept, "mentions"))  # the chunks in which a name stands
        self.idf: Floats = kept["idf"]
        self.entities = Lists(below(kept, "entities"))
        self._asked: dict[tuple[str, tuple[PlacedWord, ...]], list[Seed]] = {}

    def seeds(self, words: Sequence[PlacedWord], question: str) -> list[Seed]:
        """What a question names, the most certain first; words that name nothing are tried as other forms and misspellings."""
        key = question, tuple(words)
        if key not in self._asked:
            if len(self._asked) >= QUESTIONS:
                self._asked.clear()
            self._asked[key] = self._seeds(words, question)
        return self._asked[key]

    def _seeds(self, words: Sequence[PlacedWord], question: str) -> list[Seed]:
        known = self.texts.vocabulary
        found = self.names.find(np.array([max(0, known.number(word.key)) for word in words], np.int32))
        rows = sorted(zip((-found.length).tolist(), found.start.tolist(), found.phrase.tolist(), strict=True))
        seeds: list[Seed] = []
        taken, firm = set[int](), set[int]()
        shouts = all(word.capital or word.bare for word in words)
        for length, begin, phrase in rows:
            span = range(begin, begin - length)
            if not self._is_named(words, begin, -length, phrase, shouts):
                continue
            reaches = bool(self.reaches[phrase])
            if firm.isdisjoint(span) and (reaches or taken.isdisjoint(span)):
                seeds.append(Seed(phrase=phrase, begin=begin, end=span.stop, weight=1.0 if reaches else 0.5))
                taken.update(span)
                if reaches:
                    firm.update(span)
        seeds += self._by_longer_form(words, question, firm)
        if self.rules.spelling:
            seeds += self._by_spelling(words, firm, shouts)
        return seeds

    def _is_named(self, words: Sequence[PlacedWord], begin: int, length: int, phrase: int, shouts: bool) -> bool:
        if length > 1:
            own = words[begin : begin + length]
            return not self.names.usual[phrase] or length > 3 or (own[-1].capital and not shouts)
        word = words[begin]
        if len(word.key) < 3 or word.key in INSIDE or word.key.isdecimal():
            return False
        if word.bare:
            return self.texts.rarity(word.key) > 0.3
        if word.key in self.texts:
            return False
        return word.capital or bool(self.reaches[phrase])

    def _by_longer_form(self, words: Sequence[PlacedWord], question: str, taken: set[int]) -> list[Seed]:
        """Runs of capitals that are longer forms of a known name."""
        seeds = []
        for begin, end in phrases(question, self.texts) if self.rules.ties else ():
            span = [place for place, word in enumerate(words) if begin <= word.start < end]
            if not span or not taken.isdisjoint(span):
                continue
            others = self._known(shorter(bare((words[place].key for place in span), self.texts)))
            if 0 < len(others) <= 3:
                taken.update(span)
                seeds += [Seed(phrase=other, begin=span[0], end=span[-1] + 1, weight=0.9 / math.sqrt(len(others))) for other in others]
        return seeds

    def _by_spelling(self, words: Sequence[PlacedWord], taken: set[int], shouts: bool) -> list[Seed]:
        seeds = []
        for begin, end, phrase, weight in self.spellings.near(words, taken, self.texts, shouts):
            seeds.append(Seed(phrase=phrase, begin=begin, end=end, weight=weight))
            taken.update(range(begin, end))
        return seeds

    def _known(self, forms: Iterable[tuple[str, ...]]) -> list[int]:
        numbers = (self.names.number(form) for form in forms)
        return sorted({number for number in numbers if number >= 0 and self.subjects[number]})


def shorter(key: tuple[str, ...], *, initials: bool = False) -> Iterator[tuple[str, ...]]:
    """The shorter forms of a name: with its last word and at least one other, and what stands before a small word ("Albert III the Pious").

    `initials`: also with initials for the first of the other words, for all of them, and for all but the first.
    """
    if small := next((at for at in range(2, len(key)) if key[at] in INSIDE), 0):
        yield key[:small]
    if not 2 <= len(key) <= MOST_WORDS or len(key[-1]) < 2 or key[-1].isdecimal():
        return
    tail = len(key) - 1
    while tail > 0 and key[tail - 1] in INSIDE:
        tail -= 1
    last = key[tail:]
    for size in range(1, tail + 1):
        for places in combinations(range(tail), size):
            chosen = tuple(key[place] for place in places)
            if chosen[0] in INSIDE or chosen[-1] in INSIDE or (places[0] and key[places[0] - 1] in INSIDE):
                continue
            if size < tail and any(len(word) > 1 for word in chosen):
                yield (*chosen, *last)
            if initials:
                yield (chosen[0][0], *chosen[1:], *last)
                yield (*(word[0] for word in chosen), *last)
                yield (chosen[0], *(word[0] for word in chosen[1:]), *last)
