"""The texts of a generation as numbers, and the names in them: built once, then asked without a loop over all of them.

Every chunk is a run of word numbers; a name is a run of words, found in any text by the hashes of its beginnings, all places at once. Ids of
chunks are sorted, so that the number of a chunk is also its place among equals.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from graphrag_local.query.arrays import JOINT, Arrays, Flags, Floats, Ids, Ints, Kept, Longs, Strings, above, below
from graphrag_local.records import Chunk
from graphrag_local.text import ARTICLES, word_pattern, word_shape

Hashes = NDArray[np.uint64]
LONGEST = 12  # words of a name (our choice; titles of reference books are shorter)
CUE_LETTERS = 5  # words that begin alike ("directed", "director") count as one word when relations are recognised
_OPENERS = frozenset('.!?…:\n"“«')
__all__ = ["Flags", "Floats", "Ints"]


class Numbers(Protocol):
    """What knows the number of a word, -1 of none."""

    def number(self, text: str) -> int:
        """The number."""


class Counted:
    """Numbers of strings in the order in which they are first asked for."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.known = {text: number for number, text in enumerate(texts)}

    def number(self, text: str) -> int:
        """The number of a string, -1 where it has none yet."""
        return self.known.get(text, -1)

    def add(self, text: str) -> int:
        """The number of a string, a new one where it has none yet."""
        return self.known.setdefault(text, len(self.known))

    def kept(self) -> Arrays:
        """The strings by their numbers."""
        return Strings.kept(self.known)


class Texts:
    """The words of all chunks as numbers: number 0 stands between two chunks, the others in the order of their first appearance."""

    def __init__(self, kept: Kept, vocabulary: Numbers | None = None) -> None:
        self.ids = Ids(kept["ids"])
        self.vocabulary = vocabulary or Strings(below(kept, "vocabulary"))
        self.tokens: Ints = kept["tokens"]
        self.begin: Longs = kept["begin"]
        self.usual: Flags = kept["usual"]
        self.df: Ints = kept["df"]
        self.stem: Ints = kept["stem"]
        self.stems = Strings(below(kept, "stems"))

    def is_usual(self, key: str) -> bool:
        """Whether the collection writes a word mostly with a small letter."""
        number = self.vocabulary.number(key)
        return 0 <= number < len(self.usual) and bool(self.usual[number])

    def __contains__(self, key: object) -> bool:
        """As a container these are the usual words."""
        return isinstance(key, str) and self.is_usual(key)

    def rarity(self, key: str) -> float:
        """How rare a word is among the chunks: 0 in all of them, 1 in a single one; a word that none has says less (0.5)."""
        number = self.vocabulary.number(key)
        count = len(self.ids)
        if not 0 <= number < len(self.df) or count < 2:
            return 0.5
        return 1.0 - math.log(max(1, int(self.df[number]))) / math.log(count)


