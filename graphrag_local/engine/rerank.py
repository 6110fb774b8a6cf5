"""Reranking in this process: a cross-encoder that reads question and passage together. Loaded with its first use, never fetched."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sentence_transformers import CrossEncoder
from transformers.utils import logging

from graphrag_local.engine.models import go_offline, refuse_unfit
from graphrag_local.errors import UsageError

BATCH = 16


class LocalReranker:
    """The model in a folder; UsageError when it must not be loaded, or gives more than one number for a pair."""

    def __init__(self, folder: Path) -> None:
        refuse_unfit(folder, "reranker")
        go_offline()
        self._folder = folder
        self._model: Any = None
        self._thread = ThreadPoolExecutor(1, "reranker")

    async def score(self, question: str, texts: list[str]) -> list[float]:
        """How well each text answers the question: higher is better, no unit. Texts longer than the model reads are cut."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._scores, question, texts)

    async def close(self) -> None:
        """End the thread, after the batch it is at, and give the memory back."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
        self._model = None

    def _scores(self, question: str, texts: list[str]) -> list[float]:
        if self._model is None:
            logging.disable_progress_bar()
            logging.set_verbosity_error()
            model = CrossEncoder(str(self._folder), local_files_only=True, trust_remote_code=False, model_kwargs={"use_safetensors": True})
            if model.num_labels != 1:
                hint = "Take a cross-encoder that was trained for ranking: it gives one number for a pair."
                raise UsageError(f"The model in {self._folder} gives {model.num_labels} numbers for a pair.", hint=hint)
            self._model = model
        scores = self._model.predict([(question, text) for text in texts], batch_size=BATCH, show_progress_bar=False, convert_to_numpy=True)
        return [float(score) for score in scores]
