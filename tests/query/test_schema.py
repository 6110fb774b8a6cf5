"""Constraints accept what they should and nothing else; replies are read whole, cut off, or as other servers write them."""

import json

import pytest
from llguidance import LLMatcher, LLTokenizer

from graphrag_local.engine.base import Constraint, Grammar
from graphrag_local.query.schema import Uncited, answer_constraint, complete_objects, map_constraint, read_answer, read_points

IDS = ("R1", "R2", "R12", "E3")


def accepts(constraint: Constraint, text: str) -> bool:
    assert isinstance(constraint, Grammar)
    matcher = LLMatcher(LLTokenizer("byte"), LLMatcher.grammar_from_lark(constraint.lark))
    return matcher.try_consume_tokens(list(text.encode())) == len(text.encode()) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("N", True), ("Y\nIt is so.\tR1\t70\n", True), ("Y\nIt is so [R9].\tR1,R12,E3\t100\nAnd so.\tR2\t1\n", True),
        ("Y\n", False), ("Y\nIt.\tR9\t7\n", False), ("Y\nIt.\t\t7\n", False), ("Y\nIt.\tR1\t0\n", False), ("Y\nIt.\tR1\t101\n", False),
        ("Y\n" + "It.\tR1\t5\n" * 3, False), ("It.\tR1\t5\n", False), ("Y\nIt.\tR1,R2,R12,E3,R1,R2\t5\n", False),
    ],
)  # fmt: skip
def test_a_window_says_n_or_points_with_known_ids(text, good):
    """The grammar of a window: N, or one to two points, each with one to five of its ids and a score from 1 to 100 after them."""
    assert accepts(map_constraint("grammar", IDS, 2), text) is good


def test_a_forced_reading_has_no_n_but_a_score_of_zero():
    """A window that is read against its own judgement can only say by its score that nothing helps."""
    forced = map_constraint("grammar", IDS, 2, forced=True)

    assert not accepts(forced, "N")
    assert accepts(forced, "Y\nIt.\tR1\t0\n")


def test_an_answer_declines_only_where_it_may():
    """The first branch of an answer is a refusal, where it is offered at all."""
    may, must = (answer_constraint("grammar", IDS, 2, may_decline=flag) for flag in (True, False))

    assert accepts(may, "N")
    assert accepts(may, "Y\nIt is so.\tR1\n")
    assert not accepts(must, "N")
    assert accepts(must, "It is so.\tR1,E3\n")
    assert not accepts(must, "It is so.\tR7\n")


def test_what_is_left_open_has_a_line_of_its_own():
    """After the paragraphs, at most once, without ids; it is no paragraph, and no ids are read out of it."""
    may = answer_constraint("grammar", IDS, 2, may_decline=True)
    text = "Y\nIt is so.\tR1\n?\twhat R2 costs\n"

    assert accepts(may, text)
    assert not accepts(may, "Y\n?\twhat it costs\n")
    assert not accepts(may, text + "?\tand when\n")
    assert not accepts(may, "Y\n?\twhat it costs\nIt is so.\tR1\n")
    read = read_answer("grammar", text, IDS)
    assert ([item.text for item in read.items], read.missing, read.unknown, read.bare) == (["It is so."], "what R2 costs", 0, 0)
    whole = json.dumps({"answered": "yes", "paragraphs": [{"text": "It is so.", "sources": ["R1"]}], "missing": "what R2 costs"})
    assert read_answer("schema", whole, IDS) == read
    assert read_answer("schema", whole[:-20], IDS).missing == ""
    assert read_answer("grammar", "N\n?\twhat it costs\n", IDS).missing == ""
    with pytest.raises(ValueError, match="nothing complete"):
        read_answer("grammar", "Y\n?\twhat it costs\n", IDS)


