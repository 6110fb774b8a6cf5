"""One description per node and edge out of what its mentions say (paper §3.1.3).

Different statements are joined as they are while they fit. Beyond that the model writes a summary, as a tree: statements in a stable order are
grouped at places that depend on the statements there and not on their number, each group is summarised, and so on with the summaries. One
statement more changes the calls on its own path to the root, O(log n) of them. In quote mode cited sentences stand for the description.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from graphrag_local.engine.base import TEXT_TERMINAL, Constraint, Form, Grammar, Model, Request, ask, read_json, schema_of
from graphrag_local.errors import ContextOverflow, EngineHung, EngineRefused, ReplyInvalid
from graphrag_local.flow import map_ordered
from graphrag_local.ids import digest_of
from graphrag_local.prompting import Message, Prompt
from graphrag_local.records import Chunk, Mention
from graphrag_local.settings import DescribeSettings
from graphrag_local.text import neutralise, one_line
from graphrag_local.tokens import TokenCounter, room

EXPECTED = (ReplyInvalid, ContextOverflow, EngineHung, EngineRefused)  # errors of one call, not of the server
SMALLEST_GROUP = 0.25  # of the largest: small enough to leave a choice of ends, large enough for shallow trees (our choice)
SIDE_BY_SIDE = 64  # groups of one subject asked about at once at most; how many are really under way is the engine's business
LIST_TOKENS = 4  # a statement's dash and line break in the prompt


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that is said, and the ids of the documents that say it."""

    text: str
    documents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is described: an entity or a relationship, by name."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Describer:
    """What every call of a run shares."""

    model: Model
    prompt: Prompt
    settings: DescribeSettings

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return self.model.counter.count(text)

    def is_short(self, text: str) -> bool:
        """Whether a text is within the threshold; a token is a byte at least, so most texts need not be counted."""
        most = self.settings.threshold_tokens
        return len(text.encode("utf-8", "surrogatepass")) <= most or self.count(text) <= most

    def cut(self, texts: Iterable[str]) -> str:
        """Texts joined and cut to the threshold."""
        return cut(texts, self.model.counter, self.settings.threshold_tokens)

    def messages(self, subject: Subject, texts: list[str]) -> tuple[Message, ...]:
        """The chat about some statements."""
        return self.prompt.render(
            form=self.model.card.form,
            name=neutralise(subject.name),
            kind=subject.kind,
            words=max(10, self.settings.max_reply_tokens // 3),  # well under the limit, so that a reply is not cut off
            statements=[neutralise(text) for text in texts],
        )

    def group_tokens(self, subject: Subject) -> int:
        """Room for the statements of one call."""
        left = room(self.model.counter, self.model.card.context_tokens, self.messages(subject, []), self.settings.max_reply_tokens)
        return min(self.settings.group_tokens, left)


@dataclass(frozen=True, slots=True)
class Summary:
    """A description; `failed` is the first error on the way, whose group was cut instead of summarised."""

    text: str
    failed: Exception | None = None


def statements(mentions: Iterable[Mention]) -> tuple[Statement, ...]:
    """The different descriptions of some mentions, document by document. Only equal texts are one: a changed number is another statement."""
    by_document: dict[str, list[str]] = {}
    for mention in mentions:
        if text := one_line(mention.description):
            by_document.setdefault(mention.document_id, []).append(text)
    said: dict[str, list[str]] = {}
    for document, texts in _in_order(by_document):
        for text in texts:
            said.setdefault(text, []).append(document)
    return tuple(Statement(text, tuple(sorted(set(documents)))) for text, documents in said.items())


def _in_order(texts: Mapping[str, list[str]]) -> list[tuple[str, list[str]]]:
    """Documents with their texts in an order that neither a file's name nor a change elsewhere in it decides: by a hash of what they say."""
    return sorted(texts.items(), key=lambda item: [digest_of(text) for text in item[1]])


def quotation(mentions: Iterable[Mention], chunks: Mapping[str, Chunk], counter: TokenCounter, budget: int) -> str:
    """The different sentences that some mentions cite, in the order of the text.

    Where they are more than `budget` tokens, each document has its turn: with the first sentence it says about the subject, which usually
    introduces it, then with others picked by their hash, so that the whole collection speaks and a new sentence displaces few.
    """
    cited: dict[tuple[str, int], str] = {}
    for mention in mentions:
        chunk = chunks[mention.chunk_id]
        for span in mention.spans:
            text = one_line(chunk.text[max(0, span.start - chunk.start) : max(0, span.end - chunk.start)])
            place = mention.document_id, span.start
            cited[place] = max(cited.get(place, ""), text, key=len)  # a window may hold the beginning of a sentence only
    by_document: dict[str, list[str]] = {}
    for (document, _), text in sorted(cited.items()):
        if text:
            by_document.setdefault(document, []).append(text)
    said: dict[str, str] = {}  # each text with the first document that says it
    for document, texts in _in_order(by_document):
        for text in texts:
            said.setdefault(text, document)
    kept: set[str] = set()
    left = budget
    for text in _in_turns(said):
        cost = counter.count(text) + bool(kept)
        if cost <= left:
            kept.add(text)
            left -= cost
    return " ".join(text for text in said if text in kept) if kept else cut(said, counter, budget)


def _in_turns(said: Mapping[str, str]) -> Iterator[str]:
    """Texts one of each document in turn; documents in the order of a hash of their first text, which comes before their others."""
    queues: dict[str, list[str]] = {}
    for text, document in said.items():
        queues.setdefault(document, []).append(text)
    ordered = [[first, *sorted(rest, key=digest_of)] for first, *rest in queues.values()]
    for turn in zip_longest(*sorted(ordered, key=lambda queue: digest_of(queue[0]))):
        yield from filter(None, turn)


def cut(texts: Iterable[str], counter: TokenCounter, budget: int) -> str:
    """As many of the texts, joined by blanks, as fit; where not even the first fits, as many of its words (letters, if it is one word)."""
    kept: list[str] = []
    left = budget
    for text in texts:
        left -= counter.count(text) + bool(kept)
        if left < 0:
            break
        kept.append(text)
    else:
        return " ".join(kept)
    return " ".join(kept) if kept else _beginning(text, counter, budget)


def _beginning(text: str, counter: TokenCounter, budget: int) -> str:
    """The longest beginning of a text that fits, cut at a blank where there is one."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if counter.count(text[:middle]) <= budget else (low, middle - 1)
    blank = text.rfind(" ", 0, low + 1)
    return text[: blank if blank > 0 else low]


async def summarise(subject: Subject, said: tuple[Statement, ...], describer: Describer) -> Summary:
    """What is said about a subject in one text: joined while it fits `threshold_tokens`, else summarised by the model, group by group.

    A group whose call fails is cut to the threshold and the error kept, so that one bad reply does not cost the rest. Errors of a server that
    is away are raised.
    """
    failed: Exception | None = None
    while said:
        texts = [statement.text for statement in said]
        if describer.is_short(" ".join(texts)):
            return Summary(" ".join(texts), failed)
        # Side by side: a hub has hundreds of groups, and one after the other they would outlast everything else.
        parts = groups(said, describer.model.counter, describer.group_tokens(subject))
        written = await map_ordered(parts, lambda group: _one_of(subject, group, describer), limit=SIDE_BY_SIDE)
        level = [statement for statement, _ in written]
        failed = failed or next((error for _, error in written if error), None)
        if len(level) == 1:
            return Summary(level[0].text, failed)
        if sum(len(statement.text) for statement in level) >= sum(map(len, texts)):
            useless = ReplyInvalid("The summaries are no shorter than what they summarise.", outcome="invalid")
            return Summary(describer.cut(texts), failed or useless)
        said = tuple(level)
    return Summary("", failed)


def groups(said: tuple[Statement, ...], counter: TokenCounter, budget: int) -> list[tuple[Statement, ...]]:
    """Statements in runs of a quarter of `budget` tokens to all of it, each ending at the statement of least hash within that range.

    Where a run ends is decided by the statements there, so a new one moves the ends next to it and no others. A run of one statement may be larger.
    """
    sizes = [counter.count(statement.text) + LIST_TOKENS for statement in said]
    made, start = [], 0
    while start < len(said):
        end, total = start, 0
        ends: list[tuple[str, int]] = []
        while end < len(said) and (end == start or total + sizes[end] <= budget):
            total += sizes[end]
            end += 1
            if total >= budget * SMALLEST_GROUP and end > start + 1:
                ends.append((digest_of(said[end - 1].text), end))
        if end < len(said) and ends:
            end = min(ends)[1]
        made.append(said[start:end])
        start = end
    return made


async def _one_of(subject: Subject, group: tuple[Statement, ...], describer: Describer) -> tuple[Statement, Exception | None]:
    """A group as one statement, with the error that kept the model from writing it."""
    texts = [statement.text for statement in group]
    documents = tuple(sorted({document for statement in group for document in statement.documents}))
    if len(group) == 1 and describer.is_short(texts[0]):
        return group[0], None
    try:
        return Statement(await _ask(subject, texts, documents, describer), documents), None
    except EXPECTED as error:
        return Statement(describer.cut(texts), documents), error


async def _ask(subject: Subject, texts: list[str], documents: tuple[str, ...], describer: Describer) -> str:
    model, most = describer.model, describer.settings.max_reply_tokens
    messages = describer.messages(subject, texts)
    if not model.fits(messages, most):
        window = model.card.context_tokens
        raise ContextOverflow(f"The descriptions of {subject.name!r} do not fit the model's window of {window} tokens.", window=window)
    request = Request(
        messages=messages,
        constraint=constraint(model.card.form),
        max_tokens=most,
        purpose="describe",
        affinity=subject.name,
        documents=documents,
    )
    text, _ = await ask(model, request, reader(model.card.form))
    return text


def constraint(form: Form) -> Constraint:
    """One run of free text, or an object with one string."""
    if form == "grammar":
        return Grammar(lark=f"start: TEXT\n{TEXT_TERMINAL}")
    properties = {"description": {"type": "string"}}
    return schema_of({"type": "object", "properties": properties, "required": ["description"], "additionalProperties": False})


def reader(form: Form) -> Callable[[str], str]:
    """What reads a description out of a reply; raises ValueError where there is none."""

    def read(reply: str) -> str:
        said = reply
        if form == "schema":
            value = read_json(reply)
            said = value.get("description", "") if isinstance(value, dict) else ""
        text = one_line(said) if isinstance(said, str) else ""
        if not any(character.isalnum() for character in text):
            raise ValueError("there is no description in it")
        return text

    return read
