"""The generations of a project, for people and programs: `status --generations` and `rollback`."""

from typing import Any

from graphrag_local.errors import IndexMissing, UsageError
from graphrag_local.project import ProjectFolder
from graphrag_local.store.generations import generation_ids, named_id, open_generation, roll_back, rollback_to
from graphrag_local.store.listing import Listed, list_generations
from graphrag_local.store.lock import BuildLock

COUNTED = ("documents", "chunks", "entities", "reports")


def listing(project: ProjectFolder, *, check_files: bool = False) -> list[dict[str, Any]]:
    """One row per generation, newest first; `problem` is "" where it can answer. `check_files` hashes all of its files, whatever was hashed before."""
    return [_row(listed) for listed in reversed(list_generations(project.index, hash_all=check_files))]


def _row(listed: Listed) -> dict[str, Any]:
    manifest = listed.manifest
    counts = manifest.counts if manifest else {}
    return {
        "id": listed.id,
        "created": manifest.created if manifest else "",
        "digest": manifest.digest if manifest else "",
        **{name: counts.get(name, 0) for name in COUNTED},
        "own_bytes": listed.own_bytes,
        "shared_bytes": listed.shared_bytes,
        "current": listed.current,
        "read": listed.read,
        "problem": listed.problem,
    }


def rollback(project: ProjectFolder, to: str = "") -> dict[str, Any]:
    """Make an older generation the current one: `to` (an id, or the beginning of one), else the newest whole one before the current.

    All of it is hashed first. Raises UsageError where there is none or it is the current one, IndexCorrupt where the one asked for is damaged,
    IndexBusy while a build runs.
    """
    if not generation_ids(project.index):
        raise IndexMissing(f"There is no finished index in {project.index}.", hint=f"Build it: graphrag-local index {project.folder}")
    with BuildLock(project.index) as lock:
        before = named_id(project.index)
        passed: tuple[str, ...] = ()
        if to:
            rollback_to(lock, _meant(project, to, before))
        else:
            passed = roll_back(lock)
        with open_generation(project.index, named_id(project.index)) as now:
            counts = {name: now.manifest.counts.get(name, 0) for name in COUNTED}
            result = {"generation": now.id, "created": now.manifest.created, "digest": now.manifest.digest, "counts": counts}
    return {**result, "before": before, "passed_over": list(passed)}


def _meant(project: ProjectFolder, to: str, current: str) -> str:
    ids = generation_ids(project.index)
    found = [to] if to in ids else [id_ for id_ in ids if id_.startswith(to)]
    if len(found) != 1:
        raise UsageError(f"There is no one generation {to} in {project.index}.", hint=f"There are: {', '.join(ids)}.")
    if found[0] == current:
        raise UsageError(f"{current} is the current generation already.", hint=f"There are: {', '.join(ids)}.")
    return found[0]
