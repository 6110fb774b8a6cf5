"""The scan finds a string wherever an index folder holds it, and says so of what it cannot read."""

import asyncio
import bz2
import gzip
import io
import json
import lzma
import os
import random
import re
import shutil
import sqlite3
import zipfile
from contextlib import closing

import lancedb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrag_local.store.files import files_under
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.needles import Needles, forms
from graphrag_local.store.scan import Found, scan, scan_around
from tests.clock import effort_of
from tests.store.publishing import put
from tests.store.tools import reply, small

PLANTED = "the Quillharrow tithe barn"
WORDS = "the mill of Vesna stands by the water and was let in spring to a farmer whose sons kept it well".split()
STATES = random.Random(4)


def prose(words: int = 300) -> str:
    """Some text of ordinary words."""
    return " ".join(STATES.choices(WORDS, k=words))


def table_in(folder, texts, name="chunks"):
    """A table of another kind than ours, with the texts in a column, and pieces of them in lists of records."""
    nested = [[{"piece": text[:30], "weight": 0.5}, {"piece": text[-30:], "weight": 1.0}] for text in texts]
    rows = pa.table({"id": [str(n) for n in range(len(texts))], "text": pa.array(texts, pa.large_string()), "more": nested})
    return lancedb.connect(folder).create_table(name, rows)


def in_bytes(folder, text: str) -> bool:
    """Whether a plain search of all bytes below a folder finds a text."""
    return any(text.encode() in (folder / path).read_bytes() for path in files_under(folder))


# --- files


def test_a_file_itself_is_searched(tmp_path):
    """A path that is a file is searched as one in a folder is."""
    (tmp_path / "notes.txt").write_text(PLANTED)
    assert scan(tmp_path / "notes.txt", [PLANTED]) == [Found(file="notes.txt", place="byte 0", string=PLANTED)]


def test_around_an_index_some_things_are_left_aside(tmp_path):
    """Outside an index hidden folders, models, virtual environments and all after so many bytes, packed ones included, are named and not read."""
    for name in (".git/x", "models/x", "deep/venv/x", "index/x", "input/x", "deep/models/x", "deep/.note"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(PLANTED)
    (tmp_path / "deep" / "venv" / "pyvenv.cfg").write_text("")
    (tmp_path / "deep" / "again").symlink_to(tmp_path)
    but = (tmp_path / "index", tmp_path / "input")
    found, skipped = scan_around(tmp_path, [PLANTED], but=but)
    assert [one.file for one in found] == ["deep/.note", "deep/models/x"]
    assert skipped == [".git/", "deep/venv/", "models/"]

    (tmp_path / "e.gz").write_bytes(gzip.compress(b"0" * 9_000_000))
    (tmp_path / "f.txt").write_text(PLANTED)
    found, skipped = scan_around(tmp_path, [PLANTED], but=but, enough=1_000_000)
    assert [one.file for one in found] == ["deep/.note", "deep/models/x"]
    assert skipped[-1] == "e.gz from where 1,000,000 bytes were read, and what comes after it"


def test_a_plain_file_and_a_file_name_are_searched(tmp_path):
    """A string in a file, at its byte, and one in the name of a file or folder is found; what is not there is not."""
    (tmp_path / "deep" / "Quillharrow").mkdir(parents=True)
    (tmp_path / "deep" / "run.log").write_text(f"{'x' * 70}{PLANTED}, said 李明")
    assert scan(tmp_path, [PLANTED, "Quillharrow", "李明", "Quillharrow tithe barns"]) == [
        Found(file="deep/Quillharrow", place="", string="Quillharrow"),
        Found(file="deep/run.log", place="byte 103", string="李明"),
        Found(file="deep/run.log", place="byte 70", string=PLANTED),
        Found(file="deep/run.log", place="byte 74", string="Quillharrow"),
    ]
    assert scan(tmp_path, []) == scan(tmp_path, ["nothing like it"]) == []
    assert scan(tmp_path / "missing", [PLANTED]) == []


STRING = 'Zoë said "no\\yes"\nto 李明 \U0001f33e'


@pytest.mark.parametrize(
    "content",
    [
        STRING.encode(),
        STRING.encode("utf-16"),
        json.dumps([STRING]).encode(),
        json.dumps([STRING], ensure_ascii=False).encode(),
        json.dumps([json.dumps(STRING)]).encode(),
        re.sub(r"(?<=u)[0-9a-f]{4}", lambda match: match.group().upper(), json.dumps([STRING])).encode(),
        STRING.replace("ë", "e\u0308").encode(),
        b"x" * ((1 << 20) - 9) + STRING.encode() + b"y" * 99,
    ],
)
def test_a_string_is_found_in_every_form(tmp_path, content):
    """Encoded otherwise, escaped as JSON once or twice, decomposed, or across the border of two pieces: it is found."""
    (tmp_path / "file").write_bytes(b"before " + content + b" after")
    assert [found.string for found in scan(tmp_path, [STRING])] == [STRING]
    assert scan(tmp_path, [STRING + "!", "Z" + STRING]) == []


def packed(kind: str, content: bytes) -> bytes:
    """Content in an archive of this kind."""
    match kind:
        case "zip":
            with zipfile.ZipFile(archive := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as file:
                file.writestr("inner.txt", content)
            return archive.getvalue()
        case "zstd":
            return pa.compress(content, codec="zstd", asbytes=True)
    return {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}[kind](content)


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz", "zip", "zstd"])
def test_archives_are_unpacked(tmp_path, kind):
    """A string is found in a packed file, and in one packed twice, whatever its name; an archive that is broken is reported."""
    content = (prose(4000) + PLANTED + prose(4000)).encode()
    (tmp_path / "once").write_bytes(packed(kind, content))
    (tmp_path / "twice").write_bytes(packed("gzip", packed(kind, content)))
    assert not in_bytes(tmp_path, PLANTED)
    found = scan(tmp_path, [PLANTED])
    assert [(one.file, one.string) for one in found] == [("once", PLANTED), ("twice", PLANTED)]
    assert all("unpacked" in one.place for one in found)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-150])
    assert {one.file for one in scan(tmp_path, [PLANTED]) if one.string == "" and "cannot be unpacked" in one.place} == {"once", "twice"}


