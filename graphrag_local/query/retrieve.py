"""Which records are nearest a question: by vectors, by words, and passages also by links. No model call; every order is total.

Words and vectors are fused by reciprocal rank (Cormack, Clarke and Büttcher 2009, k = 60), which needs no scales to agree.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, pairwise
from typing import Any, Self

import numpy as np

from graphrag_local.answers import Hit
from graphrag_local.engine.base import Embedder
from graphrag_local.query.arrays import Arrays, Flags, Ids, Ints, Kept, Strings, above, below
from graphrag_local.query.cite import first_source
from graphrag_local.query.context import Ref
from graphrag_local.query.lexicon import Counted
from graphrag_local.query.linking import ALL, Links, Rules
from graphrag_local.query.ranking import COVERED, Linked, Reasons, Step, Walk, placed
from graphrag_local.query.tongues import reached
from graphrag_local.query.tying import Tying, tied
from graphrag_local.query.view import Index as Index
from graphrag_local.query.view import Part, Shelf, VectorKind, View, remembered, view_of
from graphrag_local.records import Chunk, Report
from graphrag_local.text import words

FUSION_K = 60
DEPTH = 5  # each ranking is read this many times as deep as the fused one
LEAST_DEPTH = 100  # and this deep at least where links start from it
DEAR = 4  # before a word that more than a quarter of the texts have it is asked whether it is needed
FEW = 20  # texts, for each that is wanted, which are looked at one by one
Scored = list[tuple[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """Ids with scores, best first, what there is to say about how they were found, and why those that links led to are there.

    `rankings` are what they were made of, each best first and longer than `hits`.
    """

    hits: Scored
    notes: tuple[str, ...] = ()
    why: Mapping[str, Step] = field(default_factory=dict)
    rankings: dict[str, Scored] = field(default_factory=dict)


class WordIndex:
    """BM25 over texts by id. Scripts without spaces are indexed by characters and pairs of them, and asked by pairs."""

    def __init__(self, kept: Kept) -> None:
        self.owners = Ids(kept["owners"])
        self.words = Strings(below(kept, "words"))
        self._begin, self._text, self._score, self._most = kept["begin"], kept["text"], kept["score"], kept["most"]

    @classmethod
    def of(cls, texts: Iterable[tuple[str, str]]) -> Self:
        """The index of these texts by their ids."""
        return cls(cls.kept(texts))

    @staticmethod
    def kept(texts: Iterable[tuple[str, str]]) -> Arrays:
        """The arrays: for each word the texts that have it, by number, what it adds to their scores, and the most that it adds to any."""
        import bm25s  # takes longer than a question, which needs the arrays alone

        words, owners, listed = Counted(), list[str](), list[list[int]]()
        for owner, text in sorted(texts):
            found = [words.add(term) for term in terms(text)]
            if found:
                owners.append(owner)
                listed.append(found)
        scores = {"data": np.zeros(0, np.float32), "indices": np.zeros(0, np.int32), "indptr": np.zeros(1, np.int32)}
        if owners:
            bm25 = bm25s.BM25(method="lucene")
            bm25.index((listed, dict(words.known)), show_progress=False)
            scores = bm25.scores
        flat: Arrays = {"begin": scores["indptr"].astype(np.int64), "text": scores["indices"].astype(np.int32), "score": scores["data"].astype(np.float32)}
        flat["most"] = np.maximum.reduceat(flat["score"], flat["begin"][:-1]) if owners else flat["score"]
        return {"owners": Ids.of(owners), **above("words", words.kept()), **flat}

    def texts(self, word: int) -> Ints:
        """The numbers of the texts that have a word, in order."""
        return self._text[self._begin[word] : self._begin[word + 1]]

    def best(self, question: str, k: int, among: Flags | None = None) -> Scored:
        """The k texts, of some or of all, that share most with a question; those that share nothing are not among them."""
        asked = [word for word in dict.fromkeys(map(self.words.number, terms(question, pairs_only=True))) if word >= 0]
        likely = self._likely(asked, k, among)
        scores = np.zeros(len(likely), np.float32)
        for word in asked:
            own = slice(self._begin[word], self._begin[word + 1])
            place = np.minimum(np.searchsorted(self._text[own], likely), own.stop - own.start - 1)
            here = self._text[own][place] == likely
            scores[here] += self._score[own][place[here]]
        order = np.argsort(-scores, kind="stable")[:k]  # numbers of equal scores are in the order of their ids
        return [(self.owners[number], score) for number, score in zip(likely[order].tolist(), scores[order].tolist(), strict=True)]

    def _likely(self, asked: Sequence[int], k: int, among: Flags | None) -> Ints:
        """The texts that may be among the best k, in order.

        Words of few texts first: as soon as what the others can add at most would lift no more than some texts among the best k, those are all there
        is to look at. (The idea of MaxScore, Turtle and Flood 1995.)
        """
        most, size = self._most[asked].astype(np.float64), self._begin[np.array(asked, np.int64) + 1] - self._begin[asked]
        rest = float(most.sum())
        unsure = 4 * len(asked) * float(np.finfo(np.float32).eps) * rest  # of sums in single precision, in another order
        scores, least, floor = np.zeros(len(self.owners), np.float32), rest / 2, 0.0
        likely = np.zeros(0, np.int64)
        for place in [*np.argsort(size, kind="stable").tolist(), -1]:
            if place < 0 or (size[place] * DEAR > len(scores) and rest < least):
                likely = np.flatnonzero(scores > floor if among is None else (scores > floor) & among)
                if len(likely) > k:
                    least = float(np.partition(scores[likely], len(likely) - k)[len(likely) - k])
                    floor = max(floor, least - rest - unsure)
                    likely = likely[scores[likely] > floor]
                    if len(likely) <= FEW * k and least > rest + unsure:
                        break
            if place >= 0:
                own = slice(self._begin[asked[place]], self._begin[asked[place] + 1])
                scores[self._text[own]] += self._score[own]  # each text once
                rest -= float(most[place])
        return likely.astype(np.int32)


def terms(text: str, *, pairs_only: bool = False) -> Iterator[str]:
    """The words of a text; of a run of single characters of a script without spaces the characters and their pairs (`pairs_only`: not the
    characters, where there are pairs)."""
    if text.isascii():  # the same, quicker
        yield from words(text)
        return
    run: list[str] = []
    for word in [*words(text), ""]:
        if len(word) == 1 and word >= "\u1100" and word.isalpha():
            run.append(word)
            continue
        yield from (a + b for a, b in pairwise(run))
        if not pairs_only or len(run) == 1:
            yield from run
        run = []
        if word:
            yield word


def fused(*rankings: Scored) -> Scored:
    """Rankings as one: each id scores 1 / (60 + place) in every ranking that has it."""
    scores: dict[str, float] = {}
    for ranking in rankings:
        for place, (owner, _) in enumerate(ranking, 1):
            scores[owner] = scores.get(owner, 0.0) + 1 / (FUSION_K + place)
    return sorted(scores.items(), key=_best_first)


def _best_first(pair: tuple[str, float]) -> tuple[float, str]:
    return -pair[1], pair[0]


async def vector_of(question: str, embedder: Embedder) -> list[float] | None:
    """The question's vector, None where there is no embedder."""
    return (await embedder.embed([question], query=True))[0] if embedder.card.dimension else None


