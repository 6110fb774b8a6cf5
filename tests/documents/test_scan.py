"""Which files belong to a collection, and what is said about the others."""

import os
import socket
import tempfile
import unicodedata
from pathlib import Path

import pytest

from graphrag_local.documents.read import read_file
from graphrag_local.documents.scan import Found, scan
from graphrag_local.documents.stage import read_collection
from graphrag_local.errors import CollectionMissing
from graphrag_local.settings import DocumentsSettings
from tests.documents.making import as_nobody, reason

DEFAULT = DocumentsSettings()


def put(folder, *names):
    """Files that each hold their own name."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n", encoding="utf-8")


def paths(folder, **settings):
    """The paths found below a folder."""
    return [found.path for found in scan(folder, DocumentsSettings(**settings)).found]


def refusals(folder, **settings):
    """What is said about the entries that are not read."""
    return {failure.input: failure.reason for failure in scan(folder, DocumentsSettings(**settings)).failures}


def test_paths_are_relative_and_sorted(tmp_path):
    """Files of equal names in different folders are different documents, in order of their paths."""
    put(tmp_path, "readme.md", "valves/readme.md", "pumps/readme.md", "a/b/c/deep.txt")

    assert paths(tmp_path) == ["a/b/c/deep.txt", "pumps/readme.md", "readme.md", "valves/readme.md"]
    assert paths(tmp_path / "." / "pumps" / "..") == paths(tmp_path)
    documents, failures, present = read_collection(tmp_path, DEFAULT)
    assert [document.path for document in documents] == list(present) == paths(tmp_path)
    assert failures == []
    assert len({document.id for document in documents}) == 4


def test_a_scan_knows_sizes_and_reads_nothing(tmp_path):
    """A scan gives size and time of change, also of files that cannot be opened."""
    put(tmp_path, "a.txt")
    (tmp_path / "a.txt").chmod(0)
    (found,) = scan(tmp_path, DEFAULT).found

    assert (found.size, found.mtime_ns) == (6, (tmp_path / "a.txt").stat().st_mtime_ns)


def test_a_missing_folder_stops_the_run(tmp_path):
    """A folder that is not there, or is a file, is an error with a hint, not an empty collection."""
    put(tmp_path, "file")
    for folder in (tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(CollectionMissing, match="cannot be read") as caught:
            read_collection(folder, DEFAULT)
        assert "documents.input" in caught.value.hint


def test_an_empty_folder_is_an_empty_collection(tmp_path):
    """No files give no documents and no failures; the caller decides what that means."""
    assert read_collection(tmp_path, DEFAULT) == ([], [], ())


def test_hidden_and_temporary_files_are_passed_over(tmp_path):
    """Dot files and folders, editor back-ups and lock files are no documents and no failures."""
    put(tmp_path, ".git/config", ".DS_Store", "~$minutes.docx", "notes.txt~", "#notes.txt#", ".notes.txt.swp", "Thumbs.db", "notes.txt")

    assert paths(tmp_path) == ["notes.txt"]
    assert refusals(tmp_path) == {}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"include": ("*.md",)}, ["a.md", "drafts/b.md"]),
        ({"include": ("notes/**/*.txt", "a.md")}, ["a.md", "notes/c.txt", "notes/old/d.txt"]),
        ({"exclude": ("drafts",)}, ["a.md", "notes/c.txt", "notes/old/d.txt"]),
        ({"exclude": ("notes/*.txt", "./drafts/")}, ["a.md", "notes/old/d.txt"]),
        ({"include": ("*.txt",), "exclude": ("old",)}, ["notes/c.txt"]),
        ({"include": ("?.md",), "exclude": ("[a].md",)}, ["a.md", "drafts/b.md"]),
    ],
)
def test_globs_choose_the_files(tmp_path, settings, expected):
    """A pattern without a slash is a name anywhere, `**` is any folders, a folder means all in it; brackets are plain."""
    put(tmp_path, "a.md", "drafts/b.md", "notes/c.txt", "notes/old/d.txt")

    assert paths(tmp_path, **settings) == expected


def test_links_out_of_the_folder_are_refused(tmp_path):
    """A link to a file or folder elsewhere, or to nothing, is a failure that names it, and nothing behind it is read."""
    put(tmp_path, "secret/key.txt", "input/a.txt")
    (tmp_path / "input/out.txt").symlink_to(tmp_path / "secret/key.txt")
    (tmp_path / "input/folder").symlink_to("../secret")
    (tmp_path / "input/passwords").symlink_to("/etc/passwd")
    (tmp_path / "input/nothing").symlink_to("gone")

    assert paths(tmp_path / "input") == ["a.txt"]
    said = refusals(tmp_path / "input")
    assert {name for name, why in said.items() if "leads out of the input folder" in why} == {"out.txt", "folder", "passwords"}
    assert "leads nowhere" in said["nothing"]


def test_a_sibling_with_a_longer_name_is_outside(tmp_path):
    """`input-private` is not inside `input`, though its path begins alike."""
    put(tmp_path, "input/a.txt", "input-private/b.txt")
    (tmp_path / "input/b.txt").symlink_to(tmp_path / "input-private/b.txt")

    assert "leads out" in refusals(tmp_path / "input")["b.txt"]


def test_links_inside_the_folder_are_followed_once(tmp_path):
    """What is there under its own name is not read twice; a link to a hidden place is followed; loops end."""
    put(tmp_path, "real/a.txt", ".store/v2/b.txt")
    (tmp_path / "again").symlink_to("real")
    (tmp_path / "also.txt").symlink_to("real/a.txt")
    (tmp_path / "real/up").symlink_to("..")
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "current").symlink_to(".store/v2")
    (tmp_path / "later").symlink_to(".store/v2")

    assert paths(tmp_path) == ["current/b.txt", "real/a.txt"]
    assert list(refusals(tmp_path)) == ["self"]


def test_the_input_folder_may_be_a_link(tmp_path):
    """A link as the folder itself is what it points to."""
    put(tmp_path, "real/a.txt")
    (tmp_path / "input").symlink_to("real")

    assert paths(tmp_path / "input") == ["a.txt"]


def test_pipes_sockets_and_devices_are_refused_without_waiting(tmp_path):
    """What is not a regular file is named and never opened, so nothing blocks."""
    os.mkfifo(tmp_path / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(tmp_path)  # socket paths are short
        try:
            server.bind("s.txt")
        finally:
            os.chdir(here)
    documents, failures, present = read_collection(tmp_path, DEFAULT)

    assert documents == []
    assert [(f.input, f.reason) for f in failures] == [
        ("pipe.txt", "is a pipe, not a regular file"), ("s.txt", "is a socket, not a regular file")
    ]  # fmt: skip
    assert present == ("pipe.txt", "s.txt")


def test_a_file_that_became_a_pipe_or_link_is_refused(tmp_path):
    """Between listing and reading a file can be exchanged; it is opened without waiting and without following."""
    os.mkfifo(tmp_path / "a.txt")
    (tmp_path / "b.txt").symlink_to("/etc/passwd")
    for name, said in (("a.txt", "no longer a regular file"), ("b.txt", "cannot be opened"), ("c.txt", "vanished")):
        result = read_file(Found(path=name, absolute=str(tmp_path / name), size=1, mtime_ns=0), DEFAULT)
        assert said in reason(result)
        assert result.failures[0].retryable


def test_names_that_normalise_alike_are_one_document(tmp_path):
    """Of an NFC and an NFD spelling of one name the composed is read, the other reported."""
    composed, apart = unicodedata.normalize("NFC", "Größe.txt"), unicodedata.normalize("NFD", "Größe.txt")
    put(tmp_path, apart)
    assert paths(tmp_path) == [composed]
    put(tmp_path, composed)
    documents, failures, _ = read_collection(tmp_path, DEFAULT)

    assert [(d.path, d.text) for d in documents] == [(composed, f"{composed}\n")]
    assert [f.reason for f in failures] == [f"has the same name as {composed!r} after Unicode normalisation; rename one of them"]


def test_names_that_cannot_be_stored_are_refused(tmp_path):
    """A name that is not UTF-8 or holds a line break is shown with escapes and must be changed."""
    for raw in (b"bad\xff.txt", b"two\nlines.txt"):
        with open(os.fsencode(tmp_path) + b"/" + raw, "wb") as file:  # noqa: PTH123 - pathlib has no byte names
            file.write(b"x")

    assert refusals(tmp_path) == {
        "bad\\xff.txt": "has a name that is not UTF-8; rename it", "two\\nlines.txt": "has a control character in its name; rename it"
    }  # fmt: skip


def test_a_file_over_the_limit_names_the_setting(tmp_path):
    """A 50 MB text is reported without being read, and read when the setting allows it."""
    with (tmp_path / "big.txt").open("wb") as file:
        file.truncate(50 << 20)
    assert refusals(tmp_path) == {"big.txt": "is 50.0 MB large, over the 32 MB of documents.max_file_mb"}
    (tmp_path / "big.txt").write_bytes(b"All work and no play.\n" * 2_383_128)
    documents, failures, _ = read_collection(tmp_path, DocumentsSettings(max_file_mb=64))

    assert failures == []
    assert len(documents[0].text) == 22 * 2_383_128


def test_what_cannot_be_opened_is_there_all_the_same():
    """Files and folders without permission are failures that may be tried again, and are listed as present, so nobody takes them for gone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        put(folder, "open.txt", "shut.txt", "locked/inside.txt")
        (folder / "shut.txt").chmod(0)
        (folder / "locked").chmod(0)
        with as_nobody():
            documents, failures, present = read_collection(folder, DEFAULT)
        (folder / "locked").chmod(0o755)

    assert [d.path for d in documents] == ["open.txt"]
    assert [(f.input, f.reason, f.retryable) for f in failures] == [
        ("locked/", "cannot be listed (Permission denied)", True), ("shut.txt", "cannot be opened (Permission denied)", True)
    ]  # fmt: skip
    assert present == ("locked/", "open.txt", "shut.txt")


def test_an_empty_file_is_a_failure(tmp_path):
    """Empty files, and files of blanks, say so."""
    (tmp_path / "empty.txt").touch()
    (tmp_path / "blank.txt").write_text(" \n\n\t\n", encoding="utf-8")
    documents, failures, _ = read_collection(tmp_path, DEFAULT)

    assert documents == []
    assert [(f.input, f.reason, f.stage) for f in failures] == [("blank.txt", "holds no text", "documents"), ("empty.txt", "is empty", "documents")]
