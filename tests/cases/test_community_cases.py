"""Collections whose graph is odd: islands, loners, one hub, one entity; and the same collection read in another way."""

import random
from typing import Any

import pytest

from graphrag_local.records import Community, Entity, Relationship, Report
from graphrag_local.store.reading import StoredIndex
from tests.cases.program import Program, program

NAMES = "[A-Z][a-z]+ [A-Z][a-z]+"
CHAIN = {"fixture_pattern": {"entities": [NAMES], "types": ["person"], "relate": "chain"}}
PAIRS = {"fixture_pattern": {"entities": [NAMES], "types": ["person"], "relate": "within-sentence"}}
ISLANDS = {
    "ferry.txt": "Ada Norr steers the Red Ferry. The Red Ferry belongs to Oslo Lines. Ada Norr learned at Oslo Lines.",
    "bakery.txt": "Ben Lund owns the Rye House. Cora Bang bakes at the Rye House. Ben Lund married Cora Bang.",
    "comet.txt": "Gus Pike saw the Moth Comet. Gus Pike lives on Bald Hill. The Moth Comet passed Bald Hill.",
    "prize.txt": "There is a Wolf Prize.",
    "ledger.txt": "Somebody lost the Blue Ledger.",
}


def communities(it: Program) -> list[Community]:
    """The stored communities."""
    index = StoredIndex.open(it.folder / "index")
    try:
        return list(index.communities())
    finally:
        index.close()


def parts(it: Program) -> set[tuple[int, int, frozenset[str]]]:
    """The communities as sets of names, with their levels."""
    names = {entity.id: entity.name for entity in it.records(Entity)}
    return {(c.first_level, c.last_level, frozenset(names[member] for member in c.member_ids)) for c in communities(it)}


def each_once(it: Program) -> None:
    """On every level each entity is in exactly one community; `status` counts what is there."""
    entities, found, status = {entity.id for entity in it.records(Entity)}, communities(it), it.status()
    for level in range(max((c.last_level for c in found), default=-1) + 1):
        members = [member for c in found if c.first_level <= level <= c.last_level for member in c.member_ids]
        assert sorted(members) == sorted(entities)
        assert status["counts"]["communities"][level] == sum(c.first_level <= level <= c.last_level for c in found)


def test_islands_have_their_reports_and_loners_their_peace(tmp_path):
    """Every unconnected part has a report that an overview is given; a loner costs no report call, is in no group with others, and is found by name."""
    with program(tmp_path, ISLANDS, PAIRS) as it:
        assert it.index().code == 0
        each_once(it)
        grouped = {names for _, _, names in parts(it)}
        assert {frozenset({"Wolf Prize"}), frozenset({"Blue Ledger"})} <= grouped
        assert len([names for names in grouped if len(names) > 1]) == 3
        assert len(it.records(Report)) == len(it.server.requests("report")) == 3
        assert not [record for record in it.server.requests("report") if "Wolf Prize" in record.prompt or "Blue Ledger" in record.prompt]
        since = len(it.server.log)
        assert it.query("What is this collection about?")["answered"]
        read = " ".join(record.prompt for record in it.server.log[since:] if record.purpose == "answer")
        assert all(name in read for name in ("Red Ferry", "Rye House", "Moth Comet", "Wolf Prize", "Blue Ledger"))
        for loner, path in (("Wolf Prize", "prize.txt"), ("Blue Ledger", "ledger.txt")):
            assert it.show("entity", loner)["sources"][0]["document"] == path
            hits = it.run("query", f"Tell me of the {loner}", "--json", "--retrieve-only", "--mode=basic").json
            assert hits[0]["document"] == path


@pytest.mark.parametrize(
    ("text", "entities"), [("There is one Lone Buoy.", 1), ("Nothing at all has a name here.", 0), ("A Lone Buoy floats near that Lone Buoy.", 1)]
)
def test_the_smallest_collections(tmp_path, text, entities):
    """One entity, none, or one that meets itself: indexing works, every mode answers from the text, and a level that is not there is said."""
    with program(tmp_path, {"only.txt": text}, PAIRS) as it:
        assert it.index().code == 0
        assert (len(it.records(Entity)), it.server.requests("report")) == (entities, [])
        each_once(it)
        for mode in ("global", "basic", "source"):
            assert it.query("What is here?", f"--mode={mode}")["citations"]
        if entities:
            done = it.run("query", "What is here?", "--json", "--level=3")
            assert (done.code, "level 3" in done.said, "level 0" in done.said) == (2, True, True)


def test_loners_alone(tmp_path):
    """Many entities and no relationship: no reports are asked for, and the overview reads all of them."""
    notes = {f"n{n}.txt": f"There was a Ship {chr(65 + n)}{'aeiou'[n % 5]}ra." for n in range(12)}
    with program(tmp_path, notes, PAIRS) as it:
        assert it.index().code == 0
        each_once(it)
        assert (len(it.records(Entity)), len(it.records(Relationship)), it.server.requests("report")) == (12, 0, [])
        since = len(it.server.log)
        assert it.query("What is this collection about?")["answered"]
        read = " ".join(record.prompt for record in it.server.log[since:] if record.purpose == "answer")
        assert all(entity.name in read for entity in it.records(Entity))


