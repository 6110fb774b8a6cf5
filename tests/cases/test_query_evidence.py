"""What the model is shown for a question: rules with their changes, what denies a premise, files of one name, other languages, and long questions whole."""

import json
from typing import Any

import pytest

from tests.cases.program import Program, program
from tests.cases.test_imitations import FORGED, LEDGER
from tests.cases.test_query_cases import FACTS, LAST, MODES, PEOPLE, sound

PLACES = ("Orrin Quay", "Pell Wharf", "Tarn Mill", "Dunmoor", "Ash Lock", "Cobb Pier", "Fern Weir", "Holt Yard")
NOISE = {
    f"book/{n:02}.txt": f"{PLACES[n % 8]}, {n % 28 + 1} May {1950 + n}. The keeper of {PLACES[n * 3 % 8]} counts the days and pays {n + 2} marks a year for "
    f"the {('slipway', 'steps', 'wall')[n % 3]}. Rule {n % 9 + 1} of the rules of {1960 + n} holds in the whole yard."
    for n in range(40)
}
RULES = {
    "b-rules.txt": "Rules of the Sandvik Basin, 4 May 1987.\nRule 7. A lighter may moor at the coal steps for 30 days a year. The master counts the days.\n"
    "Rule 8. Sails may be mended on the slipway.\nRule 9. Whoever moors at the coal steps pays four marks a day to the Sandvik Basin.",
    "c-change.txt": "Sandvik Basin, 12 August 1999. In Rule 7 of the rules of 1987 the number 30 is replaced by 45.",
    "a-repeal.txt": "Sandvik Basin, 3 March 2006. Rule 8 of the rules of 1987 is repealed.",
    "d-other.txt": "Rules of Kettle Dock, 2003. Rule 7. A punt may moor at the north wall for 30 days a year.",
}
NAMES = "Sandvik Basin|Kettle Dock|" + "|".join(PLACES)
SCRIPT: dict[str, Any] = {
    "fixture_pattern": {
        "entities": [NAMES, r"Rule \d", "lighter|coal steps|slipway|[Ss]ails|punt|north wall"], "types": ["organization", "other", "other"],
        "relate": "within-sentence", "description": "sentence",
    }
}  # fmt: skip


def shown(it: Program) -> str:
    """The last message of the last call that wrote an answer."""
    bodies = [record.body["messages"] for record in it.answering() if LAST in record.prompt]
    return str(bodies[-1][-1]["content"])


def documents(prompt: str) -> set[str]:
    """The paths in the headings of a prompt."""
    return {line.removeprefix("# ").partition(":")[0] for line in prompt.splitlines() if line.startswith("# ")}


def cited(answer: dict[str, Any]) -> set[str]:
    """The paths that an answer's citations open."""
    return {source["document"] for citation in answer["citations"] for source in citation["sources"]}


# --- rules that change


@pytest.mark.parametrize("mode", ["basic", "local"])
def test_a_rule_is_shown_with_what_changed_it(tmp_path, mode):
    """An amendment and a repeal, which share no word with the question, are read with the rule, dates and all; an equal number elsewhere has nothing to do
    with it, and what it was before is there for who asks about then."""
    script = {**SCRIPT, "rules": [{"on": "answer", "do": {"reply": "echo-evidence"}}]}
    with program(tmp_path, {**NOISE, **RULES}, script, query__local_graph=0) as it:
        it.index()
        for question in ("How many days a year may a lighter moor at the coal steps?", "How many days could a lighter moor at the coal steps in 1990?"):
            answer = it.query(question, f"--mode={mode}")
            prompt = shown(it)
            assert "for 30 days a year" in prompt
            assert "In Rule 7 of the rules of 1987 the number 30 is replaced by 45" in prompt
            assert all(date in prompt for date in ("4 May 1987", "12 August 1999"))
            assert {"b-rules.txt", "c-change.txt"} <= cited(answer) | documents(prompt)
            assert any("refers to a rule or section" in note for note in answer["notes"])
            hits = it.run("query", question, "--json", "--retrieve-only", f"--mode={mode}", "--limit=8").json
            assert {"b-rules.txt", "c-change.txt"} <= {hit["document"] for hit in hits}
            assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
        it.query("May sails be mended on the slipway?", f"--mode={mode}")
        assert all(text in shown(it) for text in ("Sails may be mended", "Rule 8 of the rules of 1987 is repealed", "3 March 2006"))
        other = it.run("query", "For how many days may a punt moor at the north wall?", "--json", "--retrieve-only", f"--mode={mode}", "--limit=2").json
        assert other[0]["document"] == "d-other.txt"
        assert "c-change.txt" not in {hit["document"] for hit in other}
        instructions = it.answering()[-1].body["messages"][0]["content"]
        assert "which holds now and which held before" in instructions


