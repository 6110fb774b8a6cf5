"""Keep what the passage supports; everything that is dropped carries its reason. Pure.

Quotes are sentences of the passage, chosen by number, so they are verbatim and their spans exact whatever the model, the script or the back
end. Names are free strings and are checked here: `anchored` (a span of the passage, inflected or hyphenated forms included), `composed` (every
content word occurs in it), `unanchored`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

from graphrag_local.extraction.schema import STATUSES, ClaimDraft, Drafts, EntityDraft, GroundingMode, RelationshipDraft
from graphrag_local.records import Chunk, ClaimMention, Dropped, EntityMention, Extraction, Grounding, RelationshipMention, Span
from graphrag_local.text import UNSEEN, clean_name, name_key, neutralise, one_line, sentences, words

LONGEST_NAME = 200  # characters; longer "names" are sentences


@dataclass(frozen=True, slots=True)
class Passage:
    """A run of sentences of one chunk; `spans` are offsets into the document, `first` is the number of the first one within the chunk."""

    chunk: Chunk
    spans: tuple[Span, ...]

    @property
    def shown(self) -> tuple[str, ...]:
        """The sentences as the model sees them: one line each, look-alikes of our marks defused."""
        return tuple(one_line(neutralise(self.chunk.text[s.start - self.chunk.start : s.end - self.chunk.start])) for s in self.spans)

    def halves(self) -> tuple["Passage", "Passage"]:
        """The passage in two."""
        middle = len(self.spans) // 2
        return Passage(self.chunk, self.spans[:middle]), Passage(self.chunk, self.spans[middle:])

    def text_of(self, span: Span) -> str:
        """The document's text at a span."""
        return self.chunk.text[span.start - self.chunk.start : span.end - self.chunk.start]

    @property
    def text(self) -> str:
        """The document's text from the first sentence to the last."""
        return self.text_of(Span(start=self.spans[0].start, end=self.spans[-1].end)) if self.spans else ""


def passage_of(chunk: Chunk) -> Passage:
    """All sentences of a chunk."""
    return Passage(chunk, tuple(Span(start=chunk.start + start, end=chunk.start + end) for start, end in sentences(chunk.text)))


def numbered(passage: Passage) -> str:
    """The passage as the prompt shows it, `[n]` before each sentence."""
    return "\n".join(f"[{number}] {text}" for number, text in enumerate(passage.shown, 1))


@lru_cache(maxsize=2048)
def _pattern(name: str, *, broken: bool) -> re.Pattern[str]:
    """The name in a text: any white space, a hyphen at a line end, up to three letters of inflection after a word of four letters or more.

    `broken` words may have marks in them that are no part of a name, or a hyphen with a line break; such a pattern takes milliseconds to make.
    """
    parts = []
    for word in name.split():
        letters = [re.escape(character) for character in word]
        parts.append(rf"(?:[{UNSEEN}]+|-\s*\n\s*)?".join(letters) if broken and len(letters) <= 40 else re.escape(word))
    body = (rf"[{UNSEEN}]*\s+" if broken else r"\s+").join(parts)
    head = r"(?<![^\W_])" if name[:1].isalnum() and not _PREFIXED.match(name) and _is_spaced(name[:1]) else ""
    last = name.split()[-1]
    if not last[-1:].isalnum() or not _is_spaced(last):
        return re.compile(head + body, re.IGNORECASE)
    return re.compile(head + body + (r"[^\W\d_]{0,3}(?![^\W_])" if len(last) >= 4 and last[-1:].isalpha() else r"(?![^\W_])"), re.IGNORECASE)


_PREFIXED = re.compile("[\u0590-\u08ff]")  # Hebrew and Arabic write "and", "the", "in" in one with the name


def _is_spaced(word: str) -> bool:
    """Whether a word's script puts spaces between words (CJK and Thai do not)."""
    return not re.search("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]", word)


def find_name(name: str, text: str) -> tuple[int, int] | None:
    """Where a name first stands in a text, or None."""
    if not name:
        return None
    small, broken = _small(text)
    if name.isascii() and small:
        return _plainly(name.lower().split(), small)
    match = _pattern(name, broken=broken).search(text)
    return (match.start(), match.end()) if match else None


