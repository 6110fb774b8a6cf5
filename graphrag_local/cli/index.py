"""`index`: build the index or bring it up to date."""

from typing import Annotated

import typer

from graphrag_local.cli.options import HERE, AsJson, Overrides, Project

NAME = "index"


def run(
    directory: Project = HERE,
    overrides: Overrides = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Ask again what failed for good (cut-off or unreadable replies).")] = False,
    accept_missing: Annotated[bool, typer.Option("--accept-missing", help="Go on although most indexed documents are gone from the input.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build the index, or bring it up to date: only what changed is asked again. Safe to interrupt.

    \b
        graphrag-local index my-project --set engine.url=http://127.0.0.1:8000/v1
    """
    import asyncio

    from graphrag_local.cli.progress import Shown
    from graphrag_local.cli.render import print_json
    from graphrag_local.indexing import run_index
    from graphrag_local.project import open_project

    project = open_project(directory, tuple(overrides or ()))
    summary = asyncio.run(run_index(project, Shown, retry_failed=retry_failed, accept_missing=accept_missing)).summary()
    if as_json:
        print_json(summary)
    else:
        _show(summary)
    if summary["failures"]:
        raise typer.Exit(3)


def _show(summary: dict) -> None:  # type: ignore[type-arg]
    from graphrag_local.cli.render import out, print_table

    counts = dict(summary["counts"])
    counts["communities"] = " / ".join(map(str, counts["communities"])) or "0"
    rows = [{"stage": stage, **numbers} for stage, numbers in summary["last_build"]["by_stage"].items()]
    total = {"stage": "all", **{k: v for k, v in summary["last_build"].items() if k != "by_stage"}}
    print_table("", ("stage", "calls", "prompt_tokens", "cached_tokens", "completion_tokens", "seconds"), [*rows, total])
    console = out()
    console.print("\n" + ", ".join(f"{value:,} {name}" if isinstance(value, int) else f"{value} {name}" for name, value in counts.items()))
    replayed, wasted = summary["last_build"]["replayed"], summary["last_build"]["wasted_tokens"]
    console.print(f"{replayed:,} replies came from the ledger; {wasted:,} tokens went into replies that could not be used")
    for failure in summary["failures"][:10]:
        console.print(f"failed: {failure['stage']}: {failure['input']}: {failure['reason']}", markup=False)
    if len(summary["failures"]) > 10:
        console.print(f"… and {len(summary['failures']) - 10} more: graphrag-local show failures")
    if summary["apart"]:
        console.print(f"{summary['apart']:,} entity names were not found in their passage; they are kept apart and used for nothing")
    state = "published" if summary["published"] else "nothing changed: still"
    console.print(f"{state} generation {summary['generation']}, digest {summary['digest']}", markup=False)
