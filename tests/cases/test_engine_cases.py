"""Servers that are slow, away, confused or of another make: what a run over a folder makes of them."""

import json
import re
import signal
import threading
import time
from collections import Counter, deque

import pytest

from graphrag_local.records import Chunk, Report
from tests.cases.program import program
from tests.cases.sealed import wait_until
from tests.cli.shell import ended
from tests.cli.test_interrupt import paid
from tests.engine.tools import RawServer, completion

WORK = ("extract", "describe", "report", "answer")
FINDS = {"fixture_pattern": {"entities": [r"\bHenk\d+\b", r"\bSluice\d+\b"], "types": ["person", "geo"], "relate": "chain"}}
PEOPLE = {"fixture_pattern": {"entities": ["[A-Z][a-z]+ [A-Z][a-z]+"], "types": ["person"], "relate": "within-sentence"}}
TWO = {"a.txt": "Anna Berg runs the Hill Mill. Bo Carls repairs the Hill Mill.", "b.txt": "Cleo Dahm sails the Grey Gull. Anna Berg owns the Grey Gull."}


def ledger(count):
    """So many short notes, each with two names of its own."""
    return {f"entry{n:02}.txt": f"Entry {n}: Henk{n} opened Sluice{n}." for n in range(1, count + 1)}


def every(**do):
    """A script in which every reply that is work is changed in this way."""
    return {**PEOPLE, "rules": [{"on": list(WORK), "do": {"reply": "valid", **do}}]}


def prompts(it, purpose="extract"):
    """How often each prompt of a kind was sent."""
    return Counter(record.prompt for record in it.server.requests(purpose))


# --- replies that go on without end


LOOPS = [
    {"cut_after_fraction": 0.3, "then_repeat": {"unit": "\n\t", "times": 9000}, "finish_reason": "length"},
    {"cut_after_fraction": 0.6, "then_repeat": {"unit": " ", "times": 9000}},
    {"repeat_entity_times": 300, "close": False, "finish_reason": "length"},
    {"cut_after_fraction": 0.5, "then_repeat": {"unit": "la la ", "times": 4000}},
]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_reply_that_loops_costs_its_limit_and_nothing_else(tmp_path, loop):
    """Blanks, repeated records and repeated words end at a bound that fits the task; the next try differs, and no loop becomes a record."""
    script = {**PEOPLE, "rules": [{"on": "extract", "calls": "1", "do": {"reply": "valid", **loop}}]}
    with program(tmp_path, {"a.txt": TWO["a.txt"]}, script) as it:
        done = it.index()
        log = it.server.requests("extract")
        assert done.code == 0
        assert it.names() == {"Anna Berg", "Hill Mill", "Bo Carls"}
        assert all(record.max_tokens <= 4000 for record in log)
        bodies = {json.dumps([r.body[key] for key in ("messages", "seed", "temperature")]) for r in log}
        assert len(bodies) == len(log) > 1
        assert it.status()["last_build"]["wasted_tokens"] >= 100
        assert it.index().code == 0
        assert len(it.server.requests("extract")) == len(log)


def test_a_chunk_that_always_loops_is_listed_and_the_rest_goes_on(tmp_path):
    """A stated number of tries, then the chunk is a failure with its reason; it is asked again only when somebody says so."""
    loop = {"reply": "valid", "cut_after_fraction": 0.5, "then_repeat": {"unit": "  \n", "times": 9000}}
    with program(tmp_path, TWO, {**PEOPLE, "rules": [{"on": "extract", "when_prompt_has": "Grey Gull", "do": loop}]}) as it:
        done = it.index()
        assert done.code == 3
        (failure,) = {f["input"].split(",")[0]: f for f in it.status()["failures"]}.values()
        assert failure["stage"] == "extraction"
        assert "b.txt" in failure["input"]
        assert "repeated itself" in failure["reason"]
        assert it.names() == {"Anna Berg", "Hill Mill", "Bo Carls"}
        asked = len(it.server.requests("extract"))
        assert asked <= 8
        again = it.index()
        assert (again.code, again.json["digest"], len(it.server.requests("extract"))) == (3, done.json["digest"], asked)
        it.server.set_script(PEOPLE)
        assert it.index("--retry-failed").code == 0
        assert "Cleo Dahm" in it.names()


