"""The choice of a mode: what the signals decide alone, when the model is asked, and what the notes say."""

import asyncio
import re

import pytest

from graphrag_local.engine.base import Choice, Reply
from graphrag_local.errors import UsageError
from graphrag_local.prompting import load_all
from graphrag_local.query.ask import ask, retrieve
from graphrag_local.query.route import signals
from graphrag_local.query.view import view_of
from graphrag_local.settings import QuerySettings
from graphrag_local.tokens import count_messages
from tests.fakes import model_of
from tests.query.test_drift import Detective
from tests.query.test_drift import step as drift_step
from tests.query.test_local import Quarters, village
from tests.query.world import NoEmbedder, Reader, WordEmbedder, text_index

PROMPTS = load_all()
BOARD = {f"t{n}": f"Ledger {n} tells of the pilots and the price of coal in that year." for n in range(20)}
BOARD["mole"] = "The outer mole was repaired with granite after the gale. Somebody paid four thousand crowns."


def auto(index, *, question, letter="", p=None, form="grammar", tiny=False, history=None, level=None, embedder=None, window=32_000):
    def answer(request):
        if isinstance(request.constraint, Choice):
            return Reply(text=letter, finish_reason="stop", gate=p)
        system = request.messages[0].content
        if "You begin to answer" in system or "on the way to" in system:
            return Detective(form)(request)
        if tiny:
            score = "\t50" if "SCORE" in request.constraint.lark else ""
            return "Y\n" + "".join(f"{short}{score}\n" for short in re.findall(r'p\d+: "([A-Z]\d+)', request.constraint.lark)[:2])
        return Reader(form=form)(request)

    model = model_of(answer, form=form, tiny=tiny, window=window, counter=Quarters(), history=history)
    work = ask(question, index, model, embedder or WordEmbedder(), PROMPTS, QuerySettings(support="off"), mode="auto", level=level)
    return asyncio.run(work)


def choices(history):
    return [request for request in history if isinstance(request.constraint, Choice)]


@pytest.mark.parametrize("question", ["Who was Ottilie Brandt married to?", "Mit wem war Ottilie Brandt verheiratet?", "奥蒂莉 Ottilie Brandt 嫁给了谁?"])
@pytest.mark.parametrize("embedder", [WordEmbedder(), NoEmbedder()])
def test_a_question_that_names_something_is_local_in_any_language(question, embedder):
    """Names in the question decide without a call of the model; the notes say which mode, why, and what the others would have cost."""
    history = []
    done = auto(village(), question=question, history=history, embedder=embedder)

    assert (done.mode, done.level) == ("local", None)
    assert choices(history) == []
    assert any(note.startswith("auto chose local: the question names Ottilie Brandt") for note in done.notes)
    costs = next(note for note in done.notes if note.startswith("The others would have cost about"))
    assert re.findall(r"(basic|drift|source|global) (\d+) calls? and ([\d,]+) prompt tokens", costs)
    assert "local" not in costs
    assert "drift 8 calls" in costs


def test_a_question_that_one_passage_holds_is_basic():
    """Without a name, a passage that has the words and stands out decides."""
    history = []
    done = auto(text_index(**BOARD), question="After which gale was the outer mole repaired with granite?", history=history)

    assert done.mode == "basic"
    assert choices(history) == []
    assert any("one passage holds" in note for note in done.notes)


@pytest.mark.parametrize("embedder", [WordEmbedder(), NoEmbedder()])
def test_a_question_that_names_what_a_passage_is_about_is_basic(embedder):
    """A title that is no entity of the graph decides too, though no passage holds much of the question."""
    history = []
    index = text_index(**BOARD, bridge="Tallow Bridge\n\nBuilt of oak and paid for by the town.", dock="Kettle Dock\n\nBuilt of larch before the war.")
    done = auto(index, question="Whose grandmother inherited more money: Tallow Bridge's architect's or Kettle Dock's?", history=history, embedder=embedder)

    assert done.mode == "basic"
    assert choices(history) == []
    assert any("names what some passages are about" in note for note in done.notes)


def test_a_question_whose_words_are_everywhere_is_about_the_whole():
    """Words that the collection knows but no passage has together: `global` where there is a graph, `lazy` where no model wrote its reports, else the text itself,
    without a call."""
    facts = {f"k{n}": f"{word} alone is told of here and nothing else is." for n, word in enumerate(("pilots", "herring", "granite", "reeds", "coal", "lamps"))}
    question = "pilots herring granite reeds coal lamps?"
    history = []
    done = auto(text_index(**facts), question=question, history=history)

    assert (done.mode, done.level) == ("source", None)
    assert choices(history) == []
    graph = village()
    graph.rows = {**graph.rows, **{name: [*graph.rows[name], *text_index(**facts).rows[name]] for name in ("documents", "chunks")}}
    done = auto(graph, question=question)
    assert (done.mode, done.level) == ("global", 0)
    graph.manifest = {"about": {"models": {"name": "none"}}}
    graph.memo.clear()
    done = auto(graph, question=question)
    assert (done.mode, done.level) == ("lazy", None)
    assert any("no model wrote the reports" in note for note in done.notes)


