"""A forecast says what a run then does: extraction exactly, the rest within its bounds; and it leaves no trace."""

import asyncio
import random
from dataclasses import replace

import pytest

from graphrag_local.errors import BudgetSpent, CollectionMissing, EngineUnreachable, ModelMissing
from graphrag_local.forecast import forecast as forecasts
from graphrag_local.forecast.forecast import Forecast, forecast
from graphrag_local.indexing import Indexed
from graphrag_local.project import ProjectFolder, open_project
from graphrag_local.store.lock import BuildLock
from graphrag_local.wiring import open_model_side
from tests.forecast.world import SMALL, bytes_of, collection, cost_of, document, foreseen, indexed, sentence
from tests.modelserver import ModelServer
from tests.pipeline.running import CARD, Quiet, project_of, scripted

TOPICS = 3


@pytest.fixture(name="project")
def _project(tmp_path) -> ProjectFolder:
    return project_of(tmp_path / "town", collection(12, 12), *SMALL)


def check(found: Forecast, calls: dict[str, int], tokens: int, result: Indexed) -> None:
    """What was foreseen is what came."""
    built = result.built
    extraction = built.last_build["by_stage"]["extraction"]
    assert found.changes == built.changes
    assert (found.documents, found.chunks) == (len(built.snapshot.documents), len(built.snapshot.chunks))
    rest = found.rest_calls
    assert found.calls is not None
    assert rest.low <= sum(calls.values()) - found.calls <= rest.high
    gleaning, reports = found.by_kind["gleaning"], found.by_kind["reports"]
    assert gleaning.low <= calls.get("extract", 0) - found.calls <= gleaning.high
    assert reports.low <= calls.get("report", 0) <= reports.high
    if not gleaning.high and not found.by_kind["canonical names"].high:
        assert extraction["prompt_tokens"] == found.prompt_tokens
        assert found.completion_tokens.low <= extraction["completion_tokens"] <= found.completion_tokens.high
    least = found.prompt_tokens + found.completion_tokens.low + found.rest_tokens.low
    assert least <= tokens <= found.prompt_tokens * 1.5 + found.completion_tokens.high + found.rest_tokens.high


def change(project: ProjectFolder, dice: random.Random, step: int) -> None:
    """Edit, add, delete or rename something."""
    files = sorted(project.input_root.glob("*.txt"))
    kind = dice.choice(("edit", "edit two", "add", "delete", "rename", "edit and delete"))
    for path in dice.sample(files, 2 if kind == "edit two" else 1) if kind.startswith("edit") else ():
        lines = path.read_text().splitlines()
        lines[dice.randrange(len(lines))] = sentence(dice, dice.randrange(TOPICS))
        path.write_text("\n".join(lines) + "\n")
    victim = dice.choice(files)
    if "delete" in kind:
        victim.unlink()
    elif kind == "rename":
        victim.rename(victim.with_name(f"renamed-{step}-{victim.name}"))
    elif kind == "add":
        (project.input_root / f"new-{step}.txt").write_text(document(dice, dice.randrange(TOPICS), 12))


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("reports.write=all", "extraction.gleaning=turns"),
        ("reports.refresh=tolerant",),
        ("reports.write=lazy", "extraction.canonical=false"),
    ],
    ids=["default", "all levels, gleaning in turns", "tolerant", "lazy, no canonical names"],
)
def test_what_is_foreseen_comes(tmp_path, overrides):
    """Over a first build and random changes: the same changes, exactly the extraction calls and their prompt tokens, and the rest within its interval."""
    dice, engine = random.Random(len(overrides) + sum(map(len, overrides))), scripted()
    project = project_of(tmp_path, collection(11, 10), *SMALL, *overrides)
    for step in range(4):
        if step:
            change(project, dice, step)
        found = foreseen(project, engine)
        check(found, *cost_of(engine, lambda: indexed(project, engine)))


def test_nothing_to_do_is_nothing(project):
    """An index that is up to date needs no call, no token and no time."""
    engine = scripted()
    indexed(project, engine)
    found = foreseen(project, engine).summary()
    assert found["changes"]["same"] == 12
    assert found["extraction"] == {"calls": 0, "prompt_tokens": 0, "completion_tokens": [0, 0]}
    assert (found["rest"]["calls"], found["rest"]["tokens"], found["minutes"]) == ([0, 0], [0, 0], [0, 0])


def test_a_deletion_forces_calls_and_no_extraction(project):
    """Everything is known then, so the least is more than nothing and near the most."""
    engine = scripted()
    indexed(project, engine)
    (project.input_root / "d003.txt").unlink()
    found = foreseen(project, engine)
    assert (found.changes.gone, found.calls) == (("d003.txt",), 0)
    assert 0 < found.rest_calls.low <= found.rest_calls.high <= 2 * found.rest_calls.low
    check(found, *cost_of(engine, lambda: indexed(project, engine)))


def test_a_small_edit_of_a_large_collection_does_not_reach_all_of_it(tmp_path):
    """The most that one edited sentence can touch is well under all reports, and holds."""
    engine, project = scripted(), project_of(tmp_path, collection(40, 24), *SMALL)
    written = cost_of(engine, lambda: indexed(project, engine))[0]["report"]
    path = project.input_root / "d007.txt"
    path.write_text(path.read_text().replace(" knows ", " knows Mayor (3), so 1.\nT1n1 knows ", 1))
    found = foreseen(project, engine)
    assert found.by_kind["reports"].high < written
    check(found, *cost_of(engine, lambda: indexed(project, engine)))


