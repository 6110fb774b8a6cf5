"""The server: a thread with its own event loop, so that tests of any kind and child processes can talk to it."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.modelserver import damage
from tests.modelserver.connection import Connection, Listener
from tests.modelserver.log import Record
from tests.modelserver.player import Player
from tests.modelserver.replies import OnGrammar
from tests.modelserver.script import Script

POLL_S = 0.005


class ModelServer:
    """An OpenAI-style server on 127.0.0.1 that plays a script; a context manager, sync or async.

    `clock_scale` divides every second of the script: at 10 a timeline of 60 s takes 6 s. `on_grammar` answers requests that carry a
    grammar; without it the script's `grammar` decides: "ignore" (as old servers do, the default), "walk" or "refuse".
    """

    def __init__(
        self,
        script: Mapping[str, Any] | str | Path | None = None,
        clock_scale: float = 1.0,
        port: int = 0,
        on_grammar: OnGrammar | None = None,
    ) -> None:
        self._player = Player(_loaded(script or {}), clock_scale, on_grammar)
        self._wanted_port = port
        self._connections: set[Connection] = set()
        self._faults: list[BaseException] = []
        self._thread: threading.Thread | None = None

    # --- what a test uses

    @property
    def url(self) -> str:
        """The base address for OpenAI clients."""
        return f"{self.root}/v1"

    @property
    def root(self) -> str:
        """The address under which /health and /metrics are."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> list[Record]:
        """Every request so far, in order of arrival."""
        return list(self._player.log)

    def requests(self, *purposes: str) -> list[Record]:
        """The records of some kinds of request."""
        return [record for record in self.log if record.purpose in purposes]

    @property
    def run(self) -> int:
        """The number of the current run, from 1."""
        return self._player.run

    def next_run(self) -> int:
        """Begin the next run, for `only_in_run` and `swap`; counts and the timeline go on."""
        self._player.run += 1
        return self._player.run

    def set_script(self, script: Mapping[str, Any] | str | Path) -> None:
        """Play another script from its start; log and run stay."""
        loaded = _loaded(script)
        if self._thread is None:
            self._player.play(loaded)
            return
        done = threading.Event()
        self._loop.call_soon_threadsafe(self._player.play, loaded)
        self._loop.call_soon_threadsafe(done.set)
        done.wait()

    def release(self) -> None:
        """Let go on what the script holds, and what it would hold from now on, until another script is played."""
        self._loop.call_soon_threadsafe(lambda: self._player.released.set())

    def wait_for(self, purpose: str, count: int = 1, timeout_s: float = 60.0) -> list[Record]:
        """Wait until so many requests of a kind have been answered; TimeoutError otherwise."""
        return self._wait(lambda: [record for record in self.requests(purpose) if record.ended and record.status], count, purpose, timeout_s)

    def wait_for_open(self, purpose: str, count: int = 1, timeout_s: float = 60.0) -> list[Record]:
        """Wait until so many requests of a kind have come that have no answer yet; TimeoutError otherwise."""
        return self._wait(lambda: [record for record in self.requests(purpose) if not record.ended], count, purpose, timeout_s)

    def _wait(self, found: Callable[[], list[Record]], count: int, purpose: str, timeout_s: float) -> list[Record]:
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if len(records := found()) >= count:
                return records
            time.sleep(POLL_S)
        raise TimeoutError(f"{count} {purpose} requests did not come within {timeout_s} s")

    # --- life

    def start(self) -> Self:
        """Bind the port and serve in a thread of its own."""
        self._bind()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="modelserver", daemon=True)
        self._thread.start()
        self._ready.wait()
        return self

    def stop(self) -> None:
        """Close every connection and end the thread; a fault of the server itself is raised here."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        assert self._thread is not None
        self._thread.join()
        self._raise_faults()

    def _bind(self) -> None:
        self._listener = Listener(self._wanted_port)
        self.port = self._listener.port
        self._ready = threading.Event()

    def _raise_faults(self) -> None:
        if self._faults:
            raise self._faults[0]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.to_thread(self.stop)

    @asynccontextmanager
    async def here(self) -> AsyncIterator[Self]:
        """Serve in the running loop, without a thread: for a loop whose clock is its own (tests/clock.py), which is then the server's too."""
        self._bind()
        serving = asyncio.create_task(self._main())
        while not self._ready.is_set():
            await asyncio.sleep(0)
        try:
            yield self
        finally:
            self._stopping.set()
            await serving
            self._raise_faults()

    # --- the thread

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._note_fault)
        self._stopping = asyncio.Event()
        await self._listener.open(self._connection)
        self._ready.set()
        gaps = asyncio.create_task(self._close_and_open())
        await self._stopping.wait()
        gaps.cancel()
        self._listener.close()
        self._abort_all()
        await asyncio.sleep(0)

    def _note_fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._faults.append(context.get("exception") or RuntimeError(context["message"]))

    def _connection(self) -> Connection:
        return Connection(self._player.handle, self._connections)

    def _abort_all(self) -> None:
        for connection in list(self._connections):
            connection.abort()

    async def _close_and_open(self) -> None:
        """Follow the timeline: while it refuses connections the port is closed and nobody stays connected."""
        is_open = True
        while True:
            script = self._player.script
            await asyncio.sleep(POLL_S if script.ever_refuses else 20 * POLL_S)
            wanted = not self._player.script.refuses(self._player.elapsed())
            if is_open and not wanted:
                self._listener.refuse()
                self._abort_all()
            elif wanted and not is_open:
                await self._listener.open(self._connection)
            is_open = wanted


def _loaded(script: Mapping[str, Any] | str | Path) -> Script:
    """A script with its damages known to exist."""
    loaded = Script(script)
    for rule in [*loaded.rules, *loaded.timeline]:
        if "damage" in rule.do:
            damage.check(rule.do["damage"])
    return loaded
