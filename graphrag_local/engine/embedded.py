"""The engine without a server: a small model in this process, on the CPU, with the same constraints. The laptop and the first five minutes.

Requests wait in a queue; up to `engine.batch` of them are rows of one batch, joined and left at any token (see `rows`). One thread computes, one
pass at a time, so that Ctrl-C and `close` wait for one pass at most and an abandoned request costs nothing more.
"""

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from llguidance import LLMatcher
from outlines.types import CFG
from outlines.types import Choice as OutlinesChoice
from outlines.types import JsonSchema as OutlinesSchema
from outlines.types.dsl import to_regex

from graphrag_local.engine.base import Choice, Constraint, FreeText, Grammar, JsonSchema, ModelCard, Reply, Request
from graphrag_local.engine.models import go_offline, refuse_unfit
from graphrag_local.engine.rows import Decoder, Row
from graphrag_local.errors import ContextOverflow, EngineRefused, EngineUnreachable
from graphrag_local.prompting import Message
from graphrag_local.records import Usage
from graphrag_local.settings import EngineSettings

MEMORY_SHARE = 0.25  # of the machine's memory that the rows of a batch may fill
THREADS_HOLD_S = 20.0  # after this time the number of threads is chosen anew
R = TypeVar("R")


def grammar_of(constraint: Constraint) -> str | None:
    """A constraint as a grammar in llguidance's own form, by way of Outlines' types; None for free text. JSON is compact."""
    match constraint:
        case FreeText():
            return None
        case Grammar(lark=lark):
            return str(LLMatcher.grammar_from_lark(CFG(lark).definition))
        case Choice(options=options):
            return str(LLMatcher.grammar_from_regex(to_regex(OutlinesChoice(list(options)))))
        case JsonSchema(text=text):
            return str(LLMatcher.grammar_from_json_schema(OutlinesSchema(text).schema, overrides={"whitespace_flexible": False}))


def take_threads() -> None:
    """Compute with all cores, or with one where others keep them busy: threads that wait for each other at every layer's end then cost more than
    they bring (measured: 42 tokens/s with one thread against 8 with two, on two cores with six busy processes)."""
    left, right = torch.ones(16, 512), torch.ones(512, 1024)
    seconds = {}
    for threads in {1, os.cpu_count() or 1}:
        torch.set_num_threads(threads)
        begun = time.perf_counter()
        for _ in range(40):
            left @ right
        seconds[threads] = time.perf_counter() - begun
    torch.set_num_threads(min(seconds, key=seconds.__getitem__))


def dtype_of(setting: str) -> torch.dtype:
    """The number format: as set, else bfloat16 where the processor computes with it, else float32."""
    if setting == "auto":
        cpu = Path("/proc/cpuinfo")
        flags = set(cpu.read_text().split()) if cpu.is_file() else set()
        setting = "bfloat16" if flags & {"avx512_bf16", "amx_bf16", "bf16"} else "float32"
    return torch.bfloat16 if setting == "bfloat16" else torch.float32


@dataclass(slots=True, eq=False)
class _Job:
    """A request that waits for its row, or has it."""

    row: Row
    future: asyncio.Future[None]
    order: tuple[int, int]
    heard: Callable[[str], None] | None = None


