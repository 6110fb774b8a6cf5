"""Files as people really have them, through the whole program: line ends, equal names, odd names, and everything that cannot be read."""

import contextlib
import io
import os
import shutil
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from graphrag_local.records import Chunk, Document
from tests.cases.program import Program, program
from tests.documents.making import pdf

PEOPLE = {"fixture_pattern": {"entities": ["Tova Sand|Emil Rask|Ruth Holm", "Kvarnby|Lindö"], "types": ["person", "geo"], "relate": "chain"}}
RULES = "The lock keeper is Tova Sand.\n\nShe opens the lock at Kvarnby at six in the morning, and in\nwinter at eight.\n\nEmil Rask has the second key.\n"
NOTE = f"---\ntitle: Lock rules\nauthor: Ruth Holm\n---\n\n{RULES}"


def ended(text: str, end: str) -> bytes:
    """The text with these line ends."""
    return text.replace("\n", end).encode()


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_change_nothing_but_the_bytes(tmp_path, end):
    """A collection saved with other line ends costs no call and keeps ids, texts, chunks, titles and line numbers."""
    files = {"rules.md": NOTE, "plain.txt": RULES, "page.html": f"<title>Lock</title><p>{RULES}", "log.csv": "id,text\n1,Tova Sand came.\n2,Emil Rask left.\n"}
    with program(tmp_path, files, PEOPLE) as it:
        assert it.index().code == 0
        before = it.texts(), [(c.id, c.start, c.end) for c in it.records(Chunk)], {d.path: (d.id, d.title) for d in it.records(Document)}
        asked = len(it.server.requests("extract"))
        assert before[2]["rules.md"][1] == "Lock rules"
        assert not any("Ruth Holm" in text for text in before[0].values())

        it.make_input({name: ended(text, end) for name, text in files.items()})
        again = it.index()

        assert (again.code, len(it.server.requests("extract")), again.json["last_build"]["calls"]) == (0, asked, 0)
        assert (it.texts(), [(c.id, c.start, c.end) for c in it.records(Chunk)], {d.path: (d.id, d.title) for d in it.records(Document)}) == before
        assert again.json["changes"]["same"] == 5
        assert not any("\r" in message["content"] for record in it.server.requests("extract") for message in record.body["messages"])
        (place,) = {s["place"] for s in it.show("entity", "Emil Rask")["sources"] if s["document"] == "rules.md"}
        assert (it.input / "rules.md").read_text().split("\n")[int(place.removeprefix("line ")) - 1] == "Emil Rask has the second key."


def test_quotes_open_at_the_line_of_the_file(tmp_path):
    """The place of a citation is the line in the file, also behind front matter; text that has no lines in its file names none."""
    with program(tmp_path, {"a.md": NOTE, "b.html": f"<p>x</p>\n\n\n<p>{RULES}</p>"}, PEOPLE) as it:
        assert it.index().code == 0
        answer = it.query("Who has the second key, Emil Rask?", "--mode=basic")
        sources = [source for citation in answer["citations"] for source in citation["sources"]]
        assert sources
        for source in sources:
            quoted = source["quote"].splitlines()[0]
            lines = (it.input / source["document"]).read_text().split("\n")
            assert source["place"] == ("" if source["document"] == "b.html" else f"line {lines.index(quoted) + 1}")


def test_equal_names_in_different_folders_stay_apart(tmp_path):
    """Files of one name are documents with paths that tell them apart; each is found, shown and taken away by its own path."""
    files = {"readme.md": "Tova Sand wrote this.", "a/readme.md": "Emil Rask wrote this.", "a/b/README.md": "Ruth Holm wrote this.", "a/readme.txt": "Lindö."}
    with program(tmp_path, files, PEOPLE) as it:
        assert it.index().code == 0
        assert sorted(d["path"] for d in it.status()["documents"]) == sorted(files)
        assert it.show("document", "readme.md")["entities"] == ["Tova Sand"]
        assert it.show("document", "./a//readme.md")["path"] == "a/readme.md"
        assert {s["document"] for s in it.show("entity", "Emil Rask")["sources"]} == {"a/readme.md"}
        unclear = it.run("show", "document", "readme")
        assert unclear.code == 2
        assert "a/readme.md" in unclear.err

        (it.input / "a/readme.md").unlink()
        gone = it.index()
        assert gone.json["changes"]["gone"] == ["a/readme.md"]
        assert it.names() == {"Tova Sand", "Ruth Holm", "Lindö"}


