"""Natural language inference in this process: a cross-encoder that says whether one text follows from another. Loaded with its first use."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from graphrag_local.engine.models import refuse_unfit
from graphrag_local.errors import UsageError

BATCH = 16
LONGEST = 512  # tokens of a pair; the premise is cut where both are longer


class LocalEntailment:
    """The model in a folder; UsageError when it must not be loaded, or when it has no label for entailment."""

    def __init__(self, folder: Path) -> None:
        refuse_unfit(folder, "nli")
        self._folder = folder
        self._thread = ThreadPoolExecutor(1, "entailment")
        self._loaded: tuple[object, object, int, int] | None = None

    async def entails(self, pairs: list[tuple[str, str]]) -> list[tuple[float, float]]:
        """For each (premise, hypothesis): the probabilities that the hypothesis follows, and that the premise contradicts it; neither for a hypothesis
        that leaves no room for a premise, since nothing can be said of what is not read."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._compute, pairs)

    async def close(self) -> None:
        """Stop after the batch that is being computed."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
        self._loaded = None

    def _load(self) -> None:
        logging.disable_progress_bar()
        logging.set_verbosity_error()
        tokenizer = AutoTokenizer.from_pretrained(self._folder, local_files_only=True, trust_remote_code=False)
        model = AutoModelForSequenceClassification.from_pretrained(self._folder, local_files_only=True, trust_remote_code=False, use_safetensors=True).eval()
        labels = {str(label).casefold(): int(number) for number, label in model.config.id2label.items()}
        follows = next((number for label, number in labels.items() if "entail" in label and "not" not in label), None)
        if follows is None:
            raise UsageError(f"The model in {self._folder} has no label for entailment.", hint="Take one that was trained for natural language inference.")
        self._loaded = tokenizer, model, follows, next((number for label, number in labels.items() if "contradict" in label), -1)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _compute(self, pairs: list[tuple[str, str]]) -> list[tuple[float, float]]:
        if self._loaded is None:
            self._load()
        assert self._loaded is not None
        tokenizer, model, follows, against = self._loaded
        room = min(LONGEST, getattr(model.config, "max_position_embeddings", LONGEST) or LONGEST)  # type: ignore[attr-defined]
        told = tokenizer([hypothesis for _, hypothesis in pairs], add_special_tokens=False)["input_ids"] if pairs else []  # type: ignore[operator]
        free = room - tokenizer.num_special_tokens_to_add(pair=True)  # type: ignore[attr-defined]
        fitting = [place for place, tokens in enumerate(told) if len(tokens) < free]
        result = [(0.0, 0.0)] * len(pairs)
        for at in range(0, len(fitting), BATCH):
            places = fitting[at : at + BATCH]
            premises, hypotheses = zip(*(pairs[place] for place in places), strict=True)
            inputs = tokenizer(  # type: ignore[operator]
                list(premises), list(hypotheses), truncation="only_first", max_length=room, padding=True, return_tensors="pt"
            )
            shares = torch.softmax(model(**inputs).logits.float(), -1)  # type: ignore[operator]
            for place, row in zip(places, shares, strict=True):
                result[place] = (float(row[follows]), float(row[against]) if against >= 0 else 0.0)
        return result
