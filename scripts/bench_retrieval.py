"""How many of the passages that a question needs are among the first, without any language model; and what a ranked question costs.

    GRAPHRAG_LOCAL_MODELS=models python scripts/bench_retrieval.py --data FOLDER [--prose FOLDER ...] [--no-embedder] [--method none]
        [--parts table,parts,harder,prose,speed]

FOLDER holds passages.jsonl (title, text), questions.jsonl (question, gold_titles) and, where there are some, published-results/*.json of other
programs (question, ground truth, retrieved titles). Nothing of it is copied. `--prose` names folders of text files.

    table   recall among the first 2, 5 and 8, and the share of questions that have all their passages among the first 8; with titles and without
            ("as asked" is what `query --retrieve-only` prints without a mode)
    parts   the same with one part of the ranking left out
    harder  questions in small letters, and with one letter of one name exchanged
    prose   long texts: questions made of words of one sentence; the chunk that holds it must be among the first. The ranking must not lose any
            that the fused ranking has
    speed   CPU milliseconds per question, and of building the links, on a made-up collection of --entities names

`--method fast` (the default) indexes the passages with `index --method fast`; `none` only reads and cuts them. Prose is read and cut.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import synthetic

from graphrag_local import ids
from graphrag_local.chunks.stage import build_chunks
from graphrag_local.documents.stage import read_collection
from graphrag_local.engine.base import Embedder
from graphrag_local.engine.embed import NoEmbedder
from graphrag_local.engine.models import models_folder
from graphrag_local.flow import Silent
from graphrag_local.project import open_project
from graphrag_local.query.ask import retrieve
from graphrag_local.query.linking import ALL, Rules
from graphrag_local.query.retrieve import WordIndex, fused, links_of, nearest, rank_chunks
from graphrag_local.query.view import View, view_of
from graphrag_local.records import Chunk, Document, Entity, Mention
from graphrag_local.settings import ChunksSettings, DocumentsSettings, QuerySettings
from graphrag_local.store.reading import StoredIndex
from graphrag_local.text import is_question, name_key, placed_words, sentences, words
from graphrag_local.wiring import open_embedder

FIRST = (2, 5, 8)
DEPTH = 100


@dataclass(slots=True)
class Memory:
    """An index over lists, with the vectors of its chunks."""

    rows: dict[str, list[Any]]
    vectors: Any = None
    generation: str = "bench"
    manifest: dict[str, Any] = field(default_factory=dict)
    memo: dict[Any, Any] = field(default_factory=dict)

    def documents(self) -> Sequence[Document]:
        """All documents."""
        return self.rows["documents"]

    def chunks(self) -> Sequence[Chunk]:
        """All chunks."""
        return self.rows["chunks"]

    def entities(self) -> Sequence[Entity]:
        """All entities."""
        return self.rows.get("entities", [])

    def mentions(self) -> Sequence[Mention]:
        """All mentions."""
        return self.rows.get("mentions", [])

    def relationships(self) -> Sequence[Any]:
        """None."""
        return []

    claims = communities = reports = relationships

    def kept(self, part: Any) -> Any:
        """Made anew."""
        return part.make(self)

    def near(self, kind: str, vector: Sequence[float], k: int) -> list[tuple[str, float]]:
        """The nearest chunks."""
        if kind != "chunk" or self.vectors is None:
            return []
        scores = self.vectors @ np.array(vector, np.float32)
        return [(self.rows["chunks"][n].id, float(scores[n])) for n in np.argsort(-scores, kind="stable")[:k]]


class Kept:
    """The embedder, which embeds each text once."""

    def __init__(self, inner: Embedder) -> None:
        self.card, self._inner = inner.card, inner
        self._known: dict[str, list[float]] = {}

    async def embed(self, texts: list[str], *, query: bool = False) -> list[list[float]]:
        """Vectors."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, await self._inner.embed(new, query=query), strict=True))
        return [self._known[text] for text in texts]

    async def close(self) -> None:
        """Close the embedder."""
        await self._inner.close()


def fast(folder: Path, embedder: Kept, work: Path) -> StoredIndex:
    """The index that the program makes of a folder without a language model."""
    work.mkdir()
    vectors = "auto" if embedder.card.dimension else "none"
    (work / "graphrag.toml").write_text(f"[documents]\ninput = '{folder.resolve()}'\n[vectors]\nkind = '{vectors}'\n", encoding="utf-8")
    subprocess.run([sys.executable, "-m", "graphrag_local", "index", str(work), "--method", "fast", "--yes"], check=True, capture_output=True)
    return StoredIndex.open(work / "index")


