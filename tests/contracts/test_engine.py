"""What every engine promises, whatever model is behind it. The implementations are listed in engines.py."""

import asyncio
import json

import pytest

from graphrag_local.engine.base import Choice, Engine, FreeText, Gate, Grammar, Request, read_json, schema_of
from graphrag_local.errors import ContextOverflow, ReplyInvalid
from graphrag_local.prompting import Message
from tests.contracts.engines import ENGINES, WORD

SCHEMA = {
    "type": "object",
    "properties": {"useful": {"enum": ["Y", "N"]}, "title": {"type": "string", "minLength": 1}},
    "required": ["useful", "title"],
    "additionalProperties": False,
}
TEXT = "The keeper of the old mill wrote nineteen letters to his sister in the harbour town, 守灯人 and Ökonom among the words."


def asking(text=TEXT, constraint=None, **rest):
    values = {"max_tokens": 120, "purpose": "extract"} | rest
    return Request(messages=(Message(role="user", content=text),), constraint=constraint or FreeText(), **values)


@pytest.fixture(params=list(ENGINES))
def using(request):
    """Runs some work with the engine, in one event loop, and closes the engine."""

    def use(work):
        with ENGINES[request.param]() as engine:

            async def main():
                try:
                    return await work(engine)
                finally:
                    await engine.close()

            return asyncio.run(main())

    return use


def ask(*requests):
    async def work(engine):
        replies = [await engine.generate(request) for request in requests]
        return replies if len(replies) > 1 else replies[0]

    return work


def test_it_is_an_engine_with_a_card(using):
    """The card names the model and its form, and stays the same."""

    async def work(engine):
        before = engine.card
        await engine.generate(asking())
        return isinstance(engine, Engine), before, engine.card

    is_engine, before, after = using(work)
    assert is_engine
    assert before == after
    assert before.name
    assert before.form in ("grammar", "schema")
    assert before.context_tokens > 0


def test_a_reply_has_a_text_an_end_and_a_cost(using):
    """A free reply is text with its finish reason and what it cost in one call."""
    reply = using(ask(asking()))
    assert reply.text
    assert reply.finish_reason == "stop"
    assert reply.usage.calls == 1
    assert reply.usage.prompt_tokens > 0
    assert reply.usage.completion_tokens > 0
    assert (reply.gate, reply.logprobs, reply.replayed) == (None, (), False)


def test_a_choice_is_one_of_its_options(using):
    """The text of a choice is an option as it was given, without quotes."""
    options = ("supported", "partly", "unsupported")
    assert using(ask(asking(constraint=Choice(options=options)))).text in options


def test_a_schema_gives_json_that_fits(using):
    """A reply to a schema is one JSON object with the properties of the schema, in their order."""
    value = json.loads(using(ask(asking(constraint=schema_of(SCHEMA)))).text)
    assert list(value) == ["useful", "title"]
    assert value["useful"] in ("Y", "N")


def test_a_grammar_is_obeyed_where_the_card_says_so(using):
    """An engine of the grammar form obeys a grammar; one of the schema form calls it a mistake."""

    async def work(engine):
        request = asking(constraint=Grammar(lark=f'start: "{WORD}"\n'))
        if engine.card.form == "grammar":
            return (await engine.generate(request)).text
        with pytest.raises(TypeError):
            await engine.generate(request)
        return WORD

    assert using(work) == WORD


def test_equal_requests_have_equal_replies(using):
    """At temperature 0 the same request gives the same text."""
    one, two = using(ask(asking(), asking(priority=0, affinity="x")))
    assert one.text == two.text


def test_a_reply_is_cut_at_its_limit(using):
    """A reply that needs more room ends with `length`; an engine that judges raises it as cut off."""
    outcome = "cut_off"
    try:
        reply = using(ask(asking(max_tokens=3)))
    except ReplyInvalid as error:
        reply, outcome = error.reply, error.outcome
    assert (reply.finish_reason, outcome) == ("length", "cut_off")
    assert len(reply.text) < len(TEXT)


@pytest.mark.parametrize("threshold", [0.0, 1.5])
def test_a_gate_is_a_probability_and_its_threshold_is_kept(using, threshold):
    """A threshold of 0 never ends a reply, one over 1 always does where the probability is known."""
    reply = using(ask(asking(constraint=schema_of(SCHEMA), gate=Gate(threshold=threshold))))
    assert reply.gate is None or 0 <= reply.gate <= 1
    if threshold and reply.gate is not None:
        assert reply.finish_reason == "gate"
    else:
        assert reply.finish_reason == "stop"
        assert read_json(reply.text)["title"]


def test_log_probabilities_are_pairs(using):
    """Where they are asked for and the model has them, each token comes with a log-probability."""

    async def work(engine):
        return engine.card.logprobs, await engine.generate(asking(logprobs=True))

    has, reply = using(work)
    assert bool(reply.logprobs) == has
    assert all(isinstance(token, str) and logprob <= 0 for token, logprob in reply.logprobs)


def test_what_is_too_long_is_an_overflow(using):
    """A prompt over the window raises ContextOverflow with the window, however the engine found out."""

    async def work(engine):
        with pytest.raises(ContextOverflow) as caught:
            await engine.generate(asking("mill " * 8000))
        return engine.card.context_tokens, caught.value.window

    window, told = using(work)
    assert told == window


def test_many_at_once_get_their_own_replies(using):
    """Requests in flight together do not mix, and the replies are those they get alone."""
    requests = [asking(f"Number {n} of twenty notes about a mill.") for n in range(20)]

    async def together(engine):
        return await asyncio.gather(*(engine.generate(request) for request in requests))

    assert [reply.text for reply in using(together)] == [reply.text for reply in using(ask(*requests))]


def test_a_cancelled_request_disturbs_nobody(using):
    """After a request was cancelled the engine goes on answering, the same request too."""

    async def work(engine):
        task = asyncio.create_task(engine.generate(asking()))
        other = asyncio.create_task(engine.generate(asking("Something else.")))
        await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return await other, await engine.generate(asking())

    other, again = using(work)
    assert other.text
    assert again.text


def test_closing_twice_is_allowed(using):
    """An engine can be closed more than once."""

    async def work(engine):
        reply = await engine.generate(asking())
        await engine.close()
        return reply

    assert using(work).text
