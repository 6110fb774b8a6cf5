"""Vectors in this process: a sentence-transformers model from a local folder."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from transformers.utils import logging

from graphrag_local.engine.embed import Vector, pooled
from graphrag_local.engine.models import embedder_card, entry_of, go_offline, refuse_unfit
from graphrag_local.errors import EngineRefused, EngineUnreachable
from graphrag_local.settings import VectorsSettings

SMALL_BYTES = 400_000_000  # a model with less weights than this is left on the CPU: the GPU's memory is the chat model's


class LocalEmbedder:
    """An embedding model in a folder, computed in one thread. Loaded at the first use; UsageError at once when it must not be loaded."""

    def __init__(self, folder: Path, settings: VectorsSettings) -> None:
        refuse_unfit(folder, "embedder")
        go_offline()
        self.card = embedder_card(entry_of(folder), settings)
        self._folder = folder
        self._batch = settings.batch
        self._query_prefix = settings.query_prefix
        self._model: Any = None
        self._thread = ThreadPoolExecutor(1, "embedder")
        self._closed = False

    async def embed(self, texts: list[str], *, query: bool = False) -> list[Vector]:
        """One unit vector per text; a text longer than the model reads is embedded in windows of tokens, without overlap, and pooled."""
        if self._closed:
            raise EngineUnreachable("The embedder is closed.")
        prefixed = [self._query_prefix + text for text in texts] if query else texts
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._vectors, prefixed)

    async def close(self) -> None:
        """End the thread, after the texts it is at, and give the memory back."""
        self._closed = True
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
        self._model = None

    def _loaded(self) -> Any:
        if self._model is None:
            logging.disable_progress_bar()
            logging.set_verbosity_error()
            size = sum(file.stat().st_size for file in self._folder.glob("*.safetensors"))
            device = "cpu" if size < SMALL_BYTES else None  # None: the library takes a GPU where there is one
            self._model = SentenceTransformer(
                str(self._folder), device=device, local_files_only=True, trust_remote_code=False, model_kwargs={"use_safetensors": True}
            )
        return self._model

    def _vectors(self, texts: list[str]) -> list[Vector]:
        model = self._loaded()
        windows = [self._windows(text) for text in texts]
        flat = [piece for pieces in windows for _, piece in pieces]
        if not flat:
            return []
        # The library orders what it is given by length, so that a batch holds texts of like length.
        found = model.encode(flat, batch_size=self._batch, show_progress_bar=False, convert_to_numpy=True)
        if found.shape[1] != self.card.dimension:
            hint = f"Set its dimension to {found.shape[1]} in the catalogue."
            raise EngineRefused(f"The embedder {self.card.name!r} gives {found.shape[1]} numbers, not {self.card.dimension}.", hint=hint)
        vectors = iter(found)
        return [pooled([(length, next(vectors)) for length, _ in pieces]) for pieces in windows]

    def _windows(self, text: str) -> list[tuple[int, str]]:
        """(tokens, text) of the parts of a text that the model reads whole, cut where a word begins."""
        model = self._loaded()
        tokenizer = model.tokenizer
        found = tokenizer(text, add_special_tokens=False, truncation=False, return_offsets_mapping=True, verbose=False)
        offsets, count = found["offset_mapping"], len(found["input_ids"])
        limit = (model.max_seq_length or tokenizer.model_max_length) - tokenizer.num_special_tokens_to_add()
        words = found.word_ids()
        windows: list[tuple[int, str]] = []
        begin = 0
        while count - begin > limit:
            end = next((at for at in range(begin + limit, begin + limit // 2, -1) if words[at] != words[at - 1]), begin + limit)
            windows.append((end - begin, text[offsets[begin][0] : offsets[end][0]]))
            begin = end
        return [*windows, (max(1, count - begin), text[offsets[begin][0] :] if windows else text)]
