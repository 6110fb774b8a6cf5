"""Passages in another language than the question's: no word of the question can be in them, so that words do not find them is no sign against them. Pure."""

from graphrag_local.query.language import language_of
from graphrag_local.query.view import View

TOP = 3  # of the vectors' ranking that are looked at: with an embedder of one language the nearest passage in another one is there by chance
BEGINNING = 400  # characters that tell a passage's language

Scored = list[tuple[str, float]]


def reached(question: str, by_vectors: Scored, by_words: Scored, view: View) -> Scored:
    """The ranking by words, in which passages in other languages stand where the vectors have them.

    Two rankings fused bury what only one of them has under everything that both have: with enough passages that share the question's words, the one
    passage with the answer was lost where it is in another language.
    """
    asked = language_of(question) if by_vectors and by_words else ""
    foreign = [owner for owner, _ in by_vectors[:TOP] if asked and language_of(view.chunks[owner].text[:BEGINNING]) not in ("", asked)]
    places = {owner: place for place, (owner, _) in enumerate(by_words)}
    merged = list(by_words)
    for place, (owner, score) in enumerate(by_vectors[:TOP]):
        if owner in foreign and place < places.get(owner, place + 1):
            merged = [pair for pair in merged if pair[0] != owner]
            merged.insert(place, (owner, score))
    return merged
