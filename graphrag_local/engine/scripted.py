"""Engines without a model: one that answers from a function, and one that also takes the time that a model would take."""

import asyncio
import math
from collections.abc import Callable

from graphrag_local.engine.base import ModelCard, Reply, Request
from graphrag_local.errors import ContextOverflow
from graphrag_local.records import Usage

Answer = Callable[[Request], str | Reply]
CARD = ModelCard(name="scripted", revision="1", context_tokens=32_768, form="grammar")
CHARACTERS_PER_TOKEN = 4


def tokens_of(text: str) -> int:
    """Tokens as these engines count them: four characters each."""
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)


class ScriptedEngine:
    """Answers from a function and remembers in `history` what it was asked.

    The function gives the reply's text, or a whole Reply (to set a finish reason, a gate or log-probabilities), or raises an EngineError. A
    text is given back as it is, whatever `max_tokens` says; a gate under the request's threshold ends the reply, and a request longer than the
    card's window is refused, as with a server. Who listens to a reply hears it four characters at a time.
    """

    def __init__(self, answer: Answer, card: ModelCard = CARD, *, latency_s: float = 0.0) -> None:
        self.history: list[Request] = []
        self._answer = answer
        self._card = card
        self._latency_s = latency_s

    @property
    def card(self) -> ModelCard:
        """The card it was given."""
        return self._card

    async def generate(self, request: Request) -> Reply:
        """What the function says."""
        self.history.append(request)
        _checked(request, self._card)
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        reply = _finished(request, self._answer(request))
        if request.heard:
            for end in range(CHARACTERS_PER_TOKEN, len(reply.text) + CHARACTERS_PER_TOKEN, CHARACTERS_PER_TOKEN):
                request.heard(reply.text[:end])
                await asyncio.sleep(0)
        return reply

    async def close(self) -> None:
        """Nothing to close."""


def _checked(request: Request, card: ModelCard) -> None:
    prompt = sum(tokens_of(message.content) for message in request.messages)
    if card.context_tokens and prompt + request.max_tokens > card.context_tokens:
        message = f"A prompt of {prompt} tokens and a reply of {request.max_tokens} do not fit {card.context_tokens}."
        raise ContextOverflow(message, window=card.context_tokens, prompt_tokens=prompt)


def _finished(request: Request, said: str | Reply) -> Reply:
    """The function's answer as an engine gives it: with its cost, and left at its gate where that is too low."""
    reply = said if isinstance(said, Reply) else Reply(text=said, finish_reason="stop")
    options = request.gate.options if request.gate else ()
    left = request.gate is not None and reply.gate is not None and reply.gate < request.gate.threshold
    text = next((option for option in options if reply.text.startswith(option)), "") if left else reply.text
    prompt = sum(tokens_of(message.content) for message in request.messages)
    cost = Usage(calls=1, prompt_tokens=prompt, completion_tokens=tokens_of(text))
    return Reply(
        text=text,
        finish_reason="gate" if left else reply.finish_reason,
        usage=reply.usage if reply.usage.calls else cost,
        gate=reply.gate,
        logprobs=reply.logprobs if request.logprobs else (),
    )


class SimulatedEngine:
    """A server with a fixed rate and `slots` places, for benches: a request holds a place for the time its tokens take.

    No batching is modelled: a place is as fast when it is alone. Seconds are divided by `clock_scale`.
    """

    def __init__(
        self,
        answer: Answer,
        *,
        slots: int = 16,
        prompt_token_s: float = 0.0005,
        reply_token_s: float = 0.02,
        card: ModelCard = CARD,
        clock_scale: float = 1.0,
    ) -> None:
        self.history: list[Request] = []
        self._answer = answer
        self._slots = asyncio.Semaphore(slots)
        self._rates = (prompt_token_s / clock_scale, reply_token_s / clock_scale)
        self._card = card

    @property
    def card(self) -> ModelCard:
        """The card it was given."""
        return self._card

    async def generate(self, request: Request) -> Reply:
        """What the function says, after the time that it takes."""
        self.history.append(request)
        _checked(request, self._card)
        async with self._slots:
            reply = _finished(request, self._answer(request))
            await asyncio.sleep(reply.usage.prompt_tokens * self._rates[0] + reply.usage.completion_tokens * self._rates[1])
        return reply

    async def close(self) -> None:
        """Nothing to close."""
