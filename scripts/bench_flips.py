"""Flips single bits in every kind of file of a small real index and counts what `status --verify` finds.

    python -m scripts.bench_flips [--flips 500] [--seed 7] [--index PROJECT]

The index is made by the whole program (generations, claims, reports on three levels, vectors, a ledger, a receipt, a trace, a `forget` that was begun),
or a copy of the one of PROJECT is taken.
Every flip is made alone, in place, under the file's old time. "changed" are those after which a record, reply or vector reads differently or not at
all when read past all checks; "found" those that the verification names. A checksum also finds flips that change nothing. What changed and was not found
makes the exit code 1, and so does anything raised. Logs and state of runs hold no content, and stamps (which spare hashing) cannot make a file count as
sound that is not: see tests/verify/flips.py.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from graphrag_local.project import open_project
from graphrag_local.verify.index import damages
from tests.verify.flips import FOUND, chosen, try_flips
from tests.verify.worlds import full_world


def main() -> int:
    """Make an index, flip, print the table; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=500)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--index", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.index:
            shutil.copytree(options.index, folder / "project")
            project = open_project(folder / "project")
        else:
            project = full_world(folder / "project")
        (folder / "scratch").mkdir()
        whole = damages(project.index)
        if whole:
            print("the index is damaged before any flip:", *whole, sep="\n  ")
            return 1
        began = time.monotonic()
        tallies = try_flips(project, chosen(project.index, options.flips, options.seed), folder / "scratch")
        seconds = time.monotonic() - began
        print(f"{'kind of file':20}{'flips':>7}{'found':>7}{'changed':>9}{'missed':>8}{'raised':>8}")
        bad = 0
        for kind, tally in sorted(tallies.items()):
            print(f"{kind:20}{tally.flips:7}{tally.found:7}{tally.changed:9}{len(tally.missed):8}{len(tally.raised):8}")
            bad += len(tally.raised) + len(tally.missed) * (kind in FOUND)
            for flip in tally.missed:
                print(f"  missed: {flip.path}, byte {flip.byte}, bit {flip.bit}")
            for flip, error in tally.raised:
                print(f"  raised: {flip.path}, byte {flip.byte}, bit {flip.bit}: {error}")
        print(f"{sum(tally.flips for tally in tallies.values())} flips, {seconds:.0f} s, seed {options.seed}")
        still = damages(project.index)
        print(*(["after all flips were taken back:", *still] if still else []), sep="\n  ")
        return int(bool(bad or still))


if __name__ == "__main__":
    sys.exit(main())
