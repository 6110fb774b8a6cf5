"""What the server's prefix cache saves when several questions go through the same windows: a real vLLM server, its own metrics.

    GRAPHRAG_LOCAL_MODELS=models python scripts/bench_prefix.py [--chunks 120] [--window 2000] [--level 1] [--block 32] [--questions 3]

A made-up collection (see synthetic.py) is indexed without a model, and the server is started as `serve` does. Different `global` questions are then asked
one after the other; only the map step is measured: every window is left after its first token and nothing is written, so that all prompt tokens of the
server are those of the windows. `hits / queries` are `vllm:prefix_cache_hits_total` and `vllm:prefix_cache_queries_total` over one question.

    fits    the cache that the server is given anyway holds all windows
    half    the windows are half again as large as the cache (--num-gpu-blocks-override); by turns as in a running service, each question first
            through what ended last, and, to compare, always forwards

From the second question on at least 80 % (fits) and 50 % (half, by turns) must be hits; less is marked and makes the exit code 1.
"""

import argparse
import asyncio
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
from synthetic import write_collection

from graphrag_local.engine.base import Reply, Request
from graphrag_local.project import ProjectFolder, open_project
from graphrag_local.query.ask import ask
from graphrag_local.store.reading import StoredIndex
from graphrag_local.wiring import open_model_side, running_engine

QUESTIONS = (
    "What are the main themes of this collection?",
    "Which bodies quarrel about money, and what did each of them pay?",
    "Who is blamed for delays, by whom, and how did it end in the following years?",
    "What do the people who keep the books have in common?",
)
FITS, HALF = 0.8, 0.5  # the aims
OVER = 1.5  # times the cache
MAP_ONLY = ("query.gate=1", "query.always_read=0", "query.refusal_margin=-1", "query.map_reply_tokens=64", "query.support=off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One question: its windows, how many prompt tokens were looked for in the cache, and how many found."""

    windows: int
    queries: int
    hits: int

    @property
    def share(self) -> float:
        """Of the prompt tokens those that were in the cache."""
        return self.hits / max(1, self.queries)


def main() -> int:
    """Make an index, start the servers, print the table; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=120, help="size of the collection")
    parser.add_argument("--window", type=int, default=2000, help="query.window_tokens")
    parser.add_argument("--level", type=int, default=1, help="community level whose reports are read")
    parser.add_argument("--block", type=int, default=32, help="tokens of a block of the cache (vLLM: 16 on GPUs, 128 on CPUs, which 32 suits too)")
    parser.add_argument("--questions", type=int, default=3, choices=(2, 3, 4))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "project"
        write_collection(folder / "input", options.chunks)
        made = ("vectors.kind=none", "extraction.method=fast", "reports.write=all")
        sets = [part for setting in made for part in ("--set", setting)]
        subprocess.run([sys.executable, "-m", "graphrag_local", "index", str(folder), *sets], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        settings = (*made, *MAP_ONLY, f"query.window_tokens={options.window}", f"query.level={options.level}")
        questions, size = QUESTIONS[: options.questions], ["--block-size", str(options.block)]
        print(f"{'cache':>8}{'order':>17}{'question':>10}{'windows':>9}{'prompt':>9}{'hits':>9}{'share':>8}{'aim':>7}")
        whole = measured(folder, settings, size, questions, by_turns=True)
        ok = told("fits", "by turns", whole, FITS)
        blocks = int((whole[0].queries - whole[0].hits) / OVER / options.block)  # what the first question finds are the instructions that all share
        size += ["--num-gpu-blocks-override", str(blocks)]
        ok &= told("half", "by turns", measured(folder, settings, size, questions, by_turns=True), HALF)
        told("half", "always forwards", measured(folder, settings, size, questions, by_turns=False), 0.0)
        print(f"windows of at most {options.window} tokens; the small cache has {blocks} blocks of {options.block} tokens")
    return 0 if ok else 1


def told(cache: str, order: str, rows: list[Row], aim: float) -> bool:
    """Print the rows; whether all but the first reach the aim."""
    ok = True
    for number, row in enumerate(rows, 1):
        low = number > 1 and row.share < aim
        ok &= not low
        wanted = f"{aim:7.0%}{' LOW' if low else ''}" if number > 1 and aim else ""
        print(f"{cache:>8}{order:>17}{number:>10}{row.windows:>9}{row.queries:>9,}{row.hits:>9,}{row.share:>8.1%}{wanted}", flush=True)
    return ok


def measured(folder: Path, settings: tuple[str, ...], size: Sequence[str], questions: Sequence[str], *, by_turns: bool) -> list[Row]:
    """A row per question, asked of a fresh server of that size one after the other."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    project = open_project(folder, (*settings, f"server.engine_args={','.join(size)}", f"server.engine_port={port}"))
    with running_engine(project, lambda text: print(text, file=sys.stderr)) as (url, _):
        return asyncio.run(_asked(open_project(folder, (*settings, f"engine.url={url}")), url, questions, by_turns=by_turns))


async def _asked(project: ProjectFolder, url: str, questions: Sequence[str], *, by_turns: bool) -> list[Row]:
    side = await open_model_side(project, None, lambda text: None)
    index = StoredIndex.open(project.index)
    rows, calls = [], 0

    async def generate(request: Request) -> Reply:
        nonlocal calls
        calls += 1
        return await side.model.generate(request)

    try:
        for turn, question in enumerate(questions):
            calls, before = 0, await asyncio.to_thread(_counts, url)
            if not by_turns:
                index.memo.clear()  # in it stands which windows ended last
            await ask(
                question, index, replace(side.model, generate=generate), side.embedder, project.prompts, project.settings.query,
                mode="global", level=None, turn=turn if by_turns else 0,
            )  # fmt: skip
            queries, hits = (now - then for now, then in zip(await asyncio.to_thread(_counts, url), before, strict=True))
            rows.append(Row(windows=calls, queries=queries, hits=hits))
        return rows
    finally:
        index.close()
        await side.close()


def _counts(url: str) -> tuple[int, int]:
    """Prompt tokens that were looked for in the cache since the server started, and those found."""
    page = httpx.get(f"{url.removesuffix('/v1')}/metrics", timeout=60, trust_env=False).text
    queries, hits = (
        sum(float(value) for value in re.findall(rf"^vllm:prefix_cache_{name}_total{{[^}}]*}} (\S+)$", page, re.MULTILINE)) for name in ("queries", "hits")
    )
    return int(queries), int(hits)


if __name__ == "__main__":
    sys.exit(main())
