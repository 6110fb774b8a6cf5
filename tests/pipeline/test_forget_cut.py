"""A `forget` that is cut short anywhere ends, by the next `index` or by itself said again, as one that nobody disturbed: same index, nothing left, a receipt."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from graphrag_local import erasing, indexing
from graphrag_local.erasing import Receipt, rows_left
from graphrag_local.forgetting import run_bring_back
from graphrag_local.ids import document_id
from graphrag_local.store import derived
from graphrag_local.store import publish as publishing
from graphrag_local.store.forgotten import unfinished
from graphrag_local.store.generations import current_id
from graphrag_local.store.reading import StoredIndex
from graphrag_local.store.scan import scan
from graphrag_local.verify.index import damages
from tests.pipeline.changing import EXACT, FIXED, Hashes, Interrupting, Killed, Mortal, World
from tests.pipeline.running import Quiet, forget

PATH = "sealed.txt"
# Said by nobody else: three people of its own, tied to each other and into three houses, so that they sit in circles of the anchor.
TIES = [
    "Zoe_Quell knows Yara_Quell (9).",
    "Yara_Quell knows Xeno_Quell (8).",
    "Zoe_Quell knows Ada_Krol (7).",
    "Yara_Quell knows Ben_Vesa (6).",
    "Ada_Krol knows Zoe_Quell (5).",
]
EARLIER = [*TIES, "Wanda_Quell knows Cleo_Krol (9).", "Wanda_Quell knows Zoe_Quell (4)."]
MARKS = ("Quell", "quell", "Zoe_", "zoe_", "Wanda_")
FUNCTIONS = {
    "listing": (erasing, "remember"),
    "publishing": (indexing, "publish_built"),
    "pointing": (publishing, "point_to"),
    "collecting": (indexing, "collect"),
    "sweeping": (indexing, "sweep"),
    "erasing": (erasing, "_snapshot"),
    "removing traces": (erasing, "remove_traces"),
    "searching": (erasing, "scan"),
    "removing generations": (erasing, "discard"),
    "collecting again": (erasing, "collect"),
    "writing the receipt": (erasing, "keep"),
    "ending": (erasing, "finish"),
}
STAGES = ("documents", "reports")
THEN = ("index", "forget")
FEW = ("documents", "searching", "collecting again")
CUTS = [("there", phase, THEN[number % 2]) for number, phase in enumerate([*STAGES, *FUNCTIONS])]
CUTS += [(history, phase, then) for history, then in (("one generation kept", "index"), ("edited before", "index"), ("gone before", "forget")) for phase in FEW]


def begun(folder: Path, history: str) -> World:
    """A collection with the sealed document in it: there, edited before, gone before, or with one generation kept."""
    world = World.begun(folder, *EXACT, *FIXED, *(["keep_generations=1"] if "one generation" in history else []), documents=9, seed=5)
    world.write(PATH, EARLIER if history == "edited before" else TIES)
    world.index(repartition=True)  # so that the anchor knows it
    if history == "edited before":
        world.write(PATH, TIES)
        world.index()
    if history == "gone before":
        world.delete(PATH)
        world.index()
    return world


def forgotten(world: World, progress: Interrupting | None = None) -> Receipt:
    """A `forget` of the sealed document."""
    return forget(world.project, PATH, engine=Mortal(), embedder=Hashes(), progress=progress)


@contextmanager
def dying_in(phase: str) -> Iterator[None]:
    """Whoever comes to this phase within the context dies there."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        if phase in FUNCTIONS:
            patch.setattr(*FUNCTIONS[phase], die)
        yield


def cut(world: World, phase: str) -> None:
    """A `forget` that dies in a phase; then whoever asked for it deletes the file as well, so that nothing of it can be learned from the input."""
    with dying_in(phase), pytest.raises(Killed):
        forgotten(world, Interrupting(phase) if phase in STAGES else None)
    if PATH in world.files:
        world.delete(PATH)


def known_to_the_anchor(world: World) -> set[str]:
    """Every id that the tables of the anchor hold."""
    anchor = world.published().anchor
    members = {member for row in anchor.communities for member in (*row.member_ids, row.id)}
    return members | {end for edge in anchor.edges for end in (edge.source_id, edge.target_id)}


@dataclass
class Case:
    """A world before the `forget`, and what it comes to where nothing disturbs it."""

    world: World
    own: set[str]
    calm: Receipt


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """The case of a history, made when it is first asked for."""

    @cache
    def case(history: str) -> Case:
        folder = tmp_path_factory.mktemp("world")
        world = begun(folder / "project", history)
        known = known_to_the_anchor(world)
        calm = world.twin(folder / "calm")
        receipt = forgotten(calm)
        left = {entity.id for entity in calm.published().snapshot.entities} | {row.id for row in calm.published().anchor.communities}
        return Case(world, known - left, receipt)

    return case


