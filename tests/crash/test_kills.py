"""kill -9 at random moments of real builds: nothing that was published or paid for is lost, and the next build ends as if nothing had happened."""

import pytest

from tests.crash.builder import COLLECTING, DISCARDING, ENDING, POINTED, POINTING, PUBLISHING, STARTING, SWEEPING
from tests.crash.kills import Pair, kill_round, kills

SEED = 3


def test_twenty_kills(tmp_path, builds):
    """After each of 20 kills, spread over a whole build, the index is one that was published and whole; the build that follows ends with the digest, the
    ledger and the files of a twin that nobody killed, and asks again at most what was in flight. (More kills, where the twenty missed a part of a build, or
    every request on its way.)
    """
    rounds, hit = [], []
    with Pair.open(tmp_path, SEED, builds) as pair:
        for one in kills(pair, 80, SEED):
            rounds.append(one)
            hit += one.phases
            if len(hit) >= 20 and {STARTING, PUBLISHING} < set(hit) and any(one.twice for one in rounds):
                break

    assert {STARTING, PUBLISHING} < set(hit)
    assert any(one.twice for one in rounds) or not any(one.in_flight for one in rounds)


@pytest.fixture(scope="module")
def pair(tmp_path_factory, builds):
    """A project and its twin, after two changes: from now on each build lets go of something."""
    with Pair.open(tmp_path_factory.mktemp("phases"), SEED, builds) as opened:
        for _ in range(2):
            kill_round(opened, [])
        yield opened


@pytest.mark.parametrize("phase", ["extraction", "reports", PUBLISHING, POINTING, POINTED, COLLECTING, SWEEPING])
def test_killed_at_the_beginning_of_a_phase(pair, phase):
    """The same holds for a build that dies twice just where a phase begins: a generation that is whole and not yet named, replies that are not yet let go."""
    one = kill_round(pair, [phase, phase])

    assert one.phases[0] == phase


def test_three_kills_of_a_forget(pair):
    """A `forget` that is killed leaves the old generation or the new one, whole, with all that was acknowledged; said again, or by the next `index`, it ends
    as its twin's: nothing of the document is in any file or table, and its receipt says that it was sought.
    """
    rounds = list(kills(pair, 3, SEED, forgets=True))

    assert sum(len(one.phases) for one in rounds) >= 3


@pytest.mark.parametrize(("phase", "by_index"), [(DISCARDING, True), (ENDING, False)])
def test_a_forget_killed_at_the_beginning_of_a_phase(pair, phase, by_index):
    """The same holds for one that dies twice just where a phase begins, also of those that come after the publication."""
    one = kill_round(pair, [phase, phase], forgets=True, by_index=by_index)

    assert one.phases[0] == phase
