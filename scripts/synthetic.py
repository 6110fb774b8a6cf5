"""A made-up collection, and an author who says about it what a model would: for benches, from a seed, without a model.

Topics have their own people, places, bodies and events, a few of them met again and again and most of them hardly ever (Zipf's law); some
stand in many topics, some in one document only, and longer names are shortened now and then. Nothing here means anything.

The author is faithful: what it says of a name or a pair, with what strength, and whether it notices them at all is decided by the names and by the
sentence that it cites, and not by the place of either. What an edit does not touch is told as before, as by a model that samples without chance;
but replies have a fixed number of records, so that what is gone makes room for another one.
"""

import random
import re
from collections.abc import Iterator
from itertools import accumulate, combinations, pairwise
from pathlib import Path
from zlib import crc32

from graphrag_local.engine.base import Request
from graphrag_local.text import sentences

CHUNKS_PER_DOCUMENT = 10
CHUNK_BYTES = 2650  # what the default settings make of this prose, in the mean
DOCUMENTS_PER_TOPIC = 6
TOPIC_NAMES, BORROWED, OWN_NAMES, HUBS = 240, 12, 14, 24
SHARES = (70, 10, 5, 15)  # of a hundred names in a text: the topic's, hubs, the neighbouring topic's, its own

SYLLABLES = "al bar cor den el far gar hol is jor kel lor mar nor os per quin ros sel tor ul ven wes yar zel".split()
ENDINGS = "ow er ton by dale ric man ell ett wick ford ley".split()
FIRST = "Ada Bruno Celia Dirk Edda Frans Greta Hugo Ilse Jonas Karin Lars Mira Nils Olga Piet Rosa Sven Tilda Ulla Victor Wanda Yann Zita".split()
BODIES = "Canal Company,Harbour Board,Savings Bank,Mill Trust,Railway Union,Water Office,Ship Works,Salt Guild,School Fund,Timber House".split(",")
PLACES = "Bridge,Lock,Island,Quarry,Valley,Station,Market,Heath".split(",")
EVENTS = "Flood Inquiry,Strike Vote,Spring Fair,Land Auction,Harbour Fire,Boundary Case".split(",")
VERBS = (
    "was paid by,owed the rent to,wrote twice to,bought the old barge from,was sued by,took over the contract of,was named by,met the clerk of,"
    "built the new wall for,sent coal to,kept the books of,was blamed for the delay by,lent the money to,gave evidence against"
).split(",")
WORDS = (
    "the of and to in that was with for had which from this were their after before water price year letter every small large answer record under river "
    "between money house weather north work office spring morning report against number council another because people winter question without already "
    "paper second carried remained promised measured repaired delayed written counted agreed later nearly several quite often never public private heavy"
).split()
OPENINGS = (
    "In the spring of {year} ,By the end of the year ,As the minutes say, ,Two weeks later ,Against all advice ,After a long winter ,For a sum of {sum} crowns ,,,,"
).split(",")
OPENINGS = [text.strip() + ", " if text.strip() else "" for text in OPENINGS]


