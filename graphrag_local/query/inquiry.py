"""One question while it is being answered: what its steps share, how they call the model, what that costs, and what there is to say about it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from graphrag_local.answers import AnswerSentence
from graphrag_local.engine.base import Constraint, Embedder, Gate, Grammar, Model, Reply, Request, Reranker
from graphrag_local.errors import ContextOverflow, ReplyInvalid
from graphrag_local.prompting import Message, Prompt
from graphrag_local.query.context import Ref, shown_as
from graphrag_local.query.language import LONGEST_INSTRUCTION, instruction
from graphrag_local.query.schema import CHOICE_TOKENS, Answered, Uncited
from graphrag_local.query.trace import Trace
from graphrag_local.query.view import View
from graphrag_local.query.windows import Window, evidence_room, reply_room
from graphrag_local.records import Usage
from graphrag_local.settings import QuerySettings

T = TypeVar("T")
TRIES = 2
WARMTH = 0.3  # temperature at least, when an unusable reply is asked for again
ITEM_TOKENS = 48  # of a point or paragraph of one short sentence: no more items are asked for than the room for the reply holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """A paragraph of an answer before its citations are numbered; `sentences` are those of its text where they were checked already, and `said` is its
    text as it was then, by which the places that its citations open were chosen."""

    text: str
    refs: tuple[Ref, ...]
    sentences: tuple[AnswerSentence, ...] = ()
    said: str = ""


class Ear(Protocol):
    """Who listens to an answer in the making (see `telling`)."""

    def hearing(self, read: Callable[[str], Answered], ids: Mapping[str, Ref], *, lines: bool, words: bool) -> Callable[[str], None]:
        """What takes the text so far of a reply that is the answer; `lines`: it comes line by line, `words`: an unfinished line is worth showing."""

    def progress(self, text: str) -> None:
        """A sentence for the person who waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[T]):
    """What became of one call: the reply read, or None where it was left at its gate or unusable each time.

    `problem` says why it was unusable; `uncited` that it is well formed but cites nothing that it was given.
    """

    value: T | None
    gate: float | None
    problem: str = ""
    uncited: bool = False
    cut_off: bool = False


@dataclass(slots=True, kw_only=True)
class Inquiry:
    """A question, what it is asked of, and what its calls have cost so far."""

    question: str
    view: View
    model: Model
    prompts: Mapping[str, Prompt]
    settings: QuerySettings
    turn: int = 0
    search: tuple[str, ...] = ()  # what passages are looked for by, where that is not the question (see `passages`)
    reranker: Reranker | None = None
    embedder: Embedder | None = None  # by which quotes are measured
    ear: Ear | None = None
    trace: Trace | None = None
    missing: str = ""  # the part of the question that the answer leaves open
    usage: Usage = field(default_factory=Usage)
    notes: list[str] = field(default_factory=list)

    @property
    def quotes(self) -> bool:
        """Whether the model only chooses what is quoted: it is too small to write, and held to its choice by a grammar."""
        return self.model.card.tiny and self.model.card.form == "grammar"

    def messages(self, prompt: str, *, items: int, may_decline: bool, text: str) -> tuple[Message, ...]:
        """A chat of this prompt; what depends on the question comes after the evidence, so that windows stay cached."""
        language = instruction(self.question, self.settings.language)
        return self._rendered(prompt, items=items, may_decline=may_decline, text=text, language=language, question=shown_as(self.question))

    def _rendered(self, prompt: str, **values: object) -> tuple[Message, ...]:
        return self.prompts[prompt].render(form=self.model.card.form, quotes=self.quotes, **values)

    def room(self, prompt: str, *, wanted: int, reply: int) -> int:
        """Tokens for evidence in calls of this prompt: the same for questions of any language, so that windows are too."""
        wanted_language = self.settings.language.strip()
        language = instruction("", wanted_language) if wanted_language else LONGEST_INSTRUCTION
        empty = self._rendered(prompt, items=self.items(99, reply), may_decline=True, text="", language=language, question="")
        return evidence_room(self.model, empty, shown_as(self.question), reply, wanted)

    def reply_tokens(self, wanted: int) -> int:
        """Room for a reply."""
        return reply_room(self.model, wanted)

    def items(self, most: int, reply_tokens: int) -> int:
        """Points or paragraphs that a reply may hold; of choices so many that the longest reply fits, with its Y and its end."""
        return max(1, min(most, (reply_tokens - 3) // CHOICE_TOKENS if self.quotes else reply_tokens // ITEM_TOKENS))

    def request(self, messages: tuple[Message, ...], constraint: Constraint, max_tokens: int, *, gate: float | None, window: Window) -> Request:
        """A call about a window; `gate` is the threshold of its Y or N, None where it has none."""
        return Request(
            messages=messages,
            constraint=constraint,
            max_tokens=max_tokens,
            purpose="answer",
            gate=None if gate is None else Gate(options=("Y", "N"), threshold=gate),
            affinity=window.digest,
            priority=0,
            documents=window.documents,
        )

    async def ask(self, request: Request, read: Callable[[str], T]) -> Outcome[T]:
        """The reply to a request, read; an unusable one is asked for once more with another seed.

        A reply that is cut off counts with what is complete in it. Raises ContextOverflow, without a call where we see it coming.
        """
        if not self.model.fits(request.messages, request.max_tokens):
            window = self.model.card.context_tokens
            raise ContextOverflow(f"A prompt and its reply do not fit the model's window of {window} tokens.", window=window)
        gate: float | None = None
        problem: Exception = ValueError("it is empty")
        for attempt in range(TRIES):
            warmth = self.model.temperature if attempt == 0 else max(self.model.temperature, WARMTH)
            reply = await self._generate(replace(request, seed=self.model.seed + attempt, temperature=warmth, validate=read))
            if reply is None:
                continue
            gate = reply.gate if gate is None else gate
            if reply.finish_reason == "gate":
                return Outcome(value=None, gate=gate)
            complete = reply.finish_reason == "stop"
            try:
                return Outcome(value=read(_whole_lines(request, reply)), gate=gate, cut_off=not complete)
            except ValueError as error:
                problem = error
        return Outcome(value=None, gate=gate, problem=str(problem), uncited=isinstance(problem, Uncited))

    async def probe(self, request: Request) -> float | None:
        """The gate of a request whose reply does not matter."""
        reply = await self._generate(request)
        return reply.gate if reply else None

    async def _generate(self, request: Request) -> Reply | None:
        """The reply as it came, also where the engine judged it unusable; None where nothing is left of it."""
        try:
            reply: Reply | None = await self.model.generate(request)
        except ReplyInvalid as error:
            reply = error.reply if isinstance(error.reply, Reply) else None
        self.usage += replace(reply.usage if reply else Usage(), calls=1)
        return reply


def _whole_lines(request: Request, reply: Reply) -> str:
    """The reply; without its last, broken line where it was cut off (in JSON the reader sees by itself what is complete)."""
    if reply.finish_reason == "stop" or not isinstance(request.constraint, Grammar):
        return reply.text
    return reply.text.rpartition("\n")[0]
