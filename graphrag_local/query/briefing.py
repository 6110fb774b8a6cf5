"""`query --no-model`: a briefing put together from the documents' own sentences, each cited where it stands. No model is asked.

Passages come from the same retrieval as every other question, and from the findings of reports that share its words; sentences are taken from them best
first, each judged by what it adds to those before it, and stand under the document they are from, or, where there is one document only, under the theme
of the report whose entities they name. A question about the collection as a whole is answered by its reports.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from graphrag_local.answers import Answer, AnswerSentence, Citation
from graphrag_local.engine.base import Embedder
from graphrag_local.query.arrays import Ints
from graphrag_local.query.cite import clean, sources_of, title_of
from graphrag_local.query.context import Ref
from graphrag_local.query.language import asked_for, declined
from graphrag_local.query.quote import pieces, readable
from graphrag_local.query.ranking import Step
from graphrag_local.query.retrieve import CHUNK_WORDS, REPORT_WORDS, WordIndex, rank_chunks, terms, words_of
from graphrag_local.query.speaking import Turn, speaker, spoken, turns_of
from graphrag_local.query.view import View, remembered
from graphrag_local.records import Chunk, Span
from graphrag_local.settings import QuerySettings
from graphrag_local.text import one_line, sentences, words

MODE = "briefing"
NOTE = "No model was asked: the briefing quotes the documents."
PER_GROUP = 4  # quotes under one heading
QUOTES = 16  # of a whole briefing
EMBEDDED = 160  # sentences that are compared with the question by their vectors
TITLE = 0.5  # what a word of the question counts that only the title of the document has, or the name of who speaks
NEAR, PLACE, CENTRAL = 0.8, 0.2, 0.1  # weights of likeness, of the rank of the passage, and of the graph, beside the words of the question (1)
CLUMSY = 0.35  # what a heading, a fragment or a very long sentence keeps of its worth
ASKING = 0.4  # the same of a question
REPEATED = 0.7  # how much of its worth a sentence loses whose words are all said
LEAST = 0.34  # share of the question that the best sentence must have, by words; or the likeness
ALIKE = 0.45
ROUNDED = 1e-9  # what a sum in another order may differ by
BRIDGE = 0.6  # what the words count that a bridge name stands for, in a sentence that has it; half of it elsewhere in the passage that it led to
CUT = 4  # letters of the shortest stem that may be of a longer word than itself with an s
KEPT = 0.45  # worth of a quote as a share of the best one's, below which it is left out
# Words that say how to answer and not about what: of asking and telling, and for who speaks in documents. Few, and of the languages that `language` knows.
_ASKING = frozenset(
    "say says said tell tells talk talks think thinks discuss discussed mention mentioned describe described explain explained guest guests speaker speakers "
    "author authors people document documents text texts collection everything anything something opinion opinions about sagen sagt gesagt erzählen denken "
    "dokument dokumente text texte gäste leute disent dit parlent parle pensent documents invités gens dicen dice hablan piensan documentos invitados gente "
    "dizem falam pensam convidados dicono dice parlano documenti ospiti zeggen denken documenten gasten говорят говорит думают документы документах гости".split()
)
_OVERALL = frozenset(
    "theme themes topic topics overview summary summarize summarise main key important major subject subjects all whole corpus dataset themen thema überblick "
    "zusammenfassung wichtigsten thèmes thème sujets sujet résumé principaux temas tema resumen principales resumo principais temi riassunto principali "
    "onderwerpen samenvatting belangrijkste tematy podsumowanie темы тема обзор главные основные теми огляд".split()
)
_OVERALL_BARE = re.compile("主题|主題|概要|总结|總結|概述|テーマ|要約|まとめ|주제|요약|المواضيع|ملخص")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A sentence that may be quoted: what it cites, who says it ("": nobody is known to), its words as they are compared, the share of the question that
    it has, whether any of that is in its own words, and what it is worth."""

    ref: Ref
    chunk: Chunk
    text: str
    who: str
    stems: frozenset[str]
    covers: float
    own: bool
    worth: float
    likeness: float = 0.0