class EmbeddedEngine:
    """The model in a folder. Its files are looked at now and loaded with the first request; UsageError when they must not be loaded."""

    def __init__(self, folder: Path, settings: EngineSettings, card: ModelCard) -> None:
        refuse_unfit(folder, "chat")
        go_offline()
        self.card = card
        self._folder = folder
        self._settings = settings
        self._decoder: Decoder | None = None
        self._thread = ThreadPoolExecutor(1, "embedded-model")
        self._jobs: list[_Job] = []
        self._arrivals = 0
        self._driver: asyncio.Task[None] | None = None
        self._closed = False
        self._threads_until = 0.0

    async def generate(self, request: Request) -> Reply:
        """The reply to one request. Raises ContextOverflow when it does not fit the window, EngineRefused for a constraint that is none."""
        begun = time.monotonic()
        row = await self._in_thread(lambda: self._row(request))
        self._arrivals += 1
        job = _Job(row, asyncio.get_running_loop().create_future(), (request.priority, self._arrivals), request.heard)
        self._jobs.append(job)
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
            self._driver.add_done_callback(self._ended)
        await job.future
        return await self._in_thread(lambda: self._reply(row, request, time.monotonic() - begun))

    async def close(self) -> None:
        """Stop at the next pass and give the memory back; requests that wait are cancelled."""
        self._closed = True
        if self._driver is not None:
            self._driver.cancel()
            await asyncio.wait([self._driver])
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
        self._decoder = None

    # --- in the event loop

    async def _in_thread(self, work: Callable[[], R]) -> R:
        if self._closed:
            raise EngineUnreachable("The embedded model is closed.")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _drive(self) -> None:
        """Pass after pass while there is work: the batch is the first jobs in order of priority that fit, those begun before the others."""
        assert self._decoder is not None
        while self._jobs:
            self._jobs = [job for job in self._jobs if not job.future.done()]
            batch = self._batch()
            if time.monotonic() > self._threads_until:
                await self._in_thread(take_threads)
                self._threads_until = time.monotonic() + THREADS_HOLD_S
            if batch:
                await self._in_thread(partial(self._decoder.step, [job.row for job in batch]))
            await self._tell([job for job in batch if job.heard and not job.future.done() and job.row.reply])
            for job in batch:
                if job.row.finish and not job.future.done():
                    job.future.set_result(None)

    async def _tell(self, jobs: list[_Job]) -> None:
        """Say the replies so far of those who listen, without a last character of which not all bytes are there."""
        if jobs:
            decoder = self._loaded()
            texts = await self._in_thread(lambda: [decoder.text(job.row.reply).rstrip("\ufffd") for job in jobs])
            for job, text in zip(jobs, texts, strict=True):
                if job.heard:
                    job.heard(text)

    def _batch(self) -> list[_Job]:
        assert self._decoder is not None
        room = _tokens_in_memory(self._decoder)
        batch: list[_Job] = []
        for job in sorted(self._jobs, key=lambda job: (job.row.done == 0, job.order)):
            room -= job.row.memory.capacity
            if batch and (len(batch) == self._settings.batch or room < 0):
                break
            batch.append(job)
        return batch

    def _ended(self, driver: "asyncio.Task[None]") -> None:
        """The driver is done: pass on to those who wait that it was cancelled or failed."""
        error = None if driver.cancelled() else driver.exception()
        if driver is not self._driver or not (error or driver.cancelled()):
            return
        for job in self._jobs:
            if not job.future.done():
                if error is None:
                    job.future.cancel()
                else:
                    job.future.set_exception(error)
        self._jobs = []

    # --- in the thread

    def _loaded(self) -> Decoder:
        if self._decoder is None:
            self._decoder = Decoder(self._folder, dtype_of(self._settings.dtype))
        return self._decoder

    def _row(self, request: Request) -> Row:
        decoder = self._loaded()
        tokens = self._prompt(decoder, request.messages)
        if len(tokens) + request.max_tokens > self.card.context_tokens:
            message = f"A prompt of {len(tokens)} tokens and {request.max_tokens} for the reply exceed the window of {self.card.context_tokens}."
            raise ContextOverflow(message, window=self.card.context_tokens, prompt_tokens=len(tokens))
        grammar = grammar_of(request.constraint)
        return Row(
            tokens=tokens,
            prompt=len(tokens),
            max_tokens=request.max_tokens,
            matcher=decoder.matcher(grammar) if grammar else None,
            temperature=request.temperature,
            seed=request.seed,
            asks=request.gate,
            gate_after_colon=isinstance(request.constraint, JsonSchema),
            wants_logprobs=request.logprobs,
        )

    def _prompt(self, decoder: Decoder, messages: tuple[Message, ...]) -> list[int]:
        if not decoder.tokenizer.chat_template:
            raise EngineRefused(f"The model in {self._folder} has no chat template.", hint="Take an instruction-tuned model.")
        chat = [{"role": message.role, "content": message.content} for message in messages]
        text = decoder.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, enable_thinking=False)
        return list(decoder.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _reply(self, row: Row, request: Request, seconds: float) -> Reply:
        decoder = self._loaded()
        usage = Usage(calls=1, prompt_tokens=row.prompt, cached_tokens=row.cached, completion_tokens=len(row.reply), seconds=seconds)
        pairs = zip(map(decoder.text, ([token] for token in row.reply)), row.logprobs, strict=True) if request.logprobs else ()
        return Reply(
            text=decoder.text(row.reply),
            finish_reason=row.finish or "abort",
            usage=usage,
            gate=row.gate if request.gate else None,
            logprobs=tuple(pairs),
        )


def _tokens_in_memory(decoder: Decoder) -> int:
    """How many tokens of keys and values the rows of a batch may hold together."""
    config = decoder.model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    per_token = 2 * config.num_hidden_layers * heads * size * decoder.model.dtype.itemsize
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(memory * MEMORY_SHARE / per_token)
