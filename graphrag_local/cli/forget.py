"""`forget`: remove documents and all that came from them, with a receipt."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphrag_local.cli.options import HERE, AsJson, Overrides, ask, typed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from graphrag_local.forgetting import Receipt

NAME = "forget"
LISTED = 12
ONE = {"entities": "entity", "communities": "community"}


def run(
    documents: Annotated[list[str], typer.Argument(metavar="DOC… [DIR]", help="Paths of documents; a folder, table or glob stands for all in it.")],
    directory: Annotated[Path, typer.Option("--project", "-p", metavar="DIR", help="Project folder.", show_default="the current folder")] = HERE,
    keep_generations: Annotated[bool, typer.Option("--keep-generations", help="Leave older generations that hold them; the receipt names these.")] = False,
    without_model: Annotated[bool, typer.Option("--without-model", help="Ask no model, and change nothing else: what needs one waits for the next index.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Bring forgotten documents back: the next index reads them again.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Redo what changed settings, prompts or models ask for, without a question.")] = False,
    allow_empty: Annotated[bool, typer.Option("--allow-empty", help="Go on although most of the other documents are gone from the input.")] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Remove documents and all that came from them, with a receipt.

    Rows, vectors, descriptions, reports, replies, traces of questions and old versions go, and what is left is searched for their words. What other
    documents say too stays; what was written from both is written anew. A document that is still in the input folder is left out from now on.
    What else has changed in the input is brought up to date in the same run, and costs what it costs in `index`. Where the model is away, `--without-model`
    takes the documents out at once: descriptions are joined from what remains, reports that they were in are dropped, and `index` writes both anew.

    \b
        graphrag-local forget letters/confidential.txt
        graphrag-local forget letters/ --project my-project --json
    """
    import asyncio

    from graphrag_local.cli.progress import Shown
    from graphrag_local.cli.render import print_json
    from graphrag_local.configuration import FILE_NAME
    from graphrag_local.errors import Interrupted
    from graphrag_local.forgetting import run_bring_back, run_forget
    from graphrag_local.project import open_project

    names = [typed(name) for name in documents]
    if directory == HERE and len(names) > 1 and (Path(names[-1], "index").is_dir() or Path(names[-1], FILE_NAME).is_file()):
        directory = Path(names.pop())  # as the other commands take their project
    project = open_project(directory, tuple(overrides or ()))
    if undo:
        back = run_bring_back(project, names)
        print_json({"brought_back": len(back)}) if as_json else _show_back(back)
        return

    def go(sure: bool) -> "Receipt":
        return asyncio.run(run_forget(project, names, Shown, keep_generations=keep_generations, yes=sure, allow_empty=allow_empty, without_model=without_model))

    try:
        receipt = go(False) if without_model else _confirmed(go, yes)
    except KeyboardInterrupt:
        hint = "They are left out from now on; the next index or the same command finishes the removal."
        raise Interrupted("Interrupted: the documents are not removed completely yet.", hint=hint) from None
    print_json(receipt.to_json()) if as_json else _show(receipt)
    if not receipt.clean:
        raise typer.Exit(1)
    if receipt.failures and not without_model:
        raise typer.Exit(3)


def _confirmed(go: "Callable[[bool], Receipt]", yes: bool) -> "Receipt":
    """A run; where a change needs a yes, whoever sits at the terminal is asked first."""
    from graphrag_local.errors import NotConfirmed

    try:
        return go(yes)
    except NotConfirmed as question:
        ask(question)
        return go(True)


def _show(receipt: "Receipt") -> None:
    from graphrag_local.cli.render import count, out, say

    console = out()
    say(console, f"forgotten: {_some(receipt.paths)}")
    for what, rows in (("removed", receipt.removed), ("rewritten from what remains", receipt.rewritten)):
        numbers = [count(len(ids), ONE.get(table, table[:-1])) for table, ids in rows.items() if ids]
        say(console, f"{what}: {', '.join(numbers) or 'nothing'}")
    say(console, f"{count(receipt.traces_removed, 'trace')} of questions removed")
    say(console, f"{count(receipt.replies_removed, 'reply')} removed from the ledger; generations removed: {', '.join(receipt.generations_removed) or 'none'}")
    say(console, f"digest before {receipt.digest_before or '-'}, now {receipt.digest_after} (generation {receipt.generation})")
    if any(receipt.waiting.values()):
        numbers = [f"{len(ids):,} {what}" for what, ids in receipt.waiting.items() if ids]
        say(console, f"waiting for a model: {', '.join(numbers)}; the next `graphrag-local index` asks it")
    if receipt.generations_kept:
        why = receipt.to_do or "these were to be kept; the same command without --keep-generations removes them"
        say(console, f"STILL in generation {', '.join(receipt.generations_kept)}: {why}")
    if receipt.rows_left or receipt.links_left:
        say(console, f"LEFT: {count(receipt.rows_left, 'row')} and {count(receipt.links_left, 'link')} of the ledger still name them")
    if receipt.found:
        say(console, f"FOUND in {len(receipt.found):,} places of the index: {'; '.join(receipt.found[:LISTED])}")
    if not (receipt.found or receipt.rows_left or receipt.links_left):
        say(console, _proven(receipt))
    if receipt.elsewhere:
        say(console, f"not ours to remove, but their words are also in: {'; '.join(receipt.elsewhere[:LISTED])}")
    if receipt.not_searched:
        say(console, f"not searched, beside the input folder: {'; '.join(receipt.not_searched[:LISTED])}")
    if receipt.still_in_input:
        say(console, f"still in the input folder, and left out from now on: {_some(receipt.still_in_input)}")


def _show_back(back: dict[str, bool]) -> None:
    from graphrag_local.cli.render import count, out, say

    console = out()
    here, away = [path for path in back if back[path]], [path for path in back if not back[path]]
    if here:
        say(console, f"{count(len(here), 'document')} will be read again by the next index: {_some(here)}")
    if away:
        say(console, f"no longer left out, but not in the input folder now: {_some(away)}")


def _some(names: "Sequence[str]") -> str:
    return ", ".join(names[:LISTED]) + (f", … ({len(names):,} in all)" if len(names) > LISTED else "")


def _proven(receipt: "Receipt") -> str:
    """What the search of an index in which nothing was found has shown."""
    from graphrag_local.cli.render import count

    beside = " beside those generations" if receipt.generations_kept else ""
    if not receipt.strings_sought:
        return f"none of its rows or replies is left{beside}; it has no words of its own to search for"
    sought = count(receipt.strings_sought, "string")
    return f"none of its rows or replies is left{beside}; sought {sought} of its own in every byte of the index and every version of every table{beside}: found none"
