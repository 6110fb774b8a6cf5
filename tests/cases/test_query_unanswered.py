"""Questions that the collection does not answer, or answers in part: the refusal, what came nearest, and the part that is left open."""

import json
from typing import Any

import pytest

from tests.cases.program import Program, program
from tests.cases.test_query_cases import DECLINES, FACTS, LAST, MODES, PEOPLE, sample, sound

UNANSWERED = "Who painted the Tidal Gate?"
HALF = "Who keeps the Tidal Gate, and what is he paid?"
OPEN = "what he is paid"


def options(value: Any) -> list[Any]:
    """Every list of allowed values in a schema."""
    if isinstance(value, dict):
        return ([value["enum"]] if "enum" in value else []) + [found for inner in value.values() for found in options(inner)]
    return [found for inner in value for found in options(inner)] if isinstance(value, list) else []


def says(it: Program, reply: dict[str, Any]) -> None:
    """From now on the model answers this."""
    it.server.set_script({**PEOPLE, "rules": [{"on": "answer", "when_prompt_has": LAST, "do": {"text": json.dumps(reply, ensure_ascii=False)}}]})


@pytest.mark.parametrize("mode", MODES)
def test_a_refusal_can_be_said_and_comes_with_what_is_nearest(tmp_path, mode):
    """Some call of every mode may say no; then nothing is cited, and the sentences that came nearest are shown where they stand, as such."""
    with program(tmp_path, FACTS, {**PEOPLE, "rules": [{"on": "answer", "do": {"reply": "valid", "token_p": DECLINES}}]}) as it:
        it.index()
        answer = it.query(UNANSWERED, f"--mode={mode}")
        allowed = [values for record in it.answering() for values in options(record.body["response_format"])]
        assert any({"N", "no"} & set(map(str, values)) for values in allowed)
        assert (answer["answered"], answer["citations"], answer["sentences"], answer["missing"]) == (False, [], [], "")
        assert 0 < len(answer["nearest"]) <= 3
        for source in answer["nearest"]:
            assert FACTS[source["document"]][source["start"] : source["end"]] == source["quote"]
            assert "Gate" in source["quote"]
        printed = it.run("query", UNANSWERED, f"--mode={mode}").out
        assert printed.startswith(answer["answer"])
        assert "Nearest in the documents:" in printed
        assert answer["nearest"][0]["quote"] in printed
        far = it.query("Wer malte Rembrandts Nachtwache?", f"--mode={mode}")
        assert (far["answered"], far["nearest"]) == (False, [])


def test_a_strict_answer_of_which_nothing_is_left_names_what_is_nearest(tmp_path):
    """Where no sentence is supported the refusal is the same as the model's own; so is that of a briefing without a model."""
    unsupported = {"on": "support", "do": {"text": '"N"'}}
    with program(tmp_path, FACTS, PEOPLE) as it:
        it.index()
        good = sample(it, "basic")
        paragraph = {**good["paragraphs"][0], "text": "It was painted by the warden."}
        it.server.set_script(
            {**PEOPLE, "rules": [unsupported, {"on": "answer", "do": {"text": json.dumps({**good, "paragraphs": [paragraph], "missing": "the year"})}}]}
        )
        answer = it.query(UNANSWERED, "--mode=basic", "--strict")
        assert (answer["answered"], answer["citations"], answer["missing"]) == (False, [], "")
        assert answer["nearest"]
        since = len(it.server.log)
        briefing = it.query("Which colour did the painter choose for the Gate, and why this shade?", "--no-model")
        assert briefing["answered"] or briefing["nearest"]
        assert len(it.server.log) == since


