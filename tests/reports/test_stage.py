"""Reports over a hierarchy: which are written, in which order, what is kept, and what is said of the rest."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from graphrag_local.engine.base import Model, Request
from graphrag_local.errors import EngineUnreachable
from graphrag_local.flow import Silent
from graphrag_local.reports.context import build_context
from graphrag_local.reports.elements import Elements
from graphrag_local.reports.stage import ReportsResult, write_reports
from graphrag_local.reports.write import budget_of
from tests.fakes import model_of
from tests.reports.graphs import PROMPT, circle, community, edge, entity, random_graph, settings, tree, valid_reply


class Counting(Silent):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.total = self.done = self.failed = 0

    def begin(self, stage: str, total: int) -> None:
        """A stage begins."""
        self.total = total

    def advance(self, stage: str, *, done: int = 0, failed: int = 0, more: int = 0) -> None:
        """Units end."""
        self.done += done
        self.failed += failed


def run(graph, model: Model | None = None, *, previous=(), only=None, progress=None, limit=8, **values: object) -> ReportsResult:
    """The reports of a graph of (entities, edges, claims, communities)."""
    people, edges, claims, rows = graph
    return asyncio.run(
        write_reports(
            rows, people, edges, claims, [], model or model_of(valid_reply), PROMPT, settings(**values),
            previous=previous, progress=progress or Silent(), limit=limit, only=only,
        )
    )  # fmt: skip


def written(result: ReportsResult) -> set[str]:
    """The communities that have a report."""
    return {report.community_id for report in result.reports}


def valley(description: str = "A person of the valley."):
    """Two circles under one root, and a loner with a row of its own."""
    left, left_edges = circle("Left", 5, description)
    right, right_edges = circle("Right", 4, description)
    rows = tree([left, right], levels=3)
    loner = entity("Loner", "Alone.")
    return [*left, *right, loner], [*left_edges, *right_edges, edge(left[0], right[0], "trade")], [], [*rows, community([loner], last=2)]


@effort(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30))
def test_all_writes_one_report_for_every_community_of_two_or_more(seed, size):
    """With `all` and nothing to fold, every community has a report except single entities."""
    graph = random_graph(seed, size)
    result = run(graph, write="all")

    assert written(result) == {row.id for row in graph[3] if len(row.member_ids) > 1}
    assert (result.failures, result.folded, result.unwritten) == ((), (), ())


@effort(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from(["eager", "lazy", "all"]), st.sampled_from([0, 20, 80]))
def test_every_community_is_accounted_for_and_cites_only_its_own(seed, size, write, least):
    """A community has a report, or is failed, folded, unwritten or single; sources are inside the community, also in parents of parts."""
    people, edges, claims, rows = graph = random_graph(seed, size)
    result = run(graph, write=write, min_tokens=least, context_tokens=700)
    single = {row.id for row in rows if len(row.member_ids) == 1}

    groups = [written(result), {f.input_id for f in result.failures}, set(result.folded), set(result.unwritten), single]
    assert sum(map(len, groups)) == len(rows)
    assert set().union(*groups) == {row.id for row in rows}
    members = {row.id: set(row.member_ids) for row in rows}
    elements = Elements(people, edges, claims)
    for report in result.reports:
        for source in (source for finding in report.findings for source in finding.sources):
            assert members[report.community_id].issuperset(elements.ends(source) or {source})


@pytest.mark.parametrize(("write", "levels"), [("eager", {0, 1}), ("lazy", set()), ("all", {0, 1, 2})])
def test_what_is_written_now_is_a_setting(write, levels):
    """Eager writes the two upper levels, lazy nothing, all everything; the rest is named as unwritten."""
    graph = random_graph(5, 40)
    result = run(graph, write=write)
    large = [row for row in graph[3] if len(row.member_ids) > 1]

    assert written(result) == {row.id for row in large if row.first_level in levels}
    assert set(result.unwritten) == {row.id for row in large if row.first_level not in levels}


def test_small_communities_are_folded_and_stay_in_their_parents_context():
    """A part with less text than the minimum has no report and costs no call; its elements are told by its parent."""
    history = []
    graph = valley()
    root, *parts, _ = graph[3]
    size = Elements(*graph[:3]).size(parts[0].member_ids)
    result = run(graph, model_of(valid_reply, history=history), min_tokens=int(size) + 1)

    assert written(result) == {root.id}
    assert set(result.folded) == {part.id for part in parts}
    assert "Left 3 (person)" in history[0].messages[-1].content
    assert "Right 3 (person)" in history[0].messages[-1].content


def test_small_unconnected_groups_have_a_report_each_and_loners_none():
    """A root with an edge is never folded, however small; loners cost no call and are in no group."""
    groups = [circle(name, 3) for name in ("Canal", "Bakery", "Comet")]
    loners = [entity("Prize"), entity("Ledger")]
    rows = [community(people, last=1) for people, _ in groups] + [community([loner], last=1) for loner in loners]
    history = []
    graph = ([*(p for people, _ in groups for p in people), *loners], [e for _, edges in groups for e in edges], [], rows)
    result = run(graph, model_of(valid_reply, history=history), min_tokens=600)

    assert len(result.reports) == len(history) == 3
    assert written(result) == {row.id for row in rows[:3]}


@pytest.mark.parametrize("count", [0, 1])
def test_a_graph_without_a_group_is_a_valid_result(count):
    """No entity, or one, gives no report and no error."""
    people = [entity("Only")][:count]

    assert run((people, [], [], [community(people)] if people else [])).reports == ()


def asking(graph, order: list[str], waits: dict[str, Callable[[], bool]], **values: object) -> ReportsResult:
    """A run with a model that notes the order of its requests' communities and waits for something with some (by a name in the prompt)."""
    whole = model_of(valid_reply)

    async def generate(request: Request):
        text = request.messages[-1].content
        name = next((name for name in waits if name in text), "")
        order.append(f"begin {name}")
        async with asyncio.timeout(60):
            while name and not waits[name]():
                await asyncio.sleep(0.001)
        order.append(f"end {name}")
        return await whole.generate(request)

    return run(graph, replace(whole, generate=generate), **values)


