"""Both forms of a reply read into the same drafts; grammars accept what they should and nothing else."""

import json
from dataclasses import replace

import pytest
from llguidance import LLMatcher, LLTokenizer

from graphrag_local.engine.base import Grammar
from graphrag_local.extraction.schema import Proposed, ProposedPair, Shape, canonical_constraint, constraint, parse, parse_canonical

LINES = "1\tAnn\tperson\t1\tkeeps a shop\n2\tBo\tperson\t1,2\tsails\n1-2\t7\t1\tare friends\n?\tN"
SHAPE = Shape(form="grammar", types=("person", "geo"), sentences=3, max_entities=4, max_relationships=4, quote=False, claims=False, gleanings=1)


def accepts(grammar: Grammar, text: str) -> bool:
    matcher = LLMatcher(LLTokenizer("byte"), LLMatcher.grammar_from_lark(grammar.lark))
    return matcher.try_consume_tokens(list(text.encode())) == len(text.encode()) and matcher.is_accepting()


def test_lines_and_json_read_into_the_same_drafts():
    """The two forms differ in syntax only."""
    value = {
        "entities": [
            {"name": "Ann", "type": "person", "description": "keeps a shop", "sentences": [1]},
            {"name": "Bo", "type": "person", "description": "sails", "sentences": [1, 2]},
        ],
        "relationships": [{"source": 1, "target": 2, "description": "are friends", "strength": 7, "sentences": [1]}],
        "missed": "N",
    }
    assert parse("grammar", False)(LINES) == parse("schema", False)(json.dumps(value))


def test_the_grammar_accepts_its_own_format():
    """A reply in the described format is a sentence of the grammar, gleaned records included."""
    assert accepts(constraint(SHAPE), LINES)
    assert accepts(constraint(SHAPE), LINES[:-1] + "Y\n3\tCy\tgeo\t3\tis a town\n")
    assert accepts(constraint(SHAPE), "?\tN")


@pytest.mark.parametrize("bad", ["1\tAnn\twizard\t1\tx\n?\tN", "1\tAnn\tperson\t9\tx\n?\tN", '1\tAn"n\tperson\t1\tx\n?\tN', "1\tAnn\tperson\t1\tx\n"])
def test_the_grammar_refuses_other_types_sentences_and_characters(bad):
    """Types, sentence numbers and the closing question are held by the grammar."""
    assert not accepts(constraint(SHAPE), bad)


@pytest.mark.parametrize(("name", "good"), [("Ann Lee", True), ("Zed", False), ("", False), (" Ann", False), ("Ann ", False)])
def test_span_names_are_words_of_the_passage(name, good):
    """In span mode a name is a run of the passage's words, never empty, never with blanks at its ends."""
    shape = Shape(**{**{f: getattr(SHAPE, f) for f in SHAPE.__slots__}, "spans": "Ann Lee met Bo.", "quote": True})

    assert accepts(constraint(shape), f"1\t{name}\tperson\t1\n?\tN") is good


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("Ann", True),
        ("Dr. Ann Lee", True),
        ("one two three four five six seven eight", True),
        ("one two three four five six seven eight nine", False),
        ("Ann Lee slept. Bo rowed", False),
        ("boat.** Cy", False),
        ('"Red" Cy', False),
        ('Cy "Red" Lee', True),
        ("**The boat", False),
        ("The boat", True),
    ],
)
def test_span_names_are_short_and_stay_in_their_sentence(name, good):
    """In span mode a name has eight words at most and does not go on after a full stop, so that copying cannot fill the reply."""
    spans = 'Dr. Ann Lee slept. Bo rowed past one two three four five six seven eight nine buoys. **The boat.** Cy "Red" Lee'
    shape = replace(SHAPE, spans=spans, quote=True)

    assert accepts(constraint(shape), f"1\t{name}\tperson\t1\n?\tN") is good


def test_span_names_without_spaces_are_short():
    """In a script without spaces a name has thirty characters at most."""
    shape = replace(SHAPE, spans="昨天" * 40, quote=True, unsegmented=True)

    assert accepts(constraint(shape), f"1\t{'昨天' * 15}\tperson\t1\n?\tN")
    assert not accepts(constraint(shape), f"1\t{'昨天' * 16}\tperson\t1\n?\tN")


