"""auto: which mode a question is for. Signals without a model first; where they are not clear, one short constrained call.

The signals know no list of words, so they work in any language: how much of the question names what the graph has, how much of it a single
passage holds, and whether the best passage stands out. A question about everything names nothing, and no passage holds it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphrag_local.engine.base import NO_MODEL, Choice, Embedder, Gate, Request
from graphrag_local.errors import ContextOverflow
from graphrag_local.query.context import shown_as
from graphrag_local.query.drift_search import most_calls
from graphrag_local.query.inquiry import Inquiry
from graphrag_local.query.language import asked_for
from graphrag_local.query.mapreduce import map_room, reduce_room
from graphrag_local.query.neighbourhood import named_entities
from graphrag_local.query.passages import parts_of, rank_parts
from graphrag_local.query.retrieve import links_of
from graphrag_local.query.view import View, remembered
from graphrag_local.text import placed_words, words
from graphrag_local.tokens import count_messages

# All of these are our choice; they only decide when the model need not be asked.
NAMED = 0.3  # share of the question that names something: it is about that
HELD, APART = 0.6, 0.25  # share that the best passage holds, and by how much more than the tenth: it is stated there
LOOSE = 0.35  # a best passage with less of a question whose words the collection knows: it is about no passage in particular
KNOWN = 0.6  # share of its words that the collection must know for that
SHORT = 2  # words that say what it is about: a question of fewer is never clear
DEEP = 10
AGAINST = 0.25  # the lean of the signals is given up where the model gives it a lower probability
FULL = 0.7  # of windows that are cut by content (see `windows`)
SAMPLE = 40
REPLY_TOKENS = 8
LETTERS = {"B": "basic", "L": "local", "D": "drift", "G": "global"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """Shares of a question, its words weighed by rarity: `named` in the graph, `about` what passages are about, `known` to the collection, `held` by the
    best passage, and how much more that is than in the tenth (`apart`). `length` counts the words that say what it is about; `names` are the entities
    it names."""

    named: float
    about: float
    known: float
    held: float
    apart: float
    length: int
    names: tuple[str, ...]

    def lean(self) -> tuple[str, bool, str]:
        """The mode that they speak for, whether clearly, and why."""
        if self.names:
            return "local", self.named >= NAMED, f"the question names {', '.join(self.names)} ({self.named:.0%} of it)"
        if self.held >= HELD:
            clear = self.apart >= APART and self.length > SHORT
            return "basic", clear, f"one passage holds {self.held:.0%} of the question, {self.apart:.0%} more than the tenth best"
        if self.about >= NAMED:
            return "basic", True, f"{self.about:.0%} of the question names what some passages are about"
        clear = self.held <= LOOSE and self.known >= KNOWN and self.length > SHORT
        return "global", clear, f"the question names nothing in the graph and no passage holds more than {self.held:.0%} of it"


async def signals(question: str, view: View, embedder: Embedder) -> Signals:
    """What can be told of a question without a model."""
    links = links_of(view)
    texts, placed = links.texts, placed_words(question)
    rarity = [texts.rarity(word.key) for word in placed]
    named = named_entities(question, view)
    own = {word for owner, _ in named for surface in (view.entities[owner].name, *view.entities[owner].aliases) for word in words(surface)}
    seeds = links.seeds(placed, question)
    spans = {place for seed in seeds if named for place in range(seed.begin, seed.end)}
    about = {place for seed in seeds if links.reaches[seed.phrase] for place in range(seed.begin, seed.end)}
    spans |= {place for place, word in enumerate(placed) if word.key in own}
    asked = {word: texts.rarity(word) for word in asked_for(question)}
    whole = math.fsum(asked.values()) or 1.0
    ranked = await rank_parts(parts_of(question), view, embedder, DEEP)
    held = sorted((_held(asked, view, owner) for owner, _ in ranked.hits), reverse=True) or [0.0]
    return Signals(
        named=round(math.fsum(rarity[place] for place in sorted(spans)) / (math.fsum(rarity) or 1.0), 4),
        about=round(math.fsum(rarity[place] for place in sorted(about)) / (math.fsum(rarity) or 1.0), 4),
        known=round(math.fsum(weight for word, weight in asked.items() if texts.vocabulary.number(word) > 0) / whole, 4),
        held=round(held[0] / whole, 4),
        apart=round((held[0] - held[-1]) / whole, 4) if len(held) > 1 else round(held[0] / whole, 4),
        length=len(asked),
        names=tuple(view.entities[owner].name for owner, _ in named[:3]),
    )


def _held(asked: Mapping[str, float], view: View, chunk_id: str) -> float:
    chunk = view.chunks[chunk_id]
    said = set(words(f"{view.title(chunk.document_id)} {chunk.text}"))
    return math.fsum(weight for word, weight in asked.items() if word in said)


def possible(mode: str, view: View) -> str:
    """The mode, or its like where there is no graph."""
    return mode if view.entities else {"local": "basic", "drift": "basic", "global": "source"}.get(mode, mode)


def by_nobody(view: View) -> bool:
    """Whether the index was made without a model: its reports are quotes, which say less about a whole than the passages do."""
    models = view.index.manifest.get("about", {}).get("models", {})
    return bool(view.entities) and models.get("name") == NO_MODEL


async def lean(question: str, view: View, embedder: Embedder) -> str:
    """The mode that the signals speak for, without a model; where they are not clear about the whole, passages hold the answer if anything does."""
    mode, clear, _ = (await signals(question, view, embedder)).lean()
    mode = possible(mode if clear or mode != "global" else "basic", view)
    return "lazy" if mode == "global" and by_nobody(view) else mode


async def choose(inquiry: Inquiry, embedder: Embedder, level: int) -> str:
    """The mode for a question; the notes say which and why, and what the others would have cost."""
    view = inquiry.view
    seen = await signals(inquiry.question, view, embedder)
    mode, clear, why = seen.lean()
    if not clear and not inquiry.model.card.tiny:
        mode, said = await _asked(inquiry, mode)
        why = f"{why}, which is not clear; {said}"
    mode = possible(mode, view)
    if mode == "global" and by_nobody(view):
        mode, why = "lazy", f"{why}, and no model wrote the reports, so passages are tested"
    inquiry.notes.append(f"auto chose {mode}: {why}.")
    others = [f"{name} {_cost(cost)}" for name, cost in estimates(inquiry, level).items() if name != mode]
    if others:
        inquiry.notes.append(f"The others would have cost about: {'; '.join(others)}.")
    return mode


async def _asked(inquiry: Inquiry, leaning: str) -> tuple[str, str]:
    """What the model chooses, and a half sentence about it. The letter of the signals' lean is the one whose probability is asked for."""
    there = [letter for letter, mode in LETTERS.items() if inquiry.view.entities or mode in ("basic", "global")]
    own = next((letter for letter in there if LETTERS[letter] == leaning), there[0])
    letters = (own, *(letter for letter in there if letter != own))
    request = Request(
        messages=inquiry.prompts["route"].render(options=sorted(letters), question=shown_as(inquiry.question)),
        constraint=constraint(sorted(letters)),
        max_tokens=REPLY_TOKENS,
        purpose="answer",
        gate=Gate(options=letters),
        priority=0,
    )
    try:
        outcome = await inquiry.ask(request, read_letter)
    except ContextOverflow:
        return leaning, "it is too long to ask the model"
    if outcome.value is None:
        return leaning, "the model gave no usable reply"
    if outcome.gate is not None and outcome.gate >= AGAINST:
        return leaning, f"the model gives that a probability of {outcome.gate:.2f}"
    sure = "" if outcome.gate is None else f" and gives {leaning} a probability of {outcome.gate:.2f}"
    return LETTERS[outcome.value], f"the model says {LETTERS[outcome.value]}{sure}"


