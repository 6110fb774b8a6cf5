"""What it costs to bring an index up to date: calls and model tokens by stage, as a share of a full build's, and whether each call had to be made.

    python scripts/bench_update.py [--chunks 2000] [--podcasts FOLDER] [--parts updates,inserted,cpu] [--models FOLDER] [--detail]

The collection is made up (see synthetic.py) and indexed with the program's own `run_index`, on disk, with default settings but for what a row says;
the model is the author of synthetic.py, whose replies have the size of a real model's; its descriptions and reports are others whenever anything in
their prompt is. Tokens are cl100k's, prompt and reply. An edit replaces one sentence by another, which names other things of its document.

For every run the touched set is found apart from the program, by comparing the records before and after: texts of chunks that are new, documents
with such chunks, entities and relationships whose statements are others, communities whose members, elements or level are others, with all that is above
them. A call outside of it, or a chunk's call that is missing, is an error.

    updates   every kind of change, eager, all levels, and tolerant; `--podcasts` adds a folder of text files of yours
    inserted  a paragraph at the start of a document of 100 chunks, with anchored chunks and with fixed windows
    cpu       CPU seconds of a process that indexes 2,000 chunks which are indexed already, its start included

A figure over its aim is marked and makes the exit code 1.
"""

import argparse
import asyncio
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from zlib import crc32

import synthetic
from synthetic import CHUNKS_PER_DOCUMENT, answer, edited, said_about, write_collection
from touched import Call, Touched, causes

from graphrag_local import indexing
from graphrag_local.engine.base import Model, ModelCard, Reply, Request
from graphrag_local.engine.embed import NoEmbedder
from graphrag_local.engine.ledgered import Ledgered, Meter
from graphrag_local.engine.models import models_folder
from graphrag_local.engine.scripted import CARD, ScriptedEngine
from graphrag_local.flow import Silent
from graphrag_local.indexing import Indexed, Order, run_index
from graphrag_local.project import open_project
from graphrag_local.store.snapshot import Snapshot
from graphrag_local.tokens import FileTokenizer, cl100k
from graphrag_local.wiring import ModelSide

STAGES = ("extraction", "names", "describe", "reports")
EAGER, ALL, TOLERANT = (), ("reports.write=all",), ("reports.write=all", "reports.refresh=tolerant")


# --- the model


def author(request: Request) -> str:
    """The author of synthetic.py, whose descriptions and reports are others whenever anything in their prompt is another, as a model's may be."""
    reply, prompt = answer(request), request.messages[-1].content
    mark = f"{crc32(prompt.encode()):08x}"
    if request.purpose == "report":
        return reply.replace("T\t", f"T\t{mark} ", 1)
    return f"{mark} {reply}" if request.purpose == "describe" and not is_about_names(request) else reply


def is_about_names(request: Request) -> bool:
    """Whether a call asks which names of a document are the same."""
    return request.messages[-1].content.startswith("<text>\n(1) ")


