"""The zip file inside docx, pptx, xlsx and epub, opened only if it unpacks to a bearable size."""

import io
import zipfile
import zlib

from graphrag_local.documents.parsed import MB, Options, ReadProblem

MAX_ENTRIES = 20_000
# What damaged packages raise on the way to their parts.
DAMAGE = (zipfile.BadZipFile, zlib.error, AttributeError, EOFError, LookupError, OSError, RuntimeError, TypeError, ValueError)


def open_package(data: bytes, options: Options, kind: str) -> zipfile.ZipFile:
    """The package; raises ReadProblem for what is no zip file, is encrypted, or would unpack to too much."""
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        raise ReadProblem(f"is not a {kind} but an encrypted or old Office file; save it anew as {kind} without a password")
    try:
        package = zipfile.ZipFile(io.BytesIO(data))
    except DAMAGE as error:
        raise ReadProblem(f"is not a readable {kind} ({error})") from error
    entries = package.infolist()
    unpacked = sum(entry.file_size for entry in entries)
    if len(entries) > MAX_ENTRIES or unpacked > options.max_unpacked_mb * MB:
        size = f"{unpacked // MB} MB in {len(entries)} parts"
        raise ReadProblem(f"would unpack to {size}, more than its parser may use (documents.parse_memory_mb)")
    return package
