"""Second runs: folders that are gone, files that share text, files that are edited; nothing goes without being said, and nothing stays too long."""

import os

import pytest

from graphrag_local.records import Chunk, Entity
from tests.cases.program import Program, program

PEOPLE = {"fixture_pattern": {"entities": ["Tova Sand|Emil Rask|Ruth Holm|Ivar Lo|Siri Moe|Alf Dahl", "[Pp]aragraph \\d+"], "types": ["person", "other"]}}
NOTES: dict[str, str | bytes] = {f"{name[0]}.txt": f"{name} wrote this note." for name in ("Tova Sand", "Emil Rask", "Ruth Holm", "Ivar Lo", "Siri Moe", "Alf Dahl")}


def calls(it: Program) -> int:
    """Requests that cost something, so far."""
    return len(it.server.requests("extract", "describe", "report", "answer"))


def test_a_folder_that_is_not_there_takes_nothing_away(tmp_path):
    """A missing or empty input folder stops the run with how many documents are missing and what to do; the old index still answers."""
    with program(tmp_path, NOTES, PEOPLE) as it:
        first = it.index().json
        before = calls(it)
        it.input.rename(it.folder / "away")
        missing = it.index()
        it.input.mkdir()
        empty = it.index()
        assert calls(it) == before
        for done in (missing, empty):
            assert done.code == 1
            assert "6 of 6 indexed documents are missing" in done.err
            assert "--allow-empty" in done.err
        assert it.status()["digest"] == first["digest"]
        assert it.query("Who is Emil Rask?")["generation"] == first["generation"]
        it.input.rmdir()
        (it.folder / "away").rename(it.input)
        again = it.index().json
        assert (again["digest"], again["published"], again["last_build"]["calls"]) == (first["digest"], False, 0)


@pytest.mark.parametrize(("gone", "limit", "stops"), [(1, 0.5, False), (3, 0.5, False), (4, 0.5, True), (2, 0.1, True), (6, 1.0, False)])
def test_how_many_may_go(tmp_path, gone, limit, stops):
    """Up to the share documents.missing_limit documents go without a question; beyond it only with --allow-empty."""
    with program(tmp_path, NOTES, PEOPLE, documents__missing_limit=limit) as it:
        assert it.index().code == 0
        for name in sorted(NOTES)[:gone]:
            (it.input / name).unlink()
        done = it.index()
        assert done.code == (1 if stops else 0)
        if stops:
            assert f"{gone} of 6" in done.err
            done = it.index("--allow-empty")
        assert done.json["changes"]["gone"] == sorted(NOTES)[:gone]
        assert done.json["counts"]["documents"] == 6 - gone


def test_a_folder_in_the_place_of_a_file_and_a_file_in_that_of_a_folder(tmp_path):
    """Paths change their kind: what was there is gone, what is there now is read, and neither is mixed up."""
    with program(tmp_path, {"a.txt": "Tova Sand.", "b.d/c.txt": "Emil Rask.", "d.txt": "Ruth Holm."}, PEOPLE, documents__missing_limit=1.0) as it:
        assert it.index().code == 0
        it.make_input({"a.txt/x.txt": "Ivar Lo.", "b.d": "Siri Moe.", "d.txt": "Ruth Holm."})
        done = it.index()
        assert done.code == 0
        assert done.json["changes"]["gone"] == ["a.txt", "b.d/c.txt"]
        assert it.names() == {"Ivar Lo", "Siri Moe", "Ruth Holm"}


NOTICE = "\n\n".join(
    f"Paragraph {n}. Whoever draws water at station {n} of the old canal pays {n * 3 + 7} crowns a year to the keeper, in spring, and half of it again "
    f"when the level is below {n * 11 + 40} cm; complaints about station {n} are heard by the court of the valley on the first Monday after harvest."
    for n in range(1, 29)
)


def letters(*names: str) -> dict[str, str | bytes]:
    """Letters that begin with the same long notice and end with a sentence of their own."""
    return {f"{name.split()[0].lower()}.txt": f"{NOTICE}\n\nThis copy was sent to {name} in person.\n" for name in names}


def test_letters_that_share_their_text_are_read_once_and_known_apart(tmp_path):
    """Shared text is asked about once and belongs to every letter that has it; when letters go, it stays with the others to the last."""
    people = ("Tova Sand", "Emil Rask", "Ruth Holm")
    with program(tmp_path, letters(*people), PEOPLE, documents__missing_limit=1.0) as it:
        assert it.index().code == 0
        chunks = it.records(Chunk)
        assert len(chunks) > len({chunk.text for chunk in chunks}) == len(it.server.requests("extract"))
        for number, person in enumerate(people):
            left = people[number:]
            papers = {f"{name.split()[0].lower()}.txt" for name in left}
            counts = {entity.name: entity.mentions for entity in it.records(Entity)}
            assert counts["Paragraph 5"] == len(left)
            assert {name for name in counts if "aragraph" not in name} == set(left)
            assert {source["document"] for source in it.show("entity", "Paragraph 5")["sources"]} == papers
            answer = it.query("What is paid at station 5 of the canal?", "--mode=basic")
            assert {s["document"] for c in answer["citations"] for s in c["sources"]} <= papers
            (it.input / f"{person.split()[0].lower()}.txt").unlink()
            asked = len(it.server.requests("extract"))
            assert it.index().code == 0
            assert len(it.server.requests("extract")) == asked
        assert it.records(Entity) == []
        assert it.records(Chunk) == []


