"""How the words of a question reach passages that are about what it names, in several scripts."""

import pytest

from graphrag_local import ids
from graphrag_local.query.linking import ALL, Rules, shorter
from graphrag_local.query.opening import also_called, defines, heads
from graphrag_local.query.tying import tied, titles
from graphrag_local.query.view import view_of
from graphrag_local.records import Chunk, Document, Entity, Span
from graphrag_local.text import name_key, phrases, placed_words
from tests.query.world import MemoryIndex

LATIN = {
    "Ottilie Amalia Brandt": "Ottilie Amalia Brandt (1881–1940) was a lighthouse keeper. She was married to Karl Vessel.",
    "Karl Vessel": "Karl Vessel was a pilot from Tarnholm who painted ships.",
    "The Salt Road (novel)": '"The Salt Road" is a novel by Ottilie Brandt about a journey.',
    "Tarnholm": "Tarnholm is a harbour town, known for its herring.",
}


def collection(texts: dict[str, str], *, titled: bool = True, entities: tuple[tuple[str, tuple[str, ...]], ...] = ()) -> MemoryIndex:
    """Documents of one chunk, by title; entities as (name, other names)."""
    documents, chunks = [], []
    for number, (title, text) in enumerate(texts.items()):
        owner = ids.document_id(f"file.jsonl#{number}")
        name = title if titled else f"file {number}"
        documents.append(Document(id=owner, path=f"file.jsonl#{number}", title=name, text=text, content_hash="", file_hash="", format="jsonl"))
        chunks.append(Chunk(id=ids.chunk_id(owner, text, 0), document_id=owner, index=0, start=0, end=len(text), text=text))
    rows = [
        Entity(id=ids.entity_id(name_key(name)), key=name_key(name), name=name, type="", types=(), aliases=aliases, description="", mentions=1)
        for name, aliases in entities
    ]
    return MemoryIndex(rows={"documents": documents, "chunks": chunks, "entities": rows})


def long_document(title: str, parts: list[str]) -> tuple[Document, list[Chunk]]:
    """A document of a chunk per part."""
    owner, text = ids.document_id(f"{title}.txt"), "\n\n".join(parts)
    document = Document(id=owner, path=f"{title}.txt", title=title, text=text, content_hash="", file_hash="", format="txt")
    chunks = []
    for number, part in enumerate(parts):
        span = Span(start=text.index(part), end=text.index(part) + len(part))
        chunks.append(Chunk(id=ids.chunk_id(owner, part, 0), document_id=owner, index=number, start=span.start, end=span.end, text=part))
    return document, chunks


def reached(question: str, index: MemoryIndex, rules: Rules = ALL) -> set[str]:
    """The beginnings of the chunks about what a question names, and about the names it may stand for."""
    view = view_of(index)
    links = tied(view, rules)
    found = set()
    for seed in links.seeds(placed_words(question), question):
        rows = links.about.row(seed.phrase) + [row for other, _ in links.ties.row(seed.phrase) for row in links.about.row(other)]
        found |= {view.chunks.at(target).text[:12] for target, _ in rows if target >= 0}
    return found


@pytest.mark.parametrize("titled", [True, False])
@pytest.mark.parametrize(
    ("question", "about"),
    [
        ("Who was the husband of Ottilie Amalia Brandt?", "Ottilie Amal"),
        ("who was the husband of ottilie amalia brandt?", "Ottilie Amal"),
        ("Who was the husband of Ottilie Brandt?", "Ottilie Amal"),  # shorter
        ("Who was the husband of O. A. Brandt?", "Ottilie Amal"),  # initials
        ("Who was the husband of Ottilie Amalia Luise Brandt?", "Ottilie Amal"),  # longer
        ("Who was the husband of Ottlie Amalia Brandt?", "Ottilie Amal"),  # misspelt
        ("In which town is Tarnhlom?", "Tarnholm is "),
        ("Who wrote the salt road?", '"The Salt Ro'),
        ("Where was Karl Vessel's mother born?", "Karl Vessel "),
    ],
)
def test_a_question_reaches_what_it_names(question, about, titled):
    """By title or by the subject of the first sentence: exactly, in small letters, shortened, with initials, lengthened, misspelt."""
    assert about in reached(question, collection(LATIN, titled=titled))