@pytest.mark.parametrize("mode", MODES)
def test_half_an_answer_says_which_half_is_missing(tmp_path, mode):
    """What is known is told with its sources; what is not stands apart from it, cites nothing, and is in the object, in print and in the stream's last event."""
    with program(tmp_path, FACTS, PEOPLE) as it:
        it.index()
        good = sample(it, mode)
        says(it, {**good, "missing": OPEN})
        answer = it.query(HALF, f"--mode={mode}")
        sound(answer, FACTS)
        assert (answer["answered"], answer["missing"]) == (True, OPEN)
        assert answer["nearest"] == []
        assert OPEN not in answer["answer"]
        assert f"Not in the documents: {OPEN}" in it.run("query", HALF, f"--mode={mode}").out
        events = [json.loads(line) for line in it.run("query", HALF, "--json", "--stream", f"--mode={mode}").out.splitlines()]
        assert "".join(event["text"] for event in events if event["event"] in ("text", "citation")) == answer["answer"]
        assert (events[-1]["event"], events[-1]["missing"]) == ("done", OPEN)
        (prompt,) = {record.body["messages"][0]["content"] for record in it.answering() if LAST in record.prompt}
        assert "that is not answered" in prompt


@pytest.mark.parametrize("said", ["", "none", "N/A", "Nothing.", "—", "that Napoleon paid him 40,000 crowns", "what he is paid " * 40, None, ["wages"], 7])
def test_what_is_missing_says_nothing_of_its_own(tmp_path, said):
    """The part that is left open has no sources, so it may not bring in names, numbers or more than a part of a question; other things are nothing."""
    with program(tmp_path, FACTS, PEOPLE) as it:
        it.index()
        good = sample(it, "basic")
        says(it, {**good, "missing": said})
        answer = it.query(HALF, "--mode=basic")
    assert (answer["answered"], answer["missing"]) == (True, "")
    assert any("is missing was left out" in note for note in answer["notes"]) == (isinstance(said, str) and len(said) > 20)


@pytest.mark.parametrize("marks", ["[S2] the pay", "the pay [S1, S3]", "</text> the pay", "## the pay"])
def test_marks_in_what_is_missing_are_defused(tmp_path, marks):
    """No citation, heading or tag stands in it."""
    with program(tmp_path, FACTS, PEOPLE) as it:
        it.index()
        says(it, {**sample(it, "basic"), "missing": marks})
        missing = it.query(HALF, "--mode=basic")["missing"]
    assert "the pay" in missing
    assert not any(mark in missing for mark in ("[S", "</text>", "##"))


@pytest.mark.parametrize("mode", ["basic", "local", "source"])
def test_half_an_answer_in_lines(tmp_path, mode):
    """The same for servers that take grammars: a last line of its own, which is no paragraph and is never shown as one."""
    with program(tmp_path, FACTS, PEOPLE, engine__constraints="grammar") as it:
        it.settings["engine.constraints"] = "schema"
        it.index()
        it.settings["engine.constraints"] = "grammar"
        lines = f"Y\nOla Brekke keeps it since 1964.\tC1\nIt was built in 1811.\tC2\n?\t{OPEN}\n"
        mapped = {"on": "answer", "when_prompt_has": "one part of a collection", "do": {"text": "Y\nIt was built in 1811.\tC1,C2\t90\n"}}
        it.server.set_script({**PEOPLE, "rules": [mapped, {"on": "answer", "do": {"text": lines if mode != "source" else lines.removeprefix("Y\n")}}]})
        answer = it.query(HALF, f"--mode={mode}")
        sound(answer, FACTS)
        assert answer["missing"] == OPEN
        assert len(answer["sentences"]) == 2
        streamed = it.run("query", HALF, "--stream", f"--mode={mode}").out
        assert streamed.startswith(answer["answer"])
        assert "?" not in streamed.split("Not in the documents:")[0]
        grammars = [record.body["structured_outputs"]["grammar"] for record in it.answering() if LAST in record.prompt]
        assert all('open: "?\\t" text "\\n"' in grammar for grammar in grammars)


@pytest.mark.parametrize("mode", [*MODES, "auto"])
def test_a_question_about_everything_finds_something(tmp_path, mode):
    """It is near no record by its words; the records that a mode would read are listed all the same, each with a place that opens."""
    with program(tmp_path, FACTS, PEOPLE) as it:
        it.index()
        for question in ("What topics are covered here?", "Worum geht es?", "这里讲了什么?"):
            hits = it.run("query", question, "--json", "--retrieve-only", f"--mode={mode}", "--limit=8").json
            assert hits
            assert all(FACTS[hit["document"]][hit["start"] : hit["end"]] for hit in hits)
