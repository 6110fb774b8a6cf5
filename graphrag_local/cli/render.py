"""Records to terminal text or JSON; with `progress`, the only module that prints."""

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from graphrag_local.records import Answer


def plain(value: Any) -> Any:
    """A record as JSON-able data."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def print_json(value: Any) -> None:
    """One object on stdout."""
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=False, indent=2) + "\n")


def out() -> Console:
    """The console for results."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def print_table(title: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """A table on stdout."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(column, "")) for column in columns))
    out().print(table)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return str(value).replace("[", r"\[")


def print_answer(answer: Answer) -> None:
    """An answer for people: the text, its citations with their quotes, the cost."""
    console = out()
    console.print(answer.answer, markup=False)
    if answer.citations:
        console.print()
    for citation in answer.citations:
        console.print(f"[{citation.n}] {citation.kind}: {citation.title}", markup=False, style="bold")
        for source in citation.sources:
            place = f", {source.place}" if source.place else ""
            quote = " ".join(source.quote.split())
            console.print(f"    {source.document}{place} ({source.start}-{source.end}): “{quote}”", markup=False)
    notes = [f"mode {answer.mode}" + (f", level {answer.level}" if answer.level is not None else ""), f"generation {answer.generation}"]
    if answer.stale:
        notes.append("uses a report that is being brought up to date")
    usage = answer.usage
    cost = f"{usage.calls} calls, {usage.prompt_tokens:,} prompt ({usage.cached_tokens:,} cached) + {usage.completion_tokens:,} completion tokens"
    console.print(f"\n{'; '.join(notes)}; {cost}, {usage.seconds:.1f} s", markup=False, style="dim")
    for note in answer.notes:
        console.print(f"note: {note}", markup=False, style="dim")
