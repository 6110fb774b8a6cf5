"""Many strings sought in many bytes at once, exactly: hundreds of strings cost little more than one, about a second per 150 MB.

Eight bytes of each pattern (four of a short one) go into a table of hashes; numpy looks up every eight bytes of the data in it, and the few
places that hit are compared. Nothing is missed; a library for this (Aho-Corasick) would be one more dependency.
"""

import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Data = bytes | memoryview
_WIDTHS: Final = (8, 4)
_PIECE: Final = 1 << 20  # bytes; what the processor's cache likes
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplying mixes every bit into the high ones
_ESCAPE = re.compile(r"\\u[0-9a-f]{4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Texts of one column, UTF-8, end to end: text `i` is `data[offsets[i]:offsets[i + 1]]`, and belongs to row `rows[i]`."""

    name: str
    data: Data
    offsets: Numbers
    rows: Numbers


def forms(text: str) -> set[bytes]:
    """How a text may stand in a file: UTF-8, UTF-16, composed or decomposed, and inside JSON, or JSON inside JSON, escaped more or less."""
    found: set[str] = {text, unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)}
    for _ in range(2):
        found |= {json.dumps(one, ensure_ascii=ascii_only)[1:-1] for one in found for ascii_only in (True, False)}
    found |= {_ESCAPE.sub(lambda match: "\\u" + match.group()[2:].upper(), one) for one in found}
    return {one.encode(code, "surrogatepass") for one in found for code in ("utf-8", "utf-16-le")}


class Needles:
    """Patterns, each standing for a string; `longest` is the number of bytes of the longest one."""

    def __init__(self, patterns: Mapping[bytes, str]) -> None:
        if not all(patterns):
            raise ValueError("an empty string is everywhere")
        self._patterns = patterns
        self.longest = max(map(len, patterns), default=0)
        self._tables = [_Table(width, [p for p in patterns if len(p) >= width and not (width == 4 and len(p) >= 8)]) for width in _WIDTHS]
        self._short = [pattern for pattern in patterns if len(pattern) < min(_WIDTHS)]

    @classmethod
    def of(cls, strings: Iterable[str]) -> Self:
        """Every form of these strings."""
        return cls({form: string for string in sorted(set(strings), reverse=True) for form in forms(string)})

    def hits(self, data: Data) -> Iterator[tuple[int, int, str]]:
        """Where patterns are: (first byte, byte after the last, string), in no particular order, some twice."""
        for at in range(0, len(data), _PIECE):
            piece = bytes(data[at : at + _PIECE + self.longest])
            for table in self._tables:
                for begin, pattern in table.hits(piece):
                    yield at + begin, at + begin + len(pattern), self._patterns[pattern]
            for pattern in self._short:
                for match in re.finditer(re.escape(pattern), piece):
                    yield at + match.start(), at + match.end(), self._patterns[pattern]

    def first(self, data: Data) -> dict[str, int]:
        """The strings that are in the data, with the first byte of the first place."""
        found: dict[str, int] = {}
        for begin, _, string in self.hits(data):
            found[string] = min(begin, found.get(string, begin))
        return found

    def first_rows(self, column: Column) -> dict[str, int]:
        """The strings that are in texts of a column, with the first row; what only two neighbours make together is none."""
        found: dict[str, int] = {}
        for begin, end, string in self.hits(column.data):
            text = int(np.searchsorted(column.offsets, begin, side="right")) - 1
            if 0 <= text < len(column.rows) and end <= column.offsets[text + 1]:
                row = int(column.rows[text])
                found[string] = min(row, found.get(string, row))
        return found


class _Table:
    """Patterns of at least `width` bytes, found by `width` bytes of each."""

    def __init__(self, width: int, patterns: list[bytes]) -> None:
        self._type = np.dtype(f"<u{width}")
        by_key: dict[int, list[tuple[bytes, int]]] = defaultdict(list)
        for pattern, inside in zip(patterns, _rarest(patterns, width), strict=True):
            by_key[int.from_bytes(pattern[inside : inside + width], "little")].append((pattern, inside))
        self._by_key = by_key
        self._keys = np.array(sorted(by_key), self._type)
        # The end of a pattern, as a second look: how far ahead of the key it is, and what it is; the key itself where patterns share it.
        alone = [by_key[key][0] if len(by_key[key]) == 1 else (by_key[key][0][0][: by_key[key][0][1] + width], by_key[key][0][1]) for key in sorted(by_key)]
        self._ahead = np.array([len(pattern) - width - inside for pattern, inside in alone], np.int64)
        self._ends = np.array([int.from_bytes(pattern[-width:], "little") for pattern, _ in alone], self._type)
        bits = min(22, max(16, (len(by_key) * 1024).bit_length()))
        self._shift = np.uint64(64 - bits)
        self._marked = np.zeros(1 << bits, np.bool_)
        self._marked[self._slots(self._keys)] = True

    def _slots(self, words: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return (words.astype(np.uint64, copy=False) * _SPREAD) >> self._shift

    def hits(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Where each pattern begins."""
        width, size = self._type.itemsize, len(data)
        if size < width or not len(self._keys):
            return
        everywhere = np.ndarray((size - width + 1,), self._type, data, 0, (1,))
        for start in range(min(width, len(everywhere))):
            words = np.frombuffer(data, self._type, (size - start) // width, start)
            at = np.flatnonzero(self._marked[self._slots(words)])
            which = np.minimum(np.searchsorted(self._keys, words[at]), len(self._keys) - 1)
            at, which = at[known := self._keys[which] == words[at]], which[known]
            far = np.minimum(at * width + start + self._ahead[which], len(everywhere) - 1)
            at, which = at[ends := everywhere[far] == self._ends[which]], which[ends]
            for place, key in zip(at.tolist(), self._keys[which].tolist(), strict=True):
                for pattern, inside in self._by_key[key]:
                    begin = start + width * place - inside
                    if begin >= 0 and data[begin : begin + len(pattern)] == pattern:
                        yield begin, pattern


def _rarest(patterns: list[bytes], width: int) -> list[int]:
    """Where in each pattern the `width` bytes begin that fewest patterns have, and among those the ones made of the rarest pairs of bytes."""
    if not patterns:
        return []
    raw = [np.frombuffer(pattern, np.uint8) for pattern in patterns]
    pairs = [one[:-1].astype(np.int64) << 8 | one[1:] for one in raw]
    common = np.log1p(np.bincount(np.concatenate(pairs), minlength=1 << 16))
    words = [np.ndarray((len(pattern) - width + 1,), f"<u{width}", pattern, 0, (1,)) for pattern in patterns]
    _, back, counts = np.unique(np.concatenate(words), return_inverse=True, return_counts=True)
    shared = np.split(counts[back], np.cumsum([len(one) for one in words])[:-1])
    scores = (many * 1000 + np.convolve(common[some], np.ones(width - 1), "valid") for many, some in zip(shared, pairs, strict=True))
    return [int(np.argmin(score)) for score in scores]
