"""Every exception this package raises, as one tree.

    GraphragError
    ├── UsageError                  wrong use: a bad option, setting, level or path (exit 2)
    │   ├── SettingsError           a setting that does not exist or has a wrong value
    │   └── NotConfirmed            what was asked for redoes paid work, and nobody has said yes
    ├── ModelMissing                a model, tokenizer or embedder folder is not where it is expected
    ├── MissingExtra                an optional part of the package is not installed
    ├── NoEngine                    no model server was found and none may be started silently
    ├── IndexMissing                there is no published generation to answer from
    ├── IndexCorrupt                a published file is missing or differs from its manifest
    ├── IndexMismatch               the index was built by another model, embedder or format
    ├── IndexBusy                   another build holds the lock
    ├── CollectionMissing           the input folder is missing, empty or most of it vanished
    ├── StorageError                the disk is full, read-only or not permitted
    ├── Interrupted                 somebody stopped the command (exit 130); what was paid for is kept
    │   └── BudgetSpent             a run reached the limit of tokens that it was given
    └── EngineError                 something about the model side; carries `retryable`
        ├── EngineUnreachable       connection refused, dropped, 5xx: asked again with back-off
        ├── EngineBusy              429 or 503, with the seconds the server asked us to wait
        ├── EngineRefused           4xx: the request itself is wrong and will stay wrong
        ├── ContextOverflow         prompt plus room for the reply exceed the model's window
        ├── EngineHung              one request was given up although others are answered: overtaken by many, or failed each time
        └── ReplyInvalid            the reply is cut off, loops, or does not fit its constraint

Every message is one sentence saying what is wrong and where; `hint` says what to do.
"""

import re
from typing import Any

_ADDRESS = re.compile(r"https?://[^\s'\"]+")


class GraphragError(Exception):
    """Base of all errors of this package; `hint` is one sentence that says what to do."""

    hint = ""
    retryable = False
    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        if hint:
            self.hint = hint


class UsageError(GraphragError):
    """The command, option or argument is wrong."""

    exit_code = 2


class SettingsError(UsageError):
    """A setting is unknown or has a value outside its limits."""


class NotConfirmed(UsageError):
    """What is asked for costs what was paid for once already, and needs a yes."""


class ModelMissing(GraphragError):
    """Model files are not in the models folder."""


class MissingExtra(GraphragError):
    """A part that is installed separately is needed."""

    def __init__(self, what: str, extra: str, *, instead: str = "") -> None:
        """`instead` is what does without the extra, as the beginning of a sentence."""
        install = f'pip install "graphrag-local[{extra}]"'
        super().__init__(f"{what} needs the extra {extra!r}.", hint=f"{instead}, or install it: {install}" if instead else f"Install it: {install}")


class NoEngine(GraphragError):
    """No model server is configured or running."""


class IndexMissing(GraphragError):
    """There is no finished index in this project."""


class IndexCorrupt(GraphragError):
    """The published index is damaged."""


class IndexMismatch(GraphragError):
    """The index was built with something else than what is configured now."""


class IndexBusy(GraphragError):
    """Another process builds this index."""


class CollectionMissing(GraphragError):
    """The input folder is not there, holds nothing readable, or lost most of its documents."""


class StorageError(GraphragError):
    """The index folder cannot be written."""


class Interrupted(GraphragError):
    """Ctrl-C, or the signal by which service managers end a program."""

    exit_code = 130


class BudgetSpent(Interrupted):
    """A run reached `--budget-tokens`; the same command continues it."""


class EngineError(GraphragError):
    """The model side failed."""


class EngineUnreachable(EngineError):
    """The server cannot be reached or failed on its side."""

    retryable = True


class EngineBusy(EngineError):
    """The server asks us to wait; `wait_s` is its Retry-After in seconds, 0 when it named none."""

    retryable = True

    def __init__(self, message: str, *, wait_s: float = 0.0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.wait_s = wait_s


class EngineRefused(EngineError):
    """The server says that this request is wrong; asking again would not help. `status` is what HTTP says, 0 where it says nothing."""

    def __init__(self, message: str, *, status: int = 0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


class ContextOverflow(EngineError):
    """The prompt and the room for the reply do not fit the window.

    `window` and `prompt_tokens` are the server's (or our exact) counts in tokens; 0 where unknown.
    """

    def __init__(self, message: str, *, window: int = 0, prompt_tokens: int = 0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.window = window
        self.prompt_tokens = prompt_tokens


class EngineHung(EngineError):
    """One request never came back, or failed each time, although others were answered."""

    retryable = True


class ReplyInvalid(EngineError):
    """The reply cannot be used.

    `outcome` is "cut_off" (length limit), "loop" (repetition or white space), "thinking" (no answer after
    the thoughts) or "invalid" (does not fit its constraint); `reply` is the `Reply` as it came, if any.
    """

    def __init__(self, message: str, *, outcome: str, reply: Any = None) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.reply = reply


def reason_of(error: Exception) -> str:
    """An error's message as the reason of a failed unit, which is part of an index: the same on every machine, so without addresses."""
    return _ADDRESS.sub("the server", str(error))
