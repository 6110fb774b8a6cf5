"""Names that the program proposes where the model is too small to find them: runs of words with capitals.

A model of some hundred million parameters, free to take any span of a passage, takes the first words it sees. Left to say of each proposed
name what it is and which sentence shows it, and which names belong together, it cannot go wrong in form, and every name is a span. Our
choice; scripts without capitals and passages without names fall back to spans under the grammar.
"""

from collections import Counter

import regex

from graphrag_local.extraction.closed import is_nameless
from graphrag_local.extraction.ground import Passage, find_name
from graphrag_local.extraction.schema import Proposed, ProposedPair
from graphrag_local.text import word_key

_WORD = r"[\p{Lu}\p{Lt}\p{N}](?:[\p{L}\p{M}\p{N}'’&\-]|\.(?=\p{Lu}))*"
# Small words that stand inside names in languages of Europe.
_INSIDE = "of|the|de|la|las|los|le|les|du|des|del|della|dei|di|da|do|dos|das|van|von|zu|zur|zum|der|den|af|av|y|e|ter|ten|och|og|bin|ibn|al"
_RUN = regex.compile(rf"(?<![\p{{L}}\p{{N}}.]){_WORD}(?:(?: (?:{_INSIDE})){{0,2}} {_WORD}|(?<=[ .]\p{{Lu}}|^\p{{Lu}})\. {_WORD}){{0,4}}")
_LOWER = regex.compile(r"\p{Ll}+")
_LETTER = regex.compile(r"\p{Lu}|\p{Lt}")
_OPENING = regex.compile(r"[^\p{L}\p{N}]*")
LONGEST = 60  # characters
MOST_CITED = 4  # sentences among which the model chooses


def propose(passage: Passage, most: int) -> tuple[Proposed, ...]:
    """The names most often held, at most `most`, in order of first appearance.

    The first word of a sentence has a capital whatever it is: it counts when the passage writes it so elsewhere, or never in lower case within
    a longer name. Pronouns and months are no names.
    """
    shown = passage.shown
    small = {word for text in shown for word in _LOWER.findall(text)}
    runs = [(run.group(), run.start() <= _opens(text)) for text in shown if _LOWER.search(text) for run in _RUN.finditer(text)]
    inner = {word for name, opens in runs for word in name.split()[1 if opens else 0 :]}
    found: Counter[str] = Counter()
    for run, opens in runs:
        name = " ".join(_trimmed(run.split(), opens, small, inner))
        if 1 < len(name) <= LONGEST and _LETTER.search(name) and not _is_nameless(name.split()):
            found[name] += 1
    order = list(found)
    best = sorted(order, key=lambda name: (-found[name], " " not in name, order.index(name)))[:most]
    held = ((name, tuple(n for n, text in enumerate(shown, 1) if find_name(name, text))) for name in sorted(best, key=order.index))
    return tuple(Proposed(name=name, sentences=sentences[:MOST_CITED]) for name, sentences in held if sentences and find_name(name, passage.text))


def _is_nameless(words: list[str]) -> bool:
    """Whether a name is none; a date with figures is one of a kind."""
    return not any(map(str.isdecimal, words)) and is_nameless([word_key(word) for word in words])


def _trimmed(words: list[str], opens: bool, small: set[str], inner: set[str]) -> list[str]:
    """The words of a run without those that have their capital from the place they stand in."""
    if len(words) > 1 and len(words[-1]) == 1 and not words[-1].isdigit():  # "Then I"
        words = words[:-1]
    if words[0].lower() in small and (opens or len(words) == 1):
        words = words[1:]
        while words and words[0].islower():
            words = words[1:]
    elif opens and len(words) == 1 and words[0] not in inner:
        words = []
    return words


def pair_up(names: tuple[Proposed, ...], most: int) -> tuple[ProposedPair, ...]:
    """Pairs of names that one sentence holds, else two sentences side by side, at most `most`; those of most sentences first."""
    found = []
    for a, first in enumerate(names, 1):
        for b, second in enumerate(names[a:], a + 1):
            if first.name in second.name or second.name in first.name:
                continue
            both = [(n,) for n in first.sentences if n in second.sentences]
            near = [(min(m, n), max(m, n)) for m in first.sentences for n in second.sentences if abs(m - n) == 1]
            if both or near:
                found.append(((not both, -len(both), a, b), ProposedPair(source=a, target=b, sentences=tuple(both or near)[:MOST_CITED])))
    best = sorted(found, key=lambda pair: pair[0])[:most]
    return tuple(pair for _, pair in sorted(best, key=lambda pair: (pair[1].source, pair[1].target)))


def _opens(text: str) -> int:
    match = _OPENING.match(text)
    return match.end() if match else 0
