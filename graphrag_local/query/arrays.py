"""Many strings, and lists by number, as plain arrays: they lie in files as they lie in memory, and are read without making objects of them all.

Arrays of one structure share a dictionary under names like "names.data", so that a structure may hold others.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]
Kept = Mapping[str, npt.NDArray[Any]]
Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
REMEMBERED: Final = 1 << 15  # numbers that were asked for, by structure
JOINT: Final = "\x1f"  # between the words of a name: a folded word can hold a blank (a ligature of several words), this it cannot


def below(kept: Kept, name: str) -> Kept:
    """The arrays of a structure inside another one."""
    return {key[len(name) + 1 :]: value for key, value in kept.items() if key.startswith(f"{name}.")}


def above(name: str, kept: Kept) -> Arrays:
    """Arrays as those of a structure inside another one."""
    return {f"{name}.{key}": value for key, value in kept.items()}


class Strings(Sequence[str]):
    """Strings by number, and numbers by string (of equal ones the first)."""

    def __init__(self, kept: Kept) -> None:
        self._data = np.ascontiguousarray(kept["data"]).data.cast("B")
        self._ends = np.ascontiguousarray(kept["ends"]).data.cast("B").cast("q")
        self._order = np.ascontiguousarray(kept["order"]).data.cast("B").cast("i")
        self._asked: dict[str, int] = {}

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """These strings, numbered in their order."""
        return cls(cls.kept(texts))

    @staticmethod
    def kept(texts: Iterable[str]) -> Arrays:
        """The arrays of these strings: their bytes end to end, where each ends, and their numbers in the order of their bytes."""
        raw = [text.encode("utf-8", "surrogatepass") for text in texts]
        ends = np.cumsum([0, *map(len, raw)], dtype=np.int64)
        order = np.array(sorted(range(len(raw)), key=raw.__getitem__), np.int32)
        return {"data": np.frombuffer(b"".join(raw), np.uint8), "ends": ends, "order": order}

    def __len__(self) -> int:
        return len(self._order)

    def _raw(self, number: int) -> bytes:
        return bytes(self._data[self._ends[number] : self._ends[number + 1]])

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self._raw(number).decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        return (self[number] for number in range(len(self)))

    def number(self, text: str) -> int:
        """The number of a string, -1 for one that is not among them."""
        found = self._asked.get(text)
        if found is None:
            if len(self._asked) >= REMEMBERED:
                self._asked.clear()
            raw = text.encode("utf-8", "surrogatepass")
            place = bisect_left(self._order, raw, key=self._raw)
            number = self._order[place] if place < len(self._order) else -1
            found = self._asked[text] = number if number >= 0 and self._raw(number) == raw else -1
        return found

    def begun(self, start: str) -> list[int]:
        """The numbers of the strings that begin with these characters."""
        raw = start.encode("utf-8", "surrogatepass")
        place = bisect_left(self._order, raw, key=self._raw)
        return list(takewhile(lambda number: self._raw(number).startswith(raw), islice(self._order, place, None)))

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self.number(text) >= 0


class Rows:
    """Lists of numbers, each with a weight, by number."""

    def __init__(self, kept: Kept) -> None:
        self.begin: Longs = kept["begin"]
        self.target: Ints = kept["target"]
        self.weight: Floats = kept["weight"]

    @staticmethod
    def kept(lists: Mapping[int, Mapping[int, float]], count: int) -> Arrays:
        """The arrays of lists as a dictionary, for numbers 0 to `count` - 1."""
        lengths = np.zeros(count, np.int64)
        flat: list[tuple[int, float]] = []
        for number in sorted(lists):
            lengths[number] = len(lists[number])
            flat += sorted(lists[number].items())
        begin = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        return {"begin": begin, "target": np.array([t for t, _ in flat], np.int32), "weight": np.array([w for _, w in flat], np.float32)}

    def row(self, number: int) -> list[tuple[int, float]]:
        """The list of one number."""
        begin, end = self.begin[number], self.begin[number + 1]
        return list(zip(self.target[begin:end].tolist(), self.weight[begin:end].tolist(), strict=True))


class Lists:
    """Lists of numbers by number."""

    def __init__(self, kept: Kept) -> None:
        self.begin: Longs = kept["begin"]
        self.target: Ints = kept["target"]

    @staticmethod
    def kept(lists: Sequence[Sequence[int]]) -> Arrays:
        """The arrays of these lists."""
        begin = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        return {"begin": begin, "target": np.array([number for own in lists for number in own], np.int32)}

    @staticmethod
    def grouped(owners: npt.NDArray[Any], count: int, values: npt.NDArray[Any] | None = None) -> Arrays:
        """For each number of 0 to `count` - 1 where it stands in `owners` (or the values there), in that order."""
        order = np.argsort(owners, kind="stable")
        begin = np.searchsorted(owners[order], np.arange(count + 1)).astype(np.int64)
        return {"begin": begin, "target": (order if values is None else values[order]).astype(np.int32)}

    def __len__(self) -> int:
        return len(self.begin) - 1

    def row(self, number: int) -> Ints:
        """The list of one number."""
        return self.target[self.begin[number] : self.begin[number + 1]]


class Ids:
    """Ids in their order, and the number of each."""

    def __init__(self, kept: npt.NDArray[Any]) -> None:
        self.kept = kept
        self._width = kept.dtype.itemsize
        self._raw = np.ascontiguousarray(kept).data.cast("B") if len(kept) else memoryview(b"")
        self._asked: dict[str, int] = {}

    @staticmethod
    def of(ids: Sequence[str]) -> npt.NDArray[Any]:
        """The array of ids that are in order."""
        return np.array([id_.encode("utf-8", "surrogatepass") for id_ in ids] or [b""], "S")[: len(ids)]

    def __len__(self) -> int:
        return len(self.kept)

    def _bytes(self, number: int) -> bytes:
        return bytes(self._raw[number * self._width : (number + 1) * self._width]).rstrip(b"\0")

    def __getitem__(self, number: int) -> str:
        return self._bytes(range(len(self.kept))[number]).decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        return iter(self.some(slice(None)))

    def some(self, which: Any) -> list[str]:
        """The ids at some numbers."""
        return [raw.decode("utf-8", "surrogatepass") for raw in self.kept[which].tolist()]

    def number(self, id_: object) -> int:
        """The number of an id, -1 where it is none of them."""
        if not isinstance(id_, str):
            return -1
        found = self._asked.get(id_)
        if found is None:
            if len(self._asked) >= REMEMBERED:
                self._asked.clear()
            raw = id_.encode("utf-8", "surrogatepass")
            place = int(self.kept.searchsorted(raw)) if len(raw) <= self._width else len(self.kept)  # a longer one would have all of them copied
            found = self._asked[id_] = place if place < len(self.kept) and self._bytes(place) == raw else -1
        return found

    def numbers(self, ids: Sequence[str]) -> Longs:
        """The numbers of several ids, -1 for those that are none of them."""
        return self.among(self.of(ids))

    def among(self, ids: npt.NDArray[Any]) -> Longs:
        """The same of an array."""
        if not len(self.kept):
            return np.full(len(ids), -1, np.int64)
        place = np.minimum(np.searchsorted(self.kept, ids), len(self.kept) - 1)
        return np.where(self.kept[place] == ids, place, -1)
