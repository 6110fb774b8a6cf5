"""One call per document that makes the names in it canonical (algorithms §3): short forms, abbreviations, inflections, "the company".

Only names that could plausibly mean the same as another one are asked about, each with one sentence it stands in; most short documents have
none and cost no call. The reply pairs numbers of listed names, so a canonical name is always one that the document uses. The rows are
reversible (a mention keeps its own name) and local to the document, so that an edit elsewhere does not ripple.
"""

from dataclasses import replace

from graphrag_local.engine.base import Model, Request, ask
from graphrag_local.errors import ContextOverflow, ReplyInvalid
from graphrag_local.extraction.ground import passage_of
from graphrag_local.extraction.schema import canonical_constraint, parse_canonical
from graphrag_local.prompting import Prompt
from graphrag_local.records import Chunk, EntityMention, Extraction
from graphrag_local.text import name_key, neutralise, one_line, words

MOST_NAMES = 60
LONGEST_SENTENCE = 240  # characters of the sentence shown beside a name


def candidates(extractions: list[Extraction]) -> list[EntityMention]:
    """One mention per name that could mean the same as another name of the document, in order of first appearance."""
    first: dict[str, EntityMention] = {}
    for extraction in extractions:
        for mention in extraction.entities:
            first.setdefault(name_key(mention.name), mention)
    found = [m for key, m in first.items() if any(_related(m, other) for k, other in first.items() if k != key)]
    return found[:MOST_NAMES]


def _related(a: EntityMention, b: EntityMention) -> bool:
    """Whether two names share a word of three letters or more, or one is the initials of the other."""
    own, theirs = {w for w in words(a.name) if len(w) > 2}, {w for w in words(b.name) if len(w) > 2}
    if own & theirs and (own <= theirs or theirs <= own):
        return True
    short, long = sorted((a.name, b.name), key=len)
    initials = "".join(word[0] for word in long.split() if word[:1].isupper())
    return len(short) >= 2 and short.replace(".", "") == initials


async def make_canonical(
    chunks: list[Chunk], extractions: list[Extraction], model: Model, prompt: Prompt
) -> tuple[list[Extraction], str]:
    """The extractions of one document with `canonical` filled in, and why not when it could not be done ("" when it was)."""
    names = candidates(extractions)
    if len(names) < 2:
        return extractions, ""
    by_id = {chunk.id: chunk for chunk in chunks}
    shown = [{"name": one_line(neutralise(name.name)), "sentence": _sentence(name, extractions, by_id)} for name in names]
    messages = prompt.render(form=model.card.form, names=shown)
    request = Request(
        messages=messages,
        constraint=canonical_constraint(model.card.form, len(names)),
        max_tokens=min(8 + 14 * len(names), 800),
        purpose="describe",
        affinity=extractions[0].document_id,
        documents=(extractions[0].document_id,),
    )
    try:
        pairs, _ = await ask(model, request, parse_canonical(model.card.form))
    except (ReplyInvalid, ContextOverflow) as error:
        return extractions, f"the names of this document stay as they are: {error}"
    return [_renamed(extraction, _choose(names, pairs)) for extraction in extractions], ""


def _sentence(name: EntityMention, extractions: list[Extraction], chunks: dict[str, Chunk]) -> str:
    for extraction in extractions:
        if name in extraction.entities and name.spans:
            passage = passage_of(chunks[extraction.chunk_id])
            return one_line(neutralise(passage.text_of(name.spans[0])))[:LONGEST_SENTENCE]
    return ""


def _choose(names: list[EntityMention], pairs: tuple[tuple[int, int], ...]) -> dict[str, str]:
    """Key of another form -> canonical name; chains are followed, circles and self pairs say nothing, types must agree or one be `other`."""
    target: dict[int, int] = {}
    for form, name in pairs:
        valid = form != name and 1 <= form <= len(names) and 1 <= name <= len(names)
        if valid and form not in target and _compatible(names[form - 1], names[name - 1]) and _root(target, name) != form:
            target[form] = name
    return {name_key(names[form - 1].name): names[_root(target, form) - 1].name for form in target}


def _compatible(a: EntityMention, b: EntityMention) -> bool:
    return a.type == b.type or "other" in (a.type, b.type)


def _root(target: dict[int, int], number: int) -> int:
    while number in target:
        number = target[number]
    return number


def _renamed(extraction: Extraction, canonical: dict[str, str]) -> Extraction:
    return replace(extraction, entities=tuple(replace(e, canonical=canonical.get(name_key(e.name), "")) for e in extraction.entities))
