"""A small index in memory, and a model that answers from the evidence it is shown."""

import itertools
import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from graphrag_local import ids
from graphrag_local.engine.base import EmbedderCard, Reply, Request
from graphrag_local.records import Chunk, Claim, Community, Document, Entity, Finding, Mention, Relationship, Report, Span, Usage
from graphrag_local.text import name_key, sentences, words


@dataclass(slots=True)
class MemoryIndex:
    """An `Index` over lists."""

    rows: dict[str, list[Any]] = field(default_factory=dict)
    generation: str = "g1"
    manifest: dict[str, Any] = field(default_factory=dict)
    memo: dict[Any, Any] = field(default_factory=dict)
    vectors: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def documents(self) -> Sequence[Document]:
        return self.rows.get("documents", [])

    def chunks(self) -> Sequence[Chunk]:
        return self.rows.get("chunks", [])

    def entities(self) -> Sequence[Entity]:
        return self.rows.get("entities", [])

    def relationships(self) -> Sequence[Relationship]:
        return self.rows.get("relationships", [])

    def claims(self) -> Sequence[Claim]:
        return self.rows.get("claims", [])

    def communities(self) -> Sequence[Community]:
        return self.rows.get("communities", [])

    def reports(self) -> Sequence[Report]:
        return self.rows.get("reports", [])

    def mentions(self) -> Sequence[Mention]:
        return self.rows.get("mentions", [])

    def kept(self, part: Any) -> Any:
        return part.make(self)

    def near(self, kind: str, vector: Sequence[float], k: int) -> list[tuple[str, float]]:
        scored = [(owner, sum(a * b for a, b in zip(vector, own, strict=True))) for owner, own in self.vectors.get(kind, {}).items()]
        return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:k]

    def shuffled(self, seed: int) -> "MemoryIndex":
        """The same rows in another order."""
        rng = random.Random(seed)
        return MemoryIndex(rows={name: rng.sample(rows, len(rows)) for name, rows in self.rows.items()}, vectors=self.vectors)

    def with_report(self, report: Report) -> "MemoryIndex":
        """The same index with one report written or rewritten."""
        others = [r for r in self.rows.get("reports", []) if r.id != report.id]
        return MemoryIndex(rows={**self.rows, "reports": [*others, report]})


class WordEmbedder:
    """Unit vectors of hashed words, so that texts which share words are near."""

    card = EmbedderCard(name="words", revision="1", dimension=32)

    async def embed(self, texts: list[str], *, query: bool = False) -> list[list[float]]:
        return [self.vector(text) for text in texts]

    def vector(self, text: str) -> list[float]:
        values = [0.0] * 32
        for word in words(text):
            values[int(ids.digest_of(word)[:4], 16) % 32] += 1.0
        length = sum(value * value for value in values) ** 0.5 or 1.0
        return [value / length for value in values]

    async def close(self) -> None:
        return None


class NoEmbedder(WordEmbedder):
    """There is no embedder."""

    card = EmbedderCard(name="none", revision="", dimension=0)


def document_of(path: str, text: str) -> tuple[Document, Chunk]:
    """A document of one chunk."""
    owner = ids.document_id(path)
    document = Document(id=owner, path=path, title=path, text=text, content_hash="", file_hash="", format="txt")
    return document, Chunk(id=ids.chunk_id(owner, text, 0), document_id=owner, index=0, start=0, end=len(text), text=text)


def text_index(**texts: str) -> MemoryIndex:
    """An index of documents alone: name -> text."""
    pairs = [document_of(f"{name}.txt", text) for name, text in texts.items()]
    index = MemoryIndex(rows={"documents": [d for d, _ in pairs], "chunks": [c for _, c in pairs]})
    index.vectors["chunk"] = {chunk.id: WordEmbedder().vector(chunk.text) for _, chunk in pairs}
    return index


