"""Drives reports over a hierarchy, bottom-up by dependency: a parent starts when those of its own parts that it needs are done.

A context that overflows stands on the reports of all its parts that can have one, and those are written with it, whatever `reports.write` says of
their level: else most of a large community would be in no report at all. So a report does not depend on what happened to be asked for before,
and one written later is the one that `eager` would have written. The price is one call for each part of a community of more than
`context_tokens`: about one for every few thousand tokens of element text, a few in a hundred of the calls that extraction takes.

A report whose context changed is written anew when it is wanted (and, with `refresh` as "tolerant", enough of it changed); until then it stays,
marked as stale. A report on top of a stale one that waits to be written anew is stale as well; one that `tolerant` leaves as it is does no harm.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from graphrag_local.engine.base import Model
from graphrag_local.flow import Progress, for_each
from graphrag_local.ids import report_id
from graphrag_local.prompting import Prompt
from graphrag_local.records import Claim, Community, Entity, Failed, Mention, Relationship, Report
from graphrag_local.reports.context import Context, Counted
from graphrag_local.reports.elements import Elements
from graphrag_local.reports.keep import Earlier, changed_share, is_from
from graphrag_local.reports.tree import Contexts, Tree
from graphrag_local.reports.write import SMALLER, STAGE, budget_of, write_report
from graphrag_local.settings import ReportSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportsResult:
    """The reports that hold now, in the order of (level, community id), and why other communities have none.

    `folded` are ids of communities of two entities or more that are too small; `unwritten` those that could have a report and were not asked
    for; `stale` those whose report is an earlier one of a context that has changed; `written` counts the reports that were written just now.
    """

    reports: tuple[Report, ...]
    failures: tuple[Failed, ...]
    folded: tuple[str, ...]
    unwritten: tuple[str, ...]
    stale: tuple[str, ...] = ()
    written: int = 0


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
    previous: Iterable[Report],
    gone: Collection[str] = (),
    moved: Mapping[str, str] | None = None,
    settle: bool = False,
    progress: Progress,
    limit: int,
    only: set[str] | None = None,
) -> ReportsResult:
    """The reports of a graph's communities.

    `previous` are those of the current generation: same context, same report, no call, whatever is asked for. Of other contexts they stay as
    stale ones unless one of the documents `gone` (ids) was in them; `moved` maps ids of documents to those that they have by now.
    `only` (community ids) wants those, with the parts that they need, in place of what `reports.write` says;
    `settle` wants all, whatever `reports.write` and `reports.refresh` say.
    """
    tree = Tree(communities, Elements(entities, relationships, claims, mentions), settings)
    contexts = Contexts(tree, budget_of(model, prompt, settings, Counted(model.counter)))
    run = _Run(contexts, model, prompt, settings, Earlier(previous, gone, moved or {}), progress, asyncio.Semaphore(limit))
    settle = settle or model.card.absent  # where reports cost nothing, all are written
    run.exact = settle or settings.refresh == "exact"
    run.targets = contexts.with_needed(tree.targets(only, settle=settle))
    progress.begin(STAGE, len(run.targets))
    bottom_up = list(reversed(tree.reported))
    await for_each(bottom_up, run.one, limit=max(1, len(bottom_up)))
    order = [community.id for community in tree.reported]
    failed = {failure.input_id for failure in run.failures}
    reports = tuple(contexts.reports[key] for key in order if key in contexts.reports)
    return ReportsResult(
        reports=reports,
        failures=tuple(sorted(run.failures, key=lambda failure: failure.input_id)),
        folded=tree.folded,
        unwritten=tuple(key for key in order if key not in contexts.reports and key not in failed),
        stale=tuple(report.community_id for report in reports if report.stale),
        written=run.written,
    )


def stale_reports(
    communities: Iterable[Community],
    entities: Iterable[Entity],
    relationships: Iterable[Relationship],
    claims: Iterable[Claim],
    mentions: Iterable[Mention],
    reports: Iterable[Report],
    model: Model,
    prompt: Prompt,
    settings: ReportSettings,
) -> tuple[str, ...]:
    """The ids of communities whose report says that it is current and is not: its context, built anew from the records, has another fingerprint,
    or the community can have none. Asks the model nothing; its card, counter, temperature and seed must be those of the build."""
    tree = Tree(communities, Elements(entities, relationships, claims, mentions), settings)
    contexts = Contexts(tree, budget_of(model, prompt, settings, Counted(model.counter)))
    contexts.reports = {report.community_id: report for report in reports}
    claimed = {key: report.fingerprint for key, report in contexts.reports.items() if not report.stale}
    current = {one.id for one in tree.reported if one.id in claimed and contexts.of(one).fingerprint == claimed[one.id]}
    return tuple(sorted(claimed.keys() - current))


class _Run:
    """The state of one pass: what is written, what failed, and who is done. `late` are the communities whose report waits to be written anew, or
    stands on one that does."""

    exact = True

    def __init__(
        self,
        contexts: Contexts,
        model: Model,
        prompt: Prompt,
        settings: ReportSettings,
        earlier: Earlier,
        progress: Progress,
        slots: asyncio.Semaphore,
    ) -> None:
        self.contexts, self.model, self.prompt, self.settings = contexts, model, prompt, settings
        self.earlier, self.progress, self.slots = earlier, progress, slots
        self.targets: set[str] = set()
        self.failures: list[Failed] = []
        self.late: set[str] = set()
        self.written = 0
        self.done = {community.id: asyncio.Event() for community in contexts.tree.reported}

    async def one(self, community: Community) -> None:
        """Keep or write one report, once its parts are done."""
        wanted = community.id in self.targets
        if wanted or self.earlier:
            for part in self.contexts.needs(community):
                await self.done[part.id].wait()
            async with self.slots:
                failure = await self._keep_or_write(community, wanted)
            if wanted:
                self.progress.advance(STAGE, done=failure is None, failed=failure is not None)
        self.done[community.id].set()

    async def _keep_or_write(self, community: Community, wanted: bool) -> Failed | None:
        context = self.contexts.of(community)
        late = not self.late.isdisjoint(context.parts)
        report, failure = await self._unchanged(community, context), None
        if report is None:
            report = self.earlier.about(community.id, self.contexts.tree.elements, context.shape)
            due = report is None or self._is_due(report, context)
            if due and wanted:
                outcome = await self._write(community, context)
                report, failure = (outcome, None) if isinstance(outcome, Report) else (report, outcome)
            late = late or (due and report is not None and report.stale)
        if late:
            self.late.add(community.id)
        if report is not None:
            self.contexts.reports[community.id] = replace(report, stale=report.stale or late)
        return failure

    async def _unchanged(self, community: Community, context: Context) -> Report | None:
        """The earlier report of this context, as it is today: equal text may stand in other documents by now.

        Then its reply is recalled, which ties it to these documents: else it would be let go with those that are gone.
        """
        kept = self.earlier.written_from(context, community.id)
        if kept is None:
            return None
        if not is_from(kept, context):  # but from a smaller one, since this one overflowed
            context = self.contexts.of(community, SMALLER)
        if not is_from(kept, context):
            return None
        if kept.documents != context.documents and self.model.recall is not None:
            await write_report(community, context, replace(self.model, generate=self.model.recall), self.prompt, self.settings)
        return replace(kept, id=report_id(community.id), community_id=community.id, documents=context.documents, context=context.lines, stale=False)

    def _is_due(self, report: Report, context: Context) -> bool:
        """Whether a report is to be written anew once it is wanted; one that has the context back, but lost something meanwhile, always is."""
        if self.exact or report.fingerprint == context.fingerprint:
            return True
        return changed_share(report.context, context.lines) >= self.settings.refresh_share

    async def _write(self, community: Community, context: Context) -> Report | Failed:
        def smaller() -> Context:
            return self.contexts.of(community, SMALLER)

        outcome = await write_report(community, context, self.model, self.prompt, self.settings, smaller=smaller)
        if isinstance(outcome, Report):
            self.written += 1
        else:
            self.failures.append(outcome)
        return outcome
