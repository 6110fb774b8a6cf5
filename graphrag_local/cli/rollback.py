"""`rollback`: answer from an older generation again."""

from typing import Annotated

import typer

from graphrag_local.cli.options import HERE, AsJson, Project
from graphrag_local.cli.status import KINDS

NAME = "rollback"


def run(
    directory: Project = HERE,
    to: Annotated[str, typer.Option("--to", metavar="ID", help="The generation to go back to, or the beginning of its id (see `status --generations`).")] = "",
    as_json: AsJson = False,
) -> None:
    """Answer from an older generation again.

    That is the newest whole one before the current, or the one named. Nothing is deleted. The next `index` brings the index to the state of the input again.
    Generations with forgotten documents are gone for good.

    \b
        graphrag-local rollback my-project
    """
    from graphrag_local.cli.render import count, out, print_json, say
    from graphrag_local.generations import rollback
    from graphrag_local.project import open_project

    done = rollback(open_project(directory), to)
    if as_json:
        print_json(done)
        return
    console = out()
    for id_ in done["passed_over"]:
        say(console, f"passed over: {id_} is damaged or of another version (graphrag-local status --generations --verify)")
    counts = ", ".join(count(done["counts"][plural], kind) for kind, plural in KINDS.items())
    say(console, f"generation {done['generation']} of {done['created']} answers now, digest {done['digest']}: {counts}")
    say(console, f"before: {done['before'] or 'none that could be read'}. The next `graphrag-local index` brings the index to the state of the input again.")
