"""An answer told while it is written: words as they come, each citation in one piece, each sentence's verdict when it is there.

What was shown is the answer: the reply is read line by line by the same reader as at its end, and only what cannot change any more is shown. Where it
changes all the same (the reply was cut off in mid-paragraph, or could not be used and was asked for again) a `restart` says so and the answer follows
whole. A paragraph whose citations no grammar enforces is shown when it is complete. A strict answer shows a sentence after its verdict.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from graphrag_local.answers import AnswerSentence, Event, Listener
from graphrag_local.query.cite import Composer, Segment, clean
from graphrag_local.query.context import Ref
from graphrag_local.query.inquiry import Paragraph
from graphrag_local.query.schema import MARK, Answered
from graphrag_local.query.support import Support
from graphrag_local.query.view import View

# What may become a group of ids, or a mark that is defused, once more of it is there.
_OPEN, _HASHES = re.compile(r"[\[(<][^\])>]{0,200}\Z"), re.compile(r"\s*#+\Z")
_BREAK = re.compile(r".*[\s\u3000-\u9fff\uac00-\ud7af\uff00-\uffef]", re.DOTALL)  # up to the last white space or sign of a script without it


class Teller:
    """Tells one answer to a listener. `finish` waits for the last verdict, `close` gives up."""

    def __init__(self, listen: Listener, view: View, max_spans: int, support: Support) -> None:
        self.view, self.max_spans, self.support = view, max_spans, support
        self.shown = ""
        self.told: list[AnswerSentence] = []
        self.current: Hearing | None = None
        self._listen = listen
        self._waiting: asyncio.Queue[tuple[Hearing, Composer, Paragraph, tuple[int, ...]] | None] = asyncio.Queue()
        self._following: asyncio.Task[None] | None = None

    def progress(self, text: str) -> None:
        """A sentence for the person who waits."""
        self._listen(Event(kind="progress", text=text))

    def hearing(self, read: Callable[[str], Answered], ids: Mapping[str, Ref], *, lines: bool, words: bool) -> Callable[[str], None]:
        """What takes the text so far of a reply that is the answer (see `inquiry.Ear`)."""
        self.current = Hearing(teller=self, read=read, ids=ids, lines=lines, words=words)
        return self.current.hear

    def follow(self, hearing: "Hearing", composer: Composer, paragraph: Paragraph, numbers: tuple[int, ...]) -> None:
        """A paragraph is complete: have its sentences checked, and their verdicts told in order."""
        self.support.pieces(paragraph)
        self._waiting.put_nowait((hearing, composer, paragraph, numbers))
        if self._following is None:
            self._following = asyncio.create_task(self._follow())

    async def finish(self, segments: Sequence[Segment], sentences: Sequence[AnswerSentence]) -> None:
        """Tell what is left of the final answer; all of it where something else was told before."""
        if self._following is not None:
            self._waiting.put_nowait(None)
            await self._following
        text = "".join(part for part, _ in segments)
        if not text.startswith(self.shown) or list(sentences[: len(self.told)]) != self.told:
            self.shown, self.told = "", []
            self._listen(Event(kind="restart"))
        self.show(segments)
        for sentence in sentences[len(self.told) :]:
            self._tell(sentence)

    async def close(self) -> None:
        """Stop telling."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    def show(self, segments: Sequence[Segment]) -> None:
        """Show what these pieces add to what was shown; nothing where they say something else (`finish` mends that)."""
        text = "".join(part for part, _ in segments)
        if not text.startswith(self.shown):
            return
        at, begin = 0, len(self.shown)
        for part, citation in segments:
            fresh = part[max(0, begin - at) :]
            at += len(part)
            if fresh:
                self.shown += fresh
                self._listen(Event(kind="citation" if citation else "text", text=fresh, citation=citation))

    async def _follow(self) -> None:
        while (item := await self._waiting.get()) is not None:
            hearing, composer, paragraph, numbers = item
            if self.support.strict:
                await self._release(hearing, composer, paragraph)
                continue
            checked = await self.support.checked(paragraph)
            if numbers and hearing is self.current and composer is hearing.composer:
                for sentence in checked.sentences:
                    self._tell(_citing(sentence, numbers))

    async def _release(self, hearing: "Hearing", composer: Composer, paragraph: Paragraph) -> None:
        """A strict paragraph: each supported sentence once its verdict is there, then the citations."""
        text, gap = "", ""
        for piece in self.support.pieces(paragraph):
            if (await piece.check).verdict == "supported" and hearing is self.current and composer is hearing.composer:
                text, gap = f"{text}{gap}{piece.text}", piece.gap
                self.show([*composer.segments, *composer.shown(text, (), text)])
        checked = await self.support.checked(paragraph)
        if checked.text and hearing is self.current and composer is hearing.composer:
            numbers = composer.add(checked)
            self.show(composer.segments)
            for sentence in checked.sentences if numbers else ():
                self._tell(_citing(sentence, numbers))

    def _tell(self, sentence: AnswerSentence) -> None:
        self.told.append(sentence)
        self._listen(Event(kind="sentence", text=sentence.text, sentence=sentence))


