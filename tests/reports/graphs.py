"""Small graphs with communities, and a writer of valid reports in either form."""

import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from graphrag_local import prompting
from graphrag_local.engine.base import Grammar, JsonSchema, Request
from graphrag_local.ids import claim_id, community_id, entity_id, relationship_id
from graphrag_local.records import Claim, Community, Entity, Finding, Mention, Relationship, Report, Span
from graphrag_local.reports.context import Budget
from graphrag_local.settings import ReportSettings

PROMPT = prompting.load("report")

Graph = tuple[list[Entity], list[Relationship], list[Claim], list[Community]]


def entity(name: str, description: str = "", kind: str = "person") -> Entity:
    """An entity whose key is its name in lower case."""
    key = name.casefold()
    return Entity(id=entity_id(key), key=key, name=name, type=kind, types=(kind,), aliases=(), description=description, mentions=1)


def edge(a: Entity, b: Entity, description: str = "", weight: float = 1.0) -> Relationship:
    """An edge between two entities."""
    first, second = sorted((a.id, b.id))
    return Relationship(id=relationship_id(first, second), source_id=first, target_id=second, description=description, weight=weight, mentions=1)


def claim(subject: Entity, description: str, about: Entity | None = None, document: str = "d0") -> Claim:
    """A claim about one or two entities."""
    return Claim(
        id=claim_id("c0", description), subject_id=subject.id, object_id=about.id if about else "", type="deed", status="TRUE", period="1931",
        description=description, chunk_id="c0", document_id=document,
    )  # fmt: skip


def mention(owner: Entity | Relationship, document: str) -> Mention:
    """One mention of a record in a document."""
    kind = "entity" if isinstance(owner, Entity) else "relationship"
    return Mention(
        id=f"m{owner.id}{document}", owner_id=owner.id, owner_kind=kind, chunk_id="c0", document_id=document, number=0, name="", type="",
        description="", strength=1.0, spans=(Span(start=0, end=1),), grounding="anchored",
    )  # fmt: skip


def community(
    members: Iterable[Entity], *, level: int = 0, last: int | None = None, parent: str = "", children: Sequence[Community] = ()
) -> Community:
    """A community of these entities, with an id of its level and members."""
    ids = tuple(sorted(member.id for member in members))
    deepest = last if last is not None else level
    return Community(
        id=community_id(level, ids), first_level=level, last_level=deepest, parent_id=parent, child_ids=tuple(child.id for child in children),
        member_ids=ids,
    )  # fmt: skip


def tree(groups: Sequence[Sequence[Entity]], levels: int = 2) -> list[Community]:
    """One root over these groups, one child each; loners too. All reach down to `levels` - 1."""
    everybody = [member for group in groups for member in group]
    root = community(everybody)
    children = [community(group, level=1, last=levels - 1, parent=root.id) for group in groups]
    return [community(everybody, children=children), *children]


def circle(prefix: str, number: int, description: str = "A person of the valley.") -> tuple[list[Entity], list[Relationship]]:
    """Entities joined in a ring."""
    people = [entity(f"{prefix} {index}", description) for index in range(number)]
    return people, [edge(a, b, f"{a.name} knows {b.name}.") for a, b in zip(people, people[1:] + people[:1], strict=True) if a.id != b.id]


def with_words(graph: Graph, name: str, words: str) -> Graph:
    """The graph with another description of one entity."""
    return [replace(person, description=words) if person.name == name else person for person in graph[0]], *graph[1:]


def without(graph: Graph, *names: str) -> Graph:
    """The graph without some entities; communities keep their ids."""
    gone = {person.id for person in graph[0] if person.name in names}
    rows = [replace(row, member_ids=tuple(member for member in row.member_ids if member not in gone)) for row in graph[3]]
    edges = [tie for tie in graph[1] if not gone & {tie.source_id, tie.target_id}]
    return [person for person in graph[0] if person.id not in gone], edges, [], rows


def budget(tokens: int = 8000, findings: int = 10) -> Budget:
    """A budget of one token per character."""
    return Budget(tokens=tokens, findings=findings, count=lambda text: len(text) + 1, shape="test")


def settings(**values: object) -> ReportSettings:
    """Settings that fold nothing unless told."""
    return ReportSettings(**{"min_tokens": 0, **values})  # type: ignore[arg-type]


