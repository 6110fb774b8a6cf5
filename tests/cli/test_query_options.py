"""`query` with a conversation, dynamic selection, a budget of relevance: the flags reach the answer, and wrong files are refused."""

import json

import pytest

from tests.cli.shell import sh
from tests.cli.test_show import opens, texts

QUESTION = "Who asked for a lamp on Tallow Bridge?"


def test_a_conversation_in_a_file_is_read(town, tmp_path):
    """Earlier turns cost one call more, and the answer is about the question in their light; every citation opens."""
    (tmp_path / "turns.json").write_text(json.dumps([{"question": QUESTION, "answer": "Ada did [1]."}]), encoding="utf-8")
    alone = sh(f"graphrag-local query '{QUESTION}' {town} --mode basic --set query.support=off --json").json
    done = sh(f"graphrag-local query '{QUESTION}' {town} --mode basic --history {tmp_path / 'turns.json'} --set query.support=off --json")

    assert done.code == 0
    assert done.json["usage"]["calls"] > alone["usage"]["calls"]
    assert done.json["citations"]
    assert all(opens(source, texts(town)) for citation in done.json["citations"] for source in citation["sources"])


@pytest.mark.parametrize(("content", "said"), [(None, "cannot be read"), ("{", "is not JSON"), ('[{"answer": "x"}]', "entry 1 is not as it must be")])
def test_a_file_without_a_conversation_is_wrong_use(town, tmp_path, content, said):
    """One sentence says what is wrong with it, before anything is asked."""
    if content is not None:
        (tmp_path / "turns.json").write_text(content, encoding="utf-8")
    done = sh(f"graphrag-local query '{QUESTION}' {town} --history {tmp_path / 'turns.json'}")

    assert done.code == 2
    assert said in done.err


@pytest.mark.parametrize("options", ["--mode global --dynamic", "--mode lazy", "--mode lazy --set query.relevance_budget=3"])
def test_modes_that_rate_answer_with_citations(town, options):
    """Both say in the notes what was rated or tested, and cite words that are there."""
    answer = sh(f"graphrag-local query '{QUESTION}' {town} {options} --set query.support=off --json").json

    assert answer["citations"]
    assert all(opens(source, texts(town)) for citation in answer["citations"] for source in citation["sources"])
    assert any("rated" in note or "passages tested" in note for note in answer["notes"])


def test_a_reranker_that_is_not_here_is_named(town):
    """Nothing is fetched: the message says which model is missing."""
    done = sh(f"graphrag-local query '{QUESTION}' {town} --mode basic --set query.reranker=some-cross-encoder")

    assert done.code == 1
    assert "some-cross-encoder" in done.err


REFUSED = ("--retrieve-only --strict", "--retrieve-only --stream", "--retrieve-only --dynamic", "--retrieve-only --no-model", "--no-model --strict")


@pytest.mark.parametrize("options", [*REFUSED, "--no-model --dynamic"])
def test_wishes_that_take_a_model_do_not_go_without(town, options):
    """What would be ignored is refused by name before anything is read."""
    first, second = options.split()
    done = sh(f"graphrag-local query '{QUESTION}' {town} {options}")

    assert (done.code, done.out) == (2, "")
    assert f"{first} does not go with {second}." in done.err


def test_each_question_goes_through_the_windows_the_other_way(town, server):
    """Also where each is a process of its own: what the server still has in its cache is where the last one ended. A question to one window is no turn."""

    def asked():
        before = len(server.requests("answer"))
        line = f"graphrag-local query '{QUESTION}' {town} --mode source --set query.window_tokens=110 --set engine.concurrency=1 --set query.support=off"
        assert sh(f"{line} --set query.always_read=1 --json").code == 0
        prompts = [record.body["messages"][-1]["content"].partition("</text>")[0] for record in server.requests("answer")[before:]]
        first = list(dict.fromkeys(prompts))
        return first[: first.index("<text>\nN/A\n")] if "<text>\nN/A\n" in first else first

    windows, back = asked(), asked()
    assert sh(f"graphrag-local query '{QUESTION}' {town} --mode basic --set query.support=off --json").code == 0
    again = asked()

    assert len(windows) > 1
    assert back == windows[::-1]
    assert again == windows
