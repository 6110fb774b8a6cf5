"""The one door to answers: a question in, an answer object out, the same for command line, HTTP, Python and evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

from graphrag_local.answers import Answer, Hit, Listener, Turn
from graphrag_local.engine.base import Embedder, Entailment, Model, Reranker
from graphrag_local.errors import IndexMissing, UsageError
from graphrag_local.flow import map_ordered
from graphrag_local.prompting import Prompt
from graphrag_local.query import basic_search, drift_search, global_search, lazy_search, local_search, route, source_search
from graphrag_local.query.briefing import brief
from graphrag_local.query.cite import Composed, compose
from graphrag_local.query.context import Ref
from graphrag_local.query.conversation import prepare
from graphrag_local.query.inquiry import Inquiry, Paragraph
from graphrag_local.query.language import declined
from graphrag_local.query.passages import parts_of, rank_parts
from graphrag_local.query.quote import TOO_SMALL
from graphrag_local.query.referring import with_references
from graphrag_local.query.retrieve import Index, hits_of, nearest_units
from graphrag_local.query.support import Support
from graphrag_local.query.telling import Teller
from graphrag_local.query.trace import Trace
from graphrag_local.query.unanswered import nearest
from graphrag_local.query.view import View, view_of
from graphrag_local.settings import QuerySettings
from graphrag_local.text import is_question, one_line

Mode = Literal["global", "source", "basic", "local", "lazy", "drift", "auto"]
LEVELS = ("global", "drift")  # the modes that begin with a level of communities
MODES: tuple[Mode, ...] = get_args(Mode)


async def ask(
    question: str,
    index: Index,
    model: Model,
    embedder: Embedder,
    prompts: Mapping[str, Prompt],
    settings: QuerySettings,
    *,
    mode: str,
    level: int | None,
    turn: int = 0,
    strict: bool = False,
    entailment: Entailment | None = None,
    reranker: Reranker | None = None,
    history: Sequence[Turn] = (),
    listen: Listener | None = None,
    trace: Trace | None = None,
) -> Answer:
    """The answer to a question. `turn` counts the questions that were asked: every second one goes through the windows backwards (see `scan`).

    A `strict` answer holds only sentences that are supported by what they cite; `entailment` is a model of its own for that check. `history` are
    earlier turns, oldest first, in whose light the question is read; `reranker` puts passages in order. `listen` is told
    the answer while it is made, but for its end (the caller's: what an answer costs in all only the caller knows). `trace` is written while it is made.
    Raises, before any model call, UsageError for an empty question, an unknown mode or level, and IndexMissing for an index without text.
    """
    view, depth = _checked(question, index, mode, level, settings)
    inquiry = Inquiry(
        question=question, view=view, model=model, prompts=prompts, settings=settings, turn=turn, reranker=reranker, embedder=embedder, trace=trace,
    )  # fmt: skip
    support = Support(inquiry, entailment, strict=strict)
    teller = Teller(listen, view, settings.max_spans, support) if listen else None
    inquiry.ear = teller
    try:
        await prepare(inquiry, history)
        if mode == "auto" and depth is not None:
            mode = await route.choose(inquiry, embedder, depth)
            depth = depth if mode in LEVELS else None
        if level is not None and depth is None:
            inquiry.notes.append(f"Mode {mode!r} has no levels, so level {level} was not used.")
        paragraphs = await _paragraphs(inquiry, embedder, mode, depth)
        checked = await map_ordered(paragraphs, support.checked, limit=len(paragraphs) + 1)
        composed = compose([paragraph for paragraph in checked if paragraph.text], view, settings.max_spans)
        inquiry.notes += [*composed.notes, *support.note(paragraphs, composed.sentences)]
        answer = _answer(inquiry, composed, mode, depth)
        if not answer.answered:
            answer = replace(answer, nearest=await nearest(inquiry.question, view, embedder))
            if trace:
                trace.note("nearest", kept=trace.records(view, (Ref(kind="chunk", id=source.chunk) for source in answer.nearest)))
        if teller:
            await teller.finish(composed.segments or [(answer.answer, None)], answer.sentences)
        return answer
    finally:
        if teller:
            await teller.close()
        await support.close()


async def _paragraphs(inquiry: Inquiry, embedder: Embedder, mode: str, depth: int | None) -> list[Paragraph]:
    match mode:
        case "drift" if depth is not None:
            return await drift_search.answer(inquiry, embedder, depth)
        case "global" if depth is not None:
            return await global_search.answer(inquiry, depth)
        case "source":
            return await source_search.answer(inquiry)
        case "local":
            return await local_search.answer(inquiry, embedder)
        case "lazy":
            return await lazy_search.answer(inquiry, embedder)
    return await basic_search.answer(inquiry, embedder)


async def ask_nobody(question: str, index: Index, embedder: Embedder, settings: QuerySettings, *, mode: str, level: int | None) -> Answer:
    """The answer without a model: a briefing of quotes, for a long question about the request at its end. Raises as `ask` does."""
    view, depth = _checked(question, index, mode, level, settings)
    if mode == "auto":
        mode = await route.lean(question, view, embedder)
    request = parts_of(question)[0]
    answer = await brief(request, view, embedder, settings, depth if mode in LEVELS else None)
    answer = answer if answer.answered else replace(answer, nearest=await nearest(request, view, embedder))
    return answer if request == question else replace(answer, notes=(f"The question is long; its end was looked for: “{one_line(request)}”", *answer.notes))


async def retrieve(question: str, index: Index, embedder: Embedder, settings: QuerySettings, mode: str, level: int | None, k: int) -> tuple[Hit, ...]:
    """The k records nearest a question that a mode would read, best first; no model is called. Raises as `ask` does."""
    view, depth = _checked(question, index, mode, level, settings)
    if mode == "auto":
        mode = await route.lean(question, view, embedder)
    if depth is not None and mode in LEVELS and view.entities:
        return hits_of(view, await nearest_units(parts_of(question)[0], view, embedder, depth, k) or _largest(view, depth)[:k])
    if mode == "local":
        return hits_of(view, await local_search.ranked(question, view, embedder, settings, k))
    ranked = with_references(question, await rank_parts(parts_of(question), view, embedder, k), view, k)
    return hits_of(view, [(Ref(kind="chunk", id=chunk_id), score) for chunk_id, score in ranked.hits])


def _largest(view: View, level: int) -> list[tuple[Ref, float]]:
    """What `global` reads on a level, the largest communities first: for questions about everything, which are near nothing."""
    order = sorted(view.level(level), key=lambda community: (-len(community.member_ids), community.id))
    reports = {community.id: report.id for community in order if (report := view.report_of.get(community.id))}
    told = [Ref(kind="report", id=reports[community.id]) for community in order if community.id in reports]
    alone = (member for community in order if community.id not in reports for member in community.member_ids if member in view.entities)
    return [(ref, 0.0) for ref in (*told, *(Ref(kind="entity", id=member) for member in alone))]


def _checked(question: str, index: Index, mode: str, level: int | None, settings: QuerySettings) -> tuple[View, int | None]:
    """The view of the index and the community level of the modes that have one, None in the others."""
    if not is_question(question):
        raise UsageError("The question is empty.", hint='Write a question in quotes, such as "What are the main themes?"')
    if mode not in MODES:
        raise UsageError(f"There is no mode {mode!r}; there are {', '.join(MODES)}.")
    if not index.chunks():
        raise IndexMissing("The index is empty: it holds no text at all.", hint="Put documents into the input folder and run `graphrag-local index`.")
    view = view_of(index)
    return view, global_search.checked_level(view, settings.level if level is None else level) if mode in (*LEVELS, "auto") else None


def _answer(inquiry: Inquiry, composed: Composed, mode: str, level: int | None) -> Answer:
    answered = bool(composed.segments)
    return Answer(
        answer=composed.text or declined(inquiry.question, inquiry.settings.language),
        mode=mode,
        level=level,
        generation=inquiry.view.index.generation,
        citations=composed.citations,
        answered=answered,
        stale=composed.stale,
        sentences=composed.sentences,
        missing=inquiry.missing if answered else "",
        usage=inquiry.usage,
        notes=(*inquiry.notes, *((TOO_SMALL,) if inquiry.quotes and answered else ())),
    )
