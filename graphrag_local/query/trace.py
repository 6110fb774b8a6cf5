"""The trace of one question: what was looked for, read and cut, and every request with its reply; and the answer again, from a trace alone.

A trace takes the place of everything outside the index that an answer depends on: the model, the embedder, the reranker and the entailment model. It
holds text of the documents.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from graphrag_local.answers import Answer, Turn
from graphrag_local.engine.base import Embedder, EmbedderCard, Entailment, Model, ModelCard, Reply, Request, Reranker
from graphrag_local.errors import ContextOverflow, EngineError, ReplyInvalid, UsageError
from graphrag_local.ids import fingerprint
from graphrag_local.prompting import Message, Prompt
from graphrag_local.query.context import Ref
from graphrag_local.query.view import View
from graphrag_local.records import Usage
from graphrag_local.tokens import TokenCounter, described, estimate_of

VERSION = 1
AGAIN = "A trace answers its own question over its own generation, with the prompts and the version of this program that made it; ask without --replay."
Score = float | None


def key_of(request: Request, card: ModelCard) -> str:
    """The key of a request, the one under which a ledger would keep its reply."""
    return fingerprint(request.key_parts() | {"model": card.name, "revision": card.revision})


@dataclass(slots=True, kw_only=True)
class Trace:
    """What is written down while one question is answered; each `note` is a step, in the order in which they were made.

    `documents` are the ids of all documents whose text or names are in it.
    """

    about: dict[str, Any] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    documents: set[str] = field(default_factory=set)
    _vectors: list[Any] = field(default_factory=list)
    _scores: list[Any] = field(default_factory=list)
    _shares: list[Any] = field(default_factory=list)
    _stages: dict[tuple[Message, ...], str] = field(default_factory=dict)

    def note(self, step: str, **values: Any) -> None:
        """Write down a step; values are JSON."""
        self.steps.append({"step": step, **values})

    def records(self, view: View, refs: Iterable[Ref], scores: Mapping[str, float] | None = None) -> list[dict[str, Any]]:
        """Records for a note, each once: kind, id, what people know it by, and its score where it has one."""
        rows = []
        for kind, owner in dict.fromkeys((ref.kind, ref.id) for ref in refs):
            label, documents = _known_as(view, kind, owner)
            self.documents.update(documents)
            row = {"kind": kind, "id": owner, "label": label}
            rows.append(row | {"score": scores[owner]} if scores and owner in scores else row)
        return rows

    def cut(self, view: View, why: str, refs: Iterable[Ref], scores: Mapping[str, float] | None = None) -> list[dict[str, Any]]:
        """What was left out and why, for a note; nothing where nothing was."""
        records = self.records(view, refs, scores)
        return [{"why": why, "records": records}] if records else []

    def window(self, view: View, what: str, ids: Mapping[str, Ref], tokens: int, offered: Iterable[Ref]) -> None:
        """A window that was filled from what was offered: what is in it, and what had no room."""
        shown = {(ref.kind, ref.id) for ref in ids.values()}
        missing = (ref for ref in offered if (ref.kind, ref.id) not in shown)
        self.note("window", what=what, tokens=tokens, kept=self.records(view, ids.values()), cut=self.cut(view, "no room in the window", missing))

    # --- in front of what answers

    def model(self, model: Model) -> Model:
        """A model whose requests and replies are written down."""

        async def generate(request: Request) -> Reply:
            call = self._call(request, model.card)
            try:
                reply = await model.generate(request)
            except EngineError as error:
                call["error"] = _error(error)
                raise
            call["reply"] = asdict(reply)
            return reply

        self.about |= {"model": asdict(model.card), "temperature": model.temperature, "seed": model.seed, "counter": described(model.counter)}
        return replace(model, generate=generate)

    def _call(self, request: Request, card: ModelCard) -> dict[str, Any]:
        stage = self._stages.get(request.messages, request.purpose)
        call = {"key": key_of(request, card), "stage": stage, "purpose": request.purpose, **request.key_parts(), "documents": list(request.documents)}
        self.documents.update(request.documents)
        self.calls.append(call)
        return call

    def prompts(self, prompts: Mapping[str, Prompt]) -> dict[str, Prompt]:
        """The same prompts; what they render is known by their names afterwards."""
        return {name: _Watched(**asdict(prompt), stages=self._stages) for name, prompt in prompts.items()}

    def embedder(self, inner: Embedder) -> Embedder:
        """An embedder whose vectors are written down."""
        self.about["embedder"] = asdict(inner.card)
        return _Embedded(inner, self._vectors)

    def reranker(self, inner: Reranker | None) -> Reranker | None:
        """A reranker whose scores are written down."""
        return _Reranked(inner, self._scores) if inner else None

    def entailment(self, inner: Entailment | None) -> Entailment | None:
        """An entailment model whose shares are written down."""
        self.about["entailment"] = inner is not None
        return _Entailed(inner, self._shares) if inner else None

    def content(self) -> dict[str, Any]:
        """The trace as JSON."""
        stages: dict[str, Usage] = {}
        for call in self.calls:
            reply = call.get("reply") or call.get("error", {}).get("reply") or {}
            cost = replace(Usage(**reply.get("usage", {})), calls=1)
            stages[call["stage"]] = stages.get(call["stage"], Usage()) + cost
        return {
            "version": VERSION,
            **self.about,
            "documents": sorted(self.documents),
            "steps": self.steps,
            "stages": {name: asdict(usage) for name, usage in stages.items()},
            "calls": self.calls,
            "vectors": self._vectors,
            "reranked": self._scores,
            "entailed": self._shares,
        }


def _known_as(view: View, kind: str, owner: str) -> tuple[str, Sequence[str]]:
    """What people know a record by, and the documents it came from."""
    if kind == "chunk" and owner in view.chunks:
        chunk = view.chunks[owner]
        document = view.documents.get(chunk.document_id)
        return f"{document.path if document else chunk.document_id} ({chunk.start}-{chunk.end})", (chunk.document_id,)
    if kind == "report" and owner in view.reports:
        return view.reports[owner].title, view.reports[owner].documents
    documents = view.documents_of([owner])
    if kind == "relationship" and owner in view.relationships:
        edge = view.relationships[owner]
        return " – ".join(view.entities[end].name for end in (edge.source_id, edge.target_id)), documents
    if kind == "entity" and owner in view.entities:
        return view.entities[owner].name, documents
    return (view.claims[owner].type if owner in view.claims else owner), documents


def _error(error: EngineError) -> dict[str, Any]:
    reply = getattr(error, "reply", None)
    kept = {name: getattr(error, name) for name in ("outcome", "window", "prompt_tokens") if hasattr(error, name)}
    return {"kind": type(error).__name__, "message": str(error), "hint": error.hint, "reply": asdict(reply) if isinstance(reply, Reply) else None, **kept}


@dataclass(frozen=True, kw_only=True)
class _Watched(Prompt):
    """A prompt that says which messages are its own."""

    stages: dict[tuple[Message, ...], str] = field(compare=False, repr=False)

    def render(self, **values: object) -> tuple[Message, ...]:
        """As any prompt does."""
        messages = Prompt.render(self, **values)
        self.stages[messages] = self.name
        return messages


class _Embedded:
    def __init__(self, inner: Embedder, kept: list[Any]) -> None:
        self._inner, self._kept = inner, kept

    @property
    def card(self) -> EmbedderCard:
        return self._inner.card

    async def embed(self, texts: list[str], *, query: bool = False) -> list[list[float]]:
        vectors = await self._inner.embed(texts, query=query)
        self._kept.append([[texts, query], [list(map(float, vector)) for vector in vectors]])
        return vectors

    async def close(self) -> None:
        await self._inner.close()


class _Reranked:
    def __init__(self, inner: Reranker, kept: list[Any]) -> None:
        self._inner, self._kept = inner, kept

    async def score(self, question: str, texts: list[str]) -> list[float]:
        scores = await self._inner.score(question, texts)
        self._kept.append([[question, texts], list(map(float, scores))])
        return scores

    async def close(self) -> None:
        await self._inner.close()


class _Entailed:
    def __init__(self, inner: Entailment, kept: list[Any]) -> None:
        self._inner, self._kept = inner, kept

    async def entails(self, pairs: list[tuple[str, str]]) -> list[tuple[float, float]]:
        shares = await self._inner.entails(pairs)
        self._kept.append([[list(pair) for pair in pairs], [[float(a), float(b)] for a, b in shares]])
        return shares

    async def close(self) -> None:
        await self._inner.close()


# --- the answer again


class Replay:
    """Stands for the model side of a trace: what was asked then is answered from it, and whatever was not is an error that says so."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        if content.get("version") != VERSION:
            raise UsageError(f"The trace is of version {content.get('version')}; this program reads version {VERSION}.", hint="Ask the question anew.")
        self.content = content
        self.card = ModelCard(**content["model"])
        self._calls: dict[str, deque[dict[str, Any]]] = {}
        for call in content["calls"]:
            if "reply" in call or "error" in call:
                self._calls.setdefault(call["key"], deque()).append(call)
        self._kept = {what: {fingerprint(asked): given for asked, given in content[what]} for what in ("vectors", "reranked", "entailed")}

    def model(self, counter: TokenCounter) -> Model:
        """The model."""
        return Model(generate=self._generate, card=self.card, counter=counter, temperature=self.content["temperature"], seed=self.content["seed"])

    async def _generate(self, request: Request) -> Reply:
        left = self._calls.get(key_of(request, self.card))
        if not left:
            raise UsageError(f"The trace holds no reply to a request for {request.purpose!r} that this question makes now.", hint=AGAIN)
        call = left.popleft() if len(left) > 1 else left[0]  # the same request may have been made twice
        if "error" in call:
            raise _raised(call["error"])
        return _reply(call["reply"])

    def given(self, what: str, asked: Any) -> Any:
        """What a small model gave then."""
        key = fingerprint(asked)
        if key not in self._kept[what]:
            raise UsageError(f"The trace has nothing under {what!r} for what this question asks now.", hint=AGAIN)
        return self._kept[what][key]

    def embedder(self) -> Embedder:
        """The embedder."""
        return _GivenVectors(self)

    def reranker(self) -> Reranker | None:
        """The reranker, where there was one that was asked."""
        return _GivenScores(self) if self.content["reranked"] else None

    def entailment(self) -> Entailment | None:
        """The entailment model, where there was one."""
        return _GivenShares(self) if self.content["entailment"] else None

    def history(self) -> tuple[Turn, ...]:
        """The conversation before the question."""
        return tuple(Turn(**turn) for turn in self.content["history"])

    def counter(self) -> TokenCounter | None:
        """How tokens were counted where that was an estimate, else None: then it takes the model's own tokenizer."""
        return estimate_of(self.content["counter"])

    def checked(self, answer: Answer) -> Answer:
        """The replayed answer with what only clocks and the service knew; UsageError where it is another than the trace's."""
        then = self.content["answer"]
        notes = (*answer.notes, self.content["note"]) if self.content["note"] else answer.notes
        if then is None:
            return replace(answer, notes=notes)
        answer = replace(answer, notes=notes, usage=replace(answer.usage, seconds=then["usage"]["seconds"]))
        if fingerprint(asdict(answer)) != fingerprint(then):
            raise UsageError("The same replies give another answer now than the trace holds.", hint=AGAIN)
        return answer


