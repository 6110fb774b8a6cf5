"""A day with an index: questions that have reports written, edits that make them old, and readers while all of it goes on."""

import asyncio
import contextlib
import json
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from graphrag_local import erasing
from graphrag_local.project import open_project
from graphrag_local.records import Community, Report
from graphrag_local.service import Asker
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.reading import StoredIndex
from tests.cases.program import Program, program
from tests.cases.sealed import wait_until
from tests.ports import free_port

# A row of people who each met the next: three levels of groups where none is to hold more than two.
ROW = {f"part{part}.txt": " ".join(f"Henk{n:03} met Henk{n + 1:03}." for n in range(20 * part, 20 * part + 20)) + "\n" for part in range(4)}
HENK: dict[str, Any] = {
    "fixture_pattern": {"entities": [r"\bHenk\d+\b"], "types": ["person"], "relate": "within-sentence", "description": "sentence"},
    "rules": [{"on": "answer", "do": {"reply": "echo-evidence"}}],
}
DEEP = {"reports__min_tokens": 0, "communities__max_cluster_size": 2}
QUESTION = "Who met whom?"
LONG_S = 300  # nothing takes so long, on any machine


def written(it: Program) -> int:
    """Reports asked for, so far."""
    return len(it.server.requests("report"))


def lacking(it: Program, level: int) -> set[str]:
    """The communities of a level, of two people or more, without a report that is current."""
    index = StoredIndex.open(it.folder / "index")
    try:
        current = {report.community_id for report in index.reports() if not report.stale}
        there: list[Community] = [one for one in index.communities() if one.first_level <= level <= one.last_level]
        return {one.id for one in there if len(one.member_ids) > 1} - current
    finally:
        index.close()


@pytest.fixture(name="row", scope="module")
def _row(tmp_path_factory):
    """An indexed row, of which the two upper levels have reports."""
    with program(tmp_path_factory.mktemp("row"), ROW, HENK, **DEEP) as it:
        assert it.index().code == 0
        yield it


@pytest.fixture(name="deep")
def _deep(row, tmp_path):
    """A copy of it."""
    shutil.copytree(row.folder, tmp_path / "copy")
    return Program(tmp_path / "copy", row.server, row.settings)


# --- reports on first use


def test_a_level_is_written_at_its_first_question(deep):
    """The first question about a level that has no reports yet has them written and published and says so; the second writes nothing."""
    first, missing = deep.status(), lacking(deep, 2)
    assert len(missing) > 4
    assert first["without_report"]["unwritten"] >= len(missing)
    before = written(deep)
    answer = deep.query(QUESTION, "--level=2")
    assert written(deep) - before == len(missing)
    assert any("were written for this question" in note for note in answer["notes"])
    assert lacking(deep, 2) == set()
    assert answer["generation"] == deep.status()["generation"] != first["generation"]
    again = deep.query(QUESTION, "--level=2")
    assert written(deep) - before == len(missing)
    assert (again["generation"], [note for note in again["notes"] if "written" in note]) == (answer["generation"], [])
    assert deep.run("status", "--json", "--verify").json["problems"] == []
    done = deep.index().json
    assert (done["published"], done["last_build"]["calls"], done["digest"]) == (False, 0, deep.status()["digest"])


def test_more_than_a_question_may_cost_is_left_out(deep):
    """Where more reports are missing than query.first_use_reports, none is written, the note says how to, and the elements are read."""
    before, first = written(deep), deep.status()["generation"]
    deep.settings["query.first_use_reports"] = len(lacking(deep, 2)) - 1
    answer = deep.query(QUESTION, "--level=2")
    assert (written(deep), answer["generation"]) == (before, first)
    assert any("--settle" in note for note in answer["notes"])
    assert "Henk" in answer["answer"]


def test_while_somebody_builds_nothing_is_written(deep):
    """With the lock in other hands a question is answered from the elements, with a note; no report is written, nothing fails."""
    before = written(deep)
    with BuildLock(deep.folder / "index"):
        answer = deep.query(QUESTION, "--level=2")
    assert any("is being built" in note for note in answer["notes"])
    assert "Henk" in answer["answer"]
    assert written(deep) == before
    assert len(lacking(deep, 2)) > 4


