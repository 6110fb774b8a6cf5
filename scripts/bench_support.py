"""Whether verdicts on sentences are right: claims about real texts whose labels are true by construction, judged as the sentences of an answer are.

    GRAPHRAG_LOCAL_MODELS=models python -m scripts.bench_support [--folder FOLDER] [--cases 20] [--seed 7] [--methods model,nli]
        [--url http://127.0.0.1:8000/v1] [--model NAME]

FOLDER holds documents (the packaged sample where none is named); nothing of it is copied. Evidence is three to six sentences in a row, cited by the claim:

    supported    verbatim: a sentence of it (needs no call); shortened: one without its leading or last clause; turned: with its leading clause at the end;
                 joined: two in a row; rewritten: its figure in another form
    partly       half: a sentence of it joined with one of another document
    unsupported  elsewhere: a sentence of another document; name: another name of the collection in the place of one; figure: another figure of 13 or
                 more; count: another small number; negated: "not" inserted

`shortened`, `turned`, `count` and `negated` know English only; kinds that a collection has no text for are left out. For each kind the shares of verdicts, the
share of `supported` with no look at figures, the share in which a figure is missing by the look at figures alone, the mean p, and how well p tells the
kind from the supported ones (AUC: 1 always, 0.5 by chance; verbatim ones left out). Methods: `model` the one at --url, else the small one in this process,
which is asked here although it would only quote in an answer; `nli` the first entailment model of the models folder. A figure that is missing in a supported
claim makes the exit code 1.
"""

import argparse
import asyncio
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from graphrag_local import ids, samples
from graphrag_local.answers import Verdict
from graphrag_local.documents.stage import read_collection
from graphrag_local.project import ProjectFolder, open_project
from graphrag_local.query.cite import clean
from graphrag_local.query.context import Ref
from graphrag_local.query.figures import lacking
from graphrag_local.query.inquiry import Inquiry, Paragraph
from graphrag_local.query.support import QUOTATION, Check, Support
from graphrag_local.query.view import view_of
from graphrag_local.records import Chunk, Document, Span
from graphrag_local.settings import DocumentsSettings
from graphrag_local.text import one_line, phrases, sentences, words
from graphrag_local.wiring import open_model_side
from tests.query.world import MemoryIndex

