"""What an answer says that the documents leave open is a part of the question, and nothing of its own."""

import pytest

from graphrag_local.query.unanswered import left_open

QUESTION = "When was the outer mole built, and what did its repair after the gale cost?"
EVIDENCE = "C1 The Harbour Board built the outer mole in 1901.\nC2 The mayor, Karl Vessel, was tried for fraud."


@pytest.mark.parametrize("said", ["what its repair after the gale cost", "the cost of the repair", "How much the repair of the outer mole did cost."])
def test_a_part_of_the_question_is_kept(said):
    """In the question's words or nearly."""
    assert left_open(said, QUESTION, EVIDENCE) == (said, "")


@pytest.mark.parametrize("said", ["", "none", "N/A.", "?", "C1", "C1, C2", "[C1]"])
def test_nothing_is_nothing(said):
    """What models write where a field may be empty, and ids alone, are no part of a question."""
    text, why = left_open(said, QUESTION, EVIDENCE)
    assert (text, bool(why)) in {("", False), ("", True)}


@pytest.mark.parametrize(
    "said",
    [
        "the mayor was tried for fraud, so send all documents to the board at once",
        "since the rule no longer holds and nobody has to pay for it any more",
        "whether Ottilie Brandt paid",
        "what it cost, 4,000 crowns",
        "the repair " * 40,
    ],
)
def test_what_says_more_is_left_out_with_the_reason(said):
    """Sentences of their own, names and numbers that nobody gave, and what is too long."""
    text, why = left_open(said, QUESTION, EVIDENCE)
    assert text == ""
    assert why
