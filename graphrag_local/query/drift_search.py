"""drift: begin with the reports nearest the question, ask on in the neighbourhood of what they leave open, and write one answer from all points.

After DRIFT search of Microsoft's GraphRAG, with its calls bounded: one for the reports, at most so many follow-up questions in so many rounds as
the settings say, one for the answer. The questions of the best points go first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphrag_local.engine.base import Constraint, Embedder
from graphrag_local.errors import ContextOverflow, ReplyInvalid
from graphrag_local.flow import map_ordered
from graphrag_local.prompting import Message
from graphrag_local.query import basic_search
from graphrag_local.query.context import Ref, shown_as, unit_of
from graphrag_local.query.followups import Step, constraint, distinct, read_step
from graphrag_local.query.inquiry import TRIES, Inquiry, Paragraph
from graphrag_local.query.language import LONGEST_INSTRUCTION, instruction
from graphrag_local.query.local_search import near_by
from graphrag_local.query.local_search import read as read_near
from graphrag_local.query.mapreduce import CHOICES, NEAR, NOTHING, Point, reduce, reduce_room
from graphrag_local.query.neighbourhood import Section, shared, turns
from graphrag_local.query.passages import parts_of
from graphrag_local.query.quote import best, quotes_of, read_chosen
from graphrag_local.query.retrieve import nearest_units
from graphrag_local.query.schema import choice_constraint
from graphrag_local.query.view import View
from graphrag_local.query.windows import LINE_SHARE, Costs, Window, evidence_room, smaller_budget
from graphrag_local.records import Community, Usage

IN_FLIGHT = 16


@dataclass(slots=True, kw_only=True)
class Course:
    """What was asked so far, what came of it, and what is still open as (score of where it came from, question)."""

    inquiry: Inquiry
    embedder: Embedder
    asked: list[str]
    points: list[Point] = field(default_factory=list)
    open: list[tuple[int, str]] = field(default_factory=list)
    unread: int = 0

    def take(self, window: Window, step: Step | None) -> None:
        """Keep what one step found."""
        if step is None:
            self.unread += 1
            return
        least = 1 if self.inquiry.settings.refusal_margin > -1 else 0
        # The last call may decline, because no gate said whether the collection answers; not that of a tiny model, whose N there is chance.
        may_decline = least > 0 and not self.inquiry.quotes
        points = [
            Point(
                text=item.text,
                refs=tuple(dict.fromkeys(window.ids[short] for short in item.sources)),
                score=item.score,
                gate=0.0,
                forced=may_decline,
                documents=window.documents,
            )
            for item in step.answered.items
            if item.score >= least
        ]
        self.points += points
        score = max((point.score for point in points), default=0)
        self.open += [(score, question) for question in step.questions]

    def next(self, most: int) -> tuple[str, ...]:
        """The questions of the next round: those from the best steps first, none asked before in the same words."""
        ordered = [question for _, question in sorted(self.open, key=lambda pair: -pair[0])]
        self.open = []
        return distinct(ordered, self.asked)[:most]


def most_calls(inquiry: Inquiry) -> int:
    """Calls at most, where every reply can be used and no sentence is checked."""
    settings = inquiry.settings
    followups = settings.drift_rounds * settings.drift_followups
    return 2 + (min(1, followups) if inquiry.quotes else followups)


async def answer(inquiry: Inquiry, embedder: Embedder, level: int) -> list[Paragraph]:
    """The paragraphs of an answer; none when nothing that was read answers the question (the notes say why)."""
    settings = inquiry.settings
    if not inquiry.view.entities:
        inquiry.notes.append("The index has no entities, so the passages nearest to the question were read.")
        return await basic_search.answer(inquiry, embedder)
    reduce_room(inquiry)  # a window too small for the last call is told before the first
    course = Course(inquiry=inquiry, embedder=embedder, asked=[inquiry.question])
    await _begin(course, level)
    rounds = []
    for number in range(settings.drift_rounds):
        more = number + 1 < settings.drift_rounds
        questions = course.next(settings.drift_followups)
        if not number and not questions and settings.drift_followups:
            questions = (inquiry.question,)  # a model that does not ask on, or is too small to, reads what is near the question itself
        if not questions:
            break
        if inquiry.ear:
            inquiry.ear.progress(f"Asking on: {' / '.join(questions)}")
        rounds.append(questions)
        await _round(course, questions, settings.drift_followups if more else 0)
    _note(course, rounds)
    if course.unread == 1 + sum(map(len, rounds)):
        raise ReplyInvalid(f"The model gave no usable reply to any of {course.unread} steps, asked {TRIES} times each.", outcome="invalid")
    ordered = sorted(course.points, key=lambda point: -point.score)
    return await reduce(inquiry, ordered) if ordered else []


def _note(course: Course, rounds: Sequence[Sequence[str]]) -> None:
    notes, points = course.inquiry.notes, len(course.points)
    notes += [f"Round {number} asked: {' / '.join(questions)}" for number, questions in enumerate(rounds, 1)]
    calls = 1 + sum(map(len, rounds)) + (1 if points else 0)
    found = f"{points} point{'' if points == 1 else 's'} found" if points else "none holds anything that answers the question"
    notes.append(f"{calls} calls of at most {most_calls(course.inquiry)} made, {found}.")
    if course.unread:
        notes.append(f"{course.unread} gave no usable reply in {TRIES} tries.")


# --- the reports


async def _begin(course: Course, level: int) -> None:
    """Read the reports nearest the question, and the elements of communities without one."""
    inquiry, settings = course.inquiry, course.inquiry.settings
    near = await nearest_units((inquiry.search or parts_of(inquiry.question))[0], inquiry.view, course.embedder, level, settings.drift_reports)
    communities = _communities(near, level, inquiry.view)[: settings.drift_reports]
    budget = _room(inquiry, "drift_primer", {})

    def window(budget: int) -> Window:
        units = [unit for community in communities if (unit := unit_of(community, inquiry.view, inquiry.model.counter, budget // LINE_SHARE)).blocks]
        costs = Costs(inquiry.model.counter)
        order = turns(units, [range(len(unit.blocks)) for unit in units], budget, costs)
        return shared([Section(units=tuple(units), order=order, share=1.0)], inquiry.view, budget, inquiry.model.counter)[0]

    first = window(budget)
    if not first.ids:
        inquiry.notes.append(f"Level {level} holds nothing to begin with.")
        course.take(first, Step(answered=NOTHING))
        return
    followups = settings.drift_followups if settings.drift_rounds else 0
    read_window, step = await _step(inquiry, "drift_primer", first, window, followups, {})
    course.take(read_window, step)
    if inquiry.trace:
        offered = (ref for community in communities for ref in _refs_of(community, inquiry.view))
        inquiry.trace.window(inquiry.view, "primer", first.ids, first.tokens, offered)
    inquiry.notes.append(f"Began with {len(read_window.units)} of {len(inquiry.view.level(level))} communities of level {level}.")


def _refs_of(community: Community, view: View) -> list[Ref]:
    report = view.report_of.get(community.id)
    return [Ref(kind="report", id=report.id)] if report else [Ref(kind="entity", id=member) for member in community.member_ids]


def _communities(near: Sequence[tuple[Ref, float]], level: int, view: View) -> list[Community]:
    """The communities of a level that hold these reports and entities, each once, in this order; then the others, the most important first: a question
    about everything is near to nothing."""
    communities = view.level(level)
    home: dict[str, Community] = {}
    for community in communities:
        report = view.report_of.get(community.id)
        home |= dict.fromkeys((report.id,) if report else community.member_ids, community)

    def importance(community: Community) -> tuple[float, int, str]:
        report = view.report_of.get(community.id)
        return -(report.rating if report else 0.0), -len(community.member_ids), community.id

    found = [home[ref.id] for ref, _ in near if ref.id in home]
    return list({community.id: community for community in [*found, *sorted(communities, key=importance)]}.values())


# --- the questions


async def _round(course: Course, questions: Sequence[str], followups: int) -> None:
    async def one(question: str) -> tuple[Window, Step | None, Inquiry]:
        own = replace(course.inquiry, question=question, search=(), ear=None, notes=[], usage=Usage())
        asked = {"asked": shown_as(course.inquiry.question)}
        near = await near_by(own, course.embedder)

        def window(budget: int) -> Window:
            return read_near(own, near, budget).window

        first = window(_room(own, "drift_followup", asked))
        if own.trace:
            own.trace.window(own.view, f"follow-up: {question}", first.ids, first.tokens, near.refs())
        if not first.ids:
            return first, Step(answered=NOTHING), own
        return *await _step(own, "drift_followup", first, window, followups, asked), own

    course.asked += questions
    for window, step, own in await map_ordered(questions, one, limit=IN_FLIGHT):
        course.inquiry.usage += own.usage
        course.take(window, step)


Values = Mapping[str, object]


async def _step(inquiry: Inquiry, prompt: str, window: Window, again: Callable[[int], Window], followups: int, more: Values) -> tuple[Window, Step | None]:
    """One call about a window; where the server refuses it for its length, once more about less. The step is None where no reply can be used."""
    try:
        return await _asked(inquiry, prompt, window, followups, more)
    except ContextOverflow:
        less = again(smaller_budget(window))
        if not less.ids or less.tokens >= window.tokens:
            raise
        return await _asked(inquiry, prompt, less, followups, more)


async def _asked(inquiry: Inquiry, prompt: str, window: Window, followups: int, more: Values) -> tuple[Window, Step | None]:
    form, settings = inquiry.model.card.form, inquiry.settings
    reply = inquiry.reply_tokens(settings.map_reply_tokens)
    items = inquiry.items(settings.max_points, reply)
    language = instruction(inquiry.question, settings.language)
    messages = _rendered(inquiry, prompt, items, followups, more, text=window.text, language=language, question=shown_as(inquiry.question))
    if inquiry.quotes:
        quotes = best(quotes_of(window.ids, inquiry.view, inquiry.question, central=NEAR), CHOICES * settings.max_points)
        window = replace(window, ids={short: quote.ref for short, quote in quotes.items()})
        if not quotes:
            return window, Step(answered=NOTHING)
        least = (min(items, len(quotes)) + 1) // 2
        asked: Constraint = choice_constraint(tuple(quotes), least=least, most=items, scored=True, may_decline=True)
    else:
        quotes = {}
        asked = constraint(form, tuple(window.ids), items, followups)

    def read(text: str) -> Step:
        return Step(answered=read_chosen(text, quotes)) if inquiry.quotes else read_step(form, text, window.ids, followups)

    outcome = await inquiry.ask(inquiry.request(messages, asked, reply, gate=None, window=window), read)
    return window, outcome.value


def _room(inquiry: Inquiry, prompt: str, more: Values) -> int:
    """Tokens of evidence in one step."""
    settings = inquiry.settings
    reply = inquiry.reply_tokens(settings.map_reply_tokens)
    items = inquiry.items(settings.max_points, reply)
    language = settings.language.strip() or LONGEST_INSTRUCTION
    empty = _rendered(inquiry, prompt, items, settings.drift_followups, more, text="", language=language, question="")
    return evidence_room(inquiry.model, empty, shown_as(inquiry.question), reply, settings.local_tokens)


def _rendered(inquiry: Inquiry, prompt: str, items: int, followups: int, more: Values, **values: object) -> tuple[Message, ...]:
    form, quotes = inquiry.model.card.form, inquiry.quotes
    return inquiry.prompts[prompt].render(form=form, quotes=quotes, items=items, followups=0 if quotes else followups, **values, **more)
