"""local: the entities that a question is linked to, what is around them, and the passages that it needs, in one call."""

from graphrag_local.engine.base import Embedder
from graphrag_local.query import basic_search
from graphrag_local.query.context import Ref
from graphrag_local.query.inquiry import Inquiry, Paragraph
from graphrag_local.query.neighbourhood import Evidence, Neighbourhood, evidence, neighbourhood
from graphrag_local.query.passages import parts_of, passages, rank_parts
from graphrag_local.query.referring import with_references
from graphrag_local.query.retrieve import FUSION_K
from graphrag_local.query.single import answer_from
from graphrag_local.query.view import View
from graphrag_local.settings import QuerySettings

IN_TURN = 2  # passages before each other record, where records are listed


async def answer(inquiry: Inquiry, embedder: Embedder) -> list[Paragraph]:
    """The paragraphs of an answer from the neighbourhood of a question; none when the model says that it does not answer."""
    settings = inquiry.settings
    near = await near_by(inquiry, embedder)
    inquiry.notes.append(near.note(inquiry.view))
    if not near.entities:
        return await basic_search.answer(inquiry, embedder)
    inquiry.notes += near.passages.notes
    budget = inquiry.room("answer", wanted=settings.local_tokens, reply=inquiry.reply_tokens(settings.reply_tokens))
    told, paragraphs = await answer_from(inquiry, budget, lambda room: read(inquiry, near, room), lambda read: read.window)
    inquiry.notes += [told.note] if told.note else []
    if inquiry.trace:
        inquiry.trace.window(inquiry.view, "neighbourhood", told.window.ids, told.window.tokens, near.refs())
    return paragraphs


async def near_by(inquiry: Inquiry, embedder: Embedder) -> Neighbourhood:
    """What is near the question of an inquiry, in all that passages are looked for by."""
    most = inquiry.settings.top_chunks
    ranked = with_references(inquiry.question, await passages(inquiry, embedder, most), inquiry.view, most)
    near = await neighbourhood(" ".join(inquiry.search or (inquiry.question,)), ranked, inquiry.view, embedder, inquiry.settings)
    if inquiry.trace:
        kept = inquiry.trace.records(inquiry.view, (ref for ref in near.refs() if ref.kind != "chunk"))
        inquiry.trace.note("neighbourhood", question=inquiry.question, named=near.named, kept=kept)
    return near


def read(inquiry: Inquiry, near: Neighbourhood, budget: int) -> Evidence:
    """The window about a neighbourhood. Whoever quotes chooses a sentence of each piece anyway, so then passages come in pieces."""
    return evidence(near, inquiry.question, inquiry.view, inquiry.settings, budget, inquiry.model.counter, whole=inquiry.quotes)


async def ranked(question: str, view: View, embedder: Embedder, settings: QuerySettings, k: int) -> list[tuple[Ref, float]]:
    """The k records that `local` would read first: two passages, then an entity, a relationship or a report in turn."""
    found = with_references(question, await rank_parts(parts_of(question), view, embedder, settings.top_chunks), view, settings.top_chunks)
    near = await neighbourhood(question, found, view, embedder, settings)
    chunks = [Ref(kind="chunk", id=chunk_id) for chunk_id, _ in near.passages.hits]
    kinds = [
        [Ref(kind="entity", id=owner) for owner in near.entities],
        [Ref(kind="relationship", id=owner) for owner in near.edges],
        [Ref(kind="report", id=report.id) for report in near.reports],
    ]
    others = [refs[place] for place in range(max(map(len, kinds))) for refs in kinds if place < len(refs)]
    order: list[Ref] = []
    while (chunks or others) and len(order) < k:
        order += chunks[:IN_TURN] + others[:1]
        chunks, others = chunks[IN_TURN:], others[1:]
    return [(ref, 1 / (FUSION_K + place)) for place, ref in enumerate(order[:k], 1)]
