"""Reports without a model quote what their community's records say, without repeating themselves."""

from collections.abc import Iterable

import pytest

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


def titles(parts: tuple[tuple[int, ...], ...], names: tuple[str, ...], edges: list[Relationship]) -> list[str]:
    """The titles of a community and of its parts (numbers of entities)."""
    said = [f"They say that {name} keeps the old boats of the town." for name in names]
    people = [
        Entity(id=f"e{n}", key=name.lower(), name=name, type="name", types=("name",), aliases=(), description=said[n], mentions=1) for n, name in enumerate(names)
    ]
    elements = Elements(people, edges)
    budget = Budget(tokens=8000, findings=6, count=len, shape="s", quoted=True)
    below = [community(f"p{number}", part) for number, part in enumerate(parts)]
    whole = community("c", range(len(names)))
    return [extracted(build_context(one, under, {}, elements, budget)).title for one, under in ((whole, below), *((part, []) for part in below))]


def community(key: str, members: Iterable[int]) -> Community:
    return Community(id=key, first_level=0, last_level=0, parent_id="", child_ids=(), member_ids=tuple(f"e{number}" for number in members))


@pytest.mark.parametrize("names", [NAMES, ("Ada", "Ada Quill", "Ada Quill Road", "Quill", "Quill Road"), ("ferry boats", "Ada", "Bo", "2 May", "3 May")])
@pytest.mark.parametrize("parts", [((0, 1, 2, 3), (4,)), ((0, 1, 2),), ((0, 1), (2, 3, 4)), ((4, 3, 2, 1),)])
def test_a_part_of_a_community_has_another_title(parts, names):
    """Where the strongest of a community are all of one part, its title names one from elsewhere, so that no two are called the same."""
    edges = [edge(a, b, SAID[0]) for a, b in ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3), (0, 4))]
    found = titles(parts, names, edges)

    assert found[0] not in found[1:]


def test_titles_prefer_names_of_several_words():
    """Of entities that are about as strong, full names come before single words, and those before phrases in small letters."""
    ring = [edge(n, (n + 1) % 5, SAID[n]) for n in range(5)]

    assert titles((), ("Ada", "boats of wood", "Quill Road", "ferry", "Zeno Hall"), ring)[0] == "Quill Road, Zeno Hall, Ada"
