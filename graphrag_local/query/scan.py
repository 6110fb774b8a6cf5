"""Every window asked once, in an order that suits the server's prefix cache; what comes back is in the order of the windows.

A server's cache drops what was used longest ago: vLLM the blocks of the request that ended first. Where the windows are more than it holds, the end of
the last scan comes first, which the cache still has (design-review §6): in one process by when each window ended, since those that are read to the end
end late, and after another process backwards where that one went forwards (see `store.turns`).

For that a scan has to end window after window. vLLM takes in at once all requests whose windows it has cached, and those that are left at their gates
together it frees in an order of chance. So only a share of the windows may wait for the first token of their reply at a time; those whose reply is
being written do not count, because it is fast to have many of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from graphrag_local.flow import map_ordered
from graphrag_local.query.windows import Window

R = TypeVar("R")
Begun = Callable[[str], None]  # told the reply so far
Ended = dict[str, None]  # digests of windows, that which ended last at the end
IN_FLIGHT = 64  # windows asked at once; the engine holds back what the server has no room for
SHARE, LEAST = 8, 4  # of so many windows one may wait for its first token; but always so many: the prompts of fewer leave a server idle
KEPT = 4096  # windows whose end is remembered; no cache holds more


async def scan(
    windows: Sequence[Window], read: Callable[[Window, Begun], Awaitable[R]], ended: Ended, *, forwards: bool, wrote: Callable[[R], bool]
) -> list[R]:
    """`read` of every window, which tells its second argument when the reply begins. Windows that `ended` does not know come last, forwards or not.

    Where a reply was written (`wrote`) and never heard, nothing is told while it is written, and all windows are asked at once.
    """
    newest = {digest: place for place, digest in enumerate(reversed(ended))}
    own = range(len(windows)) if forwards else range(len(windows) - 1, -1, -1)
    order = sorted(own, key=lambda place: newest.get(windows[place].digest, len(newest)))
    room = asyncio.Semaphore(max(LEAST, -(-len(windows) // SHARE)))

    async def one(place: int) -> R:
        await room.acquire()
        held = [room]

        def begun(_: str = "") -> None:
            if held:
                held.pop().release()

        try:
            found = await read(windows[place], begun)
            if held and wrote(found):
                for _ in windows:
                    room.release()
        finally:
            begun()
        ended.pop(windows[place].digest, None)
        ended[windows[place].digest] = None
        while len(ended) > KEPT:
            del ended[next(iter(ended))]
        return found

    found = dict(zip(order, await map_ordered(order, one, limit=IN_FLIGHT), strict=True))
    return [found[place] for place in range(len(windows))]
