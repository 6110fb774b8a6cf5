"""Evidence cut into windows by content, so that a changed report changes its own window and no other (algorithms §8). Pure.

Units are placed by a digest of their id, which is as good as the paper's shuffle, and windows are the leaves of a binary trie over the digests:
a leaf that is over the budget is halved by the next bit. A unit that grows can split its own leaf, one that shrinks can join two, and nothing
else moves. The price is looser packing: leaves are about 70% full, so that there are some 1.4 times as many windows as greedy packing gives.
Ids are numbered within each window, because numbers that ran on would change every later window with the first new line.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from graphrag_local.engine.base import Model
from graphrag_local.errors import ContextOverflow
from graphrag_local.ids import digest_of
from graphrag_local.prompting import Message
from graphrag_local.query.context import LETTERS, Block, Ref, Unit
from graphrag_local.records import RecordKind
from graphrag_local.tokens import TokenCounter, count_messages

T = TypeVar("T")
JOINTS = 8  # tokens that may arise where a prompt's parts meet
SMALLEST = 64  # tokens of evidence below which no window is asked about
LINE_SHARE = 4  # a line may take a quarter of a window; longer ones are cut
REPLY_SHARE = 4  # a reply may take a quarter of the model's window
QUESTION_SHARE = 16  # room for the question comes in steps of up to a sixteenth of the model's window, so that windows do not move with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window: its text, what its ids stand for, an upper bound of its tokens, and the documents its text came from.

    `units` are what it was made of, for cutting it smaller; `digest` is that of its text.
    """

    units: tuple[Unit, ...]
    text: str
    ids: Mapping[str, Ref]
    tokens: int
    documents: tuple[str, ...]
    digest: str