@lru_cache(maxsize=256)
def _small(text: str) -> tuple[str, bool]:
    """A text in small letters, "" where that is not enough to compare it by; and whether words of it may be broken (see `_pattern`)."""
    small, broken = text.lower(), _BROKEN.search(text) is not None
    return ("" if broken or len(small) != len(text) or _SAME_LETTERS.search(text) else small), broken


def _plainly(name: list[str], text: str) -> tuple[int, int] | None:
    """What `_pattern` finds of a name of ASCII words in a text without broken ones, both in small letters, at a fraction of the price."""
    start = text.find(name[0])
    while start >= 0:
        if end := _end_of_name(name, text, start):
            return start, end
        start = text.find(name[0], start + 1)
    return None


def _end_of_name(name: list[str], text: str, start: int) -> int:
    """Where the name that may begin at `start` ends, 0 where it does not stand there."""
    if name[0][0].isalnum() and text[max(0, start - 1) : start].isalnum():
        return 0
    end = start + len(name[0])
    for word in name[1:]:
        gap = _GAP.match(text, end)
        if gap is None or not text.startswith(word, gap.end()):
            return 0
        end = gap.end() + len(word)
    last = name[-1]
    if len(last) >= 4 and last[-1].isalpha():
        end = next(at for at in range(end, end + 4) if at == end + 3 or not _is_letter(text[at : at + 1]))
    return 0 if last[-1].isalnum() and text[end : end + 1].isalnum() else end


def _is_letter(character: str) -> bool:
    return character.isalnum() and not character.isdecimal()


_GAP = re.compile(r"\s+")
_BROKEN = re.compile(rf"[{UNSEEN}]|-\s*\n")
_SAME_LETTERS = re.compile("[ıſ]")  # are i and s to a pattern that ignores case, and not to `str.lower`


def check_name(name: str, passage: Passage) -> tuple[Grounding, Span | None]:
    """How a name is grounded in its passage, and where it stands when it is a span of it."""
    found = find_name(name, passage.text)
    if found:
        start = passage.spans[0].start + found[0]
        return "anchored", Span(start=start, end=start + (found[1] - found[0]))
    own = list(words(name))
    there, running = _words_of(passage.text)
    # Characters of scripts without spaces are words each: all of them are in any longer text, so they must stand together in it.
    runs = ("".join(run) for together, run in groupby(own, key=lambda word: not _is_spaced(word)) if together)
    if any(word not in _SMALL for word in own) and all(_has_word(word, there) for word in own) and all(run in running for run in runs):
        # Arabic marks, width, traditional characters and digits of other scripts differ between name and text, not the name itself.
        return "composed", None
    return "unanchored", None


@lru_cache(maxsize=8)
def _words_of(text: str) -> tuple[frozenset[str], str]:
    """The words of a text, and all of them in one."""
    found = list(words(text))
    return frozenset(found), "".join(found)


_SMALL = frozenset("a an the of and or in at on for to de la le les el los du des der die das den dem und von van zu il lo gli di da do dos".split())


def _has_word(word: str, there: frozenset[str]) -> bool:
    if word in there or word in _SMALL:
        return True
    stem = word[: max(4, len(word) - 3)]
    return len(word) >= 5 and any(other.startswith(stem) and abs(len(other) - len(word)) <= 3 for other in there)


def ground(passage: Passage, drafts: Drafts, types: tuple[str, ...], mode: GroundingMode, quote: bool) -> Extraction:
    """The extraction of one passage: what its reply said, grounded in numbered sentences, each drop with its reason."""
    dropped = [Dropped(what=what, reason="unreadable record") for what in drafts.bad]
    entities: list[EntityMention] = []
    places: dict[int, int] = {}  # number in the reply, from 1 -> index in `entities`
    by_key: dict[str, int] = {}
    seen: dict[tuple[str, str], int] = {}
    for number, draft in enumerate(drafts.entities, 1):
        mention = _entity(passage, draft, types, mode, quote, dropped)
        if mention is None:
            continue
        places[number] = at = seen.setdefault((mention.name, mention.type), len(entities))
        if at < len(entities):
            joined = _joined(entities[at], mention)
            entities[at] = replace(joined, description=_quoted(passage, joined.spans)) if quote else joined
            dropped.append(Dropped(what=mention.name, reason="repeated entity"))
        else:
            by_key.setdefault(name_key(mention.name), at)
            entities.append(mention)
    relationships = _relationships(passage, drafts.relationships, entities, places, by_key, mode, quote, dropped)
    claims = _claims(passage, drafts.claims, places, by_key, dropped)
    return Extraction(
        chunk_id=passage.chunk.id,
        document_id=passage.chunk.document_id,
        entities=tuple(entities),
        relationships=relationships,
        claims=claims,
        dropped=tuple(dropped),
        gleaned=drafts.missed,
    )


