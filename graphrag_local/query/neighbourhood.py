"""What a question names in the graph, what is near that, and one window of it in fixed shares. No model call; every order is total.

Entities are linked by their names first, then by what vectors, words and the best passages say. The window holds reports of their communities,
the graph around them (entities, relationships, claims) and passages, each to its share; what one leaves goes to the others, passages first.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, zip_longest
from operator import itemgetter
from typing import TypeVar, overload

import numpy as np

from graphrag_local.engine.base import Embedder
from graphrag_local.ids import digest_of
from graphrag_local.query.context import Block, Line, Ref, Unit, Writer
from graphrag_local.query.language import asked_for
from graphrag_local.query.retrieve import ENTITY_WORDS, Ranked, Scored, fused, links_of, nearest, vector_of, words_of
from graphrag_local.query.view import View
from graphrag_local.query.windows import LINE_SHARE, Costs, Window, filled
from graphrag_local.records import RecordKind, Relationship, Report
from graphrag_local.settings import QuerySettings
from graphrag_local.text import placed_words, words
from graphrag_local.tokens import TokenCounter

T = TypeVar("T")
PASSAGES = 8  # from which entities are linked
EDGES = 200  # relationships that are considered
PARTS = 4  # a passage or report takes at first a quarter of its share, so that one long passage does not keep out the second that is needed
TOLD: dict[RecordKind, tuple[str, str]] = {
    "report": ("report", "reports"), "entity": ("entity", "entities"), "relationship": ("relationship", "relationships"),
    "claim": ("claim", "claims"), "chunk": ("passage", "passages"),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """What is near a question, each list best first; entities and edges by their ids. The first `named` entities are those that it names."""

    entities: tuple[str, ...]
    named: int
    edges: tuple[str, ...]
    reports: tuple[Report, ...]
    passages: Ranked

    def refs(self) -> Iterator[Ref]:
        """All that is near: entities, relationships, reports, passages."""
        yield from (Ref(kind="entity", id=owner) for owner in self.entities)
        yield from (Ref(kind="relationship", id=owner) for owner in self.edges)
        yield from (Ref(kind="report", id=report.id) for report in self.reports)
        yield from (Ref(kind="chunk", id=owner) for owner, _ in self.passages.hits)

    def note(self, view: View) -> str:
        """What was linked, in words."""
        if not self.entities:
            return "No entity is near the question; the passages nearest to it were read."
        names = [view.entities[owner].name for owner in self.entities]
        parts = ((names[: self.named], "by name"), (names[self.named :], "by likeness"))
        return "Linked to the question: " + "; ".join(f"{', '.join(said)} ({how})" for said, how in parts if said) + "."


async def neighbourhood(question: str, ranked: Ranked, view: View, embedder: Embedder, settings: QuerySettings) -> Neighbourhood:
    """The entities linked to a question and what is around them, given its passages."""
    near = [chunk_id for chunk_id, score in ranked.hits[:PASSAGES] if score > 0]
    named = named_entities(question, view)
    vector = await vector_of(question, embedder)
    like = _likely(question, view, vector, near, settings.local_entities) if view.entities else []
    owners = list(dict.fromkeys(chain((owner for owner, _ in named), like)))[: settings.local_entities]
    return Neighbourhood(
        entities=tuple(owners),
        named=min(len(named), len(owners)),
        edges=_edges(owners, near, view),
        reports=_reports(owners, view),
        passages=ranked,
    )


def named_entities(question: str, view: View) -> Scored:
    """The entities whose names stand in a question, the most certain first."""
    links = links_of(view)
    found: dict[int, float] = {}
    for seed in links.seeds(placed_words(question), question):
        for phrase, share in ((seed.phrase, 1.0), *links.ties.row(seed.phrase)):
            for owner in links.entities.row(phrase).tolist():
                found[owner] = max(found.get(owner, 0.0), round(seed.weight * share, 6))
    return [(view.entities.ids[owner], weight) for owner, weight in sorted(found.items(), key=lambda pair: (-pair[1], *_prominence(pair[0], view)))]


def _prominence(entity: int, view: View) -> tuple[int, int]:
    """What puts an entity before others that are as near: its mentions, then its id."""
    return -int(view.shape["entity.mentions"][entity]), entity


def _likely(question: str, view: View, vector: list[float] | None, near: Sequence[str], k: int) -> list[str]:
    """The entities nearest by vectors, by the words of their names and descriptions, and by standing in the best passages."""
    by_words = words_of(view, ENTITY_WORDS)
    in_passages: dict[int, float] = {}
    for place, owners in enumerate(view.told(near, "entity"), 1):
        for owner in owners.tolist():
            in_passages[owner] = in_passages.get(owner, 0.0) + 1 / place
    best = heapq.nsmallest(2 * k, in_passages.items(), key=lambda pair: (-round(pair[1], 6), *_prominence(pair[0], view)))
    told = [(view.entities.ids[owner], weight) for owner, weight in best]
    return [owner for owner, _ in fused(nearest(view, "entity", vector, 2 * k), by_words.best(question, 2 * k), told)]


def _edges(owners: Sequence[str], near: Sequence[str], view: View) -> tuple[str, ...]:
    """The ids of the relationships of these entities: those between two of them, then those told in the best passages, then the heaviest."""
    group = view.entities.ids.numbers(owners)
    edges = np.sort(np.concatenate([np.zeros(0, np.int32), *map(view.edges.row, group.tolist())]))
    edges = edges[np.diff(edges, prepend=-1) > 0]
    source, target, weight = (view.shape[f"edge.{name}"][edges] for name in ("source", "target", "weight"))
    known, told = np.zeros(len(view.entities), bool), np.zeros(len(view.relationships), bool)
    known[group] = True
    told[np.concatenate([np.zeros(0, np.int64), *view.told(near, "edge")])] = True
    inside, here = known[source] & known[target] & (source != target), told[edges]
    some = np.arange(len(edges))
    others = len(edges) - EDGES  # the lightest that are neither, which need not be put in order
    if others > 0:
        least = np.partition(np.where(inside | here, np.inf, weight), others)[others]
        some = np.flatnonzero(inside | here | (weight >= least))
    order = some[np.lexsort((some, -weight[some], ~here[some], ~inside[some]))][:EDGES]
    return tuple(map(view.relationships.ids.__getitem__, edges[order].tolist()))


def _reports(owners: Sequence[str], view: View) -> tuple[Report, ...]:
    """The reports of the narrowest communities around these entities that have one; those about most of them, the best linked first."""
    weight: dict[int, float] = {}
    for place, owner in enumerate(view.entities.ids.numbers(owners).tolist(), 1):
        own = view.reports_about.row(owner)
        if len(own):
            weight[int(own[0])] = weight.get(int(own[0]), 0.0) + 1 / place
    reports = [(value, view.reports.at(number)) for number, value in weight.items()]
    return tuple(report for _, report in sorted(reports, key=lambda pair: (-round(pair[0], 6), -pair[1].rating, pair[1].id)))


# --- one window of it


class Written(Sequence[T]):
    """Things that are made when they are asked for, and kept: most of what could be shown has no room."""

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._count, self._make = count, make
        self._made: dict[int, T] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> T: ...
    @overload
    def __getitem__(self, number: slice) -> list[T]: ...
    def __getitem__(self, number: int | slice) -> T | list[T]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(self._count))]
        place = range(self._count)[number]
        if place not in self._made:
            self._made[place] = self._make(place)
        return self._made[place]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the evidence with its share of the room: its units, their blocks as (unit, block) in the order in which they are taken, and the records
    that are told in them."""

    units: Sequence[Unit]
    order: Iterable[tuple[int, int]]
    share: float
    records: frozenset[tuple[RecordKind, str]] = frozenset()


