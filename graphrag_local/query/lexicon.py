"""The texts of a generation as numbers, and the names in them: built once, then asked without a loop over all of them.

Every chunk is a run of word numbers; a name is a run of words, found in any text by the hashes of its beginnings, all places at once. Ids of
chunks are sorted, so that the number of a chunk is also its place among equals.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphrag_local.records import Chunk
from graphrag_local.text import ARTICLES, PlacedWord, placed_words

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
Hashes = NDArray[np.uint64]
LONGEST = 12  # words of a name (our choice; titles of reference books are shorter)
CUE_LETTERS = 5  # words that begin alike ("directed", "director") count as one word when relations are recognised


class Texts:
    """The words of all chunks as numbers: number 0 stands between two chunks, the others in the order of their first appearance."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self.chunks = sorted(chunks, key=lambda chunk: chunk.id)
        self.number = {chunk.id: number for number, chunk in enumerate(self.chunks)}
        self.vocabulary: dict[str, int] = {"": 0}
        tokens: list[Ints] = [np.zeros(1, np.int32)]
        capitals: list[Flags] = [np.zeros(1, bool)]
        opening: list[Flags] = [np.zeros(1, bool)]
        lengths = np.zeros(len(self.chunks), np.int64)
        for at, chunk in enumerate(self.chunks):
            words = placed_words(chunk.text)
            lengths[at] = len(words) + 1
            tokens.append(self._numbers(words))
            capitals.append(np.array([word.capital or word.bare for word in words] + [False], bool))
            opening.append(np.array([word.capital and _opens(chunk.text, word.start) for word in words] + [False], bool))
        self.tokens = np.concatenate(tokens)
        self.capital = np.concatenate(capitals)
        self.begin = np.concatenate((np.ones(1, np.int64), 1 + np.cumsum(lengths)))
        self.chunk_of = np.concatenate((np.full(1, -1, np.int32), np.repeat(np.arange(len(self.chunks), dtype=np.int32), lengths)))
        size = len(self.vocabulary)
        small = np.bincount(self.tokens, weights=~self.capital, minlength=size)
        self.usual: Flags = small > np.bincount(self.tokens, weights=self.capital & ~np.concatenate(opening), minlength=size)
        pairs = np.unique(self.chunk_of.astype(np.int64)[1:] * size + self.tokens[1:])
        self.df: Ints = np.bincount(pairs % size, minlength=size).astype(np.int32)
        stems: dict[str, int] = {}
        self.stem: Ints = np.array([stems.setdefault(word[:CUE_LETTERS], len(stems)) for word in self.vocabulary], np.int32)
        self.stems = stems

    def _numbers(self, words: Sequence[PlacedWord]) -> Ints:
        known = self.vocabulary
        return np.array([known.setdefault(word.key, len(known)) for word in words] + [0], np.int32)

    def is_usual(self, key: str) -> bool:
        """Whether the collection writes a word mostly with a small letter."""
        number = self.vocabulary.get(key)
        return number is not None and number < len(self.usual) and bool(self.usual[number])

    def __contains__(self, key: object) -> bool:
        """As a container these are the usual words."""
        return isinstance(key, str) and self.is_usual(key)

    def rarity(self, key: str) -> float:
        """How rare a word is among the chunks: 0 in all of them, 1 in a single one; a word that none has says less (0.5)."""
        number = self.vocabulary.get(key)
        count = len(self.chunks)
        if number is None or number >= len(self.df) or count < 2:
            return 0.5
        return 1.0 - math.log(max(1, int(self.df[number]))) / math.log(count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Names in a run of words: where each begins, how many words it has, and its number."""

    start: NDArray[np.int64]
    length: Ints
    phrase: Ints

    def where(self, keep: Flags) -> "Found":
        """Some of them."""
        return Found(start=self.start[keep], length=self.length[keep], phrase=self.phrase[keep])

    def longest(self) -> "Found":
        """Those that stand inside no other."""
        order = np.lexsort((-self.length, self.start))
        end = (self.start + self.length)[order]
        before = np.concatenate((np.zeros(1, np.int64), np.maximum.accumulate(end)[:-1])) if end.size else end
        return Found(start=self.start[order], length=self.length[order], phrase=self.phrase[order]).where(end > before)


class Names:
    """Names by number: runs of folded words. Fixed by `close`; then found in texts."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self.number: dict[tuple[str, ...], int] = {}
        self.keys: list[tuple[str, ...]] = []
        self._levels: list[tuple[Hashes, Ints, Hashes]] = []

    def add(self, words: Iterable[str]) -> int:
        """The number of a name, new or known; -1 for none, a very long one, or digits only."""
        key = self.bare(words)
        if not key or len(key) > LONGEST or all(word.isdecimal() for word in key):
            return -1
        if key not in self.number:
            self.number[key] = len(self.keys)
            self.keys.append(key)
        return self.number[key]

    def bare(self, words: Iterable[str]) -> tuple[str, ...]:
        """The words of a name without articles at its beginning, unless only a usual word would be left ("An Event")."""
        key = tuple(words)
        while len(key) > 1 and key[0] in ARTICLES and not (len(key) == 2 and key[1] in self.texts):
            key = key[1:]
        return key

    def close(self) -> None:
        """Make ready for `find`: for each length the sorted hashes of names, their numbers, and the hashes of beginnings of longer names."""
        known = self.texts.vocabulary
        ready = [(number, key, [known.setdefault(word, len(known)) for word in key]) for number, key in enumerate(self.keys)]
        self.seed: Hashes = _mixed(len(known))
        self.spaced: Flags = np.array([len(key) > 1 or len(key[0]) > 1 for key in self.keys], bool)
        self.usual: Flags = np.array([all(word in self.texts or word.isdecimal() for word in key) for key in self.keys], bool)
        for length in range(1, 1 + max((len(key) for key in self.keys), default=0)):
            longer = np.array([row[:length] for _, _, row in ready if len(row) >= length], np.int64).reshape(-1, length)
            whole = np.array([row for _, _, row in ready if len(row) == length], np.int64).reshape(-1, length)
            numbers = np.array([number for number, _, row in ready if len(row) == length], np.int32)
            hashes = self._hashes(whole)
            order = np.argsort(hashes, kind="stable")
            self._levels.append((hashes[order], numbers[order], np.unique(self._hashes(longer))))

    def _hashes(self, rows: NDArray[np.int64]) -> Hashes:
        found = np.zeros(len(rows), np.uint64)
        for column in range(rows.shape[1]):
            found = _next(found, self.seed[rows[:, column]])
        return found

    def find(self, tokens: Ints, at: NDArray[np.int64] | None = None) -> Found:
        """All names in a run of word numbers (those of one word too, whatever their case), at any place or at given ones."""
        place = np.arange(len(tokens), dtype=np.int64) if at is None else at
        hashes = np.zeros(len(place), np.uint64)
        rows: list[tuple[NDArray[np.int64], Ints, Ints]] = []
        for length, (whole, numbers, beginnings) in enumerate(self._levels, 1):
            inside = place + length <= len(tokens)
            place, hashes = place[inside], hashes[inside]
            words = tokens[place + (length - 1)]
            hashes = _next(hashes, self.seed[words])
            go_on = _member(beginnings, hashes)[1] & (words > 0)
            place, hashes = place[go_on], hashes[go_on]
            which, hit = _member(whole, hashes)
            rows.append((place[hit], np.full(int(hit.sum()), length, np.int32), numbers[which[hit]]))
            if not place.size:
                break
        if not rows:
            return Found(start=np.zeros(0, np.int64), length=np.zeros(0, np.int32), phrase=np.zeros(0, np.int32))
        start, length_of, phrase = (np.concatenate(column) for column in zip(*rows, strict=True))
        return Found(start=start, length=length_of, phrase=phrase)


def _opens(text: str, start: int) -> bool:
    """Whether a word opens a sentence or a quotation, which gives it a capital whatever it is."""
    return start == 0 or any(mark in '.!?…:\n"“«' for mark in text[max(0, start - 2) : start])


def _member(ordered: Hashes, wanted: Hashes) -> tuple[NDArray[np.intp], Flags]:
    """Where each wanted hash stands among ordered ones, and whether it does."""
    if not ordered.size:
        return np.zeros(len(wanted), np.intp), np.zeros(len(wanted), bool)
    at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return at, ordered[at] == wanted


def _next(hashes: Hashes, words: Hashes) -> Hashes:
    return (hashes ^ words) * np.uint64(0x9E3779B97F4A7C15) + (hashes >> np.uint64(29))


def _mixed(count: int) -> Hashes:
    """A fixed number of 64 mixed bits for each word (the finaliser of SplitMix64, Steele, Lea and Flood 2014)."""
    x = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x632BE59BD9B4E019)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
