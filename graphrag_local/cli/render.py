"""Records to terminal text or JSON; with `progress`, the only module that prints."""

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from graphrag_local.answers import Answer, Event

STAGES = ("documents", "chunks", "extraction", "graph", "communities", "reports", "vectors")  # in the order in which they run
WIDE = 100_000  # columns of a file
QUOTED = 300  # characters of a quotation that people are shown


def plain(value: Any) -> Any:
    """A record as JSON-able data."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def print_json(value: Any, *, line: bool = False) -> None:
    """One object on stdout, on one line if more are to come; with escapes where the stream is not UTF-8, so that no character is lost on the way."""
    escaped = (sys.stdout.encoding or "").lower().replace("_", "-") not in ("utf-8", "utf8")
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=escaped, indent=None if line else 2) + "\n")
    sys.stdout.flush()


def out() -> Console:
    """The console for results. Where they go to a file or a program no line is broken and no colour set; $NO_COLOR holds on a terminal too."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)


def say(console: Console, text: str, *, indent: int = 0, style: str = "") -> None:
    """A paragraph without markup; on a terminal its lines are broken between words and stay indented."""
    for piece in text.splitlines() or [""]:
        for line in Text(piece, style=style).wrap(console, max(20, console.width - indent)):
            line.rstrip()
            console.print(" " * indent, line, sep="", soft_wrap=True)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, last: str = "") -> None:
    """A table on stdout: numbers to the right, the first column whole; `last` is a caption below."""
    rows = list(rows)
    table = Table(title=title or None, caption=last or None, title_justify="left", caption_justify="left", box=None, pad_edge=False, title_style="bold")
    for number, column in enumerate(columns):
        numeric = bool(rows) and all(_is_number(row.get(column)) for row in rows)
        table.add_column(column.replace("_", " "), overflow="fold", no_wrap=number == 0, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(_cell(row.get(column, "")) for column in columns))
    console = out()
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as kept:
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in kept.get().splitlines())


def _is_number(value: Any) -> bool:
    return value == "" or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return str(value).replace("[", r"\[")


def count(number: int, what: str) -> str:
    """ "1 reply", "2 replies"."""
    plural = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{number:,} {what if number == 1 else plural}"


def print_cost(title: str, build: Mapping[str, Any]) -> None:
    """What a build cost, by stage and in all."""
    rows = [{"stage": stage, **build["by_stage"][stage]} for stage in STAGES if stage in build["by_stage"]]
    columns = ("stage", "calls", "prompt_tokens", "cached_tokens", "completion_tokens", "seconds")
    print_table(title, columns, [*rows, {**build, "stage": "all"}])


def counts_line(counts: Mapping[str, Any]) -> str:
    """How many records of each kind there are, in the order in which they are made."""
    kinds = {"document": "documents", "chunk": "chunks", "entity": "entities", "relationship": "relationships", "claim": "claims"}
    shown = [count(counts[plural], kind) for kind, plural in kinds.items()]
    levels = counts["communities"]
    shown.append(f"{' / '.join(map(str, levels))} communities (by level)" if len(levels) > 1 else count(sum(levels), "community"))
    return ", ".join([*shown, count(counts["reports"], "report"), count(counts["failures"], "failure")])


def shares(names: Mapping[str, float]) -> str:
    """How the names of the graph are grounded, for people; "" without any."""
    return ", ".join(f"{share:.1%} {kind}" for kind, share in names.items())


def source_line(document: str, place: str, start: int, end: int, quote: str = "") -> str:
    """Where a quotation stands and its words, if any, on one line, cut where it is long: the offsets say all of it."""
    words = " ".join(quote.split())
    shown = words if len(words) <= QUOTED else f"{words[:QUOTED].rsplit(' ', 1)[0]} …"
    return f"{document}{f', {place}' if place else ''} ({start}-{end})" + (f": “{shown}”" if shown else "")


MARKS = {"unsupported": "not supported by its sources", "partly": "only partly supported by its sources"}


def marked(answer: Answer) -> str:
    """An answer's text with a remark after each sentence that was found not to be supported."""
    parts, at = [], 0
    for sentence in answer.sentences:
        begin = answer.answer.find(sentence.text, at)
        if begin >= 0:
            end = begin + len(sentence.text)
            parts += [answer.answer[at:end], f" ({MARKS[sentence.verdict]})" if sentence.verdict in MARKS else ""]
            at = end
    return "".join(parts) + answer.answer[at:]


class Teller:
    """Prints an answer as it comes: its text for people, for programs an event a line."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._mid_line = False

    def hear(self, event: Event) -> None:
        """One event."""
        if self._as_json:
            print_json({"event": event.kind, **event.data()}, line=True)
        elif event.kind == "restart":
            sys.stdout.write("\n\n(What is written so far does not count; this is the answer:)\n\n" if self._mid_line else "")
        elif event.kind in ("text", "citation"):
            sys.stdout.write(event.text)
            self._mid_line = True
        sys.stdout.flush()

    def end(self) -> None:
        """End the line that was begun, also where the answer broke off."""
        if self._mid_line:
            sys.stdout.write("\n")
            sys.stdout.flush()


def print_answer(answer: Answer, *, told: bool = False) -> None:
    """An answer for people: the text with remarks, its citations with their quotes, the cost. Of one that was told already only what follows the text."""
    console = out()
    if not told:
        say(console, marked(answer))
    elif doubted := [sentence for sentence in answer.sentences if sentence.verdict in MARKS]:
        console.print()
        for sentence in doubted:
            say(console, f"({MARKS[sentence.verdict]}:) {sentence.text}")
    if answer.missing:
        console.print()
        say(console, f"Not in the documents: {answer.missing}")
    if answer.nearest:
        console.print()
        say(console, "Nearest in the documents:", style="bold")
    for source in answer.nearest:
        say(console, source_line(source.document, source.place, source.start, source.end, source.quote), indent=4)
    if answer.citations:
        console.print()
    shown = {" ".join(sentence.text.split()) for sentence in answer.sentences}
    for citation in answer.citations:
        if citation.sources and all(" ".join(source.quote.split()) in shown for source in citation.sources):  # the text quotes it already
            for source in citation.sources:
                say(console, f"[{citation.n}] {source_line(source.document, source.place, source.start, source.end)}")
            continue
        say(console, f"[{citation.n}] {citation.kind}: {citation.title}", style="bold")
        for source in citation.sources:
            say(console, source_line(source.document, source.place, source.start, source.end, source.quote), indent=4)
    notes = [f"mode {answer.mode}" + (f", level {answer.level}" if answer.level is not None else ""), f"generation {answer.generation}"]
    if answer.stale:
        notes.append("uses a report that is being brought up to date")
    usage = answer.usage
    cost = f"{count(usage.calls, 'call')}, {usage.prompt_tokens:,} prompt ({usage.cached_tokens:,} cached) + {usage.completion_tokens:,} completion tokens"
    console.print()
    say(console, f"{'; '.join(notes)}; {cost}, {usage.seconds:.1f} s", style="dim")
    for note in answer.notes:
        say(console, f"note: {note}", style="dim")