class Surveyor(Writer):
    """Writes what is around a question."""

    def __init__(self, view: View, counter: TokenCounter, limit: int, *, by_sentence: bool) -> None:
        super().__init__(view, counter, limit, by_sentence=by_sentence)
        self.counter = counter

    def sections(self, near: Neighbourhood, question: str, settings: QuerySettings, budget: int) -> list[Section]:
        """Reports, the graph, passages, in the order in which they stand in the window."""
        rest = 1 - settings.local_reports - settings.local_graph
        costs = Costs(self.counter)
        return [
            self._reports(near, settings.local_reports, budget, costs),
            self._graph(near, settings.local_graph),
            self._passages(near, question, rest, budget, costs),
        ]

    def _reports(self, near: Neighbourhood, share: float, budget: int, costs: Costs) -> Section:
        about = frozenset(near.entities).union(near.edges)
        units = tuple(unit for report in near.reports if (unit := self.report(report, about)).blocks)
        order = turns(units, [range(len(unit.blocks)) for unit in units], share * budget, costs)
        told = frozenset((line.ref.kind, line.ref.id) for unit in units for block in unit.blocks for line in block.lines)
        return Section(units=units, order=order, share=share, records=told)

    def _passages(self, near: Neighbourhood, question: str, share: float, budget: int, costs: Costs) -> Section:
        owners = [owner for owner, _ in near.passages.hits]
        units = Written(len(owners), lambda number: self.chunk(self.view.chunks[owners[number]]))
        best = Written(len(owners), lambda number: self._best(units[number], self._wanted(question, near, owners[number])))
        told = frozenset[tuple[RecordKind, str]](("chunk", owner) for owner in owners)
        return Section(units=units, order=turns(units, best, share * budget, costs), share=share, records=told)

    def report(self, report: Report, about: frozenset[str]) -> Unit:
        """A report's findings under its title, those about these records first."""
        blocks = self._findings(report)
        order = sorted(blocks, key=lambda block: about.isdisjoint(report.findings[block.lines[0].ref.finding].sources))
        sources = (source for finding in report.findings for source in finding.sources)
        documents = sorted({*report.documents, *self.view.documents_of(sources)})
        return Unit(key=digest_of("window", report.id), heading=self._heading(f"# {report.title}"), blocks=tuple(order), documents=tuple(documents))

    def _graph(self, near: Neighbourhood, share: float) -> Section:
        view = self.view
        refs = [Ref(kind="entity", id=owner) for owner in near.entities], [Ref(kind="relationship", id=owner) for owner in near.edges]
        claims = [Ref(kind="claim", id=claim.id) for owner in near.entities for claim in view.claims_of.get(owner, ())]
        named = zip(("# Entities", "# Relationships", "# Claims"), (*refs, claims), strict=True)
        units = tuple(Unit(key=digest_of("local", name), heading=name, blocks=self._elements_of(own), documents=()) for name, own in named if own)
        rows = [[(number, block) for block in range(len(unit.blocks))] for number, unit in enumerate(units)]
        order = tuple(place for places in zip_longest(*rows) for place in places if place is not None)
        return Section(units=units, order=order, share=share, records=frozenset((ref.kind, ref.id) for ref in chain(*refs, claims)))

    def _elements_of(self, refs: Sequence[Ref]) -> Written[Block]:
        """A block for each entity, relationship or claim."""
        say = {"entity": self._entity, "relationship": lambda owner: self._edge(self.view.relationships[owner]), "claim": self._claim}
        return Written(len(refs), lambda place: _block(self._lines(refs[place], say[refs[place].kind](refs[place].id))))

    def _edge(self, edge: Relationship) -> str:
        names = " – ".join(self.view.entities[end].name for end in (edge.source_id, edge.target_id))
        return f"{names}: {edge.description}"

    def _wanted(self, question: str, near: Neighbourhood, owner: str) -> dict[str, float]:
        """The words that make a part of a passage worth reading, by rarity: those of the question, and the name that led there."""
        step = near.passages.why.get(owner)
        wanted = [*asked_for(question), *(words(step.name) if step else ())]
        return {word: links_of(self.view).texts.rarity(word) for word in wanted}

    @staticmethod
    def _best(unit: Unit, wanted: dict[str, float]) -> list[int]:
        said = [{word for line in block.lines for word in words(line.text)} for block in unit.blocks]
        worth = [sum(sorted(weight for word, weight in wanted.items() if word in own)) for own in said]
        return sorted(range(len(worth)), key=lambda place: (-round(worth[place], 6), place))


