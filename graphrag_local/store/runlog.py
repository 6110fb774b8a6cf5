"""The run log: index/runs/<time>.jsonl, one JSON object a line. Ids, counts and seconds; never document text, names or paths."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphrag_local.errors import StorageError

KEEP = 50


class RunLog:
    """Appends events of one run, each with the seconds since its beginning, flushed line by line."""

    def __init__(self, index: Path) -> None:
        folder = index / "runs"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for old in sorted(folder.glob("*.jsonl"))[: -KEEP + 1]:
                old.unlink(missing_ok=True)
            self.path = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}.jsonl"
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise StorageError(f"The run log in {folder} cannot be written: {error.strerror}.", hint="Check the folder's permissions and space.") from error
        self._began = time.monotonic()

    def write(self, event: str, **values: Any) -> None:
        """One line; a full disk does not stop the run on account of its log."""
        line = json.dumps({"event": event, "s": round(time.monotonic() - self._began, 3), **values}, ensure_ascii=False)
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except OSError:
            return

    def close(self) -> None:
        """Close the file."""
        try:
            self._file.close()
        except OSError:
            return


def last_run(index: Path) -> dict[str, Any] | None:
    """What the newest run log says: whether the run ended, its last stage and the units done there; None without any run."""
    logs = sorted((index / "runs").glob("*.jsonl")) if (index / "runs").is_dir() else []
    if not logs:
        return None
    state: dict[str, Any] = {"ended": False, "stage": "", "done": 0, "total": 0, "started": logs[-1].stem}
    for line in logs[-1].read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("event") == "end":
            state |= {"ended": True, "last_build": event.get("last_build")}
        if "stage" in event:
            state |= {"stage": event["stage"], "done": event.get("done", 0), "total": event.get("total", 0)}
    return state
