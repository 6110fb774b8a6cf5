"""Settings, files and models that are not there, not right or not the same as before; machines without a network; disks without room."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from graphrag_local.configuration import load
from graphrag_local.store.manifest import FORMAT
from tests.cases.program import ROOT, Program, program

PEOPLE = {"fixture_pattern": {"entities": ["[A-Z][a-z]+ [A-Z][a-z]+"], "types": ["person"], "relate": "within-sentence"}}
NOTES = {
    "keeper.txt": "Anna Berg keeps the Hill Mill.",
    "deep/diver.txt": "Cleo Dahm dives below the Hill Mill for Anna Berg.",
    "trust.txt": "The Hill Mill belongs to Bo Carls.",
}
EMBEDDERS = {
    "embedders": {
        "vec-one": {"dimension": 8, "vector": "sha256"},
        "vec-two": {"dimension": 8, "vector": "sha256 of reversed text"},
        "vec-wide": {"dimension": 12, "vector": "sha256"},
    }
}


def purposes(it, since=0):
    """How many requests of each kind came since then, the probe's aside."""
    return Counter(record.purpose for record in it.server.log[since:] if record.purpose in ("extract", "describe", "report", "answer", "embed"))


# --- no network


WATCH = """
import json, socket, sys
real = socket.socket.connect, socket.getaddrinfo
def connect(self, address):
    if self.family in (socket.AF_INET, socket.AF_INET6) and str(address[0]) not in ("127.0.0.1", "::1"):
        print("VIOLATION connect", address, file=sys.stderr)
    return real[0](self, address)
def look_up(host, *rest, **more):
    if host not in ("127.0.0.1", "localhost", None):
        print("VIOLATION look-up", host, file=sys.stderr)
    return real[1](host, *rest, **more)
socket.socket.connect, socket.getaddrinfo = connect, look_up
from graphrag_local.cli.main import main
for line in json.loads(sys.argv[1]):
    sys.argv = ["graphrag-local", *line]
    try:
        main()
    except SystemExit as end:
        if end.code:
            print("FAILED", line, file=sys.stderr)
"""


def test_no_command_reaches_for_the_network(tmp_path):
    """With empty caches and proxies that lead nowhere, no command opens a connection but to the model server, or looks a name up, and none fails."""
    caches = {name: str(tmp_path / name) for name in ("HF_HOME", "XDG_CACHE_HOME", "TIKTOKEN_CACHE_DIR", "NLTK_DATA")}
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), "http://192.0.2.1:9")
    environment = {**{k: v for k, v in os.environ.items() if "OFFLINE" not in k and k.lower() != "no_proxy"}, **caches, **proxies}
    with program(tmp_path / "p", NOTES, PEOPLE) as it:
        commands = (["doctor"], ["index"], ["query", "Who keeps the Hill Mill?"], ["status"], ["show", "entity", "Anna Berg"])
        lines = [["models", "list"], ["init", str(tmp_path / "new")], *(it.arguments(*command) for command in commands)]
        child = [sys.executable, "-c", WATCH, json.dumps(lines)]
        done = subprocess.run(child, capture_output=True, text=True, timeout=600, cwd=ROOT, env=environment, check=False)
    assert "VIOLATION" not in done.stderr
    assert "FAILED" not in done.stderr, done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(
    "settings",
    [{"vectors.kind": "local", "vectors.model": "no-such-embedder"}, {"engine.kind": "embedded", "engine.model": "no-such-model"}],
)
def test_a_model_that_is_missing_is_named_with_its_place(tmp_path, settings):
    """Files that are not there are named with the folder in which they are expected and the way to bring them, in one sentence."""
    with program(tmp_path, NOTES, PEOPLE) as it:
        it.settings |= settings
        if "engine.kind" in settings:
            del it.settings["engine.url"]
        done = it.index()
    name = settings.get("vectors.model") or settings["engine.model"]
    assert done.code == 1
    assert name in done.said
    assert "models" in done.said
    assert "Traceback" not in done.said


# --- settings


