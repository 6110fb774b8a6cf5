"""The HTTP engine against servers on the loopback address."""

import asyncio
import json

import pytest

from graphrag_local.engine.base import Choice, Gate, Grammar
from graphrag_local.engine.vllm import VLLM
from graphrag_local.errors import ContextOverflow, EngineBusy, EngineRefused, EngineUnreachable
from graphrag_local.settings import EngineSettings
from tests.engine.tools import (
    ALL,
    CARD,
    GRAMMAR_CARD,
    TITLE,
    RawServer,
    all_of,
    ask_for,
    completion,
    engine_for,
    run,
    said_by,
    settings_for,
    until,
)
from tests.modelserver import ModelServer

YN = Choice(options=("Y", "N"))


def doing(**do):
    return {"rules": [{"on": "extract", "do": do}]}


# --- what is sent


def test_a_request_as_it_goes_out():
    """Characters go out as themselves, with purpose and key in the headers, thinking off, and no repetition penalty."""
    with RawServer(lambda *_: (200, {}, completion("ok"))) as server:
        engine = VLLM(settings_for(server.url, api_key="secret"))
        reply = said_by(engine, ask_for("麦 ü \u2028 \ud800", seed=5, purpose="report"))
        path, headers, body = server.asked[0]
    sent = json.loads(body)
    assert path == "/v1/chat/completions"
    assert (headers["x-graphrag-purpose"], headers["authorization"]) == ("report", "Bearer secret")
    assert "麦 ü \u2028 ?".encode() in body  # half a surrogate pair cannot be sent
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}
    assert (sent["model"], sent["max_tokens"], sent["temperature"], sent["seed"]) == ("local-model", 200, 0.0, 5)
    assert {"repetition_penalty", "priority", "stream", "logprobs"} & set(sent) == set()
    assert (reply.text, reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.calls) == ("ok", 7, 3, 1)


def test_priority_goes_out_only_where_it_is_taken():
    """The request's priority is sent to servers that were seen to accept it."""
    with RawServer(lambda *_: (200, {}, completion("ok"))) as server:
        said_by(engine_for(server.url, obeys=ALL), ask_for(priority=3))
        said_by(engine_for(server.url), ask_for(priority=3))
        assert [body.get("priority") for body in server.bodies()] == [3, None]


@pytest.mark.parametrize("name", ["structured_outputs", "response_format", "chat_template_kwargs", "priority", "seed"])
def test_a_field_that_the_server_refuses_is_left_out_from_then_on(name):
    """A 400 that names a field as unknown costs one request, once; the reply comes without that field."""

    def answer(method, path, headers, body):
        if name in json.loads(body):
            return 400, {}, json.dumps({"error": {"message": f"Unrecognized request argument supplied: {name}"}}).encode()
        return 200, {}, completion('{"title":"a"}')

    with RawServer(answer) as server:
        replies = said_by(engine_for(server.url, obeys=ALL), ask_for(constraint=TITLE), ask_for("More.", constraint=TITLE))
        sent = [name in body for body in server.bodies()]
    assert [reply.text for reply in replies] == ['{"title":"a"}'] * 2
    assert sent == [True, False, False]


def test_a_grammar_is_never_left_out():
    """In the grammar form the only field with the constraint stays, so a server that refuses it refuses the request."""
    body = b'{"error": {"message": "unknown field structured_outputs"}}'
    with RawServer(lambda *_: (400, {}, body)) as server:
        engine = engine_for(server.url, card=GRAMMAR_CARD)
        with pytest.raises(EngineRefused, match="structured_outputs"):
            said_by(engine, ask_for(constraint=Grammar(lark='start: "a"')))
        assert len(server.asked) == 1