def nearest(view: View, kind: VectorKind, vector: Sequence[float] | None, k: int) -> Scored:
    """The k records of a kind nearest to a vector, those left out that the index no longer has."""
    shelves: dict[VectorKind, Shelf[Any]] = {"chunk": view.chunks, "entity": view.entities, "report": view.reports}
    found = view.index.near(kind, vector, k) if vector is not None else []
    known = shelves[kind].ids.numbers([owner for owner, _ in found]) >= 0
    return sorted(compress(found, known), key=_best_first)


async def rank_chunks(question: str, view: View, embedder: Embedder, k: int, rules: Rules = ALL) -> Ranked:
    """The k chunks that a question needs, best first: what `basic`, `local` and `retrieve` read.

    Where enough of the question names what the collection is about, chunks that links lead to have five of every eight places, the fused ranking of
    vectors and words the other three; elsewhere it has all of them. Where nothing is near, the first chunk of each document, in turn.
    """
    vector = await vector_of(question, embedder)
    depth = max(k * DEPTH, LEAST_DEPTH)
    rankings = {"vectors": nearest(view, "chunk", vector, depth), "words": words_of(view, CHUNK_WORDS).best(question, depth)}
    hits = rankings["fused"] = fused(rankings["vectors"], reached(question, rankings["vectors"], rankings["words"], view))
    notes = () if vector is not None else ("There is no embedder, so passages were found by words alone.",)
    links = links_of(view, rules)
    numbers = links.texts.ids.numbers([owner for owner, _ in hits]).tolist()
    linked = linked_chunks(question, links, numbers, [score for _, score in hits])
    if linked:
        ids = links.texts.ids
        rankings["links"] = [(ids[number], 1 / (FUSION_K + place)) for place, number in enumerate(linked.order[:depth], 1)]
        ranked = [(ids[number], 1 / (FUSION_K + place)) for place, number in enumerate(placed(linked, numbers, k), 1)]
        return Ranked(hits=ranked, notes=notes, why=Reasons(linked.why, links), rankings=rankings)
    if hits:
        return Ranked(hits=hits[:k], notes=notes, rankings=rankings)
    first = sorted(view.chunks.values(), key=lambda chunk: (chunk.index, _path(view, chunk), chunk.id))[:k]
    more = "No word of the question is in the documents; the beginnings of the documents were read."
    return Ranked(hits=[(chunk.id, 0.0) for chunk in first], notes=(*notes, more))


