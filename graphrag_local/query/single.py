"""One answer from one window, as `basic` and `local` write it, and when it is declined.

As in `mapreduce`, an N is not simply believed: small models say it to everything. Where Y was not improbable, and more probable than for the same model
with nothing to read, the answer is asked for without the choice. A server that gives no probabilities is believed its letter.
"""

from collections.abc import Callable
from typing import TypeVar

from graphrag_local.engine.base import Request
from graphrag_local.errors import ContextOverflow, EngineError, ReplyInvalid
from graphrag_local.query.inquiry import TRIES, Inquiry, Outcome, Paragraph
from graphrag_local.query.mapreduce import baseline, write
from graphrag_local.query.schema import answer_constraint, choice_constraint
from graphrag_local.query.windows import Window, smaller_budget

PROMPT = "answer"
MOST_CALLS = 3  # the answer; after an N that is doubtful the measure without evidence, and the answer without the choice
T = TypeVar("T")


async def answer_from(inquiry: Inquiry, budget: int, read: Callable[[int], T], window_of: Callable[[T], Window]) -> tuple[T, list[Paragraph]]:
    """What was `read` within a budget of tokens, and the paragraphs written from its window; none where it does not answer (the notes say why)."""
    told = read(budget)
    if not window_of(told).ids:
        inquiry.notes.append("There was no evidence to read.")
        return told, []
    try:
        outcome = await _written(inquiry, window_of(told))
    except ContextOverflow:
        less = read(smaller_budget(window_of(told)))
        if not window_of(less).ids:
            raise
        told = less
        outcome = await _written(inquiry, window_of(told))
    if outcome.value is None and not outcome.uncited:
        raise ReplyInvalid(f"The model gave no usable answer, asked {TRIES} times.", outcome="invalid")
    return told, outcome.value or []


async def _written(inquiry: Inquiry, window: Window) -> Outcome[list[Paragraph]]:
    settings = inquiry.settings
    may_decline = settings.refusal_margin > -1
    outcome = await write(inquiry, PROMPT, window, may_decline=may_decline, gate=0.0 if may_decline and inquiry.model.card.logprobs else None)
    if outcome.value != [] or outcome.gate is None or outcome.gate < settings.gate:
        return outcome
    try:
        floor = await baseline(inquiry, lambda empty: _request(inquiry, empty))
    except EngineError:
        return outcome
    if floor is None or outcome.gate - floor <= settings.refusal_margin:
        return outcome
    inquiry.notes.append(
        f"That it does has a probability of {outcome.gate:.2f} all the same, and {floor:.2f} with nothing to read, so it was asked to answer from what there is."
    )
    try:
        forced = await write(inquiry, PROMPT, window, may_decline=False)
    except EngineError:  # that it declined is known, and not worth losing for this
        return outcome
    return outcome if forced.value is None else forced


def _request(inquiry: Inquiry, window: Window) -> Request:
    """The call about a window without content."""
    reply = inquiry.reply_tokens(inquiry.settings.reply_tokens)
    items = inquiry.items(inquiry.settings.max_paragraphs, reply)
    messages, ids = inquiry.messages(PROMPT, items=items, may_decline=True, text=window.text), tuple(window.ids)
    if inquiry.quotes:
        return inquiry.request(messages, choice_constraint(ids, least=1, most=1, scored=False, may_decline=True), reply, gate=None, window=window)
    return inquiry.request(messages, answer_constraint(inquiry.model.card.form, ids, items, may_decline=True), reply, gate=None, window=window)
