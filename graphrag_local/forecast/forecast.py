"""`index --dry-run` and `estimate`: what a run would find changed, and what it would cost.

Extraction is counted exactly, by a run that asks nobody (`look`). Of what stands on replies that are not there yet, `reach` says the least and the
most. `estimate` asks about a few chunks besides, whose replies the ledger keeps.
"""

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from graphrag_local.changes import Changes
from graphrag_local.engine.base import Model, ModelCard
from graphrag_local.engine.embed import NoEmbedder
from graphrag_local.engine.ledgered import Ledgered
from graphrag_local.engine.unasked import Kind, Missed, Unasked
from graphrag_local.errors import GraphragError, UsageError
from graphrag_local.flow import Progress
from graphrag_local.forecast.costs import (
    NOTHING,
    REPLY_SHARE,
    REPLY_WIDE,
    SHARES,
    WIDE,
    Interval,
    Speed,
    Spread,
    along,
    at_once,
    from_sample,
    speed_of_builds,
    speed_of_calls,
)
from graphrag_local.forecast.look import Looked, look
from graphrag_local.forecast.reach import Reach
from graphrag_local.forecast.sample import Sampled, choose, read_sample
from graphrag_local.indexing import MakeProgress, Order
from graphrag_local.project import ProjectFolder
from graphrag_local.records import Usage
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.lock import BuildLock
from graphrag_local.text import size
from graphrag_local.tokens import Estimate
from graphrag_local.wiring import ModelSide, open_model_side, open_no_model

