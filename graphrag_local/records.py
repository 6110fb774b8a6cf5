"""The nouns of the method, in the order in which they are made. No I/O.

`start` and `end` are always offsets in characters (Python string indices) into `Document.text`, end exclusive,
so that `document.text[start:end]` is the quoted text, exactly. Ids are hex strings (see `ids`).
"""

from dataclasses import dataclass
from typing import Literal

Grounding = Literal["anchored", "composed", "unanchored"]
RecordKind = Literal["report", "entity", "relationship", "claim", "chunk"]
Outcome = Literal["ok", "cut_off", "loop", "thinking", "invalid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A half-open run of characters of a document's text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Text that a reader left out on purpose (boilerplate, page furniture), and how much of it."""

    reason: str
    characters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a page, slide, sheet or row of the file begins in the document's text."""

    label: str
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One text of the collection: a file, or one record of a table file.

    `path` is the NFC POSIX path relative to the input root, with `#id` for a record of a table file; it is the
    identity. `content_hash` is the hash of `text`; `file_hash` that of the bytes of the file it came from.
    """

    id: str
    path: str
    title: str
    text: str
    content_hash: str
    file_hash: str
    format: str
    encoding: str = ""
    places: tuple[Place, ...] = ()
    cuts: tuple[Cut, ...] = ()
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One text unit of a document: `document.text[start:end] == text`."""

    id: str
    document_id: str
    index: int
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """Something the model said that is not kept, and why."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityMention:
    """An entity as one chunk names it. `canonical` is its name after the document's canonical-names call."""

    name: str
    type: str
    description: str
    spans: tuple[Span, ...]
    grounding: Grounding
    canonical: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationshipMention:
    """A relationship as one chunk states it; `source` and `target` are indices into the extraction's entities."""

    source: int
    target: int
    description: str
    strength: float
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimMention:
    """A claim (covariate) as one chunk states it; `subject` indexes the extraction's entities, `object` too or is -1."""

    subject: int
    object: int
    type: str
    status: Literal["TRUE", "FALSE", "SUSPECTED"]
    period: str
    description: str
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """What the model said about one chunk, grounded. Empty is a valid result.

    `apart` are entities whose names are nowhere in their passage: kept, flagged, and used for nothing. `gleaned` says whether
    the reply went on after its `missed` question; `missed_logprob` is the log-probability of that answer, None where the engine
    gave none.
    """

    chunk_id: str
    document_id: str
    entities: tuple[EntityMention, ...] = ()
    relationships: tuple[RelationshipMention, ...] = ()
    claims: tuple[ClaimMention, ...] = ()
    apart: tuple[EntityMention, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    gleaned: bool = False
    missed_logprob: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """One row that ties an entity, relationship or claim to the words it came from.

    `owner_id` is the record's id, `name` the surface form in this chunk, `number` its place in the chunk's reply.
    """

    id: str
    owner_id: str
    owner_kind: RecordKind
    chunk_id: str
    document_id: str
    number: int
    name: str
    type: str
    description: str
    strength: float
    spans: tuple[Span, ...]
    grounding: Grounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """One node of the graph: every mention whose name has the same key."""

    id: str
    key: str
    name: str
    type: str
    types: tuple[str, ...]
    aliases: tuple[str, ...]
    description: str
    mentions: int
    degree: int = 0
    pagerank: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Relationship:
    """One undirected edge; `weight` is the sum of strengths over its mentions, `source_id` < `target_id`."""

    id: str
    source_id: str
    target_id: str
    description: str
    weight: float
    mentions: int
    combined_degree: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim; `object_id` is "" where the claim has no second entity."""

    id: str
    subject_id: str
    object_id: str
    type: str
    status: Literal["TRUE", "FALSE", "SUSPECTED"]
    period: str
    description: str
    chunk_id: str
    document_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Community:
    """One community, valid on every level from `first_level` to `last_level` (level 0 is the root, C0).

    `member_ids` are all its entities, sorted; `parent_id` is "" on level 0. A community that stops splitting is
    one row that reaches down to the deepest level. A single node is a row too (it has no report).
    """

    id: str
    first_level: int
    last_level: int
    parent_id: str
    child_ids: tuple[str, ...]
    member_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorCommunity:
    """One community of the anchor (see `Anchor`), as `Community` has it."""

    id: str
    first_level: int
    last_level: int
    parent_id: str
    member_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorEdge:
    """One edge of the graph that the anchor was made of; `source_id` < `target_id`."""

    source_id: str
    target_id: str
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """What keeps communities stable: a hierarchy and the graph it was found in. Today's communities are a function of it and of today's graph."""

    communities: tuple[AnchorCommunity, ...]
    edges: tuple[AnchorEdge, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of a report; `sources` are ids of entities, relationships and claims of the report's context."""

    summary: str
    explanation: str
    sources: tuple[str, ...]
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLine:
    """One line of the context that a report was written from: the digest of its text, and its tokens."""

    digest: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the model wrote about one community; `fingerprint` is that of the context it was written from.

    `documents` are the ids of the documents whose text that context held, `context` its lines; `shape` is the digest of what else decided the
    text (model, prompt, language). `stale`: the community's context is another by now, and the report waits to be written anew.

    `left_out` is how many entities, relationships and claims of the community that context had no room for; `untold` are the ids of the entities
    among them, and of those that the reports it was written from had no room for.
    """

    id: str
    community_id: str
    fingerprint: str
    title: str
    summary: str
    rating: float
    rating_explanation: str
    findings: tuple[Finding, ...]
    stale: bool = False
    dropped: tuple[Dropped, ...] = ()
    left_out: int = 0
    untold: tuple[str, ...] = ()
    shape: str = ""
    documents: tuple[str, ...] = ()
    context: tuple[ContextLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """The embedding of one record's text; `text_hash` says which text."""

    owner_id: str
    owner_kind: RecordKind
    text_hash: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """One unit of work that failed for an expected reason.

    `input` names it for people (a path, a chunk's path and number, a community's id); `retryable` means that the
    next `index` tries again by itself, the others wait for `--retry-failed`.
    """

    stage: str
    input_id: str
    input: str
    reason: str
    retryable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a call, a stage or a query cost; tokens are the served model's own."""

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        """The sum of two costs."""
        return Usage(
            calls=self.calls + other.calls,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            seconds=self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One paid model reply, or the outcome of one that cannot be used (then `text` is its beginning only).

    `groups` are the documents whose text the prompt held, by id: one group (sorted) for each set of documents that asked for this very prompt.
    `logprobs` is JSON.
    """

    key: str
    purpose: str
    model: str
    revision: str
    outcome: Outcome
    text: str
    gate: float | None
    logprobs: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    seconds: float
    groups: tuple[tuple[str, ...], ...]
