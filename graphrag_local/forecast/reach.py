"""How many calls of the later stages a change leads to: exactly where all extractions are known, else what those that are not can touch at most. Pure.

A call is certain when everything that it is made from is known. One missing extraction can bring back word for word what an edit took away,
or name anything, so it leaves nothing certain behind it but the canonical names of other documents. How much it touches is taken from the
chunks that are known: the entities that one names, the descriptions among them that are long, and the reports above them. A sum over several such
chunks is their mean and three standard deviations, or the most that one of them has.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from graphrag_local.engine.unasked import Kind, Unasked
from graphrag_local.forecast.costs import CALLS, NOTHING, WIDE, Interval, Spread
from graphrag_local.records import Mention
from graphrag_local.settings import Settings
from graphrag_local.store.snapshot import Snapshot

NAMES_OF_TWO_CALLS = 60  # two calls for canonical names one after the other hold more names than this together
FEW = 10  # chunks from which nothing can be learned about others
RENEWED_SHARE = 0.02  # of the chunks unknown: from here on the communities' anchor may be renewed, and with it every report
RENEWED = 1.25  # times today's communities at most after that (the anchor is renewed before there are more)
USUAL_SMALLEST, MOST_SMALL = 600, 10  # reports.min_tokens of the builds that were measured, and times their reports where it is less, at most
ALL_LEVELS = 4  # times the reports of the upper levels are those of all, at most
# An entity that comes to another community changes that one and the one it left; since only nodes move that lost half of their ties, 0.72 of the
# communities change that would otherwise (20 days of edits), so 1.44, rounded up.
MOVES = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """The communities whose reports are wanted, and for each the parts whose reports it stands on; `write` says which are, as the setting does."""

    write: str
    wanted: frozenset[str]
    stands_on: Mapping[str, Collection[str]]


class Reach:
    """What a run over `Unasked` left open; `fresh`: there is no published index, so everything is still to be written."""

    def __init__(self, snapshot: Snapshot, unasked: Unasked, settings: Settings, reports: Reports, count: Callable[[str], int], *, fresh: bool) -> None:
        self.snapshot, self.unasked, self.settings, self.reports, self.fresh = snapshot, unasked, settings, reports, fresh
        self._count = count
        self._documents = {chunk.id: chunk.document_id for chunk in snapshot.chunks}
        self.unread = [chunk.id for chunk in snapshot.chunks if chunk.id in unasked.unread]
        self.known = [chunk.id for chunk in snapshot.chunks if chunk.id not in unasked.unread]
        self._unread_by_document: dict[str, int] = defaultdict(int)
        for chunk in self.unread:
            self._unread_by_document[self._documents[chunk]] += 1
        self._renamed = {document for one in unasked.of("canonical names") for document in one.about}  # documents whose names are not all known
        self._by_chunk: dict[str, list[Mention]] = defaultdict(list)
        for mention in snapshot.mentions:
            self._by_chunk[mention.chunk_id].append(mention)
        self._names = Spread.of([self._named(chunk) for chunk in self.known])

    @property
    def is_certain(self) -> bool:
        """Whether all extractions and canonical names are known."""
        return not self.unread and not self._renamed

    @property
    def is_blind(self) -> bool:
        """Whether too little is known to learn from it."""
        return len(self.unread) > 0 and len(self.known) < max(FEW, len(self.unread))

    def calls(self) -> dict[Kind, Interval]:
        """Calls of the later stages by kind."""
        return {
            "gleaning": self._gleaning(),
            "canonical names": self._canonical(),
            "descriptions": self._described_blindly() if self.is_blind else self._descriptions(),
            "reports": NOTHING if self.reports.write == "lazy" else self._reported_blindly() if self.is_blind else self._reports(),
        }

    def _gleaning(self) -> Interval:
        """A missing extraction may have all its further turns, a missing turn those after it."""
        known = len(self.unasked.of("gleaning"))
        turns = 2 * self.settings.extraction.max_gleanings if self.settings.extraction.gleaning == "turns" else 0
        return Interval(known, known + turns * (known + len(self.unasked.of("extraction"))))

    def _canonical(self) -> Interval:
        """Exactly those of documents that are read; of others one for every thirty names at most, and one (thirty names a chunk, where none is known)."""
        known = sum(1 for one in self.unasked.of("canonical names") if not self._unread_by_document.keys() >= set(one.about))
        if not self.settings.extraction.canonical:
            return Interval(known, known)
        named: dict[str, set[str]] = defaultdict(set)
        for mention in self.snapshot.mentions:
            if mention.owner_kind == "entity" and mention.document_id in self._unread_by_document:
                named[mention.document_id].add(mention.name)
        high = known
        for document, chunks in self._unread_by_document.items():
            more = chunks * NAMES_OF_TWO_CALLS / 2 if self.is_blind else self._names.sum_of(chunks).high
            high += 1 + int((len(named[document]) + more) * 2 / NAMES_OF_TWO_CALLS)
        return Interval(known, high)

    def _named(self, chunk: str) -> int:
        return len({mention.owner_id for mention in self._by_chunk[chunk] if mention.owner_kind == "entity"})

    # Descriptions

    def _described_blindly(self) -> Interval:
        """The share measured on other builds, of all chunks where nothing is written yet."""
        low = WIDE[0] * CALLS["descriptions"] * len(self.snapshot.chunks) if self.fresh and not self.is_certain else 0.0
        return Interval(math.floor(low), math.ceil(WIDE[1] * CALLS["descriptions"] * len(self.snapshot.chunks)) + 1)

    def _descriptions(self) -> Interval:
        """A subject with groups to summarise has one call at least; at most those of a run in which the summaries are as long as the settings let them
        be, and one more a level. What the unknown chunks say changes about one group a level of a long subject's tree."""
        sizes, settings = self._sizes(), self.settings.describe
        names = self._own_names | {key: " - ".join(sorted(self._own_names[end] for end in ends)) for key, ends in self._ends.items()}
        by_name = {names[owner]: size for owner, size in sizes.items() if owner in names}
        longer = max(1.0, settings.max_reply_tokens / settings.threshold_tokens)
        calls: dict[str, int] = defaultdict(int)
        for one in self.unasked.of("descriptions"):
            calls[one.about[0]] += 1
        high = sum(
            number if by_name.get(name, math.inf) <= settings.group_tokens else math.ceil(number * longer) + self._levels(by_name.get(name, 0)) - 1
            for name, number in calls.items()
        )
        if self.is_certain:
            return Interval(len(calls), high)
        if not calls and self._are_quoted():
            return NOTHING
        paths = {owner: 2 * self._levels(size) - 1 for owner, size in sizes.items()}  # a group more or less at each level but the last
        touched = Spread.of([sum(paths.get(owner, 0) for owner in {mention.owner_id for mention in self._by_chunk[chunk]}) for chunk in self.known])
        new = WIDE[1] * CALLS["descriptions"] * len(self.unread)  # names that only the unknown chunks have
        return Interval(0, math.ceil(high + touched.sum_of(self._open_chunks()).high + new))

    def _levels(self, tokens: float) -> int:
        """Levels of the tree over descriptions of so many tokens; a group becomes a summary of a quarter of it at most, our estimate."""
        return 1 + max(0, math.ceil(math.log(max(1.0, tokens) / self.settings.describe.group_tokens, 4)))

    def _are_quoted(self) -> bool:
        return all(not mention.description for mention in self.snapshot.mentions)

    def _sizes(self) -> dict[str, int]:
        """Tokens of the different descriptions of each entity and relationship that has more than half a summary's worth; a token is a byte at least."""
        said: dict[str, set[str]] = defaultdict(set)
        for mention in self.snapshot.mentions:
            if mention.owner_kind != "claim" and mention.description:
                said[mention.owner_id].add(mention.description)
        half = self.settings.describe.threshold_tokens / 2
        large = {owner: texts for owner, texts in said.items() if sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) > half}
        return {owner: size for owner, texts in large.items() if (size := sum(map(self._count, texts))) > half}

    def _open_chunks(self) -> int:
        """Chunks whose records may be others than those known: unread ones, and one for each document that is read and whose names may change."""
        return len(self.unread) + len(self._renamed - self._unread_by_document.keys())

    # Reports

    def _reported_blindly(self) -> Interval:
        """The share measured on other builds; a small collection has a few reports in any case."""
        low = WIDE[0] * CALLS["reports"] * len(self.snapshot.chunks) if self.fresh else 0.0
        high = WIDE[1] * CALLS["reports"] * (ALL_LEVELS if self.reports.write == "all" else 1) * len(self.snapshot.chunks)
        high *= min(MOST_SMALL, max(1.0, USUAL_SMALLEST / max(1, self.settings.reports.min_tokens)))
        return Interval(math.floor(low), math.ceil(max(high, len(self.reports.wanted))) + FEW)

    def _reports(self) -> Interval:
        """Missed ones, with those that stand on them; and what the unknown chunks touch, at most all that can be wanted then."""
        missed = self._unanswered("reports")
        vague = self._over(self._unanswered("graph"))
        above = self._with_those_above(missed | vague)
        if self.is_certain:
            sure = {key for key in missed - vague if above.isdisjoint(self.reports.stands_on.get(key, ()))}
            return Interval(len(sure), len(above))
        renamed = {mention.owner_id for mention in self.snapshot.mentions if self._may_change(mention)}
        above = self._with_those_above(above | self._over(renamed))
        most = math.ceil(RENEWED * len(self.reports.wanted) + self._new_communities())
        if len(self.unread) > RENEWED_SHARE * len(self.snapshot.chunks):
            return Interval(0, max(most, len(above)))
        touched = Spread.of([len(self._over({mention.owner_id for mention in self._by_chunk[chunk]})) for chunk in self.known])
        return Interval(0, min(max(most, len(above)), math.ceil(len(above) + MOVES * touched.sum_of(self._open_chunks()).high)))

    def _may_change(self, mention: Mention) -> bool:
        """Whether a mention goes by a canonical name that is asked for anew."""
        if mention.document_id not in self._renamed and mention.document_id not in self._unread_by_document:
            return False
        return mention.owner_kind == "entity" and mention.name != self._own_names.get(mention.owner_id)

    @cached_property
    def _own_names(self) -> dict[str, str]:
        return {entity.id: entity.name for entity in self.snapshot.entities}

    @cached_property
    def _ends(self) -> dict[str, tuple[str, str]]:
        return {edge.id: (edge.source_id, edge.target_id) for edge in self.snapshot.relationships}

    @cached_property
    def _communities_of(self) -> dict[str, set[str]]:
        """The wanted communities that each entity is in."""
        found: dict[str, set[str]] = defaultdict(set)
        for community in self.snapshot.communities:
            for member in community.member_ids if community.id in self.reports.wanted else ():
                found[member].add(community.id)
        return found

    def _unanswered(self, stage: str) -> set[str]:
        """Ids of the units of a stage that failed because nobody was asked; replies that are there and cannot be used fail for good."""
        return {row.input_id for row in self.snapshot.failures if row.stage == stage and row.retryable}

    def _new_communities(self) -> float:
        """Of the names that only the unknown chunks have: a pair of them makes a community, many make what as many others have made."""
        few = self._names.sum_of(min(self._open_chunks(), FEW)).high / 2
        return few + MOVES * self._open_chunks() * len(self.reports.wanted) / max(1, len(self.known))

    def _over(self, owners: Collection[str]) -> set[str]:
        """The wanted communities that hold some of these entities, or both ends of some of these relationships."""
        above = self._communities_of
        found: set[str] = set()
        for owner in owners:
            ends = self._ends.get(owner)
            found |= above.get(ends[0], set()) & above.get(ends[1], set()) if ends else above.get(owner, set())
        return found

    def _with_those_above(self, communities: Collection[str]) -> set[str]:
        """Communities with the wanted ones that stand on them."""
        found = set(communities)
        for community in sorted(self.snapshot.communities, key=lambda community: -community.first_level):
            if community.id in self.reports.wanted and not found.isdisjoint(self.reports.stands_on.get(community.id, ())):
                found.add(community.id)
        return found
