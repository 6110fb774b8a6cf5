"""The end of a `forget`: what is left of its documents goes, and all that stays is searched for their words. The receipt says so.

The `forget` itself does it, or the next `index` after one that was cut short: what there is to do is noted in the index (`store.forgotten.Unfinished`).
The generations that hold the documents go last: from them alone it may be known which words to search for.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphrag_local.documents.stage import read_collection
from graphrag_local.errors import GraphragError, IndexCorrupt, IndexMismatch, UsageError
from graphrag_local.project import ProjectFolder
from graphrag_local.records import Chunk, Document, Entity, Mention, Relationship
from graphrag_local.store import derived
from graphrag_local.store.distinctive import distinctive
from graphrag_local.store.files import storage
from graphrag_local.store.forgotten import Forgotten, Unfinished, begin, finish, read_forgotten, remember, unfinished
from graphrag_local.store.generations import collect, discard, folder_of, generation_ids, open_generation
from graphrag_local.store.lance import Tables
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.listing import readers
from graphrag_local.store.lock import BuildLock
from graphrag_local.store.manifest import read_manifest
from graphrag_local.store.reading import snapshot_of
from graphrag_local.store.receipts import keep, sealed
from graphrag_local.store.scan import Found, scan, scan_around
from graphrag_local.store.snapshot import Snapshot
from graphrag_local.store.tables import TABLES
from graphrag_local.store.traces import remove_traces

LOOK_S = 0.2
WAIT_S = 15.0  # for who reads a generation that is to go: many times what a running service takes to go on to the new one, and longer than most questions
Say = Callable[[str], None]
RECORDS = tuple(name for name in TABLES if name not in {"failures", "anchor_communities", "anchor_edges"})
NAMING = {"paths", "still_in_input", "found", "elsewhere", "not_searched"}  # of a receipt, what tells names of files


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a `forget` did. `removed` and `rewritten` are ids by table; `found` is where words of the documents still are, `elsewhere` outside the index,
    where `not_searched` was left aside. `rows_left` and `links_left` count what still names them in tables and in the ledger; `failures` is how much of
    the new generation could not be made. `waiting` are, where no model was asked, the ids by table of what waits for one: descriptions that are joined
    and not summarised, records without a vector, communities whose report was dropped. `generations_kept` hold the documents still; of those
    `generations_read` were to go, but somebody read them for longer than was waited, and `to_do` says what is left to be done about that.
    """

    documents: tuple[str, ...]
    paths: tuple[str, ...]
    at: str
    digest_before: str
    digest_after: str
    generation: str
    removed: dict[str, tuple[str, ...]]
    rewritten: dict[str, tuple[str, ...]]
    replies_removed: int
    traces_removed: int
    generations_removed: tuple[str, ...]
    generations_kept: tuple[str, ...]
    generations_read: tuple[str, ...]
    to_do: str
    rows_left: int
    links_left: int
    strings_sought: int
    found: tuple[str, ...]
    elsewhere: tuple[str, ...]
    not_searched: tuple[str, ...]
    still_in_input: tuple[str, ...]
    failures: int
    waiting: dict[str, tuple[str, ...]]

    @property
    def clean(self) -> bool:
        """Whether nothing of the documents is left in the index, but for generations that were to stay."""
        return not (self.found or self.rows_left or self.links_left or self.generations_read)

    def to_json(self, *, names: bool = True) -> dict[str, Any]:
        """The receipt under its checksum (see `store.receipts`); without names it can stay in the index."""
        content = dataclasses.asdict(self) | {"clean": self.clean}
        return sealed(content if names else {key: value for key, value in content.items() if key not in NAMING})


