"""Small extractions, written the way they are thought of."""

from graphrag_local.records import Chunk, ClaimMention, EntityMention, Extraction, RelationshipMention, Span


def named(name, type_="person", description="", spans=((0, 4),), grounding="anchored", canonical=""):
    return EntityMention(
        name=name, type=type_, description=description, spans=tuple(Span(start=a, end=b) for a, b in spans), grounding=grounding, canonical=canonical
    )


def tied(source, target, strength=5.0, description="knows", spans=((0, 4),)):
    return RelationshipMention(
        source=source, target=target, description=description, strength=strength, spans=tuple(Span(start=a, end=b) for a, b in spans)
    )


def claimed(subject, other=-1, description="was fined", status="TRUE"):
    spans = (Span(start=0, end=4),)
    return ClaimMention(subject=subject, object=other, type="fine", status=status, period="1903", description=description, spans=spans)


def said(*entities, relationships=(), claims=(), document="d0", index=0):
    mentions = tuple(named(entity) if isinstance(entity, str) else entity for entity in entities)
    return Extraction(
        chunk_id=f"c{document}{index}", document_id=document, entities=mentions, relationships=tuple(relationships), claims=tuple(claims)
    )


def chunks_of(*extractions, text="Ann. met Bo."):
    """One chunk for each extraction, found by its id."""
    return {
        x.chunk_id: Chunk(
            id=x.chunk_id, document_id=x.document_id, index=int(x.chunk_id.removeprefix(f"c{x.document_id}")), start=0, end=len(text), text=text
        )
        for x in extractions
    }