# --- slow and narrow


def test_a_slow_narrow_server_loses_no_work(tmp_path):
    """Two at a time, twenty seconds each: nothing is cancelled or sent twice, all is done in about the least time, and progress tells the rest."""
    script = {**FINDS, "capacity": 2, "rules": [{"on": list(WORK), "do": {"reply": "valid", "delay_s": 20}}]}
    with program(tmp_path, ledger(16), script, clock_scale=100, engine__clock_scale=100, engine__timeout_s=60) as it:
        done = it.index()
        log = [record for record in it.server.log if record.purpose in WORK]
        assert done.code == 0
        assert it.status()["counts"]["entities"] == 32
        assert sum(record.cancelled for record in log) == 0
        assert max(prompts(it).values()) == 1
        extracts = it.server.requests("extract")
        busy = sum(record.ended - record.began for record in extracts) / 2
        assert max(record.ended for record in extracts) - min(record.began for record in extracts) <= 2.5 * busy
        assert "are with the model" in done.err


def test_one_request_that_hangs_is_one_failed_chunk(tmp_path):
    """A request that never comes back holds up nobody; it is listed as failed, and the next run asks for it alone."""
    hang = {"on": "extract", "when_prompt_has": "Henk7 ", "do": {"hang_s": 90000}}
    script = {**FINDS, "rules": [hang, {"on": list(WORK), "do": {"reply": "valid", "delay_s": 2}}]}
    with program(tmp_path, ledger(20), script, clock_scale=50, engine__clock_scale=50, engine__timeout_s=30) as it:
        done = it.index()
        assert done.code == 3
        assert [(f["stage"], f["retryable"]) for f in it.status()["failures"]] == [("extraction", True)]
        assert len(it.names()) == 38
        before = prompts(it)
        it.server.set_script(FINDS)
        assert it.index().code == 0
        assert len(it.names()) == 40
        assert sum((prompts(it) - before).values()) == 1


def test_an_interrupted_run_ends_at_once_and_goes_on_later(tmp_path):
    """Ctrl-C ends a run that waits for a slow server within seconds, with exit code 130 and a sentence; nothing that came is asked again."""
    script = {**FINDS, "rules": [{"on": "extract", "calls": "1-4", "do": {"reply": "valid"}}, {"on": "extract", "do": {"reply": "valid", "hold": True}}]}
    with program(tmp_path, ledger(12), script) as it, it.start("index", "--json") as child:
        wait_until(lambda: child.poll() is not None or paid(tmp_path) == 4)
        it.server.wait_for_open("extract")
        child.send_signal(signal.SIGINT)
        _, err = ended(child)
        sent = len(it.server.requests("extract"))
        assert child.returncode == 130
        assert b"Traceback" not in err
        assert it.status()["interrupted"]["stage"] == "extraction"
        it.server.set_script(FINDS)
        assert it.index().code == 0
        assert len(it.server.requests("extract")) == sent + 12 - 4


# --- away, busy, restarting


RESTART = [
    {"from_s": 0, "do": {"reply": "valid", "delay_s": 1}},
    {"from_s": 3, "to_s": 5, "meet": 1, "do": {"status": 429, "headers": {"Retry-After": "6"}, "body": {"error": {"message": "slow down", "code": 429}}}},
    {"from_s": 11, "to_s": 12, "do": {"drop": "mid-body", "after_bytes": 70}},
    {"from_s": 14, "to_s": 17, "do": {"status": 503, "body": "starting"}},
    {"from_s": 17, "to_s": 30, "do": {"refuse_connection": True}},
    {"from_s": 30, "to_s": 36, "health": 200, "do": {"status": 500, "body": {"error": {"message": "engine is dead", "code": 500}}}},
    {"from_s": 36, "do": {"reply": "valid", "delay_s": 1}},
]