def test_an_edit_at_the_end_leaves_the_shared_beginning_alone(tmp_path):
    """An edited sentence behind long shared text costs the chunk it is in; the chunks before it keep their bounds and their replies."""
    with program(tmp_path, letters("Tova Sand", "Emil Rask"), PEOPLE) as it:
        assert it.index().code == 0
        asked = len(it.server.requests("extract"))
        it.put({"tova.txt": letters("Tova Sand")["tova.txt"].replace("Tova Sand", "Siri Moe")})  # type: ignore[union-attr, arg-type]
        done = it.index()
        assert done.json["changes"]["edited"] == ["tova.txt"]
        assert len(it.server.requests("extract")) == asked + 1
        assert "Tova Sand" not in it.names()
        assert "Siri Moe" in it.names()


def test_a_file_that_moved_costs_nothing(tmp_path):
    """A document under another name is shown as renamed: no call, no text embedded anew, and its citations lead to where it is now; also in a new folder."""
    with program(tmp_path, NOTES, PEOPLE, vectors__kind="server", vectors__model="vec") as it:
        assert it.index().code == 0
        before, embedded = calls(it), len(it.server.requests("embed"))
        (it.input / "moved").mkdir()
        (it.input / "E.txt").rename(it.input / "moved" / "emil.txt")
        (it.input / "R.txt").rename(it.input / "Q.txt")
        done = it.index()
        assert done.json["changes"] | {"same": 0} == {
            "new": [], "edited": [], "renamed": [["E.txt", "moved/emil.txt"], ["R.txt", "Q.txt"]], "gone": [], "kept": [], "same": 0, "forgotten": [],
        }  # fmt: skip
        assert (done.json["published"], done.json["last_build"]["calls"], calls(it)) == (True, 0, before)
        assert len(it.server.requests("embed")) == embedded
        hits = it.run("query", "Who is Emil Rask?", "--json", "--retrieve-only", "--mode=basic").json
        assert "moved/emil.txt" in {hit["document"] for hit in hits}
        assert set(it.texts()) == {"moved/emil.txt", "Q.txt", *NOTES} - {"E.txt", "R.txt"}


def test_a_file_that_was_only_touched_costs_nothing(tmp_path):
    """Files written again with the same content, or with another date, ask nothing and publish nothing."""
    with program(tmp_path, NOTES, PEOPLE) as it:
        first = it.index().json
        before = calls(it)
        it.put(NOTES)
        for path in it.input.iterdir():
            os.utime(path, (1_000_000_000, 1_000_000_000))
        done = it.index().json
        assert (done["published"], done["generation"], done["changes"]["same"]) == (False, first["generation"], 6)
        assert (done["last_build"]["calls"], calls(it)) == (0, before)


def test_back_and_forth_costs_nothing(tmp_path):
    """What was read once is not paid for again: an edit taken back, a generation rolled back, and the way forth again come from the ledger."""
    edited = {"A.txt": NOTES["A.txt"].replace("wrote", "lost")}  # type: ignore[union-attr, arg-type]
    with program(tmp_path, NOTES, PEOPLE) as it:
        first = it.index().json
        it.put(edited)
        second = it.index().json
        assert second["last_build"]["calls"] > 0
        before = calls(it)
        assert it.run("rollback").code == 0
        assert it.status()["digest"] == first["digest"]
        assert it.index().json["digest"] == second["digest"]
        for files, digest in ((NOTES, first["digest"]), (edited, second["digest"]), (NOTES, first["digest"])):
            it.put(files)
            done = it.index().json
            assert (done["digest"], done["last_build"]["calls"]) == (digest, 0)
        assert calls(it) == before


@pytest.mark.parametrize("share", [0.6, 0.15])
def test_a_budget_is_kept_and_the_run_goes_on(tmp_path, share):
    """At --budget-tokens a run stops with 130 and a word; the same command goes on; in the end as much is paid for as without a budget, each piece once."""
    script = {"fixture_pattern": {**PEOPLE["fixture_pattern"], "relate": "within-sentence"}}
    notes = {f"{n}.txt": f"Tova Sand wrote paragraph {n} and paragraph {n + 1}, and Emil Rask read both of them to Ruth Holm and Ivar Lo.\n" for n in range(9)}
    with program(tmp_path / "calm", notes, script) as it:
        calm = it.index().json
        total = sum(record.prompt_tokens + record.completion_tokens for record in it.server.requests("extract", "describe", "report"))
    with program(tmp_path / "poor", notes, script, engine__concurrency=4) as it:
        codes, paid = [], []
        while 0 not in codes:
            so_far = len(it.server.log)
            done = it.index(f"--budget-tokens={int(total * share)}")
            codes.append(done.code)
            paid.append(sum(r.prompt_tokens + r.completion_tokens for r in it.server.log[so_far:] if r.purpose in ("extract", "describe", "report")))
            assert len(codes) < 40
            if done.code:
                assert "The budget of" in done.err
                assert "The same command continues" in done.err
                assert it.run("status", "--json").json["interrupted"]["stage"]
        assert set(codes[:-1]) == {130}
        assert len(codes) >= 1 / share
        assert max(paid) <= total * share * 1.05  # what replies in flight take beyond what was reserved for them
        assert sum(paid) == total
        assert done.json["digest"] == calm["digest"]
