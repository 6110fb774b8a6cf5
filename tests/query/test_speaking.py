"""Who speaks where is known from the names before what is said, and a text that is no conversation has no speakers."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrag_local.query.context import Writer
from graphrag_local.query.speaking import goes_on, speaker, spoken, turns
from graphrag_local.query.view import view_of
from graphrag_local.text import one_line
from tests.fakes import Characters
from tests.query.world import text_index

HEARING = """Hearing of the Harbour Board, 4 May.

MIRA HOLT: The lamp was broken in March. We had no money for it.
PIET LARSEN: Who broke it?
MIRA HOLT: Nobody knows -- \nPIET LARSEN: Somebody does.
Holt: Then ask the keeper.
PIET LARSEN: The keeper is ill.

He has been ill since March.
MIRA HOLT/PIET LARSEN: So we wait.
"""
OTHERS = {
    "a form": "Name: Mira Holt\nDate: 4 May\nPlace: Port Ellis\n\n" * 6,
    "prose with notes": ("The lamp was broken in March, and nobody had the money for it.\n\n" * 12 + "Note: See the annex.\n\nSource: The minutes.\n\n") * 4,
    "one who is named": "Mira: The lamp is broken. It was dear.\n" * 9,
    "times and addresses": "10:30: The board meets.\nhttp://lamp.example/a\nhttps://lamp.example/b\n" * 5,
    "reviews": "Dorn kettle\n\nPros: It boils fast.\nCons: It is loud.\nVerdict: Buy it.\n\n" * 6,
    "faults": "Pump two\n\nProblem: It leaks.\nFix: Weld it.\n\n" * 6,
    "a short exchange": "Ann: Who broke it?\nBo: Nobody.\n",
    "nothing": "",
}


def told(text):
    """What each says, in order."""
    said = turns(text)
    return [(speaker(said, start), text[start:end].strip()) for start, end in spoken(said, 0, len(text))]


def test_each_part_has_its_speaker():
    """Turns are found, parts of names count as those who bear them, what goes on in a new paragraph is still said by the same, and labels are not said."""
    assert told(HEARING) == [
        ("", "Hearing of the Harbour Board, 4 May."),
        ("MIRA HOLT", "The lamp was broken in March. We had no money for it."),
        ("PIET LARSEN", "Who broke it?"),
        ("MIRA HOLT", "Nobody knows --"),
        ("PIET LARSEN", "Somebody does."),
        ("Holt", "Then ask the keeper."),
        ("PIET LARSEN", "The keeper is ill.\n\nHe has been ill since March."),
        ("MIRA HOLT/PIET LARSEN", "So we wait."),
    ]


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_other_texts_have_no_speakers(text):
    """Forms, notes in prose, times, and one name alone are no conversation."""
    assert turns(text) == ()


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("王明", "李红", "我不知道。"),
        ("12/03/24, 10:15 - anna", "[12.03.24, 10:16:01] bo k", "hi"),
        ("Анна", "Пётр ван Дик", "Я не знаю."),
        ("[10:31] Ann", "[10:32] Bo", "I do not know."),
        ("**Ann**", "**Bo**", "I do."),
    ],
    ids=["Chinese", "chat", "Russian", "times", "bold"],
)
def test_other_scripts_and_forms(a, b, said):
    """Names of every script, with a time before them or in bold, are those of speakers."""
    text = f"{a}：{said}\n{b}: {said}\n" * 4
    assert [who for who, _ in told(text)] == [re.split(r"\] | - ", name)[-1].strip("*") for name in (a, b)] * 4


def test_what_follows_a_conversation_is_said_by_nobody():
    """A heading ends a turn, and the last turn is no longer than the others."""
    talk = "Clara: Is it so?\nBen: It is, as far as I know.\n" * 4
    essay = "The ferry was founded by thieves. It sank in May. " * 9
    for text in (f"{talk}\nOn the ferries of Sarn\n\n{essay}", f"{talk}\n# Notes\n{essay}", f"{talk}\n---\n{essay}"):
        said = turns(text)
        assert [turn.who for turn in said] == ["Clara", "Ben"] * 4
        assert speaker(said, text.index("The ferry")) == "" == goes_on(said, text.index("The ferry"))
        assert speaker(said, text.rindex("It is, as")) == "Ben"
    said = turns(talk + essay)
    assert speaker(said, len(talk) + 60) == ""


@pytest.mark.parametrize("line", ["00:00" + " " * 200_000, "1:" * 20_000, "A" + " " * 200_000, ">" * 200_000, "A:" + "\n" * 200_000])
def test_no_line_takes_long(line):
    """Hostile lines are gone through once: within seconds, where twice as long would be hours."""
    assert turns(f"{line}\n" * 3) == ()


@given(st.integers(0, 500), st.integers(0, 500))
def test_parts_are_what_is_said_in_a_span(a, b):
    """The parts of any span are inside it, in order, apart from each other, and hold all of it but labels."""
    start, end = sorted((min(a, len(HEARING)), min(b, len(HEARING))))
    said = turns(HEARING)
    parts = spoken(said, start, end) if start < end else []
    labels = {place for turn in said for place in range(turn.begin, turn.said)}
    assert [place for a, b in parts for place in range(a, b)] == [place for place in range(start, end) if place not in labels]


@pytest.mark.parametrize("by_sentence", [False, True])
def test_a_model_reads_who_speaks_in_each_piece(by_sentence):
    """A piece of a passage that somebody goes on speaking in begins with the name; its citation opens at what is said alone."""
    turn = " ".join(f"In year {n} the lamp was mended by the keeper of the northern harbour, and nobody paid for it." for n in range(8))
    view = view_of(text_index(hearing=f"ANN HILL: {turn}\nBO: Indeed.\n" * 4))
    chunk = view.chunks.at(0)
    unit = Writer(view, Characters(), 400, by_sentence=by_sentence).chunk(chunk)

    said = turns(chunk.text)
    for line in (block.lines[0] for block in unit.blocks):
        assert line.ref.span is not None
        text = chunk.text[line.ref.span.start : line.ref.span.end]
        assert line.text in (one_line(text), one_line(f"{speaker(said, line.ref.span.start)}: {text}"))
        assert line.text.startswith(("ANN HILL: ", "BO: "))
