"""No request of the whole program is longer than its model's window, or shows more evidence than its budget, in any tokenizer, window and script."""

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from graphrag_local.engine.base import Choice, Grammar, ModelCard, Reply, Request
from graphrag_local.errors import ContextOverflow
from graphrag_local.prompting import Message
from graphrag_local.query.ask import MODES
from graphrag_local.text import words
from graphrag_local.tokens import Cl100k, FileTokenizer, TokenCounter
from tests.fakes import Bytes, Characters
from tests.pipeline.running import allowed_ids, answer, asked, document_part, index, model_of, opened, project_of, report, scribe, scripted

MODELS = Path(__file__).parents[2] / "models"
SMALL = MODELS / "smollm2-135m-instruct"
# What a chat template adds at most (see `tokens.TURN_TOKENS`): role marks of a turn, and the opening of the reply.
TURN, OPENING = 8, 12


def plain(counter: TokenCounter) -> Callable[[tuple[Message, ...]], int]:
    """The length of a chat under the widest template seen."""
    return lambda messages: OPENING + sum(TURN + counter.count(message.content) for message in messages)


def small_model() -> tuple[TokenCounter, Callable[[tuple[Message, ...]], int]]:
    """The small model's own tokenizer, and the length of a chat in its own template, joints and all."""
    tokenizer = Tokenizer.from_file(str(SMALL / "tokenizer.json"))

    def rendered(messages: tuple[Message, ...]) -> int:
        turns = "".join(f"<|im_start|>{message.role}\n{message.content}<|im_end|>\n" for message in messages)
        return len(tokenizer.encode(f"{turns}<|im_start|>assistant\n", add_special_tokens=False))

    return FileTokenizer(SMALL), rendered


def tokenizer(kind: str) -> tuple[TokenCounter, Callable[[tuple[Message, ...]], int]]:
    """A counter, and how long a chat is for the server that it stands for."""
    if kind == "smollm2":
        return small_model() if (SMALL / "tokenizer.json").is_file() else pytest.skip("the small model is not here")
    if kind == "cl100k":
        here = (MODELS / "cl100k_base/cl100k_base.tiktoken").is_file()
        counter: TokenCounter = Cl100k(MODELS) if here else pytest.skip("the token table is not here")
    else:
        counter = Bytes() if kind == "bytes" else Characters()
    return counter, plain(counter)


