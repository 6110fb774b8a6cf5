"""The engine in this process, on tiny models of random numbers: what it writes is what Transformers writes, whoever else is in the batch."""

import asyncio
import json
import math
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from graphrag_local.engine.base import TEXT_TERMINAL, Choice, Engine, FreeText, Gate, Grammar, JsonSchema, schema_of
from graphrag_local.engine.embedded import EmbeddedEngine, dtype_of
from graphrag_local.engine.models import entry_of, model_card
from graphrag_local.errors import ContextOverflow, EngineRefused, EngineUnreachable, UsageError
from graphrag_local.settings import EngineSettings
from tests.engine.tinymodel import make_chat_model
from tests.engine.tools import all_of, ask_for, run, said_by

YN = Choice(options=("Y", "N"))
PERSON = schema_of(
    {
        "type": "object",
        "properties": {"name": {"enum": ["Ada", "Bo"]}, "kinds": {"type": "array", "items": {"enum": ["person", "place"]}, "maxItems": 3}},
        "required": ["name", "kinds"],
        "additionalProperties": False,
    }
)
LINES = Grammar(lark='start: "N" | "Y\\n" ("E\\t" ID "\\n")+\nID: "R1" | "R2"')
LONG = " ".join(f"On day {day} the keeper counted {day * 7 % 13} ships." for day in range(20))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_chat_model(tmp_path_factory.mktemp("models") / "tiny-chat")


@pytest.fixture(scope="module")
def sliding_folder(tmp_path_factory):
    return make_chat_model(tmp_path_factory.mktemp("models") / "tiny-sliding", window=24)


def engine_of(folder, **rest):
    settings = EngineSettings(dtype="float32", **rest)
    return EmbeddedEngine(folder, settings, model_card(entry_of(folder), settings))


def written_by_transformers(folder, text, tokens):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    words = AutoTokenizer.from_pretrained(folder)
    prompt = words.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True, return_tensors="pt", return_dict=True)
    written = model.generate(**prompt, max_new_tokens=tokens, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    return words.decode(written, skip_special_tokens=True)


def first_probabilities(folder, text):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    words = AutoTokenizer.from_pretrained(folder)
    prompt = words.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True, return_tensors="pt", return_dict=True)
    return torch.softmax(model(**prompt).logits[0, -1].double(), -1).tolist()


# --- what is written


def test_it_is_an_engine(folder):
    """The class keeps the protocol, and its card tells what the files say."""
    engine = engine_of(folder)

    assert isinstance(engine, Engine)
    assert (engine.card.name, engine.card.form, engine.card.context_tokens, engine.card.tiny) == ("tiny-chat", "grammar", 2048, True)


@pytest.mark.parametrize("kind", ["full", "sliding"])
@pytest.mark.parametrize("text", ["Hi.", LONG], ids=["short", "long"])
def test_it_writes_what_transformers_writes(folder, sliding_folder, kind, text):
    """Packed passes with one memory per row give the same greedy text as generate(), also where attention sees a sliding window only."""
    where = folder if kind == "full" else sliding_folder

    reply = said_by(engine_of(where), ask_for(text, max_tokens=40))

    assert reply.text == written_by_transformers(where, text, 40)


def test_company_does_not_change_a_reply(folder):
    """Every request of a full batch, with others waiting, gets the reply that it gets alone."""
    constraints = [FreeText(), YN, PERSON, LINES, FreeText(), PERSON]
    requests = [ask_for(f"{LONG[: 90 * n]} Question {n}?", constraint, max_tokens=30 + n) for n, constraint in enumerate(constraints)]

    together = run(engine_of(folder, batch=4), lambda engine: all_of(engine, requests))
    alone = said_by(engine_of(folder), *requests)

    assert [reply.text for reply in together] == [reply.text for reply in alone]


