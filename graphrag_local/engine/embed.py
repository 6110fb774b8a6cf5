"""Vectors from an embeddings endpoint, or none at all; and what all embedders share: unit length, pooling of windows, the probe.

The embedder in this process is in `embed_local`, so that nobody pays for importing it who does not use it.
"""

import asyncio
import hashlib
import math
from collections.abc import Sequence

import numpy as np

from graphrag_local.engine.base import EmbedderCard
from graphrag_local.engine.endpoint import Endpoint
from graphrag_local.engine.start import Start
from graphrag_local.errors import ContextOverflow, EngineBusy, EngineRefused, EngineUnreachable
from graphrag_local.flow import map_ordered
from graphrag_local.settings import EngineSettings, VectorsSettings

PROBE_TEXT = "The lighthouse keeper counted forty-one ships, wrote the number down, and went to boil an egg."
PROBE_NUMBERS = 16
IN_FLIGHT = 4  # batches of one call that are under way together
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0
SHORTEST_WINDOW = 32  # characters; who refuses less for its length refuses something else

Vector = list[float]


def unit(vector: Sequence[float]) -> Vector:
    """The vector at length 1, rounded to what float32 holds; EngineRefused when it has no direction."""
    numbers = np.asarray(vector, dtype=np.float64)
    length = float(np.linalg.norm(numbers))
    if not math.isfinite(length) or length == 0:
        raise EngineRefused("The embedder gave a vector of zeros, or one with numbers that are none.", hint="Is vectors.model an embedding model?")
    return [float(number) for number in (numbers / length).astype(np.float32)]


def pooled(windows: Sequence[tuple[int, Sequence[float]]]) -> Vector:
    """One unit vector for (length, vector) of the windows of a text: their mean, weighted by length."""
    if len(windows) == 1:
        return unit(windows[0][1])
    lengths = np.array([length for length, _ in windows], dtype=np.float64)
    return unit((np.array([unit(vector) for _, vector in windows], dtype=np.float64) * lengths[:, None]).sum(0).tolist())


def probe_revision(vector: Sequence[float]) -> str:
    """A revision read off the vector of `PROBE_TEXT`, for models whose files cannot be seen: another model under the same name has another.

    Sixteen sums of the unit vector's numbers with fixed signs, each in steps of a tenth as two hex digits. Servers round differently from day to
    day (bfloat16 in batches moves a sum by some hundredths, another model by about one), so compare with `EmbedderCard.same_as`.
    """
    numbers = np.array(unit(vector))
    digits = []
    for index in range(PROBE_NUMBERS):
        bits = np.frombuffer(hashlib.shake_128(f"probe {index}".encode()).digest(len(numbers)), dtype=np.uint8) & 1
        total = float((numbers * (bits * 2.0 - 1.0)).sum())
        digits.append(min(255, max(0, round(total * 10) + 128)))
    return "probe-" + bytes(digits).hex()


class NoEmbedder:
    """There are no vectors: retrieval goes by words."""

    card = EmbedderCard(name="none", revision="", dimension=0)

    async def embed(self, texts: list[str], *, query: bool = False) -> list[Vector]:
        """An empty vector per text."""
        return [[] for _ in texts]

    async def close(self) -> None:
        """Nothing to give back."""


