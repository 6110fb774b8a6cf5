"""The composition root: settings to engine, embedder, ledger and store. The only place that builds concrete ones.

Which engine: `engine.kind` where it is set, else `engine.url`, else the model server of a live `serve`, else, where there is a GPU, an
error that says to run `serve`, else the small model in this process. The choice is always said.
"""

import contextlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphrag_local.engine.base import Embedder, EmbedderCard, Engine, Entailment, Model, Reranker
from graphrag_local.engine.fetch import fetch
from graphrag_local.engine.late import LateEmbedder, LateEngine
from graphrag_local.engine.launch import VllmServer, detect_device
from graphrag_local.engine.ledgered import Ledgered, Meter
from graphrag_local.engine.models import Catalogue, ModelEntry, embedder_card, entry_of, go_offline, model_card, models_folder, refuse_unfit
from graphrag_local.engine.models import tokenizer_of as tokenizer_of
from graphrag_local.engine.nobody import Nobody, how, no_model
from graphrag_local.engine.patient import Patient
from graphrag_local.engine.pipelines import find_pipeline
from graphrag_local.engine.start import Start
from graphrag_local.errors import EngineError, MissingExtra, NoEngine, UsageError
from graphrag_local.project import ProjectFolder
from graphrag_local.records import Outcome
from graphrag_local.settings import Settings
from graphrag_local.store.ledger import Ledger
from graphrag_local.tokens import FileTokenizer, TokenCounter

if TYPE_CHECKING:
    from graphrag_local.engine.probe import Verdict

