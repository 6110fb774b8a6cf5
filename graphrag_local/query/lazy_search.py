"""lazy: nothing is needed of a model beforehand; what it is asked about the question is bounded by a budget (the idea of LazyGraphRAG).

Passages are ranked by the retrieval core and tested for relevance best first. Each stands in one community, and what is found in a community moves its
other passages up or down, so that the budget goes where something was found. What proved relevant is read as mode `source` reads.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphrag_local.engine.base import Choice, Embedder, Gate
from graphrag_local.errors import ContextOverflow
from graphrag_local.flow import map_ordered
from graphrag_local.query.context import Ref, Unit, Writer
from graphrag_local.query.inquiry import Inquiry, Paragraph
from graphrag_local.query.mapreduce import EMPTY_WINDOW, map_reduce, map_room
from graphrag_local.query.passages import passages
from graphrag_local.query.view import View
from graphrag_local.query.windows import LINE_SHARE, Costs, Window, cut, filled
from graphrag_local.records import Chunk
from graphrag_local.text import words

REACH = 4  # passages that are ranked for each that may be tested
ROUND = 16  # tests that run side by side; what they find decides the next ones
DRY = 2  # rounds without anything relevant after which the rest is left
CLEARLY = 0.1  # by which a probability is over another one so that it says something
PASSAGE_TOKENS = 1000  # of a passage that is tested
VERDICT_TOKENS = 8  # one letter, in quotes on some servers, and its end


async def answer(inquiry: Inquiry, embedder: Embedder) -> list[Paragraph]:
    """The paragraphs of an answer from the passages that were found relevant within the budget."""
    view, counter = inquiry.view, inquiry.model.counter
    ranked = await passages(inquiry, embedder, min(len(view.chunks), REACH * inquiry.settings.relevance_budget))
    inquiry.notes += ranked.notes
    hunt = Hunt(inquiry=inquiry, groups=groups_of(view), waiting=[owner for owner, _ in ranked.hits], nearness=nearness_of(ranked.hits))
    found = await hunt.found()
    inquiry.notes += hunt.notes()
    if inquiry.trace:
        trace, least = inquiry.trace, f"relevance under {inquiry.settings.gate:g} or not over {hunt.floor:.2f}, that of an empty passage"
        left = (Ref(kind="chunk", id=owner) for owner in hunt.shares if owner not in found)
        waiting = (Ref(kind="chunk", id=owner) for owner in hunt.waiting)
        cut_off = [*trace.cut(view, least, left, hunt.shares), *trace.cut(view, "not tested", waiting)]
        trace.note("tests", kept=trace.records(view, (Ref(kind="chunk", id=owner) for owner in found), hunt.shares), cut=cut_off)
    writer = Writer(view, counter, map_room(inquiry) // LINE_SHARE)
    return await map_reduce(inquiry, cut([writer.chunk(view.chunks[owner]) for owner in found], map_room(inquiry), counter))


def relevance_constraint() -> Choice:
    """Relevant or not."""
    return Choice(options=("Y", "N"))


def nearness_of(hits: Sequence[tuple[str, float]]) -> dict[str, float]:
    """The scores of ranked passages as shares of the best one's; all 1 where nothing is near."""
    best = max((score for _, score in hits), default=0.0)
    return {owner: score / best if best > 0 else 1.0 for owner, score in hits}


