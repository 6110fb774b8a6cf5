"""Report replies that are wrapped, damaged, empty or of another form."""

import pytest

from graphrag_local.records import Report
from tests.cases.program import program

# Five matters that have nothing to do with each other, and so five communities.
PARTS = {
    "ferry.txt": "Ada Norr steers the Red Ferry for Oslo Lines.",
    "bakery.txt": "Ben Lund owns the Rye House in Upper Vale.",
    "choir.txt": "Eva Holt leads the Vale Choir at Saint Anne.",
    "comet.txt": "Gus Pike saw the Moth Comet from Bald Hill.",
    "mine.txt": "Ida Roth shut the Deep Mine of Salt Works.",
}
FINDS = {"fixture_pattern": {"entities": ["[A-Z][a-z]+ [A-Z][a-z]+"], "types": ["person"], "relate": "chain"}}


def spoiled(*replies, calls="1"):
    """A script whose first report replies are these, the rest good."""
    rules = [{"on": "report", "calls": str(n), "do": do} for n, do in enumerate(replies, 1)]
    return {**FINDS, "rules": rules}


def valid(**change):
    return {"reply": "valid", **change}


WRAPPED = [
    valid(before="```json\n", after="\n```"),
    valid(before="```\n", after="\n```\nDone."),
    valid(before="Of course! The report:\n\n", after="\n\nShall I write another one?"),
    valid(damage="insert a comma before the last closing brace"),
    valid(before="<think>Rate it [3]? {no}</think>"),
]


def test_wrapped_reports_are_used_as_they_are(tmp_path):
    """Fences, sentences around, a comma too many and thoughts cost no report, no second call and no extraction."""
    with program(tmp_path, PARTS, spoiled(*WRAPPED)) as it:
        assert it.index().code == 0
        assert (len(it.records(Report)), len(it.server.requests("report")), len(it.server.requests("extract"))) == (5, 5, 5)
        assert it.index().json["last_build"]["calls"] == 0


BAD = [
    valid(damage="put the bare word +more as last element of the first list of ids"),
    valid(damage='replace the first number outside a list by the string "8/10"'),
    {"text": "[]"},
    {"text": ""},
    {"text": "{}"},
    {"text": "null"},
    {"text": '{"title": "", "summary": "", "rating": 5, "rating_explanation": "", "findings": []}'},
    {"text": "I am sorry, but I cannot write this report."},
    valid(cut_after_fraction=0.5, finish_reason="length"),
]


@pytest.mark.parametrize("at", range(len(BAD)))
def test_a_damaged_report_is_mended_or_asked_again(tmp_path, at):
    """One bad reply takes nothing with it: every community has its report, no id is invented, and every rating is a number from 0 to 10."""
    with program(tmp_path, PARTS, spoiled(BAD[at])) as it:
        done = it.index()
        assert done.code == 0
        reports = it.records(Report)
        assert len(reports) == 5
        assert all(0 <= report.rating <= 10 for report in reports)
        assert all(finding.sources for report in reports for finding in report.findings)
        for report in reports:
            shown = it.show("report", report.id)
            assert all(finding["sources"] for finding in shown["findings"])
        assert len(it.server.requests("extract")) == 5
        assert len(it.server.requests("report")) <= 7


@pytest.mark.parametrize("do", [{"text": "Sorry, no."}, {"text": "[]"}, {"text": ""}, valid(cut_after_fraction=0.5, finish_reason="length")])
def test_a_report_that_never_comes_is_listed_and_asked_for_alone(tmp_path, do):
    """A community whose report fails every time is named with the beginning of the reply; the others have theirs, and the next run that is told to
    asks for that one only."""
    bad = {**FINDS, "rules": [{"on": "report", "when_prompt_has": "Moth Comet", "do": do}]}
    with program(tmp_path, PARTS, bad) as it:
        first = it.index()
        assert first.code == 3
        assert len(it.records(Report)) == 4
        (failure,) = it.status()["failures"]
        assert failure["stage"] == "reports"
        assert failure["input"].removeprefix("community ") not in {report.community_id for report in it.records(Report)}
        if do.get("text"):
            assert do["text"][:8] in failure["reason"]
        since = len(it.server.log)
        again = it.index()
        assert (again.code, again.json["digest"], again.json["published"]) == (3, first.json["digest"], False)
        assert [r for r in it.server.log[since:] if r.purpose in ("extract", "report")] == []
        assert it.query("Who saw the Moth Comet?", "--mode=basic")["answered"]
        it.server.set_script(FINDS)
        since = len(it.server.log)
        assert it.index("--retry-failed").code == 0
        asked = [record for record in it.server.log[since:] if record.purpose in ("extract", "report")]
        assert {record.purpose for record in asked} == {"report"}
        assert all("Moth Comet" in record.prompt for record in asked)


RATINGS = ["11", "-3", '"high"', '"7"', '"7.5 out of 10"', "null", "1e9", "[4]", "true"]


@pytest.mark.parametrize("rating", RATINGS)
def test_a_rating_of_another_form_is_a_number_in_the_end(tmp_path, rating):
    """A rating out of range, as text, missing or of another type is read, brought into range or asked again, never kept as it came."""
    text = '{"title":"Moths","summary":"A comet.","rating":%s,"rating_explanation":"It is far.","findings":[{"summary":"s","explanation":"e","ids":[1]}]}'
    with program(tmp_path, PARTS, spoiled({"text": text % rating})) as it:
        assert it.index().code == 0
        reports = it.records(Report)
        assert len(reports) == 5
        assert all(isinstance(report.rating, float) and 0 <= report.rating <= 10 for report in reports)


def test_our_own_prompt_teaches_no_notation_that_is_forbidden(tmp_path):
    """What the model is told about reports knows no "+more" and no ids in running text."""
    with program(tmp_path, PARTS, FINDS) as it:
        it.index()
        assert all("+more" not in record.prompt.replace(" ", "") for record in it.server.requests("report"))
