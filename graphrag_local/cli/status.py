"""`status`: what the index holds, what it cost, what failed."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphrag_local.cli.options import HERE, AsJson, Overrides, Project

if TYPE_CHECKING:
    from rich.console import Console

NAME = "status"
LISTED = 20


def run(
    directory: Project = HERE,
    verify: Annotated[bool, typer.Option("--verify", help="Hash every file of the published generations and read all of the ledger.")] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Show what the index holds, what it cost, and what failed.

    \b
        graphrag-local status my-project --json
    """
    from graphrag_local.cli.render import print_json
    from graphrag_local.project import open_project
    from graphrag_local.status import status_of

    status = status_of(open_project(directory, tuple(overrides or ())), check_files=verify)
    print_json(status) if as_json else _show(status)
    if verify and status["generation"] and not status["problems"] and not as_json:
        typer.echo("verified: every file and every reply is as it was written.")
    if status["problems"]:
        raise typer.Exit(1)


def _show(status: dict[str, Any]) -> None:
    from graphrag_local.cli.render import counts_line, out, print_cost, say, shares

    console = out()
    _show_run(status, console)
    if status["generation"]:
        models, without = status["models"], status["without_report"]
        say(console, f"generation {status['generation']} of {status['created']}, digest {status['digest']}")
        say(console, counts_line(status["counts"]))
        if status["names"]:
            say(console, f"names: {shares(status['names'])}; {status['apart']:,} are kept apart and used for nothing")
        lost = [f"{number:,} × {reason}" for reasons in status["dropped"].values() for reason, number in reasons.items()]
        say(console, f"{status['empty_chunks']:,} chunks name no entity; dropped of what the model said: {', '.join(lost) or 'nothing'}")
        reports = f"{without['unwritten']:,} are not written (reports.write), {without['folded']:,} communities are too small for one; " if without else ""
        say(console, f"reports: {reports}{status['left_out']:,} records had no room in a report")
        embedder = f"{models['embedder']} ({models['embedder_revision']}, {models['dimension']})" if models["dimension"] else "none, words only"
        say(console, f"model: {models['name']} ({models['revision']}), window {models['context']:,}, {models['form']} constraints; embedder: {embedder}")
        print_cost("\nwhat this generation cost", status["generation_build"])
        if status["last_build"] != status["generation_build"]:
            last = status["last_build"]
            say(console, f"the last run: {last['calls']:,} calls, {last['prompt_tokens'] + last['completion_tokens']:,} tokens, {last['seconds']:,.1f} s")
        _show_documents(status["documents"], console)
    for failure in status["failures"][:LISTED]:
        say(console, f"failed: {failure['stage']}: {failure['input']}: {failure['reason']}")
    if len(status["failures"]) > LISTED:
        say(console, f"… and {len(status['failures']) - LISTED:,} more: graphrag-local show failures")
    for problem in status["problems"]:
        say(console, f"damaged: {problem}")
    if status["problems"]:
        say(console, "`graphrag-local index` makes a whole generation anew; replies that are sound in the ledger cost nothing.")


def _show_run(status: dict[str, Any], console: "Console") -> None:
    from graphrag_local.cli.render import say

    run = status["running"] or status["interrupted"]
    if run:
        stage = f"in {run['stage']}" if run.get("stage") else "at its beginning"
        place = f"in {run['stage']}, {run['done']:,} of {run['total']:,} done" if run.get("total") else stage
        if status["running"]:
            say(console, f"A run is going on (process {run['pid']}), {place}.")
        else:
            say(console, f"The last run stopped {place}. `graphrag-local index` continues it.")
    if not status["generation"] and not status["problems"]:
        say(console, "There is no finished index yet.")


def _show_documents(documents: list[dict[str, Any]], console: "Console") -> None:
    from graphrag_local.cli.render import say

    special = [d for d in documents if d["notices"] or d["encoding"] not in ("", "utf-8")]
    if special:
        console.print()
    for document in special[:LISTED]:
        encoding = f" ({document['encoding']})" if document["encoding"] else ""
        say(console, f"{document['path']}{encoding}: {'; '.join(document['notices']) or 'read'}")
    if len(special) > LISTED:
        say(console, f"… and {len(special) - LISTED:,} more documents with notices or old encodings: status --json")
