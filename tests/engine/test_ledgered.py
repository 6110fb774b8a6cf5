"""Replies are paid for once, judged once, and replayed with their outcome."""

import asyncio
import json

import pytest

from graphrag_local.engine.base import Choice, Gate, ModelCard, Reply
from graphrag_local.engine.ledgered import Ledgered
from graphrag_local.engine.scripted import ScriptedEngine
from graphrag_local.errors import EngineUnreachable, ReplyInvalid, StorageError
from graphrag_local.records import Usage
from tests.clock import run_unhurried
from tests.engine.tools import TITLE, MemoryLedger, all_of, ask_for, said_by

COST = Usage(calls=1, prompt_tokens=10, completion_tokens=4)


def reply(text="ok", finish="stop", **rest):
    return Reply(text=text, finish_reason=finish, usage=COST, **rest)


def invalid(engine, request):
    with pytest.raises(ReplyInvalid) as caught:
        said_by(engine, request)
    return caught.value


def test_a_reply_is_paid_for_once():
    """The second engine over the same ledger asks nothing and gives the same reply, at no cost."""
    ledger = MemoryLedger()
    inner = ScriptedEngine(lambda request: reply(logprobs=(("ok", -0.25),)))
    request = ask_for("naïve 麦", logprobs=True, documents=("d1", "d2"))
    first = said_by(Ledgered(inner, ledger), request)
    replaying = Ledgered(inner, ledger)
    second = said_by(replaying, request)
    assert len(inner.history) == 1
    assert (second.text, second.finish_reason, second.logprobs) == (first.text, "stop", (("ok", -0.25),))
    assert (first.replayed, second.replayed, second.usage) == (False, True, Usage())
    assert (replaying.meter.total, replaying.meter.replayed) == (Usage(), 1)
    row = next(iter(ledger.rows.values()))
    assert (row.outcome, row.groups, row.prompt_tokens, row.purpose) == ("ok", (("d1", "d2"),), 10, "extract")


def test_only_the_log_probabilities_that_decide_are_kept():
    """Of a long reply the tokens named by the request are written down, the same live and replayed; the key does not depend on them."""
    tokens = tuple((piece, -0.125) for piece in ["E1", "\t", *["word "] * 500, "?", "\t", " N"])
    text = "".join(token for token, _ in tokens)
    ledger, request = MemoryLedger(), ask_for(logprobs=True, decides=("Y", "N"))
    inner = ScriptedEngine(lambda _: reply(text, logprobs=tokens))
    first, second = said_by(Ledgered(inner, ledger), request), said_by(Ledgered(inner, ledger), request)

    assert first.logprobs == second.logprobs == ((" N", -0.125),)
    (row,) = ledger.rows.values()
    assert (row.text, json.loads(row.logprobs)) == (text, [[" N", -0.125]])
    assert len(row.logprobs) < len(text) / 100
    assert set(ledger.rows) == {Ledgered(inner, None).key(ask_for(logprobs=True))}


def test_the_key_is_what_determines_the_reply():
    """Model, revision, messages, constraint, sampling and gate change the key; affinity, priority, purpose and documents do not."""

    def key(request, name="m", revision="1"):
        return Ledgered(ScriptedEngine(lambda _: "", ModelCard(name=name, revision=revision, context_tokens=0, form="schema")), None).key(request)

    base = ask_for()
    other = [
        key(base, name="n"), key(base, revision="2"), key(ask_for("Else.")), key(ask_for(constraint=TITLE)), key(ask_for(max_tokens=9)),
        key(ask_for(temperature=0.3)), key(ask_for(seed=1)), key(ask_for(gate=Gate())), key(ask_for(logprobs=True)), key(base),
    ]  # fmt: skip
    assert len(set(other)) == len(other)
    assert key(ask_for(affinity="x", priority=0, purpose="report", documents=("d",), validate=len)) == key(base)
    assert key(base) == "c9cf6f6c17742a65cdf160a2d88fff47"  # written out: a ledger outlives the program that wrote it


BAD = [
    (reply("{", "length"), "cut_off"),
    (reply("{" + "\n    " * 100, "length"), "loop"),
    (reply('{"name":"Mill Lane"},' * 40, "length"), "loop"),
    (reply("", "stop"), "thinking"),
    (reply("no json"), "invalid"),
]