UNCLEAR = "What recurs throughout?"


@pytest.mark.parametrize(("letter", "p", "mode"), [("G", 0.9, "global"), ("B", 0.05, "basic"), ("D", 0.1, "drift"), ("L", None, "local"), ("B", 0.4, "global")])
def test_where_signals_are_not_clear_the_model_chooses(letter, p, mode):
    """One call of one letter; the lean of the signals is given up only where the model gives it less than a quarter."""
    history = []
    done = auto(village(), question=UNCLEAR, letter=letter, p=p, history=history)

    assert done.mode == mode
    assert len(choices(history)) == 1
    assert choices(history)[0] is history[0]
    assert set(history[0].constraint.options) == set("BLDG")
    assert history[0].gate.options[0] == "G"
    assert any(note.startswith(f"auto chose {mode}: ") and "not clear" in note for note in done.notes)
    assert [drift_step(request) for request in history[1:2]] == ["primer"] or mode != "drift"


@pytest.mark.parametrize("form", ["grammar", "schema"])
def test_without_a_graph_only_two_modes_are_open(form):
    """An index of text alone offers passages or all of the text."""
    history = []
    done = auto(text_index(**BOARD), question=UNCLEAR, letter="G", form=form, history=history)

    assert done.mode == "source"
    assert history[0].constraint.options == ("B", "G")
    assert not any("drift" in note for note in done.notes)


def test_a_reply_that_is_no_letter_leaves_the_lean():
    """The signals decide where the model gives nothing usable; tiny models are not asked at all."""
    history = []
    assert auto(village(), question=UNCLEAR, letter="perhaps", history=history).mode == "global"
    assert len(choices(history)) == 2
    history = []
    auto(village(), question=UNCLEAR, tiny=True, history=history)
    assert choices(history) == []


def test_a_level_is_checked_and_used_where_the_mode_has_levels():
    """A level that there is not is refused before any call; where the choice has no levels a note says that it was not used."""
    history = []
    with pytest.raises(UsageError, match="no community level 7"):
        auto(village(), question=UNCLEAR, level=7, history=history)
    assert history == []
    assert auto(village(), question=UNCLEAR, letter="G", level=0).level == 0
    assert any("no levels" in note for note in auto(village(), question="Who is Ottilie Brandt?", level=0).notes)


def test_estimates_are_the_same_whatever_was_asked_before():
    """The notes of a question say the same before and after others made their windows; they count every window that may be read again."""
    index = village(long=30)

    def note():
        return next(note for note in auto(index, question="Who is Ottilie Brandt?").notes if note.startswith("The others"))

    before, cost = note(), {}
    for mode in ("source", "global"):
        history = []
        model = model_of(Reader(), form="grammar", window=32_000, counter=Quarters(), history=history)
        asyncio.run(ask(UNCLEAR, index, model, WordEmbedder(), PROMPTS, QuerySettings(support="off"), mode=mode, level=None))
        cost[mode] = sum(count_messages(Quarters(), request.messages) for request in history)
    told = {name: int(tokens.replace(",", "")) for name, tokens in re.findall(r"(\w+) \d+ calls? and ([\d,]+)", before)}

    assert note() == before
    assert told.keys() == {"basic", "drift", "source", "global", "lazy"}
    assert all(0.6 <= told[name] / tokens <= 2 for name, tokens in cost.items())


def test_signals_are_shares():
    """Every share is between 0 and 1, for any question."""
    for question in ("?a", "Karl Vessel", "что это такое?", "渔夫在哪里", "the the the", UNCLEAR):
        seen = asyncio.run(signals(question, view_of(village()), NoEmbedder()))
        assert all(0 <= share <= 1 for share in (seen.named, seen.known, seen.held, seen.apart)), question


def test_records_are_those_of_the_mode_that_it_leans_to():
    """Without a model the signals alone choose; where they are not clear, and where no model wrote the reports, passages are ranked."""
    facts = {f"k{n}": f"{word} alone is told of here and nothing else is." for n, word in enumerate(("pilots", "herring", "granite", "reeds", "coal", "lamps"))}
    graph = village()
    graph.rows = {**graph.rows, **{name: [*graph.rows[name], *text_index(**facts).rows[name]] for name in ("documents", "chunks")}}

    def kinds(question, mode="auto"):
        return {hit.kind for hit in asyncio.run(retrieve(question, graph, WordEmbedder(), QuerySettings(), mode, None, 6))}

    assert "chunk" in kinds("Who is Ottilie Brandt?")
    assert kinds("pilots herring granite reeds coal lamps?") == kinds("pilots herring granite reeds coal lamps?", "global") != {"chunk"}
    assert kinds("What is told again and again?") == {"chunk"}
    graph.manifest = {"about": {"models": {"name": "none"}}}
    graph.memo.clear()
    assert kinds("pilots herring granite reeds coal lamps?") == {"chunk"}

