"""The one door to answers: a question in, an answer object out, the same for command line, HTTP, Python and evaluation."""

from collections.abc import Mapping
from typing import Literal, get_args

from graphrag_local.engine.base import Embedder, Model
from graphrag_local.errors import IndexMissing, UsageError
from graphrag_local.prompting import Prompt
from graphrag_local.query import basic_search, global_search, source_search
from graphrag_local.query.cite import compose
from graphrag_local.query.context import Ref
from graphrag_local.query.inquiry import Inquiry, Paragraph
from graphrag_local.query.language import declined
from graphrag_local.query.quote import TOO_SMALL
from graphrag_local.query.retrieve import Index, hits_of, nearest_chunks, nearest_units
from graphrag_local.query.view import View, view_of
from graphrag_local.records import Answer, Hit
from graphrag_local.settings import QuerySettings
from graphrag_local.text import is_question

Mode = Literal["global", "source", "basic"]
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
) -> Answer:
    """The answer to a question. `turn` counts the questions of a running service: every second one goes through the windows backwards.

    Raises, before any model call, UsageError for an empty question, an unknown mode or level, and IndexMissing for an index without text.
    """
    view, depth = _checked(question, index, mode, level, settings)
    inquiry = Inquiry(question=question, view=view, model=model, prompts=prompts, settings=settings, turn=turn)
    if level is not None and depth is None:
        inquiry.notes.append(f"Mode {mode!r} has no levels, so level {level} was not used.")
    if depth is not None:
        paragraphs = await global_search.answer(inquiry, depth)
    elif mode == "source":
        paragraphs = await source_search.answer(inquiry)
    else:
        paragraphs = await basic_search.answer(inquiry, embedder)
    return _answer(inquiry, paragraphs, mode, depth)


async def retrieve(
    question: str, index: Index, embedder: Embedder, settings: QuerySettings, mode: str, level: int | None, k: int
) -> tuple[Hit, ...]:
    """The k records nearest a question that a mode would read, best first; no model is called. Raises as `ask` does."""
    view, depth = _checked(question, index, mode, level, settings)
    if depth is not None and view.entities:
        return hits_of(view, await nearest_units(question, view, embedder, depth, k))
    ranked = await nearest_chunks(question, view, embedder, k)
    return hits_of(view, [(Ref(kind="chunk", id=chunk_id), score) for chunk_id, score in ranked.hits])


def _checked(question: str, index: Index, mode: str, level: int | None, settings: QuerySettings) -> tuple[View, int | None]:
    """The view of the index and the community level of mode `global`, None in the others."""
    if not is_question(question):
        raise UsageError("The question is empty.", hint='Write a question in quotes, such as "What are the main themes?"')
    if mode not in MODES:
        raise UsageError(f"There is no mode {mode!r}; there are {', '.join(MODES)}.")
    if not index.chunks():
        raise IndexMissing("The index is empty: it holds no text at all.", hint="Put documents into the input folder and run `graphrag-local index`.")
    view = view_of(index)
    return view, global_search.checked_level(view, settings.level if level is None else level) if mode == "global" else None


def _answer(inquiry: Inquiry, paragraphs: list[Paragraph], mode: str, level: int | None) -> Answer:
    composed = compose(paragraphs, inquiry.view, inquiry.settings.max_spans)
    answered = bool(composed.text)
    return Answer(
        answer=composed.text or declined(inquiry.question, inquiry.settings.language),
        mode=mode,
        level=level,
        generation=inquiry.view.index.generation,
        citations=composed.citations,
        answered=answered,
        stale=composed.stale,
        sentences=composed.sentences,
        usage=inquiry.usage,
        notes=(*inquiry.notes, *composed.notes, *((TOO_SMALL,) if inquiry.quotes and answered else ())),
    )
