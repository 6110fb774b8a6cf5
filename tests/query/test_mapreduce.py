"""Map and reduce: gates, the best few, refusal, order, replies that break, prompts that do not fit."""

import asyncio
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrag_local.engine.base import Reply
from graphrag_local.errors import ContextOverflow, EngineHung, ReplyInvalid
from graphrag_local.prompting import load_all
from graphrag_local.query.ask import ask
from graphrag_local.settings import QuerySettings
from tests.fakes import Bytes, Characters, model_of
from tests.query.world import (
    NoEmbedder,
    Reader,
    community_index,
    evidence,
    graph_index,
    is_empty_window,
    is_forced,
    random_index,
    report_of,
    step,
    text_index,
)

PROMPTS = load_all()
QUESTION = "What is in this collection?"


def run(index, answer, *, question=QUESTION, mode="global", level=None, turn=0, form="grammar", window=32_000, counter=None, history=None, **options):
    model = model_of(answer, form=form, window=window, counter=counter or Characters(), history=history)
    budget = {"support": "off", "window_tokens": 900, "map_reply_tokens": 600, "reply_tokens": 600, **options}
    return asyncio.run(
        ask(question, index, model, NoEmbedder(), PROMPTS, QuerySettings(**budget), mode=mode, level=level, turn=turn)
    )


def windows(history):
    return [r for r in history if step(r) == "map" and not is_empty_window(r)]


def gate_of(probabilities, empty=0.01):
    """A gate by what a window holds: the first key that occurs in its evidence."""

    def gate(request):
        if is_empty_window(request):
            return empty
        text = "\n".join(evidence(request).values())
        return next((p for key, p in probabilities.items() if re.search(rf"\b{key}\b", text)), 0.0)

    return gate


ISLANDS = {name: f"{name} is a place with a story that fills its line well enough to be told alone." for name in "Ada Bor Cal Dun Eck Fen".split()}


def islands():
    """Six entities, each in a community of its own with a report of three findings, too long to share a window of 900."""
    index = graph_index(ISLANDS, [[name] for name in ISLANDS], reported=range(6))
    for report in index.reports():
        findings = [(f"{report.title} {n} is one more island in the cold sea.", ISLANDS[report.title] * 2, report.findings[0].sources) for n in "abc"]
        index = index.with_report(report_of(report.community_id, report.title, findings))
    return index


@pytest.mark.parametrize("form", ["grammar", "schema"])
def test_every_window_is_asked_once_and_one_call_answers(form):
    """Without log-probabilities: one call a window, one at the end; the citations are those of the answer; usage adds up."""
    history = []
    answer = run(islands(), Reader(form=form), form=form, history=history)

    assert answer.answered
    assert [step(r) for r in history].count("reduce") == 1
    assert len({r.affinity for r in windows(history)}) == len(windows(history)) == len(history) - 1
    assert {citation.title for citation in answer.citations} <= set(ISLANDS)
    assert (answer.usage.calls, answer.usage.prompt_tokens, answer.usage.seconds) == (len(history), 10 * len(history), 0.5 * len(history))
    assert all(r.priority == 0 and r.purpose == "answer" and r.documents for r in history)
    assert all(r.gate and r.gate.options == ("Y", "N") and r.gate.threshold == 0.2 for r in windows(history))


@pytest.mark.parametrize("window", [2600, 32_000])
def test_the_question_comes_last_and_windows_do_not_depend_on_it(window):
    """Everything before the question is equal for two questions about the same generation, so that the server's cache serves it."""
    one, two = [], []
    run(islands(), Reader(), question="Who is Ada?", window=window, history=one, window_tokens=8000)
    run(islands(), Reader(), question="Wo liegt Bor und wie heißt der Ort?", window=window, history=two, window_tokens=8000)

    def before(history):
        return [r.messages[0].content + r.messages[1].content.partition("</text>")[0] for r in windows(history)]

    assert before(one) == before(two)
    assert all(r.messages[-1].content.endswith("Who is Ada?") for r in one)


def test_every_second_question_goes_backwards():
    """Zigzag: what the last question read last is read first."""
    even, odd = [], []
    run(islands(), Reader(), turn=0, history=even)
    run(islands(), Reader(), turn=1, history=odd)

    assert [r.affinity for r in windows(odd)] == [r.affinity for r in reversed(windows(even))]
    assert len(windows(even)) > 2