def constraint(letters: Sequence[str]) -> Choice:
    """One of the letters."""
    return Choice(options=tuple(letters))


def read_letter(text: str) -> str:
    """The letter of a reply; raises ValueError where it is none."""
    letter = text.strip(" \t\r\n\"'.").upper()
    if letter not in LETTERS:
        raise ValueError(f"it is none of {', '.join(LETTERS)}: {text[:40]!r}")
    return letter


# --- what the modes would cost

Cost = tuple[int, int]  # calls, prompt tokens


def _cost(cost: Cost) -> str:
    calls, tokens = cost
    return f"{calls} call{'' if calls == 1 else 's'} and {tokens:,} prompt tokens"


def estimates(inquiry: Inquiry, level: int) -> dict[str, Cost]:
    """Calls and prompt tokens of each mode, without checks of sentences; nothing where the model's window has no room for a prompt.

    Tokens are estimated from characters and windows from how full they are, also where an earlier question made them: the same question says the
    same whenever it is asked.
    """
    settings, view = inquiry.settings, inquiry.view
    try:
        room = inquiry.room("answer", wanted=max(settings.window_tokens, settings.local_tokens), reply=inquiry.reply_tokens(settings.reply_tokens))
        window, points = map_room(inquiry), reduce_room(inquiry)
    except ContextOverflow:
        return {}
    rate = remembered(view.index, ("tokens a character", inquiry.model.counter.name), lambda: _rate(inquiry))
    text = int(view.shape["characters"][0])
    passages = text / max(1, len(view.chunks)) * min(settings.top_chunks, len(view.chunks)) * rate
    fixed = {name: _fixed(inquiry, name) for name in ("answer", "map", "reduce")}
    told = _told(view, level) * rate
    basic, local = int(min(room, settings.window_tokens, passages)), int(min(room, settings.local_tokens, passages + told))
    mapped = {
        "source": _windows(text * rate, window),
        "global": _windows(told, window),
    }
    found: dict[str, Cost] = {"basic": (1, fixed["answer"] + basic), "local": (1, fixed["answer"] + local)}
    tests, each = min(settings.relevance_budget, len(view.chunks)), text * rate / max(1, len(view.chunks))
    read = _windows(tests * each, window)  # at most: where every passage is relevant
    found["lazy"] = (tests + read[0] + 1, int(tests * (_fixed(inquiry, "relevant") + each)) + read[0] * fixed["map"] + read[1] + fixed["reduce"])
    if view.entities:
        calls = most_calls(inquiry)
        found["drift"] = (calls, calls * (fixed["answer"] + local))
    for name, (count, tokens) in mapped.items():
        again = min(count, settings.always_read)  # at most, where the gate leaves the best windows
        calls = count + (1 if inquiry.model.card.logprobs else 0) + again + 1
        reduced = fixed["reduce"] + min(points, count * settings.max_points * 40)
        found[name] = (calls, (count + 1) * fixed["map"] + tokens + again * (tokens // max(1, count)) + reduced)
    return found if view.entities else {name: cost for name, cost in found.items() if name in ("basic", "source", "lazy")}


def _windows(tokens: float, budget: int) -> Cost:
    return max(1, math.ceil(tokens / (FULL * budget))), int(tokens)


def _fixed(inquiry: Inquiry, prompt: str) -> int:
    return count_messages(inquiry.model.counter, inquiry.messages(prompt, items=1, may_decline=True, text=""))


def _rate(inquiry: Inquiry) -> float:
    """Tokens a character, over some passages."""
    some = [inquiry.view.chunks.at(number) for number in range(min(SAMPLE, len(inquiry.view.chunks)))]
    return sum(inquiry.model.counter.count(chunk.text) for chunk in some) / max(1, sum(len(chunk.text) for chunk in some))


def _told(view: View, level: int) -> int:
    """Characters that `global` reads on a level."""

    def make() -> int:
        total = 0
        for community in view.level(level):
            report = view.report_of.get(community.id)
            if report and report.findings:
                total += sum(len(finding.summary) + len(finding.explanation) for finding in report.findings)
                continue
            members = [member for member in community.member_ids if member in view.entities]
            total += sum(len(view.entities[member].name) + len(view.entities[member].description) for member in members)
            total += sum(len(edge.description) for edge in view.inside(members))
        return total

    return remembered(view.index, ("characters of level", level), make)
