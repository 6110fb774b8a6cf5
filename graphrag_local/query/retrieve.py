"""Which records are nearest a question: by vectors, by words, and passages also by links. No model call; every order is total.

Words and vectors are fused by reciprocal rank (Cormack, Clarke and Büttcher 2009, k = 60), which needs no scales to agree.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

import bm25s
import numpy as np

from graphrag_local.answers import Hit
from graphrag_local.engine.base import Embedder
from graphrag_local.query.arrays import Arrays, Ids, Kept, Strings, above, below
from graphrag_local.query.cite import first_source
from graphrag_local.query.context import Ref
from graphrag_local.query.lexicon import Counted
from graphrag_local.query.linking import ALL, Links, Rules
from graphrag_local.query.ranking import COVERED, Linked, Step, Walk, placed
from graphrag_local.query.tongues import reached
from graphrag_local.query.tying import Tying, tied
from graphrag_local.query.view import Index as Index
from graphrag_local.query.view import Part, VectorKind, View, remembered, view_of
from graphrag_local.records import Chunk, RecordKind
from graphrag_local.text import words

FUSION_K = 60
DEPTH = 5  # each ranking is read this many times as deep as the fused one
LEAST_DEPTH = 100  # and this deep at least where links start from it
Scored = list[tuple[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """Ids with scores, best first, what there is to say about how they were found, and why those that links led to are there.

    `rankings` are what they were made of, each best first and longer than `hits`.
    """

    hits: Scored
    notes: tuple[str, ...] = ()
    why: dict[str, Step] = field(default_factory=dict)
    rankings: dict[str, Scored] = field(default_factory=dict)


class WordIndex:
    """BM25 over texts by id. Scripts without spaces are indexed by characters and pairs of them, and asked by pairs."""

    def __init__(self, kept: Kept) -> None:
        self._owners = Ids(kept["owners"])
        self._words = Strings(below(kept, "words"))
        self._begin, self._text, self._score = kept["begin"], kept["text"], kept["score"]

    @classmethod
    def of(cls, texts: Iterable[tuple[str, str]]) -> Self:
        """The index of these texts by their ids."""
        return cls(cls.kept(texts))

    @staticmethod
    def kept(texts: Iterable[tuple[str, str]]) -> Arrays:
        """The arrays: for each word the texts that have it, by number, and what it adds to their scores."""
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
        return {"owners": Ids.of(owners), **above("words", words.kept()), **flat}

    def best(self, question: str, k: int) -> Scored:
        """The k texts that share most with a question; those that share nothing are not among them."""
        scores = np.zeros(len(self._owners), np.float32)
        for word in dict.fromkeys(map(self._words.number, terms(question, pairs_only=True))):
            if word >= 0:
                own = slice(self._begin[word], self._begin[word + 1])
                scores[self._text[own]] += self._score[own]  # each text once
        likely = np.flatnonzero(scores > 0)
        if len(likely) > k:
            least = np.partition(scores[likely], len(likely) - k)[len(likely) - k]
            likely = likely[scores[likely] >= least]
        order = likely[np.argsort(-scores[likely], kind="stable")][:k]  # numbers of equal scores are in the order of their ids
        return [(self._owners[number], float(scores[number])) for number in order.tolist()]


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
    known = {"chunk": view.chunks.keys(), "entity": view.entities.keys(), "report": view.reports.keys()}[kind]
    found = view.index.near(kind, vector, k) if vector is not None else []
    return sorted(((owner, score) for owner, score in found if owner in known), key=_best_first)


async def rank_chunks(question: str, view: View, embedder: Embedder, k: int, rules: Rules = ALL) -> Ranked:
    """The k chunks that a question needs, best first: what `basic`, `local` and `retrieve` read.

    Where enough of the question names what the collection is about, chunks that links lead to have five of every eight places, the fused ranking of
    vectors and words the other three; elsewhere it has all of them. Where nothing is near, the first chunk of each document, in turn.
    """
    vector = await vector_of(question, embedder)
    depth = max(k * DEPTH, LEAST_DEPTH)
    by_words = remembered(view.index, "words of chunks", lambda: WordIndex(view.index.kept(CHUNK_WORDS)))
    rankings = {"vectors": nearest(view, "chunk", vector, depth), "words": by_words.best(question, depth)}
    hits = rankings["fused"] = fused(rankings["vectors"], reached(question, rankings["vectors"], rankings["words"], view))
    notes = () if vector is not None else ("There is no embedder, so passages were found by words alone.",)
    links = links_of(view, rules)
    linked = linked_chunks(question, links, hits)
    if linked:
        rankings["links"] = [(links.texts.ids[number], 1 / (FUSION_K + place)) for place, number in enumerate(linked.order[:depth], 1)]
        why = {links.texts.ids[number]: step for number, step in linked.why.items()}
        return Ranked(hits=_in_places(linked, hits, links, k), notes=notes, why=why, rankings=rankings)
    if hits:
        return Ranked(hits=hits[:k], notes=notes, rankings=rankings)
    first = sorted(view.chunks.values(), key=lambda chunk: (chunk.index, _path(view, chunk), chunk.id))[:k]
    more = "No word of the question is in the documents; the beginnings of the documents were read."
    return Ranked(hits=[(chunk.id, 0.0) for chunk in first], notes=(*notes, more))


def linked_chunks(question: str, links: Links, hits: Scored) -> Linked | None:
    """What links lead to, given a fused ranking; None where too little of the question names what the collection is about."""
    dense = np.zeros(len(links.texts.ids))
    for owner, score in hits:
        dense[links.texts.ids.number(owner)] = score / hits[0][1]
    linked = Walk(links, question, dense).linked()
    return linked if linked.order and (linked.covered >= COVERED or not links.rules.gate) else None


def _in_places(linked: Linked, hits: Scored, links: Links, k: int) -> Scored:
    """Both rankings in one; a score is the reciprocal of a place, as in a fused ranking."""
    order = placed(linked, [links.texts.ids.number(owner) for owner, _ in hits], k)
    return [(links.texts.ids[number], 1 / (FUSION_K + place)) for place, number in enumerate(order, 1)]


def links_of(view: View, rules: Rules = ALL) -> Links:
    """The names of the generation: kept with it, or made once under other rules."""
    return remembered(view.index, ("links", rules), lambda: Links(view.index.kept(LINKS), rules) if rules == ALL else tied(view, rules))


def _words_of_chunks(view: View) -> Arrays:
    """Words of each chunk and of its document's title, which often has the name that the text then only calls "it"."""
    return WordIndex.kept((chunk.id, f"{view.title(chunk.document_id)} {chunk.text}") for chunk in view.chunks.values())


