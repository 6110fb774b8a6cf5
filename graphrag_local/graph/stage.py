"""Drives the making of the graph: merge, describe, measure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from graphrag_local.engine.base import Model
from graphrag_local.errors import EngineHung, reason_of
from graphrag_local.flow import Progress, for_each
from graphrag_local.graph.describe import Describer, Subject, quotation, statements, summarise
from graphrag_local.graph.measure import measure
from graphrag_local.graph.merge import Merged, merge
from graphrag_local.prompting import Prompt
from graphrag_local.records import Chunk, Claim, Dropped, Entity, Extraction, Failed, Mention, Relationship
from graphrag_local.settings import DescribeSettings

STAGE = "graph"
SAMPLED = 0.5  # without a model every sentence that has a name is a quote: a few stand for them, and the mentions have them all
QUOTED = 2  # quotes say in two sentences what a description says in one: twice the threshold is their budget (our choice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The finished graph: nodes, edges and claims by id, mentions by document, place and number."""

    entities: tuple[Entity, ...]
    relationships: tuple[Relationship, ...]
    claims: tuple[Claim, ...]
    mentions: tuple[Mention, ...]
    dropped: tuple[Dropped, ...]
    failures: tuple[Failed, ...]


async def build_graph(
    extractions: Iterable[Extraction],
    chunks: Sequence[Chunk],
    model: Model,
    prompt: Prompt,
    settings: DescribeSettings,
    *,
    quote: bool,
    progress: Progress,
    limit: int,
) -> Graph:
    """The graph of a collection; with `quote` no model is called."""
    by_id = {chunk.id: chunk for chunk in chunks}
    merged = merge(extractions, by_id)
    subjects = _subjects(merged)
    progress.begin(STAGE, len(subjects))
    described: dict[str, str] = {}
    failures: list[Failed] = []
    describer = Describer(model=model, prompt=prompt, settings=settings)

    async def one(work: _Work) -> None:
        described[work.id], failure = _quoted(work, by_id, describer) if quote else await _described(work, by_id, describer)
        failures.extend([failure] if failure else [])
        progress.advance(STAGE, done=failure is None, failed=failure is not None)

    # The longest chains of summaries begin first, so that none is left alone at the end.
    await for_each(sorted(subjects, key=lambda work: -len(work.mentions)), one, limit=limit)
    measured = measure(
        [replace(entity, description=described[entity.id]) for entity in merged.entities],
        [replace(edge, description=described[edge.id]) for edge in merged.relationships],
    )
    return Graph(
        entities=measured.entities,
        relationships=measured.relationships,
        claims=merged.claims,
        mentions=merged.mentions,
        dropped=merged.dropped,
        failures=tuple(sorted(failures, key=lambda failure: (failure.input, failure.input_id))),
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """One node or edge to describe."""

    id: str
    subject: Subject
    mentions: tuple[Mention, ...]


def _subjects(merged: Merged) -> list[_Work]:
    """What is to be described, nodes first."""
    said: dict[str, list[Mention]] = {}
    for mention in merged.mentions:
        said.setdefault(mention.owner_id, []).append(mention)
    names = {entity.id: entity.name for entity in merged.entities}
    subjects = {entity.id: Subject(entity.name, "entity") for entity in merged.entities}
    for edge in merged.relationships:
        subjects[edge.id] = Subject(" - ".join(sorted((names[edge.source_id], names[edge.target_id]))), "relationship")
    return [_Work(key, subject, tuple(said[key])) for key, subject in subjects.items()]


def _quoted(work: _Work, chunks: Mapping[str, Chunk], describer: Describer) -> tuple[str, None]:
    share = SAMPLED if describer.model.card.absent else QUOTED
    return quotation(work.mentions, chunks, describer.model.counter, int(share * describer.settings.threshold_tokens)), None


async def _described(work: _Work, chunks: Mapping[str, Chunk], describer: Describer) -> tuple[str, Failed | None]:
    summary = await summarise(work.subject, statements(work.mentions), describer)
    if summary.failed is None:
        return summary.text or _quoted(work, chunks, describer)[0], None  # where the model described nothing its sources speak
    reason = f"its descriptions are joined and cut instead of summarised: {reason_of(summary.failed)}"
    hung = isinstance(summary.failed, EngineHung)
    return summary.text, Failed(stage=STAGE, input_id=work.id, input=work.subject.name, reason=reason, retryable=hung)
