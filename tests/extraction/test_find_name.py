"""Where a name stands in a text: the quick search finds what the pattern finds."""

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from graphrag_local.extraction.ground import _pattern, find_name

WORDS = st.sampled_from(["Pike", "pike", "PIKES", "Lock", "lockkeeper", "Lo", "A&B", "(Lock)", "St.", "x_Lock", "7", "Lock7", "Ilse", "ſt", "ılse", "Pikeß"])
GAPS = st.sampled_from([" ", "  ", "\n", "\t", "\n\n", "-", "-\n", "\u00ad", ",", "", ". ", "_"])
TEXTS = st.lists(st.tuples(WORDS, GAPS), max_size=12).map(lambda pairs: "".join(word + gap for word, gap in pairs))
NAMES = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)


def by_pattern(name, text):
    match = _pattern(name, broken=True).search(text)
    return (match.start(), match.end()) if match else None


@settings(max_examples=400, deadline=None)
@given(name=NAMES, text=TEXTS)
@example(name="Pike Lock", text="the pike\n\nlocks")
@example(name="Lock", text="Lock7 x_Lock")
@example(name="Lock", text="a lockers' lockkeeper, a lock")
@example(name="Pike", text="Pi-\nke and Pi\u00adke")
def test_a_name_is_found_where_the_whole_pattern_finds_it(name, text):
    """Whatever way is taken, a name is found at the first place that the pattern for broken words gives, or nowhere as it does."""
    assert find_name(name, text) == by_pattern(name, text)


def test_a_plain_name_needs_no_pattern():
    """ASCII names in texts without broken words are found without a regular expression of their own, which would cost more than all the rest."""
    _pattern.cache_clear()
    text = "The keeper of Pike Lock wrote to the Lorne Canal Trust; Zoë answered. " * 40

    assert find_name("Lorne Canal Trust", text) == re.search("Lorne Canal Trust", text).span()
    assert find_name("Nils Aho", text) is None
    assert _pattern.cache_info().misses == 0
