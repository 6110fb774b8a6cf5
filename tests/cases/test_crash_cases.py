"""Runs that are killed at any stage, and the runs after them."""

import json
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.cases.program import program
from tests.modelserver import ModelServer

NOTES = {f"entry{n:02}.txt": f"Entry {n}: Henk{n} opened Sluice{n} for Henk{n + 1}." for n in range(1, 13)}
FIRST = dict(list(NOTES.items())[:6])
HENK = {"fixture_pattern": {"entities": [r"\bHenk\d+\b", r"\bSluice\d+\b"], "types": ["person", "geo"], "relate": "chain"}}
QUESTION = "Who is Henk1?"
AT_ONCE = 2
WITH_VECTORS = {"vectors.kind": "server", "vectors.model": "vec"}


def work_of(server: ModelServer) -> Counter[tuple[str, str]]:
    """How often each piece of work was asked for."""
    kinds = ("extract", "describe", "report", "embed")
    asked = ((r.purpose, r.prompt or json.dumps(r.body.get("input"))) for r in server.log if r.purpose in kinds and QUESTION not in r.prompt)
    return Counter(asked)


def has_begun(stage: str, runs: Path, count: int) -> bool:
    """Whether the run after so many has come to a stage."""
    logs = sorted(runs.iterdir())
    return len(logs) > count and f'"{stage}"' in logs[-1].read_text()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The digests of runs that nobody disturbed, without an older index (False) and over one of half the notes (True), which anchors the communities."""
    digests = {}
    for old in (False, True):
        with program(tmp_path_factory.mktemp("calm"), FIRST if old else NOTES, HENK) as it:
            it.settings |= WITH_VECTORS
            if old:
                it.index()
                it.put(NOTES)
            digests[old] = it.index().json["digest"]
    return digests


@pytest.mark.parametrize(("purpose", "count", "old"), [("extract", 5, True), ("extract", 1, False), ("report", 1, True), ("embed", 1, False)])
def test_a_killed_run_goes_on_where_it_was(tmp_path, undisturbed, purpose, count, old):
    """kill -9 in any stage: the old index answers, `status` says where it was, the next run asks for what is missing and ends as if undisturbed."""
    with program(tmp_path, FIRST if old else NOTES, HENK) as it:
        it.settings |= WITH_VECTORS | {"engine.concurrency": AT_ONCE}
        if old:
            it.index()
            it.put(NOTES)
        it.server.set_script({**HENK, "rules": [{"on": purpose, "calls": f"{count + 1}-", "do": {"reply": "valid", "hold": True}}]})
        before = len([r for r in it.server.requests(purpose) if r.ended])
        with it.start("index", "--json") as child:
            it.server.wait_for(purpose, before + count)
            it.server.wait_for_open(purpose)
            child.kill()
        it.server.set_script(HENK)
        done = it.run("query", QUESTION, "--json", "--mode=basic")
        assert done.code == (0 if old else 1)
        interrupted = it.status()["interrupted"]
        assert interrupted["stage"] == {"extract": "extraction", "report": "reports", "embed": "vectors"}[purpose]
        again = it.index()
        assert (again.code, again.json["digest"]) == (0, undisturbed[old])
        assert it.status()["interrupted"] is None
        work = work_of(it.server)
        assert sum(times - 1 for times in work.values()) <= 2 * AT_ONCE  # as many again may have come and be on their way to the disk
        assert not [path for path in (tmp_path / "index").rglob("*") if ".tmp" in path.name or path.name.startswith(".building")]
        assert len(list((tmp_path / "index" / "generations").iterdir())) <= 2


def test_killed_in_the_switch_to_the_new_index(tmp_path, undisturbed):
    """Killed again and again at random moments after the last reply, the index is always the old one or the new one, whole."""
    with program(tmp_path, FIRST, HENK) as it:
        it.settings |= WITH_VECTORS
        old = it.index().json["digest"]
        it.put(NOTES)
        states, runs = [], tmp_path / "index" / "runs"
        for wait in (0.0, 0.05, 0.15, 0.3):
            count = len(list(runs.iterdir()))
            with it.start("index", "--json") as child:
                watch = threading.Timer(wait, child.kill)
                while child.poll() is None and not has_begun("vectors", runs, count):
                    time.sleep(0.005)
                watch.start()
                child.communicate()
                watch.cancel()
            status = it.run("status", "--json", "--verify")
            assert status.code == 0
            states.append(status.json["digest"])
            assert it.query(QUESTION, "--mode=basic")["answered"]
        assert set(states) <= {old, undisturbed[True]}
        assert it.index().json["digest"] == undisturbed[True]
        work = work_of(it.server)
        assert max(times for (purpose, _), times in work.items() if purpose != "embed") == 1
        assert max(work.values()) <= 1 + len(states)


def test_killed_while_texts_are_embedded_anew(tmp_path):
    """A kill in the middle of the change to another embedder leaves the index all with the old one; the next run is all with the new one, without a chat."""
    script = {**HENK, "embedders": {"old": {"dimension": 8, "vector": "sha256"}, "new": {"dimension": 8, "vector": "sha256 of reversed text"}}}
    with program(tmp_path, NOTES, script) as it:
        it.settings |= WITH_VECTORS | {"vectors.batch": 2, "vectors.model": "old"}
        first = it.index().json
        since = len(it.server.log)
        it.settings["vectors.model"] = "new"
        it.server.set_script({**script, "rules": [{"on": "embed", "calls": "5-", "do": {"reply": "valid", "hold": True}}]})
        before = len([r for r in it.server.requests("embed") if r.ended])
        with it.start("index", "--json", "--yes") as child:
            it.server.wait_for("embed", before + 4)
            it.server.wait_for_open("embed")
            child.kill()
        it.server.set_script(script)
        assert (it.status()["generation"], it.status()["models"]["embedder"]) == (first["generation"], "old")
        assert it.run("query", QUESTION, "--json", "--mode=basic").code == 1
        it.settings["vectors.model"] = "old"
        assert it.query(QUESTION, "--mode=basic")["generation"] == first["generation"]
        it.settings["vectors.model"] = "new"
        assert it.index("--yes").code == 0
        assert it.status()["models"]["embedder"] == "new"
        assert {r.purpose for r in it.server.log[since:]} & {"extract", "describe", "report"} == set()