SPANS = (3, 6)  # sentences of evidence
WORDS = (5, 40)  # of a sentence that claims are made of
TRIES = 400  # pieces of evidence that are looked at for one claim
LABELS: Mapping[str, Verdict] = {
    "verbatim": "supported", "shortened": "supported", "turned": "supported", "joined": "supported", "rewritten": "supported", "half": "partly",
    "elsewhere": "unsupported", "name": "unsupported", "figure": "unsupported", "count": "unsupported", "negated": "unsupported",
}  # fmt: skip
LEADING = re.compile(
    r"((?:In|On|At|By|After|Before|During|Since|Until|From|Within|Throughout|Towards)\b(?: [^\s,;:]+){1,6}), "
    r"(?=[A-Z]|(?:the|an?|he|she|it|they|we|you|there|this|that|these|those|his|her|its|their|my|our|your)\b)"
)
LAST = re.compile(r"([^;:?]+), (?:which|who|whose|where|while|because|so that)\b[^,;:?]*[.!]$")
AUXILIARY = re.compile(r"(?<=\s)(?:is|are|was|were|has(?= been)|have(?= been)|had(?= been)|can|will|did|must)(?=\s)")
# Words that make a clause say less than it seems to: without its beginning or end such a sentence may say something else.
GUARDED = re.compile(
    r"\b(?:if|unless|whether|would|could|might|may|should|perhaps|suppos\w+|claim\w*|alleg\w+|den(?:y|ied|ies)|doubt\w*|not|no|never|none|nobody|nothing|neither|"
    r"only|all|every|each|most|few|cannot|without|hardly|said|says?)\b|n['’]t\b",
    re.IGNORECASE,
)
NUMBER = re.compile(r"(?<![\w.,/:'’–-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w/:'’–-]|[.,]\d)")
TENS, ONES = "twenty thirty forty fifty sixty seventy eighty ninety".split(), "one two three four five six seven eight nine".split()
IN_WORDS = re.compile(rf"(?<!and )\b({'|'.join(TENS)})(?:-({'|'.join(ONES)}))?(?= (?!hundred|thousand|million|billion)[a-z])")
COUNTS = "two three four five six seven eight nine ten eleven twelve".split()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Sentences in a row of a document, and those of them that claims may be made of, on one line each."""

    document: Document
    start: int
    end: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it."""
        return self.document.text[self.start : self.end]


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence about a piece of evidence."""

    kind: str
    text: str
    evidence: Evidence

    @property
    def label(self) -> Verdict:
        """The verdict that is right."""
        return LABELS[self.kind]

    @property
    def sources(self) -> tuple[str, ...]:
        """All that speaks for a figure."""
        return self.evidence.text, self.evidence.document.path, self.evidence.document.title

    @property
    def missing(self) -> tuple[str, ...]:
        """The figures that the look at figures does not find."""
        return lacking(self.text, self.sources)


# --- claims


class Maker:
    """Makes claims about documents, the same from the same seed."""

    def __init__(self, documents: Sequence[Document], seed: int) -> None:
        self.documents = [document for document in documents if len(sentences(document.text)) >= SPANS[0]]
        self._spans = {document.id: sentences(document.text) for document in self.documents}
        self._seed = seed
        known = {(document.id, document.text[a:b]) for document in self.documents for a, b in phrases(document.text)}
        self._names = sorted({(owner, one_line(name)) for owner, name in known if 2 <= len(name.split()) <= 4 and name[0].isupper() and name.istitle()})
        self._kinds: dict[str, Callable[[random.Random, Evidence], str]] = {kind: getattr(self, f"_{kind}") for kind in LABELS}

    def claims(self, kind: str, count: int) -> Iterator[Claim]:
        """So many claims of a kind, or as many as the documents have text for."""
        dice = random.Random(f"{self._seed} {kind}")
        made: set[str] = set()
        for _ in range(count * TRIES if self.documents else 0):
            if len(made) == count:
                return
            evidence = self._evidence(dice)
            text = self._kinds[kind](dice, evidence) if evidence.lines else ""
            if text and text not in made and clean(text) == text and len(sentences(text)) == 1 and (kind == "verbatim" or text not in evidence.lines):
                made.add(text)
                yield Claim(kind, text, evidence)

    def _evidence(self, dice: random.Random) -> Evidence:
        document = dice.choice(self.documents)
        spans = self._spans[document.id]
        first = dice.randrange(len(spans) - SPANS[0] + 1)
        own = spans[first : first + dice.randint(*SPANS)]
        lines = [one_line(document.text[a:b]) for a, b in own]
        return Evidence(document, own[0][0], own[-1][1], tuple(line for line in lines if is_plain(line)))

    def _other(self, dice: random.Random, evidence: Evidence) -> str:
        """A sentence of another document that shares few words with a piece of evidence."""
        others = [document for document in self.documents if document.id != evidence.document.id]
        known = set(words(evidence.document.text))
        for document in dice.sample(others, len(others)):
            lines = [line for a, b in self._spans[document.id] if is_plain(line := one_line(document.text[a:b]))]
            lines = [line for line in lines if len(known.intersection(words(line))) < 0.7 * len(set(words(line)))]
            if lines:
                return dice.choice(lines)
        return ""

    def _verbatim(self, dice: random.Random, evidence: Evidence) -> str:
        return dice.choice(evidence.lines)

    def _shortened(self, dice: random.Random, evidence: Evidence) -> str:
        line = dice.choice(evidence.lines)
        leading, last = LEADING.match(line), LAST.match(line)
        rest = line[leading.end() :] if leading else f"{last[1]}." if last else ""
        return "" if GUARDED.search(line) or len(rest.split()) < WORDS[0] else rest[0].upper() + rest[1:]

    def _turned(self, dice: random.Random, evidence: Evidence) -> str:
        line = dice.choice(evidence.lines)
        leading = LEADING.match(line)
        if not leading or GUARDED.search(line) or set(",;:") & set(line[leading.end() :]):
            return ""
        rest = line[leading.end() : -1]
        return f"{rest[0].upper()}{rest[1:]} {leading[1][0].lower()}{leading[1][1:]}."

    def _joined(self, dice: random.Random, evidence: Evidence) -> str:
        pairs = [(a, b) for a, b in zip(evidence.lines, evidence.lines[1:], strict=False) if len(f"{a} {b}".split()) <= WORDS[1]]
        first, second = dice.choice(pairs) if pairs else ("", "")
        return f"{first[:-1]}; {second}" if first else ""

    def _rewritten(self, dice: random.Random, evidence: Evidence) -> str:
        line = dice.choice(evidence.lines)
        plain = re.sub(r"(?<=\d),(?=\d{3})", "", line.replace("%", " percent"))
        parted = re.sub(r"(?<![\d.,])([3-9]|[1-9]\d)(\d{3})(?= [a-z])", r"\1,\2", line)  # a year begins with 1 or 2
        digits = IN_WORDS.sub(lambda match: str(20 + 10 * TENS.index(match[1]) + (ONES.index(match[2]) + 1 if match[2] else 0)), line)
        return next((text for text in (plain, parted, digits) if text != line), "")

    def _half(self, dice: random.Random, evidence: Evidence) -> str:
        own, other = dice.choice(evidence.lines), self._other(dice, evidence)
        first, second = (own, other) if dice.random() < 0.5 else (other, own)
        return f"{first[:-1]}; {second}" if other and len(f"{first} {second}".split()) <= 1.5 * WORDS[1] else ""

    def _elsewhere(self, dice: random.Random, evidence: Evidence) -> str:
        return self._other(dice, evidence)

    def _name(self, dice: random.Random, evidence: Evidence) -> str:
        line = dice.choice(evidence.lines)
        own = [line[a:b] for a, b in phrases(line) if a and (evidence.document.id, line[a:b]) in set(self._names)]
        said = set(words(evidence.document.text))
        others = [name for owner, name in self._names if owner != evidence.document.id and said.isdisjoint(words(name))]
        return line.replace(dice.choice(own), dice.choice(others)) if own and others else ""

    def _figure(self, dice: random.Random, evidence: Evidence) -> str:
        line = dice.choice(evidence.lines)
        found = [match for match in NUMBER.finditer(line) if len(re.sub(r"\D", "", match.group())) > 2 or "." in match.group() or int(match.group()) > 12]
        return changed(line, dice.choice(found), dice, evidence) if found else ""

    def _count(self, dice: random.Random, evidence: Evidence) -> str:
        line, told = dice.choice(evidence.lines), set(words(evidence.text))
        found = list(re.finditer(rf"\b(?:{'|'.join(COUNTS)})\b(?= [a-z])", line))
        others = [word for number, word in enumerate(COUNTS, 2) if told.isdisjoint((word, str(number)))]
        if GUARDED.search(line) or not found or not others:
            return ""
        match = dice.choice(found)
        return f"{line[: match.start()]}{dice.choice(others)}{line[match.end() :]}"

    def _negated(self, dice: random.Random, evidence: Evidence) -> str:
        line = dice.choice(evidence.lines)
        match = AUXILIARY.search(line)
        return f"{line[: match.end()]} not{line[match.end() :]}" if match and not GUARDED.search(line) else ""


def is_plain(line: str) -> bool:
    """Whether a line is a sentence that claims can be made of: of some length, with its stop, and without marks of quotations or lists."""
    fits = WORDS[0] <= len(line.split()) <= WORDS[1] and line[0].isalpha() and line[-1] in ".!"
    return fits and "*" not in line and not QUOTATION.search(line) and clean(line) == line


def changed(line: str, match: re.Match[str], dice: random.Random, evidence: Evidence) -> str:
    """A line with another number of the same form, whose digits stand nowhere in the evidence; "" where none was found."""
    told = re.sub(r"\W", "", f"{evidence.text} {evidence.document.path} {evidence.document.title}")
    for _ in range(50):
        number = "".join(dice.choice("123456789") if character.isdecimal() else character for character in match.group())
        if match.group().isdecimal() and 1000 <= int(match.group()) <= 2100:
            number = str(int(match.group()) + dice.choice((-1, 1)) * dice.randint(1, 40))
        if re.sub(r"\D", "", number) not in told and (not number.isdecimal() or int(number) > 12):
            return f"{line[: match.start()]}{number}{line[match.end() :]}"
    return ""


# --- verdicts


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim and what became of it."""

    claim: Claim
    check: Check

    @property
    def unlooked(self) -> Verdict:
        """The verdict without a look at figures."""
        return "supported" if self.check.lacking else self.check.verdict


