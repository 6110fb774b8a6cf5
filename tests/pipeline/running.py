"""Whole runs without a model: a project folder, a scripted engine that reads what it is shown, real ledger and tables."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from graphrag_local import indexing
from graphrag_local.answers import Answer
from graphrag_local.engine.base import Choice, Embedder, Engine, Grammar, JsonSchema, Model, ModelCard, Reply, Request
from graphrag_local.engine.embed import NoEmbedder
from graphrag_local.engine.ledgered import Ledgered, Meter
from graphrag_local.engine.scripted import ScriptedEngine
from graphrag_local.flow import Silent
from graphrag_local.forgetting import Receipt, run_forget
from graphrag_local.indexing import Indexed, Order
from graphrag_local.pipeline import Run, build
from graphrag_local.project import ProjectFolder, open_project
from graphrag_local.prompting import load_all
from graphrag_local.query.ask import ask
from graphrag_local.store.reading import StoredIndex
from graphrag_local.tokens import TokenCounter
from graphrag_local.wiring import UNUSABLE, ModelSide
from tests.fakes import Characters
from tests.query.world import MemoryIndex
from tests.reports.graphs import valid_reply

PROMPTS = load_all()
SENTENCE = re.compile(r"^\[(\d+)\] (.*)$", re.MULTILINE)
TIE = re.compile(r"(\w+) knows (\w+) \((\d+)\)")
NAME = re.compile(r"\b[A-Z]\w*\b")
LATE = ('{"entities": [{"name": "Late", "type": "person", "description": "Late.", "sentences": [1]}]}', "9\tLate\tperson\t1\tLate.\n")
CARD = ModelCard(name="scribe", revision="1", context_tokens=32_000, form="grammar")


# --- what the model says


def document_part(request: Request) -> str:
    """What stands between the marks of the last turn."""
    return re.search(r"<text>\n(.*?)\n?</text>", request.messages[-1].content, re.DOTALL)[1]


def names_in(sentence: str) -> list[str]:
    """The names of a sentence: capitalised words; in scripts without capitals its first letters."""
    return list(dict.fromkeys(NAME.findall(sentence))) or [re.sub(r"\W", "", sentence)[:4] or "Thing"]


def extraction(request: Request) -> str:
    """Every name of the passage, described by the sentence it stands in, and an edge for each `A knows B (7)`."""
    numbers: dict[str, int] = {}
    lines, edges = [], []
    most = 10**6
    if isinstance(request.constraint, JsonSchema):
        properties = json.loads(request.constraint.text)["properties"]
        most = min(properties[kind]["maxItems"] for kind in ("entities", "relationships"))
    for number, sentence in SENTENCE.findall(document_part(request)):
        ties = TIE.findall(sentence)
        for name in [end for tie in ties for end in tie[:2]] or names_in(sentence.replace(" knows ", " ")):
            if name not in numbers and len(numbers) < most:
                numbers[name] = len(numbers) + 1
                lines.append((numbers[name], name, number, sentence[:60]))
        edges += [(numbers[a], numbers[b], strength, number) for a, b, strength in ties if a in numbers and b in numbers]
    names = {number: name for name, number in numbers.items()}
    if isinstance(request.constraint, Grammar):
        entities = "".join(f"{n}\t{name}\tperson\t{at}\tSeen: {said}\n" for n, name, at, said in lines)
        relationships = "".join(f"{a}-{b}\t{strength}\t{at}\t{names[a]} knows {names[b]}.\n" for a, b, strength, at in edges)
        return f"{entities}{relationships}" + ("?\tN" if "missed0" in request.constraint.lark else "")
    value = {
        "entities": [{"name": name, "type": "person", "description": f"Seen: {said}", "sentences": [int(at)]} for _, name, at, said in lines],
        "relationships": [
            {"source": a, "target": b, "description": f"{names[a]} knows {names[b]}.", "strength": int(strength), "sentences": [int(at)]}
            for a, b, strength, at in edges[:most]
        ],
        "missed": "N",
    }
    return json.dumps(value, ensure_ascii=False)


def allowed_ids(request: Request) -> list[str]:
    """The short ids that a request's constraint allows."""
    if isinstance(request.constraint, Grammar):
        return re.findall(r'"([A-Z]\d+)"', next(line for line in request.constraint.lark.splitlines() if line.startswith("ID:")))
    return re.findall(r'"([A-Z]\d+)"', request.constraint.text)


def report(request: Request) -> str:
    """A report of one finding that cites the first ids, with a title of its own; a choice of ids where the program quotes."""
    if isinstance(request.constraint, Grammar) and "lead_" in request.constraint.lark:
        return valid_reply(request)
    ids = allowed_ids(request)[:3]
    title = f"Circle {request.affinity[:12]}"
    if isinstance(request.constraint, Grammar):
        return f"T\t{title}\nS\tThey know each other.\nG\t5\tIt matters.\nF\t{','.join(ids)}\tThey meet.\tOften.\n"
    finding = {"summary": "They meet.", "explanation": "Often.", "sources": ids, "more": False}
    value = {"title": title, "summary": "They know each other.", "rating": 5, "rating_explanation": "It matters.", "findings": [finding]}
    return json.dumps(value)


