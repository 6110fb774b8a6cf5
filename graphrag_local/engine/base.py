"""The model side as the rest of the program sees it: two protocols, a request, a reply, and four kinds of constraint."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from graphrag_local.errors import ReplyInvalid
from graphrag_local.prompting import Message
from graphrag_local.records import Outcome, Usage
from graphrag_local.tokens import TokenCounter, fits

NO_MODEL = "none"  # the name of the model of an index that is made without one
Form = Literal["grammar", "schema"]
Purpose = Literal["extract", "describe", "report", "answer", "support", "probe"]
FinishReason = Literal["stop", "length", "gate", "abort"]

# Free text in a grammar is exactly this class, unbounded (design-review §1.3): llguidance slices the vocabulary by it, so a row costs
# about 13 µs at a 129k vocabulary; any other class, a bound {m,n} or a maxLength costs up to two hundred times as much.
TEXT_TERMINAL = r'TEXT: /[^"\\\x00-\x1F\x7F]+/'


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The reply is one of these strings."""

    options: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchema:
    """The reply is compact JSON that fits this schema; `text` is the schema as compact JSON, properties in the order of writing."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """The reply is a sentence of this Lark grammar (llguidance's dialect)."""

    lark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeText:
    """The reply is any text."""


Constraint = Choice | JsonSchema | Grammar | FreeText


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The reply begins with one of `options` (single tokens); the probability of the first one decides whether it is read on.

    With a grammar the reply starts with the option itself. `threshold` is a probability in [0, 1]; below it the reply is abandoned
    after that token (finish reason "gate"). A threshold of 0 never abandons, one over 1 always does. With `worths`, one for each option, it is their
    expectation that decides, as of grades.
    """

    options: tuple[str, ...] = ("Y", "N")
    threshold: float = 0.0
    worths: tuple[float, ...] = ()

    def value(self, shares: Sequence[float]) -> float | None:
        """What decides, from a share of each option in any unit; None where no option has one."""
        total = sum(shares)
        worths = self.worths or (1.0, *(0.0 for _ in self.options[1:]))
        return sum(worth * share for worth, share in zip(worths, shares, strict=True)) / total if total > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call to a model.

    `documents` are the ids of the documents whose text the prompt holds. `validate` raises ValueError when the reply's text cannot be used.
    `affinity` names what shares its prefix (a chunk, a window), so that it stays on the endpoint that has it cached; it is
    not part of the key. `priority`: lower goes first (questions 0, indexing 10). `max_tokens` bounds the reply. `logprobs` asks for the
    log-probabilities of the reply's tokens; where `decides` names some (white space and quotes aside), only theirs are kept. `heard` is called in the
    event loop with the text of the reply so far, as often as the engine likes; a reply that has to be asked for again begins anew.
    """

    messages: tuple[Message, ...]
    constraint: Constraint
    max_tokens: int
    purpose: Purpose
    temperature: float = 0.0
    seed: int = 0
    gate: Gate | None = None
    logprobs: bool = False
    decides: tuple[str, ...] = ()
    affinity: str = ""
    priority: int = 10
    documents: tuple[str, ...] = ()
    validate: Callable[[str], object] | None = field(default=None, compare=False)
    heard: Callable[[str], None] | None = field(default=None, compare=False)

    def key_parts(self) -> dict[str, Any]:
        """What determines the reply, besides the model: messages, constraint, sampling, gate. Affinity, priority and `decides` do not."""
        return {
            "messages": [[message.role, message.content] for message in self.messages],
            "constraint": [type(self.constraint).__name__, _constraint_value(self.constraint)],
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "gate": [list(self.gate.options), self.gate.threshold, *self.gate.worths] if self.gate else None,
            "logprobs": self.logprobs,
        }


def _constraint_value(constraint: Constraint) -> Any:
    match constraint:
        case Choice(options=options):
            return list(options)
        case JsonSchema(text=text):
            return text
        case Grammar(lark=lark):
            return lark
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back. `gate` is the probability of the gate's first option among its options, or the expectation of their worths; None where none was
    asked or given.

    `logprobs` holds (token, log-probability) pairs of the reply where asked and given.
    """

    text: str
    finish_reason: FinishReason
    usage: Usage = field(default_factory=Usage)
    gate: float | None = None
    logprobs: tuple[tuple[str, float], ...] = ()
    replayed: bool = False


Generate = Callable[[Request], Awaitable[Reply]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """Which model answers: its name, revision ("unpinned" where unknown), window in tokens, and what it was seen to obey.

    `form` is the resolved kind of constraints; `tiny` says that span grounding and quotes are the right defaults (under about 1B parameters); `absent`
    that there is no model at all, so that nothing may be asked.
    """

    name: str
    revision: str
    context_tokens: int
    form: Form
    tiny: bool = False
    logprobs: bool = True
    absent: bool = False


@runtime_checkable
class Engine(Protocol):
    """Something that answers requests. Raises EngineError; a reply that is cut off is returned, not raised."""

    @property
    def card(self) -> ModelCard:
        """Which model this is."""

    async def generate(self, request: Request) -> Reply:
        """The reply to one request."""

    async def close(self) -> None:
        """Give back connections, threads and memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderCard:
    """Which embedder made a vector: name, revision or probe digest, dimension (0: there is no embedder)."""

    name: str
    revision: str
    dimension: int

    @classmethod
    def of(cls, models: Mapping[str, Any]) -> "EmbedderCard":
        """The embedder that made an index's vectors, from the `models` of its manifest."""
        return cls(name=models["embedder"], revision=models["embedder_revision"], dimension=models["dimension"])

    def same_as(self, other: "EmbedderCard") -> bool:
        """Whether two cards mean one embedder. Revisions read off a probe vector ("probe-" and two hex digits per number) may differ by rounding."""
        if (self.name, self.dimension) != (other.name, other.dimension):
            return False
        mark, ours, theirs = "probe-", self.revision, other.revision
        if not (ours.startswith(mark) and theirs.startswith(mark) and len(ours) == len(theirs)):
            return ours == theirs
        pairs = zip(bytes.fromhex(ours.removeprefix(mark)), bytes.fromhex(theirs.removeprefix(mark)), strict=True)
        return all(abs(a - b) <= 1 for a, b in pairs)


@runtime_checkable
class Embedder(Protocol):
    """Something that turns texts into unit vectors."""

    @property
    def card(self) -> EmbedderCard:
        """Which embedder this is."""

    async def embed(self, texts: list[str], *, query: bool = False) -> list[list[float]]:
        """One unit vector per text; a text longer than the model reads is embedded in windows and pooled."""

    async def close(self) -> None:
        """Give back connections, threads and memory."""


@runtime_checkable
class Entailment(Protocol):
    """A model that says whether one text follows from another (natural language inference)."""

    async def entails(self, pairs: list[tuple[str, str]]) -> list[tuple[float, float]]:
        """For each (premise, hypothesis): the probabilities that the hypothesis follows, and that the premise contradicts it."""

    async def close(self) -> None:
        """Give back threads and memory."""


@runtime_checkable
class Reranker(Protocol):
    """A model that reads a question and a passage together and says how well one answers the other."""

    async def score(self, question: str, texts: list[str]) -> list[float]:
        """A number for each text; higher is better, without a unit."""

    async def close(self) -> None:
        """Give back threads and memory."""


@dataclass(frozen=True, slots=True)
class Marked:
    """Something that a tagger saw in a text: its place, and the label of a name in the tagger's own terms; "" for a noun phrase."""

    start: int
    end: int
    label: str = ""


@runtime_checkable
class Tagger(Protocol):
    """A linguistic pipeline that marks names and noun phrases; for an index that is made without a model."""

    @property
    def version(self) -> str:
        """Which pipeline this is: the same version marks the same in the same text."""

    def mark(self, text: str) -> list[Marked]:
        """The names of a text, which do not overlap, and its noun phrases without their articles, in the order of the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What a unit of work is given of the model side: how to ask, which model it is, how to count, and how to sample.

    `recall` gives replies that were paid for, and for any other request raises ReplyInvalid; None where nothing is kept.
    `tagger` marks names where no model is asked and the settings name one.
    """

    generate: Generate
    card: ModelCard
    counter: TokenCounter
    temperature: float = 0.0
    seed: int = 0
    recall: Generate | None = None
    tagger: Tagger | None = None

    def fits(self, messages: tuple[Message, ...], reply_tokens: int) -> bool:
        """Whether a chat and the room for its reply fit the model's window."""
        return fits(self.counter, messages, self.card.context_tokens - reply_tokens)


T = TypeVar("T")


async def ask(model: Model, request: Request, parse: Callable[[str], T], *, tries: int = 2) -> tuple[T, Reply]:
    """The parsed reply to a request; an unusable one is asked again differently (another seed, a little warmth), `tries` times in all.

    `parse` raises ValueError where the text cannot be used. Raises ReplyInvalid with the last outcome.
    """
    for attempt in range(tries):
        warmth = model.temperature if attempt == 0 else max(model.temperature, 0.3)
        try:
            reply = await model.generate(replace(request, seed=model.seed + attempt, temperature=warmth, validate=parse))
            return parse(reply.text), reply
        except ReplyInvalid:
            if attempt == tries - 1:
                raise
        except ValueError as error:  # an engine that does not judge replies itself
            if attempt == tries - 1:
                raise ReplyInvalid(f"The reply cannot be used: {error}.", outcome="invalid") from error
    raise AssertionError("tries is at least 1")


OUTCOME_WORDS: dict[str, str] = {
    "cut_off": "the reply was cut off at its length limit",
    "loop": "the reply repeated itself without end",
    "thinking": "the reply held no answer",
    "invalid": "the reply could not be read",
}


def judge(request: Request, reply: Reply) -> Outcome:
    """Whether a reply can be used: "ok", or why not. A reply abandoned at its gate is used as it is."""
    if reply.finish_reason == "gate":
        return "ok"
    if reply.finish_reason in ("length", "abort"):
        return "loop" if is_loop(reply.text) else "cut_off"
    if not reply.text.strip() and not isinstance(request.constraint, FreeText):
        return "thinking"
    if request.validate is not None:
        try:
            request.validate(reply.text)
        except ValueError:
            return "loop" if is_loop(reply.text) else "invalid"
    return "ok"


def is_loop(text: str) -> bool:
    """Whether a reply ends in white space without end, or in the same piece at least five times over (pieces of 4 to 400 characters)."""
    if len(text) - len(text.rstrip()) >= 100:
        return True
    tail = text[-4000:]
    for probe in (tail[-24:],) if len(tail) >= 120 else ():
        gap = tail.rfind(probe, 0, len(tail) - 1)
        period = len(tail) - len(probe) - gap if gap >= 0 else 0
        if 0 < period <= 400 and len(tail) >= 5 * period and tail[-period * 4:] == tail[-period * 5:-period]:
            return True
    return False


_BARE_ESCAPE = re.compile(
    r"(?<!\\)((?:\\\\)*)\\(?=[fb][a-z]|(?:neq|nabla|notin|rho|rangle|rightarrow|tau|times|theta|tilde|tfrac|text(?:bf|it|rm)?)(?![a-z])|"
    r'[^"\\/bfnrtu]|u(?![0-9a-fA-F]{4}))'
)
_FENCE = re.compile(r"^\s*```[a-zA-Z]*\s*\n(.*?)\n?\s*```\s*$", re.DOTALL)
_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")


def mended_escapes(text: str) -> str:
    """A JSON text in which a back slash that begins no escape, or a command of LaTeX, stands for itself."""
    return _BARE_ESCAPE.sub(r"\1\\\\", text)


def read_json(text: str) -> Any:
    """The JSON value of a reply; raises ValueError with the beginning of the text where there is none.

    Servers that do not enforce a schema send fences, a sentence before or after, or a comma too many: those are taken off. A back slash
    before `frac`, `beta`, `neq` or `sigma` is LaTeX (form feed and backspace are never meant, a line break hardly), and one that begins no
    escape stands for itself.
    """
    fenced = _FENCE.match(text)
    body = fenced.group(1) if fenced else text
    start = min((at for at in (body.find("{"), body.find("[")) if at >= 0), default=0)
    body = mended_escapes(body[start : max(body.rfind("}"), body.rfind("]")) + 1])
    for candidate in (body, _TRAILING_COMMA.sub("", body)):
        try:
            return json.loads(candidate, strict=False)
        except (ValueError, RecursionError):
            continue
    raise ValueError(f"it is not JSON; it begins {text[:80]!r}")


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object with just these properties, all of them."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def schema_of(schema: dict[str, Any]) -> JsonSchema:
    """A JSON schema as a constraint. The order of its properties is kept: servers make the model write them in it, and a gate must come first."""
    return JsonSchema(text=json.dumps(schema, separators=(",", ":"), ensure_ascii=False, allow_nan=False))
