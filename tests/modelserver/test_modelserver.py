"""The test server itself: what it answers. How it fails and how long it takes is in test_modelserver_faults.py."""

import base64
import hashlib
import json
import math
import struct

import httpx
import llguidance
import pytest

from tests.modelserver import ModelServer, Script, ScriptError
from tests.modelserver.damage import damaged
from tests.modelserver.fixtures import matched
from tests.modelserver.prompts import Prompt

CLIENT = httpx.Client(timeout=300)
PASSAGE = "<text>[1] Anton Vik runs the Gull Mill. [2] The mill grinds rye. [3] Berta Sol paints\nthe Gull Mill.</text>"
EVIDENCE = "<text>\n[E1] Gull Mill (place): grinds rye.\n[E2] Anton Vik (person): runs the mill.\n[R1] Anton Vik -> Gull Mill: runs\n</text>\nWho?"
PATTERN = {"entities": ["[A-Z][a-z]+ (?:Vik|Sol)", "Gull Mill"], "types": ["person", "place"], "relate": "within-sentence", "description": "sentence"}
NUMBERS = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 3}, "minItems": 1, "maxItems": 2}


@pytest.fixture(scope="module", autouse=True)
def _closing():
    """The connections go with the tests."""
    yield
    CLIENT.close()


def objects(**properties):
    """The schema of a list of up to nine objects."""
    return {"type": "array", "maxItems": 9, "items": obj(**properties)}


