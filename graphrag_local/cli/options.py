"""Arguments and options that several commands share, with their help."""

from pathlib import Path
from typing import Annotated

import typer

Project = Annotated[Path, typer.Argument(metavar="[DIR]", help="Project folder.", show_default="the current folder")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="A setting for this run; may be given several times.", show_default=False)
]
HERE = Path()


def typed(text: str) -> str:
    """A question or a name as it was typed: under a locale without UTF-8 its bytes come escaped."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