class ServerEmbedder:
    """An OpenAI-style embeddings endpoint. Made by `connect`, which asks for one vector to learn dimension and revision."""

    def __init__(self, url: str, vectors: VectorsSettings, engine: EngineSettings) -> None:
        self.card = EmbedderCard(name=vectors.model, revision=vectors.revision, dimension=0)
        self._endpoint = Endpoint(url.strip().rstrip("/"), engine.api_key)
        self._batch = vectors.batch
        self._query_prefix = vectors.query_prefix
        self._timeout_s = engine.timeout_s
        self._patience_s = engine.patience_s
        self._scale = engine.clock_scale

    @classmethod
    async def connect(cls, url: str, vectors: VectorsSettings, engine: EngineSettings, start: Start | None = None) -> "ServerEmbedder":
        """The embedder `vectors.model` at a base URL (such as http://127.0.0.1:8000/v1). One call, with the purpose "probe".

        `start` says how long a server that is busy or failing is waited for, and who is told.
        """
        embedder = cls(url, vectors, engine)
        try:
            vector = (await (start or Start.of(engine)).wait(lambda: embedder._once([PROBE_TEXT], "probe")))[0]
            revision = vectors.revision or probe_revision(vector)
        except BaseException:
            await embedder.close()
            raise
        embedder.card = EmbedderCard(name=vectors.model, revision=revision, dimension=len(vector))
        return embedder

    async def embed(self, texts: list[str], *, query: bool = False) -> list[Vector]:
        """One unit vector per text; what the server refuses for its length is halved until it is taken, and pooled."""
        prefixed = [self._query_prefix + text for text in texts] if query else texts
        batches = [prefixed[at : at + self._batch] for at in range(0, len(prefixed), self._batch)]
        return [vector for vectors in await map_ordered(batches, self._vectors, limit=IN_FLIGHT) for vector in vectors]

    async def close(self) -> None:
        """Close all connections."""
        await self._endpoint.close()

    async def _vectors(self, texts: list[str]) -> list[Vector]:
        try:
            return [unit(vector) for vector in await self._ask(texts, "embed")]
        except ContextOverflow:
            if len(texts) == 1:
                return [pooled(await self._windows(texts[0]))]
        middle = len(texts) // 2
        return await self._vectors(texts[:middle]) + await self._vectors(texts[middle:])

    async def _windows(self, text: str) -> list[tuple[int, Vector]]:
        """(length, vector) of the parts of a text that is too long as a whole; a function of the text and the server alone."""
        if len(text) < SHORTEST_WINDOW:
            message = f"{self._endpoint.url} refuses even {len(text)} characters for their length."
            raise EngineRefused(message, hint="Is vectors.model an embedding model?")
        windows: list[tuple[int, Vector]] = []
        for half in _halves(text):
            try:
                windows.append((len(half), (await self._ask([half], "embed"))[0]))
            except ContextOverflow:
                windows += await self._windows(half)
        return windows

    async def _once(self, texts: list[str], purpose: str) -> list[Vector]:
        """The server's vectors, asked for once."""
        body = {"model": self.card.name, "input": texts, "encoding_format": "float"}
        return self._read(await self._endpoint.fetch("/embeddings", body, purpose), len(texts))

    async def _ask(self, texts: list[str], purpose: str) -> list[Vector]:
        """The server's vectors, asked again with growing pauses while it is busy or away; the last fault once patience is spent."""
        waited, pause = 0.0, FIRST_WAIT_S
        while True:
            try:
                async with asyncio.timeout(self._timeout_s / self._scale):
                    return await self._once(texts, purpose)
            except TimeoutError as error:
                fault: EngineUnreachable | EngineBusy = EngineUnreachable(f"{self._endpoint.url} did not answer within {self._timeout_s:.0f} s.")
                fault.__cause__ = error
            except (EngineUnreachable, EngineBusy) as error:
                fault = error
            wait_s = max(pause, fault.wait_s if isinstance(fault, EngineBusy) else 0.0)
            if waited + wait_s > self._patience_s:
                raise fault
            await asyncio.sleep(wait_s / self._scale)
            waited, pause = waited + wait_s, min(2 * pause, LONGEST_WAIT_S)

    def _read(self, answer: bytes, count: int) -> list[Vector]:
        value = self._endpoint.json(answer)
        try:
            rows = sorted(enumerate(value["data"]), key=lambda row: row[1].get("index", row[0]))  # some servers leave the index out
            vectors = [[float(number) for number in row["embedding"]] for _, row in rows]
        except (TypeError, KeyError, ValueError, AttributeError):
            raise self._endpoint.garbage(answer.decode("utf-8", "replace")) from None
        if len(vectors) != count:
            raise self._endpoint.garbage(f"{len(vectors)} vectors for {count} texts")
        sizes = {len(vector) for vector in vectors}
        if self.card.dimension and sizes != {self.card.dimension}:
            message = f"{self._endpoint.url} sent vectors of {max(sizes)} numbers instead of {self.card.dimension}."
            raise EngineRefused(message, hint="Is another model served under that name now? Then index again.")
        self._endpoint.understood()
        return vectors


def _halves(text: str) -> tuple[str, str]:
    """A text cut at the white space nearest to its middle, or in the middle where none is near."""
    middle = len(text) // 2
    reach = len(text) // 4
    places = [place for place in (text.rfind(" ", middle - reach, middle), text.find(" ", middle, middle + reach)) if place > 0]
    cut = min(places, key=lambda place: abs(place - middle)) if places else middle
    return text[:cut], text[cut:]
