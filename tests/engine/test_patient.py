"""Waiting for servers: slow, hanging, restarting, gone. Seconds are the server's and the settings', played faster by `clock_scale`."""

import asyncio

import pytest

from graphrag_local.engine.patient import Patient
from graphrag_local.engine.scripted import ScriptedEngine
from graphrag_local.errors import EngineBusy, EngineHung, EngineRefused, EngineUnreachable
from graphrag_local.settings import EngineSettings
from tests.clock import START, run_unhurried
from tests.engine.tools import ALL, CARD, RawServer, all_of, ask_for, completion, engine_for, said_by, timed, unhurried
from tests.modelserver import ModelServer


def patient_for(server, scale=1.0, *, say=None, counter=None, card=CARD, **rest):
    """A patient engine for a server."""
    engine = engine_for(server if isinstance(server, str) else server.url, card=card, obeys=ALL, clock_scale=scale)
    return Patient(engine, EngineSettings(clock_scale=scale, **rest), counter=counter, say=say)


def doing(on="extract", **do):
    return {"on": on, "do": {"reply": "valid"} | do}


def notes(count):
    return [ask_for(f"note {n}.", max_tokens=40) for n in range(count)]


class Odd:
    """An engine whose every call is a coroutine function of (request, number of the call)."""

    card = CARD

    def __init__(self, call):
        self.call = call
        self.history = []

    async def generate(self, request):
        self.history.append(request)
        return await self.call(request, len(self.history))

    async def close(self):
        pass


# --- slow


def test_a_slow_server_loses_nothing():
    """Thirty requests to a server that does two at a time, twenty seconds each, under a time limit of sixty: all are answered, none is
    cancelled or asked twice, the server is kept busy, and there are signs of life."""
    heard = []
    server = ModelServer({"capacity": 2, "rules": [doing(delay_s=20)]}, clock_scale=100)
    replies, took = unhurried(lambda: patient_for(server, 100, timeout_s=60, say=heard.append), lambda engine: timed(all_of(engine, notes(30))), server)
    log = server.requests("extract")
    assert all(reply.text for reply in replies)
    assert (len(log), sum(record.cancelled for record in log)) == (30, 0)
    assert took * 100 <= 420
    assert len(heard) >= 8
    assert "are with the model" in heard[0]


def test_one_hanging_request_holds_up_nobody():
    """Of thirty requests one is swallowed: the others are answered meanwhile at full speed, and it is asked once more."""
    server = ModelServer({"rules": [doing(hang_s=9000) | {"calls": "3"}, doing(delay_s=5)]}, clock_scale=50)

    async def work(engine):
        return await asyncio.gather(*(timed(engine.generate(request)) for request in notes(30)))

    done = unhurried(lambda: patient_for(server, 50, timeout_s=60, concurrency=2), work, server)
    log = server.requests("extract")
    ended = sorted(took * 50 for _, took in done)
    assert all(reply.text for reply, _ in done)
    assert (len(log), sum(record.cancelled for record in log)) == (31, 1)
    assert ended[28] <= 29 * 5 / 2 + 45  # two places, one of them blocked only until the request was overtaken
    assert ended[29] <= 250


def test_a_request_that_always_hangs_fails_alone():
    """A request that hangs twice is given up as hung, retryable, and the rest is done."""
    server = ModelServer({"rules": [doing(hang_s=9000) | {"when_prompt_has": "note 3."}, doing(delay_s=1)]}, clock_scale=50)
    replies = unhurried(lambda: patient_for(server, 50, timeout_s=30), lambda engine: all_of(engine, notes(30)), server)
    assert sum(record.prompt == "note 3." for record in server.log) == 2
    errors = [reply for reply in replies if isinstance(reply, BaseException)]
    assert [type(error) for error in errors] == [EngineHung]
    assert type(replies[3]) is EngineHung
    assert errors[0].retryable


