"""Names that a question writes in another inflection or with a mistake: by their beginnings, and by the share of their letter groups.

Letter groups are three letters long, of scripts without spaces pairs of characters. Measured on misspelt names, these find more than
vectors of names do, and cost neither a model nor a vector per name.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from itertools import pairwise

import numpy as np

from graphrag_local.query.arrays import JOINT, Arrays, Kept, Lists, Strings, above, below
from graphrag_local.query.lexicon import Texts
from graphrag_local.text import INSIDE, PlacedWord

LIKENESS = 0.55  # Jaccard: the least share of letter groups that two spellings have in common
LIKELY, CANDIDATES = 0.35, 80  # share of its letter groups that a name must have in the question to be looked at, and how many are
MISTYPED = 0.9  # likeness of a name whose words differ in one letter each
ENDING = 3  # letters in which two inflections of a word may differ at the end
STEM = 3  # letters that they have in common at least; with no more than these, they may differ in one letter
WIDEST = 8  # words of a misspelt name (characters, of scripts without spaces)
MOST_ALIKE = 3
Key = tuple[str, ...]


class Spellings:
    """The names of some numbers, found by what is nearly them. `key` gives the words of a name by its number."""

    def __init__(self, kept: Kept, key: Callable[[int], Key]) -> None:
        self._key = key
        self._numbers = kept["numbers"]
        self._beginnings, self._begun = Strings(below(kept, "beginnings")), Lists(below(kept, "begun"))
        self._groups, self._having = Strings(below(kept, "groups")), Lists(below(kept, "having"))
        self._sizes = kept["sizes"]

    @staticmethod
    def kept(keys: Sequence[Key], numbers: Sequence[int]) -> Arrays:
        """The arrays: names by their beginnings, places of names by their letter groups, and how many groups each name has."""
        begun = begun_alike(keys, numbers)
        having: dict[str, list[int]] = defaultdict(list)
        sizes = np.zeros(len(numbers), np.int32)
        for place, number in enumerate(numbers):
            groups = letter_groups(keys[number])
            sizes[place] = len(groups)
            for group in sorted(groups):
                having[group].append(place)
        return {
            "numbers": np.array(numbers, np.int32),
            "sizes": sizes,
            **above("beginnings", Strings.kept(begun)),
            **above("begun", Lists.kept(list(begun.values()))),
            **above("groups", Strings.kept(having)),
            **above("having", Lists.kept(list(having.values()))),
        }

    def inflected(self, key: Key) -> list[int]:
        """The names that have the same words with other endings."""
        at = self._beginnings.number(beginning(key))
        return inflections(key, self._begun.row(at).tolist(), self._key) if at >= 0 else []

    def near(self, words: Sequence[PlacedWord], taken: Set[int], texts: Texts, shouts: bool) -> Iterator[tuple[int, int, int, float]]:
        """(begin, end, name, likeness) of runs of free words that nearly are a name, the likest first and no word twice."""
        free = [place for place in range(len(words)) if place not in taken]
        found: list[tuple[float, int, int, int, int]] = []
        for begin, end in _windows(words, set(free)):
            key = tuple(word.key for word in words[begin:end])
            found += [(-0.8, begin - end, begin, end, number) for number in self.inflected(key)]
        suspects = [
            (b, e)
            for b, e in _windows(words, set(range(len(words))))
            if not set(range(b, e)).issubset(taken) and _suspect(words[b:e], texts, shouts) and (_unknown(words[b:e], texts) or taken.isdisjoint(range(b, e)))
        ]
        if suspects:
            found += self._misspelt(words, suspects)
        used: set[int] = set()
        last: tuple[int, int] | None = None
        given = 0
        for likeness, _, begin, end, number in sorted(found):
            if (begin, end) == last and given < 2:
                given += 1
            elif used.isdisjoint(range(begin, end)):
                last, given = (begin, end), 1
                used.update(range(begin, end))
            else:
                continue
            yield begin, end, number, -likeness

    def _misspelt(self, words: Sequence[PlacedWord], suspects: Sequence[tuple[int, int]]) -> list[tuple[float, int, int, int, int]]:
        windows = [(b, e, letter_groups(tuple(word.key for word in words[b:e]))) for b, e in suspects]
        asked = sorted({self._groups.number(group) for _, _, groups in windows for group in groups} - {-1})
        if not asked:
            return []
        sizes = self._sizes
        shared = np.bincount(np.concatenate([self._having.row(group) for group in asked]), minlength=len(sizes))
        likely = np.flatnonzero(shared >= LIKELY * np.maximum(sizes, 1))
        likely = likely[np.argsort(-shared[likely] / sizes[likely], kind="stable")][:CANDIDATES]
        found = []
        for place in likely.tolist():
            number = int(self._numbers[place])
            name = self._key(number)
            own = letter_groups(name)
            for b, e, groups in windows:
                likeness = len(own & groups) / len(own | groups)
                if likeness < MISTYPED and _mistyped(name, tuple(word.key for word in words[b:e])):
                    likeness = MISTYPED
                if likeness >= LIKENESS:
                    found.append((-round(likeness, 6), b - e, b, e, number))
        return found


def begun_alike(keys: Sequence[Key], numbers: Sequence[int]) -> dict[str, list[int]]:
    """The names that may stand in another inflection, by the beginnings of their words."""
    begun: dict[str, list[int]] = defaultdict(list)
    for number in numbers:
        if start := beginning(keys[number]):
            begun[start].append(number)
    return begun


def inflections(key: Key, begun: Sequence[int], other: Callable[[int], Key]) -> list[int]:
    """Those names among some that begin alike which have the same words with other endings; none where too many have."""
    found = [number for number in begun if _alike(other(number), key)]
    return found if len(found) <= MOST_ALIKE else []


def letter_groups(key: Key) -> set[str]:
    """The groups of a name: of each word with a blank before and after it three letters each; pairs of characters where every word is one."""
    if len(key) > 1 and all(len(word) == 1 and word >= "\u0e00" for word in key):
        return {a + b for a, b in pairwise(key)}
    text = f" {' '.join(key)} "
    return {text[at : at + 3] for at in range(len(text) - 2)}


def _mistyped(a: Key, b: Key) -> bool:
    """Whether two names have the same words but for one letter of each: another, one more, one less, or two exchanged."""
    return len(a) == len(b) and all(x == y or (len(x) > 3 and not x.isdecimal() and _one_edit(x, y)) for x, y in zip(a, b, strict=True))


def _one_edit(a: str, b: str) -> bool:
    begin = 0
    while begin < min(len(a), len(b)) and a[begin] == b[begin]:
        begin += 1
    end = 0
    while end < min(len(a), len(b)) - begin and a[-1 - end] == b[-1 - end]:
        end += 1
    rest, other = a[begin : len(a) - end], b[begin : len(b) - end]
    return max(len(rest), len(other)) <= 1 or (len(rest) == 2 and rest == other[::-1])


def _windows(words: Sequence[PlacedWord], free: set[int]) -> Iterator[tuple[int, int]]:
    for begin in sorted(free):
        for end in range(begin + 1, min(begin + WIDEST, len(words)) + 1):
            if end - 1 not in free:
                break
            if words[begin].key not in INSIDE and words[end - 1].key not in INSIDE:
                yield begin, end


def _suspect(window: Sequence[PlacedWord], texts: Texts, shouts: bool) -> bool:
    """Whether a run of words may be a misspelt name: it has a word that the collection has not, or is written with capitals at both ends."""
    if all(word.bare and len(word.key) == 1 for word in window):
        return len(window) >= 3
    if sum(len(word.key) for word in window) < 5:
        return False
    return _unknown(window, texts) or (len(window) > 1 and not shouts and window[0].capital and window[-1].capital)


def _unknown(window: Sequence[PlacedWord], texts: Texts) -> bool:
    return any(texts.vocabulary.number(word.key) < 0 and len(word.key) > 3 for word in window)


def _inflects(key: Key) -> bool:
    """Whether a name is long enough for its beginning to tell it: two words, one of which may be inflected, or one word of a script other than Latin."""
    long = [word for word in key if len(word) > STEM + 1]
    return bool(long) and (len(key) > 1 or (not key[0].isascii() and len(key[0]) > STEM + 1))


def beginning(key: Key) -> str:
    """The beginnings of a name's words, "" where it is too short to be known by them."""
    return JOINT.join(word[:STEM] for word in key) if _inflects(key) else ""


def _alike(a: Key, b: Key) -> bool:
    return all(_same_but_ending(x, y) for x, y in zip(a, b, strict=True))


def _same_but_ending(a: str, b: str) -> bool:
    if a == b:
        return True
    common = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    ending = max(len(a), len(b)) - common
    return common >= STEM and ending <= (ENDING if common > STEM else 1) and a.isalpha() and b.isalpha()
