"""Extraction without a model: what it finds in many scripts, that it is grounded and the same on every run, and that an edit moves little."""

import os
import random
import subprocess
import sys

import pytest

from graphrag_local.extraction.fast import extract_fast
from graphrag_local.extraction.spot import Seen
from graphrag_local.extraction.together import MOST_EDGES, Together, shares, ties
from graphrag_local.graph.merge import Merged, merge
from graphrag_local.records import Chunk
from graphrag_local.text import one_line

ENGLISH = (
    "Mira Holt runs the Harbour Museum in Port Ellis. She hired Tomas Brandt in the spring. Tomas had worked for the Salt Company before.",
    "Yeah, I'm told that Holt and Brandt argue about the lighthouse every week. The Salt Company paid for the lighthouse, and Mira Holt wrote about it.",
)
SCRIPTS = {
    "Chinese": (
        "李明和王芳在北京大学学习人工智能。王芳是北京大学的教授。李明住在上海。人工智能改变了世界。"
        "李明喜欢人工智能，王芳喜欢音乐。李明认识王芳。北京大学位于海淀区。",
        {"李明", "王芳", "北京大学", "人工智能"},
    ),
    "Japanese": (
        "田中さんはトヨタで働いている。トヨタは豊田市にある。田中さんの友人の鈴木さんはホンダで働く。"
        "鈴木さんはホンダの工場を見た。田中さんも見た。",
        {"トヨタ", "ホンダ", "田中"},
    ),
    "Arabic": (
        "يعمل أحمد في جامعة القاهرة. تقع جامعة القاهرة في مصر. زار أحمد مدينة الإسكندرية."
        " درست ليلى في جامعة القاهرة. مدينة الإسكندرية على البحر.",
        {"جامعة القاهرة"},
    ),
    "Thai": (
        "สมชายทำงานที่โรงงาน สมชายรู้จักสมหญิง สมหญิงเรียนที่เมืองตรัง สมชายรักสมหญิง เมืองตรังอยู่ไกล",
        {"สมชาย", "สมหญิง"},
    ),
    "Korean": (
        "김철수는 서울대학교에서 일한다. 서울대학교는 서울에 있다. 이영희는 서울대학교에서 공부한다."
        " 김철수는 이영희를 안다. 이영희는 부산에 산다.",
        {"서울대학교", "이영희"},
    ),
    "Russian": (
        "Вчера приехала Анна Белова. Её встретил Пётр Громов."
        " Потом Анна Белова и Пётр Громов уехали в Казань.",
        {"Анна Белова", "Пётр Громов", "Казань"},
    ),
    "small letters": (
        "anna met boris near the old mill. boris owns the old mill. the miller of the old mill knows anna. boris pays the miller.",
        {"old mill", "anna"},
    ),
}  # fmt: skip


def chunks_of(*texts: str, document: str = "d") -> list[Chunk]:
    """The passages of one document, each at its place."""
    found, start = [], 0
    for index, text in enumerate(texts):
        found.append(Chunk(id=f"{document}-{index}", document_id=document, index=index, start=start, end=start + len(text), text=text))
        start += len(text) + 2
    return found


def graph_of(chunks: list[Chunk]) -> Merged:
    """The graph of some passages."""
    return merge(extract_fast(chunks), {chunk.id: chunk for chunk in chunks})


def names(graph: Merged) -> set[str]:
    return {entity.name for entity in graph.entities}


def weights(graph: Merged) -> dict[frozenset[str], float]:
    """The weight of each edge, by the names of its ends."""
    name = {entity.id: entity.name for entity in graph.entities}
    return {frozenset((name[edge.source_id], name[edge.target_id])): edge.weight for edge in graph.relationships}


def test_names_are_found_and_short_ones_are_those_of_their_document():
    """Runs of capitals are names, "I'm" and an opening "Yeah" are none, and a surname stands for the full name of its document."""
    graph = graph_of(chunks_of(*ENGLISH))

    assert {"Mira Holt", "Salt Company", "Tomas Brandt", "Port Ellis", "Harbour Museum"} <= names(graph)
    assert not {"Yeah", "I'm", "She", "The Salt Company"} & names(graph)
    assert "Holt" in next(entity for entity in graph.entities if entity.name == "Mira Holt").aliases


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_gives_a_graph_of_what_stands_in_the_text(script):
    """With capitals or without, with spaces or without: names or words that recur are found, tied to each other, and quoted where they stand."""
    text, expected = SCRIPTS[script]
    (chunk,) = chunks = chunks_of(text)
    graph = graph_of(chunks)

    assert expected <= names(graph)
    assert graph.relationships
    for mention in graph.mentions:
        quoted = [chunk.text[span.start : span.end] for span in mention.spans]
        assert quoted
        assert all(quoted)
        assert mention.grounding == "anchored"
        assert mention.description == one_line(" ".join(quoted))
        assert mention.owner_kind != "entity" or any(mention.name.casefold() in one.casefold() for one in quoted)


def test_spans_are_offsets_into_the_document():
    """What a passage further on in a document quotes is where it says that it is."""
    chunks = chunks_of(*ENGLISH)
    document = "\n\n".join(ENGLISH)

    for extraction in extract_fast(chunks):
        for mention in (*extraction.entities, *extraction.relationships):
            assert one_line(" ".join(document[span.start : span.end] for span in mention.spans)) == mention.description


