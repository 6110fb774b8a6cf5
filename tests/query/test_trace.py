"""Traces: they hold every request, give the same answer again without a model, and refuse what they do not hold."""

import asyncio
import json
from dataclasses import asdict, replace

import pytest

from graphrag_local.engine.base import Model
from graphrag_local.engine.ledgered import Ledgered
from graphrag_local.engine.scripted import CARD, ScriptedEngine
from graphrag_local.errors import UsageError
from graphrag_local.prompting import load_all
from graphrag_local.query.ask import ask
from graphrag_local.query.trace import Replay, Trace, key_of
from graphrag_local.settings import QuerySettings
from tests.fakes import Characters
from tests.query.asking import Judge
from tests.query.test_local import QUESTION, village
from tests.query.world import MemoryIndex, Reader, WordEmbedder, graph_index

PROMPTS = load_all()
FACTS = {f"N{n}": f"N{n} keeps the lighthouse of harbour {n} and writes to the next one every week." for n in range(9)}
SETTINGS = QuerySettings(window_tokens=300, local_tokens=600, map_reply_tokens=600, reply_tokens=600, gate=0.5, always_read=1, top_chunks=3)


def harbours():
    """Nine keepers in three communities with reports."""
    names = list(FACTS)
    return graph_index(FACTS, [names[at : at + 3] for at in (0, 3, 6)], [("N0", "N1")], range(3))


class Torn:
    """A reader whose first answer is cut off in its second paragraph, and which finds most windows poor."""

    def __init__(self):
        self.reader = Reader(gate=lambda request: 0.9 if "harbour 1 " in request.messages[-1].content else 0.1)

    def __call__(self, request):
        if request.purpose == "support":
            return Judge({"N1": ("P", 0.4)})(request)
        reply = self.reader(request)
        return replace(reply, text=f"{reply.text}Broken", finish_reason="length") if request.gate is None else reply


class Judges:
    """A reranker that likes what comes last, and an entailment model that is fairly sure."""

    async def score(self, question, texts):
        return [float(place) / 3 for place in range(len(texts))]

    async def entails(self, pairs):
        return [(0.1 * (1 + len(pair[0]) % 9), 0.05) for pair in pairs]

    async def close(self):
        return None


def told(question, index, mode, answer, judges=None):
    """The answer with its trace as it comes from a file, and what the model was asked."""
    engine, trace = ScriptedEngine(answer, CARD), Trace()
    model = Model(generate=Ledgered(engine, None).generate, card=engine.card, counter=Characters())
    made = asyncio.run(ask(
        question, index, trace.model(model), trace.embedder(WordEmbedder()), trace.prompts(PROMPTS), SETTINGS,
        mode=mode, level=None, turn=1, entailment=trace.entailment(judges), reranker=trace.reranker(judges), trace=trace,
    ))  # fmt: skip
    trace.about |= {"question": question, "mode": mode, "history": [], "note": "", "answer": asdict(made), "generation": index.generation}
    return made, json.loads(json.dumps(trace.content())), engine.history


def replayed(content, index, question=None):
    """The answer from a trace, over a fresh copy of the index."""
    replay = Replay(content)
    fresh = MemoryIndex(rows=index.rows, vectors=index.vectors)
    return replay.checked(asyncio.run(ask(
        question or content["question"], fresh, replay.model(Characters()), replay.embedder(), PROMPTS, SETTINGS,
        mode=content["mode"], level=None, turn=1, entailment=replay.entailment(), reranker=replay.reranker(),
    )))  # fmt: skip


@pytest.mark.parametrize(("mode", "world", "question"), [
    ("global", harbours, "Who keeps the lighthouse of harbour 1?"),
    ("basic", harbours, "Who keeps the lighthouse of harbour 1?"),
    ("local", village, QUESTION),
])  # fmt: skip
def test_a_trace_gives_the_same_answer_again(mode, world, question):
    """Byte for byte, costs and verdicts and replies that were cut off included; every request of the run is in the trace under its ledger key."""
    index = world()
    made, content, history = told(question, index, mode, Torn())

    assert made.answered
    assert json.dumps(asdict(replayed(content, index))) == json.dumps(asdict(made))
    assert sorted(call["key"] for call in content["calls"]) == sorted(key_of(request, CARD) for request in history)
    assert sum(usage["calls"] for usage in content["stages"].values()) == made.usage.calls == len(history)
    assert sum(usage["completion_tokens"] for usage in content["stages"].values()) == made.usage.completion_tokens > 0
    assert {"support", "map" if mode == "global" else "passages"} <= {*content["stages"], *(step["step"] for step in content["steps"])}


def test_small_models_are_replayed_too():
    """The order of a reranker and the verdicts of an entailment model come from the trace, and neither is there any more."""
    index = village()
    reader = Reader()
    made, content, history = told(QUESTION, index, "basic", lambda request: reader.reply(reader.text(request).replace(".\t", " indeed.\t")), Judges())

    assert content["reranked"]
    assert content["entailed"]
    assert any("reranker" in note for note in made.notes)
    assert "support" not in {request.purpose for request in history}
    assert json.dumps(asdict(replayed(content, index))) == json.dumps(asdict(made))


@pytest.mark.parametrize("mode", ["global", "basic"])
def test_another_question_is_not_answered_from_a_trace(mode):
    """A request, or a vector, that the trace does not hold is an error that says so."""
    index = harbours()
    _, content, _ = told("Who keeps the lighthouse of harbour 1?", index, mode, Torn())

    with pytest.raises(UsageError, match=r"The trace (holds no reply|has nothing)"):
        replayed(content, index, "Who keeps the lighthouse of harbour 2?")


def test_what_was_cut_is_there_with_the_reason():
    """Windows under the gate, passages beyond the first k and records without room are named with why they were left."""
    _, content, _ = told("Who keeps the lighthouse of harbour 1?", harbours(), "global", Torn())
    left = [step for step in content["steps"] if step["step"] == "window" and step["cut"]]
    assert left
    assert all(step["cut"][0]["why"] == f"gate of {step['gate']:.3f} under 0.5" for step in left)
    assert any(step["kept"] and step["points"] for step in content["steps"] if step["step"] == "window")

    index = village()
    _, content, _ = told(QUESTION, index, "local", Torn())
    steps = {step["step"]: step for step in content["steps"]}
    assert len(steps["passages"]["kept"]) == 3
    assert steps["passages"]["cut"][0]["why"].startswith("not among the first 3")
    assert {"vectors", "words", "fused", "links"} == steps["passages"]["rankings"].keys()
    assert steps["window"]["cut"][0]["why"] == "no room in the window"
    named = {row["label"] for row in steps["neighbourhood"]["kept"]}
    assert "Ottilie Brandt" in named
    assert set(content["documents"]) <= {document.id for document in index.documents()} != set()


def test_a_reply_that_nobody_waited_for_is_not_replayed():
    """A call without a reply is in the trace, and no answer comes from it."""
    index = harbours()
    _, content, _ = told("Who keeps the lighthouse of harbour 1?", index, "basic", Torn())
    content["calls"][0].pop("reply", None)
    content["calls"][0].pop("error", None)

    with pytest.raises(UsageError, match="holds no reply"):
        replayed(content, index)
