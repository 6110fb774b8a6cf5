"""The ranking that questions over several passages need: question -> passages about what it names -> passages about the names in those.

One step of expansion ("bridge") from the best passages, weighted by words of the question that stand near a name there. Measured against
personalised PageRank over the same graph it ranks as well, touches only a few passages, and shows its path. Similarity of texts keeps
reserved places, and all of them where the question names nothing that the collection is about.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphrag_local.query.arrays import Flags
from graphrag_local.query.lexicon import CUE_LETTERS
from graphrag_local.query.linking import Links
from graphrag_local.text import placed_words

Scores = NDArray[np.float64]
FRONTS = 8  # passages from which names are followed
LINKED, FUSED = 5, 3  # places of the linked and of the fused ranking, in turns
DENSE = 0.1  # what similarity adds to a link
BRIDGE = 0.8  # a passage reached over another one counts so much of it
MORE = 0.02  # for each further way to a passage
CUE, MOST_CUES = 3.0, 2  # a name beside words of the question counts so much more for each, at most two
BEFORE, AFTER = 6, 3  # words beside a name that count as near
MENTIONED = 6  # passages that stand for a name which none is about
MENTION = 0.3  # what a bridge to such a passage counts
SHORT = 64  # chunks, up to which it is quicker to go through them one by one
EDGES = 40  # names followed from one passage
IN_DOCUMENT = 8  # passages of a long document that stand for it
COMMON = 0.3  # rarity of a word that says nothing about a relation
COVERED = 0.2  # least share of the question's words, by rarity, that name what the collection is about


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Why a passage is there: the name that led to it, and the passage in which that name stands ("" for the question)."""

    name: str
    via: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """Chunks by links, best first; of each the name that led to it and the chunk in which that stands, -1 for the question. `covered` is the share of the
    question that names what the collection is about."""

    order: tuple[int, ...]
    why: dict[int, tuple[int, int]]
    covered: float


class Reasons(Mapping[str, Step]):
    """Why chunks are there, by their ids; written when it is asked for, since few of the many that links lead to are read."""

    def __init__(self, why: Mapping[int, tuple[int, int]], links: Links) -> None:
        self._why, self._links = why, links

    def __getitem__(self, chunk_id: str) -> Step:
        phrase, front = self._why[self._links.texts.ids.number(chunk_id)]
        return Step(name=" ".join(self._links.names.key(phrase)), via=self._links.texts.ids[front] if front >= 0 else "")

    def __len__(self) -> int:
        return len(self._why)

    def __iter__(self) -> Iterator[str]:
        return map(self._links.texts.ids.__getitem__, self._why)


