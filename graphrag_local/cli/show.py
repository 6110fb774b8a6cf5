"""`show`: one entity, community, report or document, or all failures."""

from typing import Annotated

import typer

from graphrag_local.cli.options import HERE, AsJson, Overrides, Project

NAME = "show"


def run(
    what: Annotated[str, typer.Argument(help="entity, community, report, document or failures.")],
    name: Annotated[str, typer.Argument(help="Name, id (or its beginning) or path; leave out for failures.")] = "",
    directory: Project = HERE,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Show one record with everything that belongs to it.

    \b
        graphrag-local show entity "Harbour Board" my-project
    """
    from graphrag_local.cli.render import out, print_json
    from graphrag_local.project import open_project
    from graphrag_local.status import show_record

    if what == "failures" and name and directory == HERE:
        from pathlib import Path

        directory, name = Path(name), ""
    shown = show_record(open_project(directory, tuple(overrides or ())), what, name)
    if as_json:
        print_json(shown)
    else:
        _print(out(), shown, 0)


def _print(console, value, depth: int) -> None:  # type: ignore[no-untyped-def]
    pad = "  " * depth
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict | list) and item:
                console.print(f"{pad}{key}:", markup=False)
                _print(console, item, depth + 1)
            else:
                console.print(f"{pad}{key}: {'' if item in ([], {}) else item}", markup=False)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                head, *rest = item.items()
                console.print(f"{pad}- {head[0]}: {head[1]}", markup=False)
                _print(console, dict(rest), depth + 1)
            else:
                console.print(f"{pad}- {item}", markup=False)
    else:
        console.print(f"{pad}{value}", markup=False)
