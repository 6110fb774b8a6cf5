"""What a server of the OpenAI kind says, read: errors, replies, and the probability behind a reply's first word. No I/O.

Servers differ in how they word a refusal, wrap JSON and name fields; everything we know about that is here.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from graphrag_local.engine.base import Choice, Constraint, FinishReason, Form, Gate, JsonSchema, Reply, Request, mended_escapes
from graphrag_local.errors import ContextOverflow, EngineBusy, EngineError, EngineRefused, EngineUnreachable
from graphrag_local.records import Usage

# Words of a length refusal by vLLM, SGLang, llama.cpp, TGI, LM Studio and OpenAI.
_LENGTH = re.compile(
    r"context.{0,3}length|context (?:size|window)|maximum (?:model|input|sequence) length|max_model_len|max_new_tokens`? must be"
    r"|prompt is too long|longer than the model|too many (?:input )?tokens|context the overflows|n_ctx",
    re.IGNORECASE,
)
_WINDOW = re.compile(r"(?:context.{0,3}(?:length|size|window)|(?:model|input|sequence) length|max_model_len|n_ctx|must be)\D{0,40}?(\d[\d,]*)", re.IGNORECASE)
_PROMPT = (
    re.compile(r"(\d[\d,]*)\s+(?:in the messages|in the prompt|input tokens|tokens from the input|`inputs` tokens|prompt tokens)", re.IGNORECASE),
    re.compile(r"(?:prompt|input|messages?|resulted in|request) \D{0,24}?(\d[\d,]*) tokens", re.IGNORECASE),
)
# Words with which a server says that it does not want a field at all.
_UNWANTED = re.compile(
    r"unknown|unrecogni|unexpected|extra|permitted|allowed|support|enabled|forbidden|not a valid|no such|invalid (?:field|param|argument|key)"
    r"|does not (?:accept|know)",
    re.IGNORECASE,
)


def message_of(body: bytes) -> str:
    """What an error body says in words: the `message` of the usual forms, else its beginning."""
    text = body.decode("utf-8", "replace").strip()
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return " ".join(text.split())[:300]
    for key in ("error", "message", "detail"):
        if isinstance(value, dict) and value.get(key):
            value = value[key]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[:600]


def fault_of(status: int, headers: Mapping[str, str], body: bytes, where: str) -> EngineError:
    """The error that a response which is not 2xx means."""
    said = message_of(body)
    if status in (400, 413, 422, 500) and _LENGTH.search(said):
        window, prompt = overflow_sizes(said)
        return ContextOverflow(f"The model server refused a request for its length: {said}", window=window, prompt_tokens=prompt)
    if status in (429, 503, 529):
        wait_s = retry_after(headers.get("retry-after", ""))
        return EngineBusy(f"{where} answered {status} (busy): {said or 'no reason given'}", wait_s=wait_s)
    if status in (408, 425) or (status >= 500 and status not in (501, 505)):
        return EngineUnreachable(f"{where} answered {status}: {said or 'no reason given'}")
    hint = ""
    if status in (401, 403):
        hint = "Put the server's key into the environment variable GRAPHRAG_LOCAL__ENGINE__API_KEY."
    elif status in (404, 405) or 300 <= status < 400:
        hint = "Is engine.url right? It usually ends in /v1, and engine.model must be a name that the server lists."
    return EngineRefused(f"{where} refused a request ({status}): {said or 'no reason given'}", status=status, hint=hint)


def overflow_sizes(said: str) -> tuple[int, int]:
    """(window, prompt tokens) that a length refusal names; 0 where it names none."""
    window = _WINDOW.search(said)
    prompt = next((match for pattern in _PROMPT if (match := pattern.search(said))), None)
    return (_number(window[1]) if window else 0), (_number(prompt[1]) if prompt else 0)


def _number(digits: str) -> int:
    return int(digits.replace(",", ""))


def unwanted_field(fault: EngineError, sent: Iterable[str]) -> str:
    """The field, among those sent, that a refusal says the server does not know; "" when it is about something else."""
    said = str(fault)
    return next((name for name in sent if name in said), "") if _UNWANTED.search(said) else ""


def retry_after(value: str, now: datetime | None = None) -> float:
    """Seconds that a Retry-After header asks for; it is a number or a date, and 0 when it is neither or past."""
    if not value:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except ValueError:
            return 0.0
        moment = now or datetime.now(UTC)
        seconds = (date.replace(tzinfo=date.tzinfo or UTC) - moment).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


_THOUGHTS = re.compile(r"\s*<think>(?:.*?</think>|.*\Z)\s*", re.DOTALL)


def without_thoughts(text: str) -> str:
    """The text without a `<think>` block at its very beginning; "" when there is nothing else. Elsewhere the mark is text."""
    match = _THOUGHTS.match(text)
    return text[match.end() :] if match else text


def said(text: str, constraint: Constraint, form: Form) -> str:
    """The text of a reply as its constraint means it: thoughts, fences, chatter and the quotes of a choice are taken off, nothing is added."""
    text = without_thoughts(text)
    if isinstance(constraint, JsonSchema):
        return outermost_json(text)
    if isinstance(constraint, Choice) and form == "schema":
        return _choice(text, constraint.options)
    return text


def _choice(text: str, options: tuple[str, ...]) -> str:
    if text in options:
        return text
    bare = re.sub(r"^```\w*\s+|\s+```$", "", text.strip())
    try:
        value = json.loads(bare)
    except (ValueError, RecursionError):
        value = bare.strip("\"'` \n\t")
    return value if isinstance(value, str) and value in options else text


_STRING_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)
_JSON = json.JSONDecoder(strict=False)  # models write line breaks into their strings
_OPENINGS = 40  # brackets of chatter that are tried as the beginning of the value


def outermost_json(text: str) -> str:
    """The longest JSON object or list in a reply, as it stands there, with a comma before a closing bracket taken out.

    The text itself when it is JSON already, or when no part of it is: nothing is closed, quoted or invented, but a back slash that begins no
    escape is doubled.
    """
    if _parses(text):
        return text
    best, begin = "", 0
    for match in list(re.finditer(r"[{\[]", text))[:_OPENINGS]:
        if match.start() < begin:
            continue
        rest = text[match.start() :]
        for candidate in (rest, without := _STRING_OR_COMMA.sub(_keep_strings, rest), mended_escapes(without)):
            try:
                _, end = _JSON.raw_decode(candidate)
            except (ValueError, RecursionError):
                continue
            if end > len(best):
                best = candidate[:end]
            begin = match.start() + end
            break
    return best or text


def _keep_strings(match: re.Match[str]) -> str:
    return "" if match[0] == "," else match[0]


def _parses(text: str) -> bool:
    try:
        _JSON.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def usage_of(value: Any, seconds: float, completion_tokens: int = 0) -> Usage:
    """The cost of one call from a `usage` object; `completion_tokens` are those that were seen, for a server that sends none."""
    given = value if isinstance(value, dict) else {}
    details = given.get("prompt_tokens_details") or {}
    return Usage(
        calls=1,
        prompt_tokens=int(given.get("prompt_tokens") or 0),
        cached_tokens=int(details.get("cached_tokens") or 0),
        completion_tokens=int(given.get("completion_tokens") or completion_tokens),
        seconds=seconds,
    )


def finish_of(value: Any) -> FinishReason:
    """A server's finish reason in our words. A word that nobody knows is an end like others: whether the reply is whole is judged anyway."""
    if value in ("length", "max_tokens", "model_length", "max_output_tokens"):
        return "length"
    return "abort" if value in ("abort", "cancelled", "content_filter", "error", "safety") else "stop"


