"""The one place where all callers wait while a model server is away, and from which one of them at a time looks whether it is back."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from graphrag_local.errors import EngineBusy, EngineError, EngineUnreachable

FIRST_S, LONGEST_S = 1.0, 30.0  # back-off between two looks, doubled each time
CONTINUE = "Start the server again, then run the same command again: what is done is kept, and only the rest is asked for."


class GaveUp(EngineUnreachable):
    """The patience is over: whoever sees this does not try again."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds as the settings mean them: `scale` of them pass in one real second (1, except in tests that play a slow server fast)."""

    scale: float = 1.0

    def now(self) -> float:
        """The time, from any beginning."""
        return asyncio.get_running_loop().time() * self.scale

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(max(0.0, seconds) / self.scale)

    def limit(self, seconds: float) -> asyncio.Timeout:
        """A block that may take so long; TimeoutError after that."""
        return asyncio.timeout(max(0.0, seconds) / self.scale)


@dataclass(slots=True, eq=False)
class Outage:
    """From the first fault until a completion comes. Nobody asks before `until`; `gave_up` once the patience is over."""

    since: float
    until: float
    reason: EngineError
    tries: int
    gave_up: bool = False


class Away:
    """`close` when a request fails, `passed` before every request.

    The outage ends when a small real completion comes (`pulse`): health pages say 200 while completions fail. After `patience_s` everybody who
    waits gets EngineUnreachable; later callers get it at once, except one every half minute, who looks again.
    """

    def __init__(self, pulse: Callable[[], Awaitable[None]], clock: Clock, *, patience_s: float, timeout_s: float, seed: int = 0) -> None:
        self.outage: Outage | None = None
        self._pulse = pulse
        self._clock = clock
        self._patience_s = patience_s
        self._timeout_s = timeout_s
        self._jitter = random.Random(seed)
        self._looking = asyncio.Lock()
        self._repeats = 0  # outages one after the other without a request that succeeded between them

    def close(self, reason: EngineError) -> bool:
        """A request failed: nobody asks for a while, and not before the time that the server named. True when this begins an outage."""
        now = self._clock.now()
        asked = self._asked_for(reason)
        if self.outage is None:
            self.outage = Outage(since=now, until=now + max(self.backoff(self._repeats), asked), reason=reason, tries=self._repeats)
            self._repeats += 1
            return True
        self.outage.until = max(self.outage.until, now + asked)
        self.outage.reason = reason
        return False

    def succeeded(self) -> None:
        """A real request was answered."""
        self._repeats = 0

    def backoff(self, tries: int) -> float:
        """Seconds to wait after so many tries, with jitter so that several clients do not come at once."""
        return float(min(LONGEST_S, FIRST_S * 2.0 ** min(tries, 10)) * self._jitter.uniform(0.5, 1.0))

    async def passed(self) -> float:
        """Wait until the server is not away; the seconds that it took. Raises EngineUnreachable when the patience is over."""
        begun = self._clock.now()
        while (outage := self.outage) is not None:
            self._refuse_if_over(outage)
            async with self._looking:
                if self.outage is outage:
                    self._refuse_if_over(outage)
                    await self._look(outage)
        return self._clock.now() - begun

    def _refuse_if_over(self, outage: Outage) -> None:
        if outage.gave_up and self._clock.now() < outage.until:
            raise self._over(outage)

    async def _look(self, outage: Outage) -> None:
        """Wait for the moment to look, then look; the outage ends or goes on."""
        end = outage.since + self._patience_s
        while not outage.gave_up and (left := min(outage.until, end) - self._clock.now()) > 0:
            await self._clock.sleep(left)
        if outage.gave_up or outage.until <= end:
            fault = await self._asked()
            if fault is None:
                self.outage = None
                return
            outage.reason = fault
            outage.tries += 1
            outage.until = self._clock.now() + max(self.backoff(outage.tries), self._asked_for(fault))
        if outage.gave_up or self._clock.now() >= end:
            outage.gave_up = True
            outage.until = max(outage.until, self._clock.now() + LONGEST_S)
            raise self._over(outage)

    def _asked_for(self, fault: EngineError) -> float:
        """Seconds of our clock that the server wants us to wait; it speaks of real ones."""
        return fault.wait_s * self._clock.scale if isinstance(fault, EngineBusy) else 0.0

    async def _asked(self) -> EngineError | None:
        """The fault of a small request, None when the server answers it (a refusal is an answer)."""
        try:
            async with self._clock.limit(self._timeout_s):
                await self._pulse()
        except TimeoutError:
            return EngineUnreachable(f"a small request was accepted but not answered within {self._timeout_s:.0f} s")
        except EngineError as error:
            return error if error.retryable else None
        return None

    def _over(self, outage: Outage) -> GaveUp:
        waited = self._clock.now() - outage.since
        return GaveUp(f"The model server has been away for {waited:.0f} s; the last fault was: {outage.reason}", hint=CONTINUE)

    def words(self) -> str:
        """What there is to wait for, as a sentence for people; empty when the server is there."""
        if self.outage is None:
            return ""
        waited = self._clock.now() - self.outage.since
        return f"Waiting for the model server, {waited:.0f} s of at most {self._patience_s:.0f} s ({self.outage.reason})"