def test_the_next_question_begins_with_what_ended_last():
    """Over the same open index: first the windows that were read to the end after all others, then those that were left, backwards."""
    gates = {"Ada": 0.05, "Bor": 0.15, "Cal": 0.02, "Dun": 0.12, "Eck": 0.01, "Fen": 0.11}
    index, one, two = islands(), [], []
    first = run(index, Reader(gate=gate_of(gates)), history=one)
    second = run(index, Reader(gate=gate_of(gates)), turn=1, history=two)
    asked = [r.affinity for r in windows(one)]

    assert [r.affinity for r in windows(two)][: len(set(asked))] == list(dict.fromkeys(reversed(asked)))
    assert sum(is_forced(r) for r in windows(one)) == sum(is_forced(r) for r in windows(two)) == 3
    assert first == second


def test_the_direction_does_not_change_the_answer():
    """Points are ordered by score, gate and window, never by when their reply came."""
    assert run(islands(), Reader(), turn=0).answer == run(islands(), Reader(), turn=1).answer


def test_windows_under_the_gate_are_left_but_the_best_are_read():
    """Of six windows under the threshold the best three are read all the same, without the choice to say N."""
    gates = {"Ada": 0.05, "Bor": 0.15, "Cal": 0.02, "Dun": 0.12, "Eck": 0.01, "Fen": 0.11}
    history = []
    answer = run(islands(), Reader(gate=gate_of(gates)), history=history)
    forced = [r for r in windows(history) if is_forced(r)]

    assert sorted(next(iter(evidence(r).values()))[:3] for r in forced) == ["Bor", "Dun", "Fen"]
    assert all(r.gate.threshold == 0 for r in forced)
    assert {citation.title for citation in answer.citations} == {"Bor", "Dun", "Fen"}
    assert any("left unread" in note for note in answer.notes)


def test_a_window_over_the_gate_is_read_even_when_its_reply_says_n():
    """The probability decides, not which of Y and N came: at 0.4 the reply says N, and the window is read."""
    answer = run(islands(), Reader(gate=gate_of({"Ada": 0.4}), useful=lambda r: False), always_read=0)

    assert [citation.title for citation in answer.citations] == ["Ada"]


def test_windows_over_the_gate_are_asked_once():
    """What is read in the first call is not read again."""
    history = []
    run(islands(), Reader(gate=gate_of(dict.fromkeys(ISLANDS, 0.9))), history=history)

    assert not any(is_forced(r) for r in history)
    assert sum(map(is_empty_window, history)) == 1


@pytest.mark.parametrize(("margin", "answered"), [(0.0, False), (-0.2, True), (-1.0, True)])
def test_no_window_better_than_an_empty_one_means_no_answer(margin, answered):
    """The best gate must beat that of a window without content by the margin; a margin of -1 never declines and asks no empty window."""
    history = []
    gates = gate_of(dict.fromkeys(ISLANDS, 0.5), empty=0.6)
    answer = run(islands(), Reader(gate=gates), history=history, refusal_margin=margin)

    assert answer.answered is answered
    assert any(map(is_empty_window, history)) is (margin > -1)
    if not answered:
        assert answer.answer == "The documents do not answer this question."
        assert answer.citations == ()
        assert any("without content" in note for note in answer.notes)
        assert "reduce" not in [step(r) for r in history]


def test_the_empty_window_costs_one_token():
    """It is the same prompt and constraint form, left after its first token."""
    history = []
    run(islands(), Reader(gate=gate_of({"Ada": 0.9})), history=history)
    empty = next(r for r in history if is_empty_window(r))

    assert empty.gate.threshold > 1
    assert empty.max_tokens <= 16
    assert empty.messages[0] == windows(history)[0].messages[0]


def test_windows_that_say_n_decline_without_probabilities():
    """A server without log-probabilities is believed its N; the sentence is in the question's language."""
    history = []
    answer = run(islands(), Reader(useful=lambda r: False), question="Wer schrieb die Oper und wann?", history=history)

    assert not answer.answered
    assert answer.answer.startswith("Die Dokumente")
    assert "6 of 6 windows read, none holds anything that answers the question." in answer.notes
    assert not any(map(is_forced, history))


def test_forced_readings_that_score_nothing_decline():
    """A window read against its own judgement may say by a score of 0 that nothing helps."""
    answer = run(islands(), Reader(gate=gate_of(dict.fromkeys(ISLANDS, 0.1)), score=lambda text: 0))

    assert not answer.answered