def obj(**properties):
    """The schema of an object with exactly these properties."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


TEXT = {"type": "string", "minLength": 1}
SCORE = {"type": "integer", "minimum": 1, "maximum": 10}
EXTRACTION = obj(
    entities=objects(name=TEXT, type={"enum": ["person", "event", "other"]}, description=TEXT, sentences=NUMBERS),
    relationships=objects(source={"type": "integer"}, target={"type": "integer"}, description=TEXT, strength=SCORE, sentences=NUMBERS),
    missed={"enum": ["Y", "N"]},
    more_entities=objects(name=TEXT),
)
IDS = {"type": "array", "items": {"enum": ["E1", "E2", "R1"]}, "minItems": 1, "maxItems": 2}
REPORT = obj(
    title={"type": "string", "maxLength": 40}, rating={"type": "number", "minimum": 0, "maximum": 10},
    findings={**objects(summary=TEXT, sources=IDS, more={"type": "boolean"}), "minItems": 2},
)  # fmt: skip
ANSWER = obj(sentences=objects(text=TEXT, cites=IDS), score={"type": "integer", "minimum": 0, "maximum": 100})


def fits(schema, text):
    """Whether a text is a sentence of the schema, by the judgement of the library that masks in a real server."""
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    return matcher.consume_tokens(list(text.encode())) and matcher.is_accepting()


def post(server, purpose, prompt="Say something.", *, path="/chat/completions", **body):
    """The response to one request."""
    body = {"model": "local-model", "messages": [{"role": "user", "content": prompt}], **body}
    return CLIENT.post(server.url + path, json=body, headers={"X-Graphrag-Purpose": purpose})


def said(server, purpose, prompt="Say something.", *, schema=None, **body):
    """The content of the reply to one chat request."""
    if schema is not None:
        body["structured_outputs"] = {"json": schema}
    return post(server, purpose, prompt, **body).json()["choices"][0]["message"]["content"]


def rules(*rules_, **rest):
    """A script of these rules."""
    return {"rules": list(rules_), **rest}


def test_pages_look_like_a_vllm_server():
    """Health, version, the model list with its window, and the busy figures of the metrics page are there."""
    with ModelServer({"window_tokens": 900, "model": "m"}) as server:
        assert CLIENT.get(server.root + "/health").status_code == 200
        assert CLIENT.get(server.root + "/version").json() == {"version": "0.32.0"}
        assert CLIENT.get(server.url + "/models").json()["data"][0]["max_model_len"] == 900
        assert 'vllm:num_requests_waiting{engine="0",model_name="m"} 0.0' in CLIENT.get(server.root + "/metrics").text
        assert CLIENT.get(server.root + "/nowhere").status_code == 404
        assert [r["purpose"] for r in CLIENT.get(server.root + "/_log").json()] == ["health", "health", "models", "metrics", ""]


def test_extraction_is_filled_from_patterns():
    """An extraction fits its schema: unknown types become other, ends are numbers, and sentences are those that hold the names."""
    with ModelServer({"fixture_pattern": PATTERN}) as server:
        text = said(server, "extract", PASSAGE, schema=EXTRACTION)
        log = server.requests("extract")
    value = json.loads(text)
    assert fits(EXTRACTION, text)
    assert [(e["name"], e["type"], e["sentences"]) for e in value["entities"]] == [
        ("Anton Vik", "person", [1]), ("Gull Mill", "other", [1, 3]), ("Berta Sol", "person", [3]),
    ]  # fmt: skip
    assert [(r["source"], r["target"], r["sentences"]) for r in value["relationships"]] == [(1, 2, [1]), (2, 3, [3])]
    assert value["entities"][2]["description"] == "Berta Sol paints the Gull Mill."
    assert value["missed"] == "N"
    assert value["more_entities"] == []
    assert log[0].prompt == PASSAGE
    assert log[0].prompt_tokens == math.ceil(len(PASSAGE) / 4)
    assert log[0].reply == text


@pytest.mark.parametrize(
    ("relate", "pairs"),
    [
        ("none", []),
        ("chain", [("B1", "A1"), ("A1", "A2"), ("A2", "B2")]),
        ("first-to-second", [("A1", "B1")]),
        ("first-to-each-other", [("A1", "A2"), ("A1", "B1"), ("A1", "B2")]),
        ("within-sentence", [("B1", "A1"), ("A2", "B2")]),
    ],
)
def test_ways_to_relate(relate, pairs):
    """Matches are related as the script says, by order of appearance or of pattern."""
    prompt = Prompt([{"role": "user", "content": "<text>B1 met A1. A2 met B2.</text>"}])
    facts = matched({"entities": [r"A\d", r"B\d"], "relate": relate}, prompt)
    assert [(r.source_name, r.target_name) for r in facts.relations] == pairs


def test_fixtures_come_before_patterns():
    """The first fixture whose text is in the document part decides; without one, and in a second round, the lists are empty."""
    mill = {"when_prompt_has": "grinds rye", "entities": [{"name": "Gull Mill", "type": "event"}, {"name": "Ghost", "type": "person"}]}
    with ModelServer({"fixtures": [mill], "fixture_filter": True}) as server:
        assert [e["name"] for e in json.loads(said(server, "extract", PASSAGE, schema=EXTRACTION))["entities"]] == ["Gull Mill"]
        elsewhere = "The mill grinds rye.\n<text>[1] Nothing.</text>"
        assert json.loads(said(server, "extract", elsewhere, schema=EXTRACTION))["entities"] == []
        turns = [{"role": "user", "content": PASSAGE}, {"role": "assistant", "content": "{}"}, {"role": "user", "content": "More?"}]
        assert json.loads(said(server, "extract", messages=turns, schema=EXTRACTION))["entities"] == []
        assert said(server, "extract", structured_outputs={"choice": ["Y", "N"]}) == "N"


def test_raw_strings_stay_raw():
    """Raw JSON strings go between quotes as they stand, escapes included, and relations still find their ends."""
    fixture = {
        "when_prompt_has": "rye", "raw_json_strings": True,
        "entities": [{"name": "A\\u0001 \\frac", "type": "person", "description": "x"}, {"name": "B", "type": "event", "description": "y"}],
        "relations": [{"source": "A\\u0001 \\frac", "target": "B", "description": "\\beta"}],
    }  # fmt: skip
    with ModelServer({"fixtures": [fixture]}) as server:
        text = said(server, "extract", PASSAGE, schema=EXTRACTION)
    assert '"name":"A\\u0001 \\frac"' in text
    assert json.loads(text)["entities"][0]["name"] == "A\x01 \x0crac"
    assert [(r["source"], r["target"], r["description"]) for r in json.loads(text)["relationships"]] == [(1, 2, "\beta")]


def test_reports_and_answers_fit_their_schema():
    """A report names the members and cites the ids it was given; an answer cites the first and gives itself the best score."""
    with ModelServer() as server:
        report = said(server, "report", EVIDENCE, schema=REPORT)
        answer = said(server, "answer", EVIDENCE, response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": ANSWER}})
        same = said(server, "describe", EVIDENCE, schema=obj(same=objects(name=TEXT)))
        free = said(server, "describe", "<text>\n- Runs a mill.\n- Bakes.\n- Runs a mill.\n</text>")
    assert fits(REPORT, report)
    assert fits(ANSWER, answer)
    assert json.loads(report)["title"] == "About Gull Mill, Anton Vik."
    assert [f["sources"] for f in json.loads(report)["findings"]] == [["E1"], ["E2"]]
    assert json.loads(answer) == {"sentences": [{"text": "Gull Mill (place): grinds rye.", "cites": ["E1"]}], "score": 100}
    assert json.loads(same) == {"same": []}
    assert free == "Runs a mill. Bakes."


def test_answers_as_the_rule_wants_them():
    """An answer can repeat its evidence, say a given text, cite given ids (by place in the prompt) or ids never sent."""
    script = rules(
        {"on": "answer", "calls": "1", "do": {"reply": "echo-evidence"}},
        {"on": "answer", "calls": "2", "do": {"reply": "valid", "set_answer_text": "Nobody.", "cite": [2, "S9"]}},
        {"on": "answer", "calls": "3-", "do": {"reply": "echo-evidence"}},
    )
    with ModelServer(script) as server:
        echoed = said(server, "answer", EVIDENCE, schema=ANSWER)
        wanted = said(server, "answer", EVIDENCE, schema=ANSWER)
        free = said(server, "answer", EVIDENCE)
        small = said(server, "answer", EVIDENCE, schema=ANSWER, max_tokens=40)
    assert fits(ANSWER, echoed)
    assert [(s["text"], s["cites"]) for s in json.loads(echoed)["sentences"]] == [
        ("Gull Mill (place): grinds rye.", ["E1"]), ("Anton Vik (person): runs the mill.", ["E2"]), ("Anton Vik -> Gull Mill: runs", ["R1"]),
    ]  # fmt: skip
    assert json.loads(wanted)["sentences"] == [{"text": "Nobody.", "cites": ["E2", "S9"]}]
    assert free.startswith("Gull Mill (place): grinds rye. [E1] Anton Vik")
    assert fits(ANSWER, small) or len(small) == 160


def test_choices_carry_their_probabilities():
    """A choice is one token whose alternatives are the other options; the script can say how likely each is."""
    script = rules({"on": "answer", "calls": "2", "do": {"reply": "valid", "token_p": {"Y": 0.3, "N": 0.7}}})
    ask = {"structured_outputs": {"choice": ["Y", "N"]}, "logprobs": True, "top_logprobs": 5, "max_tokens": 1}
    with ModelServer(script) as server:
        first, second = (post(server, "answer", **ask).json()["choices"][0] for _ in range(2))
        grade = said(server, "answer", structured_outputs={"choice": ["0", "1", "2"]})
        by_id = post(server, "answer", **ask, logprob_token_ids=[ord("Q")]).json()["choices"][0]["logprobs"]["content"][0]
    assert first["message"]["content"] == "Y"
    assert second["message"]["content"] == "N"
    top = {one["token"]: math.exp(one["logprob"]) for one in second["logprobs"]["content"][0]["top_logprobs"]}
    assert top == pytest.approx({"N": 0.7, "Y": 0.3})
    assert grade == "2"
    assert by_id["top_logprobs"][-1]["token"] == "Q"


def test_grammars_are_ignored_walked_refused_or_answered_by_the_test():
    """The script says what happens to a grammar; a callable of the test goes before that; a regular expression is always obeyed."""
    ask = {"structured_outputs": {"grammar": 'start: line+ "MISSED " ("N" | "Y")\nline: "E " TEXT "\\n"\nTEXT: /[^"\\\\\\x00-\\x1F\\x7F]+/'}}
    with ModelServer() as server:
        assert said(server, "probe", "Rye is milled.", **ask) == "Rye is milled."
        assert said(server, "answer", structured_outputs={"regex": "[a-c]{3}!"}) == "abc!"
        server.set_script({"grammar": "walk"})
        assert said(server, "probe", "Rye is milled.", **ask) == "E Rye is milled.\nMISSED N"
        server.set_script({"grammar": "refuse"})
        assert post(server, "probe", **ask).status_code == 400
    with ModelServer(on_grammar=lambda call: f"{call.purpose}: {call.constraint[:5]}") as server:
        assert said(server, "extract", **ask) == "extract: start"


@pytest.mark.parametrize(
    ("words", "spoiled"),
    [
        ("insert a comma before the last closing brace", '{"a":"} 1","ids":["E1","E2"],"n":7,}'),
        ("put the bare word +more as last element of the first list", '{"a":"} 1","ids":["E1","E2",+more],"n":7}'),
        ('replace the first number by the string "8/10"', '{"a":"} 1","ids":["E1","E2"],"n":"8/10"}'),
    ],
)
def test_damage_in_words(words, spoiled):
    """Damages are known by their words and leave the inside of strings alone."""
    assert damaged('{"a":"} 1","ids":["E1","E2"],"n":7}', words) == spoiled


def test_replies_that_ignore_the_schema_or_never_end():
    """Fences and chatter, a cut with endless blanks, one entity again and again: as the rule says, and max_tokens ends it."""
    entity = {"name": "Gull Mill", "type": "castle", "description": "A mill."}
    script = rules(
        {"on": "extract", "calls": "1", "do": {"reply": "valid", "before": "```json\n", "after": "\n```"}},
        {"on": "extract", "calls": "2", "do": {"reply": "valid", "cut_after_fraction": 0.4, "then_repeat": {"unit": "\n  ", "times": 900}}},
        {"on": "extract", "calls": "3", "do": {"reply": "free", "entities": [entity], "repeat_entity_times": 40, "close": False}},
        {"on": "extract", "calls": "4", "do": {"reply": "valid", "repeat_entity_times": 5, "finish_reason": "length"}},
        fixture_pattern=PATTERN,
    )
    with ModelServer(script) as server:
        fenced, blanks, loop, five = (post(server, "extract", PASSAGE, structured_outputs={"json": EXTRACTION}, max_tokens=n) for n in (500,) * 4)
    contents = [reply.json()["choices"][0]["message"]["content"] for reply in (fenced, blanks, loop, five)]
    assert contents[0].startswith("```json\n{")
    assert "\n  " * 300 in contents[1]
    assert len(contents[1]) == 2000
    assert blanks.json()["choices"][0]["finish_reason"] == "length"
    assert contents[2].count('"castle"') > 10
    assert not contents[2].endswith("}]}")
    assert [e["name"] for e in json.loads(contents[3])["entities"]].count("Berta Sol") == 5
    assert five.json()["choices"][0]["finish_reason"] == "length"


def test_replies_written_out_in_full():
    """Content, message, thoughts, body and status can be given as they stand."""
    script = rules(
        {"on": "report", "calls": "1", "do": {"text": "[]"}},
        {"on": "report", "calls": "2", "do": {"message": {"content": None, "tool_calls": []}}},
        {"on": "report", "calls": "3", "do": {"text": "", "reasoning_content": "Hm.", "finish_reason": "length"}},
        {"on": "report", "calls": "4", "do": {"body": "<html>"}},
        {"on": "report", "calls": "5-", "do": {"status": 404, "body": {"error": {"message": "gone"}}}},
    )
    with ModelServer(script) as server:
        replies = [post(server, "report") for _ in range(6)]
        assert [record.status for record in server.log] == [200, 200, 200, 200, 404, 404]
    messages = [reply.json()["choices"][0]["message"] for reply in replies[:3]]
    assert messages[0]["content"] == "[]"
    assert messages[1] == {"role": "assistant", "content": None, "tool_calls": []}
    assert messages[2]["reasoning"] == "Hm."
    assert replies[3].text == "<html>"
    assert replies[4].json()["error"]["message"] == "gone"


def streamed(server, purpose, prompt, **body):
    """The parsed events of a streamed completion, without the closing mark."""
    reply = post(server, purpose, prompt, stream=True, **body)
    lines = [line.removeprefix("data: ") for line in reply.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_stream_says_what_a_whole_reply_says():
    """Streamed pieces join to the whole reply, with log-probabilities per piece and the usage at the end."""
    ask = {"structured_outputs": {"json": ANSWER}, "logprobs": True, "top_logprobs": 2}
    with ModelServer() as server:
        whole = said(server, "answer", EVIDENCE, **ask)
        events = streamed(server, "answer", EVIDENCE, **ask, stream_options={"include_usage": True})
    choices = [event["choices"][0] for event in events[:-1]]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == whole
    assert "".join(one["token"] for choice in choices if choice["logprobs"] for one in choice["logprobs"]["content"]) == whole
    assert choices[-1]["finish_reason"] == "stop"
    assert events[-1]["usage"]["completion_tokens"] == math.ceil(len(whole) / 4)


def test_the_window_is_kept_by_the_servers_own_count():
    """Prompt and room over the window are refused in the script's words; /tokenize tells the count that the server uses."""
    script = {
        "window_tokens": 60, "count": {"han_char": 1, "other_chars_per_token": 3, "per_message": 8}, "tokenize": True,
        "over_window": {"status": 400, "body": {"error": {"message": "{window} < {total} = {prompt} + {room}", "code": 400}}},
    }  # fmt: skip
    messages = [{"role": "user", "content": "水車 ok!"}]
    with ModelServer(script) as server:
        counted = CLIENT.post(server.root + "/tokenize", json={"model": "m", "messages": messages}).json()
        refused = post(server, "answer", messages=messages, max_tokens=49)
        taken = post(server, "answer", messages=messages, max_tokens=48)
        server.set_script({"window_tokens": 60})
        default = post(server, "answer", "x" * 400)
        missing = CLIENT.post(server.root + "/tokenize", json={"prompt": "x"})
    assert (counted["count"], counted["max_model_len"]) == (12, 60)
    assert refused.json()["error"]["message"] == "60 < 61 = 12 + 49"
    assert taken.status_code == 200
    assert "maximum context length is 60 tokens" in default.json()["error"]["message"]
    assert missing.status_code == 404


