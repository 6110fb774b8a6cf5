"""What a build costs, as far as it is known: intervals, what earlier replies and builds show, and shares measured on builds of our own. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from graphrag_local.settings import EngineSettings

# Measured with scripts/bench_pipeline.py --parts tokens, at 203 and 2,060 chunks (10 entities and 12 relationships a chunk, in 70 % 4 and 4 more):
# calls for a call of extraction (0.24 to 0.26, 0.15 to 0.17), and tokens for a token of extraction (0.12 to 0.13, 0.39 to 0.41).
# Descriptions are counted with canonical names there.
CALLS = {"descriptions": 0.25, "reports": 0.16}
SHARES = {"canonical names": 0.0, "descriptions": 0.13, "reports": 0.40}
REPLY_SHARE = 1.33  # tokens of extraction's replies for a token of text
ALL_REPLIES = 1.63  # the same for replies of every kind
# How far collections and models lie from those, our choice: from a text that names little and is told once, to one that comes back to its names on
# every page; and small collections have more groups for their size than large ones.
WIDE = (0.2, 4.0)
REPLY_WIDE = (0.15, 4.0)
SIGMAS = 3.0  # of a sum of many, from its mean
# Student's t, two-sided 95 %, for 1 to 10 degrees of freedom and some more: the largest not over what is asked for.
_T = {1: 12.71, 2: 4.31, 3: 3.19, 4: 2.78, 5: 2.58, 6: 2.45, 7: 2.37, 8: 2.31, 9: 2.27, 10: 2.23, 12: 2.18, 15: 2.14, 20: 2.09, 30: 2.05, 60: 2.0}
BUSY = 4  # times as many calls as go side by side keep a model busy most of the time
ONE_OF_MANY = 3.0  # a sample of one says the size within this factor, our choice


@dataclass(frozen=True, slots=True)
class Interval:
    """From the least to the most."""

    low: float
    high: float

    def __add__(self, other: "Interval") -> "Interval":
        """The sum of two."""
        return Interval(self.low + other.low, self.high + other.high)

    def times(self, low: float, high: float) -> "Interval":
        """Each end times a factor."""
        return Interval(self.low * low, self.high * high)

    def whole(self) -> list[int]:
        """As whole numbers, outwards."""
        return [math.floor(self.low), math.ceil(self.high)]


NOTHING = Interval(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Spread:
    """How a quantity is distributed: how many were seen, mean, standard deviation, and the largest."""

    count: int
    mean: float
    deviation: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of some values; none at all is a distribution of zeros."""
        if not values:
            return cls(0, 0.0, 0.0, 0.0)
        return cls(len(values), fmean(values), stdev(values) if len(values) > 1 else 0.0, max(values))

    @classmethod
    def of_sums(cls, count: int, total: float, squares: float, most: float) -> "Spread":
        """Of as many values with this sum and sum of squares."""
        mean = total / count
        return cls(count, mean, math.sqrt(max(0.0, squares / count - mean * mean)), most)

    def sum_of(self, number: int) -> Interval:
        """What so many more add up to: the mean and three standard deviations about it; one of them may be as large as the largest seen."""
        if not number:
            return NOTHING
        middle, away = number * self.mean, SIGMAS * self.deviation * math.sqrt(number)
        return Interval(max(0.0, middle - away), max(middle + away, self.most))


def along(xs: Spread, ys: Spread, products: float, new: Sequence[float]) -> Interval:
    """The sum of the y that go with some new x, by the straight line through earlier pairs (whose products add up to `products`): three standard
    deviations about it, for what is left of the spread of y and for the line's own place."""
    variance = xs.deviation**2
    covariance = products / xs.count - xs.mean * ys.mean
    slope = covariance / variance if variance else 0.0
    left = math.sqrt(max(0.0, ys.deviation**2 - slope * covariance) * xs.count / max(1, xs.count - 2))
    off = sum(new) - len(new) * xs.mean
    place = len(new) ** 2 / xs.count + (off**2 / (xs.count * variance) if variance else 0.0)
    middle, away = len(new) * ys.mean + slope * off, SIGMAS * left * math.sqrt(len(new) + place)
    return Interval(max(0.0, middle - away), middle + away)


def from_sample(values: Sequence[float], rest: int) -> Interval:
    """The sum over the `rest` units of a finite population from which `values` are a random sample: the sample's mean with its 95 % interval
    (Student's t), times their number."""
    n = len(values)
    if not rest or not n:
        return NOTHING
    mean = fmean(values)
    if n == 1:
        return Interval(rest * mean / ONE_OF_MANY, rest * mean * ONE_OF_MANY)
    # of the mean of those that were not drawn: their own spread counts as well as the sample's
    error = stdev(values) * math.sqrt(1 / n + 1 / rest) * _T[max(df for df in _T if df < n)]
    return Interval(max(0.0, rest * (mean - error)), rest * (mean + error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How fast the engine is: tokens (prompt and reply) a second of a whole run, at least and at most; seconds of one call; and where that is from."""

    slow: float
    fast: float
    call_s: float
    source: str

    def minutes(self, tokens: Interval, chain: int) -> Interval:
        """The time for so many tokens; at most `chain` calls wait for each other."""
        return Interval(tokens.low / self.fast / 60, (tokens.high / self.slow + chain * self.call_s) / 60)


def speed_of_builds(builds: Iterable[Mapping[str, Any]], alone: Speed | None, at_once: int) -> Speed | None:
    """The speed of the build that asked most; None where none asked anything.

    A build of few calls did not keep the model busy, so a larger one may be as fast as single calls (`alone`) side by side.
    """
    most = max(builds, key=lambda build: build["completion_tokens"], default=None)
    asking = [row for row in most["by_stage"].values() if row["calls"]] if most else []
    tokens, seconds = sum(row["prompt_tokens"] + row["completion_tokens"] for row in asking), sum(row["seconds"] for row in asking)
    if not tokens or not seconds:
        return None
    rate, few = tokens / seconds, sum(row["calls"] for row in asking) < BUSY * at_once
    fast = max(rate, alone.fast) if alone and few else rate
    return Speed(slow=rate, fast=fast, call_s=alone.call_s if alone else 0.0, source="an earlier build")


def speed_of_calls(tokens: float, seconds: float, call_s: float, at_once: int, source: str) -> Speed | None:
    """The speed when `tokens` took `seconds`, and up to `at_once` times as many might be worked on together."""
    if not tokens or not seconds:
        return None
    return Speed(slow=tokens / seconds, fast=at_once * tokens / seconds, call_s=call_s, source=source)


def at_once(kind: str, settings: EngineSettings) -> int:
    """How many requests a model works on together at most: rows of a batch in this process, requests in flight to a server."""
    return settings.batch if kind == "embedded" else settings.concurrency


def first_build_replies(text_tokens: float) -> Interval:
    """Tokens that the model writes for a first index of a text."""
    return Interval(text_tokens, text_tokens).times(ALL_REPLIES * 0.5, ALL_REPLIES * 2)
