"""source: the same map-reduce over the text of the documents (the paper's TS)."""

from graphrag_local.query.context import Writer
from graphrag_local.query.inquiry import Inquiry, Paragraph
from graphrag_local.query.mapreduce import map_reduce, map_room
from graphrag_local.query.view import View, remembered
from graphrag_local.query.windows import LINE_SHARE, Window, cut
from graphrag_local.tokens import TokenCounter


def text_windows(view: View, budget: int, counter: TokenCounter) -> tuple[Window, ...]:
    """The windows of all chunks, in pieces of a few sentences that can be cited. Made once per generation."""

    def make() -> tuple[Window, ...]:
        writer = Writer(view, counter, budget // LINE_SHARE)
        return cut([writer.chunk(chunk) for chunk in view.chunks.values()], budget, counter)

    return remembered(view.index, ("source", budget, counter.name), make)


async def answer(inquiry: Inquiry) -> list[Paragraph]:
    """The paragraphs of an answer from the whole text."""
    return await map_reduce(inquiry, text_windows(inquiry.view, map_room(inquiry), inquiry.model.counter))
