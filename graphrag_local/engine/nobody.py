"""The model side of an index that is made without a model: nobody is asked, and whoever asks all the same is told so."""

from dataclasses import replace

from graphrag_local.engine.base import NO_MODEL, Model, ModelCard, Reply, Request, Tagger
from graphrag_local.errors import NoEngine
from graphrag_local.text import size

CARD = ModelCard(name=NO_MODEL, revision="", context_tokens=0, form="grammar", tiny=True, logprobs=False, absent=True)


class Nobody:
    """An engine without a model."""

    card = CARD

    async def generate(self, request: Request) -> Reply:
        """Raises NoEngine."""
        raise NoEngine(f"A model was to be asked ({request.purpose}), and this index is made without one.", hint="Set extraction.method=standard.")

    async def close(self) -> None:
        """Nothing to close."""


class BySize:
    """Counts text in the measure that chunks are cut by, for budgets that no model sets."""

    name = "bytes / 4.6"
    exact = False

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return int(size(text)) + 1


def how(tagger: Tagger | None) -> str:
    """How an index is made without a model, in a sentence."""
    if tagger:
        return f"No model is asked: names and phrases are found by {tagger.version}, and what stands together by statistics (extraction.method = fast)."
    return "No model is asked: names, phrases and what stands together are found by statistics (extraction.method = fast)."


def no_model(tagger: Tagger | None = None) -> Model:
    """A model that is none; which tagger does a part of its work is part of the card, as a model's revision is, so that another is noticed."""
    return Model(generate=Nobody().generate, card=replace(CARD, revision=tagger.version if tagger else ""), counter=BySize(), tagger=tagger)