def test_when_nothing_comes_back_a_small_request_decides():
    """All requests are stuck and a small one fails too: the server is away, and the requests are sent again when it is back."""

    async def call(request, number):
        if number <= 3:
            await asyncio.sleep(1000)
        if number == 4:
            raise EngineUnreachable("reset")
        return ScriptedReply

    ScriptedReply = said_by(ScriptedEngine(lambda _: "ok"), ask_for())  # noqa: N806
    engine = Odd(call)
    replies = unhurried(lambda: Patient(engine, EngineSettings(clock_scale=200, timeout_s=30)), lambda engine: all_of(engine, notes(3)))
    assert [reply.text for reply in replies] == ["ok"] * 3
    assert [request.purpose for request in engine.history] == ["extract"] * 3 + ["probe"] * 2 + ["extract"] * 3


def test_a_server_that_still_answers_is_waited_for():
    """All requests are stuck for long, but a small one is answered: they are left alone until the patience is over."""
    reply = said_by(ScriptedEngine(lambda _: "ok"), ask_for())

    async def call(request, number):
        if request.purpose == "extract":
            await asyncio.sleep(0.5)  # 100 s of the settings' clock
        return reply

    def patiently(**settings):
        return unhurried(lambda: Patient(engine, EngineSettings(clock_scale=200, **settings)), lambda engine: all_of(engine, notes(3)))

    engine = Odd(call)
    replies = patiently(timeout_s=10, patience_s=500)
    assert [reply.text for reply in replies] == ["ok"] * 3
    assert sum(request.purpose == "extract" for request in engine.history) == 3
    assert sum(request.purpose == "probe" for request in engine.history) >= 2
    engine = Odd(call)
    replies = patiently(timeout_s=10, patience_s=30)
    assert all(isinstance(reply, EngineUnreachable) and "has answered none" in str(reply) for reply in replies)


# --- away


TIMELINE = [
    {"from_s": 0, "do": {"reply": "valid", "delay_s": 0.8}},
    {"from_s": 4, "to_s": 6, "do": {"status": 429, "headers": {"Retry-After": "7"}}},
    {"from_s": 14, "to_s": 15, "do": {"drop": "mid-body", "after_bytes": 90}},
    {"from_s": 18, "to_s": 24, "do": {"status": 503, "body": "upstream not ready"}},
    {"from_s": 24, "to_s": 40, "do": {"refuse_connection": True}},
    {"from_s": 40, "to_s": 46, "health": 200, "do": {"status": 500, "body": {"error": {"message": "EngineCore encountered an issue"}}}},
    {"from_s": 46, "do": {"reply": "valid", "delay_s": 0.8}},
]


def test_a_restart_with_everything_in_it():
    """Through 429, dropped bodies, 503, refused connections and 500 with a healthy health page all requests are answered in the end, a
    Retry-After is obeyed, and few requests reach the server while it is of no use."""
    heard = []
    server = ModelServer({"timeline": TIMELINE}, clock_scale=20)
    replies = unhurried(lambda: patient_for(server, 20, concurrency=2, say=heard.append), lambda engine: all_of(engine, notes(120)), server)
    log = [record for record in server.log if record.path == "/v1/chat/completions"]
    first = server.requests("extract")[0].arrived
    assert all(reply.text for reply in replies)
    useless = [record for record in log if record.status != 200 and record.purpose == "extract"]
    assert len(useless) <= 8  # those in flight when a fault begins
    assert sum(record.status in (500, 503) for record in log) <= 5  # with the looks in between, most of which take the health page only
    moments = sorted((record.arrived - first) * 20 for record in log)
    pushed = [moment for moment, record in zip(moments, log, strict=True) if record.status == 429]
    assert [m for m in moments if pushed[-1] + 0.2 < m < pushed[0] + 7] == []
    assert any("Waiting for the model server" in words for words in heard)


