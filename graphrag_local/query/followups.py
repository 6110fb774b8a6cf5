"""A step of `drift` as the model writes it: points with sources and scores, then questions to ask on; and its reply read."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from graphrag_local.engine.base import TEXT_TERMINAL, Constraint, Form, Grammar, closed, read_json, schema_of
from graphrag_local.query.context import shown_as
from graphrag_local.query.schema import MARK, MAX_SOURCES, Answered, read_points
from graphrag_local.text import is_question, words

LONGEST = 300  # characters of a question; a longer one is no question but a text


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A reply, read: its points, and the questions it asks on, in its order."""

    answered: Answered
    questions: tuple[str, ...] = ()


def constraint(form: Form, ids: Sequence[str], points: int, questions: int) -> Constraint:
    """Y and points, or N; then up to `questions` questions either way. Questions may be asked where nothing was found, else it would end there."""
    if form == "schema":
        sources = {"type": "array", "items": {"enum": list(ids)}, "minItems": 1, "maxItems": MAX_SOURCES}
        point = closed({"text": {"type": "string"}, "sources": sources, "score": {"type": "integer", "minimum": 0, "maximum": 100}})
        asked = {"questions": {"type": "array", "items": {"type": "string"}, "maxItems": questions}} if questions else {}
        told = {"type": "array", "items": point, "maxItems": points}
        return schema_of(closed({"useful": {"enum": ["Y", "N"]}, "points": told, **asked}))
    asks = f" ask{{0,{questions}}}" if questions else ""
    lines = [
        "%llguidance {}",
        f'start: "Y\\n" point{{1,{points}}}{asks} | "N\\n"{asks}' if questions else f'start: "Y\\n" point{{1,{points}}} | "N"',
        'point: text "\\t" sources "\\t" SCORE "\\n"',
        *(['ask: "?\\t" text "\\n"'] if questions else []),
        "SCORE: /100|[1-9][0-9]|[0-9]/",
        "text: TEXT",
        f'sources: ID ("," ID){{0,{MAX_SOURCES - 1}}}',
        "ID: " + " | ".join(f'"{short}"' for short in ids),
        TEXT_TERMINAL,
    ]
    return Grammar(lark="\n".join(lines) + "\n")


def read_step(form: Form, text: str, ids: Collection[str], most: int) -> Step:
    """A reply; raises ValueError where it holds neither an N, nor a complete point, nor a question."""
    if form == "schema":
        asked, rest = _questions(text), text
    else:
        lines = text.split("\n")
        asked = [line[2:] for line in lines if line.startswith(f"{MARK}\t")]
        rest = "\n".join(line for line in lines if not line.startswith(f"{MARK}\t"))
    questions = distinct(asked)[:most]
    try:
        return Step(answered=read_points(form, rest, ids), questions=questions)
    except ValueError:
        if not questions:
            raise
        return Step(answered=Answered(useful=False), questions=questions)


def _questions(text: str) -> list[str]:
    try:
        value = read_json(text)
    except ValueError:  # cut off: its complete points count, its questions are the last thing in it
        return []
    asked = value.get("questions") if isinstance(value, dict) else None
    return [str(question) for question in asked] if isinstance(asked, list) else []


def distinct(questions: Sequence[str], known: Collection[str] = ()) -> tuple[str, ...]:
    """The questions that can be asked, as they may stand in a prompt, each once, without those that are known in the same words."""
    seen = {meaning(question) for question in known}
    kept = []
    for question in questions:
        said = re.sub(r"^(?:\d{1,2}[.)]|[-*•?])\s+", "", shown_as(question).strip())
        if is_question(said) and len(said) <= LONGEST and meaning(said) not in seen:
            seen.add(meaning(said))
            kept.append(said)
    return tuple(kept)


def meaning(question: str) -> frozenset[str]:
    """What makes two questions the same: their words, in any order."""
    return frozenset(words(question))
