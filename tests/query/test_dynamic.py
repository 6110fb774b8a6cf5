"""Dynamic selection: what is rated, where it descends, what is read, and what bounds it."""

import asyncio
import re
from dataclasses import replace

import pytest

from graphrag_local import ids
from graphrag_local.engine.base import Choice, Reply, Request
from graphrag_local.query.dynamic import GRADES, Descent, children_of
from graphrag_local.query.inquiry import Inquiry
from graphrag_local.query.view import View
from graphrag_local.records import Community
from graphrag_local.settings import QuerySettings
from tests.fakes import Characters, model_of
from tests.query.test_mapreduce import PROMPTS, run
from tests.query.world import MemoryIndex, Reader, evidence, graph_index, random_index, report_of

NAMES = [f"{root}{part}{n}" for root in "AB" for part in "xy" for n in (1, 2)]


def grade_step(request):
    """Whether this is the call that grades a report."""
    return "one report" in request.messages[0].content


class Grader(Reader):
    """Grades a report by the first name of its heading that is in `grades` (0 where none is), and reads as Reader does."""

    grades = None
    spread = None

    def __call__(self, request):
        if not grade_step(request):
            return super().__call__(request)
        title = re.search(r"^# (\S+)", request.messages[-1].content, re.MULTILINE).group(1)
        grade = self.grades.get(title, 0)
        return Reply(text=grade if isinstance(grade, str) else str(round(grade)), finish_reason="stop", gate=self.spread and grade)


def grader(grades, spread=None):
    made = Grader()
    made.grades, made.spread = grades, spread
    return made


def tree(bare=()):
    """Two roots A and B, each with two children of two entities; everything has a report, but for those named in `bare`."""
    facts = {name: f"{name} keeps a lamp of its own." for name in NAMES}
    index = graph_index(facts, [])
    entity = {e.name: e.id for e in index.entities()}
    communities, reports = [], []

    def add(title, level, last, parent):
        members = tuple(sorted(entity[name] for name in NAMES if name.startswith(title)))
        owner = ids.community_id(level, members)
        communities.append(Community(id=owner, first_level=level, last_level=last, parent_id=parent, child_ids=(), member_ids=members))
        if title not in bare:
            told = [(f"About {name}.", f"{title} says: {facts[name]}", (entity[name],)) for name in NAMES if name.startswith(title)]
            reports.append(report_of(owner, title, told))
        return owner

    for root in "AB":
        parent = add(root, 0, 0, "")
        for part in "xy":
            add(f"{root}{part}", 1, 1, parent)
    return MemoryIndex(rows={**index.rows, "communities": communities, "reports": reports})


def asked(index, reader, **options):
    history = []
    answer = run(index, reader, history=history, dynamic=True, **{"window_tokens": 4000, **options})
    return answer, [r for r in history if grade_step(r)], [r for r in history if not grade_step(r)]


def read_of(requests):
    """The evidence of all windows."""
    return "\n".join(line for request in requests if "one part" in request.messages[0].content for line in evidence(request).values())


def test_it_descends_where_a_report_matters_and_reads_the_children_in_its_place():
    """Children of a relevant root are rated, those of another are not; a relevant child is read instead of its parent and its sibling."""
    answer, graded, others = asked(tree(), grader({"A": 3, "Ax": 4}))

    assert sorted(re.search(r"^# (\S+)", r.messages[-1].content, re.MULTILINE).group(1) for r in graded) == ["A", "Ax", "Ay", "B"]
    said = read_of(others)
    assert "Ax says" in said
    assert not re.search(r"\b(A|Ay|B|Bx|By) says", said)
    assert answer.answered
    assert answer.level == 0
    assert "4 of 6 reports rated, 1 are read." in answer.notes


def test_a_relevant_report_with_no_relevant_child_stands_itself():
    """Where nothing below matters by itself, the report above is read."""
    _, graded, others = asked(tree(), grader({"A": 2}))

    assert len(graded) == 4
    assert "A says" in read_of(others)
    assert not re.search(r"\b(Ax|Ay|B) says", read_of(others))