def test_every_row_has_its_own_constraint(folder):
    """Rows of one batch obey a choice, a schema and a grammar, each its own; JSON is compact."""
    requests = [ask_for("a", YN), ask_for("b", PERSON), ask_for("c", LINES, max_tokens=60), ask_for("d", Choice(options=("yes", "no (c)*")))]

    choice, person, lines, odd = run(engine_of(folder), lambda engine: all_of(engine, requests))

    assert choice.text in ("Y", "N")
    assert json.dumps(json.loads(person.text), separators=(",", ":")) == person.text
    assert lines.text == "N" or lines.text.startswith("Y\nE\tR")
    assert odd.text in ("yes", "no (c)*")
    assert [reply.finish_reason for reply in (choice, person, odd)] == ["stop"] * 3


def test_a_reply_that_reaches_its_limit_is_cut_off(folder):
    """The limit is kept to the token, with and without a grammar whose tokens are forced."""
    free = Grammar(lark=f'start: "E\\tname\\t" TEXT "\\n"\n{TEXT_TERMINAL}')

    replies = said_by(engine_of(folder), ask_for("a", max_tokens=5), ask_for("a", free, max_tokens=9), ask_for("a", PERSON, max_tokens=3))

    assert [(reply.finish_reason, reply.usage.completion_tokens) for reply in replies] == [("length", 5), ("length", 9), ("length", 3)]


def test_usage_counts_tokens(folder):
    """Prompt and reply are counted with the model's own tokenizer."""
    reply = said_by(engine_of(folder), ask_for("a", max_tokens=5))

    assert (reply.usage.calls, reply.usage.completion_tokens) == (1, 5)
    assert reply.usage.prompt_tokens > 5
    assert reply.usage.seconds > 0


def test_a_shared_beginning_is_read_once(folder):
    """A prompt that begins like an earlier one takes its first tokens from there, and its reply is the same as without."""
    first, second = ask_for(f"{LONG} One?", max_tokens=20), ask_for(f"{LONG} Two?", max_tokens=20)

    _, shared = said_by(engine_of(folder), first, second)
    fresh = said_by(engine_of(folder), second)

    assert shared.usage.cached_tokens >= 128
    assert fresh.usage.cached_tokens == 0
    assert shared.text == fresh.text


# --- sampling, probabilities, the gate


def test_sampling_follows_the_seed(folder):
    """The same seed gives the same text, whatever else is in the batch; another seed another."""
    requests = [ask_for("a", max_tokens=12, temperature=1.0, seed=seed) for seed in (1, 1, 2)]

    one, same, other = run(engine_of(folder), lambda engine: all_of(engine, requests))

    assert one.text == same.text
    assert one.text != other.text


def test_log_probabilities_come_when_asked(folder):
    """One (token, log-probability) pair per token of the reply, from before the constraint; none otherwise."""
    asked, plain = said_by(engine_of(folder), ask_for("a", PERSON, logprobs=True), ask_for("a", PERSON))

    assert "".join(token for token, _ in asked.logprobs) == asked.text == plain.text
    assert all(value <= 0 for _, value in asked.logprobs)
    assert len(asked.logprobs) == asked.usage.completion_tokens
    assert plain.logprobs == ()


def test_probabilities_are_those_of_the_model(folder):
    """The log-probability of the first token is the model's own."""
    reply = said_by(engine_of(folder), ask_for("a", max_tokens=1, logprobs=True))

    assert math.isclose(reply.logprobs[0][1], math.log(max(first_probabilities(folder, "a"))), abs_tol=1e-4)


@pytest.mark.parametrize("constraint", [YN, LINES], ids=["choice", "grammar"])
def test_the_gate_is_the_share_of_the_first_option(folder, constraint):
    """The gate is P(Y) / (P(Y) + P(N)) for the first token by the model's own probabilities, before the constraint."""
    reply = said_by(engine_of(folder), ask_for("a", constraint, gate=Gate(), max_tokens=60))
    probabilities = first_probabilities(folder, "a")
    words = AutoTokenizer.from_pretrained(folder)
    yes, no = (sum(p for token, p in enumerate(probabilities) if words.decode([token]).strip(" \"':,{}") == option) for option in "YN")

    assert math.isclose(reply.gate, yes / (yes + no), rel_tol=1e-3)