class Walk:
    """One question on its way through the links of a generation. `dense` are scores of all chunks by similarity, the best 1."""

    def __init__(self, links: Links, question: str, dense: Scores) -> None:
        self.links, self.dense = links, dense
        known = dense.nonzero()[0]
        self.near = dict(zip(known.tolist(), dense[known].tolist(), strict=True))  # what is not 0 of it, which is little
        self.words = placed_words(question)
        self.seeds = links.seeds(self.words, question)
        self.why: dict[int, tuple[int, int]] = {}
        self._passages: dict[tuple[int, float], list[tuple[int, float]]] = {}

    def linked(self) -> Linked:
        """The chunks that links lead to."""
        first = self._first()
        covered = self._covered()
        if not first:
            return Linked(order=(), why={}, covered=covered)
        score = {chunk: DENSE * similar for chunk, similar in self.near.items()}
        for chunk, value in first.items():
            score[chunk] = score.get(chunk, 0.0) + value
        top = max(score.values())
        score = {chunk: value / top for chunk, value in score.items()}
        reached = self._bridged(score) if self.links.rules.bridge else {}
        final = {chunk: max(score[chunk], BRIDGE * reached.get(chunk, 0.0)) + MORE * reached.get(chunk, 0.0) for chunk in score}
        final |= {chunk: (BRIDGE + MORE) * value for chunk, value in reached.items() if chunk not in final}
        order = sorted((chunk for chunk in final if chunk in first or chunk in reached), key=lambda chunk: (-round(final[chunk], 9), chunk))
        return Linked(order=tuple(order), why=self.why, covered=covered)

    def _first(self) -> dict[int, float]:
        """What the question names, as scores of chunks: the best way counts, and a fifth of each further one."""
        found: dict[int, list[float]] = {}
        for seed in self.seeds:
            weight = seed.weight if self.links.reaches[seed.phrase] else seed.weight * (0.3 + 0.7 * float(self.links.idf[seed.phrase]))
            for chunk, value in self.passages(seed.phrase, 1.0):
                found.setdefault(chunk, []).append(weight * value)
                self.why.setdefault(chunk, (seed.phrase, -1))
        return {chunk: max(values) + 0.2 * (math.fsum(values) - max(values)) for chunk, values in found.items()}

    def passages(self, phrase: int, mention: float) -> list[tuple[int, float]]:
        """The chunks about a name, by its own row and those of the names it may stand for; else chunks that mention it, times `mention`."""
        key = phrase, mention
        if key not in self._passages:
            self._passages[key] = (self._about(phrase) if self.links.reaches[phrase] else []) or self._mentioning(phrase, mention)
        return self._passages[key]

    def _about(self, phrase: int) -> list[tuple[int, float]]:
        links = self.links
        rows = [(target, weight) for target, weight in links.about.row(phrase)]
        for other, share in links.ties.row(phrase):
            rows += [(target, weight * share) for target, weight in links.about.row(other)]
        best: dict[int, float] = {}
        for target, weight in rows:
            for chunk, part in self._opened(target):
                best[chunk] = max(best.get(chunk, 0.0), weight * part)
        return sorted(best.items())

    def _mentioning(self, phrase: int, mention: float) -> list[tuple[int, float]]:
        chunks = self.links.mentions.row(phrase)
        share = mention / math.sqrt(max(1, len(chunks)))
        if len(chunks) <= MENTIONED:
            return [(chunk, share) for chunk in chunks.tolist()]
        if len(chunks) <= SHORT:
            near = [chunk for chunk in chunks.tolist() if chunk in self.near]
        else:
            near = chunks[self.dense[chunks].nonzero()[0]].tolist()
        return [(chunk, share) for chunk in sorted(near, key=self.near.__getitem__, reverse=True)[:MENTIONED]]

    def _opened(self, target: int) -> list[tuple[int, float]]:
        """A target as chunks: of a long document those most similar to the question, else its first."""
        if target >= 0:
            return [(target, 1.0)]
        chunks = self.links.chunks_of.row(~target).tolist()
        similar = self.dense[chunks]
        top = float(similar.max())
        if top <= 0:
            return [(chunks[0], 0.5)]
        order = np.argsort(-similar, kind="stable")[:IN_DOCUMENT].tolist()
        return [(chunks[place], float(similar[place]) / top) for place in order if similar[place] > 0]

    def _covered(self) -> float:
        """How much of the question, its words weighed by rarity, names what the collection is about."""
        rarity = [self.links.texts.rarity(word.key) for word in self.words]
        named = {place for seed in self.seeds if self.links.reaches[seed.phrase] for place in range(seed.begin, seed.end)}
        return math.fsum(rarity[place] for place in sorted(named)) / (math.fsum(rarity) or 1.0)

    # --- the bridge

    def _bridged(self, score: dict[int, float]) -> dict[int, float]:
        """Scores of chunks about names that stand in the best chunks."""
        links = self.links
        fronts = sorted(score, key=lambda chunk: (-round(score[chunk], 9), chunk))[:FRONTS]
        own = {seed.phrase for seed in self.seeds}
        own |= {other for seed in self.seeds for other, _ in links.ties.row(seed.phrase)}
        cues = self._cues()
        best: dict[int, float] = {}
        more: dict[int, float] = {}
        for front in fronts:
            for phrase, x in self._edges(front, own, cues):
                for chunk, part in self.passages(phrase, MENTION):
                    if chunk == front:
                        continue
                    value = score[front] * x * part
                    more[chunk] = more.get(chunk, 0.0) + value
                    if value > best.get(chunk, 0.0):
                        best[chunk] = value
                        if chunk not in self.why:
                            self.why[chunk] = phrase, front
        return {chunk: value + MORE * (more[chunk] - value) for chunk, value in best.items()}

    def _edges(self, front: int, own: set[int], cues: Flags) -> list[tuple[int, float]]:
        """The names in a chunk with their weights, the greatest 1: rare ones, and those beside words of the question."""
        links, texts = self.links, self.links.texts
        begin, end = links.found_begin[front], links.found_begin[front + 1]
        phrase, start, length = (column[begin:end] for column in (links.found.phrase, links.found.start, links.found.length))
        if not phrase.size:
            return []
        weight = links.idf[phrase].astype(np.float64)
        if links.rules.cues:
            low, high = int(texts.begin[front]), int(texts.begin[front + 1])
            hit = np.concatenate((np.zeros(1, np.int64), np.cumsum(cues[texts.stem[texts.tokens[low:high]]])))
            left = np.maximum(start - low - BEFORE, 0)
            right = np.minimum(start - low + length + AFTER, high - low)
            weight *= 1 + CUE * np.minimum(hit[right] - hit[left], MOST_CUES)
        keep = ~np.isin(phrase, list(own))
        phrase, weight = phrase[keep], weight[keep]
        if not phrase.size or weight.max() <= 0:
            return []
        leads = links.reaches[phrase]
        weight /= weight[leads].max() if leads.any() else weight.max()
        weight = np.minimum(weight, 1.0)
        strongest = np.lexsort((phrase, -weight, ~leads))
        _, first = np.unique(phrase[strongest], return_index=True)
        chosen = strongest[np.sort(first)][:EDGES]
        return list(zip(phrase[chosen].tolist(), weight[chosen].tolist(), strict=True))

    def _cues(self) -> Flags:
        """Which beginnings of words are those of question words that name nothing and are not in every other chunk."""
        texts = self.links.texts
        flags = np.zeros(len(texts.stems), bool)
        named = {place for seed in self.seeds for place in range(seed.begin, seed.end)}
        for place, word in enumerate(self.words):
            stem = texts.stems.number(word.key[:CUE_LETTERS])
            if place not in named and stem >= 0 and (len(word.key) > 2 or word.bare) and texts.rarity(word.key) > COMMON:
                flags[stem] = True
        return flags


def placed(linked: Linked, fused: Sequence[int], k: int) -> list[int]:
    """The k best of both rankings: five linked, three fused, and so on; what one lacks the other fills."""
    order: dict[int, None] = {}
    by_link, by_text = iter(linked.order), iter(fused)
    while len(order) < k:
        size = len(order)
        _take(order, by_link, LINKED)
        _take(order, by_text, FUSED)
        if len(order) == size:
            break
    return list(order)[:k]


def _take(order: dict[int, None], source: Iterator[int], count: int) -> None:
    for chunk in source:
        if chunk not in order:
            order[chunk] = None
            count -= 1
            if not count:
                return
