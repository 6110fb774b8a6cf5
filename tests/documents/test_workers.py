"""Hostile files cost one failure each, within limits of time, memory and output."""

import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from graphrag_local.documents.parsed import Options, Parsed, ReadProblem
from graphrag_local.documents.stage import read_collection
from graphrag_local.documents.workers import FILES_PER_WORKER, Workers
from graphrag_local.settings import DocumentsSettings
from tests.documents.making import only, pdf, read, reason, sheet_with_far_cell, word, word_with_body

PARAGRAPH = "<w:p><w:r><w:t>x</w:t></w:r></w:p>"


def test_a_parser_that_takes_too_long_is_stopped(tmp_path):
    """A small docx of 1.5 million paragraphs keeps its parser busy; the file fails by the clock, its neighbours are read."""
    (tmp_path / "z.docx").write_bytes(word(["fine"]))
    (tmp_path / "a.docx").write_bytes(word_with_body(PARAGRAPH * 1_500_000))
    documents, failures, _ = read_collection(tmp_path, DocumentsSettings(parse_timeout_s=4))

    assert [d.path for d in documents] == ["z.docx"]
    assert [(f.input, f.reason) for f in failures] == [("a.docx", "kept its parser busy for more than 4 s (documents.parse_timeout_s)")]


def test_a_parser_that_needs_too_much_memory_is_stopped(tmp_path):
    """The memory limit ends the parser, and the reason names the setting."""
    assert "documents.parse_memory_mb" in reason(read(tmp_path, "a.docx", word_with_body(PARAGRAPH * 700_000), parse_memory_mb=400))


def test_text_beyond_the_limit_is_refused(tmp_path):
    """A file that gives more text than the setting allows is not read by half."""
    body = "".join(f"<w:p><w:r><w:t>{'words ' * 1000}</w:t></w:r></w:p>" for _ in range(200))

    assert "documents.max_text_mb" in reason(read(tmp_path, "a.docx", word_with_body(body), max_text_mb=1))
    (tmp_path / "a.docx").unlink()
    assert "documents.max_text_mb" in reason(read(tmp_path, "a.txt", "words " * 200_000, max_text_mb=1))


def test_a_bomb_of_entities_is_refused(tmp_path):
    """Entities that multiply, and those that point to other files, bring nothing into the text."""
    bomb = '<!DOCTYPE b [<!ENTITY a "aaaaaaaaaa">' + "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9)) + "]>"
    assert "docx" in reason(read(tmp_path, "a.docx", word_with_body("<w:p><w:r><w:t>&j;</w:t></w:r></w:p>", prolog=bomb)))
    outside = '<!DOCTYPE b [<!ENTITY x SYSTEM "file:///etc/hostname">]>'
    assert only(read(tmp_path, "a.docx", word_with_body("<w:p><w:r><w:t>safe &x;</w:t></w:r></w:p>", prolog=outside))).text.strip() == "safe"


def test_a_sheet_with_one_far_cell_is_read(tmp_path):
    """A cell in the last row and column costs neither memory nor a million empty lines."""
    assert only(read(tmp_path, "far.xlsx", sheet_with_far_cell(), parse_memory_mb=700)).text == "Near\n\t\tFar"