def test_under_the_threshold_a_row_is_left(folder):
    """A row whose gate is too low ends after that token; one whose gate is high enough is written on."""
    yes = Grammar(lark='start: "Y" "\\n" ("E\\t" "R1" "\\n"){3}')
    requests = [ask_for("a", yes, gate=Gate(threshold=threshold)) for threshold in (1.01, 0.0)]

    left, read = run(engine_of(folder), lambda engine: all_of(engine, requests))

    assert (left.text, left.finish_reason, left.usage.completion_tokens) == ("Y", "gate", 1)
    assert (read.text, read.finish_reason) == ("Y\n" + "E\tR1\n" * 3, "stop")


def test_a_gate_with_worths_is_their_expectation(folder):
    """A grade is the mean of the grades weighed by the model's own probabilities."""
    shares = [said_by(engine_of(folder), ask_for("a", Choice(options=("Y", "N")), gate=Gate(options=pair))).gate for pair in (("Y", "N"), ("N", "Y"))]
    graded = said_by(engine_of(folder), ask_for("a", Choice(options=("Y", "N")), gate=Gate(worths=(1.0, 5.0)))).gate

    assert math.isclose(graded, shares[0] + 5 * shares[1], rel_tol=1e-6)


def test_in_json_the_gate_comes_after_the_first_key(folder):
    """With a schema the option is the value of the first key, even where the key itself is an option."""
    schema = JsonSchema(text='{"type":"object","properties":{"Y":{"enum":["Y","N"]}},"required":["Y"],"additionalProperties":false}')

    reply = said_by(engine_of(folder), ask_for("a", schema, gate=Gate(threshold=0.0)))

    assert reply.text in ('{"Y":"Y"}', '{"Y":"N"}')
    assert 0 < reply.gate < 1
    assert not math.isclose(reply.gate, said_by(engine_of(folder), ask_for("a", YN, gate=Gate())).gate)  # not that of the first token


def test_a_reply_without_the_option_has_no_gate(folder):
    """Where no option comes there is no probability, and nothing is abandoned."""
    reply = said_by(engine_of(folder), ask_for("a", Choice(options=("1 2 3",)), gate=Gate(threshold=1.01)))

    assert (reply.text, reply.finish_reason, reply.gate) == ("1 2 3", "stop", None)


# --- what cannot be


def test_a_prompt_that_does_not_fit_is_refused_with_its_sizes(folder):
    """Prompt and room for the reply are counted exactly, before anything is computed."""
    engine = engine_of(folder, context_tokens=100)
    tokens = said_by(engine_of(folder), ask_for("a", max_tokens=1)).usage.prompt_tokens

    with pytest.raises(ContextOverflow) as caught:
        said_by(engine, ask_for("a", max_tokens=101 - tokens))

    assert (caught.value.window, caught.value.prompt_tokens) == (100, tokens)


def test_a_wrong_constraint_hurts_nobody_else(folder):
    """A grammar that is none is refused with its mistake; the request beside it is answered."""
    requests = [ask_for("a", Grammar(lark="start: nothing")), ask_for("a", YN)]

    refused, answered = run(engine_of(folder), lambda engine: all_of(engine, requests))

    assert isinstance(refused, EngineRefused)
    assert "nothing" in str(refused)
    assert answered.text in ("Y", "N")


