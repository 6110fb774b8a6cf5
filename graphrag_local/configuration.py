"""Where settings come from: defaults < preset < graphrag.toml < environment < flags. Unknown keys are errors.

Secrets (`engine.api_key`) come from the environment only and are never written down.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from graphrag_local.errors import SettingsError
from graphrag_local.presets import PRESETS
from graphrag_local.settings import Section, Settings

FILE_NAME = "graphrag.toml"
ENV_PREFIX = "GRAPHRAG_LOCAL__"


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


def _typed(dotted: str, text: str, origin: str) -> Any:
    """A value written as text: lists are comma-separated or as TOML writes them, the rest is for pydantic to read."""
    section, _, key = dotted.rpartition(".")
    owner = Settings.model_fields[section].annotation if section in Settings.model_fields else Settings
    info = owner.model_fields.get(key) if isinstance(owner, type) and issubclass(owner, BaseModel) else None
    if info is not None and "tuple" in str(info.annotation):
        return _listed(dotted, text.strip(), origin)
    return text


def _listed(dotted: str, text: str, origin: str) -> list[Any]:
    """A list written as `a,b` or, for values with commas of their own, as `["a", "b"]`, of which a shell may have eaten the quotes; `[ab]*.txt` is a pattern."""
    if not (text.startswith("[") and (text.endswith("]") or '"' in text or "'" in text)):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = None
    if not isinstance(value, list):
        hint = f"""Write --set {dotted}='a/*,b/*' or, with single quotes around it all, --set '{dotted}=["a/*", "b/*"]'."""
        raise SettingsError(f"{origin}: {dotted} is a list, and {text!r} is none.", hint=hint)
    return value


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
            _put(tree, dotted, _typed(dotted, env[name], name), f"environment variable {name}")
    for override in overrides:
        dotted, sign, text = override.partition("=")
        if not sign:
            raise SettingsError(f"--set {override!r} is not section.key=value.", hint="Write --set engine.url=http://127.0.0.1:8000/v1")
        name = dotted.strip()
        _put(tree, name, _typed(name, text if name.endswith("_prefix") else text.strip(), "--set"), "--set")
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
