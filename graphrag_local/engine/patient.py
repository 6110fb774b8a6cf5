"""An engine that waits: bounded concurrency that follows the server's queue, retries without end but with patience, and no lost work.

A slow server is not a broken one: no request is given up for being old alone. It is given up when later ones keep overtaking it (it hangs), or when
nothing at all comes back and a small request fails too. While it waits, a request holds no slot.
"""

import asyncio
import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from graphrag_local.engine.away import CONTINUE, Away, Clock, GaveUp
from graphrag_local.engine.base import Engine, FreeText, ModelCard, Reply, Request
from graphrag_local.engine.endpoint import Load
from graphrag_local.engine.pace import Pace, Slots
from graphrag_local.errors import ContextOverflow, EngineBusy, EngineError, EngineHung, EngineRefused, EngineUnreachable
from graphrag_local.prompting import Message
from graphrag_local.settings import EngineSettings
from graphrag_local.tokens import TokenCounter, count_messages, fits

Say = Callable[[str], None]

PULSE = Request(messages=(Message(role="user", content="Say ok."),), constraint=FreeText(), max_tokens=1, purpose="probe", priority=0)
QUESTION = 10  # a lower priority number is somebody who waits for an answer: not held back by the limit on indexing
OVERTAKEN = 2  # times the number of open requests
SLOW = 20  # times the median service time
STUCK = 5  # times the median service time, for a request that was overtaken: others need not wait for its slot
FAULTS = 5  # faults of one request while others succeed: it is the request, not the server
IN_VAIN = 5  # requests that came to nothing, without a reply between them: nothing will come of the others
KEY = (401, 402, 407)  # statuses that are about who asks, never about what is asked
PAGES = 8  # of so many looks at a server that is away all but the last ask its health page first
CLOSE = 0.85  # share of the window from which a count that is only an estimate is checked with the server
TICK_S, SAY_S, METRICS_S = 1.0, 10.0, 5.0
PREFILL = 20  # prompt tokens that cost about as much as one reply token


@runtime_checkable
class Server(Protocol):
    """What an engine that has a server behind it can tell besides (see `vllm.VLLM`)."""

    async def tokenize(self, what: tuple[Message, ...] | str, purpose: str = "tokenize") -> int | None:
        """The server's own count; None where there is none."""

    async def metrics(self) -> Load | None:
        """The server's queue; None where it does not tell."""

    async def ailing(self) -> EngineError | None:
        """The fault of its health page, if any."""


@dataclass(slots=True, eq=False)
class _Call:
    """A request that is with the server. `overtaken`: how many that were sent later have come back."""

    sent: float
    task: asyncio.Task[Reply]
    has_slot: bool
    overtaken: int = 0
    verdict: EngineError | None = None


@dataclass(slots=True)
class _Trial:
    """What one request has been through."""

    waited: float = 0.0
    faults: int = 0
    hung: int = 0
    successes: int = field(default=-1)