def test_other_questions_reach_nothing():
    """Words that name nothing, single common words and names that nothing is about lead nowhere."""
    index = collection(LATIN)

    assert reached("Who married a keeper of ships in the harbour?", index) == set()
    assert reached("What did Anselm Quist say about herring and novel journeys?", index) == set()
    assert reached("?", index) == reached("", index) == set()


@pytest.mark.parametrize(
    ("texts", "question", "about"),
    [
        ({"Лотарь Ветров": "Лотарь Ветров — мореплаватель. Его жена Анна Снегова."}, "Кто была жена Лотаря Ветрова?", "Лотарь Ветро"),
        ({"Лотарь Ветров": "Лотарь Ветров — мореплаватель. Его жена Анна Снегова."}, "кто жена лотаря ветрова", "Лотарь Ветро"),
        ({"陈大海": "陈大海（1901年－1960年）是一位船长。他的妻子是林小玉。"}, "陈大海的妻子是谁？", "陈大海（1901年－19"),
        ({"陳大海": "陳大海是一位船長。他的妻子是林小玉。"}, "陈大海的妻子是谁？", "陳大海是一位船長。他的妻"),
        ({"سالم البحري": "سالم البحري (1901) كان ملاحا. زوجته ليلى النجار."}, "من هي زوجة سالم البحري؟", "سالم البحري "),
        ({"Βασίλης Θαλασσινός": "Βασίλης Θαλασσινός (1901), ναύτης."}, "Πού γεννήθηκε ο Βασιλης Θαλασσινος;", "Βασίλης Θαλα"),
    ],
)
@pytest.mark.parametrize("titled", [True, False])
def test_every_script_links(texts, question, about, titled):
    """Cyrillic with other endings, Chinese without spaces in either form, Arabic without capitals, Greek without accents."""
    others = {f"x{n}": f"Nothing is said here about item {n}, or 别的东西 {n}, или о другом, أو شيء آخر." for n in range(12)}

    assert reached(question, collection({**texts, **others}, titled=titled)) == {about}


def test_an_entity_lends_its_other_names():
    """A name that only the index knows as another spelling leads to what is about the entity."""
    index = collection(LATIN, entities=(("Karl Vessel", ("The Herring Painter",)),))

    assert "Karl Vessel " in reached("Where was the Herring Painter born?", index)
    assert reached("Where was the Herring Painter born?", index, Rules(ties=False)) == set()


def test_a_long_document_is_about_its_title_as_a_whole():
    """It stands as one target, whose chunks the question chooses; the first words of its chapters are no subjects."""
    document, chunks = long_document("Annals of Tarnholm", ["Marley was gone.", "Wilma was there.", "Ships left.", "It was winter.", "The end was near."])
    index = MemoryIndex(rows={"documents": [document], "chunks": chunks})
    links = tied(view_of(index), ALL)

    assert [links.about.row(seed.phrase) for seed in links.seeds(placed_words("annals of tarnholm"), "")] == [[(-1, 1.0)]]
    assert [view_of(index).chunks.at(number).index for number in links.chunks_of.row(0)] == [0, 1, 2, 3, 4]
    assert reached("What did Marley and Wilma do?", index) == set()


def test_names_are_found_at_every_place():
    """The scan of all texts at once finds what a plain search finds, word by word."""
    index = collection(LATIN)
    links = tied(view_of(index), ALL)
    texts, found = links.texts, links.found
    words = list(texts.vocabulary)

    assert found.start.size
    for start, length, phrase in zip(found.start, found.length, found.phrase, strict=True):
        assert tuple(words[token] for token in texts.tokens[start : start + length]) == links.names.key(phrase)
    for name in ("karl vessel", "ottilie brandt", "tarnholm"):
        phrase = links.names.number(name.split())
        holders = {chunk.id for chunk in index.chunks() if name in chunk.text.lower().replace(" amalia", "") and name in chunk.text.lower()}
        assert {texts.ids[number] for number in links.mentions.row(phrase)} == holders


