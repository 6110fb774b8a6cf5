"""Arguments and options that several commands share, with their help."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from graphrag_local.answers import Turn, turns_of
from graphrag_local.errors import NotConfirmed, UsageError

Project = Annotated[Path, typer.Argument(metavar="[DIR]", help="Project folder.", show_default="the current folder")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="A setting for this run; may be given several times.", show_default=False)
]
HERE = Path()


def typed(text: str) -> str:
    """A question or a name as it was typed: under a locale without UTF-8 its bytes come escaped."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def ask(question: NotConfirmed) -> None:
    """Ask whoever sits at the terminal; where nobody does, or the answer is no, the question is the error."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise question
    typer.echo(str(question), err=True)
    if not typer.confirm("Go on?", err=True):
        raise question


def conversation(file: Path) -> tuple[Turn, ...]:
    """The earlier turns in a file of JSON; UsageError where it cannot be read or holds none."""
    try:
        return turns_of(json.loads(file.read_text(encoding="utf-8-sig")))
    except OSError as error:
        raise UsageError(f"The history {file} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The history {file} is not JSON: {error}.", hint='Write [{"question": "…", "answer": "…"}, …], oldest first.') from error
