"""`serve`: a vLLM server (or one that runs already) and the HTTP service beside it."""

import contextlib
import errno
import socket
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from graphrag_local.cli.options import HERE, AsJson, Overrides, Project

if TYPE_CHECKING:
    from graphrag_local.settings import ServerSettings

NAME = "serve"
GRACE_S = 5  # for questions in progress when the service is told to stop


def run(
    directory: Project = HERE,
    engine_url: Annotated[str, typer.Option(help="Attach to this running server instead of starting one.")] = "",
    engine_only: Annotated[bool, typer.Option("--engine-only", help="Start the model server only, without the HTTP service.")] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Start vLLM and the HTTP service, or attach to a running server. vLLM gets the right flags; Ctrl-C stops what was started.

    \b
        graphrag-local serve my-project --set engine.model=my-model
        graphrag-local serve my-project --engine-url http://127.0.0.1:8000/v1
    """
    import uvicorn

    from graphrag_local.cli.render import print_json
    from graphrag_local.errors import NoEngine, UsageError
    from graphrag_local.project import open_project
    from graphrag_local.server.app import create_app
    from graphrag_local.wiring import running_engine

    extra = (f"engine.url={engine_url}",) if engine_url else ()
    project = open_project(directory, (*(overrides or ()), *extra))
    if engine_only and project.settings.engine.url:
        raise UsageError(f"--engine-only starts a model server, but {project.settings.engine.url} is given as one that runs.", hint="Leave out one of them.")
    with contextlib.ExitStack() as life:
        life.enter_context(_until_stopped())
        port = None if engine_only else life.enter_context(_port(project.settings.server))  # before the model, which takes minutes to load
        url, started = life.enter_context(running_engine(project, lambda text: typer.echo(text, err=True)))
        address = ""
        if port is not None:
            host, number = port.getsockname()[:2]
            address = f"http://{f'[{host}]' if ':' in host else host}:{number}/v1/query"
        if as_json:  # now, for the program that waits to ask
            print_json({"engine": url, "query": address or None})
            sys.stdout.flush()
        if port is None:
            assert started is not None
            typer.echo(f"The model server answers at {url}. Ctrl-C stops it.", err=True)
            raise NoEngine(f"The model server ended by itself (exit code {started.wait()}).", hint=f"Log: {started.log_path}")
        typer.echo(f"Ask at {address} (model server: {url}). Ctrl-C stops it.", err=True)
        app = create_app(project, lambda: service.should_exit)
        config = uvicorn.Config(app, log_level="warning", limit_concurrency=64, timeout_keep_alive=10, timeout_graceful_shutdown=GRACE_S)
        service = uvicorn.Server(config)
        service.run(sockets=[port])


@contextlib.contextmanager
def _port(settings: "ServerSettings") -> Iterator[socket.socket]:
    """The address of the service, taken; UsageError where it cannot be had."""
    from graphrag_local.errors import UsageError

    port = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    with contextlib.closing(port):
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            port.bind((settings.host, settings.port))
            port.listen()
        except OSError as error:
            hint = "Set server.host to an address of this machine."
            if error.errno == errno.EADDRINUSE:
                hint = "Another program has it, perhaps another `serve`: set server.port to a free one."
            why = error.strerror or str(error)
            raise UsageError(f"{settings.host} port {settings.port} cannot be used for the HTTP service: {why}.", hint=hint) from error
        yield port


@contextlib.contextmanager
def _until_stopped() -> Iterator[None]:
    """Ctrl-C, or the signal by which service managers end a program, is how this command is meant to end."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("Stopped.", err=True)
