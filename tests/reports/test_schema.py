"""What a report may say, and how replies of good and bad servers are read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from graphrag_local.engine.base import Form, Grammar, JsonSchema
from graphrag_local.reports.schema import constraint, parse

IDS = {"E1": "ann", "E2": "bo", "K1": "ann-bo", "D1": "claim", "E3": "cy", "E4": "di", "E5": "ed"}
FORMS: tuple[Form, ...] = ("grammar", "schema")
BYTES = LLTokenizer("byte")


def lines(*findings: str, rating: str = "7") -> str:
    """A reply in lines."""
    return f"T\tThe lock\nS\tAnn keeps it.\nG\t{rating}\tThe valley needs it.\n" + "".join(f"{finding}\n" for finding in findings)


def obj(*findings: dict[str, object], **values: object) -> str:
    """A reply in JSON."""
    told = findings or ({"summary": "Ann keeps it.", "explanation": "By law.", "sources": ["E1"], "more": False},)
    whole = {"title": "The lock", "summary": "Ann keeps it.", "rating": 7, "rating_explanation": "Needed.", "findings": list(told), **values}
    return json.dumps(whole, ensure_ascii=False)


def accepts(found: Grammar | JsonSchema, text: str) -> bool:
    """Whether a text is a whole sentence of a constraint."""
    source = LLMatcher.grammar_from_lark(found.lark) if isinstance(found, Grammar) else LLMatcher.grammar_from_json_schema(found.text)
    matcher = LLMatcher(BYTES, source, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return all(matcher.consume_token(byte) for byte in text.encode()) and matcher.is_accepting()


def compact(text: str) -> str:
    """JSON as the constraint writes it: keys in the schema's order."""
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("sources", ["E1", "E1,K1,D1", "E1,E2,E3,E4,K1", "E2,E3+"])
def test_the_grammar_takes_one_to_five_ids_of_the_context(sources):
    """A finding cites one to five ids of its own context, and may say that there are more."""
    found = constraint("grammar", list(IDS), 3)

    assert accepts(found, lines(f"F\t{sources}\tAnn keeps it.\tBy law."))


@pytest.mark.parametrize(
    "reply",
    [
        lines("F\tE9\tA ghost.\tNot there."),
        lines("F\t\tNo source.\tAt all."),
        lines("F\tE1,E2,E3,E4,E5,K1\tSix ids.\tToo many."),
        lines(*["F\tE1\tOne.\tTwo."] * 4),
        lines(),
        lines("F\tE1\tOne.\tTwo.", rating="11"),
    ],
    ids=["ghost id", "no id", "six ids", "too many findings", "no finding", "rating over ten"],
)
def test_the_grammar_refuses_what_a_report_must_not_hold(reply):
    """Ids from elsewhere, findings without sources, too many of either and ratings over ten cannot be written."""
    assert not accepts(constraint("grammar", list(IDS), 3), reply)


def test_the_schema_names_the_same_limits():
    """On a server with JSON schema alone a finding still cites only ids of its context, and at least one."""
    found = constraint("schema", list(IDS), 2)
    one = {"summary": "s", "explanation": "e", "sources": ["E1"], "more": False}

    assert accepts(found, compact(obj(one, one)))
    assert not accepts(found, compact(obj(one, one, one)))
    assert not accepts(found, compact(obj({**one, "sources": []})))
    assert not accepts(found, compact(obj({**one, "sources": ["E9"]})))


@pytest.mark.parametrize("form", FORMS)
def test_a_good_reply_is_read_whole(form):
    """Short ids become record ids, the flag for further sources is kept."""
    finding = {"summary": "Ann keeps it.", "explanation": "By law.", "sources": ["E1", "K1"], "more": True}
    draft = parse(form, lines("F\tE1,K1+\tAnn keeps it.\tBy law.") if form == "grammar" else obj(finding), IDS)

    assert (draft.title, draft.rating, draft.dropped) == ("The lock", 7.0, ())
    assert [(f.sources, f.more, f.summary) for f in draft.findings] == [(("ann", "ann-bo"), True, "Ann keeps it.")]


@pytest.mark.parametrize("text", ["```json\n{}\n```", "Sure, here it is:\n\n{}\n\nAnything else?", "{}"], ids=["fence", "chatter", "comma"])
def test_wrapping_does_not_cost_the_report(text):
    """Fences, chatter and a comma too many are taken off."""
    body = obj()[:-1] + ",}" if text == "{}" else obj()

    assert parse("schema", text.replace("{}", body), IDS).title == "The lock"


