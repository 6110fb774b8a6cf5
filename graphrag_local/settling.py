"""Reports that are written when somebody asks for them: those of a level that `reports.write` left out, or that an update left stale."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from graphrag_local.changes import refuse_unasked
from graphrag_local.engine.base import EmbedderCard
from graphrag_local.engine.ledgered import Meter
from graphrag_local.errors import IndexBusy, NotConfirmed
from graphrag_local.flow import Silent
from graphrag_local.indexing import Order, decided_by, publish_built, run_of
from graphrag_local.pipeline import reportable, write_missing
from graphrag_local.project import ProjectFolder
from graphrag_local.records import Community, Failed, Report
from graphrag_local.store.generations import discard, open_current
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.reading import StoredIndex, snapshot_of
from graphrag_local.store.runlog import RunLog
from graphrag_local.wiring import ModelSide, on_ledger

Say = Callable[[str], None]


async def write_level(project: ProjectFolder, side: ModelSide, level: int, *, most: int, say: Say) -> str:
    """Write and publish the reports that a level lacks, with the model side of the asker; a note for the answer, "" where nothing was to be done.

    More than `most` are not written for one question: the note says how to write them all. Raises IndexBusy while somebody builds.
    """
    with BuildLock(project.index) as lock, open_current(project.index) as parent:
        side.keep_embedder(EmbedderCard.of(parent.manifest.about["models"]))
        try:
            refuse_unasked(parent.manifest.about, decided_by(project, side), parent.manifest.counts)
        except NotConfirmed:
            return "Other settings, prompts or models hold now than made the index: reports that this level lacks were not written."
        snapshot = await asyncio.to_thread(snapshot_of, parent)
        lacking = _lacking(snapshot.communities, snapshot.reports, snapshot.failures, level) & reportable(snapshot, project.settings)
        if not lacking:
            return ""
        if len(lacking) > most:
            return (
                f"{len(lacking):,} communities of level {level} have no report that is current; their elements were read instead. "
                "Write them all: graphrag-local index --settle"
            )
        log = RunLog(project.index)
        try:
            with Ledger.open(project.index / "ledger.sqlite") as ledger:
                asking = on_ledger(side, ledger, Meter())
                built = await write_missing(run_of(project, asking, ledger, Silent(), log.write, Order(), None), snapshot, lacking)
                await asking.ledgered.save_links()
            about = parent.manifest.about | {"without_report": built.without_report, "last_build": built.last_build}
            indexed = await asyncio.to_thread(publish_built, lock, parent, built, about)
            log.write("end", generation=indexed.generation, published=indexed.published, last_build=built.last_build)
        finally:
            log.close()
    if indexed.published:
        _take_the_place_of(project, parent.id)
        say(f"Wrote {built.rewritten:,} reports of level {level} for the first question about it.")
        return f"{built.rewritten:,} reports of level {level} were written for this question."
    return ""


def _take_the_place_of(project: ProjectFolder, before: str) -> None:
    """Remove the generation that only lacked those reports: it is none to go back to, and older ones are not to make room for it."""
    with contextlib.suppress(IndexBusy), BuildLock(project.index) as lock:
        discard(lock, [before])


def may_lack(index: StoredIndex, project: ProjectFolder, level: int) -> bool:
    """Whether a level may lack reports that could be written now, by what is read of the index already; not where other settings hold than made it:
    then `index` has to speak first."""
    about = index.manifest["about"]
    if not about["without_report"]["unwritten"] + about["without_report"]["stale"] or about["settings"] != project.settings.fingerprint():
        return False
    return bool(_lacking(index.communities(), index.reports(), index.failures(), level))


def _lacking(communities: Iterable[Community], reports: Iterable[Report], failures: Iterable[Failed], level: int) -> set[str]:
    """Communities of a level, of two entities or more, without a current report that did not fail before."""
    current = {report.community_id for report in reports if not report.stale}
    failed = {row.input_id for row in failures if row.stage == "reports"}
    there = (one for one in communities if one.first_level <= level <= one.last_level and len(one.member_ids) > 1)
    return {one.id for one in there if one.id not in current and one.id not in failed}
