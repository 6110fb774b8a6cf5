"""Citations: numbers in order of use, each of which opens at words that are in the file."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrag_local import ids
from graphrag_local.query.cite import clean, compose, sources_of
from graphrag_local.query.context import Ref
from graphrag_local.query.global_search import level_windows
from graphrag_local.query.inquiry import Paragraph
from graphrag_local.query.view import view_of
from graphrag_local.records import Claim, Place, Span
from tests.fakes import Characters
from tests.query.world import graph_index, random_index, text_index

FACTS = {"Ann": "Ann keeps the lock.", "Bo": "Bo owns a barge of oak.", "Cy": "Cy sails to Tarn."}


def entity(name):
    return Ref(kind="entity", id=ids.entity_id(name.lower()))


def paragraph(text, *refs):
    return Paragraph(text=text, refs=refs)


def test_numbers_follow_the_order_of_first_use():
    """Markers stand at the end of each paragraph; a source used twice keeps its number, and the list is exactly what the text uses."""
    view = view_of(graph_index(FACTS, [list(FACTS)]))
    done = compose([paragraph("Bo and Cy.", entity("Bo"), entity("Cy")), paragraph("Cy and Ann.", entity("Cy"), entity("Ann"))], view, 5)

    assert done.text == "Bo and Cy. [1][2]\n\nCy and Ann. [2][3]"
    assert [(c.n, c.title) for c in done.citations] == [(1, "Bo"), (2, "Cy"), (3, "Ann")]
    assert done.citations[0].sources[0].quote == "Bo owns a barge of oak."
    assert done.citations[0].sources[0].place == "line 2"
    assert [(s.text, s.cites, s.verdict) for s in done.sentences] == [("Bo and Cy.", (1, 2), "unchecked"), ("Cy and Ann.", (2, 3), "unchecked")]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30), st.text(max_size=60), st.integers(1, 4))
def test_every_citation_opens_at_its_quote(seed, size, said, most):
    """Whatever is cited, each span is within its document, its quote is the document's text there, and there are no more than asked for."""
    index = random_index(seed, size)
    view = view_of(index)
    texts = {document.path: document.text for document in index.documents()}
    refs = [Ref(kind="entity", id=e.id) for e in index.entities()] + [Ref(kind="relationship", id=r.id) for r in index.relationships()]
    refs += [Ref(kind="report", id=r.id, finding=n) for r in index.reports() for n in range(len(r.findings))]
    refs += [Ref(kind="chunk", id=c.id) for c in index.chunks()]
    for ref in refs:
        found = sources_of(ref, view, said, most)
        assert 1 <= len(found) <= most
        assert all(texts[source.document][source.start : source.end] == source.quote for source in found)


def test_the_span_most_like_the_paragraph_comes_first():
    """Of many mentions those that share rare words with what was said are opened, then the anchored ones."""
    index = graph_index({**FACTS, "Dee": "Ann saw the barge of Bo."}, [list(FACTS)])
    ann = ids.entity_id("ann")
    first = index.mentions()[0]
    spans = [first.spans[0], index.mentions()[3].spans[0]]
    graded = zip(spans, ("composed", "anchored"), strict=True)
    index.rows["mentions"] = [replace(first, owner_id=ann, spans=(span,), grounding=grounding) for span, grounding in graded]
    view = view_of(index)

    assert [s.quote for s in sources_of(entity("Ann"), view, "who keeps the lock", 5)] == ["Ann keeps the lock.", "Ann saw the barge of Bo."]
    assert [s.quote for s in sources_of(entity("Ann"), view, "a barge", 1)] == ["Ann saw the barge of Bo."]
    assert [s.quote for s in sources_of(entity("Ann"), view, "", 1)] == ["Ann saw the barge of Bo."]


def test_a_finding_opens_through_its_sources():
    """A finding is cited by itself: its own sources' mentions, not those of the whole report; a stale report makes the answer stale."""
    index = graph_index(FACTS, [list(FACTS)], reported=[0])
    report = replace(index.reports()[0], stale=True)
    view = view_of(index.with_report(report))
    done = compose([paragraph("Bo has a barge.", Ref(kind="report", id=report.id, finding=1))], view, 5)

    assert done.stale
    assert [source.quote for source in done.citations[0].sources] == [FACTS["Bo"]]


def test_a_claim_stands_with_its_subject_and_opens_at_its_words():
    """Claims are lines of their own after their subject, with status and period, and cite their own mention."""
    index = graph_index(FACTS, [list(FACTS)])
    ann, bo = (ids.entity_id(name) for name in ("ann", "bo"))
    chunk = index.chunks()[0]
    claim = Claim(
        id="c1", subject_id=ann, object_id=bo, type="DEED", status="SUSPECTED", period="1902", description="Ann sank it",
        chunk_id=chunk.id, document_id=chunk.document_id,
    )  # fmt: skip
    index.rows["claims"] = [claim]
    index.rows["mentions"] = [*index.mentions(), replace(index.mentions()[1], owner_id="c1", owner_kind="claim")]
    view = view_of(index)
    lines = level_windows(view, 0, 4000, Characters())[0].text.split("\n")
    done = compose([paragraph("She did.", Ref(kind="claim", id="c1"))], view, 5)

    assert lines[[line[3:6] for line in lines].index("Ann") + 1] == "D1 Ann – Bo: Ann sank it (DEED, SUSPECTED, 1902)"
    assert (done.citations[0].title, done.citations[0].sources[0].quote) == ("Ann", FACTS["Bo"])


def test_a_piece_of_a_chunk_opens_exactly():
    """Two pieces of one chunk are two citations with the spans of each; pages come before lines where the format has them."""
    index = text_index(a="One is here. Two is here.")
    index.rows["documents"] = [replace(index.documents()[0], places=(Place(label="page 1", start=0), Place(label="page 2", start=13)))]
    chunk = index.chunks()[0].id
    refs = [Ref(kind="chunk", id=chunk, span=Span(start=a, end=b)) for a, b in ((0, 12), (13, 25))]
    done = compose([paragraph("Both.", *refs)], view_of(index), 5)

    assert [(c.n, c.sources[0].quote, c.sources[0].place) for c in done.citations] == [(1, "One is here.", "page 1"), (2, "Two is here.", "page 2")]


def test_a_paragraph_that_opens_nowhere_is_dropped():
    """Without a passage there is no number and no paragraph, and a note says so."""
    index = graph_index(FACTS, [list(FACTS)])
    index.rows["mentions"] = [m for m in index.mentions() if m.name != "Bo"]
    done = compose([paragraph("Bo.", entity("Bo")), paragraph("Ann.", entity("Ann"), entity("Bo"))], view_of(index), 5)

    assert done.text == "Ann. [1]"
    assert done.notes == ("1 paragraph has no source that opens at a passage and was dropped.",)
    assert compose([paragraph("Bo.", entity("Bo"))], view_of(index), 5).text == ""


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("The lock dates from 1802 [S1].", "The lock dates from 1802."), ("All [S1; S3, +more] of it [R1-R3] (also R4, E2).", "All of it."),
        ("In [2019] it was [1, 2].", "In (2019) it was (1, 2)."),
        ("<think>so</think>", "‹think>so‹/think>"),
        ("## Sources\n- [S7] d.txt", "＃# Sources - d.txt"),
        ("[see note] (E2 road)", "[see note] (E2 road)"),
    ],
)  # fmt: skip
def test_the_models_own_marks_are_not_shown_as_citations(said, shown):
    """Ids that a model writes into its text are taken out, bare numbers lose their square brackets, headings and tags are defused."""
    assert clean(said) == shown