def test_the_last_call_may_decline_only_after_forced_readings():
    """Where no window was useful by its own judgement the reduce call is asked whether the points answer at all."""
    forced = run(islands(), Reader(gate=gate_of(dict.fromkeys(ISLANDS, 0.1)), answers=False))
    useful = run(islands(), Reader(gate=gate_of(dict.fromkeys(ISLANDS, 0.9)), answers=False))

    assert not forced.answered
    assert useful.answered


def test_points_reach_the_last_call_best_first():
    """Points are ordered by score, then by the gate of their window; what does not fit is left out with a note."""
    history = []
    scores = {"Ada": 10, "Bor": 90, "Cal": 50, "Dun": 50}
    reader = Reader(gate=gate_of({"Ada": 0.9, "Bor": 0.9, "Cal": 0.5, "Dun": 0.8}), score=lambda text: scores.get(text[:3], 1))
    answer = run(islands(), reader, history=history, always_read=0)
    last = next(r for r in history if step(r) == "reduce")
    tight = run(islands(), reader, reduce_tokens=500)

    assert [text[:3] for text in evidence(last).values()] == ["Bor", "Dun", "Cal", "Ada"]
    assert answer.answered
    assert any(re.match(r"The \d best of \d points fitted", note) for note in tight.notes)


def test_ghost_ids_are_never_shown():
    """An id that was in no window is dropped with a note; a paragraph with nothing else does not appear."""
    reader = Reader()

    def answer(request):
        if step(request) == "reduce":
            return reader.reply(reader.paragraphs([("True.", ["R1", "E77"]), ("Invented [E88].", ["R99"])]))
        return reader.reply(reader.points([("A point.", ["R1", "R98"], 5), ("Nobody says so.", ["R99"], 99)]))

    done = run(islands(), answer)
    assert done.answer == "True. [1]"
    assert {citation.kind for citation in done.citations} == {"report"}
    assert any("12 cited ids were not in their window" in note for note in done.notes)
    assert "2 cited ids were not in the evidence and were dropped." in done.notes


@pytest.mark.parametrize("form", ["grammar", "schema"])
def test_a_cut_off_reply_gives_its_complete_points(form):
    """A reply at its length limit is not thrown away: its complete points count, its broken last one does not, and no id is cut short."""
    reader = Reader(form=form)

    def answer(request):
        if step(request) == "reduce":
            return reader(request)
        whole = reader.points([("Good.", ["R1"], 40), ("Broken.", ["R1"], 85)])
        return reader.reply(whole[: whole.rindex("8") + 1], "length")

    done = run(islands(), answer, form=form)
    assert "Good." in done.answer
    assert "Broken." not in done.answer
    assert done.usage.calls == 7
    assert any("cut off" in note for note in done.notes)


@pytest.mark.parametrize("form", ["grammar", "schema"])
def test_an_unreadable_reply_is_asked_once_more_differently(form):
    """One window twice unreadable is noted and does not spoil the others; the second try has another seed."""
    history, reader = [], Reader(form=form)

    def answer(request):
        if step(request) == "map" and any("Ada a" in text for text in evidence(request).values()):
            return reader.reply("As an assistant I think so.")
        return reader(request)

    done = run(islands(), answer, form=form, history=history)
    tries = [r for r in windows(history) if "Ada a" in r.messages[-1].content]
    assert [r.seed for r in tries] == [0, 1]
    assert done.answered
    assert any(re.search(r"\b1 gave no usable reply", note) for note in done.notes)


def test_a_model_that_answers_nothing_readable_is_an_error():
    """When no window gave a usable reply that is the model's failure, not the collection's."""
    with pytest.raises(ReplyInvalid, match="no usable reply to any of 6 windows"):
        run(islands(), lambda request: Reply(text="Sure!", finish_reason="stop"))


@pytest.mark.parametrize("last", ["Sure, here it is.", "It is so.\tE77\n", ""])
def test_nothing_paid_for_is_lost_when_the_last_call_fails(last):
    """A reduce reply that is unusable twice leaves the points, best first, as the answer, with a note."""
    reader = Reader(score=lambda text: {"A": 3, "B": 9}.get(text[0], 1))
    done = run(islands(), lambda request: reader.reply(last) if step(request) == "reduce" else reader(request), max_paragraphs=2)

    assert done.answered
    assert [citation.title for citation in done.citations] == ["Bor", "Ada"]
    assert any("stand for it as they are" in note for note in done.notes)