def _words_of_entities(view: View) -> Arrays:
    """Words of the name and the description of each entity."""
    return WordIndex.kept((entity.id, f"{entity.name} {entity.description}") for entity in view.entities.values())


LINKS = Part(name="links", of=("documents", "chunks", "entities"), form="2", make=lambda index: Tying(view_of(index), ALL).kept())
CHUNK_WORDS = Part(name="words-of-chunks", of=("documents", "chunks"), form="1", make=lambda index: _words_of_chunks(view_of(index)))
ENTITY_WORDS = Part(name="words-of-entities", of=("entities",), form="1", make=lambda index: _words_of_entities(view_of(index)))


def _path(view: View, chunk: Chunk) -> str:
    document = view.documents.get(chunk.document_id)
    return document.path if document else chunk.document_id


async def nearest_units(question: str, view: View, embedder: Embedder, level: int, k: int) -> list[tuple[Ref, float]]:
    """What `global` reads on a level, nearest first: written reports, and the entities of communities without one."""
    reports = {report.id for community in view.level(level) if (report := view.report_of.get(community.id))}
    alone = [c.member_ids for c in view.level(level) if c.id not in view.report_of]
    entities = {member for members in alone for member in members if member in view.entities}
    kinds: dict[str, RecordKind] = {**dict.fromkeys(reports, "report"), **dict.fromkeys(entities, "entity")}

    def index() -> WordIndex:
        return WordIndex.of([(owner, _told(view, owner)) for owner in sorted(kinds)])

    vector = await vector_of(question, embedder)
    near = nearest(view, "report", vector, k * DEPTH) + nearest(view, "entity", vector, k * DEPTH)
    by_vector = sorted((pair for pair in near if pair[0] in kinds), key=_best_first)
    by_words = remembered(view.index, ("words of level", level), index).best(question, k * DEPTH)
    return [(Ref(kind=kinds[owner], id=owner), score) for owner, score in fused(by_vector, by_words)[:k]]


def _told(view: View, owner: str) -> str:
    report = view.reports.get(owner)
    if report is None:
        return f"{view.entities[owner].name} {view.entities[owner].description}"
    return " ".join((report.title, report.summary, *(f"{finding.summary} {finding.explanation}" for finding in report.findings)))


def hits_of(view: View, ranked: Sequence[tuple[Ref, float]]) -> tuple[Hit, ...]:
    """Ranked records with a place where each can be opened; what opens nowhere is left out."""
    found: list[Hit] = []
    for ref, score in ranked:
        source = first_source(ref, view)
        if source is not None:
            found.append(Hit(id=ref.id, kind=ref.kind, document=source.document, start=source.start, end=source.end, score=score))
    return tuple(found)
