"""One frozen tree of settings per run (see `configuration` for where they come from).

What can change an index is in `fingerprint()`; addresses, limits and waits are not.
"""

import codecs
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from graphrag_local.ids import fingerprint

Positive = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]


class Section(BaseModel):
    """A table of graphrag.toml: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class DocumentsSettings(Section):
    """Which files are read, and how (algorithms §1)."""

    input: str = "input"
    """Folder of the collection, relative to the project folder or absolute."""
    include: tuple[str, ...] = ()
    """Glob patterns of paths to read; empty means all."""
    exclude: tuple[str, ...] = ()
    """Glob patterns of paths to leave out."""
    encoding: str = ""
    """Encoding of text files, where guessing is not wanted; empty means: look at each file."""
    text_field: str = "text"
    """Field of a csv, json or jsonl record that holds its text."""
    id_field: str = "id"
    """Field of a record that identifies it."""
    title_field: str = "title"
    """Field of a record that holds its title."""
    ocr_command: str = ""
    """Command that prints the text of a PDF without a text layer; `{path}` stands for the file."""
    boilerplate: bool = True
    """Cut recognised boilerplate (Project Gutenberg licence, page furniture in html)."""
    max_file_mb: Positive = 32
    """Larger files are reported and not read."""
    max_text_mb: Positive = 64
    """A file whose extracted text is larger than this is reported and not read."""
    parse_timeout_s: Seconds = 60.0
    """Time one file may keep its parser busy."""
    parse_memory_mb: Positive = 2048
    """Memory one parser may use."""
    missing_limit: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Stop when more than this share of the indexed documents is missing from the input folder (see `index --allow-empty`)."""

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str) -> str:
        try:
            return value and codecs.lookup(value).name and value
        except LookupError:
            raise ValueError(f"there is no encoding {value!r}; write a name such as utf-8 or cp1252") from None

    @field_validator("ocr_command")
    @classmethod
    def _with_path(cls, value: str) -> str:
        if value and "{path}" not in value:
            raise ValueError("{path} is missing in documents.ocr_command; it stands for the file")
        return value


class ChunksSettings(Section):
    """How documents are cut (algorithms §2)."""

    method: Literal["anchored", "window"] = "anchored"
    """`anchored`: boundaries are a function of the text near them. `window`: fixed token windows, as in the paper."""
    min_tokens: Positive = 300
    """Smallest anchored chunk, in bytes / 4.6."""
    max_tokens: Positive = 900
    """Largest anchored chunk, in bytes / 4.6."""
    window_tokens: Positive = 600
    """Size of a fixed window, in cl100k tokens."""
    overlap_tokens: Natural = 100
    """Overlap of fixed windows, in cl100k tokens."""

    @model_validator(mode="after")
    def _orderly(self) -> Self:
        if self.min_tokens > self.max_tokens:
            raise ValueError(f"chunks.min_tokens ({self.min_tokens}) is larger than chunks.max_tokens ({self.max_tokens})")
        if self.overlap_tokens >= self.window_tokens:
            raise ValueError(f"chunks.overlap_tokens ({self.overlap_tokens}) must be smaller than chunks.window_tokens ({self.window_tokens})")
        return self


class ExtractionSettings(Section):
    """What is asked about each chunk (algorithms §3)."""

    method: Literal["standard", "fast"] = "standard"
    """`standard`: the model reads every chunk. `fast`: no model at all; names, recurring phrases and what stands together, by statistics."""
    spacy: str = ""
    """A spaCy pipeline that finds names and phrases for `fast`: the name it is installed under, or its folder (as it is, or in the models folder)."""
    types: tuple[str, ...] = ("organization", "person", "geo", "event")
    """Entity types."""
    other_type: bool = True
    """Allow the type `other` for what fits none of the types."""
    grounding: Literal["auto", "evidence", "strict", "span"] = "auto"
    """Names not found in their chunk: `evidence` keeps them apart, flagged; `strict` drops them; `span` lets the grammar write spans only."""
    text: Literal["auto", "describe", "quote"] = "auto"
    """`describe`: the model describes; `quote`: the cited sentences stand for the description."""
    gleaning: Literal["reply", "turns"] = "reply"
    """Ask for missed records inside the same reply, or in further turns as in the paper."""
    max_gleanings: Natural = 1
    """Rounds of gleaning."""
    claims: bool = False
    """Extract claims (covariates) too."""
    canonical: bool = True
    """One call per document that makes the names in it canonical, where any two of them look related."""
    max_entities: Positive = 60
    """Entities a reply may list per round."""
    max_relationships: Positive = 60
    """Relationships a reply may list per round."""
    max_reply_tokens: Positive = 3000
    """Room for the reply."""
    language: str = ""
    """Language of descriptions; empty means the language of the text."""

    @model_validator(mode="after")
    def _some_type(self) -> Self:
        if not self.other_type and not any(one.strip() for one in self.types):
            raise ValueError("extraction.types is empty and extraction.other_type is false: name a type or allow `other`")
        return self


