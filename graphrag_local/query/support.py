"""Whether the sentences of an answer are supported by what they cite: by comparison where they quote, else by a model that is shown both.

A model chooses one of three letters for one sentence and the sentences behind its citations, in a short call of its own. What counts is the letter;
the probability of "all of it is supported" among the three is kept beside it, because the letter alone says little with small models. The model sees the
evidence and not the question, the rest of the answer or the other evidence, so it has nothing to agree with but the text (our choice). Two things are left to no
model: a quotation or a figure that stands nowhere in what is cited makes a sentence partly supported at most.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from graphrag_local.answers import AnswerSentence, Source, Verdict
from graphrag_local.engine.base import Choice, Entailment, Gate, Request
from graphrag_local.errors import EngineError, ModelMissing, UsageError
from graphrag_local.ids import document_id
from graphrag_local.query.cite import clean, opened
from graphrag_local.query.context import Ref, cut_text, shown_as
from graphrag_local.query.figures import lacking
from graphrag_local.query.inquiry import Inquiry, Paragraph
from graphrag_local.query.speaking import goes_on, turns_of
from graphrag_local.query.view import View
from graphrag_local.query.windows import JOINTS, SMALLEST
from graphrag_local.text import sentences, words
from graphrag_local.tokens import count_messages

OPTIONS: dict[str, Verdict] = {"Y": "supported", "P": "partly", "N": "unsupported"}
EVIDENCE_TOKENS = 1200  # of sources shown for one sentence: some forty sentences, the likeliest of them where there are more
REPLY_TOKENS = 8  # one letter, in quotes on some servers, and its end
IN_FLIGHT = 16
SUPPORTED, PARTLY = 0.5, 0.2  # of an entailment model's probability, from which a sentence counts as such (our choice)
PREMISES = 8  # single sentences that an entailment model is shown besides all of them together
QUOTATION = re.compile('“([^“”]+)”|"([^"]+)"|«([^«»]+)»|„([^„“”]+)[“”]|「([^「」]+)」|『([^『』]+)』')
FIGURES = 5  # that a note names
QUOTED_WORDS = 4  # shorter things in quotation marks are titles and words used with reserve

Method = Literal["off", "compare", "model", "nli"]


@dataclass(frozen=True, slots=True)
class Check:
    """What became of one sentence. `lacking` are its figures that stand nowhere in what it cites, for which it counts as partly supported at most."""

    verdict: Verdict
    p: float | None = None
    lacking: tuple[str, ...] = ()


UNCHECKED = Check("unchecked")


@dataclass(frozen=True, slots=True)
class Piece:
    """A sentence of a paragraph, the white space after it, and its check, which may still be going on."""

    text: str
    gap: str
    check: "asyncio.Task[Check]"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A sentence behind a citation: the path of its document, its words, and who says it where the name does not stand before it ("": nobody is known to)."""

    document: str
    text: str
    who: str = ""

    @property
    def said(self) -> str:
        """The words under the name of who says them."""
        return f"{self.who}: {self.text}" if self.who else self.text


