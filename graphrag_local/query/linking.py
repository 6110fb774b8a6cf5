"""From the words of a question to the passages that are *about* what it names. No model; built once per generation.

A passage is about the title of its document, about the subject that its first sentence begins with, and about an entity that either of them names.
Names that differ are tied where one is a shorter form of the other, an entity's other spelling, another inflection, or a misspelling.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from graphrag_local.query.lexicon import Floats, Found, Ints, Names, Texts
from graphrag_local.query.spelling import Spellings
from graphrag_local.query.view import View
from graphrag_local.records import Chunk, Entity
from graphrag_local.text import INSIDE, PlacedWord, also_called, defines, heads, phrases, placed_words, sentences

SHORT = 3  # a document of at most so many chunks is about its subject in all of them, a longer one where the question says
BY_TITLE, BY_PART, BY_HEAD = 1.0, 0.5, 0.9
ALIKE = 0.8  # of a tie by inflection
MOST_ABOUT = 8  # documents about one name; what begins more of them is no subject ("Chapter", a speaker)
MOST_WORDS = 6  # of a name that has shorter forms
RARE = 0.8  # of a single word that is another name for the subject of a text
MOST_TIES = 6  # names that one name is taken for; what could be more is no name to go by


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Lists of (number, weight) by name, in three arrays."""

    begin: NDArray[np.int64]
    target: Ints
    weight: Floats

    @classmethod
    def of(cls, lists: dict[int, dict[int, float]], count: int) -> "Rows":
        """The rows of a dictionary, for names 0 to `count` - 1."""
        lengths = np.zeros(count, np.int64)
        flat: list[tuple[int, float]] = []
        for number in sorted(lists):
            lengths[number] = len(lists[number])
            flat += sorted(lists[number].items())
        begin = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        return cls(begin=begin, target=np.array([t for t, _ in flat], np.int32), weight=np.array([w for _, w in flat], np.float32))

    def row(self, number: int) -> list[tuple[int, float]]:
        """The list of one name."""
        begin, end = self.begin[number], self.begin[number + 1]
        return list(zip(self.target[begin:end].tolist(), self.weight[begin:end].tolist(), strict=True))