CHANGES = {
    "de": (
        "Satzung des Hafens Tarn, 2001. § 12 Ein Kahn darf 20 Tage am Kai liegen. § 13 Netze sind zu melden.",
        "Hafen Tarn, 2010: In § 12 der Satzung von 2001 wird die Zahl 20 durch 25 ersetzt.", "Wie viele Tage darf ein Kahn am Kai liegen?",
    ),
    "zh": ("北湾港章程，1995年。第3条 驳船每年可停泊30天。第4条 渔网须登记。", "北湾港，2008年：1995年章程第3条中的30改为45。", "驳船每年可以停泊多少天？"),
    "list": (
        "Charter of Ash Lock, 1990. Section 4. A raft may pass at night. Section 5. Dogs swim free.",
        "Ash Lock, 2004. Sections 4 and 5 of the charter of 1990 fall away.", "May a raft pass at night?",
    ),
}  # fmt: skip


@pytest.mark.parametrize("language", CHANGES)
def test_sections_are_called_by_other_signs_elsewhere(tmp_path, language):
    """Paragraph signs, scripts without spaces and lists of numbers are references as well."""
    rule, change, question = CHANGES[language]
    noise = {f"{n:02}.txt": f"{PLACES[n % 8]} {n}. {question[-len(question) // 4 :]} {rule[-len(rule) // 4 :]}" for n in range(30)}
    with program(tmp_path, {"rule.txt": rule, "change.txt": change, **noise}, PEOPLE) as it:
        it.index()
        hits = it.run("query", question, "--json", "--retrieve-only", "--mode=basic", "--limit=30").json
    found = [hit["document"] for hit in hits]
    assert "rule.txt" in found[:3]
    assert "change.txt" in found[:6]


# --- premises


LOG = "Log of the Fenwick ferry, 9 May 1931. In the gale the crew took eleven people off the burning hulk. Nobody was lost that day."
DENIED = "Why did the crew of the Fenwick ferry let the people of the hulk drown?"


@pytest.mark.parametrize("mode", MODES)
def test_what_denies_a_premise_is_shown(tmp_path, mode):
    """The passage that says the opposite is among what is read, and the model is told to say so."""
    pattern = {"fixture_pattern": {**SCRIPT["fixture_pattern"], "entities": [f"Fenwick ferry|hulk|{NAMES}"], "types": ["other"]}}
    with program(tmp_path, {**NOISE, "log.txt": LOG}, pattern, query__gate=0.0) as it:
        it.index()
        it.query(DENIED, f"--mode={mode}")
        prompts = [record.prompt for record in it.answering()]
    assert any("took eleven people off the burning hulk" in prompt for prompt in prompts)
    assert "takes something for granted" in next(prompt for prompt in prompts if LAST in prompt)


# --- files of one name


NAMESAKES = {
    "notes.md": "# Notes\n\nFrode Lund runs the mill.\n",
    "east/notes.md": "# Notes\n\nPump six came in 1990.\n",
    "west/notes.md": "# Notes\n\nValve two leaks.\n",
}
ABOUT = {"Who runs the mill?": "notes.md", "When did pump six come?": "east/notes.md", "Which valve leaks?": "west/notes.md"}


@pytest.mark.parametrize("mode", ["basic", "local"])
def test_files_of_one_name_are_told_apart(tmp_path, mode):
    """Their evidence stands under their paths, an answer cites the one that says it, and on the screen its path is there."""
    with program(tmp_path, NAMESAKES, PEOPLE) as it:
        it.index()
        for question, path in ABOUT.items():
            answer = it.query(question, f"--mode={mode}")
            assert cited(answer) == {path}
            assert path in documents(shown(it))
            lines = it.run("query", question, f"--mode={mode}").out.splitlines()
            assert any(line.strip().startswith(f"{path}, ") for line in lines)
            assert cited(it.query(question, "--no-model")) == {path}


# --- languages


CARP = "Keeper Aho feeds the grass carp with reed and moves them to the warm pond in November."
ASKED = {"看守人每天用什么喂草鱼?": "Chinese", "Womit werden die Graskarpfen gefüttert?": "German", "Чем кормят белого амура?": "Russian"}
MEANING = {
    "dimension": 8,
    "embed_rules": [
        *({"when_text_has": text, "like": "what carp eat"} for text in (CARP, *ASKED)),
        *({"when_text_has": mark, "like": f"fairs {mark}"} for mark in ("鱼市", "Markt", "рынок")),
    ],
}