class Noting:
    """The author's engine, noting each call with its tokens."""

    def __init__(self, models: Path) -> None:
        self.calls: list[Call] = []
        self._inner = ScriptedEngine(author)
        self._encoding = cl100k(models)
        self._known: dict[str, int] = {}

    @property
    def card(self) -> ModelCard:
        """The inner engine's."""
        return CARD

    async def generate(self, request: Request) -> Reply:
        """The inner engine's reply, counted."""
        reply = await self._inner.generate(request)
        self._inner.history.clear()
        tokens = self._count(reply.text) + sum(self._known_count(m.content) if m.role == "system" else self._count(m.content) for m in request.messages)
        stage = {"extract": "extraction", "report": "reports"}.get(request.purpose, "describe")
        self.calls.append(Call("names" if stage == "describe" and is_about_names(request) else stage, request, tokens))
        return reply

    async def close(self) -> None:
        """Nothing to close."""

    def _count(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))

    def _known_count(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = self._count(text)
        return self._known[text]


class Quiet(Silent):
    """Progress that shows nothing, for as long as its context lasts."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""


def side_of(engine: Any, models: Path) -> Callable[..., Any]:
    """What opens a model side over an engine."""

    async def opened(project: Any, ledger: Any, say: Any, **_: Any) -> ModelSide:
        meter = Meter()
        ledgered = Ledgered(engine, ledger, meter=meter)
        counter = FileTokenizer(models / "smollm2-135m-instruct")
        model = Model(generate=ledgered.generate, card=engine.card, counter=counter, recall=ledgered.recall)
        return ModelSide(model=model, embedder=NoEmbedder(), ledgered=ledgered, meter=meter, kind="scripted")

    return opened


# --- a project and its runs


@dataclass(slots=True)
class Project:
    """A project folder with its settings; `snapshot` is what its index holds."""

    folder: Path
    models: Path
    rules: tuple[str, ...] = ()
    snapshot: Snapshot | None = None
    scratch: int = 0

    def index(self) -> tuple[Indexed, list[Call]]:
        """One run, and what it paid for."""
        engine = Noting(self.models)
        indexing.open_model_side = side_of(engine, self.models)  # type: ignore[assignment]
        project = open_project(self.folder, ("vectors.kind=none", *self.rules))
        made = asyncio.run(run_index(project, lambda usage, log: Quiet(), Order(yes=True, whole=True)))
        if made.built.snapshot.failures:
            raise SystemExit(f"The bench's own author failed: {made.built.snapshot.failures[0]}")
        self.snapshot = made.built.snapshot
        return made, engine.calls

    @contextmanager
    def copy(self, rules: tuple[str, ...] | None = None) -> Iterator["Project"]:
        """Another project like it, for as long as the context lasts."""
        with tempfile.TemporaryDirectory(dir=self.folder.parent) as name:
            shutil.copytree(self.folder, Path(name) / "p")
            yield Project(Path(name) / "p", self.models, self.rules if rules is None else rules, self.snapshot)

    @property
    def files(self) -> list[Path]:
        """The documents."""
        return sorted(path for path in (self.folder / "input").rglob("*") if path.is_file())


# --- what is changed


Change = Callable[[list[Path], Path, int], None]


def _one_of(files: list[Path], turn: int) -> Path:
    """Another document in each turn, all over the collection."""
    return files[int((0.5 + 0.618034 * turn) * len(files)) % len(files)]


def one_sentence(files: list[Path], folder: Path, turn: int) -> None:
    """In one document."""
    _edit(_one_of(files, turn), turn)


def one_in_a_hundred(files: list[Path], folder: Path, turn: int) -> None:
    """A sentence in each of 1 % of the documents, one at least, spread over the collection."""
    count = max(1, len(files) // 100)
    for path in {_one_of(files, turn * count + number) for number in range(count)}:
        _edit(path, turn)


def one_deleted(files: list[Path], folder: Path, turn: int) -> None:
    """One document."""
    _one_of(files, turn).unlink()


def one_renamed(files: list[Path], folder: Path, turn: int) -> None:
    """One document, into another folder."""
    target = folder / "moved" / "another-name.txt"
    target.parent.mkdir()
    _one_of(files, turn).rename(target)


def touched_only(files: list[Path], folder: Path, turn: int) -> None:
    """A file with a new date."""
    os.utime(_one_of(files, turn))


def nothing(files: list[Path], folder: Path, turn: int) -> None:
    """No change."""


def one_added(files: list[Path], folder: Path, turn: int) -> None:
    """A document more, about what another one is about."""
    text = _one_of(files, turn).read_text(encoding="utf-8")
    (folder / "added.txt").write_text(said_about(text, f"added {turn}", 240) + "\n", encoding="utf-8")


def _edit(path: Path, turn: int) -> None:
    path.write_text(edited(path.read_text(encoding="utf-8"), f"edit {path.name} {turn}"), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A change, the settings it is made under, and the most that it should cost, as a share of a full build in percent."""

    name: str
    change: Change
    rules: tuple[str, ...]
    aim: float | None


SCENARIOS = (
    Scenario("no change", nothing, EAGER, 0),
    Scenario("a file touched, unchanged", touched_only, EAGER, 0),
    Scenario("a document renamed", one_renamed, EAGER, 0),
    Scenario("one sentence edited", one_sentence, EAGER, 0.5),
    Scenario("one sentence edited, all levels", one_sentence, ALL, None),
    Scenario("1 % of the documents edited, eager", one_in_a_hundred, EAGER, 5),
    Scenario("1 % of the documents edited, all levels", one_in_a_hundred, ALL, 12),
    Scenario("1 % of the documents edited, tolerant", one_in_a_hundred, TOLERANT, 2),
    Scenario("one document deleted", one_deleted, EAGER, 1),
    Scenario("one document added", one_added, EAGER, None),
    Scenario("one sentence edited, tolerant", one_sentence, TOLERANT, None),
    Scenario("one document deleted, tolerant", one_deleted, TOLERANT, None),
)


# --- what is printed


@dataclass(slots=True)
class Row:
    """A line of the table: what its runs cost in the mean."""

    name: str
    full: int
    aim: float | None = None
    runs: list[list[Call]] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)

    @property
    def share(self) -> float:
        """Percent of a full build's tokens."""
        return 100 * sum(map(total, self.runs)) / len(self.runs) / self.full

    @property
    def is_over(self) -> bool:
        """Whether it costs more than it should."""
        return self.aim is not None and self.share > self.aim

    def __str__(self) -> str:
        count = len(self.runs)
        cells = []
        for stage in STAGES:
            calls = [call for run in self.runs for call in run if call.stage == stage]
            cells.append(f"{len(calls) / count:,.3g} / {total(calls) / count:,.0f}" if calls else "0")
        most = max(100 * total(run) / self.full for run in self.runs)
        share = f"{self.share:.2f} %" + (f" (to {most:.2f} %)" if count > 1 and most else "")
        notes = ", ".join(f"{value / count:.3g} {name}" for name, value in self.notes.items() if value)
        aim = "" if self.aim is None else f"{self.aim:g} %{' OVER' if self.is_over else ''}"
        return f"| {self.name} | {' | '.join(cells)} | {share} | {aim} | {notes} |"


