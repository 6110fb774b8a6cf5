"""Whether a quote has to do with a question, for models too small to tell: by the words they share, or by their vectors.

Such a model says Y to everything or N to everything, so it neither answers what the documents do not tell nor declines what they do: what it chose from
is measured here before it is asked. A question in another language than a quote shares no words with it, which is no sign against it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from graphrag_local.engine.base import Embedder
from graphrag_local.query.briefing import ALIKE, KEPT, LEAST, TITLE, Asked, asked_of, having, stems_of
from graphrag_local.query.cite import places_of
from graphrag_local.query.context import Ref
from graphrag_local.query.inquiry import Inquiry
from graphrag_local.query.language import language_of
from graphrag_local.query.quote import Quote
from graphrag_local.query.retrieve import CHUNK_WORDS, words_of
from graphrag_local.query.view import View
from graphrag_local.text import words

COUNTED = 0.4  # share of the words that a question is about which the best quote has at least; or
RARE = 0.2  # the same by how rare they are (our choice: of three words one is too little, of two it is enough)
ABROAD = 0.3  # likeness that is enough where quote and question are in two languages
UNFIT = "There was nothing to quote that has enough of the question."
SUBJECT = 0.25  # of the passages have a word that the collection itself is about


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a quote has of a question: shares by rarity, words that only its title has counting half, and by their number, and how like it is."""

    rare: float
    counted: float
    own: bool
    likeness: float = 0.0
    foreign: bool = False

    @property
    def alike(self) -> bool:
        """Whether the vectors say that it is near."""
        return self.likeness >= (ABROAD if self.foreign else ALIKE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """A question as quotes are measured by it."""

    question: str
    asked: Asked
    view: View
    embedder: Embedder | None

    @property
    def measurable(self) -> bool:
        """Whether the question is about anything: "What do the documents say?" is not."""
        return bool(self.asked.weights or self.asked.unknown)

    def hopeless(self) -> bool:
        """Whether no quote can have enough of the question: the documents have no word that it is about, and there are no vectors."""
        return bool(self.asked.unknown) and not self.asked.weights and not self.asked.overall and not (self.embedder and self.embedder.card.dimension)

    async def measured(self, quotes: Mapping[str, tuple[str, Ref]]) -> dict[str, Measured]:
        """What each quote (its words, and where it stands) has of the question."""
        likeness = [0.0] * len(quotes)
        if self.embedder and self.embedder.card.dimension and quotes:
            asked = (await self.embedder.embed([self.question], query=True))[0]
            vectors = await self.embedder.embed([text for text, _ in quotes.values()])
            likeness = [math.fsum(a * b for a, b in zip(asked, vector, strict=True)) for vector in vectors]
        return {short: self._measured(*quote, like) for (short, quote), like in zip(quotes.items(), likeness, strict=True)}

    def _measured(self, text: str, ref: Ref, likeness: float) -> Measured:
        said, place = stems_of(text), next(iter(places_of(ref, self.view)), None)
        title = stems_of(self.view.title(place.document_id)) if place else frozenset[str]()
        part = {stem: 1.0 if stem in said else TITLE for stem in self.asked.weights if stem in said or stem in title}
        number = len(self.asked.weights) + len(self.asked.unknown)
        language, own = language_of(self.question), language_of(text)
        return Measured(
            rare=round(math.fsum(sorted(self.asked.weights[stem] * share for stem, share in part.items())), 9),
            counted=len(part) / max(1, number),
            own=not said.isdisjoint(self.asked.weights),
            likeness=likeness,
            foreign=bool(language and own and language != own),
        )

    def enough(self, quotes: Mapping[str, Measured]) -> bool:
        """Whether the best of some quotes has enough of the question to be an answer; more is wanted where it names what the collection does not have."""
        if not self.measurable or any(quote.alike for quote in quotes.values()):
            return True
        if self._strange_name():
            return any(quote.rare >= LEAST for quote in quotes.values())
        return any(quote.rare >= RARE or quote.counted >= COUNTED for quote in quotes.values())

    def general(self) -> bool:
        """Whether the question is about the collection as a whole, so that what it says as a whole answers it: it asks for themes or the like, or has a
        word that many passages have, and no name that none has."""
        index, most = words_of(self.view, CHUNK_WORDS), max(2.0, SUBJECT * len(self.view.chunks))
        common = any(len(having(stem, index)) > most for stem in self.asked.weights)
        return self.asked.overall or (common and not self._strange_name())

    def specific(self, quotes: Mapping[str, Measured]) -> bool:
        """Whether some quote has so much of the question that others can be measured by it."""
        return any(quote.rare >= LEAST or quote.alike for quote in quotes.values())

    def _strange_name(self) -> bool:
        """Whether a word written as a name, not at the beginning, is nowhere in the documents."""
        said = self.question.split()[1:]
        names = {word for part in said if part.lstrip("\"'“‘«„(¿¡")[:1].isupper() for word in words(part)}
        return not names.isdisjoint(self.asked.unknown)


def _kept(quotes: Mapping[str, Measured]) -> list[str]:
    """Those that are not far below the best one, which is always among them; words in a title alone count only where no quote has any itself."""
    most, own = max((quote.rare for quote in quotes.values()), default=0.0), any(quote.own for quote in quotes.values())
    return [short for short, quote in quotes.items() if quote.alike or (quote.rare >= KEPT * most and (quote.own or not own))]


def hopeless(inquiry: Inquiry) -> bool:
    """Whether nothing that is read can have to do with the question, which is noted then; it saves a reading of everything."""
    found = _fitting(inquiry).hopeless()
    inquiry.notes += [UNFIT] if found else []
    return found


async def fitting_quotes(inquiry: Inquiry, quotes: dict[str, Quote]) -> dict[str, Quote]:
    """The quotes that have to do with the question, in their order; none, with a note, where even the best one does not."""
    fitting = _fitting(inquiry)
    if not quotes or not fitting.measurable:
        return quotes
    measured = await fitting.measured({short: (quote.text, quote.ref) for short, quote in quotes.items()})
    if fitting.enough(measured):
        return {short: quotes[short] for short in _kept(measured)}
    inquiry.notes += [] if UNFIT in inquiry.notes else [UNFIT]
    return {}


async def fitting_points(inquiry: Inquiry, points: Mapping[str, Ref]) -> set[str]:
    """The same of points, by their words. A question about the whole is answered by what the whole says, whether or not in its words."""
    fitting = _fitting(inquiry)
    if not points or not fitting.measurable:
        return set(points)
    measured = await fitting.measured({text: (text, ref) for text, ref in points.items()})
    if fitting.general() and (fitting.asked.overall or not fitting.specific(measured)):
        return set(points)
    if fitting.enough(measured):
        return set(_kept(measured))
    inquiry.notes += [] if UNFIT in inquiry.notes else [UNFIT]
    return set()


def _fitting(inquiry: Inquiry) -> Fitting:
    return Fitting(question=inquiry.question, asked=asked_of(inquiry.question, inquiry.view), view=inquiry.view, embedder=inquiry.embedder)