def test_a_parent_starts_before_unrelated_parts_are_done():
    """A parent waits for its own parts only, not for the rest of their level."""
    quick, quick_edges = circle("Quick", 12, "q" * 60)
    slow, slow_edges = circle("Slow", 12, "s" * 60)
    rows = [*tree([quick[:6], quick[6:]]), *tree([slow[:6], slow[6:]])]
    order: list[str] = []
    waits = {"Quick": lambda: True, "Slow": lambda: order.count("begin Quick") == 3}
    result = asking(([*quick, *slow], [*quick_edges, *slow_edges], [], rows), order, waits, context_tokens=1200)

    assert len(result.reports) == 6
    assert order.index("end Slow") > max(place for place, what in enumerate(order) if what == "begin Quick")


def test_a_parent_reads_the_reports_of_its_parts():
    """Where the elements do not fit, the parent's request holds what was written about its parts, and is sent after them."""
    history = []
    graph = valley("w" * 150)
    root = graph[3][0]
    result = run(graph, model_of(valid_reply, history=history), context_tokens=900)

    assert len(history) == 3
    assert "## The valley" in history[-1].messages[-1].content
    assert root.id in written(result)


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_arrival_changes_neither_prompts_nor_reports(seed):
    """Shuffled records, other concurrency and late replies give the same requests and the same reports."""
    chance = random.Random(seed)
    graph = random_graph(11, 40)
    first, second = [], []
    expected = run(graph, model_of(valid_reply, history=first), write="all", context_tokens=700, limit=1)
    shuffled = tuple(chance.sample(rows, len(rows)) for rows in graph)
    found = run(shuffled, model_of(valid_reply, history=second), write="all", context_tokens=700, limit=1 + seed * 5)

    assert found == expected
    assert {r.messages for r in first} == {r.messages for r in second}


