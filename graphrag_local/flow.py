"""Bounded concurrency: the one way in which this program does many things at once."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Progress(Protocol):
    """Where the driver of a stage says how far it is; the command line shows it, `Silent` does not."""

    def begin(self, stage: str, total: int) -> None:
        """A stage starts with this many units of work."""

    def advance(self, stage: str, *, done: int = 0, failed: int = 0, more: int = 0) -> None:
        """Units that ended, and units found on the way."""

    def say(self, text: str) -> None:
        """One sentence for the person who waits."""


class Silent:
    """Shows nothing."""

    def begin(self, stage: str, total: int) -> None:
        """Nothing."""

    def advance(self, stage: str, *, done: int = 0, failed: int = 0, more: int = 0) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""


async def for_each(items: Iterable[T], work: Callable[[T], Awaitable[None]], *, limit: int) -> None:
    """Run `work(item)` for every item, at most `limit` at a time; the first exception cancels the rest and is raised itself."""
    slots = asyncio.Semaphore(limit)
    try:
        async with asyncio.TaskGroup() as group:
            for item in items:
                await slots.acquire()
                group.create_task(_run(work, item)).add_done_callback(lambda _: slots.release())
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


async def _run(work: Callable[[T], Awaitable[None]], item: T) -> None:
    await work(item)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def in_thread(work: Callable[[Callable[[], None]], R]) -> R:
    """`work(go_on)` in a thread that can be left: once the caller is cancelled, `go_on()` raises CancelledError there, so that nobody waits for it."""
    stopped = threading.Event()

    def go_on() -> None:
        if stopped.is_set():
            raise asyncio.CancelledError

    try:
        return await asyncio.to_thread(work, go_on)
    finally:
        stopped.set()


async def in_own_loop(work: Callable[[], Coroutine[Any, Any, R]]) -> R:
    """`await work()` in a thread with an event loop of its own, so that what it reckons keeps nobody else waiting; once the caller is cancelled, so is it."""
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[R]]] = Future()

    async def main() -> R:
        task = asyncio.ensure_future(work())
        begun.set_result((asyncio.get_running_loop(), task))
        return await task

    running = asyncio.ensure_future(asyncio.to_thread(lambda: asyncio.run(main())))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        loop, task = await asyncio.wrap_future(begun)
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(task.cancel)
        await asyncio.wait({running})
        raise


async def map_ordered(items: Iterable[T], work: Callable[[T], Awaitable[R]], *, limit: int) -> list[R]:
    """`[await work(item) for item in items]`, at most `limit` at a time; results in the order of the items."""
    sequence = list(items)
    results: dict[int, R] = {}

    async def one(index: int) -> None:
        results[index] = await work(sequence[index])

    await for_each(range(len(sequence)), one, limit=limit)
    return [results[index] for index in range(len(sequence))]