class Patient:
    """Wraps an engine. `counter` counts prompts before they are sent; `say` tells people what is waited for, at most every ten seconds."""

    def __init__(self, inner: Engine, settings: EngineSettings, *, counter: TokenCounter | None = None, say: Say | None = None) -> None:
        self.inner = inner
        self._settings = settings
        self._counter = counter
        self._say = say or (lambda text: None)
        self._server = inner if isinstance(inner, Server) else None
        self._clock = Clock(settings.clock_scale)
        self._away = Away(self._pulse, self._clock, patience_s=settings.patience_s, timeout_s=settings.timeout_s, seed=settings.seed)
        self._pace = Pace(settings.concurrency)
        self._slots = Slots(self._pace.limit)
        self._open: dict[_Call, None] = {}
        self._times: deque[float] = deque(maxlen=100)
        self._active = self._successes = self._looks = 0
        self._vain = 0  # requests that came to nothing since the last real reply
        self._last_reply = self._last_said = self._last_look = self._last_pulse = 0.0
        self._watcher: asyncio.Task[None] | None = None
        self._pulsing: asyncio.Task[None] | None = None

    @property
    def card(self) -> ModelCard:
        """The inner engine's."""
        return self.inner.card

    @property
    def limit(self) -> int:
        """How many indexing requests may be in flight now."""
        return self._slots.limit

    async def close(self) -> None:
        """Stop watching and close the inner engine."""
        tasks = [task for task in (self._watcher, self._pulsing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._watcher = self._pulsing = None
        await self.inner.close()

    async def generate(self, request: Request) -> Reply:
        """The reply, however long it takes the server.

        Raises EngineUnreachable when the server stays away longer than the patience; EngineHung when the request was overtaken twice, or fails
        again and again while others, or the small ones that look after the server, are answered; ContextOverflow, before anything is sent, when
        it does not fit; EngineRefused as it comes.
        """
        self._active += 1
        try:
            self._watch()
            trial = _Trial(waited=await self._away.passed())
            await self._check_room(request)
            while True:
                try:
                    return await self._sent(request, trial)
                except GaveUp:
                    raise
                except EngineHung:
                    trial.hung += 1
                    if trial.hung == 2:
                        raise
                except EngineRefused as refusal:
                    if request.purpose != "probe":
                        await self._doubt(refusal)
                    raise
                except (EngineUnreachable, EngineBusy) as fault:
                    await self._weigh(trial, fault)
        finally:
            self._active -= 1

    async def _weigh(self, trial: _Trial, fault: EngineError) -> None:
        """After a fault: whether to go on with this request, and how long to wait beyond the outage."""
        begins = self._away.close(fault)
        if isinstance(fault, EngineBusy):
            if begins:
                self._pace.pushed_back()
                self._slots.resize(self._pace.limit)
        elif trial.successes != self._successes:  # others were answered since this request's last fault
            trial.successes = self._successes
            trial.faults += 1
        if trial.faults >= FAULTS:
            self._in_vain(fault)
            raise EngineHung(f"One request failed {FAULTS} times while others were answered: {fault}") from fault
        if trial.waited > self._settings.patience_s:
            raise EngineUnreachable(f"The model server failed for {trial.waited:.0f} s; the last fault was: {fault}", hint=CONTINUE) from fault
        if trial.faults > 1:
            begun = self._clock.now()
            await self._clock.sleep(self._away.backoff(trial.faults))
            trial.waited += self._clock.now() - begun

    def _in_vain(self, fault: EngineError) -> int:
        """Count a request that came to nothing; how many that makes in a row. Raises GaveUp when it is no use to go on."""
        self._vain += 1
        if self._vain >= IN_VAIN:
            message = f"The model server answers small requests, but none of the last {IN_VAIN} real ones; the last fault was: {fault}"
            raise GaveUp(message, hint=fault.hint or CONTINUE) from fault
        return self._vain

    async def _doubt(self, refusal: EngineRefused) -> None:
        """Whether a refusal is about more than its request: a wrong key, model or address. Raises GaveUp when a small request is refused too."""
        if refusal.status in KEY:
            raise GaveUp(str(refusal), hint=refusal.hint) from refusal
        if self._in_vain(refusal) > 1:
            return
        try:
            await self.inner.generate(PULSE)
        except EngineRefused as second:
            raise GaveUp(f"The model server refuses every request: {second}", hint=second.hint) from second
        except EngineError:
            return

    # --- sending

    async def _sent(self, request: Request, trial: _Trial) -> Reply:
        """Wait for the server to be there and for a slot, send, and wait for the reply."""
        bypass = request.priority < QUESTION
        while True:
            trial.waited += await self._away.passed()
            if bypass:
                break
            await self._slots.acquire(request.priority)
            if self._away.outage is None:
                break
            self._slots.release()
        call = _Call(sent=self._clock.now(), task=asyncio.create_task(self.inner.generate(request)), has_slot=not bypass)
        self._open[call] = None
        try:
            reply = await call.task
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if call.verdict is not None and not (task and task.cancelling()):
                raise call.verdict from None
            raise
        except EngineError as error:
            if not error.retryable:
                self._last_reply = self._clock.now()
            raise
        finally:
            del self._open[call]
            self._leave(call)
        self._note(call, reply)
        return reply

    def _leave(self, call: _Call) -> None:
        if call.has_slot:
            call.has_slot = False
            self._slots.release()

    def _note(self, call: _Call, reply: Reply) -> None:
        """Learn from a reply."""
        now = self._clock.now()
        self._last_reply = now
        self._successes += 1
        self._vain = 0
        self._away.succeeded()
        self._times.append(now - call.sent)
        for other in self._open:
            other.overtaken += other.sent < call.sent
        cost = reply.usage.completion_tokens + (reply.usage.prompt_tokens - reply.usage.cached_tokens) / PREFILL
        self._pace.completed(cost or 1.0, call.sent, now, self._slots.queued > 0)
        self._slots.resize(self._pace.limit)

    async def _check_room(self, request: Request) -> None:
        """Raise ContextOverflow when prompt and reply do not fit the window; an estimate that comes close is checked with the server."""
        window = self.card.context_tokens
        if not window or self._counter is None or fits(self._counter, request.messages, int(CLOSE * window) - request.max_tokens):
            return
        prompt = count_messages(self._counter, request.messages)
        if not self._counter.exact and self._server is not None and prompt + request.max_tokens > CLOSE * window:
            counted = await self._server.tokenize(request.messages)
            prompt = prompt if counted is None else counted
        if prompt + request.max_tokens > window:
            message = f"A prompt of {prompt} tokens and a reply of up to {request.max_tokens} do not fit the model's window of {window} tokens."
            raise ContextOverflow(message, window=window, prompt_tokens=prompt)

    async def _pulse(self) -> None:
        """A small request, if the health page does not say already that it would be in vain; there are gateways whose page is always ill."""
        self._looks += 1
        if self._server is not None and self._looks % PAGES and (fault := await self._server.ailing()) is not None:
            raise fault
        await self.inner.generate(PULSE)
        self._successes += 1  # it tells a request that breaks the server from a server that is broken, also when no other is left to ask

    # --- watching

    def _watch(self) -> None:
        """See to it that somebody watches while there are requests; what broke the last watcher is raised here."""
        if self._watcher is not None and self._watcher.done():
            self._watcher.result()
        if self._watcher is None or self._watcher.done():
            self._last_said = max(self._last_said, self._clock.now())
            self._watcher = asyncio.create_task(self._watching())

    async def _watching(self) -> None:
        while self._active:
            await self._clock.sleep(max(TICK_S, 0.01 * self._clock.scale))
            await self._follow_queue()
            self._find_hanging()
            self._tell()

    async def _follow_queue(self) -> None:
        if self._server is None or not self._open:
            return
        try:
            async with self._clock.limit(max(METRICS_S, self._clock.scale)):
                load = await self._server.metrics()
        except TimeoutError:
            return
        if load is not None:
            self._pace.measured(load.running, load.waiting, len(self._open), self._slots.queued > 0)
            self._slots.resize(self._pace.limit)

    def _find_hanging(self) -> None:
        """Give up what hangs, free the slots of what seems to, and look at the server when nothing comes back at all."""
        now, timeout, median = self._clock.now(), self._settings.timeout_s, statistics.median(self._times) if self._times else 0.0
        for call in list(self._open):
            age = now - call.sent
            overtaken = call.overtaken >= OVERTAKEN * len(self._open)
            if overtaken and age > STUCK * median:
                self._leave(call)
            slow = len(self._times) >= 5 and age > SLOW * median and max(self._last_reply, self._last_pulse) > call.sent
            if age > timeout and (overtaken or slow):
                self._give_up(call, EngineHung("A request got no reply, twice, while later ones did."))
            elif age > timeout + self._settings.patience_s and self._last_reply < call.sent:
                self._give_up(call, GaveUp(f"The model server takes requests but has answered none for {age:.0f} s.", hint=CONTINUE))
        oldest = max((now - call.sent for call in self._open), default=0.0)
        quiet = now - max(self._last_reply, self._last_look) > timeout
        if oldest > timeout and quiet and (self._pulsing is None or self._pulsing.done()):
            self._last_look = now
            self._pulsing = asyncio.create_task(self._look())

    def _give_up(self, call: _Call, verdict: EngineError) -> None:
        call.verdict = verdict
        call.task.cancel()

    async def _look(self) -> None:
        """Nothing comes back: a small request over another connection tells a slow server from a dead one."""
        try:
            async with self._clock.limit(self._settings.timeout_s):
                await self._pulse()
        except TimeoutError:
            self._say("The model server has not answered a small request either; it may be very busy. Waiting on.")
        except EngineError as error:
            if error.retryable:
                for call in list(self._open):
                    if self._clock.now() - call.sent > self._settings.timeout_s:
                        self._give_up(call, EngineUnreachable(f"Requests get no reply, and a small one failed: {error}"))
        else:
            self._last_pulse = self._clock.now()

    def _tell(self) -> None:
        """A sign of life where nothing else moves."""
        now = self._clock.now()
        words = self._away.words()
        if not words and self._open and now - self._last_reply >= SAY_S:
            oldest = now - min(call.sent for call in self._open)
            words = f"{len(self._open)} requests are with the model, the oldest for {oldest:.0f} s; {self._slots.queued} more wait."
        if words and now - self._last_said >= SAY_S:
            self._last_said = now
            self._say(words)
