"""One chunk in, one grounded extraction out (paper §3.1.2, appendix A).

The passage is sent as numbered sentences, alone, so that an edit elsewhere does not change this call. Gleaning happens inside the reply: after
its records the grammar asks `missed`, a constrained Y or N. A reply that is cut off or loops is asked again for each half of its sentences.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from graphrag_local.engine.base import OUTCOME_WORDS, Choice, Model, Reply, Request, ask
from graphrag_local.errors import ContextOverflow, ReplyInvalid, reason_of
from graphrag_local.extraction.ground import Passage, ground, numbered, passage_of
from graphrag_local.extraction.propose import pair_up, propose
from graphrag_local.extraction.schema import Drafts, GroundingMode, Shape, constraint, parse
from graphrag_local.prompting import Message, Prompt
from graphrag_local.records import Chunk, Extraction, Failed, Span
from graphrag_local.settings import ExtractionSettings
from graphrag_local.text import size
from graphrag_local.tokens import count_messages

# Reply tokens of one entity or relationship record with a description of one sentence, our estimate (not measured); quotes need no description.
TOKENS_PER_RECORD = 40
TOKENS_PER_QUOTED_RECORD = 22
MISSED = ("Y", "N")  # the answers to `missed`
LONGEST_WORD = 60  # characters of a word in a name that is confined to the passage
SENTENCE = 16  # tokens of a short sentence: a window without room for one is of no use at all
SMALLEST_REPLY = 64  # a reply squeezed below this is not attempted


@dataclass(frozen=True, slots=True, kw_only=True)
class Extractor:
    """What every call of a run shares."""

    model: Model
    prompt: Prompt
    glean_prompt: Prompt
    settings: ExtractionSettings

    @property
    def mode(self) -> GroundingMode:
        """The grounding in use: `auto` means spans for tiny models under a grammar, evidence otherwise."""
        if self.settings.grounding != "auto":
            return self.settings.grounding
        return "span" if self.model.card.tiny else "evidence"

    @property
    def quote(self) -> bool:
        """Whether cited sentences stand for descriptions."""
        return self.settings.text == "quote" or (self.settings.text == "auto" and self.model.card.tiny)

    @property
    def types(self) -> tuple[str, ...]:
        """The entity types a reply may use."""
        return (*self.settings.types, "other") if self.settings.other_type and "other" not in self.settings.types else self.settings.types

    @property
    def in_reply_gleanings(self) -> int:
        """Rounds of gleaning inside the reply (schema replies have room for one)."""
        rounds = self.settings.max_gleanings if self.settings.gleaning == "reply" else 0
        return rounds if self.model.card.form == "grammar" else min(rounds, 1)

    def shape(self, passage: Passage) -> Shape:
        """What a reply about this passage may hold: arrays bounded by the passage's size, so that the longest sensible reply fits."""
        per_record = TOKENS_PER_QUOTED_RECORD if self.quote else TOKENS_PER_RECORD
        most = max(2, self.settings.max_reply_tokens // per_record)  # both lists this long do not fit, but a reply that is cut off is halved
        plausible = 8 + int(size(passage.text) / 3)  # a list of names has one for three tokens
        shown = " ".join(passage.shown)
        confined = self.mode == "span" and self.model.card.form == "grammar"
        room = max(1, self.settings.max_reply_tokens // (2 * per_record))
        proposes = confined and self.model.card.tiny and not self.settings.claims
        names = propose(passage, min(self.settings.max_entities, room)) if proposes else ()
        return Shape(
            form=self.model.card.form,
            types=self.types,
            sentences=len(passage.spans),
            max_entities=len(names) or min(self.settings.max_entities, plausible, most),
            max_relationships=min(self.settings.max_relationships, plausible, room if names else most),
            quote=self.quote,
            claims=self.settings.claims,
            gleanings=0 if names else self.in_reply_gleanings,
            spans=_nameable(shown) if confined else "",
            unsegmented=_unsegmented(shown),
            names=names,
            pairs=pair_up(names, min(self.settings.max_relationships, room)),
        )

    def reply_tokens(self, shape: Shape) -> int:
        """Room for the reply: what the shape can hold, within the setting."""
        per_record = TOKENS_PER_QUOTED_RECORD if self.quote else TOKENS_PER_RECORD
        rounds = 1 + 0.5 * shape.gleanings
        overhead = 1.0 if shape.form == "grammar" else 1.6  # JSON repeats its keys in every record
        return min(self.settings.max_reply_tokens, int(rounds * overhead * per_record * (shape.max_entities + shape.max_relationships)) + 64)

    def check_window(self) -> None:
        """Raise ContextOverflow, with the sizes, when the window has no room for one sentence beside the prompt and the smallest reply."""
        window = self.model.card.context_tokens
        prompt = count_messages(self.model.counter, self._rendered("", glean=False))
        if window and prompt + SENTENCE + SMALLEST_REPLY > window:
            message = f"The model's window of {window} tokens is too small: the prompt takes {prompt}, a sentence {SENTENCE}, a reply {SMALLEST_REPLY}."
            hint = "Use a model, or start the server, with a larger window; a wrong engine.context_tokens has the same effect."
            raise ContextOverflow(message, window=window, prompt_tokens=prompt, hint=hint)

    def messages(self, passage: Passage, shape: Shape) -> tuple[Message, ...]:
        """The chat about one passage."""
        return self._rendered(numbered(passage), glean=shape.gleanings > 0)

    def _rendered(self, passage: str, *, glean: bool) -> tuple[Message, ...]:
        return self.prompt.render(
            form=self.model.card.form,
            types=self.types,
            quote=self.quote,
            claims=self.settings.claims,
            language=self.settings.language,
            glean=glean,
            passage=passage,
        )

    def request(self, passage: Passage) -> tuple[Request, Shape]:
        """The call about one passage; ContextOverflow when not even a small reply fits beside it."""
        shape = self.shape(passage)
        messages = self.messages(passage, shape)
        wanted = self.reply_tokens(shape)
        tokens = wanted
        while not (fitting := self.model.fits(messages, tokens)) and tokens > SMALLEST_REPLY:
            tokens = max(SMALLEST_REPLY, int(tokens * 0.8))
        if not fitting or (tokens < wanted // 2 and len(passage.spans) > 1):
            window = self.model.card.context_tokens
            raise ContextOverflow(f"The passage does not fit the model's window of {window} tokens.", window=window)
        return (
            Request(
                messages=messages,
                constraint=constraint(shape),
                max_tokens=tokens,
                purpose="extract",
                logprobs=shape.gleanings > 0 and self.model.card.logprobs,
                decides=MISSED,
                affinity=passage.chunk.id,
                documents=(passage.chunk.document_id,),
            ),
            shape,
        )


_SPACELESS = re.compile("[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0eff\u1000-\u109f]")


def _unsegmented(text: str) -> bool:
    """Whether at least a fifth of the letters belong to scripts without spaces between words (Han, kana, Thai, Lao, Burmese)."""
    found = 0 if text.isascii() else len(_SPACELESS.findall(text))
    return found > 0 and found * 5 > sum(character.isalpha() for character in text)


def _nameable(text: str) -> str:
    """A passage as names may be taken from it: a mark that no name goes over stands in place of a word too long for a name.

    A few hundred characters without a blank make the lexer of a server give up, and the server answers 500.
    """
    if _unsegmented(text):
        return text
    return " ".join(word if len(word) <= LONGEST_WORD else "." for word in text.split(" "))


async def extract_chunk(chunk: Chunk, extractor: Extractor) -> tuple[Extraction, tuple[Failed, ...]]:
    """The extraction of a chunk, and a failure for each part of it that could not be read; what could be read is kept."""
    passage = passage_of(chunk)
    if not passage.spans:
        return Extraction(chunk_id=chunk.id, document_id=chunk.document_id), ()
    parts, failures = [], []
    for extraction, failure in await _extract(passage, extractor, halvings=1):
        if extraction is not None:
            parts.append(extraction)
        if failure is not None:
            failures.append(failure)
    return join(chunk, parts), tuple(failures)


async def _extract(passage: Passage, extractor: Extractor, halvings: int) -> list[tuple[Extraction | None, Failed | None]]:
    """The extractions of a passage; `halvings` is how often a reply that was cut off may still be answered by halving."""
    nameable = extractor.shape(passage).spans or passage.text
    if not any(character.isalnum() for character in nameable):  # a rule, an ornament or one endless word, in which no name can be
        return [(Extraction(chunk_id=passage.chunk.id, document_id=passage.chunk.document_id), None)]
    try:
        return [(await _ask(passage, extractor), None)]
    except ContextOverflow as error:
        if len(passage.spans) > 1 or (longer := _cut_sentence(passage)) is None:
            if len(passage.spans) == 1:
                return [(None, _failed(passage, f"one sentence does not fit the model's window: {reason_of(error)}"))]
            return [found for half in passage.halves() for found in await _extract(half, extractor, halvings)]
        return [found for half in longer for found in await _extract(half, extractor, halvings)]
    except ReplyInvalid as error:
        if halvings and len(passage.spans) > 1:
            return [found for half in passage.halves() for found in await _extract(half, extractor, halvings - 1)]
        return [(None, _failed(passage, f"{OUTCOME_WORDS[error.outcome]}: {error}"))]


def _cut_sentence(passage: Passage) -> tuple[Passage, Passage] | None:
    """A passage of one sentence cut in two near its middle, at a blank where there is one."""
    span = passage.spans[0]
    text = passage.text_of(span)
    if len(text) < 40:
        return None
    at = text.rfind(" ", len(text) // 4, len(text) * 3 // 4) + 1 or len(text) // 2
    middle = span.start + at
    return Passage(passage.chunk, (Span(start=span.start, end=middle),)), Passage(passage.chunk, (Span(start=middle, end=span.end),))


def _failed(passage: Passage, reason: str) -> Failed:
    whole = len(passage.spans) and passage.text.strip() == passage.chunk.text.strip()
    where = f"chunk {passage.chunk.index + 1}" if whole else f"part of chunk {passage.chunk.index + 1}"
    return Failed(stage="extraction", input_id=passage.chunk.id, input=where, reason=reason)


async def _ask(passage: Passage, extractor: Extractor) -> Extraction:
    """One call, or, with gleaning in turns, three; an unreadable reply is asked once more with another seed, a long one is not."""
    request, shape = extractor.request(passage)
    read = parse(extractor.model.card.form, extractor.quote)
    try:
        drafts, reply = await ask(extractor.model, request, read, tries=1)
    except ReplyInvalid as error:
        if error.outcome in ("cut_off", "loop") and len(passage.spans) > 1:
            raise
        drafts, reply = await ask(_reseeded(extractor.model), request, read, tries=1)
    if not shape.names and extractor.settings.gleaning == "turns" and extractor.settings.max_gleanings:
        drafts = await _glean(request, reply, drafts, extractor)
    extraction = ground(passage, drafts, extractor.types, extractor.mode, extractor.quote)
    return replace(extraction, missed_logprob=_missed_logprob(reply))


def _reseeded(model: Model) -> Model:
    return replace(model, seed=model.seed + 1, temperature=max(model.temperature, 0.3))


def _missed_logprob(reply: Reply) -> float | None:
    """The log-probability of the Y or N that followed `missed`: the last such token of the reply."""
    return next((value for token, value in reversed(reply.logprobs) if token.strip(' "\t\n') in MISSED), None)


async def _glean(request: Request, reply: Reply, drafts: Drafts, extractor: Extractor) -> Drafts:
    """The paper's gleaning as further turns: "were any missed?" answered Y or N, then the missed ones; a failed turn adds nothing."""
    read = parse(extractor.model.card.form, extractor.quote)
    messages = (*request.messages, Message(role="assistant", content=reply.text))
    for _ in range(extractor.settings.max_gleanings):
        asking = (*messages, *extractor.glean_prompt.render(step="ask"))
        listing = (*asking, Message(role="assistant", content="Y"), *extractor.glean_prompt.render(step="list"))
        if not extractor.model.fits(listing, request.max_tokens):
            return replace(drafts, bad=(*drafts.bad, "gleaning left out: the conversation does not fit the window"))
        try:
            gate = replace(request, messages=asking, constraint=Choice(options=("Y", "N")), max_tokens=4)
            if (await extractor.model.generate(gate)).text.strip() != "Y":
                return drafts
            more, reply = await ask(extractor.model, replace(request, messages=listing), read, tries=1)
        except ReplyInvalid as error:
            return replace(drafts, missed=True, bad=(*drafts.bad, f"gleaning failed: {error}"))
        messages = (*listing, Message(role="assistant", content=reply.text))
        drafts = _append(drafts, more)
    return drafts


def _append(first: Drafts, more: Drafts) -> Drafts:
    """A gleaned turn after what was there; its numbers already count on over all entities when the model kept to that, else its own."""
    shift = len(first.entities)
    own = all(isinstance(end, int) and 0 < end <= len(more.entities) for r in more.relationships for end in (r.source, r.target))
    moved = [
        replace(r, source=r.source + shift, target=r.target + shift) if own and isinstance(r.source, int) and isinstance(r.target, int) else r
        for r in more.relationships
    ]
    return Drafts(
        entities=first.entities + more.entities,
        relationships=first.relationships + tuple(moved),
        claims=first.claims + more.claims,
        missed=True,
        bad=first.bad + more.bad,
    )


def join(chunk: Chunk, parts: Iterable[Extraction]) -> Extraction:
    """The parts of a chunk as one extraction; the same name in two parts stays two records, which merging makes one node."""
    whole = Extraction(chunk_id=chunk.id, document_id=chunk.document_id)
    for part in parts:
        shift = len(whole.entities)
        whole = replace(
            whole,
            entities=whole.entities + part.entities,
            relationships=whole.relationships + tuple(replace(r, source=r.source + shift, target=r.target + shift) for r in part.relationships),
            claims=whole.claims + tuple(replace(c, subject=c.subject + shift, object=c.object + shift if c.object >= 0 else -1) for c in part.claims),
            dropped=whole.dropped + part.dropped,
            gleaned=whole.gleaned or part.gleaned,
            missed_logprob=part.missed_logprob if part.missed_logprob is not None else whole.missed_logprob,
        )
    return whole
