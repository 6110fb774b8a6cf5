"""Ask every window, keep what helps, write one answer from it (paper §3.1.6, algorithms §8).

A window's reply begins with one token, Y or N, and what decides is the probability of Y, never which of the two came (design-review §2): windows
under the threshold are left after that token, the best few are read all the same, and when no window beats one without content by a margin the
collection does not answer. A server that gives no probabilities is believed its Y and N.
"""

import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from graphrag_local.engine.base import Constraint, Grammar, Request
from graphrag_local.errors import ContextOverflow, ReplyInvalid
from graphrag_local.query.context import LETTERS, Ref, shown_as
from graphrag_local.query.fitting import UNFIT, fitting_points, fitting_quotes, hopeless
from graphrag_local.query.inquiry import TRIES, Inquiry, Outcome, Paragraph
from graphrag_local.query.quote import best, quotes_of, read_chosen, read_headed, varied
from graphrag_local.query.scan import Begun, Ended, scan
from graphrag_local.query.schema import Answered, answer_constraint, choice_constraint, map_constraint, read_answer, read_points
from graphrag_local.query.unanswered import left_open
from graphrag_local.query.view import remembered
from graphrag_local.query.windows import SMALLEST, Window, smaller, smaller_budget

PROBE_TOKENS = 16  # enough for the one token that the empty window is asked for, in JSON too
EMPTY_WINDOW = "N/A"
NOTHING = Answered(useful=False)
CHOICES = 2  # a model that only chooses has so many sentences of a window to choose from for each that it may take
MEASURED = 4  # and so many for each are measured by the question beforehand
CENTRAL = 1.0  # what the graph weighs against the words of the question where the whole collection is read
NEAR = 0.25  # and where what is read was found by the question


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What became of one window. `left` is abandoned at its gate, `no` is the model's own N, `points` may be empty of valid ones."""

    window: Window
    kind: Literal["points", "no", "left", "unreadable", "too_long"]
    gate: float | None = None
    reply: Answered = NOTHING
    forced: bool = False
    cut_off: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point that is kept: its text, what it stands on, its score after reading, and the gate of its window."""

    text: str
    refs: tuple[Ref, ...]
    score: int
    gate: float
    forced: bool
    documents: tuple[str, ...]


async def map_reduce(inquiry: Inquiry, windows: Sequence[Window]) -> list[Paragraph]:
    """The paragraphs of an answer from these windows; none when they do not answer the question (the notes say why)."""
    if not windows:
        inquiry.notes.append("There was no evidence to read.")
        return []
    if inquiry.quotes and hopeless(inquiry):
        return []
    reduce_room(inquiry)  # a window too small for the last call is told before the first
    points = await _map(inquiry, windows)
    return await reduce(inquiry, points) if points else []


# --- map


def map_room(inquiry: Inquiry) -> int:
    """Tokens of evidence in one window."""
    reply = inquiry.reply_tokens(inquiry.settings.map_reply_tokens)
    return inquiry.room("map", wanted=inquiry.settings.window_tokens, reply=reply)


def reduce_room(inquiry: Inquiry) -> int:
    """Tokens for points in the final call."""
    reply = inquiry.reply_tokens(inquiry.settings.reply_tokens)
    return inquiry.room("reduce", wanted=inquiry.settings.reduce_tokens, reply=reply)


def _map_request(inquiry: Inquiry, window: Window, ids: Sequence[str], *, forced: bool) -> Request:
    """The call about a window; these of its ids may be cited."""
    reply = inquiry.reply_tokens(inquiry.settings.map_reply_tokens)
    items = inquiry.items(inquiry.settings.max_points, reply)
    messages = inquiry.messages("map", items=items, may_decline=True, text=window.text)
    if inquiry.quotes:
        constraint: Constraint = choice_constraint(ids, least=(items + 1) // 2, most=items, scored=True, may_decline=not forced)
    else:
        constraint = map_constraint(inquiry.model.card.form, ids, items, forced=forced)
    return inquiry.request(messages, constraint, reply, gate=0.0 if forced else inquiry.settings.gate, window=window)


async def _read_window(inquiry: Inquiry, window: Window, begun: Begun, *, forced: bool) -> Reading:
    form = inquiry.model.card.form
    quotes = quotes_of(window.ids, inquiry.view, inquiry.question, central=CENTRAL) if inquiry.quotes else {}
    if inquiry.quotes:
        quotes = best(quotes, CHOICES * inquiry.settings.max_points)
        window = replace(window, ids={short: quote.ref for short, quote in quotes.items()})
        if not quotes:
            return Reading(window=window, kind="no", forced=forced)

    def read(text: str) -> Answered:
        return read_chosen(text, quotes) if inquiry.quotes else read_points(form, text, window.ids)

    request = replace(_map_request(inquiry, window, tuple(window.ids), forced=forced), heard=begun)
    outcome = await inquiry.ask(request, read)
    if outcome.value is None:
        return Reading(window=window, kind="unreadable" if outcome.problem else "left", gate=outcome.gate, forced=forced)
    kind: Literal["points", "no"] = "points" if outcome.value.useful else "no"
    return Reading(window=window, kind=kind, gate=outcome.gate, reply=outcome.value, forced=forced, cut_off=outcome.cut_off)


async def _read(inquiry: Inquiry, window: Window, begun: Begun, *, forced: bool = False) -> list[Reading]:
    """The reading of a window; where it does not fit the server, of the same evidence once more in smaller windows."""
    try:
        return [await _read_window(inquiry, window, begun, forced=forced)]
    except ContextOverflow:
        parts = smaller(window, inquiry.model.counter)
    readings = [] if parts else [Reading(window=window, kind="too_long")]
    for part in parts:
        try:
            readings.append(await _read_window(inquiry, part, begun, forced=forced))
        except ContextOverflow:
            readings.append(Reading(window=part, kind="too_long"))
    return readings


async def baseline(inquiry: Inquiry, request_for: Callable[[Window], Request]) -> float | None:
    """The probability of Y for a window without content, under the same prompt; None without log-probabilities or where nothing is declined."""
    if not inquiry.model.card.logprobs or inquiry.settings.refusal_margin <= -1:
        return None
    ref = Ref(kind="chunk", id="")
    empty = Window(units=(), text=EMPTY_WINDOW, ids={"C1": ref}, tokens=SMALLEST, documents=(), digest="")
    request = request_for(empty)
    probing = inquiry.request(request.messages, request.constraint, PROBE_TOKENS, gate=2.0, window=empty)
    return await inquiry.probe(probing)


async def _scan(inquiry: Inquiry, windows: Sequence[Window], read: Callable[[Window, Begun], Awaitable[list[Reading]]]) -> list[list[Reading]]:
    ended: Ended = remembered(inquiry.view.index, "ended", dict)
    return await scan(windows, read, ended, forwards=inquiry.turn % 2 == 0, wrote=lambda group: any(one.reply is not NOTHING for one in group))


async def _map(inquiry: Inquiry, windows: Sequence[Window]) -> list[Point]:
    """The points of all windows, best first."""
    done = itertools.count(1)

    async def one(window: Window, begun: Begun) -> list[Reading]:
        readings = await _read(inquiry, window, begun)
        if inquiry.ear:
            inquiry.ear.progress(f"{next(done)} of {_windows(windows)} asked.")
        return readings

    readings = [reading for group in await _scan(inquiry, windows, one) for reading in group]
    _stop_if_hopeless(inquiry, readings)
    gates = [reading.gate for reading in readings if reading.gate is not None]
    if gates:
        empty = await baseline(inquiry, lambda window: _map_request(inquiry, window, tuple(window.ids), forced=False))
        if empty is not None and max(gates) - empty < inquiry.settings.refusal_margin:
            odds = f"the best has a probability of {max(gates):.2f}, a window without content {empty:.2f}"
            inquiry.notes.append(f"{_windows(readings)} asked, none answers the question: {odds}.")
            _tell(inquiry, readings)
            return []
        readings = await _read_best(inquiry, readings)
    points = _points(readings, least=1 if inquiry.settings.refusal_margin > -1 else 0)
    _note(inquiry, readings, points)
    _tell(inquiry, readings)
    return points


def _tell(inquiry: Inquiry, readings: Sequence[Reading]) -> None:
    """Write down, where there is a trace, what became of each window, and why nothing was taken from it."""
    trace, view = inquiry.trace, inquiry.view
    if trace is None:
        return
    for reading in readings:
        gate = "" if reading.gate is None else f" of {reading.gate:.3f}"
        why = {
            "left": f"gate{gate} under {inquiry.settings.gate:g}",
            "no": "the model says that it holds nothing on the question",
            "unreadable": f"no usable reply in {TRIES} tries",
            "too_long": "does not fit the model's window",
        }.get(reading.kind, "")
        refs = reading.window.ids.values()
        told = {"cut": trace.cut(view, why, refs), "kept": []} if why else {"cut": [], "kept": trace.records(view, refs)}
        trace.note("window", what="map", tokens=reading.window.tokens, gate=reading.gate, forced=reading.forced, points=len(reading.reply.items), **told)


def _stop_if_hopeless(inquiry: Inquiry, readings: Sequence[Reading]) -> None:
    """An error where the model side failed on every window: that is not the same as a collection that does not answer."""
    if all(reading.kind == "too_long" for reading in readings):
        window = inquiry.model.card.context_tokens
        raise ContextOverflow(f"No window of evidence fits the model's window of {window} tokens.", window=window, hint="Lower query.window_tokens.")
    if all(reading.kind in ("unreadable", "too_long") for reading in readings):
        raise ReplyInvalid(f"The model gave no usable reply to any of {_windows(readings)}, asked {TRIES} times each.", outcome="invalid")


async def _read_best(inquiry: Inquiry, readings: list[Reading]) -> list[Reading]:
    """The same readings, with those that the gate says to read but that brought no points read now, without the choice to say N."""
    ranked = sorted(range(len(readings)), key=lambda place: (-(readings[place].gate or 0.0), place))
    best = set(ranked[: inquiry.settings.always_read])
    over = {place for place in ranked if (readings[place].gate or 0.0) >= inquiry.settings.gate}
    again = sorted(place for place in best | over if readings[place].kind in ("left", "no") and readings[place].gate is not None)

    async def read(window: Window, begun: Begun) -> list[Reading]:
        return await _read(inquiry, window, begun, forced=True)

    found = await _scan(inquiry, [readings[place].window for place in again], read)
    forced = dict(zip(again, found, strict=True))
    result: list[Reading] = []
    for place, reading in enumerate(readings):
        result += [replace(new, gate=reading.gate) for new in forced[place]] if place in forced else [reading]
    return result


def _points(readings: Sequence[Reading], least: int) -> list[Point]:
    """What is kept, best first: by score, then the gate of the window, then order. A score of 0 says that a point does not help, so `least`
    is 1 unless nothing is ever declined."""
    points = [
        Point(
            text=item.text,
            refs=tuple(dict.fromkeys(reading.window.ids[short] for short in item.sources)),
            score=item.score,
            gate=reading.gate or 0.0,
            forced=reading.forced,
            documents=reading.window.documents,
        )
        for reading in readings
        for item in reading.reply.items
        if item.score >= least
    ]
    return sorted(points, key=lambda point: (-point.score, -point.gate))


def _quoted(inquiry: Inquiry, points: Sequence[Point]) -> list[Point]:
    """The points that an answer has room for, no sentence twice (windows may quote one for several records) and not all about the same."""
    each = list({point.text: point for point in reversed(points)}.values())[::-1]
    most = inquiry.items(inquiry.settings.max_paragraphs, inquiry.reply_tokens(inquiry.settings.reply_tokens))
    return [each[place] for place in varied([(point.refs[0], point.score) for point in each], most, inquiry.view)]


def _windows(readings: Sequence[Reading | Window]) -> str:
    return "1 window" if len(readings) == 1 else f"{len(readings)} windows"


def _note(inquiry: Inquiry, readings: Sequence[Reading], points: Sequence[Point]) -> None:
    count = {kind: sum(reading.kind == kind for reading in readings) for kind in ("points", "no", "left", "unreadable", "too_long")}
    found = f"{len(points)} point{'' if len(points) == 1 else 's'} found" if points else "none holds anything that answers the question"
    parts = [f"{count['points'] + count['no']} of {_windows(readings)} read, {found}."]
    if count["left"]:
        parts.append(f"{count['left']} left unread below the gate of {inquiry.settings.gate:g}.")
    if count["unreadable"]:
        parts.append(f"{count['unreadable']} gave no usable reply in {TRIES} tries.")
    if count["too_long"]:
        parts.append(f"{count['too_long']} did not fit the model's window and were not read.")
    if cut := sum(reading.cut_off for reading in readings):
        parts.append(f"{cut} replies were cut off; their complete points are kept.")
    unknown, bare = sum(reading.reply.unknown for reading in readings), sum(reading.reply.bare for reading in readings)
    if unknown:
        parts.append(f"{unknown} cited ids were not in their window and were dropped.")
    if bare:
        parts.append(f"{bare} points without a valid source were dropped.")
    inquiry.notes += parts


# --- reduce


@dataclass(frozen=True, slots=True, kw_only=True)
class _Collected:
    window: Window
    points: tuple[Point, ...]


def _collected(points: Sequence[Point], budget: int, inquiry: Inquiry) -> _Collected:
    """The best points as a window of their own, with ids of their own, as far as they fit (the first is always in it)."""
    count = inquiry.model.counter.count
    ids: dict[str, Ref] = {}
    short: dict[Ref, str] = {}
    last = dict.fromkeys(LETTERS, 0)
    lines: list[str] = []
    kept: list[Point] = []
    used = 0
    for point in points:
        fresh = [ref for ref in point.refs if ref not in short]
        numbered = dict(last)
        names = dict(short)
        for ref in fresh:
            numbered[ref.kind] += 1
            names[ref] = f"{LETTERS[ref.kind]}{numbered[ref.kind]}"
        first, *others = [names[ref] for ref in point.refs]
        line = f"{first} {shown_as(point.text)}" + (f" (also {', '.join(others)})" if others else "")
        cost = count(line) + count("\n") + 1
        if used + cost > budget and kept:
            break
        used, last, short = used + cost, numbered, names
        ids |= {names[ref]: ref for ref in fresh}
        lines.append(line)
        kept.append(point)
    documents = tuple(sorted({document for point in kept for document in point.documents}))
    window = Window(units=(), text="\n".join(lines), ids=ids, tokens=used, documents=documents, digest="")
    return _Collected(window=window, points=tuple(kept))


async def reduce(inquiry: Inquiry, points: Sequence[Point]) -> list[Paragraph]:
    """One answer from the points; the points themselves where the model twice fails to write it; nothing where it says that they do not answer.

    It is asked whether they do only when every window was read against its own judgement.
    """
    may_decline = all(point.forced for point in points)
    if inquiry.quotes:
        fitting = await fitting_points(inquiry, {point.text: point.refs[0] for point in reversed(points)})
        points = _quoted(inquiry, [point for point in points if point.text in fitting])
        if not points:
            return []
    collected = _collected(points, reduce_room(inquiry), inquiry)
    answer: list[Paragraph] | None = None
    try:
        answer = (await write(inquiry, "reduce", collected.window, may_decline=may_decline)).value
    except ContextOverflow:
        fewer = _collected(points, smaller_budget(collected.window), inquiry)
        if fewer.window.tokens < collected.window.tokens:
            collected = fewer
            with suppress(ContextOverflow):
                answer = (await write(inquiry, "reduce", collected.window, may_decline=may_decline)).value
    if inquiry.trace:
        told = [{"text": point.text, "score": point.score, "gate": point.gate, "of": inquiry.trace.records(inquiry.view, point.refs)} for point in points]
        inquiry.trace.note("points", points=told, fitted=len(collected.points))
    if len(collected.points) < len(points):
        inquiry.notes.append(f"The {len(collected.points)} best of {len(points)} points fitted into the final call.")
    if answer is not None:
        return answer
    inquiry.notes.append("The final call gave no usable answer; the points found stand for it as they are.")
    return [Paragraph(text=point.text, refs=point.refs) for point in collected.points[: inquiry.settings.max_paragraphs]]


async def write(inquiry: Inquiry, prompt: str, window: Window, *, may_decline: bool, gate: float | None = None) -> Outcome[list[Paragraph]]:
    """The paragraphs that the model writes from a window, as whoever listens hears them; none where it declines. `gate`: see
    `Inquiry.request`."""
    reply = inquiry.reply_tokens(inquiry.settings.reply_tokens)
    items = inquiry.items(inquiry.settings.max_paragraphs, reply)
    messages = inquiry.messages(prompt, items=items, may_decline=may_decline, text=window.text)
    constraint, read, ids = await _answering(inquiry, prompt, window, items, may_decline=may_decline)
    if not ids:
        inquiry.notes += [] if UNFIT in inquiry.notes else ["There was nothing to quote."]
        return Outcome(value=[], gate=None)
    request = inquiry.request(messages, constraint, reply, gate=gate, window=window)
    if inquiry.ear:
        lines = isinstance(constraint, Grammar)
        request = replace(request, heard=inquiry.ear.hearing(read, ids, lines=lines, words=lines and not inquiry.quotes))
    outcome = await inquiry.ask(request, read)
    if outcome.value is None:
        inquiry.notes.append(f"The reply to {prompt!r} could not be used in {TRIES} tries: {outcome.problem}.")
        return Outcome(value=None, gate=None, problem=outcome.problem, uncited=outcome.uncited)
    answer = outcome.value
    if not answer.useful:
        inquiry.notes.append("The model read the evidence and says that it does not answer the question.")
        return Outcome(value=[], gate=outcome.gate)
    if outcome.cut_off:
        inquiry.notes.append(f"The answer was cut off at {reply} tokens; its complete paragraphs are shown.")
    if answer.unknown:
        inquiry.notes.append(f"{answer.unknown} cited ids were not in the evidence and were dropped.")
    if answer.bare:
        inquiry.notes.append(f"{answer.bare} paragraphs without a valid source were dropped.")
    inquiry.missing, doubt = left_open(answer.missing, inquiry.question, window.text)
    inquiry.notes += [f"What the answer says is missing was left out: {doubt}."] if doubt else []
    paragraphs = [Paragraph(text=item.text, refs=tuple(dict.fromkeys(ids[short] for short in item.sources))) for item in answer.items]
    return Outcome(value=paragraphs, gate=outcome.gate, cut_off=outcome.cut_off)


Asking = tuple[Constraint, Callable[[str], Answered], Mapping[str, Ref]]


async def _answering(inquiry: Inquiry, prompt: str, window: Window, items: int, *, may_decline: bool) -> Asking:
    """How an answer is asked for: its constraint, the reader of its reply, and what the ids stand for that it may cite."""
    form = inquiry.model.card.form
    if not inquiry.quotes:
        constraint = answer_constraint(form, tuple(window.ids), items, may_decline=may_decline)
        return constraint, lambda text: read_answer(form, text, window.ids), window.ids
    quotes = quotes_of(window.ids, inquiry.view, inquiry.question, central=NEAR)
    if prompt != "reduce":  # points were measured with those that had no room
        quotes = await fitting_quotes(inquiry, best(quotes, MEASURED * items) if len(quotes) > MEASURED * items else quotes)
    quotes = best(quotes, items) if len(quotes) > items else quotes  # points are in their order already
    texts = {short: quote.text for short, quote in quotes.items()}
    least = -(-2 * len(quotes) // 3)  # it may leave out a third: when to stop it does not know
    choice = choice_constraint(tuple(quotes), least=least, most=items, scored=False, may_decline=may_decline)
    top = next(iter(quotes if prompt == "reduce" else best(quotes, 1)), "")
    return choice, lambda text: read_headed(text, texts, top, items), {short: quote.ref for short, quote in quotes.items()}
