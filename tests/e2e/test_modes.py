"""Every mode with the real server, by every door: what is cited, what is heard, what it costs, and what hostile documents can do."""

import importlib.util
import json
import re
import unicodedata

import pytest

from graphrag_local.query.single import MOST_CALLS
from graphrag_local.store.reading import StoredIndex
from graphrag_local.text import one_line
from tests.e2e.asking import MODES, SERVED, Asked
from tests.e2e.hostile import DOCUMENTS

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed (scripts/check.sh installs a build for CPUs)", allow_module_level=True)

pytestmark = pytest.mark.e2e
WRITING = ("answer", "reduce")  # the prompts whose replies are the answer
CITING = (*WRITING, "map", "drift_primer", "drift_followup")
TRIES = 2  # how often a reply that cannot be used is asked for


def texts_of(folder):
    """Texts of the documents of a project by path."""
    index = StoredIndex.open(folder / "index")
    try:
        return {document.path: document.text for document in index.documents()}
    finally:
        index.close()


@pytest.fixture(name="texts", scope="module")
def _texts(story):
    return texts_of(story.folder)


@pytest.fixture(name="hostile_texts", scope="module")
def _hostile_texts(story):
    return texts_of(story.folder.parent / "hostile")


@pytest.fixture(name="here", scope="module")
def _here(story):
    """Questions that have a trace."""
    return [asked for asked in (*story.asked, *story.hostile) if asked.trace]


# --- every mode


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_answers(story, mode):
    """Each mode gives an answer with citations; where the model is taken for one that writes it may fail, but then says so in one sentence."""
    asked = [one for one in story.asked if one.mode == mode]

    assert len([one for one in asked if one.form is None]) >= 1
    assert len([one for one in asked if one.form == "grammar" and one.strict]) == 1
    for one in asked:
        assert bool(one.answer) != bool(one.error)
        assert one.answer or (one.form and "no usable" in one.error), one.error
        if one.form is None:
            assert one.answer["answered"], one.answer
            assert one.answer["citations"]


def test_a_model_that_writes_is_mostly_heard(story):
    """The tests below are about something: most of the questions to a model that writes have an answer, and some sentences were checked by it."""
    asked = [one for one in (*story.asked, *story.hostile) if one.form]
    answers = [one.answer for one in asked if one.answer]

    assert len(answers) > len(asked) / 2
    assert sum(answer["answered"] for answer in answers) >= 4
    assert any(call["purpose"] == "support" for one in asked for call in one.trace["calls"])


def test_every_citation_opens_at_the_words_it_quotes(story, texts, hostile_texts):
    """In all answers numbers and citations are the same set, each source is its document's text at its span, and so is what came nearest."""
    for asked, known in [*((one, texts) for one in story.asked), *((one, hostile_texts) for one in story.hostile)]:
        answer = asked.answer
        if answer:
            cited = [int(number) for number in re.findall(r"\[(\d+)\]", answer["answer"])]
            assert [*dict.fromkeys(cited)] == [citation["n"] for citation in answer["citations"]], asked.name
            assert bool(answer["citations"]) == answer["answered"], asked.name
            assert all(citation["sources"] for citation in answer["citations"])
            for source in [*(source for citation in answer["citations"] for source in citation["sources"]), *answer["nearest"]]:
                assert source["quote"] == known[source["document"]][source["start"] : source["end"]] != "", asked.name


def test_only_ids_of_the_context_are_cited(here):
    """Each id in a reply is one that its own prompt shows, and each record that an answer cites was in a window that the model read."""
    for asked in here:
        for call in asked.trace["calls"]:
            if call["stage"] in CITING and call.get("reply"):
                assert set(cited_ids(call["reply"]["text"], asked)) <= set(shown_ids(call)), (asked.name, call["reply"]["text"])
        read = {(row["kind"], row["id"]) for step in asked.trace["steps"] if step["step"] == "window" for row in step["kept"]}
        assert {(citation["kind"], citation["id"]) for citation in asked.answer.get("citations", ())} <= read, asked.name


def shown_ids(call):
    """The ids that begin a line of a prompt's evidence, or stand behind a point."""
    text = call["messages"][-1][1].partition("<text>\n")[2].rpartition("\n</text>")[0]
    also = [short for group in re.findall(r"\(also ([A-Z]\d+(?:, [A-Z]\d+)*)\)$", text, re.MULTILINE) for short in group.split(", ")]
    return [*re.findall(r"^([A-Z]\d+) ", text, re.MULTILINE), *also]


def cited_ids(reply, asked: Asked):
    """The ids that a reply cites, in whichever form it was written."""
    if asked.form == "schema":
        return re.findall(r'"([A-Z]\d+)"(?=[,\]])', reply)
    lines = [line.split("\t") for line in reply.split("\n") if line not in ("", "Y", "N")]
    if asked.form is None:
        return [line[0] for line in lines if re.fullmatch(r"[A-Z]\d+", line[0])]  # a last line may be cut off
    whole = lines if reply.endswith("\n") else lines[:-1]  # a last line may be cut off
    return [short for line in whole if len(line) > 1 and line[0] != "?" for short in line[1].split(",")]


