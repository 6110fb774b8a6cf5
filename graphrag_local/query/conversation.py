"""A question that is not the first: earlier turns let it be written so that it stands on its own. Retrieval and answer then see that question alone.

A rewritten question that names a number or a name which nobody has said is not believed. Models that are too small to write are not asked: the names in
earlier questions only help to find passages, and what the model is asked stays as it is.
"""

import re
from collections.abc import Callable, Sequence

from graphrag_local.answers import Turn
from graphrag_local.engine.base import TEXT_TERMINAL, Constraint, Form, Grammar, Request, closed, read_json, schema_of
from graphrag_local.errors import ContextOverflow
from graphrag_local.prompting import Message
from graphrag_local.query.context import cut_text, shown_as
from graphrag_local.query.inquiry import Inquiry
from graphrag_local.query.language import instruction, language_of
from graphrag_local.query.passages import LONG, parts_of, shorten
from graphrag_local.query.windows import JOINTS, SMALLEST
from graphrag_local.text import is_question, one_line, phrases, words
from graphrag_local.tokens import count_messages

REWRITTEN_TOKENS = 200  # room for the question that stands on its own
REWRITTEN_CHARACTERS = 500  # and what it may have, or three times what was asked where that is more
NAMES = 8  # from earlier questions, newest first
_MARKER = re.compile(r"\s*\[\d+\]")
_ASKS = re.compile("[?？؟;]\\s*$")


async def prepare(inquiry: Inquiry, history: Sequence[Turn]) -> None:
    """Make the question one that can be answered: on its own, and short enough to be shown beside evidence. The notes say what was done."""
    turns = [turn for turn in history if is_question(turn.question)]
    if turns and inquiry.model.card.tiny:
        _add_names(inquiry, turns)
    elif turns:
        await _rewrite(inquiry, turns)
    shorten(inquiry)


def rewrite_constraint(form: Form) -> Constraint:
    """One run of free text, or an object with one string."""
    if form == "grammar":
        return Grammar(lark=f"start: TEXT\n{TEXT_TERMINAL}")
    return schema_of(closed({"question": {"type": "string"}}))


def _add_names(inquiry: Inquiry, turns: Sequence[Turn]) -> None:
    """Passages are found by the question, and by it with the names of earlier questions."""
    said = set(words(inquiry.question))
    names: dict[str, None] = {}
    for turn in reversed(turns):
        names |= dict.fromkeys(name for start, end in phrases(turn.question) if not said.issuperset(words(name := turn.question[start:end])))
    if not names:
        return
    added = ", ".join(list(names)[:NAMES])
    first, *others = parts_of(inquiry.question)
    inquiry.search = (first, f"{first} {added}", *others)
    inquiry.notes.append(f"The model is too small to rewrite the question; passages were also looked for by names of earlier questions ({one_line(added)}).")


async def _rewrite(inquiry: Inquiry, turns: Sequence[Turn]) -> None:
    asked = inquiry.question
    if len(asked) > LONG:
        inquiry.notes.append("The question is too long to be rewritten from the conversation; it was asked as it is.")
        return
    told = told_of(turns, _room(inquiry), inquiry.model.counter.count)
    said = "\n".join(f"{turn.question} {turn.answer}" for turn in turns)
    read = reader(inquiry.model.card.form, asked, said)
    request = Request(
        messages=_messages(inquiry, told),
        constraint=rewrite_constraint(inquiry.model.card.form),
        max_tokens=inquiry.reply_tokens(REWRITTEN_TOKENS),
        purpose="answer",
        priority=0,
    )
    problem = "there is no room for the conversation in the model's window"
    if told:
        try:
            outcome = await inquiry.ask(request, read)
            problem = outcome.problem
            if outcome.value is not None:
                inquiry.question = outcome.value
                if outcome.value != one_line(asked):
                    inquiry.notes.append(f"Asked as: “{outcome.value}”")
                return
        except ContextOverflow:
            pass
    inquiry.notes.append(f"The question could not be rewritten from the conversation ({problem}); it was asked as it is.")


def _messages(inquiry: Inquiry, told: str) -> tuple[Message, ...]:
    language = instruction(inquiry.question)
    return inquiry.prompts["rewrite"].render(form=inquiry.model.card.form, language=language, history=told, question=shown_as(inquiry.question))


def _room(inquiry: Inquiry) -> int:
    """Tokens for earlier turns."""
    fixed = count_messages(inquiry.model.counter, _messages(inquiry, "")) + JOINTS
    return min(inquiry.settings.history_tokens, inquiry.model.card.context_tokens - fixed - inquiry.reply_tokens(REWRITTEN_TOKENS))


def told_of(turns: Sequence[Turn], room: int, count: Callable[[str], int]) -> str:
    """The newest turns as far as they fit, in their order, a line each for question and answer; the answer that no longer fits is shown by its beginning."""
    lines: list[str] = []
    left = room if room >= SMALLEST else 0
    for turn in reversed(turns):
        asked, answered = f"Q: {shown_as(turn.question)}", _MARKER.sub("", turn.answer)
        cost = count(asked) + count("\n") + 1
        if cost > left:
            break
        left -= cost
        lines.append(asked)
        reply = f"A: {shown_as(answered)}" if is_question(answered) else ""
        if reply and (cost := count(reply) + count("\n") + 1) > left:
            limit = left - count("\n") - 1
            start, end = cut_text(reply, lambda text: count(text) <= limit)[0]  # noqa: B023
            reply, left = (reply[start:end] if limit >= SMALLEST // 2 else ""), 0
        elif reply:
            left -= cost
        lines[-1:] = [reply, asked] if reply else [asked]
    return "\n".join(reversed(lines))


def reader(form: Form, asked: str, said: str) -> Callable[[str], str]:
    """What reads a rewritten question out of a reply; raises ValueError where it is none, is too long, or has a number or name that nobody said."""

    def read(reply: str) -> str:
        value = read_json(reply) if form == "schema" else reply
        text = value.get("question", "") if isinstance(value, dict) else value
        question = one_line(text).strip(" \"'“”„«»") if isinstance(text, str) else ""
        if not is_question(question):
            raise ValueError("there is no question in it")
        if len(question) > max(REWRITTEN_CHARACTERS, 3 * len(asked)):
            raise ValueError(f"it has {len(question)} characters, which is too long for a question")
        if _ASKS.search(asked) and not _ASKS.search(question):
            raise ValueError("it is not a question")
        if strange := invented(question, f"{said} {asked}"):
            raise ValueError(f"it names {strange!r}, which nobody said")
        return question

    return read


def invented(question: str, said: str) -> str:
    """The first number or name of a question that was not said; "" where there is none. German writes every noun with a capital, so there only numbers count."""
    known = set(words(said))
    names = phrases(question) if language_of(question) != "de" else []
    opens = {next(words(question), "")}
    told = [question[start:end] for start, end in names] + re.findall(r"\w*\d\w*", question)
    return next((name for name in told if not known.union(opens).issuperset(words(name))), "")
