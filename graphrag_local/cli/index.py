"""`index`: build the index or bring it up to date."""

from typing import Annotated, Any

import typer

from graphrag_local.cli.options import HERE, AsJson, Overrides, Project

NAME = "index"
LISTED = 10


def run(
    directory: Project = HERE,
    overrides: Overrides = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Ask again what failed for good (cut-off or unreadable replies).")] = False,
    accept_missing: Annotated[bool, typer.Option("--accept-missing", help="Go on although most indexed documents are gone from the input.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build the index, or bring it up to date. Only what changed is asked again. Safe to interrupt.

    \b
        graphrag-local index my-project --set engine.url=http://127.0.0.1:8000/v1
    """
    import asyncio

    from graphrag_local.cli.progress import Shown
    from graphrag_local.cli.render import print_json
    from graphrag_local.errors import Interrupted
    from graphrag_local.indexing import run_index
    from graphrag_local.project import open_project

    project = open_project(directory, tuple(overrides or ()))
    try:
        summary = asyncio.run(run_index(project, Shown, retry_failed=retry_failed, accept_missing=accept_missing)).summary()
    except KeyboardInterrupt:
        raise Interrupted("Interrupted. Every reply that came is kept.", hint=f"The same command continues: graphrag-local index {directory}") from None
    if as_json:
        print_json(summary)
    else:
        _show(summary)
    if summary["failures"]:
        raise typer.Exit(3)


def _show(summary: dict[str, Any]) -> None:
    from graphrag_local.cli.render import count, counts_line, out, print_cost, say, shares

    console, build = out(), summary["last_build"]
    print_cost("", build)
    console.print()
    say(console, counts_line(summary["counts"]))
    changes = summary["changes"]
    say(console, "documents: " + ", ".join(f"{len(changes[name]):,} {name}" for name in ("new", "edited", "gone", "kept")) + f", {changes['same']:,} the same")
    say(console, f"{count(build['replayed'], 'reply')} from the ledger, {count(build['wasted_tokens'], 'token')} in replies that could not be used")
    if summary["names"]:
        say(console, f"names: {shares(summary['names'])}; {summary['apart']:,} are kept apart and used for nothing")
    for failure in summary["failures"][:LISTED]:
        say(console, f"failed: {failure['stage']}: {failure['input']}: {failure['reason']}")
    if len(summary["failures"]) > LISTED:
        say(console, f"… and {len(summary['failures']) - LISTED:,} more: graphrag-local show failures")
    if any(failure["stage"] == "documents" for failure in summary["failures"]):
        say(console, "What was not read: mend it and run again, or leave it out with documents.exclude.")
    state = "published" if summary["published"] else "nothing changed: still"
    say(console, f"{state} generation {summary['generation']}, digest {summary['digest']}")