def _block(lines: tuple[Line, ...]) -> Block:
    return Block(key=digest_of("element", lines[0].ref.id), lines=lines)


def turns(units: Sequence[Unit], best: Sequence[Sequence[int]], room: float, costs: Costs) -> Iterable[tuple[int, int]]:
    """The blocks of units in the order in which they are taken: of each its best ones, up to a part of the room, then what is left of each."""
    return Turns(units, best, room, costs)


class Turns(Iterable[tuple[int, int]]):
    """See `turns`. A unit is counted when its turn comes: most have none, since there is no room left."""

    def __init__(self, units: Sequence[Unit], best: Sequence[Sequence[int]], room: float, costs: Costs) -> None:
        self._units, self._best, self._room, self._costs = units, best, room, costs
        self._split: dict[int, int] = {}

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for number, order in enumerate(self._best):
            yield from ((number, block) for block in order[: self._first(number)])
        for number, order in enumerate(self._best):
            yield from ((number, block) for block in order[self._first(number) :])

    def _first(self, number: int) -> int:
        """How many blocks of a unit are taken at its first turn."""
        if number not in self._split:
            unit, order = self._units[number], self._best[number]
            left, taken = self._room / PARTS - self._costs.unit(replace(unit, blocks=())), 0
            while taken < len(order) and (left := left - self._costs.block(unit.blocks[order[taken]])) >= 0:
                taken += 1
            self._split[number] = max(taken, min(1, len(order)))
        return self._split[number]


