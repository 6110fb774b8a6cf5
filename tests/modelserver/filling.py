"""A valid reply to a JSON schema: extractions from the facts, anything else from the prompt."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.modelserver.fixtures import Facts, Found
from tests.modelserver.prompts import Prompt, members
from tests.modelserver.walk import walk_regex

Schema = Mapping[str, Any]

SCORES = re.compile(r"score|rating|relevan|helpful|useful|confiden|gate|grade", re.IGNORECASE)
ID_LIKE = re.compile(r"[A-Za-z]{1,3}-?\d{1,5}")
RAW_OPEN, RAW_CLOSE = "\ue000", "\ue001"
LIST_KINDS = ("report", "answer")


@dataclass(slots=True)
class Wishes:
    """What a reply is to say, beyond fitting its schema. `cap` bounds each piece of evidence, in characters."""

    purpose: str
    echo: bool = False
    answer_text: str | None = None
    cite: list[Any] | None = None
    token_p: Mapping[str, float] = field(default_factory=dict)
    cap: int = 4000


class Filler:
    """Makes one value for one schema; the same question gives the same value."""

    def __init__(self, schema: Schema, prompt: Prompt, facts: Facts, wishes: Wishes) -> None:
        self.schema = schema
        self.prompt = prompt
        self.facts = facts
        self.wishes = wishes
        self.raw: list[str] = []

    def text(self) -> str:
        """The reply as compact JSON; raw strings of fixtures stand between their quotes unescaped."""
        shape = self.resolved(self.schema)
        value = self._extraction(shape) if is_extraction(shape, self.resolved) else self.value(shape)
        dumped = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return re.sub(f"{RAW_OPEN}(\\d+){RAW_CLOSE}", lambda match: self.raw[int(match[1])], dumped)

    # --- schemas

    def resolved(self, schema: Schema) -> Schema:
        """A schema without references; of alternatives the first that is not null, of parts that must all hold their union."""
        if "$ref" in schema:
            target: Any = self.schema
            for step in str(schema["$ref"]).removeprefix("#/").split("/"):
                target = target[step]
            return self.resolved(target)
        for word in ("anyOf", "oneOf"):
            if word in schema:
                variants = [self.resolved(variant) for variant in schema[word]]
                return next((variant for variant in variants if variant.get("type") != "null"), variants[0])
        if "allOf" in schema:
            merged: dict[str, Any] = {}
            for part in schema["allOf"]:
                merged |= self.resolved(part)
            return merged
        return schema

    @cached_property
    def evidence(self) -> dict[Any, str]:
        """What the prompt says for each id that the schema allows."""
        found = self.prompt.evidence(self.all_ids(self.schema))
        return {key: text[: self.wishes.cap] for key, text in found.items() if text}

    # --- any schema

    def value(self, schema: Schema, name: str = "", index: int | None = None) -> Any:
        """A value that fits; `index` says which item of a list it is for, None outside lists."""
        schema = self.resolved(schema)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.one_of(schema["enum"], name, index or 0)
        kind = schema.get("type", "object" if "properties" in schema else "string")
        match kind[0] if isinstance(kind, list) else kind:
            case "object":
                return {key: self.value(part, key, index) for key, part in schema.get("properties", {}).items()}
            case "array":
                return self._items(schema, name, index)
            case "integer" | "number":
                return self._number(schema, name)
            case "boolean":
                return self.wishes.purpose == "answer" and name != "more"
            case "null":
                return None
        return "" if name == "missing" else self._string(schema, index)  # nothing is, unless the script writes the reply out

    def one_of(self, options: list[Any], name: str = "", index: int = 0) -> Any:
        """One of an enumeration: the likeliest where the script says; no, where more or the same is asked; the best grade; else the first."""
        wished = [option for option in options if str(option) in self.wishes.token_p]
        if wished:
            return max(wished, key=lambda option: self.wishes.token_p[str(option)])
        if name == "missed" or self.wishes.purpose in ("extract", "describe"):
            return next((option for option in options if str(option).casefold() in ("n", "no")), options[0])
        if all(isinstance(option, str) and ID_LIKE.fullmatch(option) for option in options):
            return options[index % len(options)]
        if self.wishes.purpose == "answer" and all(str(option).isdigit() for option in options):
            return options[-1]
        return options[0]

    def _number(self, schema: Schema, name: str) -> float:
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        if self.wishes.purpose == "answer" and SCORES.search(name) and "maximum" in schema:
            return float(schema["maximum"]) if schema.get("type") == "number" else int(schema["maximum"])
        return float(low) if schema.get("type") == "number" and low != int(low) else int(low)

    def _items(self, schema: Schema, name: str, index: int | None) -> list[Any]:
        item = self.resolved(schema.get("items", {}))
        least, most = schema.get("minItems", 0), schema.get("maxItems", 10**6)
        ids = self.ids_of(schema)
        wishes = self.wishes
        if name == "same" and least == 0:
            return []
        if ids and wishes.purpose in LIST_KINDS:
            if wishes.cite is not None and wishes.purpose == "answer":
                return self.cited(wishes.cite, ids)
            given = [one for one in self.evidence if one in ids] or ids
            first = index or 0 if wishes.purpose == "report" else 0
            return [given[(first + number) % len(given)] for number in range(min(max(1, least), most))]
        is_object = item.get("type") == "object" or "properties" in item
        if not is_object or wishes.purpose not in LIST_KINDS:
            return [self.value(item, name, number) for number in range(least)]
        if wishes.echo and self.evidence and any(self.ids_of(part) for part in item.get("properties", {}).values()):
            return self._echoed(item, most)
        return [self.value(item, name, number) for number in range(min(max(1, least), most))]

    def ids_of(self, schema: Schema) -> list[Any]:
        """The ids among which a property chooses, itself or as a list; empty for any other property."""
        schema = self.resolved(schema)
        if "items" in schema:
            item = self.resolved(schema["items"])
            if item.get("type") == "integer" and "maximum" in item:
                return list(range(item.get("minimum", 1), item["maximum"] + 1))
            return [one for one in item.get("enum", []) if isinstance(one, int) or ID_LIKE.fullmatch(str(one))]
        return [one for one in schema.get("enum", []) if isinstance(one, str) and ID_LIKE.fullmatch(one)]

    def all_ids(self, schema: Schema) -> list[Any]:
        """Every id that a schema and what is in it allow, in order, once."""
        shape = self.resolved(schema)
        inner = [*shape.get("properties", {}).values(), *([shape["items"]] if "items" in shape else [])]
        return list(dict.fromkeys(self.ids_of(shape) + [one for part in inner for one in self.all_ids(part)]))

    def _echoed(self, item: Schema, most: int) -> list[Any]:
        """One item per piece of evidence with its id; where the list is too short for that, pieces share an item."""
        keys = list(self.evidence)
        groups = [keys[start :: min(len(keys), most)] for start in range(min(len(keys), most))]
        return [self._echo_item(item, group) for group in groups]

    def _echo_item(self, item: Schema, group: list[Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, part in item.get("properties", {}).items():
            shape = self.resolved(part)
            if self.ids_of(shape):
                made[key] = group[: shape.get("maxItems", len(group))] if "items" in shape else group[0]
            elif shape.get("type") == "string" and "enum" not in shape and "const" not in shape:
                made[key] = self._fitted(" ".join(self.evidence[one] for one in group), shape)
            else:
                made[key] = self.value(shape, key)
        return made

    def cited(self, cite: list[Any], ids: list[Any]) -> list[Any]:
        """The ids a rule wants cited: a number n or "Sn" means the n-th id of the prompt; what is no id stands as it is."""
        options = list(self.evidence) or ids
        return [nth_id(one, options) for one in cite]

    # --- texts

    def _string(self, schema: Schema, index: int | None) -> str:
        return self._fitted(self.sentence(index), schema)

    def _fitted(self, text: str, schema: Schema) -> str:
        least, most = schema.get("minLength", 0), schema.get("maxLength", 10**6)
        text = text.ljust(least, ".")[:most]
        pattern = schema.get("pattern")
        if pattern and not re.search(pattern, text):
            return walk_regex(pattern, text)
        return text

    def sentence(self, index: int | None = None, *, marked: bool = False) -> str:
        """What the reply says in a free text: evidence, joined descriptions, member names, or words of the prompt.

        `marked` writes ids in square brackets behind what they stand for, for replies that have no field for them.
        """
        wishes = self.wishes
        pieces = list(self.evidence.items())
        if wishes.purpose == "answer" and wishes.answer_text is not None:
            marks = "".join(f" [{one}]" for one in self.cited(wishes.cite or [], [])) if marked else ""
            return wishes.answer_text + marks
        if wishes.purpose == "describe":
            lines = (line.strip(" -*\t") for line in self.prompt.document.splitlines())
            return " ".join(dict.fromkeys(line for line in lines if line))[: wishes.cap] or "Nothing."
        if wishes.echo and pieces:
            return " ".join(f"{text} [{key}]" for key, text in pieces)
        if wishes.purpose == "report" and pieces and index is None:
            text = "About " + ", ".join(members(self.evidence)[:12]) + "."
            return text + (f" [{pieces[0][0]}]" if marked else "")
        if not pieces:
            return self.prompt.words(12)
        key, text = pieces[(index or 0) % len(pieces)] if wishes.purpose == "report" else pieces[0]
        ids = self.cited(wishes.cite, []) if wishes.cite is not None else [key]
        return _first_sentence(text) + ("".join(f" [{one}]" for one in ids) if marked else "")

    # --- extractions

    def _extraction(self, shape: Schema) -> dict[str, Any]:
        made: dict[str, Any] = {}
        properties = shape["properties"]
        most = self.resolved(properties["entities"]).get("maxItems", 10**6)
        entities = self.facts.entities[:most]
        for key, part in properties.items():
            schema = self.resolved(part)
            if key == "entities":
                item = self.resolved(schema["items"])
                made[key] = [self._entity(item, entity) for entity in entities]
            elif key in ("relationships", "relations"):
                made[key] = self._relationships(schema, entities)
            else:
                made[key] = self.value(schema, key)
        return made

    def _entity(self, item: Schema, entity: Found) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, part in item.get("properties", {}).items():
            schema = self.resolved(part)
            if key == "name":
                made[key] = self._kept_raw(entity.raw) if entity.raw else self._fitted(entity.name, schema)
            elif key == "type":
                made[key] = known_type(entity.type, schema)
            elif key == "description":
                made[key] = self._kept_raw(entity.raw_description) if entity.raw_description else self._fitted(entity.description, schema)
            elif key == "sentences":
                made[key] = self._numbers(schema, entity.name)
            else:
                made[key] = self.value(schema, key)
        return made

    def _relationships(self, schema: Schema, entities: tuple[Found, ...]) -> list[dict[str, Any]]:
        item = self.resolved(schema.get("items", {}))
        made = []
        for relation in self.facts.relations:
            if not (0 <= relation.source < len(entities) and 0 <= relation.target < len(entities)):
                continue
            ends = {"source": relation.source, "target": relation.target}
            row: dict[str, Any] = {}
            for key, part in item.get("properties", {}).items():
                shape = self.resolved(part)
                if key in ends:
                    row[key] = ends[key] + 1 if shape.get("type") == "integer" else entities[ends[key]].name
                elif key == "description":
                    raw = relation.raw_description
                    row[key] = self._kept_raw(raw) if raw else self._fitted(relation.description, shape)
                elif key in ("strength", "weight"):
                    row[key] = min(max(int(relation.weight), shape.get("minimum", 1)), shape.get("maximum", 10))
                elif key == "sentences":
                    row[key] = self._numbers(shape, relation.source_name, relation.target_name)
                else:
                    row[key] = self.value(shape, key)
            made.append(row)
        return made[: schema.get("maxItems", len(made))]

    def _numbers(self, schema: Schema, *names: str) -> list[int]:
        item = self.resolved(schema.get("items", {}))
        low, high = item.get("minimum", 0), item.get("maximum", 10**6)
        allowed = item.get("enum")
        numbers = [n for n in self.prompt.sentences_with(*names) if low <= n <= high and (allowed is None or n in allowed)]
        return (numbers or [allowed[0] if allowed else max(1, low)])[: schema.get("maxItems", 10**6)]

    def _kept_raw(self, raw: str) -> str:
        self.raw.append(raw)
        return f"{RAW_OPEN}{len(self.raw) - 1}{RAW_CLOSE}"


def is_extraction(shape: Schema, resolved: Any) -> bool:
    """Whether a schema asks for entities with names."""
    entities = resolved(shape.get("properties", {}).get("entities", {}))
    return "name" in resolved(entities.get("items", {})).get("properties", {})


def known_type(given: str, schema: Schema) -> str:
    """A type that the schema allows: the given one, else `other`, else the last."""
    options: list[str] = schema.get("enum", [given])
    for option in options:
        if option.casefold() == given.casefold():
            return option
    return next((option for option in options if option.casefold() == "other"), options[-1])


def nth_id(wanted: Any, options: list[Any]) -> Any:
    """The id of the prompt that a rule's id stands for."""
    if wanted in options:
        return wanted
    match = re.fullmatch(r"S?(\d+)", str(wanted))
    place = int(match[1]) - 1 if match else -1
    return options[place] if 0 <= place < len(options) else wanted


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?。！？])\s+", text, maxsplit=1)[0][:300]
