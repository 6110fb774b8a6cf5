"""Passages that refer to one that was found by its number: the amendment of a rule, the repeal of a clause, the correction of an entry.

Such a passage shares no word with a question about the rule ("in § 3 of the by-law of 1998 read 150"), so neither words nor vectors find it, and an
answer without it is the law of yesterday. What it does share is a label with a number (Rule 7, § 3, 第3条) that stands where the question is answered,
and names or numbers of what that is a part of. Both are asked for, so in other texts this step finds nothing. Our own step, no published one.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from graphrag_local.query.language import FUNCTION_WORDS, asked_for
from graphrag_local.query.retrieve import CHUNK_WORDS, FUSION_K, Ranked, terms, words_of
from graphrag_local.query.view import View
from graphrag_local.records import Chunk
from graphrag_local.text import phrases, sentences, words

FIRST = 3  # passages whose references are looked for
MOST = 2  # passages that are taken for each of them
DEPTH = 40  # passages among which they are looked for
NEAR = 8  # what is among so many passages anyway is left where it is
HEAD = 200  # characters of a document's beginning that say what it is
SHARED, CLEAR = 2, 0.75  # names and numbers of that head that the passage must have, and at least such a share of what the best passage has
PAIR = 2  # characters of what counts as a word in scripts without spaces
BACK = 3  # sentences before the answering one in which its label may stand

Label = tuple[str, str]
_AND = r"\s?(?:,|[-–]|and|und|et|y|e|en|og|och|ja|i|to|bis|à|a)\s?"
_LABEL = re.compile(
    rf"(?<![^\W\d_])(§{{1,4}}|[^\W\d_]{{1,40}})\.?\s{{0,2}}(\d{{1,3}}[a-z]?(?![a-z\d])(?:{_AND}\d{{1,3}}[a-z]?(?![a-z\d]))*)(?![.,]?\s?\d)", re.IGNORECASE
)
_NUMBER = re.compile(r"\d+[a-z]?", re.IGNORECASE)
_DIGITS = re.compile(r"\d{1,3}([a-z]?)(?![a-z\d])", re.IGNORECASE)
_BEFORE = re.compile(r"(§|[^\W\d_]{1,40})\.?\s{0,2}\Z")
WIDEST = 43  # characters of a label before its number


def with_references(question: str, ranked: Ranked, view: View, k: int) -> Ranked:
    """A ranking of at most k passages in which what refers to the first of them by number follows each of those."""
    order = [owner for owner, _ in ranked.hits]
    known, added = set(order[:NEAR]), 0
    for owner, score in ranked.hits[:FIRST]:
        found = _referring(question, view.chunks[owner], view) if score > 0 else []
        fresh = [other for other in found if other not in known][:MOST]
        order = [other for other in order if other not in fresh]
        at = order.index(owner) + 1
        order[at:at] = fresh
        known.update(fresh)
        added += len(fresh)
    if not added:
        return ranked
    hits = [(owner, 1 / (FUSION_K + place)) for place, owner in enumerate(order[:k], 1)]
    noun = "passage that refers" if added == 1 else "passages that refer"
    return replace(ranked, hits=hits, notes=(*ranked.notes, f"{added} {noun} to a rule or section that was found, by its number, were read with it."))


def _referring(question: str, chunk: Chunk, view: View) -> list[str]:
    """The passages that refer to where a passage answers, best first. They have its label and names of its document, so they are found by words alone."""
    labels = _labels_of(question, chunk)
    if not labels:
        return []
    head = {word for word in _head(chunk, view) if not any(_alike(word, label) or word == number for label, number in labels)}
    asked = " ".join([*(" ".join(label) for label in sorted(labels)), *sorted(head)])
    found = words_of(view, CHUNK_WORDS).best(asked, DEPTH)
    shared = {owner: _shared(view.chunks[owner], labels, head, view) for owner, _ in found if owner != chunk.id}
    least = max([SHARED, *(CLEAR * count for count in shared.values())])
    return sorted((owner for owner, count in shared.items() if count >= least), key=lambda owner: -shared[owner])


def _labels_of(question: str, chunk: Chunk) -> set[Label]:
    """The labels of the sentence that has most of the question, or else of the nearest one before it."""
    if not _may_have_labels(chunk.text):
        return set()
    wanted, spans = frozenset(asked_for(question)), sentences(chunk.text)
    told = [chunk.text[start:end] for start, end in spans]
    best = max(range(len(told)), key=lambda place: len(wanted.intersection(words(told[place]))), default=0)
    return next((found for text in reversed(told[max(0, best - BACK) : best + 1]) if (found := set(labels(text)))), set())


def _may_have_labels(text: str) -> bool:
    """False where no sentence of a text has a label, told in a fraction of the time that looking at each sentence takes."""
    for match in _DIGITS.finditer(text):
        before = _BEFORE.search(text, max(0, match.start() - WIDEST), match.start())
        if before and (match[1] or before[1].casefold() not in FUNCTION_WORDS):
            return True
    return False


def labels(text: str) -> Iterable[Label]:
    """Words with a number behind them, folded; of a list of numbers each."""
    for match in _LABEL.finditer(text):
        label = match[1].casefold()
        if label not in FUNCTION_WORDS:
            yield from ((label, number.casefold()) for number in _NUMBER.findall(match[2]))


def _head(chunk: Chunk, view: View) -> set[str]:
    """What says what a passage is a part of: the names and numbers of the title and the beginning of its document."""
    document = view.documents.get(chunk.document_id)
    return _names(f"{document.path} {document.title}. {document.text[:HEAD]}") if document else set()


def _names(text: str) -> set[str]:
    """The words of names, and the numbers; in scripts without capitals and spaces every pair of characters."""
    named = {word for start, end in phrases(text) for word in words(text[start:end])}
    pairs = {term for term in terms(text, pairs_only=True) if len(term) == PAIR and term >= "\u1100"}
    return {word for word in named | pairs | set(_NUMBER.findall(text.casefold())) if len(word) > 1 and word not in FUNCTION_WORDS}


def _shared(chunk: Chunk, wanted: set[Label], head: set[str], view: View) -> int:
    """How much of a head a passage has that names one of the labels; 0 where it names none."""
    named = any(_alike(label, other) and number == same for other, same in labels(chunk.text) for label, number in wanted)
    return len(head.intersection(_names(f"{view.title(chunk.document_id)}. {chunk.text}"))) if named else 0


def _alike(one: str, other: str) -> bool:
    """Whether two labels are one word, in forms that differ at its end ("rule", "rules") or, in scripts without spaces, in what stands before it."""
    short, long = sorted((one, other), key=len)
    return one == other or (len(short) > 2 and long.startswith(short)) or (short >= "\u1100" and long.endswith(short))
