"""What a passage speaks of, found without a model: names by their capitals, words of scripts without spaces, and key phrases.

Names come first, because they make the best links (runs of capitals measured as well as a tagger, noun chunks and key words much worse: they become
hubs). Key phrases of several words are added where they recur, single words only where a passage has hardly anything else.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import regex

from graphrag_local.extraction.closed import BESIDE, is_nameless
from graphrag_local.extraction.lexis import Lexis, Sentence, is_contracted, sentences_of
from graphrag_local.extraction.recurring import Recurring, candidates, found_runs, katakana
from graphrag_local.records import Chunk
from graphrag_local.text import ARTICLES, INSIDE, PlacedWord, clean_name, name_key, phrases, placed_words

NAME, CONCEPT = "name", "concept"
LONGEST_NAME = 80  # characters
MOST_WORDS = 7  # of a name; a longer run is a headline
MOST = 60  # of a passage, the most frequent first
FEW = 3  # a passage with fewer is filled up with single words
ONLY = 0.8  # share of the longer names of a short one that has to be one and the same
POSSESSIVE = regex.compile(r"['’ʼ]s?$")
LETTER = regex.compile(r"\p{L}")
_AMOUNT = regex.compile(r"[.,]\d|\s?[%‰€$£]")  # after the first digits of an amount, which are no part of the name before it
_SENTENCE_LIKE = regex.compile(r"[.!?…,;:。！？，、]$|[,;:!?。！？]\s?")


@dataclass(frozen=True, slots=True)
class Seen:
    """One place of a name or phrase: its key, how it is written, which sentence of the passage (a number), where in it, and what it is."""

    key: str
    name: str
    sentence: int
    start: int
    type: str


def spot(chunk: Chunk, lexis: Lexis, recurring: Recurring, *, capital_nouns: bool) -> tuple[list[Sentence], list[Seen]]:
    """The sentences of a passage and all that is seen in them, in the order of the text; at most MOST different things."""
    sentences = list(sentences_of(chunk.text))
    capital_nouns = capital_nouns or lexis.is_german(sentences)
    seen: list[Seen] = []
    loose: list[Seen] = []
    for number, sentence in enumerate(sentences):
        taken: list[tuple[int, int]] = []
        for start, end, kind in _named(sentence, lexis, recurring, capital_nouns):
            if is_free(start, end, taken):
                taken.append((start, end))
                seen += seen_as(kind, sentence.text[start:end], number, start)
        for start, end, key in sorted(candidates(sentence, lexis), key=lambda found: (found[0] - found[1], found[0])):
            if key in recurring.words and is_free(start, end, taken):
                if " " in key:
                    taken.append((start, end))
                (seen if " " in key else loose).extend(concept(sentence.text[start:end].casefold(), number, start))
    return sentences, picked(seen, loose, recurring)


def picked(seen: list[Seen], loose: list[Seen], recurring: Recurring) -> list[Seen]:
    """What was seen, with the most telling single words where that is little; at most MOST different things, in the order of the text."""
    have = len({one.key for one in seen})
    return _most(seen + _telling(loose, recurring, FEW - have) if have < FEW else seen)


def _named(sentence: Sentence, lexis: Lexis, recurring: Recurring, capital_nouns: bool) -> Iterator[tuple[int, int, str]]:
    text = sentence.text
    if not sentence.loud:
        for start, end in sorted(phrases(text, lexis, sentence.words), key=lambda found: (found[0] - found[1], found[0])):
            yield from _name(text, start, end, lexis, recurring, capital_nouns)
    for start, end in (*katakana(text), *found_runs(text, recurring.runs)):
        yield start, end, CONCEPT


def _name(text: str, start: int, end: int, lexis: Lexis, recurring: Recurring, capital_nouns: bool) -> Iterator[tuple[int, int, str]]:
    """A run of capitals or a quoted title without what is no part of a name.

    A single word has to be a name inside sentences; in a language of capital nouns one that is none in other passages has to recur, as a key phrase does.
    """
    if text[start - 1 : start] in ('"', "“", "„", "«", "「", "『", "《") and start and (_SENTENCE_LIKE.search(text[start:end]) or text[start].islower()):
        return
    if (line := text.find("\n", start, end)) > 0 and text[start:line].isupper() != text[line:end].isupper():  # a heading in capitals, and what stands below it
        yield from _name(text, start, line, lexis, recurring, capital_nouns)
        yield from _name(text, line + 1, end, lexis, recurring, capital_nouns)
        return
    words = placed_words(text[start:end])
    if words and words[-1].key.isdecimal() and _AMOUNT.match(text, start + words[-1].end):
        words = words[:-1]
    while words and (is_contracted(text[start + words[0].start : end]) or words[0].key in ARTICLES or words[0].key == "i"):
        words = words[1:]
        while words and not words[0].capital and not words[0].bare:
            words = words[1:]
    while words and (words[-1].key in ("i", *INSIDE) or is_contracted(text[start + words[-1].start : end]) or _begins_anew(text[start:end], words, lexis)):
        words = words[:-1]
    if not words or (len(words) > MOST_WORDS and not words[0].bare) or not LETTER.search(text[start + words[0].start : start + words[-1].end]):
        return
    keys = [word.key for word in words]
    if not words[0].bare and _names_nothing(text[start + words[0].start : start + words[-1].end], keys, lexis):
        return
    if len(words) == 1 and not words[0].bare and (len(keys[0]) < 2 or not (lexis.is_noun if capital_nouns else lexis.is_name)(keys[0])):
        return
    begin, stop = start + words[0].start, start + words[-1].end
    stop -= len(match.group()) if (match := POSSESSIVE.search(text[begin:stop])) else 0
    if capital_nouns and len(words) == 1 and not words[0].bare and not lexis.is_name(keys[0]):
        if keys[0] in recurring.words:
            yield begin, stop, CONCEPT
        return
    if stop - begin <= LONGEST_NAME:
        yield begin, stop, NAME


def _begins_anew(text: str, words: Sequence[PlacedWord], lexis: Lexis) -> bool:
    """Whether the last word of a run opens a sentence after one that ends in a letter of its own: "Model X. She"."""
    if len(words) < 2 or len(words[-2].key) > 1 or len(words[-1].key) < 2:
        return False
    return text[words[-2].end : words[-1].start] == ". " and words[-1].key in lexis


def _names_nothing(text: str, keys: Sequence[str], lexis: Lexis) -> bool:
    """Whether words are of closed classes, initials without a name, or common words in capitals throughout.

    Of those none is a name where it is written otherwise, and half of them are written small.
    """
    if is_nameless(keys) or (" " in text and max(map(len, keys)) < 2):
        return True
    if len(keys) < 2 or not text.isupper():
        return False
    long = [key for key in keys if key not in INSIDE and len(key) > 2]
    if any(lexis.inside[key] > lexis.small[key] for key in long if key not in BESIDE):
        return False
    return bool(long) and 2 * sum(key in BESIDE or lexis.small[key] > 0 for key in long) >= len(long)


def is_free(start: int, end: int, taken: Iterable[tuple[int, int]]) -> bool:
    """Whether a place overlaps none of those that are taken."""
    return all(end <= begin or stop <= start for begin, stop in taken)


def seen_as(kind: str, text: str, sentence: int, start: int) -> list[Seen]:
    """A name as it stands in a text; none where nothing of it is left once it is cleaned."""
    name = clean_name(text)
    return [Seen(name_key(name), name, sentence, start, kind)] if name else []


def concept(text: str, sentence: int, start: int) -> list[Seen]:
    """A key phrase, the same with hyphens and without."""
    return [Seen(name_key(text.replace("-", " ").replace("‐", " ")), text, sentence, start, CONCEPT)]


def _telling(loose: Sequence[Seen], recurring: Recurring, most: int) -> list[Seen]:
    """The most telling single words: those that are rare in the collection and frequent here."""
    counts = Counter(one.key for one in loose)
    ranked = sorted(counts, key=lambda key: (-counts[key] * recurring.share(key), key))
    chosen = set(ranked[:most])
    return [one for one in loose if one.key in chosen]


def _most(seen: list[Seen]) -> list[Seen]:
    counts = Counter(one.key for one in seen)
    order = sorted(seen, key=lambda one: (one.sentence, one.start, one.key))
    if len(counts) <= MOST:
        return order
    names = {one.key for one in seen if one.type != CONCEPT}
    kept = set(sorted(counts, key=lambda key: (key not in names, -counts[key], key))[:MOST])
    return [one for one in order if one.key in kept]


@dataclass(frozen=True, slots=True)
class Forms:
    """How a document writes its names: `best` is the commonest form of each key, one that is not in capitals throughout where there is one (scripts of plays
    and interviews write who speaks in capitals); `full` the full name of one-word names (see `full_names`)."""

    best: dict[str, str]
    full: dict[str, str]


def forms(seen: Iterable[Seen]) -> Forms:
    """The forms of a document's names."""
    names: dict[str, Counter[str]] = {}
    for one in seen:
        if one.type != CONCEPT:
            names.setdefault(one.key, Counter())[one.name] += 1
    best = {key: min(found, key=lambda name: (name.isupper(), -found[name], name)) for key, found in names.items()}
    return Forms(best, full_names({key: found.total() for key, found in names.items()}))


def full_names(counts: Mapping[str, int]) -> dict[str, str]:
    """Key -> key of the full name, of one-word names that are the beginning or the end of just one longer name of a document: "Lin" of "Ada Lin".

    What a short name begins may be a thing of its own ("Acme" of "Acme Robotics"), so there the longer name must be at least as frequent; and what comes
    before the short one must not be a name of its own that is more frequent ("Acme Quill" says that Quill is Acme's).
    """
    longer: dict[str, list[str]] = {}
    for key in counts:
        parts = key.split(" ")
        if 2 <= len(parts) <= 3 and not INSIDE.intersection(parts):
            for part in {parts[0], parts[-1]} & counts.keys():
                longer.setdefault(part, []).append(key)
    found = {}
    for key, wholes in longer.items():
        whole = min(wholes, key=lambda one: (-counts[one], one))
        rest = whole.removesuffix(key).strip() if whole.endswith(f" {key}") else ""
        alone = counts[whole] >= ONLY * sum(counts[one] for one in wholes)
        if alone and (counts.get(rest, 0) <= counts[whole] if rest else counts[whole] >= counts[key]):
            found[key] = whole
    return found