def test_a_folder_that_needs_code_is_refused(folder, tmp_path):
    """A model with code of its own is not half loaded: the reason comes before anything else."""
    config = json.loads((folder / "config.json").read_text()) | {"auto_map": {"AutoModelForCausalLM": "model.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))

    with pytest.raises(UsageError, match="auto_map"):
        engine_of(tmp_path)


def test_a_model_without_chat_template_is_refused(folder, tmp_path):
    """A base model cannot be asked; the reply says what to take instead."""
    for file in folder.iterdir():
        if file.name != "chat_template.jinja":
            (tmp_path / file.name).symlink_to(file)

    with pytest.raises(EngineRefused, match="chat template"):
        said_by(engine_of(tmp_path), ask_for("a"))


# --- the queue


async def begun(engine):
    """Wait until the model has begun to write its first reply."""
    while not engine._jobs or not engine._jobs[0].row.done:
        await asyncio.sleep(0.001)


def test_questions_go_before_indexing(folder):
    """Of the requests that wait, the one with the lowest priority number comes next."""
    ended = []

    async def ask(engine, name, priority):
        await engine.generate(ask_for(name, max_tokens=30, priority=priority))
        ended.append(name)

    async def work(engine):
        first = asyncio.create_task(ask(engine, "running", 10))
        await begun(engine)
        await asyncio.gather(first, *(ask(engine, name, priority) for name, priority in (("index", 10), ("question", 0))))

    run(engine_of(folder, batch=1), work)

    assert ended == ["running", "question", "index"]


def test_an_abandoned_request_leaves_the_batch(folder):
    """Cancelling a request frees its row at the next pass; others go on."""

    async def work(engine):
        endless = asyncio.create_task(engine.generate(ask_for("a", Grammar(lark="start: /[ab]{1800}/"), max_tokens=1800)))
        await begun(engine)
        endless.cancel()
        reply = await engine.generate(ask_for("b", YN))
        async with asyncio.timeout(60):
            while engine._jobs:
                await asyncio.sleep(0.001)
        return reply, endless.cancelled(), engine._jobs

    reply, cancelled, jobs = run(engine_of(folder, batch=1), work)

    assert reply.text in ("Y", "N")
    assert cancelled
    assert jobs == []


def test_closing_stops_at_once(folder):
    """Close cancels what waits, and what is asked afterwards is told so."""

    async def main():
        engine = engine_of(folder)
        endless = asyncio.create_task(engine.generate(ask_for("a", Grammar(lark="start: /[ab]{1800}/"), max_tokens=1800)))
        await begun(engine)
        await engine.close()
        await asyncio.gather(endless, return_exceptions=True)
        assert endless.cancelled()
        with pytest.raises(EngineUnreachable):
            await engine.generate(ask_for("b"))

    asyncio.run(main())


def test_the_number_format_follows_the_setting():
    """A set format is taken; `auto` is one of the two."""
    assert dtype_of("float32") == torch.float32
    assert dtype_of("bfloat16") == torch.bfloat16
    assert dtype_of("auto") in (torch.float32, torch.bfloat16)


OFFLINE_PROGRAM = """
import asyncio, sys
from pathlib import Path
found = []
def note(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        found.append((event, str(arguments)))
sys.addaudithook(note)
from graphrag_local.engine.base import FreeText, Request
from graphrag_local.engine.embedded import EmbeddedEngine
from graphrag_local.engine.models import entry_of, model_card
from graphrag_local.prompting import Message
from graphrag_local.settings import EngineSettings
folder = Path(sys.argv[1])
settings = EngineSettings()
async def main():
    engine = EmbeddedEngine(folder, settings, model_card(entry_of(folder), settings))
    await engine.generate(Request(messages=(Message(role="user", content="Hi"),), constraint=FreeText(), max_tokens=3, purpose="probe"))
    await engine.close()
asyncio.run(main())
print(found)
"""


def test_no_connection_is_tried(folder, tmp_path, monkeypatch):
    """Loading and running a model looks up no host and opens no connection, also with empty caches and no offline switch in the environment."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))

    done = subprocess.run([sys.executable, "-c", OFFLINE_PROGRAM, str(folder)], capture_output=True, text=True, check=False)

    assert done.stdout.strip() == "[]", done.stderr[-2000:]