def reply_room(model: Model, wanted: int) -> int:
    """Tokens for a reply: the setting, or a quarter of the model's window where that is less."""
    return min(wanted, max(1, model.card.context_tokens // REPLY_SHARE))


def evidence_room(model: Model, empty: tuple[Message, ...], question: str, reply_tokens: int, wanted: int) -> int:
    """Tokens for evidence beside a prompt that was rendered without question and evidence; raises ContextOverflow where hardly any are left."""
    window = model.card.context_tokens
    step = max(16, min(256, window // QUESTION_SHARE))
    asked = -(-(model.counter.count(question) + 1) // step) * step
    fixed = count_messages(model.counter, empty) + JOINTS
    room = window - fixed - asked - reply_tokens
    if room < SMALLEST:
        taken = f"the prompt takes {fixed}, the question {asked}, the reply {reply_tokens}"
        hint = "Ask a shorter question, or use a model with a larger window."
        raise ContextOverflow(f"The model's window of {window} tokens has no room for evidence: {taken}.", window=window, hint=hint)
    return min(wanted, room)


class Costs:
    """Upper bounds of what stands around the lines of a window, in tokens: an id with its blank and line end, the gap between units."""

    def __init__(self, counter: TokenCounter) -> None:
        self.count = counter.count
        self.id = counter.count("R9999 ") + counter.count("\n") + 1
        self.gap = counter.count("\n\n") + 1
        self._headings: dict[str, int] = {}

    def heading(self, text: str) -> int:
        """Tokens of a heading with its line end."""
        if text and text not in self._headings:
            self._headings[text] = self.count(text) + self.count("\n") + 1
        return self._headings[text] if text else 0

    def block(self, block: Block) -> int:
        """Tokens of a block with the ids of its lines."""
        return sum(line.tokens + self.id for line in block.lines)

    def unit(self, unit: Unit) -> int:
        """Tokens of a unit in a window."""
        return self.gap + self.heading(unit.heading) + sum(self.block(block) for block in unit.blocks)


def cut(units: Sequence[Unit], budget: int, counter: TokenCounter) -> tuple[Window, ...]:
    """Windows of at most `budget` tokens that hold every line of the units; the order of the units does not matter.

    A unit over the budget is split into several. Only a single line longer than the budget makes a window that is over it (see `context.Writer`).
    """
    costs = Costs(counter)
    parts = [part for unit in units if unit.blocks for part in _fitting(unit, budget, costs)]
    return tuple(_written(group, costs) for _, group in trie(parts, _key, costs.unit, budget))


def smaller(window: Window, counter: TokenCounter) -> tuple[Window, ...]:
    """The same evidence in windows a quarter smaller than this one, for a server that counts more than we do; empty when it cannot be cut."""
    parts = cut(window.units, smaller_budget(window), counter)
    return parts if all(part.tokens < window.tokens for part in parts) else ()


def smaller_budget(window: Window) -> int:
    """A quarter less than a window that was refused for its length."""
    return window.tokens * 3 // 4


def filled(units: Sequence[Unit], budget: int, counter: TokenCounter) -> Window:
    """One window with the first units, in their order, as far as their lines fit."""
    costs = Costs(counter)
    kept: list[Unit] = []
    used = 0
    for unit in units:
        left = budget - used - costs.unit(replace(unit, blocks=()))
        blocks: list[Block] = []
        for block in unit.blocks:
            left -= costs.block(block)
            if left < 0:
                break
            blocks.append(block)
        if blocks:
            kept.append(replace(unit, blocks=tuple(blocks)))
            used += costs.unit(kept[-1])
        if left < 0:
            break
    return _written(kept, costs)


def trie(items: Sequence[T], key: Callable[[T], str], size: Callable[[T], int], budget: int) -> list[tuple[str, list[T]]]:
    """Items grouped as the leaves of a binary trie over their keys (hex digests): (bits, items in the order of their keys)."""
    known = {key(item): (size(item), item) for item in items}
    places = {name: int(name, 16) for name in known}
    bits = 4 * max(map(len, known), default=0)

    def split(names: list[str], path: str) -> list[tuple[str, list[T]]]:
        if not names:
            return []
        if len(names) == 1 or sum(known[name][0] for name in names) <= budget:
            return [(path, [known[name][1] for name in names])]
        shift = bits - 1 - len(path)
        halves = ([name for name in names if places[name] >> shift & 1 == bit] for bit in (0, 1))
        return [leaf for bit, half in enumerate(halves) for leaf in split(half, path + str(bit))]

    return split(sorted(known), "")


def _key(part: Unit | Block) -> str:
    return part.key


def _fitting(unit: Unit, budget: int, costs: Costs) -> list[Unit]:
    """The unit, or parts of it that each fit; a block that is too large is split line by line."""
    if costs.unit(unit) <= budget:
        return [unit]
    room = budget - costs.unit(replace(unit, blocks=()))
    blocks: list[Block] = []
    for block in unit.blocks:
        whole = costs.block(block) <= room
        single = (Block(key=digest_of(block.key, str(number)), lines=(line,)) for number, line in enumerate(block.lines))
        blocks += [block] if whole else single
    place = {block.key: number for number, block in enumerate(blocks)}
    parts = trie(blocks, _key, costs.block, room)
    ordered = ((path, sorted(group, key=lambda block: place[block.key])) for path, group in parts)
    return [replace(unit, key=digest_of(unit.key, path), blocks=tuple(group)) for path, group in ordered]


def _written(units: Sequence[Unit], costs: Costs) -> Window:
    """The window of these units: each id is a letter and a number counted up within the window, one per reference."""
    ids: dict[str, Ref] = {}
    short: dict[Ref, str] = {}
    last: dict[RecordKind, int] = dict.fromkeys(LETTERS, 0)
    texts = []
    for unit in units:
        lines = [unit.heading] if unit.heading else []
        for line in (line for block in unit.blocks for line in block.lines):
            if line.ref not in short:
                last[line.ref.kind] += 1
                short[line.ref] = f"{LETTERS[line.ref.kind]}{last[line.ref.kind]}"
                ids[short[line.ref]] = line.ref
            lines.append(f"{short[line.ref]} {line.text}")
        texts.append("\n".join(lines))
    text = "\n\n".join(texts)
    documents = tuple(sorted({document for unit in units for document in unit.documents}))
    tokens = sum(map(costs.unit, units))
    return Window(units=tuple(units), text=text, ids=ids, tokens=tokens, documents=documents, digest=digest_of("window", text))
