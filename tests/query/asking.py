"""Asks as the program does: through an engine that is heard word by word, behind the one that judges replies."""

import asyncio
from dataclasses import dataclass, field, replace

from graphrag_local.answers import Answer, Event
from graphrag_local.engine.base import Model, Reply
from graphrag_local.engine.ledgered import Ledgered
from graphrag_local.engine.scripted import CARD, ScriptedEngine
from graphrag_local.prompting import load_all
from graphrag_local.query.ask import ask
from graphrag_local.settings import QuerySettings
from tests.fakes import Characters
from tests.query.world import WordEmbedder

PROMPTS = load_all()


@dataclass
class Asked:
    """An answer, what was heard of it, and what the model was asked."""

    answer: Answer
    events: list[Event]
    history: list

    def of(self, kind):
        """The events of a kind."""
        return [event for event in self.events if event.kind == kind]

    @property
    def heard(self):
        """The text that was shown and counts."""
        text = ""
        for event in self.events:
            text = "" if event.kind == "restart" else text + event.text if event.kind in ("text", "citation") else text
        return text

    @property
    def checks(self):
        """The requests that check a sentence."""
        return [request for request in self.history if request.purpose == "support"]


@dataclass
class Judge:
    """Says of each checked sentence what `verdict` gives for it: a letter, and the probability of Y."""

    verdict: dict[str, tuple[str, float | None]] = field(default_factory=dict)

    def __call__(self, request):
        sentence = checked_sentence(request)
        letter, p = next((given for key, given in self.verdict.items() if key in sentence), ("Y", 0.9))
        return Reply(text=letter, finish_reason="stop", gate=p)


def checked_sentence(request):
    """The sentence that a check is about."""
    return request.messages[-1].content.rpartition("Sentence: ")[2]


def asked(
    index, answer, *, judge=None, question="Who paid for the mole?", mode="basic", form="grammar", tiny=False, strict=False, entailment=None, deaf=False,
    **options,
):  # fmt: skip
    """The answer with everything around it; `answer` gives the replies of all calls that check nothing."""

    def reply(request):
        return (judge or Judge())(request) if request.purpose == "support" else answer(request)

    engine = ScriptedEngine(reply, replace(CARD, form=form, tiny=tiny))
    model = Model(generate=Ledgered(engine, None).generate, card=engine.card, counter=Characters())
    events = []
    settings = QuerySettings(**{"window_tokens": 4000, "map_reply_tokens": 600, "reply_tokens": 600, **options})
    work = ask(
        question, index, model, WordEmbedder(), PROMPTS, settings,
        mode=mode, level=None, strict=strict, entailment=entailment, listen=None if deaf else events.append,
    )  # fmt: skip
    return Asked(asyncio.run(work), events, engine.history)