def test_schemas_hold_the_same():
    """The JSON form lists the ids as an enum and needs at least one source; a forced reading has no N."""
    point = json.loads(map_constraint("schema", IDS, 2).text)
    forced = json.loads(map_constraint("schema", IDS, 2, forced=True).text)
    item = point["properties"]["points"]["items"]

    assert item["properties"]["sources"] == {"type": "array", "items": {"enum": list(IDS)}, "minItems": 1, "maxItems": 5}
    assert list(item["properties"]) == ["text", "sources", "score"]
    assert point["properties"]["useful"] == {"enum": ["Y", "N"]}
    assert forced["properties"]["useful"] == {"enum": ["Y"]}
    assert "answered" in json.loads(answer_constraint("schema", IDS, 2, may_decline=True).text)["properties"]
    assert "answered" not in json.loads(answer_constraint("schema", IDS, 2, may_decline=False).text)["properties"]


def test_both_forms_read_the_same():
    """Lines and JSON give equal points."""
    value = {"useful": "Y", "points": [{"text": "It is so.", "sources": ["R1", "E3"], "score": 70}]}

    assert read_points("grammar", "Y\nIt is so.\tR1,E3\t70\n", IDS) == read_points("schema", json.dumps(value), IDS)
    assert not read_points("grammar", "N", IDS).useful
    assert not read_points("schema", '{"useful":"N","points":[{"text":"x","sources":["R1"],"score":1}]}', IDS).useful
    assert not read_answer("schema", '{"answered":"no","paragraphs":[]}', IDS).useful


def test_ghost_ids_are_dropped_and_counted():
    """An id that was not in the prompt is never a source; a point with no other is dropped."""
    read = read_points("grammar", "Y\nOne.\tR1,R99\t5\nTwo.\tR98\t5\n", IDS)

    assert [(item.text, item.sources) for item in read.items] == [("One.", ("R1",))]
    assert (read.unknown, read.bare) == (2, 1)


def test_an_answer_that_cites_nothing_known_is_no_answer():
    """A reply in the right form with ghost ids alone is refused, so that it is asked for again."""
    with pytest.raises(Uncited, match="no paragraph cites"):
        read_answer("grammar", "It is so.\tR77\n", IDS)


@pytest.mark.parametrize(
    ("cited", "ids"),
    [(["r1", " R 2 "], ("R1", "R2")), ("R1; E3, +more", ("R1", "E3")), (["[R1]", "[R1]"], ("R1",)), ("R1-R2", ("R1", "R2")), ("R1–2", ("R1", "R2"))],
)
def test_ids_are_read_as_people_and_servers_write_them(cited, ids):
    """Lower case, blanks, brackets, "+more" and ranges mean what they say; a range is all that is in it."""
    assert read_answer("schema", json.dumps({"paragraphs": [{"text": "x", "sources": cited}]}), IDS).items[0].sources == ids


def test_a_cut_off_json_reply_gives_its_complete_points():
    """What is complete before the break counts, with text that holds brackets and quotes."""
    text = '{"useful":"Y","points":[{"text":"a } \\" ] b","sources":["R1"],"score":9},{"text":"c","sources":["R2"],"score":8},{"text":"d","sou'

    assert [item.text for item in read_points("schema", text, IDS).items] == ['a } " ] b', "c"]
    assert complete_objects('{"points": []}', "points") == []


BROKEN = '{"useful":"Y","points":[{"text":"d","sou'


@pytest.mark.parametrize("text", ["", "Y\n", "I cannot say.", "{}", BROKEN, "[1, 2]", '{"useful":"Y","points":7}'])
@pytest.mark.parametrize("form", ["grammar", "schema"])
def test_replies_without_anything_complete_are_refused(form, text):
    """Nothing is guessed from a reply that holds no complete point."""
    with pytest.raises(ValueError, match="begins"):
        read_points(form, text, IDS)


def test_masks_stay_cheap():
    """Free text is exactly the class that costs nothing, and every delimiter lies outside it."""
    for grammar in (map_constraint("grammar", IDS, 8), answer_constraint("grammar", IDS, 8, may_decline=True)):
        assert r'TEXT: /[^"\\\x00-\x1F\x7F]+/' in grammar.lark
        assert "{2," not in grammar.lark
