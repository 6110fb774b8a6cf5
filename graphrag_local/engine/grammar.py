"""Constraints as request fields of an OpenAI-compatible server.

The fields come from Outlines' own types and its adapter for vLLM, so that a change of the server's protocol is Outlines' business. Only the
portable form (`response_format`) is written here: every server knows it, and a constraint that it cannot hold is checked after decoding.
"""

import json
from functools import lru_cache
from typing import Any

from outlines.models.vllm import VLLMTypeAdapter
from outlines.types import CFG
from outlines.types import JsonSchema as OutlinesSchema

from graphrag_local.engine.base import Choice, Constraint, Form, FreeText, Grammar, JsonSchema

_ADAPTER = VLLMTypeAdapter()
# llguidance reads this key of a schema and writes compact JSON; a small model fills the white space it may use until its limit is
# reached. vLLM's own switch for it works for the whole server only, and other back ends skip a keyword that they do not know.
_COMPACT = {"x-guidance": {"whitespace_flexible": False}}


@lru_cache(maxsize=256)
def _fields(constraint: Constraint, form: Form) -> str:
    match constraint:
        case FreeText():
            return "{}"
        case Grammar(lark=lark):
            if form == "schema":
                raise TypeError("a grammar was sent to a server that takes JSON schemas only; the caller must choose by card.form")
            return json.dumps(_ADAPTER.format_output_type(CFG(lark)))
        case Choice(options=options) if form == "grammar":
            return json.dumps({"structured_outputs": {"choice": list(options)}})  # Outlines would say it as a regular expression
    schema = schema_for(constraint)
    fields = _ADAPTER.format_output_type(OutlinesSchema(schema | _COMPACT))
    if form == "schema":
        fields["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": True}}
    return json.dumps(fields)


def schema_for(constraint: Choice | JsonSchema) -> dict[str, Any]:
    """The JSON schema that a constraint means; a choice is an enum."""
    if isinstance(constraint, Choice):
        return {"type": "string", "enum": list(constraint.options)}
    value: dict[str, Any] = json.loads(constraint.text)
    return value


def request_fields(constraint: Constraint, form: Form) -> dict[str, Any]:
    """What a request body needs so that the reply obeys a constraint.

    "grammar": the field `structured_outputs` alone (vLLM 0.12 and newer). "schema": `response_format` and, for servers that know it,
    `structured_outputs` with the same schema. A grammar in the form "schema" raises TypeError: it is a mistake of the caller.
    """
    fields: dict[str, Any] = json.loads(_fields(constraint, form))
    return fields
