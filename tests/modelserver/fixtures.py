"""What an extraction finds: entities and relations from the script's fixtures or patterns."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from tests.modelserver.prompts import Prompt, folded, squeezed

Relate = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Found:
    """One entity; `raw` is its name as it stands between quotes where the fixture gives raw JSON strings, else "" ."""

    name: str
    type: str
    description: str
    raw: str = ""
    raw_description: str = ""


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation; the ends are indices into the entities, or -1 where the script names an end that it does not list."""

    source: int
    target: int
    source_name: str
    target_name: str
    description: str
    weight: float = 1.0
    raw_description: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a reply to an extraction states."""

    entities: tuple[Found, ...] = ()
    relations: tuple[Relation, ...] = ()


def facts_for(script: Mapping[str, Any], prompt: Prompt) -> Facts:
    """The facts for one extraction prompt: the first fixture whose text is in the document part, else the patterns, else none."""
    if prompt.is_second_round:
        return Facts()
    for fixture in script.get("fixtures", []):
        if prompt.document_has(fixture.get("when_prompt_has", "")):
            facts = stated(fixture, raw=bool(fixture.get("raw_json_strings") or script.get("raw_json_strings")))
            filtered = fixture.get("fixture_filter", script.get("fixture_filter"))
            return _only_in_text(facts, prompt) if filtered else facts
    if "fixture_pattern" in script:
        return matched(script["fixture_pattern"], prompt)
    return Facts()


def stated(fixture: Mapping[str, Any], *, raw: bool = False) -> Facts:
    """The entities and relations that a fixture or a rule writes down. A name said twice is two entities; ends mean the first."""
    entities = tuple(_found(entity, raw) for entity in fixture.get("entities", []))
    index: dict[str, int] = {}
    for number, entity in enumerate(entities):
        index.setdefault(entity.name, number)
    relations = []
    for relation in fixture.get("relations", []):
        source, target = (_unescaped(relation[end]) if raw else relation[end] for end in ("source", "target"))
        text = relation.get("description", "")
        relations.append(
            Relation(
                source=index.get(source, -1), target=index.get(target, -1), source_name=source, target_name=target,
                description=_unescaped(text) if raw else text, weight=relation.get("weight", 1), raw_description=text if raw else "",
            )
        )  # fmt: skip
    return Facts(entities, tuple(relations))


def _found(entity: Mapping[str, Any], raw: bool) -> Found:
    name, text = entity["name"], entity.get("description", "")
    if not raw:
        return Found(name=name, type=entity.get("type", "other"), description=text)
    return Found(name=_unescaped(name), type=entity.get("type", "other"), description=_unescaped(text), raw=name, raw_description=text)


def _unescaped(raw: str) -> str:
    """The text that a reader of JSON would get from raw characters between quotes; the raw ones where they are no JSON."""
    try:
        return str(json.loads(f'"{raw}"', strict=False))
    except ValueError:
        return raw


def _only_in_text(facts: Facts, prompt: Prompt) -> Facts:
    text = folded(prompt.plain)
    kept = [number for number, entity in enumerate(facts.entities) if folded(entity.name) in text]
    place = {old: new for new, old in enumerate(kept)}
    relations = [
        Relation(place[r.source], place[r.target], r.source_name, r.target_name, r.description, r.weight, r.raw_description)
        for r in facts.relations
        if r.source in place and r.target in place
    ]
    return Facts(tuple(facts.entities[number] for number in kept), tuple(relations))


def matched(pattern: Mapping[str, Any], prompt: Prompt) -> Facts:
    """What regular expressions match in the document part: one entity per different match, in order of appearance."""
    whole_sentence = pattern.get("description") == "sentence"
    spots: dict[str, tuple[int, int]] = {}
    for kind, expression in enumerate(pattern["entities"]):
        for match in re.finditer(expression, prompt.plain):
            name = squeezed(match[0])
            if name and name not in spots:
                spots[name] = (match.start(), kind)
    names = sorted(spots, key=lambda name: spots[name])
    types = pattern.get("types", [])
    entities = tuple(
        Found(
            name=name,
            type=types[spots[name][1]] if spots[name][1] < len(types) else "other",
            description=_sentence_with(prompt, name) if whole_sentence else f"{name} is named here.",
        )
        for name in names
    )
    index = {name: number for number, name in enumerate(names)}
    relations = tuple(
        Relation(index[a], index[b], a, b, _sentence_with(prompt, a, b) if whole_sentence else f"{a} is named with {b}.")
        for a, b in _related(pattern.get("relate", "none"), names, spots, prompt)
    )
    return Facts(entities, relations)


def _related(how: str, names: list[str], spots: Mapping[str, tuple[int, int]], prompt: Prompt) -> Relate:
    by_pattern = sorted(names, key=lambda name: (spots[name][1], spots[name][0]))
    firsts = [next((name for name in by_pattern if spots[name][1] == kind), None) for kind in (0, 1)]
    match how:
        case "none":
            return []
        case "first-to-second":
            return [(firsts[0], firsts[1])] if firsts[0] and firsts[1] else []
        case "first-to-each-other":
            return [(by_pattern[0], name) for name in by_pattern[1:]]
        case "chain":
            return list(pairwise(names))
        case "within-sentence":
            pairs: dict[frozenset[str], tuple[str, str]] = {}
            for sentence in prompt.plain_sentences:
                for a, b in combinations([name for name in names if name in sentence], 2):
                    pairs.setdefault(frozenset((a, b)), (a, b))
            return list(pairs.values())
    raise ValueError(f"unknown way to relate: {how!r}")


def _sentence_with(prompt: Prompt, *names: str) -> str:
    """The first sentence that holds all the names, else the first that holds the first of them."""
    for wanted in (names, names[:1]):
        for sentence in prompt.plain_sentences:
            if all(name in sentence for name in wanted):
                return sentence
    return f"{' and '.join(names)} are named here."