# --- what is heard


@pytest.mark.parametrize("mode", [*SERVED, "lazy, events on the command line"])
def test_the_service_tells_an_answer_as_events(story, mode):
    """Texts and citations in their order are the answer that comes at last; a citation is complete when it is shown, sentences come with verdicts."""
    (asked,) = [one for one in story.asked if one.name in (mode, f"{mode}, events")]

    assert asked.heard[-1][0] == "done"
    assert {kind for kind, _ in asked.heard} <= {"progress", "text", "citation", "sentence", "restart", "done"}
    heard_is_told(asked)


def test_what_is_heard_is_the_answer_whoever_writes_it(here):
    """In this process too, in both forms and strict or not: nothing else was shown at the end than the answer."""
    answered = [asked for asked in here if asked.answer]

    assert answered
    for asked in answered:
        heard_is_told(asked)


def test_words_come_while_they_are_written(story):
    """Answers that are written under a grammar are told in more pieces than paragraphs, none of which breaks a citation."""
    written = [one for one in (*story.asked, *story.hostile) if one.form == "grammar" and not one.strict and one.answer.get("answered")]
    pieces = [[data["text"] for kind, data in one.heard if kind == "text"] for one in written]

    assert sum(map(len, pieces)) > sum(one.answer["answer"].count("\n\n") + 1 for one in written) > 0
    assert not any(re.search(r"\[\d*\Z|^\d*\]", piece) for told in pieces for piece in told)


def heard_is_told(asked):
    text, sentences, shown = "", [], {}
    for kind, data in asked.heard:
        if kind == "restart":
            text, sentences, shown = "", [], {}
        elif kind in ("text", "citation"):
            text += data["text"]
            if kind == "citation":
                assert data["text"].strip() == f"[{data['citation']['n']}]"
                assert data["citation"]["sources"]
                shown[data["citation"]["n"]] = data["citation"]
        elif kind == "sentence":
            sentences.append(data)
    assert text == asked.answer["answer"], asked.name
    assert sentences == asked.answer["sentences"], asked.name
    assert list(shown.values()) == asked.answer["citations"], asked.name


def test_people_see_the_same_as_programs(story):
    """What the command line streams to people begins with the answer of its trace, which a replay gives again."""
    said = story.said
    answer = said.shown_trace["answer"]

    assert said.shown.startswith(answer["answer"] + "\n")
    assert {key: value for key, value in said.shown_again.items() if key != "trace"} == answer
    assert said.shown_trace["settings"]["dynamic"]


# --- strict


def test_a_strict_answer_holds_only_what_is_supported(story):
    """All sentences of strict answers have the verdict `supported` and are all there is in the text; an answer without any says that it is none."""
    strict = [one for one in (*story.asked, *story.hostile) if one.strict and one.answer]
    strict.append(Asked(name="typed", mode="drift", answer=json.loads(story.said.json)))

    assert len(strict) > len(MODES)
    for asked in strict:
        answer = asked.answer
        assert {sentence["verdict"] for sentence in answer["sentences"]} <= {"supported"}, asked.name
        assert bool(answer["sentences"]) == answer["answered"], asked.name
        if answer["answered"]:
            words = re.sub(r"\s*\[\d+\]", "", answer["answer"])
            assert "".join(words.split()) == "".join("".join(sentence["text"] for sentence in answer["sentences"]).split()), asked.name


def test_a_strict_answer_leaves_out_what_the_judge_does_not_support(here):
    """Of a strict answer's sentences exactly those are kept that were found supported, and the model itself judged some of them."""
    strict = [one for one in here if one.strict and one.answer]
    judged = [[step for step in one.trace["steps"] if step["step"] == "support"] for one in strict]

    assert any(step["by"] == "model" for steps in judged for step in steps)
    for one, steps in zip(strict, judged, strict=True):
        assert {sentence["text"] for sentence in one.answer["sentences"]} == {step["sentence"] for step in steps if step["verdict"] == "supported"}, one.name


# --- traces


def test_a_trace_gives_the_answer_again_byte_for_byte(story, here):
    """From the file alone, in every mode and form, strict or not; on the command line both print the very same."""
    assert {asked.mode for asked in here if asked.again} == set(MODES)
    for asked in here:
        assert asked.again == (json.dumps(asked.answer) if asked.answer else ""), asked.name
    assert story.said.json_again == story.said.json
    assert json.loads(story.said.json)["mode"] == "drift"


# --- what it costs


