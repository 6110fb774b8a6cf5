"""What the last whole run left (`index/standing.json`), from which the next knows whether it has anything to do (see `standing`)."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from graphrag_local.store.files import replace_file, storage
from graphrag_local.store.receipts import read_sealed, sealed

FILE: Final = "standing.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """What a whole run left: the current generation, the digest of what decided it, and whether the anchor was due then (and nothing came of it)."""

    generation: str
    decided: str
    aged: bool


def note(index: Path, stand: Stand) -> None:
    """Write down what a whole run left. Raises StorageError."""
    with storage(index / FILE):
        replace_file(index / FILE, json.dumps(sealed(asdict(stand))).encode() + b"\n")


def noted(index: Path) -> Stand | None:
    """What the last whole run left; None where that is not known, or not as it was written, which costs a whole run."""
    try:
        return Stand(**read_sealed((index / FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def problems(index: Path) -> list[str]:
    """What is wrong with the note, a sentence; one from before it had a checksum is no damage: the next run does not take it either."""
    path = index / FILE
    with storage(path):
        content = path.read_bytes() if path.exists() else b""
    try:
        fields = json.loads(content or b"{}")
        is_old = isinstance(fields, dict) and (not fields or fields.keys() == {"generation", "decided", "aged"})
    except ValueError:
        is_old = False
    return [] if is_old or noted(index) else [f"{path} was altered: the next run does not trust it, and computes everything anew."]
