"""kill -9 at random moments of real builds: nothing that was published or paid for is lost, and the next build ends as if nothing had happened."""

import pytest

from tests.crash.builder import COLLECTING, POINTED, POINTING, PUBLISHING, STARTING, SWEEPING
from tests.crash.kills import Pair, kill_round, kills

SEED = 3


def test_twenty_kills(tmp_path):
    """After each of 20 kills, spread over a whole build, the index is one that was published and whole; the build that follows ends with the digest, the
    ledger and the files of a twin that nobody killed, and asks again at most what was in flight.
    """
    with Pair.open(tmp_path, SEED) as pair:
        rounds = list(kills(pair, 20, SEED))

    hit = [phase for one in rounds for phase in one.phases]
    assert len(hit) >= 20
    assert {STARTING, PUBLISHING} < set(hit)
    assert any(one.twice for one in rounds) or not any(one.in_flight for one in rounds)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A project and its twin, after two changes: from now on each build lets go of something."""
    with Pair.open(tmp_path_factory.mktemp("phases"), SEED) as opened:
        for _ in range(2):
            kill_round(opened, [])
        yield opened


@pytest.mark.parametrize("phase", ["extraction", "reports", PUBLISHING, POINTING, POINTED, COLLECTING, SWEEPING])
def test_killed_at_the_beginning_of_a_phase(pair, phase):
    """The same holds for a build that dies twice just where a phase begins: a generation that is whole and not yet named, replies that are not yet let go."""
    one = kill_round(pair, [phase, phase])

    assert one.phases[0] == phase
