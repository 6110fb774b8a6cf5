"""csv, tsv, json and jsonl: one document per record, each with an identity of its own."""

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from graphrag_local.documents.clean import normalise, title_of
from graphrag_local.documents.parsed import Budget, Options, Parsed, Piece, Problem, ReadProblem, control_cut
from graphrag_local.ids import digest_of
from graphrag_local.records import Place
from graphrag_local.text import one_line

KEY_CHARACTERS = 200


class Records:
    """Collects the records of one file: gives each its key, and keeps the reasons of those left out.

    The key is the record's id, else a hash of the record; equal records without an id are counted (`hash-2`).
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.budget = Budget(options)
        self.pieces: list[Piece] = []
        self.problems: list[Problem] = []
        self.seen: dict[str, str] = {}

    def refuse(self, where: str, reason: str) -> None:
        """Leave a record out."""
        self.problems.append(Problem(where=where, reason=reason))

    def add(self, where: str, *, text: str, title: str, name: str, row: str) -> None:
        """Take a record; `name` is its id or "", `row` all of it, for the hash."""
        key = one_line(normalise(name)[0])
        key = digest_of(key)[:16] if len(key) > KEY_CHARACTERS else key
        clean, dropped = normalise(text)
        if not clean.strip():
            self.refuse(where, "has no text")
            return
        if key in self.seen:
            self.refuse(where, f"has the same {self.options.id_field} {key!r} as {self.seen[key]}")
            return
        key = key or self._hashed(row)
        self.budget.spend(len(clean))
        self.seen[key] = where
        place = Place(label=where, start=0)
        self.pieces.append(Piece(text=clean, title=title_of(title), key=key, places=(place,), cuts=control_cut(dropped)))

    def _hashed(self, row: str) -> str:
        key = base = digest_of(row)[:16]
        number = 1
        while key in self.seen:
            number += 1
            key = f"{base}-{number}"
        return key

    def parsed(self) -> Parsed:
        """What was collected."""
        return Parsed(pieces=tuple(self.pieces), problems=tuple(self.problems))


def parse_jsonl(text: str, options: Options) -> Parsed:
    """JSON lines, split at LF only: U+2028, U+0085 and their like are legal inside strings. Blank lines mean nothing."""
    records = Records(options)
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            _add_object(records, f"line {number}", json.loads(line))
        except json.JSONDecodeError as error:
            records.refuse(f"line {number}", f"is not valid JSON ({error.msg.removesuffix(' at')} at column {error.colno})")
        except (ValueError, RecursionError):
            records.refuse(f"line {number}", "is not usable JSON (nested too deeply, or a number too long)")
    return records.parsed()


def parse_json(text: str, options: Options) -> Parsed:
    """An array of records, or one record, which is then a document under the plain path."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ReadProblem(f"is not valid JSON ({error.msg.removesuffix(' at')} in line {error.lineno}, column {error.colno})") from error
    except (ValueError, RecursionError) as error:
        raise ReadProblem("is not usable JSON (nested too deeply, or a number too long)") from error
    records = Records(options)
    if isinstance(value, list):
        for number, item in enumerate(value, 1):
            _add_object(records, f"record {number}", item)
        return records.parsed()
    _add_object(records, "", value)
    if records.problems:
        raise ReadProblem(records.problems[0].reason)
    (piece,) = records.pieces
    return Parsed(pieces=(replace(piece, key="", places=()),))


def _add_object(records: Records, where: str, value: Any) -> None:
    options = records.options
    if not isinstance(value, dict):
        records.refuse(where, f"is {_kind(value)}, not an object")
    elif options.text_field not in value:
        records.refuse(where, f"has no field {options.text_field!r} (documents.text_field)")
    elif not isinstance(text := value[options.text_field], str):
        records.refuse(where, f"has {_kind(text)} in field {options.text_field!r}, not a text")
    else:
        row = json.dumps(value, sort_keys=True, ensure_ascii=False)
        records.add(where, text=text, title=_scalar(value.get(options.title_field)), name=_scalar(value.get(options.id_field)), row=row)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _scalar(value: Any) -> str:
    """A text or whole number as text, all else as none."""
    return str(value) if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)) else ""


def parse_tsv(text: str, options: Options) -> Parsed:
    """A tab-separated table."""
    return _table(text, options, "\t")


def parse_csv(text: str, options: Options) -> Parsed:
    """A table separated by what its header holds most of: comma, semicolon, tab or bar."""
    first, _, rest = text.lstrip("\ufeff").partition("\n")
    if told := re.fullmatch(r"(?i)\"?sep=(.)\"?\s*", first):  # a line of Excel's own; left blank, so that the others keep their numbers
        return _table(f"\n{rest}", options, told.group(1))
    header = re.sub('"[^"]*"', "", text.lstrip("\ufeff \r\n").split("\n", 1)[0])
    return _table(text, options, max(",;\t|", key=header.count))


def _table(text: str, options: Options, delimiter: str) -> Parsed:
    """One document per row: its text field, or all its fields as `field: value` lines where the header has no such field."""
    csv.field_size_limit(1 << 31)
    rows = _rows(text.lstrip("\ufeff"), delimiter)
    line, header = next(rows, (0, []))
    if not header:
        raise ReadProblem("holds no table")
    names = [one_line(normalise(cell)[0]) for cell in header]
    records = Records(options)
    joins = any("\n" in cell for cell in header)
    for line, cells in rows:
        joins = joins or any("\n" in cell for cell in cells)
        fields = [(name or f"column {number}", cell) for number, (name, cell) in enumerate(zip_longest(names, cells, fillvalue=""), 1)]
        first = dict(reversed(fields))  # of equal names the first counts
        body = first.get(options.text_field)
        if body is None:
            filled = [(name, cell) for name, cell in fields if cell.strip()]
            records.budget.spend(sum(len(name) for name, _ in filled))
            body = "\n".join(f"{name}: {cell}" for name, cell in filled)
        title, name = first.get(options.title_field, ""), first.get(options.id_field, "")
        records.add(f"line {line}", text=body, title=title, name=name, row="\x1f".join(cells))
    if joins and text.count('"') % 2:  # an odd quote inside a cell, such as the sign for inches, joins nothing
        records.refuse(f"line {line}", "or a line before it has a quote that is not closed, so rows may be joined")
    return records.parsed()


def _rows(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(first physical line, cells) of every row that is not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    line = 1
    for cells in reader:
        if any(cell.strip() for cell in cells):
            yield line, cells
        line = reader.line_num + 1