@dataclass(slots=True)
class Page:
    """A briefing while it is written: groups of quotes under headings, with citations numbered in the order of first use."""

    view: View
    lines: list[str] = field(default_factory=list)
    citations: dict[Ref, Citation] = field(default_factory=dict)
    sentences: list[AnswerSentence] = field(default_factory=list)
    stale: bool = False

    def add(self, heading: str, quotes: Iterable[tuple[str, str, Ref]], *, spans: int = 1) -> None:
        """A group of quotes, each with who says it; those that open nowhere are left out."""
        told = []
        for text, who, ref in quotes:
            shown = clean(text)
            sources = sources_of(ref, self.view, shown, spans) if shown else ()
            if not sources:
                continue
            if ref not in self.citations:
                self.citations[ref] = Citation(n=len(self.citations) + 1, kind=ref.kind, id=ref.id, title=title_of(ref, self.view), sources=sources)
            number = self.citations[ref].n
            verbatim = any(shown == one_line(source.quote) for source in sources)
            self.sentences.append(AnswerSentence(text=shown, cites=(number,), verdict="supported" if verbatim else "unchecked", p=1.0 if verbatim else None))
            told.append(f"- {shown} {f'— {clean(who)} ' if who else ''}[{number}]")
        if told:
            self.lines.append("\n".join((f"**{clean(heading)}**", *told)))

    def answer(self, question: str, settings: QuerySettings, level: int | None, notes: Sequence[str]) -> Answer:
        """The answer object."""
        return Answer(
            answer="\n\n".join(self.lines) or declined(question, settings.language),
            mode=MODE,
            level=level,
            generation=self.view.index.generation,
            citations=tuple(self.citations.values()),
            answered=bool(self.lines),
            stale=self.stale,
            sentences=tuple(self.sentences),
            notes=tuple(notes),
        )


