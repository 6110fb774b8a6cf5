"""What text is to this program: sentences, names, words. One code for chunking, extraction, merging and the question.

All functions are pure, know every script, and give character offsets into the text they were given.
"""

import re
import unicodedata
from collections.abc import Iterator

# Ends of sentences: Latin and Cyrillic, CJK full width, Arabic, Devanagari, Armenian, Ethiopic, Khmer, Burmese.
_STRONG = "。！？｡．؟۔।॥։።៕။"
_CLOSERS = "\"'”’»›)\\]}」』）】》〉"
_END = re.compile(rf"(?:[.!?…]+[{_CLOSERS}]*(?=\s|$))|(?:[{_STRONG}]+[{_CLOSERS}]*)|\n")
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st sr jr vs etc no nr fig eq ca cf al gen col lt sgt capt rev hon inc ltd co corp dept approx est "
    "vol ed eds pp "
    "jan feb mar apr jun jul aug sep sept oct nov dec z.b d.h u.a bzw usw evtl sog str hr fr abs art bd hrsg e.g i.e a.m p.m u.s m mme mlle av p ex".split()
)  # fmt: skip
_LIST_MARK = re.compile(r"[ \t]*(?:[-*+•|#>–—]|\d{1,3}[.)]|[^\W\d_]{1,20}:|\[)")
SOFT_WRAP = 45  # a line shorter than this that lacks a full stop is a heading, a verse or a cell: it stands alone

DIRECTION_MARKS = "\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff\u061c\u00ad"
_TATWEEL = "\u0640"
_ARABIC_MARKS = re.compile("[\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_QUOTES = str.maketrans("’‘ʼ´`“”„«»‐‑–", "'''''\"\"\"\"\"---")
_CJK = "\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_CJK_GAP = re.compile(rf"(?<=[{_CJK}])\s+(?=[{_CJK}])")
_WORD = re.compile(rf"[{_CJK}]|[^\W_]+(?:['’][^\W_]+)?")
BYTES_PER_TOKEN = 4.6  # design measurement: UTF-8 bytes per o200k token of prose


def size(text: str) -> float:
    """The size of a text in model-free tokens: UTF-8 bytes / 4.6 (independent of any model, so chunks outlive a change of model)."""
    return len(text.encode("utf-8", "surrogatepass")) / BYTES_PER_TOKEN


def _ends_here(text: str, match: re.Match[str]) -> bool:
    """Whether a candidate really ends a sentence."""
    at, end = match.start(), match.end()
    first = text[at]
    if first == "\n":
        line = text[text.rfind("\n", 0, at) + 1 : at].rstrip()
        following = text[end:end + 40]
        if not following.strip(" \t") or following.lstrip(" \t").startswith("\n"):
            return True
        return len(line) < SOFT_WRAP or bool(_LIST_MARK.match(following))
    if first in _STRONG:
        return True
    rest = text[end:end + 40].lstrip()
    if rest and rest[0].islower():
        return False
    if first == "." and end == at + 1:
        word = re.search(r"[\w.]+$", text[max(0, at - 12):at])
        if word and (word.group().lower() in _ABBREVIATIONS or (len(word.group()) == 1 and word.group().isupper())):
            return "\n\n" in text[end:end + 3] or not rest
    return True


def sentences(text: str) -> list[tuple[int, int]]:
    """The sentences of a text as (start, end) without surrounding white space; the rest of the text is in exactly one.

    A blank line always ends a sentence; a single line break does unless the line before it looks wrapped (45 characters
    or more, our choice).
    """
    spans: list[tuple[int, int]] = []
    begin = 0
    for match in _END.finditer(text):
        if match.start() < begin or not _ends_here(text, match):
            continue
        _append(spans, text, begin, match.end())
        begin = match.end()
    _append(spans, text, begin, len(text))
    return spans


def _append(spans: list[tuple[int, int]], text: str, begin: int, end: int) -> None:
    piece = text[begin:end]
    stripped = piece.strip()
    if stripped:
        start = begin + len(piece) - len(piece.lstrip())
        spans.append((start, start + len(stripped)))


def one_line(text: str) -> str:
    """The text on one line: runs of white space are one blank, control characters and lone surrogates are gone."""
    return " ".join(_CONTROL.sub(" ", text).split())


def clean_name(name: str) -> str:
    """A name as it is shown: NFC, one line, no direction marks, no tatweel, no quotes or stops around it."""
    text = unicodedata.normalize("NFC", one_line(name)).translate({ord(mark): None for mark in DIRECTION_MARKS + _TATWEEL})
    text = text.strip().strip("\"“”„«»").strip()
    return text[:-1].rstrip() if text.endswith(".") and not _is_initialism(text) else text


def _is_initialism(text: str) -> bool:
    tail = text.rsplit(" ", 1)[-1].rstrip(".")
    return tail.lower() in _ABBREVIATIONS or "." in tail or len(tail) == 1


def name_key(name: str) -> str:
    """The key under which mentions become one node (algorithms §4): NFKC, case folding, white space, quotes, a final stop, Arabic marks.

    Never empty for a name with a visible character. Up to three letters in capitals keep their case ("US" is not "us", our choice).
    """
    text = unicodedata.normalize("NFKC", clean_name(unicodedata.normalize("NFKC", name))).translate(_QUOTES)
    text = _CJK_GAP.sub("", " ".join(_ARABIC_MARKS.sub("", text).split()))
    text = text[:-1] if text.endswith(".") and len(text) > 1 else text
    short = len(text) <= 3 and text.isupper() and text.isascii() and text.isalpha()
    key = text if short else unicodedata.normalize("NFKC", text.casefold())
    return key or name.strip() or "?"


def words(text: str) -> Iterator[str]:
    """The folded words of a text in order; scripts without spaces give single characters, digits of every script become ASCII."""
    folded = _ARABIC_MARKS.sub("", unicodedata.normalize("NFKC", text).translate(_QUOTES).casefold().replace(_TATWEEL, ""))
    for match in _WORD.finditer(folded):
        yield match.group() if match.group().isascii() else "".join(map(_ascii_digit, match.group()))


def _ascii_digit(character: str) -> str:
    value = unicodedata.digit(character, -1)
    return str(value) if value >= 0 else character


_LOOKALIKES = re.compile(
    r"<(?=\|)|(?<=\|)>|<(?=/?\s*(?:text|s|think|question|window|context)\b)|\[(?=/?INST\]|/?SYS|\s*[RECSKD]?\d+(?:\s*[,;\-–]\s*[RECSKD]?\d+)*\s*\])|"
    r"(?m:^[ \t]*#)(?=#{0,5}[ \t])",
    re.IGNORECASE,
)
_TWINS = {"<": "‹", ">": "›", "[": "⁅", "#": "＃"}


def neutralise(text: str) -> str:
    """The text with look-alikes of control tokens, our markers and citation ids defused, character for character.

    Offsets do not move, so spans found in the neutralised text hold in the original; the stored text is never changed.
    """
    return _LOOKALIKES.sub(lambda match: match.group()[:-1] + _TWINS.get(match.group()[-1], match.group()[-1]), text)


def is_question(text: str) -> bool:
    """Whether a question holds at least one letter or digit of any script."""
    return any(character.isalnum() for character in text)
