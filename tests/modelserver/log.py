"""The log of requests: what came, what it was for, how large it was, and how it ended."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Record:
    """One request. Times are `time.monotonic()` seconds of this process, not scaled; 0.0 where the moment did not come.

    `arrived` when it was read, `began` when work on it started (it had a slot), `ended` when the reply was out or given up.
    `status` is 0 where no status line was sent; `cancelled` says that the client went away first. `in_flight` counts the requests
    that were being worked on or waiting when it came, itself included. Sizes are in this server's own tokens.
    """

    number: int
    arrived: float
    run: int
    path: str
    purpose: str = ""
    model: str = ""
    prompt: str = ""
    prompt_tokens: int = 0
    max_tokens: int | None = None
    completion_tokens: int = 0
    stream: bool = False
    form: str = ""
    rule: str = ""
    status: int = 0
    began: float = 0.0
    ended: float = 0.0
    cancelled: bool = False
    cached: bool = False
    in_flight: int = 0
    reply: str = ""
    error: str = ""
    body: dict[str, Any] = field(default_factory=dict)