def read(folder: Path, embedder: Kept) -> Memory:
    """The files of a folder as the program reads and cuts them: an index without entities."""
    documents, _, _ = read_collection(folder, DocumentsSettings())
    chunks = list(build_chunks(documents, ChunksSettings(), models_folder(), progress=Silent()))
    vectors = None
    if embedder.card.dimension:
        vectors = np.array(asyncio.run(embedder.embed([chunk.text for chunk in chunks])), np.float32)
    return Memory({"documents": list(documents), "chunks": chunks}, vectors)


# --- rankings


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, and the documents (or chunks) that answer it."""

    question: str
    gold: frozenset[str]


Ranking = Callable[[str], list[str]]  # a question -> ids of chunks


def rankings(index: Memory | StoredIndex, embedder: Kept, *, rules: Rules = ALL, only: str = "") -> dict[str, Ranking]:
    """The ways to rank that are compared."""
    view = view_of(index)
    by_path: dict[str, list[Chunk]] = {}
    for chunk in index.chunks():
        by_path.setdefault(view.documents[chunk.document_id].path, []).append(chunk)
    by_words = WordIndex.of([(chunk.id, f"{view.title(chunk.document_id)} {chunk.text}") for chunk in view.chunks.values()])

    def vector(question: str) -> list[tuple[str, float]]:
        return nearest(view, "chunk", asyncio.run(embedder.embed([question]))[0], DEPTH) if embedder.card.dimension else []

    def of(scored: list[tuple[str, float]]) -> list[str]:
        return [owner for owner, _ in scored]

    def linked(question: str) -> list[str]:
        return of(asyncio.run(rank_chunks(question, view, embedder, max(FIRST), rules)).hits)

    def as_asked(question: str) -> list[str]:
        """What `query --retrieve-only` prints: of records of other kinds the chunk in which they open."""
        hits = asyncio.run(retrieve(question, index, embedder, QuerySettings(), "auto", None, max(FIRST)))
        return [next(chunk.id for chunk in by_path[hit.document] if chunk.start <= hit.start < chunk.end) for hit in hits]

    known: dict[str, Ranking] = {
        "BM25": lambda question: of(by_words.best(question, DEPTH)),
        "vector": lambda question: of(vector(question)),
        "fused": lambda question: of(fused(vector(question), by_words.best(question, DEPTH))),
        "linked": linked,
        "as asked": as_asked,
    }
    left_out = {"vector"} if not embedder.card.dimension else set()
    left_out |= {"as asked"} if isinstance(index, Memory) else set()  # that has no communities
    return {name: ranking for name, ranking in known.items() if only in ("", name) and name not in left_out}


def measured(asked: Sequence[Asked], ranking: Ranking, name_of: Callable[[str], str]) -> tuple[list[list[float]], float]:
    """For each question the recalls and whether all were found; CPU milliseconds a question (asked once before, so that nothing is built or embedded)."""
    for item in asked:
        ranking(item.question)
    rows = []
    began = time.process_time()
    for item in asked:
        found = list(dict.fromkeys(name_of(owner) for owner in ranking(item.question)))
        recalls = [len(item.gold & set(found[:first])) / len(item.gold) for first in FIRST]
        rows.append([*recalls, float(item.gold <= set(found[: max(FIRST)]))])
    return rows, 1000 * (time.process_time() - began) / len(asked)


def line(setting: str, method: str, rows: list[list[float]], cost: float | None) -> str:
    """One line of the table: both halves and all."""
    half = (len(rows) + 1) // 2

    def cell(part: list[list[float]]) -> str:
        return " / ".join(f"{sum(column) / len(part):.3f}" for column in zip(*part, strict=True))

    return f"| {setting} | {method} | {cell(rows[:half])} | {cell(rows[half:])} | {cell(rows)} | {'-' if cost is None else f'{cost:.1f}'} |"


def head(title: str) -> None:
    """The head of a table."""
    print(f"\n{title}\n\n| setting | method | first half | other half | all | CPU ms/question |\n|---|---|---|---|---|---|")


# --- questions over passages


def passages(data: Path, target: Path, *, titled: bool) -> dict[str, str]:
    """The passages as one file of records; the title of each record."""
    rows = [json.loads(text) for text in (data / "passages.jsonl").read_text(encoding="utf-8").splitlines()]
    kept = [{"id": str(number), "text": row["text"], **({"title": row["title"]} if titled else {})} for number, row in enumerate(rows)]
    target.mkdir()
    (target / "collection.jsonl").write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in kept), encoding="utf-8")
    return {f"collection.jsonl#{number}": row["title"] for number, row in enumerate(rows)}


def questions(data: Path) -> list[Asked]:
    """The questions with the titles of their passages."""
    rows = [json.loads(text) for text in (data / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    return [Asked(row["question"], frozenset(row["gold_titles"])) for row in rows]


def published(data: Path, asked: Sequence[Asked]) -> None:
    """The published runs, for the same questions."""
    for file in sorted((data / "published-results").glob("*.json")):
        found = {row["question"]: row["evidence"] for row in json.loads(file.read_text(encoding="utf-8"))}
        rows = []
        for item in asked:
            titles = found.get(item.question, [])
            recalls = [len(item.gold & set(titles[:first])) / len(item.gold) for first in FIRST]
            rows.append([*recalls, float(item.gold <= set(titles[: max(FIRST)]))])
        print(line("published", file.stem.split("__")[0], rows, None))


def misspelt(item: Asked, dice: random.Random) -> Asked:
    """The question with two letters exchanged inside a word with a capital."""
    parts = item.question.split(" ")
    places = [n for n, part in enumerate(parts) if n and part[:1].isupper() and len(part) > 4]
    if places:
        place = dice.choice(places)
        at = dice.randrange(1, len(parts[place]) - 2)
        part = parts[place]
        parts[place] = part[:at] + part[at + 1] + part[at] + part[at + 2 :]
    return replace(item, question=" ".join(parts))


def over_passages(data: Path, embedder: Kept, parts: set[str], method: str) -> None:
    """Tables `table`, `parts` and `harder`."""
    asked = questions(data)
    with tempfile.TemporaryDirectory() as folder:
        indexes = {}
        for titled in (True, False):
            names = passages(data, Path(folder) / str(titled), titled=titled)
            source = Path(folder) / str(titled)
            index: Memory | StoredIndex = fast(source, embedder, source.with_suffix(".index")) if method == "fast" else read(source, embedder)
            view = view_of(index)
            title_of = {chunk.id: names[view.documents[chunk.document_id].path] for chunk in index.chunks()}
            indexes["titles" if titled else "no titles"] = (index, title_of.__getitem__)
        _tables(indexes, asked, embedder, data, parts)


def _tables(indexes: dict[str, Any], asked: list[Asked], embedder: Kept, data: Path, parts: set[str]) -> None:
    if "table" in parts:
        head(f"{len(asked)} questions. Cells: recall@2 / @5 / @8 / all among the first 8")
        published(data, asked)
        for setting, (index, name_of) in indexes.items():
            for method, ranking in rankings(index, embedder).items():
                print(line(setting, method, *measured(asked, ranking, name_of)))
    if "parts" in parts:
        head("One part left out")
        for left_out in ("ties", "heads", "cues", "spelling", "bridge", "gate"):
            for setting, (index, name_of) in indexes.items():
                ranking = rankings(index, embedder, rules=replace(ALL, **{left_out: False}), only="linked")["linked"]
                print(line(setting, f"no {left_out}", *measured(asked, ranking, name_of)))
    if "harder" in parts:
        head("Harder questions")
        dice = random.Random(7)
        wrong = [misspelt(item, dice) for item in asked]
        small = [replace(item, question=item.question.lower()) for item in asked]
        for name, changed in (("small letters", small), ("one name misspelt", wrong)):
            for setting, (index, name_of) in indexes.items():
                for method in ("fused", "linked"):
                    print(line(f"{setting}, {name}", method, *measured(changed, rankings(index, embedder, only=method)[method], name_of)))
                if "misspelt" in name:
                    ranking = rankings(index, embedder, rules=replace(ALL, spelling=False), only="linked")["linked"]
                    print(line(f"{setting}, {name}", "no spelling", *measured(changed, ranking, name_of)))


# --- prose


def known_items(index: Memory, dice: random.Random, share: float, most: int) -> list[Asked]:
    """Questions made of some words of one sentence, in their order; the chunk that has the sentence answers."""
    made = []
    chunks = sorted(index.chunks(), key=lambda chunk: chunk.id)
    for chunk in dice.sample(chunks, min(most, len(chunks))):
        spans = [(a, b) for a, b in sentences(chunk.text) if 8 <= len(chunk.text[a:b].split()) <= 40]
        if spans:
            a, b = dice.choice(spans)
            kept = [word for word in chunk.text[a:b].split() if dice.random() < share]
            if len(kept) > 2 and is_question(" ".join(kept)):
                made.append(Asked(" ".join(kept), frozenset((chunk.id,))))
    return made


def naming(index: Memory, asked: Sequence[Asked]) -> list[Asked]:
    """The same questions, which also say in which document."""
    view = view_of(index)
    title = {chunk.id: " ".join(word.key for word in placed_words(view.title(chunk.document_id))) for chunk in index.chunks()}
    return [replace(item, question=f"In {title[owner]}, who says: {item.question}") for item in asked for owner in item.gold]


def over_prose(folders: Sequence[Path], embedder: Kept) -> None:
    """Table `prose`: never worse than the fused ranking."""
    head("Prose: the chunk that a question's words were taken from")
    for folder in folders:
        index = read(folder, embedder)
        for share in (1.0, 0.6, 0.35):
            asked = known_items(index, random.Random(11), share, 200)
            by = rankings(index, embedder)
            for method, ranking in by.items():
                print(line(f"{folder.name}, {len(index.chunks())} chunks, {share:.0%} of the words, {len(asked)} questions", method, *measured(asked, ranking, str)))
            named = naming(index, asked)
            for method in ("fused", "linked"):
                print(line(f"{folder.name}, {share:.0%} of the words, and the title of the document", method, *measured(named, by[method], str)))
            changed = sum(by["fused"](item.question)[: max(FIRST)] != by["linked"](item.question) for item in asked)
            print(f"| | | {changed} of {len(asked)} rankings differ from the fused one | | | |")


# --- speed


def made_up(entities: int, per_chunk: int = 10) -> Memory:
    """A collection with so many named things, each with a document about it and met in others."""
    dice = random.Random(5)
    names = synthetic.names(dice, entities)
    pool = synthetic.Names(names)
    documents, chunks, rows = [], [], []
    for number, name in enumerate(names):
        said = " ".join(
            f"{name if not turn else pool.draw(dice)} {dice.choice(synthetic.VERBS)} {pool.draw(dice)}, {' '.join(dice.choices(synthetic.WORDS, k=12))}."
            for turn in range(per_chunk // 2)
        )
        owner = ids.document_id(f"{number}.txt")
        documents.append(Document(id=owner, path=f"{number}.txt", title=name, text=said, content_hash="", file_hash="", format="txt"))
        chunks.append(Chunk(id=ids.chunk_id(owner, said, 0), document_id=owner, index=0, start=0, end=len(said), text=said))
        key = name_key(name)
        rows.append(Entity(id=ids.entity_id(key), key=key, name=name, type="", types=(), aliases=(), description="", mentions=1))
    return Memory({"documents": documents, "chunks": chunks, "entities": rows})


def speed(entities: int) -> None:
    """Table `speed`."""
    index = made_up(entities)
    began = time.process_time()
    view = View(index)
    index.memo["view"] = view
    links = links_of(view, ALL)
    built = time.process_time() - began
    embedder = NoEmbedder()
    asked = [f"Who paid the clerk of {chunk.text.split(' was ')[0].split(',')[0][:60]} in that winter?" for chunk in index.chunks()[:: max(1, entities // 50)]]
    asyncio.run(rank_chunks(asked[0], view, embedder, 20))
    costs = []
    for question in asked:
        began = time.process_time()
        asyncio.run(rank_chunks(question, view, embedder, 20))
        costs.append(1000 * (time.process_time() - began))
    tokens = sum(1 for chunk in index.chunks()[:200] for _ in words(chunk.text)) / 200 * len(index.chunks())
    print(f"\n{entities:,} entities, {len(index.chunks()):,} chunks, {tokens / 1e6:.1f} million words, {len(links.mentions.target):,} pairs of name and chunk")
    print(f"links built in {built:.1f} s of CPU; a question {sorted(costs)[len(costs) // 2]:.1f} ms of CPU (median), {max(costs):.1f} at most, k = 20, no embedder")


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--prose", type=Path, nargs="*", default=[])
    parser.add_argument("--no-embedder", action="store_true")
    parser.add_argument("--entities", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--method", choices=("fast", "none"), default="fast")
    parser.add_argument("--parts", default="table,parts,harder,prose,speed")
    chosen = parser.parse_args()
    parts = set(chosen.parts.split(","))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "graphrag.toml").touch()
        inner = NoEmbedder() if chosen.no_embedder else asyncio.run(open_embedder(open_project(Path(folder)), print))
    embedder = Kept(inner)
    if chosen.data and parts & {"table", "parts", "harder"}:
        over_passages(chosen.data, embedder, parts, chosen.method)
    if chosen.prose and "prose" in parts:
        over_prose(chosen.prose, embedder)
    for count in chosen.entities if "speed" in parts else ():
        speed(count)
    asyncio.run(embedder.close())


if __name__ == "__main__":
    main()
