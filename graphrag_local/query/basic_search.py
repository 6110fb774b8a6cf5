"""basic: the passages nearest the question, one call (the paper's SS, with words beside vectors)."""

from graphrag_local.engine.base import Embedder
from graphrag_local.query.context import Ref, Writer
from graphrag_local.query.inquiry import Inquiry, Paragraph
from graphrag_local.query.passages import passages
from graphrag_local.query.referring import with_references
from graphrag_local.query.single import answer_from
from graphrag_local.query.windows import LINE_SHARE, filled


async def answer(inquiry: Inquiry, embedder: Embedder) -> list[Paragraph]:
    """The paragraphs of an answer from the best passages; none when the model says that they do not answer."""
    settings, view, counter = inquiry.settings, inquiry.view, inquiry.model.counter
    budget = inquiry.room("answer", wanted=settings.window_tokens, reply=inquiry.reply_tokens(settings.reply_tokens))
    ranked = with_references(inquiry.question, await passages(inquiry, embedder, settings.top_chunks), view, settings.top_chunks)
    inquiry.notes += ranked.notes
    writer = Writer(view, counter, budget // LINE_SHARE, by_sentence=not inquiry.quotes)  # whoever quotes chooses a sentence of each piece anyway
    units = [writer.chunk(view.chunks[chunk_id]) for chunk_id, _ in ranked.hits]
    window, paragraphs = await answer_from(inquiry, budget, lambda room: filled(units, room, counter), lambda read: read)
    if not window.ids:
        return []
    inquiry.notes.append(f"{len(window.units)} of {len(view.chunks)} passages read.")
    if inquiry.trace:
        inquiry.trace.window(view, "passages", window.ids, window.tokens, (Ref(kind="chunk", id=chunk_id) for chunk_id, _ in ranked.hits))
    return paragraphs