@pytest.mark.parametrize("history", ["there", "gone before"])
def test_the_world_is_one_in_which_it_matters(cases, history):
    """The anchor has circles within circles, the people of the sealed document are in it, and a `forget` changes it."""
    case = cases(history)
    anchor = case.world.published().anchor
    assert len([row for row in anchor.communities if len(row.member_ids) > 1]) >= 10
    assert max(row.last_level for row in anchor.communities) >= 2
    assert len(case.own) >= 3
    assert case.calm.clean
    assert case.calm.strings_sought >= 4
    assert case.calm.digest_after != case.calm.digest_before


@pytest.mark.parametrize(("history", "phase", "then"), CUTS)
def test_cut_short_and_finished(cases, tmp_path, history, phase, then):
    """Whatever finishes it: the digest is that of the undisturbed one, the anchor knows none of its people, no byte or row says their names, older generations
    are gone, and a receipt that has searched for its words is in the index; doing it again changes nothing."""
    case = cases(history)
    world = case.world.twin(tmp_path / "project")
    index = world.folder / "index"
    cut(world, phase)
    assert unfinished(index) is not None
    if then == "index":
        receipt = world.index().receipt
    else:
        receipt = forgotten(world)

    assert receipt is not None
    assert (receipt.clean, receipt.generations_kept, receipt.documents) == (True, (), (document_id(PATH),))
    assert receipt.strings_sought == case.calm.strings_sought
    assert (receipt.digest_before, receipt.digest_after) == (case.calm.digest_before, case.calm.digest_after)
    assert known_to_the_anchor(world).isdisjoint(case.own)
    assert scan(index, MARKS) == []
    assert rows_left(index, {document_id(PATH)}, ()) == (0, [])
    kept = [json.loads(path.read_text()) for path in sorted((index / "receipts").iterdir())]
    assert all(one["clean"] and one["strings_sought"] == receipt.strings_sought for one in kept)
    assert kept
    assert unfinished(index) is None
    assert damages(index) == []
    again = world.index()
    assert (again.published, again.digest, again.receipt) == (False, case.calm.digest_after, None)


def test_what_happens_meanwhile_is_kept_apart(cases, tmp_path):
    """An edit elsewhere between the cut and the next run ends where it ends after an undisturbed `forget`: the anchor lets go once, and not again."""
    case, digests = cases("gone before"), set()
    for name, phase in (("calm", ""), ("cut", "searching")):
        world = case.world.twin(tmp_path / name)
        if phase:
            cut(world, phase)
        else:
            forgotten(world)
        world.edit(3, sorted(world.files)[0])
        world.index()
        assert known_to_the_anchor(world).isdisjoint(case.own)
        digests.add(forgotten(world).digest_after)
    assert len(digests) == 1


def test_two_at_once(tmp_path):
    """A `forget` of another document takes along what an earlier one had left undone, and one that is taken back meanwhile is not finished."""
    world = begun(tmp_path / "project", "there")
    first = sorted(set(world.files) - {PATH})[0]
    cut(world, "searching")
    receipt = forget(world.project, first, engine=Mortal(), embedder=Hashes())
    assert set(receipt.documents) == {document_id(PATH), document_id(first)}
    assert receipt.clean
    assert scan(world.folder / "index", MARKS) == []

    second = sorted(set(world.files) - {PATH, first})[0]
    with dying_in("searching"), pytest.raises(Killed):
        forget(world.project, second, engine=Mortal(), embedder=Hashes())
    assert run_bring_back(world.project, [second]) == {second: True}
    assert world.index().receipt is None
    assert second in {document.path for document in world.published().snapshot.documents}


class Closing(Quiet):
    """Progress that closes what is being read once it is told that somebody waits for that."""

    def __init__(self, index: StoredIndex) -> None:
        self.index, self.told = index, 0

    def say(self, text: str) -> None:
        """Close it."""
        if "is to go and is being read" in text:
            self.told += 1
            self.index.close()


def test_who_lets_go_is_waited_for(cases, tmp_path):
    """A generation that is read while it is to go is removed by the same run as soon as its reader goes on."""
    case = cases("there")
    world = case.world.twin(tmp_path / "read")
    progress = Closing(StoredIndex.open(world.folder / "index"))
    receipt = forget(world.project, PATH, engine=Mortal(), embedder=Hashes(), progress=progress)
    assert (receipt.clean, receipt.generations_kept, receipt.generations_read, receipt.to_do) == (True, (), (), "")
    assert progress.told == 1
    assert unfinished(world.folder / "index") is None


def test_what_is_derived_and_damaged_is_no_obstacle(cases, tmp_path):
    """A damaged file of what is derived from tables, of which nothing is known, is removed before the search, and made anew by the next question."""
    case = cases("there")
    world = case.world.twin(tmp_path / "rotten")
    forgotten(world)
    folder = world.folder / "index" / "generations" / current_id(world.folder / "index") / derived.FOLDER
    files = sorted(folder.glob(f"*{derived.SUFFIX}"))
    for path in files[:2]:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    (folder / f".{files[2].name}.999999999").write_bytes(b"left by a process that was killed")
    receipt = forgotten(world)
    assert (receipt.clean, receipt.found) == (True, ())
    assert damages(world.folder / "index") == []
    assert sorted(folder.iterdir()) == files[2:]
