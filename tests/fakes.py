"""Small stand-ins that implement the protocols, shared by the tests of the stages."""

from collections.abc import Callable

from graphrag_local.engine.base import Form, Model, ModelCard, Reply, Request, judge
from graphrag_local.errors import ReplyInvalid
from graphrag_local.records import Chunk, Usage


class Characters:
    """A tokenizer of one token per character."""

    name = "one per character"
    exact = True

    def count(self, text: str) -> int:
        """Characters of a text."""
        return len(text)


class Bytes:
    """A byte-level tokenizer without merges."""

    name = "one per byte"
    exact = True

    def count(self, text: str) -> int:
        """Bytes of a text."""
        return len(text.encode())


def model_of(
    answer: Callable[[Request], str | Reply],
    *,
    form: Form = "schema",
    window: int = 32_000,
    tiny: bool = False,
    counter: object | None = None,
    history: list[Request] | None = None,
) -> Model:
    """A Model that answers from a function and judges its replies the way the ledgered engine does."""

    async def generate(request: Request) -> Reply:
        if history is not None:
            history.append(request)
        said = answer(request)
        reply = said if isinstance(said, Reply) else Reply(text=said, finish_reason="stop", usage=Usage(calls=1))
        outcome = judge(request, reply)
        if outcome != "ok":
            raise ReplyInvalid(f"judged {outcome}", outcome=outcome, reply=reply)
        return reply

    card = ModelCard(name="fake", revision="1", context_tokens=window, form=form, tiny=tiny)
    return Model(generate=generate, card=card, counter=counter or Characters())  # type: ignore[arg-type]


def chunk_of(text: str, *, start: int = 0, index: int = 0, document: str = "d0") -> Chunk:
    """A chunk with this text."""
    return Chunk(id=f"c{document}{index}", document_id=document, index=index, start=start, end=start + len(text), text=text)
