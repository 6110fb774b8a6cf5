"""Reports over updates: what is written anew and when, what stays as stale, and what must go."""

import asyncio
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from graphrag_local.engine.base import Reply, Request
from graphrag_local.errors import ContextOverflow, EngineHung
from graphrag_local.flow import Silent
from graphrag_local.ids import digest_of
from graphrag_local.records import Mention, Report
from graphrag_local.reports.elements import Elements
from graphrag_local.reports.keep import is_cut
from graphrag_local.reports.stage import ReportsResult, stale_reports, write_reports
from tests.fakes import model_of
from tests.reports.graphs import PROMPT, Graph, circle, community, edge, entity, mention, random_graph, settings, tree, valid_reply, with_words, without


def telling(request: Request) -> str:
    """A report with a title of its own for every context."""
    return valid_reply(request, title=digest_of(request.messages[-1].content)[:12])


def mentions_of(graph: Graph) -> list[Mention]:
    """Every entity is told of in a document of its own name."""
    return [mention(person, f"d {person.name}") for person in graph[0]]


def run(graph: Graph, history: list | None = None, *, answer=telling, previous=(), mentions=None, prompt=PROMPT, **values) -> ReportsResult:
    """The reports of a graph; `gone`, `settle` and `only` go to the stage, other values are settings."""
    asked = {key: values.pop(key) for key in ("gone", "settle", "only") if key in values}
    return asyncio.run(
        write_reports(
            graph[3], *graph[:3], mentions_of(graph) if mentions is None else mentions, model_of(answer, history=history), prompt, settings(**values),
            previous=previous, progress=Silent(), limit=4, **asked,
        )
    )  # fmt: skip


def stale_now(graph: Graph, result: ReportsResult, **values) -> tuple[str, ...]:
    """The communities whose report is not what it says."""

    def refuse(_: Request) -> str:
        raise AssertionError("nothing may be asked")

    return stale_reports(graph[3], *graph[:3], mentions_of(graph), result.reports, model_of(refuse), PROMPT, settings(**values))


def valley(words: str = "A person of the valley.", left: int = 12, right: int = 11) -> Graph:
    """Two circles under one root."""
    (a, a_edges), (b, b_edges) = circle("Left", left, words), circle("Right", right, words)
    return [*a, *b], [*a_edges, *b_edges, edge(a[0], b[0], "trade")], [], tree([a, b])


def by_community(result: ReportsResult) -> dict[str, Report]:
    """The reports by community."""
    return {report.community_id: report for report in result.reports}


GRAPH = valley()
ROOT, LEFT, RIGHT = (row.id for row in GRAPH[3])
FULL = run(GRAPH)
EDITED = with_words(GRAPH, "Right 2", "Moved away.")
CUT = {"context_tokens": 1500}  # the root stands on the reports of both parts
DEEP = valley("w" * 150)
STANDING = run(DEEP, **CUT)


def test_a_new_report_knows_its_lines_documents_and_frame():
    """What a report was written from is in the record, and its request is linked to the very documents."""
    history = []
    report = by_community(run(GRAPH, history, only={RIGHT}))[RIGHT]

    assert set(report.documents) == {f"d Right {n}" for n in range(11)}
    assert history[0].documents == report.documents
    assert len(report.context) == len(history[0].messages[-1].content.partition("<text>\n")[2].partition("\n</text>")[0].splitlines())
    assert report.shape


def test_what_is_wanted_is_written_anew_at_once():
    """Exactly: those that hold an edited record, and nothing else."""
    history = []
    result = run(EDITED, history, previous=FULL.reports)

    assert (len(history), result.written, result.stale) == (2, 2, ())
    assert result.reports == run(EDITED).reports
    assert by_community(result)[LEFT] == by_community(FULL)[LEFT]


def test_what_is_not_wanted_stays_as_a_stale_report():
    """A changed community that nobody asks for keeps its report, which says that it is stale and what it was written from."""
    history = []
    result = run(EDITED, history, previous=FULL.reports, write="lazy")

    assert history == []
    assert (result.stale, result.unwritten, result.written) == ((ROOT, RIGHT), (), 0)
    before, after = by_community(FULL), by_community(result)
    assert after == {LEFT: before[LEFT], ROOT: replace(before[ROOT], stale=True), RIGHT: replace(before[RIGHT], stale=True)}


def test_a_stale_report_is_current_again_when_its_context_comes_back():
    """An edit that is taken back costs nothing."""
    history = []
    stale = run(EDITED, previous=FULL.reports, write="lazy")
    result = run(GRAPH, history, previous=stale.reports)

    assert (history, result.stale, result.reports) == ([], (), FULL.reports)