def graph_index(
    facts: dict[str, str], groups: Sequence[Sequence[str]], edges: Sequence[tuple[str, str]] = (), reported: Sequence[int] = ()
) -> MemoryIndex:
    """One document with a sentence per entity (name -> sentence); groups are the communities of level 0; reports for the groups listed.

    An edge is mentioned in the sentence of its first end. A report has one finding per member.
    """
    text = "\n".join(facts.values())
    document, chunk = document_of("facts.txt", text)
    spans = {name: Span(start=text.index(fact), end=text.index(fact) + len(fact)) for name, fact in facts.items()}
    entity = {name: ids.entity_id(name_key(name)) for name in facts}

    def mention(owner: str, kind: str, name: str) -> Mention:
        return Mention(
            id=ids.digest_of(owner, name), owner_id=owner, owner_kind=kind, chunk_id=chunk.id, document_id=document.id, number=0, name=name,
            type="thing", description=facts[name], strength=1.0, spans=(spans[name],), grounding="anchored",
        )  # fmt: skip

    entities = [
        Entity(id=entity[n], key=name_key(n), name=n, type="thing", types=("thing",), aliases=(), description=fact, mentions=1)
        for n, fact in facts.items()
    ]
    mentions = [mention(entity[name], "entity", name) for name in facts]
    relationships = []
    for a, b in edges:
        edge = ids.relationship_id(entity[a], entity[b])
        source, target = sorted((entity[a], entity[b]))
        relationships.append(Relationship(id=edge, source_id=source, target_id=target, description=f"{a} and {b}", weight=1.0, mentions=1))
        mentions.append(mention(edge, "relationship", a))
    communities, reports = [], []
    for number, group in enumerate(groups):
        members = tuple(sorted(entity[name] for name in group))
        owner = ids.community_id(0, members)
        communities.append(Community(id=owner, first_level=0, last_level=0, parent_id="", child_ids=(), member_ids=members))
        if number in reported:
            reports.append(report_of(owner, group[0], [(f"About {name}.", facts[name], (entity[name],)) for name in group]))
    rows = {
        "documents": [document], "chunks": [chunk], "entities": entities, "relationships": relationships, "communities": communities,
        "reports": reports, "mentions": mentions,
    }  # fmt: skip
    return MemoryIndex(rows=rows)


def report_of(community: str, title: str, findings: Sequence[tuple[str, str, tuple[str, ...]]], **more: Any) -> Report:
    """A report with these findings (summary, explanation, sources)."""
    told = tuple(Finding(summary=summary, explanation=explanation, sources=sources) for summary, explanation, sources in findings)
    return Report(
        id=ids.report_id(community), community_id=community, fingerprint="f", title=title, summary=f"All about {title}.", rating=5.0,
        rating_explanation="", findings=told, **more,
    )  # fmt: skip


