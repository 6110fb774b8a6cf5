"""What every embedder promises, run on all of them."""

import asyncio
import contextlib
import math

import numpy as np
import pytest

from graphrag_local.engine.base import Embedder
from graphrag_local.engine.embed import NoEmbedder, ServerEmbedder
from graphrag_local.engine.embed_local import LocalEmbedder
from graphrag_local.engine.models import Catalogue
from graphrag_local.settings import EngineSettings, VectorsSettings
from tests.modelserver import ModelServer

TEXTS = ["The lighthouse was lit at dusk.", "", "灯塔在黄昏点亮。", "a" * 40_000, "tide table " * 900]
MODEL = "all-minilm-l6-v2"


@contextlib.asynccontextmanager
async def opened(kind):
    """An embedder of a kind; the local one is the packaged model."""
    with contextlib.ExitStack() as stack:
        if kind == "none":
            embedder = NoEmbedder()
        elif kind == "server":
            server = stack.enter_context(ModelServer({"dimension": 24, "embed_limit_tokens": 2000, "embedders": {MODEL: {}}}))
            embedder = await ServerEmbedder.connect(server.url, VectorsSettings(batch=2), EngineSettings())
        else:
            embedder = LocalEmbedder(Catalogue.load().require(MODEL).folder, VectorsSettings(batch=2))
        try:
            yield embedder
        finally:
            await embedder.close()


@pytest.fixture(params=["local", "server", "none"])
def kind(request):
    if request.param == "local" and Catalogue.load().find(MODEL) is None:
        pytest.skip(f"the packaged embedder is not here: graphrag-local models fetch {MODEL}")
    return request.param


def with_embedder(kind, work):
    async def main():
        async with opened(kind) as embedder:
            return await work(embedder)

    return asyncio.run(main())


def test_it_keeps_the_protocol(kind):
    """It is an Embedder, and its card names a model."""

    async def work(embedder):
        return isinstance(embedder, Embedder), embedder.card

    keeps, card = with_embedder(kind, work)

    assert keeps
    assert card.name
    assert (card.dimension == 0) == (kind == "none")


def test_one_unit_vector_per_text(kind):
    """Vectors come in the order of the texts, of the card's dimension, of length 1 and in float32; also of empty and of very long texts."""

    async def work(embedder):
        return embedder.card.dimension, await embedder.embed(TEXTS), [(await embedder.embed([text]))[0] for text in TEXTS]

    dimension, together, alone = with_embedder(kind, work)

    assert [len(vector) for vector in together] == [dimension] * len(TEXTS)
    for vector, single in zip(together, alone, strict=True):
        assert not vector or math.isclose(np.linalg.norm(vector), 1, abs_tol=1e-5)
        assert vector == [float(np.float32(number)) for number in vector]
        assert np.allclose(vector, single, atol=1e-5)


def test_the_same_call_gives_the_same_bytes(kind):
    """Two calls, also of two instances, give equal vectors."""

    async def work(embedder):
        return await embedder.embed(TEXTS), await embedder.embed(TEXTS)

    first, second = with_embedder(kind, work)

    assert first == second == with_embedder(kind, work)[0]


def test_the_end_of_a_long_text_counts(kind):
    """Two long texts that differ in their last words have different vectors: nothing is cut silently."""
    start = "tide table " * 900

    async def work(embedder):
        return await embedder.embed([start + "of the harbour", start + "of 1,000 violins and a glass of cold milk"])

    one, other = with_embedder(kind, work)

    assert (one != other) == (kind != "none")


def test_no_texts_no_vectors(kind):
    """An empty list gives an empty list."""

    async def work(embedder):
        return await embedder.embed([])

    assert with_embedder(kind, work) == []