def test_the_same_context_costs_no_call():
    """Earlier reports are kept by fingerprint, whatever their community was called; only what changed is asked for."""
    graph = valley()
    before = run(graph)
    renamed = replace(graph[3][1], id="a" * 32)
    root = replace(graph[3][0], child_ids=(renamed.id, graph[3][2].id))
    history = []
    model = model_of(valid_reply, history=history)
    again = run((*graph[:3], [root, renamed, *graph[3][2:]]), model, previous=[replace(r, stale=True) for r in before.reports])

    assert history == []
    assert len(again.reports) == len(before.reports)
    assert renamed.id in written(again)
    assert len({report.id for report in again.reports}) == len(again.reports)
    assert not any(report.stale for report in again.reports)

    changed = [replace(person, description="Moved away.") if person.name == "Right 2" else person for person in graph[0]]
    run((changed, *graph[1:]), model, previous=before.reports)
    assert len(history) == 2  # the part that she is in and the root; the other part is kept


def test_a_report_written_on_first_use_is_the_one_that_eager_would_have_written():
    """`only` writes a community with the parts that it needs, and the result is that of an eager run."""
    graph = valley("w" * 150)
    root = graph[3][0]
    eager = run(graph, context_tokens=900)
    lazy = run(graph, write="lazy", only={root.id}, context_tokens=900)

    assert lazy.reports == eager.reports
    assert set(run(graph, write="lazy", only={graph[3][1].id}, context_tokens=900).unwritten) == {root.id, graph[3][2].id}


def test_what_was_written_on_first_use_is_kept_and_changes_nothing_above():
    """A deeper report that was asked for stays while its context holds, and the reports above do not move."""
    graph = random_graph(5, 40)
    eager = run(graph, context_tokens=700)
    deep = {row.id for row in graph[3] if row.first_level == 2 and len(row.member_ids) > 1}
    history = []
    model = model_of(valid_reply, history=history)
    asked = run(graph, model, previous=eager.reports, only=deep, context_tokens=700)
    assert len(history) == len(deep) > 0

    after = run(graph, model, previous=asked.reports, context_tokens=700)
    assert len(history) == len(deep)
    assert after.reports == asked.reports
    assert set(eager.reports) <= set(after.reports)


