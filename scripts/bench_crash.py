"""Kills and power cuts of real builds in numbers that are too large for every test run; the checks are those of tests/crash.

    python scripts/bench_crash.py kills -n 100 [--seed 1]
    python scripts/bench_crash.py cuts -n 100 [--seed 1]
    python scripts/bench_crash.py kills -n 30 --forgets
    python scripts/bench_crash.py cuts -n 30 --forgets

Kills and cuts hit builds of a small collection that changes each time, with a scripted model that takes 20 ms a reply. Every one is followed by checks (the index
whole and one that was published, nothing acknowledged lost) and by a build to the end, which must come to the digest, the ledger and the files of
a twin that nobody disturbed. With `--forgets` it is a `forget` of one of the documents that is hit; it is brought to its end by itself or by `index`, in
turns, and then nothing of the document may be in any file or table, and the receipt must say so. `cuts` needs /dev/fuse, libfuse and the right to
mount. The first check that fails ends the run with exit code 1.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.crash.builder import COLLECTING, DISCARDING, ENDING, POINTED, POINTING, PUBLISHING, SEARCHING, STARTING, SWEEPING
from tests.crash.cuts import OVER, cuts
from tests.crash.kills import Pair, kills
from tests.crash.power import why_not

ORDER = (STARTING, "documents", "chunks", "extraction", "graph", "communities", "reports", "vectors", PUBLISHING, POINTING, POINTED, COLLECTING, SWEEPING)
ORDER += (SEARCHING, DISCARDING, ENDING, OVER)
CLEAN = "every forget that was hit ended with a clean receipt, and nothing of its document was found in any file or table"


def by_phase(phases: Counter[str]) -> str:
    """How many hit which phase, in the order of a build."""
    return ", ".join(f"{phase} {phases[phase]}" for phase in sorted(phases, key=ORDER.index))


def run_kills(folder: Path, count: int, seed: int, forgets: bool) -> None:
    """Kill, check, print."""
    phases, twice, in_flight, rounds, begun = Counter[str](), 0, 0, 0, time.monotonic()
    with Pair.open(folder, seed) as pair:
        for one in kills(pair, count, seed, forgets=forgets):
            phases.update(one.phases)
            rounds, twice, in_flight = rounds + 1, twice + one.twice, in_flight + one.in_flight
            print(f"\r{phases.total()} kills", end="", file=sys.stderr, flush=True)
        asked = len(pair.victim.lines("asked"))
    print(f"\nkills: {phases.total()} in {rounds} builds, {time.monotonic() - begun:.0f} s; by phase: {by_phase(phases)}")
    print(f"requests: {asked}; in flight at a kill: {in_flight}; paid for twice: {twice}")
    print("after every kill: index whole, old or new, every acknowledged reply there; every end like the undisturbed twin's (digest, ledger, files)")


def run_cuts(folder: Path, count: int, seed: int, forgets: bool) -> None:
    """Cut, check, print."""
    done, begun = [], time.monotonic()
    for one in cuts(folder, count, seed, forgets=forgets):
        done.append(one)
        print(f"\r{len(done)} cuts", end="", file=sys.stderr, flush=True)
    first, new = sum(one.first for one in done), sum(one.is_new for one in done)
    print(f"\ncuts: {len(done)} ({first} in a first build), {time.monotonic() - begun:.0f} s; by phase: {by_phase(Counter(one.phase for one in done))}")
    acknowledged, twice = sum(one.acknowledged for one in done), sum(one.twice for one in done)
    print(f"replies and vectors acknowledged in the builds that were cut: {acknowledged}, lost: 0; replies paid for twice: {twice}")
    print(f"after every cut: index whole, {len(done) - new} times the old generation (or none), {new} times the new one; every end like the undisturbed twin's")


def main() -> int:
    """Parse, run, say what did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("kills", "cuts"))
    parser.add_argument("-n", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--forgets", action="store_true", help="hit forgets in place of builds")
    arguments = parser.parse_args()
    if arguments.what == "cuts" and why_not():
        print(f"No power can be cut here: {why_not()}.", file=sys.stderr)
        return 1
    with TemporaryDirectory(prefix="crash-") as folder:
        (run_kills if arguments.what == "kills" else run_cuts)(Path(folder), arguments.n, arguments.seed, arguments.forgets)
    if arguments.forgets:
        print(CLEAN)
    return 0


if __name__ == "__main__":
    sys.exit(main())
