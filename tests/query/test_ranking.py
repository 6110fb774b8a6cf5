"""The ranking core: second passages are reached, similarity keeps its places, and prose is ranked by similarity alone."""

import asyncio
import random

import pytest

from graphrag_local.query.linking import ALL, Rules
from graphrag_local.query.ranking import FUSED, LINKED, placed
from graphrag_local.query.ranking import Linked as Found
from graphrag_local.query.retrieve import DEPTH, LEAST_DEPTH, WordIndex, fused, nearest, rank_chunks
from graphrag_local.query.view import view_of
from tests.query.test_linking import LATIN, collection, long_document
from tests.query.world import MemoryIndex, NoEmbedder, WordEmbedder

NOISE = {f"Bank {n}": f"Bank {n} of the east side pays its husband of a clerk, who was born in a town, and it is number {n}." for n in range(60)}
PROSE = (
    "The old man walked down to the harbour every morning. Nobody knew why he did so, and nobody asked. He carried a lamp, which he never lit. Children "
    "followed him for a while and then ran home. In winter the water froze and he walked further out, over the ice, with the lamp in his left hand. "
    "Someone said that he had lost a ship there. Someone else said that he had never owned one. The harbour master counted the boats and wrote the number "
    "down in a book with a green cover. The number was hardly ever the same. When the wind came from the north, the counting took until noon, and the book "
    "was wet. My sister kept the book after the flood; she read it aloud to us in the evenings, boat by boat, as others read prayers."
).split(". ")


def rank(question, index, k=8, embedder=None, rules=ALL):
    return asyncio.run(rank_chunks(question, view_of(index), embedder or NoEmbedder(), k, rules))


def texts(ranked, index):
    by_id = {chunk.id: chunk.text for chunk in index.chunks()}
    return [by_id[owner] for owner, _ in ranked.hits]


def with_vectors(index):
    index.vectors["chunk"] = {chunk.id: WordEmbedder().vector(chunk.text) for chunk in index.chunks()}
    return index


def fused_only(question, index, k, embedder):
    view = view_of(index)
    by_words = WordIndex.of([(c.id, f"{view.title(c.document_id)} {c.text}") for c in index.chunks()])
    vector = asyncio.run(embedder.embed([question]))[0] if embedder.card.dimension else None
    depth = max(k * DEPTH, LEAST_DEPTH)
    return fused(nearest(view, "chunk", vector, depth), by_words.best(question, depth))[:k]


@pytest.mark.parametrize("titled", [True, False])
def test_a_question_over_two_passages_reaches_the_second(titled):
    """The second passage shares no word with the question; it is about a name in the first. The step says why."""
    index = collection({**LATIN, **NOISE}, titled=titled)
    question = "In which town was the husband of Ottilie Brandt born?"
    ranked = rank(question, index, 4)
    found = texts(ranked, index)

    assert found[0] == LATIN["Ottilie Amalia Brandt"]
    assert LATIN["Karl Vessel"] in found
    assert LATIN["Karl Vessel"] not in texts(rank(question, index, 4, rules=Rules(bridge=False)), index)
    step = ranked.why[next(c.id for c in index.chunks() if c.text == LATIN["Karl Vessel"])]
    assert (step.name, step.via) == ("karl vessel", ranked.hits[0][0])


@pytest.mark.parametrize(
    ("first", "second", "noise", "question"),
    [
        (
            ("Лотарь Ветров", "Лотарь Ветров — капитан. Он был женат на Анне Снеговой."),
            ("Анна Снегова", "Анна Снегова — певица из Тарна."),
            "Банк",
            "Где родилась жена Лотаря Ветрова?",
        ),
        (("陈大海", "陈大海是一位船长。他的妻子是林小玉。"), ("林小玉", "林小玉是歌手，生于塔恩。"), "银行", "陈大海的配偶生于何处？"),
        (("سالم البحري", "سالم البحري كان ملاحا. زوجته ليلى النجار."), ("ليلى النجار", "ليلى النجار كانت مغنية."), "بنك", "أين ولدت زوجة سالم البحري؟"),
    ],
)  # fmt: skip
def test_two_steps_in_other_scripts(first, second, noise, question):
    """Inflected names, scripts without spaces and scripts without capitals reach the second passage too."""
    index = collection(dict([first, second]) | {f"{noise} {n}": f"{noise} {n} — {question[-1 - n % 5 :]}" for n in range(40)})
    found = texts(rank(question, index, 5), index)

    assert found[0] == first[1]
    assert second[1] in found


def test_words_of_the_question_beside_a_name_decide_which_is_followed():
    """Of many names in a passage, the one beside the relation that is asked for comes first."""
    people = [f"{a} {b}" for a in ("Ada", "Bea", "Cora", "Dora", "Eva", "Fia") for b in ("Holm", "Lund")]
    said = "The Glass Bridge is a film. " + " ".join(f"In that long year it was {role} by {name}." for role, name in zip(
        "lit cut scored directed painted sewn sold drawn shown copied stored named".split(), people, strict=True))  # fmt: skip
    index = collection({"The Glass Bridge": said, **{name: f"{name} lives in a house by the sea." for name in people}, **NOISE})
    found = texts(rank("Where does the director of the film The Glass Bridge live?", index, 2), index)

    assert found[1].startswith(people[3])
    assert not texts(rank("Where does the director of the film The Glass Bridge live?", index, 2, rules=Rules(cues=False)), index)[1].startswith(people[3])


