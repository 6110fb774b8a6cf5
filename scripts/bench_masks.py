"""What the constraints of this program cost a server: microseconds per row and token to fill a mask, and milliseconds to compile.

    python scripts/bench_masks.py [--models FOLDER] [--rows 32] [--runs 5] [--only NAME]

Every constraint that is sent, as the server gets it, walks a valid reply in `rows` matchers that take turns, as a server with that many
requests does it (one matcher alone is about twice as fast). The vocabulary is cl100k (100,000 tokens), or that of the small packaged model
where the table is not in the models folder. A figure is the median of the runs' means; one over its limit is marked and makes the exit code 1.

Besides the time it shows what the time is spent on, counted by llguidance itself and the same on every machine: nodes of the vocabulary's tree
walked, items of the parser and steps of the lexer's regular expressions, per mask. tests/test_masks.py holds limits on these.

A new stage adds a function to PRODUCERS that yields its cases.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from llguidance import LLInterpreter, LLMatcher, LLTokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from graphrag_local.engine.base import Choice, Constraint, Form
from graphrag_local.engine.grammar import request_fields
from graphrag_local.engine.models import models_folder
from graphrag_local.errors import ModelMissing
from graphrag_local.extraction import schema as extraction
from graphrag_local.graph import describe
from graphrag_local.query import conversation, dynamic, followups, lazy_search, route, support
from graphrag_local.query import schema as query
from graphrag_local.reports import quote
from graphrag_local.reports import schema as reports
from graphrag_local.tokens import cl100k

LIMIT_US = 50.0  # an 8B model's step on a large card takes 9 to 14 ms at 32 to 64 rows: 50 µs a row is hidden behind it
TINY_LIMIT_US = 250.0  # confining names to a passage is for models under about 1B parameters, alone or a few rows at a time
# Limits of the same in work a mask (mean over a reply). Free text of a class of its own walks 13,000 nodes, with a bound {m,n} 7,000 to 200,000.
LIMIT_NODES, LIMIT_ITEMS, LIMIT_STEPS, TINY_LIMIT_STEPS = 1500.0, 100.0, 100.0, 1500.0
SAID = "The trust owns the lock and pays its keeper, who mends the barge each spring; nobody else may open the gates when the water is high."
HAN = "柳河运河信托拥有派克船闸并支付守闸人的工资。船闸每年春天修理。" * 12
PASSAGE = " ".join(f"In {1900 + n} Keeper Nils Aho of Pike Lock told the Lorne Canal Trust that barge number {n} was late." for n in range(30))


@dataclass(frozen=True, slots=True)
class Case:
    """A constraint under a name, the function that makes it, and a reply that fits it. `tiny`: it is sent to tiny models only."""

    name: str
    maker: str
    constraint: Constraint
    reply: str
    tiny: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """What the masks of a reply take, in the mean: nodes of the vocabulary's tree, items of the parser, steps of the lexer."""

    nodes: float
    items: float
    steps: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What one case costs: µs per row and token (median over runs), the slowest hundredth within a run, ms to compile, tokens of the reply."""

    case: Case
    row_us: float
    p99_us: float
    compile_ms: float
    tokens: int


def compact(value: object) -> str:
    """JSON as a constrained reply writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def extraction_cases() -> Iterator[Case]:
    """One chunk's records: descriptions, quotes, claims and, for tiny models, names confined to the passage; and the question of gleaning in turns."""
    free = extraction.Shape(
        form="grammar", types=("organization", "person", "geo", "event", "other"), sentences=30, max_entities=60, max_relationships=60,
        quote=False, claims=False, gleanings=1,
    )  # fmt: skip
    maker = "extraction.schema.constraint"
    entities = [(f"Nils Aho {n}", "person", f"{n},{n + 1}") for n in range(1, 9)]
    described = "".join(f"{n}\t{name}\t{kind}\t{cited}\t{SAID}\n" for n, (name, kind, cited) in enumerate(entities, 1))
    related = "".join(f"{n}-{n + 1}\t7\t{n}\t{SAID}\n" for n in range(1, 7))
    claimed = "".join(f"!{n}\t0\tfee\tTRUE\t1931\t{n}\t{SAID}\n" for n in range(1, 4))
    yield Case("extract, lines", maker, extraction.constraint(free), described + related + "?\tN")
    more = "?\tY\n9\tPike Lock\tgeo\t1\tIt is a lock.\n8-9\t5\t2\tHe keeps it.\n?\tN"
    yield Case("extract, two rounds, lines", maker, extraction.constraint(replace(free, gleanings=2)), described + related + more)
    yield Case("extract, claims, lines", maker, extraction.constraint(replace(free, claims=True)), described + related + claimed + "?\tN")
    quoted = "".join(f"{n}\t{name}\t{kind}\t{cited}\n" for n, (name, kind, cited) in enumerate(entities, 1))
    bare = "".join(f"{n}-{n + 1}\t7\t{n}\n" for n in range(1, 7))
    yield Case("extract, quotes, lines", maker, extraction.constraint(replace(free, quote=True)), quoted + bare + "?\tN")
    spans = replace(free, quote=True, spans=PASSAGE, gleanings=0)
    found = "".join(f"{n}\tKeeper Nils Aho\tperson\t{n}\n" for n in range(1, 9))
    yield Case("extract, spans, lines", maker, extraction.constraint(spans), found + bare, tiny=True)
    unspaced = replace(spans, spans=HAN, unsegmented=True)
    yield Case("extract, spans of Han, lines", maker, extraction.constraint(unspaced), found.replace("Keeper Nils Aho", "派克船闸") + bare, tiny=True)
    names = tuple(extraction.Proposed(name=name, sentences=(n, n + 1)) for n, (name, _, _) in enumerate(entities, 1))
    near = tuple(extraction.ProposedPair(source=n, target=n + 1, sentences=((n,), (n, n + 1))) for n in range(1, 8))
    proposed = extraction.constraint(replace(spans, spans="", names=names, pairs=near))
    chosen = "".join(f"{n}\t{name}\tperson\t{n}\n" for n, (name, _, _) in enumerate(entities, 1))
    yield Case("extract, proposed names, lines", maker, proposed, chosen + bare, tiny=True)
    records = [{"name": name, "type": kind, "description": SAID, "sentences": [1, 2]} for name, kind, _ in entities]
    edges = [{"source": n, "target": n + 1, "description": SAID, "strength": 7, "sentences": [n]} for n in range(1, 7)]
    said = {"entities": records, "relationships": edges, "missed": "N", "more_entities": [], "more_relationships": []}
    yield Case("extract, schema", maker, extraction.constraint(replace(free, form="schema")), compact(said))
    yield Case("missed, choice", "extraction.extract._glean", Choice(options=("Y", "N")), "Y")
    maker, pairs = "extraction.schema.canonical_constraint", "".join(f"{n}={n + 20}\n" for n in range(1, 20)) + "."
    yield Case("canonical names, lines", maker, extraction.canonical_constraint("grammar", 60), pairs)
    same = {"same": [{"form": n, "name": n + 20} for n in range(1, 20)]}
    yield Case("canonical names, schema", maker, extraction.canonical_constraint("schema", 60), compact(same))


