"""One frozen tree of settings per run: defaults < preset < graphrag.toml < environment < flags.

Sections are tables of graphrag.toml. Unknown keys are errors. Secrets (`engine.api_key`) come from the environment only and
are never written down. What can change an index is in `fingerprint()`; addresses, limits and waits are not.
"""

import codecs
import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from graphrag_local.errors import SettingsError
from graphrag_local.ids import fingerprint
from graphrag_local.presets import PRESETS

FILE_NAME = "graphrag.toml"
ENV_PREFIX = "GRAPHRAG_LOCAL__"
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
    """Stop when more than this share of the indexed documents is missing from the input folder (see `index --accept-missing`)."""


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


class ReportSettings(Section):
    """What is written about communities (algorithms §6)."""

    write: Literal["eager", "lazy", "all"] = "eager"
    """`eager`: levels 0 and 1, with the deeper ones that theirs stand on; `lazy`: none; `all`: every community. Without one, questions read its elements."""
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
    top_chunks: Positive = 20
    """Chunks that `basic` considers."""
    always_read: Natural = 3
    """Windows read whatever their gate says."""
    gate: Annotated[float, Field(ge=0, le=1)] = 0.2
    """A window whose gate probability is lower is not read further."""
    refusal_margin: Annotated[float, Field(ge=-1, le=1)] = 0.0
    """The best window must beat a window without content by this much, else the collection does not answer."""
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

    def fingerprint(self) -> str:
        """The digest of every setting that can change an index; addresses, waits and query settings do not."""
        content = self.model_dump(mode="json", include={"documents", "chunks", "extraction", "describe", "communities", "reports"})
        for name in ("input", "max_file_mb", "parse_timeout_s", "parse_memory_mb", "missing_limit", "ocr_command"):
            content["documents"].pop(name)
        return fingerprint(content)


def known_keys() -> dict[str, str]:
    """Every setting as `section.key` (or `key`) with its one-line help, in order of declaration."""
    keys: dict[str, str] = {}
    for name, info in Settings.model_fields.items():
        section = info.annotation
        if isinstance(section, type) and issubclass(section, Section):
            keys |= {f"{name}.{key}": (field.description or "") for key, field in section.model_fields.items()}
        else:
            keys[name] = info.description or ""
    return keys


def _put(tree: dict[str, Any], dotted: str, value: Any, origin: str) -> None:
    keys = known_keys()
    if dotted not in keys:
        near = difflib.get_close_matches(dotted, keys, n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]!r}?" if near else "The README lists all settings."
        raise SettingsError(f"{origin}: there is no setting {dotted!r}.", hint=hint)
    section, _, key = dotted.rpartition(".")
    (tree.setdefault(section, {}) if section else tree)[key] = value


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _typed(dotted: str, text: str) -> Any:
    """A value written as text: lists are comma-separated, the rest is for pydantic to read."""
    section, _, key = dotted.rpartition(".")
    owner = Settings.model_fields[section].annotation if section in Settings.model_fields else Settings
    info = owner.model_fields.get(key) if isinstance(owner, type) and issubclass(owner, BaseModel) else None
    if info is not None and "tuple" in str(info.annotation):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def load(project: Path, overrides: tuple[str, ...] = (), environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of a project folder; `overrides` are `section.key=value` strings from `--set`.

    Raises SettingsError naming the key, where it was written, and the limit it breaks.
    """
    tree: dict[str, Any] = {}
    file = project / FILE_NAME
    if file.is_file():
        try:
            table = tomllib.loads(file.read_text(encoding="utf-8-sig"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            hint = "Mend that line; `graphrag-local init` writes a fresh example."
            raise SettingsError(f"{file} is not valid TOML: {error}.", hint=hint) from error
        for key, value in _flat(table).items():
            if key == "engine.api_key":
                raise SettingsError(f"{file}: engine.api_key is a secret.", hint=f"Put it into the environment: {ENV_PREFIX}ENGINE__API_KEY")
            _put(tree, key, value, str(file))
    env = os.environ if environment is None else environment
    for name in sorted(env):
        if name.startswith(ENV_PREFIX):
            dotted = name.removeprefix(ENV_PREFIX).lower().replace("__", ".")
            _put(tree, dotted, _typed(dotted, env[name]), f"environment variable {name}")
    for override in overrides:
        dotted, sign, text = override.partition("=")
        if not sign:
            raise SettingsError(f"--set {override!r} is not section.key=value.", hint="Write --set engine.url=http://127.0.0.1:8000/v1")
        name = dotted.strip()
        _put(tree, name, _typed(name, text if name.endswith("_prefix") else text.strip()), "--set")
    for section, values in PRESETS.get(str(tree.get("preset", "")), {}).items():
        tree[section] = values | tree.get(section, {})
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
        given = "" if isinstance(first["input"], dict) else f" (it is {first['input']!r})"
        message = f"Setting {where!r}: {first['msg'].removeprefix('Value error, ')}{given}."
        raise SettingsError(message, hint="The README lists all settings with their limits.") from error
