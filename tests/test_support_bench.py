"""The bench of verdicts: its claims are what their labels say, and the same from the same seed."""

import re

import pytest

from graphrag_local import samples
from graphrag_local.documents.stage import read_collection
from graphrag_local.query.cite import clean
from graphrag_local.settings import DocumentsSettings
from graphrag_local.text import one_line, sentences, words
from scripts.bench_support import LABELS, Maker, auc

CASES = 12


@pytest.fixture(name="documents", scope="module")
def _documents():
    return read_collection(samples.collection(), DocumentsSettings())[0]


@pytest.fixture(name="claims", scope="module")
def _claims(documents):
    maker = Maker(documents, 3)
    return {kind: list(maker.claims(kind, CASES)) for kind in LABELS}


def numbers(text):
    """The numbers of a text in digits, without what parts their thousands."""
    return re.findall(r"\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", text))


def test_claims_are_single_sentences_and_the_same_again(documents, claims):
    """Each claim is one sentence as answers show them, most kinds are there, and a second maker makes the same ones, and others from another seed."""
    made = [claim for own in claims.values() for claim in own]
    again = Maker(documents, 3)

    assert all(len(sentences(claim.text)) == 1 and clean(claim.text) == claim.text for claim in made)
    assert {kind for kind, own in claims.items() if not own} <= {"turned"}
    assert made == [claim for kind in LABELS for claim in again.claims(kind, CASES)]
    assert claims["figure"] != list(Maker(documents, 4).claims("figure", CASES))


def test_supported_claims_say_what_their_evidence_says(claims):
    """All words of a supported claim stand in its evidence; only figures are written otherwise where that is the point."""
    for kind in ("verbatim", "shortened", "turned", "joined", "rewritten"):
        for claim in claims[kind]:
            new = set(words(claim.text)) - set(words(claim.evidence.text))
            assert all(word.isdecimal() or word == "percent" for word in new), claim.text
            assert not new or kind == "rewritten", claim.text
            assert not claim.missing, claim.text


def test_a_changed_figure_stands_nowhere_in_the_evidence(claims):
    """A changed claim is a line of its evidence but for one figure, whose digits are in no number of the evidence, nor in the document's name."""
    for claim in claims["figure"]:
        told = numbers(f"{claim.evidence.text} {claim.evidence.document.path} {claim.evidence.document.title}")
        changed = [number for number in numbers(claim.text) if number not in told]
        shapes = [re.sub(r"\d", "#", line) for line in claim.evidence.lines]
        assert len(changed) == 1, claim.text
        assert re.sub(r"\d", "#", claim.text) in shapes
        assert claim.missing


def test_other_unsupported_claims_are_not_in_the_evidence(claims):
    """A sentence from elsewhere is none of the document; exchanged names and counts are new to it; without its "not" a negated claim is a line of it."""
    for claim in claims["elsewhere"]:
        assert claim.text not in one_line(claim.evidence.document.text)
    for claim in (*claims["name"], *claims["count"]):
        assert set(words(claim.text)) - set(words(claim.evidence.text)), claim.text
    for claim in claims["negated"]:
        assert claim.text.replace(" not", "", 1) in claim.evidence.lines
        assert " not" not in claim.text.replace(" not", "", 1)


def test_half_a_claim_is_supported(claims):
    """One half of a joined claim is a line of its evidence, and the other stands nowhere in the document."""
    for claim in claims["half"]:
        own = [line[:-1] for line in claim.evidence.lines if claim.text.startswith(f"{line[:-1]}; ") or claim.text.endswith(f"; {line}")]
        assert len(own) == 1, claim.text
        assert claim.text.replace(own[0], "").strip("; .!") not in one_line(claim.evidence.document.text)


def test_chance_is_a_half():
    """The AUC is 1 where all are told apart, a half where nothing is, and nothing without figures."""
    assert auc([0.9, 0.8], [0.1, 0.2]) == 1
    assert auc([0.5, 0.5], [0.5]) == 0.5
    assert auc([0.1], [0.2, 0.0]) == 0.5
    assert auc([], [0.1]) is None