class Names:
    """Names to draw from, the first ones far more often than the last."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self._weights = list(accumulate(1 / rank for rank in range(1, len(names) + 1)))

    def draw(self, dice: random.Random) -> str:
        """One of them; a long name now and then without its first word."""
        name = dice.choices(self.names, cum_weights=self._weights)[0]
        return name.split(" ", 1)[1] if name.count(" ") == 2 and dice.random() < 0.12 else name


def names(dice: random.Random, count: int) -> list[str]:
    """Names of people, bodies, places and events."""
    made: dict[str, None] = {}
    while len(made) < count:
        root = "".join(dice.choices(SYLLABLES, k=dice.choice((1, 1, 2)))).capitalize() + dice.choice(ENDINGS)
        kind = dice.random()
        if kind < 0.4:
            made[f"{dice.choice(FIRST)} {root}"] = None
        else:
            made[f"{root} {dice.choice(BODIES if kind < 0.65 else PLACES if kind < 0.9 else EVENTS)}"] = None
    return list(made)


def write_collection(folder: Path, chunks: int, seed: int = 7, *, per_document: int = CHUNKS_PER_DOCUMENT) -> None:
    """Text files below `folder` that the default settings cut into about so many chunks."""
    documents = max(1, chunks // per_document)
    hubs = names(random.Random(f"{seed} hubs"), HUBS)
    topics = [names(random.Random(f"{seed} topic {n}"), TOPIC_NAMES) for n in range(-(-documents // DOCUMENTS_PER_TOPIC))]
    for number in range(documents):
        dice = random.Random(f"{seed} document {number}")
        at = number // DOCUMENTS_PER_TOPIC
        near = topics[at - 1][:BORROWED]
        pools = [Names(topics[at]), Names(hubs), Names(near), Names(names(dice, OWN_NAMES))]
        target = folder / f"topic-{at:04d}" / f"document-{number:05d}.txt"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(_paragraphs(dice, pools, per_document)), encoding="utf-8")


def edited(text: str, seed: str) -> str:
    """A text with another sentence in the place of one: other words, about two names that stand elsewhere in it."""
    dice = random.Random(seed)
    places = [(start, end) for start, end in sentences(text) if NAME.search(text, start, end)]
    start, end = dice.choice(places)
    return text[:start] + said_about(text, seed) + text[end:]


def said_about(text: str, seed: str, count: int = 1) -> str:
    """New sentences about names of a text."""
    dice = random.Random(f"{seed} said")
    known = sorted(set(NAME.findall(text)))
    return " ".join(_sentence(dice, [Names(dice.sample(known, min(4, len(known))))], plain=0) for _ in range(count))


def _paragraphs(dice: random.Random, pools: list[Names], chunks: int) -> Iterator[str]:
    written = 0
    while written < chunks * CHUNK_BYTES:
        text = " ".join(_sentence(dice, pools) for _ in range(dice.randint(3, 8))) + "\n\n"
        written += len(text)
        yield text


def _sentence(dice: random.Random, pools: list[Names], plain: float = 0.35) -> str:
    tail = " ".join(WORDS[int(len(WORDS) * dice.random() ** 1.5)] for _ in range(dice.randint(6, 18)))
    if dice.random() < plain:
        return f"The {tail}."
    a, b = (dice.choices(pools, weights=SHARES[: len(pools)])[0].draw(dice) for _ in range(2))
    opening = dice.choice(OPENINGS).format(year=dice.randint(1850, 1950), sum=dice.randint(20, 900))
    return f"{opening}{a} {dice.choice(VERBS)} {b}, {tail}." if a != b else f"{opening}{a} said that {tail}."


# --- what is said about it

FIRST_ROUND = (10, 12)  # entities and relationships of the first round
SECOND_ROUND = (4, 4)  # and of the gleaned one
GLEANED = 0.7  # of the replies go on after `missed`
DESCRIPTION_WORDS = 12
FINDING_WORDS, EXPLANATION_WORDS, SUMMARY_WORDS, WHY_WORDS, DESCRIBED_WORDS = 12, 40, 50, 18, 75
NAME = re.compile(r"[A-Z][a-z]+(?: [A-Z][a-z]+)+")
LISTED = re.compile(r"^\((\d+)\) (.*?) — ", re.MULTILINE)
ELEMENT = re.compile(r"^(?:([EKD]\d+) |\[([EKD]\d+)[,\]])", re.MULTILINE)


def answer(request: Request) -> str:
    """The reply to a request in lines, of a fixed size, made of what its prompt holds."""
    text = request.messages[-1].content
    if request.purpose == "extract":
        return _extraction(text)
    if request.purpose == "report":
        return _report(text)
    return _same(text) if text.startswith("<text>\n(1) ") else _words(text, DESCRIBED_WORDS)


def _words(text: str, count: int, skip: int = 0) -> str:
    """So many words of a text, from word `skip` on, round and round."""
    found = text[: 40 * (count + skip)].replace('"', "").replace("\t", " ").split() or ["nothing"]
    repeated = found * (-(-(skip + count) // len(found)) + 1)
    return " ".join(repeated[skip : skip + count])


def _extraction(text: str) -> str:
    cited: dict[str, tuple[int, str]] = {}  # name -> the first sentence that has it
    pairs: dict[tuple[str, str], tuple[int, str]] = {}
    for number, line in enumerate(text.split("\n")[1:-1], 1):
        found = list(dict.fromkeys(NAME.findall(line)))
        for name in found:
            cited.setdefault(name, (number, line))
        for pair in pairwise(found):
            pairs.setdefault(pair, (number, line))
    few, more = FIRST_ROUND[0], FIRST_ROUND[0] + SECOND_ROUND[0]
    # What is noticed is a matter of the name and not of its place, so that an edit does not make a reader think again about all the rest.
    noticed = sorted(cited, key=lambda name: crc32(name.encode()))[:more]
    cited = {name: cited[name] for name in (*(one for one in cited if one in noticed[:few]), *(one for one in cited if one in noticed[few:]))}
    place = {name: number for number, name in enumerate(cited, 1)}
    entities = [f"{n}\t{name}\t{_kind(name)}\t{at}\t{_described(line)}\n" for n, (name, (at, line)) in enumerate(cited.items(), 1)]
    # After those that share a sentence others of the passage, until there are enough; which, is a matter of their names and of the later one's sentence.
    together = sorted((pair for pair in pairs if place.keys() >= set(pair)), key=lambda pair: _chance(*pair, pairs[pair][1]))
    others = {pair: cited[pair[1]] for pair in combinations(cited, 2)}
    apart = sorted((pair for pair in others if pair not in pairs and pair[::-1] not in pairs), key=lambda pair: _chance(*pair, others[pair][1]))
    edges = [(max(place[a], place[b]), _edge(place[a], place[b], *(others | pairs)[a, b])) for a, b in (*together, *apart)]
    lines = entities[:few] + [edge for last, edge in edges if last <= few][: FIRST_ROUND[1]]
    # By the first sentence, for the same reason.
    if crc32(text.split("\n")[1].encode()) % 100 >= GLEANED * 100 or len(entities) <= few:
        return "".join(lines) + "?\tN"
    later = [edge for last, edge in edges if few < last <= more][: SECOND_ROUND[1]]
    return "".join([*lines, "?\tY\n", *entities[few:more], *later])


def _said(line: str) -> str:
    """A numbered sentence without its number, which is another when a sentence comes before it."""
    return line.partition("] ")[2]


def _described(line: str) -> str:
    """The beginning of a numbered sentence."""
    return _words(_said(line), DESCRIPTION_WORDS)


def _chance(*words: str) -> int:
    """A number that the names and the numbered sentence, which comes last, decide."""
    return crc32("\n".join((*words[:-1], _said(words[-1]))).encode())


def _kind(name: str) -> str:
    last = name.rsplit(" ", 1)[-1]
    if name.split(" ", 1)[0] in FIRST:
        return "person"
    return "geo" if last in PLACES else "event" if any(event.endswith(last) for event in EVENTS) else "organization"


def _edge(source: int, target: int, at: int, line: str) -> str:
    return f"{source}-{target}\t{1 + _chance(line) % 10}\t{at}\t{_described(line)}\n"


def _same(text: str) -> str:
    """Each listed name that ends another one is the same as it."""
    listed = {name: int(number) for number, name in LISTED.findall(text)}
    return "".join(f"{number}={full}\n" for name, number in listed.items() for other, full in listed.items() if other.endswith(f" {name}")) + "."


def _report(text: str) -> str:
    body = text.removeprefix("<text>\n")
    ids = [a or b for a, b in ELEMENT.findall(body)] or ["E1"]
    most = re.search(r"At most (\d+) finding", text)
    count = int(most[1]) if most else 1
    lines = [f"T\t{_words(body, 6)}", f"S\t{_words(body, SUMMARY_WORDS)}", f"G\t{crc32(body.encode()) % 11}\t{_words(body, WHY_WORDS, 9)}"]
    for n in range(count):
        sources = ",".join(dict.fromkeys(ids[(3 * n + k) % len(ids)] for k in range(3)))
        point, explained = _words(body, FINDING_WORDS, 11 * n + 1), _words(body, EXPLANATION_WORDS, 17 * n + 3)
        lines.append(f"F\t{sources}\t{point}\t{explained}")
    return "\n".join(lines) + "\n"
