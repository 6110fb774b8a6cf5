"""The model side of an index without its model: it counts as that does, replays what the ledger holds, and asks nobody."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from graphrag_local.engine.base import Embedder, EmbedderCard, Model, ModelCard, Reply, Request
from graphrag_local.engine.ledgered import Ledgered, Meter
from graphrag_local.engine.nobody import Nobody, no_model
from graphrag_local.errors import EngineHung, IndexMismatch, MissingExtra, ModelMissing
from graphrag_local.project import ProjectFolder
from graphrag_local.store.ledger import Ledger
from graphrag_local.tokens import estimate_of
from graphrag_local.wiring import ModelSide, open_embedder_of, open_no_model, tokenizer_of

WAITS = "no model was asked (--without-model); the next `index` asks it"


def model_that_made(about: Mapping[str, Any]) -> Model:
    """The model side of an index by its manifest, to count and to reckon with; whoever asks it something is refused (NoEngine).

    Raises ModelMissing where its tokenizer is not here, IndexMismatch for an index that does not say how its model counts.
    """
    if "model" not in about:
        raise IndexMismatch("This index does not say how its model counts tokens.", hint="The next `graphrag-local index` notes it.")
    card, counter, models = ModelCard(**about["model"]["card"]), about["model"]["counter"], about["models"]
    if card.absent:
        return no_model()
    count = estimate_of(counter) or tokenizer_of(counter["name"], card.name)
    return Model(generate=Nobody().generate, card=card, counter=count, temperature=models["temperature"], seed=models["seed"])


async def open_without_model(project: ProjectFolder, ledger: Ledger, about: Mapping[str, Any], say: Callable[[str], None]) -> ModelSide:
    """The model side that made an index (`about` of its manifest), of which only the replies in the ledger are left: any other request hangs.

    The embedder is the one that made the vectors, where it is in this process; else only vectors in the ledger are to be had. Raises as `model_that_made`.
    """
    card = EmbedderCard.of(about["models"])
    kept: Embedder = _KeptVectors(card)
    with contextlib.suppress(ModelMissing, MissingExtra):
        embedder = open_embedder_of(about["models"], project, lambda _: None)
        kept = embedder if embedder.card.same_as(card) else kept
    embeds = not isinstance(kept, _KeptVectors)
    if project.settings.extraction.method == "fast":
        return replace(await open_no_model(project, ledger, say, kept), embeds=embeds)
    meter, made = Meter(), model_that_made(about)
    say("No model is asked: what needs one waits for the next `index`.")
    ledgered = Ledgered(_Unheard(made.card), ledger, meter=meter)
    model = replace(made, generate=ledgered.generate, recall=ledgered.recall)
    return ModelSide(model=model, embedder=kept, ledgered=ledgered, meter=meter, kind="none", embeds=embeds)


class _Unheard:
    """An engine that nobody hears."""

    def __init__(self, card: ModelCard) -> None:
        self.card = card

    async def generate(self, request: Request) -> Reply:
        """Raises EngineHung, which the stages take as a unit that is left for later."""
        raise EngineHung(f"{WAITS[0].upper()}{WAITS[1:]}.")

    async def close(self) -> None:
        """Nothing to close."""


class _KeptVectors:
    """An embedder that is away."""

    def __init__(self, card: EmbedderCard) -> None:
        self.card = card

    async def embed(self, texts: list[str], *, query: bool = False) -> list[list[float]]:
        """Raises EngineHung; who asks has not looked which vectors there are."""
        raise EngineHung(f"{WAITS[0].upper()}{WAITS[1:]}.")

    async def close(self) -> None:
        """Nothing to close."""
