"""`show`: one entity, community, report or document, or all failures."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphrag_local.cli.options import HERE, AsJson, Overrides, Project, typed

if TYPE_CHECKING:
    from rich.console import Console

NAME = "show"


def run(
    what: Annotated[str, typer.Argument(help="entity, community, report, document or failures.")],
    name: Annotated[str, typer.Argument(help="Name, title, path, or id (its first six digits or more); leave out for failures.")] = "",
    directory: Project = HERE,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Show one record and all that belongs to it, or all failures.

    \b
        graphrag-local show entity "Harbour Board" my-project
        graphrag-local show failures my-project
    """
    from graphrag_local.cli.render import out, print_json, say
    from graphrag_local.configuration import FILE_NAME
    from graphrag_local.project import open_project
    from graphrag_local.status import show_record

    if directory == HERE and (what == "failures" or Path(name, FILE_NAME).is_file()):  # a lone argument that names a project
        directory, name = Path(name), ""
    shown = show_record(open_project(directory, tuple(overrides or ())), what, typed(name))
    if as_json:
        print_json(shown)
    elif isinstance(shown, list):
        for row in shown:
            again = "the next index tries again" if row["retryable"] else "index --retry-failed tries again"
            say(out(), f"{row['stage']}: {row['input']}: {row['reason']} ({again})")
        if not shown:
            say(out(), "Nothing failed.")
    else:
        _print(out(), shown, 0)


def _print(console: "Console", record: Mapping[str, Any], depth: int) -> None:
    """A line per value, lists below; what is empty is left out."""
    from graphrag_local.cli.render import say

    for key, value in record.items():
        label = key.replace("_", " ")
        if value in ("", (), [], {}, None):
            continue
        if not isinstance(value, list | tuple):
            say(console, f"{label}: {value}", indent=depth)
        elif not isinstance(value[0], Mapping):
            say(console, f"{label}: {', '.join(map(str, value))}", indent=depth)
        else:
            say(console, f"{label}:", indent=depth)
            for item in value:
                _print_item(console, item, depth + 4)


def _print_item(console: "Console", item: Mapping[str, Any], depth: int) -> None:
    from graphrag_local.cli.render import say, source_line

    if "quote" in item:
        say(console, source_line(item["document"], item["place"], item["start"], item["end"], item["quote"]), indent=depth)
    elif "with" in item:
        say(console, f"{item['with']} (weight {item['weight']:g}): {item['description']}", indent=depth)
    elif "start" in item:
        say(console, f"{item['id']} ({item['start']}-{item['end']})", indent=depth)
    else:
        _print(console, item, depth)
