"""A small HTTP/1.1 server on asyncio that can also misbehave: close early, stop in mid-body, reset, refuse.

h11 reads and frames; the transport is ours, so that a test can have every fault of a real network.
"""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import h11

Handler = Callable[["HttpRequest", "Connection"], Awaitable[None]]


@dataclass(slots=True)
class HttpRequest:
    """One request as it came; header names are lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""

    def json(self) -> dict[str, Any]:
        """The body as a JSON object; ValueError where it is none."""
        value = json.loads(self.body or b"{}")
        if not isinstance(value, dict):
            raise ValueError("the body is not a JSON object")
        return value


@dataclass(slots=True)
class Fault:
    """Where a reply is to break off: after so many bytes of its body, counted down as they are written."""

    after_bytes: int
    done: bool = field(default=False)

    def take(self, data: bytes) -> bytes:
        """What may still be written of this piece."""
        kept = data[: self.after_bytes]
        self.after_bytes -= len(kept)
        self.done = len(kept) < len(data) or self.after_bytes == 0
        return kept


class Connection(asyncio.Protocol):
    """One client: requests one after the other; the handler's task is cancelled when the client goes away."""

    def __init__(self, handler: Handler, connections: set["Connection"]) -> None:
        self.handler = handler
        self.connections = connections
        self.parser = h11.Connection(h11.SERVER)
        self.pending: HttpRequest | None = None
        self.task: asyncio.Task[None] | None = None
        self.writable = asyncio.Event()
        self.writable.set()
        self.left_by_client = False
        self.closed_by_us = False

    # --- asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        self._advance(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, whoever closed it."""
        self.connections.discard(self)
        self.left_by_client = not self.closed_by_us
        self.writable.set()
        if self.task is not None and self.left_by_client:
            self.task.cancel()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.writable.set()

    # --- reading

    def _advance(self, data: bytes | None = None) -> None:
        """Feed the parser and start the next complete request, unless one is being served."""
        try:
            if data is not None:
                self.parser.receive_data(data)
            while self.task is None and not self.closed_by_us:
                event = self.parser.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                    return
                self._take(event)
        except h11.RemoteProtocolError:
            self.close()

    def _take(self, event: Any) -> None:
        if isinstance(event, h11.Request):
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in event.headers}
            self.pending = HttpRequest(event.method.decode("ascii"), event.target.decode("latin-1").split("?")[0], headers)
        elif isinstance(event, h11.Data) and self.pending is not None:
            self.pending.body += event.data
        elif isinstance(event, h11.EndOfMessage) and self.pending is not None:
            request, self.pending = self.pending, None
            self.task = asyncio.get_running_loop().create_task(self._serve(request))
            self.task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        """A handler that failed is a fault of this server: end the connection and tell the loop."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.abort()
            task.get_loop().call_exception_handler({"message": "the handler failed", "exception": error})

    async def _serve(self, request: HttpRequest) -> None:
        try:
            await self.handler(request, self)
        except asyncio.CancelledError:
            self.abort()
            return
        finally:
            self.task = None
        if self.parser.our_state is h11.DONE and self.parser.their_state is h11.DONE:
            self.parser.start_next_cycle()
            self._advance()
        else:
            self.close()

    # --- writing

    def _write(self, event: Any, fault: Fault | None = None) -> None:
        data = self.parser.send(event) or b""
        if fault is not None and not isinstance(event, h11.Response):
            data = fault.take(data)
        if not self.transport.is_closing():
            self.transport.write(data)

    def send(self, status: int, body: bytes, headers: Mapping[str, str], fault: Fault | None = None) -> None:
        """A whole response of known length; with a fault it breaks off in mid-body."""
        fields = [*headers.items(), ("Content-Length", str(len(body)))]
        self._write(h11.Response(status_code=status, headers=fields))
        self._write(h11.Data(data=body), fault)
        if fault is not None:
            self.close()
        else:
            self._write(h11.EndOfMessage())

    async def stream(
        self, status: int, pieces: AsyncGenerator[bytes, None], headers: Mapping[str, str], fault: Fault | None = None
    ) -> None:
        """A chunked response, one chunk per piece; with a fault it breaks off within the chunk that reaches the limit."""
        self._write(h11.Response(status_code=status, headers=[*headers.items(), ("Transfer-Encoding", "chunked")]))
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                self._write(h11.Data(data=piece), fault)
                if fault is not None and fault.done:
                    self.close()
                    return
                await self.writable.wait()
        self._write(h11.EndOfMessage())

    # --- ending

    def close(self) -> None:
        """Close after what was written has gone out."""
        self.closed_by_us = True
        self.transport.close()

    def abort(self) -> None:
        """Close at once with a reset, as a dying process does, and stop the work."""
        self.closed_by_us = True
        sock = self.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
        if self.task is not None and self.task is not asyncio.current_task():
            self.task.cancel()


class Listener:
    """A port that can be closed for a while and opened again, without another program taking it meanwhile.

    A second socket, bound but never listening, keeps the port; connecting to it is refused by the kernel.
    """

    def __init__(self, port: int) -> None:
        self.guard = _bound(port)
        self.port: int = self.guard.getsockname()[1]
        self.server: asyncio.Server | None = None

    async def open(self, make: Callable[[], Connection]) -> None:
        """Begin to accept connections."""
        sock = _bound(self.port)
        self.server = await asyncio.get_running_loop().create_server(make, sock=sock, backlog=512)

    def refuse(self) -> None:
        """Stop accepting; open connections stay."""
        if self.server is not None:
            self.server.close()
            self.server = None

    def close(self) -> None:
        """Give the port back."""
        self.refuse()
        self.guard.close()


def _bound(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio switches Nagle off only where this is named
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    return sock