def test_proxies_in_the_environment_are_ignored(monkeypatch):
    """A proxy that is set for the outside world does not come between us and the server."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with ModelServer() as server:
        assert said_by(engine_for(server.url), ask_for()).text


# --- what comes back


@pytest.mark.parametrize("card", [CARD, GRAMMAR_CARD])
def test_constraints_are_obeyed_in_both_forms(card):
    """A schema and a choice come back as they should, the choice without its JSON quotes."""
    with ModelServer() as server:
        title, choice = said_by(engine_for(server.url, card=card), ask_for(constraint=TITLE), ask_for(constraint=YN))
    assert list(json.loads(title.text)) == ["title"]
    assert choice.text in ("Y", "N")
    assert title.finish_reason == choice.finish_reason == "stop"


@pytest.mark.parametrize(
    "do",
    [
        {"before": "```json\n", "after": "\n```"},
        {"before": "Sure, here it is:\n\n", "after": "\n\nAnything else?"},
        {"damage": "insert a comma before the last closing brace"},
        {"before": "<think>\nA title {short}.\n</think>\n\n"},
        {"reasoning_content": "A title."},
    ],
)
def test_wrappings_are_taken_off(do):
    """Fences, chatter, a comma too many and thoughts do not cost a reply."""
    with ModelServer(doing(reply="valid", **do)) as server:
        assert list(json.loads(said_by(engine_for(server.url), ask_for(constraint=TITLE)).text)) == ["title"]


def test_a_reply_of_thoughts_alone_is_empty():
    """When the room was used up by thinking there is no text, and the finish reason says why."""
    with ModelServer(doing(text="<think>Let me see", finish_reason="length")) as server:
        reply = said_by(engine_for(server.url), ask_for(constraint=TITLE))
    assert (reply.text, reply.finish_reason) == ("", "length")
    with ModelServer(doing(message={"content": None, "reasoning_content": "Hm."})) as server:
        assert said_by(engine_for(server.url), ask_for(constraint=TITLE)).text == ""


def test_log_probabilities_come_where_asked():
    """Pairs of token and log-probability, and none where they were not asked for."""
    with ModelServer() as server:
        engine = engine_for(server.url)
        asked, not_asked = said_by(engine, ask_for(logprobs=True), ask_for())
    assert "".join(token for token, _ in asked.logprobs) == asked.text
    assert all(logprob <= 0 for _, logprob in asked.logprobs)
    assert not_asked.logprobs == ()
    assert engine.seen == {"logprobs"}


# --- what goes wrong


@pytest.mark.parametrize(
    ("do", "error"),
    [
        ({"drop": "before-headers"}, EngineUnreachable),
        ({"reply": "valid", "drop": "mid-body", "after_bytes": 40}, EngineUnreachable),
        ({"status": 500, "body": {"error": {"message": "EngineCore died"}}}, EngineUnreachable),
        ({"status": 503, "body": "not ready"}, EngineBusy),
        ({"status": 429, "headers": {"Retry-After": "7"}}, EngineBusy),
        ({"status": 400, "body": {"error": {"message": "no such thing"}}}, EngineRefused),
        ({"status": 404, "body": {"error": {"message": "no model"}}}, EngineRefused),
        ({"status": 500, "body": {"error": {"message": "exceeds the available context size (99 tokens)"}}}, ContextOverflow),
        ({"body": "<html>hello</html>"}, EngineUnreachable),
        ({"body": {"choices": []}}, EngineUnreachable),
        ({"body": [1]}, EngineUnreachable),
        ({"body": {"choices": [{"message": "hi"}]}}, EngineUnreachable),
    ],
)
@pytest.mark.parametrize("gate", [None, Gate()])
def test_faults_become_errors(do, error, gate):
    """Each fault of the server or the network has its error, streamed or not; nothing of another library comes through."""
    with ModelServer(doing(**do)) as server, pytest.raises(error) as caught:
        said_by(engine_for(server.url), ask_for(gate=gate))
    assert type(caught.value) is error
    if error is EngineBusy:
        assert caught.value.wait_s == (7 if do["status"] == 429 else 0)


def test_nobody_there():
    """A refused connection says where, and asks whether the server is running."""
    with ModelServer() as server:
        url = server.url
    with pytest.raises(EngineUnreachable, match="127") as caught:
        said_by(engine_for(url), ask_for())
    assert "running" in caught.value.hint


def test_the_window_is_refused_with_its_numbers():
    """The server's length refusal brings its own counts."""
    with ModelServer({"window_tokens": 100}) as server, pytest.raises(ContextOverflow) as caught:
        said_by(engine_for(server.url), ask_for("x" * 400, max_tokens=50))
    assert (caught.value.window, caught.value.prompt_tokens) == (100, 100)


def test_a_wrong_address_is_told_after_three_tries():
    """Something that answers 200 with pages of its own is garbage twice, then an address that is wrong."""
    with RawServer(lambda *_: (200, {}, b"<html>Welcome</html>")) as server:

        async def work(engine):
            return [(await all_of(engine, [ask_for()]))[0] for _ in range(3)]

        errors = run(engine_for(server.url), work)
    assert [type(error) for error in errors] == [EngineUnreachable, EngineUnreachable, EngineRefused]
    assert "does not speak the OpenAI protocol" in str(errors[-1])
    assert "/v1" in errors[-1].hint


def test_garbage_after_a_good_reply_is_a_passing_fault():
    """A server that has answered before is not declared wrong for a bad moment."""
    good = [True]

    def answer(*_):
        return 200, {}, completion("ok") if good.pop() else b"<html>"

    with RawServer(answer) as server:

        async def work(engine):
            await engine.generate(ask_for())
            good.extend([False] * 4)
            return [(await all_of(engine, [ask_for()]))[0] for _ in range(4)]

        assert {type(error) for error in run(engine_for(server.url), work)} == {EngineUnreachable}