Say = Callable[[str], None]
SMALL_MODEL = "smollm2-135m-instruct"
QUESTION_PATIENCE_S = 120.0  # somebody waits for the answer: longer than a restart takes, shorter than an index run may wait
USE_A_SERVER = "Name a model server (--set engine.url=http://127.0.0.1:8000/v1, or engine.url in graphrag.toml)"
QUESTION_NOBODY_S = 4.0  # the same for an address where nobody is
UNUSABLE: frozenset[Outcome] = frozenset({"cut_off", "loop", "thinking", "invalid"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSide:
    """The model side of a run: how to ask and embed, what it costs, and what people should know about it."""

    model: Model
    embedder: Embedder
    ledgered: Ledgered
    meter: Meter
    kind: str
    notices: tuple[str, ...] = ()
    entailment: Entailment | None = None
    reranker: Reranker | None = None
    embeds: bool = True  # else only vectors that are kept are to be had

    async def alive(self) -> str:
        """ "ok", or why the model cannot answer now."""
        from graphrag_local.engine.vllm import VLLM

        vllm = self.ledgered.inner
        while not isinstance(vllm, VLLM) and hasattr(vllm, "inner"):
            vllm = vllm.inner
        if not isinstance(vllm, VLLM):
            return "ok"
        try:
            await vllm.models("health")
        except EngineError as error:
            return str(error)
        return "ok"

    def keep_embedder(self, card: EmbedderCard) -> None:
        """Take a served embedder that differs from the index's only by the rounding of its probe for the same one: no vector is made anew."""
        embedder = self.embedder
        if embedder.card.revision.startswith("probe-") and embedder.card.same_as(card):
            embedder.card = card  # type: ignore[misc]  # of a ServerEmbedder, whose card is its own

    async def close(self) -> None:
        """Give everything back."""
        await self.ledgered.close()
        await self.embedder.close()
        if self.entailment:
            await self.entailment.close()
        if self.reranker:
            await self.reranker.close()


def catalogue() -> list[dict[str, Any]]:
    """The known models as rows for people."""
    return [
        {
            "name": entry.name,
            "kind": entry.kind,
            "here": entry.folder is not None,
            "licence": entry.licence,
            "context": entry.context_tokens or "",
            "memory": f"{entry.memory_gb:g} GB" if entry.memory_gb else "",
            "folder": str(entry.folder or ""),
            "source": entry.source,
            "cards": {str(size): flags for size, flags in entry.cards.items()},
            "note": entry.note,
        }
        for entry in Catalogue.load().listed()
    ]


def fetch_model(name: str, source: str, revision: str, say: Say) -> Path:
    """Bring a model into the models folder."""
    return fetch(Catalogue.load(), name, source=source or None, revision=revision, say=say)


def verify_model(name: str) -> list[str]:
    """What is wrong with a model's files."""
    return Catalogue.load().verify(name)


# --- the engine


def live_serve(project: ProjectFolder) -> str:
    """The URL of the model server that a live `serve` of this project runs or is attached to; "" where there is none."""
    try:
        entry = json.loads(project.serve_file.read_text(encoding="utf-8"))
        os.kill(int(entry["pid"]), 0)
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return str(entry["url"])


def chosen_engine(project: ProjectFolder) -> tuple[str, Settings]:
    """Which engine a run uses ("vllm" or "embedded"), and the settings with its address filled in."""
    settings = project.settings
    kind = settings.engine.kind
    if kind == "scripted":
        raise UsageError("engine.kind=scripted is for tests and benches in Python.", hint="Use vllm or embedded.")
    if kind != "embedded" and not settings.engine.url and (url := live_serve(project)):
        settings = settings.model_copy(update={"engine": settings.engine.model_copy(update={"url": url})})
    if kind == "vllm" and not settings.engine.url:
        raise NoEngine("engine.kind is vllm, but there is no server.", hint="Set engine.url, or run `graphrag-local serve`.")
    if kind == "embedded" or not settings.engine.url:
        device = detect_device()
        if kind == "auto" and device != "cpu":
            hint = "Run `graphrag-local serve` in another terminal, set engine.url, or set engine.kind=embedded to use the small model anyway."
            raise NoEngine(f"There is a GPU here ({device}), but no model server.", hint=hint)
        return "embedded", settings
    return "vllm", settings


async def open_model_side(
    project: ProjectFolder, ledger: Ledger | None, say: Say, *, retry_failed: bool = False, around: Callable[[Engine], Engine] | None = None, answers: bool = True
) -> ModelSide:
    """The model side as the settings say; `ledger` None answers questions, which are not kept, and whose askers wait less long for a server.

    `answers` False is for who only looks: without a ledger too, the models that only answers need, the reranker's and the entailment's, are left alone.
    `around` wraps the engine below the ledger: it sees what has to be paid for, and nothing else.
    """
    kind, settings = chosen_engine(project)
    answers = answers and ledger is None
    reranker = open_reranker(settings) if answers else None
    if ledger is None:
        settings = _for_questions(settings)
    start = _start(settings, say, ledger is None)
    raw: Engine
    if kind == "vllm":
        raw, counter, notices = await _served(project, settings, start)
    else:
        raw, counter, notices = _embedded(settings, say)
    for notice in notices:
        say(notice)
    meter = Meter()
    engine = Ledgered(around(raw) if around else raw, ledger, UNUSABLE if retry_failed else frozenset(), meter)
    try:
        known = Catalogue.load().about(engine.card.name)
        card = replace(engine.card, tiny=engine.card.tiny or (known is not None and known.tiny))
        model = Model(
            generate=engine.generate, card=card, counter=counter, temperature=settings.engine.temperature, seed=settings.engine.seed, recall=engine.recall,
        )  # fmt: skip
        embedder = await open_embedder(project, say, start)
    except BaseException:
        await engine.close()
        raise
    return ModelSide(
        model=model, embedder=embedder, ledgered=engine, meter=meter, kind=kind, notices=notices, reranker=reranker,
        entailment=open_entailment(settings) if answers else None,
    )  # fmt: skip


async def open_no_model(project: ProjectFolder, ledger: Ledger | None, say: Say, embedder: Embedder | None = None) -> ModelSide:
    """The model side of a run that asks no model: an embedder (this one, else one that is at hand or set), and nobody to ask."""
    engine, meter, tagger, settings = Nobody(), Meter(), None, project.settings
    if pipeline := find_pipeline(settings.extraction.spacy):
        from graphrag_local.engine.spacy_tagger import SpacyTagger

        tagger = SpacyTagger(pipeline, say)
    say(how(tagger))
    if embedder is None:
        is_served = settings.vectors.kind == "server" or settings.vectors.url
        embedder = await open_embedder(project, say) if is_served else open_local_embedder(project, say)
    return ModelSide(model=no_model(tagger), embedder=embedder, ledgered=Ledgered(engine, ledger, meter=meter), meter=meter, kind="none")


def open_local_embedder(project: ProjectFolder, say: Say) -> Embedder:
    """The embedder of the models folder, where the settings allow one and it is there; nothing is asked of a server."""
    from graphrag_local.engine.embed import NoEmbedder

    settings = project.settings.vectors
    entry = Catalogue.load().find(settings.model) if settings.kind in ("auto", "local") and not settings.url else None
    if settings.kind == "local" or (entry is not None and importlib.util.find_spec("sentence_transformers") is not None):
        return _in_process(project, entry)
    if settings.kind != "none":
        say(f"No embedder: {settings.model} is not in {models_folder()}; passages are found by words only.")
    return NoEmbedder()


def open_embedder_of(made: Mapping[str, Any], project: ProjectFolder, say: Say) -> Embedder:
    """The embedder in this process that made an index's vectors (`made` are the `models` of its manifest), if it is that one; else none, and words do."""
    from graphrag_local.engine.embed import NoEmbedder

    if EmbedderCard.of(made).dimension and project.settings.vectors.kind != "server":
        embedder = open_local_embedder(project, say)
        alike = all(made.get(name, "") == value for name, value in project.settings.vectors.prefixes().items())
        if alike and embedder.card.same_as(EmbedderCard.of(made)):
            return embedder
        say("The embedder at hand is not the one that made the index's vectors; passages are found by words only.")
    return NoEmbedder()


def on_ledger(side: ModelSide, ledger: Ledger, meter: Meter) -> ModelSide:
    """The same model and embedder with every reply kept in a ledger; closing it is the business of who has the other."""
    engine = Ledgered(side.ledgered.inner, ledger, meter=meter)
    return replace(side, model=replace(side.model, generate=engine.generate, recall=engine.recall), ledgered=engine, meter=meter)


def _for_questions(settings: Settings) -> Settings:
    engine = settings.engine
    return settings.model_copy(update={"engine": engine.model_copy(update={"patience_s": min(engine.patience_s, QUESTION_PATIENCE_S)})})


def _start(settings: Settings, say: Say, is_question: bool) -> Start:
    start = Start.of(settings.engine, say)
    return replace(start, nobody_s=QUESTION_NOBODY_S) if is_question else start


async def _served(project: ProjectFolder, settings: Settings, start: Start) -> tuple[Engine, TokenCounter, tuple[str, ...]]:
    from graphrag_local.engine.probe import probe
    from graphrag_local.engine.vllm import VLLM

    vllm, say = VLLM(settings.engine), start.say
    try:
        verdict = await probe(vllm, settings.engine, project.index / "run" / "probe.json", start=start)
        counter = own_counter(verdict)
    except BaseException:
        await vllm.close()
        raise
    say(f"Model: {verdict.card.name} at {settings.engine.url} ({verdict.card.form} constraints, window {verdict.card.context_tokens:,} tokens)")
    return Patient(vllm, settings.engine, counter=counter, say=say), counter, verdict.messages


def own_counter(verdict: "Verdict") -> TokenCounter:
    """The served model's own tokenizer where its files are here, else a count measured on the server, else a cautious estimate."""
    entry = Catalogue.load().find(verdict.card.name)
    if entry is not None and entry.folder is not None and (entry.folder / "tokenizer.json").is_file():
        return FileTokenizer(entry.folder)
    return verdict.counter()


def _embedded(settings: Settings, say: Say) -> tuple[Engine, TokenCounter, tuple[str, ...]]:
    if importlib.util.find_spec("transformers") is None or importlib.util.find_spec("torch") is None:
        raise MissingExtra("No model server is configured, and a model in this process", "embedded", instead=USE_A_SERVER)
    entry = Catalogue.load().require(settings.engine.model or SMALL_MODEL)
    folder = entry.folder
    assert folder is not None
    refuse_unfit(folder, "chat")
    card = model_card(entry, settings.engine)

    def make() -> Engine:
        go_offline()
        from graphrag_local.engine.embedded import EmbeddedEngine

        return EmbeddedEngine(folder, settings.engine, card)

    say(f"Model: {entry.name} in this process, on the CPU{'' if settings.engine.kind == 'embedded' else ' (no engine.url is set, no `serve` runs)'}")
    return LateEngine(card, make), FileTokenizer(folder), ()


# --- the embedder


async def open_embedder(project: ProjectFolder, say: Say, start: Start | None = None) -> Embedder:
    """The embedder as the settings say; `auto` takes a local model folder, else the server's embeddings, else words only.

    `start` says how long its server is waited for; without it as long as a question can wait.
    """
    from graphrag_local.engine.embed import NoEmbedder

    settings = project.settings.vectors
    start = start or _start(_for_questions(project.settings), say, True)
    if settings.kind == "none":
        return NoEmbedder()
    url = settings.url or _engine_url(project)
    if settings.kind == "server" or (settings.kind == "auto" and settings.url):
        return await _server_embedder(project, url, start)
    entry = Catalogue.load().find(settings.model)
    has_library = importlib.util.find_spec("sentence_transformers") is not None
    if settings.kind == "local" or (entry is not None and has_library):
        return _in_process(project, entry)
    if url:
        with contextlib.suppress(EngineError):
            return await _server_embedder(project, url, start)
    say(f"No embedder: {settings.model} is not in {models_folder()} and no endpoint gives embeddings; passages are found by words only.")
    return NoEmbedder()


def _in_process(project: ProjectFolder, entry: ModelEntry | None) -> Embedder:
    settings = project.settings.vectors
    if importlib.util.find_spec("sentence_transformers") is None:
        raise MissingExtra("An embedder in this process", "embedded")
    folder = (entry or Catalogue.load().require(settings.model)).folder
    assert folder is not None
    refuse_unfit(folder, "embedder")

    def make() -> Embedder:
        go_offline()
        from graphrag_local.engine.embed_local import LocalEmbedder

        return LocalEmbedder(folder, settings)

    return LateEmbedder(embedder_card(entry_of(folder), settings), make)


def _engine_url(project: ProjectFolder) -> str:
    return project.settings.engine.url or live_serve(project)


async def _server_embedder(project: ProjectFolder, url: str, start: Start) -> Embedder:
    from graphrag_local.engine.embed import ServerEmbedder

    return await ServerEmbedder.connect(url.split(",")[0].strip(), project.settings.vectors, project.settings.engine, start)


def open_reranker(settings: Settings) -> Reranker | None:
    """The reranker that the settings name, loaded with its first use; None where they name none. Raises ModelMissing where it is not here."""
    if not settings.query.reranker:
        return None
    if importlib.util.find_spec("sentence_transformers") is None:
        raise MissingExtra("A reranker in this process", "embedded")
    entry = Catalogue.load().require(settings.query.reranker)
    if entry.kind != "reranker" or entry.folder is None:
        raise UsageError(f"query.reranker is {entry.name!r}, which is of kind {entry.kind!r}.", hint="Name a cross-encoder that gives one number for a pair.")
    go_offline()
    from graphrag_local.engine.rerank import LocalReranker

    return LocalReranker(entry.folder)


def open_entailment(settings: Settings) -> Entailment | None:
    """The first entailment model of the models folder, where answers may be checked by one; it is loaded with its first use."""
    if settings.query.support not in ("auto", "nli") or importlib.util.find_spec("transformers") is None:
        return None
    entry = next((entry for entry in Catalogue.load().listed() if entry.kind == "nli" and entry.folder), None)
    if entry is None or entry.folder is None:
        return None
    go_offline()
    from graphrag_local.engine.nli import LocalEntailment

    return LocalEntailment(entry.folder)


# --- a model server of our own


@contextlib.contextmanager
def running_engine(project: ProjectFolder, say: Say) -> Iterator[tuple[str, VllmServer | None]]:
    """A model server for as long as the context lasts, announced in the project's runtime file: the one that runs at `engine.url`, or one of ours."""
    engine = project.settings.engine
    if engine.url:
        with _announced(project, engine.url):
            yield engine.url, None
        return
    if importlib.util.find_spec("vllm") is None:  # before anybody fetches a model for it
        raise MissingExtra("Starting a model server", "vllm", instead="Attach to one that runs (--engine-url http://127.0.0.1:8000/v1)")
    entry = Catalogue.load().require(engine.model or SMALL_MODEL)
    server = VllmServer(entry, project.settings, log=project.index / "run" / "vllm.log")
    with server.running(say), _announced(project, server.url):
        yield server.url, server


@contextlib.contextmanager
def _announced(project: ProjectFolder, url: str) -> Iterator[None]:
    file = project.serve_file
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".tmp")
    part.write_text(json.dumps({"url": url, "pid": os.getpid()}), encoding="utf-8")
    part.replace(file)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