def test_one_great_hub(tmp_path):
    """An entity that meets a hundred others ends in communities that are small enough to read, on every level each entity once."""
    notes = {f"n{n:03}.txt": f"Queen Bee met {chr(65 + n % 26)}{'aeiou'[n // 26]}lo Drone." for n in range(100)}
    with program(tmp_path, notes, PAIRS) as it:
        assert it.index().code == 0
        each_once(it)
        assert it.show("entity", "Queen Bee")["degree"] == 100
        assert it.status()["counts"]["failures"] == 0
        assert it.query("Who met Queen Bee?")["answered"]


def test_a_level_that_is_not_there(tmp_path):
    """Levels that the index does not have are wrong use, and those it has are named."""
    with program(tmp_path, ISLANDS, PAIRS) as it:
        it.index()
        depth = len(it.status()["counts"]["communities"])
        for level in (depth, depth + 7):
            done = it.run("query", "What?", "--json", f"--level={level}")
            assert (done.code, f"level {level}" in done.said) == (2, True)
        assert it.run("query", "What?", "--json", "--level=-1").code == 2
        assert it.run("query", "What?", "--json", f"--level={depth - 1}").code == 0


# --- the same collection in another way


RING = ["Aho", "Brandt", "Cole", "Dahl", "Eriks", "Falk", "Gere", "Holm", "Iversen", "Jansen"]


def letters(seed: int) -> dict[str, str]:
    """Letters between people, two loose groups with a bridge and many ties; the same for one seed."""
    chance = random.Random(seed)
    notes = {}
    for n in range(1, 9):
        low = 0 if n % 2 else 5
        first, second, third = chance.sample(RING[low : low + 5], 3)
        notes[f"letter{n}.txt"] = f"Letter {n}: Mr {first} wrote to Mr {second}, and Mr {second} told Mr {third}."
    notes["letter9.txt"] = f"Letter 9: Mr {RING[4]} wrote to Mr {RING[5]}."
    return notes


LETTERS = {"fixture_pattern": {"entities": ["Mr [A-Z][a-z]+"], "types": ["person"], "relate": "chain"}}


def state(it: Program) -> dict[str, Any]:
    """All that may not depend on the order of things."""
    return {
        "names": it.names(), "edges": {(r.source_id, r.target_id, r.weight, r.description) for r in it.records(Relationship)},
        "communities": sorted((c.id, c.first_level, c.last_level, c.member_ids) for c in communities(it)),
        "order": [c.id for c in communities(it)], "prompts": sorted(record.prompt for record in it.server.requests("report")),
        "reports": sorted((r.id, r.title, r.summary) for r in it.records(Report)),
    }  # fmt: skip


def test_order_and_arrival_change_nothing(tmp_path):
    """Other file names, other numbers of requests at once, replies in the reverse order and another hash seed give the same graph, communities,
    ids, order and report prompts; where the file names are the same too, the same digest."""
    notes = letters(7)
    slow = [{"on": "extract", "when_prompt_has": f"Letter {n}:", "do": {"reply": "valid", "delay_s": (10 - n) * 0.08}} for n in range(1, 10)]
    renamed = {f"post{9 - n}.txt": text for n, text in enumerate(notes.values())}
    with program(tmp_path / "a", notes, LETTERS) as it:
        digest, first = it.index().json["digest"], state(it)
    with program(tmp_path / "b", renamed, LETTERS) as it:
        assert it.index().code == 0
        assert state(it) == first
    with program(tmp_path / "c", notes, {**LETTERS, "rules": slow}, engine__concurrency=9) as it:
        assert (it.index().json["digest"], state(it)) == (digest, first)
    with program(tmp_path / "d", notes, LETTERS, engine__concurrency=1) as it:
        assert it.run("index", "--json", environment={"PYTHONHASHSEED": "1"}).json["digest"] == digest
        assert state(it) == first


def test_a_note_about_one_part_leaves_the_other_alone(tmp_path):
    """One more note that touches one island keeps the id and the report of the others, and asks for one report at most."""
    with program(tmp_path, ISLANDS, PAIRS) as it:
        it.index()
        before = {report.community_id: report for report in it.records(Report)}
        touched = it.show("entity", "Gus Pike")["communities"]
        it.put({"more.txt": "Gus Pike showed the Moth Comet to Lars Tell."})
        since = len(it.server.log)
        assert it.index().code == 0
        asked = [record for record in it.server.log[since:] if record.purpose == "report"]
        after = {report.community_id: report for report in it.records(Report)}
        assert len(asked) == 1
        assert {key: report for key, report in before.items() if key not in touched} == {k: r for k, r in after.items() if k in before and k not in touched}
        assert len(after) == 3


def test_the_seed_is_a_setting_and_nothing_else_changes_it(tmp_path):
    """Two runs with one seed agree to the last digit; a seed that is changed on purpose asks no chat model for extraction."""
    with program(tmp_path, letters(11), LETTERS) as it:
        first = it.index().json
        assert it.index().json["published"] is False
        it.settings["communities.seed"] = 5
        since = len(it.server.log)
        assert it.index("--yes").code == 0
        assert not [record for record in it.server.log[since:] if record.purpose == "extract"]
        del it.settings["communities.seed"]
        assert it.index("--yes").json["digest"] == first["digest"]
