"""How many chunks one edit changes: the priority cut against fixed windows.

    python scripts/bench_chunks.py [--text FILE] [--edits 300] [--models FOLDER]

Inserts a sentence at random places of a document of about 60 chunks, one at a time, and counts the chunks whose text was not there before; the
same for a changed word and for five sentences inserted together. Text is generated from a seed (the words mean nothing; lengths of words,
sentences and paragraphs are those of English prose) unless a file is given. `window` needs the cl100k table in the models folder.
"""

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from graphrag_local.chunks.split import anchored, split
from graphrag_local.errors import ModelMissing
from graphrag_local.records import Document
from graphrag_local.settings import ChunksSettings
from graphrag_local.text import sentences, size

CHUNKS = 60
SYLLABLES = "ba ce di for gan hel in jo ker lum mar nes or pil quen ras sol tor und ver wil yar zen the st an er".split()
Edit = Callable[[str, random.Random], str]


def words(dice: random.Random, count: int = 4000) -> list[str]:
    """A vocabulary, common words first."""
    made = {"".join(dice.choices(SYLLABLES, k=dice.choice((1, 1, 2, 2, 2, 3, 3, 4)))) for _ in range(count)}
    return sorted(made, key=lambda word: (len(word), word))


def sentence(dice: random.Random, vocabulary: list[str]) -> str:
    """A sentence of 4 to 32 words, common words more often."""
    count = max(4, min(32, round(dice.lognormvariate(2.7, 0.5))))
    chosen = [vocabulary[int(len(vocabulary) * dice.random() ** 3)] for _ in range(count)]
    for place in range(5, count - 2, 7):
        chosen[place] += dice.choice((",", ",", ";", ""))
    return " ".join(chosen).capitalize() + dice.choice(("." * 9) + "?")


def prose(seed: int, bytes_wanted: int) -> str:
    """Paragraphs of 2 to 8 sentences, a heading now and then."""
    dice = random.Random(seed)
    vocabulary = words(dice)
    text = ""
    while len(text) < bytes_wanted:
        heading = f"## {' '.join(dice.sample(vocabulary, 3)).title()}\n\n" if dice.random() < 0.05 else ""
        text += heading + " ".join(sentence(dice, vocabulary) for _ in range(dice.randint(2, 8))) + "\n\n"
    return text


def insert(count: int) -> Edit:
    """An edit that puts `count` new sentences before a random sentence."""

    def edit(text: str, dice: random.Random) -> str:
        at = dice.choice(sentences(text))[0]
        vocabulary = words(random.Random(dice.random()), 300)
        return text[:at] + "".join(sentence(dice, vocabulary) + " " for _ in range(count)) + text[at:]

    return edit


def change_word(text: str, dice: random.Random) -> str:
    """The text with the first word of a random sentence replaced."""
    start, end = dice.choice(sentences(text))
    word = text[start:end].split()[0]
    return text[:start] + "Replaced" + text[start + len(word) :]


def changed(text: str, edit: Edit, edits: int, settings: ChunksSettings, models: Path) -> list[int]:
    """For each edit the number of chunks that were not there before."""
    dice = random.Random(7)
    before = Counter(pieces(text, settings, models))
    return [sum((Counter(pieces(edit(text, dice), settings, models)) - before).values()) for _ in range(edits)]


def pieces(text: str, settings: ChunksSettings, models: Path) -> list[str]:
    """The texts of a text's chunks."""
    document = Document(id="d", path="d.txt", title="d", text=text, content_hash="", file_hash="", format="txt")
    return [chunk.text for chunk in split(document, settings, models)]


def row(name: str, counts: list[int]) -> str:
    """A line of the table."""
    share = [sum(count <= most for count in counts) / len(counts) for most in (2, 3)]
    return f"{name:<28}{sum(counts) / len(counts):>8.2f}{share[0]:>9.1%}{share[1]:>9.1%}{max(counts):>6}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", type=Path, help="a UTF-8 text file to edit instead of generated prose")
    parser.add_argument("--edits", type=int, default=300)
    parser.add_argument("--models", type=Path, default=Path("models"), help="folder that holds cl100k_base/cl100k_base.tiktoken")
    parser.add_argument("--speed-mb", type=float, default=30.0, help="size of the text of the speed test; 0 leaves it out")
    options = parser.parse_args()
    text = options.text.read_text(encoding="utf-8") if options.text else prose(1, CHUNKS * 2600)
    rules = {"anchored": ChunksSettings(), "window": ChunksSettings(method="window")}
    sizes = sorted(size(piece) for piece in pieces(text, rules["anchored"], options.models))
    p5, p95 = sizes[len(sizes) // 20], sizes[len(sizes) * 19 // 20]
    print(f"{len(sizes)} anchored chunks of bytes / 4.6: mean {sum(sizes) / len(sizes):.0f}, p5 {p5:.0f}, p95 {p95:.0f}, max {sizes[-1]:.0f}")
    print(f"{options.edits} edits of each kind; chunks that changed:\n{'rule, edit':<28}{'mean':>8}{'<= 2':>9}{'<= 3':>9}{'max':>6}")
    edits: dict[str, Edit] = {"insert a sentence": insert(1), "insert five sentences": insert(5), "change a word": change_word}
    for rule, settings in rules.items():
        for name, edit in edits.items():
            try:
                print(row(f"{rule}, {name}", changed(text, edit, options.edits, settings, options.models)))
            except ModelMissing as error:
                print(f"{rule}: not measured. {error} {error.hint}")
                break
    if options.speed_mb:
        part = prose(2, 1_000_000)
        large = part * round(options.speed_mb * 1e6 / len(part))
        begun = time.perf_counter()
        count = sum(1 for _ in anchored(large, rules["anchored"]))
        print(f"{len(large) / 1e6:.0f} MB in {count} chunks: {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