def test_embeddings():
    """Vectors are bytes of the text's hash; several embedders, a swap in a later run, limits and rules are played."""
    script = {
        "embedders": {"a": {"dimension": 4, "vector": "sha256"}, "b": {"dimension": 4, "vector": "sha256 of reversed text"}},
        "swap": {"name": "a", "now_behaves_like": "b", "when": "run 2"}, "embed_limit_tokens": 5,
        "embed_rules": [{"when_text_has": "zero", "vector": "zero"}],
    }  # fmt: skip

    def vectors(model, *texts, **body):
        reply = post(server, "embed", path="/embeddings", model=model, input=list(texts), **body)
        return [row["embedding"] for row in reply.json()["data"]] if reply.status_code == 200 else reply.status_code

    expected = [byte / 255 for byte in hashlib.sha256(b"mill").digest()[:4]]
    with ModelServer(script) as server:
        assert vectors("a", "mill", "zero") == [expected, [0.0] * 4]
        packed = base64.b64decode(vectors("a", "mill", encoding_format="base64")[0])
        assert struct.unpack("<4f", packed) == pytest.approx(expected)
        assert vectors("c", "mill") == 404
        assert vectors("a", "x" * 21) == 400
        server.next_run()
        assert vectors("a", "mill") == vectors("b", "mill") != [expected]