@pytest.mark.parametrize(
    "text", ["", " \n ", "... --- !!! 12 34", '"" 「」 ()', "\x00\ufeff\u202e", "A", "x" * 20_000, "AAAA BBBB CCCC", "[1] [R2] <|end|> \n" * 50]
)
def test_texts_that_say_nothing_give_nothing_or_little(text):
    """Texts without words, of one word, of control characters or without end are read without an error, and nothing is invented for them."""
    (extraction,) = extract_fast(chunks_of(text))

    assert all(mention.name.casefold() in text.casefold() for mention in extraction.entities)
    assert extract_fast([]) == ()


def test_the_same_on_every_run():
    """Neither the hash seed of the interpreter nor a second run changes anything."""
    code = "from tests.extraction.test_fast import *; print(extract_fast(chunks_of(*ENGLISH, *(text for text, _ in SCRIPTS.values()))))"
    seen = {subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=os.environ | {"PYTHONHASHSEED": seed}).stdout for seed in ("1", "2")}

    assert len(seen) == 1


def test_edges_are_weighed_in_powers_of_two_that_mentions_share_exactly():
    """Whatever the number of its mentions, an edge weighs a power of two, to the last bit."""
    graph = graph_of(collection(30, seed=3))

    assert graph.relationships
    assert all(weight.hex().startswith("0x1.0000000000000p") for weight in weights(graph).values())
    for mentions in (1, 3, 7, 1000):
        each, last = shares(0.5, mentions)
        assert each * (mentions - 1) + last == 0.5
        assert each >= 0


def test_what_stands_together_more_often_than_by_chance_weighs_more():
    """Of two neighbours that meet equally often, the one that is seldom elsewhere is nearer; one without company goes with the nearest."""
    seen = [Seen(key, key, sentence, place, "name") for sentence, keys in enumerate(("ab", "ac", "ab", "ac", *("c" * 60))) for place, key in enumerate(keys)]
    together = Together()
    tied = ties(seen)
    together.add(seen, tied)
    found = together.weights(256)

    assert found["a", "b"] > found["a", "c"]
    assert [tie.pair for tie in ties([Seen("x", "x", 0, 0, "name"), Seen("y", "y", 5, 0, "name"), Seen("z", "z", 9, 0, "name")])] == [("x", "y"), ("y", "z")]


def test_a_hub_keeps_its_strongest_edges_and_nobody_is_left_alone():
    """A thing that stands beside everything has few edges of its own, but whoever stands beside nothing else keeps the one to it."""
    together = Together()
    for number in range(100):
        partner, other = f"p{number:03}", f"q{number:03}"
        seen = [Seen(key, key, sentence, 0, "name") for sentence in range(3) for key in ("hub", partner)] + [
            Seen(key, key, 5, 0, "name") for key in (partner, other)
        ]
        together.add(seen, ties(seen))
    found = together.weights(1024)
    alone = Together()
    for number in range(100):
        seen = [Seen(key, key, 0, 0, "name") for key in ("hub", f"p{number:03}")]
        alone.add(seen, ties(seen))

    assert sum("hub" in pair for pair in found) <= MOST_EDGES
    assert len(alone.weights(1024)) == 100


# --- updates

FIRST = "Ada Bert Carl Dora Emil Frida Gustav Hanna Igor Jana Karl Lena Max Nora Otto Paula Quirin Rosa Sven Tilda".split()
LAST = "Adler Becker Conrad Decker Engel Fuchs Graf Huber Jung Krause Lorenz Maier Neumann Ott Peters Richter".split()
PLACES = "Arnheim Brixen Colmar Dornbirn Eupen Feldkirch Girona Hallein Imst Jesolo".split()
DOES = ("met", "wrote to", "argued with", "worked for", "visited")


def story(rng: random.Random, people: list[str]) -> str:
    """A passage about some people of a circle."""
    lines = []
    for _ in range(rng.randint(8, 14)):
        a, b = rng.sample(people, 2)
        lines.append(
            f"In {rng.choice(PLACES)}, {a} {rng.choice(DOES)} {b}, and then {a} {rng.choice(DOES)} them again near the {rng.choice(('mill', 'harbour', 'school'))}."
        )
    return " ".join(lines)


def collection(documents: int, seed: int) -> list[Chunk]:
    """Documents of two passages, each about one of a few circles of people."""
    rng = random.Random(seed)
    people = [f"{first} {last}" for first in FIRST for last in LAST]
    rng.shuffle(people)
    circles = [people[at : at + 8] for at in range(0, 160, 8)]
    found = []
    for number in range(documents):
        circle = circles[number % len(circles)]
        found += chunks_of(story(rng, circle), story(rng, circle), document=f"d{number:03}")
    return found


def test_an_edit_moves_few_weights_and_none_that_it_does_not_touch():
    """A sentence more in one of two hundred passages: edges between things that it does not mention keep their weight, and of the others most do."""
    before = collection(100, seed=1)
    mentioned = before[40].text.split(" ", 3)[2]
    edited = list(before)
    chunk = before[40]
    text = f"{chunk.text} In Imst, {mentioned} Adler met Nora Ott, who had come by the night train."
    edited[40] = Chunk(id="new", document_id=chunk.document_id, index=chunk.index, start=chunk.start, end=chunk.start + len(text), text=text)
    old, new = weights(graph_of(before)), weights(graph_of(edited))
    changed = {pair for pair in old.keys() | new.keys() if old.get(pair) != new.get(pair)}
    untouched = {pair for pair in changed if not any(name in text for name in pair)}

    assert len(old) > 500
    assert untouched == set()
    assert len(changed) < 0.03 * len(old)
