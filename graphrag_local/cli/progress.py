"""Progress on stderr: a bar per stage on a terminal, a line every few seconds elsewhere."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from graphrag_local.records import Usage

EVERY_S = 10.0


@dataclass
class _Stage:
    total: int
    done: int = 0
    failed: int = 0
    began: float = field(default_factory=time.monotonic)
    task: TaskID | None = None


class Shown:
    """Implements `flow.Progress`; `usage` gives what the model side has cost so far."""

    def __init__(self, usage: Callable[[], Usage], log: Callable[..., None]) -> None:
        self._usage, self._log = usage, log
        self._console = Console(stderr=True, highlight=False)
        self._live = self._console.is_terminal
        self._stages: dict[str, _Stage] = {}
        self._said = time.monotonic()
        self._bars = Progress(
            TextColumn("{task.description:<14}"), BarColumn(bar_width=28), MofNCompleteColumn(), TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(), TimeRemainingColumn(), console=self._console, disable=not self._live,
        )  # fmt: skip

    def __enter__(self) -> "Shown":
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()

    def begin(self, stage: str, total: int) -> None:
        """A stage starts."""
        self._stages[stage] = _Stage(total)
        self._log("stage", stage=stage, done=0, total=total)
        if self._live:
            self._stages[stage].task = self._bars.add_task(stage, total=total, note="")
        elif total:
            self.say(f"{stage}: {total:,} to do")

    def advance(self, stage: str, *, done: int = 0, failed: int = 0, more: int = 0) -> None:
        """Units that ended."""
        state = self._stages.setdefault(stage, _Stage(0))
        state.done, state.failed, state.total = state.done + done + failed, state.failed + failed, state.total + more
        usage = self._usage()
        seconds = max(time.monotonic() - state.began, 1e-3)
        rate = f"{usage.completion_tokens / max(usage.seconds, seconds):,.0f} tokens/s" if usage.completion_tokens else ""
        note = ", ".join(filter(None, (f"{state.failed} failed" if state.failed else "", rate)))
        if state.task is not None:
            self._bars.update(state.task, completed=state.done, total=state.total, note=note)
        if time.monotonic() - self._said >= EVERY_S:
            self._log("progress", stage=stage, done=state.done, failed=state.failed, total=state.total)
            left = seconds / max(state.done, 1) * (state.total - state.done)
            self._said = time.monotonic()
            if not self._live:
                self.say(f"{stage}: {state.done:,} of {state.total:,} done{', ' + note if note else ''}, about {left:,.0f} s left")

    def say(self, text: str) -> None:
        """One sentence."""
        self._said = time.monotonic()
        if self._live:
            self._bars.console.print(text, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)  # noqa: T201