@pytest.mark.parametrize("embedder", [WordEmbedder(), NoEmbedder()])
def test_prose_is_ranked_as_without_links(embedder):
    """Where the question names nothing that the collection is about, the result is the fused ranking, scores included."""
    document, chunks = long_document("harbour", [part + "." for part in PROSE])
    index = with_vectors(MemoryIndex(rows={"documents": [document], "chunks": chunks}))
    for question in ("What did the old man carry over the ice?", "who kept the book after the flood", "Did Someone lose a ship?", *PROSE):
        assert rank(question, index, 8, embedder).hits == fused_only(question, index, 8, embedder)


def test_a_name_in_passing_does_not_take_over():
    """A long question about something else that names one title in passing keeps the fused ranking."""
    index = with_vectors(collection({**LATIN, **NOISE}))
    question = "She told me that winter about clerks who counted herring journeys slowly while somebody painted every lighthouse near Tarnholm with patience"

    assert rank(question, index, 8, WordEmbedder()).hits == fused_only(question, index, 8, WordEmbedder())


def test_similarity_keeps_three_of_eight_places():
    """Five linked, three fused, in turns; nothing twice; what one lacks the other fills."""
    linked = Found(order=tuple(range(10, 30)), why={}, covered=1.0)

    assert placed(linked, [1, 10, 2, 3, 4], 8) == [10, 11, 12, 13, 14, 1, 2, 3]
    assert placed(linked, [1, 2, 3, 4, 5, 6, 7], 16) == [10, 11, 12, 13, 14, 1, 2, 3, 15, 16, 17, 18, 19, 4, 5, 6]
    assert placed(Found(order=(9,), why={}, covered=1.0), [9, 1, 2], 8) == [9, 1, 2]
    assert LINKED + FUSED == 8


@pytest.mark.parametrize("seed", range(3))
def test_the_order_is_total_and_fixed(seed):
    """Shuffled rows give the same hits with the same scores, strictly ordered."""
    index = with_vectors(collection({**LATIN, **NOISE}))
    question = "Who was the husband of Ottilie Brandt from Tarnholm?"
    first = rank(question, index, 20, WordEmbedder()).hits
    again = rank(question, index.shuffled(seed), 20, WordEmbedder()).hits

    assert first == again
    assert first == sorted(first, key=lambda hit: (-hit[1], hit[0]))
    assert len({owner for owner, _ in first}) == 20


def test_ties_are_broken_by_id():
    """Passages with the same text and nothing else to tell them apart come in the order of their ids."""
    index = collection({f"n{number}": "The same words stand everywhere." for number in range(30)})
    hits = rank("same words", index, 10).hits

    assert [owner for owner, _ in hits] == sorted(chunk.id for chunk in index.chunks())[:10]


def test_a_long_document_gives_the_chunks_that_the_question_is_about():
    """A question that names a long document gets those of its chunks that are near it, before near ones of other documents."""
    talks = {
        name: long_document(f"Talk with {name}", [f"We spoke of {topic} at length, part {n}." for n, topic in enumerate(topics)])
        for name, topics in (("Ida Berg", ["ice", "boats", "lamps", "maps", "tides"]), ("Olaf Dal", ["ice", "boats", "lamps", "coal", "bread"]))
    }
    index = MemoryIndex(rows={"documents": [d for d, _ in talks.values()], "chunks": [c for _, chunks in talks.values() for c in chunks]})
    chunks = {chunk.id: chunk for chunk in index.chunks()}
    hits = rank("What does Olaf Dal say about lamps and boats?", index, 4).hits

    assert [chunks[owner].document_id for owner, _ in hits[:2]] == [talks["Olaf Dal"][0].id] * 2
    assert {chunks[owner].index for owner, _ in hits[:2]} == {1, 2}


def test_no_embedder_no_words_no_text():
    """Without vectors words and links do; without a known word the beginnings of documents come, with a note; an empty index gives nothing."""
    index = collection(LATIN)
    lost = rank("Xyzzy plugh?", index)

    assert any("words alone" in note for note in rank("Karl Vessel", index).notes)
    assert {score for _, score in lost.hits} == {0.0}
    assert any("No word of the question" in note for note in lost.notes)
    assert rank("Karl Vessel?", MemoryIndex()).hits == []


def test_links_are_built_once_for_a_generation():
    """The second question finds what the first one built."""
    index = collection(LATIN)
    rank("Karl Vessel", index)
    kept = dict(index.memo)
    rank("Where is Tarnholm?", index)

    assert {key: id(value) for key, value in kept.items()} == {key: id(value) for key, value in index.memo.items()}


def test_any_question_is_ranked():
    """Random runs of characters of many scripts are questions like others: no error, no chunk twice, never more than asked for."""
    index = collection({**LATIN, "陈大海": "陈大海是船长。", "سالم": "سالم كان ملاحا."})
    dice = random.Random(4)
    for _ in range(200):
        question = "".join(dice.choice("Karl Vessel Ottilie'sB-. ,“”()陈大海سالم?٣éß\u200b\u0301\ud83d\ude00\n") for _ in range(dice.randrange(1, 60)))
        hits = rank(question, index, 3).hits
        assert len({owner for owner, _ in hits}) == len(hits) <= 3
