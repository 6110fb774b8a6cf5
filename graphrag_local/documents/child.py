"""The process in which foreign formats are parsed: no files, no network, little memory, little time.

    python -P -B -m graphrag_local.documents.child MEMORY_MB

Speaks in frames (8 bytes of length, then that many bytes) on stdin and stdout. After a greeting: per file two frames in, a JSON
header and the file's bytes, and one JSON frame out. Whatever goes wrong unexpectedly is said in a last frame, then it ends.
"""

import json
import os
import resource
import sys
from types import TracebackType
from typing import IO, Any

from graphrag_local.documents.formats import BINARY, parser_of
from graphrag_local.documents.parsed import MB, Options, ReadProblem

_OUT_OF_MEMORY = ("unknown error", "emory allocation", "out of memory")  # how libxml2 says that the limit was reached


def read_frame(stream: IO[bytes]) -> bytes:
    """One frame, or nothing when the other side is gone."""
    head = stream.read(8)
    return stream.read(int.from_bytes(head, "big")) if len(head) == 8 else b""


def frame(content: bytes) -> bytes:
    """A frame around bytes."""
    return len(content).to_bytes(8, "big") + content


def _limit(kind: int, value: int) -> None:
    """Lower a limit as far as the system allows (macOS refuses some)."""
    try:
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
    except (ValueError, OSError):
        return


def _answer(header: dict[str, Any], content: bytes) -> dict[str, Any]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime + header["timeout_s"]) + 2)
    kind = header["kind"]
    try:
        parsed = parser_of(kind)(content if kind in BINARY else content.decode("utf-8", "surrogatepass"), Options(**header["options"]))
    except ReadProblem as problem:
        if any(sign in str(problem) for sign in _OUT_OF_MEMORY):
            return {"memory": True}
        return {"refused": str(problem)}
    except MemoryError:
        return {"memory": True}
    return {"parsed": parsed.to_json()}


def main() -> None:
    """Serve requests until the parent closes the pipe."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what libraries print must not end up between the frames
    for kind, value in ((resource.RLIMIT_AS, int(sys.argv[1]) * MB), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        _limit(kind, value)

    def say(answer: dict[str, Any]) -> None:
        replies.write(frame(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")))

    def unexpected(kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
        say({"refused": f"made its parser fail ({kind.__name__}: {str(error)[:200]})", "last": True})

    sys.excepthook = unexpected
    say({"ready": True})
    while header := read_frame(requests):
        say(_answer(json.loads(header), read_frame(requests)))


if __name__ == "__main__":
    main()
