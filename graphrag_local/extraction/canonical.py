"""One call per document that makes the names in it canonical (algorithms §3): short forms, abbreviations, inflections, "the company".

Only names that could plausibly mean the same as another one are asked about, each with one sentence it stands in; most short documents have
none and cost no call. The reply pairs numbers of listed names, so a canonical name is always one that the document uses. The rows are
reversible (a mention keeps its own name) and local to the document, so that an edit elsewhere does not ripple.
"""

from collections.abc import Iterator
from dataclasses import replace

from graphrag_local.engine.base import Model, Request, ask
from graphrag_local.errors import ContextOverflow, ReplyInvalid, reason_of
from graphrag_local.extraction.ground import Passage
from graphrag_local.extraction.schema import canonical_constraint, parse_canonical
from graphrag_local.prompting import Prompt
from graphrag_local.records import Chunk, EntityMention, Extraction
from graphrag_local.text import name_key, neutralise, one_line, words

MOST_NAMES = 60
LONGEST_SENTENCE = 240  # characters of the sentence shown beside a name


def candidates(extractions: list[Extraction]) -> list[EntityMention]:
    """One mention per name that could mean the same as another name of the document, in order of first appearance.

    Two names could where all words of three letters or more of one are among those of the other, or one is the initials of the other.
    """
    first: dict[str, EntityMention] = {}
    for extraction in extractions:
        for mention in extraction.entities:
            first.setdefault(name_key(mention.name), mention)
    parts = {key: frozenset(word for word in words(mention.name) if len(word) > 2) for key, mention in first.items()}
    with_word: dict[str, set[str]] = {}
    for key, own in parts.items():
        for word in own:
            with_word.setdefault(word, set()).add(key)
    found: set[str] = set(_initials(first))
    for key, own in parts.items():  # asked of the shorter name only, so that a book's thousands of names are not compared with each other
        fuller = set.intersection(*sorted((with_word[word] for word in own), key=len)) - {key} if own else set()
        found |= fuller | {key} if fuller else set()
    return [mention for key, mention in first.items() if key in found][:MOST_NAMES]


def _initials(names: dict[str, EntityMention]) -> Iterator[str]:
    """The keys of names that are the initials of a longer one, and of those."""
    fuller: dict[str, list[tuple[str, str]]] = {}
    for key, mention in names.items():
        initials = "".join(word[0] for word in mention.name.split() if word[:1].isupper())
        fuller.setdefault(initials, []).append((key, mention.name))
    for key, mention in names.items():
        if len(mention.name) >= 2:
            longer = [other for other, name in fuller.get(mention.name.replace(".", ""), ()) if len(name) > len(mention.name)]
            yield from [*longer, key] if longer else ()


async def make_canonical(chunks: list[Chunk], extractions: list[Extraction], model: Model, prompt: Prompt) -> tuple[list[Extraction], str]:
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
        return extractions, f"the names of this document stay as they are: {reason_of(error)}"
    return [_renamed(extraction, _choose(names, pairs)) for extraction in extractions], ""


def _sentence(name: EntityMention, extractions: list[Extraction], chunks: dict[str, Chunk]) -> str:
    for extraction in extractions:
        if name in extraction.entities and name.spans:
            passage = Passage(chunks[extraction.chunk_id], name.spans)
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
