"""The reranker in this process: what it is told from, what is refused, and that scores are those of the pairs."""

import asyncio
import threading

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from graphrag_local.engine.base import Reranker
from graphrag_local.engine.models import Catalogue, entry_of
from graphrag_local.engine.rerank import LocalReranker
from graphrag_local.errors import ModelMissing, UsageError
from graphrag_local.settings import Settings
from graphrag_local.wiring import open_reranker

WORDS = "[PAD] [UNK] [CLS] [SEP] who paid for the mole ada lo carp reed".split()


def cross_encoder(folder, labels=1):
    """A model folder with random weights, which gives so many numbers for a pair."""
    table = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(WordLevel(table, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    pair = TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.post_processor = pair
    marks = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **marks).save_pretrained(folder)
    torch.manual_seed(3)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 64}
    BertForSequenceClassification(BertConfig(vocab_size=len(WORDS), num_labels=labels, initializer_range=0.5, **sizes)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return cross_encoder(tmp_path_factory.mktemp("models") / "small-cross-encoder")


def scores(folder, question, texts):
    async def work():
        model = LocalReranker(folder)
        try:
            return await model.score(question, texts)
        finally:
            await model.close()

    return asyncio.run(work())


def test_a_folder_tells_that_it_is_a_reranker(folder, tmp_path):
    """One number for a pair makes a reranker; two do not."""
    assert entry_of(folder).kind == "reranker"
    assert entry_of(cross_encoder(tmp_path / "two", labels=2)).kind == "chat"


def test_each_text_has_its_own_score(folder):
    """A score depends on the pair alone, not on what else is scored, and long texts are cut; the thread ends."""
    texts = ["ada lo paid", "carp reed", "ada lo paid", "reed " * 500]
    found = scores(folder, "who paid for the mole", texts)

    assert isinstance(LocalReranker(folder), Reranker)
    assert found[0] == pytest.approx(found[2])
    assert found[0] != pytest.approx(found[1])
    assert [scores(folder, "who paid for the mole", [text])[0] for text in texts] == pytest.approx(found, abs=1e-5)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("reranker")]


def test_a_model_that_gives_more_numbers_is_refused(tmp_path):
    """A classifier with two labels ranks nothing, and the message says so."""
    with pytest.raises(UsageError, match="gives 2 numbers for a pair"):
        scores(cross_encoder(tmp_path / "two", labels=2), "who", ["ada", "lo"])


def settings_with(name):
    return Settings.model_validate({"query": {"reranker": name}})


def test_the_setting_names_it_and_nothing_is_fetched(folder, tmp_path, monkeypatch):
    """A folder or a name in the models folder opens; what is not here is ModelMissing with what to do; another kind is wrong use; none is none."""
    monkeypatch.setenv("GRAPHRAG_LOCAL_MODELS", str(folder.parent))
    assert open_reranker(settings_with("")) is None
    assert isinstance(open_reranker(settings_with(str(folder))), LocalReranker)
    assert isinstance(open_reranker(settings_with(folder.name)), LocalReranker)
    with pytest.raises(ModelMissing, match="There is no model 'nowhere'") as missing:
        open_reranker(settings_with("nowhere"))
    assert str(folder.parent) in str(missing.value)
    two = cross_encoder(tmp_path / "two", labels=2)
    with pytest.raises(UsageError, match="of kind 'chat'"):
        open_reranker(settings_with(str(two)))
    assert Catalogue.load().find(folder.name).kind == "reranker"
