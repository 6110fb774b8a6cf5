"""Ids and fingerprints: pure functions of content, never random, always lower-case hex.

Hex because LanceDB filters are strings without parameters; 16 bytes of BLAKE2b (our choice: 2^64 records before a
collision is likely) keep rows short. Parts are length-prefixed, so that ("ab", "c") and ("a", "bc") differ.
"""

import hashlib
import json
from typing import Any


def digest_of(*parts: str | bytes) -> str:
    """The 32-digit hex digest of a sequence of parts."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        raw = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
        state.update(len(raw).to_bytes(8, "big"))
        state.update(raw)
    return state.hexdigest()


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no white space: equal values, equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def fingerprint(value: Any) -> str:
    """The digest of any JSON value."""
    return digest_of(canonical_json(value))


def document_id(path: str) -> str:
    """A document is its NFC POSIX path relative to the input root (with `#record` for a row of a table file)."""
    return digest_of("document", path)


def chunk_id(document: str, text: str, occurrence: int) -> str:
    """Unchanged text keeps its id wherever it moves in its document; `occurrence` counts equal texts from 0."""
    return digest_of("chunk", document, text, str(occurrence))


def entity_id(key: str) -> str:
    """An entity is its normalised name (`text.name_key`)."""
    return digest_of("entity", key)


def relationship_id(a: str, b: str) -> str:
    """An edge is the unordered pair of its ends' ids."""
    return digest_of("relationship", *sorted((a, b)))


def claim_id(chunk: str, text: str) -> str:
    """A claim is its chunk and what it says."""
    return digest_of("claim", chunk, text)


def mention_id(chunk: str, kind: str, number: int) -> str:
    """A mention is its place in its chunk's reply, counted for each kind of thing said."""
    return digest_of("mention", chunk, kind, str(number))


def community_id(level: int, members: tuple[str, ...]) -> str:
    """A community's id at birth: its level and its members; later generations inherit ids by overlap."""
    return digest_of("community", str(level), *sorted(members))


def report_id(community: str) -> str:
    """A community has one report."""
    return digest_of("report", community)