def test_a_stale_report_is_written_anew_on_first_use():
    """Once it is asked for it is brought up to date, and the others wait on."""
    stale = run(EDITED, previous=FULL.reports, write="lazy")
    result = run(EDITED, previous=stale.reports, write="lazy", only={RIGHT})

    assert (result.written, result.stale) == (1, (ROOT,))
    assert by_community(result)[RIGHT] == by_community(run(EDITED))[RIGHT]


def test_small_changes_are_tolerated_and_large_ones_are_not():
    """With `tolerant` a report stays until the set share of its context has changed."""
    history = []
    small = run(EDITED, history, previous=FULL.reports, refresh="tolerant")
    assert (history, small.stale, small.written) == ([], (ROOT, RIGHT), 0)

    large = run(EDITED, history, previous=FULL.reports, refresh="tolerant", refresh_share=0.03)
    assert (len(history), large.stale) == (1, (ROOT,))


def test_small_changes_add_up_over_updates():
    """What was tolerated once counts on: a stale report is measured by what it was written from."""
    graph, result, written = GRAPH, FULL, []
    for number in range(4):
        graph = with_words(graph, f"Right {number}", f"Moved away in the year {number}.")
        result = run(graph, previous=result.reports, refresh="tolerant", refresh_share=0.15)
        written.append(RIGHT not in result.stale)

    assert written == [False, False, True, False]


def test_a_report_that_saw_a_document_that_is_gone_is_written_anew():
    """However little changed, and also with `tolerant`: it may quote what was deleted."""
    history = []
    result = run(EDITED, history, previous=FULL.reports, refresh="tolerant", gone={"d Right 2"})

    assert (len(history), result.stale) == (2, ())
    assert run(EDITED, previous=FULL.reports, refresh="tolerant", gone={"d Nobody"}).stale == (ROOT, RIGHT)


def test_a_report_that_saw_a_document_that_is_gone_is_not_kept():
    """Where nobody asks for it, it is unwritten rather than stale."""
    result = run(EDITED, previous=FULL.reports, write="lazy", gone={"d Right 2"})

    assert (set(by_community(result)), result.unwritten, result.stale) == ({LEFT}, (ROOT, RIGHT), ())


def test_the_same_context_is_the_same_report_in_other_documents():
    """A text that another document has too stays, and the report names the documents that have it now."""
    moved = [mention(person, f"new {person.name}") for person in GRAPH[0]]
    history = []
    result = run(GRAPH, history, previous=FULL.reports, mentions=moved, gone={m.document_id for m in mentions_of(GRAPH)})

    assert (history, result.stale) == ([], ())
    assert set(by_community(result)[RIGHT].documents) == {f"new Right {n}" for n in range(11)}


def test_a_stale_report_names_nothing_that_is_gone():
    """Its findings keep the sources that exist; no id of it leads nowhere."""
    cited = {source for finding in by_community(FULL)[RIGHT].findings for source in finding.sources}
    name = next(person.name for person in GRAPH[0] if person.id in cited)
    fewer = without(GRAPH, name)
    result = run(fewer, previous=FULL.reports, write="lazy")
    elements = Elements(*fewer[:3])
    report = by_community(result)[RIGHT]

    assert RIGHT in result.stale
    assert is_cut(report)
    assert {source for finding in report.findings for source in finding.sources} == {source for source in cited if source in elements} != cited


def test_a_report_that_has_lost_all_its_sources_is_dropped():
    """It is unwritten where nobody asks for it, and is written where somebody does, `tolerant` or not."""
    cited = {source for finding in by_community(FULL)[RIGHT].findings for source in finding.sources}
    names = {person.name for person in GRAPH[0] if person.id in cited or any(person.id in (t.source_id, t.target_id) for t in GRAPH[1] if t.id in cited)}
    fewer = without(GRAPH, *names)
    assert RIGHT in run(fewer, previous=FULL.reports, write="lazy").unwritten

    tolerant = run(fewer, previous=FULL.reports, refresh="tolerant", refresh_share=1)
    assert RIGHT in by_community(tolerant)
    assert RIGHT not in tolerant.stale


@pytest.mark.parametrize("refresh", ["exact", "tolerant"])
def test_a_report_that_lost_something_is_whole_again_when_its_context_is(refresh):
    """A record that goes and comes back leaves no gap: the cut report is not taken for what its context gives."""
    cited = {source for finding in by_community(FULL)[RIGHT].findings for source in finding.sources}
    name = next(person.name for person in GRAPH[0] if person.id in cited)
    cut = run(without(GRAPH, name), previous=FULL.reports, write="lazy")
    again = run(GRAPH, previous=cut.reports, write="lazy")
    assert RIGHT in again.stale

    assert run(GRAPH, previous=again.reports, refresh=refresh).reports == FULL.reports