def describe_cases() -> Iterator[Case]:
    """A summary of descriptions."""
    maker = "graph.describe.constraint"
    yield Case("describe, line", maker, describe.constraint("grammar"), f"{SAID} {SAID}")
    yield Case("describe, schema", maker, describe.constraint("schema"), compact({"description": f"{SAID} {SAID}"}))


def short_ids(letters: str, number: int) -> list[str]:
    """So many ids of each letter."""
    return [f"{letter}{n}" for letter in letters for n in range(1, number + 1)]


def report_cases() -> Iterator[Case]:
    """A report over 240 ids."""
    ids, maker = short_ids("EKD", 80), "reports.schema.constraint"
    told = "".join(f"F\tE{n},K{n + 3},D2{'+' if n % 2 else ''}\tThe lock is kept.\t{SAID}\n" for n in range(1, 9))
    lines = f"T\tThe canal trust and its lock\nS\t{SAID} {SAID}\nG\t7\tThe whole valley depends on it.\n{told}"
    yield Case("report, lines", maker, reports.constraint("grammar", ids, 10), lines)
    leads = tuple(quote.Lead(short=short, sentence="", beside=tuple(ids[n + 1 : n + 5])) for n, short in enumerate(ids))
    given = quote.Quotable(leads=leads, said={}, about={}, names=())
    chosen = "".join(f"F\t{run[3].short},{run[3].beside[0]},{run[3].beside[3]}\n" for run in quote.deal(leads[:-1], 10))
    yield Case("report, ids", maker, reports.constraint("grammar", ids, 10, given), f"G\t7\n{chosen}", tiny=True)
    findings = [{"summary": "The lock is kept.", "explanation": SAID, "sources": [f"E{n}", f"K{n}"], "more": False} for n in range(1, 9)]
    value = {"title": "The canal trust", "summary": SAID, "rating": 7, "rating_explanation": SAID, "findings": findings}
    yield Case("report, schema", maker, reports.constraint("schema", ids, 10), compact(value))


