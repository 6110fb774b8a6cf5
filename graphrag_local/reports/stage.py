"""Drives reports over a hierarchy, bottom-up by dependency: a parent starts when those of its own parts that it needs are done.

Which communities have a report: at least two entities and `min_tokens` of element text; a root needs only an edge (else a small collection,
or a small unconnected group, would have none). What is smaller is folded: its elements stay in its parent's context. Single entities
never have one. A context that overflows stands on the reports of all its parts that can have one, and those are written with it, whatever
`reports.write` says of their level: else most of a large community would be in no report at all. So a report does not depend on what happened to be
asked for before, and one written later is the one that `eager` would have written. The price is one call for each part of a community
of more than `context_tokens`: about one for every few thousand tokens of element text, a few in a hundred of the calls that extraction takes.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from graphrag_local.engine.base import Model
from graphrag_local.flow import Progress, for_each
from graphrag_local.ids import report_id
from graphrag_local.prompting import Prompt
from graphrag_local.records import Claim, Community, Entity, Failed, Mention, Relationship, Report
from graphrag_local.reports.context import Budget, Context, Counted, build_context, fits_whole
from graphrag_local.reports.elements import Elements
from graphrag_local.reports.write import SMALLER, STAGE, budget_of, write_report
from graphrag_local.settings import ReportSettings

EAGER_LEVELS = 1  # the deepest level written before the first question


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportsResult:
    """The reports that hold now, in the order of (level, community id), and why other communities have none.

    `folded` are ids of communities of two entities or more that are too small; `unwritten` those that could have a report and were not asked
    for.
    """

    reports: tuple[Report, ...]
    failures: tuple[Failed, ...]
    folded: tuple[str, ...]
    unwritten: tuple[str, ...]


async def write_reports(
    communities: Iterable[Community],
    entities: Iterable[Entity],
    relationships: Iterable[Relationship],
    claims: Iterable[Claim],
    mentions: Iterable[Mention],
    model: Model,
    prompt: Prompt,
    settings: ReportSettings,
    *,
    previous: Mapping[str, Report],
    progress: Progress,
    limit: int,
    only: set[str] | None = None,
) -> ReportsResult:
    """The reports of a graph's communities.

    `previous` holds earlier reports by fingerprint: same context, same report, no call, whatever is asked for. `only` (community ids) writes
    those, with the parts that they need, in place of what `reports.write` says.
    """
    tree = Tree(communities, Elements(entities, relationships, claims, mentions), settings)
    run = _Run(tree, model, prompt, settings, previous, progress, asyncio.Semaphore(limit))
    run.targets = run.with_needed(tree.targets(only))
    progress.begin(STAGE, len(run.targets))
    bottom_up = list(reversed(tree.reported))
    await for_each(bottom_up, run.one, limit=max(1, len(bottom_up)))
    order = [community.id for community in tree.reported]
    failed = {failure.input_id for failure in run.failures}
    return ReportsResult(
        reports=tuple(run.reports[key] for key in order if key in run.reports),
        failures=tuple(sorted(run.failures, key=lambda failure: failure.input_id)),
        folded=tuple(community.id for community in tree.communities if len(community.member_ids) > 1 and community.id not in tree.reportable),
        unwritten=tuple(key for key in order if key not in run.reports and key not in failed),
    )


class Tree:
    """Communities in the order of (level, id), and which of them can have a report."""

    def __init__(self, communities: Iterable[Community], elements: Elements, settings: ReportSettings) -> None:
        self.communities = sorted(communities, key=lambda community: (community.first_level, community.id))
        self.by_id = {community.id: community for community in self.communities}
        self.elements = elements
        self.settings = settings
        self.reported = [community for community in self.communities if self._has_report(community)]
        self.reportable = {community.id for community in self.reported}

    def _has_report(self, community: Community) -> bool:
        members = [member for member in community.member_ids if member in self.elements.entities]
        if len(members) < 2:
            return False
        if self.elements.size(community.member_ids) >= self.settings.min_tokens:
            return True
        return not community.parent_id and bool(self.elements.inside(members).relationships)

    def is_upper(self, community: Community) -> bool:
        """Whether its report is one of those written before the first question, with `eager` or `all`."""
        return self.settings.write == "all" or community.first_level <= EAGER_LEVELS

    def targets(self, only: set[str] | None) -> set[str]:
        """The communities whose reports are wanted now."""
        if only is not None:
            return self.reportable & only
        return set() if self.settings.write == "lazy" else {community.id for community in self.reported if self.is_upper(community)}

    def parts(self, community: Community) -> list[Community]:
        """Its sub-communities."""
        return [self.by_id[child] for child in community.child_ids]


class _Run:
    """The state of one pass: what is written, what failed, and who is done."""

    def __init__(
        self,
        tree: Tree,
        model: Model,
        prompt: Prompt,
        settings: ReportSettings,
        previous: Mapping[str, Report],
        progress: Progress,
        slots: asyncio.Semaphore,
    ) -> None:
        self.tree, self.model, self.prompt, self.settings = tree, model, prompt, settings
        self.previous, self.progress, self.slots = previous, progress, slots
        self.budget = budget_of(model, prompt, settings, Counted(model.counter))
        self.targets: set[str] = set()
        self.reports: dict[str, Report] = {}
        self.failures: list[Failed] = []
        self.done = {community.id: asyncio.Event() for community in tree.reported}
        self._needs: dict[str, list[Community]] = {}

    def needs(self, community: Community) -> list[Community]:
        """The parts whose reports the context waits for: none where all elements fit."""
        if community.id not in self._needs:
            whole = fits_whole(community, self.tree.elements, self.budget)
            self._needs[community.id] = [] if whole else [part for part in self.tree.parts(community) if part.id in self.tree.reportable]
        return self._needs[community.id]

    def with_needed(self, wanted: set[str]) -> set[str]:
        """Those communities and the parts that their contexts stand on."""
        found, open_ = set(wanted), sorted(wanted)
        while open_:
            needed = [part.id for part in self.needs(self.tree.by_id[open_.pop()]) if part.id not in found]
            found.update(needed)
            open_.extend(needed)
        return found

    async def one(self, community: Community) -> None:
        """Keep or write one report, once its parts are done."""
        wanted = community.id in self.targets
        if wanted or self.previous:
            for part in self.needs(community):
                await self.done[part.id].wait()
            async with self.slots:
                outcome = await self._keep_or_write(community, wanted)
            if wanted:
                self.progress.advance(STAGE, done=isinstance(outcome, Report), failed=isinstance(outcome, Failed))
        self.done[community.id].set()

    async def _keep_or_write(self, community: Community, wanted: bool) -> Report | Failed | None:
        context = self.context(community, self.budget)
        outcome: Report | Failed | None = None
        if kept := self.previous.get(context.fingerprint):
            outcome = replace(kept, id=report_id(community.id), community_id=community.id, stale=False)
        elif wanted:
            less = replace(self.budget, tokens=int(self.budget.tokens * SMALLER))
            outcome = await write_report(
                community, context, self.model, self.prompt, self.settings, smaller=lambda: self.context(community, less)
            )
        if isinstance(outcome, Report):
            self.reports[community.id] = outcome
        elif outcome:
            self.failures.append(outcome)
        return outcome

    def context(self, community: Community, budget: Budget) -> Context:
        """The context of a community as the reports of its parts are now."""
        return build_context(community, self.tree.parts(community), self.reports, self.tree.elements, budget)