# --- budgets


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 40), st.sampled_from([2048, 8192, 32_768]), st.sampled_from([Characters(), Bytes()]),
    st.sampled_from(["abcdefg hij. ", "李明在北京的湖边钓鱼。卖"]), st.sampled_from(["grammar", "schema"]), st.sampled_from(["global", "source"]),
)  # fmt: skip
def test_no_call_is_over_the_models_window(seed, size, window, counter, alphabet, form, mode):
    """Prompt and room for the reply fit in every call, whatever the tokenizer, the script and the size of the window."""
    history = []
    index = random_index(seed, size, alphabet=alphabet, longest=400)
    question = "湖边有什么?" if alphabet[0] == "李" else QUESTION
    options = {"form": form, "window": window, "counter": counter, "history": history, "window_tokens": 8000}
    answer = run(index, Reader(form=form), question=question, mode=mode, **options)

    assert answer.answered
    for request in history:
        assert sum(counter.count(m.content) + 10 for m in request.messages) + 16 + request.max_tokens <= window
        assert request.max_tokens >= 100


def test_a_window_too_small_is_told_before_the_first_call():
    """One clear error with the sizes, and no call; a question that is too long is no such case, for it is shown in part."""
    history = []
    with pytest.raises(ContextOverflow, match="1200 tokens has no room for evidence: the prompt takes"):
        run(islands(), Reader(), window=1200, history=history)
    assert history == []
    answer = run(islands(), Reader(), window=8192, question="Why? " * 1400, history=history)
    assert answer.answered
    assert any("question is too long" in note for note in answer.notes)
    assert all(sum(len(m.content) + 10 for m in request.messages) + 16 + request.max_tokens <= 8192 for request in history)


def counts_more(reader, limit, history):
    """A server that refuses prompts longer than `limit` characters."""

    def answer(request):
        size = sum(len(m.content) for m in request.messages)
        history.append((request.affinity, size, size > limit))
        if size > limit:
            raise ContextOverflow("too long", window=limit)
        return reader(request)

    return answer


def test_a_refused_window_is_asked_again_smaller_and_never_at_the_same_size():
    """A server that counts more than we do gets the same evidence in windows a quarter smaller, once."""
    seen, history = [], []
    index = community_index(40)
    run(index, Reader(), window_tokens=3400, history=history)
    largest = max(sum(len(m.content) for m in r.messages) for r in windows(history))
    done = run(index, counts_more(Reader(), largest - 100, seen), window_tokens=3400)
    refused = [size for _, size, no in seen if no]

    assert refused
    assert done.answered
    assert len({affinity for affinity, _, _ in seen if affinity}) == len([1 for affinity, _, _ in seen if affinity])
    assert not any("not fit" in note for note in done.notes)


def test_a_server_that_refuses_everything_is_an_error():
    """No window at all fits: one clear error, after one smaller try of the evidence of each."""
    seen = []
    with pytest.raises(ContextOverflow, match="No window of evidence fits"):
        run(islands(), counts_more(Reader(), 10, seen))
    assert len({affinity for affinity, _, _ in seen}) == len(seen)


def test_a_refused_last_call_is_asked_once_with_fewer_points():
    """Reduce that does not fit the server is tried with three quarters of the points' tokens, then the points stand."""
    seen, reader = [], Reader()

    def answer(request):
        if step(request) == "reduce":
            seen.append(len(request.messages[-1].content))
            if len(seen) == 1 or len(seen) > 2:
                raise ContextOverflow("too long", window=1)
        return reader(request)

    done = run(islands(), answer)
    again = run(islands(), answer)
    assert len(seen) == 4
    assert seen[1] < seen[0]
    assert seen[3] < seen[2]
    assert done.answered
    assert any("stand for it as they are" in note for note in again.notes)


def test_other_failures_of_the_server_stop_the_question():
    """What is not about the reply is for the caller to know."""

    def hang(request):
        raise EngineHung("gone")

    with pytest.raises(EngineHung, match="gone"):
        run(islands(), hang)


def test_source_reads_the_text_itself():
    """Mode source: every passage is in a window, and citations open at a few sentences."""
    texts = {f"t{n}": f"Place {n} has a lock. It was built in {1800 + n}. Its keeper is old. " * 3 for n in range(8)}
    done = run(text_index(**texts), Reader(), mode="source")

    assert done.answered
    assert {citation.kind for citation in done.citations} == {"chunk"}
    assert all(source.quote.count(".") <= 3 for citation in done.citations for source in citation.sources)
    assert done.level is None