def test_old_reports_are_counted_named_and_renewed(deep):
    """After an edit the reports of deeper levels are old: `status` counts them, an answer that uses one says which, `--settle` writes all that is left."""
    deep.query(QUESTION, "--level=2")
    deep.put({"part1.txt": ROW["part1.txt"].replace("met", "sued")})
    done = deep.index().json
    stale = [report for report in deep.records(Report) if report.stale]
    assert done["reports"]["stale"] == len(stale) == deep.status()["without_report"]["stale"] > 2
    assert lacking(deep, 0) == lacking(deep, 1) == set()
    assert all("sued" not in finding.explanation for report in stale for finding in report.findings)

    deep.settings["query.first_use_reports"] = 1
    deep.server.set_script({**HENK, "rules": [{"on": "answer", "do": {"reply": "echo-evidence", "cite": "all"}}]})
    before = written(deep)
    answer = deep.query(QUESTION, "--level=2")
    deep.server.set_script(HENK)
    assert written(deep) == before
    used = {citation["title"] for citation in answer["citations"] if citation["kind"] == "report"}
    assert answer["stale"] == bool(used & {report.title for report in stale}) is True
    note = next(note for note in answer["notes"] if "before a change" in note)
    assert any(report.title in note for report in stale)
    assert not deep.query(QUESTION, "--level=0")["stale"]

    settled = deep.index("--settle").json
    assert (settled["reports"]["stale"], settled["reports"]["unwritten"]) == (0, 0)
    assert settled["reports"]["written"] >= len(stale)
    assert not any(report.stale for report in deep.records(Report))
    assert not deep.query(QUESTION, "--level=2")["stale"]


def test_other_questions_do_not_wait_for_it(deep):
    """While reports of one level are written for a question, a question about a level that has all of its own is answered."""
    deep.server.set_script({**HENK, "rules": [{"on": "report", "do": {"reply": "valid", "hold": True}}, *HENK["rules"]]})
    before = written(deep)

    async def both() -> tuple[bool, list[str]]:
        asker = Asker(open_project(deep.folder, tuple(f"{key}={value}" for key, value in deep.settings.items())))
        slow = asyncio.create_task(asker.ask(QUESTION, "global", 2))
        while written(deep) == before and not slow.done():
            await asyncio.sleep(0.02)
        upper = await asker.ask(QUESTION, "global", 0)
        waited = slow.done()
        deep.server.release()
        lower = await slow
        await asker.close()
        return waited, [upper.generation, lower.generation]

    waited, generations = asyncio.run(both())
    deep.server.set_script(HENK)
    assert not waited
    assert generations[0] != generations[1] == deep.status()["generation"]


# --- readers while it is written

WORLDS = [
    ("Ola Brekke", "1811", "Lapwing"), ("Siv Torp", "1907", "Redshank"), ("Jon Fjell", "1733", "Dunlin"),
    ("Eva Lind", "1888", "Curlew"), ("Nils Berg", "1655", "Plover"), ("Mia Holm", "1799", "Sanderling"),
    ("Ada Vik", "1844", "Avocet"),
]  # fmt: skip
TIDE: dict[str, Any] = {
    "rules": [{"on": ["extract", "report"], "do": {"reply": "valid", "delay_s": 0.3}}, {"on": "answer", "do": {"reply": "echo-evidence"}}],
    "fixture_pattern": {
        "entities": ["Tidal Gate", "|".join(who for who, _, _ in WORLDS), "|".join(boat for *_, boat in WORLDS), r"Mira\d|Piet\d"],
        "types": ["geo", "person", "event", "other"], "relate": "first-to-each-other", "description": "sentence",
    },
}  # fmt: skip


def world(number: int) -> dict[str, str]:
    """Three notes about one gate in one state of the world."""
    who, year, boat = WORLDS[number]
    return {
        "gate.txt": f"The Tidal Gate was built in {year}.", "keeper.txt": f"{who} keeps the Tidal Gate.", "boat.txt": f"The boat {boat} lies at the Tidal Gate.",
    }  # fmt: skip


def worlds_in(text: str) -> set[int]:
    """The states of the world that a text speaks of."""
    return {number for number, words in enumerate(WORLDS) if any(word in text for word in words)}


@contextlib.contextmanager
def serving(it: Program) -> Iterator[str]:
    """`serve` attached to the program's model server; where it is asked."""
    port = free_port()
    with it.start("serve", f"--set=server.port={port}") as process:
        url = f"http://127.0.0.1:{port}"
        try:
            wait_until(lambda: process.poll() is not None or _alive(url), LONG_S)
            assert process.poll() is None
            yield url
        finally:
            process.terminate()
            process.communicate()


