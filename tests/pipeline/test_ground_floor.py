"""What every stage stands on: one key per name, sizes without padding, and a token table that is read as it is."""

import base64
import random
import tempfile
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from graphrag_local.chunks.split import split
from graphrag_local.errors import ModelMissing
from graphrag_local.ids import entity_id
from graphrag_local.records import Document
from graphrag_local.settings import ChunksSettings
from graphrag_local.text import name_key, size, weight
from graphrag_local.tokens import Cl100k, cl100k
from tests.pipeline.running import index, opened, project_of


@pytest.mark.parametrize("name", ["臺灣大學", "台灣大學", "台湾大学", "東海運輸", "東海運輸 公司", "Café Örn", "ＸＹＺ", "US", "us"])
def test_an_entity_is_found_by_the_key_of_its_name(tmp_path, name):
    """The id of a node is that of `text.name_key` of any of its spellings, traditional Chinese included."""
    project = project_of(tmp_path, {"a.txt": f"{name} stands here."})
    index(project)

    with opened(project) as stored:
        for entity in stored.entities():
            assert all(entity.id == entity_id(name_key(form)) and entity.key == name_key(form) for form in (entity.name, *entity.aliases))


def test_traditional_and_simplified_names_have_one_key():
    """The fold is in the key, whoever asks for it."""
    assert name_key("臺灣大學") == name_key("台湾大学") != name_key("台湾大字")


def test_padding_does_not_count():
    """A run of white space counts as a paragraph break at most; other text counts its bytes."""
    assert weight("a" + " \t\n" * 500 + "b") == weight("a\n\nb") == 4
    assert weight("a b\n\nc") == 6
    assert weight("北港") == 6
    assert size("") == 0.0


def test_columns_of_a_printed_table_are_chunked_by_their_words():
    """A table with wide gaps is cut into chunks as large as the same table without them."""
    dice = random.Random(1)
    rows = [[f"item{dice.randrange(999)}", "barrels", "of salted herring", str(dice.randrange(99))] for _ in range(900)]
    gaps = [(" " * 60).join(row) + "." for row in rows]

    def chunked(lines):
        text = "\n".join(lines)
        document = Document(id="d", path="d", title="d", text=text, content_hash="", file_hash="", format="txt")
        chunks = split(document, ChunksSettings(), None)
        assert "".join(chunk.text for chunk in chunks) == text
        return len(chunks)

    assert chunked(gaps) <= 1.2 * chunked(["  ".join(row) + "." for row in rows])


def table(folder, tokens):
    """A token table with these tokens in order."""
    file = folder / "cl100k_base" / "cl100k_base.tiktoken"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"\n".join(base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(tokens)) + b"\n")
    return file


BYTES = [bytes([value]) for value in range(256)]


def test_the_token_table_is_read_from_its_file_alone(tmp_path, monkeypatch):
    """Two tables are two tokenizers, a changed one is read anew, and nothing is written anywhere else."""
    caches = tmp_path / "caches"
    caches.mkdir()
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(caches))
    monkeypatch.setenv("TMPDIR", str(caches))
    monkeypatch.setattr(tempfile, "tempdir", None)
    first, second = (tmp_path / name for name in ("first", "second"))
    for folder in (first, second):
        folder.mkdir()
    table(first, [*BYTES, b"th"])
    table(second, [*BYTES, b"th", b"the"])

    assert [Cl100k(folder).count("the") for folder in (first, second)] == [2, 1]
    table(first, BYTES)
    cl100k.cache_clear()
    assert Cl100k(first).count("the") == 3
    assert list(caches.iterdir()) == []


@given(st.text(max_size=80))
def test_counts_are_those_of_the_library(text):
    """Our reading of a table gives the tokens that tiktoken gives for the same ranks."""
    with tempfile.TemporaryDirectory() as name:
        from_file = Cl100k(table(Path(name), [*BYTES, b" t", b"he"]).parents[1])
        ranks = {token: rank for rank, token in enumerate([*BYTES, b" t", b"he"])}
        library = tiktoken.Encoding("test", pat_str=from_file.encoding._pat_str, mergeable_ranks=ranks, special_tokens={})

        assert from_file.encoding.encode_ordinary(text) == library.encode_ordinary(text)


@pytest.mark.parametrize("line", [b"!!!! 3", b"YQ==", b"YQ== x", b"YQ== 1 2", b"<html>"])
def test_a_damaged_token_table_names_its_line(tmp_path, line):
    """What is no token and rank is an error with the file and the line, and what to do."""
    file = table(tmp_path, BYTES)
    file.write_bytes(file.read_bytes() + line + b"\n")

    with pytest.raises(ModelMissing, match=r"Line 257 of the token table .*cl100k_base\.tiktoken") as caught:
        cl100k(tmp_path)
    assert "models verify" in caught.value.hint