def test_span_names_work_without_spaces():
    """In a script without spaces any run of characters of the passage is a name."""
    shape = Shape(**{**{f: getattr(SHAPE, f) for f in SHAPE.__slots__}, "spans": "昨天李明在北京。", "quote": True, "unsegmented": True})

    assert accepts(constraint(shape), "1\t李明\tperson\t1\n?\tN")
    assert not accepts(constraint(shape), "1\t王五\tperson\t1\n?\tN")


def test_claims_have_their_own_lines():
    """A claim line names its entity, status, period and sentences."""
    shape = Shape(**{**{f: getattr(SHAPE, f) for f in SHAPE.__slots__}, "claims": True, "gleanings": 0})
    text = "1\tAnn\tperson\t1\tx\n!1\t0\ttheft\tSUSPECTED\tNA\t2\ttook the boat\n"

    assert accepts(constraint(shape), text)
    (claim,) = parse("grammar", False)(text).claims
    assert (claim.subject, claim.object, claim.status, claim.description) == (1, 0, "SUSPECTED", "took the boat")


def test_ends_given_by_name_are_read():
    """A server that ignored the schema may give names as ends; they are kept as names for the check."""
    value = {"entities": [{"name": "Ann"}, {"name": "Bo"}], "relationships": [{"source": "Ann", "target": "Bo"}]}
    (relationship,) = parse("schema", False)(json.dumps(value)).relationships

    assert (relationship.source, relationship.target) == ("Ann", "Bo")


@pytest.mark.parametrize("text", ["[]", "no json", '{"a": 1}'])
def test_other_json_is_an_error_that_shows_its_beginning(text):
    """A reply in another shape is refused with its first characters."""
    with pytest.raises(ValueError, match="begins"):
        parse("schema", False)(text)


def test_unreadable_records_are_counted():
    """One bad record does not cost the others."""
    drafts = parse("schema", False)('{"entities": [{"name": "Ann"}, 5, {"type": "person"}], "relationships": []}')

    assert [e.name for e in drafts.entities] == ["Ann"]
    assert len(drafts.bad) == 2


@pytest.mark.parametrize("line", ["1-2\tstrong\t1\tmet", "1-2\tinf\t1\tmet", "²\tBo\tperson\t1\tx", "!x\t0\ttheft\tTRUE\tNA\t1\ttook it"])
def test_an_unreadable_line_does_not_cost_the_others(line):
    """A line with a strange number, from a server that does not hold to the grammar, is read with the least strength or counted, never the end of all."""
    drafts = parse("grammar", False)(f"1\tAnn\tperson\t1\tx\n2\tBo\tperson\t1\tx\n{line}\n")

    assert [e.name for e in drafts.entities] == ["Ann", "Bo"]
    assert len(drafts.bad) + len(drafts.relationships) == 1
    assert all(1 <= r.strength <= 10 for r in drafts.relationships)


@pytest.mark.parametrize("form", ["grammar", "schema"])
def test_canonical_pairs(form):
    """A canonical-names reply is pairs of numbers of listed names."""
    text = "2=1\n." if form == "grammar" else '{"same": [{"form": 2, "name": 1}]}'

    assert parse_canonical(form)(text) == ((2, 1),)
    if form == "grammar":
        assert accepts(canonical_constraint(form, 2), text)
        assert not accepts(canonical_constraint(form, 2), "3=1\n.")


def test_proposed_names_are_all_typed_and_cited():
    """With proposed names a reply lists each of them once, cites a sentence that holds it, and joins proposed pairs only."""
    names = (Proposed(name="Ann Lee", sentences=(1, 2)), Proposed(name="Pike Lock", sentences=(2,)))
    pairs = (ProposedPair(source=1, target=2, sentences=((2,), (1, 2))),)
    shape = replace(SHAPE, spans="Ann Lee mends Pike Lock", quote=True, names=names, pairs=pairs)
    whole = "1\tAnn Lee\tperson\t1\n2\tPike Lock\tgeo\t2\n"

    assert accepts(constraint(shape), whole + "1-2\t7\t1,2\n")
    assert accepts(constraint(shape), whole)
    for wrong in ("1\tAnn Lee\tperson\t1\n", whole.replace("geo\t2", "geo\t1"), whole + "2-1\t7\t2\n", whole + "1-2\t7\t2\n" * 2):
        assert not accepts(constraint(shape), wrong)
    assert [e.name for e in parse("grammar", True)(whole).entities] == ["Ann Lee", "Pike Lock"]
