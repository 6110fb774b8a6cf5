"""Passages that refer to one that was found by its number, and passages in other languages: where they come in, and that nothing else does."""

import asyncio

import pytest

from graphrag_local.query.referring import labels, with_references
from graphrag_local.query.retrieve import Ranked, rank_chunks
from graphrag_local.query.tongues import TOP, reached
from graphrag_local.query.view import view_of
from tests.query.world import NoEmbedder, WordEmbedder, text_index

RULE = "Charter of Ash Lock, 1990. Section 4. A raft may pass at night. Section 5. Dogs swim free."
CHANGE = "Ash Lock, 2004. Section 4 of the charter of 1990 falls away."
NOISE = {f"n{n}": f"ash grew by the lock at night, and a raft of {n} planks may rot, says a man of section 4 of it." for n in range(30)}
ASKED = "May a raft pass Ash Lock at night?"


def referred(texts, question=ASKED, k=8, embedder=None):
    """The ranking before and after, as titles, and its notes."""
    view, embedder = view_of(text_index(**texts)), embedder or NoEmbedder()

    async def both():
        ranked = await rank_chunks(question, view, embedder, k)
        return ranked, with_references(question, ranked, view, k)

    before, after = asyncio.run(both())
    names = [[view.documents[view.chunks[owner].document_id].path.removesuffix(".txt") for owner, _ in ranked.hits] for ranked in (before, after)]
    return names, after


@pytest.mark.parametrize("embedder", [NoEmbedder(), WordEmbedder()])
def test_what_refers_follows_what_it_refers_to(embedder):
    """The change comes right behind the rule, nothing comes twice, no more than k, scores fall, and a note says it."""
    (before, after), ranked = referred({**NOISE, "rule": RULE, "change": CHANGE}, embedder=embedder)

    assert "rule" in before[:3]
    assert after[after.index("rule") + 1] == "change"
    assert len(after) == len(set(after)) <= 8
    scores = [score for _, score in ranked.hits]
    assert scores == sorted(set(scores), reverse=True)
    assert [note for note in ranked.notes if "refers to a rule or section" in note]


@pytest.mark.parametrize(
    "texts",
    [
        {"rule": RULE, "change": CHANGE.replace("Section 4", "Section 5")},
        {"rule": RULE, "change": "Elm Yard, 2004. Section 4 of the charter of 1960 falls away."},
        {"rule": "Charter of Ash Lock, 1990. A raft may pass at night.", "change": CHANGE},
        {"rule": RULE.replace("Section 4.", "In 1990:"), "change": CHANGE.replace("Section 4", "The whole")},
    ],
)
def test_another_number_or_another_charter_does_not_count(texts):
    """Without the label of the answering sentence, or without the names of its document, the ranking stays as it was, scores and all."""
    (before, after), ranked = referred({**NOISE, **texts})

    assert after == before
    assert not [note for note in ranked.notes if "refers" in note]


def test_what_is_near_anyway_keeps_its_place():
    """A change that is among the first already is not moved."""
    (before, after), _ = referred({"rule": RULE, "change": f"{CHANGE} No raft may pass at night."})

    assert after == before


def test_nothing_found_is_nothing_to_refer_to():
    """An empty ranking, and one of beginnings that nothing led to, stay as they are."""
    view = view_of(text_index(rule=RULE, change=CHANGE))
    for ranked in (Ranked(hits=[]), Ranked(hits=[(chunk, 0.0) for chunk in sorted(view.chunks)])):
        assert with_references("?x", ranked, view, 8) is ranked


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("In Rule 7 of it", {("rule", "7")}), ("§ 3 and §12a", {("§", "3"), ("§", "12a")}), ("Art. 5, 6 and 9", {("art", "5"), ("art", "6"), ("art", "9")}),
        ("根据第3条", {("根据第", "3")}), ("for 30 days in 1987", set()), ("on May 4, 1987", set()), ("Rule 1987 and 3.5", set()), ("", set()),
    ],
)  # fmt: skip
def test_labels_are_words_with_a_number_behind(text, found):
    """Not small words, years, dates or decimal numbers."""
    assert set(labels(text)) == found


def test_words_do_not_count_against_other_languages():
    """The first passages of the vectors' ranking that are in another language stand in the words' ranking where the vectors have them, others do not."""
    texts = {"de": "Der Wärter füttert die Karpfen mit Schilf und das ist alles.", "en": "The keeper feeds the carp with reed.", "no": "17 24 31"}
    texts |= {f"e{n}": f"The carp of the keeper is number {n} of all that he feeds." for n in range(6)}
    view = view_of(text_index(**texts))
    chunk = {view.documents[owner.document_id].path.removesuffix(".txt"): id_ for id_, owner in view.chunks.items()}
    by_words = [(chunk[f"e{n}"], 6.0 - n) for n in range(6)]
    question = "What does the keeper feed the carp with?"

    def order(by_vectors, words=by_words):
        names = {id_: name for name, id_ in chunk.items()}
        return [names[owner] for owner, _ in reached(question, [(chunk[name], 1.0) for name in by_vectors], words, view)]

    assert order(["de", "en"]) == ["de", "e0", "e1", "e2", "e3", "e4", "e5"]
    assert order(["en", "de"])[:2] == ["e0", "de"]
    assert order(["e0"] * TOP + ["de"]) == order(["no"]) == order(["en"]) == [f"e{n}" for n in range(6)]
    assert order(["de"], [(chunk["e0"], 2.0), (chunk["de"], 1.0)]) == ["de", "e0"]
    assert order(["de"], []) == order([])[:0]