Token = tuple[str, float, tuple[tuple[str, float], ...]]  # text, log-probability, alternatives with theirs


def tokens_of(logprobs: Any) -> list[Token]:
    """The tokens of a `logprobs` object with their log-probabilities and alternatives; empty where the server gives none."""
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    return [(*_pair(item), tuple(_pair(other) for other in item.get("top_logprobs") or [])) for item in content or []]


def _pair(item: Any) -> tuple[str, float]:
    return str(item.get("token", "")), float(item.get("logprob", -math.inf))


_AROUND = " \t\r\n\"':,{}"
_GATE_TOKENS = 24  # an option that has not come by then will not come


@dataclass(slots=True)
class GateReader:
    """Finds the token of a reply that is the gate's answer, and what it decides by there.

    In JSON the answer is the value of the first key, so an option counts only after a colon; elsewhere the reply begins with it.
    """

    gate: Gate
    constraint: Constraint
    value: float | None = None
    _seen: str = ""
    _tokens: int = field(default=0)

    def feed(self, token: Token) -> bool:
        """Look at the next token; True once the answer is known."""
        text, logprob, alternatives = token
        if self.value is None and self._tokens < _GATE_TOKENS:
            before = self._seen + text[: len(text) - len(text.lstrip(_AROUND))]
            ready = not isinstance(self.constraint, JsonSchema) or ":" in before
            if ready and text.strip(_AROUND) in self.gate.options:
                self.value = gate_value(self.gate, {text: logprob, **dict(alternatives)})
            self._seen += text
            self._tokens += 1
        return self.value is not None


def gate_value(gate: Gate, logprobs: Mapping[str, float]) -> float | None:
    """What decides at a gate; tokens that differ in white space or quotes are the same option. None without any."""
    return gate.value([sum(math.exp(p) for token, p in logprobs.items() if token.strip(_AROUND) == option) for option in gate.options])


GATE = "gate"  # the finish of a draft that was left at its gate


@dataclass(slots=True)
class Draft:
    """A reply as it comes in, whole or event by event."""

    text: str = ""
    tokens: list[Token] = field(default_factory=list)
    usage: Any = None
    finish: Any = None

    def add(self, value: Any) -> list[Token]:
        """Take in a completion or one event of a stream, and give the tokens it brings. What has no `choices` raises an error of a look-up."""
        self.usage = value.get("usage") or self.usage
        if not value["choices"] and self.usage:  # the last event of a stream
            return []
        choice = value["choices"][0]
        part = choice["message"] if "message" in choice else choice["delta"]
        tokens = tokens_of(choice.get("logprobs"))
        content = part.get("content") or ""
        self.text += content if isinstance(content, str) else "".join(str(piece.get("text") or "") for piece in content)
        self.tokens += tokens
        self.finish = choice.get("finish_reason") or self.finish or ("stop" if "message" in choice else None)
        return tokens

    def reply(self, request: Request, form: Form, seconds: float) -> Reply:
        """The reply that this is; one left at its gate or cut off loses only its thoughts, and its end shows whether it was a loop."""
        gate = GateReader(request.gate, request.constraint) if request.gate else None
        if gate is not None:
            any(gate.feed(token) for token in self.tokens)
        finish: FinishReason = "gate" if self.finish == GATE else finish_of(self.finish)
        return Reply(
            text=said(self.text, request.constraint, form) if finish == "stop" else without_thoughts(self.text),
            finish_reason=finish,
            usage=usage_of(self.usage, seconds, len(self.tokens)),
            gate=gate.value if gate else None,
            logprobs=tuple((token, logprob) for token, logprob, _ in self.tokens),
        )
