"""Which records are nearest a question, by vectors and by words. No model call; every order is total, so equal scores never swap.

Words and vectors are fused by reciprocal rank (Cormack, Clarke and Büttcher 2009, k = 60), which needs no scales to agree.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import bm25s

from graphrag_local.engine.base import Embedder
from graphrag_local.query.cite import first_source
from graphrag_local.query.context import Ref
from graphrag_local.query.view import Index as Index
from graphrag_local.query.view import VectorKind, View, remembered
from graphrag_local.records import Chunk, Hit, RecordKind
from graphrag_local.text import words

FUSION_K = 60
DEPTH = 5  # each ranking is read this many times as deep as the fused one
Scored = list[tuple[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """Ids with fused scores, best first, and what there is to say about how they were found."""

    hits: Scored
    notes: tuple[str, ...] = ()


class WordIndex:
    """BM25 over texts by id. Scripts without spaces are indexed by characters and pairs of them, and asked by pairs."""

    def __init__(self, texts: Sequence[tuple[str, str]]) -> None:
        listed = [(owner, list(terms(text))) for owner, text in texts]
        self._owners = [owner for owner, found in listed if found]
        self._bm25 = bm25s.BM25(method="lucene")
        if self._owners:
            self._bm25.index([found for _, found in listed if found], show_progress=False)

    def best(self, question: str, k: int) -> Scored:
        """The k texts that share most with a question; those that share nothing are not among them."""
        asked = list(dict.fromkeys(terms(question, pairs_only=True)))
        if not asked or not self._owners:
            return []
        scores = ((owner, float(score)) for owner, score in zip(self._owners, self._bm25.get_scores(asked), strict=True))
        return sorted((pair for pair in scores if pair[1] > 0), key=_best_first)[:k]


def terms(text: str, *, pairs_only: bool = False) -> Iterator[str]:
    """The words of a text; of a run of single characters of a script without spaces the characters and their pairs (`pairs_only`: not the
    characters, where there are pairs)."""
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


async def nearest_chunks(question: str, view: View, embedder: Embedder, k: int) -> Ranked:
    """The k chunks nearest a question. Where nothing is near it by words, and there are no vectors, the first passage of each document, in turn."""
    vector = await vector_of(question, embedder)
    by_words = remembered(view.index, "words of chunks", lambda: _words_of_chunks(view))
    hits = fused(nearest(view, "chunk", vector, k * DEPTH), by_words.best(question, k * DEPTH))[:k]
    notes = () if vector is not None else ("There is no embedder, so passages were found by words alone.",)
    if hits:
        return Ranked(hits=hits, notes=notes)
    first = sorted(view.chunks.values(), key=lambda chunk: (chunk.index, _path(view, chunk)))[:k]
    more = "No word of the question is in the documents; the beginnings of the documents were read."
    return Ranked(hits=[(chunk.id, 0.0) for chunk in first], notes=(*notes, more))


def _words_of_chunks(view: View) -> WordIndex:
    """Words of each chunk and of its document's title, which often has the name that the text then only calls "it"."""
    return WordIndex([(chunk.id, f"{view.title(chunk.document_id)} {chunk.text}") for chunk in view.chunks.values()])


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
        return WordIndex([(owner, _told(view, owner)) for owner in sorted(kinds)])

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


