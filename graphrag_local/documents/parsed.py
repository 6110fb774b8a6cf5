"""What a parser gives back, on either side of the process boundary."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from graphrag_local.documents.clean import normalise
from graphrag_local.errors import GraphragError
from graphrag_local.records import Cut, Place

MB = 1 << 20


class ReadProblem(GraphragError):
    """A file cannot be used; the message continues the sentence that begins with its path. It always ends as a `Failed` row."""

    def __init__(self, reason: str, *, retryable: bool = False) -> None:
        super().__init__(reason)
        self.retryable = retryable


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings that parsers need, small enough to travel with every request."""

    text_field: str = "text"
    id_field: str = "id"
    title_field: str = "title"
    boilerplate: bool = True
    max_text_mb: int = 64
    max_unpacked_mb: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The text of one document to be; `key` is the part of its identity after `#`, "" for a file that is one document."""

    text: str
    title: str = ""
    key: str = ""
    places: tuple[Place, ...] = ()
    cuts: tuple[Cut, ...] = ()
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A record that was left out: where in its file ("line 5" counts physical lines, "record 3" those of an array) and why."""

    where: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """Everything in a file; `scanned_pages` counts the pages of a PDF in which no page has text."""

    pieces: tuple[Piece, ...] = ()
    problems: tuple[Problem, ...] = ()
    scanned_pages: int = 0

    def to_json(self) -> dict[str, Any]:
        """The same as plain lists and dictionaries."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Parsed":
        """The inverse of `to_json`."""
        return cls(
            pieces=tuple(
                Piece(
                    text=piece["text"], title=piece["title"], key=piece["key"], notices=tuple(piece["notices"]),
                    places=tuple(Place(**place) for place in piece["places"]), cuts=tuple(Cut(**cut) for cut in piece["cuts"]),
                ) for piece in value["pieces"]
            ),
            problems=tuple(Problem(**problem) for problem in value["problems"]),
            scanned_pages=value["scanned_pages"],
        )  # fmt: skip


class Budget:
    """Adds up the text of one file and refuses it once there is too much; cells and rows can multiply a small file."""

    def __init__(self, options: Options) -> None:
        self.limit_mb = options.max_text_mb
        self.left = options.max_text_mb * MB

    def spend(self, characters: int) -> None:
        """Count these characters; raises ReadProblem beyond the limit."""
        self.left -= characters
        if self.left < 0:
            raise ReadProblem(f"gives more than {self.limit_mb} MB of text (documents.max_text_mb)")


def assemble(
    parts: Iterable[tuple[str, str]],
    budget: Budget,
    *,
    separator: str = "\n\n",
    title: str = "",
    cuts: tuple[Cut, ...] = (),
    notices: tuple[str, ...] = (),
) -> Piece:
    """One piece out of labelled parts (pages, slides, sheets, cues), normalised part by part; blank parts have no place."""
    texts: list[str] = []
    places: list[Place] = []
    at = controls = 0
    for label, raw in parts:
        text, dropped = normalise(raw)
        text = text.strip("\n")
        controls += dropped
        if not text.strip():
            continue
        budget.spend(len(text))
        if label:
            places.append(Place(label=label, start=at))
        texts.append(text)
        at += len(text) + len(separator)
    return Piece(text=separator.join(texts), title=title, places=tuple(places), cuts=cuts + control_cut(controls), notices=notices)


def control_cut(dropped: int) -> tuple[Cut, ...]:
    """The record of control characters that were left out."""
    return (Cut(reason="control characters", characters=dropped),) if dropped else ()
