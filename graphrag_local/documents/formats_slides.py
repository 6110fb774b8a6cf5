"""PowerPoint: slides in order, their tables and speaker notes."""

import io
from collections.abc import Iterator
from typing import Any

import pptx
from lxml import etree
from pptx.exc import PythonPptxError

from graphrag_local.documents.clean import title_of
from graphrag_local.documents.packages import DAMAGE, open_package
from graphrag_local.documents.parsed import Budget, Options, Parsed, ReadProblem, assemble


def parse_pptx(data: bytes, options: Options) -> Parsed:
    """Every slide is a place; its notes follow its shapes."""
    open_package(data, options, "pptx").close()
    try:
        deck = pptx.Presentation(io.BytesIO(data))
        title = deck.core_properties.title or ""
        parts = ((f"slide {number}", "\n\n".join(filter(None, _slide(slide)))) for number, slide in enumerate(deck.slides, 1))
        piece = assemble(parts, Budget(options), title="" if title == "PowerPoint Presentation" else title_of(title))
    except (*DAMAGE, PythonPptxError, etree.LxmlError, SyntaxError) as error:
        raise ReadProblem(f"is not a readable pptx ({error})") from error
    return Parsed(pieces=(piece,))


def _slide(slide: Any) -> Iterator[str]:
    yield from _shapes(slide.shapes)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        yield _frame(slide.notes_slide.notes_text_frame)


def _shapes(shapes: Any) -> Iterator[str]:
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes)
        elif shape.has_text_frame:
            yield _frame(shape.text_frame)
        elif getattr(shape, "has_table", False):
            yield "\n".join("\t".join(" ".join(cell.text_frame.text.split()) for cell in row.cells) for row in shape.table.rows)


def _frame(frame: Any) -> str:
    return "\n".join(paragraph.text for paragraph in frame.paragraphs if paragraph.text.strip())