@pytest.mark.parametrize(("bad", "outcome"), BAD)
def test_an_unusable_reply_is_written_down_and_raised_again(bad, outcome):
    """Cut-off, looping, empty and unfitting replies raise the same words, now and on replay; the ledger keeps their beginning only."""
    ledger = MemoryLedger()
    inner = ScriptedEngine(lambda _: bad)
    request = ask_for(constraint=TITLE, validate=json.loads)
    engine = Ledgered(inner, ledger)
    first, second = invalid(engine, request), invalid(engine, request)
    assert (first.outcome, second.outcome, len(inner.history)) == (outcome, outcome, 1)
    assert [(row.outcome, row.text) for row in ledger.rows.values()] == [(outcome, bad.text[:80])]
    assert str(first) == str(second)
    assert (first.reply, second.reply) == (bad, None)
    assert (engine.meter.wasted, engine.meter.replayed) == (4, 1)
    assert not bad.text or repr(bad.text[:20])[:-1] in str(first)


def test_failed_outcomes_are_asked_again_on_request():
    """An outcome in `retry` is asked again and its row replaced; the others stay as they are."""
    ledger = MemoryLedger()
    replies = iter([reply("", "stop"), reply("{", "length"), reply("Y")])
    inner = ScriptedEngine(lambda _: next(replies))
    request = ask_for(constraint=Choice(options=("Y", "N")))
    invalid(Ledgered(inner, ledger), request)
    assert invalid(Ledgered(inner, ledger, frozenset({"cut_off"})), request).outcome == "thinking"
    assert invalid(Ledgered(inner, ledger, frozenset({"thinking"})), request).outcome == "cut_off"
    assert said_by(Ledgered(inner, ledger, frozenset({"cut_off"})), request).text == "Y"
    assert said_by(Ledgered(inner, ledger), request).text == "Y"


def test_faults_of_the_server_are_not_written_down():
    """When the server fails nothing is kept, and the next run asks again."""
    ledger = MemoryLedger()
    answers = iter([EngineUnreachable("gone"), "ok"])

    def answer(_):
        given = next(answers)
        if isinstance(given, EngineUnreachable):
            raise given
        return given

    engine = Ledgered(ScriptedEngine(answer), ledger)
    with pytest.raises(EngineUnreachable):
        said_by(engine, ask_for())
    assert ledger.rows == {}
    assert said_by(engine, ask_for()).text == "ok"


def test_a_reply_left_at_its_gate_replays_as_such():
    """An abandoned reply is kept with its probability and comes back as abandoned, one over the threshold as whole."""
    ledger = MemoryLedger()
    engine = Ledgered(ScriptedEngine(lambda request: reply("N\tx", gate=0.1)), ledger)
    low, high = ask_for(gate=Gate(threshold=0.5)), ask_for(gate=Gate(threshold=0.05))
    for _ in range(2):
        replies = said_by(engine, low, high)
        assert [(r.text, r.finish_reason, r.gate) for r in replies] == [("N", "gate", 0.1), ("N\tx", "stop", 0.1)]
    assert engine.meter.replayed == 2


def test_identical_requests_in_flight_are_asked_once():
    """Fifty equal requests at once are one call, written down before any of them is answered."""
    ledger = MemoryLedger()
    inner = ScriptedEngine(lambda _: reply(), latency_s=0.01)
    engine = Ledgered(inner, ledger)
    replies = asyncio.run(all_of(engine, [ask_for(affinity=f"{n}") for n in range(50)]))
    assert [r.text for r in replies] == ["ok"] * 50
    assert len(inner.history) == 1
    assert sum(not r.replayed for r in replies) == 1
    assert (engine.meter.total.calls, engine.meter.replayed) == (1, 49)


def test_those_who_waited_get_the_same_fault():
    """When the one call fails or is unusable, everybody who asked the same is told the same."""
    engine = Ledgered(ScriptedEngine(lambda _: reply("", "stop"), latency_s=0.01), MemoryLedger())
    errors = asyncio.run(all_of(engine, [ask_for(constraint=TITLE)] * 3))
    assert [error.outcome for error in errors] == ["thinking"] * 3


def test_a_cancelled_asker_takes_nobody_with_him():
    """When the task that asks is cancelled, another one that waits for the same reply asks instead."""
    inner = ScriptedEngine(lambda _: reply(), latency_s=0.02)
    engine = Ledgered(inner, MemoryLedger())

    async def main():
        tasks = [asyncio.create_task(engine.generate(ask_for())) for _ in range(3)]
        await asyncio.sleep(0.005)
        tasks[0].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    replies = run_unhurried(main)
    assert isinstance(replies[0], asyncio.CancelledError)
    assert [r.text for r in replies[1:]] == ["ok", "ok"]
    assert len(inner.history) == 2


