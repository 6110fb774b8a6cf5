"""Progress on stderr: a bar per stage on a terminal, a line every few seconds elsewhere."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from graphrag_local.records import Usage

EVERY_S = 10.0  # between two lines, where there is no terminal
LOG_S = 0.2  # between two notes in the run log, from which `status` tells how far a run that was killed had come


@dataclass
class _Stage:
    total: int
    done: int = 0
    failed: int = 0
    tokens: int = 0
    began: float = field(default_factory=time.monotonic)
    task: TaskID | None = None


class Shown:
    """Implements `flow.Progress`; `usage` gives what the model side has cost so far."""

    def __init__(self, usage: Callable[[], Usage], log: Callable[..., None]) -> None:
        self._usage, self._log = usage, log
        self._console = Console(stderr=True, highlight=False)
        self._live = self._console.is_terminal
        self._stages: dict[str, _Stage] = {}
        self._told = self._logged = time.monotonic()
        self._bars = Progress(
            TextColumn("{task.description:<11}"), BarColumn(bar_width=14), MofNCompleteColumn(), TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(elapsed_when_finished=True), console=self._console, disable=not self._live, expand=False,
        )  # fmt: skip

    def __enter__(self) -> "Shown":
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()
        if kind is not None and self._stages:
            name, state = list(self._stages.items())[-1]
            self._log("progress", stage=name, done=state.done, failed=state.failed, total=state.total)

    def begin(self, stage: str, total: int) -> None:
        """A stage starts."""
        self._stages[stage] = _Stage(total, tokens=self._usage().completion_tokens)
        self._log("stage", stage=stage, done=0, total=total)
        if self._live:
            self._stages[stage].task = self._bars.add_task(stage, total=total, note="")
        elif total:
            self.say(f"{stage}: {total:,} to do")

    def advance(self, stage: str, *, done: int = 0, failed: int = 0, more: int = 0) -> None:
        """Units that ended."""
        state = self._stages.setdefault(stage, _Stage(0))
        state.done, state.failed, state.total = state.done + done + failed, state.failed + failed, state.total + more
        seconds = max(time.monotonic() - state.began, 1e-3)
        tokens = self._usage().completion_tokens - state.tokens
        failures = f", {state.failed:,} failed" if state.failed else ""
        note = f"{state.total - state.done:,} open{failures}" + (f", {tokens / seconds:,.0f} tokens/s" if tokens else "")
        if state.task is not None:
            self._bars.update(state.task, completed=state.done, total=state.total, note=note)
        now = time.monotonic()
        if now - self._logged >= LOG_S:
            self._logged = now
            self._log("progress", stage=stage, done=state.done, failed=state.failed, total=state.total)
        if now - self._told >= EVERY_S and not self._live:
            self._told = now
            left = seconds / max(state.done, 1) * (state.total - state.done)
            self.say(f"{stage}: {state.done:,} of {state.total:,} done, {note}, about {left:,.0f} s left")

    def say(self, text: str) -> None:
        """One sentence."""
        if self._live:
            self._bars.console.print(text, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)  # noqa: T201