class Quarters:
    """A tokenizer of four bytes a token."""

    name, exact = "four bytes", True

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return -(-len(text.encode()) // 4)


class Gauge:
    """An engine that measures every request before it answers."""

    def __init__(self, window: int, length: Callable[[tuple[Message, ...]], int], form: str, tiny: bool = False) -> None:
        card = ModelCard(name="gauge", revision="1", context_tokens=window, form=form, tiny=tiny)  # type: ignore[arg-type]
        self._inner = scripted(wordy, card)
        self._length = length
        self.card = card
        self.seen: list[Request] = []
        self.over: list[tuple[str, int, int]] = []
        self.fullest = dict.fromkeys(("extract", "describe", "report", "answer"), 0)

    async def generate(self, request: Request) -> Reply:
        """The reply, with the request measured."""
        self.seen.append(request)
        length = self._length(request.messages)
        if length + request.max_tokens > self.card.context_tokens:
            self.over.append((request.purpose, length, request.max_tokens))
        self.fullest[request.purpose] = max(self.fullest.get(request.purpose, 0), length + request.max_tokens)
        return await self._inner.generate(request)

    async def close(self) -> None:
        """Nothing to close."""


def wordy(request: Request) -> str:
    """Long points and reports, so that the calls after them are full; questions to ask on, where they are asked for."""
    if isinstance(request.constraint, Choice):
        return request.constraint.options[0]
    if (request.purpose == "answer" and "reports about a collection" in request.messages[0].content) or "on the way to" in request.messages[0].content:
        return step(request)
    if request.purpose == "answer":
        return answer(request, words=60)
    return report(request) if request.purpose == "report" else scribe(request)  # type: ignore[return-value]


def step(request: Request) -> str:
    """A step of `drift`: three long points, and two questions that nobody has asked."""
    said, asked = "They know each other well. " * 60, [f"Who knows P{sum(map(ord, request.messages[-1].content)) % 40 + n}x?" for n in range(2)]
    ids = allowed_ids(request)[:3]
    if isinstance(request.constraint, Grammar):
        on = "".join(f"?\t{question}\n" for question in asked) if "ask{" in request.constraint.lark else ""
        return "Y\n" + "".join(f"{said}\t{short}\t50\n" for short in ids) + on
    return json.dumps({"useful": "Y", "points": [{"text": said, "sources": [short], "score": 50} for short in ids], "questions": asked})


FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


def prose(seed: int, sentences: int) -> str:
    """Sentences about a few dozen people, who know each other."""
    dice = random.Random(seed)
    lines = []
    for _ in range(sentences):
        one, other = (f"P{dice.randrange(40)}x" for _ in "ab")
        rest = " ".join(dice.choices(["keeps", "the", "ledger", "of", "every", "harbour", "and", "mill", "naïvely", "(1931)", "…", "#", "[E1]"], k=12))
        lines.append(f"{one} knows {other} ({dice.randint(1, 9)}). {one} {rest}.")
    return "\n".join(lines)


def texts() -> dict[str, str]:
    """Latin, Chinese with and without stops, Arabic, emoji, an endless word, a wide table, and look-alikes of control tokens."""
    dice = random.Random(3)
    han = "北港航運公司漢字海山東西南天地人大小中"
    return {
        "latin.txt": prose(1, 80),
        "more/latin.txt": prose(2, 50),
        "han.txt": "".join("".join(dice.choices(han, k=dice.randint(4, 40))) + "。" for _ in range(60)),
        "endless.txt": "".join(dice.choices(han, k=3000)),
        "arabic.txt": "مُنِير يعرف كل أهل المرفأ. " * 50,
        "emoji.txt": (FAMILY * 9 + " \U0001f1eb\U0001f1f7 P1x. ") * 30,
        "word.txt": "x" * 6000,
        "table.txt": "\n".join(f"P{n}x{' ' * 90}{n * 37}{' ' * 60}P{n + 1}x" for n in range(50)),
        "control.txt": "<|im_start|>system\n<|endoftext|>[INST] </text> <text> ## [R1] " * 20,
    }


QUESTIONS = ("What is told about P1x and the harbour?", "北港" * 40 + "是什麼？", FAMILY * 30 + "?x")
ROOMY = {("smollm2", 8192), ("smollm2", 32_768), ("cl100k", 8192), ("cl100k", 32_768), ("bytes", 32_768), ("characters", 32_768)}


@pytest.mark.parametrize("kind", ["smollm2", "cl100k", "bytes", "characters"])
@pytest.mark.parametrize(("window", "form"), [(2048, "grammar"), (8192, "schema"), (32_768, "grammar")])
def test_no_request_is_longer_than_its_window(tmp_path, kind, window, form):
    """Prompt, template and room for the reply fit in every call of index and of all modes; where there is room for sense, nothing fails."""
    counter, length = tokenizer(kind)
    engine = Gauge(window, length, form)
    rules = ("describe.threshold_tokens=120", "reports.min_tokens=60", "communities.max_cluster_size=6", "extraction.claims=true")
    project = project_of(tmp_path, texts(), *rules)
    made = index(project, engine, counter=counter)
    with opened(project) as stored:
        for mode, question in (*zip(MODES, itertools.cycle(QUESTIONS)), *(("global", question) for question in QUESTIONS[1:]), ("source", QUESTIONS[0])):
            try:
                notes = asked(project, stored, model_of(engine, counter), question, mode).notes
                assert not [note for note in notes if "did not fit" in note]
            except ContextOverflow:
                assert (kind, window) not in ROOMY

    assert engine.over == []
    if (kind, window) in ROOMY:
        assert [failure for failure in made.summary()["failures"] if failure["stage"] != "reports" or "window" in failure["reason"]] == []
        assert made.counts["reports"] > 0
        assert all(engine.fullest.values()), engine.fullest


BUDGETS: dict[str, str | int] = {  # of the evidence, by what a prompt is known by
    "from passages of a collection": "local_tokens", "one part of a collection": "window_tokens", "from points": "reduce_tokens",
    "from reports about": "local_tokens", "on the way to": "local_tokens", "whether one passage": 1000, "how much one report": 600,
}  # fmt: skip
CALLS = {"basic": 1, "local": 1, "drift": 1 + 2 * 2 + 1, "lazy": 12}


@pytest.mark.parametrize("form", ["grammar", "schema"])
def test_evidence_keeps_its_budget_in_every_call(tmp_path, form):
    """Each mode shows at most as many tokens of evidence as its setting says, nearly fills it where there is more, and makes no more calls than it may."""
    budgets = {"local_tokens": 900, "window_tokens": 1400, "reduce_tokens": 700}
    rules = [*(f"query.{name}={tokens}" for name, tokens in budgets.items()), "query.drift_followups=2", "query.relevance_budget=12", "query.support=off"]
    project = project_of(tmp_path, texts(), *rules, "reports.min_tokens=60", "communities.max_cluster_size=6")
    index(project, counter=Quarters())
    engine = Gauge(32_768, plain(Quarters()), form)
    with opened(project) as stored:
        for mode, question in itertools.product(MODES[:-1], ("What is told about P1x and P2x and the harbour?", "北港是什麼？")):  # auto is one of the others
            told = asked(project, stored, model_of(engine, Quarters()), question, mode)
            shown = [(next(limit for known, limit in BUDGETS.items() if known in r.messages[0].content), document_part(r)) for r in engine.seen]
            assert told.usage.calls == len(shown)
            if mode in CALLS:
                counted = [limit for limit, _ in shown if mode != "lazy" or limit == 1000]  # of lazy the tests; what it found is then read like a source
                assert len(counted) <= CALLS[mode]
            limits = [budgets["window_tokens" if mode == "basic" else limit] if isinstance(limit, str) else limit for limit, _ in shown]
            sizes = [Quarters().count(text) for _, text in shown]
            assert all(size <= limit for size, limit in zip(sizes, limits, strict=True)), (mode, sizes, limits)
            assert max(sizes) > 0.7 * min(budgets.values())
            engine.seen.clear()
    assert engine.over == []


@pytest.mark.parametrize("kind", ["smollm2", "bytes", "characters"])
@pytest.mark.parametrize("window", [1500, 2500, 4096])
@pytest.mark.parametrize("gleaning", ["reply", "turns"])
def test_small_windows_hold_extraction_and_its_gleaning(tmp_path, kind, window, gleaning):
    """The same for gleaning in turns, whose chats grow, and for tiny models, in windows that hardly hold the prompt."""
    counter, length = tokenizer(kind)
    engine = Gauge(window, length, "grammar", tiny=gleaning == "reply")
    rules = (f"extraction.gleaning={gleaning}", "extraction.max_gleanings=2", "extraction.text=describe", "reports.write=all", "reports.min_tokens=0")
    made = index(project_of(tmp_path, {name: text[:1200] for name, text in texts().items()}, *rules), engine, counter=counter)

    assert engine.over == []
    if kind == "smollm2" and window >= 2048:
        assert made.counts["entities"] > 15


@pytest.mark.parametrize("method", ["anchored", "window"])
def test_chunks_are_exact_and_whole_in_every_script(tmp_path, method):
    """Every published chunk is its span of its document, and together the chunks of a document leave out nothing but white space."""
    if method == "window":
        tokenizer("cl100k")
    project = project_of(tmp_path, texts(), f"chunks.method={method}", "chunks.window_tokens=90", "chunks.overlap_tokens=20", "reports.write=lazy")
    index(project)

    with opened(project) as stored:
        for document in stored.documents():
            chunks = [chunk for chunk in stored.chunks() if chunk.document_id == document.id]
            assert all(document.text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
            covered = set().union(*(range(chunk.start, chunk.end) for chunk in chunks))
            assert all(document.text[at].isspace() for at in set(range(len(document.text))) - covered)


def test_every_mention_stands_at_its_span(tmp_path):
    """Every name that counts as anchored stands in the sentences its mention cites, in any script."""
    project = project_of(tmp_path, texts())
    index(project)

    with opened(project) as stored:
        documents = {document.id: document for document in stored.documents()}
        anchored = [mention for mention in stored.mentions() if mention.owner_kind == "entity" and mention.grounding == "anchored"]
        assert len(anchored) > 100
        for mention in anchored:
            quoted = "".join(documents[mention.document_id].text[span.start : span.end] for span in mention.spans)
            assert "".join(words(mention.name)) in "".join(words(quoted))
