"""What stored text looks like, and what is cut from it."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrag_local.documents.clean import first_heading, normalise, without_front_matter, without_licence
from tests.documents.making import only, read

LICENSED = (
    "The Project Gutenberg EBook of The Lamp Room\n\nTitle: The Lamp Room\n\n"
    "*** START OF THIS PROJECT GUTENBERG EBOOK THE LAMP ROOM ***\n\n\nIt was dark.\n\nThen it was not.\n\n"
    "*** END OF THIS PROJECT GUTENBERG EBOOK THE LAMP ROOM ***\n\nLong licence.\n"
)


@given(st.text(st.characters(codec=None), max_size=300))
def test_normalising_twice_changes_nothing(text):
    """Normalised text has LF line ends, no control characters, no lone surrogates, is NFC, and stays as it is."""
    clean, _ = normalise(text)

    assert normalise(clean) == (clean, 0)
    assert "\r" not in clean
    assert not any(character < " " and character not in "\t\n" for character in clean)
    assert not any("\ud800" <= character <= "\udfff" for character in clean)
    assert unicodedata.is_normalized("NFC", clean)


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Mn"]), max_size=100))
def test_ordinary_text_keeps_its_words(text):
    """White space apart, text without control characters is the NFC of what was there."""
    assert normalise(text)[0].split() == unicodedata.normalize("NFC", text.replace("\ufeff", "")).split()


def test_line_ends_of_every_kind_are_one_kind():
    """CRLF, CR and LF give the same text."""
    texts = {normalise("One.\n\nTwo.\n".replace("\n", end))[0] for end in ("\n", "\r\n", "\r")}

    assert texts == {"One.\n\nTwo.\n"}


def test_direction_marks_and_stretching_stay():
    """Arabic text is stored as it is written, marks and all."""
    text = "محمـــد \u200fNorvik\u200f مُحَمَّد \u202bx\u202c"

    assert normalise(text) == (unicodedata.normalize("NFC", text), 0)


def test_endless_combining_marks_take_no_time():
    """A file of combining marks, whose composition is quadratic, is cleaned at once."""
    begin = time.process_time()
    clean, dropped = normalise("a" + "\u0301\u0316" * 500_000)

    assert time.process_time() - begin < 2
    assert len(clean) + dropped >= 1_000_000


def test_control_characters_are_counted_as_a_cut(tmp_path):
    """Control characters are in no stored text, and how many there were is recorded."""
    document = only(read(tmp_path, "a.txt", b"Log \x01 of\x0cthe \x1b[31mkeeper\0.\n" * 2))

    assert document.text == "Log  of the keeper.\n" * 2
    assert [(cut.reason, cut.characters) for cut in document.cuts] == [("control characters", 14)]


def test_a_licence_is_cut_and_the_cut_recorded(tmp_path):
    """A Project Gutenberg text is its book: header and licence are counted, the title comes from the header."""
    document = only(read(tmp_path, "pg1.txt", LICENSED))

    assert document.text == "It was dark.\n\nThen it was not.\n"
    assert document.title == "The Lamp Room"
    assert [cut.reason for cut in document.cuts] == ["Project Gutenberg header", "Project Gutenberg licence"]
    assert sum(cut.characters for cut in document.cuts) == len(LICENSED) - len("\n\n\nIt was dark.\n\nThen it was not.\n\n")
    assert document.places[0].label == "line 8"
    assert only(read(tmp_path, "pg1.txt", LICENSED, boilerplate=False)).text == LICENSED


def test_a_text_about_the_licence_is_left_alone():
    """Only the marked header of a book is a header."""
    text = "Notes on archives.\nProject Gutenberg is one of them.\nEnd of Project Gutenberg notes.\n"

    assert without_licence(text).text == text


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_front_matter_gives_the_title_and_is_no_text(tmp_path, end):
    """The title comes from the front matter whatever the line ends, and the text begins behind it, in the line it says."""
    document = only(read(tmp_path, "a.md", "---\ntitle: \"Weir: rules\"\ntags: [x]\n---\n\nNo nets.\n".replace("\n", end)))

    assert (document.title, document.text) == ("Weir: rules", "No nets.\n")
    assert [(place.label, place.start) for place in document.places] == [("line 6", 0)]


def test_a_rule_between_paragraphs_is_no_front_matter():
    """Two horizontal rules around prose are prose."""
    text = "---\nIt rained\nall day\n---\nThen not.\n"

    assert without_front_matter(text).text == text


def test_the_first_heading_is_the_title():
    """Headings are found past code, and lose their markup."""
    assert first_heading("```\n# no\n```\nText\n\n## The *old* [weir](http://x) ##\n") == "The old weir"
    assert first_heading("The mill\n========\n") == "The mill"
    assert first_heading("no heading") == ""
