"""Strings that tell a forgotten document from all that is left."""

import itertools
import random
import time

from graphrag_local.store.distinctive import distinctive

GONE = (
    "The tithe barn at Quillharrow was let to Osric Penhallow in the wet spring of 1874.\n"
    "His sister, whom all called Meribel, kept the book QX-4471 and paid 120 crowns\nfor hay, straw and oats that year. "
    "The river rose in May and the lower field was lost. Nobody had seen such water before."
)
LEFT = ["The river rose in May and the\nlower field was lost.", "Meribelle lives here. She paid 120 crowns, as a penhallow does."]


def test_strings_are_in_what_is_gone_and_in_nothing_that_is_left():
    """Runs, numbers and names come from the gone text only; what is shared is left out, however its lines break, and names inside longer ones are."""
    strings = distinctive([GONE], LEFT)
    flat = " ".join(GONE.split())
    assert all(string in GONE or string in flat for string in strings)
    assert not [string for string in strings for text in LEFT if string in text or " ".join(string.split()) in " ".join(text.split())]
    assert {"QX-4471", "Quillharrow", "Osric"} <= set(strings)
    assert not {"Meribel", "Penhallow", "1874", "The", "Nobody"} & set(strings)
    assert "The tithe barn at Quillharrow was" in strings
    broken = [string for string in strings if "\n" in string]
    assert broken
    assert all(" ".join(string.split()) in strings for string in broken)


def test_a_text_that_is_shared_whole_has_none():
    """A copy of a document that stays has nothing by which it can be told, with its lines broken otherwise too."""
    assert distinctive([GONE], [GONE]) == []
    assert distinctive([GONE], ["Before. " + " ".join(GONE.split()) + " After."]) == []
    assert distinctive([], LEFT) == []


def test_scripts_without_spaces_give_runs_of_characters():
    """Chinese, Japanese and Thai text has runs of twelve characters, without the breaks of lines where it has some."""
    gone = "一八七四年春天很潮湿，奥斯里克租下了\n奎尔哈罗的什一谷仓并在那里住了很多年。หมู่บ้านริมแม่น้ำแห่งนี้เงียบสงบมาก"
    strings = distinctive([gone], ["奥斯里克"])
    assert any("\n" in string for string in strings)
    assert all(string in gone or string in gone.replace("\n", "") for string in strings)
    assert any("\u0e00" <= string[0] <= "\u0eff" for string in strings)
    assert distinctive([gone], [gone.replace("\n", "")]) == []


def test_strings_are_spread_over_each_text():
    """A long text gives strings from its beginning to its end, within the limit; each of many texts gives some."""
    chance = random.Random(2)
    long = [" ".join(f"{chance.choice('bdfgk')}o{n}ra" for n in range(start, start + 3000)) for start in (0, 50_000)]
    strings = distinctive(long, [], most=60)
    assert 50 <= len(strings) <= 60
    for text in long:
        places = sorted(text.index(string) / len(text) for string in strings if string in text)
        assert places[0] < 0.1
        assert places[-1] > 0.85
        assert max(b - a for a, b in itertools.pairwise(places)) < 0.2
    many = [" ".join(f"w{n}x{start} goes" for n in range(40)) for start in range(100)]
    strings = distinctive(many, [], most=60)
    assert all(1 <= sum(string in text for string in strings) <= 4 for text in many)


def test_nothing_is_so_short_or_plain_that_it_is_found_by_chance():
    """Years, hexadecimal pieces, times and probabilities, which ids and logs are full of, are not taken by themselves."""
    gone = "in 1874 the id deadbeef12 with 0.123456 at 2026-11-30 was given to Jo and Ada by 1,250,000 of 20.5.1874"
    assert {string for string in distinctive([gone], []) if " " not in string} == set()


def test_short_texts_are_told_by_all_of_them():
    """A text of a few words is one string; one of hardly any has none."""
    assert distinctive(["  The barn burnt down.\n"], []) == ["The barn burnt down."]
    assert distinctive(["Yes.", "", "\n"], []) == []


def test_the_choice_is_always_the_same_and_quick():
    """Two calls give the same, and a text of 20,000 words against 8 MB of others takes a few seconds at most (measured 0.5 s)."""
    chance = random.Random(5)
    syllables = [a + b for a in "bdfgklmnprstvw" for b in ("a", "or", "en", "ul", "i", "ey")]
    words = ["".join(chance.choices(syllables, k=chance.choice([1, 2, 2, 3, 4]))) for _ in range(8000)]
    often = [1 / (rank + 3) for rank in range(8000)]
    gone = " ".join(chance.choices(words, often, k=20_000))
    left = [" ".join(chance.choices(words, often, k=3000)) for _ in range(50)] * 9
    began = time.process_time()
    first = distinctive([gone], left)
    assert time.process_time() - began < 4
    assert len(first) == 200
    assert first == distinctive([gone], iter(left))