class DescribeSettings(Section):
    """How the descriptions of one entity or relationship become one (algorithms §4)."""

    threshold_tokens: Positive = 256
    """Up to this many tokens the descriptions are joined as they are."""
    group_tokens: Positive = 2000
    """Size of the groups that are summarised together."""
    max_reply_tokens: Positive = 300
    """Room for a summary."""


class CommunitiesSettings(Section):
    """Hierarchical Leiden (algorithms §5)."""

    max_cluster_size: Positive = 10
    """Communities larger than this are split again."""
    largest_component_only: bool = False
    """Leave out all but the largest connected part, for comparison with other programs."""
    seed: Natural = 3735928559
    """Seed of the partition."""
    renew_modularity: Annotated[float, Field(ge=0, le=1)] = 0.995
    """The anchor that keeps communities stable is renewed when level 0 falls below this share of its modularity."""
    renew_roots: Annotated[float, Field(ge=1)] = 1.25
    """It is renewed when there are more than this many times its communities on level 0."""
    renew_days: Natural = 7
    """It is renewed after this many days, if the graph has changed since; 0: never for its age."""


class ReportSettings(Section):
    """What is written about communities (algorithms §6)."""

    write: Literal["eager", "lazy", "all"] = "eager"
    """`eager`: levels 0 and 1, with the deeper ones that theirs stand on; `lazy`: none; `all`: every community. Without one, questions read its elements."""
    refresh: Literal["exact", "tolerant"] = "exact"
    """`exact`: a report is written anew when anything in its context changed; `tolerant`: when `refresh_share` of it did, or a document went."""
    refresh_share: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of a context's tokens that must have changed, with `tolerant`."""
    context_tokens: Positive = 8000
    """Room for the elements of a community."""
    min_tokens: Natural = 600
    """A community with less text of its own is folded into its parent."""
    max_findings: Positive = 10
    """Findings of a report at most; fewer are asked where the context is small."""
    max_reply_tokens: Positive = 2000
    """Room for the report."""
    language: str = ""
    """Language of reports; empty means the language of most of the context."""


class VectorsSettings(Section):
    """What turns text into vectors (algorithms §7)."""

    kind: Literal["auto", "local", "server", "none"] = "auto"
    """`local`: a model folder in this process; `server`: an embeddings endpoint; `none`: words only."""
    model: str = "all-minilm-l6-v2"
    """Name in models.toml, a model folder, or the name the endpoint knows."""
    revision: str = ""
    """Revision of the embedding model, where it is known."""
    url: str = ""
    """Base URL of the embeddings endpoint; empty means `engine.url`."""
    query_prefix: str = ""
    """Instruction put before a question (part of the fingerprint)."""
    text_prefix: str = ""
    """Instruction put before a text (part of the fingerprint)."""
    batch: Positive = 32
    """Texts per call."""

    def prefixes(self) -> dict[str, str]:
        """The instructions around questions and texts: as much a part of what made an index's vectors as the model."""
        return {"query_prefix": self.query_prefix, "text_prefix": self.text_prefix}


class EngineSettings(Section):
    """The model side (architecture §5)."""

    kind: Literal["auto", "vllm", "embedded", "scripted"] = "auto"
    """`auto`: `engine.url`, else a live `serve`, else the embedded model where there is no GPU."""
    url: str = ""
    """Base URL of the server, such as http://127.0.0.1:8000/v1; several are separated by commas."""
    model: str = ""
    """Name in models.toml, a model folder, or the name the server knows; empty means the server's first, or the small packaged model."""
    revision: str = ""
    """Revision of the model, where it is known (servers report none)."""
    api_key: str = ""
    """Bearer token; from the environment only."""
    constraints: Literal["auto", "grammar", "schema"] = "auto"
    """How replies are constrained: `auto` takes what the server was seen to obey."""
    concurrency: Positive = 64
    """Requests in flight at most; the number in use follows the server's queue."""
    context_tokens: Natural = 0
    """The model's window; 0 means: ask the server or the model's files."""
    timeout_s: Seconds = 600.0
    """A request that was overtaken by many later ones is given up after this time."""
    patience_s: Seconds = 1800.0
    """How long a run waits for a server that is away before it stops (and can be continued)."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    """Sampling temperature."""
    seed: Natural = 0
    """Sampling seed."""
    batch: Positive = 16
    """Rows per batch of the embedded engine."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Number format of the embedded engine."""
    clock_scale: Annotated[float, Field(gt=0)] = 1.0
    """Divides every wait; for tests that play a slow server fast."""

    @field_validator("url")
    @classmethod
    def _http_only(cls, value: str) -> str:
        for url in filter(None, (part.strip() for part in value.split(","))):
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"{url!r} is not a URL; write http://host:port/v1")
        return value