def _alive(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=LONG_S, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def ask(url: str, question: str, **more: Any) -> dict[str, Any]:
    """One question over HTTP, which is to be answered."""
    reply = httpx.post(f"{url}/v1/query", json={"question": question, **more}, timeout=LONG_S, trust_env=False)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


@pytest.fixture(name="tide", scope="module")
def _tide(tmp_path_factory):
    """A served project, indexed in its first state, and where it is asked."""
    with program(tmp_path_factory.mktemp("tide"), world(0), TIDE, reports__min_tokens=0) as it:
        assert it.index().code == 0
        with serving(it) as url:
            yield it, url


@dataclass
class Readers:
    """Readers who ask on and on until one of them fails, each answer with the generation it is from and all that it says and cites."""

    url: str
    seen: list[list[tuple[str, str]]] = field(default_factory=list)
    jobs: list[Future[None]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def read(self, number: int) -> None:
        """One reader."""
        mode = ("source", "global", "basic")[number % 3]
        try:
            while not self.stop.is_set():
                answer = ask(self.url, "Tell me all about the Tidal Gate: keeper, year and boat.", mode=mode)
                self.seen[number].append((answer["generation"], answer["answer"] + json.dumps(answer["citations"])))
        finally:
            self.stop.set()

    @contextlib.contextmanager
    def reading(self, count: int) -> Iterator[None]:
        """So many of them at once; a question that failed is raised at the end."""
        self.seen = [[] for _ in range(count)]
        with ThreadPoolExecutor(count) as pool:
            self.jobs = [pool.submit(self.read, number) for number in range(count)]
            try:
                yield
            finally:
                self.stop.set()
        for job in self.jobs:
            job.result()

    def wait_for(self, generation: str) -> None:
        """Wait until each of them has had an answer from a generation; a question that failed is raised."""
        wait_until(lambda: self.stop.is_set() or all(generation in {one for one, _ in list(seen)} for seen in self.seen), LONG_S)
        if self.stop.is_set():
            for job in self.jobs:
                job.result()


def test_readers_never_see_two_states(tide):
    """While five generations are published one after the other, eight readers get every answer from one state of the world, in order, and none fails."""
    it, url = tide
    readers = Readers(url)
    first = it.status()["generation"]
    state = {first: 0}
    with readers.reading(8):
        readers.wait_for(first)
        for number in range(1, 6):
            it.put(world(number))
            done = it.index()
            assert done.code == 0, done.said
            assert done.json["published"]
            state[done.json["generation"]] = number
        readers.wait_for(done.json["generation"])
    answers = [answer for one in readers.seen for answer in one]
    assert {generation for generation, _ in answers} <= set(state)
    for generation, text in answers:
        assert worlds_in(text) == {state[generation]}
    for one in readers.seen:
        order = [state[generation] for generation, _ in one]
        assert order == sorted(order)
        assert (order[0], order[-1]) == (0, 5)


def test_questions_at_once_write_a_level_once(tide):
    """Two questions that come together to a level without reports have each report written once, in one new generation, and both answers use it."""
    it, url = tide
    it.put({f"pair{number}.txt": f"Mira{number} met Piet{number}.\n" for number in range(4)})
    made = it.run("index", "--json", "--set=reports.write=lazy").json
    assert made["reports"]["unwritten"] == 4
    before = written(it)
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: ask(url, QUESTION, mode="global"), range(3)))
    assert written(it) - before == 4
    assert len({answer["generation"] for answer in answers}) == 1
    assert answers[0]["generation"] == it.status()["generation"] != made["generation"]
    assert it.status()["without_report"]["unwritten"] == 0
    assert sum("were written for this question" in note for answer in answers for note in answer["notes"]) == 1


def test_a_run_that_fails_changes_nothing_for_readers(tide):
    """A run that stops half way leaves the service as it was; its next run is taken up without a restart."""
    it, url = tide
    before = it.status()["generation"]
    it.put(world(6))
    assert it.index("--budget-tokens=1").code == 130
    assert ask(url, QUESTION, mode="source")["generation"] == before
    done = it.index().json
    answer = ask(url, QUESTION, mode="source")
    assert answer["generation"] == done["generation"] != before
    assert worlds_in(answer["answer"] + json.dumps(answer["citations"])) == {6}


def test_what_is_forgotten_leaves_a_running_service_too(tide, monkeypatch):
    """The service lets go of the generation with a forgotten document by itself: the receipt finds none left, and the next answer does not know it."""
    monkeypatch.setattr(erasing, "WAIT_S", 300.0)  # the service has all the time that it needs
    it, url = tide
    it.put({"secret.txt": "Mira9 met Piet9 at the ZK-GULLWING-301.\n"})
    assert it.index().code == 0
    assert "GULLWING" in json.dumps(ask(url, "Who met at the ZK-GULLWING-301?", mode="basic"))
    receipt = it.run("forget", "secret.txt", "--json").json
    assert (receipt["generations_kept"], receipt["found"], receipt["clean"]) == ([], [], True)
    assert len(receipt["generations_removed"]) == 1
    answer = ask(url, "Who met at the place?", mode="basic")
    assert answer["generation"] == receipt["generation"]
    assert "GULLWING" not in json.dumps(answer)
