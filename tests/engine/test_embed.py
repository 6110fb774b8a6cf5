"""Embedders beyond their contract: pooling, prefixes, probes, and an endpoint that is busy, away, changed or wrong."""

import asyncio
import json
import math

import numpy as np
import pytest

from graphrag_local.engine.base import EmbedderCard
from graphrag_local.engine.embed import ServerEmbedder, pooled, probe_revision, unit
from graphrag_local.errors import EngineBusy, EngineRefused, EngineUnreachable
from graphrag_local.settings import EngineSettings, VectorsSettings
from tests.clock import run_unhurried
from tests.engine.tools import RawServer
from tests.modelserver import ModelServer

FAST = {"clock_scale": 100.0}


def served(script, texts, *, settings=None, engine=None, run=None, query=False):
    """The vectors, the card and the records of a server that plays a script."""

    async def main():
        async with ModelServer(script, clock_scale=100).here() as server:
            embedder = await ServerEmbedder.connect(server.url, settings or VectorsSettings(model="embed-a"), engine or EngineSettings(**FAST))
            try:
                vectors = await embedder.embed(texts, query=query)
            finally:
                await embedder.close()
            return vectors, embedder.card, server.log

    return run_unhurried(main)


SCRIPT = {"embedders": {"embed-a": {"dimension": 8}, "embed-b": {"dimension": 8, "vector": "sha256 of reversed text"}, "embed-c": {"dimension": 12}}}


# --- pure parts


def test_a_vector_without_direction_is_refused():
    """Zeros, infinities and what is no number cannot be made a unit vector."""
    for vector in ([0.0, 0.0], [math.inf, 1.0], [math.nan, 1.0]):
        with pytest.raises(EngineRefused, match="zeros"):
            unit(vector)


def test_windows_are_pooled_by_length():
    """The mean of the windows' unit vectors, weighted by their lengths, at length 1."""
    assert pooled([(3, [2.0, 0.0]), (1, [0.0, 5.0])]) == unit([3.0, 1.0])
    assert pooled([(7, [3.0, 4.0])]) == unit([3.0, 4.0])


def test_probe_revisions_tell_models_apart_and_bear_rounding():
    """The numbers of one model in bfloat16 mean the same embedder; other models do not, at small dimensions and at usual ones."""
    random = np.random.default_rng(1)

    for dimension in (8, 384, 1024):
        vectors = [random.normal(size=dimension) for _ in range(40)]
        cards = [EmbedderCard(name="m", revision=probe_revision(vector.tolist()), dimension=dimension) for vector in vectors]
        noisy = [probe_revision((vector * (1 + random.normal(size=dimension) * 0.01)).tolist()) for vector in vectors]
        assert all(card.same_as(EmbedderCard(name="m", revision=other, dimension=dimension)) for card, other in zip(cards, noisy, strict=True))
        assert not any(a.same_as(b) for at, a in enumerate(cards) for b in cards[:at])


def test_cards_with_known_revisions_are_compared_exactly():
    """Name, dimension and a revision that is not a probe must be equal."""
    card = EmbedderCard(name="m", revision="r1", dimension=8)

    assert card.same_as(EmbedderCard(name="m", revision="r1", dimension=8))
    for other in ({"name": "n"}, {"revision": "r2"}, {"dimension": 9}, {"revision": "probe-" + "80" * 16}):
        assert not card.same_as(EmbedderCard(**({"name": "m", "revision": "r1", "dimension": 8} | other)))


# --- an endpoint


def test_the_endpoint_is_asked_in_batches():
    """Texts go out in batches of the set size, with the purpose in a header; the one call of the probe is marked as such."""
    texts = [f"text {number}" for number in range(5)]

    vectors, card, log = served(SCRIPT, texts, settings=VectorsSettings(model="embed-a", batch=2))

    assert [record.purpose for record in log] == ["probe", "embed", "embed", "embed"]
    assert (card.name, card.dimension, len(vectors)) == ("embed-a", 8, 5)


def test_another_model_under_the_same_name_has_another_revision():
    """The probe sees a swap of models of one size; a revision that is set is taken as it is."""
    same = {"embedders": {"embed-a": {"dimension": 8, "vector": "sha256 of reversed text"}}}
    _, first, _ = served(SCRIPT, [])
    _, again, _ = served(SCRIPT, [])
    _, swapped, _ = served(same, [])
    _, named, _ = served(SCRIPT, [], settings=VectorsSettings(model="embed-a", revision="2026-05"))

    assert first.same_as(again)
    assert not first.same_as(swapped)
    assert named.revision == "2026-05"


