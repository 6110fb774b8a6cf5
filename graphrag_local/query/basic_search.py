"""basic: the passages nearest the question, one call (the paper's SS, with words beside vectors)."""

from graphrag_local.engine.base import Embedder
from graphrag_local.errors import ContextOverflow, ReplyInvalid
from graphrag_local.query.context import Ref, Writer
from graphrag_local.query.inquiry import TRIES, Inquiry, Paragraph
from graphrag_local.query.mapreduce import write
from graphrag_local.query.passages import passages
from graphrag_local.query.windows import LINE_SHARE, filled, smaller_budget


async def answer(inquiry: Inquiry, embedder: Embedder) -> list[Paragraph]:
    """The paragraphs of an answer from the best passages; none when the model says that they do not answer."""
    settings, view, counter = inquiry.settings, inquiry.view, inquiry.model.counter
    budget = inquiry.room("answer", wanted=settings.window_tokens, reply=inquiry.reply_tokens(settings.reply_tokens))
    ranked = await passages(inquiry, embedder, settings.top_chunks)
    inquiry.notes += ranked.notes
    writer = Writer(view, counter, budget // LINE_SHARE, by_sentence=not inquiry.quotes)  # whoever quotes chooses a sentence of each piece anyway
    units = [writer.chunk(view.chunks[chunk_id]) for chunk_id, _ in ranked.hits]
    window = filled(units, budget, counter)
    if not window.ids:
        inquiry.notes.append("There was no evidence to read.")
        return []
    may_decline = settings.refusal_margin > -1
    try:
        outcome = await write(inquiry, "answer", window, may_decline=may_decline)
    except ContextOverflow:
        less = filled(units, smaller_budget(window), counter)
        if not less.ids:
            raise
        window = less
        outcome = await write(inquiry, "answer", window, may_decline=may_decline)
    inquiry.notes.append(f"{len(window.units)} of {len(view.chunks)} passages read.")
    if inquiry.trace:
        inquiry.trace.window(view, "passages", window.ids, window.tokens, (Ref(kind="chunk", id=chunk_id) for chunk_id, _ in ranked.hits))
    if outcome.value is None and not outcome.uncited:
        raise ReplyInvalid(f"The model gave no usable answer, asked {TRIES} times.", outcome="invalid")
    return outcome.value or []
