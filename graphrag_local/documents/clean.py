"""Text as it is stored: one kind of line end, NFC, no control characters, no licence texts; and where titles come from.

Lines stay lines, so that a line number in the text (plus the first line's, where a head was cut) is one in the file.
"""

import re
import unicodedata
from dataclasses import dataclass

import regex

from graphrag_local.records import Cut, Place
from graphrag_local.text import CONTROLS, one_line

_DROPPED = re.compile(f"{CONTROLS}|\ufeff")
_BLANKS = str.maketrans(dict.fromkeys("\x0b\x0c\x1c\x1d\x1e\x1f", " ") | {0xD800 + i: "\ufffd" for i in range(0x800)})
_ODD = re.compile("[\x0b\x0c\x1c-\x1f\ud800-\udfff]")
_MARKS = regex.compile(r"\p{M}{200}")
_MARK_RUN = regex.compile(r"(\p{M}{199})\p{M}+")
TITLE_CHARACTERS = 200

_PG_START = re.compile(r"(?m)^[ \t]*\*{3} ?START OF TH(?:E|IS) PROJECT GUTENBERG[^*]{0,300}\*{3}[^\n]*|^\*END\*? ?THE SMALL PRINT[^\n]*")
_PG_END = re.compile(r"(?mi)^[ \t]*(?:\*{3} ?END OF TH(?:E|IS) PROJECT GUTENBERG|End of (?:th(?:e|is) )?Project Gutenberg)[^\n]*")
_PG_TITLE = re.compile(r"(?mi)^Title: *([^\n]+)|Project Gutenberg(?:'s)? (?:e-?book|e-?text) of ([^\n*]+?)(?:, by [^\n]*|[.*]*)$")
_PG_HEAD = 60_000  # the small print of the nineties is 15,000 characters long

_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\n((?:[^\n]*\n){1,400}?)(?:\1|\.\.\.)[ \t]*(?:\n|$)")
_FRONT_KEY = re.compile(r"\s*(?:#[^\n]*\n\s*)*[\w\"'-]+\s*[:=]")
_FRONT_TITLE = re.compile(r"^title\s*[:=]\s*(\S[^\n]*)$", re.MULTILINE | re.IGNORECASE)
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*[ \t]*$")
_INLINE = re.compile(r"!?\[([^\]]*)\]\([^)]*\)|<[^>]{1,200}>|[*`]+|(?<!\w)_+|_+(?!\w)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A text without its head and foot, with what that says about it."""

    text: str
    title: str = ""
    places: tuple[Place, ...] = ()
    cuts: tuple[Cut, ...] = ()


def normalise(text: str) -> tuple[str, int]:
    """The text with LF line ends, NFC, without byte-order marks and control characters; and how many of those it lost.

    Form feeds and their like become blanks, lone surrogates U+FFFD. Idempotent. Runs of over 200 combining marks, which
    no script writes, lose the rest: composing them takes quadratic time (160 kB took 5 s).
    """
    kept = _DROPPED.sub("", text)
    dropped = len(text) - len(kept)
    if "\r" in kept:
        kept = kept.replace("\r\n", "\n").replace("\r", "\n")
    if _ODD.search(kept):
        kept = kept.translate(_BLANKS)
    if not kept.isascii():
        if _MARKS.search(kept):
            before = len(kept)
            kept = _MARK_RUN.sub(r"\1", kept)
            dropped += before - len(kept)
        kept = unicodedata.normalize("NFC", kept)
    return kept, dropped


def title_of(text: str) -> str:
    """A title as it is stored: one line, at most 200 characters."""
    return one_line(normalise(text)[0])[:TITLE_CHARACTERS].rstrip()


def without_licence(text: str) -> Body:
    """A Project Gutenberg text without its header and licence; every other text as it is."""
    start = _PG_START.search(text, 0, _PG_HEAD)
    if start is None or "project gutenberg" not in text[:3000].lower():
        return Body(text=text)
    end = _PG_END.search(text, start.end())
    stop = end.start() if end else len(text)
    body = text[start.end() : stop]
    found = _PG_TITLE.search(text, 0, start.end())
    cuts = [Cut(reason="Project Gutenberg header", characters=start.end())]
    if end:
        cuts.append(Cut(reason="Project Gutenberg licence", characters=len(text) - stop))
    return _from_line(text, start.end(), body.rstrip() + "\n", title_of(found.group(1) or found.group(2)) if found else "", tuple(cuts))


def without_front_matter(text: str) -> Body:
    """A Markdown text without its YAML or TOML front matter, whose title it takes."""
    match = _FRONT_MATTER.match(text)
    if match is None or not _FRONT_KEY.match(match.group(2)):
        return Body(text=text)
    found = _FRONT_TITLE.search(match.group(2))
    title = _unquoted(found.group(1)) if found else ""
    return _from_line(text, match.end(), text[match.end() :], title_of(title), (Cut(reason="front matter", characters=match.end()),))


def _from_line(text: str, start: int, body: str, title: str, cuts: tuple[Cut, ...]) -> Body:
    """The body without blank first lines; its place says in which line of the file it begins."""
    begin = start + len(body) - len(body.lstrip("\n"))
    return Body(text=body.lstrip("\n"), title=title, cuts=cuts, places=(Place(label=f"line {text.count(chr(10), 0, begin) + 1}", start=0),))


def _unquoted(value: str) -> str:
    value = value.strip()
    if len(value) > 1 and value[0] in "\"'" and (end := value.rfind(value[0])) > 0:
        inner = value[1:end]
        return inner.replace("''", "'") if value[0] == "'" else inner.replace('\\"', '"').replace("\\\\", "\\")
    return "" if value in ("|", ">", "|-", ">-") else value.split(" #", 1)[0]


def first_heading(text: str) -> str:
    """The first Markdown heading outside code, without its markup; "" without one."""
    fence = previous = ""
    for line in text[:20_000].split("\n"):
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~"):
            fence = "" if fence == mark else fence or mark
        elif not fence:
            if match := _HEADING.match(line):
                return title_of(_INLINE.sub(r"\1", match.group(1)))
            if previous.strip() and re.fullmatch(r"=+\s*", line):
                return title_of(_INLINE.sub(r"\1", previous))
        previous = line
    return ""