HEAD = "| change | extraction: calls / tokens | names | describe | reports | share of a full build | aim | touched, in the mean |\n" + "|---" * 8 + "|"


def total(calls: Iterable[Call]) -> int:
    """Tokens in all."""
    return sum(call.tokens for call in calls)


def show_collection(snapshot: Snapshot) -> None:
    """The sizes of the graph, and how its hubs reach."""
    counts = {name: len(getattr(snapshot, name)) for name in ("documents", "chunks", "entities", "relationships", "mentions")}
    print(", ".join(f"{count:,} {name}" for name, count in counts.items()), end="; ")
    print(f"communities by level {snapshot.communities_by_level()}, {len(snapshot.reports):,} reports")
    reach: dict[str, set[str]] = {}
    for mention in snapshot.mentions:
        reach.setdefault(mention.owner_id, set()).add(mention.document_id)
    documents = {entity.id: len(reach[entity.id]) for entity in snapshot.entities}
    names = {entity.id: entity for entity in snapshot.entities}
    top = sorted(documents, key=lambda id_: (-documents[id_], id_))
    hubs = sum(1 for count in documents.values() if count * 3 >= len(snapshot.documents))
    shown = ", ".join(f"{documents[id_]} documents and {names[id_].mentions:,} mentions" for id_ in (top[0], top[min(len(top) - 1, 11)]))
    print(f"hubs: {hubs} entities in a third of the documents or more; the first and the twelfth are in {shown}", flush=True)


def show_updates(folder: Path, options: argparse.Namespace, name: str) -> int:
    """Every scenario over the collection in `folder/input`; how many figures are over."""
    base = Project(folder, options.models)
    made, calls = base.index()
    full = {EAGER: total(calls)}
    print(f"\n{name}: ", end="")
    show_collection(made.built.snapshot)
    print(HEAD)
    print(Row("full build, eager", full[EAGER], runs=[calls]))
    over = 0
    with base.copy(ALL) as every:
        more = every.index()[1]
        full[ALL] = full[TOLERANT] = full[EAGER] + total(more)
        print(Row("full build, all levels", full[ALL], runs=[[*calls, *more]]), flush=True)
        for scenario in SCENARIOS:
            if options.only in scenario.name:
                row = Row(scenario.name, full[scenario.rules], scenario.aim)
                for turn in range(options.turns if scenario.aim != 0 else 1):
                    with (base if scenario.rules == EAGER else every).copy(scenario.rules) as project:
                        _run(scenario, project, turn, row, options)
                print(row, flush=True)
                over += row.is_over + bool(row.notes["WRONG"])
    return over


