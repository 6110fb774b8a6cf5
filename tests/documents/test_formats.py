"""Every format of a single document: its text, its title, its places, what was cut."""

import json
import shlex
import sys
import time

import pytest

from graphrag_local.documents.stage import read_collection
from graphrag_local.settings import DocumentsSettings
from graphrag_local.text import one_line
from tests.documents.making import book, only, pdf, read, reason, sheets, slides, word, word_with_body


def places(document):
    """The labelled parts of a document's text, first line each."""
    return [(place.label, document.text[place.start :].split("\n")[0]) for place in document.places]


def test_plain_text_is_stored_as_it_is(tmp_path):
    """Text, format and encoding of a plain file; the title is its name; control tokens are text."""
    document = only(read(tmp_path, "notes/day one.txt", "Ann met Bo.\n\n<|endoftext|> is a word here.\n"))

    assert document.text == "Ann met Bo.\n\n<|endoftext|> is a word here.\n"
    assert (document.path, document.title, document.format, document.encoding) == ("notes/day one.txt", "day one", "txt", "utf-8")


def test_an_unknown_extension_is_read_if_it_is_text(tmp_path):
    """A log or source file is plain text; a binary under an unknown name is refused."""
    assert only(read(tmp_path, "keeper.log", "The lamp went out.\n")).format == "txt"
    (tmp_path / "keeper.log").unlink()
    assert "not text" in reason(read(tmp_path, "keeper.xyz", bytes(range(256))))


@pytest.mark.parametrize("name", ["a.png", "b.ZIP", "c.mp3", "d.doc", "e.safetensors"])
def test_formats_without_text_are_named(tmp_path, name):
    """Images, archives, sound and old Office files are reported without being opened."""
    assert ("not a text format" in reason(read(tmp_path, name, b"x"))) or "save it as docx" in reason(read(tmp_path, name, b"x"))


PAGE = """<!doctype html><html><head><title>The  Weir &amp; the Mill</title><script>var tracking = 1</script><style>p {}</style></head><body>
<a class="skipToContent_x1" href="#main">Skip to main content</a><header><a href="/">Home of weirs</a></header>
<nav><ul><li>Menu one</li></ul></nav><div id="cookie-banner">We use cookies. <button>Accept</button></div>
<main><article><header><h1>The Weir</h1></header><p>Ann Lind <b>opened</b>
   the weir<br>in May.</p><aside>A note inside.</aside><ul><li>first</li><li>second</li></ul><pre>a
  b</pre><table><tr><th>Name</th><th>Year</th></tr><tr><td>Pike</td><td>1802</td></tr></table>
<p>Tail.<span style="display: none">hidden words</span></p></article></main>
<aside>Also read</aside><footer>Imprint</footer></body></html>"""


def test_html_gives_the_text_without_the_furniture(tmp_path):
    """Menus, banners, scripts, footers and hidden text are cut and counted; paragraphs, lists, tables and code keep their lines."""
    document = only(read(tmp_path, "a.html", PAGE))

    assert document.text == (
        "The Weir\n\nAnn Lind opened the weir\nin May.\n\nA note inside.\n\nfirst\nsecond\n\na\n  b\n\nName\tYear\nPike\t1802\n\nTail."
    )
    assert document.title == "The Weir & the Mill"
    assert {cut.reason for cut in document.cuts} == {
        "page furniture: header", "page furniture: nav", "page furniture: by name", "page furniture: aside", "page furniture: footer", "hidden text",
    }  # fmt: skip
    assert "Menu one" in only(read(tmp_path, "a.html", PAGE, boilerplate=False)).text


def test_html_is_read_in_the_encoding_it_declares(tmp_path):
    """A page says what it is written in, though UTF-8 is believed first."""
    page = '<html><head><meta charset="{}"></head><body><p>Żuraw i gęś</p></body></html>'

    assert only(read(tmp_path, "a.html", page.format("iso-8859-2").encode("iso-8859-2"))).text == "Żuraw i gęś"
    assert only(read(tmp_path, "a.html", page.format("iso-8859-1").encode())).text == "Żuraw i gęś"


def test_html_with_entities_and_old_tags_loses_nothing(tmp_path):
    """Character references are characters, control characters among them are dropped, a page with 300 nested tags is whole."""
    document = only(read(tmp_path, "a.htm", "<p>Caf&eacute; &#1;&#x4E2D;&nbsp;x" + "<font>" * 300 + " deep" + "</font>" * 300 + "<p>end"))

    assert document.text.split() == ["Café", "中", "x", "deep", "end"]


