"""How much of a context has changed, and what is left of a report whose records are gone."""

from dataclasses import replace

import pytest

from graphrag_local.records import ContextLine, Finding
from graphrag_local.reports.elements import Elements
from graphrag_local.reports.keep import LOST, Earlier, changed_share, cut_to, is_cut, is_from
from tests.reports.graphs import community, edge, entity, report_about
from tests.reports.test_context import text_of

ANN, BO, CY = entity("Ann"), entity("Bo"), entity("Cy")
TIE = edge(ANN, BO, "They trade.")


def lines(text: str) -> list[ContextLine]:
    """One line a letter, of ten tokens each; capitals of forty."""
    return [ContextLine(digest=letter, tokens=40 if letter.isupper() else 10) for letter in text]


@pytest.mark.parametrize(
    ("old", "new", "share"),
    [
        ("abcde", "abcde", 0.0),
        ("abcde", "edcba", 0.0),  # order
        ("abcde", "abcdx", 0.2),  # an edited line counts once
        ("abcd", "abcde", 0.2),  # what came, of the larger one
        ("abcde", "abcd", 0.2),  # what went, of the larger one
        ("abc", "xyz", 1.0),
        ("aab", "abb", 1 / 3),  # equal lines are counted
        ("aaab", "ab", 0.5),
        ("Aabcdef", "Xabcdef", 0.4),  # tokens, not lines
        ("", "ab", 1.0),
        ("", "", 0.0),
    ],
)
def test_the_share_of_a_context_that_changed(old, new, share):
    """It is in tokens, of the larger context, whatever the order, and from 0 to 1."""
    assert changed_share(lines(old), lines(new)) == pytest.approx(share)


def test_a_cut_report_names_only_records_that_exist():
    """Sources and untold entities that are gone go, with the findings that stood on nothing else; all else stays as it was written."""
    report = replace(
        report_about(community([ANN, BO, CY]), [ANN.id, TIE.id]), untold=(BO.id, CY.id), fingerprint="f", documents=("d1",), context=tuple(lines("ab"))
    )
    report = replace(report, findings=(*report.findings, Finding(summary="Of the tie.", explanation="", sources=(TIE.id,))))
    cut = cut_to(Elements([ANN, BO], []), report)

    assert cut is not None
    assert [finding.sources for finding in cut.findings] == [(ANN.id,)]
    assert (cut.untold, cut.stale) == ((BO.id,), True)
    assert {row.what for row in cut.dropped if row.reason == LOST} == {TIE.id, CY.id}
    kept = {"stale": False, "dropped": (), "findings": (), "untold": ()}
    assert replace(cut, **kept) == replace(report, **kept)


def test_a_report_without_a_finding_left_is_none():
    """Nothing is kept of a report whose findings stood on records that are all gone."""
    assert cut_to(Elements([CY], []), report_about(community([ANN, BO]), [ANN.id, TIE.id])) is None


def test_a_report_that_lost_nothing_is_not_cut():
    """Where all its records exist, a report that becomes stale is whole, and is the report of its context again when that comes back."""
    report = replace(report_about(community([ANN, BO]), [ANN.id]), fingerprint="f")
    whole, cut = cut_to(Elements([ANN, BO], []), report), cut_to(Elements([ANN], []), replace(report, untold=(BO.id,)))
    context = replace(text_of([ANN, BO], []), fingerprint="f")

    assert (whole and is_cut(whole), cut and is_cut(cut)) == (False, True)
    assert Earlier([whole], ()).written_from(context, "another") is not None  # type: ignore[list-item]
    assert Earlier([cut], ()).written_from(context, cut.community_id) is None  # type: ignore[list-item, union-attr]


def test_a_community_gets_its_own_report_where_two_are_of_one_context():
    """Which of two equal reports is kept does not depend on their order."""
    reports = [replace(report_about(community([one]), [one.id]), fingerprint="f") for one in (ANN, BO, CY)]
    context = replace(text_of([ANN], []), fingerprint="f")
    for order in (reports, reports[::-1]):
        earlier = Earlier(order, ())
        assert [earlier.written_from(context, report.community_id) for report in reports] == reports
        assert earlier.written_from(context, "another") == min(reports, key=lambda report: report.id)


def test_a_report_is_of_a_context_only_with_its_lines_and_records():
    """Another line, or a source that the context does not have, and the report was written from something else."""
    context = text_of([ANN, BO], [TIE])
    report = replace(report_about(community([ANN, BO]), [ANN.id, TIE.id]), context=context.lines)

    assert is_from(report, context)
    assert not is_from(replace(report, context=context.lines[1:]), context)
    assert not is_from(replace(report, findings=(Finding(summary="x", explanation="", sources=(CY.id,)),)), context)