def linked_chunks(question: str, links: Links, numbers: Sequence[int], scores: Sequence[float]) -> Linked | None:
    """What links lead to, given a fused ranking of chunks, best first; None where too little of the question names what the collection is about."""
    dense = np.zeros(len(links.texts.ids))
    if numbers:
        dense[np.array(numbers)] = np.array(scores) / scores[0]
    linked = Walk(links, question, dense).linked()
    return linked if linked.order and (linked.covered >= COVERED or not links.rules.gate) else None


def links_of(view: View, rules: Rules = ALL) -> Links:
    """The names of the generation: kept with it, or made once under other rules."""
    return remembered(view.index, ("links", rules), lambda: Links(view.index.kept(LINKS), rules) if rules == ALL else tied(view, rules))


def words_of(view: View, part: Part) -> WordIndex:
    """The words of all chunks, entities or reports, kept with the generation."""
    return remembered(view.index, part.name, lambda: WordIndex(view.index.kept(part)))


def _words_of_chunks(view: View) -> Arrays:
    """Words of each chunk and of its document's title, which often has the name that the text then only calls "it"."""
    return WordIndex.kept((chunk.id, f"{view.title(chunk.document_id)} {chunk.text}") for chunk in view.chunks.values())


def _words_of_reports(view: View) -> Arrays:
    """Words of the title, the summary and the findings of each report."""

    def told(report: Report) -> str:
        return " ".join((report.title, report.summary, *(f"{finding.summary} {finding.explanation}" for finding in report.findings)))

    return WordIndex.kept((report.id, told(report)) for report in view.reports.values())


def _words_of_entities(view: View) -> Arrays:
    """Words of the name and the description of each entity."""
    return WordIndex.kept((entity.id, f"{entity.name} {entity.description}") for entity in view.entities.values())


LINKS = Part(name="links", of=("documents", "chunks", "entities"), form="3", make=lambda index: Tying(view_of(index), ALL).kept())
CHUNK_WORDS = Part(name="words-of-chunks", of=("documents", "chunks"), form="2", make=lambda index: _words_of_chunks(view_of(index)))
ENTITY_WORDS = Part(name="words-of-entities", of=("entities",), form="2", make=lambda index: _words_of_entities(view_of(index)))
REPORT_WORDS = Part(name="words-of-reports", of=("reports",), form="1", make=lambda index: _words_of_reports(view_of(index)))


def _path(view: View, chunk: Chunk) -> str:
    document = view.documents.get(chunk.document_id)
    return document.path if document else chunk.document_id


async def nearest_units(question: str, view: View, embedder: Embedder, level: int, k: int) -> list[tuple[Ref, float]]:
    """What `global` reads on a level, nearest first: written reports, and the entities of communities without one."""
    told = remembered(view.index, ("told on level", level), lambda: _told_on(view, level))
    vector = await vector_of(question, embedder)
    by_vector, by_words = list[tuple[str, float]](), list[tuple[str, float]]()
    for kind, there in told.items():
        by_words += there.words.best(question, k * DEPTH, there.texts)
        near = nearest(view, kind, vector, k * DEPTH)
        by_vector += compress(near, there.records[there.ids.numbers([owner for owner, _ in near])])
    found = fused(sorted(by_vector, key=_best_first), sorted(by_words, key=_best_first)[: k * DEPTH])
    return [(Ref(kind="report" if owner in view.reports else "entity", id=owner), score) for owner, score in found[:k]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """The records of one kind that `global` reads on a level: which they are among all of that kind, and among the texts of their words."""

    ids: Ids
    words: WordIndex
    records: Flags
    texts: Flags


def _told_on(view: View, level: int) -> dict[VectorKind, _Told]:
    own = view.on_level(level)
    report = view.shape["community.report"][own]
    members = [view.members.row(number) for number in own[report < 0].tolist()]
    groups: dict[VectorKind, tuple[Ids, WordIndex, Any]] = {"report": (view.reports.ids, words_of(view, REPORT_WORDS), report[report >= 0])}
    if members:
        groups["entity"] = view.entities.ids, words_of(view, ENTITY_WORDS), np.concatenate(members)
    found: dict[VectorKind, _Told] = {}
    for kind, (ids, index, numbers) in groups.items():
        records = np.zeros(len(ids), bool)
        records[numbers] = True
        found[kind] = _Told(ids=ids, words=index, records=records, texts=records[ids.among(index.owners.kept)])
    return found


def hits_of(view: View, ranked: Sequence[tuple[Ref, float]]) -> tuple[Hit, ...]:
    """Ranked records with a place where each can be opened; what opens nowhere is left out."""
    found: list[Hit] = []
    for ref, score in ranked:
        source = first_source(ref, view)
        if source is not None:
            found.append(Hit(id=ref.id, kind=ref.kind, document=source.document, start=source.start, end=source.end, score=score))
    return tuple(found)