def test_nothing_depends_on_the_order_of_rows():
    """Names, links and places are the same for shuffled rows."""
    index = collection(LATIN, entities=(("Karl Vessel", ("Vessel the Pilot",)), ("Tarnholm", ())))
    a, b = (tied(view_of(i), ALL) for i in (index, index.shuffled(3)))

    assert [a.names.key(name) for name in range(len(a.names))] == [b.names.key(name) for name in range(len(b.names))]
    assert a.found.phrase.tolist() == b.found.phrase.tolist()
    for name in range(len(a.names)):
        assert (a.about.row(name), a.ties.row(name)) == (b.about.row(name), b.ties.row(name))


def test_texts_without_words_do_no_harm():
    """No chunk, a chunk of signs, a title of digits."""
    assert reached("Karl?", MemoryIndex()) == set()
    assert reached("What is 1999?", collection({"1999": "?!", "…": "12 34"})) == set()


def test_runs_of_capitals_and_quotes_are_names():
    """Small words join names, a usual word at the beginning of a sentence does not, initials and short numbers belong to the name."""
    text = 'In winter J. R. Holt of the Bank of Tarn met "the blue rider" and Ann Lee. Later Boso the Elder saw Apollo 11, in 1969. 他读《红灯记》。'
    found = [text[a:b] for a, b in phrases(text, {"in", "later"})]

    assert found == ["J. R. Holt of the Bank of Tarn", '"the blue rider"'[1:-1], "Ann Lee", "Boso the Elder", "Apollo 11", "红灯记"]
    assert phrases("") == phrases("nothing at all") == []


def test_heads_are_the_subjects_of_first_sentences():
    """What stands before the verb, a bracket or a comma, other names beside it, and whether the sentence defines."""
    sentence = "Robert Quill (born 6 May 1887, Tarn), known as Old Ink, is an engraver."
    begin, end = heads(sentence)[0]

    assert sentence[begin:end] == "Robert Quill"
    assert [sentence[a:b] for a, b in also_called(sentence)] == ["Old Ink"]
    assert defines(sentence, end)
    assert not defines("Marley was dead: to begin with.", len("Marley"))
    assert heads("and so it went on without any end in sight whatsoever for all of them that year, he said.") == []


def test_titles_and_shorter_forms():
    """A title without its bracket and before its comma; a name without some of its words; never one word alone from two."""
    assert [(" ".join(words), weight) for words, weight in titles("Ann Lee, Countess (singer)")] == [
        ("ann lee countess singer", 1.0), ("ann lee countess", 1.0), ("ann lee", 0.5)]  # fmt: skip
    assert set(shorter(("albert", "iii", "the", "pious"))) >= {("albert", "iii")}
    assert set(shorter(("frank", "william", "lloyd"), initials=True)) >= {("frank", "lloyd"), ("f", "lloyd"), ("f", "w", "lloyd"), ("frank", "w", "lloyd")}
    assert list(shorter(("ann", "lee"))) == list(shorter(("ann",))) == []
    assert ("holstein", "gottorp") not in set(shorter(("adolf", "of", "holstein", "gottorp")))


def test_placed_words_stand_where_they_are():
    """Words are folded as names are compared, and their places are those of the text."""
    text = "L’Été d'Ørsted’s COLLEGE, ١٩٩٩ 漢字 हिन्दी"
    found = placed_words(text)

    assert [word.key for word in found] == ["lete", "dorsted", "college", "1999", "汉", "字", "हिन्दी"]
    assert all(text[word.start : word.end].strip() == text[word.start : word.end] != "" for word in found)
    assert [word.capital for word in found] == [True, False, True, False, False, False, False]
