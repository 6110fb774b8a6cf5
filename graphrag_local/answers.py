"""What a question gets: ranked records, or an answer with citations that open at exact words. No I/O."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from graphrag_local.errors import UsageError
from graphrag_local.records import RecordKind, Usage

Verdict = Literal["supported", "partly", "unsupported", "unchecked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The exact place behind a citation; `quote == document.text[start:end]`. `place` is a page, slide or line."""

    document: str
    chunk: str
    start: int
    end: int
    quote: str
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """One numbered citation of an answer, resolved to the spans it stands on."""

    n: int
    kind: RecordKind
    id: str
    title: str
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSentence:
    """One sentence of an answer, the citation numbers it carries, and whether what they open supports it.

    `p` is the probability that all of it is supported; None where it was not checked or the model tells no probabilities.
    """

    text: str
    cites: tuple[int, ...]
    verdict: Verdict = "unchecked"
    p: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An earlier question and its answer; the answer may be empty."""

    question: str
    answer: str = ""


def turns_of(value: Any) -> tuple[Turn, ...]:
    """The turns of a conversation, oldest first, from JSON; raises UsageError where it is no list of questions with answers."""
    rows: list[Any] = value if isinstance(value, list) else [None]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or not isinstance(row.get("question"), str) or not isinstance(row.get("answer", ""), str):
            where = f"entry {number} is" if isinstance(value, list) else "it is"
            raise UsageError(f"The history is no conversation: {where} not as it must be.", hint='Write [{"question": "…", "answer": "…"}, …], oldest first.')
    return tuple(Turn(question=row["question"], answer=row.get("answer", "")) for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One retrieved record with its place and score (higher is better), best first."""

    id: str
    kind: RecordKind
    document: str
    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer object, the same from command line, HTTP and Python.

    `missing` is the part of the question that the answer leaves open, in the model's words. Where nothing is answered `answer` says so, there are no
    citations, and `nearest` has the passages that came closest.
    """

    answer: str
    mode: str
    level: int | None
    generation: str
    citations: tuple[Citation, ...] = ()
    answered: bool = True
    stale: bool = False
    sentences: tuple[AnswerSentence, ...] = ()
    missing: str = ""
    nearest: tuple[Source, ...] = ()
    usage: Usage = field(default_factory=Usage)
    notes: tuple[str, ...] = ()


EventKind = Literal["progress", "text", "citation", "sentence", "restart", "done", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What is heard of an answer while it is made.

    The texts of `text` and `citation` events, joined, are the answer's text; `restart` says that those so far do not count. A `sentence` comes when
    its verdict is there. `done` has the whole answer; `progress` and `error` have a sentence for people.
    """

    kind: EventKind
    text: str = ""
    citation: Citation | None = None
    sentence: AnswerSentence | None = None
    answer: Answer | None = None
    hint: str = ""

    def data(self) -> dict[str, Any]:
        """The event as programs get it, beside its kind: of `done` the answer object, of `sentence` one as there, of `error` an error object."""
        if self.answer is not None:
            return asdict(self.answer)
        if self.sentence is not None:
            return asdict(self.sentence)
        if self.citation is not None:
            return {"text": self.text, "citation": asdict(self.citation)}
        return {"error": {"message": self.text, "hint": self.hint}} if self.kind == "error" else {"text": self.text}


Listener = Callable[[Event], None]
