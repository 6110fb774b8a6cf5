"""Reports that were written on first use live as long as what they were written from."""

import asyncio
from dataclasses import replace
from itertools import combinations

import pytest

from graphrag_local.flow import Silent
from graphrag_local.indexing import Indexed
from graphrag_local.project import ProjectFolder
from graphrag_local.records import Report
from graphrag_local.reports.stage import write_reports
from graphrag_local.status import status_of
from graphrag_local.store.generations import open_current
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.publish import content_digest, publish
from tests.pipeline.running import CARD, PROMPTS, index, model_of, opened, project_of, scribe, scripted, told_as

LAZY = ("reports.write=lazy", "reports.min_tokens=0")


def villages() -> dict[str, str]:
    """Three unconnected groups in which everybody knows everybody, told by a document each."""
    return {f"{name}.txt": told_as(combinations([f"{name}{n}x" for n in range(5)], 2)) for name in ("Ann", "Bo", "Cy")}


def write_on_first_use(project: ProjectFolder, made: Indexed) -> tuple[Report, ...]:
    """What a question does that needs reports: all root communities get theirs, and a generation that holds them is published."""
    snapshot = made.built.snapshot
    written = asyncio.run(
        write_reports(
            snapshot.communities, snapshot.entities, snapshot.relationships, snapshot.claims, snapshot.mentions, model_of(scripted()),
            PROMPTS["report"], project.settings.reports, previous=(), progress=Silent(), limit=4,
            only={community.id for community in snapshot.communities if not community.parent_id},
        )
    )  # fmt: skip
    fuller = replace(snapshot, reports=written.reports)
    with BuildLock(project.index) as lock:
        parent = open_current(project.index)
        digest = content_digest(fuller, {})
        publish(lock, fuller, digest=digest, counts=made.counts, about=parent.manifest.about, parent=parent)
        parent.close()
    return written.reports


@pytest.fixture
def asked_about(tmp_path):
    """A lazy project of which every root community was asked about, and the reports that came of it."""
    project = project_of(tmp_path, villages(), *LAZY)
    made = index(project)
    assert made.counts["reports"] == 0
    reports = write_on_first_use(project, made)
    assert len(reports) == 3
    return project, reports


def kept(project: ProjectFolder) -> set[Report]:
    with opened(project) as stored:
        return set(stored.reports())


def test_a_report_written_on_first_use_is_kept_by_the_next_index(asked_about):
    """Nothing changed: no call, and every report is there as it was."""
    project, reports = asked_about
    engine = scripted()
    index(project, engine, whole=True)

    assert engine.history == []
    assert kept(project) == set(reports)


def test_only_what_changed_makes_its_report_stale(asked_about):
    """An edit in one group leaves that group's report behind the times, and marked so; the others keep theirs, without a call for any report."""
    project, reports = asked_about
    path = project.input_root / "Bo.txt"
    path.write_text(path.read_text() + "Bo0x knows Bo9x (4).\n")
    engine = scripted()
    index(project, engine)
    with opened(project) as stored:
        (changed,) = {community.id for community in stored.communities() if len(community.member_ids) == 6}

    assert {request.purpose for request in engine.history} == {"extract"}
    assert len(kept(project) & set(reports)) == 2
    assert {report.community_id for report in kept(project) if report.stale} == {report.community_id for report in kept(project) - set(reports)} == {changed}


def test_a_deleted_document_takes_its_reports_along(asked_about):
    """What was written from a document that is gone is gone too."""
    project, reports = asked_about
    (project.input_root / "Cy.txt").unlink()
    index(project)

    assert len(kept(project)) == 2
    assert kept(project) < set(reports)


@pytest.mark.parametrize("other", [{"name": "another"}, {"revision": "2"}])
def test_another_model_keeps_no_report(asked_about, other):
    """A report is not taken for one of a model that did not write it."""
    project, _ = asked_about
    index(project, scripted(scribe, replace(CARD, **other)), yes=True)

    assert kept(project) == set()


def test_a_kept_report_is_not_written_again_when_it_becomes_due(asked_about):
    """Switching from lazy to eager writes only what is not there yet."""
    project, reports = asked_about
    engine = scripted()
    eager = replace(project, settings=project.settings.model_copy(update={"reports": project.settings.reports.model_copy(update={"write": "eager"})}))
    index(eager, engine)

    assert engine.history == []
    assert kept(project) == set(reports)


def test_status_counts_what_reports_have_no_room_for(tmp_path):
    """`left_out` of the status is the sum over all reports, 0 where everything fits."""
    hub = {"hub.txt": told_as(("P0x", f"P{n}x") for n in range(1, 200))}
    full = project_of(tmp_path / "full", hub, "reports.context_tokens=2000")
    roomy = project_of(tmp_path / "roomy", {"a.txt": told_as([("A0x", "A1x")])})
    index(full)
    index(roomy)

    assert status_of(full)["left_out"] == sum(report.left_out for report in kept(full)) > 100
    assert status_of(roomy)["left_out"] == 0
    assert status_of(project_of(tmp_path / "none", {}))["left_out"] == 0
