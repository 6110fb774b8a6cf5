"""Whether the last question that read windows went through them forwards or backwards: the next one, of whatever process, goes the other way, since what
a model server still has of them is where the last one ended.

It is an empty file of this machine (`index/run/turn`), there or not there, so that nothing in it can be damaged.
"""

from pathlib import Path

_NAME = "run/turn"


def next_turn(index: Path) -> int | None:
    """0 or 1, the other one than last time; None where the index cannot be written."""
    marker = index / _NAME
    try:
        marker.unlink()
    except FileNotFoundError:
        try:
            marker.parent.mkdir(exist_ok=True)
            marker.touch()
        except OSError:
            return None
        return 1
    except OSError:
        return None
    return 0
