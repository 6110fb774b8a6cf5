"""What servers say, read."""

import json
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrag_local.engine.base import Choice, FreeText, Gate, Grammar, JsonSchema
from graphrag_local.engine.wire import (
    GateReader,
    fault_of,
    finish_of,
    gate_value,
    outermost_json,
    retry_after,
    said,
    unwanted_field,
    without_thoughts,
)
from graphrag_local.errors import ContextOverflow, EngineBusy, EngineRefused, EngineUnreachable

JSON = JsonSchema(text="{}")
LONGEST = "This model's maximum context length is {} tokens. "


def fault(status, message, **headers):
    return fault_of(status, headers, json.dumps({"error": {"message": message, "code": status}}).encode(), "http://host/v1")


@pytest.mark.parametrize(
    ("status", "message", "window", "prompt"),
    [
        (400, LONGEST.format(2048) + "However, you requested 2076 tokens (1876 in the messages, 200 in the completion).", 2048, 1876),
        (400, LONGEST.format(8192) + "However, you requested 900 output tokens and your prompt contains at least 7993 input tokens", 8192, 7993),
        (400, "Count exceeds the model's maximum context length of 8192 tokens. A total of 9000: 8000 tokens from the input messages", 8192, 8000),
        (400, "The input (9000 tokens) is longer than the model's context length (8192 tokens).", 8192, 9000),
        (500, "the request exceeds the available context size (4,096 tokens), try increasing it", 4096, 0),
        (422, "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 200 `max_new_tokens`", 4096, 4000),
        (400, LONGEST.format(16385) + "However, your messages resulted in 17000 tokens.", 16385, 17000),
    ],
)  # fmt: skip
def test_length_refusals_are_understood(status, message, window, prompt):
    """The wordings of several servers become a ContextOverflow with the numbers they name."""
    error = fault(status, message)
    assert isinstance(error, ContextOverflow)
    assert (error.window, error.prompt_tokens) == (window, prompt)
    assert message[:60] in str(error)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, EngineRefused), (401, EngineRefused), (404, EngineRefused), (422, EngineRefused), (302, EngineRefused), (408, EngineUnreachable),
     (429, EngineBusy), (500, EngineUnreachable), (502, EngineUnreachable), (503, EngineBusy), (504, EngineUnreachable)],
)  # fmt: skip
def test_statuses_become_errors(status, kind):
    """A client's mistake is final, a server's fault is not; the server's words are in the message."""
    error = fault(status, "something about it")
    assert type(error) is kind
    assert "something about it" in str(error)
    assert str(status) in str(error)


def test_bodies_that_are_no_json_are_quoted():
    """An HTML page or plain text as an error body is shown from its beginning, on one line."""
    assert "upstream not ready" in str(fault_of(503, {}, b"upstream\nnot ready", "w"))
    assert "gone" in str(fault_of(404, {}, b'{"detail": "gone"}', "w"))


def test_retry_after_is_seconds_or_a_date():
    """Both forms of the header are read; nonsense and times past are no wait."""
    now = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
    assert retry_after("7") == 7
    assert retry_after("Sun, 01 Mar 2026 12:00:30 GMT", now) == 30
    assert [retry_after(text, now) for text in ("", "soon", "-3", "inf", "Sun, 01 Mar 2026 11:00:00 GMT")] == [0, 0, 0, 0, 0]
    busy = fault(503, "later", **{"retry-after": "2.5"})
    assert isinstance(busy, EngineBusy)
    assert busy.wait_s == 2.5


def test_unwanted_fields_are_recognised():
    """A refusal that names a field as unknown is about that field; one about its value is not."""
    names = ["structured_outputs", "priority"]
    assert unwanted_field(fault(400, "Unrecognized request argument supplied: structured_outputs"), names) == "structured_outputs"
    assert unwanted_field(fault(400, "Got priority 10 but priority scheduling is not enabled."), names) == "priority"
    extra = fault_of(422, {}, b'{"detail": [{"type": "extra_forbidden", "loc": ["body", "priority"], "msg": "Extra inputs are not permitted"}]}', "w")
    assert unwanted_field(extra, names) == "priority"
    assert unwanted_field(fault(400, "priority must be at least 0"), names) == ""
    assert unwanted_field(fault(400, "unknown model"), names) == ""


