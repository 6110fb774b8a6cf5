"""How this server counts tokens, and how many requests it works on at once."""

import asyncio
import heapq
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


@dataclass(frozen=True, slots=True)
class TokenCount:
    """A rule of counting; the default is one token per four characters, and nothing per message."""

    other_chars_per_token: float = 4.0
    han_char: float | None = None
    per_message: int = 0

    def text(self, text: str) -> int:
        """Tokens of one text."""
        han = len(HAN.findall(text)) if self.han_char is not None else 0
        return math.ceil(han * (self.han_char or 0.0) + (len(text) - han) / self.other_chars_per_token)

    def messages(self, texts: Sequence[str]) -> int:
        """Tokens of a chat, given the content of each message."""
        return sum(self.text(text) + self.per_message for text in texts)

    def cut(self, text: str, tokens: int) -> str:
        """The longest beginning of a text that has at most so many tokens."""
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            if self.text(text[:middle]) <= tokens:
                low = middle
            else:
                high = middle - 1
        return text[:low]


def filled_in(template: Any, sizes: Mapping[str, int]) -> Any:
    """A copy of a JSON value with `{window}`, `{total}`, `{prompt}`, `{room}` in its strings replaced."""
    if isinstance(template, str):
        for name, size in sizes.items():
            template = template.replace("{" + name + "}", str(size))
        return template
    if isinstance(template, list):
        return [filled_in(item, sizes) for item in template]
    if isinstance(template, dict):
        return {key: filled_in(value, sizes) for key, value in template.items()}
    return template


class Slots:
    """`capacity` requests are worked on at once (None: any number); the rest waits, lowest priority number first, then in order."""

    def __init__(self, capacity: int | None) -> None:
        self.capacity = capacity
        self.running = 0
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = 0

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(not future.done() for _, _, future in self._queue)

    async def acquire(self, priority: int = 0) -> None:
        """Wait for a slot; a cancelled wait leaves the queue."""
        if self.capacity is None or self.running < self.capacity:
            self.running += 1
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(self._queue, (priority, self._arrivals, future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # given a slot in the moment of cancelling
                self.release()
            raise

    def release(self) -> None:
        """Give the slot to the next in the queue."""
        self.running -= 1
        while self._queue:
            _, _, future = heapq.heappop(self._queue)
            if not future.done():
                self.running += 1
                future.set_result(None)
                return
