"""What computes in this process is made with its first use, once, and not at all where it is not used."""

import asyncio
import threading

import pytest

from graphrag_local.engine.base import Embedder, EmbedderCard
from graphrag_local.engine.late import LateEmbedder
from graphrag_local.errors import EngineUnreachable

CARD = EmbedderCard(name="one", revision="1", dimension=1)


class One:
    """An embedder that counts."""

    card = CARD

    def __init__(self) -> None:
        self.closed = 0

    async def embed(self, texts: list[str], *, query: bool = False) -> list[list[float]]:
        """One number per text."""
        return [[1.0 + query] for _ in texts]

    async def close(self) -> None:
        """Count."""
        self.closed += 1


def test_it_is_made_once():
    """Several that ask at once while it is being made, and those who come later, use the same one; it is closed."""
    made: list[One] = []

    def make() -> Embedder:
        made.append(One())
        return made[-1]

    async def main() -> None:
        late = LateEmbedder(CARD, make)
        assert late.card == CARD
        assert await asyncio.gather(*(late.embed(["a"], query=True) for _ in range(5))) == [[[2.0]]] * 5
        assert await late.embed(["b", "c"]) == [[1.0], [1.0]]
        await late.close()

    asyncio.run(main())
    assert [one.closed for one in made] == [1]


def test_it_is_not_made_for_nothing():
    """Closed before anybody asked it is never made, also when somebody comes late."""
    made: list[int] = []

    async def main() -> None:
        late = LateEmbedder(CARD, lambda: made.append(1) or One())
        await late.close()
        with pytest.raises(EngineUnreachable):
            await late.embed(["a"])

    asyncio.run(main())
    assert made == []


def test_what_is_being_made_is_closed_too():
    """Who closes it while it is being made waits for that, and closes what came of it."""
    one, begun, go_on = One(), threading.Event(), threading.Event()

    def make() -> Embedder:
        begun.set()
        go_on.wait()
        return one

    async def main() -> None:
        late = LateEmbedder(CARD, make)
        asking = asyncio.create_task(late.embed(["a"]))
        await asyncio.to_thread(begun.wait)
        closing = asyncio.create_task(late.close())
        await asyncio.sleep(0)
        go_on.set()
        await closing
        await asyncio.gather(asking, return_exceptions=True)

    asyncio.run(main())
    assert one.closed == 1
