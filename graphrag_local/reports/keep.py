"""Which earlier reports hold still, and what is left of one whose community has changed. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from graphrag_local.records import ContextLine, Dropped, Finding, Report
from graphrag_local.reports.context import Context
from graphrag_local.reports.elements import Elements

LOST = "it was in a report and is no longer in the graph"  # marks a report that says less than what was written


class Earlier:
    """The reports of the current generation; `gone` are the ids of documents that the collection does not have any more, `moved` maps ids of
    documents to those that they have by now."""

    def __init__(self, reports: Iterable[Report], gone: Collection[str], moved: Mapping[str, str] = MappingProxyType({})) -> None:
        self._gone = frozenset(gone)
        self._by_mark: dict[str, list[Report]] = {}
        self._by_community: dict[str, Report] = {}
        for report in sorted(reports, key=lambda report: report.id):
            self._by_community[report.community_id] = _moved(report, moved)
            if not is_cut(report):
                self._by_mark.setdefault(report.fingerprint, []).append(report)

    def __bool__(self) -> bool:
        return bool(self._by_community)

    def written_from(self, context: Context, community_id: str) -> Report | None:
        """A whole report that was written from this very context, if need be about another community: the same would be written again."""
        found = self._by_mark.get(context.fingerprint, [])
        return next((report for report in found if report.community_id == community_id), found[0] if found else None)

    def about(self, community_id: str, elements: Elements, shape: str) -> Report | None:
        """What may be kept of the report of a community that has changed, marked as stale: nothing of what another model wrote, or with another
        prompt, and nothing where a document is gone that it may quote."""
        report = self._by_community.get(community_id)
        if report is None or report.shape != shape or not self._gone.isdisjoint(report.documents):
            return None
        return cut_to(elements, report)


def _moved(report: Report, moved: Mapping[str, str]) -> Report:
    """A report with its documents under the ids that they have by now."""
    if moved.keys().isdisjoint(report.documents):
        return report
    return replace(report, documents=tuple(sorted({moved.get(id_, id_) for id_ in report.documents})))


def cut_to(elements: Elements, report: Report) -> Report | None:
    """A report as a stale one that names existing records only; None where no finding is left."""
    cited = {source for finding in report.findings for source in finding.sources}
    lost = sorted(record for record in cited.union(report.untold) if record not in elements)
    findings = (replace(finding, sources=tuple(source for source in finding.sources if source in elements)) for finding in report.findings)
    kept: tuple[Finding, ...] = tuple(finding for finding in findings if finding.sources)
    if not kept:
        return None
    return replace(
        report,
        findings=kept,
        untold=tuple(record for record in report.untold if record in elements),
        dropped=(*report.dropped, *(Dropped(what=record, reason=LOST) for record in lost)),
        stale=True,
    )


def is_cut(report: Report) -> bool:
    """Whether a report has lost something since it was written, so that it is not what its context would give."""
    return any(row.reason == LOST for row in report.dropped)


def is_from(report: Report, context: Context) -> bool:
    """Whether a report was written from the very lines of a context, and cites no record but its own."""
    cited = {source for finding in report.findings for source in finding.sources}
    return [line.digest for line in report.context] == [line.digest for line in context.lines] and cited.issubset(context.ids.values())


def changed_share(old: Sequence[ContextLine], new: Sequence[ContextLine]) -> float:
    """How much of a context is another by now, from 0 to 1: the tokens of lines that went or of those that came, whichever are more, of the larger
    context's. The order of lines does not count; a line that is edited went and came, and counts once."""
    before, after = (Counter(line.digest for line in lines) for lines in (old, new))
    went, came = _tokens(old, before - after), _tokens(new, after - before)
    total = max(sum(line.tokens for line in old), sum(line.tokens for line in new))
    return max(went, came) / total if total else 0.0


def _tokens(lines: Sequence[ContextLine], counts: Counter[str]) -> int:
    tokens = {line.digest: line.tokens for line in lines}
    return sum(tokens[digest] * count for digest, count in counts.items())
