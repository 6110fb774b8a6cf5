"""Indexes without a model, from files to an answer: nobody is asked, an edit costs what changed, and a model can take over in place."""

import asyncio
import json
import os
import subprocess
import sys
from itertools import combinations

import pytest

from graphrag_local import service
from graphrag_local.errors import NoEngine, NotConfirmed
from graphrag_local.forecast.forecast import forecast
from graphrag_local.indexing import Order, run_index
from graphrag_local.project import open_project
from graphrag_local.records import Chunk, Report
from graphrag_local.store.generations import open_current
from graphrag_local.store.lance import Tables
from graphrag_local.text import one_line
from tests.pipeline.running import Quiet, index, opened, project_of, scripted
from tests.query.test_briefing import check

FAST = "extraction.method=fast"
FILES = {
    "harbour.txt": "Mira Holt runs the Harbour Museum in Port Ellis and pays for all of its boats. She hired Tomas Brandt in spring. Tomas Brandt had "
    "worked for the Salt Company before. The Salt Company owned the houses on the quay of Port Ellis.\n\nThe town council argues about dredging. Mira Holt "
    "told the town council that dredging costs more than the ferry earns.",
    "island.md": "# The island\n\nThe ferry from Port Ellis takes an hour. Jonas Weil, who sails it, knows Mira Holt from school. The Salt Company sends "
    "its salt with the ferry. Jonas Weil and Tomas Brandt mend the ferry together each winter.",
    "数据.txt": "李明和王芳在北京大学学习人工智能。王芳是北京大学的教授。李明住在上海。人工智能改变了世界。李明喜欢人工智能。李明认识王芳。北京大学位于海淀区。",
}  # fmt: skip


def indexed(project, **order):
    """One `index` as the command line does it: with whatever model side the settings ask for."""
    return asyncio.run(run_index(project, lambda usage, log: Quiet(), Order(**order)))


def asking_nobody(request):
    raise AssertionError(f"somebody asked: {request.purpose}")


def test_no_model_is_asked_and_every_quote_is_in_its_document(tmp_path):
    """Names, edges, communities and reports on all levels come from the text alone; descriptions and findings are sentences of it."""
    project = project_of(tmp_path, FILES, FAST, "reports.min_tokens=20", "reports.write=lazy")
    result = index(project, scripted(asking_nobody))
    build = result.built.last_build
    text = " ".join(one_line(document.text) for document in result.built.snapshot.documents)

    assert (build["calls"], build["prompt_tokens"], build["replayed"]) == (0, 0, 0)
    assert {"Mira Holt", "Salt Company", "Port Ellis", "北京大学"} <= {entity.name for entity in result.built.snapshot.entities}
    assert result.counts["relationships"]
    assert not result.counts["failures"]
    assert result.built.without_report["unwritten"] == 0
    assert result.built.snapshot.reports
    for report in result.built.snapshot.reports:
        assert report.findings
        assert report.title
        assert all(finding.summary in text for finding in report.findings)


def test_the_manifest_names_no_model_and_a_second_run_publishes_nothing(tmp_path):
    """The index says that it was made without a model; over the same documents it is the same index."""
    project = project_of(tmp_path, FILES, FAST)
    first = indexed(project)
    second = indexed(project)

    with open_current(project.index) as generation:
        assert generation.manifest.about["models"]["name"] == "none"
    assert first.published
    assert not second.published
    assert first.digest == second.digest


def test_a_briefing_over_it_cites_exactly(tmp_path):
    """A question without a model gets quotes that open at their words; a question to a model that is not there is told that this is possible."""
    project = project_of(tmp_path, FILES, FAST)
    indexed(project)
    answer = asyncio.run(service.run_briefing(project, "What is said about the ferry?", "global", None, lambda text: None))
    away = open_project(tmp_path, ("vectors.kind=none", FAST, "engine.kind=vllm"))

    with opened(project) as stored:
        check(answer, stored)
    assert answer.answered
    assert "ferry" in answer.answer
    assert answer.usage.calls == 0
    with pytest.raises(NoEngine) as error:
        asyncio.run(service.run_query(away, "What is said about the ferry?", "global", None, lambda text: None))
    assert "--no-model" in error.value.hint


