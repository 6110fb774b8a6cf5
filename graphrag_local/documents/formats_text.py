"""Plain text, Markdown, subtitles and notebooks."""

import html
import json
import re
from collections.abc import Iterator
from typing import Any

from graphrag_local.documents.clean import Body, first_heading, normalise, title_of, without_front_matter, without_licence
from graphrag_local.documents.parsed import Budget, Options, Parsed, Piece, ReadProblem, assemble, control_cut
from graphrag_local.records import Cut

_TIMES = re.compile(r"((?:\d{1,3}:)?\d{1,2}:\d{2})[.,]\d{1,3}[ \t]*-->")
_BLANK_LINE = re.compile(r"\n[ \t]*\n")
_VOICE = re.compile(r"<v(?:\.[^ >]*)?[ \t]+([^>]+)>")
_TAG = re.compile(r"</?[A-Za-z][^>\n]{0,100}>|<\d[\d:.]*>|\{\\[^}\n]{0,100}\}")


def parse_txt(text: str, options: Options) -> Parsed:
    """A plain text as it is, without the Project Gutenberg licence."""
    return _whole(text, options, without_licence if options.boilerplate else lambda text: Body(text=text), lambda text: "")


def parse_md(text: str, options: Options) -> Parsed:
    """Markdown as it is, without its front matter; titled by that or by the first heading."""
    return _whole(text, options, without_front_matter, first_heading)


def _whole(text: str, options: Options, cut: Any, titled: Any) -> Parsed:
    clean, dropped = normalise(text)
    Budget(options).spend(len(clean))
    body = cut(clean)
    title = body.title or titled(body.text)
    return Parsed(pieces=(Piece(text=body.text, title=title, places=body.places, cuts=body.cuts + control_cut(dropped)),))


def parse_srt(text: str, options: Options) -> Parsed:
    """SubRip subtitles: one line break between cues, the start of each cue is a place."""
    return _subtitles(text, options, web=False)


def parse_vtt(text: str, options: Options) -> Parsed:
    """WebVTT subtitles; a voice tag becomes `Name: `."""
    return _subtitles(text, options, web=True)


def _subtitles(text: str, options: Options, *, web: bool) -> Parsed:
    clean = normalise(text)[0]
    if not _TIMES.search(clean):
        raise ReadProblem("holds no subtitle with a time line (00:00:01,000 --> 00:00:02,000)")
    return Parsed(pieces=(assemble(_cues(clean, web=web), Budget(options), separator="\n"),))


def _cues(text: str, *, web: bool) -> Iterator[tuple[str, str]]:
    """(start time, text) of every cue; a block without a time line goes on the cue before it, as blank lines inside cues happen."""
    for block in _BLANK_LINE.split(text):
        lines = block.strip("\n").split("\n")
        at = next((number for number, line in enumerate(lines[:3]) if _TIMES.match(line.strip())), None)
        if at is None and (web and re.match(r"\s*(WEBVTT|NOTE|STYLE|REGION)", block)):
            continue
        time = _TIMES.match(lines[at].strip()) if at is not None else None
        said = "\n".join(lines[at + 1 :] if at is not None else lines)
        said = _TAG.sub("", _VOICE.sub(r"\1: ", said) if web else said)
        yield time.group(1) if time else "", html.unescape(said) if web else said


def parse_ipynb(text: str, options: Options) -> Parsed:
    """The text and code cells of a Jupyter notebook; outputs are cut, and counted."""
    try:
        notebook = json.loads(text)
        sheets = notebook.get("worksheets") or [notebook]  # format 3 kept its cells one level down
        cells = [cell for sheet in sheets for cell in sheet["cells"] if isinstance(cell, dict)]
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise ReadProblem(f"is not a notebook ({error or type(error).__name__})") from error
    parts = [(f"cell {number}", _joined(cell.get("source", cell.get("input", "")))) for number, cell in enumerate(cells, 1)]
    outputs = sum(len(_joined(output.get("text", ""))) + _plain_size(output) for cell in cells for output in _outputs(cell))
    title = next(filter(None, (first_heading(_joined(cell.get("source", ""))) for cell in cells if cell.get("cell_type") == "markdown")), "")
    cuts = (Cut(reason="cell outputs", characters=outputs),) if outputs else ()
    return Parsed(pieces=(assemble(parts, Budget(options), title=title_of(title), cuts=cuts),))


def _outputs(cell: dict[str, Any]) -> list[dict[str, Any]]:
    outputs = cell.get("outputs")
    return [output for output in outputs if isinstance(output, dict)] if isinstance(outputs, list) else []


def _plain_size(output: dict[str, Any]) -> int:
    bundle = output.get("data")
    return len(_joined(bundle.get("text/plain", ""))) if isinstance(bundle, dict) else 0


def _joined(source: Any) -> str:
    """A cell's text, which is a string or a list of lines."""
    if isinstance(source, list):
        return "".join(line for line in source if isinstance(line, str))
    return source if isinstance(source, str) else ""
