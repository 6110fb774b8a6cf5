"""What the model may say to a question, in both forms, and its replies read.

`grammar`: one line a point or paragraph, fields separated by tabs, which lie outside the free-text class and so keep a mask cheap. `schema`: plain
JSON with an enum of ids. Either way only ids of the prompt can be cited, and at least one; where a server ignores the constraint, an id
that was not in the prompt is dropped here and counted. A reply that was cut off gives what is complete in it.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphrag_local.engine.base import TEXT_TERMINAL, Constraint, Form, Grammar, closed, read_json, schema_of

MAX_SOURCES = 5
CHOICE_TOKENS = 11  # of a choice at most, whatever the tokenizer (a token is a character at least): an id, a tab, three digits, a line end
MARK = "?"  # begins a line with words of its own; a tab follows, which is in no text
LONGEST_RANGE = 20  # "R1-R3" from a server that ignores the constraint means three ids; longer ranges are not believed


class Uncited(ValueError):
    """A reply in the right form that cites nothing it was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A point (with a score from 0 to 100) or a paragraph, with the short ids it cites, all of them in its prompt."""

    text: str
    sources: tuple[str, ...]
    score: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A reply, read. `useful` is its own Y or N; `unknown` counts cited ids that were not in the prompt, `bare` items without a source that was.

    `missing` is the part of the question that an answer says is not answered.
    """

    useful: bool
    items: tuple[Said, ...] = ()
    unknown: int = 0
    bare: int = 0
    missing: str = ""


def map_constraint(form: Form, ids: Sequence[str], points: int, *, forced: bool = False) -> Constraint:
    """A window's reply: Y or N, then points with their sources and, after them, a score.

    `forced`: the window is read whatever the model thinks of it, so there is no N, and a score may be 0.
    """
    if form == "schema":
        score = {"type": "integer", "minimum": 0 if forced else 1, "maximum": 100}
        point = closed({"text": {"type": "string"}, "sources": _sources(ids), "score": score})
        useful = {"enum": ["Y"] if forced else ["Y", "N"]}
        return schema_of(closed({"useful": useful, "points": {"type": "array", "items": point, "minItems": 1, "maxItems": points}}))
    lines = [
        f'start: {"" if forced else _NO}"Y\\n" point{{1,{points}}}',
        'point: text "\\t" sources "\\t" SCORE "\\n"',
        "SCORE: /100|[1-9][0-9]|[0-9]/" if forced else "SCORE: /100|[1-9][0-9]?/",
    ]
    return _grammar(lines, ids)


def answer_constraint(form: Form, ids: Sequence[str], paragraphs: int, *, may_decline: bool) -> Constraint:
    """An answer in paragraphs that each cite; with `may_decline` the model says first whether the evidence answers the question.

    What the evidence leaves open has a place of its own at the end, without ids: in a paragraph it would have to cite something that does not say it.
    """
    if form == "schema":
        paragraph = closed({"text": {"type": "string"}, "sources": _sources(ids)})
        first: dict[str, Any] = {"answered": {"enum": ["Y", "N"]}} if may_decline else {}
        listed = {"type": "array", "items": paragraph, "minItems": 1, "maxItems": paragraphs}
        return schema_of(closed({**first, "paragraphs": listed, "missing": {"type": "string"}}))
    start = f"start: {_NO if may_decline else ''}{_YES if may_decline else ''}para{{1,{paragraphs}}} open?"
    return _grammar([start, 'para: text "\\t" sources "\\n"', f'open: "{MARK}\\t" text "\\n"'], ids)


def choice_constraint(ids: Sequence[str], *, least: int, most: int, scored: bool, may_decline: bool) -> Grammar:
    """For models too small to write: `least` to `most` of the ids, a line each, in their order and none twice, or N where it may decline.

    `scored` is a window's reply: it begins with Y or N, and after each id comes its importance, which may be 0 where there is no N.
    """
    first = f"{_NO}{_YES}" if may_decline else _YES if scored else ""
    score = ["SCORE: /100|[1-9][0-9]?/" if may_decline else "SCORE: /100|[1-9][0-9]|[0-9]/"] if scored else []
    end = '\\t" SCORE "\\n"' if scored else '\\n"'
    picks = [f'p{place}: "{short}{end}' for place, short in enumerate(ids)]
    return Grammar(lark="\n".join(["%llguidance {}", f"start: {first}c0_0", *picks, *_chain(len(ids), least, most), *score]) + "\n")


def _chain(number: int, least: int, most: int) -> list[str]:
    """Rules c{i}_{j}: at least one more of the items from the i-th on, after j of them."""
    least, rules = max(1, min(least, most, number)), []
    for taken in range(min(most, number)):
        for at in range(taken, number):
            left = number - at - 1
            if left + 1 < least - taken:
                continue
            more = f"c{at + 1}_{taken + 1}" if taken + 1 < most and left else ""
            then = more if taken + 1 < least else f"{more}?" if more else ""
            skip = f" | c{at + 1}_{taken}" if left >= max(1, least - taken) else ""
            rules.append(f"c{at}_{taken}: p{at} {then}{skip}")
    return rules


_NO, _YES = '"N" | ', '"Y\\n" '


def _grammar(lines: list[str], ids: Sequence[str]) -> Grammar:
    last = f'sources: ID ("," ID){{0,{MAX_SOURCES - 1}}}', "ID: " + " | ".join(f'"{short}"' for short in ids)
    return Grammar(lark="\n".join(["%llguidance {}", *lines, "text: TEXT", *last, TEXT_TERMINAL]) + "\n")


