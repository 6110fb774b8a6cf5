"""Excel: sheets in order, one line per row; values as last calculated, never formulas, never linked files."""

import datetime
import io
import re
from collections.abc import Iterator
from typing import Any

import openpyxl
from lxml import etree
from openpyxl.utils.exceptions import InvalidFileException

from graphrag_local.documents.clean import title_of
from graphrag_local.documents.packages import DAMAGE, open_package
from graphrag_local.documents.parsed import Budget, Options, Parsed, ReadProblem, assemble

_GAP = re.compile("\t{3,}")  # a cell far to the right would drag 16,383 tabs along


def parse_xlsx(data: bytes, options: Options) -> Parsed:
    """Every sheet is a place; cells are tab-separated, empty rows and trailing empty cells are left out."""
    open_package(data, options, "xlsx").close()
    budget = Budget(options)
    try:
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)
        parts = ((f"sheet {sheet.title}", "\n".join(_rows(sheet, budget))) for sheet in book.worksheets)
        piece = assemble(parts, Budget(options), title=title_of(book.properties.title or ""))
    except (*DAMAGE, InvalidFileException, etree.LxmlError, SyntaxError) as error:
        raise ReadProblem(f"is not a readable xlsx ({error})") from error
    return Parsed(pieces=(piece,))


def _rows(sheet: Any, budget: Budget) -> Iterator[str]:
    """The lines of a sheet, each counted at once: a sheet can claim 17 thousand million cells."""
    sheet.reset_dimensions()  # what a file says about its size is often wrong
    for cells in sheet.iter_rows(values_only=True):
        line = _GAP.sub("\t\t", "\t".join(map(_shown, cells)).rstrip("\t"))
        if line.strip():
            budget.spend(len(line))
            yield line


def _shown(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, datetime.datetime) and value.time() == datetime.time(0):
        return value.date().isoformat()
    return " ".join(str(value).split())
