"""What the model may say about a passage: the constraint it writes under, and its reply read into drafts.

Two forms of the same records. `grammar`: one line a record, fields separated by tabs, about a quarter fewer reply tokens than JSON
(design-review §1.4, §5); a tab and a line break lie outside the free-text class, which keeps a mask cheap. `schema`: plain JSON with enums and
integer ranges, for servers that can do no more; whatever it cannot hold is checked by `ground`.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from graphrag_local.engine.base import TEXT_TERMINAL, Constraint, Form, Grammar, closed, read_json, schema_of
from graphrag_local.ids import canonical_json

MAX_SENTENCES_CITED = 4
MOST_NAME_WORDS = 8  # of a name confined to the passage (our choice: the longest official names of bodies and events)
MOST_NAME_LETTERS = 30  # the same for scripts without spaces
STATUSES = ("TRUE", "FALSE", "SUSPECTED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """A name that the program proposes, as the passage has it, and the numbers (from 1) of sentences that hold it."""

    name: str
    sentences: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedPair:
    """Two proposed names, as numbers from 1, that could be related, and what a relationship of theirs may cite."""

    source: int
    target: int
    sentences: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What one extraction reply may hold: the settings and the passage, reduced to what the constraint depends on.

    `spans` is the passage as it is shown when names are confined to its words, "" when they are free; `unsegmented` says that its script has
    no spaces. `names` and `pairs` are what the program proposes to a tiny model; with them the reply types and cites every name. `gleanings` is
    how many rounds the reply may go on after its `missed` question.
    """

    form: Form
    types: tuple[str, ...]
    sentences: int
    max_entities: int
    max_relationships: int
    quote: bool
    claims: bool
    gleanings: int
    spans: str = ""
    unsegmented: bool = False
    names: tuple[Proposed, ...] = ()
    pairs: tuple[ProposedPair, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityDraft:
    """An entity as the model said it; `sentences` are 1-based."""

    name: str
    type: str
    description: str
    sentences: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationshipDraft:
    """A relationship as said; ends are 1-based numbers of listed entities, or names where a server ignored the schema."""

    source: int | str
    target: int | str
    strength: float
    description: str
    sentences: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimDraft:
    """A claim as said; `object` is 0 where there is none."""

    subject: int | str
    object: int | str
    type: str
    status: str
    period: str
    description: str
    sentences: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """One reply, read. `missed` is the model's own answer to its `missed` question; `bad` are records that could not be read."""

    entities: tuple[EntityDraft, ...] = ()
    relationships: tuple[RelationshipDraft, ...] = ()
    claims: tuple[ClaimDraft, ...] = ()
    missed: bool = False
    bad: tuple[str, ...] = ()


def constraint(shape: Shape) -> Constraint:
    """The constraint of one extraction call."""
    if shape.names and shape.form == "grammar":
        return Grammar(lark=_grammar_of_proposed(shape))
    return Grammar(lark=_grammar(shape)) if shape.form == "grammar" else schema_of(_schema(shape))


def alternation(values: tuple[str, ...]) -> str:
    """A Lark rule body that is exactly one of these strings."""
    return " | ".join(canonical_json(str(value)) for value in values)


def _numbers_to(most: int) -> str:
    """The body of a Lark terminal that is exactly one of 1 to `most`; as a rule each number would be an item of the parser."""
    return f"/{'|'.join(str(number) for number in range(most, 0, -1))}/"


def _grammar(shape: Shape) -> str:
    description = "" if shape.quote else ' "\\t" TEXT'
    glean, rules = "", []
    for round_ in range(shape.gleanings):
        later = f"missed{round_ + 1}" if round_ + 1 < shape.gleanings else ""
        rules.append(f'missed{round_}: "?\\tN" | "?\\tY\\n" entities relationships {later}')
        glean = "missed0"
    claim = f'"!" NUM "\\t" NUM0 "\\t" TEXT "\\t" ({alternation(STATUSES)}) "\\t" TEXT "\\t" sentences "\\t" TEXT "\\n"'
    lines = [
        "%llguidance {}",
        f"start: records {'claims' if shape.claims else ''} {glean}",
        # A relationship needs two entities before it, and a tiny model (the one with spans) must name something: else it skips to what is easier.
        f"records: entity{{{1 if shape.spans else 0},1}} | entity{{2,{max(2, shape.max_entities)}}} relationships",
        f"entities: entity{{0,{shape.max_entities}}}",
        f"relationships: relationship{{0,{shape.max_relationships}}}",
        f'entity: NUM "\\t" name "\\t" type "\\t" sentences{description} "\\n"',
        f'relationship: NUM "-" NUM "\\t" STRENGTH "\\t" sentences{description} "\\n"',
        *rules,
        f'sentences: SENTENCE ("," SENTENCE){{0,{MAX_SENTENCES_CITED - 1}}}',
        f"SENTENCE: {_numbers_to(shape.sentences)}",
        f"type: {alternation(shape.types)}",
        *_name_rules(shape),
        f"NUM: {_numbers_to(shape.max_entities * (1 + shape.gleanings))}",
        "STRENGTH: /10|[1-9]/",
    ]
    if shape.claims:
        lines += [f"claims: claim{{0,{shape.max_relationships}}}", f"claim: {claim}", 'NUM0: "0" | NUM']
    if not shape.quote or shape.claims or not shape.spans:
        lines.append(TEXT_TERMINAL)
    return "\n".join(lines) + "\n"


def _number(first_field: object) -> str:
    return f'"{first_field}\\t"'


def _either(values: Iterable[object]) -> str:
    return alternation(tuple(map(str, values)))


def _grammar_of_proposed(shape: Shape) -> str:
    """Every proposed name gets its type and a sentence; of the pairs, in their order, the reply takes those it will."""
    description = "" if shape.quote else ' "\\t" TEXT'
    names = [f'e{n}: {_number(n)} {canonical_json(one.name)} "\\t" type "\\t" ({_either(one.sentences)}){description} "\\n"' for n, one in enumerate(shape.names, 1)]
    pairs = [
        f'r{n}: {_number(f"{pair.source}-{pair.target}")} STRENGTH "\\t" ({_either(",".join(map(str, cited)) for cited in pair.sentences)}){description} "\\n"'
        for n, pair in enumerate(shape.pairs, 1)
    ]
    entities, relationships = " ".join(f"e{n + 1}" for n in range(len(names))), " ".join(f"r{n + 1}?" for n in range(len(pairs)))
    rules = ["%llguidance {}", f"start: {entities} {relationships}", *names, *pairs, f"type: {alternation(shape.types)}", "STRENGTH: /10|[1-9]/"]
    return "\n".join([*rules, *([] if shape.quote else [TEXT_TERMINAL])]) + "\n"


_ENDS = ".!?:;…。！？｡．؟۔।॥։።។"


def _name_rules(shape: Shape) -> list[str]:
    if not shape.spans:
        return ["name: TEXT"]
    kind = "substring_chars" if shape.unsegmented else "substring_words"
    # The guard refuses the empty string, blanks or punctuation at the ends of a name (design-review §1.2), and what stands in the passage as
    # it is shown for a look-alike of our marks, because the document has another character there.
    guard = r"""/[^\s,;:.!?()"'*_#\-‹›⁅＃]([^‹›⁅＃]*[^\s,;:.!?("*_\-‹›⁅＃])?/"""
    return ["name: NAME", f"NAME: SUB & {guard} & {_short(shape)}", f"SUB: %regex {{{canonical_json(kind)}: {canonical_json(shape.spans)}}}"]


def _short(shape: Shape) -> str:
    """Names of few words that do not go on over the end of a sentence (a full stop after a short word may be an abbreviation's).

    Without it a tiny model copies on to its reply's limit, and the whole reply is lost. Inside the passage's own words a bound costs nothing.
    """
    if shape.unsegmented:
        return rf"/[^{_ENDS}]{{1,{MOST_NAME_LETTERS}}}/"
    closers = r""")"'*_\]»”"""
    return rf"/((\S*[^\s{_ENDS}{closers}][{closers}]*|\S{{1,4}}\.) ){{0,{MOST_NAME_WORDS - 1}}}\S+/"


def _schema(shape: Shape) -> dict[str, Any]:
    text = {"type": "string"}
    cited = {
        "type": "array",
        "items": {"type": "integer", "minimum": 1, "maximum": shape.sentences},
        "minItems": 1,
        "maxItems": MAX_SENTENCES_CITED,
    }
    number = {"type": "integer", "minimum": 1, "maximum": shape.max_entities * (2 if shape.gleanings else 1)}
    told: dict[str, Any] = {} if shape.quote else {"description": text}
    entity = closed({"name": text, "type": {"enum": list(shape.types)}, **told, "sentences": cited})
    strength = {"type": "integer", "minimum": 1, "maximum": 10}
    relationship = closed({"source": number, "target": number, **told, "strength": strength, "sentences": cited})
    entities = {"type": "array", "items": entity, "maxItems": shape.max_entities}
    relationships = {"type": "array", "items": relationship, "maxItems": shape.max_relationships}
    properties: dict[str, Any] = {"entities": entities, "relationships": relationships}
    if shape.claims:
        claim = {"subject": number, "object": {**number, "minimum": 0}, "type": text, "status": {"enum": list(STATUSES)}, "period": text}
        claims = closed({**claim, "description": text, "sentences": cited})
        properties["claims"] = {"type": "array", "items": claims, "maxItems": shape.max_relationships}
    if shape.gleanings:
        properties |= {"missed": {"enum": ["N", "Y"]}, "more_entities": entities, "more_relationships": relationships}
    return closed(properties)


def parse(form: Form, quote: bool) -> Callable[[str], Drafts]:
    """The reader of a reply in this form; it raises ValueError when the reply is not in the form at all."""
    return (lambda text: _parse_lines(text, quote)) if form == "grammar" else _parse_json


_RELATION_ENDS = re.compile(r"(\d+)-(\d+)$")


def _parse_lines(text: str, quote: bool) -> Drafts:
    entities: list[EntityDraft] = []
    relationships: list[RelationshipDraft] = []
    claims: list[ClaimDraft] = []
    numbers: dict[int, int] = {}  # the number the model gave -> the place in our list; the first use of a number holds
    missed, bad = False, []
    for line in text.split("\n"):
        fields = line.split("\t")
        ends = _RELATION_ENDS.match(fields[0])
        if not line.strip():
            continue
        if fields[0] == "?":
            missed = fields[1:] == ["Y"]
        elif fields[0].isdecimal() and len(fields) == 5 - quote:
            entities.append(EntityDraft(name=fields[1], type=fields[2], sentences=_numbers(fields[3]), description="" if quote else fields[4]))
            numbers.setdefault(int(fields[0]), len(entities))
        elif ends and len(fields) == 4 - quote:
            a, b = (numbers.get(int(end), 0) for end in ends.groups())
            cited = _numbers(fields[2])
            relationships.append(RelationshipDraft(source=a, target=b, strength=_strength(fields[1]), sentences=cited, description="" if quote else fields[3]))
        elif len(fields) == 7 and fields[0][:1] == "!" and fields[0][1:].isdecimal() and fields[1].isdecimal():
            a, b = numbers.get(int(fields[0][1:]), 0), numbers.get(int(fields[1]), 0)
            claims.append(ClaimDraft(subject=a, object=b, type=fields[2], status=fields[3], period=fields[4], sentences=_numbers(fields[5]), description=fields[6]))
        else:
            bad.append(line[:120])
    if bad and not entities:
        raise ValueError(f"it is not in lines of records; it begins {text[:80]!r}")
    return Drafts(entities=tuple(entities), relationships=tuple(relationships), claims=tuple(claims), missed=missed, bad=tuple(bad))


def _numbers(value: Any) -> tuple[int, ...]:
    found = re.findall(r"\d+", value) if isinstance(value, str) else value if isinstance(value, list) else [value]
    return tuple(int(number) for number in found if isinstance(number, int | str) and not isinstance(number, bool) and str(number).isdigit())


def _parse_json(text: str) -> Drafts:
    value = read_json(text)
    if not isinstance(value, dict) or not isinstance(value.get("entities"), list):
        raise ValueError(f"it has no list of entities; it begins {text[:80]!r}")
    missed = value.get("missed") == "Y"
    bad: list[str] = []
    # What stands there counts, whatever `missed` says: a schema cannot make the lists depend on it.
    entities = _each(value["entities"], _entity, bad) + _each(value.get("more_entities"), _entity, bad)
    relationships = _each(value.get("relationships"), _relationship, bad) + _each(value.get("more_relationships"), _relationship, bad)
    claims = _each(value.get("claims"), _claim, bad)
    if bad and not entities:
        raise ValueError(f"none of its records could be read, such as {bad[0]}")
    return Drafts(entities=tuple(entities), relationships=tuple(relationships), claims=tuple(claims), missed=missed, bad=tuple(bad))


def _each(items: Any, read: Callable[[dict[str, Any]], Any], bad: list[str]) -> list[Any]:
    drafts = []
    for item in items if isinstance(items, list) else []:
        try:
            drafts.append(read(item))
        except (KeyError, TypeError, ValueError, AttributeError):
            bad.append(str(item)[:120])
    return drafts


def _entity(item: dict[str, Any]) -> EntityDraft:
    kind, description = _said(item.get("type")), _said(item.get("description"))
    return EntityDraft(name=_text(item["name"]), type=kind, description=description, sentences=_numbers(item.get("sentences")))


def _text(value: Any) -> str:
    """A text or a number as text; TypeError for what is neither."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError("not a text")
    return str(value)


def _said(value: Any) -> str:
    """What a field that may be left out says: null, a list or an object say nothing."""
    return value if isinstance(value, str) else ""


def _end(value: Any) -> int | str:
    text = _text(value).strip()
    whole = re.fullmatch(r"([0-9]{1,9})(?:\.0*)?", text)
    return int(whole.group(1)) if whole else text


def _strength(value: Any) -> float:
    """A strength from 1 to 10; 1 where there is no number."""
    try:
        number = float(min(value, 10**9) if isinstance(value, int) else value)
    except (TypeError, ValueError):
        first = re.search(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", value) if isinstance(value, str) else None
        number = float(first.group()) if first else 1.0
    return min(10.0, max(1.0, number)) if number == number else 1.0


def _relationship(item: dict[str, Any]) -> RelationshipDraft:
    return RelationshipDraft(
        source=_end(item["source"]),
        target=_end(item["target"]),
        strength=_strength(item.get("strength", 1)),
        description=_said(item.get("description")),
        sentences=_numbers(item.get("sentences")),
    )


def _claim(item: dict[str, Any]) -> ClaimDraft:
    return ClaimDraft(
        subject=_end(item["subject"]),
        object=_end(item.get("object") or 0),
        type=_said(item.get("type")),
        status=_said(item.get("status")),
        period=_said(item.get("period")) or "NA",
        description=_text(item["description"]),
        sentences=_numbers(item.get("sentences")),
    )


def canonical_constraint(form: Form, names: int) -> Constraint:
    """Pairs of numbers of listed names: "other form = fullest name"."""
    if form == "grammar":
        return Grammar(lark=f'%llguidance {{}}\nstart: pair{{0,{names}}} "."\npair: NUM "=" NUM "\\n"\nNUM: {_numbers_to(names)}\n')
    number_of = {"type": "integer", "minimum": 1, "maximum": names}
    return schema_of(closed({"same": {"type": "array", "items": closed({"form": number_of, "name": number_of}), "maxItems": names}}))


def parse_canonical(form: Form) -> Callable[[str], tuple[tuple[int, int], ...]]:
    """The reader of a canonical-names reply: (other form, fullest name), 1-based."""

    def read(text: str) -> tuple[tuple[int, int], ...]:
        if form == "grammar":
            return tuple((int(a), int(b)) for a, b in re.findall(r"(\d+)=(\d+)", text))
        value = read_json(text)
        pairs = value.get("same") if isinstance(value, dict) else None
        if not isinstance(pairs, list):
            raise ValueError(f"it has no list of pairs; it begins {text[:80]!r}")
        numbers = [(str(p.get("form")), str(p.get("name"))) for p in pairs if isinstance(p, dict)]
        return tuple((int(a), int(b)) for a, b in numbers if a.isdigit() and b.isdigit())

    return read


GroundingMode = Literal["evidence", "strict", "span"]
