"""One report: asking, asking again, and what is left when nothing helps."""

import asyncio
from itertools import pairwise

import pytest

from graphrag_local.engine.base import FinishReason, Model, Reply
from graphrag_local.engine.models import models_folder
from graphrag_local.errors import ContextOverflow, EngineHung, EngineRefused, EngineUnreachable
from graphrag_local.records import Failed, Report
from graphrag_local.reports.context import build_context
from graphrag_local.reports.elements import Elements
from graphrag_local.reports.write import SMALLER, budget_of, write_report
from graphrag_local.tokens import Estimate, FileTokenizer, count_messages
from tests.fakes import Bytes, Characters, model_of
from tests.reports.graphs import PROMPT, circle, community, edge, entity, ids_of, mention, most_findings, settings, valid_reply

PEOPLE, EDGES = circle("Person", 6, "Lives in the valley.")
GROUP = community(PEOPLE)
ELEMENTS = Elements(PEOPLE, EDGES, mentions=[mention(PEOPLE[0], "d7")])


def written(model: Model, smaller=None, **values: object) -> Report | Failed:
    """The report of the group."""
    context = build_context(GROUP, [], {}, ELEMENTS, budget_of(model, PROMPT, settings(**values)))
    return asyncio.run(write_report(GROUP, context, model, PROMPT, settings(**values), smaller=smaller))


@pytest.mark.parametrize("form", ["grammar", "schema"])
def test_findings_cite_records_of_the_context(form):
    """Every source of a report is a record of its community."""
    report = written(model_of(valid_reply, form=form))

    assert isinstance(report, Report)
    inside = {record.id for record in (*PEOPLE, *EDGES)}
    assert report.findings
    assert all(inside.issuperset(finding.sources) for finding in report.findings)


def test_the_request_says_what_it_is_and_whose_text_it_holds():
    """Purpose, documents and the prompt's own frame are right; the prompt of a grammar names no JSON and the other no tabs."""
    for form, other in (("grammar", "JSON"), ("schema", "separated by a tab")):
        history = []
        written(model_of(valid_reply, form=form, history=history))
        whole = "\n".join(message.content for message in history[0].messages)
        assert (history[0].purpose, history[0].documents) == ("report", ("d7",))
        assert whole.count("<text>\n") == whole.count("\n</text>") == 1
        assert other not in whole


@pytest.mark.parametrize(("values", "expected"), [({}, "the language of most of the text"), ({"language": "Finnish"}, "Finnish")])
def test_the_language_is_that_of_the_context_unless_set(values, expected):
    """Reports are in the language of most of the context, or in the one that is set."""
    history = []
    written(model_of(valid_reply, history=history), **values)

    assert f"Write in {expected}." in history[0].messages[0].content


@pytest.mark.parametrize("bad", ["[]", "", '{"title": "x"', "Sorry."])
def test_a_bad_reply_is_asked_for_again_differently(bad):
    """An unusable reply is asked for again with another seed."""
    history = []
    report = written(model_of(lambda r: bad if len(history) == 1 else valid_reply(r), history=history))

    assert isinstance(report, Report)
    assert [request.seed for request in history] == [0, 1]


def test_the_third_time_half_the_findings_are_asked_for():
    """A reply that is cut off twice is asked for once more, shorter."""
    history = []

    def answer(request):
        return valid_reply(request) if len(history) == 3 else Reply(text=valid_reply(request)[:90], finish_reason="length")

    report = written(model_of(answer, history=history))

    assert isinstance(report, Report)
    assert [most_findings(request) for request in history] == [4, 4, 2]
    assert len({request.seed for request in history}) == 3


@pytest.mark.parametrize(
    ("text", "finish", "words"),
    [
        ("[]", "stop", "could not be read"),
        ('{"title":"The begi', "length", "cut off"),
        ("\n" * 200, "length", "repeated itself"),
        ("", "stop", "no answer"),
    ],
)
def test_a_hopeless_model_leaves_a_failure_that_shows_its_reply(text, finish: FinishReason, words):
    """After three tries the community is a failure that says what was wrong and how the reply began."""
    history = []
    failed = written(model_of(lambda _: Reply(text=text, finish_reason=finish), history=history))

    assert isinstance(failed, Failed)
    assert (failed.stage, failed.input_id, failed.retryable, len(history)) == ("reports", GROUP.id, False, 3)
    assert words in failed.reason
    assert repr(text[:80]) in failed.reason or not text


