"""Traces of questions: `index/traces/<time>-<id>.json`, for this user alone, because they hold text of the documents.

Nothing is ever read from them but for `query --replay`; whoever wants none deletes the folder. `forget` removes those with a forgotten document in them.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphrag_local.errors import UsageError
from graphrag_local.ids import digest_of
from graphrag_local.store.files import make_folder, storage, sync_folder

FOLDER = "traces"


def write_trace(index: Path, content: Mapping[str, Any]) -> Path:
    """Write a trace under the time and a digest of what it says; the file of the same name never changes afterwards."""
    text = json.dumps(content, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass") + b"\n"
    time = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%S.%f")
    path = index / FOLDER / f"{time}-{digest_of(text)[:12]}.json"
    with storage(path):
        make_folder(path.parent)
        path.parent.chmod(0o700)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
    return path


def read_trace(path: Path) -> dict[str, Any]:
    """The content of a trace; UsageError where the file cannot be read or is none."""
    try:
        content = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
    except OSError as error:
        raise UsageError(f"The trace {path} cannot be read: {error.strerror}.", hint="`query --trace` says where it wrote one.") from error
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or not {"version", "calls", "question"} <= content.keys():
        raise UsageError(f"{path} is no trace of a question.", hint="`query --trace` writes one and says where.")
    return content


def problems(index: Path) -> list[str]:
    """The traces that are not what their names vouch for, a sentence each."""
    folder = index / FOLDER
    with storage(folder):
        paths = sorted(folder.glob("*-????????????.json")) if folder.is_dir() else []
        altered = [path for path in paths if digest_of(path.read_bytes())[:12] != path.stem[-12:]]
    return [f"{path} was altered, and is not what was asked any more: delete it." for path in altered]


def remove_traces(index: Path, documents: Collection[str], strings: Collection[str], generations: Collection[str]) -> int:
    """Remove the traces that name one of these documents (by id) or hold one of these strings; returns how many.

    A conversation holds answers that were written from who knows what: it stays only where one of these generations answered. What cannot be read
    is removed, too, because nothing is known of it.
    """
    folder, removed = index / FOLDER, 0
    with storage(folder):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if _holds(path, documents, strings, generations):
                path.unlink()
                removed += 1
        if removed:
            sync_folder(folder)
    return removed


def drop_trace(path: Path, documents: Collection[str]) -> bool:
    """Remove a trace that has just been written if it names one of these documents (ids); True when it did."""
    if not documents or set(documents).isdisjoint(read_trace(path).get("documents", ())):
        return False
    with storage(path):
        path.unlink(missing_ok=True)
        sync_folder(path.parent)
    return True


def _holds(path: Path, documents: Collection[str], strings: Collection[str], generations: Collection[str]) -> bool:
    try:
        content = read_trace(path)
    except UsageError:
        return True
    if not set(documents).isdisjoint(content.get("documents", ())):
        return True
    if content.get("history") and content.get("generation") not in generations:
        return True
    said = "\n".join(_texts(content))
    flat = " ".join(said.split())
    return any(string in said or string in flat for string in strings)


def _texts(value: Any) -> Iterator[str]:
    """Every string inside a JSON value, names of fields included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield str(name)
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