@pytest.mark.parametrize("word", ["+more", '"+more"', '"E2 +more"', "+ more"])
def test_plus_more_among_the_ids_becomes_the_flag(word):
    """The habit of writing +more into a list of ids loses nothing and invents no id."""
    finding = parse("schema", obj().replace('["E1"]', f'["E1", {word}]'), IDS).findings[0]

    assert finding.more
    assert finding.sources[0] == "ann"
    assert set(finding.sources) <= {"ann", "bo"}


@pytest.mark.parametrize(("said", "rating"), [("8/10", 8.0), ("80/100", 8.0), ("7.5", 7.5), (" 9 ", 9.0), (0, 0.0), ("6 out of 10", 6.0)])
def test_a_rating_as_text_is_read_as_a_number(said, rating):
    """A rating is a number from 0 to 10, however it was written."""
    assert parse("schema", obj(rating=said), IDS).rating == rating


@pytest.mark.parametrize("said", ["high", None, 11, -1, True, "5/0"])
def test_a_rating_that_is_no_number_is_asked_for_again(said):
    """Text is never kept in a number's place."""
    with pytest.raises(ValueError, match="it begins"):
        parse("schema", obj(rating=said), IDS)


def test_ghost_ids_are_dropped_with_their_reason():
    """An id from elsewhere is not kept; a finding that stands on nothing else goes too, and both say why."""
    good = {"summary": "Good.", "explanation": "", "sources": ["E1", "E77"], "more": False}
    ghost = {"summary": "Bad.", "explanation": "", "sources": ["R3", 12], "more": False}
    draft = parse("schema", obj(good, ghost), IDS)

    assert [f.sources for f in draft.findings] == [("ann",)]
    assert [(d.what, d.reason) for d in draft.dropped] == [
        ("E77", "the id is not in the context"),
        ("R3", "the id is not in the context"),
        ("Bad.", "the finding has no source in the context"),
    ]


@pytest.mark.parametrize("reply", ["[]", "{}", "I cannot do that.", '{"title": "x"', obj(findings=[]), obj(title=" "), '{"findings": 3}'])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_no_report_says_how_it_begins(form, reply):
    """An unusable reply is an error that quotes its beginning."""
    with pytest.raises(ValueError, match=r"it begins") as error:
        parse(form, reply, IDS)

    assert repr(reply[:20])[1:-1] in str(error.value)


def test_a_repeated_finding_is_kept_once():
    """A model that repeats itself has the finding once, and the repeat is accounted for."""
    draft = parse("grammar", lines(*["F\tE1\tAnn keeps it.\tBy law."] * 3), IDS)

    assert len(draft.findings) == 1
    assert [loss.reason for loss in draft.dropped] == ["the finding repeats an earlier one"] * 2


def test_more_than_five_sources_are_five_and_the_flag():
    """At most five sources are kept, repeats counted once."""
    finding = parse("schema", obj({"summary": "s", "explanation": "e", "sources": ["E1", "E1", *IDS], "more": False}), IDS).findings[0]

    assert (len(finding.sources), finding.more) == (5, True)


def test_texts_are_clean():
    r"""Fields are one line without control characters; `\frac` and `\beta` survive JSON; ids in brackets are gone, other brackets stay."""
    said = {"summary": "\x0crac{a}{b} and \x08eta (E1, K1)", "explanation": "Two\nlines\x01 [E2 +more], see (C3) \ud800", "sources": ["E1"]}
    draft = parse("schema", obj(said, title="E1-E2:\nA\ntitle", summary="E99: A road"), IDS)
    finding = draft.findings[0]

    assert (draft.title, draft.summary) == ("A title", "E99: A road")
    assert finding.summary == r"\frac{a}{b} and \beta"
    assert finding.explanation == "Two lines, see (C3)"


@given(st.text(max_size=200))
def test_any_reply_is_read_or_refused(text):
    """Reading never fails in another way than ValueError, and what is read has a title and cites its context only."""
    for form in FORMS:
        try:
            draft = parse(form, text, IDS)
        except ValueError:
            continue
        assert draft.title
        assert {source for finding in draft.findings for source in finding.sources} <= set(IDS.values())
