"""A small index with something in every table, made by the whole program: two generations, a hierarchy, claims, vectors, a failure, two documents forgotten.

And one with every kind of file: a trace of a question, a receipt, and a `forget` that was begun besides.
"""

from pathlib import Path

from graphrag_local.engine.base import Grammar, Reply, Request
from graphrag_local.ids import digest_of, document_id
from graphrag_local.project import ProjectFolder
from graphrag_local.store.forgotten import Forgotten, Unfinished, begin, remember
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.traces import write_trace
from tests.pipeline.running import forget, index, project_of, scribe, scripted, told_as
from tests.query.world import WordEmbedder

RULES = (
    "vectors.kind=auto", "extraction.claims=true", "communities.max_cluster_size=3", "reports.min_tokens=0", "reports.write=all", "keep_generations=3",
    "chunks.min_tokens=20", "chunks.max_tokens=60",
)  # fmt: skip
RINGS = [[f"{name}{letter}" for letter in "abcdefghij"] for name in ("Ada", "Ben", "Cleo")]
TIES = [(ring[n], ring[(n + step) % 10]) for ring in RINGS for n in range(10) for step in (1, 2)] + [("Adaa", "Bena"), ("Benb", "Cleoa")]
FILES = {
    "one.txt": told_as(TIES[:24], ["Zoe"]),
    "two.md": "# Who knows whom\n\n" + told_as(TIES[20:44]),
    "three.txt": told_as(TIES[40:]),
    "odd.txt": told_as([("Über", "Ñandú"), ("Über", "Zoe")]) + "李明 met Zoe.\n",
    "bad.txt": "",
}


def claiming(request: Request) -> str | Reply:
    """What the scribe says, with a claim about the first entity wherever there is room for one."""
    said = scribe(request)
    if request.purpose == "extract" and isinstance(request.constraint, Grammar) and "claims:" in request.constraint.lark and isinstance(said, str):
        return said.replace("?\tN", "!1\t0\tfraud\tSUSPECTED\tNA\t1\tlied about it\n?\tN")
    return said


def build(project: ProjectFolder) -> str:
    """One `index`; the id of the generation."""
    return index(project, scripted(claiming), embedder=WordEmbedder()).generation


def full_world(folder: Path) -> ProjectFolder:
    """The world after a `forget`, one more run and a question, while another `forget` is under way; of two generations."""
    project = world(folder)
    forget(project, "odd.txt", engine=scripted(claiming), embedder=WordEmbedder())
    project_of(folder, {"three.txt": told_as(TIES[42:])}, *RULES)
    build(project)
    write_trace(project.index, {"version": 1, "question": "Who knows Zoe?", "calls": [], "documents": [document_id("one.txt")]})
    with BuildLock(project.index) as lock:
        begin(lock, Unfinished(documents=(document_id("two.md"),), at="2026-01-02T03:04:05+00:00", before="", digest="", keep_generations=False, sought=7))
    return project


def world(folder: Path) -> ProjectFolder:
    """The project, indexed, and indexed again after an edit."""
    project = project_of(folder, FILES, *RULES)
    build(project)
    project_of(folder, {"three.txt": told_as([*TIES[41:], ("Zoe", "Cleoe")])}, *RULES)
    build(project)
    with BuildLock(project.index) as lock:
        remember(lock, [Forgotten(document=document_id(path), texts=(digest_of(path),), at="2026-01-02T03:04:05+00:00") for path in ("old.txt", "older.txt")])
    return project
