"""What a text is about by its beginning, in the ways in which people keep titles where there is no field for them."""

import asyncio

import pytest

from graphrag_local import ids
from graphrag_local.query.opening import sections, title_lines
from graphrag_local.query.retrieve import LINKS, rank_chunks
from graphrag_local.query.view import view_of
from graphrag_local.records import Chunk, Document
from tests.query.world import MemoryIndex, NoEmbedder

KEEPERS = ("Tallow Bridge", "The lamps were lit by Ottilie Brandt at dusk."), ("Ottilie Brandt", "She came from Tarnholm, where herring is smoked.")
WEIRS = ("Alder", "Birch", "Cedar", "Damson", "Elder")
OTHERS = [(f"Weir Number {name}", f"A keeper of the lamps of the {name.lower()} weir was born there, where the bridge is.") for name in WEIRS]
FORMS = {
    "heading": "# {title}\n\n{text}",
    "line and blank": "{title}\n\n{text}",
    "line": "{title}\n{text}",
    "underlined": "{title}\n=====\n\n{text}",
    "colon": "{title}: {text}",
    "labels": "Title: {title}\nText: {text}",
    "starred": "**{title}**\n\n{text}",
}


def index_of(texts):
    """Documents named by number, each a chunk of the given texts."""
    documents, chunks = [], []
    for number, parts in enumerate(texts):
        owner, text = ids.document_id(f"{number}.txt"), "\n\n".join(parts)
        documents.append(
            Document(id=owner, path=f"{number}.txt", title=str(number), text=text, content_hash="", file_hash="", format="txt")
        )
        for place, part in enumerate(parts):
            start = text.index(part)
            chunks.append(
                Chunk(id=ids.chunk_id(owner, part, place), document_id=owner, index=place, text=part, start=start, end=start + len(part))
            )
    return MemoryIndex({"documents": documents, "chunks": chunks})


def found(index, question, k=2):
    """The first lines of the best chunks."""
    view = view_of(index)
    return [view.chunks[owner].text for owner, _ in asyncio.run(rank_chunks(question, view, NoEmbedder(), k)).hits]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_title_in_the_text_is_a_title(form):
    """A passage about a name that another passage only mentions is reached from there, whatever way its title is written."""
    texts = [form.format(title=title, text=text) for title, text in (*KEEPERS, *OTHERS)]

    assert found(index_of([[text] for text in texts]), "Where was the keeper of the lamps of Tallow Bridge born?") == texts[:2]


def test_parts_of_one_document_have_titles_too():
    """In a long document with a heading over each part the part about a name is reached in the same way."""
    parts = [f"# {title}\n\n{text}" for title, text in (OTHERS[0], *KEEPERS, *OTHERS[1:])]

    assert found(index_of([parts]), "Where was the keeper of the lamps of Tallow Bridge born?") == parts[1:3]


@pytest.mark.parametrize(
    ("text", "titles", "rest"),
    [
        ("Nara Quist\n\nNara Quist was a pilot.", ["Nara Quist"], "Nara Quist was a pilot."),
        ("Minutes of the Board\n3 March 1987\n\nPresent: Mr. Pell.", ["Minutes of the Board", "3 March 1987"], "Present: Mr. Pell."),
        ("Harbour: A True Story\n\nHarbour: A True Story is a film.", ["A True Story", "Harbour: A True Story"], "A True Story is a film."),
        ("Harbour: A True Story: Harbour is a film.", ["Harbour", "Harbour: A True Story"], "Harbour is a film."),
        ("東京\n\n東京は日本の首都である。", ["東京"], "東京は日本の首都である。"),
        ("Dear Sir,\n\nI write to you.", [], "Dear Sir,\n\nI write to you."),
        ("It was a dark and\nstormy night, and it rained.", [], "It was a dark and\nstormy night, and it rained."),
        ("He was late.\n\nNobody waited.", [], "He was late.\n\nNobody waited."),
        (": x", [], ": x"),
        ("\n\n", [], "\n\n"),
        ("", [], ""),
    ],
)
def test_lines_that_stand_as_titles(text, titles, rest):
    """Short lines without a stop, at most two, then labels or a colon; sentences, wrapped lines and salutations are none."""
    lines, begin = title_lines(text)

    assert (lines, text[begin:]) == (titles, rest)


def test_who_speaks_is_no_section():
    """A line alone is the title of a part where its name comes again at once; speakers, dialogue and numbers of chapters are not."""
    said = "NARA QUIST\n\nI was born in Tarnholm.\n\nStave One\n\nIt was cold.\n\n'I see it,' said Pell\n\nSo said Pell."
    text = f"{said}\n\nPell Wharf\n\nPell Wharf lies in the west."

    assert [text[begin : begin + 10] for begin in sections(text)] == ["Pell Wharf"]


def test_a_part_whose_title_comes_again_is_about_nothing():
    """Who speaks may be named at once again; a title that a document has twice leads nowhere."""
    turns = ["On a day like this.", "Nara Quist\n\nWell, Nara Quist is late.", "It rained on the day of the gale.", "Nara Quist\n\nNara Quist it is, then."]
    index = index_of([turns])
    subjects = view_of(index).index.kept(LINKS)["subjects"]

    assert not subjects.any()
