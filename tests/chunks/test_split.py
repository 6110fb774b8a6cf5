"""Chunks are exact, whole and decided by the text near their ends."""

import base64
import random
from collections import Counter

import pytest
import regex
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from graphrag_local.chunks.split import split
from graphrag_local.chunks.stage import build_chunks
from graphrag_local.errors import ModelMissing
from graphrag_local.flow import Silent
from graphrag_local.records import Document
from graphrag_local.settings import ChunksSettings
from graphrag_local.text import size
from tests.clock import effort_of

TINY = ChunksSettings(min_tokens=3, max_tokens=9)
DEFAULT = ChunksSettings()
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
PIECES = (
    "One.", "Two words!", " ", "  ", "\n", "\n\n", "\t", "# Head\n", "ANN: ", "海は広い。", "北の港", "مرحبا بكم؟ ", "שלום. ", "e\u0301", "\u0301",
    FAMILY, "\U0001f1eb\U0001f1f7", "\U0001f1eb", "각", "\u1100\u1161", "नमस्ते। ", "\u200d", "。\u0301", "ab" * 30, "\u00a0", "\u2028",
    "\ud83d", "क्ष", "x",
)  # fmt: skip
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=60).map("".join)


def document(text, path="a.txt"):
    return Document(id=f"id of {path}", path=path, title=path, text=text, content_hash="", file_hash="", format="txt")


def pieces(text, rules=DEFAULT, models=None):
    return [chunk.text for chunk in split(document(text), rules, models)]


def boundaries(text):
    return {0, *(match.end() for match in regex.finditer(r"\X", text))}


def prose(seed, paragraphs):
    """Paragraphs of invented words, the same for the same seed."""
    dice = random.Random(seed)
    vocabulary = ["".join(dice.choices("aeiou bdklmnprst".replace(" ", ""), k=dice.randint(2, 9))) for _ in range(800)]

    def sentence():
        return " ".join(dice.choices(vocabulary, k=dice.randint(5, 25))).capitalize() + "."

    return "\n\n".join(" ".join(sentence() for _ in range(dice.randint(2, 7))) for _ in range(paragraphs))


@pytest.fixture
def models(tmp_path):
    """A models folder whose token table knows single bytes and two pairs, so that many characters take several tokens."""
    folder = tmp_path / "cl100k_base"
    folder.mkdir()
    tokens = [bytes([value]) for value in range(256)] + [b"th", b" t"]
    (folder / "cl100k_base.tiktoken").write_bytes(b"\n".join(base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(tokens)))
    return tmp_path


@settings(max_examples=300, deadline=None)
@given(texts)
@example("A. \u0301 B." * 9)
@example(("\U0001f1eb\U0001f1f7" * 40) + "a" + "\u0301" * 200)
@example("a" + " " * 300 + "b" * 300)
def test_anchored_chunks_joined_are_the_text(text):
    """Every character is in exactly one chunk, spans are exact, no grapheme is cut, and no chunk is only white space."""
    chunks = split(document(text), TINY, None)

    assert "".join(chunk.text for chunk in chunks) == (text if text.strip() else "")
    assert all(chunk.text == text[chunk.start : chunk.end] and chunk.text.strip() for chunk in chunks)
    assert {chunk.start for chunk in chunks} <= boundaries(text)
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts, st.integers(2, 12), st.integers(0, 1))
def test_windows_have_exact_spans_and_cover_the_text(models, text, window, overlap):
    """Fixed windows overlap, leave out nothing but white space, and cut no grapheme."""
    chunks = split(document(text), ChunksSettings(method="window", window_tokens=window, overlap_tokens=overlap), models)

    covered = set().union(*(range(chunk.start, chunk.end) for chunk in chunks))
    assert all(text[at].isspace() for at in set(range(len(text))) - covered)
    assert all(chunk.text == text[chunk.start : chunk.end] for chunk in chunks)
    assert {at for chunk in chunks for at in (chunk.start, chunk.end)} <= boundaries(text)


def test_windows_count_tokens(models):
    """A window holds that many tokens and begins the overlap before the last one's end."""
    rules = ChunksSettings(method="window", window_tokens=6, overlap_tokens=2)

    assert pieces("abcdefghijkl", rules, models) == ["abcdef", "efghij", "ijkl"]
    assert pieces("ththth th", rules, models) == ["ththth th"]


def test_an_overlap_as_large_as_its_window_is_refused():
    """Windows that would never advance are a settings error that names both settings."""
    with pytest.raises(ValidationError, match=r"overlap_tokens \(10\).*window_tokens \(10\)"):
        ChunksSettings(method="window", window_tokens=10, overlap_tokens=10)


def test_windows_without_their_token_table_say_so(tmp_path):
    """The token table is read from the models folder, never downloaded."""
    with pytest.raises(ModelMissing, match="cl100k_base"):
        split(document("abc"), ChunksSettings(method="window"), tmp_path)


@pytest.mark.parametrize("text", ["", " ", "\n\n \t", "\u00a0\u2003"])
def test_white_space_gives_no_chunk(text, models):
    """A text without a visible character has no chunks, by either method."""
    assert pieces(text) == []
    assert pieces(text, ChunksSettings(method="window"), models) == []


