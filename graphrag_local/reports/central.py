"""Reports without a model: the sentences that stand for a community, word for word. Pure.

A sentence is central when it names what most records of the community are about and uses the words that its sentences share (degree centrality over
entities, and the centroid of Radev and others 2004). Sentences are taken best first, each judged by what it adds to those before it (maximal marginal
relevance, Carbonell and Goldstein 1998), and each is explained by another one about the same. Names make the title, since every language reads them.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from graphrag_local.records import Finding
from graphrag_local.reports.context import Context
from graphrag_local.reports.quote import Quotable, is_new, title
from graphrag_local.reports.schema import ReportDraft
from graphrag_local.text import words

SHORT, LONG = 8, 45  # words of a sentence that reads well; a shorter one says little, a longer one is counted by what it says per word
QUESTION = 0.5  # what a question is worth of a statement: the answer says more
ALIKE = 0.6  # how much of a sentence's worth is lost where it says nothing that is not said
REPEATED = 0.5  # share of its words that are in an earlier sentence, from which one is no explanation of it
MOST_SOURCES = 3  # records that a sentence cites; all of them quote it
UNUSUAL = "?？؟"


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence: the short ids of the records that quote it, what it is about (entities by name), its words, and how central it is."""

    text: str
    shorts: tuple[str, ...]
    about: frozenset[str]
    words: frozenset[str]
    worth: float


def extracted(context: Context) -> ReportDraft:
    """The report of a context that is to be quoted."""
    given = context.quotable
    assert given is not None
    sentences = _sentences(given)
    chosen = _varied(sentences, context.findings)
    findings, told = [], [sentence.text for sentence in chosen]
    for sentence in chosen:
        more = _explanation(sentence, sentences, told)
        told += [more.text] if more else []
        shorts = list(dict.fromkeys((*sentence.shorts[:MOST_SOURCES], *(more.shorts[:1] if more else ()))))
        findings.append(Finding(summary=sentence.text, explanation=more.text if more else "", sources=tuple(context.ids[short] for short in shorts), more=False))
    everything = set().union(*(sentence.about for sentence in sentences))
    named = set().union(*(sentence.about for sentence in chosen))
    return ReportDraft(
        title=title([list(context.ids)], given),
        summary=" ".join(finding.summary for finding in findings[:2]),
        rating=round(10 * len(named) / len(everything), 1) if everything else 0.0,
        rating_explanation=f"{len(named)} / {len(everything)}: {', '.join(name for name in given.names if name in named)[:300]}",
        findings=tuple(findings),
        dropped=(),
    )


def _sentences(given: Quotable) -> list[_Sentence]:
    """Every sentence that a record of the context quotes, in the order of the context."""
    quoting: dict[str, list[str]] = {}
    for short, said in given.said.items():
        for text in said:
            quoting.setdefault(text, []).append(short)
    strength = Counter(name for names in given.about.values() for name in names)
    parts = {text: frozenset(words(text)) for text in quoting}
    spread = Counter(word for found in parts.values() for word in found)
    return [
        _Sentence(text, tuple(_pairs_first(shorts, given)), about, parts[text], _worth(text, about, parts[text], strength, spread))
        for text, shorts in quoting.items()
        for about in (frozenset(name for short in shorts for name in given.about[short]),)
    ]


def _pairs_first(shorts: Iterable[str], given: Quotable) -> list[str]:
    """Records of two entities first: what they quote is said of both."""
    return sorted(shorts, key=lambda short: len(given.about[short]) < 2)


def _worth(text: str, about: frozenset[str], said: frozenset[str], strength: Counter[str], spread: Counter[str]) -> float:
    named = math.fsum(sorted(math.log1p(strength[name]) for name in about))
    shared = math.fsum(sorted(math.log(spread[word]) for word in said if 1 < spread[word] < max(3, len(spread) / 8)))
    length = max(1, sum(1 for _ in words(text)))
    fitting = min(1.0, length / SHORT) * min(1.0, math.sqrt(LONG / length))
    worth = (named + shared / math.sqrt(length)) * fitting
    return round(worth * QUESTION if text.rstrip("\"'”’»)")[-1:] in UNUSUAL else worth, 9)


def _varied(sentences: list[_Sentence], most: int) -> list[_Sentence]:
    """The best sentences, each time the one that is worth most beside those that are chosen."""
    chosen: list[_Sentence] = []
    named: set[str] = set()
    left = dict.fromkeys(range(len(sentences)), 0.0)  # how much of its words an earlier choice has
    while left and len(chosen) < most:
        best = max(left, key=lambda number: (_added(sentences[number], left[number], named), -number))
        taken = sentences[best]
        del left[best]
        if is_new(taken.text, (one.text for one in chosen)):
            chosen.append(taken)
            named |= taken.about
        for number in left:
            left[number] = max(left[number], _overlap(sentences[number], taken))
    return chosen


def _added(sentence: _Sentence, said: float, named: Collection[str]) -> float:
    """What a sentence is worth, less for the share of it that is `said` in the same words or is about what is named already."""
    known = len(sentence.about.intersection(named)) / len(sentence.about) if sentence.about else 1.0
    return round(sentence.worth * (1 - ALIKE * max(said, known / 2)), 9)


def _overlap(one: _Sentence, other: _Sentence) -> float:
    return len(one.words & other.words) / max(1, len(one.words))


def _explanation(sentence: _Sentence, sentences: list[_Sentence], told: list[str]) -> _Sentence | None:
    """The most central sentence about the same that is not told yet, and not in the same words."""
    fitting = [one for one in sentences if one.about & sentence.about and _overlap(one, sentence) < REPEATED and is_new(one.text, told)]
    return max(fitting, key=lambda one: (len(one.about & sentence.about) / len(one.about | sentence.about) + one.worth / 1000, one.text), default=None)
