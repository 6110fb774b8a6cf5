"""Reports of tiny models: the model chooses records, the program quotes what they say. Pure.

Asked to write, a model of some hundred million parameters copies ids and begins again without end. Left to choose which record opens a finding
and which of those beside it explain it, it cannot go wrong in form, and every sentence is one of a record's description, word for word. Our
choice, in the spirit of the names that `extraction.propose` proposes.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from graphrag_local.records import Finding
from graphrag_local.reports.elements import Elements
from graphrag_local.text import ends_like_a_sentence, neutralise, one_line, sentences, size

MOST_BESIDE = 4  # records that explain a finding, besides the one that opens it
MOST_NAMES = 3  # names in a title
LATER = 3  # places by which a name of one word, or one without capitals, comes later in it
LEAST_WORDS = 4  # words in lower case that tell a sentence from a heading, an address or a date
LEAST_SIZE = 8.0  # the same where a script has no case, in model-free tokens
# Tokens of the longest reply, a token a byte at least: "G", tab, rating and line end with the end of the reply; a finding with five ids of
# five digits ("F", tab, line end, and letter, digits and comma of each).
HEAD_TOKENS = 8
FINDING_TOKENS = 38


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """A record that may open a finding: its short id, a sentence no other lead has, and short ids that may explain it, the nearest ones."""

    short: str
    sentence: str
    beside: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotable:
    """What a report may be composed of: `leads` in the order of the context, by short id what each record says and whom it is about.

    `names` are those of the entities of the context, the strongest first, in the order in which titles take them.
    """

    leads: tuple[Lead, ...]
    said: Mapping[str, tuple[str, ...]]
    about: Mapping[str, tuple[str, ...]]
    names: tuple[str, ...]

    def mark(self) -> list[object]:
        """All of it as JSON, for a fingerprint."""
        leads = [[lead.short, lead.sentence, lead.beside] for lead in self.leads]
        return [leads, [[key, texts] for key, texts in self.said.items()], [[key, names] for key, names in self.about.items()], self.names]


def quotable(ids: Mapping[str, str], elements: Elements, members: Sequence[str], parts: Sequence[Sequence[str]] = ()) -> Quotable:
    """What a context with these short ids can be quoted for; records that say nothing telling are left out as long as others do.

    `parts` are the members of its sub-communities.
    """
    texts = {short: _pieces(elements.said(record_id), elements.headings(record_id)) for short, record_id in ids.items()}
    said = {short: told for short, pieces in texts.items() if (told := tuple(filter(is_telling, pieces)))}
    said = said or {short: pieces for short, pieces in texts.items() if pieces}
    entities = {short: elements.ends(record_id) or (record_id,) for short, record_id in ids.items()}
    said = said or {short: (", ".join(map(elements.label, entities[short])),) for short in ids}
    own: dict[str, str] = {}
    taken: list[str] = []
    for short in sorted(said, key=lambda short: not elements.ends(ids[short])):  # first those whose sentence is about two
        if sentence := next((text for text in said[short] if is_new(text, taken)), ""):
            own[short] = sentence
            taken.append(sentence)
    around = _around({short: entities[short] for short in ids if short in own})
    return Quotable(
        leads=tuple(Lead(short=short, sentence=own[short], beside=around[short]) for short in ids if short in own),
        said=said,
        about={short: tuple(_name(elements, entity) for entity in entities[short]) for short in ids},
        names=_for_title(_by_strength(elements, members, dict.fromkeys(entity for ends in entities.values() for entity in ends)), parts),
    )


_MARKS = " *_#＃|>~`-–—•"  # markup around a sentence, which is none of its words
_LEAD_IN = re.compile(r"(?:\[[^\]]*\]|[^.!?]*[.!?:]\*\*)[\s*_]+(?=\S)")  # a note in brackets, or bold words that open a paragraph
_WORD = re.compile(r"[^\W\d_]+")


def _pieces(text: str, headings: Sequence[str]) -> tuple[str, ...]:
    """The different sentences of a text, without markup around them and headings before them."""
    pieces = []
    for start, end in sentences(text):
        piece = text[start:end]
        while heading := next((one for one in headings if piece.startswith(f"{one} ") and not piece[len(one) + 1].islower()), ""):
            piece = piece[len(heading) + 1 :]
        lead_in = _LEAD_IN.match(piece)
        pieces.append(_bare(piece[lead_in.end() if lead_in else 0 :]))
    return tuple(filter(None, dict.fromkeys(pieces)))


def _bare(piece: str) -> str:
    """A sentence without markup around it; a mark that opens it stays where it is closed inside."""
    bare = piece.strip(_MARKS)
    opened = piece[: piece.find(bare)].split(" ")[-1]
    return opened + bare if opened and opened in bare else bare


def is_telling(sentence: str) -> bool:
    """Whether a sentence ends like one and has the words of one; a heading, a date or an address tells nothing."""
    if not ends_like_a_sentence(sentence):
        return False
    words: list[str] = _WORD.findall(sentence)
    if any(word[0].isupper() for word in words) or any(word[0].islower() for word in words):
        return sum(word[0].islower() for word in words) >= LEAST_WORDS
    return bool(size(sentence) >= LEAST_SIZE)


def _around(entities: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """For each record those that share an entity with it, at most MOST_BESIDE: the nearest in the order of the context, so that each has others."""
    place = {short: number for number, short in enumerate(entities)}
    having: dict[str, list[str]] = {}
    for short, ends in entities.items():
        for entity in dict.fromkeys(ends):
            having.setdefault(entity, []).append(short)
    found = {}
    for short, ends in entities.items():
        near = {other for entity in ends for other in having[entity]} - {short}
        nearest = sorted(near, key=lambda other, at=place[short]: (abs(place[other] - at), place[other]))[:MOST_BESIDE]  # type: ignore[misc]
        found[short] = tuple(sorted(nearest, key=place.__getitem__))
    return found


def _name(elements: Elements, entity_id: str) -> str:
    return neutralise(one_line(elements.entities[entity_id].name))


def _by_strength(elements: Elements, members: Sequence[str], shown: Iterable[str]) -> dict[str, str]:
    """Names, with whose they are, by edges within the community (never the whole graph's).

    Those of one word come some places later, as do those without a capital, since they say less of what a report is about; those with a digit last,
    since dates and numbers make poor titles.
    """
    degree: dict[str, int] = {}
    for edge in elements.inside(members).relationships:
        for end in elements.ends(edge):
            degree[end] = degree.get(end, 0) + 1
    ranked = sorted(((_name(elements, entity), entity) for entity in shown), key=lambda pair: (-degree.get(pair[1], 0), *pair))
    found: dict[str, str] = {}
    for _, name, entity in sorted((place + LATER * _poverty(name), name, entity) for place, (name, entity) in enumerate(ranked)):
        found.setdefault(name, entity)
    return dict(sorted(found.items(), key=lambda pair: any(map(str.isdigit, pair[0]))))


def _poverty(name: str) -> int:
    """How many of the marks of a telling name one lacks, in a script that has them: several words, capitals."""
    return (" " not in name) + name.islower() if name.lower() != name.upper() else 0


def _for_title(names: Mapping[str, str], parts: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Names (with whose they are), reordered where those that a title takes are all of one part: then it would be that part's title too."""
    home = {entity: number for number, part in enumerate(parts) for entity in part}
    order = list(names)
    taken = _apart(order)[:MOST_NAMES]
    homes = {home.get(names[name], -1) for name in taken}
    if len(homes) != 1 or homes == {-1}:
        return tuple(order)
    others = [name for name in order if home.get(names[name], -1) not in homes]
    if fitting := [name for name in others if len(_apart([*taken[: MOST_NAMES - 1], name])) == len(taken[: MOST_NAMES - 1]) + 1]:
        opening = [*taken[: MOST_NAMES - 1], fitting[0]]
    else:
        opening = others[:1]
    return tuple(dict.fromkeys([*opening, *order]))


def _apart(names: Iterable[str]) -> list[str]:
    """The names that are no part of an earlier one, nor have one as theirs."""
    chosen: list[str] = []
    for name in names:
        if is_new(name, chosen):
            chosen.append(name)
    return chosen


def is_new(text: str, told: Iterable[str]) -> bool:
    """Whether none of some sentences is the text, a part of it, or the whole that it is a part of."""
    return not any(text in one or one in text for one in told)


def rules(given: Quotable, findings: int) -> list[str]:
    """The grammar of a reply: a rating, and findings that each name a lead and one or two of the ids beside it.

    The leads are dealt to the findings in runs, so that no id leads twice, each finding is from another part of the context, and a mask walks one
    run only. The first half of the findings must be told, with what explains each: a tiny model ends where it may.
    """
    parts = deal(given.leads, findings)
    must = (len(parts) + 1) // 2
    optional = [f"more{n}: finding{n} {f'more{n + 1}?' if n < len(parts) else ''}" for n in range(must + 1, len(parts) + 1)]
    start = " ".join(f"finding{n}" for n in range(1, must + 1)) + (f" more{must + 1}?" if optional else "")
    told = [f'finding{n}: "F\\t" ({" | ".join(f"lead_{lead.short.lower()}" for lead in part)}) "\\n"' for n, part in enumerate(parts, 1)]
    leads = [f'lead_{lead.short.lower()}: "{lead.short}"' + "".join(map(_one_of, deal(lead.beside, 2))) for lead in given.leads]
    return [f'start: "G\\t" RATING "\\n" {start}', *optional, *told, *leads, "RATING: /10|[0-9]/"]


def _one_of(shorts: Sequence[str]) -> str:
    return " (" + " | ".join(f'",{short}"' for short in shorts) + ")"


T = TypeVar("T")


def deal(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """The items in so many runs, of sizes that differ by one at most; fewer where there are fewer items."""
    count = min(most, len(items))
    return [items[len(items) * n // count : len(items) * (n + 1) // count] for n in range(count)]


def compose(cited: Sequence[Sequence[str]], ids: Mapping[str, str], given: Quotable) -> list[Finding]:
    """Findings out of short ids of the context, the one that leads each first: its sentence, and one of each other, or else its own next.

    None says what another says. A finding with nothing new to say is left out, which no reply of the grammar has.
    """
    own = {lead.short: lead.sentence for lead in given.leads}
    told: list[str] = []

    def fresh(short: str) -> str:
        candidates = (own.get(short, ""), *given.said.get(short, ()))
        text = next((text for text in candidates if text and is_new(text, told)), "")
        if text:
            told.append(text)
        return text

    openings = [(shorts, fresh(shorts[0])) for shorts in cited]
    return [
        Finding(
            summary=opening,
            explanation=" ".join(filter(None, map(fresh, shorts[1 : MOST_BESIDE + 1]))) or fresh(shorts[0]),
            sources=tuple(ids[short] for short in shorts[: MOST_BESIDE + 1]),
            more=len(shorts) > MOST_BESIDE + 1,
        )
        for shorts, opening in openings
        if opening
    ]


def title(cited: Iterable[Sequence[str]], given: Quotable) -> str:
    """The names of the strongest entities that are cited, joined by commas, which every language reads; none that is a part of another."""
    about = {name for shorts in cited for short in shorts for name in given.about[short]}
    return ", ".join(_apart(name for name in given.names if name in about)[:MOST_NAMES])
