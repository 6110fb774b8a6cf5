"""The hook for scanned PDFs: a command of the user's own that prints their text."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from graphrag_local.documents.encoding import decode
from graphrag_local.documents.parsed import Budget, Options, Piece, ReadProblem, assemble

LOOK_S = 0.2  # how often who waits for the command looks whether it should


def command_text(command: str, path: Path, options: Options, *, pages: int, page_s: float, stopped: Callable[[], bool] = lambda: False) -> Piece:
    """What the command prints about the file at `path`; a form feed begins a new page.

    `{path}` stands for the absolute path, as one argument; there is no shell. It may take `page_s` seconds per page, and is killed once the run
    is `stopped`. Raises ReadProblem when it cannot be started, fails, takes too long, is killed or prints nothing.
    """
    try:
        words = [word.replace("{path}", str(path)) for word in shlex.split(command)]
    except ValueError as error:
        raise ReadProblem(f"was not given to documents.ocr_command, which cannot be split into words ({error})") from error
    limit_s = page_s * max(1, pages)
    try:
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
            try:
                printed, complaint = _watched(process, limit_s, stopped)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
    except subprocess.TimeoutExpired as error:
        raise ReadProblem(f"kept documents.ocr_command busy for more than {limit_s:g} s ({pages} pages)", retryable=True) from error
    except OSError as error:
        raise ReadProblem(f"needs documents.ocr_command, which cannot be started ({error.strerror}: {words[0]})") from error
    if process.returncode != 0:
        said = complaint.decode("utf-8", "replace").strip().splitlines()
        raise ReadProblem(f"made documents.ocr_command fail with status {process.returncode} ({said[-1][:200] if said else 'it said nothing'})")
    text = decode(printed).text
    parts = [(f"page {number}", page) for number, page in enumerate(text.split("\f"), 1)]
    piece = assemble(parts, Budget(options), notices=("its text is the output of documents.ocr_command",))
    if not piece.text.strip():
        raise ReadProblem(f"has {pages} pages without text, and documents.ocr_command printed none")
    return piece


def _watched(process: subprocess.Popen[bytes], limit_s: float, stopped: Callable[[], bool]) -> tuple[bytes, bytes]:
    """What the process prints and complains; raises TimeoutExpired after `limit_s` and ReadProblem when the run is stopped."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return process.communicate(timeout=LOOK_S)
        except subprocess.TimeoutExpired:
            if stopped():
                raise ReadProblem("was not read by documents.ocr_command, because the run was stopped", retryable=True) from None
            if time.monotonic() > deadline:
                raise
