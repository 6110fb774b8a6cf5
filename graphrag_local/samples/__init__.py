"""The sample collection, an invented island in 43 short documents, and the truth about it: what was planted where."""

import json
from pathlib import Path
from typing import Any


def collection() -> Path:
    """The folder of the sample documents, ready to be indexed."""
    return Path(__file__).parent / "collection"


def truth() -> dict[str, Any]:
    """What `truth.json` says: entities, relationships, themes, planted difficulties and questions with their answers."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / "truth.json").read_text(encoding="utf-8"))
    return found