def test_a_pdf_gives_its_pages(tmp_path):
    """Every page is a place; a page without text is told."""
    document = only(read(tmp_path, "a.pdf", pdf(["Ann met Bo.", "", "They left."], title="The Meeting")))

    assert places(document) == [("page 1", "Ann met Bo."), ("page 3", "They left.")]
    assert (document.title, document.format, document.encoding) == ("The Meeting", "pdf", "")
    assert document.notices == ("1 of 3 pages have no text: 2",)


def test_a_scanned_pdf_is_refused_with_its_pages_and_the_way_out(tmp_path):
    """A PDF without a text layer says how many pages it has and which setting would read it."""
    said = reason(read(tmp_path, "scan.pdf", pdf(["", "", ""])))

    assert "3 pages" in said
    assert "documents.ocr_command" in said


def ocr(tmp_path, code):
    """A command line that runs this Python code on the file."""
    script = tmp_path.parent / f"{tmp_path.name}-ocr.py"
    script.write_text(code, encoding="utf-8")
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} {{path}}"


def test_a_scanned_pdf_is_read_by_the_ocr_command(tmp_path):
    """The command gets the path as one argument, without a shell; its output is the text, a form feed ends a page."""
    command = ocr(tmp_path, "import sys; assert open(sys.argv[1], 'rb').read(4) == b'%PDF'; print('Page one $HOME; x\\fPage two')")
    document = only(read(tmp_path, "scan of a; b.pdf", pdf(["", ""]), ocr_command=command))

    assert places(document) == [("page 1", "Page one $HOME; x"), ("page 2", "Page two")]
    assert document.notices == ("its text is the output of documents.ocr_command",)


@pytest.mark.parametrize(
    ("code", "said", "timeout_s"),
    [("raise SystemExit('no such language')", "no such language", 300), ("pass", "printed none", 300), ("import time; time.sleep(600)", "more than 2 s", 2)],
)
def test_an_ocr_command_that_fails_is_reported(tmp_path, code, said, timeout_s):
    """A command that fails, prints nothing or hangs makes one failed file, not a failed run."""
    assert said in reason(read(tmp_path, "scan.pdf", pdf([""]), ocr_command=ocr(tmp_path, code), parse_timeout_s=timeout_s))


def test_a_run_that_is_stopped_does_not_wait_for_the_ocr_command(tmp_path):
    """The command at work is killed at once, however long its pages may take; the run ends with what stopped it."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "scan.pdf").write_bytes(pdf([""] * 9))
    begun = tmp_path / "begun"

    def go_on():
        if begun.exists():
            raise KeyboardInterrupt

    command = ocr(tmp_path / "in", f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(600)")
    with pytest.raises(KeyboardInterrupt):
        read_collection(tmp_path / "in", DocumentsSettings(ocr_command=command), go_on=go_on)
    assert time.time() - begun.stat().st_mtime < 120


@pytest.mark.parametrize("command", ["no-such-program {path}", "ocr 'unclosed {path}"])
def test_an_ocr_command_that_cannot_run_is_reported(tmp_path, command):
    """A missing program or a wrong command line is told in the file's reason."""
    assert "documents.ocr_command" in reason(read(tmp_path, "scan.pdf", pdf([""]), ocr_command=command))


def test_a_word_document_gives_paragraphs_and_tables(tmp_path):
    """Paragraphs are set apart by blank lines, table rows are lines of tab-separated cells, the title is the stored one."""
    table = [["Name", "Year"], ["Pike", "1802"]]
    document = only(read(tmp_path, "a.docx", word(["Ann met Bo.", "They left."], title="Minutes", table=table)))

    assert document.text == "Ann met Bo.\n\nThey left.\n\nName\tYear\nPike\t1802"
    assert (document.title, document.format) == ("Minutes", "docx")


def test_tracked_deletions_are_no_text(tmp_path):
    """What was deleted or moved away in a Word document is not read; what was inserted is."""
    run = "<w:r><w:t>{}</w:t></w:r>"
    body = f"<w:p>{run.format('kept ')}<w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:ins>{run.format('new')}</w:ins></w:p>"

    assert only(read(tmp_path, "a.docx", word_with_body(body))).text == "kept new"


def test_slides_are_places_and_notes_are_text(tmp_path):
    """Every slide with text is a place; its notes follow."""
    document = only(read(tmp_path, "a.pptx", slides([("Weirs", "Two of them", "Say it slowly"), ("End", "", "")], title="Talk")))

    assert places(document) == [("slide 1", "Weirs"), ("slide 2", "End")]
    assert document.text == "Weirs\n\nTwo of them\n\nSay it slowly\n\nEnd"
    assert document.title == "Talk"


