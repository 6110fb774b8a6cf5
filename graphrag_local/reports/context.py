"""What a report is written from: the elements of a community, or its parts' reports, as far as they fit a budget (paper §3.1.5). Pure.

Text holds no degree, rank or count, and the order depends on the community alone, so that a hub's new edge elsewhere changes nothing here.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from graphrag_local.ids import digest_of, fingerprint
from graphrag_local.records import Community, ContextLine, Report
from graphrag_local.reports.elements import PREFIX, Elements
from graphrag_local.reports.quote import Quotable, quotable
from graphrag_local.text import neutralise, one_line, sentences
from graphrag_local.tokens import TokenCounter

# Where not all of a community fits, one record may take an eighth of the budget, so that a long description does not stand for the whole group.
RECORD_SHARE = 8
ELEMENTS_PER_FINDING = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a context may use: tokens for its text, findings that the reply has room for, and how tokens are counted.

    `shape` stands for all that decides the reply besides the text (model, sampling, prompt, form, language). `quoted`: the report is composed of
    what the records say.
    """

    tokens: int
    findings: int
    count: Callable[[str], int]
    shape: str
    quoted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The text of one report's request. `ids` maps its short ids to ids of entities, relationships and claims, in order of appearance.

    `lines` are those of the text, each without the short ids, which move when a record comes before it (a part's heading and summary are one line);
    `parts` are the ids of the communities that stand there as their reports; `documents` are those that speak of the members, and those whose text
    the reports of the parts were written from, older ones included.
    `findings` is how many it can carry, `left_out` how many records of the community it has neither as elements nor in a part's report, and
    `untold` the ids of the entities among them and of those that a part's report knows as untold. `quotable` is what a quoted report may say.
    """

    text: str
    ids: dict[str, str]
    lines: tuple[ContextLine, ...]
    parts: tuple[str, ...]
    findings: int
    documents: tuple[str, ...]
    left_out: int
    untold: tuple[str, ...]
    shape: str
    fingerprint: str
    quotable: Quotable | None = None


class Counted:
    """A counter that remembers what it has counted, since a record stands in the contexts of several levels."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._known: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        """Tokens of a text and the line end after it."""
        if text not in self._known:
            self._known[text] = self._counter.count(text + "\n")
        return self._known[text]


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A sub-community that stands in its parent's context as its report: the head, and each finding with its sources."""

    id: str
    members: frozenset[str]
    untold: tuple[str, ...]
    head: str
    findings: tuple[tuple[tuple[str, ...], str], ...]


@dataclass(slots=True)
class _Plan:
    """What may go into a context and what it costs.

    `cap` (0: all fits) is the most tokens of one record's line, `group` the number of the sub-community of an entity that stands as elements.
    """

    elements: Elements
    budget: Budget
    heads: Mapping[str, int]
    whole: frozenset[str]
    parts: tuple[_Part, ...] = ()
    covered: frozenset[str] = frozenset()
    cap: int = 0
    group: Mapping[str, int] = field(default_factory=dict)

    def text(self, record_id: str) -> str:
        """A record's line without ids, cut where there is a cap; an entity of a part is only named, its report describes it."""
        if record_id in self.covered:
            return self.elements.label(record_id)
        # A quoted report chooses among the sentences of descriptions.
        body = self.elements.body(record_id) if self.budget.quoted else self.elements.told(record_id, self.whole, self.budget.count)
        return shortened(body, self.cap, self.budget.count) if self.cap else body

    def cost(self, record_id: str) -> int:
        """Tokens of a record's line with its ids."""
        return self.budget.count(self.text(record_id)) + self.heads[self.elements.kind(record_id)]

    def finding_cost(self, sources: Sequence[str], text: str) -> int:
        """Tokens of a finding's line with its ids."""
        return self.budget.count(text) + self.heads["source"] * len(sources)

    def part_cost(self, part: _Part) -> int:
        """Tokens of a part's whole report."""
        return self.budget.count(part.head) + sum(self.finding_cost(*finding) for finding in part.findings)

    def steps(self, members: Sequence[str]) -> list[tuple[str, ...]]:
        """The records to tell, in steps that belong together: an edge with its ends; the claims that this completes; then loose entities.

        A record comes once, in the first step that names it.
        """
        inside = self.elements.inside(members, [part.members for part in self.parts])
        claims: dict[str, list[str]] = {}
        for claim in inside.claims:
            for end in set(self.elements.ends(claim)):
                claims.setdefault(end, []).append(claim)
        seen: set[str] = set()
        steps: list[tuple[str, ...]] = []

        def tell(*records: str) -> None:
            fresh = tuple(record for record in records if record not in seen)
            seen.update(fresh)
            steps.append(fresh)
            for claim in (claim for record in fresh for claim in claims.get(record, ())):
                if claim not in seen and seen.issuperset(self.elements.ends(claim)):
                    seen.add(claim)
                    steps.append((claim,))

        for edge in inside.relationships:
            tell(*self.elements.ends(edge), edge)
        for entity in inside.loose:
            tell(entity)
        for claim in inside.claims:  # between two parts that no edge joins
            if claim not in seen:
                tell(*dict.fromkeys(self.elements.ends(claim)), claim)
        return steps

    def fairly(self, steps: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """The same steps, those of each sub-community spread evenly over the list from its start on, as are those that join several."""
        queues: dict[int, list[int]] = {}
        for place, step in enumerate(steps):
            entities = {end for record in step for end in (self.elements.ends(record) or (record,))}
            groups = {self.group.get(entity, -1) for entity in entities}
            queues.setdefault(groups.pop() if len(groups) == 1 else -1, []).append(place)
        share = {place: turn / len(queue) for queue in queues.values() for turn, place in enumerate(queue)}
        return [steps[place] for place in sorted(share, key=lambda place: (share[place], place))]

    def whole_cost(self, members: Sequence[str]) -> int:
        """Tokens of the context if nothing is left out."""
        inside = self.elements.inside(members, [part.members for part in self.parts])
        told = {*inside.relationships, *inside.loose, *inside.claims}  # and the ends of each: what `steps` tells
        told.update(end for record in (*inside.relationships, *inside.claims) for end in self.elements.ends(record))
        return sum(map(self.cost, told)) + sum(self.part_cost(part) for part in self.parts)


def build_context(community: Community, parts: Sequence[Community], reports: Mapping[str, Report], elements: Elements, budget: Budget) -> Context:
    """The context of a community.

    All its elements if they fit. Otherwise those of `parts` (its sub-communities) that have a report in `reports` stand as their reports, the
    one with the most element text first, until it fits; a report longer than what it stands for does not. If it still does not fit, at
    least half of the room that the heads of those reports leave is for elements, as long as there are such, the rest for findings, one of
    each report in turn, and elements are taken from all the sub-communities without a report in proportion (our choice, so that none
    crowds the others out).
    """
    plan = _plan(elements, budget, community, ())
    if plan.whole_cost(community.member_ids) > budget.tokens:
        largest_first = sorted((part for part in parts if part.id in reports), key=lambda part: (-elements.size(part.member_ids), part.member_ids))
        candidates = [_part(part, reports[part.id], elements, community) for part in largest_first]
        shorter = [part for part in candidates if plan.part_cost(part) < plan.whole_cost(sorted(part.members))]
        fewest = bisect_left(range(len(shorter)), True, key=lambda n: _fits(_plan(elements, budget, community, shorter[:n]), community))
        plan = _plan(elements, budget, community, shorter[:fewest])
        if not _fits(plan, community):
            plan.cap = max(1, budget.tokens // RECORD_SHARE)
            plan.group = {member: number for number, part in enumerate(parts) for member in part.member_ids if member not in plan.covered}
    shown, findings, left_out = _choose(plan, community)
    untold = {record for record in left_out if record in elements.entities}.union(*(part.untold for part in findings))
    text, ids, lines = _written(plan, shown, findings)
    number = max(1, min(budget.findings, math.ceil(len(ids) / ELEMENTS_PER_FINDING)))
    # The record ids belong to it: equal words about other records would give a report with sources that do not exist.
    given = quotable(ids, elements, community.member_ids, [part.member_ids for part in parts]) if budget.quoted else None
    quoted = [given.mark()] if given else []  # a description may be longer than the line that the text has of it
    mark = fingerprint([budget.shape, text, list(ids.values()), number, len(left_out), sorted(untold), *quoted])
    return Context(
        text=text,
        ids=ids,
        lines=lines,
        parts=tuple(part.id for part in findings),
        findings=number,
        documents=tuple(sorted({*elements.documents(community.member_ids), *(seen for part in findings for seen in reports[part.id].documents)})),
        left_out=len(left_out),
        untold=tuple(sorted(untold)),
        shape=budget.shape,
        fingerprint=mark,
        quotable=given,
    )


def fits_whole(community: Community, elements: Elements, budget: Budget) -> bool:
    """Whether all element text of a community fits, so that its context needs no reports of its parts."""
    return _fits(_plan(elements, budget, community, ()), community)


def _plan(elements: Elements, budget: Budget, community: Community, parts: Sequence[_Part]) -> _Plan:
    covered = frozenset[str]().union(*(part.members for part in parts))
    whole = elements.group(community.member_ids)
    return _Plan(elements, budget, _head_costs(budget.count, len(whole)), whole, tuple(parts), covered)


def _fits(plan: _Plan, community: Community) -> bool:
    return plan.whole_cost(community.member_ids) <= plan.budget.tokens


def shortened(text: str, cap: int, count: Callable[[str], int]) -> str:
    """A text of at most `cap` tokens: whole sentences of it, or, where not even the first fits, its beginning and an ellipsis."""
    if count(text) <= cap:
        return text
    total = kept = 0
    for start, end in sentences(text):
        total += count(text[start:end])
        kept = end if total <= cap else kept
    if kept:
        return text[:kept]
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(text[:middle] + "…") <= cap else (low, middle - 1)
    return text[:low] + "…"


def _head_costs(count: Callable[[str], int], members: int) -> dict[str, int]:
    """Tokens that ids add to a line, for numbers as long as this community's can get."""
    number = "9" * len(str(members * 4))
    ends = f"E{number}-E{number}: "
    return {
        "entity": count(f"E{number} "),
        "relationship": count(f"K{number} {ends}"),
        "claim": count(f"D{number} {ends}"),
        "source": count(f", K{number}]") + 1,
    }


def _part(community: Community, report: Report, elements: Elements, whole: Community) -> _Part:
    """A sub-community as its report, with the sources that are still inside the whole; the blank line before it keeps the parts apart."""
    members = set(whole.member_ids)
    findings = []
    for finding in report.findings:
        sources = tuple(source for source in finding.sources if source in elements and members.issuperset(elements.ends(source) or (source,)))
        text = finding.summary if finding.explanation in ("", finding.summary) else f"{finding.summary} {finding.explanation}"
        if sources:
            findings.append((sources, neutralise(one_line(text))))
    head = f"\n## {neutralise(one_line(report.title))}\n{neutralise(one_line(report.summary))}"
    untold = tuple(record for record in report.untold if record in members)
    return _Part(community.id, frozenset(community.member_ids), untold, head, tuple(findings))


def _choose(plan: _Plan, community: Community) -> tuple[dict[str, str], dict[_Part, set[int]], set[str]]:
    """The records shown with their texts, the numbers of the findings shown of each part, and the records that are left out."""
    room = plan.budget.tokens
    chosen: dict[_Part, set[int]] = {}
    for part in plan.parts:
        cost = plan.budget.count(part.head)
        if cost <= room:
            chosen[part] = set()
            room -= cost
    turns = range(max((len(part.findings) for part in chosen), default=0))
    findings = [(turn, part) for turn in turns for part in chosen if turn < len(part.findings)]
    wanted = sum(plan.finding_cost(*part.findings[turn]) for turn, part in findings)
    spare = room - max(room // 2, room - wanted)
    shown, left_out, room = _choose_records(plan, community, room - spare)
    room += spare
    for turn, part in findings:
        cost = plan.finding_cost(*part.findings[turn])
        if cost <= room:
            chosen[part].add(turn)
            room -= cost
    return shown, chosen, left_out.union(*(part.members for part in plan.parts if part not in chosen))


def _choose_records(plan: _Plan, community: Community, room: int) -> tuple[dict[str, str], set[str], int]:
    """The records shown with their texts, in up to `room` tokens; those that are left out, and the room that is left.

    A step that does not fit is passed over and later ones are tried, so that one long record does not end the context.
    """
    shown: dict[str, str] = {}
    passed: dict[str, None] = {}
    steps = plan.steps(community.member_ids)
    for step in plan.fairly(steps) if plan.group else steps:
        # An end that was passed over with an earlier edge is told with the next one that needs it.
        ends = (end for record in step for end in plan.elements.ends(record))
        needed = [record for record in dict.fromkeys((*ends, *step)) if record not in shown]
        cost = sum(plan.cost(record) for record in needed)
        if cost <= room:
            shown |= {record: plan.text(record) for record in needed}
            room -= cost
        else:
            passed |= dict.fromkeys(step)
    for entity in [record for record in passed if record in plan.elements.entities and record not in shown]:
        if (cost := plan.cost(entity)) <= room:
            shown[entity] = plan.text(entity)
            room -= cost
    told = {record: shown[record] for step in steps for record in step if record in shown}
    return told, {record for record in passed if record not in shown and record not in plan.covered}, room


def _written(plan: _Plan, shown: Mapping[str, str], findings: Mapping[_Part, set[int]]) -> tuple[str, dict[str, str], tuple[ContextLine, ...]]:
    """The text, its short ids in the order of appearance, and its lines as they are compared with later ones."""
    ids: dict[str, str] = {}
    short: dict[str, str] = {}
    last = dict.fromkeys(PREFIX, 0)

    def named(record_id: str) -> str:
        if record_id not in short:
            kind = plan.elements.kind(record_id)
            last[kind] += 1
            short[record_id] = f"{PREFIX[kind]}{last[kind]}"
            ids[short[record_id]] = record_id
        return short[record_id]

    texts: list[str] = []
    lines: list[ContextLine] = []
    for part, numbers in findings.items():
        texts.append(part.head)
        lines.append(ContextLine(digest=digest_of(part.head), tokens=plan.budget.count(part.head)))
        for number in sorted(numbers):
            sources, text = part.findings[number]
            texts.append(f"[{', '.join(map(named, sources))}] {text}")
            lines.append(ContextLine(digest=digest_of(text), tokens=plan.finding_cost(sources, text)))
    if findings and shown:
        texts.append("")
    for record_id, text in shown.items():
        ends = plan.elements.ends(record_id)
        names = "-".join(map(named, ends))
        line = f"{named(record_id)} {names}: {text}" if ends else f"{named(record_id)} {text}"
        texts.append(line.rstrip(": ") if not text else line)
        lines.append(ContextLine(digest=digest_of(text, *ends), tokens=plan.cost(record_id)))
    return "\n".join(texts).strip("\n"), ids, tuple(lines)
