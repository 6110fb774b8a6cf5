"""`query`: ask the collection."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphrag_local.cli.options import HERE, AsJson, Overrides, Project, conversation, typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphrag_local.answers import Hit
    from graphrag_local.project import ProjectFolder
    from graphrag_local.service import Trace

NAME = "query"
MODE = (
    "global: the reports of the whole collection; source: all of its text; basic: the nearest passages; local: what is around the names in the question; "
    "drift: reports, then questions asked on; lazy: passages that a short call finds relevant; auto: whichever of these the question is for."
)


def run(
    question: Annotated[str | None, typer.Argument(help="The question; may be left out with --replay.", show_default=False)] = None,
    directory: Project = HERE,
    mode: Annotated[str | None, typer.Option(help=MODE, show_default="global; auto with --retrieve-only")] = None,
    level: Annotated[int | None, typer.Option(help="Community level of global and drift; 0 is the root (C0).", show_default="query.level")] = None,
    retrieve_only: Annotated[bool, typer.Option("--retrieve-only", help="Print the ranked records and call no model.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-k", min=1, help="Records to print with --retrieve-only.")] = 20,
    stream: Annotated[bool, typer.Option("--stream", help="Show the answer while it is written; with --json an event a line.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Keep only sentences that are supported by what they cite.")] = False,
    history: Annotated[
        Path | None, typer.Option("--history", metavar="FILE", help="Earlier turns as JSON, oldest first: a list of question and answer.", show_default=False)
    ] = None,
    dynamic: Annotated[bool, typer.Option("--dynamic", help="global: rate reports from the root down and read only those that matter.")] = False,
    no_model: Annotated[bool, typer.Option("--no-model", help="Answer with quotes from the documents, without any model.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Write what was found, read, cut, asked and replied to index/traces: text of the documents.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="--trace, and show it as a tree; with --json only its path.")] = False,
    replay: Annotated[
        Path | None, typer.Option("--replay", metavar="TRACE", help="Answer from a trace, without any model, over the same generation.", show_default=False)
    ] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Answer a question from the index. Every citation opens at the exact words.

    \b
        graphrag-local query "What are the main themes?" my-project --dynamic
        graphrag-local query "Who signed the lease, and for whom?" my-project --mode local
        graphrag-local query "Why was the bridge closed?" my-project --mode auto
        graphrag-local query "What is said about costs?" my-project --no-model
    """
    import asyncio

    from graphrag_local.cli.render import print_answer, print_json
    from graphrag_local.configuration import FILE_NAME
    from graphrag_local.errors import UsageError
    from graphrag_local.project import open_project
    from graphrag_local.service import run_briefing, run_retrieve

    if replay:
        _refuse({"--retrieve-only": retrieve_only, "--no-model": no_model, "--stream": stream, "--history": history, "--trace": trace}, "--replay")
        _replayed(question, directory, replay, explain=explain, as_json=as_json)
        return
    if question is None:
        raise UsageError("Missing argument: there is no question.", hint='Write one in quotes: graphrag-local query "What are the main themes?"')
    if trace or explain:
        _refuse({"--retrieve-only": retrieve_only, "--no-model": no_model}, "--explain" if explain else "--trace")
    if directory == HERE and question and (HERE / question / FILE_NAME).is_file():  # a lone argument that names a project
        raise UsageError(f"What is the question to {question}?", hint=f'The question comes first: graphrag-local query "What are the main themes?" {question}')
    project, question = open_project(directory, (*(overrides or ()), *(["query.dynamic=true"] if dynamic else []))), typed(question)
    of_models = {"--stream": stream, "--strict": strict, "--dynamic": dynamic, "--history": history}
    if retrieve_only:
        _refuse({"--no-model": no_model, **of_models}, "--retrieve-only")
        _print_hits(asyncio.run(run_retrieve(project, question, mode or "auto", level, limit)), as_json=as_json)
        return
    if no_model:
        _refuse(of_models, "--no-model")
        briefing = asyncio.run(run_briefing(project, question, mode or "global", level, lambda text: typer.echo(text, err=True)))
        print_json(briefing) if as_json else print_answer(briefing)
        return
    _asked(project, question, mode or "global", level, strict=strict, history=history, stream=stream, trace=trace or explain, explain=explain, as_json=as_json)


def _asked(
    project: "ProjectFolder", question: str, mode: str, level: int | None, *, strict: bool, history: Path | None, stream: bool, trace: bool, explain: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Ask the model, and print the answer."""
    import asyncio

    from graphrag_local.cli.render import Teller, plain, print_answer, print_json
    from graphrag_local.service import Trace, run_query

    turns = conversation(history) if history else ()
    teller, noted, path = Teller(as_json=as_json) if stream else None, Trace() if trace else None, ""
    heard = teller.hear if teller else None
    try:
        answer = asyncio.run(
            run_query(project, question, mode, level, lambda text: typer.echo(text, err=True), strict=strict, history=turns, listen=heard, trace=noted)
        )
    finally:
        if teller:
            teller.end()
        path = _kept(project, noted) if noted else ""
    if as_json:
        print_json(plain(answer) | ({"trace": path} if noted else {})) if not stream else None
        return
    print_answer(answer, told=stream)
    if noted and explain:
        _explain(noted.content())


def _print_hits(hits: "Sequence[Hit]", *, as_json: bool) -> None:
    from graphrag_local.cli.render import plain, print_json, print_table

    found = [plain(hit) for hit in hits]
    rows = [{**hit, "score": f"{hit['score']:.4f}"} for hit in found]  # reciprocal ranks: all under 0.04
    print_json(found) if as_json else print_table("", ("id", "kind", "document", "start", "end", "score"), rows)


def _kept(project: "ProjectFolder", trace: "Trace") -> str:
    """Write a trace, also of a question that failed, and say where."""
    from graphrag_local.errors import StorageError
    from graphrag_local.service import keep_trace

    try:
        path = str(keep_trace(project, trace) or "")
    except StorageError as error:  # the answer is there, or another error is on its way
        typer.echo(f"The trace could not be written: {error} {error.hint}", err=True)
        return ""
    if path:
        typer.echo(f"Trace (it holds text of the documents): {path}", err=True)
    return path


def _refuse(others: dict[str, Any], option: str) -> None:
    from graphrag_local.errors import UsageError

    if wrong := [name for name, value in others.items() if value]:
        raise UsageError(f"{option} does not go with {', '.join(wrong)}.", hint="Leave one of them out.")


def _replayed(question: str | None, directory: Path, file: Path, *, explain: bool, as_json: bool) -> None:
    """Print the answer of a trace."""
    import asyncio

    from graphrag_local.cli.render import plain, print_answer, print_json
    from graphrag_local.project import open_project
    from graphrag_local.service import read_trace, run_replay

    if directory == HERE and question and Path(question, "index").is_dir():  # a lone argument that names a project
        question, directory = "", Path(question)
    content = read_trace(file)
    answer = asyncio.run(run_replay(open_project(directory), content, typed(question or "")))
    if as_json:
        print_json(plain(answer) | {"trace": str(file.absolute())})
        return
    print_answer(answer)
    if explain:
        _explain(content)


def _explain(content: dict[str, Any]) -> None:
    from graphrag_local.cli.explain import print_trace
    from graphrag_local.cli.render import out

    out().print()
    print_trace(content)
