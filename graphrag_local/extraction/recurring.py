"""Phrases that a collection keeps coming back to, where capitals do not tell names: key phrases, and words of scripts without spaces. Statistics only.

A phrase is kept when it recurs (in at least two passages, or sentences where there are few passages), holds together (its parts meet far more often than
they would by chance) and, in a script without spaces, is free on both sides (what stands before and after it varies: "accessor variety", Feng and others
2004). Each test looks at counts of the phrase and of its own parts, so that an edit changes the verdict on what it touches and on nothing else.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import regex

from graphrag_local.extraction.closed import BESIDE
from graphrag_local.extraction.lexis import Lexis, Sentence, is_shortened, magnitude
from graphrag_local.text import PlacedWord

LONGEST = 3  # words of a key phrase
LEAST_COUNT = 3
TOGETHER = 3.0  # bits by which the words of a phrase meet more often than by chance
AGAIN = 1.25  # mean number of times that a phrase occurs in a passage that has it: what a passage is about comes again, idioms do not (Church 2000)
COMMON = 0.2  # share of passages that a phrase is in at most; one that is in more ("a little bit") belongs to the language
INSIDE_ANOTHER = 0.8  # share of its occurrences inside one longer phrase from which a phrase is no phrase of its own
MANY = 4  # passages from which recurring is counted by passages
LETTERS = 6  # the longest phrase of a script without spaces
FREE = 2  # different neighbours on each side
COHESION = 4.0  # bits, the least over all ways of cutting it in two
_BARE = regex.compile(r"[\p{Han}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Hangul}]{2,}")
_KATAKANA = regex.compile(r"[\p{Katakana}ー]{3,}")


@dataclass(slots=True)
class Recurring:
    """Counts of candidates over a collection, then those that are kept: `words` are key phrases by their joined keys, `runs` runs of characters."""

    lexis: Lexis
    counts: Counter[str] = field(default_factory=Counter)
    passages: Counter[str] = field(default_factory=Counter)
    words: set[str] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)
    _texts: list[str] = field(default_factory=list)

    def add(self, sentences: Sequence[Sentence]) -> None:
        """Count what may be a phrase of a passage."""
        self.count([key for _, _, key in candidates(sentence, self.lexis)] for sentence in sentences)
        for sentence in sentences:
            self._texts += _BARE.findall(sentence.text)

    def count(self, phrases: Iterable[Sequence[str]]) -> None:
        """Count phrases of a passage, the keys of each sentence."""
        there: set[str] = set()
        for keys in phrases:
            self.counts.update(keys)
            if self.lexis.passages < MANY:
                self.passages.update(set(keys))
            there.update(keys)
        if self.lexis.passages >= MANY:
            self.passages.update(there)

    def settle(self) -> None:
        """Decide what is kept, and forget the rest."""
        self.words = {key for key in self.counts if self._is_phrase(key)}
        longer: dict[str, int] = defaultdict(int)
        for key in self.words:
            parts = key.split(" ")
            for part in (" ".join(parts[1:]), " ".join(parts[:-1])) if len(parts) > 2 else ():
                longer[part] = max(longer[part], self.counts[key])
        self.words -= {part for part, count in longer.items() if count >= INSIDE_ANOTHER * self.counts[part]}
        self.runs = _runs(self._texts)
        self._texts = []

    def _is_phrase(self, key: str) -> bool:
        count, there, many = self.counts[key], self.passages[key], self.lexis.passages >= MANY
        parts = key.split(" ")
        if there < 2 or (many and there > max(LEAST_COUNT, COMMON * self.lexis.passages)):
            return False
        if len(parts) == 1:
            return True
        if many and (count < LEAST_COUNT or count < AGAIN * there):
            return False
        total = self.lexis.magnitude
        by_chance = math.prod(self.lexis.in_sentences[part] / total for part in parts) * total
        return math.log2(count / by_chance) >= TOGETHER * (len(parts) - 1)

    def share(self, key: str) -> float:
        """How telling a phrase is, the larger the more: its inverse frequency in sentences, in whole bits."""
        return round(math.log2(self.lexis.magnitude / max(1, self.counts[key])))


def candidates(sentence: Sentence, lexis: Lexis) -> Iterator[tuple[int, int, str]]:
    """What may be a key phrase: up to three words side by side that say something, as (start, end, key)."""
    run: list[PlacedWord] = []
    for word in sentence.words:
        says = says_something(word, sentence.text, lexis)
        if run and (not says or sentence.text[run[-1].end : word.start] not in (" ", "-", "‐")):
            yield from _phrases(run)
            run = []
        if says:
            run.append(word)
    yield from _phrases(run)


def says_something(word: PlacedWord, text: str, lexis: Lexis) -> bool:
    """Whether a word recurs and belongs to the matter, not to the language; no verb does, since phrases are what is spoken of."""
    if lexis.in_sentences[word.key] < 2 or len(word.key) < 3 or (word.bare and _BARE.match(word.key * 2)):
        return False
    return word.key not in BESIDE and not lexis.is_function(word.key) and not lexis.is_verb(word.key) and not is_shortened(text[word.start : word.end])


def _phrases(run: list[PlacedWord]) -> Iterator[tuple[int, int, str]]:
    for first in range(len(run)):
        for last in range(first, min(first + LONGEST, len(run))):
            yield run[first].start, run[last].end, " ".join(word.key for word in run[first : last + 1])


def katakana(text: str) -> Iterator[tuple[int, int]]:
    """Words in katakana, which writes names and words from abroad."""
    for match in _KATAKANA.finditer(text):
        yield match.start(), match.end()


def found_runs(text: str, runs: set[str]) -> Iterator[tuple[int, int]]:
    """Where kept runs of characters stand, the longest first at each place, without overlap."""
    for match in _BARE.finditer(text):
        at = match.start()
        while at < match.end() - 1:
            size = next((size for size in range(min(LETTERS * 2, match.end() - at), 1, -1) if text[at : at + size] in runs), 0)
            if size:
                yield at, at + size
            at += size or 1


def _runs(texts: Sequence[str]) -> set[str]:
    """The runs of characters that are words or names: level by level, a run is counted only where both its shorter runs were frequent."""
    if not texts:
        return set()
    single = Counter(character for text in texts for character in text)
    total = magnitude(single.total())
    known: dict[str, int] = dict(single)
    frequent = {character for character, count in single.items() if count >= LEAST_COUNT}
    found: dict[str, int] = {}
    for size in range(2, LETTERS * 2 + 1):
        counts: Counter[str] = Counter()
        for text in texts:
            for at in range(len(text) - size + 1):
                run = text[at : at + size]
                if run[:-1] in frequent and run[1:] in frequent:
                    counts[run] += 1
        frequent = {run for run, count in counts.items() if count >= LEAST_COUNT}
        if not frequent:
            break
        known |= {run: counts[run] for run in frequent}
        found |= {run: counts[run] for run in frequent if _holds_together(run, counts[run], known, total)}
    free = _free(found, texts)
    return _of_their_own({run: found[run] for run in free})


def _holds_together(run: str, count: int, known: dict[str, int], total: int) -> bool:
    return all(math.log2(count * total / (known[run[:cut]] * known[run[cut:]])) >= COHESION for cut in range(1, len(run)))


def _free(found: dict[str, int], texts: Sequence[str]) -> list[str]:
    """Those with different neighbours on both sides; the edge of a text is a new one each time."""
    sides: dict[str, tuple[set[str], set[str]]] = {run: (set(), set()) for run in found}
    sizes = sorted({len(run) for run in found})
    edge = 0
    for text in texts:
        for at in range(len(text)):
            for size in sizes:
                run = text[at : at + size]
                if len(run) == size and run in sides:
                    edge += 1
                    sides[run][0].add(text[at - 1] if at else f"^{edge}")
                    sides[run][1].add(text[at + size] if at + size < len(text) else f"${edge}")
    return [run for run, (before, after) in sides.items() if len(before) >= FREE and len(after) >= FREE]


def _of_their_own(found: dict[str, int]) -> set[str]:
    """Without those that nearly always stand inside one longer one."""
    kept = set(found)
    for run in sorted(found, key=lambda run: (-len(run), run)):
        for part in {run[a:b] for a in range(len(run)) for b in range(a + 2, len(run) + 1)} - {run}:
            if part in kept and found[run] >= INSIDE_ANOTHER * found[part]:
                kept.discard(part)
    return kept