class QuerySettings(Section):
    """How questions are answered (algorithms §8)."""

    window_tokens: Positive = 8000
    """Size of a window of reports or chunks."""
    reduce_tokens: Positive = 8000
    """Room for points in the final call."""
    level: Natural = 0
    """Community level of `global` when none is given."""
    first_use_reports: Natural = 32
    """Reports that a level lacks are written at the first question about it, if they are no more than this; else their elements are read."""
    top_chunks: Positive = 20
    """Chunks that `basic` and `local` consider."""
    local_tokens: Positive = 8000
    """Size of the window of `local`."""
    local_entities: Positive = 10
    """Entities that `local` links to a question."""
    local_reports: Annotated[float, Field(ge=0, le=0.5)] = 0.15
    """Share of that window for reports; what a part leaves goes to the others."""
    local_graph: Annotated[float, Field(ge=0, le=0.5)] = 0.35
    """Share of that window for entities, relationships and claims; passages have the rest."""
    drift_reports: Positive = 8
    """Reports that `drift` begins with."""
    drift_followups: Natural = 3
    """Questions that `drift` asks on in each round."""
    drift_rounds: Natural = 2
    """Rounds of such questions."""
    reranker: str = ""
    """A local cross-encoder that puts passages in order: its name in models.toml or a model folder; empty means none."""
    rerank_first: Positive = 50
    """Passages that the reranker reads."""
    dynamic: bool = False
    """`global` rates reports from the asked level down and reads only those that matter to the question."""
    rate_at_least: Annotated[float, Field(ge=0, le=5)] = 1.0
    """Rating from 0 to 5 from which a report is read and those below it are rated."""
    rate_calls: Positive = 200
    """Reports that are rated for a question at most."""
    relevance_budget: Positive = 100
    """Passages that `lazy` tests for a question at most, a short call each."""
    history_tokens: Positive = 2000
    """Room for earlier turns of a conversation."""
    always_read: Natural = 3
    """Windows read whatever their gate says."""
    gate: Annotated[float, Field(ge=0, le=1)] = 0.2
    """A window whose gate probability is lower is not read further."""
    refusal_margin: Annotated[float, Field(ge=-1, le=1)] = 0.0
    """The best window must beat one without content by this much, else the collection does not answer; at -1 the model never declines."""
    max_points: Positive = 8
    """Points one window may give."""
    max_paragraphs: Positive = 8
    """Paragraphs of an answer at most."""
    map_reply_tokens: Positive = 1000
    """Room for a map reply."""
    reply_tokens: Positive = 2000
    """Room for the answer."""
    max_spans: Positive = 5
    """Spans shown per citation."""
    language: str = ""
    """Language of answers; empty means the language of the question."""
    support: Literal["auto", "model", "nli", "off"] = "auto"
    """Who checks that sentences are supported by what they cite: `nli` a local model for it, `auto` one where there is one, else the model that answers."""
    support_calls: Natural = 48
    """Sentences of one answer that are checked by a call at most; further ones stay unchecked."""


class ServerSettings(Section):
    """The HTTP service that `serve` offers."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Natural = 8756
    """Port of the HTTP service."""
    engine_port: Natural = 8757
    """Port of the vLLM server that `serve` starts."""
    engine_args: tuple[str, ...] = ()
    """Further arguments for vLLM."""
    max_body_kb: Positive = 256
    """Largest request body."""


class Settings(Section):
    """The whole tree."""

    preset: Literal["", "paper", "graphrag", "demo"] = ""
    """A set of defaults: `paper` (600/100 windows, 8k), `graphrag` (1200/100, 12k), `demo` (small model, minutes)."""
    keep_generations: Positive = 2
    """Published generations that stay on disk."""
    documents: DocumentsSettings = DocumentsSettings()
    chunks: ChunksSettings = ChunksSettings()
    extraction: ExtractionSettings = ExtractionSettings()
    describe: DescribeSettings = DescribeSettings()
    communities: CommunitiesSettings = CommunitiesSettings()
    reports: ReportSettings = ReportSettings()
    vectors: VectorsSettings = VectorsSettings()
    engine: EngineSettings = EngineSettings()
    query: QuerySettings = QuerySettings()
    server: ServerSettings = ServerSettings()

    def decisive(self) -> dict[str, Any]:
        """Every setting that decides what records an index holds, by section; addresses, waits, query settings, and what says when to work do not."""
        content: dict[str, Any] = self.model_dump(mode="json", include={"documents", "chunks", "extraction", "describe", "communities", "reports"})
        for name in ("input", "max_file_mb", "parse_timeout_s", "parse_memory_mb", "missing_limit", "ocr_command"):
            content["documents"].pop(name)
        content["extraction"].pop("spacy")  # which pipeline that is stands beside the models, wherever its files are
        if self.extraction.method == "standard":  # as before there was another
            content["extraction"].pop("method")
        for name in ("renew_modularity", "renew_roots", "renew_days"):
            content["communities"].pop(name)
        for name in ("write", "refresh", "refresh_share"):
            content["reports"].pop(name)
        return content

    def fingerprint(self) -> str:
        """The digest of every setting that can change an index."""
        return fingerprint(self.decisive())