def test_a_restart_in_the_middle_of_a_run(tmp_path):
    """Through push-back, a dropped body, a restart and a healthy page before a dead engine, every note arrives and the server is not hammered."""
    with program(tmp_path, ledger(60), {**FINDS, "timeline": RESTART}, clock_scale=20, engine__clock_scale=20, engine__concurrency=2) as it:
        done = it.index()
        assert done.code == 0
        assert len(it.names()) == 120
        assert "Waiting for the model server" in done.err
        log = [record for record in it.server.log if record.path == "/v1/chat/completions" and record.purpose != "probe"]
        first = log[0].arrived
        pushed = [record.arrived for record in log if record.status == 429]
        assert sum(pushed[0] < record.arrived < pushed[0] + 6 / 20 for record in log) <= 2  # what was on its way, in two places
        assert sum(14 <= (record.arrived - first) * 20 < 36 for record in log) <= 4


def test_a_server_that_is_busy_at_the_start_is_waited_for(tmp_path):
    """503, 429 and 500 before anything is known about a server are waited out, said on the screen, and not remembered as its nature."""
    moods, began, lock, answered = deque([503, 429, 500, 200]), {}, threading.Lock(), []  # four seconds each, from the first request that meets it

    def answer(method, path, headers, body):
        with lock:
            if time.monotonic() >= began.setdefault(moods[0], time.monotonic()) + 4 / 20 and len(moods) > 1:
                moods.popleft()
            began.setdefault(moods[0], time.monotonic())
            answered.append(status := moods[0])
        if status != 200:
            return status, {}, b'{"error": {"message": "loading"}}'
        if path == "/v1/models":
            return 200, {}, b'{"data": [{"id": "late", "max_model_len": 4096}]}'
        return (200, {}, completion('{"entities":[],"relationships":[]}')) if path.endswith("completions") else (404, {}, b"")

    with RawServer(answer) as server, program(tmp_path, TWO, engine__url=server.url, engine__clock_scale=20) as it:
        done = it.index()
    assert done.code == 0
    assert "Waiting for the model server" in done.err
    assert 3 <= sum(status != 200 for status in answered) <= 12


@pytest.mark.parametrize("command", [("index", "--json"), ("query", "Who?", "--json"), ("doctor",)])
def test_an_address_where_nobody_is(tmp_path, command):
    """A wrong address fails soon, with one sentence that names it and says what to do."""
    with program(tmp_path, TWO, PEOPLE) as it:
        assert it.index().code == 0
        gone = program(tmp_path / "other", TWO, engine__url="http://127.0.0.1:9/v1", engine__clock_scale=20)
        with gone as other:
            done = other.run(*command)
    assert done.code == 1
    assert "Traceback" not in done.said
    if command[0] != "query":  # without an index a question needs no server
        assert "127.0.0.1:9" in done.said
        assert "engine.url" in done.said


def test_a_server_that_stays_away_ends_the_run_and_the_next_asks_only_the_rest(tmp_path):
    """Past the patience the run stops with what it has; the next one sends only what is missing."""
    timeline = [{"from_s": 0, "to_s": 4.5, "meet": 6, "do": {"reply": "valid", "delay_s": 1}}, {"from_s": 4.5, "do": {"refuse_connection": True}}]
    with program(tmp_path, ledger(20), {**FINDS, "timeline": timeline}, clock_scale=20, engine__clock_scale=20, engine__patience_s=30, engine__concurrency=2) as it:
        done = it.index()
        assert done.code == 1
        assert "run the same command again" in done.said
        got = [record for record in it.server.requests("extract") if record.status == 200 and not record.cancelled]
        assert 4 <= len(got) < 20
        it.server.set_script(FINDS)
        assert it.index().code == 0
        assert len(it.names()) == 40
        assert max(Counter(r.prompt for r in it.server.requests("extract") if r.status == 200 and not r.cancelled).values()) <= 2


@pytest.mark.parametrize("status", [400, 404, 422, 403])
def test_a_refused_request_is_asked_once_and_listed(tmp_path, status):
    """A refusal of one chunk is not retried; the chunk is a failure without an address or a time in its reason, the rest is there."""
    rule = {"on": "extract", "when_prompt_has": "Grey Gull", "do": {"status": status, "body": {"error": {"message": "not this one"}}}}
    with program(tmp_path, TWO, {**PEOPLE, "rules": [rule]}) as it:
        done = it.index()
        assert done.code == 3
        assert Counter(record.status for record in it.server.requests("extract"))[status] == 1
        (failure,) = it.status()["failures"]
        assert "not this one" in failure["reason"]
        assert "127.0.0.1" not in failure["reason"]