def shared(sections: Sequence[Section], view: View, budget: int, counter: TokenCounter) -> tuple[Window, dict[RecordKind, int]]:
    """One window of at most `budget` tokens, and how many records of each kind had no room.

    Each section is filled to its share; what is left goes to the sections from the last to the first.
    """
    costs = Costs(counter)
    kept: list[set[tuple[int, int]]] = [set() for _ in sections]
    left = budget
    shares = [min(int(section.share * budget), budget) for section in sections]
    for round_ in (False, True):
        for number in reversed(range(len(sections))):
            room = left if round_ else shares[number]
            left -= _take(sections[number], kept[number], room, costs)
    units = [unit for section, own in zip(sections, kept, strict=True) for unit in _kept(section, own, view)]
    window = filled(units, budget, counter)
    return window, _missing(sections, window)


def _take(section: Section, kept: set[tuple[int, int]], room: int, costs: Costs) -> int:
    """Take blocks in their order until one does not fit; the tokens that this took."""
    used, opened = 0, {unit for unit, _ in kept}
    for unit, block in section.order:
        if (unit, block) in kept:
            continue
        cost = costs.block(section.units[unit].blocks[block])
        cost += 0 if unit in opened else costs.unit(replace(section.units[unit], blocks=()))
        if used + cost > room:
            break
        used += cost
        kept.add((unit, block))
        opened.add(unit)
    return used


def _kept(section: Section, kept: set[tuple[int, int]], view: View) -> Iterator[Unit]:
    for number, places in groupby(sorted(kept), key=itemgetter(0)):
        unit = section.units[number]
        blocks = tuple(unit.blocks[place] for _, place in places)
        documents = unit.documents or view.documents_of(block.lines[0].ref.id for block in blocks)
        yield replace(unit, blocks=blocks, documents=documents)


def _missing(sections: Sequence[Section], window: Window) -> dict[RecordKind, int]:
    shown = {(ref.kind, ref.id) for ref in window.ids.values()}
    missing = [kind for section in sections for kind, id_ in section.records if (kind, id_) not in shown]
    return {kind: missing.count(kind) for kind in TOLD if kind in missing}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A window, and what there is to say about what it had no room for."""

    window: Window
    note: str


def evidence(near: Neighbourhood, question: str, view: View, settings: QuerySettings, budget: int, counter: TokenCounter, *, whole: bool) -> Evidence:
    """The window about a question; `whole`: pieces of passages instead of single sentences."""
    writer = Surveyor(view, counter, budget // LINE_SHARE, by_sentence=not whole)
    window, missing = shared(writer.sections(near, question, settings, budget), view, budget, counter)
    said = ", ".join(f"{count} {TOLD[kind][count > 1]}" for kind, count in missing.items())
    return Evidence(window=window, note=f"No room for {said}." if said else "")
