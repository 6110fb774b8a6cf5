"""What stands together: relationships by co-occurrence, weighed over the whole collection. Pure.

Two things are related where one sentence has both, half as much where two sentences side by side do; a thing that has no company even there goes with
its nearest neighbour in the passage, a quarter as much. A relationship weighs its positive pointwise mutual information (Church and Hanks 1990), discounted
where counts are small (Pantel and Lin 2002).

Weights are global and must not move with every edit, because communities are kept stable by the edges that did not change (see `communities.anchor`).
So a weight is a power of two, and the size of the collection enters as a power of four: it depends on the three counts of its own pair, in steps,
and an edit changes edges of what it mentions, few of those, and no others until the collection has grown fourfold.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from graphrag_local.extraction.spot import Seen

NEAR, FAR = 0.5, 0.25
PAIRED = 8  # things of a sentence that one is paired with, those that follow it (in a longer list not everything goes with everything)
MOST_EDGES = 30  # of a thing, the heaviest; the heaviest of its other end is kept all the same, so that no end is left alone by this
SHARE = 2**-20  # mentions of an edge share its weight in multiples of this, so that they add up to it exactly
SENTENCES = 2  # places that a relationship of one passage cites

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Tie:
    """A pair in one passage: how much it counts, and where it shows, as runs (first, last) of sentences."""

    pair: Pair
    count: float
    places: tuple[tuple[int, int], ...]


def ties(seen: Sequence[Seen]) -> list[Tie]:
    """The pairs of a passage, in the order of their keys."""
    by_sentence: dict[int, list[str]] = defaultdict(list)
    for one in seen:
        if one.key not in by_sentence[one.sentence]:
            by_sentence[one.sentence].append(one.key)
    counts: dict[Pair, float] = defaultdict(float)
    places: dict[Pair, list[tuple[int, int]]] = defaultdict(list)
    for number, keys in sorted(by_sentence.items()):
        for at, key in enumerate(keys):
            for other in keys[at + 1 : at + 1 + PAIRED]:
                counts[_pair(key, other)] += 1
                places[_pair(key, other)].append((number, number))
    close = set(counts)
    for number, keys in sorted(by_sentence.items()):
        following = by_sentence.get(number + 1, [])[:PAIRED]
        for pair in [_pair(key, other) for key in keys[-PAIRED:] for other in following if key != other]:
            if pair not in close:
                counts[pair] += NEAR
                places[pair].append((number, number + 1))
    for pair, place in _nearest(seen, {key for found in counts for key in found}):
        counts[pair] += FAR
        places[pair].append(place)
    return [Tie(pair, counts[pair], tuple(places[pair][:SENTENCES])) for pair in sorted(counts)]


def _pair(a: str, b: str) -> Pair:
    return (a, b) if a < b else (b, a)


def _nearest(seen: Sequence[Seen], company: set[str]) -> list[tuple[Pair, tuple[int, int]]]:
    """For each thing without company the nearest other thing of the passage, with the sentences of both."""
    found = {}
    for one in seen:
        others = [other for other in seen if other.key != one.key]
        if one.key in company or one.key in found or not others:
            continue
        other = min(others, key=lambda other: (abs(other.sentence - one.sentence), other.sentence, other.start))
        found[one.key] = (_pair(one.key, other.key), (min(one.sentence, other.sentence), max(one.sentence, other.sentence)))
    return list(dict(found.values()).items())


@dataclass(slots=True)
class Together:
    """Counts over a collection: sentences that have a thing, how often a pair meets, and in how many passages."""

    things: Counter[str] = field(default_factory=Counter)
    pairs: dict[Pair, float] = field(default_factory=lambda: defaultdict(float))
    passages: Counter[Pair] = field(default_factory=Counter)

    def add(self, seen: Iterable[Seen], tied: Iterable[Tie]) -> None:
        """Count a passage."""
        self.things.update(key for key, _ in {(one.key, one.sentence) for one in seen})
        for tie in tied:
            self.pairs[tie.pair] += tie.count
            self.passages[tie.pair] += 1

    def weights(self, magnitude: int) -> dict[Pair, float]:
        """The pairs that are kept, with their weights; `magnitude` is the size of the collection in sentences, in steps."""
        weighed = {pair: weight for pair, count in self.pairs.items() if (weight := self._weight(pair, count, magnitude))}
        by_thing: dict[str, list[Pair]] = defaultdict(list)
        for pair in weighed:
            for key in pair:
                by_thing[key].append(pair)
        votes: Counter[Pair] = Counter()
        firsts: set[Pair] = set()
        for pairs in by_thing.values():
            ranked = sorted(pairs, key=lambda pair: (-weighed[pair], -self.pairs[pair], pair))
            votes.update(ranked[:MOST_EDGES])
            firsts.add(ranked[0])
        return {pair: weighed[pair] for pair in sorted(weighed) if votes[pair] == 2 or pair in firsts}

    def _weight(self, pair: Pair, count: float, magnitude: int) -> float:
        least, most = sorted(self.things[key] for key in pair)
        information = math.log2(count * magnitude / (least * most))
        discount = count / (count + 1) * least / (least + 1)
        return 2.0 ** round(math.log2(information * discount)) if information > 0 else 0.0


def shares(weight: float, mentions: int) -> tuple[float, float]:
    """The strength of each of the first mentions of an edge, and of the last: together they are its weight, exactly."""
    each = math.floor(weight / mentions / SHARE) * SHARE
    return each, weight - each * (mentions - 1)


def kept(tied: Iterable[Tie], weights: Mapping[Pair, float]) -> list[Tie]:
    """The ties of a passage that are relationships."""
    return [tie for tie in tied if tie.pair in weights]