@dataclass(slots=True, kw_only=True, eq=False)
class Hearing:
    """One reply as it grows: what of it is complete, and what of an unfinished line may be shown."""

    teller: Teller
    read: Callable[[str], Answered]
    ids: Mapping[str, Ref]
    lines: bool
    words: bool
    composer: Composer = field(init=False)
    heard: str = ""
    whole: str = ""
    complete: int = 0
    declines: bool = False

    def __post_init__(self) -> None:
        self._begin()

    def hear(self, text: str) -> None:
        """Take in the text so far; one that does not go on from the last is another attempt."""
        if not text.startswith(self.heard):
            self._begin()
        self.heard = text
        whole, _, tail = text.rpartition("\n") if self.lines else (text, "", "")
        if len(whole) > len(self.whole) and (self.lines or "}" in whole[len(self.whole) :]):
            self.whole = whole
            self._take(whole)
        if self.words and not self.declines and not self.teller.support.strict:
            self._show_unfinished(tail)

    def _begin(self) -> None:
        self.heard, self.whole, self.complete, self.declines = "", "", 0, False
        self.composer = Composer(self.teller.view, self.teller.max_spans)

    def _take(self, whole: str) -> None:
        try:
            answer = self.read(whole)
        except ValueError:  # nothing complete yet
            return
        self.declines = not answer.useful
        for item in answer.items[self.complete :]:
            self.complete += 1
            paragraph = Paragraph(text=item.text, refs=tuple(dict.fromkeys(self.ids[short] for short in item.sources)))
            numbers = () if self.teller.support.strict else self.composer.add(paragraph)
            if not self.teller.support.strict:
                self.teller.show(self.composer.segments)
            self.teller.follow(self, self.composer, paragraph, numbers)

    def _show_unfinished(self, line: str) -> None:
        """The words of a line that stay as they are; after its tab, the text and the ids that are complete."""
        said, tab, cited = line.partition("\t")
        if said.strip() == MARK:  # what follows is told with the whole answer
            return
        text = clean(said) if tab else settled(said)
        if not text or "\t" in cited:
            return
        shorts = [short for short in cited.split(",")[:-1] if short in self.ids]
        refs = tuple(dict.fromkeys(self.ids[short] for short in shorts))
        self.teller.show([*self.composer.segments, *self.composer.shown(text, refs, text)])


def settled(text: str) -> str:
    """The clean beginning of an unfinished text that cannot change: up to its last white space, and before what an open bracket may become."""
    whole = _BREAK.match(text)
    words = clean(_closed(whole.group())) if whole else ""
    words = _closed(words)  # a group of ids that is taken out may leave an open bracket before it
    return "" if _HASHES.match(words) else words


def _closed(text: str) -> str:
    opened = _OPEN.search(text)
    return (text[: opened.start()] if opened else text).rstrip()


def _citing(sentence: AnswerSentence, numbers: tuple[int, ...]) -> AnswerSentence:
    return AnswerSentence(text=sentence.text, cites=numbers, verdict=sentence.verdict, p=sentence.p)
