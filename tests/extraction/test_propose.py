"""Names proposed to a model too small to find them."""

import pytest

from graphrag_local.extraction.ground import passage_of
from graphrag_local.extraction.propose import pair_up, propose
from graphrag_local.records import Chunk


def names_in(text: str, most: int = 20) -> list[str]:
    return [one.name for one in propose(passage_of(Chunk(id="c", document_id="d", index=0, start=0, end=len(text), text=text)), most)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It was Nils Aho who left the Bank of the North.", ["Nils Aho", "Bank of the North"]),
        ("The lock is old. Nobody mends the Pike Lock.", ["Pike Lock"]),
        ("We met J. M. Orr on 17 June 1922.", ["J. M. Orr", "17 June 1922"]),
        ("Zwei Boote kamen nach Lübeck.", ["Zwei Boote", "Lübeck"]),
        ("Анна Каренина живёт в Москве.", ["Анна Каренина", "Москве"]),
        ("nothing here has a name.", []),
        ("柳河信托拥有派克船闸。", []),
        ("3 4 5 6.", []),
    ],
)
def test_runs_of_words_with_capitals_are_names(text, expected):
    """Runs of words with capitals are proposed, small words between them included; words that only open a sentence are not."""
    assert names_in(text) == expected


def test_every_proposed_name_stands_in_its_sentences():
    """A proposed name is a span of each sentence it claims, and no name comes twice."""
    text = "Ann Lee met Bo Ray at Pike Lock. Bo Ray paid Ann Lee. Pike Lock was shut! **Cy Orr** wrote: “Bo Ray lied.” It rained on Cy Orr."
    passage = passage_of(Chunk(id="c", document_id="d", index=0, start=0, end=len(text), text=text))
    names = propose(passage, 3)

    assert len(names) == 3 == len({one.name for one in names})
    assert all(one.name in passage.shown[number - 1] for one in names for number in one.sentences)


def test_pairs_share_a_sentence_or_neighbouring_ones():
    """Every proposed pair cites one sentence with both names, or two side by side with one each."""
    text = "Ann Lee met Bo Ray. It was late. They left with Cy Orr. Then it rained. Nobody came. Eve Day slept."
    passage = passage_of(Chunk(id="c", document_id="d", index=0, start=0, end=len(text), text=text))
    names = propose(passage, 20)
    said = {(names[p.source - 1].name, names[p.target - 1].name) for p in pair_up(names, 20)}

    assert ("Ann Lee", "Bo Ray") in said
    assert not any("Eve Day" in pair for pair in said)
    for pair in pair_up(names, 20):
        for cited in pair.sentences:
            assert {pair.source, pair.target} <= {n for n, one in enumerate(names, 1) if set(one.sentences) & set(cited)}
    assert len(pair_up(names, 1)) == 1