def test_every_mode_keeps_its_budget_of_calls(here):
    """The calls that a mode makes are no more than it may; the same request again, warmer, stands for a reply that could not be used."""
    for asked in here:
        most = budget(asked)
        calls = asked.trace["calls"]
        made = {json.dumps([call["stage"], call["messages"], call["constraint"]]) for call in calls}
        stages = {stage: len({line for line in made if json.loads(line)[0] == stage}) for stage in {call["stage"] for call in calls}}
        assert stages.keys() <= most.keys(), asked.name
        assert all(count <= most[stage] for stage, count in stages.items()), (asked.name, stages, most)
        assert len(calls) <= TRIES * len(made)
        if asked.answer:
            assert asked.answer["usage"]["calls"] == len(calls)


def budget(asked: Asked):
    """Calls at most by prompt: what the mode promises for these settings."""
    settings, trace = asked.trace["settings"], asked.trace
    mode = asked.answer.get("mode", asked.mode) if asked.mode == "auto" else asked.mode
    read = {"map": 2 * asked.windows + 1, "reduce": 1}  # each window once, again where it was left, and the empty one
    followups = settings["drift_rounds"] * settings["drift_followups"] if asked.form else 1
    single = {"answer": 1 if settings["refusal_margin"] <= -1 else MOST_CALLS}
    of_mode = {
        "basic": single,
        "local": single,
        "drift": {"drift_primer": 1, "drift_followup": followups, "reduce": 1},
        "lazy": {"relevant": settings["relevance_budget"], **read},
        "dynamic": {"rate": settings["rate_calls"], **read},
    }
    asks = {"route": 1} if asked.mode == "auto" and not trace["model"]["tiny"] else {}
    checks = {"support": settings["support_calls"]} if asked.form else {}
    return {**of_mode.get(mode, read), **asks, **checks}


def test_the_service_keeps_its_budgets_too(story):
    """An answer over HTTP says what it cost, and that is within the same bounds under the settings of the project."""
    windows = max(one.windows for one in story.asked if one.trace)
    most = {"basic": MOST_CALLS, "local": MOST_CALLS, "drift": 3, "lazy": 100 + 2 * windows + 2}

    for asked in story.asked:
        if asked.name.endswith(", events"):
            assert 0 < asked.answer["usage"]["calls"] <= TRIES * most.get(asked.answer["mode"], 2 * windows + 2), asked.name


# --- hostile documents


def test_hostile_documents_are_read_whole(story, hostile_texts):
    """Each is in the index word for word, the long line too; every name stands in its passage, and every fact at its span."""
    index = StoredIndex.open(story.folder.parent / "hostile" / "index")
    try:
        chunks = {chunk.id: chunk for chunk in index.chunks()}
        mentions, failed = index.mentions(), {failure.input_id for failure in index.failures()}
    finally:
        index.close()

    assert hostile_texts.keys() == DOCUMENTS.keys()
    assert len(hostile_texts["line.txt"].split()) == len(DOCUMENTS["line.txt"].split())
    assert [failure for failure in story.hostile_index["failures"] if failure["retryable"]] == []
    assert mentions
    assert len(failed) < len(chunks)
    by_id = {chunk.document_id: path for chunk in chunks.values() for path, text in hostile_texts.items() if text[chunk.start : chunk.end] == chunk.text}
    for mention in mentions:
        text = hostile_texts[by_id[mention.document_id]]
        assert mention.owner_kind != "entity" or one_line(mention.name) in one_line(chunks[mention.chunk_id].text)
        assert mention.description == " ".join(one_line(text[span.start : span.end]) for span in mention.spans) != ""


def test_hostile_documents_do_not_reach_the_form_of_an_answer(story):
    """No mark, id or control character of theirs is in an answer, no id is cited that only they name, and each paragraph ends in its citations."""
    assert {one.mode for one in story.hostile if one.answer} == set(MODES)
    for asked in story.hostile:
        answer = asked.answer.get("answer", "")
        assert not re.search(r"\[\s*[RECSKD]\s?\d|<\||</?text|</?s>|\[/?INST", answer), (asked.name, answer)
        assert not any(unicodedata.category(character) in ("Cc", "Cs") for character in answer.replace("\n\n", "")), asked.name
        if asked.answer.get("answered"):
            assert all(re.search(r"\S (\[\d+\])+$", paragraph) for paragraph in answer.split("\n\n")), asked.name


def test_hostile_documents_do_not_reach_the_form_of_a_prompt(story):
    """Every line of evidence begins with an id of ours or is a heading, there is one beginning and one end, and no control token is left whole."""
    for asked in story.hostile:
        for call in asked.trace["calls"]:
            prompt = "\n".join(content for _, content in call["messages"])
            assert not re.search(r"<\||\[R99\]|\[/?INST\]", prompt), (asked.name, call["stage"])
            user = call["messages"][-1][1]
            if "<text>" in user:
                assert (user.count("<text>"), user.count("</text>")) == (1, 1), (asked.name, call["stage"])
                lines = user.partition("<text>\n")[2].rpartition("\n</text>")[0].split("\n")
                assert all(re.match(r"[A-Z]\d+ |\d+ |# |$", line) or line == "N/A" for line in lines), (asked.name, call["stage"])
