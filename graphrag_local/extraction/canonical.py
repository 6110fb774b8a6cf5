"""One call per document that makes the names in it canonical (algorithms §3): short forms, abbreviations, inflections, "the company".

Only names that could plausibly mean the same as another one are asked about, each with one sentence it stands in; most short documents have
none and cost no call, a book has one for every sixty such names. The reply pairs numbers of listed names, so a canonical name is always one
that the document uses. The rows are reversible (a mention keeps its own name) and local to the document, so that an edit elsewhere does not
ripple.
"""

from collections.abc import Iterator
from dataclasses import replace

from graphrag_local.engine.base import Model, Request, ask
from graphrag_local.errors import ContextOverflow, EngineError, EngineHung, EngineRefused, ReplyInvalid
from graphrag_local.extraction.ground import Passage
from graphrag_local.extraction.schema import canonical_constraint, parse_canonical
from graphrag_local.flow import map_ordered
from graphrag_local.prompting import Prompt
from graphrag_local.records import Chunk, EntityMention, Extraction
from graphrag_local.text import name_key, neutralise, one_line, words

MOST_NAMES = 60  # of one call
LONGEST_SENTENCE = 240  # characters of the sentence shown beside a name


def candidates(extractions: list[Extraction]) -> list[list[EntityMention]]:
    """One mention per name that could mean the same as another name of the document, in groups for one call each, in order of first appearance.

    Two names could where all words of three letters or more of one are among those of the other, or one is the initials of the other. Names that
    could are in one group; of more than MOST_NAMES that hang together the first are taken.
    """
    first: dict[str, EntityMention] = {}
    for extraction in extractions:
        for mention in extraction.entities:
            first.setdefault(name_key(mention.name), mention)
    together: dict[str, set[str]] = {}
    for key, others in _related(first):
        joined = {key, *others}
        for group in {id(group): group for other in joined if (group := together.get(other))}.values():
            joined |= group
        together |= dict.fromkeys(joined, joined)
    place = {key: number for number, key in enumerate(first)}
    groups: list[list[int]] = []
    for number, key in enumerate(first):
        if key in together and number == min(place[other] for other in together[key]):
            found = sorted(place[other] for other in together[key])[:MOST_NAMES]
            if groups and len(groups[-1]) + len(found) <= MOST_NAMES:
                groups[-1] += found
            else:
                groups.append(found)
    mentions = list(first.values())
    return [[mentions[number] for number in sorted(group)] for group in groups]


def _related(names: dict[str, EntityMention]) -> Iterator[tuple[str, set[str]]]:
    """Keys of shorter names, each with those of the longer ones that could mean the same."""
    parts = {key: frozenset(word for word in words(mention.name) if len(word) > 2) for key, mention in names.items()}
    with_word: dict[str, set[str]] = {}
    with_initials: dict[str, list[str]] = {}
    for key, own in parts.items():
        with_initials.setdefault("".join(word[0] for word in names[key].name.split() if word[:1].isupper()), []).append(key)
        for word in own:
            with_word.setdefault(word, set()).add(key)
    for key, own in parts.items():  # asked of the shorter name only, so that a book's thousands of names are not compared with each other
        name = names[key].name
        longer = set.intersection(*sorted((with_word[word] for word in own), key=len)) - {key} if own else set()
        if len(name) >= 2:
            longer |= {other for other in with_initials.get(name.replace(".", ""), ()) if len(names[other].name) > len(name)}
        if longer:
            yield key, longer


async def make_canonical(chunks: list[Chunk], extractions: list[Extraction], model: Model, prompt: Prompt) -> tuple[list[Extraction], EngineError | None]:
    """The extractions of one document with `canonical` filled in, and the first error of a call that could not be done."""
    by_id = {chunk.id: chunk for chunk in chunks}
    home: dict[str, Chunk] = {}
    for extraction in extractions:
        for mention in extraction.entities:
            home.setdefault(name_key(mention.name), by_id[extraction.chunk_id])

    async def one(names: list[EntityMention]) -> dict[str, str] | EngineError:
        request = _request(names, [_sentence(name, home[name_key(name.name)]) for name in names], chunks[0].document_id, model, prompt)
        try:
            return _choose(names, (await ask(model, request, parse_canonical(model.card.form)))[0])
        except (ReplyInvalid, ContextOverflow, EngineRefused, EngineHung) as error:  # of this call, not of the server
            return error

    groups = candidates(extractions)
    if not groups:
        return extractions, None
    canonical: dict[str, str] = {}
    failed: EngineError | None = None
    for found in await map_ordered(groups, one, limit=len(groups)):
        if isinstance(found, EngineError):
            failed = failed or found
        else:
            canonical |= found
    return [_renamed(extraction, canonical) for extraction in extractions] if canonical else extractions, failed


def _request(names: list[EntityMention], sentences: list[str], document: str, model: Model, prompt: Prompt) -> Request:
    shown = [{"name": one_line(neutralise(name.name)), "sentence": sentence} for name, sentence in zip(names, sentences, strict=True)]
    return Request(
        messages=prompt.render(form=model.card.form, names=shown),
        constraint=canonical_constraint(model.card.form, len(names)),
        max_tokens=min(8 + 14 * len(names), 800),
        purpose="describe",
        affinity=document,
        documents=(document,),
    )


def _sentence(name: EntityMention, chunk: Chunk) -> str:
    """The first sentence that a name cites, "" where it cites none."""
    return one_line(neutralise(Passage(chunk, name.spans).text_of(name.spans[0])))[:LONGEST_SENTENCE] if name.spans else ""


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
