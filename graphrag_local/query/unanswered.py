"""What is said where the documents do not answer: the part of a question that they leave open, and the passages that came nearest."""

import re

from graphrag_local.answers import Source
from graphrag_local.engine.base import Embedder
from graphrag_local.errors import GraphragError
from graphrag_local.query.cite import clean, sources_of
from graphrag_local.query.context import Ref
from graphrag_local.query.conversation import invented
from graphrag_local.query.language import asked_for
from graphrag_local.query.passages import parts_of, rank_parts
from graphrag_local.query.view import View
from graphrag_local.records import Chunk, Span
from graphrag_local.text import is_question, sentences, words

PLACES = 3  # passages that are shown instead of an answer
LONGEST = 300  # characters of a part of a question; more would be an answer without sources
OWN_WORDS = 6  # that a part of a question may have beside the question's: a form of a verb, "the", a name from the evidence
NOTHING = frozenset({"none", "nothing", "n/a", "na", "null", "no part", "-"})  # what models write where a field may be empty
IDS = re.compile(r"(?:[A-Z]\d+[,\s]*)+")  # a paragraph of a question mark has the form of an open part


def left_open(said: str, question: str, evidence: str) -> tuple[str, str]:
    """The part of a question that an answer says is not answered, and why it is not believed, one of them "".

    It cites nothing, so it may say nothing of its own: what is too long for a part of a question, or names something that neither the question nor
    the evidence has, is left out.
    """
    text = clean(said)
    if not is_question(text) or text.strip(" .").casefold() in NOTHING or IDS.fullmatch(text):
        return "", ""
    if len(text) > LONGEST:
        return "", f"it has {len(text)} characters, which is too long for that"
    own = [word for word in words(text) if word not in set(words(question))]
    if len(own) > OWN_WORDS:
        return "", f"it says more than the question asks: {text[:60]!r}"
    strange = invented(text, f"{question} {evidence}")
    return ("", f"it names {strange!r}, which is in neither question nor evidence") if strange else (text, "")


async def nearest(question: str, view: View, embedder: Embedder) -> tuple[Source, ...]:
    """The sentences that came nearest a question without answering it, one a passage; none where nothing is near."""
    try:
        ranked = await rank_parts(parts_of(question), view, embedder, PLACES)
    except GraphragError:  # that there is no answer is known, and not worth losing for this
        return ()
    wanted = frozenset(asked_for(question))
    chunks = [view.chunks[owner] for owner, score in ranked.hits if score > 0]
    if not embedder.card.dimension:  # what shares no more than its small words is not near
        chunks = [chunk for chunk in chunks if not wanted.isdisjoint(words(f"{view.title(chunk.document_id)} {chunk.text}"))]
    return tuple(source for chunk in chunks for source in sources_of(_likest(chunk, wanted), view, question, 1))


def _likest(chunk: Chunk, wanted: frozenset[str]) -> Ref:
    """The sentence of a passage that has most words of the question, the first of several."""
    spans = sentences(chunk.text) or [(0, len(chunk.text))]
    start, end = max(spans, key=lambda span: len(wanted.intersection(words(chunk.text[span[0] : span[1]]))))
    return Ref(kind="chunk", id=chunk.id, span=Span(start=chunk.start + start, end=chunk.start + end))
