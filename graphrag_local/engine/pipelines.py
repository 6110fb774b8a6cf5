"""Where a spaCy pipeline is, and which: without loading the library, so that what is missing is said at once."""

import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from graphrag_local.engine.models import models_folder
from graphrag_local.errors import MissingExtra, ModelMissing

CONFIG = "config.cfg"  # every pipeline folder has one
WITHOUT = 'Set extraction.spacy to "" for the finder that needs no pipeline'


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineEntry:
    """A pipeline that is here: `source` is what spaCy loads, the name of an installed package or a folder."""

    name: str
    source: str | Path


def find_pipeline(name: str) -> PipelineEntry | None:
    """A pipeline by its folder in the models folder, by the path of its folder, or by the name it is installed under; None where none is named.

    Raises MissingExtra without spaCy, and ModelMissing where there is no such pipeline.
    """
    if not name:
        return None
    if importlib.util.find_spec("spacy") is None:
        raise MissingExtra(f"A spaCy pipeline (extraction.spacy = {name})", "spacy", instead=WITHOUT)
    places = list(dict.fromkeys((models_folder() / name, Path(name).expanduser())))
    for place in places:
        if folder := _data_of(place):
            return PipelineEntry(name=name, source=folder.resolve())
    if re.fullmatch(r"[A-Za-z][\w.-]*", name) and _is_installed(name):
        return PipelineEntry(name=name, source=name)
    raise ModelMissing(
        f"There is no spaCy pipeline {name!r}: no package of that name is installed, and there is none in {' or '.join(map(str, places))}.",
        hint="Where there is a network: python -m spacy download NAME. Without one: copy the folder of a pipeline, the one that holds config.cfg, "
        f"into the models folder, or name its path in extraction.spacy. {WITHOUT}.",
    )


def _data_of(place: Path) -> Path | None:
    """The folder with the configuration: this, or the only one inside it where a package was unpacked."""
    for pattern in (CONFIG, f"*/{CONFIG}", f"*/*/{CONFIG}"):
        found = sorted(place.glob(pattern)) if place.is_dir() else []
        if found:
            return found[0].parent if len(found) == 1 else None
    return None


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
