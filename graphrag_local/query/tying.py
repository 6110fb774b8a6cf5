"""How the links of `linking` are made: from the texts of a generation, the titles of its documents and the names of its entities. No model."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from graphrag_local.query.arrays import Arrays, Flags, Lists, Rows, above
from graphrag_local.query.lexicon import Found, Names, ReadNames, ReadTexts
from graphrag_local.query.linking import Links, Rules, shorter
from graphrag_local.query.opening import also_called, defines, heads, sections, title_lines
from graphrag_local.query.spelling import Spellings, beginning, begun_alike, inflections
from graphrag_local.query.view import View
from graphrag_local.records import Chunk, Entity
from graphrag_local.text import INSIDE, PlacedWord, phrases, placed_words, sentences

SHORT = 3  # a document of at most so many chunks is about its subject in all of them, a longer one where the question says
BY_TITLE, BY_PART, BY_HEAD = 1.0, 0.5, 0.9
ALIKE = 0.8  # of a tie by inflection
MOST_ABOUT = 8  # documents about one name; what begins more of them is no subject ("Chapter", a speaker)
RARE = 0.8  # of a single word that is another name for the subject of a text
MOST_TIES = 6  # names that one name is taken for; what could be more is no name to go by


def tied(view: View, rules: Rules) -> Links:
    """The links of a generation under other rules than those by which they are kept."""
    return Links(Tying(view, rules).kept(), rules)


class Tying:
    """One making of links."""

    def __init__(self, view: View, rules: Rules) -> None:
        self.rules = rules
        self.texts = ReadTexts(view.chunks.values())
        self.names = ReadNames(self.texts)
        self.chunks_of: list[list[int]] = []
        self._about: dict[int, dict[int, float]] = defaultdict(dict)
        self._ties: dict[int, dict[int, float]] = defaultdict(dict)
        self._subjects(view)
        self._entities(view.entities.values())
        self._named()
        if rules.ties:
            self._short_forms()
            self._other_forms()
        self._by_name = self._entity_numbers(view.entities.values())

    def kept(self) -> Arrays:
        """The arrays of the links."""
        count = len(self.names.keys)
        subjects = np.zeros(count, bool)
        subjects[sorted(self._about)] = True
        spellings = Spellings.kept(self.names.keys, sorted(self._about))
        self._shared()
        about, ties = Rows.kept(self._about, count), Rows.kept(self._ties, count)
        reaches = np.diff(about["begin"]) + np.diff(ties["begin"]) > 0
        names = self.names.kept()
        return {
            **above("names", names),
            **above("texts", {**self.texts.kept, **above("vocabulary", self.texts.words.kept())}),
            **above("spellings", spellings),
            **above("chunks_of", Lists.kept(self.chunks_of)),
            "subjects": subjects,
            **above("about", about),
            **above("ties", ties),
            "reaches": reaches,
            **self._occurrences(Names(names, self.texts), reaches),
            **above("entities", self._by_name),
        }

    # --- what passages are about

    def _subjects(self, view: View) -> None:
        chunks: dict[str, list[Chunk]] = defaultdict(list)
        for chunk in self.texts.chunks:
            chunks[chunk.document_id].append(chunk)
        for owner in sorted(chunks):
            own = sorted(chunks[owner], key=lambda chunk: chunk.index)
            numbers = [self.texts.number_of[chunk.id] for chunk in own]
            if len(own) > SHORT:
                self.chunks_of.append(numbers)
                targets = {~(len(self.chunks_of) - 1): 1.0}
            else:
                targets = {number: 1.0 / (1 + place / 2) for place, number in enumerate(numbers)}
            named = [*titles(view.title(owner))] if self.rules.titles else []
            named += self._opening(own[0].text, short=len(own) <= SHORT)
            for words, weight in named:
                self._add_about(words, targets, weight)
            self._sections(own, [words for words, _ in named])

    def _sections(self, own: Sequence[Chunk], whole: Sequence[list[str]]) -> None:
        """What the parts of a document are about, where each has a title; one that comes again is no title (who speaks)."""
        found: dict[tuple[str, ...], dict[tuple[int, int], float]] = defaultdict(dict)
        for chunk in own:
            for begin in sections(chunk.text):
                for words, weight in self._opening(chunk.text[begin:], short=False):
                    if words not in whole:
                        found[tuple(words)][self.texts.number_of[chunk.id], begin] = weight
        for name, places in found.items():
            if len(places) == 1:
                self._add_about(name, {number: 1.0 for number, _ in places}, *places.values())

    def _opening(self, text: str, *, short: bool) -> Iterator[tuple[list[str], float]]:
        """The names that a text begins with, as its title and as the subject of its first sentence."""
        lines, start = title_lines(text)
        for line in lines if self.rules.titles else ():
            if self._names_something(placed_words(line)):
                for written, weight in titles(line):
                    yield written, weight * BY_HEAD
        text = text[start : start + 2000]
        begin, end = next(iter(sentences(text)), (0, 0))
        sentence = text[begin:end] if self.rules.heads else ""
        for a, b in heads(sentence):
            words = placed_words(sentence[a:b])
            if self._names_something(words) and (short or defines(sentence, b)):
                yield [word.key for word in words], BY_HEAD
        if short:
            for a, b in also_called(sentence):
                words = placed_words(sentence[a:b])
                if len(words) > 1 or self.texts.rarity(words[0].key) > RARE:
                    yield [word.key for word in words], BY_PART

    def _names_something(self, words: Sequence[PlacedWord]) -> bool:
        """Not "In the morning", "He"."""
        return words[0].key not in self.texts or any(word.capital for word in words[1:])

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
                    for other in known:
                        if other in self._about:
                            self._tie(form, other, 1.0)

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

    def _other_forms(self) -> None:
        begun = begun_alike(self.names.keys, sorted(self._about))
        for number, key in enumerate(self.names.keys):
            if number in self._about or number in self._ties:
                continue
            for other in self._known(shorter(key)):
                self._tie(number, other, 1.0)
            for other in inflections(key, begun.get(beginning(key), ()), self.names.keys.__getitem__):
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

    def _occurrences(self, names: Names, reaches: Flags) -> Arrays:
        texts, count = self.texts, len(self.texts.chunks)
        found = names.find(texts.tokens)
        end = found.start + found.length
        total = np.concatenate((np.zeros(1, np.int64), np.cumsum(texts.capital)))
        last = texts.capital[end - 1]
        written = np.where(names.usual[found.phrase], texts.capital[found.start] & last, total[end] > total[found.start])
        found = found.where(written & self.names.spaced()[found.phrase])
        leading = found.where(reaches[found.phrase]).longest()
        every = found.longest()
        start = np.concatenate((every.start, leading.start))
        phrase = np.concatenate((every.phrase, leading.phrase))
        length = np.concatenate((every.length, leading.length))
        _, first = np.unique(start * len(names) + phrase, return_index=True)
        found = Found(start=start[first], length=length[first], phrase=phrase[first])
        pairs = np.unique(found.phrase.astype(np.int64) * max(1, count) + texts.chunk_of[found.start])
        begin = np.searchsorted(pairs // max(1, count), np.arange(len(names) + 1))
        return {
            "found.start": found.start,
            "found.length": found.length,
            "found.phrase": found.phrase,
            "found_begin": np.searchsorted(found.start, texts.begin),
            "mentions.begin": begin,
            "mentions.target": (pairs % max(1, count)).astype(np.int32),
            "idf": (np.log1p(count / (1 + np.diff(begin))) / math.log1p(max(1, count) / 2)).astype(np.float32),
        }

    def _entity_numbers(self, entities: Iterable[Entity]) -> Arrays:
        """The numbers of the entities that have a name, in the order of their ids."""
        found: list[list[int]] = [[] for _ in self.names.keys]
        for number, entity in enumerate(sorted(entities, key=lambda entity: entity.id)):
            keys = {self.names.bare(word.key for word in placed_words(surface)) for surface in (entity.name, *entity.aliases)}
            for name in sorted({self.names.number.get(key, -1) for key in keys} - {-1}):
                found[name].append(number)
        return Lists.kept(found)


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
