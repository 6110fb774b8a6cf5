"""Which text of each record is embedded (algorithms §7)."""

from graphrag_local.engine.base import EmbedderCard
from graphrag_local.ids import digest_of
from graphrag_local.records import Chunk, Entity, Report


def chunk_text(chunk: Chunk) -> str:
    """A chunk as it stands."""
    return chunk.text


def entity_text(entity: Entity) -> str:
    """An entity's name, other spellings and description."""
    names = ", ".join((entity.name, *(alias for alias in entity.aliases if alias != entity.name)))
    return f"{names}: {entity.description}" if entity.description else names


def report_text(report: Report) -> str:
    """A report's title, summary and findings."""
    findings = "\n".join(f"{finding.summary} {finding.explanation}" for finding in report.findings)
    return f"{report.title}\n{report.summary}\n{findings}".strip()


def text_hash(text: str) -> str:
    """What a cached vector is found by, besides its embedder."""
    return digest_of("text", text)


def cache_key(card: EmbedderCard, prefix: str) -> str:
    """Under what the ledger keeps the vectors of an embedder that is given texts behind this prefix."""
    return digest_of("embedder", card.name, card.revision, str(card.dimension), prefix)
