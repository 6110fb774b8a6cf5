"""`python -m tests.modelserver SCRIPT.json --port N`: play a script until Ctrl-C, naming the address on standard output."""

import argparse
import contextlib
import sys
import threading

from tests.modelserver.server import ModelServer


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m tests.modelserver", description="Play a script of a model server.")
    parser.add_argument("script", nargs="?", help="a JSON file; without it every reply is valid")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--clock-scale", type=float, default=1.0, help="how many seconds of the script pass in one")
    given = parser.parse_args()
    with ModelServer(given.script, clock_scale=given.clock_scale, port=given.port) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