def test_a_run_that_was_stopped_is_foreseen_to_its_end(project):
    """What the ledger has is not counted again."""
    engine = scripted(latency_s=0.0005)
    with pytest.raises(BudgetSpent):
        indexed(project, engine, budget=4000)
    done = sum(request.purpose == "extract" for request in engine.history)
    found = foreseen(project, engine)
    assert found.calls == found.chunks - done > 0
    check(found, *cost_of(engine, lambda: indexed(project, engine)))


def test_passages_that_are_too_long_count_with_all_their_parts(tmp_path):
    """In a window that holds half a chunk there are as many calls as there are halves."""
    window = replace(CARD, context_tokens=760)
    project = project_of(tmp_path, collection(3, 40), "extraction.max_reply_tokens=400", "chunks.min_tokens=200", "chunks.max_tokens=400")
    engine = scripted(card=window)
    found = foreseen(project, engine)
    calls, _, _ = cost_of(engine, lambda: indexed(project, engine))
    assert found.calls == calls["extract"] > found.chunks


def test_equal_passages_are_asked_about_once(project):
    """A copy of a document costs no call."""
    (project.input_root / "copy.txt").write_text((project.input_root / "d001.txt").read_text())
    engine = scripted()
    found = foreseen(project, engine)
    check(found, *cost_of(engine, lambda: indexed(project, engine)))
    assert found.calls < found.chunks


def test_changed_settings_are_told_instead_of_asked(project):
    """A dry run says what differs and what is redone, and counts it."""
    engine = scripted()
    indexed(project, engine)
    other = open_project(project.folder, ("vectors.kind=none", *SMALL, "extraction.types=person"))
    found = foreseen(other, engine)
    assert any("extraction.types" in note and "--yes" in note for note in found.notes)
    assert found.calls == found.chunks
    check(found, *cost_of(engine, lambda: indexed(other, engine, yes=True)))


def test_without_a_model_the_changes_are_told(project):
    """Where no model can be opened, that is said, calls are unknown, and the changes are there."""
    engine = scripted()
    indexed(project, engine)
    (project.input_root / "d003.txt").unlink()
    (project.input_root / "new.txt").write_text("Ada knows Bo (3).\n")
    before = bytes_of(project.folder)

    async def gone(*_, **__):
        raise EngineUnreachable("Nobody answers at the server.", hint="Start it.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forecasts, "open_model_side", gone)
        found = asyncio.run(forecast(project, lambda usage, log: Quiet())).summary()
    assert (found["changes"]["new"], found["changes"]["gone"]) == (("new.txt",), ("d003.txt",))
    assert (found["extraction"], found["rest"], found["minutes"]) == (None, None, None)
    assert "Nobody answers" in found["notes"][0]
    assert bytes_of(project.folder) == before


def test_a_dry_run_needs_no_model_of_answers(project):
    """A reranker that is set and not here is missed by questions, not by a run, which never loads it."""
    with ModelServer() as server:
        rules = (*SMALL, f"engine.url={server.url}", "vectors.kind=none", "query.reranker=some-cross-encoder")
        asking = open_project(project.folder, rules)
        with pytest.raises(ModelMissing, match="some-cross-encoder"):
            asyncio.run(open_model_side(asking, None, str))
        assert asyncio.run(forecast(asking, lambda usage, log: Quiet())).calls


def test_a_dry_run_needs_no_lock(project):
    """It looks while a build is going on."""
    engine = scripted()
    indexed(project, engine)
    with BuildLock(project.index):
        assert foreseen(project, engine).calls == 0


def test_minutes_are_at_the_speed_of_earlier_builds(project):
    """Unknown before the first reply; afterwards more work takes longer."""
    engine = scripted(latency_s=0.002)
    assert foreseen(project, engine).minutes is None
    indexed(project, engine)
    (project.input_root / "one.txt").write_text(document(random.Random(5), 1, 12))
    one = foreseen(project, engine).minutes
    for number in range(8):
        (project.input_root / f"more{number}.txt").write_text(document(random.Random(number), 1, 12))
    many = foreseen(project, engine).minutes
    assert one is not None
    assert many is not None
    assert 0 < one.low < one.high
    assert one.low < many.low
    assert one.high < many.high


def test_a_collection_that_vanished_is_an_error_in_a_dry_run_too(project):
    """It says what `index` would say; allowed, it is counted."""
    engine = scripted()
    indexed(project, engine)
    for path in project.input_root.glob("*.txt"):
        path.unlink()
    with pytest.raises(CollectionMissing):
        foreseen(project, engine)
    found = foreseen(project, engine, allow_empty=True)
    assert len(found.changes.gone) == 12
    assert (found.calls, found.rest_calls.high) == (0, 0)


def test_a_damaged_index_is_foreseen_to_be_built_anew(project):
    """The damage is told, and nothing that is in the ledger is counted."""
    engine = scripted()
    indexed(project, engine)
    victim = next(path for path in sorted((project.index / "generations").rglob("*.lance")) if path.is_file())
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    found = foreseen(project, engine)
    assert "cannot be used" in found.notes[0]
    assert len(found.changes.new) == 12
    check(found, *cost_of(engine, lambda: indexed(project, engine)))