def test_a_bad_url_is_refused():
    """An address that is no URL is a wrong setting, not a server that is away."""
    with pytest.raises(EngineRefused, match="empty"):
        VLLM(EngineSettings())
    with pytest.raises(EngineRefused, match="URL"):
        said_by(engine_for("http://[::1/v1"), ask_for())


# --- several endpoints


def test_what_shares_a_prefix_stays_on_one_endpoint():
    """Each affinity has its endpoint, the same every time and in every engine; many affinities use all of them."""
    with ModelServer() as one, ModelServer() as two:
        requests = [ask_for(f"chunk {n}", affinity=f"chunk {n}") for n in range(12)]
        for _ in range(2):
            said_by(engine_for(one.url, two.url), *requests)
        prompts = [sorted(record.prompt for record in server.log) for server in (one, two)]
    assert len(prompts[0]) + len(prompts[1]) == 24
    assert not set(prompts[0]) & set(prompts[1])
    assert min(len(part) for part in prompts) >= 4


def test_a_crowded_endpoint_spills():
    """Many requests of one affinity at once do not all queue at one endpoint."""
    with ModelServer(doing(reply="valid", delay_s=0.2)) as one, ModelServer(doing(reply="valid", delay_s=0.2)) as two:
        replies = run(engine_for(one.url, two.url), lambda engine: all_of(engine, [ask_for(f"{n}", affinity="same") for n in range(20)]))
        shares = (len(one.log), len(two.log))
    assert all(reply.text for reply in replies)
    assert min(shares) >= 6


def test_a_dead_endpoint_is_left_alone():
    """While one endpoint is gone, its requests go to the other at once, and are not tried there first every time."""
    with ModelServer() as one, ModelServer() as two:
        alive, dead = one, two
        dead.stop()
        replies = said_by(engine_for(alive.url, dead.url), *(ask_for(f"{n}", affinity=f"{n}") for n in range(10)))
        assert all(reply.text for reply in replies)
        assert len(alive.log) == 10
        dead.start()  # so that leaving the block can stop it


def test_all_endpoints_gone():
    """With no endpoint left the fault is told."""
    with ModelServer() as one, ModelServer() as two:
        urls = (one.url, two.url)
    with pytest.raises(EngineUnreachable):
        said_by(engine_for(*urls), ask_for())


# --- the server's pages


def test_pages():
    """Models with their window, version, health, the queue, and token counts of texts and chats are read."""
    with ModelServer({"window_tokens": 900, "tokenize": True, "count": {"per_message": 8}}) as server:

        async def work(engine):
            message = ask_for("12345678").messages
            return [
                await engine.models(), await engine.version(), await engine.ailing(), await engine.metrics(),
                await engine.tokenize("12345678"), await engine.tokenize(message),
            ]  # fmt: skip

        models, version, health, load, text, chat = run(engine_for(server.url, obeys=ALL), work)
        assert [record.path for record in server.log] == ["/v1/models", "/version", "/health", "/metrics", "/tokenize", "/tokenize"]
    assert (models[0].name, models[0].context_tokens) == ("local-model", 900)
    assert (version, health, load.running, load.waiting, text, chat) == ("0.32.0", None, 0, 0, 2, 10)


def test_pages_that_are_not_there():
    """A server without them answers None or nothing, and is not asked again."""

    def answer(method, path, headers, body):
        return (404, {}, b"Not Found")

    with RawServer(answer) as server:

        async def work(engine):
            return [await engine.version(), await engine.ailing()] + [
                found for _ in range(2) for found in (await engine.metrics(), await engine.tokenize("x"))
            ]

        assert run(engine_for(server.url, obeys=ALL), work) == ["", None, None, None, None, None]
        assert len(server.asked) == 4


def test_only_models_that_all_endpoints_have_count():
    """A model that one of several endpoints lacks is not listed, and an endpoint that is away does not count."""
    with ModelServer({"model": "a"}) as one, ModelServer({"model": "b"}) as two:
        assert run(engine_for(one.url, two.url), lambda engine: engine.models()) == ()
        two.set_script({"model": "a"})
        two_url = two.url
        assert [m.name for m in run(engine_for(one.url, two_url), lambda engine: engine.models())] == ["a"]
    with ModelServer({"model": "a"}) as one:
        assert [m.name for m in run(engine_for(two_url, one.url), lambda engine: engine.models())] == ["a"]


def test_a_cancelled_request_is_cancelled_at_the_server():
    """Whoever stops waiting closes the connection, streamed or not, so that the server stops too."""
    with ModelServer(doing(reply="valid", delay_s=5)) as server:

        async def work(engine):
            task = asyncio.create_task(engine.generate(ask_for()))
            while not server.log:
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        run(engine_for(server.url), work)
        assert until(lambda: server.log[0].cancelled)
