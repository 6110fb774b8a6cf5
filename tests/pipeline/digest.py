"""Prints the digest of a project's index, built anew with the scripted engine: `python -m tests.pipeline.digest FOLDER`."""

import sys
from pathlib import Path

from graphrag_local.project import open_project
from tests.pipeline.running import index

if __name__ == "__main__":
    sys.stdout.write(index(open_project(Path(sys.argv[1]), tuple(sys.argv[2:]))).digest)