def test_thoughts_are_taken_off_at_the_beginning_only():
    """A think block that opens the reply goes, one that never ends leaves nothing, and a mark further on is text."""
    assert without_thoughts("\n<think>hm\nhm</think>\n\nYes.") == "Yes."
    assert without_thoughts("<think>hm") == ""
    assert without_thoughts("The mark <think>x</think> stays.") == "The mark <think>x</think> stays."


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"a":1}', '{"a":1}'),
        (' {"a": 1}\n', ' {"a": 1}\n'),
        ('```json\n{"a":1}\n```', '{"a":1}'),
        ('Sure [as asked], here:\n\n{"a":[1,2]}\n\nAnything else?', '{"a":[1,2]}'),
        ('{"a":[1,2,],"b":"x,]",}', '{"a":[1,2],"b":"x,]"}'),
        ("```\n[1,2,]\n```", "[1,2]"),
        ('{"a": [1, +more]}', '{"a": [1, +more]}'),
        ('{"a":"cut of', '{"a":"cut of'),
        ("no json at all", "no json at all"),
        ("", ""),
    ],
)
def test_json_is_found_and_never_invented(text, wanted):
    """Fences, chatter and a comma too many go; what is cut off or broken inside stays as it came."""
    assert outermost_json(text) == wanted


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x), max_leaves=8))
def test_any_json_survives(value):
    """JSON in any layout is given back as it stands, and is found again inside a fence."""
    text = json.dumps(value, ensure_ascii=False)
    assert outermost_json(text) == text
    if isinstance(value, dict | list):
        assert json.loads(outermost_json(f"Here it is:\n```json\n{text}\n```\nDone.")) == value


@pytest.mark.parametrize("text", ["Y", '"Y"', '```json\n"Y"\n```', " 'Y' \n", "Y\n", "<think>so</think>Y"])
def test_a_choice_is_unquoted(text):
    """In the schema form a choice comes as a JSON string; quotes, fences and blanks around an option are taken off."""
    assert said(text, Choice(options=("Y", "N")), "schema") == "Y"


def test_other_constraints_keep_their_text():
    """A reply to a grammar or to nothing keeps everything but thoughts, and a wrong choice stays wrong."""
    assert said("```\na\n```", Grammar(lark=""), "grammar") == "```\na\n```"
    assert said("<think>x</think> a ", FreeText(), "schema") == "a "
    assert said('"maybe"', Choice(options=("Y", "N")), "schema") == '"maybe"'


def test_finish_reasons():
    """Names of other servers for an end and a limit are known; anything else is an abort."""
    assert [finish_of(reason) for reason in ("stop", None, "eos", "length", "max_tokens", "content_filter", "abort")] == [
        "stop", "stop", "stop", "length", "length", "abort", "abort",
    ]  # fmt: skip


def test_the_share_of_the_first_option_sums_its_spellings():
    """Tokens that are an option after blanks and quotes are stripped count for it; others count for nothing."""
    p = {"Y": math.log(0.3), ' "Y': math.log(0.1), "N": math.log(0.1), "Yes": math.log(0.5)}
    assert gate_value(Gate(), p) == pytest.approx(0.8)
    assert gate_value(Gate(), {"Z": 0.0}) is None


def test_a_gate_with_worths_gives_their_expectation():
    """A grade is the mean of the grades by their probabilities, not the likeliest one."""
    gate = Gate(options=("0", "1", "5"), worths=(0.0, 1.0, 5.0))
    p = {"0": math.log(0.4), "1": math.log(0.2), " 5": math.log(0.2), "9": math.log(0.2)}

    assert gate_value(gate, p) == pytest.approx((0.2 + 5 * 0.2) / 0.8)


def read(constraint, *tokens):
    reader = GateReader(Gate(), constraint)
    for token in tokens:
        reader.feed((token, math.log(0.6), (("Y", math.log(0.6)), ("N", math.log(0.2)))))
    return reader.value


def test_the_gate_is_the_first_option_where_the_answer_stands():
    """After a colon in JSON, at the beginning elsewhere; a Y that belongs to the key is not the answer."""
    assert read(Grammar(lark=""), "\n", "Y", "\t") == pytest.approx(0.75)
    assert read(JSON, '{"', "Y", '":"', "Y", '"') == pytest.approx(0.75)
    assert read(JSON, '{"useful":"', "N") == pytest.approx(0.75)
    assert read(JSON, '{"', "useful", '":"N') == pytest.approx(3 / 7)  # one token for the colon, the quotes and the answer
    assert read(JSON, '{"', "Y") is None
    assert read(Choice(options=("Y", "N")), '"', "Y", '"') == pytest.approx(0.75)
    assert read(FreeText(), *["x"] * 40, "Y") is None