class Groups(Mapping[str, str]):
    """The group of each chunk, read when it is asked for."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __getitem__(self, chunk_id: str) -> str:
        number = int(self._view.shape["chunk.group"][self._view.chunks.ids.number(chunk_id)])
        return self._view.communities.ids[number] if number >= 0 else self._view.chunks[chunk_id].document_id

    def __len__(self) -> int:
        return len(self._view.chunks)

    def __iter__(self) -> Iterator[str]:
        return iter(self._view.chunks)


def groups_of(view: View) -> Groups:
    """The group of each chunk: the community that it mentions most, on the deepest level whose communities have some chunks each; else its document."""
    return Groups(view)


@dataclass(slots=True, kw_only=True)
class Hunt:
    """One question looking for relevant passages; `shares` are the probabilities of those that were tested."""

    inquiry: Inquiry
    groups: Mapping[str, str]
    waiting: list[str]
    nearness: Mapping[str, float]
    shares: dict[str, float] = field(default_factory=dict)
    calls: int = 0
    floor: float = 0.0
    dry: int = 0
    failed: int = 0
    chosen: list[str] = field(default_factory=list)  # of passages that all passed
    _of_group: dict[str, list[float]] = field(default_factory=dict)

    async def found(self) -> list[str]:
        """The chunks to read: those that proved relevant, else the few that came nearest to it."""
        budget = self.inquiry.settings.relevance_budget
        self.floor = await self._baseline()
        while self.waiting and self.calls < budget and self.dry < DRY:
            chosen = self._next(min(ROUND, budget - self.calls))
            self.calls += len(chosen)
            for owner, share in zip(chosen, await map_ordered(chosen, self._tested, limit=ROUND), strict=True):
                self.shares[owner] = share
                self._of_group.setdefault(self.groups[owner], []).append(float(self._is_relevant(share)))
            self.dry = 0 if any(self._is_relevant(self.shares[owner]) for owner in chosen) else self.dry + 1
            if self.inquiry.ear:
                self.inquiry.ear.progress(f"{self.calls} of at most {budget} passages tested, {len(self.relevant)} of them relevant.")
        best = sorted(self.shares, key=lambda owner: (-self.shares[owner], -self.nearness[owner], owner))
        relevant = self.relevant
        if self._tells_nothing(relevant):
            middle = statistics.median(self.shares.values())
            clear = [owner for owner in relevant if self.shares[owner] >= middle + CLEARLY]
            nearest = [owner for owner in self.nearness if owner in self.shares]
            settings = self.inquiry.settings
            most = max(settings.always_read, len(clear) or settings.top_chunks)
            self.chosen = list(dict.fromkeys([*clear, *nearest]))[:most]
            return self.chosen
        return relevant or best[: self.inquiry.settings.always_read]

    def _tells_nothing(self, relevant: Sequence[str]) -> bool:
        """Whether every passage passed with probabilities that are no measure: nothing was asked of an empty one, or they are hardly over that."""
        told = self.inquiry.model.card.logprobs and not self.failed and len(relevant) == len(self.shares) > 1
        return told and (self.floor == 0.0 or max(self.shares.values()) < self.floor + CLEARLY)

    @property
    def relevant(self) -> list[str]:
        """The chunks that proved relevant, in the order in which they were tested."""
        return [owner for owner, share in self.shares.items() if self._is_relevant(share)]

    def notes(self) -> tuple[str, ...]:
        """What there is to say about the tests."""
        communities = len({self.groups[owner] for owner in self.relevant})
        said = [f"{len(self.shares)} of {len(self.inquiry.view.chunks)} passages tested, {len(self.relevant)} relevant, in {communities} parts of the graph."]
        if self.chosen:
            said.append(f"The model found every passage relevant, so the {len(self.chosen)} that it is surest of or that came nearest are read.")
        if not self.relevant:
            said.append(f"No passage proved relevant, so the {min(len(self.shares), self.inquiry.settings.always_read)} nearest are read.")
        if self.waiting:
            why = f"after {DRY} rounds without a relevant one" if self.dry >= DRY else f"at query.relevance_budget ({self.inquiry.settings.relevance_budget})"
            said.append(f"Testing ended {why}; {len(self.waiting)} ranked passages were not tested.")
        if self.failed:
            said.append(f"{self.failed} passages could not be tested and count as relevant.")
        return tuple(said)

    def _next(self, number: int) -> list[str]:
        """The waiting chunks that promise most: how near one is, times the share of relevant ones in its group so far (a half before there are any)."""
        place = {owner: at for at, owner in enumerate(self.waiting)}

        def promise(owner: str) -> float:
            tested = self._of_group.get(self.groups[owner], ())
            return self.nearness[owner] * (1 + sum(tested)) / (2 + len(tested))

        chosen = sorted(self.waiting, key=lambda owner: (-promise(owner), place[owner]))[:number]
        taken = set(chosen)
        self.waiting = [owner for owner in self.waiting if owner not in taken]
        return chosen

    def _is_relevant(self, share: float) -> bool:
        return share >= self.inquiry.settings.gate and share > self.floor

    # --- one test

    async def _baseline(self) -> float:
        """The probability of Y for a passage without content, so that a model that says Y to everything finds nothing; it costs one call of the budget."""
        if not self.inquiry.model.card.logprobs or self.inquiry.settings.refusal_margin <= -1 or self.inquiry.settings.relevance_budget < 2:
            return 0.0
        self.calls += 1
        empty = Window(units=(), text=EMPTY_WINDOW, ids={"C1": Ref(kind="chunk", id="")}, tokens=0, documents=(), digest="")
        return await self._share(empty) or 0.0

    async def _tested(self, owner: str) -> float:
        """How likely a chunk is relevant; one that cannot be tested counts as relevant, for to leave it out would say that it is not."""
        inquiry, counter = self.inquiry, self.inquiry.model.counter
        room = inquiry.room("relevant", wanted=PASSAGE_TOKENS, reply=VERDICT_TOKENS)
        unit = Writer(inquiry.view, counter, room // LINE_SHARE).chunk(self._chunk(owner))
        try:
            share = await self._share(filled([likeliest(unit, inquiry.question, room, Costs(counter))], room, counter))
        except ContextOverflow:
            share = None
        if share is None:
            self.failed += 1
            return 1.0
        return share

    async def _share(self, window: Window) -> float | None:
        inquiry = self.inquiry
        messages = inquiry.messages("relevant", items=1, may_decline=True, text=window.text)
        request = inquiry.request(messages, relevance_constraint(), VERDICT_TOKENS, gate=None, window=window)
        outcome = await inquiry.ask(replace(request, gate=Gate()), read_relevance)
        return outcome.gate if outcome.gate is not None else None if outcome.value is None else float(outcome.value)

    def _chunk(self, owner: str) -> Chunk:
        return self.inquiry.view.chunks[owner]


def likeliest(unit: Unit, question: str, room: int, costs: Costs) -> Unit:
    """A unit; of one that is longer than the room the blocks that share most words with the question, in their order."""
    if costs.unit(unit) <= room:
        return unit
    asked = set(words(question))
    left = room - costs.unit(replace(unit, blocks=()))
    kept: set[int] = set()
    shared = [len(asked.intersection(word for line in block.lines for word in words(line.text))) for block in unit.blocks]
    for place in sorted(range(len(unit.blocks)), key=lambda place: (-shared[place], place)):
        if costs.block(unit.blocks[place]) <= left:
            left -= costs.block(unit.blocks[place])
            kept.add(place)
    return replace(unit, blocks=tuple(block for place, block in enumerate(unit.blocks) if place in kept))


def read_relevance(text: str) -> bool:
    """What a reply says; raises ValueError where it says neither."""
    said = text.strip(" \t\r\n\"'.").upper()
    if said not in ("Y", "N"):
        raise ValueError(f"it is neither Y nor N: {text[:40]!r}")
    return said == "Y"
