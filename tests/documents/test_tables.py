"""Records of table files: one document each, found again under their own identity."""

import json

import pytest

from tests.documents.making import only, read, reason

LINES = (
    '{"id": "b1", "title": "Log 1", "text": "The cutter met the barque."}\n'
    "\n   \n"
    '{"id": 4, "text": "Berth 3 is closed.\u2028It opened\u0085again.\\u0001"}\r\n'
    '["not", "an object"]\n'
    '{"id": "b6", "text": null}\n'
    '{"id": "b7", "body": "elsewhere"}\n'
    '{"id": "b1", "text": "The same id."}\n'
    '{"id": "b9", "text": "  "}\n'
    '{"id": "b10", "text": "cut o'
)


def test_json_lines_are_documents_and_bad_ones_are_told(tmp_path):
    """Lines end at LF only, blank ones mean nothing, and every bad one is reported by its physical number with its reason."""
    result = read(tmp_path, "log.jsonl", LINES)

    assert [(d.path, d.title, d.text) for d in result.documents] == [
        ("log.jsonl#b1", "Log 1", "The cutter met the barque."),
        ("log.jsonl#4", "log 4", "Berth 3 is closed.\u2028It opened\u0085again."),
    ]
    assert [d.places[0].label for d in result.documents] == ["line 1", "line 4"]
    assert [(f.input, f.reason) for f in result.failures] == [
        ("log.jsonl line 5", "is a list, not an object"),
        ("log.jsonl line 6", "has null in field 'text', not a text"),
        ("log.jsonl line 7", "has no field 'text' (documents.text_field)"),
        ("log.jsonl line 8", "has the same id 'b1' as line 1"),
        ("log.jsonl line 9", "has no text"),
        ("log.jsonl line 10", "is not valid JSON (Unterminated string starting at column 23)"),
    ]


def test_records_without_an_id_are_known_by_their_content(tmp_path):
    """A record without an id keeps its identity wherever it moves in its file; equal ones are counted."""
    one, two = '{"text": "One."}\n', '{"text": "Two."}\n'
    before = {d.text: d.path for d in read(tmp_path, "a.jsonl", one + two).documents}
    after = read(tmp_path, "a.jsonl", two + one + one).documents

    assert [d.path for d in after] == [before["Two."], before["One."], f"{before['One.']}-2"]
    assert len({d.id for d in after}) == 3
    assert len({d.file_hash for d in after}) == 1


def test_a_half_of_a_character_in_json_is_stored_as_a_replacement(tmp_path):
    """A lone surrogate escape, legal in JSON, cannot be stored and becomes U+FFFD."""
    assert only(read(tmp_path, "a.jsonl", '{"id": "\\ud83e", "text": "Crab \\ud83e\\udd80 and \\ud83e."}')).text == "Crab 🦀 and \ufffd."


def test_a_json_file_is_an_array_of_records_or_one(tmp_path):
    """Records of an array are named by their number when they are bad; a single object keeps the plain path."""
    result = read(tmp_path, "a.json", json.dumps([{"id": "x", "text": "One."}, {"no": 1}]))

    assert [d.path for d in result.documents] == ["a.json#x"]
    assert [(f.input, f.reason) for f in result.failures] == [("a.json record 2", "has no field 'text' (documents.text_field)")]
    assert only(read(tmp_path, "a.json", '{"id": "x", "text": "One."}')).path == "a.json"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"text": "x", "n": ' + "9" * 5000 + "}", "too long"),
        ('{"text": "x"', "line 1, column 13"),
        ("3", "a number"),
        ('{"text": 3}', "a number in field 'text'"),
    ],
)
def test_unusable_json_is_refused_in_plain_words(tmp_path, content, said):
    """Damage, depth, huge numbers and missing texts are reasons, not crashes."""
    assert said in reason(read(tmp_path, "a.json", content))


def test_a_table_with_a_text_column_gives_its_texts(tmp_path):
    """A csv row is a document: its text, title and id come from the columns that the settings name."""
    rows = 'key,head,body\n7,Weir,"Ann ""opened"" it,\r\nthen left."\n\n8,,\n9,Mill\n'
    result = read(tmp_path, "a.csv", rows, text_field="body", id_field="key", title_field="head")

    assert [(d.path, d.title, d.text) for d in result.documents] == [("a.csv#7", "Weir", 'Ann "opened" it,\nthen left.')]
    assert [(f.input, f.reason) for f in result.failures] == [("a.csv line 5", "has no text"), ("a.csv line 6", "has no text")]


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ","), ("a.csv", ";"), ("a.csv", "\t"), ("a.tsv", "\t")])
def test_a_table_without_a_text_column_gives_its_fields(tmp_path, name, mark):
    """Rows become `field: value` lines; empty fields are left out, cells beyond the header are numbered."""
    result = read(tmp_path, name, mark.join(["\ufeffName", "Year", "Note"]) + "\n" + mark.join(["Pike", "1802", "", "old"]) + "\n")

    assert only(result).text == "Name: Pike\nYear: 1802\ncolumn 4: old"
    assert only(result).places[0].label == "line 2"


def test_a_table_in_an_old_encoding_is_read_or_refused_by_name(tmp_path):
    """A short table of Japanese names in Shift-JIS comes out right."""
    result = read(tmp_path, "a.csv", "氏名,所属\n山本健一,整備課\n小林洋子,経理課\n".encode("cp932"))

    assert [d.text for d in result.documents] == ["氏名: 山本健一\n所属: 整備課", "氏名: 小林洋子\n所属: 経理課"]
    assert {d.encoding for d in result.documents} == {"cp932"}


def test_a_lone_quote_inside_a_cell_is_text(tmp_path):
    """The sign for inches joins no rows, and is no failure."""
    result = read(tmp_path, "a.csv", 'id,text\n1,A disk of 3.5" fits.\n2,fine\n')

    assert [d.text for d in result.documents] == ['A disk of 3.5" fits.', "fine"]
    assert result.failures == ()


def test_a_quote_that_is_never_closed_is_told(tmp_path):
    """Rows swallowed by an open quote do not vanish silently."""
    result = read(tmp_path, "a.csv", 'id,text\n1,fine\n2,"open\n3,lost\n')

    assert [d.text for d in result.documents] == ["fine", "open\n3,lost\n"]
    assert ["quote that is not closed" in f.reason for f in result.failures] == [True]


def test_a_small_table_cannot_become_an_endless_text(tmp_path):
    """A long header repeated in every row counts against documents.max_text_mb before it is written out."""
    rows = "x" * 300_000 + ",b\n" + "1,2\n" * 50_000

    assert "documents.max_text_mb" in reason(read(tmp_path, "a.csv", rows, max_text_mb=2))


def test_a_large_table_is_parsed_apart_with_the_same_result(tmp_path):
    """A table over 1 MB goes through a parser process and gives the same documents."""
    lines = "".join(f'{{"id": {n}, "text": "Row {n} {"x" * 200}"}}\n' for n in range(6000))
    result = read(tmp_path, "big.jsonl", lines)

    assert result.failures == ()
    assert [d.path for d in result.documents[:2]] == ["big.jsonl#0", "big.jsonl#1"]
    assert result.documents[5999].places[0].label == "line 6000"
