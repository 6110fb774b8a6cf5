"""What the model says: a `do` of the script and a chat request give one reply.

The content is `text` as it stands, or made to fit the request's constraint and then changed: `repeat_entity_times`, `damage`,
`before`/`after`, `close: false`, `cut_after_fraction`, `then_repeat`. Last, `max_tokens` cuts it, as a real server would.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.modelserver.damage import damaged
from tests.modelserver.filling import Filler, Wishes
from tests.modelserver.fixtures import Facts, facts_for, stated
from tests.modelserver.prompts import Prompt
from tests.modelserver.script import Script
from tests.modelserver.walk import walk, walk_regex

Form = Literal["schema", "choice", "grammar", "regex", "object", ""]
ROOM = (4000, 2000, 1000, 500, 250, 120, 60, 30)  # characters per piece of evidence, tried until the reply fits max_tokens


@dataclass(slots=True)
class Call:
    """One chat request as this server understands it. `form` and `constraint` are the kind and value of what it must fit."""

    purpose: str
    body: dict[str, Any]
    prompt: Prompt
    model: str
    form: Form = ""
    constraint: Any = None

    @property
    def max_tokens(self) -> int | None:
        """The room for the reply that the client asks for, if it says."""
        return self.body.get("max_completion_tokens") or self.body.get("max_tokens")


OnGrammar = Callable[[Call], str]


@dataclass(slots=True)
class ChatReply:
    """One choice of a completion, before it is put on the wire."""

    content: str
    finish_reason: str = "stop"
    reasoning: str = ""
    message: dict[str, Any] | None = None
    options: tuple[str, ...] = ()
    token_p: Mapping[str, float] = field(default_factory=dict)


def constraint_of(body: Mapping[str, Any]) -> tuple[Form, Any]:
    """What the request says the reply must fit, in either dialect."""
    form = body.get("response_format") or {}
    outputs = body.get("structured_outputs") or {}
    if form.get("type") == "json_schema":
        return "schema", form["json_schema"]["schema"]
    if outputs.get("json") is not None:
        schema = outputs["json"]
        return "schema", json.loads(schema) if isinstance(schema, str) else schema
    if outputs.get("choice") is not None:
        return "choice", tuple(outputs["choice"])
    if outputs.get("grammar") is not None:
        return "grammar", outputs["grammar"]
    if outputs.get("regex") is not None:
        return "regex", outputs["regex"]
    if form.get("type") == "json_object" or outputs.get("json_object"):
        return "object", None
    return "", None


def reply_to(call: Call, do: Mapping[str, Any], script: Script, on_grammar: OnGrammar | None = None) -> ChatReply:
    """The reply to one chat request under one `do`."""
    reply = ChatReply(content="", reasoning=do.get("reasoning_content", ""), token_p=do.get("token_p", {}))
    if call.form == "choice":
        reply.options = call.constraint
    if "message" in do:
        reply.message = {"role": "assistant", **do["message"]}
        reply.content = reply.message.get("content") or ""
    elif "text" in do:
        reply.content = do["text"]
    else:
        reply.content = _changed(_made(call, do, script, on_grammar), do)
        if call.max_tokens and call.form != "choice" and script.get("enforce_max_tokens", True):
            kept = script.count.cut(reply.content, call.max_tokens)
            if len(kept) < len(reply.content):
                reply.content, reply.finish_reason = kept, "length"
    reply.finish_reason = do.get("finish_reason", reply.finish_reason)
    return reply


def _made(call: Call, do: Mapping[str, Any], script: Script, on_grammar: OnGrammar | None) -> str:
    """The content before any change."""
    facts = facts_for(script.values, call.prompt) if call.purpose == "extract" else Facts()
    if do.get("reply") == "free":
        return _free(call, stated(do), int(do.get("repeat_entity_times", 1)))
    if call.form == "grammar" and on_grammar is not None:
        return on_grammar(call)
    text = ""
    for cap in ROOM[:1] if call.purpose == "extract" else ROOM:
        text = _filled(call, do, script, facts, cap)
        if not call.max_tokens or script.count.text(text) <= call.max_tokens:
            break
    return _repeated(text, do["repeat_entity_times"]) if "repeat_entity_times" in do else text


def _filled(call: Call, do: Mapping[str, Any], script: Script, facts: Facts, cap: int) -> str:
    wishes = Wishes(
        purpose=call.purpose, echo=do.get("reply") == "echo-evidence", answer_text=do.get("set_answer_text"),
        cite=_listed(do.get("cite")), token_p=do.get("token_p", {}), cap=cap,
    )  # fmt: skip
    filler = Filler(call.constraint if call.form == "schema" else {}, call.prompt, facts, wishes)
    match call.form:
        case "schema":
            return filler.text()
        case "choice":
            return str(filler.one_of(list(call.constraint)))
        case "grammar" if script.get("grammar", "ignore") == "walk":
            return walk(call.constraint, filler.sentence())
        case "regex":
            return walk_regex(call.constraint, filler.sentence())
        case "object":
            return json.dumps({"answer": filler.sentence(marked=True)}, ensure_ascii=False)
    if call.purpose == "extract":
        return _free(call, facts, 1)
    return filler.sentence(marked=True)


def _listed(value: Any) -> list[Any] | None:
    return value if value is None or isinstance(value, list) else [value]


def _free(call: Call, facts: Facts, times: int) -> str:
    """Entities and relations in the program's field names, whatever the schema says; the last entity stands `times` times."""
    entities = [
        {"name": entity.name, "type": entity.type, "description": entity.description, "sentences": call.prompt.sentences_with(entity.name)}
        for entity in facts.entities
    ]
    relationships = [
        {
            "source": relation.source + 1 or relation.source_name,
            "target": relation.target + 1 or relation.target_name,
            "description": relation.description,
            "strength": relation.weight,
            "sentences": call.prompt.sentences_with(relation.source_name, relation.target_name),
        }
        for relation in facts.relations
    ]
    value = {"entities": entities[:-1] + entities[-1:] * times, "relationships": relationships}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _repeated(text: str, times: int) -> str:
    """A valid extraction with its last entity so many times."""
    value = json.loads(text)
    value["entities"] = value["entities"][:-1] + value["entities"][-1:] * times
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _changed(text: str, do: Mapping[str, Any]) -> str:
    """The content after everything that the rule does to it."""
    if "damage" in do:
        text = damaged(text, do["damage"])
    text = do.get("before", "") + text + do.get("after", "")
    if do.get("close") is False:
        text = _unclosed(text)
    if "cut_after_fraction" in do:
        text = text[: int(len(text) * do["cut_after_fraction"])]
    if "then_repeat" in do:
        text += do["then_repeat"]["unit"] * int(do["then_repeat"]["times"])
    return text


def _unclosed(text: str) -> str:
    """A reply that stops inside its entity list, after the last complete entity; other texts lose their closing brackets."""
    end = text.find("],\"relationships\"")
    return text[:end] + "," if end > 0 else text.rstrip("]} \n")
