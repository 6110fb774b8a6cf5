"""Tables as people really have them: records that cannot be read cost themselves only, and an edit costs its own record."""

import json

import pytest

from tests.cases.program import program

NAMES = {"fixture_pattern": {"entities": ["(?:Brig|Sloop) [A-Z][a-z]+"], "types": ["other"], "relate": "none"}}


def row(**fields: object) -> str:
    """One JSON line, characters as they are."""
    return json.dumps(fields, ensure_ascii=False)


LINES = [
    row(id="k1", text="Brig Anemone lay at anchor."),
    "",
    " \t",
    row(id="k2", text="Sloop Heron\u2028left\u2029with\x85the tide\u000b."),
    "[1, 2]",
    '"only words"',
    "12",
    row(id="k3", text=None),
    row(id="k4", text=["Brig", "Alma"]),
    row(id="k5", body="Sloop Wren came."),
    row(id="k1", text="Brig Double has the id of the first."),
    row(id="k6", text=" "),
    "{'id': 'k7', 'text': 'Brig Quote'}",
    row(id=7, text="Brig Number has a number for an id."),
    row(text="Sloop Nameless has none."),
    row(id="k8", text="Sloop Lark and a [bracket"),
    '{"id": "k9", "text": "Sloop Torn went to',
]
BAD = {5: "a list", 6: "a text", 7: "a number", 8: "null", 9: "a list", 10: "no field 'text'", 11: "same id 'k1' as line 1", 12: "no text",
       13: "not valid JSON", 17: "not valid JSON"}  # fmt: skip


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_bad_lines_cost_themselves_only(tmp_path, end):
    """Blank lines say nothing, bad lines are told with their physical numbers, good ones are documents; a line that is mended costs one call."""
    with program(tmp_path, {"log.jsonl": "\ufeff" + end.join(LINES)}, NAMES) as it:
        done = it.index()
        assert done.code == 3
        told = {f["input"]: f["reason"] for f in done.json["failures"]}
        assert set(told) == {f"log.jsonl line {number}" for number in BAD}
        for number, reason in BAD.items():
            assert reason in told[f"log.jsonl line {number}"]
        texts = it.texts()
        assert {"log.jsonl#k1", "log.jsonl#k2", "log.jsonl#7", "log.jsonl#k8"} < set(texts)
        assert len(texts) == 5
        assert texts["log.jsonl#k2"] == "Sloop Heron\u2028left\u2029with\x85the tide ."
        assert it.names() == {"Brig Anemone", "Sloop Heron", "Brig Number", "Sloop Nameless", "Sloop Lark"}
        asked = len(it.server.requests("extract"))

        it.put({"log.jsonl": "\ufeff" + end.join([*LINES[:-1], row(id="k9", text="Sloop Torn went to sea.")])})
        mended = it.index()
        assert mended.json["changes"]["new"] == ["log.jsonl#k9"]
        assert mended.json["changes"]["same"] == 5
        assert len(it.server.requests("extract")) == asked + 1


def test_tables_of_every_make(tmp_path):
    """Delimiters, quotes, line breaks in cells, Excel's first line, byte-order marks, zero bytes and old encodings: one document per row."""
    files: dict[str, str | bytes] = {
        "comma.csv": 'id,text\n1,"Brig Ada, of Tarn"\n2,"Sloop ""Bee"" here\nand Sloop Cid"\n',
        "semicolon.csv": "\ufeffid;text\r\n1;Brig Dora, new\r\n",
        "quoted-head.csv": '"id, or number";"text"\n1;Brig Elba\n',
        "excel.csv": "sep=|\nid|text\n1|Brig Fern\n",
        "tab.tsv": "id\ttext\n1\tBrig Gale\textra\n",
        "mac.csv": "id,text\r1,Brig Hope\r2,Brig Iris\r",
        "zero.csv": b"id,text\n1,Brig\0 Juno\n",
        "old.csv": "id;text\n1;Brig König fährt über die Brücke für das Volk\n".encode("cp1252"),
        "free.csv": "ship,place\nBrig Lena,Tarn\n",
        "list.json": json.dumps([{"id": "a", "text": "Brig Mole"}, 5, {"id": "b", "text": "Brig Nora"}]),
        "one.json": '{"text": "Brig Opal"}',
    }
    with program(tmp_path, files, NAMES) as it:
        done = it.index()
        assert [(f["input"], f["reason"]) for f in done.json["failures"]] == [("list.json record 2", "is a number, not an object")]
        assert {"Brig Ada", "Sloop Cid", "Brig Dora", "Brig Elba", "Brig Fern", "Brig Gale", "Brig Hope", "Brig Iris", "Brig Juno",
                "Brig Lena", "Brig Mole", "Brig Nora", "Brig Opal"} == it.names()  # fmt: skip
        texts = it.texts()
        assert texts["comma.csv#2"] == 'Sloop "Bee" here\nand Sloop Cid'
        assert texts["old.csv#1"] == "Brig König fährt über die Brücke für das Volk"
        assert {place["place"] for place in it.show("entity", "Brig Fern")["sources"]} == {"line 3"}


def test_a_row_that_is_edited_costs_its_own_call(tmp_path):
    """Rows keep their identity by their id: an edit, an insertion and a removal are one document each."""
    before = "id,text\na,Brig Ada lay here\nb,Brig Bee lay here\nc,Brig Cid lay here\n"
    after = "id,text\nz,Brig Zoe lay here\na,Brig Ada lay here\nc,Brig Cid sank here\n"
    with program(tmp_path, {"t.csv": before}, NAMES) as it:
        assert it.index().code == 0
        asked = len(it.server.requests("extract"))
        it.put({"t.csv": after})
        changes = it.index().json["changes"]
        assert (changes["new"], changes["edited"], changes["gone"], changes["same"]) == (["t.csv#z"], ["t.csv#c"], ["t.csv#b"], 1)
        assert len(it.server.requests("extract")) == asked + 2