@pytest.mark.parametrize("question", ASKED)
def test_an_answer_in_another_language_is_found_by_its_meaning(tmp_path, question):
    """Among many files in the question's language that have its words, vectors lead to the one that has the answer; it is quoted as it stands, and the
    model is told the language to write in."""
    files = {f"zh{n}.txt": f"第{n}个鱼市：看守人每天喂猫，用草鱼做汤。" for n in range(20)}
    files |= {f"de{n}.txt": f"Auf dem Markt {n} werden die Graskarpfen verkauft. Womit, fragt man die Leute." for n in range(20)}
    files |= {f"ru{n}.txt": f"На рынок {n} везут белого амура. Чем его везут, не знает никто." for n in range(20)}
    with program(tmp_path, {**files, "carp.txt": CARP}, {**PEOPLE, **MEANING}, vectors__kind="server", vectors__model="vec") as it:
        it.index()
        for mode in ("basic", "local"):
            hits = it.run("query", question, "--json", "--retrieve-only", f"--mode={mode}", "--limit=8").json
            assert "carp.txt" in {hit["document"] for hit in hits}
            it.server.set_script({**PEOPLE, **MEANING, "rules": [{"on": "answer", "do": {"reply": "echo-evidence"}}]})
            answer = it.query(question, f"--mode={mode}")
            assert CARP in {source["quote"] for citation in answer["citations"] for source in citation["sources"]}
            assert f"Write in {ASKED[question]}" in shown(it)


# --- long questions


REQUEST = "Tell me now, please: who keeps the Tidal Gate?"
PREAMBLE = [f"Case {n}: the ferry of district {n} was late and the crew of boat {n} wrote to the board about pay." for n in range(120)]


@pytest.mark.parametrize(("sentences", "window"), [(120, 4096), (120, 32_768), (40, 32_768)])
@pytest.mark.parametrize("mode", ["basic", "local", "global", "drift"])
def test_a_long_question_is_found_by_its_request(tmp_path, mode, sentences, window):
    """The request at the end decides what is found; it is always shown; of the rest nothing is left out of the prompt without a note that says how much."""
    files = {**FACTS, **{f"ferry{n}.txt": f"The ferry of district {n} was late. The crew of boat {n} wrote to the board about pay." for n in range(40)}}
    question = " ".join([*PREAMBLE[:sentences], REQUEST])
    with program(tmp_path, files, {**PEOPLE, "window_tokens": window}) as it:
        it.index()
        hits = it.run("query", question, "--json", "--retrieve-only", f"--mode={mode}", "--limit=8").json
        assert ("warden.txt" if mode in ("basic", "local") else "gate.txt") in {hit["document"] for hit in hits}
        answer = it.query(question, f"--mode={mode}")
        prompts = [record.body["messages"][-1]["content"] for record in it.answering()]
    assert all(REQUEST in prompt for prompt in prompts)
    whole = all(question in prompt for prompt in prompts)
    told = [note for note in answer["notes"] if "too long for the model's window" in note]
    assert whole != bool(told)
    assert all(f"of {len(question):,} characters" in note for note in told)
    assert whole == (sentences == 40)


# --- ids in documents


def test_ids_that_documents_make_up_are_no_citations(tmp_path):
    """Whatever a document says is a source, only what was given an id can be cited; a claim of one document put on another is found out by its quote."""
    files = {"forged.md": FORGED, "ledger.txt": LEDGER}
    with program(tmp_path, files, PEOPLE) as it:
        it.index()

        def told(paragraphs: list[dict[str, Any]], *options: str) -> Any:
            reply = {"answered": "yes", "paragraphs": paragraphs, "missing": ""}
            it.server.set_script({**PEOPLE, "rules": [{"on": "answer", "when_prompt_has": LAST, "do": {"text": json.dumps(reply)}}]})
            return it.run("query", "Who paid for the bridge?", "--json", "--mode=basic", *options)

        it.query("Who paid for the bridge?", "--mode=basic")
        ids = {line.partition(" ")[0]: line for line in shown(it).splitlines() if line.startswith("C")}
        (real,) = [short for short, line in ids.items() if "Guild" in line]
        texts = it.texts()
        invented = [short for short in ("S2", "C99", "R1", "E1") if short not in ids]
        claim = "Brother Anselm paid for the bridge."
        assert told([{"text": claim, "sources": invented}]).json["answered"] is False
        mixed = told([{"text": f"{claim} [S2] [C99]", "sources": [*invented, real]}]).json
        sound(mixed, texts)
        assert cited(mixed) == {"ledger.txt"}
        quoted = told([{"text": f"The ledger says “{claim}”", "sources": [real]}]).json
        assert quoted["sentences"][0]["verdict"] != "supported"
        strict = told([{"text": f"The ledger says “{claim}”", "sources": [real]}], "--strict").json
        assert (strict["answered"], strict["citations"]) == (False, [])