async def brief(question: str, view: View, embedder: Embedder, settings: QuerySettings, level: int | None) -> Answer:
    """The briefing on a question; `level` is that of the reports that a question about the whole is answered from, None for level 0."""
    page, notes = Page(view), [NOTE]
    asked = asked_of(question, view)
    if not asked.weights and not asked.unknown and asked.overall and _overview(page, view, level or 0):
        return page.answer(question, settings, level or 0, notes)
    if asked.unknown:
        notes.append(f"Not in the documents: {', '.join(asked.unknown)}.")
    quotes, more = await _quotes(question, asked, view, embedder, settings)
    chosen = _varied(quotes, QUOTES)
    for heading, group in _grouped(chosen, view, settings.max_paragraphs):
        page.add(heading, [(quote.text, quote.who, quote.ref) for quote in group])
    return page.answer(question, settings, None, (*notes, *more))


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question asks for: its telling words with their shares of 1, those the documents do not have, and whether it is about the whole."""

    weights: Mapping[str, float]
    unknown: tuple[str, ...]
    overall: bool


def _stem(word: str) -> str:
    """Words that begin alike count as one: "regulate" and "regulation"; the last letter of a short word may be an ending."""
    return word[:5] if len(word) > 5 else word[:-1] if len(word) == 5 or (len(word) == 4 and word.endswith("s")) else word


def stems_of(text: str) -> frozenset[str]:
    """The words of a text as they are compared."""
    return frozenset(map(_stem, terms(text)))


def asked_of(question: str, view: View) -> Asked:
    """What a question asks for. Of scripts without spaces pairs of characters count, and those that the documents do not have count nothing, since a
    pair may lie across two words."""
    said, telling = set(words(question)), set(asked_for(question))
    asked = [term for term in dict.fromkeys(terms(question, pairs_only=True)) if len(term) > 1 and (term in telling or term not in said)]
    matter = [term for term in asked if term not in _ASKING and term not in _OVERALL and not _OVERALL_BARE.search(term)]
    spread = {stem: count for stem in set(map(_stem, matter)) if (count := len(having(stem, words_of(view, CHUNK_WORDS))))}
    counted = {_stem(term): spread.get(_stem(term), 0) for term in matter if term in said or _stem(term) in spread}
    rare = {stem: max(0.05, math.log((len(view.chunks) + 1) / (count + 0.5))) for stem, count in counted.items()}
    total = math.fsum(rare.values())
    return Asked(
        weights={stem: weight / total for stem, weight in rare.items() if stem in spread},
        unknown=tuple(term for term in matter if term in said and _stem(term) not in spread),
        overall=_OVERALL_BARE.search(question) is not None or any(term in _OVERALL for term in asked),
    )


def having(stem: str, index: WordIndex) -> Ints:
    """The texts that have a word with a stem, by their numbers in an index."""
    near = index.words.begun(stem) if len(stem) >= CUT else [index.words.number(word) for word in (stem, f"{stem}s")]
    found = [index.texts(number) for number in near if number >= 0 and _stem(index.words[number]) == stem]
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int32)


# --- quotes


async def _quotes(question: str, asked: Asked, view: View, embedder: Embedder, settings: QuerySettings) -> tuple[list[Quote], tuple[str, ...]]:
    """Sentences that may answer, best first; none where even the best has too little of the question."""
    ranked = await rank_chunks(question, view, embedder, settings.top_chunks)
    order = [view.chunks[chunk_id] for chunk_id, score in ranked.hits if score > 0]
    order += [chunk for chunk in _from_reports(asked, view) if chunk not in order]
    bridges = {chunk.id: _bridge(step, asked, view) for chunk in order if (step := ranked.why.get(chunk.id)) and step.via in view.chunks}
    quotes = [quote for place, chunk in enumerate(order) for quote in _of_chunk(chunk, place, asked, bridges.get(chunk.id), view)]
    quotes = sorted({quote.text: quote for quote in reversed(quotes)}.values(), key=_best_first)
    if embedder.card.dimension and quotes:
        quotes = await _likened(question, quotes[:EMBEDDED], embedder)
    best = max((quote.covers for quote in quotes), default=0.0)
    if best < LEAST and max((quote.likeness for quote in quotes), default=0.0) < ALIKE:
        return [], ranked.notes
    fitting = [quote for quote in quotes if quote.covers > 0 or quote.likeness >= ALIKE]
    telling = [quote for quote in fitting if quote.own or quote.likeness >= ALIKE]  # the others have a title or a speaker in common with the question
    return telling if len(telling) >= PER_GROUP else fitting, ranked.notes


def _best_first(quote: Quote) -> tuple[float, str, int]:
    return -quote.worth, quote.chunk.document_id, quote.ref.span.start if quote.ref.span else 0


@dataclass(frozen=True, slots=True)
class _Bridge:
    """A name that led from one passage to another: its stems, and the words of the question that stand beside it there, with their shares."""

    name: frozenset[str]
    beside: Mapping[str, float]

    def adds(self, stems: frozenset[str], asked: Asked) -> float:
        """What the name counts in a sentence of the passage that it led to: it stands for what was said beside it, so that "born" is enough in a sentence
        about the professor of somebody. Nothing where the sentence has no word that is asked for besides."""
        if not any(stem in stems and stem not in self.beside for stem in asked.weights):
            return 0.0
        stands_for = math.fsum(sorted(share for stem, share in self.beside.items() if stem not in stems))
        return stands_for * (BRIDGE if self.name <= stems else BRIDGE / 2)


def _bridge(step: Step, asked: Asked, view: View) -> _Bridge:
    via, name = view.chunks[step.via], stems_of(step.name)
    told = [stems for start, end in sentences(via.text) if name <= (stems := stems_of(via.text[start:end]))]
    beside, title = frozenset().union(*told), stems_of(view.title(via.document_id))
    return _Bridge(name, {stem: share * (1 if stem in beside else TITLE) for stem, share in asked.weights.items() if stem in beside or stem in title})


def _of_chunk(chunk: Chunk, place: int, asked: Asked, bridge: _Bridge | None, view: View) -> list[Quote]:
    """The sentences of a passage that has this place in the ranking, and the name that led there, if one did."""
    title = stems_of(view.title(chunk.document_id))
    _, begin, until = view.standing(chunk.id)
    said = turns_of(chunk.document_id, view)
    found = []
    for start, end in _parts(chunk, asked, said):
        span = Span(start=start, end=end)
        text = one_line(chunk.text[start - chunk.start : end - chunk.start])
        stems, who = stems_of(text), speaker(said, start)
        about = title | stems_of(who)
        covers = math.fsum(sorted(share * (1 if stem in stems else TITLE) for stem, share in asked.weights.items() if stem in stems or stem in about))
        led = bridge.adds(stems, asked) if bridge else 0.0
        covers += led
        named = int(((begin < span.end) & (span.start < until)).sum())
        worth = covers + PLACE / (1 + place / 5) + CENTRAL * min(1.0, named / 4)
        worth *= 1.0 if readable(text) else CLUMSY
        worth *= ASKING if text.rstrip("\"'”’»)")[-1:] in "?？؟" else 1.0
        ref = Ref(kind="chunk", id=chunk.id, span=span)
        own = led > 0 or not stems.isdisjoint(asked.weights)
        found.append(Quote(ref=ref, chunk=chunk, text=text, who=who, stems=stems, covers=round(covers, 9), own=own, worth=round(worth, 9)))
    return found


def _parts(chunk: Chunk, asked: Asked, said: tuple[Turn, ...]) -> Iterator[tuple[int, int]]:
    """What may be quoted of a passage, as (start, end) in its document: sentences without the names of who speaks before them."""
    for a, b in pieces(chunk.text, stems_of, asked.weights):
        for start, end in spoken(said, chunk.start + a, chunk.start + b):
            text = chunk.text[start - chunk.start : end - chunk.start]
            if text.strip():
                yield start + len(text) - len(text.lstrip()), start + len(text.rstrip())


async def _likened(question: str, quotes: list[Quote], embedder: Embedder) -> list[Quote]:
    """The quotes with their likeness to the question, best first."""
    asked = (await embedder.embed([question], query=True))[0]
    vectors = await embedder.embed([quote.text for quote in quotes])
    likeness = [math.fsum(a * b for a, b in zip(asked, vector, strict=True)) for vector in vectors]
    liked = [
        replace(quote, likeness=value, worth=round(quote.worth + NEAR * max(0.0, value) * (1 if readable(quote.text) else CLUMSY), 9))
        for quote, value in zip(quotes, likeness, strict=True)
    ]
    return sorted(liked, key=_best_first)


def _from_reports(asked: Asked, view: View) -> list[Chunk]:
    """The passages behind the findings that have most of the question, of the three best."""
    index, scored = words_of(view, REPORT_WORDS), []
    most = np.zeros(len(index.owners))  # of the question, that a finding of each report can have
    for stem, share in asked.weights.items():
        most[having(stem, index)] += share
    for report in (view.reports[index.owners[number]] for number in np.flatnonzero(most >= LEAST - ROUNDED).tolist()):
        for number, finding in enumerate(report.findings):
            stems = stems_of(f"{finding.summary} {finding.explanation}")
            covers = math.fsum(sorted(share for stem, share in asked.weights.items() if stem in stems))
            if covers >= LEAST:
                scored.append((-covers, report.id, number, finding.summary))
    chunks = []
    for _, report_id, number, said in sorted(scored)[:3]:
        for source in sources_of(Ref(kind="report", id=report_id, finding=number), view, said, 1):
            chunks += [view.chunks[source.chunk]] if source.chunk in view.chunks else []
    return chunks


def _varied(quotes: Sequence[Quote], most: int) -> list[Quote]:
    """The best quotes, each time the one that adds most to those before it; those worth little beside the best are left out."""
    chosen: list[Quote] = []
    left = dict.fromkeys(range(len(quotes)), 0.0)
    while left and len(chosen) < most:
        best = max(left, key=lambda number: (round(quotes[number].worth * (1 - REPEATED * left[number]), 9), -number))
        value = quotes[best].worth * (1 - REPEATED * left.pop(best))
        if chosen and value < KEPT * chosen[0].worth:
            break
        chosen.append(quotes[best])
        for number in left:
            shared = len(quotes[number].stems & quotes[best].stems) / max(1, len(quotes[number].stems))
            left[number] = max(left[number], shared)
    return chosen


# --- groups


def _grouped(quotes: Sequence[Quote], view: View, most: int) -> list[tuple[str, list[Quote]]]:
    """Headings with their quotes in the order of the text: documents, the one with the best quote first, or the themes of a single document."""
    several = len({quote.chunk.document_id for quote in quotes}) > 1
    groups: dict[str, list[Quote]] = {}
    for quote in quotes:
        heading = view.title(quote.chunk.document_id) if several else _theme(quote, view) or view.title(quote.chunk.document_id)
        group = groups.setdefault(heading, [])
        if len(group) < PER_GROUP:
            group.append(quote)
    ordered = list(groups.items())[:most]
    return [(heading, sorted(group, key=lambda quote: (quote.chunk.document_id, quote.ref.span.start if quote.ref.span else 0))) for heading, group in ordered]


def _theme(quote: Quote, view: View) -> str:
    """The title of the smallest report whose community has most of the entities that a quote names."""
    themes = remembered(view.index, "themes of entities", lambda: _themes(view))
    entity, begin, until = view.standing(quote.chunk.id)
    span = quote.ref.span
    told = themes[entity[(begin < span.end) & (span.start < until)]] if span else themes[:0]
    votes: dict[str, int] = {}
    for number in told[told >= 0].tolist():
        title = view.reports.at(number).title
        votes[title] = votes.get(title, 0) + 1
    return max(votes, key=lambda title: (votes[title], title), default="")


def _themes(view: View) -> Ints:
    """Of each entity the report on level 0 that it belongs to, -1 where there is none."""
    found: Ints = np.full(len(view.entities), -1, np.int32)
    for community in view.on_level(0).tolist():
        if view.shape["community.report"][community] >= 0:
            found[view.members.row(community)] = view.shape["community.report"][community]
    return found


def _overview(page: Page, view: View, level: int) -> bool:
    """The largest reports of a level, two findings each; False where there are none."""
    reports = [(len(c.member_ids), report) for c in view.level(level) if (report := view.report_of.get(c.id))]
    for _, report in sorted(reports, key=lambda pair: (-pair[0], pair[1].title))[: PER_GROUP * 2]:
        page.stale = page.stale or report.stale
        page.add(report.title, [(finding.summary, "", Ref(kind="report", id=report.id, finding=number)) for number, finding in enumerate(report.findings[:2])])
    return bool(page.lines)
