"""Answers as server-sent events: what comes when, errors before and after the first event, and clients that go away."""

import asyncio
import contextlib
import json
import threading

import httpx
import pytest
import uvicorn
from starlette.requests import ClientDisconnect

from graphrag_local.project import open_project
from graphrag_local.server.app import create_app
from tests.cli.shell import SCRIPT, _alone, project, sh, until  # noqa: F401
from tests.cli.test_stream import DOUBT, REPLY
from tests.modelserver import ModelServer

LONG_S = 30
BODY = {"question": "Who asked for a lamp?", "mode": "basic", "stream": True}


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory):
    """An indexed project."""
    folder = tmp_path_factory.mktemp("events") / "town"
    with project(folder):
        assert sh(f"graphrag-local index {folder}").code == 0
    return folder


@contextlib.contextmanager
def served(folder, *rules):
    """The service in a thread, beside a model server that follows some rules: (URL, model server)."""
    with ModelServer({**SCRIPT, "rules": list(rules)}) as models:
        settings = (f"engine.url={models.url}", "vectors.kind=none", "engine.clock_scale=20")
        server = uvicorn.Server(uvicorn.Config(create_app(open_project(folder, settings)), port=0, log_level="critical", lifespan="on"))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
        thread.start()
        until(lambda: server.started and server.servers)
        try:
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1/query", models
        finally:
            server.should_exit = True
            thread.join()


def events_of(reply):
    """The events of a response as (kind, data)."""
    blocks = [block.splitlines() for block in reply.text.split("\n\n") if block]
    assert all(len(block) == 2 for block in blocks)
    return [(block[0].removeprefix("event: "), json.loads(block[1].removeprefix("data: "))) for block in blocks]


def post(url, **body):
    return httpx.post(url, json={**BODY, **body}, timeout=300, trust_env=False)


def test_an_answer_comes_as_events(folder):
    """Texts and citations joined are the answer, sentences have their verdicts, `done` is the object that comes without streaming; strict holds here too."""
    with served(folder, REPLY, DOUBT) as (url, _):
        reply, whole, strict = post(url), post(url, stream=False).json(), post(url, strict=True)
    events = events_of(reply)

    assert reply.headers["content-type"].startswith("text/event-stream")
    assert {kind for kind, _ in events} == {"text", "citation", "sentence", "done"}
    assert "".join(data["text"] for kind, data in events if kind in ("text", "citation")) == whole["answer"]
    assert [data for kind, data in events if kind == "sentence"] == whole["sentences"]
    assert list({data["text"].strip(): data["citation"] for kind, data in events if kind == "citation"}.values()) == whole["citations"]
    assert events[-1][0] == "done"
    assert set(events[-1][1]) == set(whole)
    assert events_of(strict)[-1][1]["answer"] == "Mira Holt wanted light on the bridge. [1]"


def test_what_fails_before_the_first_event_has_its_own_status(folder):
    """A level that does not exist is 400 with an error object, as without streaming."""
    with served(folder) as (url, _):
        reply = post(url, mode="global", level=9)

    assert reply.status_code == 400
    assert "There is no community level 9" in reply.json()["error"]["message"]


def test_what_fails_later_is_an_event(folder):
    """After windows were told of, a model that gives nothing usable is an `error` event with the sentence, and the stream ends."""
    with served(folder, {"on": "answer", "do": {"text": "Sure!"}}) as (url, _):
        reply = post(url, mode="source")
    events = events_of(reply)

    assert (reply.status_code, events[0][0], events[-1][0]) == (200, "progress", "error")
    assert "no usable reply" in events[-1][1]["error"]["message"]


def test_a_client_that_goes_away_ends_the_calls(folder):
    """Who closes the connection in the middle of an answer has the model's calls closed too."""
    with served(folder, REPLY, {"on": "support", "do": {"hold": True}}) as (url, models):
        with httpx.stream("POST", url, json=BODY, timeout=300, trust_env=False) as reply:
            assert next(reply.iter_lines()) == "event: text"
            until(lambda: models.requests("support"))
        until(lambda: all(request.cancelled for request in models.requests("support")))

    assert models.requests("support")


def test_a_client_that_is_gone_before_the_first_event_ends_the_calls(folder):
    """Where not even the head of the response could be sent, the model's calls are closed all the same, and nothing of the question is left running."""

    async def asked(app):
        content = json.dumps(BODY).encode()
        head = {"host": "127.0.0.1", "content-type": "application/json", "content-length": str(len(content))}
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "method": "POST", "path": "/v1/query", "raw_path": b"/v1/query",
            "query_string": b"", "headers": [(name.encode(), value.encode()) for name, value in head.items()], "http_version": "1.1", "scheme": "http",
        }  # fmt: skip
        messages = iter([{"type": "http.request", "body": content, "more_body": False}])
        never = asyncio.Event()

        async def receive():
            message = next(messages, None)
            if message is None:
                await never.wait()
            return message

        async def send(message):
            raise OSError("the client is gone")

        async with app.router.lifespan_context(app):
            before = asyncio.all_tasks()
            with contextlib.suppress(OSError, ClientDisconnect):
                await app(scope, receive, send)
            work = [task for task in asyncio.all_tasks() - before if "_asked" in repr(task)]
            return (await asyncio.wait(work, timeout=LONG_S))[1] if work else set()

    with ModelServer({**SCRIPT, "rules": [REPLY, {"on": "support", "do": {"hold": True}}]}) as models:
        left = asyncio.run(asked(create_app(open_project(folder, (f"engine.url={models.url}", "vectors.kind=none", "engine.clock_scale=20")))))
        until(lambda: all(request.cancelled for request in models.requests("support")))

    assert left == set()
    assert models.requests("answer")
