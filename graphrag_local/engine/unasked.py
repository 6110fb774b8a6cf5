"""An engine that asks nobody: it notes what would have to be asked, so that a run over it and a ledger says what the run would cost."""

from dataclasses import dataclass, replace
from typing import Literal

from graphrag_local.engine.base import ModelCard, Purpose, Reply, Request
from graphrag_local.errors import EngineHung, ReplyInvalid
from graphrag_local.ids import fingerprint
from graphrag_local.tokens import TokenCounter, count_messages

Kind = Literal["extraction", "gleaning", "canonical names", "descriptions", "reports", "other"]
# An extraction that names nothing. It stands for the reply that is missing, so that the other half of a passage too long for the window is asked, too.
NOTHING = {"grammar": "?\tN", "schema": '{"entities":[],"relationships":[]}'}


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """A request whose reply is not there, with the tokens of its text and those that a chat template adds to it at most.

    `about` names who asks it: the chunks of an extraction, the documents of names, the subject of a description.
    """

    kind: Kind
    prompt_tokens: int
    template_tokens: int
    max_tokens: int
    about: tuple[str, ...]


class Unasked:
    """Put below a ledger in the place of a model: `missed` are the requests that the ledger cannot answer, each once, in the order in which they came.

    First turns of extraction are answered with an extraction of nothing; everything else fails as a request that hung, which the stages take as a
    failed unit and go on. `unread` are the chunks whose extraction is not all there.
    """

    def __init__(self, card: ModelCard, counter: TokenCounter) -> None:
        self.unread: set[str] = set()
        self._card = card
        self._counter = counter
        self._missed: dict[str, Missed] = {}

    @property
    def card(self) -> ModelCard:
        """The card of the model that would be asked: the ledger's keys hold its name and revision."""
        return self._card

    @property
    def missed(self) -> tuple[Missed, ...]:
        """What would have to be asked."""
        return tuple(self._missed.values())

    def of(self, *kinds: Kind) -> list[Missed]:
        """What would have to be asked of these kinds."""
        return [one for one in self._missed.values() if one.kind in kinds]

    async def generate(self, request: Request) -> Reply:
        """Note the request. Raises EngineHung, or ReplyInvalid for a further turn about a chunk, which then stands as it is."""
        kind, nothing = _kind(request), NOTHING[self._card.form]
        if kind in ("extraction", "gleaning"):
            self.unread.add(request.affinity)
        if kind == "gleaning" and any(message.content == nothing for message in request.messages if message.role == "assistant"):
            raise ReplyInvalid("Nobody was asked.", outcome="invalid")  # what such a turn would say depends on a reply that is not there
        key = fingerprint(request.key_parts())
        known = self._missed.get(key)
        if known is None:
            text = sum(self._counter.count(message.content) for message in request.messages)
            template = count_messages(self._counter, request.messages) - text
            self._missed[key] = Missed(
                kind=kind, prompt_tokens=text, template_tokens=template, max_tokens=request.max_tokens, about=(request.affinity,)
            )  # fmt: skip
        elif request.affinity not in known.about:
            self._missed[key] = replace(known, about=(*known.about, request.affinity))
        if kind == "extraction":
            return Reply(text=nothing, finish_reason="stop")
        if kind == "gleaning":
            raise ReplyInvalid("Nobody was asked.", outcome="invalid")
        raise EngineHung("Nobody was asked.")

    async def close(self) -> None:
        """Nothing to close."""


_KINDS: dict[Purpose, Kind] = {"describe": "descriptions", "report": "reports"}


def _kind(request: Request) -> Kind:
    if request.purpose == "extract":
        return "gleaning" if any(message.role == "assistant" for message in request.messages) else "extraction"
    if request.purpose == "describe" and request.affinity in request.documents:
        return "canonical names"
    return _KINDS.get(request.purpose, "other")