@dataclass(slots=True)
class Target:
    """What is to be forgotten: ids with paths, the texts that are known of it with their hashes, the generations that hold it, and its files that are there."""

    paths: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    hashes: dict[str, set[str]] = field(default_factory=dict)
    held_by: set[str] = field(default_factory=set)
    in_input: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, project: ProjectFolder, takes: Callable[[Document], bool], documents: Iterable[Document]) -> "Target":
        """Every document that is taken, in any generation and among those of the input folder."""
        target = cls()
        for id_ in generation_ids(project.index):
            try:
                with open_generation(project.index, id_) as generation:
                    here = [document for document in Tables.of(generation).records(Document) if takes(document)]
            except (IndexCorrupt, IndexMismatch):
                continue  # nobody can read it; `status --verify` names it, and the scan looks at its bytes
            if here:
                target.held_by.add(id_)
            for document in here:
                target._saw(document)
        for document in documents:
            if takes(document):
                target._saw(document)
                target.in_input.add(document.path)
        return target

    def _saw(self, document: Document) -> None:
        """Take in one version of a document."""
        self.paths[document.id] = document.path
        self.texts.append(document.text)
        self.hashes.setdefault(document.id, set()).add(document.content_hash)


def in_input(project: ProjectFolder) -> tuple[list[Document], tuple[str, ...]]:
    """The documents of the input folder, and its files; none where it cannot be read."""
    try:
        documents, _, files = read_collection(project.input_root, project.settings.documents)
    except GraphragError:
        return [], ()
    return documents, files


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The generation that was made without the documents: `used` are the keys of the replies that it stands on, `swept` how many others went with it."""

    snapshot: Snapshot
    generation: str
    digest: str
    used: frozenset[str]
    swept: int
    without_model: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A `forget` under way: what is noted of it, and what was known of its documents before the new generation was made."""

    noted: Unfinished
    target: Target

    @classmethod
    def left_over(cls, project: ProjectFolder, lock: BuildLock) -> "Work | None":
        """That of a `forget` that was cut short, if need be before its documents were on the list; None where there is none."""
        noted = unfinished(project.index)
        if noted is None:
            return None
        work = cls(noted=noted, target=Target.of(project, lambda document: document.id in noted.documents, in_input(project)[0]))
        work.leave_out(lock)
        return work

    def leave_out(self, lock: BuildLock) -> None:
        """Put the documents on the list of what is left out for good."""
        hashes = self.target.hashes
        remember(lock, [Forgotten(document=id_, texts=tuple(sorted(hashes.get(id_, ()))), at=self.noted.at) for id_ in self.noted.documents])

    async def finish(self, project: ProjectFolder, lock: BuildLock, made: Made, say: Say) -> Receipt:
        """Do what is left to do once the new generation is published; a generation that somebody reads is waited for, named, and left to the next run."""
        index, noted, target = project.index, self.noted, self.target
        documents = frozenset(noted.documents)
        before = _snapshot(index, noted.before)
        holders = [id_ for id_ in generation_ids(index) if id_ in target.held_by and id_ != made.generation]
        going = () if noted.keep_generations else holders
        with Ledger.open(index / "ledger.sqlite") as ledger:
            # The run has let go of them already, but not beside an index that could not be read, of which it lets go of nothing.
            ledger.drop_vectors({vector.text_hash for vector in made.snapshot.vectors}, reclaim=False)
            deleted = ledger.sweep(documents, made.used, reclaim=False)
            if going and noted.digest:  # and of what else is in generations that go, and in no other
                deleted += sweep(index, made.generation, ledger, made.snapshot, made.used, going)[0]
            ledger.reclaim()
            links = ledger.documents() & documents
        staying = [id_ for id_ in generation_ids(index) if id_ not in {*going, made.generation}]
        sought = distinctive(target.texts, [*(one.text for one in made.snapshot.documents), *_others(index, staying, documents)])
        traces = remove_traces(index, documents, sought, set(generation_ids(index)) - target.held_by)
        _drop_unsound(index, holders)
        found, elsewhere, not_searched = _found(project, sought, holders)
        proven = max(len(sought), noted.sought or 0)
        if not noted.keep_generations:
            if not found:
                begin(lock, dataclasses.replace(noted, sought=proven))
            await _discard(lock, holders, say)
        collect(lock, project.settings.keep_generations)
        here = generation_ids(index)
        kept = tuple(id_ for id_ in holders if id_ in here)
        read = () if noted.keep_generations else kept
        rows, unread = rows_left(index, documents, kept)
        removed, rewritten = _compared(before, made.snapshot)
        receipt = Receipt(
            documents=noted.documents,
            paths=tuple(sorted(target.paths.values())),
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            digest_before=noted.digest,
            digest_after=made.digest,
            generation=made.generation,
            removed=removed,
            rewritten=rewritten,
            replies_removed=made.swept + deleted,
            traces_removed=traces,
            generations_removed=tuple(sorted(target.held_by.difference(here))),
            generations_kept=kept,
            generations_read=read,
            to_do=_to_do(index, read),
            rows_left=rows,
            links_left=len(links),
            strings_sought=proven,
            found=(*found, *unread),
            elsewhere=elsewhere,
            not_searched=not_searched,
            still_in_input=tuple(sorted(target.in_input)),
            failures=len(made.snapshot.failures),
            waiting=_waiting(before, made.snapshot) if made.without_model else {},
        )
        keep(index, f"{receipt.at.replace(':', '')}-{receipt.documents[0][:8]}", receipt.to_json(names=False))
        if noted.keep_generations or not kept:
            finish(lock)
        return receipt