def test_a_model_takes_over_in_place_and_can_leave_again(tmp_path):
    """From `fast` to `standard` documents and chunks stay as they are; either way has to be confirmed, and going back gives the first index again."""
    fast, standard = project_of(tmp_path, FILES, FAST), project_of(tmp_path, FILES)
    first = index(fast)
    with pytest.raises(NotConfirmed, match=r"'fast'.*'standard'.*reads all \d+ chunks"):
        index(standard)
    with open_current(fast.index) as generation:
        chunks = [chunk.id for chunk in Tables.of(generation).records(Chunk)]
    upgraded = index(standard, yes=True)
    with open_current(fast.index) as generation:
        kept = [chunk.id for chunk in Tables.of(generation).records(Chunk)]
        reports = Tables.of(generation).records(Report)
        assert generation.manifest.about["models"]["name"] == "scribe"
    with pytest.raises(NotConfirmed, match="no model is asked"):
        index(fast)
    again = index(fast, yes=True)

    assert kept == chunks
    assert upgraded.built.last_build["calls"] > 0
    assert all(report.title.startswith("Circle") for report in reports)
    assert upgraded.built.changes.same == len(FILES)
    assert not upgraded.built.changes.any
    assert again.digest == first.digest


def test_an_edit_rewrites_the_reports_that_it_touches(tmp_path):
    """A sentence in one of many documents leaves most of the graph and its reports as they were."""
    people = ["Ada Lorenz", "Bert Huber", "Carl Engel", "Dora Fuchs", "Emil Graf", "Frida Jung", "Hanna Ott", "Igor Maier"]
    files = {
        f"{number:02}.txt": " ".join(f"{one} {number:02} met {other} {number:02} at the mill of Ort{number:02}." for one, other in combinations(people, 2))
        for number in range(12)
    }
    project = project_of(tmp_path, files, FAST)
    first = indexed(project)
    (tmp_path / "input" / "03.txt").write_text(files["03.txt"] + " Ada Lorenz 03 met Nora Winter 03 at the mill.", encoding="utf-8")
    second = indexed(project)

    assert second.published
    assert second.built.changes.edited == ("03.txt",)
    assert 0 < second.built.rewritten <= first.counts["reports"] / 3


def test_a_dry_run_asks_and_costs_nothing(tmp_path):
    """The forecast of an index without a model opens none."""
    project = project_of(tmp_path, FILES, FAST, "engine.kind=vllm")
    found = asyncio.run(forecast(project, lambda usage, log: Quiet()))

    assert found.calls == 0
    assert found.chunks == 3
    assert any("No model is asked" in note for note in found.notes)


@pytest.mark.parametrize("files", [{}, {"a.txt": ""}, {"a.txt": "..."}, {"a.txt": "one word"}])
def test_collections_that_say_nothing(files, tmp_path):
    """Without documents there is nothing to index; documents without names give an index that can be asked and says that it has no answer."""
    project = project_of(tmp_path, {"b.txt": "x.", **files}, FAST)
    result = indexed(project)
    answer = asyncio.run(service.run_briefing(project, "Who is Mira?", "global", None, lambda text: None))

    assert result.counts["documents"] >= 1
    assert not answer.answered


def test_neither_torch_nor_transformers_is_loaded(tmp_path):
    """From the command line, without vectors: index and briefing load no library of the model side and open no connection."""
    project_of(tmp_path, FILES)
    code = (
        "import socket, sys\n"
        "def refused(*args, **rest): raise AssertionError('a connection was opened')\n"
        "socket.socket.connect = refused\n"
        "from graphrag_local.cli.main import app\n"
        "try:\n    app(sys.argv[1:])\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "assert not {'torch', 'transformers', 'sentence_transformers', 'outlines', 'llguidance'} & set(sys.modules)\n"
    )
    common = (str(tmp_path), "--set", "vectors.kind=none", "--json")
    said = [
        subprocess.run([sys.executable, "-c", code, *command, *common], stdout=subprocess.PIPE, check=True, env=os.environ).stdout
        for command in (("index", "--method", "fast"), ("query", "What is said about the ferry?", "--no-model"))
    ]

    assert json.loads(said[0])["last_build"]["calls"] == 0
    assert json.loads(said[1])["mode"] == "briefing"
    assert json.loads(said[1])["answered"]
