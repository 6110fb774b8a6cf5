"""What this server can read out of a prompt: the document part, its numbered sentences, the evidence and its ids."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

MARK = re.compile(r"\[(\d+)\]\s?")
ID_AT_START = re.compile(
    r"""^[\s\-*|>"'`{\[(<#]{0,8}(?:(?:source|id|"id")\s*[:=]?\s*["']?)?([A-Za-z]{1,3}\d{1,5}|\d{1,5})(?![\w.])""", re.IGNORECASE
)
LETTERED_ID = re.compile(r"[A-Za-z]{1,3}\d{1,5}")
ID_PAIR = re.compile(r"[A-Za-z]{1,3}\d{1,5}(?:-[A-Za-z]{1,3}\d{1,5})?")
TAG = re.compile(r"</?\w+[^<>]*>")


def squeezed(text: str) -> str:
    """A text with runs of white space as one blank."""
    return " ".join(text.split())


def folded(text: str) -> str:
    """A text as it is compared when looking for a name."""
    return squeezed(unicodedata.normalize("NFKC", text).casefold())


def content_of(message: Mapping[str, Any]) -> str:
    """The text of a message, whose content may be a string, a list of parts, or missing."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


class Prompt:
    """The messages of one request."""

    def __init__(self, messages: Iterable[Mapping[str, Any]]) -> None:
        turns = list(messages)
        self.contents = [content_of(message) for message in turns]
        self.text = "\n\n".join(self.contents)
        self.last_user = next((content_of(message) for message in reversed(turns) if message.get("role") == "user"), self.text)
        self.has_document = "<text>" in self.last_user
        self.is_second_round = any(message.get("role") == "assistant" for message in turns) and not self.has_document

    @cached_property
    def document(self) -> str:
        """Everything between `<text>` and `</text>` of the last user message; without such marks the whole message."""
        parts = re.findall(r"<text>(.*?)(?:</text>|\Z)", self.last_user, re.DOTALL)
        return "\n".join(parts) if parts else self.last_user

    @cached_property
    def sentences(self) -> dict[int, str]:
        """The sentences marked `[n]` in the document part, by number: the first mark opens it, the others continue the numbering."""
        found: list[tuple[int, int, int]] = []
        for match in MARK.finditer(self.document):
            number = int(match[1])
            before = self.document[: match.start()]
            follows = before[-1:].isspace() and number == found[-1][0] + 1 if found else not before.strip()
            if follows:
                found.append((number, match.start(), match.end()))
        ends = [*(start for _, start, _ in found[1:]), len(self.document)]
        return {number: self.document[after:end].strip() for (number, _, after), end in zip(found, ends, strict=False)}

    @cached_property
    def plain(self) -> str:
        """The document part without sentence marks, on one line."""
        if not self.sentences:
            return squeezed(self.document)
        return squeezed(" ".join(self.sentences.values()))

    @cached_property
    def plain_sentences(self) -> list[str]:
        """The sentences of the document part; split at final stops where the prompt does not number them."""
        if self.sentences:
            return [squeezed(sentence) for sentence in self.sentences.values()]
        return [piece for piece in re.split(r"(?<=[.!?。！？])\s*", self.plain) if piece]

    def has(self, needle: str) -> bool:
        """Whether the messages hold a text, white space aside."""
        return needle in self.text or squeezed(needle) in squeezed(self.text)

    def document_has(self, needle: str) -> bool:
        """Whether the document part holds a text, white space and sentence marks aside."""
        return needle in self.document or squeezed(needle) in self.plain

    def sentences_with(self, *names: str) -> list[int]:
        """The numbers of the sentences in which all the names occur; else any of them; else the first number (1 where none is marked)."""
        keys = [folded(name) for name in names]
        texts = {number: folded(sentence) for number, sentence in self.sentences.items()}
        every = [number for number, text in texts.items() if all(key in text for key in keys)]
        some = [number for number, text in texts.items() if any(key in text for key in keys)]
        return every or some or [min(texts, default=1)]

    def evidence(self, ids: Iterable[Any] = ()) -> dict[Any, str]:
        """What the prompt says for each id, in the order of the prompt.

        `ids` are those a schema allows; without them, lettered ids (R1, S2) at the beginning of a line count. What belongs to an
        id is the rest of its line and the lines down to the next id, heading or closing tag.
        """
        known = {str(one): one for one in ids}
        found: dict[Any, list[str]] = {}
        current: list[str] | None = None
        source = self.last_user if self._names_ids(self.last_user, known) else self.text
        for line in source.splitlines():
            match = ID_AT_START.match(line)
            if match and self._is_id(match[1], known):
                key = known.get(match[1], match[1])
                current = found.setdefault(key, [])
                current.append(line[match.end() :].partition("</text>")[0])
            elif current is not None and not line.startswith("#"):
                current.append(line.partition("</text>")[0])
            if current is not None and ("</text>" in line or line.startswith("#")):
                current = None
        texts = {key: squeezed(TAG.sub(" ", " ".join(lines))) for key, lines in found.items()}
        return {key: text.lstrip(" \"'`]})>|:.,-").rstrip(" \"'`|,]}") for key, text in texts.items()}

    @staticmethod
    def _is_id(word: str, known: Mapping[str, Any]) -> bool:
        return word in known if known else bool(LETTERED_ID.fullmatch(word))

    def _names_ids(self, text: str, known: Mapping[str, Any]) -> bool:
        matches = (ID_AT_START.match(line) for line in text.splitlines())
        return any(match and self._is_id(match[1], known) for match in matches)

    def words(self, count: int) -> str:
        """A short sentence made of the first words of the document part."""
        clean = re.sub(r"[^\w\s'’-]", " ", self.plain)
        return (" ".join(clean.split()[:count]) or "Nothing") + "."


def members(evidence: Mapping[Any, str]) -> list[str]:
    """The names that evidence lines begin with: what stands before a bracket, a bar, a colon, an arrow or a long dash."""
    heads = [re.split(r"\s*(?:[(|:\t<]|->|→|—|\s-\s)", text, maxsplit=1)[0].strip(" \"'") for text in evidence.values()]
    return list(dict.fromkeys(head[:60] for head in heads if head and not ID_PAIR.fullmatch(head)))