def _snapshot(index: Path, id_: str) -> Snapshot | None:
    """The records of a generation, None where it is gone or cannot be read."""
    try:
        with open_generation(index, id_) as generation:
            return snapshot_of(generation)
    except (IndexCorrupt, IndexMismatch, UsageError):
        return None


async def _discard(lock: BuildLock, ids: Sequence[str], say: Say) -> None:
    """Remove generations; those that are being read are waited for: a running service goes on to the new one by itself."""
    until = time.monotonic() + WAIT_S
    held = discard(lock, ids).held
    if held:
        say(f"Generation {', '.join(held)} is to go and is being read by {_who(lock.index, held)}: waiting until it is let go of, {WAIT_S:g} s at most.")
    while held and time.monotonic() < until:
        await asyncio.sleep(LOOK_S)
        held = discard(lock, held).held


def _who(index: Path, ids: Iterable[str]) -> str:
    """Who reads these generations, as far as the system tells."""
    processes = sorted({process for id_ in ids for process in readers(folder_of(index, id_))})
    return f"process {', '.join(map(str, processes))}" if processes else "another process"


def _to_do(index: Path, read: Sequence[str]) -> str:
    """What is to be done about generations that are still read, "" where there are none."""
    if not read:
        return ""
    reader = _who(index, read)
    return (
        f"{reader[0].upper()}{reader[1:]} still reads generation {', '.join(read)}, which holds the documents: "
        "end it, or let it finish, and run the same command again (the next `index` removes them, too)."
    )


def _drop_unsound(index: Path, aside: Collection[str]) -> None:
    """Remove what is derived from tables and damaged or half written, but in generations that are `aside`: nothing is known of it, and the next question
    makes it anew."""
    for id_ in (id_ for id_ in generation_ids(index) if id_ not in aside):
        folder = folder_of(index, id_)
        with contextlib.suppress(IndexCorrupt, IndexMismatch), storage(folder):
            tables = read_manifest(folder).tables
            derived.clear(folder)
            for path in sorted((folder / derived.FOLDER).glob(f"*{derived.SUFFIX}")):
                if derived.problem_of(path, tables, {}):
                    path.unlink(missing_ok=True)


def rows_left(index: Path, documents: Collection[str], kept: Sequence[str]) -> tuple[int, list[str]]:
    """How many rows of all generations but `kept` belong to these documents (ids), and the generations that nobody can read."""
    count, unread = 0, []
    for id_ in (id_ for id_ in generation_ids(index) if id_ not in kept):
        try:
            with open_generation(index, id_) as generation:
                tables = Tables.of(generation)
                for record, field_ in ((Document, "id"), (Chunk, "document_id"), (Mention, "document_id")):
                    count += sum(document in documents for document in tables.columns(record, [field_])[field_])
        except (IndexCorrupt, IndexMismatch):
            unread.append(f"generations/{id_} (cannot be read, so nothing is known of it)")
    return count, unread


def sweep(index: Path, current: str, ledger: Ledger, snapshot: Snapshot, used: frozenset[str], going: Collection[str] = ()) -> tuple[int, tuple[str, ...]]:
    """Let go of the replies of `orphans_of`: how many, and which generations still hold such documents, but for those that are `going`.

    What is to go shows in the ledger itself, so a run that was killed before this is made up for by the next. The pages are `Ledger.reclaim`'s.
    """
    orphans, kept_in = orphans_of(index, current, ledger, snapshot.documents, going)
    if not orphans:
        return 0, kept_in
    ledger.drop_vectors({vector.text_hash for vector in snapshot.vectors}, reclaim=False)
    return ledger.sweep(orphans, used, reclaim=False), kept_in


