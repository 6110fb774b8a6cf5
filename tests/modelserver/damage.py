"""Ways to spoil a good reply, described in words: a way is known by the words that must all be in the description."""

import json
import re
from collections.abc import Callable

from tests.modelserver.script import ScriptError

Way = Callable[[str, str], str]
STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')


def damaged(text: str, words: str) -> str:
    """A reply spoiled as described; ScriptError for a description that no way knows."""
    folded = words.casefold()
    for known, way in WAYS.items():
        if all(word in folded for word in known):
            return way(text, words)
    raise ScriptError(f"unknown damage: {words!r}")


def check(words: str) -> None:
    """Raise ScriptError now rather than in the middle of a run."""
    damaged('{"a":[1],"b":2}', words)


def _masked(text: str) -> str:
    """The text with the inside of its strings blanked, so that brackets and digits in them do not count."""
    return STRINGS.sub(lambda match: '"' + "_" * (len(match[0]) - 2) + '"', text)


def _comma_before_last_brace(text: str, words: str) -> str:
    place = _masked(text).rfind("}")
    return text if place < 0 else text[:place] + "," + text[place:]


def _bare_word_in_id_list(text: str, words: str) -> str:
    """The first list whose items are plain (no objects) gets the word as its last element; a list of objects is no list of ids."""
    named = re.search(r"bare word (\S+)", words)
    word = named[1] if named else "+more"
    masked = _masked(text)
    match = re.search(r"\[[^\[\]{}]*\]", masked)
    if match is None:
        return text
    end = match.end() - 1
    return text[:end] + ("," if masked[match.start() + 1 : end].strip() else "") + word + text[end:]


def _number_as_string(text: str, words: str) -> str:
    """The first number that is the value of a key gets the quoted string in the description instead."""
    quoted = STRINGS.search(words)
    match = re.search(r":\s*(-?\d+(?:\.\d+)?)", _masked(text))
    if match is None:
        return text
    return text[: match.start(1)] + (quoted[0] if quoted else json.dumps(match[1])) + text[match.end(1) :]


def _without_last_brace(text: str, words: str) -> str:
    return text.rstrip().removesuffix("}")


def _single_quotes(text: str, words: str) -> str:
    return STRINGS.sub(lambda match: "'" + match[0][1:-1] + "'", text)


WAYS: dict[tuple[str, ...], Way] = {
    ("comma", "before", "last", "brace"): _comma_before_last_brace,
    ("bare word", "list"): _bare_word_in_id_list,
    ("number", "string"): _number_as_string,
    ("remove", "last", "brace"): _without_last_brace,
    ("single quotes",): _single_quotes,
}
