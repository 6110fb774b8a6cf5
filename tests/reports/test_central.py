"""Reports without a model quote what their community's records say, without repeating themselves."""

from graphrag_local.records import Community, Entity, Relationship
from graphrag_local.reports.central import extracted
from graphrag_local.reports.context import Budget, Context, build_context
from graphrag_local.reports.elements import Elements

SAID = (
    "Mira Holt runs the Harbour Museum and pays for its boats.", "The Harbour Museum keeps the boats of the Salt Company in a long shed.",
    "The Salt Company once owned every house on the quay of Port Ellis.", "Tomas Brandt mends the boats and argues with Mira Holt about paint.",
    "Did anybody ever ask the Salt Company about the shed of the museum?",
)  # fmt: skip
NAMES = ("Mira Holt", "Harbour Museum", "Salt Company", "Tomas Brandt", "Port Ellis")


def entity(number: int) -> Entity:
    said = " ".join(text for text in SAID if NAMES[number].split()[-1] in text)
    return Entity(
        id=f"e{number}", key=NAMES[number].lower(), name=NAMES[number], type="name", types=("name",), aliases=(), description=said, mentions=said.count(".")
    )


def edge(a: int, b: int, said: str) -> Relationship:
    return Relationship(id=f"r{a}{b}", source_id=f"e{a}", target_id=f"e{b}", description=said, weight=1.0, mentions=1)


def context(findings: int = 6) -> Context:
    """The context of the whole little graph."""
    edges = [edge(0, 1, SAID[0]), edge(1, 2, SAID[1]), edge(2, 4, SAID[2]), edge(0, 3, SAID[3])]
    elements = Elements([entity(number) for number in range(5)], edges)
    community = Community(id="c", first_level=0, last_level=0, parent_id="", child_ids=(), member_ids=tuple(f"e{number}" for number in range(5)))
    budget = Budget(tokens=8000, findings=findings, count=len, shape="s", quoted=True)
    return build_context(community, [], {}, elements, budget)


def test_every_finding_is_a_sentence_of_what_it_cites():
    """Summaries and explanations stand word for word in the description of a cited record, and none stands twice."""
    given = context()
    report = extracted(given)
    said = {f"e{number}": entity(number).description for number in range(5)} | {"r01": SAID[0], "r12": SAID[1], "r24": SAID[2], "r03": SAID[3]}
    told = [text for finding in report.findings for text in (finding.summary, finding.explanation) if text]

    assert report.findings
    assert len(told) == len(set(told))
    for finding in report.findings:
        assert set(finding.sources) <= set(given.ids.values())
        assert any(finding.summary in said[source] for source in finding.sources)
        assert not finding.explanation or any(finding.explanation in said[source] for source in finding.sources)


def test_a_report_leads_with_statements_and_is_named_after_its_strongest():
    """A question is no first finding; the title has names of the community, the summary its first findings, the rating what share of names they have."""
    report = extracted(context(2))

    assert len(report.findings) == 2
    assert all("?" not in finding.summary for finding in report.findings)
    assert set(report.title.split(", ")) <= set(NAMES)
    assert report.summary == " ".join(finding.summary for finding in report.findings)
    assert 0 < report.rating <= 10


def test_the_same_context_gives_the_same_report():
    """A report is a function of its context."""
    assert extracted(context()) == extracted(context())
