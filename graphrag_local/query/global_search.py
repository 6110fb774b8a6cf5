"""global: the reports of one level of the hierarchy, every entity covered once, map-reduced (paper §3.1.6)."""

from graphrag_local.errors import UsageError
from graphrag_local.query import dynamic, source_search
from graphrag_local.query.context import Writer
from graphrag_local.query.inquiry import Inquiry, Paragraph
from graphrag_local.query.mapreduce import map_reduce, map_room
from graphrag_local.query.view import View, remembered
from graphrag_local.query.windows import LINE_SHARE, Window, cut
from graphrag_local.tokens import TokenCounter


def checked_level(view: View, level: int) -> int:
    """The level, if the hierarchy has it; else UsageError naming those it has."""
    if level in view.levels:
        return level
    there = "only level 0" if len(view.levels) == 1 else f"levels 0 to {view.levels[-1]}"
    raise UsageError(f"There is no community level {level}; this index has {there}.", hint="Give --level one of them; 0 is the root level.")


def level_windows(view: View, level: int, budget: int, counter: TokenCounter) -> tuple[Window, ...]:
    """The windows of a level: a community's findings where its report is written, else the element text of its members. Made once per generation."""

    def make() -> tuple[Window, ...]:
        writer = Writer(view, counter, budget // LINE_SHARE)
        return cut([writer.community(community) for community in view.level(level)], budget, counter)

    return remembered(view.index, ("global", level, budget, counter.name), make)


async def answer(inquiry: Inquiry, level: int) -> list[Paragraph]:
    """The paragraphs of an answer from a level; where the index has no entities at all, from the text itself."""
    if not inquiry.view.entities:
        inquiry.notes.append("The index has no entities, so the text itself was read.")
        return await source_search.answer(inquiry)
    if inquiry.settings.dynamic:
        return await dynamic.answer(inquiry, level)
    return await map_reduce(inquiry, level_windows(inquiry.view, level, map_room(inquiry), inquiry.model.counter))
