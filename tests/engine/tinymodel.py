"""Models of a few thousand random numbers in real model folders: they know nothing, but everything that loads and runs a model works with them."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, PreTrainedTokenizerFast

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SAYINGS = ["the keeper lit the lamp and counted the ships", "user assistant system", '{"name":"Ada","kind":"person"} Y N yes no', "1 2 3 4 5 6 7"]
SIZES: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 2048, "tie_word_embeddings": True, "initializer_range": 0.4,
}  # fmt: skip


def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer of some 300 tokens with a chat template."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340, special_tokens=["<|im_start|>", "<|im_end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    raw.train_from_iterator(SAYINGS * 4, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|im_end|>")
    made.chat_template = TEMPLATE
    return made


def make_chat_model(folder: Path, *, window: int | None = None, seed: int = 7) -> Path:
    """A folder with a causal model; with `window` every token sees only so many tokens back."""
    words = tokenizer()
    ends = {"vocab_size": len(words), "eos_token_id": words.eos_token_id, "bos_token_id": words.bos_token_id, "pad_token_id": words.pad_token_id}
    torch.manual_seed(seed)
    if window is None:
        model: Any = LlamaForCausalLM(LlamaConfig(**SIZES, **ends))
    else:
        model = MistralForCausalLM(MistralConfig(**SIZES, **ends, sliding_window=window))
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