def _joined(first: EntityMention, second: EntityMention) -> EntityMention:
    """Two records of the same name and type in one reply: both descriptions, all spans."""
    description = first.description
    if second.description and second.description not in description:
        description = f"{description} {second.description}".strip()
    return replace(first, description=description, spans=_union(first.spans, second.spans))


def _union(*groups: tuple[Span, ...]) -> tuple[Span, ...]:
    return tuple(Span(start=start, end=end) for start, end in sorted({(span.start, span.end) for group in groups for span in group}))


def _spans(passage: Passage, numbers: Iterable[int]) -> tuple[Span, ...]:
    return _union(tuple(passage.spans[number - 1] for number in numbers if 1 <= number <= len(passage.spans)))


def _holding(passage: Passage, *names: str) -> tuple[Span, ...]:
    """The first sentence that holds all the names; none where there is none."""
    for span in passage.spans:
        if all(find_name(name, passage.text_of(span)) for name in names):
            return (span,)
    return ()


def _entity(passage: Passage, draft: EntityDraft, types: tuple[str, ...], mode: GroundingMode, quote: bool, dropped: list[Dropped]) -> EntityMention | None:
    name = clean_name(draft.name)
    if not any(character.isalnum() for character in name):
        dropped.append(Dropped(what=one_line(draft.name)[:80], reason="empty name"))
        return None
    if len(name) > LONGEST_NAME:
        dropped.append(Dropped(what=name[:80], reason="name too long"))
        return None
    grounding, place = check_name(name, passage)
    if grounding == "unanchored" and mode != "evidence":
        dropped.append(Dropped(what=name, reason="name not in its passage"))
        return None
    name = _as_written(name, passage, place)
    spans = _spans(passage, draft.sentences)
    if mode == "span" and place is not None:  # a tiny model's choice of sentences is a guess: those that hold the name are evidence of it
        spans = tuple(span for span in spans if find_name(name, passage.text_of(span)))
    if place is not None and not any(span.start <= place.start < span.end for span in spans):
        spans = _union(spans, tuple(span for span in passage.spans if span.start <= place.start < span.end))
    if not spans and grounding == "composed":
        spans = passage.spans[:1]
    kind = draft.type.strip().casefold()
    kind = next((t for t in types if t.casefold() == kind), "other" if "other" in types else types[-1])
    description = _quoted(passage, spans) if quote else one_line(draft.description)
    return EntityMention(name=name, type=kind, description=description, spans=spans, grounding=grounding)


def _as_written(name: str, passage: Passage, place: Span | None) -> str:
    """The name in the passage's own capitals, where the passage has it in no place as the model wrote it."""
    written = clean_name(passage.text_of(place)) if place else name
    return written if written.casefold() == name.casefold() and name not in one_line(passage.text) else name


def _quoted(passage: Passage, spans: tuple[Span, ...]) -> str:
    return " ".join(one_line(passage.text_of(span)) for span in spans)


def _end(end: int | str, places: dict[int, int], by_key: dict[str, int]) -> int | None:
    return places.get(end) if isinstance(end, int) else by_key.get(name_key(end))


