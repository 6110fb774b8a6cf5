"""Replies that begin with a gate: its probability, and leaving them there."""

import json

import pytest

from graphrag_local.engine.base import Gate, Grammar, schema_of
from graphrag_local.errors import EngineUnreachable
from tests.engine.tools import ALL, GRAMMAR_CARD, RawServer, ask_for, completion, engine_for, said_by, until
from tests.modelserver import ModelServer

USEFUL = {"type": "object", "properties": {"useful": {"enum": ["Y", "N"]}, "note": {"type": "string"}}, "required": ["useful", "note"]}


def slow_gate(**p):
    """A server that writes forty tokens a second, with these probabilities at the gate."""
    return {"rules": [{"on": "answer", "do": {"reply": "valid", "token_p": p, "tokens_per_s": 40}}], "grammar": "walk"}


def gated(threshold, constraint=None):
    return ask_for(" ".join(["evidence"] * 80), constraint, purpose="answer", gate=Gate(threshold=threshold), max_tokens=150)


LINES = Grammar(lark='start: ("Y" | "N") "\\t" TEXT\nTEXT: /[^"\\\\\\x00-\\x1F\\x7F]{200,}/\n')


def test_a_low_gate_closes_the_connection():
    """The reply is left after its first token, and the server sees the client go long before the reply would have ended."""
    do = {"text": "N\t" + "word " * 200, "token_p": {"Y": 0.1, "N": 0.9}, "tokens_per_s": 4}
    with ModelServer({"rules": [{"on": "answer", "do": do}]}) as server:
        reply = said_by(engine_for(server.url, card=GRAMMAR_CARD), gated(0.2, LINES))
        assert reply.finish_reason == "gate"
        assert reply.gate == pytest.approx(0.1)
        assert until(lambda: server.log[-1].cancelled)
        assert server.log[-1].ended - server.log[-1].began < 20  # of 37


@pytest.mark.parametrize(("threshold", "finish"), [(0.0, "stop"), (0.05, "stop"), (1.5, "gate")])
def test_the_threshold_decides(threshold, finish):
    """A threshold of 0 never abandons, a lower one than the gate neither, one over 1 always does; the gate is told in every case."""
    do = {"text": "N\tnothing here", "token_p": {"Y": 0.1, "N": 0.9}}
    with ModelServer({"rules": [{"on": "answer", "do": do}]}) as server:
        reply = said_by(engine_for(server.url, card=GRAMMAR_CARD), gated(threshold, LINES))
    assert (reply.finish_reason, reply.gate) == (finish, pytest.approx(0.1))
    assert reply.text == ("N\tnothing here" if finish == "stop" else "N")


def test_the_gate_stands_behind_the_first_colon_in_json():
    """In the schema form the gate is the value of the first key; a reply over the threshold is read to its end."""
    with ModelServer(slow_gate(Y=0.7, N=0.3)) as server:
        engine = engine_for(server.url)
        high = said_by(engine, gated(0.5, schema_of(USEFUL)))
        low = said_by(engine_for(server.url), gated(0.9, schema_of(USEFUL)))
    assert json.loads(high.text)["useful"] == "Y"
    assert (high.gate, high.finish_reason) == (pytest.approx(0.7), "stop")
    assert (low.gate, low.finish_reason) == (pytest.approx(0.7), "gate")
    assert high.usage.completion_tokens > low.usage.completion_tokens > 0


def test_token_ids_of_the_options_are_asked_for_where_the_server_tokenizes():
    """With /tokenize the exact probabilities of the options are asked for, and the ids are looked up once."""
    with ModelServer({"tokenize": True}) as server:
        said_by(engine_for(server.url, obeys=ALL), gated(0.0), gated(0.0))
        bodies = [record.body for record in server.requests("answer")]
        assert [body["logprob_token_ids"] for body in bodies] == [[ord("Y"), ord("N")]] * 2
        assert len(server.requests("tokenize")) == 2


def sse(*events, end=b"data: [DONE]\n\n"):
    return b"".join(b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n" for event in events) + end


def delta(text, **rest):
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None} | rest]}


@pytest.mark.parametrize("stream", [True, False])
def test_without_log_probabilities_nothing_is_abandoned(stream):
    """A server that gives none has the reply read to its end with no gate, whether it streams or not."""
    body = sse(delta("N\t"), delta("a\u2028b"), delta("", finish_reason="stop")) if stream else completion("N\ta\u2028b")
    kind = "text/event-stream" if stream else "application/json"
    with RawServer(lambda *_: (200, {"Content-Type": kind}, body)) as server:
        reply = said_by(engine_for(server.url, card=GRAMMAR_CARD), gated(0.9, LINES))
    assert (reply.text, reply.gate, reply.finish_reason) == ("N\ta\u2028b", None, "stop")


@pytest.mark.parametrize(
    "body",
    [sse(delta("Y\tabc"), end=b""), sse(delta("Y"), end=b'data: {"choi'), sse(delta("Y"), {"error": {"message": "died", "code": 500}}, end=b"")],
)
def test_a_stream_that_breaks_off_is_no_reply(body):
    """A stream without an end, one cut in mid-event and one that ends in an error are faults of the server."""
    with RawServer(lambda *_: (200, {"Content-Type": "text/event-stream"}, body)) as server, pytest.raises(EngineUnreachable):
        said_by(engine_for(server.url), gated(0.0))