def test_a_request_that_breaks_the_server_is_one_failed_chunk(tmp_path):
    """A chunk over which the server fails every time, also when it is the only one left, is listed; it does not stop the run."""
    rule = {"on": "extract", "when_prompt_has": "Grey Gull", "do": {"status": 500, "body": {"error": {"message": "list index out of range"}}}}
    with program(tmp_path, TWO, {**PEOPLE, "rules": [rule]}, engine__clock_scale=50) as it:
        done = it.index()
        assert done.code == 3
        assert len(it.server.requests("extract")) <= 8
        (failure,) = it.status()["failures"]
        assert failure["retryable"]
        assert "list index out of range" in failure["reason"]
        assert it.index().json["digest"] == done.json["digest"]


@pytest.mark.parametrize(
    ("do", "said"),
    [
        ({"status": 401, "body": {"error": {"message": "no key"}}}, "GRAPHRAG_LOCAL__ENGINE__API_KEY"),
        ({"status": 400, "body": {"error": {"message": "unknown model family"}}}, "unknown model family"),
        ({"status": 500, "body": {"error": {"message": "engine is dead"}}}, "engine is dead"),
    ],
)
def test_a_server_that_refuses_everything_ends_the_run_and_keeps_the_index(tmp_path, do, said):
    """Where no request succeeds the run fails and says why; the index that was there stays as it was."""
    with program(tmp_path, TWO, PEOPLE, engine__clock_scale=100) as it:
        before = it.index().json
        it.put({f"n{n}.txt": f"Dora Eck met Finn Gast{n * 'o'} at the Old Pier." for n in range(12)})
        it.server.set_script({**PEOPLE, "rules": [{"on": "extract", "do": do}]})
        done = it.index()
        assert done.code == 1
        assert said in done.said
        assert it.status()["generation"] == before["generation"]


# --- replies of other servers


ODD = {
    "thoughts": {"before": "<think>\nWho is it? {maybe} [1]\n</think>\n\n"},
    "thoughts without a beginning": {"before": "So it is about a mill.\n</think>\n"},
    "thoughts beside": {"reasoning_content": "It is about a mill."},
    "a fence": {"before": "```json\n", "after": "\n```"},
    "chatter": {"before": "Here you are:\n", "after": "\nAnything else?"},
    "no finish reason": {"finish_reason": None},
    "an odd finish reason": {"finish_reason": "eos_found"},
    "a tool's finish reason": {"finish_reason": "tool_calls"},
}


@pytest.mark.parametrize("what", ODD)
def test_a_good_reply_in_odd_clothes_is_a_good_reply(tmp_path, what):
    """Thoughts, fences, chatter and finish reasons of other makers cost no record and no second request."""
    with program(tmp_path, TWO, every(**ODD[what])) as it:
        assert it.index().code == 0
        assert it.names() == {"Anna Berg", "Hill Mill", "Bo Carls", "Cleo Dahm", "Grey Gull"}
        assert len(it.server.requests("extract")) == 2
        answer = it.query("Who owns the Grey Gull?")
        assert answer["answered"]
        assert "think" not in answer["answer"]