def test_a_server_that_is_stopped_and_started():
    """The server really goes away in the middle of its work and comes back on the same port; nothing is lost."""
    script = {"rules": [doing(delay_s=1)]}

    async def main():
        async with ModelServer(script, clock_scale=20).here() as server:
            engine = patient_for(server, 20)
            task = asyncio.create_task(all_of(engine, notes(60)))
            await asyncio.sleep(0.17)
        await asyncio.sleep(0.2)
        async with ModelServer(script, clock_scale=20, port=server.port).here() as restarted:
            replies = await task
            await engine.close()
        return replies, server.requests("extract"), restarted.requests("extract")

    replies, before, after = run_unhurried(main)
    assert all(reply.text for reply in replies)
    answered = sum(record.status == 200 for record in before)
    assert 0 < answered < len(before)
    assert len(after) <= 60 - answered + 5


def test_patience_ends_with_a_clear_error():
    """When the server stays away, everybody is told how long was waited and how to go on; later requests are told at once."""
    heard = []
    with ModelServer() as server:
        url = server.url

    async def work(engine):
        return await timed(all_of(engine, notes(20))), await timed(all_of(engine, notes(5)))

    (errors, first), (later, second) = unhurried(lambda: patient_for(url, 200, patience_s=100, say=heard.append), work)
    assert all(isinstance(error, EngineUnreachable) for error in errors + later)
    assert 100 <= first * 200 <= 160
    assert second * 200 < 10
    assert "has been away for 1" in str(errors[0])
    assert "run the same command again" in errors[0].hint
    assert 2 <= len(heard) <= 20


def test_after_patience_a_server_that_is_back_is_found():
    """Half a minute after giving up, the next request looks again and works if the server is back."""
    away = [True]

    async def call(request, number):
        if away:
            raise EngineUnreachable("gone")
        return reply

    reply = said_by(ScriptedEngine(lambda _: "ok"), ask_for())

    async def work(engine):
        first = await all_of(engine, notes(1))
        away.clear()
        await asyncio.sleep(0.4)
        return first, await all_of(engine, notes(2))

    first, later = unhurried(lambda: Patient(Odd(call), EngineSettings(clock_scale=100, patience_s=60)), work)
    assert isinstance(first[0], EngineUnreachable)
    assert [reply.text for reply in later] == ["ok", "ok"]


def test_waits_do_not_hold_slots_and_one_looks_at_a_time():
    """While the server is away one small request at a time is sent, with growing waits, and the others wait with them."""
    busy, most = 0, 0

    async def call(request, number):
        nonlocal busy, most
        if request.purpose == "probe":
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(0.002)
            busy -= 1
        if asyncio.get_running_loop().time() < back:
            raise EngineUnreachable("gone")
        return reply

    reply = said_by(ScriptedEngine(lambda _: "ok"), ask_for())
    back = START + 0.6
    engine = Odd(call)
    replies = unhurried(lambda: Patient(engine, EngineSettings(clock_scale=100)), lambda engine: all_of(engine, notes(100)))
    assert all(reply.text for reply in replies)
    assert most == 1
    useless = len(engine.history) - 100
    assert useless <= 12  # four in flight at the beginning, then looks at about 1, 3, 7, 15, 31, 61 s


def test_a_retry_after_holds_for_all():
    """Nobody sends anything before the server's time is over, whoever was told."""
    times = []

    async def call(request, number):
        times.append(asyncio.get_running_loop().time())
        if number == 1:
            raise EngineBusy("wait", wait_s=0.3)
        return reply

    reply = said_by(ScriptedEngine(lambda _: "ok"), ask_for())

    async def work(engine):
        first = asyncio.create_task(engine.generate(ask_for()))
        await asyncio.sleep(0.05)
        return await asyncio.gather(first, all_of(engine, notes(10)))

    unhurried(lambda: Patient(Odd(call), EngineSettings(clock_scale=20)), work)
    assert times[1] - times[0] >= 0.3


