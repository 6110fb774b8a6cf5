"""Counting tokens with the served model's own tokenizer, and a stated, cautious estimate where it is not to be had.

Counts are of text as text: `<|endoftext|>` in a document is counted as the characters it is. Count once per record and add up; the
sum over pieces is never less than the count of the whole by more than one token a joint, which the margins cover.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Protocol

import tiktoken
from tokenizers import Tokenizer

from graphrag_local.errors import ModelMissing
from graphrag_local.prompting import Message

# What a chat template adds: role marks and separators of each turn, and the opening of the reply (largest seen: 8 and 12; ours are wider).
TURN_TOKENS = 10
REPLY_TOKENS = 16
REMEMBERED = 512  # counts; more than twice the requests in flight, and a few MB of text


class TokenCounter(Protocol):
    """Counts tokens of text; `exact` says whether it is the served model's own tokenizer."""

    @property
    def name(self) -> str:
        """Which tokenizer this is, as shown to people."""

    @property
    def exact(self) -> bool:
        """Whether the counts are the served model's own."""

    def count(self, text: str) -> int:
        """Tokens of a text."""


class FileTokenizer:
    """The tokenizer.json of a model folder."""

    exact = True

    def __init__(self, folder: Path) -> None:
        file = folder / "tokenizer.json"
        if not file.is_file():
            hint = "Run `graphrag-local models fetch NAME`, or copy the model's tokenizer files there."
            raise ModelMissing(f"There is no tokenizer.json in {folder}.", hint=hint)
        self.name = f"tokenizer of {folder.name}"
        self._tokenizer = Tokenizer.from_file(str(file))
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True  # document text that looks like a control token is text
        # Counting is the dearest thing done to a chunk, and the same system prompt, and the same chat before it is sent, are counted again.
        self._remembered = lru_cache(maxsize=REMEMBERED)(self._count)

    def count(self, text: str) -> int:
        """Tokens of a text, without special ones."""
        return self._remembered(text)

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False))


CL100K = "cl100k_base"
# The split pattern and the special tokens of cl100k_base, as tiktoken publishes them; the ranks come from the file.
_CL100K_PATTERN = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
)


@cache
def cl100k(models: Path) -> tiktoken.Encoding:
    """The paper's tokenizer, from `cl100k_base/cl100k_base.tiktoken` in the models folder.

    We read the file ourselves: tiktoken's loader downloads, and keeps copies by path in a temporary folder, where they outlive their originals.
    """
    file = models / CL100K / f"{CL100K}.tiktoken"
    if not file.is_file():
        raise ModelMissing(f"The token table {file} is missing.", hint=f"Run `graphrag-local models fetch {CL100K}`, or copy the file there.")
    return tiktoken.Encoding(name=CL100K, pat_str=_CL100K_PATTERN, mergeable_ranks=_ranks(file), special_tokens={})


def _ranks(file: Path) -> dict[bytes, int]:
    """The tokens of a table of lines `base64 rank`; raises ModelMissing naming the first line that is none."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        try:
            if line.strip():
                token, rank = line.split()
                ranks[base64.b64decode(token, validate=True)] = int(rank)
        except ValueError as error:
            hint = f"Run `graphrag-local models verify {CL100K}`, and copy the file again."
            raise ModelMissing(f"Line {number} of the token table {file} is not a token and its rank.", hint=hint) from error
    return ranks


class Cl100k:
    """OpenAI's cl100k_base, for the paper's counts and its fixed windows."""

    name = CL100K
    exact = True

    def __init__(self, models: Path) -> None:
        self.encoding = cl100k(models)

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self.encoding.encode_ordinary(text))


# Characters of one kind and the most tokens one of them was seen to cost, over byte-level and sentence-piece vocabularies.
KINDS: tuple[tuple[str, str, float], ...] = (
    ("latin", "a-zA-Z", 0.34),
    ("digit", "0-9", 1.0),
    ("blank", r" \t\n", 0.34),
    ("mark", r"!-/:-@\[-`{-~", 1.0),
    ("latin_marked", "\u00a1-\u024f", 1.0),
    ("cyrillic_greek", "\u0370-\u052f", 0.8),
    ("arabic_hebrew", "\u0590-\u06ff", 1.0),
    ("han", "\u3400-\u4dbf\u4e00-\u9fff", 1.7),
    ("kana_hangul", "\u3040-\u30ff\uac00-\ud7af", 1.7),
)
OTHER_RATE = 4.0  # no vocabulary needs more than one token a byte, and these take up to four bytes


@dataclass(frozen=True, slots=True)
class Estimate:
    """A cautious count by kinds of characters; `rates` may be measured on the server's own `/tokenize` (see engine.probe)."""

    name: str = "cautious estimate"
    rates: dict[str, float] = field(default_factory=lambda: {name: rate for name, _, rate in KINDS})
    other: float = OTHER_RATE
    exact: bool = False

    def count(self, text: str) -> int:
        """At least the tokens of a text, for the tokenizers the rates cover."""
        total, seen = 0.0, 0
        for name, pattern in _patterns():
            found = len(pattern.sub("", text))
            number = len(text) - found
            seen += number
            total += number * self.rates.get(name, self.other)
        return int(total + (len(text) - seen) * self.other) + 1


def described(counter: TokenCounter) -> dict[str, Any]:
    """How tokens are counted, as JSON: a name and, of an estimate, all that it is."""
    return {"name": counter.name, "estimate": asdict(counter) if isinstance(counter, Estimate) else None}


def estimate_of(description: Mapping[str, Any]) -> Estimate | None:
    """The estimate that was described; None for a tokenizer, which takes its files."""
    return Estimate(**description["estimate"]) if description["estimate"] else None


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((name, re.compile(f"[{characters}]")) for name, characters, _ in KINDS)


def count_messages(counter: TokenCounter, messages: tuple[Message, ...]) -> int:
    """Tokens of a rendered chat, template included (an upper bound)."""
    return REPLY_TOKENS + sum(TURN_TOKENS + counter.count(message.content) for message in messages)


def most_tokens(text: str) -> int:
    """What no tokenizer makes more tokens of a text than.

    A token is a byte at least. Twice that is allowed for what is not ASCII, because some tokenizers write compatibility forms out.
    """
    return len(text) if text.isascii() else 2 * len(text.encode("utf-8", "surrogatepass")) - len(text)


def fits(counter: TokenCounter, messages: tuple[Message, ...], tokens: int) -> bool:
    """Whether a rendered chat has at most so many tokens; most chats are so short that they need not be counted."""
    most = REPLY_TOKENS + sum(TURN_TOKENS + most_tokens(message.content) for message in messages)
    return most <= tokens or count_messages(counter, messages) <= tokens


def room(counter: TokenCounter, window: int, messages: tuple[Message, ...], reply_tokens: int) -> int:
    """Tokens left in a window beside these messages and the room for the reply; negative when they do not fit."""
    return window - count_messages(counter, messages) - reply_tokens