async def judge(claims: Sequence[Claim], project: ProjectFolder) -> tuple[str, list[Judged]]:
    """The claims as the program judges sentences by its settings, and the name of who judges; nothing where that is not here."""
    side = await open_model_side(project, None, lambda text: print(text, file=sys.stderr))
    settings = project.settings.query
    try:
        if settings.support == "nli" and side.entailment is None:
            return "", []
        model = replace(side.model, card=replace(side.model.card, tiny=False))  # a tiny one only quotes, and is never asked
        inquiry = Inquiry(question="", view=view_of(index_of(claims)), model=model, prompts=project.prompts, settings=settings)
        support = Support(inquiry, side.entailment)
        pieces = [support.pieces(Paragraph(text=claim.text, refs=(ref_of(claim.evidence),))) for claim in claims]
        judged = [Judged(claim, await piece.check) for claim, (piece,) in zip(claims, pieces, strict=True)]
        return "an entailment model" if side.entailment else model.card.name, judged
    finally:
        await side.close()


def index_of(claims: Sequence[Claim]) -> MemoryIndex:
    """An index of the documents of claims, each one chunk."""
    documents = list({claim.evidence.document.id: claim.evidence.document for claim in claims}.values())
    chunks = [Chunk(id=chunk_of(one), document_id=one.id, index=0, start=0, end=len(one.text), text=one.text) for one in documents]
    return MemoryIndex(rows={"documents": documents, "chunks": chunks})


