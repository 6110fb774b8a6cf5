"""Ports for programs that are told theirs."""

import random
import socket

_CHANCE = random.SystemRandom()


def free_port() -> int:
    """A port nobody listens on now, from below those that the system deals out by itself: no other socket of a test will be given it meanwhile."""
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", _CHANCE.randrange(15_000, 30_000)))
            except OSError:
                continue
            return int(probe.getsockname()[1])