class Links:
    """The names of a generation, what is about them, where they stand, and how a question's words reach them.

    Targets are numbers of chunks; ~n stands for all chunks of the long document n (see `chunks_of`).
    """

    def __init__(self, view: View, rules: Rules) -> None:
        self.rules = rules
        self.texts = Texts(view.chunks.values())
        self.names = Names(self.texts)
        self.chunks_of: list[list[int]] = []  # of each long document, in the order of the text
        self._about: dict[int, dict[int, float]] = defaultdict(dict)
        self._ties: dict[int, dict[int, float]] = defaultdict(dict)
        self._subjects(view)
        self._entities(view.entities.values())
        self._named()
        if rules.ties:
            self._short_forms()
        self.names.close()
        count = len(self.names.keys)
        self.spellings = Spellings(self.names.keys, sorted(self._about))
        if rules.ties:
            self._other_forms(count)
        self._shared()
        self.about, self.ties = Rows.of(self._about, count), Rows.of(self._ties, count)
        self.reaches = np.diff(self.about.begin) + np.diff(self.ties.begin) > 0
        self._occurrences()

    # --- what passages are about

    def _subjects(self, view: View) -> None:
        chunks: dict[str, list[Chunk]] = defaultdict(list)
        for chunk in self.texts.chunks:
            chunks[chunk.document_id].append(chunk)
        for owner in sorted(chunks):
            own = sorted(chunks[owner], key=lambda chunk: chunk.index)
            numbers = [self.texts.number[chunk.id] for chunk in own]
            if len(own) > SHORT:
                self.chunks_of.append(numbers)
                targets = {~(len(self.chunks_of) - 1): 1.0}
            else:
                targets = {number: 1.0 / (1 + place / 2) for place, number in enumerate(numbers)}
            if self.rules.titles:
                for words, weight in titles(view.title(owner)):
                    self._add_about(words, targets, weight)
            if self.rules.heads:
                for words, weight in self._heads(own):
                    self._add_about(words, targets, weight)

    def _heads(self, own: Sequence[Chunk]) -> Iterator[tuple[list[str], float]]:
        text = own[0].text
        begin, end = next(iter(sentences(text[:2000])), (0, 0))
        sentence = text[begin:end]
        for a, b in heads(sentence):
            words = placed_words(sentence[a:b])
            if words[0].key in self.texts and not any(word.capital for word in words[1:]):
                continue  # "In the morning", "He"
            if len(own) <= SHORT or defines(sentence, b):
                yield [word.key for word in words], BY_HEAD
        if len(own) <= SHORT:
            for a, b in also_called(sentence):
                words = placed_words(sentence[a:b])
                if len(words) > 1 or self.texts.rarity(words[0].key) > RARE:
                    yield [word.key for word in words], BY_PART

    def _add_about(self, words: Iterable[str], targets: dict[int, float], weight: float) -> None:
        key = self.names.bare(words)
        if not key or (len(key) == 1 and (key[0] in self.texts or len(key[0]) < 2)):
            return
        name = self.names.add(key)
        if name >= 0:
            own = self._about[name]
            for target, share in targets.items():
                own[target] = max(own.get(target, 0.0), share * weight)

    # --- other names

    def _entities(self, entities: Iterable[Entity]) -> None:
        for entity in sorted(entities, key=lambda entity: entity.id):
            forms = []
            for surface in (entity.name, *entity.aliases):
                words = placed_words(surface)
                if any(word.capital or word.bare for word in words) and not (len(words) == 1 and words[0].key in self.texts):
                    forms.append(self.names.add(word.key for word in words))
            known = sorted({form for form in forms if form >= 0})
            if self.rules.ties:
                for form in known:
                    self._ties[form].update({other: 1.0 for other in known if other != form and other in self._about})

    def _named(self) -> None:
        """Names as the texts write them: an index may have no entities, or only those of some types."""
        for chunk in self.texts.chunks:
            words = placed_words(chunk.text)
            starts = {word.start: place for place, word in enumerate(words)}
            for begin, end in phrases(chunk.text, self.texts, words):
                first = starts.get(begin)
                if first is not None:
                    last = first
                    while last < len(words) and words[last].start < end:
                        last += 1
                    self.names.add(word.key for word in words[first:last])

    def _short_forms(self) -> None:
        for number in sorted(self._about):
            for form in shorter(self.names.keys[number], initials=True):
                if form != self.names.keys[number] and all(word not in self.texts for word in form if word not in INSIDE):
                    self._tie(self.names.add(form), number, 1.0)

    def _other_forms(self, count: int) -> None:
        for number, key in enumerate(self.names.keys[:count]):
            if number in self._about or number in self._ties:
                continue
            for other in self._known(shorter(key)):
                self._tie(number, other, 1.0)
            for other in self.spellings.inflected(key):
                self._tie(number, other, ALIKE)

    def _known(self, forms: Iterable[tuple[str, ...]]) -> list[int]:
        numbers = (self.names.number.get(self.names.bare(form), -1) for form in forms)
        return sorted({number for number in numbers if number in self._about})

    def _tie(self, name: int, other: int, weight: float) -> None:
        if name >= 0 and name != other:
            self._ties[name][other] = max(self._ties[name].get(other, 0.0), weight)

    def _shared(self) -> None:
        """The weight of what is about a name in several passages, and of a name that may be several, is shared."""
        for own in self._about.values():
            if len(own) > MOST_ABOUT * SHORT:
                own.clear()
            short = max(1, sum(1 for target in own if target >= 0 and own[target] > BY_PART))
            for target in own:
                own[target] /= math.sqrt(short)
        for name, own in list(self._ties.items()):
            if len(own) > MOST_TIES or not own:
                del self._ties[name]
            for target in own:
                own[target] /= len(own)

    # --- where names stand

    def _occurrences(self) -> None:
        texts, names = self.texts, self.names
        found = names.find(texts.tokens)
        end = found.start + found.length
        total = np.concatenate((np.zeros(1, np.int64), np.cumsum(texts.capital)))
        last = texts.capital[end - 1]
        written = np.where(names.usual[found.phrase], texts.capital[found.start] & last, total[end] > total[found.start])
        found = found.where(written & names.spaced[found.phrase])
        leading = found.where(self.reaches[found.phrase]).longest()
        every = found.longest()
        start = np.concatenate((every.start, leading.start))
        phrase = np.concatenate((every.phrase, leading.phrase))
        length = np.concatenate((every.length, leading.length))
        _, first = np.unique(start * len(names.keys) + phrase, return_index=True)
        self.found = Found(start=start[first], length=length[first], phrase=phrase[first])
        self.found_begin = np.searchsorted(self.found.start, texts.begin)
        chunk = texts.chunk_of[self.found.start].astype(np.int64)
        pairs = np.unique(self.found.phrase.astype(np.int64) * max(1, len(texts.chunks)) + chunk)
        owner, self.mention_chunk = pairs // max(1, len(texts.chunks)), (pairs % max(1, len(texts.chunks))).astype(np.int32)
        self.mention_begin = np.searchsorted(owner, np.arange(len(names.keys) + 1))
        df = np.diff(self.mention_begin)
        count = len(texts.chunks)
        self.idf: Floats = (np.log1p(count / (1 + df)) / math.log1p(max(1, count) / 2)).astype(np.float32)

    # --- what a question names

    def seeds(self, words: Sequence[PlacedWord], question: str) -> list[Seed]:
        """What a question names, the most certain first; words that name nothing are tried as other forms and misspellings."""
        known = self.texts.vocabulary
        found = self.names.find(np.array([known.get(word.key, 0) for word in words], np.int32))
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
            others = self._known(shorter(self.names.bare(words[place].key for place in span)))
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


def titles(title: str) -> Iterator[tuple[list[str], float]]:
    """The names in a title: all of it, without what stands in brackets, and what stands before a comma."""
    plain = title
    for opening, closing in ("()", "（）", "[]"):
        while opening in plain and closing in plain[plain.index(opening) :]:
            at = plain.index(opening)
            plain = plain[:at] + " " + plain[plain.index(closing, at) + 1 :]
    part = plain.replace("،", ",").replace("，", ",").partition(",")[0]
    for text, weight in ((title, BY_TITLE), (plain, BY_TITLE), (part, BY_PART)):
        words = [word.key for word in placed_words(text)]
        if words and (weight == BY_TITLE or len(words) > 1):
            yield words, weight


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