class ReadTexts(Texts):
    """The words of chunks as they are read; `kept` are the arrays of what was read, but for the vocabulary, to which names may still add."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self.chunks = sorted(chunks, key=lambda chunk: chunk.id)
        self.number_of = {chunk.id: number for number, chunk in enumerate(self.chunks)}
        self.words = Counted([""])
        tokens: list[Ints] = [np.zeros(1, np.int32)]
        capitals: list[Flags] = [np.zeros(1, bool)]
        opening: list[Flags] = [np.zeros(1, bool)]
        lengths = np.zeros(len(self.chunks), np.int64)
        for at, chunk in enumerate(self.chunks):
            found = list(word_pattern(chunk.text).finditer(chunk.text))
            shapes = [word_shape(match.group()) for match in found]
            lengths[at] = len(found) + 1
            known = self.words.known
            tokens.append(np.array([*[known.setdefault(key, len(known)) for key, _, _ in shapes], 0], np.int32))
            capitals.append(np.array([*[capital or bare for _, capital, bare in shapes], False], bool))
            opens = [place for place, shape in enumerate(shapes) if shape[1] and _opens(chunk.text, found[place].start())]
            opening.append(np.zeros(len(found) + 1, bool))
            opening[-1][opens] = True
        self.capital = np.concatenate(capitals)
        self.chunk_of = np.concatenate((np.full(1, -1, np.int32), np.repeat(np.arange(len(self.chunks), dtype=np.int32), lengths)))
        self.kept = self._counted(np.concatenate(tokens), np.concatenate(opening))
        self.kept["begin"] = np.concatenate((np.ones(1, np.int64), 1 + np.cumsum(lengths)))
        super().__init__(self.kept, self.words)

    def _counted(self, tokens: Ints, opening: Flags) -> Arrays:
        size = len(self.words.known)
        small = np.bincount(tokens, weights=~self.capital, minlength=size)
        pairs = np.unique(self.chunk_of.astype(np.int64)[1:] * size + tokens[1:])
        stems = Counted()
        return {
            "ids": Ids.of([chunk.id for chunk in self.chunks]),
            "tokens": tokens,
            "usual": small > np.bincount(tokens, weights=self.capital & ~opening, minlength=size),
            "df": np.bincount(pairs % size, minlength=size).astype(np.int32),
            "stem": np.array([stems.add(word[:CUE_LETTERS]) for word in self.words.known], np.int32),
            **above("stems", Strings.kept(stems.known)),
        }


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


def bare(words: Iterable[str], usual: Texts) -> tuple[str, ...]:
    """The words of a name without articles at its beginning, unless only a usual word would be left ("An Event")."""
    key = tuple(words)
    while len(key) > 1 and key[0] in ARTICLES and not (len(key) == 2 and key[1] in usual):
        key = key[1:]
    return key


class Names:
    """Names by number: runs of folded words, found in texts."""

    def __init__(self, kept: Kept, texts: Texts) -> None:
        self.texts = texts
        self._joined = Strings(below(kept, "joined"))
        self.usual: Flags = kept["usual"]
        lengths = range(1, 1 + int(kept["longest"][0]))
        self._levels = [(kept[f"whole.{n}"], kept[f"numbers.{n}"], kept[f"beginnings.{n}"]) for n in lengths]

    def __len__(self) -> int:
        return len(self._joined)

    def key(self, number: int) -> tuple[str, ...]:
        """The words of a name."""
        return tuple(cast(str, self._joined[number]).split(JOINT))

    def number(self, words: Iterable[str]) -> int:
        """The number of a name, -1 of one that is not known."""
        return self._joined.number(JOINT.join(bare(words, self.texts)))

    def find(self, tokens: Ints) -> Found:
        """All names in a run of word numbers (those of one word too, whatever their case), at any place."""
        place = np.arange(len(tokens), dtype=np.int64)
        hashes = np.zeros(len(place), np.uint64)
        rows: list[tuple[NDArray[np.int64], Ints, Ints]] = []
        for length, (whole, numbers, beginnings) in enumerate(self._levels, 1):
            inside = place + length <= len(tokens)
            place, hashes = place[inside], hashes[inside]
            words = tokens[place + (length - 1)]
            hashes = _next(hashes, _mixed(words))
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


class ReadNames:
    """Names as they are come across, numbered in that order."""

    def __init__(self, texts: ReadTexts) -> None:
        self.texts = texts
        self.number: dict[tuple[str, ...], int] = {}
        self.keys: list[tuple[str, ...]] = []

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
        """See `bare`."""
        return bare(words, self.texts)

    def spaced(self) -> Flags:
        """Which names are more than one character."""
        return np.array([len(key) > 1 or len(key[0]) > 1 for key in self.keys], bool)

    def kept(self) -> Arrays:
        """The arrays of the names: for each length the sorted hashes of names, their numbers, and the hashes of beginnings of longer names."""
        add, texts = self.texts.words.add, self.texts
        ready = [[add(word) for word in key] for key in self.keys]
        numbers: Mapping[int, list[int]] = _by_length(ready)
        kept: Arrays = {
            "usual": np.array([all(word in texts or word.isdecimal() for word in key) for key in self.keys], bool),
            "longest": np.array([max(map(len, ready), default=0)], np.int32),
            **above("joined", Strings.kept(map(JOINT.join, self.keys))),
        }
        for length in range(1, 1 + int(kept["longest"][0])):
            longer = np.array([row[:length] for row in ready if len(row) >= length], np.int64).reshape(-1, length)
            own = numbers.get(length, [])
            hashes = _hashes(np.array([ready[number] for number in own], np.int64).reshape(-1, length))
            order = np.argsort(hashes, kind="stable")
            kept |= {
                f"whole.{length}": hashes[order],
                f"numbers.{length}": np.array(own, np.int32)[order],
                f"beginnings.{length}": np.unique(_hashes(longer)),
            }
        return kept


def _by_length(rows: Sequence[Sequence[int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        found.setdefault(len(row), []).append(number)
    return found


def _hashes(rows: NDArray[np.int64]) -> Hashes:
    found = np.zeros(len(rows), np.uint64)
    for column in range(rows.shape[1]):
        found = _next(found, _mixed(rows[:, column]))
    return found


def _opens(text: str, start: int) -> bool:
    """Whether a word opens a sentence or a quotation, which gives it a capital whatever it is."""
    return start == 0 or text[start - 1] in _OPENERS or (start > 1 and text[start - 2] in _OPENERS)


def _member(ordered: Hashes, wanted: Hashes) -> tuple[NDArray[np.intp], Flags]:
    """Where each wanted hash stands among ordered ones, and whether it does."""
    if not ordered.size:
        return np.zeros(len(wanted), np.intp), np.zeros(len(wanted), bool)
    at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return at, ordered[at] == wanted


def _next(hashes: Hashes, words: Hashes) -> Hashes:
    return (hashes ^ words) * np.uint64(0x9E3779B97F4A7C15) + (hashes >> np.uint64(29))


def _mixed(numbers: NDArray[np.int32] | NDArray[np.int64]) -> Hashes:
    """64 mixed bits for each number (the finaliser of SplitMix64, Steele, Lea and Flood 2014)."""
    x = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x632BE59BD9B4E019)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
