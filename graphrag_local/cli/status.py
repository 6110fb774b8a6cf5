"""`status`: what the index holds, what it cost, what failed."""

from typing import Annotated

import typer

from graphrag_local.cli.options import HERE, AsJson, Overrides, Project

NAME = "status"


def run(
    directory: Project = HERE,
    verify: Annotated[bool, typer.Option("--verify", help="Hash every file of the published generation.")] = False,
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
    if status["problems"]:
        raise typer.Exit(1)


def _show(status: dict) -> None:  # type: ignore[type-arg]
    from graphrag_local.cli.render import out, print_table

    console = out()
    if status["interrupted"]:
        run = status["interrupted"]
        place = f"in {run['stage']}, {run['done']:,} of {run['total']:,} done" if run["stage"] else "at its start"
        console.print(f"The last run was interrupted {place}. `graphrag-local index` continues it.", markup=False)
    if not status["generation"]:
        console.print("There is no finished index yet.")
        return
    console.print(f"generation {status['generation']}, digest {status['digest']}", markup=False)
    counts = {**status["counts"], "communities": " / ".join(map(str, status["counts"]["communities"])) or "0"}
    print_table("", ("record", "count"), [{"record": name, "count": value} for name, value in counts.items()])
    shares = status["names"]
    console.print("names: " + ", ".join(f"{share:.0%} {kind}" for kind, share in shares.items()))
    models = status["models"]
    console.print(f"model {models['name']} ({models['revision']}), window {models['context']:,}; embedder {models['embedder']} ({models['dimension']})")
    rows = [{"stage": stage, **numbers} for stage, numbers in status["last_build"]["by_stage"].items()]
    print_table("\nlast build", ("stage", "calls", "prompt_tokens", "cached_tokens", "completion_tokens", "seconds"), rows)
    for document in status["documents"]:
        if document["notices"]:
            console.print(f"{document['path']} ({document['encoding']}): {'; '.join(document['notices'])}", markup=False)
    for failure in status["failures"]:
        console.print(f"failed: {failure['stage']}: {failure['input']}: {failure['reason']}", markup=False)
    for problem in status["problems"]:
        console.print(f"damaged: {problem}", markup=False)
