"""Patience at the start of a run, before anything is known about a server.

A server that answers "busy" or fails on its side is there and will come: it is waited for as long as the settings allow. One that nobody reaches is more
often a wrong address than a server that is about to start, so it is waited for only for a moment.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import httpx

from graphrag_local.engine.away import Clock
from graphrag_local.errors import EngineBusy, EngineError, EngineUnreachable
from graphrag_local.settings import EngineSettings

T = TypeVar("T")
NOBODY_S = 20.0  # for an address where nobody answers
FIRST_S, LONGEST_S = 0.5, 10.0  # pauses between two tries, doubled each time
REPLY_S = 120.0  # for a page or a reply of some tokens, while nothing else is asked


def _silent(_: str) -> None:
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How long to wait for a server that does not answer properly yet, in the settings' seconds; `say` tells people what is waited for."""

    patience_s: float
    nobody_s: float = NOBODY_S
    scale: float = 1.0
    say: Callable[[str], None] = _silent

    @classmethod
    def of(cls, settings: EngineSettings, say: Callable[[str], None] = _silent) -> "Start":
        """As the settings say."""
        return cls(patience_s=settings.patience_s, scale=settings.clock_scale, say=say)

    async def wait(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What `ask` gives, asked again while its fault is one that passes; the last such fault when the time is over, any other fault at once."""
        clock = Clock(self.scale)
        begun, pause = clock.now(), FIRST_S
        while True:
            fault = await self._fault(clock, ask)
            if not isinstance(fault, EngineError):
                return fault
            waited = clock.now() - begun
            limit = min(self.patience_s, self.nobody_s) if nobody_there(fault) else self.patience_s
            asked = fault.wait_s * self.scale if isinstance(fault, EngineBusy) else 0.0
            if waited + max(pause, asked) > limit:
                raise fault
            self.say(f"Waiting for the model server, {waited:.0f} s of at most {limit:.0f} s ({fault})")
            await clock.sleep(max(pause, asked))
            pause = min(2 * pause, LONGEST_S)

    async def _fault(self, clock: Clock, ask: Callable[[], Awaitable[T]]) -> T | EngineError:
        try:
            async with clock.limit(min(self.patience_s, REPLY_S)):
                return await ask()
        except TimeoutError:
            return EngineUnreachable(f"it took the connection, but did not answer within {min(self.patience_s, REPLY_S):.0f} s")
        except (EngineUnreachable, EngineBusy) as fault:
            return fault


def nobody_there(fault: EngineError) -> bool:
    """Whether a fault means that no connection came about at all."""
    return isinstance(fault.__cause__, httpx.ConnectError | httpx.ConnectTimeout)
