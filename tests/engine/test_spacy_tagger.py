"""spaCy pipelines as taggers: where they are found, what they mark, and what is said about one that is missing or broken."""

import shutil
import sys

import pytest

pytest.importorskip("spacy")

from graphrag_local.engine.base import Marked, Tagger
from graphrag_local.engine.pipelines import find_pipeline
from graphrag_local.engine.spacy_tagger import SpacyTagger
from graphrag_local.errors import MissingExtra, ModelMissing
from tests.engine.pipelines import save_names, save_parser

TEXT = "In 1911 Mira Holt left\nPort Ellis.  “Mira Holt’s ferry!” said Tomas Brandt."


def opened(source) -> SpacyTagger:
    """The tagger of a setting, which has nothing to warn of."""
    said: list[str] = []
    tagger = SpacyTagger(find_pipeline(str(source)), said.append)
    assert said == []
    return tagger


@pytest.mark.parametrize("language", ["xx", "en"])
def test_names_are_marked_where_they_stand(tmp_path, language):
    """A pipeline without a parser marks its entities, each at its place and with its own label, and no noun phrase."""
    tagger = opened(save_names(tmp_path / "names", language=language))
    marks = tagger.mark(TEXT)

    assert isinstance(tagger, Tagger)
    assert [(TEXT[mark.start : mark.end], mark.label) for mark in marks] == [
        ("1911", "DATE"), ("Mira Holt", "PER"), ("Port Ellis", "LOC"), ("Mira Holt", "PER"), ("Tomas Brandt", "PER"),
    ]  # fmt: skip
    assert tagger.mark("") == []
    assert tagger.mark(TEXT) == marks


def test_noun_phrases_where_there_is_a_parser(tmp_path):
    """Noun chunks come without their articles, and pronouns are none."""
    text = "the old ferry carried salt and she saw a tidal basin"

    assert [text[mark.start : mark.end] for mark in opened(save_parser(tmp_path / "parser")).mark(text)] == ["old ferry", "salt", "tidal basin"]
    assert opened(save_parser(tmp_path / "again")).mark("she") == []


def test_the_version_is_that_of_the_files(tmp_path):
    """It holds the pipeline's name and version, is the same wherever the files are, and another as soon as one of them is."""
    first = opened(save_names(tmp_path / "one", version="1.2.3")).version
    shutil.copytree(tmp_path / "one", tmp_path / "two")

    assert first.startswith("spaCy xx_pipeline 1.2.3 (")
    assert opened(tmp_path / "two").version == first
    assert opened(save_names(tmp_path / "newer", version="1.2.4")).version != first
    assert opened(save_names(tmp_path / "ruled", {"Jonas Weil": "PER"}, version="1.2.3")).version != first


def test_where_pipelines_are_found(tmp_path, monkeypatch):
    """A name is looked for in the models folder, then as a path, also where the files lie deeper, as in a package that was unpacked by hand."""
    monkeypatch.setenv("GRAPHRAG_LOCAL_MODELS", str(tmp_path / "models"))
    save_names(tmp_path / "models" / "xx_names" / "xx_names" / "xx_names-1.0.0", {"Here": "PER"})
    elsewhere = save_names(tmp_path / "elsewhere", {"There": "PER"})

    assert opened("xx_names").mark("Here and There") == [Marked(0, 4, "PER")]
    assert opened(elsewhere).mark("Here and There") == [Marked(9, 14, "PER")]
    assert find_pipeline("") is None


@pytest.mark.parametrize("name", ["xx_not_installed", "/nowhere/at/all", "../..", "a name: with signs", "numpy.linalg"])
def test_a_pipeline_that_is_not_there(name, tmp_path, monkeypatch):
    """One sentence names it and where it was looked for, and the hint says how to bring it, with a network and without."""
    monkeypatch.setenv("GRAPHRAG_LOCAL_MODELS", str(tmp_path))
    with pytest.raises(ModelMissing) as error:
        find_pipeline(name)

    assert repr(name) in str(error.value)
    assert str(tmp_path / name) in str(error.value)
    assert "spacy download" in error.value.hint
    assert "copy the folder" in error.value.hint


@pytest.mark.parametrize(
    "broken", ["", "not a configuration", '[nlp]\nlang = "xx"\npipeline = ["a_factory_nobody_has"]\n[components]\n[components.a_factory_nobody_has]\nfactory = "x"']
)
def test_a_pipeline_that_cannot_be_loaded(broken, tmp_path):
    """A folder that is damaged, or made with parts that are not installed, and a package that is none, are said in a sentence."""
    folder = save_names(tmp_path / "names")
    (folder / "config.cfg").write_text(broken, encoding="utf-8")
    for source in (str(folder), "numpy"):
        with pytest.raises(ModelMissing, match=r"cannot be loaded: .*[^.]\.$") as error:
            opened(source)
        assert "extraction.spacy" in error.value.hint


def test_without_the_library(monkeypatch, tmp_path):
    """Where spaCy is not installed, the extra is named."""
    folder = save_names(tmp_path / "names")
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingExtra) as error:
        find_pipeline(str(folder))

    assert 'pip install "graphrag-local[spacy]"' in error.value.hint
