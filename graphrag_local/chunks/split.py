"""Document -> chunks, as a pure function of the text.

`anchored` (default) is the priority cut: every possible boundary has a priority that depends only on the 60 characters on either side of it, and
a piece that is too large is cut at its boundary of least priority. No boundary depends on where the document begins, so an edit moves only the
boundaries near it (mean 1.2 chunks for an inserted sentence, where fixed windows change all that follow). `window` is the paper's fixed
windows of cl100k tokens with an overlap.
"""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import regex

from graphrag_local.ids import chunk_id
from graphrag_local.records import Chunk, Document
from graphrag_local.settings import ChunksSettings
from graphrag_local.text import BYTES_PER_TOKEN, sentences, weight
from graphrag_local.tokens import cl100k

CONTEXT = 60  # characters on either side that decide a boundary's priority
BLOCK = 1024
UNWRAPPED = 120  # a line this long was not wrapped by hand: its end is the end of a paragraph (our choice)

_GRAPHEME = regex.compile(r"\X")
# A pair that always has a grapheme boundary between its characters, whatever stands around it.
_PARTED = regex.compile(r"(?s)[\p{GCB=Other}\p{GCB=Control}\p{GCB=LF}][^\p{GCB=Extend}\p{GCB=ZWJ}\p{GCB=SpacingMark}]")
_HEADING = re.compile(r"#{1,6}[ \t]")
_TURN = re.compile(r"(?:[\[(]?\d[\d:.,]*[\])]?[ \t]+)?[^\W\d_][\w .'’()-]{0,40}[:：]")
_WORD_START = re.compile(r"\s\S")
_SURROGATE = re.compile("[\ud800-\udfff]")

Spans = Iterator[tuple[int, int]]
Starts = Callable[[str, int, int], Iterable[tuple[int, bool]]]


def split(document: Document, settings: ChunksSettings, models: Path) -> list[Chunk]:
    """The chunks of a document in order; none for a text of white space only.

    Anchored chunks joined are the whole text; `models` is the folder with the cl100k table, read for windows only.
    """
    text = document.text
    if not text.strip():
        return []
    spans = anchored(text, settings) if settings.method == "anchored" else windows(text, settings, models)
    seen: Counter[str] = Counter()
    chunks = []
    for index, (start, end) in enumerate(spans):
        piece = text[start:end]
        chunk = chunk_id(document.id, piece, seen[piece])
        chunks.append(Chunk(id=chunk, document_id=document.id, index=index, start=start, end=end, text=piece))
        seen[piece] += 1
    return chunks


def anchored(text: str, settings: ChunksSettings) -> Spans:
    """The priority cut: boundaries before sentences; within a sentence that is too large before words, within such a word before graphemes."""
    low, high = settings.min_tokens * BYTES_PER_TOKEN, settings.max_tokens * BYTES_PER_TOKEN
    return _pieces(text, 0, len(text), low, high, (_sentence_starts, _word_starts, _letter_starts))


def _pieces(text: str, start: int, end: int, low: float, high: float, levels: tuple[Starts, ...]) -> Spans:
    """A run of text in pieces of a weight of at most `high` (see `text.weight`), as far as the boundaries of `levels`, coarsest first, allow."""
    if not levels:
        yield from _halves(text, start, end, high)
        return
    places, priorities = array("q", [start]), array("Q", [0])
    for at, opens in levels[0](text, start, end):
        place = whole(text, at, places[-1])
        if places[-1] < place < end and not text[place].isspace():
            places.append(place)
            priorities.append(_priority(text, place, opens))
    places.append(end)
    sizes = array("q", accumulate((weight(text[a:b]) for a, b in pairwise(places)), initial=0))
    for first, last in _cut(sizes, _Least(priorities), low, high):
        if sizes[last] - sizes[first] <= high:
            yield places[first], places[last]
        else:
            yield from _pieces(text, places[first], places[last], low, high, levels[1:])


def _cut(sizes: Sequence[int], priorities: "_Least", low: float, high: float) -> Spans:
    """Pairs of boundary numbers in order: the cut of least priority that leaves `low` on both sides (else the one nearest the middle), and so on."""
    stack = [(0, len(sizes) - 1)]
    while stack:
        first, last = stack.pop()
        if sizes[last] - sizes[first] <= high or last - first == 1:
            yield first, last
            continue
        left = bisect_left(sizes, sizes[first] + low, first + 1, last)
        right = bisect_right(sizes, sizes[last] - low, first + 1, last)
        if left < right:
            cut = priorities.at(left, right)
        else:
            middle = (sizes[first] + sizes[last]) / 2
            near = bisect_left(sizes, middle, first + 1, last - 1)
            cut = min(range(max(first + 1, near - 1), near + 1), key=lambda k: (abs(sizes[k] - middle), k))
        stack += [(cut, last), (first, cut)]