def test_settling_writes_all_that_there_can_be():
    """Every level, stale ones and those that `lazy` leaves out, also with `tolerant`."""
    rows = random_graph(5, 40)
    result = run(rows, write="lazy", refresh="tolerant", settle=True)
    assert {report.community_id for report in result.reports} == {row.id for row in rows[3] if len(row.member_ids) > 1}

    tolerated = run(EDITED, previous=FULL.reports, refresh="tolerant")
    settled = run(EDITED, previous=tolerated.reports, refresh="tolerant", settle=True)
    assert settled.reports == run(EDITED).reports


@pytest.mark.parametrize("failing", ["cut off", "hung"])
def test_the_earlier_report_stays_where_the_new_one_fails(failing):
    """A reply that is cut off, or a server's fault, leaves the old report, stale, beside the failure."""

    def fail(request: Request) -> Reply:
        if failing == "hung":
            raise EngineHung("late")
        return Reply(text=telling(request)[:40], finish_reason="length")

    result = run(EDITED, answer=fail, previous=FULL.reports)

    assert {failure.input_id for failure in result.failures} == set(result.stale) == {ROOT, RIGHT}
    assert by_community(result)[RIGHT] == replace(by_community(FULL)[RIGHT], stale=True)
    assert (result.written, result.unwritten) == (0, ())

    gone = run(EDITED, answer=fail, previous=FULL.reports, gone={"d Right 2"})
    assert (set(by_community(gone)), len(gone.failures), gone.unwritten) == ({LEFT}, 2, ())


def test_a_tolerant_parent_stands_on_its_parts_as_they_are():
    """A part that stays stale costs its parent nothing, which holds what it was written from and is current."""
    history = []
    edited = with_words(DEEP, "Right 2", "Moved away.")
    result = run(edited, history, previous=STANDING.reports, refresh="tolerant", refresh_share=0.2, **CUT)

    assert (history, result.stale) == ([], (RIGHT,))
    assert by_community(result)[ROOT] == by_community(STANDING)[ROOT]


def test_a_parent_on_a_part_that_waits_waits_too():
    """Where the part would be written anew if it were wanted, the parent is as stale as its part, and both are brought up to date together."""
    edited = with_words(DEEP, "Right 2", "Moved away.")
    for values in ({}, {"refresh": "tolerant", "refresh_share": 0.01}):
        result = run(edited, previous=STANDING.reports, write="lazy", **CUT, **values)
        assert result.stale == (ROOT, RIGHT)
        asked = run(edited, previous=result.reports, write="lazy", only={ROOT}, **CUT, **values)
        assert (asked.stale, asked.written) == ((), 2)
        assert asked.reports == run(edited, **CUT).reports


def test_a_parent_on_a_part_that_failed_is_stale_with_it():
    """The part's earlier report stands in the parent, which is written, and says that it is not up to date."""
    edited = with_words(with_words(DEEP, "Right 2", "Moved away."), "Left 0", "Gone fishing.")

    def answer(request: Request) -> str:
        text = request.messages[-1].content
        return "[]" if "Moved away" in text else telling(request)

    history = []
    result = run(edited, history, answer=answer, previous=STANDING.reports, **CUT)
    assert (result.stale, result.written) == ((ROOT, RIGHT), 2)
    assert by_community(STANDING)[RIGHT].title in history[-1].messages[-1].content

    after = run(edited, previous=result.reports, **CUT)
    assert (after.stale, after.reports) == ((), run(edited, **CUT).reports)


def test_a_parent_knows_the_documents_that_a_stale_part_saw():
    """What speaks of nobody any more but is in a part's older report is among the parent's documents and those of its request; once gone, all goes."""
    edited = with_words(DEEP, "Right 2", "Moved away.")
    told = {"Right 2": "d later", "Left 0": "d newer"}
    mentions = [mention(person, told.get(person.name, f"d {person.name}")) for person in edited[0]]
    values = {"refresh": "tolerant", "mentions": mentions, **CUT}
    history = []
    result = run(edited, history, previous=STANDING.reports, gone={"d Left 0"}, refresh_share=0.2, **values)
    root = by_community(result)[ROOT]

    # The left part has the same context in another document; the root's is the same too, on top of the stale right part.
    assert (result.stale, history) == ((RIGHT,), [])
    assert {"d Right 2", "d later", "d newer"} <= set(root.documents)
    edited = with_words(edited, "Left 0", "Gone fishing.")
    written = run(edited, history, previous=result.reports, gone={"d newer"}, refresh_share=0.2, **values)
    assert (written.stale, len(history)) == ((RIGHT,), 2)
    assert history[-1].documents == by_community(written)[ROOT].documents == root.documents

    after = run(edited, history, previous=written.reports, gone={"d Right 2"}, refresh_share=0.2, **values)
    assert (after.stale, len(history)) == ((), 4)
    assert "d Right 2" not in {seen for report in after.reports for seen in report.documents}


