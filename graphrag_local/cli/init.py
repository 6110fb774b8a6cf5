"""`init`: a project folder with a commented graphrag.toml."""

from pathlib import Path
from typing import Annotated

import typer

from graphrag_local.cli.options import HERE, AsJson, Project

NAME = "init"


def run(
    directory: Project = HERE,
    preset: Annotated[str, typer.Option(help="paper, graphrag or demo: a set of defaults (see README).")] = "",
    sample: Annotated[bool, typer.Option("--sample", help="Copy the sample collection into input/.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing graphrag.toml.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a project folder. It gets a commented graphrag.toml and an input folder.

    \b
        graphrag-local init my-project
    """
    import shutil

    from graphrag_local.cli.render import print_json
    from graphrag_local.configuration import FILE_NAME, load
    from graphrag_local.errors import UsageError
    from graphrag_local.presets import PRESETS
    from graphrag_local.samples import collection

    if preset and preset not in PRESETS:
        raise UsageError(f"There is no preset {preset!r}.", hint=f"Presets: {', '.join(PRESETS)}.")
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / FILE_NAME
    if file.exists() and not force and not sample:
        raise UsageError(f"{file} exists.", hint="Give --force to replace it.")
    if file.exists() and not force and preset and load(directory).preset != preset:
        raise UsageError(f"{file} exists and has another preset than {preset!r}.", hint=f'Write preset = "{preset}" into it, or give --force to replace it.')
    if not file.exists() or force:
        file.write_text(template(preset), encoding="utf-8")
    source = load(directory).documents.input
    target = Path(directory, source)
    target.mkdir(parents=True, exist_ok=True)
    if sample:
        shutil.copytree(collection(), target, dirs_exist_ok=True)
    if as_json:
        print_json({"project": str(directory.absolute()), "settings": str(file.absolute()), "input": str(target.absolute()), "sample": sample})
    else:
        typer.echo(f"{file} is ready. Put documents into {target}{' (the sample is there)' if sample else ''}, then: graphrag-local index {directory}")


def template(preset: str = "") -> str:
    """A graphrag.toml that names every setting, commented out, with its default and meaning."""
    from graphrag_local.configuration import known_keys
    from graphrag_local.settings import Settings

    lines = ["# Settings of graphrag-local. What is commented out has the value shown. Secrets go into the environment:", "# GRAPHRAG_LOCAL__ENGINE__API_KEY", ""]
    defaults = Settings().model_dump(mode="json")
    section = ""
    for key, text in known_keys().items():
        table, _, name = key.rpartition(".")
        if key == "engine.api_key":
            continue
        if table != section:
            lines += ["", f"[{table}]"]
            section = table
        value = defaults[table][name] if table else defaults[name]
        if key == "preset" and preset:
            lines += [f"# {text}", f'preset = "{preset}"']
            continue
        lines += [f"# {text}", f"# {name} = {_toml(value)}"]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
