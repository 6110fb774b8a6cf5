"""Builds the files that the tests read, so that no binary is kept in the repository."""

import contextlib
import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import docx
import openpyxl
import pptx

from graphrag_local.documents.read import ReadResult
from graphrag_local.documents.stage import read_collection
from graphrag_local.records import Document
from graphrag_local.settings import DocumentsSettings

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def read(folder: Path, name: str, content: str | bytes, **settings: object) -> ReadResult:
    """What reading a folder with this one file gives."""
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.encode() if isinstance(content, str) else content)
    documents, failures, _ = read_collection(folder, DocumentsSettings(**settings))
    return ReadResult(documents=tuple(documents), failures=tuple(failures))


def only(result: ReadResult) -> Document:
    """The one document of a result without failures."""
    assert result.failures == ()
    (document,) = result.documents
    return document


def reason(result: ReadResult) -> str:
    """The reason of the one failure of a result without documents."""
    assert result.documents == ()
    (failure,) = result.failures
    return failure.reason


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Give up the rights of root, for whom no file is unreadable."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def pdf(pages: list[str], *, title: str = "", broken_tree: bool = False) -> bytes:
    """A PDF with one line of text per page; an empty string gives a page with a picture only."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    kids = []
    for text in pages:
        drawn = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else "q 100 0 0 100 72 600 cm BI /W 1 /H 1 /CS /G /BPC 8 ID \x80 EI Q"
        objects.append(f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream")
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {len(objects)} 0 R /Resources << /Font << /F1 "
                       "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>")  # fmt: skip
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Count {len(pages)} /Kids [{'2 0 R' if broken_tree else ' '.join(kids)}] >>"
    objects.append(f"<< /Title ({title}) >>")
    out, offsets = io.BytesIO(), []
    out.write(b"%PDF-1.4\n")
    for number, body in enumerate(objects, 1):
        offsets.append(out.tell())
        out.write(f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1"))
    start = out.tell()
    out.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode())
    out.writelines(f"{offset:010} 00000 n \n".encode() for offset in offsets)
    out.write(f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>\nstartxref\n{start}\n%%EOF\n".encode())
    return out.getvalue()


def word(paragraphs: list[str], *, title: str = "", table: list[list[str]] | None = None) -> bytes:
    """A docx made by python-docx."""
    document = docx.Document()
    document.core_properties.title = title
    for text in paragraphs:
        document.add_paragraph(text)
    if table:
        made = document.add_table(rows=len(table), cols=len(table[0]))
        for row, cells in zip(made.rows, table, strict=True):
            for cell, text in zip(row.cells, cells, strict=True):
                cell.text = text
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def word_with_body(body: str, *, prolog: str = "") -> bytes:
    """A docx whose main part has this XML inside its body."""
    source, out = io.BytesIO(word(["x"])), io.BytesIO()
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            if name != "word/document.xml":
                new.writestr(name, old.read(name))
        new.writestr("word/document.xml", f'<?xml version="1.0"?>{prolog}<w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>')
    return out.getvalue()


def slides(pages: list[tuple[str, str, str]], *, title: str = "") -> bytes:
    """A pptx with a title, a text and speaker notes per slide."""
    deck = pptx.Presentation()
    deck.core_properties.title = title
    for head, text, notes in pages:
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = head
        slide.placeholders[1].text = text
        if notes:
            slide.notes_slide.notes_text_frame.text = notes
    out = io.BytesIO()
    deck.save(out)
    return out.getvalue()


def sheets(content: dict[str, list[list[object]]]) -> bytes:
    """An xlsx with these rows per sheet."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in content.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def sheet_with_far_cell() -> bytes:
    """An xlsx whose one other cell is the last that a sheet can have."""
    book = openpyxl.Workbook()
    book.active["A1"] = "Near"
    book.active["XFD1048576"] = "Far"
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def book(chapters: list[str], *, title: str) -> bytes:
    """An epub with these bodies as the pages of its spine, after a table of contents."""
    pages = ['<nav epub:type="toc"><ol><li>Contents of the book</li></ol></nav>', *chapters]
    manifest = '<item id="p0" href="p%200.xhtml" media-type="application/xhtml+xml" properties="nav"/>'
    manifest += "".join(f'<item id="p{n}" href="p%20{n}.xhtml" media-type="application/xhtml+xml"/>' for n in range(1, len(pages)))
    spine = "".join(f'<itemref idref="p{n}"/>' for n in range(len(pages)))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as package:
        package.writestr("mimetype", "application/epub+zip")
        package.writestr("META-INF/container.xml", '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
                         '<rootfile full-path="OPS/book.opf"/></rootfiles></container>')  # fmt: skip
        package.writestr("OPS/book.opf", f'<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
                         f"<dc:title>{title}</dc:title></metadata><manifest>{manifest}</manifest><spine>{spine}</spine></package>")  # fmt: skip
        for number, page in enumerate(pages):
            package.writestr(f"OPS/p {number}.xhtml", '<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml" '
                             f'xmlns:epub="http://www.idpf.org/2007/ops"><head><title/></head><body>{page}</body></html>')  # fmt: skip
    return out.getvalue()