@pytest.mark.parametrize("refresh", ["exact", "tolerant"])
def test_what_another_prompt_or_language_gave_is_not_kept(refresh):
    """A report that would be written otherwise today is neither current nor stale: it is written anew, or is none."""
    assert run(GRAPH, previous=FULL.reports, refresh=refresh, language="Finnish").written == 3
    lazy = run(GRAPH, previous=FULL.reports, refresh=refresh, language="Finnish", write="lazy")
    assert (lazy.reports, set(lazy.unwritten)) == ((), {ROOT, LEFT, RIGHT})


def test_a_report_from_a_smaller_context_is_kept_as_long_as_that_one_holds():
    """After an overflow the report is recognised by the context that was asked with first and by the one that it was written from."""
    overflowing = len(by_community(FULL)[ROOT].context)

    def answer(request: Request) -> str:
        if request.messages[-1].content.count("\n") > overflowing:
            raise ContextOverflow("too long", window=100)
        return telling(request)

    before = run(GRAPH, answer=answer, context_tokens=2500)
    assert len(before.reports) == 3
    assert len(by_community(before)[ROOT].context) < overflowing
    history = []
    again = run(GRAPH, history, answer=answer, previous=before.reports, context_tokens=2500)
    assert (history, again.reports) == ([], before.reports)
    tampered = [replace(report, context=report.context[1:]) for report in before.reports]
    assert run(GRAPH, answer=answer, previous=tampered, context_tokens=2500).written == 3
    parts = [report for report in before.reports if report.community_id != ROOT]
    run(GRAPH, history, answer=answer, previous=parts, context_tokens=2500)
    assert len(history) == 2  # the smaller one stands on no report of a part, whether there is one or not
    assert all("##" not in request.messages[-1].content for request in history)


def test_verification_names_the_reports_that_are_not_what_they_say():
    """Built anew from the records, contexts are those that the reports were written from; an edit shows; stale ones say so themselves."""
    assert stale_now(GRAPH, FULL) == ()
    assert stale_now(DEEP, STANDING, **CUT) == ()
    assert set(stale_now(EDITED, FULL)) == {ROOT, RIGHT}
    assert stale_now(EDITED, run(EDITED, previous=FULL.reports, write="lazy")) == ()
    orphan = replace(GRAPH[3][0], child_ids=())
    assert set(stale_now((*GRAPH[:3], [orphan]), FULL)) == {LEFT, RIGHT}
    other = [replace(one, title="Another") if one.community_id == LEFT else one for one in STANDING.reports]
    assert stale_now(DEEP, replace(STANDING, reports=tuple(other)), **CUT) == (ROOT,)


def edited_at_random(graph: Graph, chance: random.Random) -> Graph:
    """The graph after one edit: other words, a lost entity, a new connection, or a stronger one."""
    people, edges, claims, rows = graph
    person, other = chance.sample(people, 2)
    tie = edge(person, other, f"met {chance.randrange(9)}")
    return chance.choice(
        [
            with_words(graph, person.name, "x" * chance.randrange(80)),
            (people, [*(one for one in edges if one.id != tie.id), tie], claims, rows),
            (people, edges, claims[1:], rows),
            without((people, edges, [], rows), person.name),
        ]
    )


@effort(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(8, 30), st.booleans())
def test_after_any_edits_an_exact_update_is_what_a_rebuild_gives(seed, size, lazily):
    """All levels, exactly: whatever was edited, in whatever order reports arrive, and whatever stayed stale in between."""
    chance = random.Random(seed)
    graph = random_graph(seed, size)
    rules = {"context_tokens": 700, "write": "all"}
    result = run(graph, **rules)
    for _ in range(3):
        graph = edited_at_random(graph, chance)
        before = chance.sample(result.reports, len(result.reports))
        result = run(graph, previous=before, **(rules | {"write": "lazy"} if lazily else rules))
        assert stale_now(graph, result, **rules) == ()
        elements = Elements(*graph[:3])
        assert all(s in elements for report in result.reports for s in (*report.untold, *(s for f in report.findings for s in f.sources)))
    final = run(graph, previous=result.reports, **rules)

    assert final.reports == run(graph, **rules).reports
    assert final.stale == ()


def test_a_community_of_one_has_no_report_left():
    """A community that shrinks to one entity has no report any more, and none is left behind."""
    pair = [entity("Ann", "a"), entity("Bo", "b")]
    graph = (pair, [edge(*pair, "c")], [], [community(pair)])
    full = run(graph)
    result = run(without(graph, "Bo"), previous=full.reports, refresh="tolerant")

    assert (result.reports, result.stale, result.unwritten) == ((), (), ())
