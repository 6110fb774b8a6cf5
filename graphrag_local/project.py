"""A project folder: its settings, its prompts, and where its parts are."""

from dataclasses import dataclass
from pathlib import Path

from graphrag_local.configuration import load
from graphrag_local.errors import UsageError
from graphrag_local.prompting import Prompt, load_all
from graphrag_local.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFolder:
    """One project: `input_root` is the collection, `index` what is built from it."""

    folder: Path
    settings: Settings
    prompts: dict[str, Prompt]

    @property
    def index(self) -> Path:
        """The index folder."""
        return self.folder / "index"

    @property
    def input_root(self) -> Path:
        """The collection's folder."""
        return self.folder / self.settings.documents.input

    @property
    def serve_file(self) -> Path:
        """Where a live `serve` says how its model server is reached."""
        return self.index / "run" / "serve.json"


def open_project(folder: Path, overrides: tuple[str, ...] = ()) -> ProjectFolder:
    """The project in a folder; the folder must exist, everything else has defaults."""
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}.", hint=f"Make a project: graphrag-local init {folder}")
    return ProjectFolder(folder=folder.absolute(), settings=load(folder, overrides), prompts=load_all(folder))
