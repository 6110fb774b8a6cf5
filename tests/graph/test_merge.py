"""Mentions become nodes and edges by what they say, in whatever order they arrive."""

import math
import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrag_local.graph.merge import merge
from graphrag_local.text import name_key
from tests.clock import effort_of
from tests.graph.extractions import chunks_of, claimed, named, said, tied

SAME = [
    ("Harbour Master", "harbour  master"),
    ("Café Örn", unicodedata.normalize("NFD", "Café Örn")),
    ("ＸＹＺ工業", "XYZ工業"),
    ("Mill Lane.", "Mill Lane"),
    ("D’Arcy Pool", "D'Arcy Pool"),
    ("東海運輸", "东海运输"),
    ("한빛 은행", "한빛은행"),
    ("مُنِير", "منير"),
]
DIFFERENT = [
    ("Nils Berg", "Nils Berg Jr."),
    ("上海 College", "天津 College"),
    ("김민수", "김민주"),
    ("Pier 2", "Pier 22"),
    ("F", "F#"),
    ("Ковров", "Комров"),
    ("IT", "it"),
]


def merged(*extractions):
    return merge(extractions, chunks_of(*extractions))


def by_name(graph):
    return {entity.name: entity for entity in graph.entities}


@pytest.mark.parametrize(("one", "other"), SAME)
def test_spellings_of_one_name_are_one_node(one, other):
    """Case, width, Unicode form, white space, stops, quotes, Arabic marks and traditional characters do not make a second node."""
    (entity,) = merged(said(one, other)).entities

    assert {entity.name, *entity.aliases} >= {unicodedata.normalize("NFC", name).replace("  ", " ").removesuffix(".") for name in (one, other)}


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_names_stay_apart(one, other):
    """Nothing is merged for being similar."""
    assert len(merged(said(one, other)).entities) == 2


@given(st.text(min_size=1, max_size=12))
def test_a_key_is_never_empty_and_stays_what_it_is(name):
    """Every name has a key, and the key of a key is itself but for the case of short capitals."""
    key = name_key(name)

    assert key
    assert name_key(key).casefold() == key.casefold()


def test_the_name_shown_is_the_commonest_that_stands_in_the_text():
    """Anchored forms come before others however common those are; ties are broken by the string."""
    commonest = merged(said("Old Moss", "OLD MOSS"), said("OLD MOSS", index=1))
    invented = merged(said(named("OLD MOSS", grounding="unanchored"), named("OLD MOSS", grounding="unanchored"), "Old Moss"))
    tie = merged(said("OLD MOSS", "Old Moss"))

    assert [(graph.entities[0].name, graph.entities[0].aliases) for graph in (commonest, invented, tie)] == [
        ("OLD MOSS", ("Old Moss",)),
        ("Old Moss", ("OLD MOSS",)),
        ("OLD MOSS", ("Old Moss",)),
    ]


def test_canonical_names_join_short_forms_and_are_shown_where_they_are_written():
    """Mentions meet under their canonical name; a canonical name that is nowhere in the text is an alias only."""
    written = merged(said(named("Moss", canonical="Edda Moss"), "Edda Moss"), said(named("Moss", canonical="Edda Moss"), index=1))
    nowhere = merged(said(named("the Board", canonical="Harbour Board"), named("Board", canonical="Harbour Board")))

    assert [(e.name, e.aliases, e.mentions) for e in written.entities] == [("Edda Moss", ("Moss",), 3)]
    assert [(e.name, e.aliases, e.key) for e in nowhere.entities] == [("Board", ("Harbour Board", "the Board"), "harbour board")]


def test_the_type_is_the_commonest_and_none_is_lost():
    """Types are counted; ties go to the first by name; all stay."""
    graph = merged(said(named("Ann", "person"), named("Ann", "event"), named("Ann", "event"), named("Bo", "person"), named("Bo", "geo")))

    assert {name: (entity.type, entity.types) for name, entity in by_name(graph).items()} == {
        "Ann": ("event", ("event", "person")),
        "Bo": ("geo", ("geo", "person")),
    }


def test_an_edge_is_an_unordered_pair_whose_weight_is_the_sum_of_its_strengths():
    """A to B and B to A are one edge; its mentions keep the direction and the strength."""
    graph = merged(said("Ann", "Bo", relationships=[tied(0, 1, 4.0), tied(1, 0, 3.0)]), said("Bo", "Ann", relationships=[tied(0, 1, 2.5)], index=1))
    (edge,) = graph.relationships

    assert (edge.weight, edge.mentions) == (9.5, 3)
    assert edge.source_id < edge.target_id
    rows = [(m.name, m.strength) for m in graph.mentions if m.owner_kind == "relationship"]
    assert rows == [("Ann - Bo", 4.0), ("Bo - Ann", 3.0), ("Bo - Ann", 2.5)]


