"""Report replies that are wrapped, damaged, empty or of another form."""

import json

import pytest

from graphrag_local.records import Entity, Relationship, Report
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


FORMS = {
    "a rating over ten": {"rating": 11},
    "a rating under nought": {"rating": -3},
    "a rating in words": {"rating": "high"},
    "a rating as text": {"rating": "7"},
    "a rating with its scale": {"rating": "7/10"},
    "no rating": {"rating": None},
    "a rating in a list": {"rating": [4]},
    "a rating that is a truth": {"rating": True},
    "ids twice": {"sources": lambda ids: ids + ids},
    "an id that was never sent": {"sources": lambda ids: [*ids, "E99", "R1234"]},
    "only ids that were never sent": {"sources": lambda ids: ["E99"]},
    "ids in one text": {"sources": lambda ids: ", ".join(ids)},
    "ids with a habit": {"sources": lambda ids: [*ids, "+more"]},
    "no ids": {"sources": lambda ids: []},
    "no findings": {"findings": []},
    "findings that are no list": {"findings": {"summary": "s"}},
    "findings that are texts": {"findings": ["It is far.", "It is bright."]},
    "a field too many": {"confidence": "high", "tags": [1, 2]},
    "a title that is a number": {"title": 5},
}


def test_a_report_of_another_form_is_read_or_asked_again(tmp_path):
    """Ratings out of range or as text, ids that repeat, were never sent or come as one text, empty findings and odd fields: each costs at most one
    more call, and what is kept has a rating from 0 to 10 and sources that open."""
    with program(tmp_path / "good", PARTS, FINDS) as it:
        it.index()
        good = next(json.loads(record.reply) for record in it.server.requests("report") if "Moth Comet" in record.prompt)
    for number, (what, change) in enumerate(FORMS.items()):
        reply = {**good, **{key: value for key, value in change.items() if key != "sources"}}
        if "sources" in change:
            reply["findings"] = [{**finding, "sources": change["sources"](finding["sources"])} for finding in good["findings"]]
        rule = {"on": "report", "calls": "1", "when_prompt_has": "Moth Comet", "do": {"text": json.dumps(reply)}}
        with program(tmp_path / str(number), {"comet.txt": PARTS["comet.txt"]}, {**FINDS, "rules": [rule]}) as it:
            assert it.index().code == 0, what
            (report,) = it.records(Report)
            assert isinstance(report.rating, float), what
            assert 0 <= report.rating <= 10, what
            assert report.findings, what
            known = {record.id for kind in (Entity, Relationship) for record in it.records(kind)}
            assert all(0 < len(set(f.sources)) == len(f.sources) and set(f.sources) <= known for f in report.findings), what
            assert len(it.server.requests("report")) <= 2, what


def test_our_own_prompt_teaches_no_notation_that_is_forbidden(tmp_path):
    """What the model is told about reports knows no "+more" and no ids in running text."""
    with program(tmp_path, PARTS, FINDS) as it:
        it.index()
        assert all("+more" not in record.prompt.replace(" ", "") for record in it.server.requests("report"))
