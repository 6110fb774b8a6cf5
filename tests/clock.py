"""Measures of time that do not depend on the machine.

Time that passes only while nobody works: what a test measures on it is the waiting that was asked for.

    run_unhurried(lambda: asyncio.sleep(3600))  # at once

Everything that waits must be in the one loop: coroutines, a model server that serves `here`, its clients. Sockets are real. Code that asks `time.monotonic()`
instead of the loop, and other threads and processes, live in another time.
"""

import asyncio
import selectors
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")
START = 1000.0
YARDSTICK_S = 0.08  # what the yardstick takes on that machine
QUIET_S = 0.002  # what was sent to a socket of this process is there at once, or, where the kernel is busy, within so long


class _Selector(selectors.DefaultSelector):  # type: ignore[valid-type, misc]
    """Instead of waiting for the next timer it moves the clock there, if really nothing is to be read."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        found: list[tuple[selectors.SelectorKey, int]] = super().select(QUIET_S)
        if not found:
            self.passed += timeout
        return found


class UnhurriedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still while anything runs."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return START + self._clock.passed


def run_unhurried(main: Callable[[], Awaitable[T]]) -> T:
    """The result of a coroutine function, on a clock that does not depend on the machine."""

    async def whole() -> Any:
        return await main()

    with asyncio.Runner(loop_factory=UnhurriedLoop) as runner:
        return runner.run(whole())


def _yardstick_s() -> float:
    """The processor time of a fixed piece of work."""
    begun = time.process_time()
    words = sorted(f"word {number * 7919 % 100_003}" for number in range(100_000))
    assert len({word[::-1]: len(word) for word in words}) == 100_000
    return time.process_time() - begun


def effort_of(work: Callable[[], T]) -> tuple[T, float]:
    """What some work gives, and the processor time that it takes, in seconds of the machine that limits in tests were set for; a faster one counts as that.

    Other programs on the machine cost no processor time of ours, and a slow processor is slow with the yardstick too.
    """
    before, begun = _yardstick_s(), time.process_time()
    done = work()
    took = time.process_time() - begun
    return done, took / max(1.0, (before + _yardstick_s()) / 2 / YARDSTICK_S)
