"""Turns a GGUF file into a folder that vLLM and Transformers load. A program of its own: it needs a lot of memory once and imports a lot.

    python -P convert.py FILE.gguf FOLDER
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging


def convert(gguf: Path, folder: Path) -> None:
    """Write the weights as bfloat16 safetensors, with the tokenizer and chat template that the file carries."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
    # The weights are plain numbers from here on; these marks would make every loader look for quantised ones.
    model.hf_quantizer = None
    model.is_quantized = False
    for name in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(model.config, name):
            delattr(model.config, name)
    wrong = sorted({str(tensor.dtype) for tensor in model.state_dict().values()} - {"torch.bfloat16"})
    if wrong:
        raise SystemExit(f"{gguf.name}: tensors stayed in {', '.join(wrong)} after the conversion")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
