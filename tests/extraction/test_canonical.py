"""Which names of a document are asked about: those that could mean the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrag_local.extraction.canonical import MOST_NAMES, candidates
from graphrag_local.text import name_key, words
from tests.clock import effort_of
from tests.graph.extractions import said

NAMES = ("Ann Lee", "Lee", "Mrs Lee", "A. L.", "AL", "Gull Mill Trust", "Gull Mill", "Mill Trust", "GMT", "G.M.T.", "Bo", "Bo Gull", "Café Örn", "Örn",
         "北港公司", "北港", "of", "It", "the gull", "GULL MILL")  # fmt: skip


def related(one: str, other: str) -> bool:
    """The rule, name by name."""
    own, theirs = ({word for word in words(name) if len(word) > 2} for name in (one, other))
    if own and theirs and (own <= theirs or theirs <= own):
        return True
    short, long = sorted((one, other), key=len)
    initials = "".join(word[0] for word in long.split() if word[:1].isupper())
    return 2 <= len(short) < len(long) and short.replace(".", "") == initials


@given(st.lists(st.sampled_from(NAMES), max_size=12))
def test_names_that_could_mean_the_same_are_asked_about(names):
    """One name per key, in order of appearance, each related to another one."""
    first = {name_key(name): name for name in reversed(names)}
    ordered = [first[key] for key in dict.fromkeys(map(name_key, names))]
    expected = [name for name in ordered if any(related(name, other) for other in ordered if other != name)]

    assert [mention.name for group in candidates([said(*names)]) for mention in group] == expected


@pytest.mark.parametrize(("names", "asked"), [((f"P{n}" for n in range(5000)), 0), ((f"Gull {n * 1000}" for n in range(1, 3000)), 0),
                                              (("Gull", *(f"Gull {n * 1000}" for n in range(1, 3000))), MOST_NAMES)])  # fmt: skip
def test_a_book_of_names_is_looked_through_in_time(names, asked):
    """Thousands of names take a moment, whether or not they share a word."""
    whole = said(*names)
    found, seconds = effort_of(lambda: candidates([whole]))

    assert sum(map(len, found)) == asked
    assert seconds < 5


def test_related_names_are_asked_about_together_however_many_there_are():
    """In a book of more related names than one call takes, every name is asked about, in one call with those it could mean the same as."""
    names = [*(f"Dr Mara Vance{n}" for n in range(100)), *(f"Vance{n}" for n in range(100))]
    groups = [[mention.name for mention in group] for group in candidates([said(*names)])]

    assert sorted(name for group in groups for name in group) == sorted(names)
    assert all(len(group) <= MOST_NAMES for group in groups)
    assert len(groups) == 4
    assert all({f"Dr Mara {name}" for name in group if name.startswith("V")} <= set(group) for group in groups)