def _run(scenario: Scenario, project: Project, turn: int, row: Row, options: argparse.Namespace) -> None:
    before = project.snapshot
    assert before is not None
    scenario.change(project.files, project.folder / "input", turn)
    made, calls = project.index()
    after = made.built.snapshot
    touched = Touched.between(before, after)
    wrong = touched.outside(calls, after)
    row.runs.append(calls)
    row.notes.update({
        "chunks": len(touched.texts), "entities and relationships": len(touched.subjects), "communities": len(touched.changed),
        "and above": len(touched.communities), "stale": sum(report.stale for report in after.reports), "anchors renewed": bool(made.built.renewed),
        "WRONG": len(wrong),
    })  # fmt: skip
    row.notes.update(f"written for {why}" for _, _, why in causes(calls, before, after))
    if wrong:
        print(f"{scenario.name}: {Counter(wrong).most_common()}")
    if options.detail:
        for call in (call for call in calls if call.stage != "reports"):
            print(f"  {call.tokens:7,} {call.stage} {call.request.affinity if call.stage == 'describe' else ''}")
        for call, level, why in causes(calls, before, after):
            print(f"  {call.tokens:7,} report of level {level}: {why}")


# --- a paragraph at the start of a long document


def show_inserted(options: argparse.Namespace) -> int:
    """Chunks read again; how many figures are over."""
    over = 0
    print("\n| a paragraph at the start of a document | chunks | read again | aim |\n|---|---|---|---|")
    for method, aim in (("anchored", 3), ("window", None)):
        with tempfile.TemporaryDirectory() as name:
            project = Project(Path(name), options.models, (f"chunks.method={method}",))
            write_collection(Path(name) / "input", 100, per_document=100)
            made, _ = project.index()
            (path,) = project.files
            text = path.read_text(encoding="utf-8")
            path.write_text(f"{said_about(text, 'inserted', 5)}\n\n{text}", encoding="utf-8")
            before = made.built.snapshot
            made, calls = project.index()
        again = sum(call.stage == "extraction" for call in calls)
        after = made.built.snapshot
        wrong = Touched.between(before, after).outside(calls, after)
        late = (aim is not None and again > aim) or bool(wrong)
        over += late
        print(f"| {method} | {len(before.chunks)} | {again}{'  OVER' if late else ''} | {'' if aim is None else aim} |", flush=True)
    return over


# --- CPU


def show_cpu(folder: Path, options: argparse.Namespace) -> int:
    """CPU seconds of a whole process that finds nothing to do; 1 where it is over."""
    command = [sys.executable, __file__, "--child", str(folder), "--models", str(options.models)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # once to warm the files
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"\nno change: {seconds:.1f} s CPU of a whole process, its start included (aim 5){'  OVER' if seconds > 5 else ''}", flush=True)
    return int(seconds > 5)


def child(folder: Path, models: Path) -> None:
    """What `graphrag-local index FOLDER` does, with the author in the place of a model."""
    from graphrag_local.cli.main import app

    indexing.open_model_side = side_of(ScriptedEngine(author), models)  # type: ignore[assignment]
    app(["index", str(folder), "--set", "vectors.kind=none", "--json"])


def main() -> int:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=2000)
    parser.add_argument("--podcasts", type=Path, help="a folder of text files, indexed where they are copied to for the run")
    parser.add_argument("--parts", default="updates,inserted,cpu")
    parser.add_argument("--models", type=Path, default=models_folder())
    parser.add_argument("--turns", type=int, default=3, help="runs of each change, in other places of the collection")
    parser.add_argument("--only", default="", help="changes whose name holds this")
    parser.add_argument("--detail", action="store_true", help="every call of an update, with the reason for its report")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.models)
        return 0
    over = 0
    parts = options.parts.split(",")
    if {"updates", "cpu"} & set(parts):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "made-up"
            write_collection(folder / "input", options.chunks)
            print(f"made up: {CHUNKS_PER_DOCUMENT} chunks a document, {synthetic.DOCUMENTS_PER_TOPIC} documents a topic of {synthetic.TOPIC_NAMES} names,", end=" ")
            print(f"{synthetic.HUBS} hubs; of a hundred names {synthetic.SHARES} are the topic's, hubs, a neighbouring topic's, the document's own")
            if "updates" in parts:
                over += show_updates(folder, options, "made up")
            else:
                Project(folder, options.models).index()
            if "cpu" in parts:
                over += show_cpu(folder, options)
    if "updates" in parts and options.podcasts:
        with tempfile.TemporaryDirectory() as name:
            shutil.copytree(options.podcasts, Path(name) / "podcasts" / "input")
            over += show_updates(Path(name) / "podcasts", options, options.podcasts.name)
    if "inserted" in parts:
        over += show_inserted(options)
    return min(over, 1)


if __name__ == "__main__":
    sys.exit(main())
