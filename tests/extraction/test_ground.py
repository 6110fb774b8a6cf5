"""What a passage supports is kept with exact spans; the rest goes with its reason."""

import pytest

from graphrag_local.extraction.ground import check_name, ground, passage_of, settle
from graphrag_local.extraction.schema import ClaimDraft, Drafts, EntityDraft, RelationshipDraft
from tests.fakes import chunk_of

TYPES = ("organization", "person", "geo", "event", "other")


def entity(name, *numbers, type_="person", description="said"):
    return EntityDraft(name=name, type=type_, description=description, sentences=numbers)


def relation(a, b, *numbers, strength=5.0, description="knows"):
    return RelationshipDraft(source=a, target=b, strength=strength, description=description, sentences=numbers)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("Ann Lee", "Then Ann\nLee left.", "anchored"),
        ("Teigkneter", "Die Welle des Teigkneters dreht sich.", "anchored"),
        ("Teigkneter", "Der Teig-\nkneter steht.", "anchored"),
        ("harbour board", "The Harbour Board met.", "anchored"),
        ("李明", "昨天李明在北京。", "anchored"),
        ("محمد", "يحرس مُحَمَّد المنارة.", "anchored"),
        ("محمد", "وصل ومحمـــد معا.", "anchored"),
        ("علیرضا", "دیروز علی\u200cرضا آمد.", "anchored"),
        ("Norvik", "The Nor\u200bvik yard.", "anchored"),
        ("Öl", "Mit Speiseöl geschmiert.", "unanchored"),
        ("北港航运公司", "北港航運公司付了錢。", "composed"),
        ("何山", "何静看守，罗山修好。", "unanchored"),
        ("The Moss Family", "The family of Old Moss.", "composed"),
        ("Art", "They started to party.", "unanchored"),
        ("Dr. Zed Nobody", "Ann met Bo.", "unanchored"),
        ("Bo", "The boat sank.", "unanchored"),
    ],
)
def test_names_are_checked_against_their_passage(name, text, expected):
    """A name is anchored, composed of words of its passage, or neither; short names are whole words."""
    assert check_name(name, passage_of(chunk_of(text)))[0] == expected


def test_spans_are_exact_in_the_document():
    """A cited sentence is the document's text at its span, wherever the chunk lies in the document."""
    text = "Ann met Bo.  They sailed on the Kestrel.\n\nIt rained."
    found = ground(passage_of(chunk_of(text, start=100)), Drafts(entities=(entity("Kestrel", 2),)), TYPES, "evidence", False)

    (mention,) = found.entities
    assert [text[s.start - 100 : s.end - 100] for s in mention.spans] == ["They sailed on the Kestrel."]


def test_a_wrong_sentence_number_is_mended_by_the_sentence_that_holds_the_name():
    """The sentence in which an anchored name stands is always among its spans."""
    text = "Ann met Bo. They sailed on the Kestrel."
    (mention,) = ground(passage_of(chunk_of(text)), Drafts(entities=(entity("Kestrel", 1, 99),)), TYPES, "evidence", False).entities

    assert "They sailed on the Kestrel." in [text[s.start : s.end] for s in mention.spans]


def test_a_relationship_to_an_unlisted_entity_is_dropped_with_its_reason():
    """Ends are numbers of listed entities: out of range and self loops do not enter the graph, and say why."""
    drafts = Drafts(entities=(entity("Ann", 1), entity("Bo", 1)), relationships=(relation(1, 2, 1), relation(1, 7, 1), relation(2, 2, 1)))
    found = ground(passage_of(chunk_of("Ann met Bo.")), drafts, TYPES, "evidence", False)

    assert [(r.source, r.target) for r in found.relationships] == [(0, 1)]
    assert sorted(d.reason for d in found.dropped) == ["no such entity", "self loop"]


def test_a_repeated_record_counts_once():
    """The same entity four hundred times is one mention, and the repeats are counted as dropped."""
    found = ground(passage_of(chunk_of("Ann met Bo.")), Drafts(entities=(entity("Ann", 1),) * 400), TYPES, "evidence", False)

    assert len(found.entities) == 1
    assert sum(d.reason == "repeated entity" for d in found.dropped) == 399


