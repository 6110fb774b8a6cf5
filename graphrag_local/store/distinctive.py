"""By which strings a forgotten document can be told from everything else that an index holds."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from graphrag_local.store.needles import Needles

T = TypeVar("T")
_DENSE: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # scripts without spaces between words
_DENSE_GAP = re.compile(rf"(?<=[{_DENSE}]) (?=[{_DENSE}])")
_RUN = re.compile(rf"[^\s{_DENSE}]{{1,40}}(?:\s+[^\s{_DENSE}]{{1,40}}){{5}}|[{_DENSE}](?:\s?[{_DENSE}]){{11}}")
_TOKEN = re.compile(r"[^\W_](?:[\w./:@'’-]*[^\W_])?")
_NAME = re.compile(r"(?<=[\w,;] )[^\W\d_]{5,}")  # not at the beginning of a sentence, where every word has a capital
_LIKE_OURS = re.compile(r"[0-9a-f.:/-]{1,11}")  # ids, times and probabilities have such pieces by chance
_PIECE: Final = 1 << 20  # characters sought through at a time


def distinctive(texts_gone: Sequence[str], texts_left: Iterable[str], most: int = 200) -> list[str]:
    """Runs of six words (twelve characters in scripts without spaces), numbers and names, each in a text that is gone and in none that is left.

    Line breaks make no difference between the two; a run comes as it stands, and on one line where that differs. The strings are spread evenly over
    each text, `most` in all or four of each text where there are many. Deterministic. None is so short that it is found by chance.
    """
    candidates = [_candidates(text) for text in texts_gone]
    sought = {string for runs, tokens, names in candidates for string in [*map(_flat, runs), *tokens, *names, *map(str.lower, names)]}
    shared = _present(sought, texts_left)
    room = max(4, most // max(1, len(texts_gone)))
    chosen: dict[str, None] = {}
    for runs, tokens, names in candidates:
        few = _even([token for token in tokens if token not in shared], room // 4)
        few += _even([name for name in names if shared.isdisjoint((name, name.lower()))], room // 4)
        own = [run for run in runs if _flat(run) not in shared]
        both = [form for run in _even(own, room - len(few)) for form in dict.fromkeys((run, _flat(run)))]
        if len(both) > room - len(few):
            both = [form for run in _even(own, (room - len(few)) // 2) for form in dict.fromkeys((run, _flat(run)))]
        chosen |= dict.fromkeys([*both, *few])
    return list(chosen)


def _candidates(text: str) -> tuple[list[str], list[str], list[str]]:
    """Runs, numbers and names of a text in their order, each once; a text too short for a run is one."""
    runs = [run for run in dict.fromkeys(_RUN.findall(text)) if len(run) >= 24 or sum(map(str.isalpha, run)) >= 8]
    if not runs and len(text.strip()) >= 12:
        runs = [text.strip()]
    tokens = [token for token in dict.fromkeys(_TOKEN.findall(text)) if len(token) >= 6 and any(map(str.isdigit, token))]
    names = [name for name in dict.fromkeys(_NAME.findall(text)) if name[0].isupper() and name[1:].islower() and name.lower() not in text]
    return runs, [token for token in tokens if not _LIKE_OURS.fullmatch(token)], names


def _flat(text: str) -> str:
    flat = " ".join(text.split())
    return flat if flat.isascii() else _DENSE_GAP.sub("", flat)


def _present(strings: set[str], texts: Iterable[str]) -> set[str]:
    """Those of the strings that are in one of the texts on one line."""
    needles = Needles({string.encode("utf-8", "surrogatepass"): string for string in strings})
    found: set[str] = set()
    waiting, size = [""], 0
    for text in texts:
        waiting.append(_flat(text))
        size += len(text)
        if size >= _PIECE:
            found |= needles.first("\n".join(waiting).encode("utf-8", "surrogatepass")).keys()
            waiting, size = [""], 0
    return found | needles.first("\n".join(waiting).encode("utf-8", "surrogatepass")).keys()


def _even(items: Sequence[T], most: int) -> list[T]:
    """At most so many of the items, evenly spread."""
    return [items[n * len(items) // most] for n in range(most)] if len(items) > most else list(items)
