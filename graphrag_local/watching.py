"""`index --watch`: follows the input folder and brings the index up to date after each change.

When nothing happens it writes what reports are left, and tries again what a good run could not do for now (a request that timed out, say).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import watchfiles

from graphrag_local.errors import GraphragError, IndexBusy, Interrupted, UsageError
from graphrag_local.indexing import Indexed, MakeProgress, Order, run_index
from graphrag_local.project import ProjectFolder

LOOK_S = 1.0  # how often a folder that is not there, and a lock that is held, are looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds: `quiet_s` without a further change before a run starts, `idle_s` without any before the remaining reports are written (0: never).

    What failed for now is tried again after a pause of `idle_s` (`retry_s` where that is 0), which doubles while it helps nothing, up to `retry_most_s`.
    `poll`: look at the files instead of being told by the system, for network folders that tell nothing.
    """

    quiet_s: float = 1.0
    idle_s: float = 60.0
    retry_s: float = 60.0
    retry_most_s: float = 3600.0
    poll: bool = False


async def watch(project: ProjectFolder, make: MakeProgress, order: Order, *, pace: Pace, say: Callable[[str], None], done: Callable[[Indexed], None]) -> NoReturn:
    """Index now and after every change, until it is interrupted.

    What keeps a run from being made (a server that is away, a full disk, most files gone) is said, and tried again at the next change and whenever
    it is idle: nothing is lost. Wrong use and a question that needs a yes end it.
    """
    runs = Runs(lambda order: run_index(project, make, order), order, pace=pace, say=say, done=done)
    changed = asyncio.Event()
    follower = asyncio.create_task(_follow(project.input_root, project.index, pace, changed))
    try:
        await asyncio.sleep(0)  # what happens from here on is seen, also while the first run reads
        await runs.keep_up(changed, follower)
    finally:
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)


class Runs:
    """The runs of one watch, and what the last of them left to do."""

    def __init__(
        self, run: Callable[[Order], Awaitable[Indexed]], order: Order, *, pace: Pace, say: Callable[[str], None], done: Callable[[Indexed], None]
    ) -> None:  # fmt: skip
        self._make, self._order, self._pace, self._say, self._done = run, order, pace, say, done
        self._left_over = self._failed = False
        self._unread: frozenset[tuple[str, str]] = frozenset()
        self._retry_s = 0.0
        self._said = ""

    async def keep_up(self, changed: asyncio.Event, follower: "asyncio.Future[None]") -> NoReturn:
        """Run now and whenever it is `changed`, and in between when there is something left to do; raises what ends the follower."""
        while True:
            changed.clear()
            await self.after_change()
            while not await _happens(changed, follower, self.wait_s):
                await self.when_idle()

    @property
    def wait_s(self) -> float:
        """How long nothing must happen before there is something to do; 0: there is nothing."""
        return self._pace.idle_s if self._pace.idle_s and (self._failed or self._left_over) else self._retry_s

    async def after_change(self) -> None:
        """Bring the index up to date."""
        self._unread = frozenset()
        await self._up_to_date()

    async def _up_to_date(self) -> None:
        indexed = await self._run(self._order)
        if indexed is not None:  # wishes about the first run: a folder that is gone tomorrow is another matter
            self._order = replace(self._order, retry_failed=False, repartition=False, allow_empty=False, yes=False)
        self._left_over = indexed is not None and bool(indexed.built.without_report["unwritten"] + indexed.built.without_report["stale"])
        if indexed is not None:
            self._note_failures(indexed)

    def _note_failures(self, indexed: Indexed) -> None:
        """When what failed for now is to be tried again: soon, unless it is what failed before."""
        unread = frozenset((row.stage, row.input_id or row.input) for row in indexed.built.snapshot.failures if row.retryable)
        again = 2 * self._retry_s if unread and unread == self._unread else self._pace.idle_s or self._pace.retry_s
        self._unread, self._retry_s = unread, min(again, self._pace.retry_most_s) if unread else 0.0

    async def when_idle(self) -> None:
        """Try again a run that could not be made, else write the reports that are left, once after each change, else try again what failed for now."""
        if self._failed:
            await self._up_to_date()
        elif self._left_over and self._pace.idle_s:
            self._left_over = False  # what cannot be written now waits for the next change
            self._say("Nothing changes: the reports that are left are written.")
            if (indexed := await self._run(replace(self._order, settle=True))) is not None:
                self._note_failures(indexed)
        elif self._unread:
            self._say(f"Nothing changes: what failed for now ({len(self._unread)}) is tried again.")
            await self._up_to_date()

    async def _run(self, order: Order) -> Indexed | None:
        """One run; None, with a word, where it could not be made."""
        while True:
            try:
                indexed = await self._make(order)
            except (UsageError, Interrupted):
                raise
            except IndexBusy as error:
                self._tell(f"{error} This run waits for it.")
                await asyncio.sleep(LOOK_S)
            except GraphragError as error:
                self._tell(f"{error} {error.hint}".strip() + " The next change tries again.")
                self._failed = True
                return None
            else:
                self._said, self._failed = "", False
                self._done(indexed)
                return indexed

    def _tell(self, text: str) -> None:
        """Say it, unless it was the last thing that was said."""
        if text != self._said:
            self._say(text)
        self._said = text


async def _happens(changed: asyncio.Event, follower: "asyncio.Future[None]", idle_s: float) -> bool:
    """Wait for a change, but no longer than `idle_s` (0: for ever): whether there was one. Raises what ended the follower."""
    waiter: asyncio.Future[Any] = asyncio.ensure_future(changed.wait())
    try:
        done, _ = await asyncio.wait({waiter, follower}, timeout=idle_s or None, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()
    if follower in done:
        follower.result()
    return waiter in done


async def _follow(root: Path, index: Path, pace: Pace, changed: asyncio.Event) -> None:
    """Set `changed` after each change below the folder, once it has been quiet; and when the folder goes, comes, or is another one."""
    quiet_ms = int(1000 * pace.quiet_s)

    def is_input(change: watchfiles.Change, path: str) -> bool:
        return not Path(path).is_relative_to(index)  # which may be inside the input folder, and every run writes there

    while True:
        here = _identity(root)
        if here is None:
            await asyncio.sleep(LOOK_S)
            continue
        changes = watchfiles.awatch(
            root, watch_filter=is_input, debounce=60_000, step=quiet_ms, rust_timeout=int(1000 * LOOK_S), yield_on_timeout=True,
            force_polling=pace.poll or None, poll_delay_ms=2 * quiet_ms, ignore_permission_denied=True,
        )  # fmt: skip
        changed.set()  # what happened to it before it is watched; whoever waits for this runs after the next line has begun to watch
        try:
            async with contextlib.aclosing(changes):
                async for found in changes:
                    if found or _identity(root) != here:
                        changed.set()
                    if _identity(root) != here:
                        break
        except FileNotFoundError:
            continue  # gone between two looks
        except OSError as error:
            raise UsageError(f"{root} cannot be watched: {error}.", hint="Use --poll, which looks at the files instead.") from error


def _identity(folder: Path) -> tuple[int, int] | None:
    """Which folder a path leads to, None where there is none: a watch stays with the old one when another takes its name."""
    try:
        stat = folder.stat()
    except OSError:
        return None
    return (stat.st_dev, stat.st_ino) if folder.is_dir() else None