def test_the_same_text_twice_is_two_documents_and_one_call(tmp_path):
    """Copies under other names and a link to a file that is there anyway: each file is a document, the text is asked about once."""
    with program(tmp_path, {"a.txt": RULES, "b.txt": RULES, "c/a.txt": ended(RULES, "\r\n")}, PEOPLE) as it:
        (it.input / "link.txt").symlink_to("a.txt")
        assert it.index().code == 0
        assert sorted(it.texts()) == ["a.txt", "b.txt", "c/a.txt"]
        assert len(it.server.requests("extract")) == 1
        assert it.show("entity", "Tova Sand")["mentions"] == 3


def test_file_names_of_every_kind(tmp_path):
    """Names in any script with marks and signs are paths like others; those that cannot be written down are told and cost nobody else."""
    good = ["smile 🙂.txt", "‏ملاحظة.txt", "记录.txt", "a#1.txt", "[1].txt", "50%.txt", 'it\'s "x".txt', "-n.txt", "CON.txt", "noextension", "z\u200bw.txt"]
    with program(tmp_path, dict.fromkeys(good, "Tova Sand was here."), PEOPLE) as it:
        for name in (b"two\nlines.txt", b"latin-\xe9.txt", "I\u0301sa.txt".encode(), "Ísa.txt".encode()):
            Path(os.fsdecode(os.fsencode(it.input) + b"/" + name)).write_text("Emil Rask was here.")
        done = it.index()
        assert done.code == 3
        assert sorted(it.texts()) == sorted([*good, "Ísa.txt"])
        reasons = {f["input"]: f["reason"] for f in done.json["failures"]}
        assert {"two\\nlines.txt", "latin-\\xe9.txt", "I\\u0301sa.txt"} == set(reasons)
        assert all("rename" in reason for reason in reasons.values())
        for name in good:
            assert it.run("show", "document", "--json", "--", name).code in (0, 2)
        assert it.run("status").code == 0


def _docx(parts: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in parts.items():
            package.writestr(name, content)
    return out.getvalue()


BAD: dict[str, tuple[bytes, str]] = {
    "empty.txt": (b"", "is empty"),
    "blank.md": (b" \n\t\n", "holds no text"),
    "mark.txt": (b"\xef\xbb\xbf", "holds no text"),
    "zeros.txt": (b"\0" * 400, "is not text"),
    "picture.txt": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "is not text"),
    "noise.txt": (bytes((n * 7919 >> 3) & 255 for n in range(3000)), "is not text"),
    "unsure.txt": (b"x \xa4\xb1 y\n", "documents.encoding"),
    "scan.pdf": (pdf(["", ""]), "no text layer"),
    "torn.pdf": (b"%PDF-1.4\n1 0 obj <<", "is not a readable PDF"),
    "letter.docx": (b"just words", "is not a readable docx"),
    "sheet.xlsx": (b"PK\x03\x04 and no more", "is not a readable xlsx"),
    "bomb.docx": (_docx({"[Content_Types].xml": b"<a/>", "word/document.xml": b" " * 150_000_000}), "bomb"),
    "old.doc": (b"\xd0\xcf\x11\xe0" + b"x" * 600, "save it as docx"),
    "all.zip": (_docx({"a.txt": b"Tova Sand"}), "is not a text format"),
    "deep.json": (b"[" * 50_000 + b"]" * 50_000, "nested too deeply"),
    "torn.json": (b'{"text": "Tova', "is not valid JSON"),
    "deep.html": (b"<div>" * 3000 + b"Tova Sand", "nests its tags"),
    "script.html": (b"<script>var keeper = 'Tova Sand'</script>", "holds no text"),
    "huge.txt": (b"Tova Sand went on. " * 2_700_000, "documents.max_file_mb"),
}  # fmt: skip


def test_every_kind_of_bad_file_is_told_and_the_rest_is_indexed(tmp_path):
    """What is empty, binary, torn, too deep, too large, packed too tight or no regular file is named with its reason; the run ends with code 3."""
    with contextlib.ExitStack() as stack:
        it = stack.enter_context(program(tmp_path, {"good.txt": RULES, **{k: v for k, (v, _) in BAD.items()}}, PEOPLE, documents__parse_memory_mb=200))
        os.mkfifo(it.input / "pipe.txt")
        (it.input / "outside").symlink_to("/etc")
        (it.input / "passwd.txt").symlink_to("/etc/passwd")
        (it.input / "me").symlink_to("me")
        (it.input / "below").mkdir()
        (it.input / "below" / "up").symlink_to("..")
        stack.enter_context(socket.socket(socket.AF_UNIX)).bind(str(it.input / "s"))

        done = it.index()

        assert done.code == 3
        assert sorted(it.texts()) == ["good.txt"]
        reasons = {f["input"]: f["reason"] for f in done.json["failures"]}
        expected = {name: said for name, (_, said) in BAD.items() if name != "bomb.docx"}
        links = {"pipe.txt": "is a pipe", "outside": "leads out of", "passwd.txt": "leads out of", "me": "leads nowhere", "s": "is a socket"}
        for name, said in (expected | links).items():
            assert said in reasons[name], name
        assert set(reasons) == {*BAD, *links}
        assert {record.purpose for record in it.server.log if "went on" in str(record.body)} == set()
        shown = it.run("index")
        assert "documents.exclude" in shown.out
        assert "failures" in shown.said


