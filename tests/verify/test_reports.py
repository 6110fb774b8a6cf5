"""`status --verify` and reports: one that says it is of today's context and is not is named, where that can be reckoned without a model; else that is said."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphrag_local.absent import model_that_made
from graphrag_local.engine.base import Model, ModelCard
from graphrag_local.engine.nobody import Nobody
from graphrag_local.project import ProjectFolder, open_project
from graphrag_local.records import Report
from graphrag_local.store.generations import open_current
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.publish import counts_of, index_digest, publish
from graphrag_local.store.reading import snapshot_of
from graphrag_local.tokens import Estimate
from graphrag_local.verify.index import damages
from graphrag_local.verify.reports import OPEN, outdated
from tests.fakes import Characters
from tests.pipeline.running import index, scripted
from tests.query.world import WordEmbedder
from tests.verify.worlds import RULES, claiming, world


def by_letters(about: Mapping[str, Any]) -> Model:
    """The model side of the index, as if the tokenizer of its name were here."""
    return Model(generate=Nobody().generate, card=ModelCard(**about["model"]["card"]), counter=Characters())


def checked(project: ProjectFolder, model_of: Any = by_letters) -> tuple[list[str], str]:
    """What the check says."""
    return outdated(project.index, project.prompts["report"], project.settings, model_of)


def spoil(project: ProjectFolder, change: Any) -> None:
    """Publish the same records with changed reports."""
    with BuildLock(project.index) as lock, open_current(project.index) as parent:
        it = snapshot_of(parent)
        it = replace(it, reports=tuple(change(report) for report in it.reports))
        about = parent.manifest.about
        publish(lock, it, digest=index_digest(it, about), counts=counts_of(it), about=about, parent=parent)


def test_current_reports_pass(made):
    """Every report of a sound index is of today's context, reckoned from what the index says of its model."""
    with open_current(made.index) as generation:
        assert generation.manifest.counts["reports"] > 5
    assert checked(made) == ([], "")


def test_a_report_of_another_context_is_named(project):
    """One whose context has another fingerprint is named, though nothing else gives it away; one that says it is stale claims nothing."""
    first, second = sorted(report.community_id for report in _reports(project.index))[:2]

    def change(report: Report) -> Report:
        if report.community_id in (first, second):
            return replace(report, fingerprint="0" * len(report.fingerprint), stale=report.community_id == second)
        return report

    spoil(project, change)
    assert damages(project.index) == []
    (problem,), unchecked = checked(project)
    assert f"the report of community {first} says that it is current" in problem
    assert unchecked == ""


def _reports(index_folder: Path) -> tuple[Report, ...]:
    with open_current(index_folder) as generation:
        return snapshot_of(generation).reports


def test_what_cannot_be_checked_is_said(project):
    """Without the tokenizer of the index's model, under other settings for reports, and for an index that does not say how it counts, nothing is claimed."""
    assert checked(project, model_that_made)[0] == []
    assert "scribe" in checked(project, model_that_made)[1]
    other = open_project(project.folder, (*RULES, "reports.context_tokens=900"))
    assert checked(other) == ([], f"{OPEN}: other settings or another prompt for them hold now than made the index")
    with BuildLock(project.index) as lock, open_current(project.index) as parent:
        it, about = snapshot_of(parent), {name: value for name, value in parent.manifest.about.items() if name != "model"}
        publish(lock, it, digest=parent.manifest.digest, counts=counts_of(it), about=about, parent=parent)
    assert "does not say how its model counts" in checked(project, model_that_made)[1]


def test_an_index_that_cannot_be_read_is_left_to_the_others(project):
    """What is wrong with its files is not said twice."""
    next((project.index / "generations").rglob("reports.lance/data/*")).unlink()
    assert checked(project) == ([], "")


def test_an_estimate_is_all_there(tmp_path):
    """Counts by an estimate are made again from the manifest alone; so are those of an index without a model."""
    project = world(tmp_path / "project")
    index(project, scripted(claiming), counter=Estimate(rates={"latin": 0.3}, other=2.5), embedder=WordEmbedder(), whole=True)
    assert checked(project, model_that_made) == ([], "")
    with open_current(project.index) as generation:
        assert model_that_made(generation.manifest.about).counter == Estimate(rates={"latin": 0.3}, other=2.5)
