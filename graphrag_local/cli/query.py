"""`query`: ask the collection."""

from typing import Annotated

import typer

from graphrag_local.cli.options import HERE, AsJson, Overrides, Project, typed

NAME = "query"


def run(
    question: Annotated[str, typer.Argument(help="The question.")],
    directory: Project = HERE,
    mode: Annotated[str, typer.Option(help="global: reports of the whole collection; source: its text; basic: the nearest passages.")] = "global",
    level: Annotated[int | None, typer.Option(help="Community level of global; 0 is the root (C0).", show_default="query.level")] = None,
    retrieve_only: Annotated[bool, typer.Option("--retrieve-only", help="Print the ranked records and call no model.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-k", min=1, help="Records to print with --retrieve-only.")] = 20,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Answer a question from the index. Every citation opens at the exact words.

    \b
        graphrag-local query "What are the main themes?" my-project --mode global
    """
    import asyncio

    from graphrag_local.cli.render import plain, print_answer, print_json, print_table
    from graphrag_local.errors import UsageError
    from graphrag_local.project import open_project
    from graphrag_local.service import run_query, run_retrieve
    from graphrag_local.settings import FILE_NAME

    if directory == HERE and question and (HERE / question / FILE_NAME).is_file():  # a lone argument that names a project
        raise UsageError(f"What is the question to {question}?", hint=f'The question comes first: graphrag-local query "What are the main themes?" {question}')
    project, question = open_project(directory, tuple(overrides or ())), typed(question)
    if retrieve_only:
        hits = [plain(hit) for hit in asyncio.run(run_retrieve(project, question, mode, level, limit))]
        rows = [{**hit, "score": f"{hit['score']:.4f}"} for hit in hits]  # reciprocal ranks: all under 0.04
        print_json(hits) if as_json else print_table("", ("id", "kind", "document", "start", "end", "score"), rows)
        return
    answer = asyncio.run(run_query(project, question, mode, level, lambda text: typer.echo(text, err=True)))
    print_json(answer) if as_json else print_answer(answer)