CHAIN = 9  # calls that wait for each other at most in an ordinary run: extraction, two turns, names, a tree of descriptions, reports above reports
BESIDE = 4096  # tokens of a prompt of a later stage beside its budget at most, where none is known
ENOUGH = 8  # replies of a purpose that it takes to say what others will take
CANONICAL_REPLY = 800  # tokens of a reply about names at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What would be done.

    `calls` of extraction and their `prompt_tokens` are exact (the text's, by the model's counter; a chat template adds a few); `calls` is None where
    no model could be opened. The rest are intervals: `by_kind` has the calls of what comes after extraction, `minutes` is None where the engine's
    speed is not known.
    """

    changes: Changes
    documents: int
    chunks: int
    calls: int | None
    prompt_tokens: int = 0
    completion_tokens: Interval = NOTHING
    by_kind: dict[Kind, Interval] = field(default_factory=dict)
    rest_tokens: Interval = NOTHING
    minutes: Interval | None = None
    notes: tuple[str, ...] = ()
    failures: tuple[dict[str, Any], ...] = ()
    sample: dict[str, Any] | None = None

    @property
    def rest_calls(self) -> Interval:
        """Calls after extraction."""
        return sum(self.by_kind.values(), NOTHING)

    def summary(self) -> dict[str, Any]:
        """What `index --dry-run --json` and `estimate --json` print."""
        extraction = rest = None
        if self.calls is not None:
            extraction = {"calls": self.calls, "prompt_tokens": self.prompt_tokens, "completion_tokens": self.completion_tokens.whole()}
            kinds = {kind: calls.whole() for kind, calls in self.by_kind.items()}
            rest = {"calls": self.rest_calls.whole(), "tokens": self.rest_tokens.whole(), "by_kind": kinds}
        minutes = [math.floor(self.minutes.low * 10) / 10, math.ceil(self.minutes.high * 10) / 10] if self.minutes else None
        return {
            "changes": asdict(self.changes), "documents": self.documents, "chunks": self.chunks, "extraction": extraction, "rest": rest,
            "minutes": minutes, "notes": list(self.notes), "failures": list(self.failures), **({"sample": self.sample} if self.sample else {}),
        }  # fmt: skip


async def forecast(project: ProjectFolder, make: MakeProgress, order: Order | None = None) -> Forecast:
    """What `index` with this order would do; nothing is asked and nothing written."""
    order = order or Order()
    with make(Usage, _no_log) as progress:
        try:
            fast = project.settings.extraction.method == "fast"
            side = await (open_no_model(project, None, progress.say) if fast else open_model_side(project, None, progress.say, answers=False))
        except UsageError:
            raise
        except GraphragError as error:
            return await _changes_only(project, order, progress, error)
        try:
            return costed(await look(project, order, side, progress))
        finally:
            await side.close()


async def estimate(project: ProjectFolder, make: MakeProgress, sample: int, order: Order | None = None) -> Forecast:
    """The same before the first run, or before a large change: with what the model says about `sample` chunks of those that are new.

    Their replies are kept, and `index` does not pay for them again. Raises IndexBusy while a build is going on. A sample of 0 asks and writes nothing.
    """
    order = order or Order()
    if sample < 0:
        raise UsageError(f"A sample of {sample} chunks cannot be drawn.", hint="Give 0 to ask nothing, or a few chunks.")
    if sample == 0 or project.settings.extraction.method == "fast":
        return await forecast(project, make, order)
    with BuildLock(project.index), Ledger.open(project.index / "ledger.sqlite") as ledger:
        sides: list[ModelSide] = []
        with make(lambda: sides[0].meter.total if sides else Usage(), _no_log) as progress:
            side = await open_model_side(project, ledger, progress.say, retry_failed=order.retry_failed)
            sides.append(side)
            try:
                looked = await look(project, order, side, progress)
                drawn = choose(looked, sample)
                return costed(looked, await read_sample(looked, drawn, ledger, progress))
            finally:
                await side.close()


def _no_log(*_: Any, **__: Any) -> None:
    """Nothing is written down."""


async def _changes_only(project: ProjectFolder, order: Order, progress: Progress, error: GraphragError) -> Forecast:
    card = ModelCard(name="", revision="", context_tokens=2**20, form="grammar")
    ledgered = Ledgered(Unasked(card, Estimate()), None)
    model = Model(generate=ledgered.generate, card=card, counter=Estimate())
    side = ModelSide(model=model, embedder=NoEmbedder(), ledgered=ledgered, meter=ledgered.meter, kind="none")
    found = costed(await look(project, order, side, progress, compared=False))
    why = f"The model cannot be opened ({str(error).rstrip('.')}), so it is not known what would be asked."
    return replace(found, calls=None, minutes=None, notes=(why, error.hint) if error.hint else (why,))


def costed(looked: Looked, sampled: Sampled | None = None) -> Forecast:
    """The forecast of a run that asked nobody; chunks of a sample are paid for."""
    settings, snapshot = looked.project.settings, looked.built.snapshot
    done = sampled.chunks if sampled else frozenset()
    missed = [one for one in looked.unasked.of("extraction") if done.isdisjoint(one.about)]
    completion = _completion(looked, missed, sampled)
    reach = Reach(snapshot, looked.unasked, settings, looked.reports(), looked.side.model.counter.count, fresh=not looked.has_index)
    by_kind = reach.calls()
    rest = _later_tokens(looked, by_kind, completion, missed, sampled, is_blind=reach.is_blind)
    prompt, template = _prompts(missed)
    tokens = Interval(prompt, prompt + template) + completion + rest
    speed = _speed(looked, sampled)
    minutes = speed.minutes(tokens, CHAIN if missed or any(calls.high for calls in by_kind.values()) else 0) if speed else None
    failures = [*(row for row in snapshot.failures if row.stage == "documents"), *(sampled.failures if sampled else ())]
    return Forecast(
        changes=looked.built.changes,
        documents=len(snapshot.documents),
        chunks=len(snapshot.chunks),
        calls=len(missed),
        prompt_tokens=prompt,
        completion_tokens=completion,
        by_kind=by_kind,
        rest_tokens=rest,
        minutes=minutes,
        notes=(*looked.notes, *_about(looked, speed, reach)),
        failures=tuple({"stage": row.stage, "input": row.input, "reason": row.reason} for row in failures),
        sample=sampled.summary() if sampled else None,
    )


def _about(looked: Looked, speed: Speed | None, reach: Reach) -> list[str]:
    """What people should know about the figures."""
    notes = []
    if looked.side.model.card.absent:
        took = "the time of the spaCy pipeline, which has just been spent once," if looked.side.model.tagger else "about a second for every 100 KB of text,"
        return [f"No model is asked (extraction.method is fast): {took} and the time of an embedder."]
    if not looked.side.model.counter.exact:
        notes.append(f"Tokens are counted by a {looked.side.model.counter.name}, not by the model's own tokenizer.")
    if not reach.is_certain:
        notes.append("What comes after extraction depends on replies that are not there yet, so its figures are the least and the most.")
    if speed is None:
        notes.append("How long it takes is not known: this index holds no reply of this model that says how fast it is.")
    else:
        notes.append(f"Minutes are at the speed of {speed.source}; reading files and embedding are not in them.")
    return notes


# --- tokens


def _prompts(missed: list[Missed]) -> tuple[int, int]:
    """Tokens of the text of some requests, and those that a chat template adds at most."""
    return sum(one.prompt_tokens for one in missed), sum(one.template_tokens for one in missed)


def _completion(looked: Looked, missed: list[Missed], sampled: Sampled | None) -> Interval:
    """Reply tokens of missing extractions: as in the sample, else as in earlier replies of this model, else by the share of other builds."""
    if not missed:
        return NOTHING
    most = sum(one.max_tokens for one in missed)
    if sampled and sampled.replies:
        found = from_sample(sampled.replies, len({one.about[0] for one in missed}))
    elif (earlier := looked.history.get("extract")) and earlier.calls >= ENOUGH and looked.project.settings.extraction.gleaning == "reply":
        prompts, replies = Spread.of_sums(earlier.calls, *earlier.prompt), Spread.of_sums(earlier.calls, *earlier.completion)
        new = [one.prompt_tokens + one.template_tokens / 2 for one in missed]
        found = replies.sum_of(len(missed)) if looked.is_redone else along(prompts, replies, earlier.products, new)  # prompts of one kind only
    else:
        texts = {chunk.id: chunk.text for chunk in looked.built.snapshot.chunks}
        tokens = sum(size(texts[key]) for key in {one.about[0] for one in missed})
        found = Interval(tokens, tokens).times(REPLY_SHARE * REPLY_WIDE[0], REPLY_SHARE * REPLY_WIDE[1])
    return Interval(min(found.low, most), min(found.high, most))


def _later_tokens(looked: Looked, calls: dict[Kind, Interval], completion: Interval, missed: list[Missed], sampled: Sampled | None, *, is_blind: bool) -> Interval:
    """Prompt and reply tokens of everything after extraction's first turns."""
    total = NOTHING
    earlier = looked.history.get("extract")
    paid = (earlier.prompt[0] + earlier.completion[0] if earlier else 0) + (sampled.paid if sampled else 0)
    prompt = sum(_prompts(missed)) + paid
    for kind, number in calls.items():
        if is_blind and kind in SHARES:
            share = Interval(prompt + completion.low, prompt + completion.high).times(SHARES[kind] * WIDE[0], SHARES[kind] * WIDE[1])
            total += Interval(share.low if number.low else 0.0, share.high if number.high else 0.0)
        else:
            total += _tokens_of_calls(looked, kind, number)
    return total


