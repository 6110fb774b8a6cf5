"""A script: how the server behaves, as a JSON object. Unknown keys and words are errors, never ignored.

    rules       the first that fits a request decides: {on, when_prompt_has, when_model_is_not, calls, only_in_run, do}
    timeline    the same with from_s and to_s since the first request that is work; the last that fits decides, before any rule; with
                `meet` its time does not end before so many requests have met it, however slow the machine is
    do          what happens: see `DO_KEYS` and replies.py
    fixtures    what extraction finds: [{when_prompt_has, entities, relations, raw_json_strings}], see fixtures.py
    fixture_pattern, fixture_filter, raw_json_strings
    window_tokens, over_window, embed_limit_tokens, count, capacity, queue, tokenize, proxy_cache, models_body
    dimension, vector, embed_rules, embedders, swap   (also under `embeddings`)

Of our own: `model` (the chat model's name), `version`, `grammar` ("ignore", "walk" or "refuse"), `enforce_max_tokens` (true), and in a
`do` `token_p` (probabilities of alternatives, for log-probabilities and for what a choice or an enum takes) and `hold` (true: the request
keeps its place until the test says `release`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.modelserver.prompts import Prompt
from tests.modelserver.sizes import TokenCount

WORK = ("extract", "describe", "report", "answer", "support", "embed")
PURPOSES = (*WORK, "models", "health", "tokenize", "probe")
TOP_KEYS = frozenset(
    "about note rules timeline fixtures fixture_pattern fixture_filter raw_json_strings window_tokens over_window embed_limit_tokens count "
    "capacity queue tokenize proxy_cache models_body embeddings dimension vector embed_rules embedders swap model version grammar "
    "enforce_max_tokens".split()
)
RULE_KEYS = frozenset("about note on when_prompt_has when_model_is_not calls only_in_run from_s to_s meet health do".split())
DO_KEYS = frozenset(
    "about note reply entities relations text message body status headers drop after_bytes refuse_connection hang_s before after damage "
    "cut_after_fraction then_repeat repeat_entity_times close set_answer_text cite reasoning_content finish_reason delay_s delay_s_by_text "
    "tokens_per_s token_p hold".split()
)
REPLIES = ("valid", "free", "echo-evidence")


class ScriptError(ValueError):
    """The script says something that this server does not know."""


@dataclass(slots=True)
class Rule:
    """One rule, and how many requests have fitted everything in it but `calls` and `only_in_run`, or have met it in the timeline."""

    label: str
    on: tuple[str, ...]
    do: Mapping[str, Any]
    when_prompt_has: str = ""
    when_model_is_not: str = ""
    calls: tuple[int, float] = (1, float("inf"))
    runs: tuple[int, ...] = ()
    from_s: float = 0.0
    to_s: float = float("inf")
    meet: int = 0
    health: int | None = None
    count: int = field(default=0)

    def fits(self, purpose: str, prompt: Prompt, model: str) -> bool:
        """Whether a request is of the kind the rule is about."""
        of_kind = purpose in self.on or ("any" in self.on and purpose not in ("models", "health"))
        return of_kind and prompt.has(self.when_prompt_has) and (not self.when_model_is_not or model != self.when_model_is_not)


def run_number(run: int | str) -> int:
    """Runs are numbered from 1 or lettered from A."""
    text = str(run)
    return int(text) if text.isdigit() else ord(text.upper()) - ord("A") + 1


def _checked(what: str, given: Mapping[str, Any], known: frozenset[str]) -> None:
    unknown = sorted(set(given) - known)
    if unknown:
        raise ScriptError(f"{what}: unknown {', '.join(unknown)}")


def _calls(text: str | int) -> tuple[int, float]:
    first, dash, last = str(text).partition("-")
    return int(first), float(last) if last else float("inf") if dash else int(first)


def _rule(label: str, given: Mapping[str, Any]) -> Rule:
    _checked(label, given, RULE_KEYS)
    do = given.get("do", {})
    _checked(f"{label}, do", do, DO_KEYS)
    if do.get("reply", "valid") not in REPLIES:
        raise ScriptError(f"{label}: unknown reply {do['reply']!r}")
    on = given.get("on", "any")
    kinds = (on,) if isinstance(on, str) else tuple(on)
    if not set(kinds) <= {*PURPOSES, "any"}:
        raise ScriptError(f"{label}: unknown kind of request {on!r}")
    runs = given.get("only_in_run", [])
    return Rule(
        label=label,
        on=kinds,
        do=do,
        when_prompt_has=given.get("when_prompt_has", ""),
        when_model_is_not=given.get("when_model_is_not", ""),
        calls=_calls(given.get("calls", "1-")),
        runs=tuple(run_number(run) for run in (runs if isinstance(runs, list) else [runs])),
        from_s=given.get("from_s", 0.0),
        to_s=given.get("to_s", float("inf")),
        meet=given.get("meet", 0),
        health=given.get("health"),
    )


class Script:
    """A script being played: what it says, and how far it has got."""

    def __init__(self, given: Mapping[str, Any] | str | Path) -> None:
        values = json.loads(Path(given).read_text(encoding="utf-8")) if isinstance(given, str | Path) else dict(given)
        values |= values.pop("embeddings", {})
        _checked("script", values, TOP_KEYS)
        self.values: dict[str, Any] = values
        self.rules = [_rule(f"rule {number}", rule) for number, rule in enumerate(values.get("rules", []), 1)]
        self.timeline = [_rule(f"timeline {number}", rule) for number, rule in enumerate(values.get("timeline", []), 1)]
        self.model: str = values.get("model", "local-model")
        self.window: int = values.get("window_tokens", 0)
        self.count = TokenCount(**values.get("count", {}))

    def get(self, key: str, default: Any = None) -> Any:
        """One top-level value."""
        return self.values.get(key, default)

    def choose(self, purpose: str, prompt: Prompt, model: str, run: int, elapsed: float) -> tuple[str, Mapping[str, Any]]:
        """Which rule a request meets and what it says to do; `elapsed` is in seconds of the script.

        Requests that the timeline answers do not count for the rules. A probe meets only the faults of the timeline.
        """
        entry = self._moment(purpose, prompt, model, run, elapsed)
        if entry is not None:
            entry.count += 1
        if purpose == "probe":
            return (entry.label, entry.do) if entry and entry.do.get("reply") is None else ("", {})
        if entry is not None:
            return entry.label, entry.do
        chosen: tuple[str, Mapping[str, Any]] = ("", {})
        for rule in self.rules:
            if rule.fits(purpose, prompt, model):
                rule.count += 1
                low, high = rule.calls
                if not chosen[0] and low <= rule.count <= high and (not rule.runs or run in rule.runs):
                    chosen = (rule.label, rule.do)
        return chosen

    def _moment(self, purpose: str, prompt: Prompt, model: str, run: int, elapsed: float) -> Rule | None:
        kind = "extract" if purpose == "probe" else purpose
        now = [rule for rule in self.timeline if rule.from_s <= elapsed < rule.to_s and (not rule.runs or run in rule.runs)]
        return next((rule for rule in reversed(now) if rule.fits(kind, prompt, model)), None)

    def stops_at(self, elapsed: float) -> float | None:
        """Where the clock is to stand still because an entry of the timeline has not been met often enough before its end."""
        return min((rule.to_s for rule in self.timeline if rule.count < rule.meet and rule.to_s <= elapsed), default=None)

    def health(self, elapsed: float) -> int:
        """The status of the health page and of the model list: what the timeline says, else its 5xx, else 200."""
        now = [rule for rule in self.timeline if rule.from_s <= elapsed < rule.to_s]
        if not now:
            return 200
        status = int(now[-1].do.get("status", 200))
        return now[-1].health or (status if status >= 500 else 200)

    def refuses(self, elapsed: float) -> bool:
        """Whether the port is closed to everybody at this moment."""
        now = [rule for rule in self.timeline if rule.from_s <= elapsed < rule.to_s]
        return bool(now) and bool(now[-1].do.get("refuse_connection")) and "any" in now[-1].on

    @property
    def ever_refuses(self) -> bool:
        """Whether the timeline closes the port at all."""
        return any(rule.do.get("refuse_connection") for rule in self.timeline)

    def embedder(self, model: str, run: int) -> Mapping[str, Any] | None:
        """How a model embeds in this run; None for a name this server does not have."""
        named = self.values.get("embedders")
        if named is None:
            return self.values
        swap = self.values.get("swap", {})
        if swap and model == swap["name"] and run >= run_number(str(swap["when"]).split()[-1]):
            model = swap["now_behaves_like"]
        found: Mapping[str, Any] | None = named.get(model)
        return found