@pytest.mark.parametrize("sources", [["E99"], ["R1"], ["K99", "E1"]])
@pytest.mark.parametrize("form", ["grammar", "schema"])
def test_a_model_that_cites_ghosts_never_gets_them_into_a_report(form, sources):
    """On a server that ignores constraints, ids from elsewhere are dropped or the report fails; they are never kept."""
    outcome = written(model_of(lambda request: valid_reply(request, sources), form=form))

    if isinstance(outcome, Report):
        assert outcome.dropped
        assert all(ELEMENTS.kind(source) and source in {r.id for r in (*PEOPLE, *EDGES)} for f in outcome.findings for source in f.sources)
    else:
        assert "E1" not in sources


def test_an_overflow_is_answered_with_a_smaller_context_once():
    """When the server says that the request is too long, the context is built again smaller; a second time is a failure."""
    limits = [0]

    def answer(request):
        if len(request.messages[-1].content) > limits[0]:
            raise ContextOverflow("too long", window=100)
        return valid_reply(request)

    model = model_of(answer)
    budgets = [budget_of(model, PROMPT, settings(context_tokens=tokens)) for tokens in (500, int(500 * SMALLER))]
    context, less = (build_context(GROUP, [], {}, ELEMENTS, budget) for budget in budgets)
    assert len(less.text) < len(context.text)

    failed = asyncio.run(write_report(GROUP, context, model, PROMPT, settings(), smaller=lambda: less))
    limits[0] = len(less.text) + 80
    report = asyncio.run(write_report(GROUP, context, model, PROMPT, settings(), smaller=lambda: less))

    assert isinstance(failed, Failed)
    assert isinstance(report, Report)
    assert report.fingerprint == context.fingerprint


@pytest.mark.parametrize(("error", "retryable"), [(EngineRefused("400"), False), (EngineHung("late"), True)])
def test_what_goes_wrong_with_one_request_is_a_failure(error, retryable):
    """A refused or a hung request costs one report."""

    def answer(_):
        raise error

    outcome = written(model_of(answer))

    assert isinstance(outcome, Failed)
    assert outcome.retryable is retryable


def test_a_server_that_is_away_stops_the_run():
    """An unreachable server is not a failure of a report."""

    def answer(_):
        raise EngineUnreachable("away")

    with pytest.raises(EngineUnreachable):
        written(model_of(answer))


def test_a_window_without_room_is_a_clear_failure_and_no_call():
    """Nothing is asked where not even the prompt fits; the message has the sizes."""
    history = []
    failed = written(model_of(valid_reply, window=300, history=history))

    assert isinstance(failed, Failed)
    assert "300 tokens" in failed.reason
    assert history == []


NAMES = ["Ann Lind", "李明的桥梁公司", "👩‍👩‍👧‍👦🏽 club 🇫🇮", "Дарья Ильинична", "محمد بن راشد", "x" * 300]
STORIES = ["She keeps the lock and pays the pilots. " * 20, "他在河边修桥，每年春天都要付钱给船夫。" * 20, "🌊🚢🏳️‍🌈" * 60, "a b c " * 200]


SMALL = models_folder() / "smollm2-135m-instruct"
COUNTERS = [Characters(), Bytes(), Estimate(), *([FileTokenizer(SMALL)] if (SMALL / "tokenizer.json").is_file() else [])]


@pytest.mark.parametrize("window", [2048, 8192, 32768])
@pytest.mark.parametrize("counter", COUNTERS, ids=lambda counter: counter.name)
@pytest.mark.parametrize("form", ["grammar", "schema"])
@pytest.mark.parametrize("tiny", [False, True])
def test_no_request_exceeds_the_window(window, counter, form, tiny):
    """Prompt and room for the reply fit every window, by the model's own count, for long texts in every script."""
    people = [entity(f"{NAMES[n % 6]} {n}", STORIES[n % 4]) for n in range(60)]
    edges = [edge(a, b, STORIES[(n + 1) % 4]) for n, (a, b) in enumerate(pairwise(people))]
    history = []
    model = model_of(valid_reply, form=form, tiny=tiny, window=window, counter=counter, history=history)
    group, elements = community(people), Elements(people, edges)
    context = build_context(group, [], {}, elements, budget_of(model, PROMPT, settings()))
    outcome = asyncio.run(write_report(group, context, model, PROMPT, settings(), smaller=None))

    assert isinstance(outcome, Report)
    assert ids_of(history[0])
    assert count_messages(counter, history[0].messages) + history[0].max_tokens <= window