def test_rules_count_only_what_they_are_about():
    """Calls count requests that fit the rest of a rule; probes count for nothing; runs and model names are conditions too."""
    script = rules(
        {"on": "any", "when_model_is_not": "local-model", "do": {"status": 404}},
        {"on": "extract", "when_prompt_has": "red", "calls": "2-3", "do": {"text": "red again"}},
        {"on": ["report", "describe"], "only_in_run": "B", "do": {"text": "second run"}},
    )
    with ModelServer(script) as server:
        assert post(server, "extract", model="other").status_code == 404
        seen = [said(server, "extract", word) for word in ("red", "blue", "red", "red", "red")]
        assert [text == "red again" for text in seen] == [False, False, True, True, False]
        assert said(server, "probe", structured_outputs={"choice": ["yes", "no"]}) == "yes"
        assert said(server, "report") != "second run"
        assert server.next_run() == 2
        assert said(server, "describe") == "second run"
        assert [record.rule for record in server.requests("describe")] == ["rule 3"]


def test_a_caching_proxy_repeats_itself():
    """With a proxy cache the same request body gets the same reply body, and the repetition counts for no rule."""
    script = rules({"on": "report", "calls": "1", "do": {"text": "bad"}}, proxy_cache=True)
    with ModelServer(script) as server:
        first, again, other = post(server, "report"), post(server, "report"), post(server, "report", seed=1)
        assert [record.cached for record in server.log] == [False, True, False]
    assert first.content == again.content
    assert other.json()["choices"][0]["message"]["content"] != "bad"


@pytest.mark.parametrize(
    "script",
    [
        {"rulez": []},
        {"rules": [{"on": "embedding", "do": {}}]},
        {"rules": [{"on": "any", "do": {"reply": "perfect"}}]},
        {"rules": [{"on": "any", "do": {"damage": "make it worse"}}]},
        {"timeline": [{"from": 3, "do": {}}]},
    ],
)
def test_an_unknown_word_is_an_error(script):
    """A script that says something unknown is refused before it is played."""
    with pytest.raises(ScriptError):
        ModelServer(script)


def test_a_script_can_be_a_file(tmp_path):
    """A script is read from a JSON file as well."""
    path = tmp_path / "script.json"
    path.write_text('{"model": "m", "embeddings": {"dimension": 3}}', encoding="utf-8")
    assert Script(path).model == "m"
    assert Script(path).get("dimension") == 3
