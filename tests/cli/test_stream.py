"""`query --stream` and `--strict`: the answer as it comes, only what is supported, and a stop in the middle."""

import json
import signal

from tests.cli.shell import SCRIPT, ended, sh, start, until
from tests.cli.test_query import QUESTION
from tests.modelserver import ModelServer

LINES = "Y\nMira Holt wanted light on the bridge.\tC1\nNobody paid for it at all.\tC1\n"
DOUBT = {"on": "support", "when_prompt_has": "Nobody paid", "do": {"token_p": {"N": 0.9, "Y": 0.06, "P": 0.04}}}
PARAGRAPHS = [{"text": line.partition("\t")[0], "sources": ["C1"]} for line in LINES.splitlines()[1:]]
REPLY = {"on": "answer", "do": {"text": json.dumps({"answered": "yes", "paragraphs": PARAGRAPHS})}}


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


def test_people_see_the_answer_as_it_comes_and_then_the_rest(town):
    """What is streamed is the text of the answer; what is not supported is named after it, then come citations, cost and the count of verdicts."""
    with ModelServer({**SCRIPT, "rules": [REPLY, DOUBT]}) as server:
        line = f"graphrag-local query '{QUESTION}' {town} --mode basic --set engine.url={server.url}"
        streamed, whole, answer = sh(f"{line} --stream"), sh(line), sh(f"{line} --json").json
        events = lines_of(sh(f"{line} --stream --json").out)

    assert streamed.code == whole.code == 0
    assert [sentence["verdict"] for sentence in answer["sentences"]] == ["supported", "unsupported"]
    assert answer["sentences"][0]["p"] > 0.5 > 0.1 > answer["sentences"][1]["p"]
    assert streamed.out.startswith(answer["answer"] + "\n")
    assert "(not supported by its sources:) Nobody paid for it at all." in streamed.out
    assert "Nobody paid for it at all. (not supported by its sources) [1]" in whole.out
    for shown in (streamed.out, whole.out):
        assert "note: 1 of 2 sentences are supported by what they cite, 1 not (checked in 2 calls)." in shown
        assert "[1] chunk: " in shown
    assert "".join(event["text"] for event in events if event["event"] in ("text", "citation")) == answer["answer"]
    assert [event["verdict"] for event in events if event["event"] == "sentence"] == ["supported", "unsupported"]
    assert events[-1]["event"] == "done"
    assert {key: events[-1][key] for key in ("answer", "citations", "sentences")} == {key: answer[key] for key in ("answer", "citations", "sentences")}


def test_strict_keeps_what_is_supported(town):
    """`--strict` drops the sentence that is not, also while streaming; the rest of the answer is whole."""
    with ModelServer({**SCRIPT, "rules": [REPLY, DOUBT]}) as server:
        line = f"graphrag-local query '{QUESTION}' {town} --mode basic --strict --set engine.url={server.url}"
        answer, streamed = sh(f"{line} --json").json, sh(f"{line} --stream").out

    assert answer["answer"] == "Mira Holt wanted light on the bridge. [1]" == streamed.splitlines()[0]
    assert "Nobody" not in streamed
    assert [sentence["verdict"] for sentence in answer["sentences"]] == ["supported"]


def test_ctrl_c_in_the_middle_of_an_answer(town):
    """What was shown stays, its line is ended, the process ends soon with 130 and a sentence, and the model's calls with it."""
    with ModelServer({**SCRIPT, "rules": [REPLY, {"on": "support", "do": {"hold": True}}]}) as server:
        process = start(f"graphrag-local query '{QUESTION}' {town} --mode basic --stream --set engine.url={server.url}")
        until(lambda: process.poll() is not None or server.requests("support"))
        process.send_signal(signal.SIGINT)
        out, err = ended(process)
        until(lambda: all(request.cancelled for request in server.requests("support")))

    assert process.returncode == 130, err
    assert out.startswith("Mira Holt wanted light on the bridge. [1]")
    assert out.endswith("\n")
    assert err.splitlines()[-1] == "graphrag-local: Interrupted."
    assert "Traceback" not in err
