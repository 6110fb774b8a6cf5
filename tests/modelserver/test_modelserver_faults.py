"""The test server itself: how it fails, waits, and is left."""

import asyncio
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.clock import run_unhurried
from tests.modelserver import ModelServer

CLIENT = httpx.Client(timeout=300)


@pytest.fixture(scope="module", autouse=True)
def _closing():
    """The connections go with the tests."""
    yield
    CLIENT.close()


def post(server, purpose, prompt="Say something.", *, client=CLIENT, **body):
    """The response to one chat request, or what an async client is to wait for."""
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}], **body}
    return client.post(server.url + "/chat/completions", json=body, headers={"X-Graphrag-Purpose": purpose})


def played(server, work):
    """What some work with a client, whose patience is without end, gives; the clock of the server does not depend on the machine."""

    async def main():
        async with server.here(), httpx.AsyncClient(timeout=None) as client:
            return await work(client)

    return run_unhurried(main)


def seconds():
    """The server's time."""
    return asyncio.get_running_loop().time()


def rule(on="answer", calls="1-", **do):
    """One rule of a script."""
    return {"on": on, "calls": calls, "do": do}


@pytest.mark.parametrize(
    ("do", "error"),
    [
        ({"drop": "before-headers"}, httpx.RemoteProtocolError),
        ({"reply": "valid", "drop": "mid-body", "after_bytes": 30}, httpx.RemoteProtocolError),
        ({"refuse_connection": True}, httpx.ReadError),
        ({"hang_s": 0.05}, httpx.RemoteProtocolError),
    ],
    ids=["before-headers", "mid-body", "refused", "hung"],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_broken_connections(do, error, stream):
    """Each fault reaches the client as a broken connection, and the next request is served."""
    with ModelServer({"rules": [rule(calls="1", **do)]}) as server:
        with pytest.raises(error):
            post(server, "answer", stream=stream)
        assert post(server, "answer", stream=stream).status_code == 200
        assert not server.log[0].cancelled


def test_a_dropped_body_stops_where_the_rule_says():
    """A reply dropped in mid-body delivers its headers and exactly the named number of bytes."""
    with (
        ModelServer({"rules": [rule(reply="valid", drop="mid-body", after_bytes=30)]}) as server,
        CLIENT.stream("POST", server.url + "/chat/completions", json={"messages": []}) as reply,
    ):
        pieces = reply.iter_raw()
        assert reply.status_code == 200
        assert len(next(pieces)) == 30
        with pytest.raises(httpx.RemoteProtocolError):
            next(pieces)


def test_waits_shrink_with_the_clock():
    """Delays and the Retry-After header are divided by the scale of the clock."""
    busy = rule(calls="1", status=429, headers={"Retry-After": "7"}, body={"error": {"message": "Too many"}})
    slow = rule(reply="valid", delay_s=5, delay_s_by_text={"quick": 1})
    server = ModelServer({"rules": [busy, slow]}, clock_scale=20)

    async def work(client):
        refused, times = await post(server, "answer", client=client), []
        for prompt in ("slow", "quick"):
            began = seconds()
            await post(server, "answer", prompt, client=client)
            times.append(seconds() - began)
        return refused, times

    refused, times = played(server, work)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "0.35")
    assert 0.249 < times[0] < 0.4
    assert 0.049 < times[1] < 0.2


def test_a_timeline_with_a_restart():
    """Pushing back, a closed port that drops who is connected, health without completions, and then all is well again."""
    timeline = [
        {"from_s": 0, "do": {"reply": "valid"}},
        {"from_s": 3, "to_s": 6, "do": {"status": 503, "body": "not ready"}},
        {"from_s": 6, "to_s": 10, "do": {"refuse_connection": True}},
        {"from_s": 10, "to_s": 13, "health": 200, "do": {"status": 500, "body": {"error": {}}}},
        {"from_s": 13, "do": {"reply": "valid"}},
    ]
    server = ModelServer({"timeline": timeline}, clock_scale=5)

    async def asked(reply):
        try:
            return (await reply).status_code
        except httpx.TransportError as error:
            return type(error)

    async def work(client):
        seen, health, began = [], [(await client.get(server.root + "/health")).status_code], seconds()
        for moment in (0.0, 0.8, 1.6, 2.3, 2.8):
            await asyncio.sleep(began + moment - seconds())
            seen.append(await asked(client.post(server.url + "/chat/completions", json={"messages": []})))
            health.append(await asked(client.get(server.root + "/health")))
        return seen, health

    seen, health = played(server, work)
    assert seen == [200, 503, httpx.ConnectError, 500, 200]
    assert health == [200, 200, 503, httpx.ConnectError, 200, 200]


def test_a_timeline_waits_to_be_met():
    """What must be met so many times is met so many times, however late the requests come; then the clock goes on."""
    timeline = [
        {"from_s": 0, "to_s": 1, "meet": 2, "do": {"reply": "valid"}},
        {"from_s": 1, "to_s": 2, "meet": 1, "do": {"status": 503}},
        {"from_s": 2, "do": {"status": 500}},
    ]
    server = ModelServer({"timeline": timeline})

    async def work(client):
        seen = []
        for _ in range(4):
            seen.append((await post(server, "answer", client=client)).status_code)
            await asyncio.sleep(20)
        return seen

    assert played(server, work) == [200, 200, 503, 500]