def test_what_cannot_be_an_edge_goes_with_its_reason():
    """A loop that canonical names made, and an end that is no entity, are dropped and said."""
    moss = named("Moss", canonical="Edda Moss")
    graph = merged(said("Edda Moss", moss, "Bo", relationships=[tied(0, 1), tied(0, 7), tied(-1, 2), tied(0, 2)]))

    assert len(graph.relationships) == 1
    assert [dropped.reason for dropped in graph.dropped] == [
        "both ends are one entity",
        "an end of the relationship is no entity of its passage",
        "an end of the relationship is no entity of its passage",
    ]


def test_a_name_that_cannot_be_seen_takes_its_relationships_with_it():
    """A name of direction marks only makes no node and no edge, and both are said."""
    graph = merged(said("\u200f\u202b", "Bo", relationships=[tied(0, 1)]))

    assert [entity.name for entity in graph.entities] == ["Bo"]
    assert graph.relationships == ()
    assert len(graph.dropped) == 2


def test_names_are_one_line_whatever_the_model_wrote():
    """A heading inside a name cannot open a section of a prompt."""
    graph = merged(said("the sea\n\n## Sources\n\n[S1] x"))

    assert "\n" not in graph.entities[0].name + graph.mentions[0].name


def test_claims_know_their_ends_and_are_kept_once():
    """A claim has a subject, perhaps an object; the same words twice in a passage are one, in two passages two."""
    ann = said("Ann", "Bo", claims=[claimed(0, 1), claimed(0, 1), claimed(0), claimed(5)])
    graph = merged(ann, said("Ann", claims=[claimed(0)], index=1))

    assert len(graph.claims) == 3
    assert {claim.object_id for claim in graph.claims} == {by_name(graph)["Bo"].id, ""}
    assert [dropped.reason for dropped in graph.dropped] == [
        "the same claim twice in one passage",
        "the subject of the claim is no entity of its passage",
    ]
    assert {m.owner_id for m in graph.mentions if m.owner_kind == "claim"} == {claim.id for claim in graph.claims}


names = st.sampled_from(["Ann", "ann", "Bo", "Bo.", "Cy", "北港航運", "北港航运", "", "Dee"])


@st.composite
def collections(draw):
    extractions = []
    for number in range(draw(st.integers(0, 6))):
        mentions = [
            named(draw(names), draw(st.sampled_from(["a", "b"])), canonical=draw(st.sampled_from(["", "", "Ann", "Cy"])))
            for _ in range(draw(st.integers(0, 5)))
        ]
        ends = st.integers(0, 5)
        edges = [tied(draw(ends), draw(ends), draw(st.integers(1, 10)) / 3) for _ in range(draw(st.integers(0, 5)))]
        extractions.append(said(*mentions, relationships=edges, document=f"d{number % 2}", index=number // 2))
    return extractions


@given(collections(), st.randoms())
def test_order_does_not_matter_and_nothing_is_lost(extractions, dice):
    """Shuffled extractions give the same graph; weights, mention counts and drops add up to what was said."""
    graph = merged(*extractions)
    shuffled = extractions[:]
    dice.shuffle(shuffled)
    edges = [m for m in graph.mentions if m.owner_kind == "relationship"]

    assert merged(*shuffled) == graph
    assert math.isclose(sum(r.weight for r in graph.relationships), sum(m.strength for m in edges))
    assert sum(r.mentions for r in graph.relationships) == len(edges)
    assert sum(e.mentions for e in graph.entities) == len(graph.mentions) - len(edges)
    assert len(graph.mentions) + len(graph.dropped) == sum(len(x.entities) + len(x.relationships) for x in extractions)
    assert len({m.id for m in graph.mentions}) == len(graph.mentions)


def test_an_entity_that_leaves_one_document_stays_in_the_other():
    """Forgetting a document takes its mentions only."""
    both = [said("Ann", "Bo", document="d0"), said("Ann", document="d1")]

    assert {e.name: e.mentions for e in merged(*both).entities} == {"Ann": 2, "Bo": 1}
    assert {e.name: e.mentions for e in merged(both[1]).entities} == {"Ann": 1}


def test_a_hundred_thousand_mentions_merge_in_seconds():
    """The graph of a large collection is recomputed in a moment (bound is ten times what was measured)."""
    dice = random.Random(1)
    extractions = [
        said(*(f"Person {dice.randrange(20_000)}" for _ in range(12)), relationships=[tied(n, n + 1) for n in range(8)], index=index)
        for index in range(5_000)
    ]
    chunks = chunks_of(*extractions)
    graph, seconds = effort_of(lambda: merge(extractions, chunks))

    assert len(graph.mentions) + len(graph.dropped) == 100_000
    assert seconds < 20