def test_the_reply_is_durable_before_it_is_used():
    """Nobody sees a reply before the ledger has said that it is kept."""
    order = []

    class Slow(MemoryLedger):
        async def put(self, row):
            await asyncio.sleep(0.01)
            order.append("kept")
            await super().put(row)

    said_by(Ledgered(ScriptedEngine(lambda _: "ok"), Slow()), ask_for())
    order.append("used")
    assert order == ["kept", "used"]


def test_whoever_asks_the_same_is_linked_to_the_reply():
    """A replay for other documents is a missing link until it is saved; one for known documents is none, and saving writes once."""

    class Counting(MemoryLedger):
        links = 0

        async def link(self, groups):
            self.links += 1
            await super().link(groups)

    ledger = Counting()
    first = Ledgered(ScriptedEngine(lambda _: "ok"), ledger)
    said_by(first, ask_for(documents=("b", "a", "b")), ask_for("Else.", documents=()), ask_for(documents=("a", "b")))
    key, other = first.key(ask_for()), first.key(ask_for("Else."))
    assert (first.used, first.missing_links) == ({key, other}, {})
    assert ledger.rows[key].groups == (("a", "b"),)

    second = Ledgered(ScriptedEngine(lambda _: "never"), ledger)
    said_by(second, ask_for(documents=("c",)), ask_for(documents=("b", "a")), ask_for(documents=("c",)), ask_for("Else.", documents=("z", "y")))
    assert (second.used, second.missing_links) == ({key, other}, {key: {("c",)}, other: {("y", "z")}})
    assert ledger.rows[key].groups == (("a", "b"),)
    asyncio.run(second.save_links())
    asyncio.run(second.save_links())
    assert (second.missing_links, ledger.links) == ({}, 1)
    assert (ledger.rows[key].groups, ledger.rows[other].groups) == ((("a", "b"), ("c",)), (("y", "z"),))

    third = Ledgered(ScriptedEngine(lambda _: "never"), ledger)
    said_by(third, ask_for(documents=("c",)), ask_for(documents=("b", "a")))
    asyncio.run(third.save_links())
    assert (third.used, third.missing_links, ledger.links) == ({key}, {}, 1)


def test_those_who_waited_for_another_documents_reply_are_linked():
    """Equal prompts of several documents in flight at once are one call, and a link each; an unusable reply is linked and in use as well."""
    ledger = MemoryLedger()
    engine = Ledgered(ScriptedEngine(lambda _: reply("", "stop"), latency_s=0.01), ledger)
    errors = asyncio.run(all_of(engine, [ask_for(constraint=TITLE, documents=(f"d{n}",)) for n in range(3)]))
    assert [type(error) for error in errors] == [ReplyInvalid] * 3
    assert engine.used == set(ledger.rows)
    asyncio.run(engine.save_links())
    assert [row.groups for row in ledger.rows.values()] == [(("d0",), ("d1",), ("d2",))]


def test_links_that_could_not_be_saved_are_missing_still():
    """When writing the links fails, the next saving tries them again, with those that came meanwhile."""

    class Failing(MemoryLedger):
        async def link(self, groups):
            said = await engine.generate(ask_for(documents=("late",)))
            assert said.replayed
            if len(engine.missing_links[key]) == 3:
                raise StorageError("the disk is full")
            await super().link(groups)

    ledger = Failing()
    engine = Ledgered(ScriptedEngine(lambda _: "ok"), ledger)
    key = engine.key(ask_for())
    said_by(engine, *(ask_for(documents=(name,)) for name in "abc"))
    with pytest.raises(StorageError):
        asyncio.run(engine.save_links())
    assert engine.missing_links == {key: {("b",), ("c",), ("late",)}}
    engine.missing_links[key] -= {("late",), ("c",)}
    asyncio.run(engine.save_links())
    assert engine.missing_links == {key: {("late",)}}
    assert ledger.rows[key].groups == (("a",), ("b",))


def test_without_a_ledger_nothing_is_remembered():
    """An engine for questions, which nothing is kept of, does not grow with them."""
    engine = Ledgered(ScriptedEngine(lambda _: "ok"), None)
    said_by(engine, ask_for(documents=("a",)), ask_for(documents=("b",)))
    asyncio.run(engine.save_links())
    assert (engine.used, engine.missing_links) == (set(), {})


def test_costs_are_told_by_purpose():
    """The meter adds up calls and tokens for each purpose and in all, without a ledger too."""
    engine = Ledgered(ScriptedEngine(lambda _: reply()), None)
    said_by(engine, ask_for("a"), ask_for("b"), ask_for("c", purpose="report"))
    assert engine.meter.by_purpose == {"extract": COST + COST, "report": COST}
    assert engine.meter.total.completion_tokens == 12
