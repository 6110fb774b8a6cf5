"""What questions derive from a generation, to be kept beside its tables by whoever publishes it."""

from graphrag_local.query.retrieve import CHUNK_WORDS, ENTITY_WORDS, LINKS, REPORT_WORDS
from graphrag_local.query.view import SHAPE, Part

PARTS: tuple[Part, ...] = (SHAPE, LINKS, CHUNK_WORDS, ENTITY_WORDS, REPORT_WORDS)
