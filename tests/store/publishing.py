"""A short way to publish (importing this imports LanceDB)."""

from pathlib import Path
from typing import Any

from graphrag_local.ids import digest_of
from graphrag_local.store.generations import Generation
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.publish import content_digest, publish
from graphrag_local.store.snapshot import Snapshot
from tests.store.tools import DIMENSION


def put(index: Path, snapshot: Snapshot, parent: Generation | None = None, **more: Any) -> str:
    """Publish a snapshot as a build does."""
    with BuildLock(index) as lock:
        about = {"settings": digest_of("settings"), "model": {"name": "fake", "revision": "1"}, "embedder": {"name": "fake", "dimension": DIMENSION}}
        digest = content_digest(snapshot, {"settings": "s"})
        return publish(lock, snapshot, digest=digest, counts={"documents": len(snapshot.documents)}, about=about, parent=parent, **more)
