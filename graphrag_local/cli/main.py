"""The command line: registers the commands, turns errors into one sentence and an exit code.

Exit codes: 0 done, 1 failed, 2 wrong use, 3 done with failed units, 130 interrupted (and safe to continue).
"""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn, TextIO

import typer

from graphrag_local import __version__
from graphrag_local.cli import doctor, estimate, forget, index, init, models, query, rollback, serve, show, status

app = typer.Typer(
    name="graphrag-local",
    help="Read a collection of documents with a local model; answer questions about all of it, with citations that open.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (init, estimate, index, query, status, show, forget, rollback, serve, doctor):
    app.command(command.NAME)(command.run)
app.add_typer(models.app, name="models")


@app.callback(invoke_without_command=True)
def options(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    """Read a collection of documents with a local model; answer questions about all of it, with citations that open."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


def _replace_what_a_console_cannot_show(stream: TextIO) -> None:
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")


def _stop_as_ctrl_c_does(number: int, frame: FrameType | None) -> None:
    """What SIGTERM does: the same as Ctrl-C, also where whoever started this program made it ignore Ctrl-C."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)


def _quit(code: int, message: str = "", hint: str = "") -> NoReturn:
    if message:
        print(f"graphrag-local: {message}", file=sys.stderr)  # noqa: T201
    if hint:
        print(f"  {hint}", file=sys.stderr)  # noqa: T201
    sys.stdout.flush()
    raise SystemExit(code)


def main() -> None:
    """The program's door."""
    for stream in (sys.stdout, sys.stderr):
        _replace_what_a_console_cannot_show(stream)
    signal.signal(signal.SIGTERM, _stop_as_ctrl_c_does)
    from graphrag_local.errors import GraphragError, Interrupted

    try:
        app(prog_name="graphrag-local", standalone_mode=True)
    except SystemExit as end:
        if end.code == Interrupted.exit_code:  # what is left of a KeyboardInterrupt after typer
            _quit(Interrupted.exit_code, "Interrupted.")
        raise
    except GraphragError as error:
        _quit(error.exit_code, str(error), error.hint)
    except KeyboardInterrupt:
        _quit(Interrupted.exit_code, "Interrupted.")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _quit(1)
    except Exception as error:
        if os.environ.get("GRAPHRAG_LOCAL_DEBUG"):
            raise
        _quit(1, f"unexpected {type(error).__name__}: {error}", "Set GRAPHRAG_LOCAL_DEBUG=1 and run again for the traceback, and please report it.")