# --- tables


def test_compressed_columns_are_decoded(tmp_path):
    """What stands in a column of a table, or deep in a list of records, is found, with version, column and row, where a search of bytes misses it."""
    texts = [prose() for _ in range(300)]
    texts[50] += f" {PLANTED} of 1874"
    texts[60] = f"Zoë was at {PLANTED}" + texts[60]
    table_in(tmp_path / "generations" / "one", texts)
    assert not in_bytes(tmp_path, PLANTED)
    found = scan(tmp_path, [PLANTED, "barn of 1874", "Zoë was"])
    assert [one for one in found if "column" in one.place] == [
        Found(file="generations/one/chunks.lance", place="version 1, column more.piece, row 50", string="barn of 1874"),
        Found(file="generations/one/chunks.lance", place="version 1, column more.piece, row 60", string="Zoë was"),
        Found(file="generations/one/chunks.lance", place="version 1, column text, row 50", string="barn of 1874"),
        Found(file="generations/one/chunks.lance", place="version 1, column text, row 50", string=PLANTED),
        Found(file="generations/one/chunks.lance", place="version 1, column text, row 60", string="Zoë was"),
    ]


def test_old_versions_of_a_table_are_decoded(tmp_path):
    """A row that was deleted is found in the version that has it; when that version is gone but its file is not, the table is reported as unread."""
    texts = [prose() for _ in range(200)] + [f"{prose()} {PLANTED} {prose()}"]
    table = table_in(tmp_path, texts)
    table.delete("id = '200'")
    assert [(one.place, one.string) for one in scan(tmp_path, [PLANTED])] == [("version 1, column text, row 200", PLANTED)]
    (tmp_path / "chunks.lance" / "_versions" / "18446744073709551614.manifest").unlink()
    (one,) = scan(tmp_path, [PLANTED])
    assert (one.file, one.string) == ("chunks.lance", "")
    assert "older versions were removed" in one.place


def test_files_that_no_version_names_are_reported(tmp_path):
    """What a killed build left in a table's folder cannot be decoded: that is said."""
    table_in(tmp_path, [prose()])
    data = next((tmp_path / "chunks.lance" / "data").iterdir())
    shutil.copyfile(data, data.with_name("left.lance"))
    (one,) = scan(tmp_path, [PLANTED])
    assert one == Found(file="chunks.lance", place="cannot be decoded: data/left.lance belongs to no version of the table", string="")


def test_a_damaged_table_is_reported(tmp_path):
    """A table that cannot be read counts as found, since nothing is known of it; the others are searched all the same."""
    table_in(tmp_path, [prose()] * 50, "bad")
    table_in(tmp_path, [prose(), f"{prose()} {PLANTED}"], "good")
    path = next((tmp_path / "bad.lance" / "data").iterdir())
    path.write_bytes(b"\0" * path.stat().st_size)
    found = scan(tmp_path, [PLANTED])
    assert {(one.file, one.string) for one in found} >= {("bad.lance", ""), ("good.lance", PLANTED)}


def test_a_published_index_is_searched_whole_and_left_as_it_is(tmp_path):
    """Every generation is searched, files that two of them share too, under each name; nothing is written."""
    index = tmp_path / "index"
    put(index, small(0))
    put(index, small(7))
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in index.rglob("*")}
    found = scan(index, ["edition 7", "Vesna Oster"])
    first, second = sorted(path.name for path in (index / "generations").iterdir())
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in index.rglob("*")} == before
    assert not [one for one in found if not one.string]
    assert {one.file.split("/")[1] for one in found if one.string == "edition 7"} == {second}
    decoded = {(one.file.split("/")[1], one.file.split("/")[2]) for one in found if "column" in one.place}
    tables = {f"{name}.lance" for name in ("chunks", "documents", "mentions", "entities")}
    assert decoded >= {(generation, table) for generation in (first, second) for table in tables}


