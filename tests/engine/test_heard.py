"""Replies heard while they are written, from every engine that can; and the model of entailment."""

import asyncio
from itertools import pairwise

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from graphrag_local.engine.base import Choice, Entailment, FreeText, Gate
from graphrag_local.engine.ledgered import Ledgered
from graphrag_local.engine.models import entry_of
from graphrag_local.engine.nli import LocalEntailment
from graphrag_local.engine.scripted import ScriptedEngine
from graphrag_local.errors import EngineUnreachable, UsageError
from tests.engine.test_embedded import engine_of
from tests.engine.tinymodel import make_chat_model, tokenizer
from tests.engine.tools import ask_for, engine_for, run, said_by
from tests.modelserver import ModelServer

SAID = "The keeper lit the lamp 守灯人 and counted nineteen ships before the morning came."


def grows(heard, text):
    """Whether what was heard is longer and longer beginnings of a text, and at last all of it."""
    return heard[-1] == text and all(longer.startswith(shorter) for shorter, longer in pairwise(heard)) and len(set(heard)) > 3


def test_a_server_is_heard_as_it_streams():
    """The text so far after each event, to its end; the reply is the one that comes without listening, with the same usage, and no log-probabilities."""
    heard = []
    with ModelServer({"rules": [{"on": "extract", "do": {"text": SAID}}]}) as server:
        told, silent = said_by(engine_for(server.url), ask_for(heard=heard.append), ask_for())
        asked = [request.body for request in server.requests("extract")]

    assert grows(heard, SAID)
    assert (told.text, told.finish_reason, told.usage.completion_tokens) == (silent.text, silent.finish_reason, silent.usage.completion_tokens)
    assert (asked[0]["stream"], "logprobs" in asked[0], "stream" in asked[1]) == (True, False, False)


def test_thoughts_are_not_heard():
    """What a model thinks before it answers is not part of its text."""
    heard = []
    with ModelServer({"rules": [{"on": "extract", "do": {"text": f"<think>Let me see. It is late.</think>\n{SAID}"}}]}) as server:
        said_by(engine_for(server.url), ask_for(heard=heard.append))

    assert grows([text for text in heard if not "<think>".startswith(text)], SAID)


def test_a_stream_that_breaks_off_is_heard_again_from_its_beginning():
    """A connection that breaks in the middle is an error that can be asked again, and the text so far then begins anew."""
    heard = []
    broken = {"on": "extract", "calls": "1", "do": {"text": SAID, "drop": "mid-body", "after_bytes": 1500}}

    async def twice(engine):
        with pytest.raises(EngineUnreachable):
            await engine.generate(ask_for(heard=heard.append))
        return len(heard), await engine.generate(ask_for(heard=heard.append))

    with ModelServer({"rules": [broken, {"on": "extract", "do": {"text": SAID}}]}) as server:
        first, reply = run(engine_for(server.url), twice)

    assert reply.text == SAID
    assert 0 < len(heard[first - 1]) < len(SAID)
    assert grows(heard[first:], SAID)


def test_the_model_in_this_process_is_heard(tmp_path):
    """After each pass the text so far, never with half a character; a gate and a listener can be together."""
    folder, heard, gated = make_chat_model(tmp_path / "tiny"), [], []
    free = ask_for(constraint=FreeText(), max_tokens=24, heard=heard.append)
    told, silent, choice = said_by(
        engine_of(folder), free, ask_for(constraint=FreeText(), max_tokens=24), ask_for(constraint=Choice(options=("Y", "N")), gate=Gate(), heard=gated.append)
    )

    assert told.text == silent.text
    assert all(told.text.startswith(text) and not text.endswith("\ufffd") for text in heard)
    assert len(set(heard)) > 3
    assert gated[-1] == choice.text


def test_a_listener_is_no_part_of_the_request():
    """Who listens does not change the key of a request, and who asks the same meanwhile gets the reply whole."""
    engine, heard = Ledgered(ScriptedEngine(lambda request: SAID, latency_s=0.02), None), []
    first, second = ask_for(heard=heard.append), ask_for()

    async def both():
        return await asyncio.gather(engine.generate(first), engine.generate(second))

    replies = asyncio.run(both())
    assert engine.key(first) == engine.key(second)
    assert [reply.text for reply in replies] == [SAID, SAID]
    assert len(engine.inner.history) == 1
    assert grows(heard, SAID)


def make_entailment_model(folder, labels=("CONTRADICTION", "NEUTRAL", "ENTAILMENT")):
    """A cross-encoder of random numbers with these labels."""
    words = tokenizer()
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=96,
        id2label=dict(enumerate(labels)), label2id={label: number for number, label in enumerate(labels)}, pad_token_id=words.pad_token_id,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def test_a_folder_of_an_entailment_model_is_one(tmp_path):
    """It is known by its labels, gives two probabilities a pair, alike alone and in a batch, and long premises are cut."""
    folder = make_entailment_model(tmp_path / "nli")
    pairs = [("the keeper lit the lamp", "the lamp"), ("ships", "1 2 3"), ("the keeper " * 60, "the lamp")]
    engine = LocalEntailment(folder)

    async def work():
        alone = [(await engine.entails([pair]))[0] for pair in pairs]
        together = await engine.entails(pairs)
        await engine.close()
        return alone, together

    alone, together = asyncio.run(work())
    assert entry_of(folder).kind == "nli"
    assert entry_of(make_chat_model(tmp_path / "chat")).kind == "chat"
    assert isinstance(engine, Entailment)
    assert all(0 < follows < 1 and 0 < against < 1 and follows + against < 1 for follows, against in together)
    assert [pytest.approx(pair, abs=1e-4) for pair in alone] == together


def test_a_hypothesis_that_is_not_read_whole_does_not_follow(tmp_path):
    """A sentence as long as the model's window, or longer, follows from nothing and breaks nothing; those beside it are judged as ever."""
    engine = LocalEntailment(make_entailment_model(tmp_path / "nli"))
    pairs = [("the lamp", "the keeper " * 200), ("the keeper lit the lamp", "the lamp"), ("", "the keeper " * 45)]

    async def work():
        judged = await engine.entails(pairs)
        alone = await engine.entails(pairs[1:2])
        nothing = await engine.entails([])
        await engine.close()
        return judged, alone, nothing

    judged, alone, nothing = asyncio.run(work())
    assert judged[0] == (0.0, 0.0)
    assert judged[1] == pytest.approx(alone[0], abs=1e-4)
    assert nothing == []


def test_a_model_without_entailment_is_refused(tmp_path):
    """A classifier of something else says so when it is first used."""
    engine = LocalEntailment(make_entailment_model(tmp_path / "moods", ("bad", "good")))

    async def work():
        try:
            await engine.entails([("a", "b")])
        finally:
            await engine.close()

    with pytest.raises(UsageError, match="no label for entailment"):
        asyncio.run(work())
