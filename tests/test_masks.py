"""What constraints cost a server: every one that is sent is known to the bench, and none does more work a token than a server can hide.

Work is counted, not timed: nodes of the vocabulary's tree that llguidance walks, items of its parser, steps of its lexer.
"""

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

from graphrag_local.engine.base import Choice, Grammar
from graphrag_local.engine.models import models_folder
from graphrag_local.errors import ModelMissing

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "graphrag_local"
CONSTRUCTORS = {"Choice": "Choice", "Grammar": "Grammar", "JsonSchema": "JsonSchema", "schema_of": "JsonSchema"}  # and what each gives
# Functions that make a constraint and are no case of their own, and why.
BESIDES = {
    "query.schema._grammar": "the common part of the two others of its module",
    "engine.probe._obeyed": "asked once per server, with replies of a few tokens",
    "engine.base.schema_of": "a constructor itself",
}


def bench():
    spec = importlib.util.spec_from_file_location("bench_masks", ROOT / "scripts/bench_masks.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


BENCH = bench()


@pytest.fixture(scope="module")
def tokenizer():
    try:
        return BENCH.vocabulary(models_folder())[1]
    except ModelMissing:
        pytest.skip("there is no vocabulary in the models folder (scripts/check.sh fetches cl100k_base)")


def makers(path):
    """The functions of a module that call a constructor of constraints, each with the kinds of constraint it makes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    ours = {a.asname or a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "graphrag_local.engine.base" for a in n.names}
    known = ours & set(CONSTRUCTORS) if path != PACKAGE / "engine/base.py" else set(CONSTRUCTORS)
    module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            called = {n.func.id for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
            if called & known:
                yield f"{module}.{function.name}", {CONSTRUCTORS[name] for name in called & known}


MAKERS = dict(maker for path in sorted(PACKAGE.rglob("*.py")) for maker in makers(path))


def test_every_maker_of_constraints_is_measured():
    """A function that makes a constraint is the maker of a case of scripts/bench_masks.py, or is listed here with the reason why it is not."""
    assert set(MAKERS) - set(BESIDES) == {case.maker for case in BENCH.cases()}
    assert set(BESIDES) <= set(MAKERS)


def test_every_kind_that_a_maker_makes_is_measured():
    """A maker that can write lines and JSON has a case of each."""
    measured = {(case.maker, type(case.constraint).__name__) for case in BENCH.cases()}

    assert {(maker, kind) for maker, kinds in MAKERS.items() if maker not in BESIDES for kind in kinds} - measured == set()


@pytest.mark.parametrize("case", BENCH.cases(), ids=lambda case: case.name)
def test_a_mask_costs_little_work(case, tokenizer):
    """Over a valid reply a mask takes, in the mean, so little work that it is under 50 µs a row, or under 250 where only tiny models get it."""
    work = BENCH.count(case, tokenizer)

    assert work.nodes <= BENCH.LIMIT_NODES
    assert work.items <= BENCH.LIMIT_ITEMS
    assert work.steps <= (BENCH.TINY_LIMIT_STEPS if case.tiny else BENCH.LIMIT_STEPS)


@pytest.mark.parametrize("text", [r'/[^"\\\[\x00-\x1F\x7F]+/', r'/[^"\\\x00-\x1F\x7F]{2,600}/', r"/[^|\n]{3,600}/"])
def test_a_costly_class_of_text_is_noticed(text, tokenizer):
    """Free text of another class than the one that llguidance prepares for, or with a bound, is over the limits by a multiple."""
    lark = f'%llguidance {{}}\nstart: line+\nline: TEXT "\\n"\nTEXT: {text}\n'
    case = BENCH.Case("costly", "", Grammar(lark=lark), f"{BENCH.SAID}\n" * 6)

    work = BENCH.count(case, tokenizer)

    assert work.nodes > 3 * BENCH.LIMIT_NODES


def test_a_reply_that_does_not_fit_is_not_counted(tokenizer):
    """A case whose reply its constraint refuses is an error, not a cheap case."""
    with pytest.raises(ValueError, match="refused"):
        BENCH.count(BENCH.Case("no", "", Choice(options=("Y", "N")), "maybe"), tokenizer)
