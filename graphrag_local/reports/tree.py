"""The hierarchy as reports see it: which communities can have one, which are wanted, and what each is written from now.

Which communities have a report: at least two entities and `min_tokens` of element text; a root needs only an edge (else a small collection,
or a small unconnected group, would have none). What is smaller is folded: its elements stay in its parent's context. Single entities
never have one.
"""

from collections.abc import Iterable
from dataclasses import replace

from graphrag_local.records import Community, Report
from graphrag_local.reports.context import Budget, Context, build_context, fits_whole
from graphrag_local.reports.elements import Elements
from graphrag_local.settings import ReportSettings

EAGER_LEVELS = 1  # the deepest level written before the first question


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

    @property
    def folded(self) -> tuple[str, ...]:
        """The ids of communities of two entities or more that are too small for a report."""
        return tuple(community.id for community in self.communities if len(community.member_ids) > 1 and community.id not in self.reportable)

    def is_upper(self, community: Community) -> bool:
        """Whether its report is one of those written before the first question, with `eager` or `all`."""
        return self.settings.write == "all" or community.first_level <= EAGER_LEVELS

    def targets(self, only: set[str] | None, *, settle: bool = False) -> set[str]:
        """The communities whose reports are wanted now."""
        if only is not None:
            return self.reportable & only
        if settle:
            return set(self.reportable)
        return set() if self.settings.write == "lazy" else {community.id for community in self.reported if self.is_upper(community)}

    def parts(self, community: Community) -> list[Community]:
        """Its sub-communities."""
        return [self.by_id[child] for child in community.child_ids]


class Contexts:
    """What each report of a hierarchy is written from, as `reports` (by community) are now."""

    def __init__(self, tree: Tree, budget: Budget) -> None:
        self.tree, self.budget = tree, budget
        self.reports: dict[str, Report] = {}
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

    def of(self, community: Community, share: float = 1.0) -> Context:
        """The context of a community within a share of the budget; it knows no reports but those that it waited for."""
        reports = {part.id: self.reports[part.id] for part in self.needs(community) if part.id in self.reports}
        budget = replace(self.budget, tokens=int(self.budget.tokens * share))
        return build_context(community, self.tree.parts(community), reports, self.tree.elements, budget)
