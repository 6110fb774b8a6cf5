"""PDF: the text layer, page by page."""

import io
import logging
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pypdf import PdfReader
from pypdf.errors import PyPdfError

from graphrag_local.documents.clean import title_of
from graphrag_local.documents.parsed import Budget, Options, Parsed, ReadProblem, assemble

# What pypdf lets through on damaged files besides its own errors.
DAMAGE = (PyPdfError, ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
_MADE_BY = re.compile(r"^Microsoft \w+ - |\.(?:docx?|pptx?|xlsx?|pdf|tex|dvi|indd)$|^untitled$|^\(anonymous\)$", re.IGNORECASE)


def parse_pdf(data: bytes, options: Options) -> Parsed:
    """Every page is a place; pages without text are named in a notice, and a PDF without any gives `scanned_pages`."""
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise ReadProblem("is encrypted; store a copy without a password")
        pages = len(reader.pages)
        title = str(reader.metadata.title or "") if reader.metadata else ""
    except DAMAGE as error:
        raise ReadProblem(f"is not a readable PDF ({error})") from error
    notes: list[str] = []
    silent: list[int] = []
    piece = assemble(_pages(reader, pages, notes, silent), Budget(options))
    if not any(character.isalnum() for character in piece.text):
        return Parsed(scanned_pages=pages)
    if _garbled(piece.text):
        raise ReadProblem("has a text layer without readable characters (its fonts lack a map to Unicode)")
    if silent:
        notes.append(f"{len(silent)} of {pages} pages have no text: {', '.join(map(str, silent[:20]))}{' and more' if len(silent) > 20 else ''}")
    title = "" if _MADE_BY.search(title.strip()) else title_of(title)
    return Parsed(pieces=(replace(piece, title=title, notices=tuple(notes)),))


def _pages(reader: Any, count: int, notes: list[str], silent: list[int]) -> Iterator[tuple[str, str]]:
    for number in range(1, count + 1):
        text = ""
        try:
            text = reader.pages[number - 1].extract_text()
        except DAMAGE as error:
            notes.append(f"page {number} could not be read ({type(error).__name__})")
        if not text.strip():
            silent.append(number)
        yield f"page {number}", text


def _garbled(text: str) -> bool:
    """Whether a third of the visible characters mean nothing: private use, unassigned, replacement characters."""
    sample = [character for character in text[:20_000] if not character.isspace()]
    return sum(character == "\ufffd" or unicodedata.category(character) in ("Co", "Cn", "Cc") for character in sample) * 3 > len(sample)
