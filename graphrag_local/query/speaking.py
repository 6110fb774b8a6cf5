"""Who speaks where in a transcript, a protocol of a hearing or a chat, by the names that its lines begin with. Pure.

Most sentences of such a document do not say who says them, and those that do have the name before them as a label, which says nothing about their
content; so who speaks is known apart from what is said.
"""

import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from graphrag_local.query.view import View, remembered
from graphrag_local.text import ends_like_a_sentence

_WHEN = r"[\[(]?[\d./:, \-T]{0,24}\d:\d{2}(?::\d{2})?(?:[.,]\d{1,6})?(?:[ \u202f]?[AaPp][Mm])?[\])]?[ \t]*+[–-]?[ \t]*+"
_LABEL = re.compile(rf"^[ \t>*_]*+(?P<when>{_WHEN})?(?P<who>[^\W\d_][^\n:：!?;]{{0,39}}?)[ \t*_]{{0,4}}[:：][*_]*\s*(?=\S)", re.MULTILINE)
_HEADING = re.compile(r"^[ \t]*+(?:#|[-*_=]{3,}[ \t]*$)|(?:\n[ \t]*){2}(?P<alone>\S[^\n]{0,59})(?=\n[ \t]*(?:\n|\Z))", re.MULTILINE)
_BROKEN_OFF = ("-", "–", "—", ",", ";", "…")
REMEMBERED = 512  # documents whose turns are kept for the next question
_WORD = re.compile(r"[^\W_]+")
NAME_WORDS = 5  # that a name has at most
SMALL = 3  # letters of a word of a name that may begin small (de, van, bin)
TURNS, TIMES = 6, 2  # that a document has at least, and each of its speakers
LINES = 0.2  # of a document's lines that begin a turn at least: fewer are notes in a text
SAID = 0.65  # of the turns that end like sentences, or have the time before the name: the values of a form do not
# All four our choice: 59 of 60 interviews have 35 to 606 turns on 22 to 85 % of their lines, 67 to 97 % of which end like a sentence; of 50 other texts none has
# labels on more than 5 % of its lines.


@dataclass(frozen=True, slots=True)
class Turn:
    """What one says: where the label before it begins, where what is said begins and ends, and who says it."""

    begin: int
    said: int
    end: int
    who: str


def turns(text: str) -> tuple[Turn, ...]:
    """The turns of a conversation in their order; none where a text is not one.

    A turn ends at a heading, and the last one where it becomes longer than all others: what follows may be about the conversation.
    """
    found = [match for match in _LABEL.finditer(text) if _is_name(match["who"], timed=match["when"] is not None)]
    times = Counter(match["who"].casefold() for match in found)
    known = {word for who, count in times.items() if count >= TIMES for word in _WORD.findall(who)}
    found = [match for match in found if known.issuperset(_WORD.findall(match["who"].casefold()))]  # also both together, and first names
    lines = sum(1 for line in text.splitlines() if line.strip())
    names = [match["who"].casefold() for match in found]
    if len(found) < max(TURNS, LINES * lines) or len(set(names)) < 2 or _is_form(names):
        return ()
    ends = [*(match.start() for match in found[1:]), len(text)]
    longest = max(end - match.end() for match, end in zip(found[:-1], ends[:-1], strict=True))
    told = sum(match["when"] is not None or ends_like_a_sentence(text[match.end() : end].rstrip()) for match, end in zip(found, ends, strict=True))
    if told < SAID * len(found):
        return ()
    ends = [_until(text, match.end(), end) for match, end in zip(found, ends, strict=True)]
    ends[-1] = min(ends[-1], found[-1].end() + longest)
    return tuple(Turn(match.start(), match.end(), end, match["who"]) for match, end in zip(found, ends, strict=True))


def _is_form(names: list[str]) -> bool:
    """Whether labels, three or more, always follow each other in the same order, as those of records do and speakers do not."""
    return len(set(names)) > 2 and len(set(pairwise(names))) == len(set(names))


def _until(text: str, begin: int, end: int) -> int:
    """Where a turn ends: before the first heading in it."""
    for heading in _HEADING.finditer(text, begin, end):
        alone = heading["alone"]
        if alone is None or not (alone[0].islower() or ends_like_a_sentence(alone.rstrip()) or alone.rstrip().endswith(_BROKEN_OFF)):
            return heading.start()
    return end


def _is_name(who: str, *, timed: bool) -> bool:
    found = _WORD.findall(who)
    return 0 < len(found) <= NAME_WORDS and (timed or all(len(word) <= SMALL or not word[0].islower() for word in found))


def turns_of(document_id: str, view: View) -> tuple[Turn, ...]:
    """The turns of a document of an index."""
    known: dict[str, tuple[Turn, ...]] = remembered(view.index, "turns of documents", dict)
    if document_id not in known:
        if len(known) >= REMEMBERED:
            known.clear()
        document = view.documents.get(document_id)
        known[document_id] = turns(document.text) if document else ()
    return known[document_id]


def speaker(said: tuple[Turn, ...], place: int) -> str:
    """Who speaks at a place of a document, "" where nobody is known to."""
    number = bisect_right(said, place, key=lambda turn: turn.begin) - 1
    return said[number].who if number >= 0 and place < said[number].end else ""


def goes_on(said: tuple[Turn, ...], place: int) -> str:
    """Who goes on speaking at a place: "" where the name stands just there, and where nobody is known to."""
    number = bisect_right(said, place, key=lambda turn: turn.begin) - 1
    return said[number].who if number >= 0 and said[number].said <= place < said[number].end else ""


def spoken(said: tuple[Turn, ...], start: int, end: int) -> list[tuple[int, int]]:
    """What is said in a span, without labels, as (start, end): in parts where somebody else begins to speak inside."""
    first, last = (bisect_right(said, place, key=lambda turn: turn.begin) for place in (start, end - 1))
    inside = said[max(first - 1, 0) : last]
    begins = [start, *(turn.said for turn in inside if turn.said > start)]
    ends = [*(turn.begin for turn in inside if turn.begin > start), end]
    return [(a, b) for a, b in zip(begins[len(begins) - len(ends) :], ends, strict=True) if a < b]
