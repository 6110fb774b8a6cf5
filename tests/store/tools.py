"""Rows, snapshots, processes and disks for the tests of the store."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import strategies as st

from graphrag_local.ids import digest_of
from graphrag_local.records import (
    AnchorCommunity,
    AnchorEdge,
    Chunk,
    Claim,
    Community,
    ContextLine,
    Cut,
    Document,
    Dropped,
    Entity,
    Failed,
    Finding,
    LedgerRow,
    Mention,
    Place,
    Relationship,
    Report,
    Span,
    Vector,
)
from graphrag_local.store.snapshot import Snapshot
from graphrag_local.store.tables import hints

DIMENSION = 4
ROOT = Path(__file__).parents[2]


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a field of this type."""
    if get_origin(hint) is tuple:
        return st.lists(values(get_args(hint)[0]), max_size=3).map(tuple)
    if get_origin(hint) is types.UnionType:
        return st.none() | values(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if dataclasses.is_dataclass(hint):
        return st.builds(hint, **{name: values(inner) for name, inner in hints(hint).items()})
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
        int: st.integers(-(2**63), 2**63 - 1),
        float: st.floats(allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
    }
    return plain[hint]


def rows_of(record: type) -> st.SearchStrategy[list[Any]]:
    """Lists of rows of a table, in any order, with ids of their own."""
    unique = (lambda row: row.id) if "id" in hints(record) else None
    return st.lists(values(record), max_size=6, unique_by=unique)


def small(version: int = 0, documents: int = 3, *, dimension: int = DIMENSION) -> Snapshot:
    """A little collection with something in every table; another `version` has other texts in its first document, and nothing else differs."""
    texts = [f"Vesna Oster runs the mill number {n}, edition {version if n == 0 else 0}. 李明 visited. " * 3 for n in range(documents)]
    paths = [f"notes/mill {n}.txt" for n in range(documents)]
    docs = [
        Document(
            id=digest_of("d", path), path=path, title=f"Mill {n}", text=text, content_hash=digest_of(text), file_hash=digest_of("f", text),
            format="txt", places=(Place(label="page 1", start=0),), cuts=(Cut(reason="footer", characters=3),), notices=("line ends were mixed",),
        )
        for n, (path, text) in enumerate(zip(paths, texts, strict=True))
    ]  # fmt: skip
    chunks = [Chunk(id=digest_of("c", doc.id, doc.text), document_id=doc.id, index=0, start=0, end=len(doc.text), text=doc.text) for doc in docs]
    names = ["Vesna Oster", "李明"]
    entities = [
        Entity(id=digest_of("e", n), key=n.lower(), name=n, type="PERSON", types=("PERSON",), aliases=(), description=f"{n}.", mentions=documents)
        for n in names
    ]
    low, high = sorted(entity.id for entity in entities)
    edge = Relationship(id=digest_of("r"), source_id=low, target_id=high, description="visited", weight=5.0, mentions=documents)
    mentions = [
        Mention(
            id=digest_of("m", chunk.id, entity.id), owner_id=entity.id, owner_kind="entity", chunk_id=chunk.id, document_id=chunk.document_id,
            number=n, name=entity.name, type="PERSON", description="is named", strength=5.0, spans=(Span(start=0, end=5),), grounding="anchored",
        )
        for chunk in chunks
        for n, entity in enumerate(entities)
    ]  # fmt: skip
    community = Community(id=digest_of("k"), first_level=0, last_level=0, parent_id="", child_ids=(), member_ids=(low, high))
    report = Report(
        id=digest_of("report"), community_id=community.id, fingerprint=digest_of("x"), title="The mill", summary="A mill.", rating=5.0,
        rating_explanation="It runs.", findings=(Finding(summary="Runs", explanation="It runs.", sources=(edge.id,)),),
        dropped=(Dropped(what="a finding", reason="It cites nothing."),), documents=(docs[0].id,), context=(ContextLine(digest=digest_of("l"), tokens=7),),
    )  # fmt: skip
    claim = Claim(
        id=digest_of("claim"), subject_id=low, object_id="", type="FACT", status="TRUE", period="", description="It runs.",
        chunk_id=chunks[-1].id, document_id=docs[-1].id,
    )  # fmt: skip
    owners = [("chunk", chunk.id, chunk.text) for chunk in chunks] + [("entity", e.id, e.name) for e in entities] + [("report", report.id, "r")]
    return Snapshot(
        documents=tuple(docs), chunks=tuple(chunks), mentions=tuple(mentions), entities=tuple(entities), relationships=(edge,), claims=(claim,),
        communities=(community,), reports=(report,), failures=(Failed(stage="documents", input_id="", input="notes/bad.txt", reason="It is empty."),),
        anchor_communities=(AnchorCommunity(id=community.id, first_level=0, last_level=0, parent_id="", member_ids=(low, high)),),
        anchor_edges=(AnchorEdge(source_id=low, target_id=high, weight=5.0),),
        vectors=tuple(vector(kind, id_, text, dimension) for kind, id_, text in owners) if dimension else (), dimension=dimension,
    )  # fmt: skip


def vector(kind: Any, id_: str, text: str, dimension: int = DIMENSION) -> Vector:
    """A vector that depends on the text and is exact in float32."""
    numbers = tuple((byte - 128) / 128 for byte in bytes.fromhex(digest_of(text))[:dimension])
    return Vector(owner_id=id_, owner_kind=kind, text_hash=digest_of(text), values=numbers)


def reply(number: int, **changes: Any) -> LedgerRow:
    """The ledger row of one reply."""
    row = LedgerRow(
        key=f"{number:032x}", purpose="extract", model="fake", revision="1", outcome="ok", text=f"reply {number}", gate=None, logprobs="",
        prompt_tokens=10, cached_tokens=0, completion_tokens=5, seconds=0.5, groups=((f"d{number % 7}",),),
    )  # fmt: skip
    return dataclasses.replace(row, **changes)


@contextmanager
def child(script: str, *arguments: object, start: tuple[str, ...] = (), cwd: str | None = None) -> Iterator["subprocess.Popen[str]"]:
    """A Python process of its own that runs a script with this repository on its path, talking over pipes; killed in the end, with its children."""
    command = [*start, sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(command, text=True, env=environment, start_new_session=True, cwd=cwd, **pipes)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with process:
            process.kill()


@contextmanager
def little_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of this size mounted at a new folder; skips the test where mounting is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