def test_a_request_that_breaks_the_server_is_given_up():
    """A request that fails every time while others succeed costs five tries and becomes the failure of its unit."""

    async def call(request, number):
        await asyncio.sleep(0.002)
        if "note 7." in request.messages[0].content:
            raise EngineUnreachable("500: index out of range")
        return reply

    reply = said_by(ScriptedEngine(lambda _: "ok"), ask_for())
    engine = Odd(call)

    async def work(engine):
        some = await all_of(engine, notes(10)[:7])
        bad = asyncio.create_task(engine.generate(notes(8)[7]))
        while not bad.done():
            some += await all_of(engine, notes(3))
        return some, (await asyncio.gather(bad, return_exceptions=True))[0]

    some, bad = unhurried(lambda: Patient(engine, EngineSettings(clock_scale=200)), work)
    assert all(reply.text == "ok" for reply in some)
    assert type(bad) is EngineHung
    assert "5 times" in str(bad)
    assert "index out of range" in str(bad)


def test_a_request_that_breaks_the_server_is_given_up_when_it_is_the_last():
    """Where no other request is left, the small ones that look whether the server is back show that it is the request."""

    async def call(request, number):
        if request.purpose != "probe":
            raise EngineUnreachable("500: lexer error")
        return reply

    reply = said_by(ScriptedEngine(lambda _: "ok"), ask_for())
    engine = Odd(call)

    async def work(engine):
        return (await asyncio.gather(engine.generate(ask_for()), return_exceptions=True))[0]

    bad = unhurried(lambda: Patient(engine, EngineSettings(clock_scale=200)), work)
    assert type(bad) is EngineHung
    assert "lexer error" in str(bad)


@pytest.mark.parametrize("status", [400, 404, 422])
def test_refusals_are_not_asked_again(status):
    """A request that the server refuses goes out once."""
    with ModelServer({"rules": [doing(status=status, body={"error": {"message": "no"}})]}) as server:
        with pytest.raises(EngineRefused):
            said_by(patient_for(server), ask_for())
        assert len(server.requests("extract")) == 1


def test_garbage_that_passes_and_garbage_that_stays():
    """Some bad bodies are asked again; an address that only ever answers pages of its own is refused clearly."""
    bodies = iter([b"<html>", b"<html>"])
    with RawServer(lambda *_: (200, {}, next(bodies, completion("ok")))) as server:
        assert said_by(patient_for(server.url, 100), ask_for()).text == "ok"
    with RawServer(lambda *_: (200, {}, b"<html>")) as server, pytest.raises(EngineUnreachable, match=r"every request.*does not speak"):
        said_by(patient_for(server.url, 100), ask_for())


# --- order and end


def test_questions_go_before_indexing():
    """A question is sent at once although indexing waits for slots."""
    server = ModelServer({"rules": [doing(delay_s=1)]}, clock_scale=10)

    async def work(engine):
        task = asyncio.create_task(all_of(engine, notes(12)))
        await asyncio.sleep(0.02)
        reply = await engine.generate(ask_for("why?", purpose="answer", priority=0))
        return reply, len(server.requests("extract")), await task

    reply, sent, _ = unhurried(lambda: patient_for(server, 10, concurrency=3), work, server)
    assert reply.text
    assert sent == 3


def test_who_is_cancelled_leaves_at_once():
    """An interrupted run ends within a moment: what is queued is dropped, what is sent is cancelled at the server, slots come back."""
    server = ModelServer({"rules": [doing(delay_s=60)]})

    async def work(engine):
        task = asyncio.create_task(all_of(engine, notes(10)))
        await asyncio.sleep(0.1)
        task.cancel()
        _, took = await timed(asyncio.gather(task, return_exceptions=True))
        await asyncio.sleep(0.05)
        return took, engine._slots.used, engine._slots.queued

    took, used, queued = unhurried(lambda: patient_for(server, concurrency=2), work, server)
    assert took < 0.5
    assert (used, queued) == (0, 0)
    assert len(server.log) == 2
    assert all(record.cancelled for record in server.log)