def _relationships(
    passage: Passage,
    drafts: tuple[RelationshipDraft, ...],
    entities: list[EntityMention],
    places: dict[int, int],
    by_key: dict[str, int],
    mode: GroundingMode,
    quote: bool,
    dropped: list[Dropped],
) -> tuple[RelationshipMention, ...]:
    kept: dict[tuple[int, int, str], RelationshipMention] = {}
    for draft in drafts:
        what = f"{draft.source}-{draft.target}: {one_line(draft.description)[:60]}"
        source, target = _end(draft.source, places, by_key), _end(draft.target, places, by_key)
        if source is None or target is None:
            dropped.append(Dropped(what=what, reason="no such entity"))
            continue
        if source == target:
            dropped.append(Dropped(what=what, reason="self loop"))
            continue
        names = entities[source].name, entities[target].name
        cited = _spans(passage, draft.sentences)
        both = () if cited and mode != "span" else _holding(passage, *names)
        spans = both or cited or _holding(passage, names[0]) or _holding(passage, names[1])
        if not spans:
            dropped.append(Dropped(what=what, reason="cites no sentence"))
            continue
        description = _quoted(passage, spans) if quote else one_line(draft.description)
        key = (min(source, target), max(source, target), description)
        if key in kept:
            dropped.append(Dropped(what=what, reason="repeated relationship"))
            continue
        kept[key] = RelationshipMention(source=source, target=target, description=description, strength=draft.strength, spans=spans)
    return tuple(kept.values())


def _claims(passage: Passage, drafts: tuple[ClaimDraft, ...], places: dict[int, int], by_key: dict[str, int], dropped: list[Dropped]) -> tuple[ClaimMention, ...]:
    kept: dict[tuple[int, str], ClaimMention] = {}
    for draft in drafts:
        description = one_line(draft.description)
        subject, other = _end(draft.subject, places, by_key), _end(draft.object, places, by_key)
        spans = _spans(passage, draft.sentences)
        if subject is None or not spans or not description:
            reason = "no such entity" if subject is None else "cites no sentence" if not spans else "says nothing"
            dropped.append(Dropped(what=description[:80], reason=reason))
            continue
        if (subject, description) in kept:
            dropped.append(Dropped(what=description[:80], reason="repeated claim"))
            continue
        status = next((s for s in STATUSES if s == draft.status.strip().upper()), "SUSPECTED")
        kept[subject, description] = ClaimMention(
            subject=subject,
            object=-1 if other is None or other == subject else other,
            type=one_line(draft.type) or "claim",
            status=status,  # type: ignore[arg-type]
            period=one_line(draft.period) or "NA",
            description=description,
            spans=spans,
        )
    return tuple(kept.values())


def settle(extractions: list[Extraction]) -> list[Extraction]:
    """The extractions of one document with what is used separated from what is kept apart.

    A name that is not in its passage is used when the same name stands in another passage of the document; otherwise it is kept apart, and
    relationships and claims that need it are dropped with their reason, so that no edge dangles.
    """
    known = {name_key(e.name) for x in extractions for e in x.entities if e.grounding != "unanchored"}
    return [_separated(x, known) for x in extractions]


def _separated(extraction: Extraction, known: set[str]) -> Extraction:
    usable = [e.grounding != "unanchored" or name_key(e.name) in known for e in extraction.entities]
    # A record without any sentence cannot be cited; it is kept apart as well.
    usable = [use and bool(e.spans) for use, e in zip(usable, extraction.entities, strict=True)]
    if all(usable):
        return extraction
    places = {old: new for new, old in enumerate(index for index, use in enumerate(usable) if use)}
    relationships = [r for r in extraction.relationships if r.source in places and r.target in places]
    claims = [c for c in extraction.claims if c.subject in places]
    lost = len(extraction.relationships) - len(relationships) + len(extraction.claims) - len(claims)
    reason = Dropped(what="relationship or claim", reason="an end is not in its passage")
    return replace(
        extraction,
        entities=tuple(e for e, use in zip(extraction.entities, usable, strict=True) if use),
        relationships=tuple(replace(r, source=places[r.source], target=places[r.target]) for r in relationships),
        claims=tuple(replace(c, subject=places[c.subject], object=places.get(c.object, -1)) for c in claims),
        apart=tuple(e for e, use in zip(extraction.entities, usable, strict=True) if not use),
        dropped=(*extraction.dropped, *(reason for _ in range(lost))),
    )