class Support:
    """The checks of one answer. Each sentence of a paragraph is checked once, whoever asks; `strict` answers hold only what is supported."""

    def __init__(self, inquiry: Inquiry, entailment: Entailment | None, *, strict: bool = False) -> None:
        self.strict = strict
        self.calls = self.beyond = self.failed = 0
        self.method = method_of(inquiry, entailment)
        if strict and self.method == "off":
            raise UsageError("A strict answer needs the check of its sentences, and query.support is off.", hint="Set query.support=auto.")
        self._inquiry, self._entailment = inquiry, entailment
        self._checks: dict[tuple[str, tuple[Ref, ...], str], asyncio.Task[Check]] = {}
        self._opened: dict[tuple[tuple[Ref, ...], str], list[Source]] = {}  # what the citations of a paragraph open, for all its sentences
        self._slots = asyncio.Semaphore(IN_FLIGHT)

    def pieces(self, paragraph: Paragraph) -> list[Piece]:
        """The sentences of a paragraph's clean text; their checks begin now, all at once."""
        text = clean(paragraph.text)
        spans = sentences(text)
        begins = [*(start for start, _ in spans[1:]), *([len(text)] if spans else [])]
        checks = [self._begin(text[start:end], paragraph.refs, text) for start, end in spans]
        return [Piece(text[start:end], text[end:after], check) for (start, end), after, check in zip(spans, begins, checks, strict=True)]

    async def checked(self, paragraph: Paragraph) -> Paragraph:
        """A paragraph with the verdicts of its sentences; a strict one of its supported sentences alone, which may be none."""
        told, text, gap = [], "", ""
        for piece in self.pieces(paragraph):
            check = await piece.check
            if self._inquiry.trace and self.method != "off":
                refs = self._inquiry.trace.records(self._inquiry.view, paragraph.refs)
                lowered = {"lacking": list(check.lacking)} if check.lacking else {}
                self._inquiry.trace.note("support", by=self.method, sentence=piece.text, verdict=check.verdict, p=check.p, cites=refs, **lowered)
            if self.strict and check.verdict != "supported":
                continue
            text, gap = f"{text}{gap}{piece.text}", piece.gap
            told.append(AnswerSentence(text=piece.text, cites=(), verdict=check.verdict, p=check.p))
        return replace(paragraph, text=text, sentences=tuple(told), said=clean(paragraph.text))

    async def close(self) -> None:
        """Give up what is still being checked."""
        for task in self._checks.values():
            task.cancel()
        await asyncio.gather(*self._checks.values(), return_exceptions=True)

    def note(self, before: Sequence[Paragraph], told: Sequence[AnswerSentence]) -> tuple[str, ...]:
        """What there is to say about the checks of an answer."""
        if self.method == "off" or not before:
            return ()
        checks = [piece.check.result() for paragraph in before for piece in self.pieces(paragraph)]
        verdicts: list[Verdict] = [one.verdict for one in (checks if self.strict else told)]
        count = {verdict: verdicts.count(verdict) for verdict in get_args(Verdict)}
        said = [f"{count['supported']} of {len(verdicts)} sentences are supported by what they cite"]
        said += [f"{count['partly']} partly"] if count["partly"] else []
        said += [f"{count['unsupported']} not"] if count["unsupported"] else []
        said += [f"{count['unchecked']} not checked"] if count["unchecked"] else []
        by = {"compare": "compared word for word", "nli": "checked by an entailment model", "model": f"checked in {self.calls} calls"}[self.method]
        notes = [f"{', '.join(said)} ({by})."]
        if self.strict and len(told) < len(verdicts):
            left = "they were left out" if told else "nothing is left of the answer"
            notes.append(f"Only supported sentences were asked for, and {len(verdicts) - len(told)} of {len(verdicts)} are not: {left}.")
        if figures := [f"“{figure}”" for figure in dict.fromkeys(figure for check in checks for figure in check.lacking)]:
            listed = ", ".join(figures[:FIGURES]) + (f" and {len(figures) - FIGURES} more" if len(figures) > FIGURES else "")
            notes.append(f"Partly supported at most, because what is cited has no such figure: {listed}.")
        if self.beyond:
            notes.append(f"Not checked beyond query.support_calls ({self._inquiry.settings.support_calls}): {self.beyond}.")
        if self.failed:
            notes.append(f"Not checked, because the model gave no usable reply: {self.failed}.")
        return tuple(notes)

    # --- one sentence

    def _begin(self, sentence: str, refs: tuple[Ref, ...], said: str) -> "asyncio.Task[Check]":
        if (sentence, refs, said) not in self._checks:
            self._checks[sentence, refs, said] = asyncio.create_task(self._check(sentence, refs, said))
        return self._checks[sentence, refs, said]

    async def _check(self, sentence: str, refs: tuple[Ref, ...], said: str) -> Check:
        """The check against what the citations of its paragraph open, and nothing else."""
        view, settings = self._inquiry.view, self._inquiry.settings
        if self.method == "off" or not any(map(str.isalnum, sentence)):
            return UNCHECKED
        if (refs, said) not in self._opened:
            self._opened[refs, said] = [source for ref in refs for source in opened(ref, view, said, settings.max_spans)]
        sources = self._opened[refs, said]
        if self.method == "compare":
            return Check("supported", 1.0) if any(sentence in clean(source.quote) for source in sources) else Check("unsupported", 0.0)
        told = evidence_of(sources, view)
        if any(sentence == clean(line.text) for line in told):
            return Check("supported", 1.0)
        if not told:
            return UNCHECKED
        if self.calls >= settings.support_calls:
            self.beyond += 1
            return UNCHECKED
        self.calls += 1
        async with self._slots:
            check = await (self._by_entailment(sentence, told) if self.method == "nli" else self._by_model(sentence, told))
        if check.verdict != "supported":
            return check
        texts = [text for source in sources for text in (source.quote, source.document, view.title(document_id(source.document)))]
        figures = lacking(sentence, texts, self._inquiry.question)
        return replace(check, verdict="partly", lacking=figures) if figures or misquotes(sentence, sources) else check

    async def _by_model(self, sentence: str, told: Sequence[Evidence]) -> Check:
        inquiry, prompt, counter = self._inquiry, self._inquiry.prompts["support"], self._inquiry.model.counter
        said = shown_as(sentence)
        empty = count_messages(counter, prompt.render(text="", sentence=said))
        room = min(EVIDENCE_TOKENS, inquiry.model.card.context_tokens - empty - JOINTS - REPLY_TOKENS)
        if room < SMALLEST:
            self.failed += 1
            return UNCHECKED
        text = shown(told, said, room, counter.count)
        request = Request(
            messages=prompt.render(text=text, sentence=said),
            constraint=constraint(),
            max_tokens=REPLY_TOKENS,
            purpose="support",
            gate=Gate(options=tuple(OPTIONS)),
            priority=0,
            documents=tuple(sorted({document_id(line.document) for line in told})),
        )
        try:
            outcome = await inquiry.ask(request, _read)
        except EngineError:  # the answer is there and paid for: better unchecked than lost
            self.failed += 1
            return UNCHECKED
        if outcome.value is None:
            self.failed += 1
            return UNCHECKED
        return Check(outcome.value, None if outcome.gate is None else round(outcome.gate, 4))

    async def _by_entailment(self, sentence: str, told: Sequence[Evidence]) -> Check:
        assert self._entailment is not None
        lines = [line.said for line in likeliest(told, sentence)]
        shares = await self._entailment.entails([(premise, sentence) for premise in (" ".join(lines), *lines[:PREMISES])])
        p = max(follows for follows, _ in shares)
        against = shares[0][1]
        verdict: Verdict = "supported" if p >= SUPPORTED and p > against else "partly" if p >= PARTLY and against < SUPPORTED else "unsupported"
        return Check(verdict, round(p, 4))


