"""The passages that an answer is written from: ranked by the retrieval core, for long questions by their parts, reordered by a reranker.

The request of a long question stands at its end more often than not, and as one query it would be lost among the words before it: so its last
sentence is asked for by itself and has every second place.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from graphrag_local.engine.base import Embedder
from graphrag_local.query.context import Ref, shown_as
from graphrag_local.query.inquiry import Inquiry
from graphrag_local.query.retrieve import FUSION_K, Ranked, rank_chunks
from graphrag_local.query.view import View
from graphrag_local.query.windows import SMALLEST
from graphrag_local.text import is_question, sentences

LONG = 1200  # characters; longer questions are asked in parts (some two hundred words: more than one question needs)
REQUEST = 25  # characters that a request has at least: a last sentence that is shorter is taken with the one before
END = 400  # characters of the end and of the beginning
MIDDLE, MIDDLE_CHARACTERS = 4, 1500  # parts of what is between, evenly spread, and what each has at most
QUESTION_SHARE, QUESTION_TOKENS = 8, 2000  # a question is shown in an eighth of the model's window and at most so many tokens
CHARACTERS = 8  # that a token has at most, in the mean over a text
GAP = " … "


async def passages(inquiry: Inquiry, embedder: Embedder, k: int) -> Ranked:
    """The k chunks that the question of an inquiry needs, best first."""
    ranked = await _passages(inquiry, embedder, k)
    if inquiry.trace:
        _note(inquiry, ranked, k)
    return ranked


def _note(inquiry: Inquiry, ranked: Ranked, k: int) -> None:
    """Write down what was found, by which ranking, and the first of what was not among the first k."""
    trace, view = inquiry.trace, inquiry.view
    assert trace is not None

    def told(hits: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
        return trace.records(view, (Ref(kind="chunk", id=owner) for owner, _ in hits), dict(hits))

    kept = {owner for owner, _ in ranked.hits}
    beyond = {owner: score for ranking in ranked.rankings.values() for owner, score in ranking if owner not in kept}
    why = f"not among the first {k}" if len(beyond) <= k else f"not among the first {k} (the first {k} of {len(beyond)} such passages)"
    trace.note(
        "passages",
        asked=list(inquiry.search or parts_of(inquiry.question)),
        kept=told(ranked.hits),
        cut=trace.cut(view, why, (Ref(kind="chunk", id=owner) for owner in list(beyond)[:k]), beyond),
        rankings={name: told(ranking[:k]) for name, ranking in ranked.rankings.items()},
        led_by={owner: told([(step.via, 0.0)])[0]["label"] + f": {step.name}" if step.via else step.name for owner, step in ranked.why.items() if owner in kept},
    )


async def _passages(inquiry: Inquiry, embedder: Embedder, k: int) -> Ranked:
    asked = inquiry.search or parts_of(inquiry.question)
    reranker = inquiry.reranker
    ranked = await rank_parts(asked, inquiry.view, embedder, max(k, inquiry.settings.rerank_first) if reranker else k)
    if reranker is None or len(ranked.hits) < 2:
        return ranked
    first, rest = ranked.hits[: inquiry.settings.rerank_first], ranked.hits[inquiry.settings.rerank_first :]
    said = inquiry.question if len(inquiry.question) <= LONG else asked[0]
    texts = [f"{inquiry.view.title(chunk.document_id)}\n{chunk.text}" for chunk in (inquiry.view.chunks[owner] for owner, _ in first)]
    scores = await reranker.score(said, texts)
    order = sorted(range(len(first)), key=lambda place: (-scores[place], place))
    owners = [first[place][0] for place in order] + [owner for owner, _ in rest]
    note = f"{len(first)} passages were put in a new order by the reranker."
    return replace(ranked, hits=_placed(owners[:k]), notes=(*ranked.notes, note))


async def rank_parts(parts: Sequence[str], view: View, embedder: Embedder, k: int) -> Ranked:
    """The k chunks that the parts of a question need: the first part has every second place, the others take turns in the places between."""
    found = [await rank_chunks(part, view, embedder, k) for part in parts]
    if len(found) == 1:
        return found[0]
    some = [ranked for ranked in found if not any(score == 0 for _, score in ranked.hits)] or found[:1]  # a part that names nothing finds beginnings
    first, others = some[0], some[1:]
    others_in_turn = [owner for row in zip(*(_padded(ranked, k) for ranked in others), strict=True) for owner in row]
    turns = [owner for pair in zip(_padded(first, k), others_in_turn[:k] or [""] * k, strict=True) for owner in pair]
    owners = list(dict.fromkeys(filter(None, turns)))[:k]
    why = {owner: step for ranked in reversed(some) for owner, step in ranked.why.items()}
    notes = tuple(dict.fromkeys(note for ranked in some for note in ranked.notes))
    rankings = {f"part {number}: {name}": ranking for number, ranked in enumerate(some, 1) for name, ranking in ranked.rankings.items()}
    return Ranked(hits=_placed(owners), notes=notes, why=why, rankings=rankings)


def _padded(ranked: Ranked, k: int) -> list[str]:
    owners = [owner for owner, _ in ranked.hits]
    return owners + [""] * (k - len(owners))


def _placed(owners: Sequence[str]) -> list[tuple[str, float]]:
    return [(owner, 1 / (FUSION_K + place)) for place, owner in enumerate(owners, 1)]


def parts_of(question: str) -> tuple[str, ...]:
    """A question as it is looked for: whole; a long one as its last sentence, its end, its beginning and some parts between, each once."""
    if len(question) <= LONG:
        return (question,)
    begin, end = _beginning(question, END), _end(question, END)
    middle = question[len(begin) : len(question) - len(end)]
    size = -(-len(middle) // MIDDLE)
    between = [middle[at : at + size][:MIDDLE_CHARACTERS] for at in range(0, len(middle), size)]
    return tuple(dict.fromkeys(part for part in (_request(end), end, begin, *between) if is_question(part))) or (question,)


def shorten(inquiry: Inquiry) -> None:
    """A question that would take too much of the model's window is shown by its beginning and, three times as much, its end."""
    question, count = inquiry.question, inquiry.model.counter.count
    limit = max(SMALLEST, min(inquiry.model.card.context_tokens // QUESTION_SHARE, QUESTION_TOKENS))
    if len(question) <= limit // 4 or count(shown_as(question)) <= limit:
        return
    inquiry.search = inquiry.search or parts_of(question)
    inquiry.question = shortened(question, lambda text: count(shown_as(text)) <= limit, limit * CHARACTERS)
    shown, whole = len(inquiry.question), len(question)
    inquiry.notes.append(
        f"The question is too long for the model's window beside evidence: its beginning and its end are shown to the model ({shown:,} of {whole:,} "
        "characters), and passages are looked for by its last sentence, its end, its beginning and parts between."
    )


def shortened(question: str, fits: Callable[[str], bool], most: int = sys.maxsize) -> str:
    """The beginning and the end of a text, as much of both as fits, and no more characters than `most`."""
    low, high = 0, min(len(question), most)
    while low < high:  # the largest number of characters that fits, the end having three of four
        middle = -(-(low + high) // 2)
        low, high = (middle, high) if fits(_joined(question, middle)) else (low, middle - 1)
    return _joined(question, low)


def _joined(question: str, size: int) -> str:
    return f"{_beginning(question, size // 4)}{GAP}{_end(question, size - size // 4)}"


def _request(end: str) -> str:
    """The last sentence of a text, with those before it where it is short."""
    return next((end[start:] for start, _ in reversed(sentences(end)) if len(end) - start >= REQUEST), end)


_WORD = re.compile(r"\s")


def _beginning(text: str, size: int) -> str:
    """At most `size` characters of a text's beginning: whole sentences, else whole words, else characters."""
    ends = [end for _, end in sentences(text[: size + 1]) if end <= size][:-1]
    spaces = [match.start() for match in _WORD.finditer(text, 0, size)]
    return text[: ends[-1] if ends else spaces[-1] if spaces else size]


def _end(text: str, size: int) -> str:
    """At most `size` characters of a text's end: whole sentences, else whole words, else characters."""
    tail = text[max(0, len(text) - size) :]
    starts = [start for start, _ in sentences(tail)][1:]
    space = _WORD.search(tail)
    return tail[starts[0] if starts else space.end() if space else 0 :]
