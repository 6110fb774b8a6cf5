"""A run that asks nobody: the whole pipeline over the ledger and an engine that notes what the ledger cannot answer. It writes nothing and needs no lock."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from graphrag_local.changes import refuse_unasked
from graphrag_local.engine.base import EmbedderCard
from graphrag_local.engine.embed import NoEmbedder
from graphrag_local.engine.ledgered import Ledgered
from graphrag_local.engine.unasked import Unasked
from graphrag_local.errors import IndexCorrupt, IndexMismatch, IndexMissing, NotConfirmed, UsageError
from graphrag_local.flow import Progress
from graphrag_local.forecast.reach import Reports
from graphrag_local.indexing import Order, decided_by, previous_of, run_of
from graphrag_local.pipeline import Built, build
from graphrag_local.project import ProjectFolder
from graphrag_local.records import Chunk
from graphrag_local.reports.context import Counted
from graphrag_local.reports.elements import Elements
from graphrag_local.reports.tree import Contexts, Tree
from graphrag_local.reports.write import budget_of
from graphrag_local.store.generations import Generation, current_id, folder_of, generation_ids, open_damaged, problems
from graphrag_local.store.lance import Tables
from graphrag_local.store.manifest import read_manifest
from graphrag_local.store.peek import History, Peek
from graphrag_local.store.stamps import load
from graphrag_local.wiring import UNUSABLE, ModelSide


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What such a run made, what it would have asked, and what earlier replies and builds of this index took.

    `published` are the ids of the chunks of the published index; `has_index` says whether there is one, `is_redone` whether what decides it has changed.
    """

    project: ProjectFolder
    order: Order
    side: ModelSide
    built: Built
    unasked: Unasked
    history: dict[str, History]
    builds: tuple[dict[str, Any], ...]
    published: frozenset[str]
    notes: tuple[str, ...]
    has_index: bool
    is_redone: bool

    def reports(self) -> Reports:
        """The communities whose reports are wanted, and what those stand on."""
        snapshot, settings, model = self.built.snapshot, self.project.settings.reports, self.side.model
        tree = Tree(snapshot.communities, Elements(snapshot.entities, snapshot.relationships, snapshot.claims, snapshot.mentions), settings)
        contexts = Contexts(tree, budget_of(model, self.project.prompts["report"], settings, Counted(model.counter)))
        wanted = contexts.with_needed(tree.targets(None, settle=self.order.settle))
        stands_on = {key: frozenset(part.id for part in contexts.needs(tree.by_id[key])) for key in sorted(wanted)}
        write = "all" if self.order.settle else settings.write
        return Reports(write=write, wanted=frozenset(wanted), stands_on=stands_on)


async def look(project: ProjectFolder, order: Order, side: ModelSide, progress: Progress, *, compared: bool = True) -> Looked:
    """Run the pipeline without asking. `compared` says whether what decides the index is compared with what made the published one.

    Raises what a build raises before it asks anything, but for changed settings, which are noted.
    """
    notes: list[str] = []
    redone: list[str] = []
    unasked = Unasked(side.ledgered.card, side.model.counter)
    parent = _published(project, notes.append)
    try:
        if parent is not None and compared:
            side.keep_embedder(EmbedderCard.of(parent.manifest.about["models"]))
            redone = _what_is_redone(project, side, parent)
        with Peek.open(project.index / "ledger.sqlite") as ledger:
            ledgered = Ledgered(unasked, ledger, UNUSABLE if order.retry_failed else frozenset())
            model = replace(side.model, generate=ledgered.generate)
            planned = replace(side, model=model, embedder=NoEmbedder(), ledgered=ledgered, meter=ledgered.meter)
            run = run_of(project, planned, ledger, _Planning(progress), lambda *_, **__: None, order, parent)
            built = await build(run, previous_of(project, parent))
            history = ledger.history(side.ledgered.card.name, side.ledgered.card.revision)
        published = frozenset(Tables.of(parent).columns(Chunk, ["id"])["id"]) if parent is not None else frozenset[str]()
    finally:
        if parent is not None:
            parent.close()
    return Looked(
        project=project, order=order, side=side, built=built, unasked=unasked, history=history, builds=_builds(project), published=published,
        notes=(*notes, *redone), has_index=parent is not None, is_redone=bool(redone),
    )  # fmt: skip


class _Planning:
    """Progress of a run in which every unit that is not there counts as looked at, not as failed."""

    def __init__(self, inner: Progress) -> None:
        self._inner = inner

    def begin(self, stage: str, total: int) -> None:
        """A stage starts."""
        self._inner.begin(stage, total)

    def advance(self, stage: str, *, done: int = 0, failed: int = 0, more: int = 0) -> None:
        """Units that were looked at."""
        self._inner.advance(stage, done=done + failed, more=more)

    def say(self, text: str) -> None:
        """One sentence."""
        self._inner.say(text)


def _published(project: ProjectFolder, note: Callable[[str], None]) -> Generation | None:
    """The current generation if it is whole; opened without a note of having checked it, since nothing is to be written."""
    try:
        generation = open_damaged(project.index, current_id(project.index))
    except IndexMissing:
        return None
    except (IndexCorrupt, IndexMismatch, UsageError) as error:
        note(f"The published index cannot be used ({str(error).rstrip('.')}); it would be built anew from the replies in the ledger.")
        return None
    problem = next(problems(generation.folder, generation.manifest, load(project.index)), "")
    if not problem:
        return generation
    generation.close()
    note(f"The published index cannot be used ({problem.rstrip('.')}); it would be built anew from the replies in the ledger.")
    return None


def _what_is_redone(project: ProjectFolder, side: ModelSide, parent: Generation) -> list[str]:
    try:
        refuse_unasked(parent.manifest.about, decided_by(project, side), parent.manifest.counts)
    except NotConfirmed as question:
        return [f"{question} `index` asks first (--yes says yes)."]
    return []


def _builds(project: ProjectFolder) -> tuple[dict[str, Any], ...]:
    """What the builds of the generations on disk took."""
    found = []
    for id_ in generation_ids(project.index):
        try:
            found.append(read_manifest(folder_of(project.index, id_)).about["last_build"])
        except (IndexCorrupt, IndexMismatch):
            continue
    return tuple(found)
