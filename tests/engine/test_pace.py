"""How many requests are in flight."""

import asyncio

import pytest

from graphrag_local.engine.pace import Pace, Slots
from graphrag_local.engine.patient import Patient
from graphrag_local.engine.scripted import SimulatedEngine
from graphrag_local.settings import EngineSettings
from tests.engine.tools import ALL, all_of, ask_for, engine_for, unhurried
from tests.modelserver import ModelServer


def played(pace, throughput, epochs=60):
    """Let a pace meet a server whose throughput is a function of the requests in flight; the limits it took on the way."""
    now, limits = 0.0, []
    for _ in range(epochs * 64):
        now += 1 / throughput(pace.limit)
        pace.completed(1.0, now - pace.limit / throughput(pace.limit), now, True)
        limits.append(pace.limit)
    return limits


@pytest.mark.parametrize("places", [2, 8, 32])
def test_the_limit_finds_the_places_of_a_server(places):
    """Throughput that grows up to a number of places and no further keeps the limit near that number."""
    limits = played(Pace(64), lambda n: min(n, places))[-1000:]
    mean = sum(limits) / len(limits)
    assert places <= mean + 1
    assert mean <= max(4, 2 * places)


def test_a_batching_server_is_filled():
    """Throughput that grows ever more slowly, as a GPU's does, takes the limit far up although each reply takes longer."""
    limits = played(Pace(64), lambda n: 12 * n**0.7)
    assert limits[-1] >= 48
    assert max(limits) <= 64


def test_it_starts_small_and_obeys_the_ceiling():
    """Four requests at first, or fewer where the setting says fewer."""
    assert Pace(64).limit == 4
    assert Pace(1).limit == 1
    assert max(played(Pace(3), lambda n: n)) == 3


def test_a_limit_that_is_not_reached_tells_nothing():
    """While nobody waits for a slot the limit stays as it is."""
    pace = Pace(64)
    for now in range(500):
        pace.completed(1.0, now - 1.0, float(now), False)
    assert pace.limit == 4


def test_the_servers_queue_decides_where_it_is_told():
    """An empty queue lets the limit grow, a long one takes it down to what is being worked on, and pushing back halves it."""
    pace = Pace(64)
    for _ in range(30):
        pace.measured(running=pace.limit, waiting=0, mine=pace.limit, queued=True)
    assert pace.limit == 64
    pace.measured(running=20, waiting=44, mine=64, queued=True)
    assert pace.limit == 21
    pace.measured(running=20, waiting=1, mine=21, queued=True)
    assert pace.limit == 21
    pace.pushed_back()
    assert pace.limit == 10


@pytest.mark.parametrize("seen", [True, False])
def test_the_queue_at_a_real_server_stays_short(seen):
    """With and without a metrics page, a server of six places has work for all of them and few requests that wait."""
    script = {"capacity": 6, "rules": [{"on": "extract", "do": {"reply": "valid", "delay_s": 2}}]}
    server = ModelServer(script, clock_scale=50)

    def make():
        engine = engine_for(server.url, obeys=ALL, clock_scale=50)
        if not seen:
            engine._has_metrics = False
        return Patient(engine, EngineSettings(clock_scale=50))

    replies = unhurried(make, lambda engine: all_of(engine, [ask_for(f"{n}", max_tokens=50) for n in range(150)]), server)
    later = [record.in_flight for record in server.requests("extract")][60:]
    assert all(reply.text for reply in replies)
    assert 5 <= sum(later) / len(later) <= 14


def test_slots_serve_the_lowest_priority_first():
    """Waiting is in order of priority, then of arrival; who is cancelled leaves no hole."""

    async def main():
        slots, order = Slots(1), []

        async def one(name, priority):
            await slots.acquire(priority)
            order.append(name)
            await asyncio.sleep(0)
            slots.release()

        await slots.acquire(0)
        tasks = [asyncio.create_task(one(name, priority)) for name, priority in (("c", 20), ("a", 10), ("x", 5), ("b", 10))]
        await asyncio.sleep(0)
        assert slots.queued == 4
        tasks[2].cancel()
        await asyncio.sleep(0)
        slots.release()
        await asyncio.gather(*tasks, return_exceptions=True)
        return order, slots.used, slots.queued

    assert asyncio.run(main()) == (["a", "b", "c"], 0, 0)


def test_a_slot_given_in_the_moment_of_cancelling_is_not_lost():
    """A waiter that is cancelled just as it gets its slot gives it on."""

    async def main():
        slots = Slots(1)
        await slots.acquire(0)
        first, second = (asyncio.create_task(slots.acquire(10)) for _ in range(2))
        await asyncio.sleep(0)
        slots.release()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await asyncio.wait_for(second, 60)
        return slots.used

    assert asyncio.run(main()) == 1


def test_growing_lets_waiters_in_and_shrinking_takes_nothing_away():
    """A larger limit is filled at once; a smaller one holds only for those who come."""

    async def main():
        slots = Slots(1)
        tasks = [asyncio.create_task(slots.acquire(10)) for _ in range(5)]
        await asyncio.sleep(0)
        slots.resize(3)
        await asyncio.sleep(0)
        grown = slots.used
        slots.resize(1)
        slots.release()
        await asyncio.sleep(0)
        kept = slots.used
        for task in tasks:
            task.cancel()
        return grown, kept

    assert asyncio.run(main()) == (3, 2)


def test_the_limit_follows_a_simulated_engine():
    """Over an engine of sixteen places the limit passes sixteen on its own, and every request is answered."""
    engine = SimulatedEngine(lambda _: "x" * 400, slots=16, prompt_token_s=0.0, reply_token_s=0.0002)

    async def work(engine):
        return await all_of(engine, [ask_for(f"{n}") for n in range(400)]), engine.limit

    replies, limit = unhurried(lambda: Patient(engine, EngineSettings()), work)
    assert len(replies) == 400
    assert limit >= 12
