"""Brings a repository of the model hub into a folder. A program of its own: it is the only one that may use the network, the others are offline.

    python -P hub.py REPOSITORY REVISION FOLDER PATTERN...      prints the commit it brought
"""

import sys
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download


def bring(repository: str, revision: str, folder: Path, patterns: list[str]) -> str:
    """The commit of the files, which are then in the folder."""
    commit = str(HfApi().model_info(repository, revision=revision or None).sha)
    snapshot_download(repository, revision=commit, local_dir=folder, allow_patterns=patterns)
    return commit


if __name__ == "__main__":
    sys.stdout.write(bring(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:]) + "\n")
