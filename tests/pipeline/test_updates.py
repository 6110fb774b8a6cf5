"""An index that was brought up to date again and again is the one that would be built from nothing, and costs no more than what changed."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from graphrag_local.graph.describe import Describer, Statement, Subject, summarise
from graphrag_local.ids import digest_of, document_id
from graphrag_local.settings import DescribeSettings
from tests.fakes import model_of
from tests.pipeline.changing import (
    EXACT,
    FIXED,
    STAGES,
    World,
    check_current,
    check_equal_to_rebuild,
    check_ledger,
    check_modularity,
    check_whole,
    saw,
)
from tests.pipeline.running import PROMPTS

KINDS = ("add", "edit", "edit", "edit", "rename", "delete", "touch", "repartition")
CRASHES = st.none() | st.integers(0, 12) | st.sampled_from(STAGES)
SEEDS = st.integers(0, 10**6)
STORIES = st.lists(st.tuples(st.sampled_from(KINDS), SEEDS, CRASHES), min_size=2, max_size=5)
SHORTER = st.lists(st.tuples(st.sampled_from(("edit", "edit", "add", "delete")), SEEDS, CRASHES), min_size=2, max_size=4)
MEMORY = Path("/dev/shm")
RULES = st.sampled_from([(), ("keep_generations=1",), FIXED, ("communities.max_cluster_size=8", "reports.context_tokens=400")])


def bounded(examples: int) -> settings:
    """The same so many examples on every run; a failing one is shown as it is, since making it smaller takes minutes."""
    return settings(max_examples=examples, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])


def folder() -> "tempfile.TemporaryDirectory[str]":
    """A folder that goes when its context ends, in memory where that can be."""
    return tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)


@contextmanager
def world_of(happened: Counter[str], *rules: str, documents: int, seed: int) -> Iterator[World]:
    """A world in a folder that goes when the example has ended; what happened there is counted."""
    with folder() as name:
        world = World.begun(Path(name) / "project", *rules, documents=documents, seed=seed)
        yield world
        happened.update(world.kept)


def change(world: World, kind: str, seed: int) -> str:
    """Do it, and say what it was: the last document is not deleted, and none is added twice."""
    if kind == "delete" and len(world.files) < 2:
        kind = "add"
    if kind == "add" and world.path_of(seed) in world.files:
        kind = "edit"
    match kind:
        case "add":
            world.add(seed)
        case "edit":
            world.edit(seed)
        case "rename":
            world.rename(seed)
        case "delete":
            world.delete(world.pick(seed))
        case "touch":
            (world.input / world.pick(seed)).touch()
    return kind


def test_after_any_story_the_index_is_the_one_built_from_nothing():
    """Add, edit, rename, delete, touch, group anew, crash and resume, in any order: the same records and digest, nothing dangles, nothing is out of date."""
    happened: Counter[str] = Counter()

    @bounded(16)
    @given(start=SEEDS, documents=st.integers(1, 5), rules=RULES, story=STORIES)
    def run(start, documents, rules, story):
        with world_of(happened, *EXACT, *rules, documents=documents, seed=start) as world, folder() as aside:
            before = world.published()
            for number, (kind, seed, crash) in enumerate(story):
                done = change(world, kind, seed)
                made = world.index(crash, repartition=done == "repartition")
                now = world.published()
                check_whole(world, now)
                check_current(world, now)
                assert not any(report.stale for report in now.snapshot.reports)
                check_equal_to_rebuild(world, now, Path(aside) / str(number))
                if rules != FIXED:
                    check_modularity(world, now)
                if "keep_generations=1" in rules:
                    check_ledger(world)
                if done == "rename":
                    assert world.asked == []
                if done == "touch":
                    assert (world.asked, made.published, now.digest) == ([], False, before.digest)
                happened.update([done, *(["anchor kept"] if now.anchor == before.anchor else ["anchor renewed"])])
                happened["levels"] = max(happened["levels"], len(made.counts["communities"]))
                before = now

    run()
    assert happened.keys() >= {*KINDS, "anchor kept", "anchor renewed", "killed among replies"}
    assert len([stage for stage in STAGES if happened[f"killed {stage}"]]) >= 4
    assert happened["modularity compared"] > 20
    assert happened["levels"] >= 3


def test_add_and_delete_restores_the_digest():
    """It is the very same index again, unless the anchor was renewed in between, which half of the examples rule out; and deleting asks nothing."""
    happened: Counter[str] = Counter()

    @bounded(10)
    @given(start=SEEDS, new=SEEDS, fixed=st.booleans(), crash=CRASHES)
    def run(start, new, fixed, crash):
        with world_of(happened, *EXACT, *(FIXED if fixed else ()), documents=4, seed=start) as world:
            before = world.published()
            path = world.add(10**7 + new)
            assert world.index(crash).published
            assert world.published().digest != before.digest
            world.delete(path)
            world.index()
            after = world.published()
            assert after.anchor == before.anchor or not fixed
            if after.anchor == before.anchor:
                assert world.asked == []
                assert after.snapshot == before.snapshot
                assert after.digest == before.digest
                happened[f"restored, {fixed=}"] += 1

    run()
    assert happened["restored, fixed=True"] >= 3
    assert happened["restored, fixed=False"] >= 1


def test_the_order_of_two_changes_does_not_matter():
    """Two edits in different documents, or an edit and a deletion, with a run after each: the same digest whichever came first, and as in one run."""

    @bounded(6)
    @given(start=SEEDS, first=SEEDS, second=SEEDS)
    def run(start, first, second):
        with world_of(Counter(), *EXACT, *FIXED, documents=4, seed=start) as world, folder() as aside:
            one, other = sorted(world.files)[first % 2 :: 2]

            def edit(it):
                it.edit(first, one)

            def edit_or_delete(it):
                it.edit(second, other) if second % 3 else it.delete(other)

            digests = set()
            for name, changes in (("ab", (edit, edit_or_delete)), ("ba", (edit_or_delete, edit))):
                twin = world.twin(Path(aside) / name)
                for apply in changes:
                    apply(twin)
                    twin.index()
                digests.add(twin.published().digest)
            edit(world)
            edit_or_delete(world)
            world.index()
            assert digests == {world.published().digest}

    run()


def test_eager_keeps_the_upper_levels_current_and_marks_the_rest():
    """After all reports were written once, `eager` rewrites the upper ones; a deeper one whose context changed stays and says that it is stale."""
    happened: Counter[str] = Counter()

    @bounded(6)
    @given(start=SEEDS, story=SHORTER)
    def run(start, story):
        with world_of(happened, "reports.write=eager", "reports.context_tokens=3000", documents=9, seed=start) as world:
            world.index(settle=True)
            assert not any(report.stale for report in world.published().snapshot.reports)
            for kind, seed, crash in story:
                change(world, kind, seed)
                world.index(crash)
                now = world.published()
                check_whole(world, now)
                check_current(world, now)
                level = {community.id: community.first_level for community in now.snapshot.communities}
                assert not any(report.stale for report in now.snapshot.reports if level[report.community_id] <= 1)
                happened["stale"] += sum(report.stale for report in now.snapshot.reports)
            world.index(settle=True)
            settled = world.published()
            assert not any(report.stale for report in settled.snapshot.reports)
            check_current(world, settled)

    run()
    assert happened["stale"] > 5


def test_tolerant_lets_small_changes_wait_but_no_report_outlives_its_document():
    """Reports may be stale, and then say so; whatever happens, none is left that saw a document which is gone."""
    happened: Counter[str] = Counter()

    @bounded(8)
    @given(start=SEEDS, story=SHORTER)
    def run(start, story):
        rules = ("reports.write=all", "reports.refresh=tolerant", "reports.refresh_share=0.3", "reports.context_tokens=3000")
        with world_of(happened, *rules, documents=5, seed=start) as world:
            for kind, seed, crash in story:
                done = change(world, kind, seed)
                world.index(crash)
                now = world.published()
                check_whole(world, now)
                check_current(world, now)
                there = {document_id(path) for path in world.files}
                assert all(there.issuperset(report.documents) for report in now.snapshot.reports)
                happened.update(stale=sum(report.stale for report in now.snapshot.reports), **{done: 1})

    run()
    assert happened["stale"] > 5
    assert happened["delete"] > 1


def test_a_deletion_takes_the_stale_reports_along_that_saw_the_document(tmp_path):
    """What `tolerant` lets wait after an edit is gone, or written anew, after a deletion."""
    rules = ("reports.write=all", "reports.refresh=tolerant", "reports.refresh_share=0.9", "reports.context_tokens=3000")
    world = World.begun(tmp_path / "project", *rules, documents=6, seed=11)
    world.edit(5)
    world.index()
    stale = [report for report in world.published().snapshot.reports if report.stale]
    path = next(path for path in sorted(world.files) if saw(stale, path))
    world.delete(path)
    world.index()

    assert stale
    assert not saw(world.published().snapshot.reports, path)


def test_a_renamed_document_keeps_its_replies_though_its_old_path_is_forgotten(tmp_path):
    """A rename asks nothing, nothing in the ledger names the old path any more, and the index can still be built anew from it."""
    world = World.begun(tmp_path / "project", *EXACT, "keep_generations=1", documents=4, seed=3)
    for seed in range(3):
        world.rename(seed)
        made = world.index()
        assert made.published
        assert world.asked == []
        check_ledger(world)
        check_equal_to_rebuild(world, world.published(), tmp_path / f"twin {seed}")


def test_a_text_shared_by_two_documents_stays_while_one_has_it(tmp_path):
    """Deleting one of two equal documents reads nothing again and takes no entity away; deleting the other takes what only they said."""
    world = World.begun(tmp_path / "project", *EXACT, "keep_generations=1", documents=3, seed=3)
    before = world.published()
    for path in ("one.txt", "two.txt"):
        world.write(path, ["Solo_Mara knows Solo_Nils (5).", "Solo_Mara knows Solo_Olav (5)."])
    world.index()
    world.delete("one.txt")
    world.index()
    asked, one_left = world.asked, world.published()
    check_equal_to_rebuild(world, one_left, tmp_path / "twin")
    check_ledger(world)
    world.delete("two.txt")
    world.index()
    after = world.published()

    assert {request.purpose for request in asked} <= {"report"}
    assert {entity.name for entity in one_left.snapshot.entities} >= {"Solo_Mara", "Solo_Nils", "Solo_Olav"}
    assert {entity.name for entity in after.snapshot.entities} == {entity.name for entity in before.snapshot.entities}
    check_ledger(world)


def test_one_mention_more_of_a_hub_costs_a_few_calls():
    """The summary of 5,000 statements is a tree: one statement more, or one less, is asked about on its way to the root and nowhere else."""
    asked: set[str] = set()

    def summary(request):
        asked.add(request.messages[-1].content)
        return f"The hub as {digest_of(request.messages[-1].content)} has it, in a description of some length that says a little about all of them."

    rules = DescribeSettings(threshold_tokens=256, group_tokens=2000)
    describer = Describer(model=model_of(summary, form="grammar"), prompt=PROMPTS["describe"], settings=rules)
    said = tuple(Statement(f"In the year {n} the hub met number {n * 7919 % 100_003}.", (f"d{n}",)) for n in range(5000))

    def calls_for(statements):
        asked.clear()
        asyncio.run(summarise(Subject("Hub", "entity"), statements, describer))
        return frozenset(asked)

    before = calls_for(said)
    assert len(before) > 100
    for place in range(0, 5000, 500):
        extra = Statement(f"Said later about {place}.", ("new",))
        assert 3 <= len(calls_for((*said[:place], extra, *said[place:])) - before) <= 9
        assert 3 <= len(calls_for((*said[:place], *said[place + 1 :])) - before) <= 9