def report_about(group: Community, sources: Sequence[str], *, findings: int = 1, length: int = 20) -> Report:
    """A report with that many findings, each citing all the sources."""
    text = "word " * (length // 5)
    told = tuple(Finding(summary=f"Finding {number}.", explanation=text.strip(), sources=tuple(sources)) for number in range(findings))
    return Report(
        id=f"r{group.id}", community_id=group.id, fingerprint="", title=f"About {group.id[:4]}", summary="They meet.", rating=5.0,
        rating_explanation="It matters.", findings=told,
    )  # fmt: skip


def ids_of(request: Request) -> list[str]:
    """The ids that a request's constraint allows."""
    if isinstance(request.constraint, Grammar):
        if leads := re.findall(r'^lead_\w+: "(\w+)"', request.constraint.lark, re.MULTILINE):
            return leads
        line = next(line for line in request.constraint.lark.splitlines() if line.startswith("ID:"))
        return re.findall(r'"(\w+)"', line)
    assert isinstance(request.constraint, JsonSchema)
    return json.loads(request.constraint.text)["properties"]["findings"]["items"]["properties"]["sources"]["items"]["enum"]


def most_findings(request: Request) -> int:
    """How many findings a request's constraint allows."""
    if isinstance(request.constraint, Grammar):
        if runs := re.findall(r"^finding\d+:", request.constraint.lark, re.MULTILINE):
            return len(runs)
        return int(re.search(r"finding\{1,(\d+)\}", request.constraint.lark)[1])  # type: ignore[index]
    return json.loads(request.constraint.text)["properties"]["findings"]["maxItems"]  # type: ignore[union-attr]


def valid_reply(request: Request, sources: Sequence[str] | None = None, title: str = "The valley") -> str:
    """A report that fits a request; it cites the first ids unless told."""
    cited = list(sources if sources is not None else ids_of(request)[:3])
    number = most_findings(request)
    if isinstance(request.constraint, Grammar) and "lead_" in request.constraint.lark:
        return "G\t6\n" + "".join(f"F\t{line}\n" for line in _first_choices(request.constraint.lark))
    if isinstance(request.constraint, Grammar):
        told = "".join(f"F\t{','.join(cited)}\tFinding {n}.\tBecause of that.\n" for n in range(number))
        return f"T\t{title}\nS\tThey meet. They part.\nG\t6\tIt matters.\n{told}"
    findings = [{"summary": f"Finding {n}.", "explanation": "Because of that.", "sources": cited, "more": False} for n in range(number)]
    value = {"title": title, "summary": "They meet. They part.", "rating": 6, "rating_explanation": "It matters.", "findings": findings}
    return json.dumps(value, ensure_ascii=False)


def _first_choices(lark: str) -> Iterator[str]:
    """For each finding of a report that is quoted the first lead with the first of what explains it."""
    rules = dict(line.split(": ", 1) for line in lark.splitlines() if ": " in line)
    for name, body in rules.items():
        if re.fullmatch(r"finding\d+", name):
            lead, *beside = rules[re.search(r"lead_\w+", body)[0]].split(" (")  # type: ignore[index]
            yield "".join(re.findall(r'"([^"]+)"', lead) + [re.findall(r'"([^"]+)"', part)[0] for part in beside])


def random_graph(seed: int, size: int) -> tuple[list[Entity], list[Relationship], list[Claim], list[Community]]:
    """A random graph and a random hierarchy of three levels that is a partition on each; some communities stop splitting early."""
    chance = random.Random(seed)
    people = [entity(f"P{index}", "x" * chance.randrange(60)) for index in range(size)]
    pairs = {tuple(sorted(chance.sample(range(size), 2))) for _ in range(2 * size)} if size > 1 else set()
    edges = [edge(people[a], people[b], "y" * chance.randrange(60), chance.randrange(1, 10)) for a, b in sorted(pairs)]
    claims = [claim(chance.choice(people), f"claim {number}", chance.choice([None, *people])) for number in range(size // 3)]
    rows = [row for part in _split(people, chance, 4) for row in _grown(part, 0, "", chance)]
    return people, edges, claims, rows


def _split(people: list[Entity], chance: random.Random, most: int) -> list[list[Entity]]:
    parts: list[list[Entity]] = [[] for _ in range(most)]
    for person in people:
        chance.choice(parts).append(person)
    return [part for part in parts if part]


def _grown(people: list[Entity], level: int, parent: str, chance: random.Random) -> list[Community]:
    if level == 2 or len(people) < 3 or chance.random() < 0.2:
        return [community(people, level=level, last=2, parent=parent)]
    own = community(people, level=level).id
    below = [row for part in _split(people, chance, 3) for row in _grown(part, level + 1, own, chance)]
    children = [row for row in below if row.parent_id == own]
    if len(children) == 1:
        return [community(people, level=level, last=2, parent=parent)]
    return [community(people, level=level, parent=parent, children=children), *below]
