"""Constraints as request fields."""

import json

import llguidance
import pytest

from graphrag_local.engine.base import Choice, FreeText, Grammar, schema_of
from graphrag_local.engine.grammar import request_fields

SCHEMA = {"type": "object", "properties": {"größe": {"enum": ["麦", "b"]}}, "required": ["größe"]}


def test_grammar_form_uses_the_servers_own_fields():
    """A grammar, a choice and a schema each go into structured_outputs and nowhere else."""
    assert request_fields(Grammar(lark='start: "a"'), "grammar") == {"structured_outputs": {"grammar": 'start: "a"'}}
    assert request_fields(Choice(options=("Y", "N")), "grammar") == {"structured_outputs": {"choice": ["Y", "N"]}}
    fields = request_fields(schema_of(SCHEMA), "grammar")
    assert list(fields) == ["structured_outputs"]
    assert fields["structured_outputs"]["json"]["properties"] == SCHEMA["properties"]


def test_schema_form_says_it_twice():
    """A schema goes out as response_format, which everybody knows, and as structured_outputs; a choice is an enum at the root."""
    fields = request_fields(schema_of(SCHEMA), "schema")
    assert fields["response_format"] == {"type": "json_schema", "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True}}
    assert fields["structured_outputs"]["json"]["required"] == ["größe"]
    assert request_fields(Choice(options=("Y", "N")), "schema")["response_format"]["json_schema"]["schema"] == {"type": "string", "enum": ["Y", "N"]}


def test_free_text_needs_nothing():
    """Free text has no fields in either form."""
    assert request_fields(FreeText(), "grammar") == request_fields(FreeText(), "schema") == {}


def test_a_grammar_for_a_schema_server_is_a_mistake():
    """A grammar in the schema form raises TypeError, since the caller should have chosen by card.form."""
    with pytest.raises(TypeError, match=r"card\.form"):
        request_fields(Grammar(lark='start: "a"'), "schema")


def test_schemas_forbid_white_space():
    """The schema that goes into structured_outputs makes llguidance write compact JSON, even where the server allows white space."""
    schema = json.dumps(request_fields(schema_of(SCHEMA), "grammar")["structured_outputs"]["json"])
    grammar = llguidance.LLMatcher.grammar_from_json_schema(schema, defaults={"whitespace_flexible": True})

    def takes(text: str) -> bool:
        return llguidance.LLMatcher(llguidance.LLTokenizer("byte"), grammar).consume_tokens(list(text.encode()))

    assert takes('{"größe":"麦"}')
    assert not takes('{ "größe":"麦"}')


def test_fields_are_not_shared():
    """Changing the fields of one request does not change those of the next."""
    request_fields(Choice(options=("Y", "N")), "grammar")["structured_outputs"]["choice"].append("Z")
    assert request_fields(Choice(options=("Y", "N")), "grammar")["structured_outputs"]["choice"] == ["Y", "N"]