def orphans_of(index: Path, current: str, ledger: Ledger, documents: Iterable[Document], going: Collection[str] = ()) -> tuple[set[str], tuple[str, ...]]:
    """Documents (ids) that caused replies and that no generation holds any more, and the generations besides the `current` that still hold such of them;
    those that are `going` count for none.

    Of forgotten documents nothing stays, whatever generation holds them.
    """
    orphans = ledger.documents() - {document.id for document in documents}
    forgotten = {entry.document for entry in read_forgotten(index)} if orphans else set()
    kept_in = []
    for id_ in generation_ids(index) if orphans - forgotten else ():
        held = (orphans - forgotten) & _documents_in(index, id_) if id_ not in (current, *going) else set()
        if held:
            kept_in.append(id_)
            orphans = orphans - held
    return orphans, tuple(kept_in)


def _documents_in(index: Path, id_: str) -> set[str]:
    """Ids of the documents that a generation holds; none where it cannot be read: it answers nothing, and it can be removed."""
    try:
        with open_generation(index, id_) as generation:
            return {document.id for document in Tables.of(generation).records(Document)}
    except (IndexCorrupt, IndexMismatch):
        return set()


def _others(index: Path, ids: Iterable[str], documents: Collection[str]) -> list[str]:
    """The texts of other documents in these generations: what they say too is no trace."""
    texts: list[str] = []
    for id_ in ids:
        with contextlib.suppress(IndexCorrupt, IndexMismatch), open_generation(index, id_) as generation:
            texts += [one.text for one in Tables.of(generation).records(Document) if one.id not in documents]
    return texts


def _found(project: ProjectFolder, sought: Iterable[str], aside: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Where those strings still are: in the index (generations that are to go or to stay `aside`), and in other files of the project but the input.

    Last what of the project was not searched.
    """
    sought = list(sought)
    meant = tuple(f"generations/{id_}/" for id_ in aside)
    inside = {_place(one) for one in scan(project.index, sought) if not meant or not one.file.startswith(meant)}
    outside, skipped = scan_around(project.folder, sought, but=(project.index, project.input_root)) if sought else ([], [])
    return tuple(sorted(inside)), tuple(sorted({_place(one) for one in outside})), tuple(skipped)


def _place(found: Found) -> str:
    """Where a string is, without the string: a receipt that repeats it would be a trace."""
    return f"{found.file} ({found.place})" if found.place else found.file


def _compared(before: Snapshot | None, after: Snapshot) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Ids of the records that are no more, and of those that have other content now, by table."""
    removed, rewritten = {}, {}
    for name in RECORDS if before is not None else ():
        old = {row.id: row for row in getattr(before, name)}
        new = {row.id: row for row in getattr(after, name)}
        removed[name] = tuple(sorted(old.keys() - new.keys()))
        rewritten[name] = tuple(sorted(id_ for id_, row in new.items() if id_ in old and _told(old[id_]) != _told(row)))
    return removed, rewritten


def _waiting(before: Snapshot | None, after: Snapshot) -> dict[str, tuple[str, ...]]:
    """What waits for a model, ids by what it is."""
    by_stage = {"graph": "descriptions", "vectors": "vectors", "extraction": "names"}
    found: dict[str, set[str]] = {name: set() for name in by_stage.values()}
    for row in after.failures:
        if row.retryable and row.stage in by_stage:
            found[by_stage[row.stage]].add(row.input_id)
    told = {report.community_id for report in after.reports if not report.stale}
    had = {report.community_id for report in before.reports} if before else set()
    found["reports"] = {row.id for row in after.communities if row.id in had - told}
    return {name: tuple(sorted(ids)) for name, ids in found.items()}


def _told(row: Any) -> Any:
    """A record without its measures in the graph, which change a little everywhere when anything goes."""
    if isinstance(row, Entity):
        return dataclasses.replace(row, degree=0, pagerank=0.0)
    return dataclasses.replace(row, combined_degree=0) if isinstance(row, Relationship) else row