BROKEN = {
    "an error with status 200": {"body": {"error": {"message": "overloaded", "code": 500}}},
    "no choices": {"body": {"choices": []}},
    "another page": {"body": "<html>Please log in</html>"},
    "an empty body": {"body": ""},
    "half a body": {"reply": "valid", "drop": "mid-body", "after_bytes": 60},
    "no body": {"drop": "before-headers"},
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_reply_is_asked_again(tmp_path, what):
    """Bodies that are no completion are faults of the server: asked again, never read, never kept."""
    with program(tmp_path, TWO, {**PEOPLE, "rules": [{"on": "extract", "calls": "1", "do": BROKEN[what]}]}, engine__clock_scale=50) as it:
        assert it.index().code == 0
        assert len(it.names()) == 5
        assert len(it.server.requests("extract")) == 3


NOTHING = [{"content": ""}, {"content": None}, {}, {"content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]


@pytest.mark.parametrize("message", NOTHING)
def test_a_reply_without_an_answer_is_a_failure_with_its_reason(tmp_path, message):
    """Empty, null and tool-call replies are asked again differently, then listed; the question about the same index says so too."""
    with program(tmp_path, TWO, {**PEOPLE, "rules": [{"on": list(WORK), "do": {"message": message}}]}) as it:
        assert it.index().code == 3
        assert {f["input"].split(",")[0] for f in it.status()["failures"]} == {"a.txt", "b.txt"}
        asked = it.run("query", "Who owns the Grey Gull?", "--json")
        assert asked.code == 1
        assert "no usable" in asked.said


def test_servers_that_tell_less_are_enough(tmp_path):
    """No usage, no log-probabilities, no window, no version, an unknown field and a content in parts: all is indexed and answered."""

    def answer(method, path, headers, body):
        if path == "/v1/models":
            return 200, {}, b'{"data": [{"id": "bare"}, {"id": "second"}], "extra": 1}'
        if not path.endswith("/chat/completions"):
            return 404, {}, b"nothing here"
        parts = [{"type": "text", "text": '{"entities":[],'}, {"type": "text", "text": '"relationships":[]}'}]
        return 200, {}, json.dumps({"choices": [{"message": {"role": "assistant", "content": parts}}], "strange": {}}).encode()

    with RawServer(answer) as server, program(tmp_path, TWO, engine__url=server.url) as it:
        done = it.index()
        assert done.code == 0
        assert it.status()["models"]["name"] == "bare"
        assert "engine.context_tokens" in done.err
        assert len(it.records(Chunk)) == 2


# --- the window


LONG = {
    "rules_zh.txt": "".join(f"第{n}条规定,守门人何静每天{n % 12 + 1}点关上水门,罚款{n}元。" for n in range(1, 60)),
    "rules_en.txt": " ".join(f"Rule {n}: Tove Lund shuts the water gate at {n % 12 + 1} o'clock and fines late boats {n} crowns." for n in range(1, 60)),
}
COUNTS = {
    "count": {"han_char": 1, "other_chars_per_token": 3, "per_message": 8},
    "over_window": {"status": 400, "body": {"error": {"message": "This model's maximum context length is {window} tokens, you asked for {total}."}}},
    "fixture_pattern": {"entities": ["何静|Tove Lund"], "types": ["person"], "relate": "none"},
}


@pytest.mark.parametrize("tokenize", [True, False])
def test_a_server_that_counts_otherwise_is_never_overrun_in_vain(tmp_path, tokenize):
    """By the server's own count every accepted request fits its window; a refusal is followed by smaller ones, and all text is read."""
    script = {**COUNTS, "window_tokens": 2048, "tokenize": tokenize}
    with program(tmp_path, LONG, script) as it:
        assert it.index().code == 0
        log = [record for record in it.server.log if record.purpose in WORK]
        assert all(record.prompt_tokens + record.max_tokens <= 2048 for record in log if record.status == 200)
        assert max(Counter(r.prompt for r in log if r.status == 400).values(), default=0) <= 1
        assert sum(record.status == 400 for record in log) <= len(log) / 4
        read = " ".join(record.prompt for record in it.server.requests("extract") if record.status == 200)
        for n in range(1, 60):
            assert f"第{n}条" in read
            assert re.search(rf"Rule {n}:", read)
        assert it.run("query", "Who shuts the gate?", "--json").code == 0


def test_a_window_that_is_too_small_is_said_before_the_run(tmp_path):
    """A window in which not even one sentence and its reply fit gives a clear error with the sizes, and asks nothing."""
    with program(tmp_path, TWO, {**PEOPLE, "window_tokens": 256, "tokenize": True}) as it:
        done = it.index()
        assert done.code == 1
        assert "window of 256 tokens is too small" in done.said
        assert re.search(r"the prompt takes \d+", done.said)
        assert it.server.requests("extract") == []


def test_a_window_larger_than_the_servers_is_pointed_out(tmp_path):
    """`doctor` says that engine.context_tokens is more than the server takes, and that the smaller number counts."""
    with program(tmp_path, TWO, {**PEOPLE, "window_tokens": 4096}, engine__context_tokens=50000) as it:
        assert "50000" in it.run("doctor").said
        assert it.index().json["counts"]["failures"] == 0
        assert it.status()["models"]["context"] == 4096
        assert it.records(Report)
