"""Keeps a server from outliving the program that started it, also when that program is killed outright.

    python -P watch.py GRACE_S COMMAND...

Runs the command in this process group and stops the whole group when standard input closes, which the kernel sees to whatever happens to the owner.
(The death signal of Linux does less: it is tied to the thread that started the child, and does not reach the child's own children.) Standard output
tells the owner "exit CODE"; what the command prints goes to standard error, which is the log. Needs nothing but the standard library.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

GRACE_S = 15.0  # for the server to end by itself
CHILDREN_S = 0.5  # for what the server leaves behind
POLL_S = 0.1


def watch(grace_s: float, command: list[str]) -> None:
    """Returns never: the last thing is to kill the group, this process included."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # a handler, not SIG_IGN, which the command would inherit
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno()) as server:
        while server.poll() is None:
            ready, _, _ = select.select([0], [], [], POLL_S)
            if ready and not os.read(0, 1):
                os.killpg(0, signal.SIGTERM)
                break
        deadline = time.monotonic() + grace_s
        while server.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        with contextlib.suppress(BrokenPipeError):  # the owner may be gone
            os.write(1, f"exit {server.poll()}\n".encode())
        os.killpg(0, signal.SIGTERM)
        time.sleep(CHILDREN_S)
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    watch(float(sys.argv[1]), sys.argv[2:])
