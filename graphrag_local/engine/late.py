"""An engine or an embedder in this process that is made with its first use: importing what computes it takes seconds, and a run that finds nothing to do needs
no more than to know which it is."""

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from graphrag_local.engine.base import Embedder, EmbedderCard, Engine, ModelCard, Reply, Request
from graphrag_local.errors import EngineUnreachable

T = TypeVar("T", bound=Engine | Embedder)


class _Late(Generic[T]):
    """Makes a thing once, in a thread; to whoever comes when it is closed it is not there."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: T | None = None
        self._closed = False
        self._making = threading.Lock()

    async def get(self) -> T:
        return await asyncio.to_thread(self._once) if self._made is None else self._made

    def _once(self) -> T:
        with self._making:
            if self._closed:
                raise EngineUnreachable("What computes in this process is closed.")
            if self._made is None:
                self._made = self._make()
            return self._made

    async def close(self) -> None:
        await asyncio.to_thread(self._end)
        if self._made is not None:
            await self._made.close()

    def _end(self) -> None:
        with self._making:  # after what is being made
            self._closed = True


class LateEngine:
    """An engine of that card."""

    def __init__(self, card: ModelCard, make: Callable[[], Engine]) -> None:
        self.card = card
        self._late = _Late[Engine](make)

    async def generate(self, request: Request) -> Reply:
        """The reply of the engine."""
        return await (await self._late.get()).generate(request)

    async def close(self) -> None:
        """Close it, where it was made."""
        await self._late.close()


class LateEmbedder:
    """An embedder of that card."""

    def __init__(self, card: EmbedderCard, make: Callable[[], Embedder]) -> None:
        self.card = card
        self._late = _Late[Embedder](make)

    async def embed(self, texts: list[str], *, query: bool = False) -> list[list[float]]:
        """The vectors of the embedder."""
        return await (await self._late.get()).embed(texts, query=query)

    async def close(self) -> None:
        """Close it, where it was made."""
        await self._late.close()