def test_a_short_text_is_one_chunk():
    """What fits is not cut."""
    assert pieces("Ann met Bo. They left.\n") == ["Ann met Bo. They left.\n"]


def test_chunks_keep_within_their_sizes():
    """Prose is cut between the smallest and the largest size, and nearly always where a sentence begins."""
    found = pieces(prose(3, 200))

    assert len(found) > 20
    assert all(300 <= size(piece) <= 900 for piece in found)
    assert all(piece.rstrip().endswith(".") for piece in found)


def test_cuts_prefer_the_ends_of_paragraphs():
    """Half of the boundaries fall between paragraphs although four sentences in five end inside one."""
    found = pieces(prose(4, 300))[:-1]

    assert sum(piece.endswith("\n\n") for piece in found) > 0.4 * len(found)


@pytest.mark.parametrize("opening", ["\nANN LEE: ", "\n[00:12:31] Bo: ", "\n## Lock\n"])
def test_cuts_prefer_turns_and_headings(opening):
    """A speaker's turn and a heading are better places to cut than other sentences."""
    text = "".join(opening + " ".join(f"Word {turn} of sentence {number} is here." for number in range(4)) for turn in range(300))
    found = pieces(text)[1:]

    assert sum(piece.startswith(opening.strip()) for piece in found) > 0.4 * len(found)


def test_a_heading_stays_with_what_it_heads():
    """The place after a heading is no better than any other."""
    parts = [" ".join(f"Sentence {number} of part {part} stands." for number in range(4)) for part in range(600)]
    found = pieces("".join(f"## Part {number}\n\n{part}\n\n" for number, part in enumerate(parts)))

    assert sum(piece.startswith("#") for piece in found) > 5 * sum(piece.rstrip().rsplit("\n", 1)[-1].startswith("#") for piece in found)


def test_an_inserted_sentence_changes_few_chunks():
    """Over 150 insertions the mean is at most 1.3 changed chunks, 99% change at most three, none more than six."""
    text = prose(5, 260)
    before = Counter(pieces(text))
    dice = random.Random(6)
    counts = []
    for number in range(150):
        at = dice.choice([match.end() for match in regex.finditer(r"\. ", text)])
        after = Counter(pieces(f"{text[:at]}A new sentence, number {number}, was put here. {text[at:]}"))
        counts.append((after - before).total())

    assert sum(before.values()) >= 40
    assert sum(counts) / len(counts) <= 1.3
    assert sum(count <= 3 for count in counts) >= 0.99 * len(counts)
    assert max(counts) <= 6


def test_text_before_and_after_does_not_move_a_chunk():
    """Chunks in the middle of a text are the same whatever is put at its ends."""
    middle = prose(8, 120)
    alone, within = pieces(middle), pieces(f"{prose(9, 30)}\n\n{middle}\n\n{prose(10, 30)}")

    assert set(alone[3:-3]) <= set(within)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("a line of ten thousand words", " ".join(f"word{number % 977}" for number in range(10_000))),
        ("a word of a hundred thousand letters", "".join(random.Random(1).choices("acgt", k=100_000))),
        ("one letter", "a" * 100_000),
        ("Chinese without a stop", "".join(random.Random(2).choices("北港航運公司漢字海山", k=30_000))),
        ("families", FAMILY * 5_000),
    ],
)
def test_text_without_sentences_is_cut_all_the_same(what, text):
    """Where no sentence ends, words and then graphemes are the boundaries, and sizes hold."""
    found = pieces(text)

    assert "".join(found) == text, what
    assert all(100 < size(piece) <= 900 for piece in found), what


def test_text_that_repeats_itself_is_cut_in_time():
    """Two megabytes of one line, whose boundaries all have the same priority, take a few seconds at most."""
    text = "Total 0 0 0.\n" * 150_000
    found, seconds = effort_of(lambda: pieces(text))

    assert "".join(found) == text
    assert seconds < 30


def test_equal_chunks_of_a_document_have_different_ids():
    """An id is the document, the text and the occurrence: equal texts differ, and moving a chunk keeps its id."""
    line = "x" * 9000
    first, second = split(document(line), ChunksSettings(min_tokens=900, max_tokens=1000), None)
    moved = split(document(f"{'y' * 4500}\n\n{line}"), ChunksSettings(min_tokens=900, max_tokens=1000), None)

    assert first.text == second.text
    assert first.id != second.id
    assert {first.id, second.id} <= {chunk.id for chunk in moved}


def test_the_chunks_of_a_collection_do_not_depend_on_its_order():
    """Documents are cut in the order of their paths."""
    documents = [document("One.", "b.txt"), document("Two.", "a.txt"), document(" ", "c.txt")]
    made = build_chunks(documents, DEFAULT, None, progress=Silent())

    assert [chunk.text for chunk in made] == ["Two.", "One."]
    assert build_chunks(documents[::-1], DEFAULT, None, progress=Silent()) == made