def test_a_community_without_a_report_is_read_where_its_sibling_mattered():
    """It is not rated; its elements are read beside the relevant sibling, and not under a root that does not matter."""
    answer, graded, others = asked(tree(bare=("Ay", "By")), grader({"A": 3, "Ax": 4}))

    assert len(graded) == 3
    said = read_of(others)
    assert "Ax says" in said
    assert "Ay1" in said
    assert "By1" not in said
    assert any("without a report that are read too: 1." in note for note in answer.notes)


@pytest.mark.parametrize("seed", range(8))
def test_no_entity_is_read_twice_and_none_of_the_relevant_is_lost(seed):
    """Over random hierarchies the chosen communities never share a member, and with everything relevant they hold every entity."""
    index = random_index(seed, 25, levels=4)
    view = View(index)
    for grade in (lambda request: "5", lambda request: str(int(ids.digest_of(str(request.messages)) > "8"))):
        model = model_of(grade, form="grammar", counter=Characters())
        inquiry = Inquiry(question="What is it?", view=view, model=model, prompts=PROMPTS, settings=QuerySettings())
        chosen = asyncio.run(Descent(inquiry=inquiry, limit=200).chosen(0))
        members = [member for community in chosen for member in community.member_ids]
        assert len(members) == len(set(members))
        assert grade(Request(messages=(), constraint=Choice(options=GRADES), max_tokens=1, purpose="answer")) != "5" or len(members) == 25
    assert {child.id for group in children_of(view).values() for child in group} == {community.id for community in index.communities()}


@pytest.mark.parametrize(("grade", "kept"), [(0.99, False), (1.0, True), (1.2, True)])
def test_the_expectation_decides_and_not_the_digit(grade, kept):
    """With probabilities a report matters from an expectation of 1, whatever digit came; the gate asks for all six grades."""
    _, graded, others = asked(tree(), grader({"A": grade, "B": 2.0}, spread=True))

    assert all(r.gate.options == GRADES and r.gate.worths == (0.0, 1.0, 2.0, 3.0, 4.0, 5.0) for r in graded)
    assert all(isinstance(r.constraint, Choice) and r.max_tokens <= 8 for r in graded)
    assert ("A says" in read_of(others)) == kept


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6])
def test_ratings_are_bounded(limit):
    """No more reports are rated than the setting allows; a report whose children cannot all be rated is read itself, and nothing is dropped for it."""
    answer, graded, others = asked(tree(), grader(dict.fromkeys(["A", "B", "Ax", "Ay", "Bx", "By"], 3)), rate_calls=limit)

    assert len(graded) <= limit
    said = read_of(others)
    assert all(name in said for name in NAMES)
    assert any("rate_calls" in note for note in answer.notes) == (limit == 1)


def test_where_nothing_matters_the_best_few_are_read_all_the_same():
    """Ratings alone never decline; the map step does, and the notes say it."""
    answer, _, others = asked(tree(), grader({}), always_read=1)

    assert len(set(re.findall(r"\b([AB]) says", read_of(others)))) == 1
    assert any("none is rated relevant, so the best 1 are read" in note for note in answer.notes)


def test_an_unusable_rating_lets_the_report_be_read():
    """A server that ignores the constraint costs calls, never evidence."""
    answer, graded, others = asked(tree(), grader({"A": "very", "B": 0}))

    assert "A says" in read_of(others)
    assert len(graded) <= 2 * 4
    assert any("no usable rating" in note for note in answer.notes)


def test_prompts_of_ratings_stay_within_the_window_and_reports_are_cut():
    """A long report and a small window: the call fits, and its title is there."""
    index = tree()
    long = [replace(r, findings=r.findings * 40) for r in index.reports()]
    _, graded, _ = asked(MemoryIndex(rows={**index.rows, "reports": long}), grader({"A": 3}), window_tokens=600)

    assert graded
    assert all(len(evidence(r)) >= 1 and sum(len(line) for line in evidence(r).values()) <= 600 for r in graded)


def test_a_level_without_any_report_is_read_as_elements():
    """With no report at all nothing is rated, and every entity is read."""
    answer, graded, others = asked(tree(bare=("A", "B", "Ax", "Ay", "Bx", "By")), grader({}))

    assert graded == []
    assert all(name in read_of(others) for name in NAMES)
    assert answer.answered
