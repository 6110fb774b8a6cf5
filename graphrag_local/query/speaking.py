"""Who speaks where in a transcript, a protocol of a hearing or a chat, by the names that its lines begin with. Pure.

Most sentences of such a document do not say who says them, and those that do have the name before them as a label, which says nothing about their
content; so who speaks is known apart from what is said.
"""

import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass

from graphrag_local.query.view import View, remembered
from graphrag_local.text import ends_like_a_sentence

_LABEL = re.compile(
    r"^[ \t>*_]*(?:[\[(]?\d{1,2}:\d{2}(?::\d{2})?[\])]?[ \t]*[–-]?[ \t]*)?(?P<who>[^\W\d_][^\n:：!?;]{0,39}?)[ \t*_]{0,4}[:：][*_]*\s*(?=\S)", re.MULTILINE
)
REMEMBERED = 512  # documents whose turns are kept for the next question
_WORD = re.compile(r"[^\W_]+")
NAME_WORDS = 5  # that a name has at most
SMALL = 3  # letters of a word of a name that may begin small (de, van, bin)
TURNS, TIMES = 6, 2  # that a document has at least, and each of its speakers
LINES = 0.2  # of a document's lines that begin a turn at least: fewer are notes in a text, or a form
SAID = 0.6  # of the turns that end like sentences: the values of a form do not
# All four our choice: 60 interviews had 70 to 606 turns on 29 to 85 % of their lines, 78 to 97 % of which end like a sentence; of 50 other texts none had
# labels on more than 5 %.


@dataclass(frozen=True, slots=True)
class Turn:
    """What one says: where the label before it begins, where what is said does, and who says it."""

    begin: int
    said: int
    who: str


def turns(text: str) -> tuple[Turn, ...]:
    """The turns of a conversation in their order; none where a text is not one."""
    labels = [Turn(match.start(), match.end(), match["who"]) for match in _LABEL.finditer(text) if _is_name(match["who"])]
    times = Counter(turn.who.casefold() for turn in labels)
    known = {word for who, count in times.items() if count >= TIMES for word in _WORD.findall(who)}
    labels = [turn for turn in labels if known.issuperset(_WORD.findall(turn.who.casefold()))]  # also both together, and first names
    lines = sum(1 for line in text.splitlines() if line.strip())
    if len(labels) < max(TURNS, LINES * lines) or len({turn.who.casefold() for turn in labels}) < 2:
        return ()
    ends = [*(turn.begin for turn in labels[1:]), len(text)]
    whole = sum(ends_like_a_sentence(text[turn.said : end].rstrip()) for turn, end in zip(labels, ends, strict=True))
    return tuple(labels) if whole >= SAID * len(labels) else ()


def _is_name(who: str) -> bool:
    found = _WORD.findall(who)
    return 0 < len(found) <= NAME_WORDS and all(len(word) <= SMALL or not word[0].islower() for word in found)


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
    """Who speaks at a place of a document, "" before the first turn and where nobody is known to."""
    number = bisect_right(said, place, key=lambda turn: turn.begin) - 1
    return said[number].who if number >= 0 else ""


def goes_on(said: tuple[Turn, ...], place: int) -> str:
    """Who goes on speaking at a place: "" where the name stands just there, and where nobody is known to."""
    number = bisect_right(said, place, key=lambda turn: turn.begin) - 1
    return said[number].who if number >= 0 and place >= said[number].said else ""


def spoken(said: tuple[Turn, ...], start: int, end: int) -> list[tuple[int, int]]:
    """What is said in a span, without labels, as (start, end): in parts where somebody else begins to speak inside."""
    first, last = (bisect_right(said, place, key=lambda turn: turn.begin) for place in (start, end - 1))
    inside = said[max(first - 1, 0) : last]
    begins = [start, *(turn.said for turn in inside if turn.said > start)]
    ends = [*(turn.begin for turn in inside if turn.begin > start), end]
    return [(a, b) for a, b in zip(begins[len(begins) - len(ends) :], ends, strict=True) if a < b]
