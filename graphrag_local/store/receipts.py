"""What is kept under a digest of its own content, and the receipts among it: `index/receipts/<time>-<document>.json`, one per `forget`, by ids alone.

The field `sha256` is the SHA-256 of all the other fields as JSON with sorted keys and without white space, in UTF-8 (`ids.canonical_json`), so whoever has
such a file can check it without this program.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from graphrag_local.ids import canonical_json
from graphrag_local.store.files import make_folder, replace_file, storage

FOLDER: Final = "receipts"
SUM: Final = "sha256"
_BEFORE: Final = {  # the fields of receipts from before they had a checksum: with any other one it has lost the name of that field
    "documents", "at", "digest_before", "digest_after", "generation", "removed", "rewritten", "replies_removed", "traces_removed", "generations_removed",
    "generations_kept", "rows_left", "links_left", "strings_sought", "failures", "waiting", "clean",
}  # fmt: skip


def sum_of(fields: Mapping[str, Any]) -> str:
    """The checksum of what is kept, whether it is among the fields already or not."""
    return hashlib.sha256(canonical_json({name: value for name, value in fields.items() if name != SUM}).encode("utf-8", "surrogatepass")).hexdigest()


def sealed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with their checksum."""
    return {**fields, SUM: sum_of(fields)}


def read_sealed(content: bytes) -> dict[str, Any]:
    """The fields without their checksum; raises ValueError where they are not what it vouches for."""
    fields = json.loads(content)
    if not isinstance(fields, dict) or fields.pop(SUM, "") != sum_of(fields):
        raise ValueError("it is not what its checksum vouches for")
    return fields


def keep(index: Path, name: str, fields: Mapping[str, Any]) -> None:
    """Keep a receipt, durably. Raises StorageError."""
    path = index / FOLDER / f"{name}.json"
    with storage(path):
        make_folder(path.parent)
        replace_file(path, json.dumps(sealed(fields), indent=1).encode() + b"\n")


def problems(index: Path) -> list[str]:
    """The receipts that are not as they were written, a sentence each."""
    return [f"{path} was altered: restore it from a copy, or delete it; nothing depends on it." for path, state in _states(index) if state == "altered"]


def unchecked(index: Path) -> str:
    """Which receipts have no checksum, being from before there was one; "" where all have."""
    names = [path.name for path, state in _states(index) if state == "old"]
    return f"not checked: {len(names):,} receipts from before receipts had a checksum ({', '.join(names)})" if names else ""


def _states(index: Path) -> list[tuple[Path, str]]:
    folder = index / FOLDER
    with storage(folder):
        return [(path, _state(path.read_bytes())) for path in (sorted(folder.glob("*.json")) if folder.is_dir() else ())]


def _state(content: bytes) -> str:
    try:
        fields = json.loads(content)
        if isinstance(fields, dict) and fields.keys() <= _BEFORE and "documents" in fields:
            return "old"
        read_sealed(content)
    except ValueError:
        return "altered"
    return "sound"
