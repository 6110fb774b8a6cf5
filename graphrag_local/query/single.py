"""One answer from one window, as `basic` and `local` write it, and when it is declined.

As in `mapreduce`, neither Y nor N is simply believed: there are small models that say the one to everything, and such that say the other. The same
model is asked at the same time with nothing to read. A Y that is less probable than there declines; where an N came, but Y was not improbable and more
probable than there, the answer is asked for without the choice. A server that gives no probabilities is believed its letter.
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
MOST_CALLS = 3  # the answer; where it is doubtful the measure without evidence; after an N the answer without the choice
SURE = 0.99  # a Y above it costs no second call (our choice: a model that is as sure of everything cannot be told apart by probabilities)
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
    if not may_decline or not inquiry.model.card.logprobs:
        return await write(inquiry, PROMPT, window, may_decline=may_decline)
    outcome = await write(inquiry, PROMPT, window, may_decline=True, gate=0.0)
    if outcome.value is None or outcome.gate is None or not (outcome.gate < SURE if outcome.value else outcome.gate >= settings.gate):
        return outcome
    floor = await _floor(inquiry)
    if floor is None:
        return outcome
    gain, odds = outcome.gate - floor, f"a probability of {outcome.gate:.2f}, and {floor:.2f} with nothing to read"
    if outcome.value:
        if gain >= settings.refusal_margin:
            return outcome
        inquiry.notes.append(f"The evidence does not answer the question: that it does has {odds}.")
        return Outcome(value=[], gate=outcome.gate)
    if gain <= settings.refusal_margin:
        return outcome
    inquiry.notes.append(f"That it does has {odds}, so it was asked to answer from what there is.")
    try:
        forced = await write(inquiry, PROMPT, window, may_decline=False)
    except EngineError:  # that it declined is known, and not worth losing for this
        return outcome
    return outcome if forced.value is None else forced


async def _floor(inquiry: Inquiry) -> float | None:
    """The probability of Y with nothing to read; None where it cannot be had."""
    try:
        return await baseline(inquiry, lambda empty: _request(inquiry, empty))
    except EngineError:
        return None


def _request(inquiry: Inquiry, window: Window) -> Request:
    """The call about a window without content."""
    reply = inquiry.reply_tokens(inquiry.settings.reply_tokens)
    items = inquiry.items(inquiry.settings.max_paragraphs, reply)
    messages, ids = inquiry.messages(PROMPT, items=items, may_decline=True, text=window.text), tuple(window.ids)
    if inquiry.quotes:
        return inquiry.request(messages, choice_constraint(ids, least=1, most=1, scored=False, may_decline=True), reply, gate=None, window=window)
    return inquiry.request(messages, answer_constraint(inquiry.model.card.form, ids, items, may_decline=True), reply, gate=None, window=window)
