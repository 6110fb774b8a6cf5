"""The whole stage over a mixed folder."""

import os
import random
import time

from graphrag_local.documents.stage import read_collection
from graphrag_local.records import Document
from graphrag_local.settings import DocumentsSettings
from tests.documents.making import pdf, slides, word


class Watched:
    """A progress that remembers what it was told."""

    def __init__(self):
        self.total = self.done = self.failed = 0

    def begin(self, stage, total):
        """The number of files."""
        self.total = total

    def advance(self, stage, *, done=0, failed=0, more=0):
        """Files that ended."""
        self.done += done
        self.failed += failed

    def say(self, text):
        """Nothing is said."""


def fill(folder):
    """A folder as people have it."""
    (folder / "a.txt").write_text("Ann met Bo.\n", encoding="utf-8")
    (folder / "b.pdf").write_bytes(pdf(["Page"]))
    (folder / "c.docx").write_bytes(word(["Word"]))
    (folder / "d.pptx").write_bytes(slides([("Slide", "x", "")]))
    (folder / "e.jsonl").write_text('{"id": "1", "text": "One."}\nbad\n', encoding="utf-8")
    (folder / "f.txt").write_bytes(random.Random(7).randbytes(1500))
    (folder / "g.html").write_text("<p>Page</p>", encoding="utf-8")
    (folder / "h.txt").write_text("", encoding="utf-8")


def test_a_mixed_folder_is_read_in_order(tmp_path):
    """Bad files stop nobody: documents come in order of their paths, failures too, and progress counts files."""
    fill(tmp_path)
    watched = Watched()
    documents, failures, present = read_collection(tmp_path, DocumentsSettings(), progress=watched)

    assert [d.path for d in documents] == ["a.txt", "b.pdf", "c.docx", "d.pptx", "e.jsonl#1", "g.html"]
    assert [f.input for f in failures] == ["e.jsonl line 2", "f.txt", "h.txt"]
    assert present == ("a.txt", "b.pdf", "c.docx", "d.pptx", "e.jsonl", "f.txt", "g.html", "h.txt")
    assert (watched.total, watched.done, watched.failed) == (8, 6, 2)
    assert all(isinstance(document, Document) and document.content_hash and document.file_hash for document in documents)


def test_reading_twice_gives_the_same(tmp_path):
    """The result depends on nothing but the files: not on processes, threads or times."""
    fill(tmp_path)
    first = read_collection(tmp_path, DocumentsSettings())
    os.utime(tmp_path / "a.txt", (1, 1))

    assert read_collection(tmp_path, DocumentsSettings()) == first


def test_line_ends_do_not_change_a_document(tmp_path):
    """A file rewritten with CRLF keeps its id and its content hash; only the hash of its bytes changes."""
    (tmp_path / "a.md").write_bytes(b"# Weir\n\nNo nets.\n")
    (before,), _, _ = read_collection(tmp_path, DocumentsSettings())
    (tmp_path / "a.md").write_bytes(b"# Weir\r\n\r\nNo nets.\r\n")
    (after,), _, _ = read_collection(tmp_path, DocumentsSettings())

    assert (after.id, after.text, after.content_hash) == (before.id, before.text, before.content_hash)
    assert after.file_hash != before.file_hash


def test_a_file_named_like_a_record_is_told(tmp_path):
    """Of a record and a file with the same path the first stays and the other is reported."""
    (tmp_path / "a.csv").write_text("id,text\n7,Record.\n", encoding="utf-8")
    (tmp_path / "a.csv#7").write_text("File.", encoding="utf-8")
    documents, failures, _ = read_collection(tmp_path, DocumentsSettings())

    assert [(d.path, d.text) for d in documents] == [("a.csv#7", "Record.")]
    assert [f.reason for f in failures] == ["has the path of another document; rename the file"]


def test_many_small_files_are_cheap(tmp_path):
    """Two thousand notes take well under a millisecond of processor time each."""
    for number in range(2000):
        (tmp_path / f"{number:05}.txt").write_text(f"Note {number}.\n\nThe weir at Pike was opened by Ann Lind.\n" * 5, encoding="utf-8")
    begin = time.process_time()
    documents, _, _ = read_collection(tmp_path, DocumentsSettings())

    assert len(documents) == 2000
    assert time.process_time() - begin < 2
