"""What the server at `engine.url` is and what it really obeys, found out by asking.

Servers of the OpenAI kind take fields that they do not know without a word, so a constraint counts only when a reply shows it: the model is asked for
a greeting and constrained to something that no model would say. The verdict is kept in a file, so that a run without work asks nothing, and a run
whose replies are all in the ledger needs no server at all.
"""

import asyncio
import json
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from graphrag_local.engine.base import Choice, Constraint, Form, FreeText, Grammar, ModelCard, Reply, Request, schema_of
from graphrag_local.engine.endpoint import Served
from graphrag_local.engine.start import Start
from graphrag_local.engine.vllm import VLLM
from graphrag_local.errors import EngineBusy, EngineError, EngineRefused, EngineUnreachable
from graphrag_local.ids import digest_of, fingerprint
from graphrag_local.prompting import Message
from graphrag_local.settings import EngineSettings
from graphrag_local.tokens import KINDS, OTHER_RATE, Estimate

FALLBACK_WINDOW = 4096  # for a server that does not tell its window and a user who does not either
KEPT = 32  # verdicts that stay in the file
MARGIN = 1.1  # on measured token rates
ODD = ("zq7", "vx4")  # no model answers a greeting with these
_GREETING = (Message(role="user", content="Please greet me with one short friendly sentence."),)
_FINGERPRINT = (Message(role="user", content="Describe a lighthouse, a glass of milk and a violin in one sentence each."),)
_SCHEMA = {"type": "object", "properties": {ODD[0]: {"enum": [ODD[1]]}}, "required": [ODD[0]], "additionalProperties": False}
# Invented text per kind of character (see tokens.KINDS), of the sort that tokenizers know least well.
_SAMPLES = {
    "latin": "der Hafenmeister Thistlewick versiegelte neunzehn Briefe weil kolme kalastajaa odotti laiturilla zanim latarnik Wnuk zgasil lampe ",
    "digit": "31415926535 2718281828 1961 07 42 900 123456 7 88",
    "blank": " \n\n\t  \n \t\t\n    \n\n\n  \t ",
    "mark": '{"(;:)\'-!?,.[]/\\&%$#@*+=<>|~^_`"}',
    "latin_marked": "éèüößñåøæçãőřšžłğıâêôûàùïë",
    "cyrillic_greek": "Старый маяк щурился над щебёнкой Ωκεανός ψιθυρίζει ξεχασμένα",
    "arabic_hebrew": "كانت المنارة القديمة تحرس الميناء מגדלור ישן שמר על הנמל",
    "han": "渔翁收网归去灯塔仍亮旧书肆里墨香犹存翡翠龘靐",
    "kana_hangul": "とうだいのあかりがゆれてカモメがなく등대지기는밤마다바다를헤아렸다",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found out. `obeys` are names out of choice, schema, grammar, logprobs, usage_details, tokenize, priority.

    `messages` are sentences for people; `rates` are tokens per character by kind as the server counts them, empty where it does not.
    """

    card: ModelCard
    server_version: str = ""
    obeys: frozenset[str] = frozenset()
    messages: tuple[str, ...] = ()
    rates: dict[str, float] = field(default_factory=dict)

    def counter(self) -> Estimate:
        """The token count to budget with where the model's own tokenizer is not at hand."""
        if not self.rates:
            return Estimate()
        kinds = {name: self.rates.get(name, rate) for name, _, rate in KINDS}
        return Estimate(name="estimate measured on the server", rates=kinds, other=max(OTHER_RATE, *kinds.values()))


async def probe(engine: VLLM, settings: EngineSettings, cache_path: Path | None, *, tiny: bool | None = None, start: Start | None = None) -> Verdict:
    """The verdict on the engine's server, which the engine takes over (`adopt`).

    `tiny` is what models.toml says about the model's size; None means: judge by its name. `start` says how long a server that is busy or failing is
    waited for. Raises EngineRefused when the server does not have the model, EngineUnreachable when it stays away and nothing is known about it.
    """
    known = _read(cache_path)
    start = start or Start.of(settings)
    remembered = _remembered(known, engine, settings)
    try:
        models = await (engine.models("probe") if remembered else start.wait(lambda: engine.models("probe")))
    except (EngineUnreachable, EngineBusy) as fault:
        if remembered is None:
            raise _not_there(fault) from fault
        engine.adopt(remembered.card, remembered.obeys)
        return remembered
    except EngineRefused:
        if not settings.model:
            raise
        models = (Served(name=settings.model),)  # a server without a list; a wrong address shows at the first completion
    model = _chosen(models, settings)
    version = await engine.version("probe")
    key = fingerprint([_place(engine, model.name, settings), version, model.root, model.context_tokens, settings.context_tokens, tiny])
    verdict = _verdict(known[key]) if key in known else None
    if verdict is None:
        try:
            verdict = await _asked(engine, settings, model, version, tiny, start)
        except (EngineUnreachable, EngineBusy) as fault:
            raise _not_there(fault) from fault
        known.pop(key, None)
        entry = {"place": _place(engine, model.name, settings), "verdict": _plain(verdict)}
        known[key] = {**entry, "checksum": fingerprint(entry)}
        _write(cache_path, known)
    engine.adopt(verdict.card, verdict.obeys)
    return verdict


def _not_there(fault: EngineError) -> EngineUnreachable:
    return EngineUnreachable(f"The model server is not there: {fault}", hint="Start it (`graphrag-local serve`), or correct engine.url.")


def _chosen(models: tuple[Served, ...], settings: EngineSettings) -> Served:
    names = ", ".join(repr(model.name) for model in models) or "none"
    if not settings.model and models:
        return models[0]
    for model in models:
        if model.name == settings.model:
            return model
    raise EngineRefused(f"The server at {settings.url} has no model {settings.model!r}; it has: {names}.", hint="Set engine.model to one of them.")


def is_tiny(name: str) -> bool:
    """Whether a model's name says that it has less than a billion parameters; the largest size in the name counts (`30B-A3B`)."""
    sizes = [float(number) * (1000 if unit in "bB" else 1) for number, unit in re.findall(r"(?<![\d.])(\d+(?:\.\d+)?)([mMbB])(?![a-zA-Z])", name)]
    return bool(sizes) and max(sizes) < 1000


# --- asking


async def _asked(engine: VLLM, settings: EngineSettings, model: Served, version: str, tiny: bool | None, start: Start) -> Verdict:
    """Ask the server everything; what is no answer but a fault that passes is asked again, so that nothing wrong is remembered."""
    window = model.context_tokens or settings.context_tokens or FALLBACK_WINDOW
    window = min(window, settings.context_tokens or window)
    revision = settings.revision or "unpinned"
    card = ModelCard(name=model.name, revision=revision, context_tokens=window, form="schema", tiny=is_tiny(model.name) if tiny is None else tiny)
    engine.adopt(card, frozenset({"tokenize", "priority"}))
    # the first call also shows whether priorities and log-probabilities are taken: the engine drops a field that is refused
    question = Request(messages=_FINGERPRINT, constraint=FreeText(), max_tokens=12, purpose="probe", logprobs=True)
    first = await start.wait(lambda: engine.generate(question))
    rates = await _rates(engine)
    forms: tuple[Form, ...] = ("schema",) if settings.constraints == "schema" else ("grammar", "schema")
    obeys = set(engine.seen) | {name for name, there in (("tokenize", bool(rates)), ("priority", "priority" not in engine.refused())) if there}
    for form in forms:
        engine.adopt(ModelCard(name=model.name, revision=revision, context_tokens=window, form=form), frozenset(obeys))
        obeys |= await _obeyed(engine, form, start)
        if "grammar" in obeys:
            break
    form = _form(settings, obeys)
    if not settings.revision:
        revision = f"unpinned-{digest_of(first.text)[:12]}"
    card = ModelCard(name=model.name, revision=revision, context_tokens=window, form=form, tiny=card.tiny, logprobs="logprobs" in obeys)
    messages = _messages(settings, model, card, frozenset(obeys))
    return Verdict(card=card, server_version=version, obeys=frozenset(obeys), messages=messages, rates=rates)


async def _obeyed(engine: VLLM, form: Form, start: Start) -> set[str]:
    """Which kinds of constraint the server obeys when they are sent in one form."""
    tests: list[tuple[str, Constraint, str]] = [("choice", Choice(options=ODD), "")]
    tests.append(("schema", schema_of(_SCHEMA), json.dumps({ODD[0]: ODD[1]}, separators=(",", ":"))))
    if form == "grammar":
        tests.append(("grammar", Grammar(lark=f'start: "{ODD[0]}"\n'), ODD[0]))
    replies = await asyncio.gather(*(_constrained(engine, constraint, start) for _, constraint, _ in tests))
    return {name for (name, _, wanted), reply in zip(tests, replies, strict=True) if reply is not None and _fits(reply.text, wanted)}


async def _constrained(engine: VLLM, constraint: Constraint, start: Start) -> Reply | None:
    """The reply to a constrained greeting; None where the constraint is refused, or fails while a plain request is answered."""
    request = Request(messages=_GREETING, constraint=constraint, max_tokens=24, purpose="probe")
    plain = replace(request, constraint=FreeText(), max_tokens=1)
    for _ in range(2):
        try:
            return await engine.generate(request)
        except (EngineUnreachable, EngineBusy):
            await start.wait(lambda: engine.generate(plain))
        except EngineError:
            return None
    return None


def _fits(text: str, wanted: str) -> bool:
    """Whether a reply is what the constraint left; white space in JSON is allowed, "" means one of the odd words."""
    text = text.strip()
    return text in ODD if not wanted else text == wanted or re.sub(r"\s", "", text) == wanted


def _form(settings: EngineSettings, obeys: set[str]) -> Form:
    if settings.constraints != "auto":
        return settings.constraints
    return "grammar" if {"grammar", "choice", "schema"} <= obeys else "schema"


def _messages(settings: EngineSettings, model: Served, card: ModelCard, obeys: frozenset[str]) -> tuple[str, ...]:
    """What people should know about their server."""
    said = []
    if model.context_tokens and settings.context_tokens > model.context_tokens:
        wish, window = settings.context_tokens, model.context_tokens
        said.append(f"engine.context_tokens is {wish}, but the server's window is {window} tokens; the smaller number is used.")
    if not model.context_tokens and not settings.context_tokens:
        said.append(f"The server does not say how long its window is; {FALLBACK_WINDOW} tokens are assumed. Set engine.context_tokens.")
    if "schema" not in obeys:
        said.append("The server ignores output constraints; replies are checked and repaired afterwards, and more of them will be unusable.")
    elif settings.constraints == "grammar" and "grammar" not in obeys:
        said.append("engine.constraints is 'grammar', but the server does not obey grammars; set it to 'auto' or 'schema'.")
    elif card.form == "schema" and settings.constraints == "auto":
        said.append("The server does not obey grammars; plain JSON schemas are used (vLLM: start it with the guidance back end).")
    if "logprobs" not in obeys:
        said.append("The server gives no log-probabilities; global search reads every window to its end.")
    if "tokenize" not in obeys:
        said.append("The server does not count tokens; without the model's tokenizer files, budgets are cautious estimates.")
    return tuple(said)


async def _rates(engine: VLLM) -> dict[str, float]:
    """Tokens per character of each kind as the server counts them, with a margin; empty where it does not count."""
    rates: dict[str, float] = {}
    for name, pattern, _ in KINDS:
        text = "".join(re.findall(f"[{pattern}]" if name != "latin" else f"[{pattern} ]", _SAMPLES[name])) * 4
        count = await engine.tokenize(text, "probe")
        if count is None:
            return {}
        rates[name] = round(MARGIN * count / len(text), 4)
    return rates


# --- the file of verdicts


def _place(engine: VLLM, model: str, settings: EngineSettings) -> list[str]:
    """What a verdict is about; the address only as a digest, since an index that is carried elsewhere tells nobody where it was made."""
    return [digest_of(*engine.urls), model, settings.revision, settings.constraints]


def _remembered(known: dict[str, Any], engine: VLLM, settings: EngineSettings) -> Verdict | None:
    """The latest verdict on this address, whatever the server's version is by now."""
    for entry in reversed(list(known.values())):
        model = entry["place"][1] if not settings.model else settings.model
        if entry["place"] == _place(engine, model, settings):
            return _verdict(entry)
    return None


def _plain(verdict: Verdict) -> dict[str, Any]:
    return asdict(verdict) | {"obeys": sorted(verdict.obeys)}


def _verdict(entry: Any) -> Verdict | None:
    try:
        value = dict(entry["verdict"])
        card = ModelCard(**value.pop("card"))
        return Verdict(card=card, obeys=frozenset(value.pop("obeys")), messages=tuple(value.pop("messages")), **value)
    except (KeyError, TypeError, ValueError):
        return None


def _read(path: Path | None) -> dict[str, Any]:
    """The entries of the file by key, oldest first; a file that is missing or broken holds none, and one that was altered is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError):
        return {}
    entries = value.items() if isinstance(value, dict) else ()
    return {key: entry for key, entry in entries if isinstance(entry, dict) and _is_sound(entry)}


def _is_sound(entry: dict[str, Any]) -> bool:
    content = {name: value for name, value in entry.items() if name != "checksum"}
    return len(entry.get("place", ())) == 4 and entry.get("checksum") == fingerprint(content)


def _write(path: Path | None, known: dict[str, Any]) -> None:
    """Keep the newest entries; a folder that cannot be written only costs a probe next time."""
    if path is None:
        return
    kept = dict(list(known.items())[-KEPT:])
    part = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(kept, ensure_ascii=False, indent=1), encoding="utf-8")
        part.replace(path)
    except OSError:
        return