def _sources(ids: Sequence[str]) -> dict[str, Any]:
    return {"type": "array", "items": {"enum": list(ids)}, "minItems": 1, "maxItems": MAX_SOURCES}


def read_points(form: Form, text: str, ids: Collection[str]) -> Answered:
    """A window's reply; raises ValueError where it holds neither an N nor one complete point."""
    return _read(form, text, ids, ("useful", "points"), fields=3)


def read_answer(form: Form, text: str, ids: Collection[str]) -> Answered:
    """An answer; raises ValueError where it holds neither a refusal nor one complete paragraph with a source of its prompt."""
    begin = f"{MARK}\t"
    lines = text.split("\n") if form == "grammar" else []
    told = "\n".join(line for line in lines if not line.startswith(begin)) if lines else text
    answer = _read(form, told, ids, ("answered", "paragraphs"), fields=2)
    if answer.useful and not answer.items:
        raise Uncited(f"no paragraph cites anything that it was given; it begins {text[:80]!r}")
    missing = next((line.removeprefix(begin) for line in lines if line.startswith(begin)), "") if lines else _missing(text)
    return replace(answer, missing=missing.strip()) if answer.useful else answer


def _missing(text: str) -> str:
    try:
        value = read_json(text)
    except ValueError:
        return ""
    said = value.get("missing") if isinstance(value, dict) else ""
    return said if isinstance(said, str) else ""


def read_choice(text: str, quotes: Mapping[str, str], *, scored: bool) -> Answered:
    """A choice of ids with what stands for each, every id once. Raises ValueError where it holds neither an N nor one id that was to choose from."""
    first, _, rest = text.partition("\n")
    if first.strip() == "N":
        return Answered(useful=False)
    lines = [line.split("\t") for line in (rest if first.strip() == "Y" else text).split("\n") if line.strip()]
    scores: dict[str, int] = {}
    for line in lines:
        if len(line) == 1 + scored:
            scores.setdefault(line[0].strip(), _score(line[-1]) if scored else 0)
    items = tuple(Said(text=quotes[short], sources=(short,), score=score) for short, score in scores.items() if short in quotes)
    if not items:
        raise Uncited(f"it chooses nothing that it was given; it begins {text[:80]!r}")
    return Answered(useful=True, items=items, unknown=len(scores) - len(items))


def _read(form: Form, text: str, ids: Collection[str], keys: tuple[str, str], fields: int) -> Answered:
    useful, rows = _json_rows(text, *keys) if form == "schema" else _line_rows(text, fields)
    if not useful:
        return Answered(useful=False)
    if not rows:
        raise ValueError(f"it has nothing complete in it; it begins {text[:80]!r}")
    items, unknown, bare = [], 0, 0
    for said, cited, score in rows:
        known = tuple(short for short in cited if short in ids)
        unknown += len(cited) - len(known)
        if known and said.strip():
            items.append(Said(text=said.strip(), sources=known, score=score))
        else:
            bare += 1
    return Answered(useful=True, items=tuple(items), unknown=unknown, bare=bare)


Row = tuple[str, tuple[str, ...], int]


def _line_rows(text: str, fields: int) -> tuple[bool, list[Row]]:
    first, _, rest = text.partition("\n")
    if first.strip() == "N":
        return False, []
    lines = [line.split("\t") for line in (rest if first.strip() == "Y" else text).split("\n")]
    return True, [(line[0], _ids(line[1]), _score(line[2]) if fields == 3 else 0) for line in lines if len(line) == fields]


def _json_rows(text: str, gate: str, key: str) -> tuple[bool, list[Row]]:
    try:
        value = read_json(text)
        said = value if isinstance(value, dict) else {}
        items = said.get(key)
        useful = said.get(gate, "yes")
    except ValueError:
        items = complete_objects(text, key)
        useful = "no" if re.search(rf'"{gate}"\s*:\s*"(?:N|no)"', text) else "yes"
    if str(useful).strip().casefold() in ("n", "no", "false"):
        return False, []
    rows = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return True, [(str(row.get("text") or ""), _ids(row.get("sources")), _score(row.get("score"))) for row in rows]


def complete_objects(text: str, key: str) -> list[dict[str, Any]]:
    """The complete objects of the list under a key, in JSON that breaks off."""
    found: list[dict[str, Any]] = []
    begin = re.search(rf'"{key}"\s*:\s*\[', text)
    at = begin.end() if begin else len(text)
    while at < len(text):
        if text[at] in " \t\r\n,":
            at += 1
            continue
        try:
            value, at = json.JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        found += [value] if isinstance(value, dict) else []
    return found


_ID = re.compile(r"([A-Za-z])\s?(\d{1,6})(?:\s*[-–]\s*([A-Za-z])?\s?(\d{1,6}))?")


def _ids(value: Any) -> tuple[str, ...]:
    """The ids in a field, each once, as they stand in prompts; a range means all that is in it."""
    found: dict[str, None] = {}
    for part in value if isinstance(value, list) else [value]:
        for letter, first, other, last in _ID.findall(str(part or "")):
            a, b = int(first), int(last or first)
            whole = other.upper() in ("", letter.upper()) and a <= b < a + LONGEST_RANGE
            numbers = list(range(a, b + 1)) if whole else [a]
            found |= dict.fromkeys(f"{letter.upper()}{number}" for number in numbers)
    return tuple(found)


def _score(value: Any) -> int:
    match = re.match(r"\s*(\d{1,3})", str(value))
    return min(100, int(match.group(1))) if match else 0
