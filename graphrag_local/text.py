"""What text is to this program: sentences, names, words. One code for chunking, extraction, merging and the question.

All functions are pure, know every script, and give character offsets into the text they were given.
"""

import re
import unicodedata
from collections.abc import Container, Iterator
from functools import cache, lru_cache
from typing import NamedTuple

from opencc import OpenCC

from graphrag_local.records import Document

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
_VOWEL_SIGNS = "\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
_ARABIC_MARKS = re.compile(f"[{_VOWEL_SIGNS}]")
UNSEEN = f"{DIRECTION_MARKS}{_TATWEEL}{_VOWEL_SIGNS}"  # for a character class: what may stand inside a name in a text without being part of it
_UNSEEN = re.compile(f"(?![\u200b\u2060])[{UNSEEN}]")  # a zero-width space parts words (Khmer, Thai)
# Colours and titles for terminals, then control characters that are no white space.
CONTROLS = "\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b\n]{0,300}(?:\x07|\x1b\\\\)|[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]"
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(f"{CONTROLS}|[\ud800-\udfff]")
_QUOTES = str.maketrans("’‘ʼ´`“”„«»‐‑–", "'''''\"\"\"\"\"---")
_CJK = "\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_CJK_GAP = re.compile(rf"(?<=[{_CJK}])\s+(?=[{_CJK}])")
_WORD = re.compile(rf"[{_CJK}]|[^\W_]+(?:['’][^\W_]+)?")
_WIDE_GAP = re.compile(r"\s{3,}")
_AS_IN_FILE = ("txt", "md")  # formats whose text is what stands in the file, line by line
BYTES_PER_TOKEN = 4.6  # design measurement: UTF-8 bytes per o200k token of prose


def weight(text: str) -> int:
    """The UTF-8 bytes of a text, a run of white space counted as two at most.

    Prompts show white space as one blank and vocabularies have tokens for long runs of it: the columns of a printed table hold no more to read
    than its words do.
    """
    solid = _WIDE_GAP.sub("  ", text)
    return len(solid) if solid.isascii() else len(solid.encode("utf-8", "surrogatepass"))


def size(text: str) -> float:
    """The size of a text in model-free tokens: `weight` / 4.6 (independent of any model, so chunks outlive a change of model)."""
    return weight(text) / BYTES_PER_TOKEN


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


_STOP = re.compile(r"[.!?…。！？｡．؟۔।॥։።៕][\"'”’»›)\]}」』）】》〉*_]*$")


def ends_like_a_sentence(text: str) -> bool:
    """Whether a text ends with a stop of any script, marks around it or not."""
    return _STOP.search(text[-20:]) is not None


def one_line(text: str) -> str:
    """The text on one line: runs of white space are one blank, control characters and lone surrogates are gone."""
    if text.isprintable() and "  " not in text and text[:1] != " " != text[-1:]:
        return text  # the common case, and the quick one: a blank is the only white space that is printable
    return " ".join(_CONTROL.sub("", text).split())


def clean_name(name: str) -> str:
    """A name as it is shown: NFC, one line, no direction marks, no tatweel, no quotes or stops around it."""
    text = unicodedata.normalize("NFC", one_line(name)).translate({ord(mark): None for mark in DIRECTION_MARKS + _TATWEEL})
    text = text.strip().strip("\"“”„«»").strip()
    return text[:-1].rstrip() if text.endswith(".") and not _is_initialism(text) else text


def _is_initialism(text: str) -> bool:
    tail = text.rsplit(" ", 1)[-1].rstrip(".")
    return tail.lower() in _ABBREVIATIONS or "." in tail or len(tail) == 1


@cache
def _simplified() -> OpenCC:
    return OpenCC("t2s")  # tables inside the package, read once