def query_cases() -> Iterator[Case]:
    """A window's points and an answer, over 120 ids."""
    ids = short_ids("REC", 40)
    forms: tuple[Form, ...] = ("grammar", "schema")
    for form in forms:
        word, maker = "lines" if form == "grammar" else "schema", "query.schema.map_constraint"
        points = [{"text": SAID, "sources": [f"R{n}", f"E{n}"], "score": 10 * n} for n in range(1, 8)]
        lines = "Y\n" + "".join(f"{SAID}\tR{n},E{n}\t{10 * n}\n" for n in range(1, 8))
        reply = lines if form == "grammar" else compact({"useful": "Y", "points": points})
        yield Case(f"points, {word}", maker, query.map_constraint(form, ids, 8), reply)
        yield Case(f"points, no N, {word}", maker, query.map_constraint(form, ids, 8, forced=True), reply)
        paragraphs, maker = [{"text": f"{SAID} {SAID}", "sources": [f"R{n}", f"C{n}"]} for n in range(1, 7)], "query.schema.answer_constraint"
        missing = "what the keeper is paid"
        lines = "".join(f"{SAID} {SAID}\tR{n},C{n}\n" for n in range(1, 7)) + f"?\t{missing}\n"
        reply = f"Y\n{lines}" if form == "grammar" else compact({"answered": "Y", "paragraphs": paragraphs, "missing": missing})
        yield Case(f"answer, {word}", maker, query.answer_constraint(form, ids, 8, may_decline=True), reply)
    chosen, maker = ids[2:18:2], "query.schema.choice_constraint"
    points = query.choice_constraint(ids[:16], least=4, most=8, scored=True, may_decline=True)
    yield Case("points, ids", maker, points, "Y\n" + "".join(f"{short}\t{10 * n}\n" for n, short in enumerate(chosen[:7], 3)), tiny=True)
    answer = query.choice_constraint(ids[:18], least=6, most=8, scored=False, may_decline=False)
    yield Case("rating, choice", "query.dynamic.grade_constraint", dynamic.grade_constraint(), "3")
    yield Case("relevance, choice", "query.lazy_search.relevance_constraint", lazy_search.relevance_constraint(), "N")
    maker, alone = "query.conversation.rewrite_constraint", "Who paid the keeper of the lock when the trust had no money?"
    yield Case("question, line", maker, conversation.rewrite_constraint("grammar"), alone)
    yield Case("question, schema", maker, conversation.rewrite_constraint("schema"), compact({"question": alone}))
    yield Case("support, choice", "query.support.constraint", support.constraint(), "P")
    yield Case("answer, ids", maker, answer, "".join(f"{short}\n" for short in chosen), tiny=True)


def drift_cases() -> Iterator[Case]:
    """A step of drift search over 120 ids, and the choice of a mode."""
    ids, maker = short_ids("REC", 40), "query.followups.constraint"
    forms: tuple[Form, ...] = ("grammar", "schema")
    asked = ["Who pays the keeper of Pike Lock?", "When was the barge mended?", "Which trust owns the lock?"]
    for form in forms:
        points = [{"text": SAID, "sources": [f"R{n}", f"E{n}"], "score": 10 * n} for n in range(1, 8)]
        lines = "Y\n" + "".join(f"{SAID}\tR{n},E{n}\t{10 * n}\n" for n in range(1, 8)) + "".join(f"?\t{question}\n" for question in asked)
        reply = lines if form == "grammar" else compact({"useful": "Y", "points": points, "questions": asked})
        yield Case(f"drift step, {'lines' if form == 'grammar' else 'schema'}", maker, followups.constraint(form, ids, 8, 3), reply)
    yield Case("drift step, nothing found", maker, followups.constraint("grammar", ids, 8, 3), f"N\n?\t{asked[0]}\n")
    yield Case("route, choice", "query.route.constraint", route.constraint("BDGL"), "L")


PRODUCERS: tuple[Callable[[], Iterator[Case]], ...] = (extraction_cases, describe_cases, report_cases, query_cases, drift_cases)


def vocabulary(models: Path) -> tuple[str, LLTokenizer]:
    """The name of the vocabulary and llguidance's form of it. Raises ModelMissing where the folder has none."""
    try:
        table = cl100k(models)
    except ModelMissing:
        file = models / "smollm2-135m-instruct" / "tokenizer.json"
        if not file.is_file():
            raise
        return f"{file.parent.name} (49k)", LLTokenizer(file.read_text(encoding="utf-8"))
    end = table.max_token_value + 1
    ranks = table._mergeable_ranks
    made = LLTokenizer.from_tiktoken(  # type: ignore[attr-defined]
        encoder=ranks, special_tokens={"<|endoftext|>": end}, pattern=table._pat_str, eos_token=end, n_vocab=end + 1
    )
    return "cl100k (100k)", made


def cases() -> list[Case]:
    """Every case of every producer."""
    return [case for produce in PRODUCERS for case in produce()]


