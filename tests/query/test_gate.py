"""What the gate of the map step saves where most of a collection has nothing to do with the question."""

import asyncio

import pytest

from graphrag_local.engine.base import Model, Reply
from graphrag_local.engine.scripted import CARD, ScriptedEngine
from graphrag_local.prompting import load_all
from graphrag_local.query.ask import ask
from graphrag_local.settings import QuerySettings
from tests.fakes import Characters
from tests.query.world import NoEmbedder, Reader, is_empty_window, is_forced, step, text_index

PROMPTS = load_all()
WINDOWS, RELEVANT = 30, 3  # 90 % of them are irrelevant
TEXTS = {f"t{n}": f"Parish {n} keeps its {'mole' if n < RELEVANT else 'well'} in good repair, as the clerk wrote in {1800 + n}. " * 8 for n in range(WINDOWS)}


def asked(gates, **options):
    """The answer, and the calls of the map step with their replies. `gates`: the probability of Y, relevant or not; None where the server gives none."""
    reader = Reader(pick=lambda lines: dict(list(lines.items())[:2]))
    calls = []

    def answer(request):
        if step(request) != "map":
            return reader.text(request)
        p = None if gates is None else 0.0 if is_empty_window(request) else gates["mole" in request.messages[-1].content.partition("Question:")[0]]
        return Reply(text=reader.text(request), finish_reason="stop", gate=p)

    engine = ScriptedEngine(answer, CARD)

    async def generate(request):
        reply = await engine.generate(request)
        calls.append((request, reply))
        return reply

    settings = QuerySettings(support="off", window_tokens=900, map_reply_tokens=600, reply_tokens=600, **options)
    model = Model(generate=generate, card=CARD, counter=Characters())
    work = ask("Who keeps the mole?", text_index(**TEXTS), model, NoEmbedder(), PROMPTS, settings, mode="source", level=None)
    return asyncio.run(work), [(request, reply) for request, reply in calls if step(request) == "map"]


@pytest.mark.parametrize("relevant", [0.9, 0.05])
def test_windows_that_have_nothing_to_do_with_the_question_cost_a_token(relevant):
    """Where 90 % of the windows are irrelevant the map step writes at most a quarter of the tokens that it writes without a gate; the best three
    windows are read whatever the scores, also under the gate."""
    answer, calls = asked({True: relevant, False: 0.01})
    _, ungated = asked(None)
    read = [request for request, reply in calls if reply.finish_reason == "stop"]

    assert len(ungated) == WINDOWS
    assert sum(reply.usage.completion_tokens for _, reply in calls) <= sum(reply.usage.completion_tokens for _, reply in ungated) / 4
    assert sum(reply.finish_reason == "gate" for _, reply in calls) >= WINDOWS - RELEVANT
    assert len(read) == RELEVANT
    assert all("mole" in request.messages[-1].content.partition("Question:")[0] for request in read)
    assert all(is_forced(request) == (relevant < 0.2) for request in read)
    assert answer.answered
    assert {source.document for citation in answer.citations for source in citation.sources} <= {f"t{n}.txt" for n in range(RELEVANT)}
