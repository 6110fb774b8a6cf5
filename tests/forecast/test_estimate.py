"""An estimate reads a few chunks and says what all will cost; what it paid for is not paid for again."""

import random
from math import sqrt

import pytest

from graphrag_local.errors import UsageError
from graphrag_local.forecast.costs import Interval, Spread, along, from_sample
from tests.forecast.world import SMALL, bytes_of, collection, cost_of, document, estimated, indexed
from tests.pipeline.running import extraction, project_of, scribe, scripted


@pytest.fixture(name="project")
def _project(tmp_path):
    return project_of(tmp_path / "town", collection(16, 14), *SMALL)


def test_the_sample_is_not_paid_for_again(project):
    """Eight chunks are asked about; a second estimate asks nothing; the index asks about all others, as foreseen, and costs what was said."""
    engine = scripted()
    first = estimated(project, engine, 8)
    assert (len(engine.history), first.sample["chunks"], first.calls) == (8, 8, first.chunks - 8)
    again = estimated(project, engine, 8)
    assert (len(engine.history), again.sample["paid_tokens"], again.calls) == (8, 0, first.calls)
    assert again.completion_tokens == first.completion_tokens

    calls, tokens, result = cost_of(engine, lambda: indexed(project, engine))
    stage = result.built.last_build["by_stage"]["extraction"]
    assert calls["extract"] == first.calls
    assert first.completion_tokens.low <= stage["completion_tokens"] <= first.completion_tokens.high
    assert first.completion_tokens.high < 2 * first.completion_tokens.low
    assert first.rest_calls.low <= sum(calls.values()) - first.calls <= first.rest_calls.high
    assert first.prompt_tokens + first.completion_tokens.low + first.rest_tokens.low <= tokens
    assert tokens <= first.prompt_tokens * 1.5 + first.completion_tokens.high + first.rest_tokens.high


def test_a_sample_of_none_asks_and_writes_nothing(project):
    """Prompts are exact, replies a wide interval that holds."""
    engine, before = scripted(), bytes_of(project.folder)
    found = estimated(project, engine, 0)
    assert (engine.history, bytes_of(project.folder), found.sample) == ([], before, None)
    stage = cost_of(engine, lambda: indexed(project, engine))[2].built.last_build["by_stage"]["extraction"]
    assert found.calls == found.chunks
    assert found.completion_tokens.low <= stage["completion_tokens"] <= found.completion_tokens.high


def test_a_sample_of_all_leaves_no_extraction(project):
    """A sample larger than the collection reads all of it."""
    engine = scripted()
    found = estimated(project, engine, 500)
    assert (found.calls, found.completion_tokens, found.sample["chunks"]) == (0, Interval(0, 0), found.chunks)
    calls, _, _ = cost_of(engine, lambda: indexed(project, engine))
    assert "extract" not in calls
    assert found.rest_calls.low <= sum(calls.values()) <= found.rest_calls.high


def test_only_new_chunks_are_sampled(project):
    """On an existing index the estimate is the dry run, and the sample is drawn from what the index does not have."""
    engine = scripted()
    indexed(project, engine)
    asked = len(engine.history)
    assert estimated(project, engine, 8).sample["chunks"] == 0
    assert len(engine.history) == asked
    (project.input_root / "new.txt").write_text(document(random.Random(3), 1, 40))
    found = estimated(project, engine, 2)
    assert {request.documents for request in engine.history[asked:]} == {engine.history[-1].documents}
    assert (found.changes.new, found.sample["chunks"], len(engine.history) - asked) == (("new.txt",), 2, 2)
    calls, _, _ = cost_of(engine, lambda: indexed(project, engine))
    assert calls["extract"] == found.calls


def test_what_the_sample_could_not_read_is_told(project):
    """Chunks whose replies cannot be used are listed with the document they are in; the others say what a chunk takes."""

    def failing(request):
        if request.purpose == "extract" and "Hub" in request.messages[-1].content:
            return "No."
        return extraction(request) if request.purpose == "extract" else scribe(request)

    found = estimated(project, scripted(failing), 30)
    assert found.failures
    assert all(row["input"].startswith("d0") and "chunk" in row["input"] for row in found.failures)


def test_time_is_that_of_the_sample(project):
    """Before any build the speed is what the sample took, at least as many requests at once as there."""
    found = estimated(project, scripted(latency_s=0.01), 8)
    assert found.minutes is not None
    assert 0 < found.minutes.low < found.minutes.high
    assert any("the sample, 8 at once" in note for note in found.notes)


def test_a_sample_of_less_than_none_is_wrong_use(project):
    """It is refused before anything is opened."""
    with pytest.raises(UsageError):
        estimated(project, scripted(), -1)


def test_the_interval_of_a_sample_holds_as_often_as_it_says():
    """For samples of 5 out of 40 skewed sizes the sum of the others lies inside in about 95 of 100 draws, and larger samples say it more closely."""
    dice = random.Random(11)
    sizes = [200 + dice.gammavariate(4, 100) for _ in range(40)]
    hits, widths = 0, {5: 0.0, 20: 0.0}
    for _ in range(400):
        dice.shuffle(sizes)
        for number in widths:
            found = from_sample(sizes[:number], 40 - number)
            widths[number] += (found.high - found.low) / (40 - number)
            hits += number == 5 and found.low <= sum(sizes[5:]) <= found.high
    assert 360 <= hits <= 396
    assert widths[20] < widths[5] / 1.5


def test_replies_grow_with_prompts():
    """The replies to new prompts lie on the line through earlier ones, within what those stray from it; without any spread there is no line."""
    dice = random.Random(4)
    pairs = [(x, 20 + 3 * x + dice.gauss(0, 10)) for x in (dice.uniform(50, 500) for _ in range(50))]
    xs, ys = (Spread.of_sums(50, sum(column), sum(value**2 for value in column), max(column)) for column in zip(*pairs, strict=True))
    products = sum(x * y for x, y in pairs)
    found = along(xs, ys, products, [100.0, 900.0])
    assert found.low <= 40 + 3 * 1000 <= found.high
    assert found.high - found.low < 150
    assert along(Spread.of_sums(4, 40, 400, 10), Spread.of_sums(4, 8, 16, 2), 80, [30.0]) == Interval(2, 2)


def test_one_is_no_more_than_a_hint():
    """A sample of one gives a wide interval, one of nothing none."""
    assert from_sample([90.0], 10) == Interval(300, 2700)
    assert from_sample([], 10) == from_sample([1.0], 0) == Interval(0, 0)


def test_sums_keep_to_the_mean_and_to_the_largest():
    """Few more may each be as large as the largest seen; the sum of many stays near their mean."""
    spread = Spread.of([1.0, 1.0, 1.0, 9.0])
    assert spread == Spread.of_sums(4, 12, 84, 9) or abs(spread.deviation - 4) < 1e-9
    assert spread.sum_of(1) == Interval(0, 3 + 3 * spread.deviation)
    assert spread.sum_of(100) == Interval(300 - 30 * spread.deviation, 300 + 30 * spread.deviation)
    assert Spread.of([2.0, 2.0]).sum_of(3) == Interval(6, 6)
    assert Spread.of([]).sum_of(5) == Interval(0, 0)
    assert Spread.of_sums(2, 10, 68, 8).deviation == pytest.approx(sqrt(9))