class _GivenVectors:
    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._card = EmbedderCard(**replay.content["embedder"])

    @property
    def card(self) -> EmbedderCard:
        return self._card

    async def embed(self, texts: list[str], *, query: bool = False) -> list[list[float]]:
        vectors: list[list[float]] = self._replay.given("vectors", [texts, query])
        return vectors

    async def close(self) -> None:
        return


class _GivenScores:
    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    async def score(self, question: str, texts: list[str]) -> list[float]:
        scores: list[float] = self._replay.given("reranked", [question, texts])
        return scores

    async def close(self) -> None:
        return


class _GivenShares:
    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    async def entails(self, pairs: list[tuple[str, str]]) -> list[tuple[float, float]]:
        return [(a, b) for a, b in self._replay.given("entailed", [list(pair) for pair in pairs])]

    async def close(self) -> None:
        return


def _reply(kept: Mapping[str, Any]) -> Reply:
    pairs = tuple((str(token), float(p)) for token, p in kept["logprobs"])
    return Reply(**{**kept, "usage": Usage(**kept["usage"]), "logprobs": pairs})


def _raised(kept: Mapping[str, Any]) -> EngineError:
    match kept["kind"]:
        case "ReplyInvalid":
            return ReplyInvalid(kept["message"], outcome=kept["outcome"], reply=_reply(kept["reply"]) if kept["reply"] else None)
        case "ContextOverflow":
            return ContextOverflow(kept["message"], window=kept["window"], prompt_tokens=kept["prompt_tokens"], hint=kept["hint"])
    return EngineError(kept["message"], hint=kept["hint"])
