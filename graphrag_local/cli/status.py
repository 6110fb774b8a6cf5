"""`status`: what the index holds, what it cost, what failed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphrag_local.cli.options import HERE, AsJson, Overrides, Project

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from graphrag_local.project import ProjectFolder

NAME = "status"
LISTED = 20
KINDS = {"document": "documents", "chunk": "chunks", "entity": "entities", "report": "reports"}


def run(
    directory: Project = HERE,
    verify: Annotated[bool, typer.Option("--verify", help="Hash every file, compute every digest and id anew, and read all of the ledger.")] = False,
    generations: Annotated[bool, typer.Option("--generations", help="List the generations that are kept, and nothing else.")] = False,
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

    if generations:
        _list_generations(directory, verify, as_json)
        return
    project = open_project(directory, tuple(overrides or ()))
    status = status_of(project, check=_verifier(project) if verify else None)
    print_json(status) if as_json else _show(status)
    if verify and status["generation"] and not status["problems"] and not as_json:
        reports = "" if status["unchecked"] else ", and every report that says so is of today's context"
        typer.echo(f"verified: every file and every reply is as it was written, every record fits the others{reports}.")
        for what in status["unchecked"]:
            typer.echo(what)
    if status["problems"]:
        raise typer.Exit(1)


def _verifier(project: "ProjectFolder") -> "Callable[[Path], dict[str, list[str]]]":
    """What looks at all of an index, loaded only for this: it finds the communities anew, too."""
    from graphrag_local.absent import model_that_made
    from graphrag_local.verify.index import damages, not_checked
    from graphrag_local.verify.reports import outdated

    def check(index: Path) -> dict[str, list[str]]:
        found = damages(index)
        wrong, unchecked = outdated(index, project.prompts["report"], project.settings, model_that_made)
        return {"problems": [*found, *wrong], "unchecked": [line for line in (unchecked, not_checked(index)) if line]}

    return check


def _list_generations(directory: Path, verify: bool, as_json: bool) -> None:
    from graphrag_local.cli.render import count, out, print_json, say
    from graphrag_local.generations import listing
    from graphrag_local.project import open_project

    rows = listing(open_project(directory), check_files=verify)
    if as_json:
        print_json({"generations": rows})
    else:
        console = out()
        for row in rows:
            counts = ", ".join(count(row[plural], kind) for kind, plural in KINDS.items())
            size = f"{row['own_bytes'] / 1e6:,.1f} MB of its own, {row['shared_bytes'] / 1e6:,.1f} MB shared"
            state = ", ".join(word for word, holds in (("current", row["current"]), ("being read", row["read"])) if holds)
            say(console, f"{row['id']} of {row['created'] or '?'}{f', {state}' if state else ''}: {counts}; {size}; digest {row['digest'] or '?'}")
            if row["problem"]:
                say(console, f"damaged: {row['problem']}", indent=4)
        if not rows:
            say(console, "There is no generation yet.")
    if any(row["problem"] and (verify or row["current"]) for row in rows):
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
        later = f"{without['unwritten']:,} are not written (reports.write), {without['stale']:,} are from before a change (stale)" if without else ""
        reports = f"{later}, {without['folded']:,} communities are too small for one; " if without else ""
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
    if any(part in problem for problem in status["problems"] for part in ("/generations/", "/CURRENT", "/ledger.sqlite")):
        say(console, "`graphrag-local index` makes a whole generation anew; replies that are sound in the ledger cost nothing.")
        say(console, "Until then `graphrag-local rollback` answers from the last whole one, where there is one.")


def _show_run(status: dict[str, Any], console: "Console") -> None:
    from graphrag_local.cli.render import count, say

    run = status["running"] or status["interrupted"]
    if run:
        stage = f"in {run['stage']}" if run.get("stage") else "at its beginning"
        place = f"in {run['stage']}, {run['done']:,} of {run['total']:,} done" if run.get("total") else stage
        if status["running"]:
            say(console, f"A run is going on (process {run['pid']}), {place}.")
        else:
            say(console, f"The last run stopped {place}. `graphrag-local index` continues it.")
    if status["forgetting"] and not status["running"]:
        begun = f"A forget of {count(status['forgetting'], 'document')} was begun and is not finished"
        say(console, f"{begun}: they are left out from now on, and `graphrag-local index` or the same forget removes what is left of them.")
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