def random_index(seed: int, size: int, *, alphabet: str = "abcdefg hij. ", levels: int = 3, longest: int = 200) -> MemoryIndex:
    """A random graph with a random hierarchy of communities, some of which have a report."""
    rng = random.Random(seed)

    def prose(most: int) -> str:
        return "".join(rng.choice(alphabet) for _ in range(rng.randint(1, most))).strip() or "x"

    facts = {f"N{number}": f"N{number} {prose(longest)}" for number in range(size)}
    names = list(facts)
    edges = sorted({tuple(rng.sample(names, 2)) for _ in range(2 * size)} if size > 1 else ())
    seen: set[frozenset[str]] = set()
    edges = [edge for edge in edges if not (frozenset(edge) in seen or seen.add(frozenset(edge)))]
    index = graph_index(facts, [], edges)
    entity = sorted(e.id for e in index.entities())
    communities: list[Community] = []
    reports: list[Report] = []

    def divide(members: list[str], level: int, parent: str) -> None:
        owner = ids.community_id(level, tuple(members))
        stops = len(members) < 3 or level == levels - 1 or rng.random() < 0.3
        last = levels - 1 if stops else level
        place = {"first_level": level, "last_level": last, "parent_id": parent, "child_ids": ()}
        communities.append(Community(id=owner, member_ids=tuple(members), **place))
        if len(members) > 1 and rng.random() < 0.5:
            findings = [(prose(longest), prose(longest), (rng.choice(members),)) for _ in range(rng.randint(1, 5))]
            reports.append(report_of(owner, prose(20), findings))
        if not stops:
            cuts = sorted(rng.sample(range(1, len(members)), min(2, len(members) - 1)))
            for a, b in zip([0, *cuts], [*cuts, len(members)], strict=True):
                divide(members[a:b], level + 1, owner)

    cuts = sorted(rng.sample(range(1, size), min(size - 1, max(1, size // 10)))) if size > 1 else []
    for a, b in zip([0, *cuts], [*cuts, size], strict=True):
        divide(entity[a:b], 0, "")
    return MemoryIndex(rows={**index.rows, "communities": communities, "reports": reports})


def community_index(number: int) -> MemoryIndex:
    """So many communities of three entities with a report of three findings each, as large collections have."""
    facts = {f"N{n}": f"N{n} keeps the lighthouse of harbour {n} and writes to the next one every week of the year." for n in range(3 * number)}
    names = list(facts)
    return graph_index(facts, [names[at : at + 3] for at in range(0, len(names), 3)], list(itertools.pairwise(names)), range(number))


# --- a model


def evidence(request: Request) -> dict[str, str]:
    """The lines of a prompt with their ids, as the model sees them."""
    text = re.search(r"<text>\n(.*)\n</text>\n", request.messages[-1].content, re.DOTALL).group(1)
    return dict(re.findall(r"^([RECKD]\d+) (.*)$", text, re.MULTILINE))


def step(request: Request) -> str:
    """Which prompt this is."""
    system = request.messages[0].content
    return "map" if "one part" in system else "reduce" if "from points" in system else "answer"


def is_empty_window(request: Request) -> bool:
    return "<text>\nN/A\n</text>" in request.messages[-1].content


def is_forced(request: Request) -> bool:
    """Whether a window is read without the choice to say N."""
    constraint = json.dumps(getattr(request.constraint, "lark", None) or request.constraint.text)
    return step(request) == "map" and '"N\\"' not in constraint and '\\"N\\"' not in constraint


@dataclass(slots=True)
class Reader:
    """Answers as a model would that repeats the evidence; what it does otherwise is set.

    `gate` gives the probability of Y of a prompt (None: the server gives none); `useful` whether a window's reply is Y; `pick` the lines of
    a window that become points.
    """

    form: str = "grammar"
    gate: Callable[[Request], float | None] = lambda request: None
    useful: Callable[[Request], bool] = lambda request: True
    pick: Callable[[dict[str, str]], dict[str, str]] = lambda lines: dict(list(lines.items())[:1])
    score: Callable[[str], int] = lambda text: 50
    answers: bool = True

    def __call__(self, request: Request) -> Reply:
        p = self.gate(request) if request.gate else None
        if p is not None and request.gate and p < request.gate.threshold:
            return self.reply("Y" if p > 0.5 else "N", "gate", p)
        return self.reply(self.text(request), "stop", p)

    def reply(self, text: str, finish: str = "stop", gate: float | None = None) -> Reply:
        return Reply(text=text, finish_reason=finish, gate=gate, usage=Usage(calls=1, prompt_tokens=10, completion_tokens=3, seconds=0.5))

    def text(self, request: Request) -> str:
        lines = evidence(request)
        if step(request) == "map":
            lines = self.pick(lines)
            said_yes = is_forced(request) or (self.useful(request) and bool(lines))
            return self.points([(text, [short], self.score(text)) for short, text in lines.items()], useful=said_yes)
        may_decline = "Y on the first line" in request.messages[0].content or "answered (N" in request.messages[0].content
        return self.paragraphs([(text, [short]) for short, text in list(lines.items())[:4]], may_decline=may_decline)

    def points(self, items: Sequence[tuple[str, list[str], int]], *, useful: bool = True) -> str:
        if self.form == "schema":
            rows = [{"text": text, "sources": cited, "score": score} for text, cited, score in items]
            return json.dumps({"useful": "Y" if useful else "N", "points": rows or [{"text": "-", "sources": [], "score": 1}]}, ensure_ascii=False)
        return "Y\n" + "".join(f"{text}\t{','.join(cited)}\t{score}\n" for text, cited, score in items) if useful else "N"

    def paragraphs(self, items: Sequence[tuple[str, list[str]]], *, may_decline: bool = False) -> str:
        if self.form == "schema":
            first = {"answered": "Y" if self.answers else "N"} if may_decline else {}
            return json.dumps({**first, "paragraphs": [{"text": text, "sources": cited} for text, cited in items]}, ensure_ascii=False)
        if may_decline and not self.answers:
            return "N"
        return ("Y\n" if may_decline else "") + "".join(f"{text}\t{','.join(cited)}\n" for text, cited in items)


def changed(report: Report, text: str) -> Report:
    """A report whose first finding says something else."""
    return replace(report, findings=(replace(report.findings[0], explanation=text), *report.findings[1:]))


def sentence_spans(text: str) -> list[str]:
    return [text[a:b] for a, b in sentences(text)]
