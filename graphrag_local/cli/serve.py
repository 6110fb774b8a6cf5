"""`serve`: a vLLM server (or one that runs already) and the HTTP service beside it."""

from typing import Annotated

import typer

from graphrag_local.cli.options import HERE, Overrides, Project

NAME = "serve"


def run(
    directory: Project = HERE,
    engine_url: Annotated[str, typer.Option(help="Attach to this running server instead of starting one.")] = "",
    engine_only: Annotated[bool, typer.Option("--engine-only", help="Start the model server only, without the HTTP service.")] = False,
    overrides: Overrides = None,
) -> None:
    """Start vLLM with the right flags and the HTTP service; Ctrl-C stops both.

    \b
        graphrag-local serve my-project --set engine.model=my-model
    """
    import uvicorn

    from graphrag_local.project import open_project
    from graphrag_local.server.app import create_app
    from graphrag_local.wiring import running_engine

    extra = (f"engine.url={engine_url}",) if engine_url else ()
    project = open_project(directory, (*(overrides or ()), *extra))
    with running_engine(project, lambda text: typer.echo(text, err=True)) as (url, started):
        if engine_only:
            typer.echo(f"The model server answers at {url}. Ctrl-C stops it.", err=True)
            if started is not None:
                started.wait()
            return
        server = project.settings.server
        typer.echo(f"Ask at http://{server.host}:{server.port}/v1/query (model server: {url}). Ctrl-C stops everything.", err=True)
        config = uvicorn.Config(
            create_app(project), host=server.host, port=server.port, log_level="warning", limit_concurrency=64, timeout_keep_alive=10
        )
        uvicorn.Server(config).run()
