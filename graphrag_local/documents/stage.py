"""The driver of the first stage: a folder -> documents."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from graphrag_local.documents.formats import kind_of, needs_child
from graphrag_local.documents.read import ReadResult, read_file
from graphrag_local.documents.scan import STAGE, Found, failed, scan
from graphrag_local.documents.workers import Workers
from graphrag_local.flow import Progress, Silent
from graphrag_local.records import Document, Failed
from graphrag_local.settings import DocumentsSettings

MAX_WORKERS = 4
LOOK_S = 0.2  # how often who waits for a parser looks whether it should


def read_collection(
    root: Path, settings: DocumentsSettings, *, progress: Progress | None = None, go_on: Callable[[], None] = lambda: None
) -> tuple[list[Document], list[Failed], tuple[str, ...]]:
    """Read every file below `root`: the documents in order of their paths, what failed, and the paths that exist.

    The third lists what is there, readable or not, so that a file that cannot be read is not taken for one that is gone. It holds
    paths of files (not of records), and for a folder that cannot be listed its path with a slash: anything may be below it.
    `go_on` is called now and then and may raise, to stop. Raises CollectionMissing when there is no such folder.
    """
    progress = progress or Silent()
    listing = scan(root, settings)
    progress.begin(STAGE, len(listing.found))
    documents: list[Document] = []
    failures: dict[str, list[Failed]] = {}
    for row in listing.failures:
        failures.setdefault(row.input, []).append(row)
    seen: set[str] = set()
    for found, result in _results(listing.found, settings, go_on):
        for document in result.documents:
            if document.path in seen:  # a file called `a.csv#7` beside record 7 of `a.csv`
                failures.setdefault(found.path, []).append(failed(document.path, "has the path of another document; rename the file"))
                continue
            seen.add(document.path)
            documents.append(document)
        failures.setdefault(found.path, []).extend(result.failures)
        progress.advance(STAGE, done=bool(result.documents), failed=not result.documents)
    present = {found.path for found in listing.found} | {row.input for row in listing.failures}
    return documents, [row for path in sorted(failures) for row in failures[path]], tuple(sorted(present))


def _results(files: tuple[Found, ...], settings: DocumentsSettings, go_on: Callable[[], None]) -> Iterator[tuple[Found, ReadResult]]:
    """Every file with its result, in order; files for parser processes are read ahead in threads, the others here."""
    workers = Workers(settings)
    threads = ThreadPoolExecutor(max_workers=min(MAX_WORKERS, os.cpu_count() or 1))
    try:
        ahead: dict[str, Future[ReadResult]] = {
            found.path: threads.submit(read_file, found, settings, workers) for found in files if needs_child(kind_of(found.path), found.size)
        }
        for found in files:
            go_on()
            future = ahead.pop(found.path, None)
            while future is not None and not wait([future], LOOK_S).done:
                go_on()
            yield found, future.result() if future is not None else read_file(found, settings, workers)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        workers.close()
        threads.shutdown(wait=True)