def test_the_question_prefix_is_for_questions():
    """A question is sent with its prefix, a text without."""
    settings = VectorsSettings(model="embed-a", query_prefix="query: ")

    text, _, _ = served(SCRIPT, ["query: who?"], settings=settings)
    question, _, log = served(SCRIPT, ["who?"], settings=settings, query=True)

    assert question == text
    assert log[-1].prompt == "query: who?"


@pytest.mark.parametrize("do", [{"status": 503}, {"status": 429, "headers": {"Retry-After": "2"}}, {"drop": "before-headers"}, {"status": 500}])
def test_a_passing_fault_is_waited_out(do):
    """Busy, failing and dropped answers are asked again until they are there; the vectors are those of a quiet server."""
    quiet, _, _ = served(SCRIPT, ["a", "b"])

    stubborn, _, log = served(SCRIPT | {"rules": [{"on": "embed", "calls": "1-2", "do": do}]}, ["a", "b"])

    assert stubborn == quiet
    assert len([record for record in log if record.purpose == "embed"]) == 3


def test_patience_ends():
    """A server that stays busy is given up once the patience is spent, with the fault it had."""
    script = SCRIPT | {"rules": [{"on": "embed", "do": {"status": 503}}]}

    with pytest.raises(EngineBusy):
        served(script, ["a"], engine=EngineSettings(patience_s=5.0, **FAST))


def test_a_server_that_is_not_there_is_unreachable():
    """Nobody listening is a fault of the network that names the address."""
    with pytest.raises(EngineUnreachable, match=r"127\.0\.0\.1:9/"):
        run_unhurried(lambda: ServerEmbedder.connect("http://127.0.0.1:9/v1", VectorsSettings(), EngineSettings(patience_s=1.0, **FAST)))


def test_a_model_that_the_server_does_not_have_is_refused_at_once():
    """A wrong name is not asked again."""
    with pytest.raises(EngineRefused, match="embed-z"):
        served(SCRIPT, ["a"], settings=VectorsSettings(model="embed-z"))


def test_what_is_too_long_is_embedded_in_parts():
    """A text that the server refuses for its length is halved until it is taken, alone: the others of its batch are what they are by themselves."""
    script = SCRIPT | {"embed_limit_tokens": 50}
    long = " ".join(f"word{number}" for number in range(90))

    (before, mixed, after), _, _ = served(script, ["one", long, "two"])
    (alone,), _, log = served(script, [long])
    short, _, _ = served(SCRIPT, ["one", "two"])

    assert [before, after] == short
    assert mixed == alone
    assert all(record.prompt_tokens <= 50 for record in log if record.status == 200)
    assert "".join(record.prompt for record in log if record.status == 200 and record.purpose == "embed") == long


def body(vectors):
    return json.dumps({"data": [{"index": index, "embedding": vector} for index, vector in vectors]}).encode()


def answered(*bodies):
    """The vectors of texts "a", "b" from a server whose answers are these bodies, the first for the probe."""

    async def main():
        answers = iter(bodies)
        with RawServer(lambda *_: (200, {}, next(answers))) as server:
            embedder = await ServerEmbedder.connect(server.url, VectorsSettings(), EngineSettings(patience_s=600.0, clock_scale=10))
            try:
                return await embedder.embed(["a", "b"])
            finally:
                await embedder.close()

    return asyncio.run(main())


def test_vectors_are_put_in_the_order_of_their_index():
    """An answer in another order is sorted by its indices."""
    assert answered(body([(0, [1, 0])]), body([(1, [0, 2]), (0, [3, 0])])) == [[1.0, 0.0], [0.0, 1.0]]


def test_an_answer_that_is_not_what_was_asked_is_asked_again():
    """Too few vectors and garbage count as passing faults."""
    good = body([(0, [1, 0]), (1, [0, 1])])

    assert answered(body([(0, [1, 0])]), body([(0, [1, 0])]), b"<html>", b'{"data": [{}]}', good) == [[1.0, 0.0], [0.0, 1.0]]


def test_a_change_of_dimension_is_refused():
    """Vectors of another size than the probe's mean that another model answers now."""
    with pytest.raises(EngineRefused, match="3 numbers instead of 2"):
        answered(body([(0, [1, 0])]), body([(0, [1, 0, 0]), (1, [0, 1, 0])]))