# --- databases


def test_rows_log_and_free_pages_of_a_database_are_searched(tmp_path):
    """A text of the ledger is found in its row, in the log of a process that was killed, and in a page that was given up without overwriting."""
    index = tmp_path / "index"
    long = " ".join(f"{n} {PLANTED}" for n in range(400))
    with Ledger.open(index / "ledger.sqlite") as ledger:
        asyncio.run(ledger.put(reply(1, text=prose())))
        asyncio.run(ledger.put(reply(2, text=prose(900) + "the last of Quillharrow")))
        ledger.drop_vectors([])
    found = scan(index, ["the last of Quillharrow"])
    assert Found(file="ledger.sqlite", place="table replies, column text, row 1", string="the last of Quillharrow") in found

    with closing(sqlite3.connect(index / "ledger.sqlite", isolation_level=None)) as other:
        other.execute("PRAGMA secure_delete = OFF")
        other.execute("UPDATE replies SET text = ? WHERE text LIKE '%last of Q%'", (long,))
        copy = tmp_path / "copy"
        shutil.copytree(index, copy)
        other.execute("DELETE FROM replies WHERE text = ?", (long,))
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert {(one.file, one.place.split()[0]) for one in scan(copy, [PLANTED])} >= {("ledger.sqlite-wal", "byte"), ("ledger.sqlite", "table")}
    assert {(one.file, one.place.split()[0]) for one in scan(index, [PLANTED])} == {("ledger.sqlite", "byte")}
    assert sorted(path.name for path in index.iterdir()) == ["ledger.sqlite"]


def test_a_text_in_pieces_on_several_pages_is_found(tmp_path):
    """Where the border of two pages cuts the string the bytes do not have it: the row does, in a table of whatever name."""
    path = tmp_path / "any"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute('CREATE TABLE "odd ""name" (number, text)')
        database.execute("PRAGMA synchronous = OFF")
        for length in range(4000, 4200, 20):
            database.execute('DELETE FROM "odd ""name"')
            database.execute('INSERT INTO "odd ""name" VALUES (1, ?)', ("x" * 5000 + PLANTED + "y" * length,))
            if PLANTED.encode() not in path.read_bytes():
                break
    assert PLANTED.encode() not in path.read_bytes()
    assert scan(tmp_path, [PLANTED]) == [Found(file="any", place='table odd "name, column text, row 0', string=PLANTED)]


def test_a_damaged_database_is_reported(tmp_path):
    """A database that cannot be read counts as found."""
    (tmp_path / "ledger.sqlite").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    (one,) = scan(tmp_path, [PLANTED])
    assert (one.file, one.string, one.place[:17]) == ("ledger.sqlite", "", "cannot be decoded")


def test_an_open_ledger_is_refused(tmp_path):
    """Reading the file of a ledger that this process has open would take its locks away: that is refused."""
    with Ledger.open(tmp_path / "ledger.sqlite"), pytest.raises(ValueError, match="open in this process"):
        scan(tmp_path, [PLANTED])
    assert scan(tmp_path, [PLANTED]) == []


# --- the search itself


@given(
    data=st.binary(max_size=300),
    patterns=st.lists(st.binary(min_size=1, max_size=20), max_size=8),
    planted=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 300)), max_size=4),
)
@settings(max_examples=150, deadline=None)
def test_needles_find_what_find_finds(data, patterns, planted):
    """For any bytes and any patterns the first places are those that a search for each by itself gives."""
    for which, at in planted:
        if patterns:
            data = data[:at] + patterns[which % len(patterns)] + data[at:]
    needles = Needles({pattern: pattern.hex() for pattern in patterns})
    assert needles.first(data) == {pattern.hex(): data.find(pattern) for pattern in patterns if pattern in data}
    assert needles.first(memoryview(data).cast("b")) == needles.first(data)


def test_an_empty_string_is_refused():
    """A string without characters is everywhere, so that looking for it is a mistake."""
    with pytest.raises(ValueError, match="everywhere"):
        Needles.of([""])
    assert forms("plain") == {b"plain", "plain".encode("utf-16-le")}


def test_scanning_is_quick(tmp_path):
    """30 MB with 200 strings take well under three seconds of processor time (measured 0.4 s)."""
    (tmp_path / "random").write_bytes(os.urandom(15 << 20))
    (tmp_path / "text").write_text((prose(20_000) * 200)[: 15 << 20])
    strings = [f"{prose(6)} Q{n}" for n in range(200)]
    found, seconds = effort_of(lambda: scan(tmp_path, strings))
    assert found == []
    assert seconds < 3
