"""The evidence of a question as lines of text, each with what it stands for. Pure; no ids are given here.

Every line is one line and neutralised, so that nothing in a document, a name or a report can open a heading, a tag or a source mark.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from graphrag_local.ids import digest_of
from graphrag_local.query.arrays import Longs
from graphrag_local.query.speaking import goes_on, turns_of
from graphrag_local.query.view import View, remembered
from graphrag_local.records import Chunk, Community, RecordKind, Relationship, Report, Span
from graphrag_local.text import neutralise, one_line, sentences
from graphrag_local.tokens import TokenCounter, most_tokens

LETTERS: dict[RecordKind, str] = {"report": "R", "entity": "E", "relationship": "K", "claim": "D", "chunk": "C"}
PIECE_SENTENCES = 3  # a citation of a chunk opens at most so many sentences (our choice: short enough to check at a glance)
PIECE_CHARACTERS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """What a line stands for: a record, one finding of a report (`finding`), or a piece of a chunk (`span`, offsets into its document).

    With a `document`, `span` is the one sentence that is quoted from what the record came from.
    """

    kind: RecordKind
    id: str
    finding: int = -1
    span: Span | None = None
    document: str = ""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of evidence, without its id."""

    ref: Ref
    text: str
    count: Callable[[str], int] = field(compare=False, repr=False)

    @cached_property
    def tokens(self) -> int:
        """The tokens of the text alone, counted when they are asked for: most lines that are written have no room anyway."""
        return self.count(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Lines that should stay together: a finding, an entity with its edges, a piece of a chunk. `key` places it when its unit is split."""

    key: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What one community or chunk adds to a window. `key` is a digest that places it; `heading` may be empty."""

    key: str
    heading: str
    blocks: Sequence[Block]
    documents: tuple[str, ...]


class Writer:
    """Writes units; lines longer than `limit` tokens become several lines with the same reference.

    `by_sentence`: each sentence of a chunk is a line of its own, so that a citation names the sentence (for a tenth more tokens).
    """

    def __init__(self, view: View, counter: TokenCounter, limit: int, *, by_sentence: bool = False) -> None:
        self.view = view
        self.count = counter.count
        self.limit = limit
        self.by_sentence = by_sentence

    def community(self, community: Community) -> Unit:
        """A community as its report's findings where it has a report, else as the element text of its members.

        Members that the report had no room for follow it as element text, so that no entity is in no window.
        """
        view = self.view
        members = view.entities.ids.numbers(community.member_ids)
        members = members[members >= 0]
        edges, report = view.between(members), view.report_of.get(community.id)
        blocks = self._findings(report) if report else ()
        heading = f"# {report.title} — {report.summary}" if report and blocks else ""
        wanted = np.intersect1d(view.entities.ids.numbers(report.untold), members) if report and blocks else members
        return Unit(
            key=digest_of("window", community.id),
            heading=self._heading(heading),
            blocks=(*blocks, *self._elements(members, edges, wanted)),
            documents=view.documents_behind(members, edges, view.claims_about(members)),
        )

    def chunk(self, chunk: Chunk) -> Unit:
        """A chunk as pieces of a few sentences under the path and title of its document; in a transcript each with who speaks, also where the name stands
        before an earlier one, for pieces are read apart."""
        document = self.view.documents.get(chunk.document_id)
        path, title = (document.path, document.title) if document else ("", "")
        heading = f"# {path}: {title}" if title and title not in path else f"# {path}"
        said = turns_of(chunk.document_id, self.view)
        blocks = []
        for start, end in pieces(chunk.text, self._fits):
            who = goes_on(said, chunk.start + start)
            spans = [(start + a, start + b) for a, b in sentences(chunk.text[start:end])] if self.by_sentence else [(start, end)]
            refs = [Ref(kind="chunk", id=chunk.id, span=Span(start=chunk.start + a, end=chunk.start + b)) for a, b in spans]
            texts = [chunk.text[a:b] for a, b in spans]
            texts[:1] = [f"{who}: {texts[0]}"] if who else texts[:1]
            lines = tuple(map(self._line, refs, texts))
            blocks.append(Block(key=digest_of("piece", chunk.id, str(start)), lines=lines))
        key = digest_of("window", chunk.id)
        return Unit(key=key, heading=self._heading(heading), blocks=tuple(blocks), documents=(chunk.document_id,))

    def _findings(self, report: Report) -> tuple[Block, ...]:
        blocks = []
        for number, finding in enumerate(report.findings):
            if not any(source in self.view.mentions_of for source in finding.sources):
                continue
            said = f"{finding.summary} — {finding.explanation}" if finding.explanation not in ("", finding.summary) else finding.summary
            ref = Ref(kind="report", id=report.id, finding=number)
            blocks.append(Block(key=digest_of("finding", report.id, str(number)), lines=self._lines(ref, said)))
        return tuple(blocks)

    def _elements(self, members: Longs, edges: Longs, wanted: Longs) -> tuple[Block, ...]:
        """Those members (by number) that are wanted, the one with most edges inside first.

        An edge stands with the later of its ends that are wanted, so that a hub does not gather them all.
        """
        if not len(wanted):
            return ()
        view, members = self.view, np.sort(members)
        ends = [np.searchsorted(members, view.shape[f"edge.{end}"][edges]) for end in ("source", "target")]
        degree = np.bincount(np.concatenate(ends), minlength=len(members))
        own = np.searchsorted(members, wanted)
        own = own[np.lexsort((own, -degree[own]))]
        place = np.full(len(members), -1, np.int64)
        place[own] = np.arange(len(own))
        later = np.maximum(place[ends[0]], place[ends[1]])
        told: dict[int, list[Relationship]] = {}
        for edge, home in zip(edges[later >= 0].tolist(), later[later >= 0].tolist(), strict=True):
            told.setdefault(home, []).append(view.relationships.at(edge))
        blocks = []
        for home, member in enumerate(view.entities.ids[number] for number in members[own].tolist()):
            lines = self._lines(Ref(kind="entity", id=member), self._entity(member))
            for edge in sorted(told.get(home, ()), key=lambda edge: (-edge.weight, edge.id)):
                names = " – ".join(view.entities[end].name for end in (edge.source_id, edge.target_id))
                lines += self._lines(Ref(kind="relationship", id=edge.id), f"{names}: {edge.description}")
            for claim in view.claims_of.get(member, ()):
                lines += self._lines(Ref(kind="claim", id=claim.id), self._claim(claim.id))
            blocks.append(Block(key=digest_of("element", member), lines=lines))
        return tuple(blocks)

    def _entity(self, entity_id: str) -> str:
        entity = self.view.entities[entity_id]
        name = f"{entity.name} ({entity.type})" if entity.type else entity.name
        return f"{name}: {entity.description}" if entity.description else name

    def _claim(self, claim_id: str) -> str:
        claim = self.view.claims[claim_id]
        names = " – ".join(self.view.entities[end].name for end in (claim.subject_id, claim.object_id) if end in self.view.entities)
        marks = ", ".join(filter(None, (claim.type, claim.status, claim.period if claim.period != "NA" else "")))
        return f"{names}: {claim.description} ({marks})"

    def _heading(self, text: str) -> str:
        shown = shown_as(text.removeprefix("# "))
        start, end = cut_text(shown, self._fits)[0] if shown else (0, 0)
        return f"# {shown[start:end]}" if end else ""

    def _lines(self, ref: Ref, text: str) -> tuple[Line, ...]:
        shown = shown_as(text)
        if self._is_short(shown):
            return (Line(ref=ref, text=shown, count=self.count),)
        return tuple(self._line(ref, shown[start:end]) for start, end in cut_text(shown, self._fits))

    def _line(self, ref: Ref, text: str) -> Line:
        shown = shown_as(text)
        return Line(ref=ref, text=shown, count=self.count)

    def _fits(self, text: str) -> bool:
        return self._is_short(shown_as(text))

    def _is_short(self, shown: str) -> bool:
        return most_tokens(shown) <= self.limit or self.count(shown) <= self.limit


def unit_of(community: Community, view: View, counter: TokenCounter, limit: int) -> Unit:
    """What a community adds to a window, written once per generation."""
    return remembered(view.index, ("unit", community.id, limit, counter.name), lambda: Writer(view, counter, limit).community(community))


def shown_as(text: str) -> str:
    """A text as it may stand in a prompt: one line, look-alikes of our marks defused."""
    return neutralise(one_line(neutralise(text)))  # headings are at the beginning of a line before, and citations in one piece after


def pieces(text: str, fits: Callable[[str], bool]) -> list[tuple[int, int]]:
    """The sentences of a text in runs of at most three sentences or 400 characters, as (start, end); a run or sentence that does not fit is cut."""
    runs: list[tuple[int, int, int]] = []
    for start, end in sentences(text):
        if runs and runs[-1][2] < PIECE_SENTENCES and end - runs[-1][0] <= PIECE_CHARACTERS:
            runs[-1] = (runs[-1][0], end, runs[-1][2] + 1)
        else:
            runs.append((start, end, 1))
    return [(begin + a, begin + b) for begin, end, _ in runs for a, b in cut_text(text[begin:end], fits)]


_BREAK = re.compile(r"\s+")


def cut_text(text: str, fits: Callable[[str], bool]) -> list[tuple[int, int]]:
    """A text as (start, end) of parts that each fit, cut near the middle at white space where there is some, never inside a character with its marks.

    A part of one character is taken as it is, so this always ends.
    """
    if len(text) < 2 or fits(text):
        return [(0, len(text))]
    middle = len(text) // 2
    gap = min((match for match in _BREAK.finditer(text) if match.start()), key=lambda match: abs(match.start() - middle), default=None)
    if gap is None or gap.end() >= len(text) or abs(gap.start() - middle) > len(text) // 4:
        while middle < len(text) - 1 and (unicodedata.combining(text[middle]) or text[middle] in "\u200d\ufe0f" or text[middle - 1] == "\u200d"):
            middle += 1
        left, right = middle, middle
    else:
        left, right = gap.start(), gap.end()
    return cut_text(text[:left], fits) + [(right + a, right + b) for a, b in cut_text(text[right:], fits)]
