"""One file -> its documents, or the reasons why not. The file is opened once, without following links and without waiting."""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from graphrag_local.documents.encoding import Decoded, decode
from graphrag_local.documents.formats import BINARY, kind_of, needs_child, parser_of
from graphrag_local.documents.ocr import command_text
from graphrag_local.documents.parsed import MB, Options, Parsed, Piece, ReadProblem
from graphrag_local.documents.scan import Found, failed
from graphrag_local.documents.workers import Workers
from graphrag_local.ids import digest_of, document_id
from graphrag_local.records import Document, Failed
from graphrag_local.settings import DocumentsSettings

_CHARSET = re.compile(rb"""(?i)<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w:.-]{1,40})|<\?xml[^>]{0,100}?encoding\s*=\s*["']([\w:.-]{1,40})""")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """What came of one file; a table gives many documents, and may give failures beside them."""

    documents: tuple[Document, ...] = ()
    failures: tuple[Failed, ...] = ()


def options_of(settings: DocumentsSettings) -> Options:
    """The part of the settings that parsers see."""
    return Options(
        text_field=settings.text_field, id_field=settings.id_field, title_field=settings.title_field, boilerplate=settings.boilerplate,
        max_text_mb=settings.max_text_mb, max_unpacked_mb=max(1, settings.parse_memory_mb // 2),
    )  # fmt: skip


def read_file(found: Found, settings: DocumentsSettings, workers: Workers | None = None) -> ReadResult:
    """Read one file of the collection. Never raises for what a file is or holds: that is a `Failed` row.

    `workers` are shared by the files of a collection; without them a process is started for this file, if it needs one.
    """
    try:
        if workers is None:
            with Workers(settings) as own:
                return _read(found, settings, own)
        return _read(found, settings, workers)
    except ReadProblem as problem:
        return ReadResult(failures=(failed(found.path, str(problem), retryable=problem.retryable),))


def _read(found: Found, settings: DocumentsSettings, workers: Workers) -> ReadResult:
    data = _content(found, settings)
    kind, options = kind_of(found.path), options_of(settings)
    if not data:
        raise ReadProblem("is empty")
    decoded = Decoded(text="", encoding="")
    if kind not in BINARY:
        decoded = decode(data, forced=settings.encoding, declared=_declared(data) if kind == "html" or data[:5] == b"<?xml" else "")
    content = data if kind in BINARY else decoded.text
    parsed = workers.parse(kind, content, options) if needs_child(kind, len(data)) else parser_of(kind)(content, options)
    if parsed.scanned_pages:
        parsed = Parsed(pieces=(_scanned(found, settings, options, parsed.scanned_pages, workers),))
    if not parsed.problems and not any(piece.text.strip() for piece in parsed.pieces):
        raise ReadProblem("holds no text")
    file_hash = digest_of(data)
    return ReadResult(
        documents=tuple(_document(found.path, piece, kind, decoded, file_hash) for piece in parsed.pieces if piece.text.strip()),
        failures=tuple(failed(found.path, problem.reason, where=problem.where) for problem in parsed.problems),
    )


def _content(found: Found, settings: DocumentsSettings) -> bytes:
    """The bytes of a file that is still regular and within the limit; it may have changed since it was found."""
    limit = settings.max_file_mb * MB
    try:
        handle = os.open(found.absolute, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise ReadProblem("is no longer a regular file", retryable=True)
            data = file.read(limit + 1)
    except FileNotFoundError as error:
        raise ReadProblem("vanished while the collection was read", retryable=True) from error
    except OSError as error:
        raise ReadProblem(f"cannot be opened ({error.strerror})", retryable=True) from error
    if len(data) > limit:
        raise ReadProblem(f"is over the {settings.max_file_mb} MB of documents.max_file_mb")
    return data


def _declared(data: bytes) -> str:
    match = _CHARSET.search(data[:4096])
    return (match.group(1) or match.group(2)).decode("ascii") if match else ""


def _scanned(found: Found, settings: DocumentsSettings, options: Options, pages: int, workers: Workers) -> Piece:
    if not settings.ocr_command:
        count = "1 page" if pages == 1 else f"{pages} pages"
        raise ReadProblem(f"has no text layer ({count}, probably scanned); set documents.ocr_command to a command that prints the text of {{path}}")
    path, page_s = Path(found.absolute), settings.parse_timeout_s
    return command_text(settings.ocr_command, path, options, pages=pages, page_s=page_s, stopped=workers.closed)


def _document(path: str, piece: Piece, kind: str, decoded: Decoded, file_hash: str) -> Document:
    full = f"{path}#{piece.key}" if piece.key else path
    stem = PurePosixPath(path).stem
    return Document(
        id=document_id(full), path=full, title=piece.title or (f"{stem} {piece.key}" if piece.key else stem), text=piece.text,
        content_hash=digest_of(piece.text), file_hash=file_hash, format=kind, encoding=decoded.encoding,
        places=piece.places, cuts=piece.cuts, notices=decoded.notices + piece.notices,
    )  # fmt: skip
