"""Which parser reads which file, and which files are never read."""

import importlib
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import cast

from graphrag_local.documents.parsed import Options, Parsed

KINDS = {
    "txt": "txt", "text": "txt", "md": "md", "markdown": "md", "mdown": "md", "mkd": "md", "html": "html", "htm": "html", "xhtml": "html",
    "pdf": "pdf", "docx": "docx", "docm": "docx", "pptx": "pptx", "pptm": "pptx", "xlsx": "xlsx", "xlsm": "xlsx", "epub": "epub",
    "csv": "csv", "tsv": "tsv", "tab": "tsv", "json": "json", "jsonl": "jsonl", "ndjson": "jsonl", "ipynb": "ipynb", "srt": "srt", "vtt": "vtt",
}  # fmt: skip
_MODULES = {
    "txt": "text", "md": "text", "srt": "text", "vtt": "text", "ipynb": "text", "csv": "table", "tsv": "table", "json": "table", "jsonl": "table",
    "html": "html", "epub": "epub", "pdf": "pdf", "docx": "docx", "pptx": "slides", "xlsx": "sheets",
}  # fmt: skip
BINARY = frozenset({"pdf", "docx", "pptx", "xlsx", "epub"})
ALWAYS_APART = BINARY | {"html"}
LARGE_APART = frozenset({"csv", "tsv", "json", "jsonl", "ipynb"})  # their structures can need 60 times the file's memory
LARGE_BYTES = 1 << 20

_NEVER = {
    "an image": "png jpg jpeg gif bmp tif tiff webp ico heic avif psd svgz",
    "audio": "mp3 wav flac ogg m4a aac wma opus",
    "video": "mp4 mkv avi mov wmv webm mpg mpeg m4v",
    "an archive": "zip tar gz tgz bz2 xz 7z rar zst jar whl iso dmg",
    "a program": "exe dll so dylib o a class pyc wasm msi apk",
    "binary data": "bin",
    "a font": "ttf otf woff woff2 eot",
    "a database": "sqlite sqlite3 db mdb accdb parquet feather arrow lance h5",
    "a model or array file": "safetensors gguf pt pth onnx npy npz pkl pickle",
}
_CONVERT = {"doc": "docx", "dot": "docx", "rtf": "docx", "odt": "docx", "pages": "docx", "xls": "xlsx", "xlsb": "xlsx", "ods": "xlsx",
            "numbers": "xlsx", "ppt": "pptx", "odp": "pptx", "key": "pptx", "mobi": "epub", "azw3": "epub"}  # fmt: skip
_NEVER_BY_EXTENSION = {extension: what for what, extensions in _NEVER.items() for extension in extensions.split()}

Parser = Callable[[str | bytes, Options], Parsed]


def extension_of(path: str) -> str:
    """The extension in lower case without its dot."""
    return PurePosixPath(path).suffix.lower().removeprefix(".")


def kind_of(path: str) -> str:
    """The kind of a file; an unknown extension is tried as plain text."""
    return KINDS.get(extension_of(path), "txt")


def never_read(path: str) -> str:
    """Why a file of this name is not even opened; "" for the others."""
    extension = extension_of(path)
    if extension in _CONVERT:
        return f"is in the format {extension}, which is not read; save it as {_CONVERT[extension]}"
    if extension in _NEVER_BY_EXTENSION:
        return f"is not a text format ({_NEVER_BY_EXTENSION[extension]}); documents.exclude leaves such files out"
    return ""


def needs_child(kind: str, size: int) -> bool:
    """Whether this file is parsed in a child process: a third-party parser, or a structure that can eat memory."""
    return kind in ALWAYS_APART or (kind in LARGE_APART and size > LARGE_BYTES)


def parser_of(kind: str) -> Parser:
    """The parser of a kind, its libraries imported now: text for text kinds, bytes for the `BINARY` ones."""
    module = importlib.import_module(f"graphrag_local.documents.formats_{_MODULES[kind]}")
    return cast(Parser, getattr(module, f"parse_{kind}"))
