"""Decoding many replies at once on a CPU: one packed pass over the new tokens of all rows, each row with its own memory and grammar.

Why not `generate()` of Transformers: it pads all rows to one length, copies their memories at every token, starts and ends a batch together and takes
one constraint for all. Packed, a pass over 16 rows costs about as much as over one (54 ms against 53 for 135M parameters on two cores), rows come
and go at any token, a prompt is read while other rows write, and tokens that a grammar forces are read in the same pass instead of one by one.

Replies do not depend on the company they were made in, where the arithmetic allows it (bfloat16 here): prompts are read in pieces on a fixed grid,
and a row's attention is computed by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import llguidance.hf
import numpy as np
import torch
from llguidance import LLMatcher
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from graphrag_local.engine.base import FinishReason, Gate
from graphrag_local.errors import EngineRefused

GRID = 64  # tokens of a prompt whose attention is computed together; prefixes are shared in units of it
PASS_TOKENS = 512  # prompt tokens read in one pass: about half a second here, so that a stop never waits longer
KEPT_TOKENS = 4096  # tokens of finished rows that stay in memory for their prefixes
GATE_TOKENS = 24  # an answer to the gate that has not come by then will not come
_ATTENTION = "graphrag_rows"


class Memory:
    """Keys and values of one row, layer by layer: [2, key-value heads, capacity, head size]. Pages that were never written cost nothing."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.layers: dict[int, torch.Tensor] = {}

    def write(self, layer: int, start: int, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Put the keys and values [heads, tokens, size] of new tokens at a position; the layer's buffer."""
        if layer not in self.layers:
            self.layers[layer] = keys.new_empty(2, keys.shape[0], self.capacity, keys.shape[2])
        buffer = self.layers[layer]
        buffer[0, :, start : start + keys.shape[1]] = keys
        buffer[1, :, start : start + keys.shape[1]] = values
        return buffer

    def copy_from(self, other: "Memory", tokens: int) -> None:
        """Take over the first tokens of another row's memory."""
        for layer, theirs in other.layers.items():
            mine = theirs.new_empty(2, theirs.shape[1], self.capacity, theirs.shape[3])
            mine[:, :, :tokens] = theirs[:, :, :tokens]
            self.layers[layer] = mine


@dataclass(slots=True)
class Piece:
    """A run of a row's tokens in one pass: they begin at `start` in the row and at `at` in the pass."""

    memory: Memory
    start: int
    at: int
    tokens: int
    masks: dict[tuple[int, int | None], torch.Tensor] = field(default_factory=dict)

    def mask(self, groups: int, window: int | None) -> torch.Tensor:
        """Which of the row's tokens each of these may look at, repeated for the heads that share keys: [groups x tokens, seen tokens]."""
        if (groups, window) not in self.masks:
            seen = torch.ones(self.tokens, self.start + self.tokens, dtype=torch.bool).tril(self.start)
            if window:
                seen = seen.triu(self.start + 1 - window)
            self.masks[groups, window] = seen.repeat(groups, 1)
        return self.masks[groups, window]


def _attend(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any, *,
    rows: Sequence[Piece], scaling: float | None = None, dropout: float = 0.0, sliding_window: int | None = None, **others: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """Attention of a pass: query [1, heads, tokens, size], key and value [1, key-value heads, tokens, size] -> [1, tokens, heads, size].

    The heads that share keys are laid side by side as if they were further tokens: nothing is repeated in memory, and one new token needs no mask.
    """
    if others.get("softcap") is not None or others.get("s_aux") is not None:
        raise EngineRefused("This model's attention has caps or sinks that the embedded engine does not compute.", hint="Serve it with vLLM.")
    _, heads, tokens, size = query.shape
    shared = key.shape[1]
    groups = heads // shared
    result = query.new_empty(1, tokens, heads, value.shape[3])
    for piece in rows:
        run = slice(piece.at, piece.at + piece.tokens)
        buffer = piece.memory.write(module.layer_idx, piece.start, key[0, :, run], value[0, :, run])
        first = max(0, piece.start + 1 - sliding_window) if sliding_window and piece.tokens == 1 else 0
        seen = buffer[:, None, :, first : piece.start + piece.tokens]
        folded = query[:, :, run].reshape(1, shared, groups * piece.tokens, size)
        mask = None if piece.tokens == 1 else piece.mask(groups, sliding_window)
        out = scaled_dot_product_attention(folded, seen[0], seen[1], attn_mask=mask, scale=scaling)
        result[0, run] = out.view(heads, piece.tokens, -1).transpose(0, 1)
    return result, None


AttentionInterface.register(_ATTENTION, _attend)


@dataclass(slots=True, kw_only=True, eq=False)
class Row:
    """One reply in the making. `tokens` are the prompt's and those written so far; the first `done` of them are in `memory`."""

    tokens: list[int]
    prompt: int
    max_tokens: int
    matcher: LLMatcher | None = None
    temperature: float = 0.0
    seed: int = 0
    asks: Gate | None = None
    """What decides at its options becomes `gate`."""
    gate_after_colon: bool = False
    wants_logprobs: bool = False
    gate: float | None = None
    done: int = 0
    cached: int = 0
    memory: Memory = field(init=False)
    generator: torch.Generator | None = None
    logprobs: list[float] = field(default_factory=list)
    finish: FinishReason | None = None

    def __post_init__(self) -> None:
        self.memory = Memory(len(self.tokens) + self.max_tokens)

    @property
    def reply(self) -> list[int]:
        """The tokens written so far."""
        return self.tokens[self.prompt :]


@dataclass(slots=True)
class Pass:
    """What one pass computes: `ids` of all pieces side by side. `ends` is how far it takes each row, `last` where in the pass that is."""

    ids: list[int] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    ends: dict[Row, int] = field(default_factory=dict)
    last: dict[Row, int] = field(default_factory=dict)
    room: int = PASS_TOKENS

    def take(self, row: Row) -> None:
        """Add what a row has to compute: everything when it writes, as much as there is room for when it reads its prompt."""
        start = row.done
        while start < row.prompt and self.room > 0:
            stop = min(row.prompt, (start // GRID + 1) * GRID)
            self._add(row, start, stop)
            self.room -= stop - start
            start = stop
        if row.prompt <= start < len(row.tokens):
            self._add(row, start, len(row.tokens))

    def _add(self, row: Row, start: int, stop: int) -> None:
        self.pieces.append(Piece(row.memory, start, len(self.ids), stop - start))
        self.ids += row.tokens[start:stop]
        self.ends[row] = stop
        self.last[row] = len(self.ids) - 1


class Decoder:
    """A causal model with its tokenizer. Not thread-safe: one thread calls it."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        logging.disable_progress_bar()
        logging.set_verbosity_error()
        self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        self.model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation=_ATTENTION, local_files_only=True, trust_remote_code=False, use_safetensors=True
        ).eval()
        if not getattr(self.model, "_supports_attention_backend", False) or _is_stateful(self.model.config):
            raise EngineRefused(f"The model in {folder} is of a kind that the embedded engine does not run.", hint="Serve it with vLLM.")
        ends = self.model.generation_config.eos_token_id
        self.ends = sorted({*(ends if isinstance(ends, list) else [ends]), self.tokenizer.eos_token_id} - {None})
        self._finished: list[Row] = []
        self._option_ids: dict[str, list[int]] = {}

    @cached_property
    def grammar_tokens(self) -> Any:
        """The vocabulary as llguidance wants it; as wide as the model's output, which may be wider than the tokenizer."""
        return llguidance.hf.from_tokenizer(self.tokenizer, n_vocab=self.model.get_output_embeddings().weight.shape[0], eos_token=self.ends)

    def matcher(self, grammar: str) -> LLMatcher:
        """The state of a grammar (in llguidance's own form); EngineRefused when it is not one."""
        matcher = LLMatcher(self.grammar_tokens, grammar, log_level=0)
        if matcher.is_error():
            raise EngineRefused(f"The constraint cannot be compiled: {matcher.get_error()}")
        return matcher

    def text(self, tokens: Sequence[int]) -> str:
        """Tokens as text, without control tokens."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    # --- one pass

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def step(self, rows: Sequence[Row]) -> None:
        """One pass: every row that writes gets its next token, rows that read their prompt get on with it; finished rows have `finish` set."""
        work = Pass()
        for row in sorted(rows, key=lambda row: row.done < row.prompt):  # those that write first; stable, so in order of arrival
            if row.done == 0 and work.room > 0:
                self._share_prefix(row, rows)
            work.take(row)
        if len(work.ids) == 1:  # a product with one row is added up in another order than one with more, and replies would depend on their company
            work.pieces.append(Piece(Memory(1), 0, 1, 1))
            work.ids.append(work.ids[0])
        ready = [row for row in rows if work.ends.get(row) == len(row.tokens)]
        logits = self.model(
            input_ids=torch.tensor([work.ids]),
            position_ids=torch.tensor([[at for piece in work.pieces for at in range(piece.start, piece.start + piece.tokens)]]),
            rows=work.pieces,
            use_cache=False,
            logits_to_keep=torch.tensor([work.last[row] for row in ready], dtype=torch.long),
        ).logits[0]
        for row, end in work.ends.items():
            row.done = end
        if ready:
            self._write(ready, logits.float())
        self._keep([row for row in rows if row.finish])

    def _write(self, rows: list[Row], logits: torch.Tensor) -> None:
        """Choose the next token of each row; logits: [rows, vocabulary]."""
        asked = [row.wants_logprobs or (row.asks is not None and row.gate is None) for row in rows]
        raw = [torch.log_softmax(logits[at], -1) if asked[at] else None for at in range(len(rows))]
        logits = self._masked(rows, logits)
        greedy = logits.argmax(-1).tolist()
        for at, row in enumerate(rows):
            token = greedy[at] if row.temperature == 0 else self._sampled(row, logits[at])
            probabilities = raw[at]
            if probabilities is not None:
                if row.wants_logprobs and token not in self.ends:
                    row.logprobs.append(float(probabilities[token]))
                if row.asks and row.gate is None:
                    self._read_gate(row, row.asks, token, probabilities)
            self._append(row, token)

    def _masked(self, rows: list[Row], logits: torch.Tensor) -> torch.Tensor:
        constrained = [at for at, row in enumerate(rows) if row.matcher is not None]
        if not constrained:
            return logits
        width = logits.shape[1]
        bits = np.full((len(rows), (width + 31) // 32 * 4), 255, dtype=np.uint8)
        for at in constrained:
            matcher = rows[at].matcher
            assert matcher is not None
            matcher.unsafe_compute_mask_ptr(bits[at].ctypes.data, bits.shape[1])
        allowed = np.unpackbits(bits, axis=1, count=width, bitorder="little").view(np.bool_)
        return logits.masked_fill_(~torch.from_numpy(allowed), -torch.inf)

    def _sampled(self, row: Row, logits: torch.Tensor) -> int:
        if row.generator is None:
            row.generator = torch.Generator().manual_seed(row.seed)
        return int(torch.multinomial(torch.softmax(logits / row.temperature, -1), 1, generator=row.generator))

    def _append(self, row: Row, token: int) -> None:
        """Put a token on a row, and after it those that the grammar leaves no choice about."""
        if token in self.ends:
            row.finish = row.finish or "stop"
            return
        row.tokens.append(token)
        if row.matcher is not None and row.finish is None:
            forced: list[int] = []
            if row.matcher.consume_token(token) and not row.wants_logprobs:  # a forced token that is not read has no probability
                forced = row.matcher.compute_ff_tokens()[: row.max_tokens - len(row.reply)]
                row.matcher.consume_tokens(forced)
                row.tokens += forced
            if row.matcher.is_error():  # the grammar outgrew its limits
                row.finish = "abort"
            elif row.matcher.is_stopped():
                row.finish = "stop"
        if row.finish is None and len(row.reply) >= row.max_tokens:
            row.finish = "length"

    # --- the gate

    def _read_gate(self, row: Row, gate: Gate, token: int, probabilities: torch.Tensor) -> None:
        """Where the reply's answer to the gate stands, take what decides, and abandon the row under the threshold.

        The answer is the reply's first token; in JSON it is the value of the first key, so it comes after a colon.
        """
        if len(row.reply) >= GATE_TOKENS or (row.gate_after_colon and ":" not in self.text(row.reply)):
            return
        of_option = [self._ids_of(option) for option in gate.options]
        if not any(token in ids for ids in of_option):
            return
        row.gate = gate.value([float(probabilities[ids].double().exp().sum()) if ids else 0.0 for ids in of_option])
        if row.gate is not None and row.gate < gate.threshold:
            row.finish = "gate"

    def _ids_of(self, option: str) -> list[int]:
        """Tokens that are an option, whatever white space, quotes and marks stand around it."""
        if option not in self._option_ids:
            pieces = self.tokenizer.batch_decode([[token] for token in range(len(self.tokenizer))])
            self._option_ids[option] = [token for token, piece in enumerate(pieces) if piece.strip(" \t\r\n\"':,{}") == option]
        return self._option_ids[option]

    # --- prefixes

    def _share_prefix(self, row: Row, rows: Sequence[Row]) -> None:
        """Copy what another row has read already of the same beginning, in whole squares of the grid; the last token is always read anew."""
        best, shared = None, 0
        for other in (*rows, *reversed(self._finished)):
            if other is not row:
                limit = min(other.done, other.prompt, row.prompt - 1)
                same = next((at for at in range(limit) if other.tokens[at] != row.tokens[at]), limit) // GRID * GRID
                if same > shared:
                    best, shared = other, same
        if best is not None:
            row.memory.copy_from(best.memory, shared)
            row.done = row.cached = shared

    def _keep(self, finished: list[Row]) -> None:
        self._finished += finished
        while self._finished and sum(row.prompt for row in self._finished) > KEPT_TOKENS:
            del self._finished[0]


def _is_stateful(config: Any) -> bool:
    """Whether some layer keeps another memory than keys and values (state-space and linear-attention models)."""
    kinds = set(getattr(config, "layer_types", None) or [])
    return bool(kinds - {"full_attention", "sliding_attention"})
