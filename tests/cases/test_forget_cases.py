"""Documents that are to leave no trace: in no file, no version of a table, no answer; and what stays where others say it, too."""

import hashlib
import json

import pytest

from graphrag_local.erasing import rows_left
from graphrag_local.ids import document_id
from graphrag_local.records import Chunk, Document, Entity, Mention
from graphrag_local.store.generations import current_id
from graphrag_local.store.ledger import Ledger
from tests.cases.program import program
from tests.cases.sealed import FILES, LONG, MARKS, OFFICE, QUESTIONS, SEALED, _indexed, _it, answers, forget, traces  # noqa: F401
from tests.cases.test_updates import PEOPLE, letters

# --- nothing is left of it


def test_nothing_is_left_but_what_others_say(it):
    """After `forget` no byte, row, vector or reply holds its words, no answer knows them; who is named elsewhere, too, keeps that, written anew."""
    assert "ducats" in it.query(QUESTIONS[0], "--mode=basic")["answer"]
    before = {entity.name: entity for entity in it.records(Entity)}
    assert len(traces(it.folder)) > 8
    old = it.status()
    receipt = forget(it, "sealed.txt")

    assert traces(it.folder) == set()
    assert not any(mark in answers(it) for mark in MARKS if mark not in " ".join(QUESTIONS))
    after = {entity.name: entity for entity in it.records(Entity)}
    assert set(before) - set(after) == {"Halvor Lines", "Petrel"}
    irsa, earlier = after["Irsa Dunmore"], before["Irsa Dunmore"]
    assert (earlier.mentions, irsa.mentions) == (3, 2)
    assert "ducats" in earlier.description
    assert all(word in irsa.description for word in ("office", "bell"))

    now = it.status()
    assert (receipt["documents"], receipt["paths"]) == ([document_id("sealed.txt")], ["sealed.txt"])
    assert (receipt["digest_before"], receipt["digest_after"], receipt["generation"]) == (old["digest"], now["digest"], now["generation"])
    assert receipt["removed"]["documents"] == [document_id("sealed.txt")]
    assert set(receipt["removed"]["entities"]) == {before[name].id for name in ("Halvor Lines", "Petrel")}
    assert len(receipt["removed"]["relationships"]) == 3
    assert len(receipt["removed"]["chunks"]) == 1
    assert irsa.id in receipt["rewritten"]["entities"]
    assert receipt["rewritten"]["documents"] == receipt["rewritten"]["chunks"] == []
    assert receipt["replies_removed"] >= 2
    assert receipt["generations_removed"] == [old["generation"]]
    assert receipt["generations_kept"] == receipt["found"] == receipt["elsewhere"] == []
    assert receipt["strings_sought"] > 4
    assert (receipt["still_in_input"], receipt["clean"]) == (["sealed.txt"], True)
    kept = [path.read_text() for path in (it.folder / "index" / "receipts").iterdir()]
    assert len(kept) == 1
    for one in (receipt, json.loads(kept[0])):  # as whoever has one can check it
        vouched = one.pop("sha256")
        assert hashlib.sha256(json.dumps(one, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest() == vouched
    assert receipt["digest_after"] in kept[0]
    assert "sealed" not in kept[0]
    assert it.run("status", "--json", "--verify").code == 0


def test_left_out_until_it_is_asked_back(it):
    """A forgotten file in the input is left out of the next runs, and they say so; a copy of it, too; `--undo` has it read again."""
    it.put({"sealed.txt": LONG})
    forget(it, "sealed.txt")
    again = it.index()
    assert (again.json["changes"]["forgotten"], again.json["published"], again.json["last_build"]["calls"]) == (["sealed.txt"], False, 0)
    it.put({"copies/other name.txt": LONG})
    done = it.run("index")
    assert done.code == 0
    assert "left out because forgotten: copies/other name.txt, sealed.txt" in done.out
    assert "--undo" in done.out
    assert traces(it.folder) == set()
    assert it.run("forget", "--undo", "office.txt").code == 2
    assert it.run("forget", "--undo", "sealed.txt", "--json").json == {"brought_back": 1}
    back = it.index()
    assert back.json["changes"]["forgotten"] == []
    assert "sealed.txt" in back.json["changes"]["new"]
    assert "Petrel" in it.names()


def test_its_file_edited_is_left_out_and_an_old_twin_stays(it):
    """What stands under a forgotten path stays out, whatever it says now; another document with the same text, indexed all along, is one of its own."""
    it.put({"twin.txt": SEALED})
    assert it.index().code == 0
    receipt = forget(it, "sealed.txt")
    assert receipt["removed"]["entities"] == []
    assert receipt["found"] == []
    assert set(it.texts()) == {"twin.txt", *OFFICE}
    assert "Petrel" in it.names()
    documents = {mention.document_id for mention in it.records(Mention)}
    assert document_id("sealed.txt") not in documents
    it.put({"sealed.txt": "Irsa Dunmore left the Tide Board for good.\n"})
    assert it.index().json["changes"]["forgotten"] == ["sealed.txt"]
    assert set(it.texts()) == {"twin.txt", *OFFICE}


def test_a_twin_can_be_renamed(it):
    """A document that shares a forgotten text and gets another name stays in the index, without a call for what it says."""
    it.put({"sealed.txt": LONG, "twin.txt": LONG})
    assert it.index().code == 0
    forget(it, "sealed.txt")
    (it.input / "twin.txt").rename(it.input / "moved.txt")
    done = it.index()
    assert (done.json["changes"]["renamed"], done.json["changes"]["forgotten"]) == ([["twin.txt", "moved.txt"]], ["sealed.txt"])
    assert "Petrel" in it.names()


def test_a_few_words_are_no_copy(tmp_path):
    """A record that says what many say is forgotten alone: a later one with the same few words is read."""
    with program(tmp_path, {"a.csv": "id,text\n1,not known\n2,Ann met Bo.\n"}, documents__missing_limit=1.0) as it:
        assert it.index().code == 0
        forget(it, "a.csv#1")
        it.put({"b.csv": "id,text\n7,not known\n"})
        done = it.index()
        assert (done.json["changes"]["new"], done.json["changes"]["forgotten"]) == (["b.csv#7"], ["a.csv#1"])


def test_without_words_of_its_own(it):
    """Of a copy there is nothing to search for: that none of its rows and replies is left is proven by ids, and said as no more than that."""
    it.put({"twin.txt": OFFICE["office.txt"]})
    assert it.index().code == 0
    index, twin = it.folder / "index", {document_id("twin.txt")}
    count, unread = rows_left(index, twin, ())
    assert (count >= 3, unread) == (True, [])
    with Ledger.open(index / "ledger.sqlite") as ledger:
        assert twin <= ledger.documents()
    said = it.run("forget", "twin.txt").out
    assert "none of its rows or replies is left; it has no words of its own to search for" in said
    assert "found none" not in said
    receipt = forget(it, "twin.txt")
    assert [receipt[name] for name in ("strings_sought", "rows_left", "links_left", "clean")] == [0, 0, 0, True]
    manifest = index / "generations" / current_id(index) / "manifest.json"
    manifest.unlink()  # other copies of the project have the same file
    manifest.write_text("{}")
    assert "cannot be read" in rows_left(index, twin, ())[1][0]


def test_words_elsewhere_in_the_project(it):
    """A note beside the index that quotes it is named; what belongs to other programs, and what is too much to read, is left aside and said."""
    hidden = {".git/a.txt", "models/b.txt", "env/lib/c.txt"}
    for name in {"notes.txt", "notes/more.txt", *hidden, "env/pyvenv.cfg"}:
        (it.folder / name).parent.mkdir(exist_ok=True, parents=True)
        (it.folder / name).write_text(SEALED)
    receipt = forget(it, "sealed.txt")
    assert {place.split(" (")[0] for place in receipt["elsewhere"]} == {"notes.txt", "notes/more.txt"}
    assert receipt["not_searched"] == [".git/", "env/", "models/"]
    assert (receipt["found"], receipt["clean"]) == ([], True)
    assert "not searched, beside the input folder: .git/; env/; models/" in it.run("forget", "sealed.txt").out


def test_its_earlier_texts_go_with_it(it):
    """What a document said before an edit is still in the ledger, so that taking the edit back costs nothing; `forget` removes that, too."""
    it.settings["keep_generations"] = 1
    it.put({"sealed.txt": "Irsa Dunmore was thanked by the Tide Board.\n"})
    assert it.index().code == 0
    assert traces(it.folder) == {"index/ledger.sqlite"}
    assert forget(it, "sealed.txt")["clean"]
    assert traces(it.folder, [*MARKS, "thanked"]) == set()


def test_a_document_that_is_gone_already(it):
    """One that left the input and the index, but not yet an older generation and the ledger, is forgotten like any other."""
    (it.input / "sealed.txt").unlink()
    gone = it.index()
    assert gone.json["changes"]["gone"] == ["sealed.txt"]
    assert len(gone.json["gone_but_kept_in"]) == 1
    assert traces(it.folder) != set()
    receipt = forget(it, "sealed.txt")
    assert receipt["generations_removed"] == gone.json["gone_but_kept_in"]
    assert receipt["digest_before"] == gone.json["digest"]
    assert set(it.texts()) == set(OFFICE)
    assert receipt["replies_removed"] > 0
    assert (receipt["still_in_input"], traces(it.folder)) == ([], set())
    assert forget(it, "sealed.txt")["clean"]  # once more does no harm


@pytest.mark.parametrize("command", ["forget", "index"])
def test_a_document_that_only_the_ledger_knows(it, command):
    """Of a document that an interrupted run had read and that was never published, the paid replies go by `forget`, or with the next `index`."""
    it.put({"late.txt": "Irsa Dunmore hid the ZQ-WINTERLAMP-815 under the Tide Board.\n"})
    assert it.index("--budget-tokens=1").code == 130
    assert traces(it.folder, ["WINTERLAMP"]) == {"index/ledger.sqlite"}
    (it.input / "late.txt").unlink()
    if command == "forget":
        receipt = forget(it, "late.txt")
        assert receipt["replies_removed"] > 0
        assert receipt["documents"] == [document_id("late.txt")]
    else:
        assert it.index().json["swept_replies"] > 0
    assert traces(it.folder, ["WINTERLAMP"]) == set()


# --- what can be named


def test_folders_records_and_tables(tmp_path):
    """A folder stands for all that is in it, `table#id` for one record, the table's name for all its records; the rest stays."""
    table = "id,text\n" + "".join(f"{n},Worker{n} mended Boat{n} at the quay.\n" for n in range(1, 10))
    files = {"staff.csv": table, "old/a.txt": "Oldman1 sold Boat1.\n", "old/deep/b.txt": "Oldman2 sold Boat2.\n", "older.txt": "Oldman3 sold Boat3.\n"}
    script = {"fixture_pattern": {"entities": [r"\bWorker\d\b|\bOldman\d\b", r"\bBoat\d\b"], "types": ["person"], "relate": "within-sentence"}}
    with program(tmp_path, files, script, documents__missing_limit=0.1) as it:
        assert it.index().code == 0
        assert forget(it, "staff.csv#7")["paths"] == ["staff.csv#7"]
        assert traces(it.folder, ["Worker7", "worker7", "Boat7", "boat7"]) == set()
        assert {"Worker6", "Worker8", "Boat8"} <= it.names()
        assert forget(it, "old/")["paths"] == ["old/a.txt", "old/deep/b.txt"]
        assert traces(it.folder, ["Oldman1", "oldman2"]) == set()
        assert {"Oldman3", "Boat1", "Boat2"} <= it.names()
        assert forget(it, str(it.input / "staff.csv"))["documents"].__len__() == 9
        assert it.names() == {"Oldman3", "Boat3"}
        assert traces(it.folder, ["Worker", "worker", "quay"]) == set()
        assert it.index().json["changes"]["forgotten"] == sorted(["old/a.txt", "old/deep/b.txt", *(f"staff.csv#{n}" for n in range(1, 10))])
        assert forget(it, "older.txt")["removed"]["documents"] == [document_id("older.txt")]
        assert it.records(Document) == it.records(Chunk) == []


def test_what_is_forgotten_together_is_brought_back_together(tmp_path, monkeypatch):
    """`--undo` takes the folders, tables, globs and paths that `forget` takes; a name that stands for nothing forgotten is an error, and changes nothing."""
    files = {
        "old/a.txt": "Oldman1 sold Boat1.\n", "old/deep/b.txt": "Oldman2 sold Boat2.\n", "staff.csv": "id,text\n1,Ed met Flo.\n2,Gus met Hal.\n",
        "note-1.txt": "Ann met Bo.\n", "note-2.txt": "Cy met Di.\n", "note-?.txt": "Ivo met Jo.\n", "kept.txt": "Kay met Lou.\n",
    }  # fmt: skip
    with program(tmp_path, files, extraction__method="fast", documents__missing_limit=1.0) as it:
        assert it.index().code == 0
        monkeypatch.chdir(it.folder)
        assert forget(it, "note-?.txt")["paths"] == ["note-?.txt"]  # a file of that name goes before what the glob would fit
        assert forget(it, "note-*.txt", "*.csv")["paths"] == ["note-1.txt", "note-2.txt", "note-?.txt", "staff.csv#1", "staff.csv#2"]
        assert forget(it, "input/old/a.txt")["paths"] == ["old/a.txt"]
        monkeypatch.chdir(it.folder / "input" / "old")
        assert forget(it, "deep", "input/old/a.txt")["paths"] == ["old/a.txt", "old/deep/b.txt"]
        assert set(it.texts()) == {"kept.txt"}

        before = (it.folder / "index" / "forgotten.jsonl").read_bytes()
        for names, wrong in ((["kept.txt"], "kept.txt"), (["old/", "nowhere/"], "nowhere/"), (["*.pdf"], "*.pdf")):
            done = it.run("forget", "--undo", *names)
            assert done.code == 2
            assert f"Nothing that is forgotten fits '{wrong}'." in done.err
        assert "Did you mean" in it.run("forget", "--undo", "note-9.txt").err
        assert (it.folder / "index" / "forgotten.jsonl").read_bytes() == before

        assert it.run("forget", "--undo", "staff.csv#2", "--json").json == {"brought_back": 1}
        assert it.run("forget", "--undo", "staff.csv", "--json").json == {"brought_back": 1}
        (it.input / "note-2.txt").unlink()
        assert it.run("forget", "--undo", "note-1*", "--json").json == {"brought_back": 1}
        gone = it.run("forget", "--undo", "note-2.txt")
        assert (gone.code, gone.out) == (0, "no longer left out, but not in the input folder now: note-2.txt\n")
        back = it.run("forget", "--undo", str(it.input / "old"))
        assert (back.code, back.out) == (0, "2 documents will be read again by the next index: old/a.txt, old/deep/b.txt\n")
        assert it.index().json["changes"]["forgotten"] == ["note-?.txt"]
        assert set(it.texts()) == {"kept.txt", "note-1.txt", "old/a.txt", "old/deep/b.txt", "staff.csv#1", "staff.csv#2"}


def test_a_file_with_a_mark_in_its_name(tmp_path):
    """A file whose name is another's with `#` behind it is no record of it, whether it is in the input or gone; it can be named itself."""
    files = {"n.txt": "Ann met Bo.\n", "n.txt#2.txt": "Cy met Di.\n", "t.csv": "id,text\n1,Ed met Flo.\n", "t.csv#1.txt": "Gus met Hal.\n", "z.txt": "Ian met Jo.\n"}
    with program(tmp_path, files, documents__missing_limit=1.0) as it:
        assert it.index().code == 0
        assert forget(it, "t.csv")["paths"] == ["t.csv#1"]
        (it.input / "n.txt#2.txt").unlink()
        assert forget(it, "n.txt")["paths"] == ["n.txt"]
        assert set(it.texts()) == {"t.csv#1.txt", "z.txt"}
        assert forget(it, "t.csv#1.txt")["paths"] == ["t.csv#1.txt"]


def test_a_record_that_goes_beside_forgotten_ones(tmp_path):
    """A table of which only forgotten records are left counts as read: its other records are gone when they are."""
    with program(tmp_path, {"a.csv": "id,text\n1,Ann met Bo.\n2,Cy met Di.\n", "b.txt": "Ed met Flo.\n"}, documents__missing_limit=1.0) as it:
        assert it.index().code == 0
        forget(it, "a.csv#1")
        it.put({"a.csv": "id,text\n1,Ann met Bo.\n"})
        assert it.index().json["changes"]["gone"] == ["a.csv#2"]
        assert set(it.texts()) == {"b.txt"}


def test_an_unknown_name_is_wrong_use(it):
    """A name that is nowhere ends with 2 and those that are near it; nothing is written, also not of the right names beside it."""
    it.status()  # whose look at the files is noted
    before = sorted((it.folder / "index").rglob("*"))
    for names in (("sealde.txt",), ("sealed.txt", "sealde.txt")):
        done = it.run("forget", *names)
        assert done.code == 2
        assert "There is no document 'sealde.txt' in the index" in done.err
        assert "Did you mean sealed.txt" in done.err or len(names) > 1
    assert [path for path in sorted((it.folder / "index").rglob("*")) if path not in before] == []
    assert "sealed.txt" in it.texts()


def test_what_was_made_without_a_model_needs_none_to_be_forgotten(tmp_path):
    """An index that `index --method fast` made is one that `forget` asks no model for, although the settings name one for the next `index`."""
    with program(tmp_path, OFFICE | FILES) as it:
        there, it.settings["engine.url"] = it.settings["engine.url"], "http://127.0.0.1:9/v1"
        assert it.index("--method=fast").code == 0
        assert forget(it, "sealed.txt")["clean"]
        assert forget(it, "office.txt", "--without-model")["clean"]
        assert set(it.texts()) == {"bell.txt"}
        it.settings["engine.url"] = there
        done = it.index()
        assert (done.code, "--set extraction.method=fast" in done.err) == (2, True)


def test_where_nothing_is_nothing_is_written(tmp_path):
    """In a folder that is no project `forget` says so and leaves it as it is."""
    for line in (("a.txt",), ("--undo", "a.txt")):
        with program(tmp_path / "empty") as it:
            it.input.rmdir()
            done = it.run("forget", *line)
            assert (done.code, "There is no index in" in done.err, "--project" in done.err) == (1, True, True)
            assert list(it.folder.iterdir()) == []


# --- letters that begin alike


def test_shared_text_stays_to_the_last(tmp_path):
    """Of letters that share a long notice, each `forget` takes its letter and own sentence at once, no citation shows it again; the notice goes last."""
    people = ("Tova Sand", "Emil Rask", "Ruth Holm")
    with program(tmp_path, letters(*people), PEOPLE) as it:
        assert it.index().code == 0
        asked = len(it.server.requests("extract"))
        for number, person in enumerate(people, 1):
            receipt = forget(it, f"{person.split()[0].lower()}.txt")
            left = {f"{name.split()[0].lower()}.txt" for name in people[number:]}
            assert traces(it.folder, [person, person.lower()]) == set()
            assert receipt["clean"]
            counts = {entity.name: entity.mentions for entity in it.records(Entity)}
            assert counts.get("Paragraph 5", 0) == len(left)
            if left:
                assert receipt["removed"]["entities"].__len__() == 1
                for mode in ("basic", "source"):
                    answer = it.query("What is paid at station 5 of the canal?", f"--mode={mode}")
                    assert answer["citations"]
                    assert {s["document"] for c in answer["citations"] for s in c["sources"]} <= left
        assert len(it.server.requests("extract")) == asked
        assert it.names() == set()
        assert traces(it.folder, ["old canal", "Paragraph 5", "paragraph 5"]) == set()


# --- files that vanish


def test_files_that_vanish_without_retention(it):
    """With one generation kept, a file that left the input leaves the index, its old versions and the ledger with the next `index`."""
    (it.input / "sealed.txt").unlink()
    it.settings["keep_generations"] = 1
    done = it.index()
    assert (done.json["changes"]["gone"], done.json["gone_but_kept_in"]) == (["sealed.txt"], [])
    assert done.json["swept_replies"] > 0
    assert traces(it.folder) == set()


def test_files_that_vanish_with_retention(it):
    """With two generations kept, the older one still answers with the file, the summary names it, and two publications later it is in no reply of the ledger."""
    old = it.status()["generation"]
    (it.input / "sealed.txt").unlink()
    done = it.index()
    assert (done.json["gone_but_kept_in"], done.json["swept_replies"]) == ([old], 0)
    said = it.run("index").out
    assert f"still in generation {old}" in said
    assert it.run("rollback").code == 0
    assert "Petrel" in it.names()
    back = it.index().json
    assert back["last_build"]["calls"] == 0
    swept = back["swept_replies"]
    for number in range(2):
        it.put({"office.txt": f"{OFFICE['office.txt']}Irsa Dunmore counted {number} bells.\n"})
        done = it.index()
        assert done.json["published"]
        swept += done.json["swept_replies"]
    assert done.json["gone_but_kept_in"] == []
    assert swept > 0
    assert traces(it.folder) == set()
