"""What is found out about a server, and what is remembered of it."""

import json

import pytest

from graphrag_local.engine.probe import is_tiny, probe
from graphrag_local.engine.vllm import VLLM
from graphrag_local.errors import EngineRefused, EngineUnreachable
from graphrag_local.settings import EngineSettings
from tests.engine.tools import RawServer, ask_for, completion, run, unhurried
from tests.modelserver import ModelServer

FULL = {"grammar": "walk", "tokenize": True, "window_tokens": 4000}


def probed(server, path=None, *, tiny=None, **rest):
    """The verdict on a server, and the engine that took it over."""
    settings = EngineSettings(url=server if isinstance(server, str) else server.url, **rest)
    engine = VLLM(settings)
    verdict = run(engine, lambda engine: probe(engine, settings, path, tiny=tiny))
    assert engine.card == verdict.card
    return verdict


def completions(server):
    return [record for record in server.log if record.path == "/v1/chat/completions"]


def test_a_server_that_can_do_everything():
    """A server of vLLM's kind is taken with grammars, its window, its first model and a revision that a swap would change."""
    with ModelServer(FULL) as server:
        verdict = probed(server)
        assert {record.purpose for record in completions(server)} == {"probe"}
    assert verdict.obeys == {"choice", "schema", "grammar", "logprobs", "tokenize", "priority"}
    assert (verdict.card.name, verdict.card.context_tokens, verdict.card.form, verdict.card.logprobs) == ("local-model", 4000, "grammar", True)
    assert verdict.card.revision.startswith("unpinned-")
    assert verdict.server_version == "0.32.0"
    assert verdict.messages == ()


def test_a_server_that_ignores_grammars():
    """Grammars that are taken without a word and not obeyed are noticed; JSON schemas are used instead, and the person is told."""
    with ModelServer() as server:
        verdict = probed(server)
    assert verdict.card.form == "schema"
    assert {"choice", "schema"} <= verdict.obeys
    assert "grammar" not in verdict.obeys
    assert any("plain JSON schemas" in message for message in verdict.messages)


def test_a_server_that_refuses_grammars():
    """A 400 for a grammar is an answer too."""
    with ModelServer({"grammar": "refuse"}) as server:
        assert probed(server).card.form == "schema"


def test_a_server_that_obeys_nothing():
    """Where no constraint is obeyed the schema form is used with a warning; there are no log-probabilities and no token counts."""

    def answer(method, path, headers, body):
        if path == "/v1/models":
            return 200, {}, b'{"data": [{"id": "m-135M"}]}'
        return (200, {}, completion("Hello there!")) if path == "/v1/chat/completions" else (404, {}, b"")

    with RawServer(answer) as server:
        verdict = probed(server)
    assert (verdict.obeys, verdict.card.form, verdict.card.tiny, verdict.card.context_tokens) == ({"priority"}, "schema", True, 4096)
    assert len(verdict.messages) == 4
    assert verdict.rates == {}


@pytest.mark.parametrize("wish", ["schema", "grammar"])
def test_the_setting_decides_where_it_is_not_auto(wish):
    """`schema` and `grammar` are taken at their word; a grammar that is not obeyed is pointed out."""
    with ModelServer() as server:
        verdict = probed(server, constraints=wish)
    assert verdict.card.form == wish
    assert any("'grammar'" in message for message in verdict.messages) == (wish == "grammar")


def test_the_model_is_named_or_the_first():
    """A name the server lacks is refused with those that it has."""
    with ModelServer({"model": "big"}) as server:
        assert probed(server, model="big").card.name == "big"
        with pytest.raises(EngineRefused, match="no model 'small'; it has: 'big'"):
            probed(server, model="small")


@pytest.mark.parametrize(("wish", "window", "told"), [(0, 4000, False), (1000, 1000, False), (9000, 4000, True)])
def test_the_window_is_the_servers(wish, window, told):
    """A smaller window in the settings is used, a larger one is pointed out."""
    with ModelServer(FULL) as server:
        verdict = probed(server, context_tokens=wish)
    assert verdict.card.context_tokens == window
    assert any("9000" in message for message in verdict.messages) == told


def test_a_known_server_is_asked_nothing(tmp_path):
    """With a verdict on file only the model list and the version are fetched; another version or setting is probed again."""
    path = tmp_path / "run" / "probe.json"
    with ModelServer(FULL) as server:
        first = probed(server, path)
        before = len(server.log)
        assert probed(server, path) == first
        assert {record.path for record in server.log[before:]} == {"/v1/models", "/version"}
        calls = len(completions(server))
        probed(server, path, constraints="schema")
        server.set_script({**FULL, "version": "0.33.0"})
        probed(server, path)
        assert len(completions(server)) > calls + 4


