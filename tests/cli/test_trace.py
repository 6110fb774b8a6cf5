"""`query --trace`, `--explain` and `--replay`: a file for its owner alone, the same bytes again without a server, a tree, and nothing left after `forget`."""

import json
import re
import stat
from pathlib import Path

import pytest

from graphrag_local.store.traces import drop_trace, write_trace
from tests.cli.shell import project, sh

MODES = ("global", "global --dynamic", "source", "basic", "local", "lazy", "drift", "auto", "basic --strict")
QUESTION = "Who asked for a lamp on Tallow Bridge?"


def test_an_answer_is_replayed_without_a_server(tmp_path):
    """The printed answer is the same byte for byte when the server is gone; another question is refused; a generation that is gone is named."""
    folder = tmp_path / "town"
    with project(folder):
        assert sh(f"graphrag-local index {folder}").code == 0
        asked = {mode: sh(f"graphrag-local query '{QUESTION}' {folder} --mode {mode} --trace --json") for mode in MODES}
        people = sh(f"graphrag-local query '{QUESTION}' {folder} --mode basic --explain")
    for mode, done in asked.items():
        path = Path(done.json["trace"])
        assert path.parent == folder / "index" / "traces"
        assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
        assert str(path) in done.err
        again = sh(f"graphrag-local query --replay {path} {folder} --json")
        assert (again.code, again.out) == (0, done.out), mode
        assert done.json["usage"]["calls"] == len(json.loads(path.read_text(encoding="utf-8"))["calls"])
    tree = re.split(r"\n(?=Who asked)", people.out)[-1]
    last = sorted((folder / "index" / "traces").iterdir())[-1]
    assert sh(f"graphrag-local query '{QUESTION}' {folder} --replay {last} --explain").out == people.out
    assert all(said in tree for said in ("Passages found for:", "ranking: words", "kept: ", "Calls: ", "answer: 2 calls", "Window (passages)"))

    other = sh(f"graphrag-local query 'Who bought the bridge?' {folder} --replay {last}")
    assert other.code == 2
    assert "The trace ho" in other.err or "has nothing" in other.err
    wrong = json.loads(last.read_text(encoding="utf-8")) | {"generation": "000099-aaaaaaaaaaaa"}
    (tmp_path / "wrong.json").write_text(json.dumps(wrong), encoding="utf-8")
    gone = sh(f"graphrag-local query --replay {tmp_path / 'wrong.json'} {folder}")
    assert gone.code == 1
    assert "Generation 000099-aaaaaaaaaaaa of the trace is gone." in gone.err


def test_forget_removes_the_traces_that_hold_the_document(spoilt):
    """Traces that showed a model its text go, and those that quote it, that go on from an answer written when it was there, or that cannot be read."""
    asked = sh(f"graphrag-local query 'Who wrote that no lamp is free?' {spoilt} --mode source --trace --json").json
    bare = {"version": 1, "calls": [], "question": "What?", "documents": [], "history": [], "generation": asked["generation"]}
    others = {
        "apart": bare,
        "quotes": bare | {"question": "Who says that Piet Larsen wrote to Mira\n Holt that no lamp is free?"},
        "talk": bare | {"history": [{"question": "Who wrote?", "answer": "Somebody did."}]},
    }
    for name, content in others.items():
        (spoilt / "index" / "traces" / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    (spoilt / "index" / "traces" / "torn.json").write_text('{"version": 1, "calls": [', encoding="utf-8")
    done = sh(f"graphrag-local forget letters/larsen.txt --project {spoilt} --json")

    assert done.code == 0, done.err
    assert done.json["traces_removed"] == 4
    assert [path.name for path in Path(asked["trace"]).parent.iterdir()] == ["apart.json"]
    assert done.json["found"] == []


def test_a_trace_that_comes_late_is_not_kept(tmp_path):
    """A trace that is written once one of its documents is on the list of what is left out, as beside a running `forget`, is removed at once."""
    path = write_trace(tmp_path, {"version": 1, "calls": [], "question": "Who?", "documents": ["d1", "d2"]})

    assert not drop_trace(path, {"d3"})
    assert path.exists()
    assert drop_trace(path, {"d2"})
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("options", ["--trace --no-model", "--explain --retrieve-only", "--replay {town}/graphrag.toml", "--replay x.json --stream"])
def test_what_does_not_go_together_is_wrong_use(town, options):
    """One sentence, before anything is asked."""
    done = sh(f"graphrag-local query '{QUESTION}' {town} {options.format(town=town)}")

    assert done.code == 2
    assert "does not go with" in done.err or "is no trace" in done.err