def test_a_package_that_unpacks_to_too_much_is_refused(tmp_path):
    """The sizes in a zip file are added up before anything is unpacked."""
    with zipfile.ZipFile(tmp_path / "a.epub", "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("huge.xhtml", bytes(300 << 20))

    assert "would unpack to 300 MB" in reason(read(tmp_path, "a.epub", (tmp_path / "a.epub").read_bytes(), parse_memory_mb=512))


def test_html_nested_without_end_is_refused(tmp_path):
    """Tags nested beyond what the parser keeps would lose text silently; the page is refused instead."""
    assert "nests its tags" in reason(read(tmp_path, "a.html", "<div>" * 200_000 + "deep"))


def test_text_files_start_no_process(tmp_path):
    """A folder of plain files, small tables and subtitles is read without any parser process."""
    for name, text in (("a.txt", "x"), ("b.md", "x"), ("c.csv", "text\nx"), ("d.jsonl", '{"text": "x"}'), ("e.json", '{"text": "x"}')):
        (tmp_path / name).write_text(text, encoding="utf-8")
    code = (
        "import subprocess, sys\n"
        "from pathlib import Path\n"
        "from graphrag_local.documents.stage import read_collection\n"
        "from graphrag_local.settings import DocumentsSettings\n"
        "def refuse(*a, **k): raise SystemExit('a process was started')\n"
        "subprocess.Popen = refuse\n"
        "assert len(read_collection(Path(sys.argv[1]), DocumentsSettings())[0]) == 5\n"
        "assert not {'docx', 'pptx', 'openpyxl', 'pypdf', 'lxml'} & set(sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=environment)

    assert done.returncode == 0, done.stderr


def test_one_process_serves_many_files():
    """Files in a row share a process, which is replaced after its quota."""
    with Workers(DocumentsSettings()) as workers:
        for _ in range(FILES_PER_WORKER + 1):
            assert workers.parse("html", "<p>x</p>", Options()).pieces[0].text == "x"

        assert workers.started == 2


def test_a_process_that_dies_is_replaced():
    """A crash is one failure that names the signal; the next file gets a new process."""
    with Workers(DocumentsSettings()) as workers:
        workers.parse("html", "<p>x</p>", Options())
        os.kill(workers._idle[0].process.pid, signal.SIGSEGV)
        with pytest.raises(ReadProblem, match=r"crash \(SIGSEGV\)"):
            workers.parse("html", "<p>x</p>", Options())

        assert workers.parse("html", "<p>y</p>", Options()).pieces[0].text == "y"


def test_an_unexpected_error_of_a_parser_is_told_and_ends_its_process():
    """An exception nobody thought of is the file's reason, and the next file gets a new process."""
    with Workers(DocumentsSettings()) as workers:
        with pytest.raises(ReadProblem, match="made its parser fail"):
            workers.parse("no such kind", "x", Options())
        workers.parse("html", "<p>y</p>", Options())

        assert workers.started == 2


def test_closing_stops_a_parser_at_work():
    """Whoever interrupts a run does not wait for a parser that hangs."""
    workers = Workers(DocumentsSettings())
    outcome: list[str] = []

    def work():
        try:
            workers.parse("docx", word_with_body(PARAGRAPH * 1_500_000), Options())
        except ReadProblem as problem:
            outcome.append(str(problem))

    thread = threading.Thread(target=work)
    thread.start()
    deadline = time.monotonic() + 300
    while not workers._busy and time.monotonic() < deadline:
        time.sleep(0.05)
    workers.close()
    thread.join()

    assert "crash (SIGKILL)" in outcome[0]


def test_a_parser_process_gets_no_secrets_and_no_foreign_modules(tmp_path, monkeypatch):
    """The child gets neither secrets from the environment nor modules from the working directory."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the working directory')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHRAG_LOCAL__ENGINE__API_KEY", "secret")
    with Workers(DocumentsSettings()) as workers:
        assert workers.parse("html", "<p>x</p>", Options()).pieces[0].text == "x"
        shown = Path(f"/proc/{workers._idle[0].process.pid}/environ")
        environment = shown.read_bytes() if shown.exists() else b""

    assert b"secret" not in environment


def test_results_cross_the_pipe_unchanged(tmp_path):
    """What a parser made is the same on this side, places and cuts included."""
    with Workers(DocumentsSettings()) as workers:
        parsed = workers.parse("pdf", pdf(["One", "", "Three"], title="T"), Options())

    assert Parsed.from_json(parsed.to_json()) == parsed
    assert [place.label for place in parsed.pieces[0].places] == ["page 1", "page 3"]