def compiled(constraint: Constraint) -> str:
    """A constraint as llguidance reads what is sent to the server."""
    sent = request_fields(constraint, "grammar")["structured_outputs"]
    if "choice" in sent:
        return LLMatcher.grammar_from_lark("start: " + " | ".join(json.dumps(option) for option in sent["choice"]))  # as vLLM does
    return LLMatcher.grammar_from_lark(sent["grammar"]) if "grammar" in sent else LLMatcher.grammar_from_json_schema(sent["json"])


def measure(case: Case, tokenizer: LLTokenizer, *, rows: int = 32, runs: int = 5) -> Cost:
    """The cost of a case; ValueError where its grammar does not compile or refuses its reply."""
    grammar = compiled(case.constraint)
    tokens = tokenizer.tokenize_str(case.reply)
    means, tails, compile_ms = [], [], []
    for _ in range(runs):
        began = time.perf_counter()
        matchers = [LLMatcher(tokenizer, grammar, log_level=0) for _ in range(rows)]
        compile_ms.append((time.perf_counter() - began) * 1000 / rows)
        if matchers[0].is_error():
            raise ValueError(f"{case.name}: {matchers[0].get_error()}")
        spent = _walk(case, tokenizer, matchers, tokens)
        means.append(statistics.mean(spent))
        tails.append(sorted(spent)[len(spent) * 99 // 100])
    return Cost(case, statistics.median(means), statistics.median(tails), statistics.median(compile_ms), len(tokens))


def count(case: Case, tokenizer: LLTokenizer) -> Work:
    """The work of a case, counted over its reply; ValueError where its grammar does not compile or refuses its reply."""
    grammar = compiled(case.constraint)
    if error := LLMatcher.validate_grammar(grammar, tokenizer):
        raise ValueError(f"{case.name}: {error}")
    interpreter = LLInterpreter(tokenizer, grammar, enable_backtrack=False, enable_ff_tokens=False, log_level=0)
    interpreter.start_without_prompt()
    counts = []
    for token in tokenizer.tokenize_str(case.reply):
        mask, told = interpreter.compute_mask()
        if not mask or not mask[token]:
            raise ValueError(f"{case.name}: the reply is refused at {tokenizer.decode_str([token])!r}, after {len(counts)} tokens")
        stats = json.loads(told)["progress"][0]["stats"]
        counts.append((stats["trie_nodes_walked"], stats["all_items"], stats["lexer_cost"] if counts else 0))  # the first holds the compiling
        interpreter.commit_token(token)
    return Work(*(statistics.mean(column) for column in zip(*counts, strict=True)))


def _walk(case: Case, tokenizer: LLTokenizer, matchers: Sequence[LLMatcher], tokens: Sequence[int]) -> list[float]:
    """CPU microseconds of every mask; the masks are filled in turn, a token at a time."""
    mask = allocate_token_bitmask(1, tokenizer.vocab_size)
    spent = []
    for place, token in enumerate(tokens):
        for matcher in matchers:
            began = time.thread_time()
            fill_next_token_bitmask(matcher, mask, 0)
            spent.append((time.thread_time() - began) * 1e6)
            if not matcher.consume_token(token):
                raise ValueError(f"{case.name}: the reply is refused after {tokenizer.decode_str(list(tokens[max(0, place - 8) : place + 1]))!r}")
    if not matchers[0].is_accepting():
        raise ValueError(f"{case.name}: the reply is not complete")
    return spent


def main() -> int:
    """Measure every case and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=models_folder())
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="", help="part of a name")
    options = parser.parse_args()
    name, tokenizer = vocabulary(options.models)
    print(f"{name}, {options.rows} rows, median of {options.runs} runs")
    print(f"{'constraint':40} {'µs/row':>7} {'p99':>6} {'compile ms':>11} {'tokens':>7} {'nodes':>7} {'items':>6} {'steps':>6}")
    over = 0
    for case in (case for case in cases() if options.only in case.name):
        cost, work = measure(case, tokenizer, rows=options.rows, runs=options.runs), count(case, tokenizer)
        limit = TINY_LIMIT_US if case.tiny else LIMIT_US
        over += cost.row_us > limit
        mark = f"  over its limit of {limit:.0f}" if cost.row_us > limit else ""
        figures = f"{cost.row_us:7.1f} {cost.p99_us:6.0f} {cost.compile_ms:11.2f} {cost.tokens:7}"
        print(f"{case.name + (' (tiny models)' if case.tiny else ''):40} {figures} {work.nodes:7.0f} {work.items:6.0f} {work.steps:6.0f}{mark}")
    return min(over, 1)


if __name__ == "__main__":
    sys.exit(main())