def deep_valley():
    """One root over two villages of three circles each: a village does not fit a small context, a circle does."""
    circles = [circle(name, 4, "w" * 80) for name in ("Ann", "Bo", "Cy", "Dee", "Eve", "Fay")]
    people, edges = [[part[at] for part in circles] for at in (0, 1)]
    everybody = [person for group in people for person in group]
    leaves = [community(group, level=2) for group in people]
    villages = [community([*a, *b, *c], level=1, children=leaves[at : at + 3]) for at, (a, b, c) in ((0, people[:3]), (3, people[3:]))]
    leaves = [replace(leaf, parent_id=villages[at // 3].id) for at, leaf in enumerate(leaves)]
    root = community(everybody, children=villages)
    bridges = [edge(people[at][0], people[at + 1][0], "road") for at in range(5)]
    rows = [root, *(replace(village, parent_id=root.id) for village in villages), *leaves]
    return everybody, [*(tie for group in edges for tie in group), *bridges], [], rows


def test_eager_writes_the_deeper_parts_that_a_context_stands_on():
    """Where a village overflows, its circles are written first and stand in it, so that nobody is left out; where it fits, they are not."""
    graph, history = deep_valley(), []
    result = run(graph, model_of(valid_reply, history=history), write="eager", context_tokens=1600)
    leaves = {row.id for row in graph[3] if row.first_level == 2}

    assert written(result) == {row.id for row in graph[3]}
    assert all(report.left_out == 0 and report.untold == () for report in result.reports)
    assert len(history) == len(graph[3])
    assert leaves <= set(run(graph, write="eager").unwritten)


def test_folded_parts_of_a_full_context_are_told_alike():
    """Where parts have no report of their own, each has its share of its parent's context, and what is left out is counted and named."""
    crowd = [circle(f"Circle{number}x", 12 if number == 0 else 4, "w" * 40) for number in range(6)]
    groups, edges = [[part[at] for part in crowd] for at in (0, 1)]
    hub = groups[0][0]
    edges[0] += [edge(hub, other, "pays") for other in groups[0][2:-1]]
    rows, history = tree(groups), []
    graph = ([person for group in groups for person in group], [tie for group in edges for tie in group], [], rows)
    result = run(graph, model_of(valid_reply, history=history), min_tokens=10**6, context_tokens=1500)
    text = history[-1].messages[-1].content
    (report,) = result.reports

    assert all(f"Circle{number}x" in text for number in range(6))
    assert report.left_out > 10
    names = {person.id: person.name for person in graph[0]}
    assert {name for name in names.values() if f"{name} (person)" not in text} == {names[one] for one in report.untold}


def test_what_a_part_left_out_is_untold_above():
    """An entity that a part's report had no room for is not told by the parent that stands on that report."""
    graph = valley("w" * 150)
    history = []
    result = run(graph, model_of(valid_reply, history=history), write="all", context_tokens=300)
    by_community = {report.community_id: report for report in result.reports}
    root, left, right, _ = graph[3]

    assert by_community[left.id].untold
    assert "## The valley" in history[-1].messages[-1].content
    assert set(by_community[root.id].untold) >= set(by_community[left.id].untold) | set(by_community[right.id].untold)


def test_a_failed_part_does_not_take_its_parent_along():
    """A part whose report fails is named, and its parent is written from its elements."""
    graph = valley("w" * 150)
    progress, history = Counting(), []

    def answer(request):
        text = request.messages[-1].content
        return "[]" if "Left 1" in text and "Right 1" not in text and "##" not in text else valid_reply(request)

    result = run(graph, model_of(answer, history=history), progress=progress, context_tokens=1300)

    assert [failure.input_id for failure in result.failures] == [graph[3][1].id]
    assert "'[]'" in result.failures[0].reason
    assert graph[3][0].id in written(result)
    assert (progress.total, progress.done, progress.failed) == (3, 2, 1)
    assert result.unwritten == ()


def test_what_did_not_fit_is_counted():
    """Elements that found no room in a context are counted for its community."""
    graph = valley("w" * 150)
    result = run(graph, write="all", context_tokens=400)

    counted = {report.community_id: report.left_out for report in result.reports}
    assert counted[graph[3][1].id] > 0
    assert all(report.left_out == 0 for report in run(graph, write="all").reports)


def test_a_server_that_goes_away_stops_the_run_at_once():
    """An unreachable server ends the stage with its own error, parents that wait included."""

    def answer(_):
        raise EngineUnreachable("away")

    with pytest.raises(EngineUnreachable):
        run(valley("w" * 150), model_of(answer), context_tokens=900)


def test_a_hubs_new_edge_elsewhere_leaves_a_report_alone():
    """Another note that touches one group neither asks about nor renames the other."""
    graph = valley()
    before = run(graph)
    guest = entity("Guest", "New here.")
    hub = next(person for person in graph[0] if person.name == "Left 0")
    root, left, right, loner = graph[3]
    left = replace(left, member_ids=tuple(sorted((*left.member_ids, guest.id))))
    root = replace(root, member_ids=tuple(sorted((*root.member_ids, guest.id))))
    history = []
    grown = ([*graph[0], guest], [*graph[1], edge(hub, guest, "hosts", 9.0)], [], [root, left, right, loner])
    after = run(grown, model_of(valid_reply, history=history), previous=before.reports)

    assert len(history) == 2
    assert [r for r in after.reports if r.community_id == right.id] == [r for r in before.reports if r.community_id == right.id]


def test_budgets_hold_at_every_level_of_a_large_graph():
    """No context of a deep hierarchy exceeds its budget."""
    graph = random_graph(2, 150)
    history = []
    model = model_of(valid_reply, window=4096, history=history)
    run(graph, model, write="all")
    budget = budget_of(model, PROMPT, settings(write="all"))
    empty = build_context(community([entity("x")]), [], {}, Elements([], []), budget)

    assert empty.ids == {}
    assert len(history) > 10
    assert all(model.fits(request.messages, request.max_tokens) for request in history)
