"""Which reports a level lacks, by what is published; apart from what writes them (`settling`), because most questions find none and shall not load it."""

from collections.abc import Iterable

from graphrag_local.project import ProjectFolder
from graphrag_local.records import Community, Failed, Report
from graphrag_local.store.reading import StoredIndex


def may_lack(index: StoredIndex, project: ProjectFolder, level: int) -> bool:
    """Whether a level may lack reports that could be written now, by what is read of the index already; not where other settings hold than made it:
    then `index` has to speak first."""
    about = index.manifest["about"]
    if not about["without_report"]["unwritten"] + about["without_report"]["stale"] or about["settings"] != project.settings.fingerprint():
        return False
    return bool(lacking_on(index.communities(), index.reports(), index.failures(), level))


def lacking_on(communities: Iterable[Community], reports: Iterable[Report], failures: Iterable[Failed], level: int) -> set[str]:
    """Communities of a level, of two entities or more, without a current report that did not fail before."""
    current = {report.community_id for report in reports if not report.stale}
    failed = {row.input_id for row in failures if row.stage == "reports"}
    there = (one for one in communities if one.first_level <= level <= one.last_level and len(one.member_ids) > 1)
    return {one.id for one in there if one.id not in current and one.id not in failed}
