"""`estimate`, and how a forecast is shown (also by `index --dry-run`)."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphrag_local.cli.options import HERE, AsJson, Overrides, Project

if TYPE_CHECKING:
    from graphrag_local.forecast.forecast import Forecast

NAME = "estimate"
LISTED = 10
KINDS = ("new", "edited", "renamed", "gone", "kept", "forgotten")


def run(
    directory: Project = HERE,
    sample: Annotated[int, typer.Option("--sample", metavar="N", min=0, help="Chunks to ask the model about; 0 asks nothing.")] = 8,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Say what an index will cost before it is made. A few chunks are really read; index does not pay for them again.

    \b
        graphrag-local estimate my-project
        graphrag-local estimate my-project --sample 0
    """
    import asyncio

    from graphrag_local.cli.progress import Shown
    from graphrag_local.errors import Interrupted
    from graphrag_local.forecast.forecast import estimate
    from graphrag_local.project import open_project

    project = open_project(directory, tuple(overrides or ()))
    try:
        found = asyncio.run(estimate(project, Shown, sample))
    except KeyboardInterrupt:
        raise Interrupted("Interrupted. Every reply that came is kept.") from None
    show_forecast(found, as_json=as_json)


def show_forecast(found: "Forecast", *, as_json: bool) -> None:
    """A forecast for people, or as JSON."""
    from graphrag_local.cli.render import count, out, print_json, say

    summary = found.summary()
    if as_json:
        print_json(summary)
        return
    console = out()
    changes = summary["changes"]
    numbers = [f"{len(changes[kind]):,} {kind}" for kind in KINDS if changes[kind]]
    numbers.append(f"{changes['same']:,} the same")
    say(console, f"documents: {', '.join(numbers)}; {count(summary['chunks'], 'chunk')} in all")
    for kind in KINDS:
        for path in changes[kind][:LISTED]:
            say(console, f"{kind}: {path if isinstance(path, str) else ' -> '.join(path)}", indent=4)
        if len(changes[kind]) > LISTED:
            say(console, f"… and {len(changes[kind]) - LISTED:,} more {kind}: --json", indent=4)
    for line in _costs(summary):
        say(console, line)
    for failure in summary["failures"][:LISTED]:
        say(console, f"failed: {failure['stage']}: {failure['input']}: {failure['reason']}")
    if len(summary["failures"]) > LISTED:
        say(console, f"… and {len(summary['failures']) - LISTED:,} more failures: --json")
    for note in summary["notes"]:
        say(console, f"note: {note}", style="dim")


def _costs(summary: dict[str, Any]) -> list[str]:
    from graphrag_local.cli.render import count

    extraction, rest, sample = summary["extraction"], summary["rest"], summary.get("sample")
    if extraction is None:
        return []
    replies = f"{_between(extraction['completion_tokens'])} reply tokens"
    lines = [f"extraction: {count(extraction['calls'], 'call')}, {extraction['prompt_tokens']:,} prompt tokens, {replies}"]
    kinds = ", ".join(f"{kind} {_between(calls)}" for kind, calls in rest["by_kind"].items() if calls[1])
    lines.append(f"then: {_between(rest['calls'])} calls, {_between(rest['tokens'])} tokens{f' ({kinds})' if kinds else ''}")
    if summary["minutes"]:
        lines.append(f"time: {_between(summary['minutes'])} minutes")
    if sample:
        paid = f"{sample['paid_tokens']:,} tokens paid for in {sample['seconds']:.1f} s" if sample["paid_tokens"] else "which were paid for before"
        lines.append(f"sample: {count(sample['chunks'], 'chunk')} read in {count(sample['calls'], 'call')}, {paid}; index does not pay for them again")
    return lines


def _between(ends: list[float]) -> str:
    """ "3" or "3 to 9"."""
    low, high = (f"{end:,}" for end in ends)
    return low if low == high else f"{low} to {high}"