@pytest.mark.parametrize("files", [{}, {"a.txt": b"", "b.png": b"\x89PNG"}])
def test_nothing_to_index_is_an_error_with_advice(tmp_path, files):
    """An empty folder, or one without a readable file, fails with code 1, says so, names what was there, and makes no index."""
    with program(tmp_path, files, PEOPLE) as it:
        done = it.index()
        assert done.code == 1
        assert "no document to index" in done.err
        assert all(name in done.err for name in files)
        assert it.status()["generation"] == ""


def test_a_file_of_fifty_megabytes_is_refused_without_being_read(tmp_path):
    """A file over documents.max_file_mb is a row with its size and the setting; with a higher limit it would be read."""
    with program(tmp_path, {"small.txt": RULES, "big.txt": b"x" * 50_000_000}, PEOPLE) as it:
        done = it.index()
        assert done.code == 3
        assert [f["reason"] for f in done.json["failures"]] == ["is 47.7 MB large, over the 32 MB of documents.max_file_mb"]


def test_lines_without_end_and_words_without_end(tmp_path):
    """One line of a megabyte, a word of 30,000 letters and Chinese without a single stop are cut into chunks that lose no character."""
    files = {"line.txt": "Tova Sand met Emil Rask and went to Lindö again and " * 800, "word.txt": "x" * 30_000 + " Ruth Holm", "han.txt": "灯塔水" * 4000}
    with program(tmp_path, files, PEOPLE) as it:
        assert it.index().code == 0
        for document in it.records(Document):
            spans = sorted((c.start, c.end) for c in it.records(Chunk) if c.document_id == document.id)
            kept = "".join(document.text[start:end] for start, end in spans)
            assert "".join(kept.split()) == "".join(document.text.split())
        assert {"Tova Sand", "Ruth Holm"} <= it.names()


def _unreadable(it: Program) -> None:
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("no file is unreadable for root, and there is no setpriv to give that up")
        it.under = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search")
    (it.input / "b.txt").chmod(0)
    (it.input / "shut").chmod(0)


def _dangling(it: Program) -> None:
    for name in ("b.txt", "shut/c.txt"):
        (it.input / name).unlink()
        (it.input / name).symlink_to("/nowhere/at all")


def _noise(it: Program) -> None:
    it.put({name: bytes((n * 7919 >> 3) & 255 for n in range(3000)) for name in ("b.txt", "shut/c.txt")})


def _emptied(it: Program) -> None:
    it.put({"b.txt": b"", "shut/c.txt": b""})


@pytest.mark.parametrize("spoil", [_unreadable, _dangling, _noise, _emptied])
def test_what_cannot_be_read_any_more_is_kept(tmp_path, spoil: Callable[[Program], None]):
    """A file that is there but cannot be read now keeps what was indexed of it, says so, and costs nothing when it is well again."""
    files = {"a.txt": "Tova Sand of Kvarnby.", "b.txt": "Emil Rask came.", "shut/c.txt": "Ruth Holm went."}
    with program(tmp_path, files, PEOPLE) as it:
        first = it.index()
        assert first.code == 0
        spoil(it)
        second = it.index()
        it.under = ()
        (it.input / "shut").chmod(0o755)
        assert second.code == 3
        assert second.json["counts"] | {"failures": 0} == first.json["counts"]
        assert second.json["changes"]["kept"] == ["b.txt", "shut/c.txt"]
        assert all("is kept" in f["reason"] for f in second.json["failures"])
        assert it.names() == {"Tova Sand", "Emil Rask", "Ruth Holm", "Kvarnby"}
        it.make_input(files)
        third = it.index()
        assert (third.code, third.json["digest"], third.json["last_build"]["calls"]) == (0, first.json["digest"], 0)