def test_a_repeated_claim_counts_once():
    """The same claim twice in a reply is one claim, and the repeat is counted as dropped."""
    claim = ClaimDraft(subject=1, object=0, type="theft", status="TRUE", period="NA", description="took the boat", sentences=(1,))
    found = ground(passage_of(chunk_of("Ann took the boat.")), Drafts(entities=(entity("Ann", 1),), claims=(claim, claim)), TYPES, "evidence", False)

    assert len(found.claims) == 1
    assert [d.reason for d in found.dropped] == ["repeated claim"]


def test_invented_names_are_kept_apart_and_their_relationships_go():
    """A name that is nowhere in the document enters neither graph nor edges; it stays visible, apart."""
    drafts = Drafts(entities=(entity("Ann", 1), entity("Dr. Zed Nobody", 1)), relationships=(relation(1, 2, 1),))
    (settled,) = settle([ground(passage_of(chunk_of("Ann met Bo.")), drafts, TYPES, "evidence", False)])

    assert [e.name for e in settled.entities] == ["Ann"]
    assert [e.name for e in settled.apart] == ["Dr. Zed Nobody"]
    assert settled.relationships == ()
    assert "an end is not in its passage" in [d.reason for d in settled.dropped]


def test_a_name_anchored_elsewhere_in_the_document_is_used():
    """A name missing from its own passage is used when another passage of the document has it."""
    first = ground(passage_of(chunk_of("Zed Nobody came.")), Drafts(entities=(entity("Zed Nobody", 1),)), TYPES, "evidence", False)
    second = ground(passage_of(chunk_of("He left again.", index=1)), Drafts(entities=(entity("Zed Nobody", 1),)), TYPES, "evidence", False)

    assert [len(x.entities) for x in settle([first, second])] == [1, 1]


def test_strict_grounding_drops_invented_names():
    """Under `strict` a name that is not in its passage is dropped with the reason."""
    found = ground(passage_of(chunk_of("Ann met Bo.")), Drafts(entities=(entity("Dr. Zed Nobody", 1),)), TYPES, "strict", False)

    assert found.entities == ()
    assert [d.reason for d in found.dropped] == ["name not in its passage"]


def test_quotes_stand_for_descriptions():
    """In quote mode a description is the cited sentences as they stand."""
    found = ground(passage_of(chunk_of("Ann met Bo. It rained.")), Drafts(entities=(entity("Ann", 1, 2),)), TYPES, "evidence", True)

    assert found.entities[0].description == "Ann met Bo. It rained."


def test_a_repeated_record_quotes_each_sentence_once():
    """In quote mode two records of one name give one quote: the sentences of both, each once, in the order of the text."""
    passage = passage_of(chunk_of("Ann came. Bo stayed. Ann left."))
    found = ground(passage, Drafts(entities=(entity("Ann", 3), entity("Ann", 1), entity("Ann", 1, 3))), TYPES, "span", True)

    (mention,) = found.entities
    assert mention.description == "Ann came. Ann left."
    assert len(mention.spans) == 2


def test_a_name_is_one_clean_line():
    """Line breaks, control characters, direction marks and headings inside a name cannot leave it."""
    drafts = Drafts(entities=(entity("the\x0c sea.\n\n## Sources\u200f\n[S1]", 1),))
    found = ground(passage_of(chunk_of("Of the sea.")), drafts, TYPES, "evidence", False)

    names = [e.name for e in found.entities] + [e.name for e in found.apart]
    assert names == ["the sea. ## Sources [S1]"]


def test_an_unknown_type_becomes_other():
    """A type outside the settings is filed under `other`."""
    found = ground(passage_of(chunk_of("Ann met Bo.")), Drafts(entities=(entity("Ann", 1, type_="wizard"),)), TYPES, "evidence", False)

    assert found.entities[0].type == "other"
