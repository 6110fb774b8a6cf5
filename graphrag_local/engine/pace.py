"""How many requests to have in flight: as many as the server works on, and few that wait there.

What waits with us can still be reordered (questions first) and is not lost when the server goes away; what waits at the server is neither.
"""

import asyncio
import heapq

START = 4  # requests in flight before anything is known about the server
FLOOR = 2
GAIN = 0.2  # of the growth that was tried: a server that does two at a time gains nothing from four
HOLD = 8  # epochs between two trials once the limit is found
SHRUNK = 0.7  # a fall of the throughput below this share means that the server is busy with others


class Slots:
    """A semaphore whose size can change; lowest priority number first, then in order of arrival."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = 0

    @property
    def queued(self) -> int:
        """How many wait."""
        return sum(not future.done() for _, _, future in self._queue)

    async def acquire(self, priority: int) -> None:
        """Wait for a slot; a cancelled wait leaves the queue."""
        if self.used < self.limit and not self._queue:
            self.used += 1
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(self._queue, (priority, self._arrivals, future))
        self._serve()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # it was given a slot in the moment of being cancelled
                self.release()
            raise

    def release(self) -> None:
        """Give a slot back."""
        self.used -= 1
        self._serve()

    def resize(self, limit: int) -> None:
        """Change the number of slots; those in use stay in use."""
        self.limit = limit
        self._serve()

    def _serve(self) -> None:
        while self._queue and self.used < self.limit:
            _, _, future = heapq.heappop(self._queue)
            if not future.done():
                self.used += 1
                future.set_result(None)


class Pace:
    """Finds the limit. Where the server has a metrics page its queue decides; elsewhere the throughput does (tokens a second).

    Not the latency alone: a server that batches answers each request more slowly while it does more in all (one request 12 tokens a second,
    sixteen together 80), and a pace that follows the latency would stay at a fifth of what the server can do.
    """

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self.limit = min(START, ceiling)
        self._metered = False
        self._growth = 2.0  # until a trial brings nothing, then careful
        self._hold = 0
        self._known: tuple[int, float] | None = None  # the limit that is the measure of the next trial, and its throughput
        self._upwards = True
        self._since = 0.0  # when the limit was last changed
        self._skip = 0
        self._restart()

    def measured(self, running: int, waiting: int, mine: int, queued: bool) -> None:
        """A look at the server's queue, while `mine` of its requests are ours: grow while it is empty, shrink to what it works on."""
        self._metered = True
        if waiting > max(1, mine // 8):
            self.limit = min(self.limit, max(FLOOR, mine - waiting + 1))
        elif not waiting and queued and running:
            self._set(self.limit + max(1, self.limit // 4))

    def pushed_back(self) -> None:
        """The server said that it is busy."""
        self._restart()
        self.limit = max(1, self.limit // 2)

    def completed(self, work: float, sent: float, now: float, queued: bool) -> None:
        """A reply worth so many tokens, with the moments when it was asked for and came; `queued`: others wait for a slot (else the limit is idle).

        Throughput is limit times work over service time (Little's law), since replies of equal length come in bursts. Requests that were sent
        under another limit tell nothing, nor does the first round under this one: the server's queue is still filling or emptying.
        """
        if self._metered or not queued or sent < self._since:
            return
        if self._skip > 0:
            self._skip -= 1
            return
        self._work += work
        self._seconds += now - sent
        self._count += 1
        if self._count >= max(START, self.limit) and self._seconds > 0:
            throughput = self.limit * self._work / self._seconds
            self._restart()
            before = self.limit
            self._judge(throughput)
            if self.limit != before:
                self._since, self._skip = now, self.limit

    def _restart(self) -> None:
        self._work, self._seconds, self._count = 0.0, 0.0, 0

    def _set(self, limit: int) -> None:
        self.limit = max(1, min(self.ceiling, limit))

    def _judge(self, throughput: float) -> None:
        """The end of an epoch under one limit: keep what a trial gained, go back from what it did not, try again later."""
        if self._known is None:
            self._known = (self.limit, throughput)
            self._try(self._growth)
            return
        before, measure = self._known
        gained = throughput / measure - 1 if measure > 0 else 1.0
        if self.limit > before:
            if gained >= GAIN * (self.limit / before - 1):
                self._known = (self.limit, throughput)
                self._try(self._growth)
            else:
                self._back(before, measure)
        elif self.limit < before:
            if gained >= -GAIN / 2:
                self._known = (self.limit, throughput)
                self._hold = HOLD
            else:
                self._back(before, measure)
        else:
            self._known = (before, (measure + throughput) / 2)
            self._hold -= 1
            if throughput < SHRUNK * measure:
                self._try(0.8)
            elif self._hold <= 0:
                self._upwards = not self._upwards
                self._try(self._growth if self._upwards else 0.8)

    def _try(self, factor: float) -> None:
        step = int(self.limit * factor)
        self._set(max(step, self.limit + 1) if factor > 1 else max(FLOOR, min(step, self.limit - 1)))
        if self._known is not None and self.limit == self._known[0]:
            self._hold = HOLD

    def _back(self, limit: int, measure: float) -> None:
        self._growth, self._hold = 1.25, HOLD
        self._known = (limit, measure)
        self._set(limit)
