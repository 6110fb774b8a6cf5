"""`index`: build the index or bring it up to date."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from graphrag_local.cli.options import HERE, AsJson, Overrides, Project, ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from graphrag_local.cli.progress import Shown
    from graphrag_local.indexing import Indexed, Order
    from graphrag_local.project import ProjectFolder

NAME = "index"
LISTED = 10


def run(
    directory: Project = HERE,
    overrides: Overrides = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what changed and what would be asked; change nothing.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on: index after every change of the input folder.")] = False,
    poll: Annotated[bool, typer.Option("--poll", help="With --watch: look at the files, for network folders that tell of no change.")] = False,
    idle: Annotated[float, typer.Option("--idle", metavar="SECONDS", min=0, help="With --watch: quiet time before reports left out are written; 0: never.")] = 60,
    budget: Annotated[int | None, typer.Option("--budget-tokens", metavar="N", min=1, help="Stop before more tokens than this are paid for.")] = None,
    method: Annotated[str, typer.Option("--method", metavar="METHOD", help="standard: a model reads; fast: no model.", show_default="extraction.method")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Redo what changed settings, prompts or models ask for, without a question.")] = False,
    settle: Annotated[bool, typer.Option("--settle", help="Write every report that can be, on all levels, and what is stale anew.")] = False,
    repartition: Annotated[bool, typer.Option("--repartition", help="Find the communities anew instead of keeping them as stable as possible.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Ask again what failed for good (cut-off or unreadable replies).")] = False,
    allow_empty: Annotated[bool, typer.Option("--allow-empty", help="Go on although most indexed documents are gone from the input.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build the index, or bring it up to date. Only what changed is asked again. Safe to interrupt.

    \b
        graphrag-local index my-project --set engine.url=http://127.0.0.1:8000/v1
        graphrag-local index my-project --method fast
        graphrag-local index my-project --dry-run
        graphrag-local index my-project --watch
    """
    import asyncio

    from graphrag_local.cli.estimate import show_forecast
    from graphrag_local.cli.progress import Shown
    from graphrag_local.cli.render import print_json
    from graphrag_local.errors import BudgetSpent, Interrupted, UsageError
    from graphrag_local.forecast.forecast import forecast
    from graphrag_local.indexing import Order, run_index
    from graphrag_local.project import open_project

    if poll and not watch:
        raise UsageError("--poll goes with --watch.", hint="Leave it out, or add --watch.")
    if watch and dry_run:
        raise UsageError("--watch and --dry-run exclude each other.", hint="Leave one of them out.")
    project = open_project(directory, (*(overrides or ()), *([f"extraction.method={method}"] if method else ())))
    order = Order(
        retry_failed=retry_failed, allow_empty=allow_empty, yes=yes, repartition=repartition, settle=settle, budget=budget,
    )  # fmt: skip

    if dry_run:
        show_forecast(asyncio.run(forecast(project, Shown, order)), as_json=as_json)
        return

    def go(order: "Order") -> "Indexed":
        return asyncio.run(_watched(project, Shown, order, poll, idle, as_json) if watch else run_index(project, Shown, order))

    try:
        summary = _confirmed(go, order).summary()
    except KeyboardInterrupt:
        raise Interrupted("Interrupted. Every reply that came is kept.", hint=f"The same command continues: graphrag-local index {directory}") from None
    except BudgetSpent as spent:
        raise BudgetSpent(str(spent), hint=f"The same command continues: graphrag-local index {directory}") from None
    print_json(summary) if as_json else _show(summary)
    if summary["failures"]:
        raise typer.Exit(3)


async def _watched(project: "ProjectFolder", shown: "type[Shown]", order: "Order", poll: bool, idle: float, as_json: bool) -> NoReturn:
    from graphrag_local.cli.render import print_json
    from graphrag_local.watching import Pace, watch

    def done(indexed: "Indexed") -> None:
        print_json(indexed.summary(), line=True) if as_json else _show(indexed.summary())

    await watch(project, shown, order, pace=Pace(poll=poll, idle_s=idle), say=lambda text: typer.echo(text, err=True), done=done)


def _confirmed(go: "Callable[[Order], Indexed]", order: "Order") -> "Indexed":
    """A run; where a change needs a yes, whoever sits at the terminal is asked first."""
    from graphrag_local.errors import NotConfirmed

    try:
        return go(order)
    except NotConfirmed as question:
        ask(question)
        return go(replace(order, yes=True))


def _show(summary: dict[str, Any]) -> None:
    from graphrag_local.cli.render import count, counts_line, out, print_cost, say, shares

    console, build = out(), summary["last_build"]
    print_cost("", build)
    console.print()
    say(console, counts_line(summary["counts"]))
    changes = summary["changes"]
    numbers = ", ".join(f"{len(changes[name]):,} {name}" for name in ("new", "edited", "renamed", "gone", "kept"))
    say(console, f"documents: {numbers}, {changes['same']:,} the same")
    _show_gone(summary, console)
    say(console, f"{count(build['replayed'], 'reply')} from the ledger, {count(build['wasted_tokens'], 'token')} in replies that could not be used")
    if summary["names"]:
        say(console, f"names: {shares(summary['names'])}; {summary['apart']:,} are kept apart and used for nothing")
    for failure in summary["failures"][:LISTED]:
        say(console, f"failed: {failure['stage']}: {failure['input']}: {failure['reason']}")
    if len(summary["failures"]) > LISTED:
        say(console, f"… and {len(summary['failures']) - LISTED:,} more: graphrag-local show failures")
    if any(failure["stage"] == "documents" for failure in summary["failures"]):
        say(console, "What was not read: mend it and run again, or leave it out with documents.exclude.")
    reports = summary["reports"]
    if reports["unwritten"] or reports["stale"]:
        left = f"{count(reports['unwritten'], 'report')} not written yet, {count(reports['stale'], 'report')} from before a change"
        say(console, f"{left}: written at the first question about their level, or by --settle")
    if summary["anchor_renewed"] not in ("", "first"):
        say(console, f"communities were found anew ({summary['anchor_renewed']})")
    state = "published" if summary["published"] else "nothing changed: still"
    say(console, f"{state} generation {summary['generation']}, digest {summary['digest']}")


def _show_gone(summary: dict[str, Any], console: "Console") -> None:
    from graphrag_local.cli.render import count, say

    changes = summary["changes"]
    if changes["forgotten"]:
        names = ", ".join(changes["forgotten"][:LISTED]) + (", …" if len(changes["forgotten"]) > LISTED else "")
        say(console, f"left out because forgotten: {names} (graphrag-local forget --undo brings a document back)")
    if done := summary["finished_forget"]:
        state = "nothing of them is left" if done["clean"] else "something of them is left: the same forget says where"
        say(console, f"finished a forget that was cut short: {count(len(done['documents']), 'document')}, {state}; a receipt is in the index")
    if summary["gone_but_kept_in"]:
        kept = ", ".join(summary["gone_but_kept_in"])
        say(console, f"documents that are gone are still in generation {kept} (keep_generations) until newer ones take its place; `forget` removes at once")
    if summary["swept_replies"]:
        say(console, f"{count(summary['swept_replies'], 'reply')} that only gone documents had caused left the ledger")