def test_sheets_are_places_and_rows_are_lines(tmp_path):
    """Sheets are places; numbers read as people write them; empty rows are left out."""
    rows = [["Name", "Count", "Open"], ["Pike", 3.0, True], [None, None, None], ["Lind", 2.5, None]]
    document = only(read(tmp_path, "a.xlsx", sheets({"Weirs": rows, "More": [["x"]]})))

    assert document.text == "Name\tCount\tOpen\nPike\t3\tTRUE\nLind\t2.5\n\nx"
    assert places(document) == [("sheet Weirs", "Name\tCount\tOpen"), ("sheet More", "x")]


def test_a_book_gives_its_sections_in_reading_order(tmp_path):
    """The pages of an EPUB come in the order of its spine, the table of contents is cut."""
    document = only(read(tmp_path, "a.epub", book(["<h1>One</h1><p>It began.</p>", "<p>It ended.</p>"], title="The Weir")))

    assert document.text == "One\n\nIt began.\n\nIt ended."
    assert places(document) == [("section 2", "One"), ("section 3", "It ended.")]
    assert document.title == "The Weir"
    assert [cut.reason for cut in document.cuts] == ["table of contents"]


def test_a_notebook_gives_its_cells(tmp_path):
    """Text and code cells are text, outputs are cut and counted, the title is the first heading."""
    cells = [
        {"cell_type": "markdown", "source": ["# Gauge data\n", "Taken in May."]},
        {"cell_type": "code", "source": "level = 3", "outputs": [{"text": ["3\n"]}, {"data": {"text/plain": "four", "image/png": "AAAA"}}]},
        {"cell_type": "code", "source": []},
    ]
    document = only(read(tmp_path, "a.ipynb", json.dumps({"cells": cells, "nbformat": 4})))

    assert document.text == "# Gauge data\nTaken in May.\n\nlevel = 3"
    assert document.title == "Gauge data"
    assert places(document) == [("cell 1", "# Gauge data"), ("cell 2", "level = 3")]
    assert [(cut.reason, cut.characters) for cut in document.cuts] == [("cell outputs", 6)]
    (tmp_path / "a.ipynb").unlink()
    assert "not a notebook" in reason(read(tmp_path, "b.ipynb", "[1]"))


def test_subtitles_lose_their_numbers_and_keep_their_times(tmp_path):
    """Cues are lines, their starts are places; tags go, a blank line inside a cue does not lose its rest."""
    srt = "1\n00:00:06,500 --> 00:00:09,000\n<i>The weir</i>\n\nis open.\n\n2\n00:01:11,000 --> 00:01:17,000\n{\\an8}Who said so?\n"
    document = only(read(tmp_path, "a.srt", srt.replace("\n", "\r\n")))

    assert document.text == "The weir\nis open.\nWho said so?"
    assert [place.label for place in document.places] == ["00:00:06", "00:01:11"]
    (tmp_path / "a.srt").unlink()
    vtt = "WEBVTT - weirs\n\nNOTE not said\n\nSTYLE\n::cue {}\n\nintro\n00:06.500 --> 00:09.000 align:start\n<v Ann>Up &amp; down\n"
    document = only(read(tmp_path, "a.vtt", vtt))
    assert (document.text, document.places[0].label) == ("Ann: Up & down", "00:06")
    (tmp_path / "a.vtt").unlink()
    assert "no subtitle" in reason(read(tmp_path, "b.srt", "just words"))


def test_quotes_are_found_in_the_file(tmp_path):
    """Every line of a stored text is in the text that its author wrote, once white space is evened out."""
    source = "Title line\r\n\r\n  Ann\tmet  Bo\u0308 in May.\r\n\r\nShe left.\r\n"
    document = only(read(tmp_path, "a.txt", source))

    assert all(one_line(line) in one_line(source.replace("o\u0308", "ö")) for line in document.text.split("\n"))


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.pptx", "a.xlsx", "a.epub"])
@pytest.mark.parametrize("content", [b"nonsense", b"PK\x03\x04 nonsense", b"%PDF-1.7\n1 0 obj", b"\xd0\xcf\x11\xe0 old"])
def test_a_damaged_file_says_what_it_is_not(tmp_path, name, content):
    """A file whose content does not fit its name is one failure with a reason that names the format."""
    assert name[2:].lower() in reason(read(tmp_path, name, content)).lower()


def test_a_pdf_with_a_circle_in_its_pages_is_refused(tmp_path):
    """A page tree that contains itself ends in a reason, not in a loop."""
    assert "PDF" in reason(read(tmp_path, "a.pdf", pdf(["x"], broken_tree=True)))