def constraint() -> Choice:
    """One of the letters."""
    return Choice(options=tuple(OPTIONS))


def method_of(inquiry: Inquiry, entailment: Entailment | None) -> Method:
    """How sentences are checked. Raises ModelMissing where the settings want an entailment model and there is none."""
    match inquiry.settings.support:
        case "off":
            return "off"
        case "nli" if entailment is None:
            raise ModelMissing("query.support is nli, but there is no entailment model in the models folder.", hint="Copy one there, or set it to auto.")
    if inquiry.quotes:
        return "compare"
    return "nli" if entailment is not None and inquiry.settings.support != "model" else "model"


def evidence_of(sources: Sequence[Source], view: View) -> list[Evidence]:
    """The sentences behind citations in the order of the text, each once."""
    found: dict[tuple[str, int], Evidence] = {}
    for source in sources:
        turns = turns_of(document_id(source.document), view)
        for start, end in sentences(source.quote):
            found[source.document, source.start + start] = Evidence(source.document, source.quote[start:end], goes_on(turns, source.start + start))
    return [found[place] for place in sorted(found)]


def likeliest(told: Sequence[Evidence], sentence: str) -> list[Evidence]:
    """Evidence with what shares most words with a sentence first."""
    said = set(words(sentence))
    return sorted(told, key=lambda line: -len(said.intersection(words(line.said))))


def shown(told: Sequence[Evidence], sentence: str, room: int, count: Callable[[str], int]) -> str:
    """Numbered lines under the paths of their documents, in the order of the text: the likeliest as far as they fit, long ones in their likeliest part."""
    said, used = set(words(sentence)), 0
    kept: dict[Evidence, str] = {}
    for line in likeliest(told, sentence):
        text = shown_as(line.said)
        if count(text) > room // 2:
            parts = [text[start:end] for start, end in cut_text(text, lambda part: count(part) <= room // 2)]
            text = max(parts, key=lambda part: len(said.intersection(words(part))))
        headed = any(line.document == other.document for other in kept)
        cost = count(f"99 {text}\n") + 1 + (0 if headed else count(f"# {shown_as(line.document)}\n") + 1)
        if used + cost > room:
            continue
        used, kept[line] = used + cost, text
    lines: list[str] = []
    for number, line in enumerate((line for line in told if line in kept), 1):
        heading = f"# {shown_as(line.document)}"
        lines += [*([] if heading in lines else [heading]), f"{number} {kept[line]}"]
    return "\n".join(lines)


def misquotes(sentence: str, sources: Sequence[Source]) -> bool:
    """Whether a sentence holds something of some length in quotation marks that is in none of its sources, letter for letter."""
    said = [clean(source.quote) for source in sources]
    for match in QUOTATION.finditer(sentence):
        quoted = next(filter(None, match.groups()), "").strip(" .,;:!?…。，、")
        if sum(1 for _ in words(quoted)) >= QUOTED_WORDS and not any(quoted in text for text in said):
            return True
    return False


def _read(text: str) -> Verdict:
    letter = text.strip(" \t\r\n\"'.").upper()
    if letter not in OPTIONS:
        raise ValueError(f"it is none of {', '.join(OPTIONS)}: {text[:40]!r}")
    return OPTIONS[letter]
