"""Claims, which are off unless asked for, on their way from a reply to the table and into a report."""

from graphrag_local.engine.base import Reply, Request
from graphrag_local.records import Claim
from tests.pipeline.running import index, opened, project_of, scribe, scripted

TEXT = "Ann Moss took the boat of Bo Lind in 1999. Bo Lind lied."
RECORDS = "1\tAnn Moss\tperson\t1\tkeeper\n2\tBo Lind\tperson\t1\tmiller\n1-2\t5\t1\tknows\n"
CLAIMS = "!1\t2\ttheft\tTRUE\t1999\t1\ttook the boat\n!2\t0\tfraud\tSUSPECTED\tNA\t2\tlied\n!3\t0\tfraud\tTRUE\tNA\t1\tnobody's\n"


def claiming(request: Request) -> str | Reply:
    """Claims wherever the grammar has room for them, one of them about nobody."""
    if request.purpose != "extract":
        return scribe(request)
    return f"{RECORDS}{CLAIMS if 'claims:' in request.constraint.lark else ''}?\tN"  # type: ignore[union-attr]


def built(folder, *rules):
    """The index of one document: what was made, the claims and mentions in the tables, the texts that reports were written from."""
    project, engine = project_of(folder, {"a.txt": TEXT}, *rules), scripted(claiming)
    made = index(project, engine)
    with opened(project) as stored:
        names = {entity.id: entity.name for entity in stored.entities()}
        texts = [request.messages[-1].content for request in engine.history if request.purpose == "report"]
        return made, names, list(stored.claims()), list(stored.mentions()), texts


def test_claims_are_stored_with_their_words_and_told_in_reports(tmp_path):
    """A claim has its subject, object, status and period, a mention at the sentence it cites, and a line in its community's report."""
    made, names, claims, mentions, texts = built(tmp_path, "extraction.claims=true")
    by_type: dict[str, Claim] = {claim.type: claim for claim in claims}
    theft, fraud = by_type["theft"], by_type["fraud"]

    assert [names[theft.subject_id], names[theft.object_id], theft.status, theft.period] == ["Ann Moss", "Bo Lind", "TRUE", "1999"]
    assert [names[fraud.subject_id], fraud.object_id, fraud.status, fraud.period] == ["Bo Lind", "", "SUSPECTED", "NA"]
    quoted = {m.owner_id: [TEXT[span.start : span.end] for span in m.spans] for m in mentions if m.owner_kind == "claim"}
    assert quoted == {theft.id: ["Ann Moss took the boat of Bo Lind in 1999."], fraud.id: ["Bo Lind lied."]}
    assert made.counts["claims"] == len(claims) == 2
    assert made.built.dropped["extraction"] == {"no such entity": 1}
    assert "took the boat (theft, TRUE, 1999)" in texts[0]


def test_claims_are_off_by_default(tmp_path):
    """Without the setting no claim is asked for, and none is there."""
    made, _, claims, _, texts = built(tmp_path)

    assert claims == []
    assert made.counts["claims"] == 0
    assert "took the boat" not in texts[0]