def test_a_narrow_machine_queues():
    """At most `capacity` requests are worked on at once, the metrics show the rest waiting, and lower priority numbers go first."""
    server = ModelServer({"capacity": 2, "rules": [rule(reply="valid", delay_s=0.4, delay_s_by_text={"short": 0.3})]})

    async def work(client):
        jobs = [asyncio.create_task(post(server, "answer", what, client=client, priority=10)) for what in ("short", "a", "a", "a")]
        await asyncio.sleep(0.16)
        jobs.append(asyncio.create_task(post(server, "answer", "urgent", client=client, priority=0)))
        await asyncio.sleep(0.08)
        text = (await client.get(server.root + "/metrics")).text
        return text, await asyncio.gather(*jobs)

    text, replies = played(server, work)
    log = server.requests("answer")
    assert all(reply.status_code == 200 for reply in replies)
    assert 'vllm:num_requests_running{engine="0",model_name="local-model"} 2.0' in text
    assert 'vllm:num_requests_waiting{engine="0",model_name="local-model"} 3.0' in text
    assert max(sum(other.began <= record.began < other.ended for other in log) for record in log) == 2
    order = [record.prompt for record in sorted(log, key=lambda record: record.began)]
    assert order.index("urgent") == 2
    assert [record.in_flight for record in log] == [1, 2, 3, 4, 5]


def test_who_leaves_is_logged_and_gives_the_place_back():
    """A client that goes away, at work, in the queue or in a stream, is logged as cancelled and holds nothing up."""
    server = ModelServer({"capacity": 1, "rules": [rule(calls="1-2", reply="valid", delay_s=30), rule(reply="valid", text="word " * 400, tokens_per_s=200)]})

    async def work(client):
        jobs = [asyncio.create_task(post(server, "answer", client=client)) for _ in range(2)]
        await asyncio.sleep(0.15)
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        async with client.stream("POST", server.url + "/chat/completions", json={"messages": [], "stream": True}) as reply:
            await anext(reply.aiter_lines())
        server.set_script({})
        return await post(server, "answer", client=client)

    assert played(server, work).status_code == 200
    assert [record.cancelled for record in server.log] == [True, True, True, False]


def test_a_hanging_request_holds_up_nobody():
    """A request that hangs takes no place of the machine."""
    server = ModelServer({"capacity": 1, "rules": [rule(calls="1", hang_s=900)]})

    async def work(client):
        hung = asyncio.create_task(post(server, "answer", client=client))
        await asyncio.sleep(0.1)
        other, page = await post(server, "answer", client=client), await client.get(server.root + "/metrics")
        hung.cancel()
        return hung.done(), other.status_code, page.text, await asyncio.gather(hung, return_exceptions=True)

    was_done, status, page, _ = played(server, work)
    assert (was_done, status) == (False, 200)
    assert "num_requests_running" in page


def test_what_is_held_waits_to_be_released():
    """A held request keeps its place until the test lets it go, and what comes later is not held; another script holds again."""
    with ModelServer({"capacity": 1, "rules": [rule(hold=True)]}) as server, ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(post, server, "answer") for _ in range(2)]
        assert sorted(bool(record.began) for record in server.wait_for_open("answer", 2)) == [False, True]
        server.release()
        assert [job.result().status_code for job in jobs] == [200, 200]
        assert post(server, "answer").status_code == 200
        server.set_script({"rules": [rule(hold=True)]})
        again = pool.submit(post, server, "answer")
        server.wait_for_open("answer")
        server.release()
        assert again.result().status_code == 200


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_steady_pace(stream):
    """Tokens come at the rule's pace, counted as the server counts."""
    server = ModelServer({"rules": [rule(text="mill " * 40, tokens_per_s=50)]}, clock_scale=4)

    async def work(client):
        began = seconds()
        reply = await post(server, "answer", client=client, stream=stream)
        return reply.status_code, seconds() - began

    status, took = played(server, work)
    assert status == 200
    assert 0.24 <= took < 0.4


def test_the_timeline_rules_probes_too():
    """A probe meets the faults of the timeline, but neither its delays nor any rule, and does not start its clock."""
    script = {"rules": [rule(on="any", status=400)], "timeline": [{"from_s": 0, "on": "extract", "do": {"status": 500}}]}
    with ModelServer(script) as server:
        assert post(server, "probe").status_code == 200
        assert post(server, "answer").status_code == 400
        assert post(server, "probe").status_code == 500


def test_a_wrong_request_is_told_so():
    """A body that is no JSON object gets an error and an entry in the log, not a dead server."""
    with ModelServer() as server:
        assert CLIENT.post(server.url + "/chat/completions", content=b"[1]").status_code == 500
        assert "not a JSON object" in server.log[0].error


def test_requests_can_be_waited_for():
    """A test can wait for the n-th answered request, and is told when it does not come."""
    with ModelServer() as server:
        post(server, "report")
        assert [record.status for record in server.wait_for("report")] == [200]
        with pytest.raises(TimeoutError):
            server.wait_for("report", 2, timeout_s=0.02)


def test_async_tests_can_use_it():
    """The server is an async context manager too, and serves many requests of one client at once."""

    async def many():
        async with ModelServer({"rules": [rule(reply="valid", hold=True)]}) as server, httpx.AsyncClient(timeout=300) as client:
            jobs = [asyncio.create_task(client.post(server.url + "/chat/completions", json={"messages": []})) for _ in range(40)]
            await asyncio.to_thread(server.wait_for_open, "answer", 40)
            server.release()
            return await asyncio.gather(*jobs)

    assert {reply.status_code for reply in asyncio.run(many())} == {200}


def test_it_runs_from_the_command_line(tmp_path):
    """`python -m tests.modelserver` names its address and ends on an interrupt."""
    script = tmp_path / "script.json"
    script.write_text('{"model": "from-a-file"}', encoding="utf-8")
    command = [sys.executable, "-m", "tests.modelserver", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": "."}) as process:
        url = process.stdout.readline().strip()
        assert CLIENT.get(url + "/models").json()["data"][0]["id"] == "from-a-file"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