def _tokens_of_calls(looked: Looked, kind: Kind, calls: Interval) -> Interval:
    """Of so many calls of one kind: prompts that are known as they are, the rest as earlier ones of this model, else as large as the settings let them be."""
    largest, reply, purpose = _largest(looked, kind)
    known = looked.unasked.of(kind)
    sizes = sorted(one.prompt_tokens for one in known)
    low, high = int(calls.low), int(calls.high)
    more = max(0, high - len(sizes))
    earlier = looked.history.get(purpose)
    if earlier is None or earlier.calls < ENOUGH or kind == "gleaning":
        prompts, replies = float(more * largest), float(high * reply)
    else:
        prompts = Spread.of_sums(earlier.calls, *earlier.prompt).sum_of(more).high
        replies = Spread.of_sums(earlier.calls, *earlier.completion).sum_of(high).high
    return Interval(sum(sizes[:low]) + low, sum(_prompts(known)) + prompts + replies)


def _largest(looked: Looked, kind: Kind) -> tuple[int, int, str]:
    """The most tokens of a prompt and of a reply of a kind, by the settings, and its purpose in the ledger."""
    settings = looked.project.settings
    window = looked.side.model.card.context_tokens
    extraction = settings.extraction.max_reply_tokens
    sizes: dict[Kind, tuple[int, int, str]] = {
        "gleaning": (max((one.prompt_tokens for one in looked.unasked.missed), default=0) + 2 * extraction + BESIDE, extraction, "extract"),
        "canonical names": (2 * BESIDE, CANONICAL_REPLY, "describe"),
        "descriptions": (settings.describe.group_tokens + BESIDE, settings.describe.max_reply_tokens, "describe"),
        "reports": (settings.reports.context_tokens + BESIDE, settings.reports.max_reply_tokens, "report"),
    }
    prompt, reply, purpose = sizes[kind]
    return min(prompt, window or prompt), reply, purpose


# --- time


def _speed(looked: Looked, sampled: Sampled | None) -> Speed | None:
    """As in the build that asked most, else as in the sample, else as single calls in the ledger took."""
    history = looked.history.values()
    calls, seconds = sum(one.calls for one in history), sum(one.seconds for one in history)
    tokens, call_s = sum(one.prompt[0] + one.completion[0] for one in history), seconds / calls if calls else 0.0
    together = at_once(looked.side.kind, looked.project.settings.engine)
    alone = speed_of_calls(tokens, seconds, call_s, together, f"single calls, up to {together} at once")
    if found := speed_of_builds(looked.builds, alone, together):
        return found
    if sampled and sampled.seconds and sampled.paid:
        drawn = min(len(sampled.chunks), together)
        return speed_of_calls(sampled.paid, sampled.seconds, sampled.seconds, together // drawn, f"the sample, {drawn} at once")
    return alone