def chunk_of(document: Document) -> str:
    """The id of a document's only chunk."""
    return ids.chunk_id(document.id, document.text, 0)


def ref_of(evidence: Evidence) -> Ref:
    """What a claim cites."""
    return Ref(kind="chunk", id=chunk_of(evidence.document), span=Span(start=evidence.start, end=evidence.end))


def auc(higher: Sequence[float], lower: Sequence[float]) -> float | None:
    """How often one of the first is above one of the second, ties by half; None without any."""
    wins = [(a > b) + (a == b) / 2 for a in higher for b in lower]
    return sum(wins) / len(wins) if wins else None


def show(name: str, judged: Sequence[Judged]) -> None:
    """The table of a method, and its sums."""
    print(f"\n{name}\n\n| kind | right | cases | supported / partly / unsupported / unchecked | supported with no look at figures | figure missing | mean p | AUC |")
    print("|---|---|---|---|---|---|---|---|")
    good = [one.check.p for one in judged if one.claim.label == "supported" and one.claim.kind != "verbatim" and one.check.p is not None]
    for kind, label in LABELS.items():
        own = [one for one in judged if one.claim.kind == kind]
        if own:
            ps = [one.check.p for one in own if one.check.p is not None]
            told = Counter(one.check.verdict for one in own)
            shares = " / ".join(f"{told[verdict] / len(own):.2f}" for verdict in ("supported", "partly", "unsupported", "unchecked"))
            before = sum(one.unlooked == "supported" for one in own) / len(own)
            missing = sum(bool(one.claim.missing) for one in own) / len(own)
            apart = "" if label == "supported" else shown(auc(good, ps))
            print(f"| {kind} | {label} | {len(own)} | {shares} | {before:.2f} | {missing:.2f} | {shown(sum(ps) / len(ps) if ps else None)} | {apart} |")
    wrong = [one for one in judged if one.claim.label != "supported"]
    right = [one for one in judged if one.claim.label == "supported" and one.claim.kind != "verbatim"]
    for what, some in (("false", wrong), ("true", right)):
        found, before = (sum(verdict == "supported" for verdict in verdicts) for verdicts in ([one.check.verdict for one in some], [one.unlooked for one in some]))
        print(f"{what} supported: {found} of {len(some)}, {before} with no look at figures")
    print(f"AUC of p, supported against all others: {shown(auc(good, [one.check.p for one in wrong if one.check.p is not None]))}")


def shown(value: float | None) -> str:
    """A figure of a table."""
    return "-" if value is None else f"{value:.2f}"


def main() -> int:
    """Make claims, have them judged, print the tables; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=samples.collection())
    parser.add_argument("--cases", type=int, default=20, help="of a kind")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--methods", default="model,nli")
    parser.add_argument("--url", default="")
    parser.add_argument("--model", default="")
    parser.add_argument("--print", action="store_true", help="print the claims, and judge none")
    options = parser.parse_args()
    documents, _, _ = read_collection(options.folder, DocumentsSettings())
    maker = Maker(documents, options.seed)
    claims = [claim for kind in LABELS for claim in maker.claims(kind, options.cases)]
    alarms = [claim for claim in claims if claim.label == "supported" and claim.missing]
    print(f"{options.folder.name}: {len(documents)} documents, {len(claims)} claims, seed {options.seed}")
    for claim in claims if options.print else alarms:
        print(f"  {claim.kind}: {claim.text}" + (f" (missing: {', '.join(claim.missing)})" if claim.missing else ""))
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "graphrag.toml").touch()
        engine = [f"engine.url={options.url}"] if options.url else ["engine.kind=embedded"]
        engine += [f"engine.model={options.model}"] if options.model else []
        for method in [] if options.print else options.methods.split(","):
            project = open_project(Path(name), (*engine, f"query.support={method}", f"query.support_calls={len(claims)}"))
            who, judged = asyncio.run(judge(claims, project))
            if judged:
                show(f"{method}: {who}", judged)
            else:
                print(f"\n{method}: there is no such model in the models folder")
    return min(len(alarms), 1)


if __name__ == "__main__":
    sys.exit(main())