class _Least:
    """Where the leftmost least value of a range is, block by block: text that repeats itself is cut lopsidedly, and that must not cost n²."""

    def __init__(self, values: Sequence[int]) -> None:
        self.values = np.array(values, dtype=np.uint64)
        self.blocks = np.minimum.reduceat(self.values, np.arange(0, len(values), BLOCK))

    def at(self, left: int, right: int) -> int:
        """The index of the leftmost least value in [left, right)."""
        first, last = -(-left // BLOCK), right // BLOCK
        if first >= last:
            return left + int(np.argmin(self.values[left:right]))
        block = (first + int(np.argmin(self.blocks[first:last]))) * BLOCK
        ranges = [(left, first * BLOCK), (block, block + BLOCK), (last * BLOCK, right)]
        found = [a + int(np.argmin(self.values[a:b])) for a, b in ranges if a < b]
        return min(found, key=lambda k: (int(self.values[k]), k))


def _priority(text: str, at: int, opens: bool) -> int:
    """A hash of what stands around a boundary, white space aside; a quarter of it where a paragraph, a section or a speaker's turn begins."""
    before, after = text[max(0, at - CONTEXT) : at], text[at : at + CONTEXT]
    near = f"{' '.join(before.split())}\n{' '.join(after.split())}".encode("utf-8", "surrogatepass")
    value = int.from_bytes(blake2b(near, digest_size=8).digest(), "big")
    return value >> 2 if opens else value


def _sentence_starts(text: str, start: int, end: int) -> Iterable[tuple[int, bool]]:
    """Where sentences begin, and whether something larger begins there. Asked about a whole text only."""
    spans = sentences(text[start:end])
    return ((start + at, _opens(text, start + before, start + at)) for (_, before), (at, _) in pairwise(spans))


def _opens(text: str, before: int, at: int) -> bool:
    """Whether a paragraph, a section or a speaker's turn begins at `at`, the sentence before it having ended at `before`."""
    breaks = text.count("\n", before, at)
    if breaks == 0:
        return False
    line = text.rfind("\n", 0, before) + 1
    if _HEADING.match(text, line):
        return False  # a heading stays with what it heads
    return breaks > 1 or before - line > UNWRAPPED or bool(_HEADING.match(text, at) or _TURN.match(text, at))


def _word_starts(text: str, start: int, end: int) -> Iterable[tuple[int, bool]]:
    piece = text[start:end]
    first = end - len(piece.lstrip())  # white space at the beginning of a document belongs to its first word
    return ((match.end() - 1, False) for match in _WORD_START.finditer(text, first, end))


def _letter_starts(text: str, start: int, end: int, *, near: int = 4, step: int = 1 << 20) -> Iterable[tuple[int, bool]]:
    """One in sixteen places within an endless word, chosen by a cheap hash of the four characters on either side (so a pure function, too)."""
    for base in range(start, end, step):
        first = max(start, base - near)
        raw = text[first : min(end, base + step + near)].encode("utf-32-le", "surrogatepass")
        codes = np.frombuffer(raw, dtype="<u4").astype(np.uint64)
        count = len(codes) - 2 * near + 1
        if count < 1:
            continue
        mixed = np.zeros(count, dtype=np.uint64)
        for shift in range(2 * near):
            mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + codes[shift : shift + count]
        mixed ^= mixed >> np.uint64(31)
        mixed *= np.uint64(0xD6E8FEB86659FD93)
        for at in (np.flatnonzero(mixed >> np.uint64(60) == 0) + first + near).tolist():
            if base <= at < base + step and not text[at - 1].isspace():
                yield at, False


def _halves(text: str, start: int, end: int, high: float) -> Spans:
    """A word without any boundary, such as ten thousand equal letters, in equal parts."""
    stack = [(start, end)]
    while stack:
        start, end = stack.pop()
        solid = text[start:end].rstrip()
        middle = whole(text, start + len(solid) // 2, start)
        if weight(solid) <= high or not start < middle < end or text[middle].isspace():
            yield start, end
        else:
            stack += [(middle, end), (start, middle)]


def whole(text: str, at: int, floor: int) -> int:
    """The first grapheme boundary at or after `at` and `floor`; `floor` is one itself."""
    start = at = max(at, floor)
    while start > floor and not _PARTED.match(text, start - 1):
        start -= 1
    while start < at:
        start = _next(text, start)
    return start


def _next(text: str, start: int) -> int:
    """The end of the grapheme that begins at `start`; looked for in short slices, since the pattern counts flags from the text's beginning."""
    size = 16
    while True:
        end = int(_GRAPHEME.match(text[start : start + size]).end())
        if end < size or start + size >= len(text):
            return start + end
        size *= 8


def windows(text: str, settings: ChunksSettings, models: Path) -> Spans:
    """Windows of `window_tokens` cl100k tokens, each beginning `overlap_tokens` before the end of the one before; ends moved to the next grapheme."""
    stride = settings.window_tokens - settings.overlap_tokens
    encoding = cl100k(models)
    shown = _SURROGATE.sub("\ufffd", text)
    tokens = encoding.encode_ordinary(shown)
    ends = list(accumulate((len(encoding.decode_single_token_bytes(token)) for token in tokens), initial=0))
    codes = np.frombuffer(shown.encode("utf-32-le"), dtype="<u4")
    widths = 1 + (codes > 0x7F).astype(np.int64) + (codes > 0x7FF) + (codes > 0xFFFF)
    starts = np.concatenate(([0], np.cumsum(widths)))  # byte at which each character begins
    begin, start, reached = 0, 0, 0
    while True:
        stop = min(begin + settings.window_tokens, len(tokens))
        start = whole(text, int(np.searchsorted(starts, ends[begin])), start)
        end = whole(text, int(np.searchsorted(starts, ends[stop])), start)
        if end > reached and text[start:end].strip():  # a grapheme may be larger than a window
            yield start, end
        reached = end
        if stop == len(tokens):
            return
        begin += stride