WRONG = {
    "unknown": (("engine.modell=x",), "engine.model"),
    "unknown section": (("engin.url=http://x/v1",), "engine.url"),
    "a word for a number": (("chunks.max_tokens=many",), "chunks.max_tokens"),
    "a number outside its limits": (("engine.temperature=9",), "engine.temperature"),
    "a word that is none of the choices": (("engine.constraints=json",), "engine.constraints"),
    "an address that is none": (("engine.url=127.0.0.1:8000/v1",), "http://"),
    "no equals sign": (("engine.url",), "section.key=value"),
    "a list whose quotes a shell has eaten": (("documents.exclude=[a/*]",), """--set 'documents.exclude=["a/*", "b/*"]'"""),
    "a list that does not end": (('documents.exclude=["a/*"',), "documents.exclude is a list"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_setting_is_wrong_use(tmp_path, what):
    """Exit 2, the setting's name, what is allowed or meant; nothing is asked and nothing written."""
    given, named = WRONG[what]
    with program(tmp_path, NOTES, PEOPLE) as it:
        it.settings = {}
        done = it.run("index", *(f"--set={value}" for value in given))
        assert it.server.log == []
    assert done.code == 2
    assert named in done.said
    assert not (tmp_path / "index" / "CURRENT").exists()


@pytest.mark.parametrize(
    ("text", "patterns"),
    [
        ("a/*,b/*", ("a/*", "b/*")), ('["a/*"]', ("a/*",)), ("['a/*', 'b,c']", ("a/*", "b,c")), ("[ab]*.txt,x", ("[ab]*.txt", "x")), ("[]", ()), ("", ()),
    ],
)  # fmt: skip
def test_a_list_is_written_with_commas_or_as_in_the_file(tmp_path, text, patterns):
    """A list on the command line or in the environment is written with commas, or as TOML has it; brackets inside a pattern stay what they are."""
    assert load(tmp_path, (f"documents.exclude={text}",), {}).documents.exclude == patterns
    assert load(tmp_path, (), {"GRAPHRAG_LOCAL__DOCUMENTS__EXCLUDE": text}).documents.exclude == patterns


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[engine\nurl = 1", "not valid TOML"), ("[engine]\nurl = 5", "engine.url"), ("[motor]\nspeed = 3", "motor.speed"), ('preset = "best"', "preset"),
        ("[engine]\napi_key = 'k'", "secret"), (b"\xff\xfe[engine]", "not valid TOML"), ("engine = 5", "engine"), ("[chunks]\nmax_tokens = -1", "chunks.max_tokens"),
    ],
)  # fmt: skip
def test_a_broken_settings_file_is_named(tmp_path, text, named):
    """A file that is no TOML, has a wrong type, an unknown or outdated name, an unknown preset or a secret is wrong use, and the place is named."""
    with program(tmp_path, NOTES, PEOPLE) as it:
        it.settings = {}
        (tmp_path / "graphrag.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
        for command in (("index",), ("status",), ("query", "Who?")):
            done = it.run(*command)
            assert done.code == 2
            assert named in done.said
            assert "Traceback" not in done.said


@pytest.mark.parametrize("ending", ["/", "/v1", "/chat/completions", ""])
def test_an_address_with_another_ending_is_understood_or_explained(tmp_path, ending):
    """A base address with a slash more works; one with a part too many or too few ends in a sentence about engine.url."""
    with program(tmp_path, NOTES, PEOPLE) as it:
        it.settings["engine.url"] = it.server.url + ending
        done = it.index()
    assert done.code == (0 if ending in ("/", "") else 1)
    assert done.code == 0 or "engine.url" in done.said


def test_a_model_that_the_server_does_not_have(tmp_path):
    """The served names are told."""
    with program(tmp_path, NOTES, PEOPLE, engine__model="other-model") as it:
        done = it.index()
    assert done.code == 1
    assert "'other-model'" in done.said
    assert "'local-model'" in done.said


# --- another embedder


def test_another_embedder_is_noticed_and_only_texts_are_embedded_anew(tmp_path):
    """Another model, also of the same size or under the same name, is refused before searching; `index` embeds each text once and asks no chat model;
    going back costs nothing."""
    with program(tmp_path, NOTES, {**PEOPLE, **EMBEDDERS}, vectors__kind="server", vectors__model="vec-one") as it:
        it.index()
        assert it.status()["models"]["embedder"] == "vec-one"
        texts = sum(len(record.body["input"]) for record in it.server.requests("embed"))
        for before, other in (("vec-one", "vec-two"), ("vec-two", "vec-wide")):
            it.settings["vectors.model"] = other
            since = len(it.server.log)
            for mode in ("basic", "global"):
                done = it.run("query", "Who keeps the Hill Mill?", "--json", f"--mode={mode}")
                assert done.code == 1
                assert all(word in done.said for word in (before, other, "graphrag-local index"))
            assert purposes(it, since) == {}
            assert it.index("--yes").code == 0
            assert set(purposes(it, since)) == {"embed"}
            assert sum(len(record.body["input"]) for record in it.server.log[since:] if record.purpose == "embed") == texts
            assert it.query("Who keeps the Hill Mill?", "--mode=basic")["answered"]
        it.settings["vectors.model"] = "vec-one"
        since = len(it.server.log)
        assert it.index("--yes").code == 0
        assert purposes(it, since) == {}


def test_another_model_under_the_same_name_is_noticed(tmp_path):
    """A name that now stands for another model is found out by its vectors."""
    swap = {"swap": {"name": "vec-one", "now_behaves_like": "vec-two", "when": "run 2"}}
    with program(tmp_path, NOTES, {**PEOPLE, **EMBEDDERS, **swap}, vectors__kind="server", vectors__model="vec-one") as it:
        it.index()
        it.server.next_run()
        assert it.run("query", "Who?", "--json", "--mode=basic").code == 1
        since = len(it.server.log)
        assert it.index("--yes").code == 0
        assert set(purposes(it, since)) == {"embed"}
        assert it.run("query", "Who?", "--json", "--mode=basic").code == 0


@pytest.mark.parametrize(("name", "embeds"), [("query_prefix", False), ("text_prefix", True)])
def test_an_instruction_is_part_of_the_embedder(tmp_path, name, embeds):
    """A changed prefix is refused like a changed model; texts are embedded anew only where theirs changed."""
    with program(tmp_path, NOTES, {**PEOPLE, **EMBEDDERS}, vectors__kind="server", vectors__model="vec-one") as it:
        it.index()
        it.settings[f"vectors.{name}"] = "about: "
        done = it.run("query", "Who?", "--json", "--mode=basic")
        assert (done.code, f"vectors.{name}" in done.said, "'about: '" in done.said) == (1, True, True)
        since = len(it.server.log)
        assert it.index("--yes").code == 0
        assert set(purposes(it, since)) == ({"embed"} if embeds else set())
        assert it.run("query", "Who?", "--json", "--mode=basic").code == 0


# --- an index that is carried elsewhere


def carried(it, target):
    """A copy of a project without its input folder."""
    shutil.copytree(it.folder, target, ignore=shutil.ignore_patterns("input"))
    other = Program(target, it.server, {key: value for key, value in it.settings.items() if key != "engine.url"})
    shutil.rmtree(other.input)
    return other


def test_a_copied_index_answers_the_same_and_says_nothing_about_its_origin(tmp_path):
    """At another path, read only, without the documents, every answer and citation is the same; no path or host of the first machine is in it."""
    with program(tmp_path / "first place", NOTES, PEOPLE) as it:
        it.index()
        question = "Who keeps the Hill Mill?"
        before = it.query(question)
        other = carried(it, tmp_path / "second place" / "copy of it")
        for text in (str(tmp_path / "first place"), os.uname().nodename, it.server.url):
            assert not [path for path in (other.folder / "index").rglob("*") if path.is_file() and text.encode() in path.read_bytes()]
        shutil.rmtree(it.folder)
        for path in [other.folder, *other.folder.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        after = other.query(question)
        assert [after[key] for key in ("answer", "citations", "generation")] == [before[key] for key in ("answer", "citations", "generation")]
        assert other.status()["counts"]["documents"] == 3
        doctor = other.run("doctor")
        assert (doctor.code, "input" in doctor.said) == (0, True)
        for path in [other.folder, *other.folder.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        docs = tmp_path / "elsewhere"
        for name, text in NOTES.items():
            (docs / name).parent.mkdir(parents=True, exist_ok=True)
            (docs / name).write_text(text)
        other.settings["documents.input"] = str(docs)
        since = len(it.server.log)
        assert other.index().json["published"] is False
        assert purposes(it, since) == {}


@pytest.mark.parametrize("harm", ["table", "byte", "manifest", "older", "newer", "pointer"])
def test_a_damaged_or_foreign_index_is_never_empty_but_fine(tmp_path, harm):
    """A missing table, a flipped byte, a lost manifest, another format or a dangling pointer is named by every command that reads, before any answer;
    `index` repairs it without asking the model."""
    with program(tmp_path, NOTES, PEOPLE) as it:
        it.index()
        (generation,) = (tmp_path / "index" / "generations").iterdir()
        manifest = generation / "manifest.json"
        match harm:
            case "table":
                shutil.rmtree(generation / "entities.lance")
            case "byte":
                data = max((generation / "chunks.lance" / "data").iterdir(), key=lambda path: path.stat().st_size)
                raw = bytearray(data.read_bytes())
                raw[len(raw) // 2] ^= 1
                data.chmod(0o644)
                data.write_bytes(raw)
            case "manifest":
                manifest.unlink()
            case "pointer":
                (tmp_path / "index" / "CURRENT").write_text("000009-0123456789ab\n")
            case _:
                content = json.loads(manifest.read_text())
                content["format"] += 1 if harm == "newer" else -1
                manifest.write_text(json.dumps(content))
        since = len(it.server.log)
        for command in (("query", "Who keeps the Hill Mill?", "--json"), ("status", "--json"), ("show", "entity", "Anna Berg"), ("doctor",)):
            done = it.run(*command)
            assert done.code == 1
            assert "Traceback" not in done.said
            assert "generation" in done.said or "CURRENT" in done.said
            if harm in ("older", "newer"):
                assert f"format {FORMAT}" in done.said
        assert purposes(it, since) == {}
        assert it.index().code == 0
        assert purposes(it, since) == {}
        assert it.query("Who keeps the Hill Mill?")["answered"]


# --- no room


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
sys.argv = ["graphrag-local", *sys.argv[2:]]
from graphrag_local.cli.main import main
main()
"""


@pytest.mark.parametrize("room", [0, 40_000])
def test_a_full_disk_is_said_and_loses_nothing(tmp_path, room):
    """When no more can be written the run ends with a sentence about room; the old index answers, and with room the run is finished."""
    with program(tmp_path, {"keeper.txt": NOTES["keeper.txt"]}, PEOPLE) as it:
        it.index()
        old = it.status()["generation"]
        it.put({f"n{n}.txt": f"Dora Eck met Finn Gast at Pier {chr(65 + n)}side." * 20 for n in range(12)})
        line = [sys.executable, "-c", LIMITED, str(room), *it.arguments("index", "--json")]
        done = subprocess.run(line, capture_output=True, text=True, timeout=600, cwd=ROOT, check=False)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert any(word in done.stderr for word in ("room", "space", "full", "too large"))
        assert it.status()["generation"] == old
        assert it.query("Who keeps the Hill Mill?")["answered"]
        assert it.index().code == 0
        assert it.status()["counts"]["documents"] == 13


def test_an_index_folder_that_may_not_be_written(tmp_path):
    """A file where the index folder should be is said, with what to do."""
    with program(tmp_path, NOTES, PEOPLE) as it:
        (tmp_path / "index").write_text("no folder")
        done = it.index()
    assert done.code == 1
    assert str(Path(tmp_path, "index")) in done.said
    assert "Traceback" not in done.said