def test_a_server_that_is_away_is_remembered(tmp_path):
    """A run whose replies are all kept needs no server: the verdict of this address and model is taken from the file."""
    path = tmp_path / "probe.json"
    with ModelServer(FULL) as server:
        first = probed(server, path, model="local-model")
        url = server.url
    assert probed(url, path, model="local-model") == first
    assert probed(url, path) == first
    for other in ({"model": "else"}, {"revision": "r2"}, {"constraints": "schema"}):
        with pytest.raises(EngineUnreachable, match="not there"):
            probed(url, path, clock_scale=100, **other)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', '{"a": {"place": [1, 2, 3, 4], "verdict": {}}}'])
def test_a_broken_file_is_no_verdict(tmp_path, content):
    """A file that is cut off or of another form is replaced by a fresh probe."""
    path = tmp_path / "probe.json"
    path.write_text(content)
    with ModelServer(FULL) as server:
        first = probed(server, path)
        assert probed(server, path) == first
    assert json.loads(path.read_text())


def test_an_altered_verdict_is_none(tmp_path):
    """A verdict that is not as it was written is not believed: the server is probed again."""
    path = tmp_path / "probe.json"
    with ModelServer(FULL) as server:
        first = probed(server, path)
        calls, written = len(completions(server)), path.read_text()
        path.write_text(written.replace(f'"context_tokens": {first.card.context_tokens}', f'"context_tokens": {first.card.context_tokens + 1}'))
        assert path.read_text() != written
        assert probed(server, path) == first
        assert len(completions(server)) > calls


def test_the_revision_is_the_settings_or_a_fingerprint(tmp_path):
    """A revision that is set is taken; without one the same model gives the same fingerprint, another model another."""
    with ModelServer(FULL) as server:
        assert probed(server, revision="abc").card.revision == "abc"
        one, two = probed(server).card.revision, probed(server).card.revision
    with RawServer(lambda *a: (200, {}, completion("Other words.") if a[0] == "POST" else b'{"data": [{"id": "m"}]}')) as server:
        three = probed(server).card.revision
    assert one == two != three


def test_rates_are_measured_on_the_server():
    """The estimate is at least what the server counts, in scripts that it counts differently."""
    with ModelServer({**FULL, "count": {"han_char": 1, "other_chars_per_token": 3}}) as server:
        verdict = probed(server)
        counter = verdict.counter()
        texts = ["The keeper of the lamp wrote twelve letters.", "守灯人写了十二封信。", "Смотритель маяка", "call 0815, now!"]
        counts = [run(VLLM(EngineSettings(url=server.url)), lambda engine, text=text: engine.tokenize(text)) for text in texts]
    assert verdict.rates["han"] == pytest.approx(1.1, abs=0.02)
    for text, count in zip(texts, counts, strict=True):
        assert count <= counter.count(text) <= 2 * count + 2
    assert not counter.exact


@pytest.mark.parametrize(
    ("name", "tiny"),
    [("SmolLM2-135M-Instruct", True), ("qwen2.5-0.5b", True), ("gemma-3-270m-it", True), ("Qwen3-30B-A3B", False), ("Qwen2.5-7B-Instruct-1M", False),
     ("llama-3.1-8b", False), ("local-model", False), ("phi-4k", False), ("/models/tinyllama-1.1B", False)],
)  # fmt: skip
def test_tiny_by_name(name, tiny):
    """Under a billion parameters is tiny; the largest size in a name counts, and a name without one is not tiny."""
    assert is_tiny(name) is tiny


def test_models_toml_goes_before_the_name():
    """What is known about the model's size is believed before its name."""
    with ModelServer({**FULL, "model": "m-135M"}) as server:
        assert [probed(server, tiny=given).card.tiny for given in (None, False, True)] == [True, False, True]


def test_probing_a_busy_server_says_so():
    """A server that is loading is reported as not being there yet, with its words."""
    server = ModelServer({"timeline": [{"from_s": -9, "do": {"status": 503}}]}, clock_scale=100)
    settings = EngineSettings(url="", model="m", patience_s=60, clock_scale=100)

    def make():
        return VLLM(settings.model_copy(update={"url": server.url}))

    with pytest.raises(EngineUnreachable, match="not ready"):
        unhurried(make, lambda engine: probe(engine, settings, None), server)
    assert len(server.log) > 4


def test_the_engine_works_after_the_probe(tmp_path):
    """An engine that has been probed answers requests, with the priority that the server takes."""
    with ModelServer(FULL) as server:
        settings = EngineSettings(url=server.url)

        async def work(engine):
            await probe(engine, settings, tmp_path / "probe.json")
            return await engine.generate(ask_for(priority=4))

        assert run(VLLM(settings), work).text
        assert server.requests("extract")[0].body["priority"] == 4
