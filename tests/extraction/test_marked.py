"""What a tagger marks as extractions: types, names as they stand, noun phrases that recur, and nothing that is not in the text."""

import random
import re

import pytest

from graphrag_local.engine.base import Marked, Tagger
from graphrag_local.extraction.fast import extract_fast
from graphrag_local.extraction.marked import type_of
from graphrag_local.graph.merge import Merged, merge
from graphrag_local.settings import ExtractionSettings
from graphrag_local.text import one_line
from tests.extraction.test_fast import ENGLISH, chunks_of

NAMES = {
    "Mira Holt": "PERSON", "Holt": "PER", "Tomas Brandt": "PERSON", "Tomas": "PERSON", "the Salt Company": "ORG", "The Salt Company": "ORG",
    "Port Ellis": "GPE", "Harbour Museum": "FAC", "every week": "DATE", "spring": "DATE",
}  # fmt: skip
ORCHARD = (
    "A grey heron stood by the tidal basin. The tidal basin grinds salt, and she watched it.",
    "Nobody repairs the tidal basin, says the miller of the tidal basin. A brass lantern hung there.",
    "Our tidal basin is old. A tidal basin needs the moon.",
    "The moon pulls the sea. Ten boats left, and it rained.",
    "Boats wait for the sea. The sea was calm, and a letter came.",
)
PHRASES = re.compile(r"\b(?:grey heron|tidal basin|brass lantern|she|it|moon|sea|boats|ten boats|letter|miller)\b", re.IGNORECASE)


class Words:
    """A tagger that knows some names by heart, the longest first, and phrases by a pattern."""

    version = "words 1"

    def __init__(self, names: dict[str, str], phrases: re.Pattern[str] | None = None) -> None:
        self._names, self._phrases, self.read = names, phrases, 0

    def mark(self, text: str) -> list[Marked]:
        """Those of a text."""
        self.read += 1
        known = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in sorted(self._names, key=len, reverse=True)) or r"(?!)")
        found = [Marked(*match.span(), self._names[match.group()]) for match in known.finditer(text)]
        return found + [Marked(*match.span()) for match in self._phrases.finditer(text)] if self._phrases else found


def graph_of(texts, tagger: Tagger, **settings) -> Merged:
    """The graph of some passages as a tagger sees them."""
    chunks = chunks_of(*texts)
    return merge(extract_fast(chunks, tagger, ExtractionSettings(**settings)), {chunk.id: chunk for chunk in chunks})


def types(graph: Merged) -> dict[str, str]:
    return {entity.name: entity.type for entity in graph.entities}


def test_names_have_our_types_and_short_ones_their_full_name():
    """A pipeline's labels become the types of the settings; articles fall away, dates are no things, and "Holt" is Mira Holt."""
    graph = graph_of(ENGLISH, Words(NAMES))

    assert types(graph) == {
        "Mira Holt": "person", "Tomas Brandt": "person", "Salt Company": "organization", "Port Ellis": "geo", "Harbour Museum": "geo",
    }  # fmt: skip
    assert "holt" in {alias.casefold() for entity in graph.entities for alias in entity.aliases}
    assert graph.relationships


@pytest.mark.parametrize(
    ("label", "settings", "expected"),
    [
        ("persName", {}, "person"),
        ("GPE_ORG", {}, "organization"),
        ("PRODUCT", {}, "other"),
        ("PRODUCT", {"types": ("Product",)}, "Product"),
        ("PRODUCT", {"other_type": False}, ""),
        ("PERSON", {"types": ("drug",)}, "other"),
        ("CARDINAL", {}, ""),
        ("DATE", {"types": ("date",)}, "date"),
    ],
)
def test_labels_become_types(label, settings, expected):
    """A label that is a type of the settings is that type, a known one is ours, numbers are none, and the rest is `other` where that is allowed."""
    assert type_of(label, ExtractionSettings(**settings)) == expected


def test_noun_phrases_count_where_they_recur():
    """A phrase that the passages come back to is a thing; what is said once, a pronoun or a number is none."""
    graph = graph_of(ORCHARD, Words({}, PHRASES))

    assert types(graph)["tidal basin"] == "concept"
    assert {"sea", "moon"} & types(graph).keys()
    assert not {"grey heron", "brass lantern", "letter", "she", "it", "ten boats", "miller"} & types(graph).keys()


def test_a_phrase_that_is_a_name_elsewhere_is_that_name():
    """Who speaks is written in capitals, which a pipeline takes for a phrase; it is the person that it names in other places, under the form written there."""
    texts = (*ENGLISH, "MIRA HOLT: The ferry is late. TOMAS BRANDT: It is.", "MIRA HOLT: Then we wait.")
    graph = graph_of(texts, Words(NAMES, re.compile("MIRA HOLT|TOMAS BRANDT|ferry")))
    found = {entity.name: (entity.type, entity.mentions) for entity in graph.entities}

    assert found["Mira Holt"] == ("person", 4)
    assert found["Tomas Brandt"] == ("person", 2)
    assert "concept" not in types(graph).values()


def test_phrases_of_scripts_without_spaces():
    """Where words are not parted by spaces a phrase is one by its characters, and recurs like any other."""
    texts = ("古い灯台は海にある。灯台は高い。", "灯台の光を見た。", "灯台は白い。船が来た。", "海は青い。", "船は港へ行く。")
    graph = graph_of(texts, Words({}, re.compile("灯台|船|光|古い")))

    assert types(graph) == {"灯台": "concept"}


def test_every_quote_is_in_its_passage_whatever_is_marked():
    """Marks that overlap, cross sentences, stand outside the text or on nothing give only names that stand in what is quoted for them."""
    text = " ".join(ENGLISH) + "\n\n# Dr. A. Weil’s  log\n李明和王芳在北京大学。 12 34 — x-7\u202e y"

    class Anywhere:
        version = "anywhere 1"

        def __init__(self, seed: int) -> None:
            self._random = random.Random(seed)

        def mark(self, text: str) -> list[Marked]:
            """Fifty places in no order."""
            ends = [sorted(self._random.choices(range(len(text) + 5), k=2)) for _ in range(50)]
            short = [(start, min(end, start + self._random.randint(0, 30))) for start, end in ends]
            return [Marked(start, end, self._random.choice(("", "PER", "MISC", "CARDINAL"))) for start, end in short]

    seen = 0
    for seed in range(40):
        chunks = chunks_of(text, text)
        for chunk, extraction in zip(chunks, extract_fast(chunks, Anywhere(seed)), strict=True):
            for mention in extraction.entities:
                quoted = [chunk.text[span.start - chunk.start : span.end - chunk.start] for span in mention.spans]
                assert mention.description == one_line(" ".join(quoted))
                assert mention.canonical or any(one_line(mention.name).casefold() in one_line(one).casefold() for one in quoted)
                seen += 1
    assert seen > 500


def test_each_passage_is_read_and_counted_once():
    """The pipeline is what takes long, so it reads each passage once, and progress counts what it has read."""
    tagger, done = Words(NAMES), []
    extract_fast(chunks_of(*ENGLISH), tagger, advance=lambda: done.append(tagger.read))

    assert done == [1, 2]
    assert extract_fast([], tagger) == ()
