"""A budget stops a run without losing what it paid for."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from graphrag_local.engine.base import Reply
from graphrag_local.engine.budget import budgeted
from graphrag_local.engine.ledgered import Ledgered
from graphrag_local.engine.scripted import ScriptedEngine
from graphrag_local.errors import BudgetSpent, EngineUnreachable, Interrupted, UsageError
from graphrag_local.flow import for_each
from graphrag_local.records import Usage
from graphrag_local.store.ledger import Ledger
from tests.engine.tools import MemoryLedger, ask_for, said_by
from tests.forecast.world import SMALL, Quarters, collection, indexed
from tests.pipeline.running import project_of, scripted

REQUESTS = [ask_for(f"Question {number}. " * 20, max_tokens=400) for number in range(60)]


class Slow(ScriptedEngine):
    """Replies of 50 to 124 tokens that take a while; `open` says how many are asked for and have not come."""

    def __init__(self) -> None:
        super().__init__(lambda request: "word " * (40 + 37 * int(request.messages[0].content.split()[1].rstrip(".")) % 60))
        self.open = 0

    async def generate(self, request):
        self.open += 1
        await asyncio.sleep(0.001 * (1 + len(self.history) % 5))
        reply = await super().generate(request)
        self.open -= 1
        return reply


def run_to(tokens: int, ledger: Ledger, slow: Slow, at_once: int = 8):
    """Ask all requests within a budget; the budget, and whether it was spent."""
    engine = budgeted(tokens)(slow)

    async def main():
        ledgered = Ledgered(engine, ledger)
        await for_each(REQUESTS, lambda request: ledgered.generate(request), limit=at_once)

    try:
        asyncio.run(main())
    except BudgetSpent as error:
        assert slow.open == 0
        return engine, error
    return engine, None


def test_nothing_that_was_paid_for_is_lost(tmp_path):
    """When a run ends at its budget no request is in flight and the ledger has every reply; runs that go on pay for the others only."""
    slow, runs = Slow(), 0
    while True:
        with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
            before = len(slow.history)
            engine, error = run_to(3000, ledger, slow)
        with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
            assert ledger.counts()["replies"] == len(slow.history)
        assert engine.calls == len(slow.history) - before
        runs += 1
        if error is None:
            break
    assert len(slow.history) == len(REQUESTS)
    assert runs > 3


def test_the_total_stays_within_the_budget(tmp_path):
    """Replies reserve the longest seen so far, so that the limit is hardly passed, and most of it is used, however many are in flight."""
    for limit in (2000, 6000):
        for at_once in (1, 4, 32):
            with Ledger.open(tmp_path / f"{limit}-{at_once}.sqlite") as ledger:
                engine, error = run_to(limit, ledger, Slow(), at_once)
            assert error is not None
            assert limit / 2 < engine.used <= limit * 1.02


def test_the_message_says_how_much_was_used(tmp_path):
    """It names budget, calls and tokens, and that the command goes on; the program ends as one that was interrupted."""
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        engine, error = run_to(2000, ledger, Slow())
    assert isinstance(error, Interrupted)
    assert error.exit_code == 130
    assert "2,000" in str(error)
    assert f"{engine.calls:,} calls took {engine.used:,}" in str(error)
    assert "same command" in error.hint


@pytest.mark.parametrize("tokens", [0, -5])
def test_a_budget_that_allows_nothing_is_wrong_use(tokens):
    """It is refused before anything is opened."""
    with pytest.raises(UsageError):
        budgeted(tokens)


def test_every_run_gets_on():
    """The first request is made whatever it takes; the second is not."""
    engine = budgeted(1)(ScriptedEngine(lambda _: "A reply."))
    assert said_by(engine, ask_for("First.")).text == "A reply."
    with pytest.raises(BudgetSpent):
        said_by(engine, ask_for("Second."))


def test_what_is_replayed_costs_nothing():
    """A budget below the ledger sees only what has to be paid for."""
    ledger, request = MemoryLedger(), ask_for("Again.")
    said_by(Ledgered(ScriptedEngine(lambda _: "Yes."), ledger), request)
    engine = budgeted(1)(ScriptedEngine(lambda _: "No."))
    assert [reply.text for reply in said_by(Ledgered(engine, ledger), *[request] * 5)] == ["Yes."] * 5
    assert engine.used == 0


def test_a_request_that_fails_gives_its_reservation_back():
    """Failures use nothing up."""

    def answering(request):
        if "fail" in request.messages[0].content:
            raise EngineUnreachable("gone")
        return Reply(text="Yes.", finish_reason="stop", usage=Usage(calls=1, prompt_tokens=10, completion_tokens=10))

    engine = budgeted(1000)(ScriptedEngine(answering))
    said_by(engine, ask_for("Well."))
    for _ in range(20):
        with pytest.raises(EngineUnreachable):
            said_by(engine, ask_for("fail", max_tokens=500))
    assert (said_by(engine, ask_for("Well again.")).text, engine.used) == ("Yes.", 40)


def test_runs_with_a_budget_end_in_the_same_index(tmp_path: Path):
    """`index` with a small budget, again and again, makes the calls of an undisturbed run, each once, and the same index."""
    files = collection(6, 10)
    whole = scripted()
    aim = indexed(project_of(tmp_path / "whole", files, *SMALL), whole)
    engine, project = scripted(latency_s=0.001), project_of(tmp_path / "pieces", files, *SMALL)
    runs, done = 0, None
    while done is None:
        runs += 1
        with contextlib.suppress(BudgetSpent):
            done = indexed(project, engine, budget=1500)
    assert runs > 3
    assert done.digest == aim.digest
    key = Ledgered(engine, None).key
    assert sorted(map(key, engine.history)) == sorted(map(key, whole.history))


def test_quarters_count_as_the_engine_does():
    """The counter of these tests is the scripted engine's own."""
    assert Quarters().count("12345") == said_by(ScriptedEngine(lambda _: "12345"), ask_for("12345")).usage.prompt_tokens