@lru_cache(maxsize=1 << 17)
def name_key(name: str) -> str:
    """The key under which mentions become one node (algorithms §4): NFKC, case folding, white space, quotes, a final stop, Arabic marks, digits
    of other scripts.

    Traditional Chinese characters count as their simplified form (in the key only; names stay as written). Never empty for a name with a visible
    character. Up to three letters in capitals keep their case ("US" is not "us", our choice).
    """
    text = unicodedata.normalize("NFKC", clean_name(unicodedata.normalize("NFKC", name))).translate(_QUOTES)
    text = _CJK_GAP.sub("", " ".join(_ARABIC_MARKS.sub("", text).split()))
    text = text[:-1] if text.endswith(".") and len(text) > 1 else text
    short = len(text) <= 3 and text.isupper() and text.isascii() and text.isalpha()
    key = text if short else unicodedata.normalize("NFKC", "".join(map(_ascii_digit, text.casefold())))
    return (_simplified().convert(key) if _HAN.search(key) else key) or name.strip() or "?"


def words(text: str) -> Iterator[str]:
    """The folded words of a text in order; scripts without spaces give single characters, digits of every script become ASCII.

    As in `name_key`, Arabic vowel signs and stretching, direction marks and joiners do not count, and Chinese characters are simplified.
    """
    return iter(_WORD.findall(text.casefold())) if text.isascii() else _folded(text)  # the first is the same, some five times as fast


def _folded(text: str) -> Iterator[str]:
    folded = _UNSEEN.sub("", unicodedata.normalize("NFKC", _SURROGATE.sub(" ", text)).translate(_QUOTES).casefold())
    folded = _simplified().convert(folded) if _HAN.search(folded) else folded
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
    if "<" not in text and ">" not in text and "[" not in text and "#" not in text:  # a third of the time of `any`
        return text
    return _LOOKALIKES.sub(lambda match: match.group()[:-1] + _TWINS.get(match.group()[-1], match.group()[-1]), text)


def is_question(text: str) -> bool:
    """Whether a question holds at least one letter or digit of any script."""
    return any(character.isalnum() for character in text)


def place_of(document: Document, start: int) -> str:
    """The page, slide, sheet or record at an offset, else the line of the file; "" where the text's lines are not those of its file."""
    before = [place for place in document.places if place.start <= start]
    label, begin = max(((place.label, place.start) for place in before), key=lambda pair: pair[1], default=("line 1", 0))
    if document.format not in _AS_IN_FILE or not label.startswith("line "):
        return label if before else ""
    return f"line {int(label.removeprefix('line ')) + document.text.count(chr(10), begin, start)}"  # a head that was cut off moves the lines


# --- words with their places, and the names that they make


class PlacedWord(NamedTuple):
    """A word of a text: its folded form, its place, and whether it begins with a capital. `bare` scripts have no capitals."""

    key: str
    start: int
    end: int
    capital: bool
    bare: bool