def answer(request: Request, words: int = 4) -> str:
    """Points in a map call, paragraphs else, each about one id."""
    ids, text = allowed_ids(request)[:3], "They know each other well. " * words
    points = "one part" in request.messages[0].content
    if isinstance(request.constraint, Grammar):
        declines = '"Y\\n"' in request.constraint.lark or '"Y"' in request.constraint.lark
        lines = "".join(f"{text}\t{short}\t50\n" if points else f"{text}\t{short}\n" for short in ids)
        return f"Y\n{lines}" if points or declines else lines
    rows = [{"text": text, "sources": [short], "score": 50} for short in ids]
    return json.dumps({"useful": "Y", "points": rows} if points else {"answered": "yes", "paragraphs": rows})


def scribe(request: Request) -> str | Reply:
    """A valid reply to any request of the program."""
    if isinstance(request.constraint, Choice):
        return request.constraint.options[0]
    match request.purpose:
        case "extract" if "<text>" not in request.messages[-1].content:  # a gleaning turn
            return LATE[isinstance(request.constraint, Grammar)]
        case "extract":
            return extraction(request)
        case "report":
            return report(request)
        case "answer":
            return answer(request)
    if isinstance(request.constraint, Grammar):
        return "." if "pair" in request.constraint.lark else "They are known to each other and to everybody."
    return json.dumps({"description": "They are known to each other.", "same": []})


# --- runs


class Quiet(Silent):
    """Progress that shows nothing, for as long as its context lasts."""

    def __enter__(self) -> "Quiet":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""


def project_of(folder: Path, files: Mapping[str, str], *overrides: str) -> ProjectFolder:
    """A project over these files; no vectors unless told."""
    for name, text in files.items():
        path = folder / "input" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    (folder / "input").mkdir(parents=True, exist_ok=True)
    return open_project(folder, ("vectors.kind=none", *overrides))


def scripted(answering: Callable[[Request], str | Reply] = scribe, card: ModelCard = CARD, latency_s: float = 0.0) -> ScriptedEngine:
    """An engine that answers from a function."""
    return ScriptedEngine(answering, card, latency_s=latency_s)


def model_of(engine: Engine, counter: TokenCounter | None = None) -> Model:
    """A model side over an engine, without a ledger."""
    return Model(generate=Ledgered(engine, None).generate, card=engine.card, counter=counter or Characters())


@contextmanager
def _side(engine: Engine, counter: TokenCounter, embedder: Embedder):
    async def opened(project, ledger, say, *, retry_failed=False, around=None):
        meter = Meter()
        ledgered = Ledgered(around(engine) if around else engine, ledger, UNUSABLE if retry_failed else frozenset(), meter)
        model = Model(generate=ledgered.generate, card=engine.card, counter=counter, recall=ledgered.recall)
        return ModelSide(model=model, embedder=embedder, ledgered=ledgered, meter=meter, kind="scripted")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexing, "open_model_side", opened)
        yield


def index(
    project: ProjectFolder,
    engine: Engine | None = None,
    *,
    counter: TokenCounter | None = None,
    embedder: Embedder | None = None,
    progress: Quiet | None = None,
    **order: Any,
) -> Indexed:
    """One `index` of a project; `order` are the fields of an `Order`."""
    with _side(engine or scripted(), counter or Characters(), embedder or NoEmbedder()):
        return asyncio.run(indexing.run_index(project, lambda usage, log: progress or Quiet(), Order(**order)))


def forget(
    project: ProjectFolder,
    *names: str,
    engine: Engine | None = None,
    counter: TokenCounter | None = None,
    embedder: Embedder | None = None,
    progress: Quiet | None = None,
    **wishes: bool,
) -> Receipt:
    """One `forget`; `wishes` are the keywords of `run_forget`."""
    with _side(engine or scripted(), counter or Characters(), embedder or NoEmbedder()):
        return asyncio.run(run_forget(project, names, lambda usage, log: progress or Quiet(), **wishes))


def in_memory(project: ProjectFolder, engine: Engine) -> MemoryIndex:
    """The index of a project as questions see it, without ledger or tables on disk."""
    meter = Meter()
    run = Run(
        settings=project.settings,
        input_root=project.input_root,
        models_folder=project.folder,
        model=model_of(engine),
        embedder=NoEmbedder(),
        cache=None,  # type: ignore[arg-type]  # there are no vectors
        prompts=PROMPTS,
        progress=Silent(),
        log=lambda what, **rest: None,
        usage=lambda: dict(meter.by_purpose),
        replayed=lambda: 0,
        wasted=lambda: 0,
    )
    snapshot = asyncio.run(build(run)).snapshot
    tables = ("documents", "chunks", "entities", "relationships", "claims", "communities", "reports", "mentions")
    return MemoryIndex(rows={name: list(getattr(snapshot, name)) for name in tables})


@contextmanager
def opened(project: ProjectFolder):
    """The published index of a project."""
    stored = StoredIndex.open(project.index)
    try:
        yield stored
    finally:
        stored.close()


def asked(project: ProjectFolder, stored: object, model: Model, question: str, mode: str, level: int | None = None) -> Answer:
    """The answer to a question."""
    settings = project.settings.query
    return asyncio.run(ask(question, stored, model, NoEmbedder(), PROMPTS, settings, mode=mode, level=level))  # type: ignore[arg-type]


def told_as(edges: Iterable[tuple[str, str]], loners: Iterable[str] = (), *, strength: int = 5) -> str:
    """A text that says these edges and names these loners."""
    return "\n".join([*(f"{a} knows {b} ({strength})." for a, b in edges), *(f"{name} stands alone." for name in loners)]) + "\n"
