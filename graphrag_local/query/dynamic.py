"""global --dynamic: from the root down, only what is rated to matter to the question is read (the idea of dynamic community selection).

A report is graded 0 to 5 in a call of one token; what counts is the expectation over the grades where the server gives probabilities, because the
likeliest grade of a small model is nearly always the same. Under a relevant report those of its children that are relevant stand in its place, or it
stands itself where none is: no entity is read twice. What has no report cannot be graded so cheaply and is read where its parent mattered.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from graphrag_local.engine.base import Choice, Gate
from graphrag_local.errors import ContextOverflow
from graphrag_local.flow import map_ordered
from graphrag_local.query.context import Ref, Unit, unit_of
from graphrag_local.query.inquiry import Inquiry, Paragraph
from graphrag_local.query.mapreduce import map_reduce, map_room
from graphrag_local.query.scan import IN_FLIGHT
from graphrag_local.query.view import View, remembered
from graphrag_local.query.windows import LINE_SHARE, cut, filled
from graphrag_local.records import Community

GRADES = tuple("012345")
REPORT_TOKENS = 600  # of a report that is graded: its title, its summary and its first findings (our choice: what is seen at a glance)
GRADE_TOKENS = 8  # one digit, in quotes on some servers, and its end


async def answer(inquiry: Inquiry, level: int) -> list[Paragraph]:
    """The paragraphs of an answer from what matters under the communities of a level."""
    descent = Descent(inquiry=inquiry, limit=map_room(inquiry) // LINE_SHARE)
    chosen = await descent.chosen(level)
    inquiry.notes += descent.notes
    if inquiry.trace:
        descent.tell(chosen)
    windows = cut([descent.unit(community) for community in chosen], map_room(inquiry), inquiry.model.counter)
    return await map_reduce(inquiry, windows)


def grade_constraint() -> Choice:
    """One of the grades."""
    return Choice(options=GRADES)


def children_of(view: View) -> dict[str, list[Community]]:
    """The communities under each one."""

    def make() -> dict[str, list[Community]]:
        found: dict[str, list[Community]] = {}
        for community in sorted(view.index.communities(), key=lambda community: community.id):
            found.setdefault(community.parent_id, []).append(community)
        return found

    return remembered(view.index, "children of communities", make)


@dataclass(slots=True, kw_only=True)
class Descent:
    """One question on its way down the hierarchy; lines of its evidence have at most `limit` tokens."""

    inquiry: Inquiry
    limit: int
    grades: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unreadable: int = 0

    def unit(self, community: Community) -> Unit:
        """What a community adds to a window, written once per generation."""
        return unit_of(community, self.inquiry.view, self.inquiry.model.counter, self.limit)

    def told(self, community: Community) -> bool:
        """Whether a community has a report that can be graded."""
        return bool(self.unit(community).heading)

    async def chosen(self, level: int) -> list[Community]:
        """What is to be read, each entity in at most one of them."""
        settings = self.inquiry.settings
        there = sorted(self.inquiry.view.level(level), key=lambda community: (-len(community.member_ids), community.id))
        told = [community for community in there if self.told(community)]
        rated, beyond = told[: settings.rate_calls], told[settings.rate_calls :]
        bare = [community for community in there if not self.told(community)]
        await self._grade(rated)
        front = [community for community in rated if self._matters(community)]
        kept = [*beyond, *bare]
        if rated and not front:
            best = self._best_first(rated)[: settings.always_read]
            self._note(kept, f"none is rated relevant, so the best {len(best)} are read", beyond)
            return [*kept, *best]
        while front:
            front = await self._below(front, kept)
        self._note(kept, f"{sum(self.told(community) for community in kept) - len(beyond)} are read", beyond)
        return kept

    async def _below(self, front: Sequence[Community], kept: list[Community]) -> list[Community]:
        """The relevant children of relevant communities; those that are not gone below are put to what is kept, and with children their bare siblings."""
        children = children_of(self.inquiry.view)
        asked: list[Community] = []
        opened: list[Community] = []
        for community in self._best_first(front):
            told = [child for child in children.get(community.id, ()) if self.told(child)]
            if told and len(self.grades) + len(asked) + len(told) <= self.inquiry.settings.rate_calls:
                asked += told
                opened.append(community)
            else:
                kept.append(community)
        await self._grade(asked)
        below: list[Community] = []
        for community in opened:
            good = [child for child in children[community.id] if child.id in self.grades and self._matters(child)]
            below += good
            kept += [child for child in children[community.id] if not self.told(child)] if good else [community]
        return below

    def _matters(self, community: Community) -> bool:
        return self.grades[community.id] >= self.inquiry.settings.rate_at_least

    def _best_first(self, communities: Sequence[Community]) -> list[Community]:
        return sorted(communities, key=lambda community: (-self.grades[community.id], community.id))

    # --- grades

    async def _grade(self, communities: Sequence[Community]) -> None:
        found = await map_ordered(communities, self._graded, limit=IN_FLIGHT)
        self.grades |= {community.id: grade for community, grade in zip(communities, found, strict=True)}
        if self.inquiry.ear and communities:
            self.inquiry.ear.progress(f"{len(self.grades)} reports rated.")

    async def _graded(self, community: Community) -> float:
        """The grade of a report; one that cannot be had lets it be read, for to leave it out would say that it does not matter."""
        inquiry = self.inquiry
        room = inquiry.room("rate", wanted=REPORT_TOKENS, reply=GRADE_TOKENS)
        window = filled([self.unit(community)], room, inquiry.model.counter)
        messages = inquiry.messages("rate", items=1, may_decline=True, text=window.text)
        request = inquiry.request(messages, grade_constraint(), GRADE_TOKENS, gate=None, window=window)
        asking = replace(request, gate=Gate(options=GRADES, worths=tuple(map(float, GRADES))))
        try:
            outcome = await inquiry.ask(asking, read_grade)
        except ContextOverflow:
            outcome = None
        if outcome is None or outcome.value is None:
            self.unreadable += 1
            return inquiry.settings.rate_at_least
        return float(outcome.value) if outcome.gate is None else outcome.gate

    def tell(self, chosen: Sequence[Community]) -> None:
        """Write the ratings down."""
        trace, view, least = self.inquiry.trace, self.inquiry.view, self.inquiry.settings.rate_at_least
        assert trace is not None
        scores = {report.id: self.grades[owner] for owner, report in view.report_of.items() if owner in self.grades}
        read = {report.id for community in chosen if (report := view.report_of.get(community.id))}
        low = (Ref(kind="report", id=owner) for owner, grade in scores.items() if owner not in read and grade < least)
        inner = (Ref(kind="report", id=owner) for owner, grade in scores.items() if owner not in read and grade >= least)
        kept = trace.records(view, (Ref(kind="report", id=owner) for owner in sorted(read)), scores)
        cut = [*trace.cut(view, f"rated under {least:g}", low, scores), *trace.cut(view, "those below it are read in its place", inner, scores)]
        trace.note("ratings", kept=kept, cut=cut)

    def _note(self, kept: Sequence[Community], then: str, beyond: Sequence[Community]) -> None:
        bare = sum(not self.told(community) for community in kept)
        said = [f"{len(self.grades)} of {len(self.inquiry.view.reports)} reports rated, {then}"] if self.grades else ["No report could be rated"]
        said += [f"communities without a report that are read too: {bare}"] if bare else []
        self.notes.append("; ".join(said) + ".")
        if beyond:
            self.notes.append(f"{len(beyond)} reports beyond query.rate_calls ({self.inquiry.settings.rate_calls}) are read without being rated.")
        if self.unreadable:
            self.notes.append(f"{self.unreadable} reports got no usable rating and count as relevant.")


def read_grade(text: str) -> int:
    """The grade in a reply; raises ValueError where there is none."""
    said = text.strip(" \t\r\n\"'.")
    if said not in GRADES:
        raise ValueError(f"it is no digit from 0 to 5: {text[:40]!r}")
    return int(said)
