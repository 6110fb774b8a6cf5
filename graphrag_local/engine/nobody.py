"""The model side of an index that is made without a model: nobody is asked, and whoever asks all the same is told so."""

from graphrag_local.engine.base import NO_MODEL, Model, ModelCard, Reply, Request
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


def no_model() -> Model:
    """A model that is none."""
    return Model(generate=Nobody().generate, card=CARD, counter=BySize())
