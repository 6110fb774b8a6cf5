"""When a watch does what, on a clock of its own: no folder, no index, runs that end as they are told."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from graphrag_local.changes import Changes
from graphrag_local.errors import EngineUnreachable
from graphrag_local.indexing import Indexed, Order
from graphrag_local.pipeline import Built
from graphrag_local.records import Failed
from graphrag_local.store.snapshot import Snapshot
from graphrag_local.watching import Pace, Runs
from tests.clock import run_unhurried

LATER = Failed(stage="extraction", input_id="c1", input="a.txt", reason="it timed out", retryable=True)
OTHER = Failed(stage="extraction", input_id="c2", input="b.txt", reason="it timed out", retryable=True)
FOR_GOOD = Failed(stage="extraction", input_id="c3", input="c.txt", reason="it was cut off", retryable=False)


def indexed(*failures: Failed, unwritten: int = 0) -> Indexed:
    """A run that went well, but for these."""
    empty: dict[str, tuple[Any, ...]] = dict.fromkeys(("documents", "chunks", "mentions", "entities", "relationships", "claims", "communities", "reports"), ())
    without = {"unwritten": unwritten, "stale": 0, "folded": 0}
    built = Built(snapshot=Snapshot(**empty, failures=failures), changes=Changes(), last_build={}, without_report=without, rewritten=0)
    return Indexed(generation="g", digest="d", published=True, counts={}, built=built)


def followed(outcomes: Sequence[Indexed | EngineUnreachable], pace: Pace, *, changes: Sequence[float] = (), until_s: float = 100_000.0):
    """When a watch of that pace runs, in whole seconds, and with which wish to settle; the last outcome is that of all later runs, too."""
    runs: list[tuple[int, bool]] = []
    said: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        begun, changed = loop.time(), asyncio.Event()

        async def run(order: Order) -> Indexed:
            outcome = outcomes[min(len(runs), len(outcomes) - 1)]
            runs.append((round(loop.time() - begun), order.settle))
            if isinstance(outcome, EngineUnreachable):
                raise outcome
            return outcome

        for at in changes:
            loop.call_later(at, changed.set)
        watch = Runs(run, Order(), pace=pace, say=said.append, done=lambda _: None)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(until_s):
                await watch.keep_up(changed, loop.create_future())

    run_unhurried(main)
    return runs, said


def times(*args, **more) -> list[int]:
    """When it runs."""
    return [at for at, _ in followed(*args, **more)[0]]


def test_what_failed_for_now_is_tried_again_after_pauses_that_grow():
    """After 60 s, then after twice as long each time, up to an hour; each time it is said."""
    runs, said = followed([indexed(LATER)], Pace(), until_s=20_000)
    at = [time for time, _ in runs]
    assert [after - before for before, after in pairwise(at)] == [60, 120, 240, 480, 960, 1920, *[3600] * 4]
    assert said == ["Nothing changes: what failed for now (1) is tried again."] * 10


def test_it_stops_once_nothing_is_left():
    """When the request goes through, that was it; what failed for good is not tried again."""
    assert times([indexed(LATER), indexed(LATER), indexed(FOR_GOOD)], Pace()) == [0, 60, 180]
    assert times([indexed(FOR_GOOD)], Pace()) == [0]


def test_progress_and_a_change_make_the_pause_short_again():
    """Where something else fails, or less, the next pause is the first one; after a change of the folder as well."""
    assert times([indexed(LATER, OTHER), indexed(LATER, OTHER), indexed(LATER), indexed(LATER), indexed()], Pace()) == [0, 60, 180, 240, 360]
    assert times([*[indexed(LATER)] * 5, indexed()], Pace(), changes=[500.0]) == [0, 60, 180, 420, 500, 560]


def test_reports_come_first_and_idle_zero_leaves_them():
    """Reports that are left are written when it is idle, and what failed is tried later; with an idle time of 0 no report is written, what failed is tried."""
    assert followed([indexed(LATER, unwritten=3), indexed(LATER), indexed()], Pace(idle_s=10))[0] == [(0, False), (10, True), (30, False)]
    assert followed([indexed(LATER, unwritten=3), indexed(unwritten=3)], Pace(idle_s=0))[0] == [(0, False), (60, False)]
    assert followed([indexed(unwritten=3)], Pace(idle_s=0))[0] == [(0, False)]


def test_a_run_that_cannot_be_made_is_tried_whenever_it_is_idle():
    """A server that is away is tried at each idle time, as before."""
    away = EngineUnreachable("The model server is not there.")
    assert times([away, away, away, indexed()], Pace(idle_s=30)) == [0, 30, 60, 90]
