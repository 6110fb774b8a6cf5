"""local: the entities that a question is linked to, what is around them, and the passages that it needs, in one call."""

from graphrag_local.engine.base import Embedder
from graphrag_local.errors import ContextOverflow, ReplyInvalid
from graphrag_local.query import basic_search
from graphrag_local.query.context import Ref
from graphrag_local.query.inquiry import TRIES, Inquiry, Paragraph
from graphrag_local.query.mapreduce import write
from graphrag_local.query.neighbourhood import Evidence, Neighbourhood, evidence, neighbourhood
from graphrag_local.query.passages import parts_of, passages, rank_parts
from graphrag_local.query.retrieve import FUSION_K
from graphrag_local.query.view import View
from graphrag_local.query.windows import smaller_budget
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
    told = read(inquiry, near, budget)
    if not told.window.ids:
        inquiry.notes.append("There was no evidence to read.")
        return []
    may_decline = settings.refusal_margin > -1
    try:
        outcome = await write(inquiry, "answer", told.window, may_decline=may_decline)
    except ContextOverflow:
        less = read(inquiry, near, smaller_budget(told.window))
        if not less.window.ids:
            raise
        told = less
        outcome = await write(inquiry, "answer", told.window, may_decline=may_decline)
    inquiry.notes += [told.note] if told.note else []
    if inquiry.trace:
        inquiry.trace.window(inquiry.view, "neighbourhood", told.window.ids, told.window.tokens, near.refs())
    if outcome.value is None and not outcome.uncited:
        raise ReplyInvalid(f"The model gave no usable answer, asked {TRIES} times.", outcome="invalid")
    return outcome.value or []


async def near_by(inquiry: Inquiry, embedder: Embedder) -> Neighbourhood:
    """What is near the question of an inquiry, in all that passages are looked for by."""
    ranked = await passages(inquiry, embedder, inquiry.settings.top_chunks)
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
    found = await rank_parts(parts_of(question), view, embedder, settings.top_chunks)
    near = await neighbourhood(question, found, view, embedder, settings)
    chunks = [Ref(kind="chunk", id=chunk_id) for chunk_id, _ in near.passages.hits]
    kinds = [
        [Ref(kind="entity", id=owner) for owner in near.entities],
        [Ref(kind="relationship", id=edge.id) for edge in near.edges],
        [Ref(kind="report", id=report.id) for report in near.reports],
    ]
    others = [refs[place] for place in range(max(map(len, kinds))) for refs in kinds if place < len(refs)]
    order: list[Ref] = []
    while (chunks or others) and len(order) < k:
        order += chunks[:IN_TURN] + others[:1]
        chunks, others = chunks[IN_TURN:], others[1:]
    return [(ref, 1 / (FUSION_K + place)) for place, ref in enumerate(order[:k], 1)]