# Scripts without spaces give single characters; of Indic scripts vowel signs, of others combining marks belong to the word.
_UNSPACED = f"{_CJK}\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_LETTERS = f"(?:[^\\W_{_UNSPACED}]+|[\u0300-\u036f\u0591-\u05c7{_VOWEL_SIGNS}{_TATWEEL}\u0900-\u0963\u0966-\u0dff\u200c\u200d\u00ad]+)"
_PLACED = re.compile(f"[{_UNSPACED}]|{_LETTERS}+(?:['’ʼ]{_LETTERS}+)*")
_PLAIN_WORD = re.compile("[A-Za-z0-9]+(?:'[A-Za-z0-9]+)*")
_ACCENTS = re.compile(f"[\u0300-\u036f\u0591-\u05c7{UNSEEN}'’ʼ]")
_PLAIN = str.maketrans({"ø": "o", "æ": "ae", "œ": "oe", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ı": "i", "أ": "ا", "إ": "ا", "آ": "ا", "ى": "ي"})
# Small words that join the words of a name, and those that a name does not begin or end with when it is made shorter.
JOINERS = frozenset("of the de la las los le les du des del della dei di da do dos das van von zu zur zum der den af av ter ten bin ibn al el for".split())
INSIDE = JOINERS | frozenset("and und et y e och og at in on to a an with by from as is was".split())
ARTICLES = frozenset(("the", "a", "an"))
_JOINT = re.compile(r" ?[-‐‑&/] ?|[ \t]?\n?")
_OPENING = re.compile("(?:^|[.!?…:;\n])[\\s\"'“”„«»‘’(\\[{*#>–—-]*$")
_QUOTED = re.compile('[“"]([^“”"\n]{2,60})[”"]|«([^«»\n]{2,60})»|《([^《》\n]{1,60})》|「([^「」\n]{1,60})」|『([^『』\n]{1,60})』|„([^„“”\n]{2,60})[“”]')


@lru_cache(maxsize=1 << 17)
def word_key(word: str) -> str:
    """A word as it is compared when names are linked: as in `name_key`, and without accents, apostrophes and an English possessive."""
    folded = unicodedata.normalize("NFKC", word).casefold()
    folded = folded[:-2] if folded.endswith(("'s", "’s")) and len(folded) > 3 else folded
    if not folded.isascii():
        folded = unicodedata.normalize("NFKC", _ACCENTS.sub("", unicodedata.normalize("NFKD", folded))).translate(_PLAIN)
        folded = _simplified().convert(folded) if _HAN.search(folded) else "".join(map(_ascii_digit, folded))
    return folded.replace("'", "") or word


def placed_words(text: str) -> list[PlacedWord]:
    """The words of a text in order, with their places; characters of scripts without spaces stand alone."""
    found = list(word_pattern(text).finditer(text))
    shapes = [word_shape(match.group()) for match in found]
    return [PlacedWord(key, *match.span(), capital, bare) for match, (key, capital, bare) in zip(found, shapes, strict=True)]


def word_pattern(text: str) -> re.Pattern[str]:
    """What finds the words of a text, as `placed_words` does."""
    return _PLAIN_WORD if text.isascii() else _PLACED


@lru_cache(maxsize=1 << 17)
def word_shape(word: str) -> tuple[str, bool, bool]:
    """A word's key, whether it begins with a capital, and whether its script has none."""
    first = word[0]
    bare = first.lower() == first.upper()
    return word_key(word), not bare and first != first.lower(), bare


def phrases(text: str, usual: Container[str] = (), words: list[PlacedWord] | None = None) -> list[tuple[int, int]]:
    """What looks like a name: runs of words with capitals, joined by at most two small words, and what stands in quotes, as (start, end).

    `usual` are folded words that are mostly written small: a run does not begin with one of them, nor is one of them a name. Scripts without capitals have
    names by their quotes only. `words` are the placed words of the text, where they are known.
    """
    words = placed_words(text) if words is None else words
    found = []
    begin = 0
    starts = [place for place, word in enumerate(words) if word.capital]
    for start in starts:
        if start < begin:
            continue  # inside the run before
        begin = start
        end, small = begin + 1, 0
        while end < len(words) and _joins(text, words[end - 1], words[end]):
            word = words[end]
            if word.capital or (not small and word.key.isdecimal() and len(word.key) <= 2):
                small = 0
            elif small < 2 and word.key in JOINERS:
                small += 1
            else:
                break
            end += 1
        found += _run(text, words[begin:end], usual)
        begin = end
    found += [(match.start(group), match.end(group)) for match in _QUOTED.finditer(text) for group in (match.lastindex or 0,)]
    return sorted(set(found))


def _joins(text: str, before: PlacedWord, word: PlacedWord) -> bool:
    """Whether only what may stand inside a name is between two words: a blank, a hyphen, a line's end, or the stop of an initial or abbreviation."""
    gap = text[before.end : word.start]
    if gap in (" ", "-"):
        return True
    if gap[:1] == ".":
        return (len(before.key) == 1 or before.key in _ABBREVIATIONS) and gap in (".", ". ")
    return len(gap) <= 3 and _JOINT.fullmatch(gap) is not None


def _run(text: str, run: list[PlacedWord], usual: Container[str]) -> list[tuple[int, int]]:
    """The place of a run, without articles and small words at its ends, and without the usual words that open a sentence."""
    begin, end = 0, len(run)
    opens = bool(run) and _OPENING.search(text, max(0, run[0].start - 20), run[0].start) is not None
    while begin < end and (not run[begin].capital or run[begin].key in ARTICLES or (opens and begin < end - 1 and run[begin].key in usual)):
        begin += 1
    while end > begin and not run[end - 1].capital and not run[end - 1].key.isdecimal():
        end -= 1
    if end == begin or (end == begin + 1 and (run[begin].key in usual or len(run[begin].key) < 2)):
        return []
    return [(run[begin].start, run[end - 1].end)]
