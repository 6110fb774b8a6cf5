"""Descriptions: joined while short, summarised as a tree beyond, quoted where asked; nothing is lost for being alike."""

import asyncio
import random
from dataclasses import replace

import llguidance
import pytest

from graphrag_local.engine.base import Grammar, JsonSchema, Reply
from graphrag_local.errors import EngineHung, EngineUnreachable
from graphrag_local.graph.describe import Describer, Statement, Subject, constraint, cut, groups, quotation, reader, statements, summarise
from graphrag_local.prompting import load
from graphrag_local.records import Chunk, Mention, Span
from graphrag_local.settings import DescribeSettings
from tests.fakes import Characters, model_of

MILL = Subject("Gull Mill", "entity")
RULES = DescribeSettings(threshold_tokens=300, group_tokens=2000, max_reply_tokens=200)


def mention(description, *spans, document="d0", chunk="c0", number=0):
    return Mention(
        id=f"{chunk}{number}", owner_id="e", owner_kind="entity", chunk_id=chunk, document_id=document, number=number, name="Gull Mill", type="geo",
        description=description, strength=0.0, spans=tuple(Span(start=a, end=b) for a, b in spans), grounding="anchored",
    )  # fmt: skip


def chunk_at(text, start=0, document="d0", key="c0"):
    return Chunk(id=key, document_id=document, index=0, start=start, end=start + len(text), text=text)


def plain(*texts):
    return tuple(Statement(text, ("d0",)) for text in texts)


def many(count, seed=1):
    dice = random.Random(seed)
    return [f"Fact {number}: {' '.join(dice.choices('stone wheel rye lock river owner flood'.split(), k=9))}." for number in range(count)]


def listed(request):
    """The statements that a request shows."""
    return [line[2:] for line in request.messages[-1].content.split("\n") if line.startswith("- ")]


def short(request):
    return f'{{"description": "Summary of {len(listed(request))}, first: {listed(request)[0][:40]}"}}'


def run(said, answer=short, rules=RULES, **model):
    """The summary of some statements, and the requests it took."""
    history = []
    describer = Describer(model=model_of(answer, history=history, **model), prompt=load("describe"), settings=rules)
    return asyncio.run(summarise(MILL, said, describer)), history


def test_short_descriptions_are_joined_without_a_call():
    """What fits is joined in its order; equal texts count once."""
    said = statements([mention("It grinds rye."), mention("It stands on\nPike Lane."), mention("It grinds rye.", document="d1"), mention("")])
    summary, history = run(said)

    assert summary.text == "It grinds rye. It stands on Pike Lane."
    assert said[0].documents == ("d0", "d1")
    assert history == []


def test_a_changed_number_is_another_statement():
    """Near-equal sentences are both kept: neither dropped for being alike nor averaged."""
    summary, _ = run(statements([mention("Barges may lie 90 days."), mention("Barges may lie 140 days.")]))

    assert summary.text == "Barges may lie 90 days. Barges may lie 140 days."


def test_long_lists_are_summarised_as_a_tree():
    """Every statement is sent exactly once, no call exceeds its group, and the summaries are summarised until they fit."""
    texts = many(200)
    summary, history = run(plain(*texts))
    leaves = [line for request in history for line in listed(request) if line.startswith("Fact")]

    assert summary.failed is None
    assert len(summary.text) <= 300
    assert sorted(leaves) == sorted(texts)
    assert all(sum(len(line) for line in listed(request)) <= 2000 for request in history)
    assert len(history) > len({request.messages for request in history if "Fact" in request.messages[-1].content}) / 2


def test_one_more_statement_changes_few_calls():
    """Of some fifty calls about a thousand statements an insertion asks at most eight anew, two on average per level of the tree."""
    texts = many(1000)
    before = {request.messages for request in run(plain(*texts))[1]}
    dice = random.Random(2)
    fresh = []
    for number in range(12):
        at = dice.randrange(len(texts))
        _, history = run(plain(*texts[:at], f"A new fact, number {number}.", *texts[at:]))
        fresh.append(len({request.messages for request in history} - before))

    assert len(before) > 40
    assert max(fresh) <= 8
    assert sum(fresh) / len(fresh) <= 5


def test_groups_keep_their_order_and_lose_nothing():
    """Groups joined are the list; each is between a quarter of the budget and all of it, the last one aside."""
    said = plain(*many(300))
    made = groups(said, Characters(), 900)

    assert tuple(statement for group in made for statement in group) == said
    assert all(225 <= sum(len(s.text) + 4 for s in group) <= 900 for group in made[:-1])


def test_a_statement_larger_than_a_group_stands_alone():
    """What is too large for any group is a group of its own."""
    assert [len(group) for group in groups(plain("a" * 50, "b" * 5000, "c" * 50), Characters(), 1000)] == [1, 1, 1]


def test_prompts_show_statements_and_no_counts():
    """The call holds the name and the statements with look-alikes of our marks defused, and the ids of their documents stay outside."""
    texts = [*many(5), "[S1] said </text> so."]
    _, (request,) = run(tuple(Statement(text, (f"doc{number}",)) for number, text in enumerate(texts)))
    content = request.messages[-1].content

    assert listed(request)[:5] == texts[:5]
    assert content.count("</text>") == 1
    assert "[S1]" not in content
    assert "doc1" not in content
    assert request.documents == tuple(f"doc{number}" for number in range(6))
    assert request.purpose == "describe"


@pytest.mark.parametrize("reason", ["length", "invalid", "hung"])
def test_a_failed_call_costs_its_group_only(reason):
    """A group that cannot be summarised is joined and cut, the rest is summarised, and the error is kept."""

    def answer(request):
        if not any(line.startswith("Fact 1:") for line in listed(request)):
            return short(request)
        if reason == "hung":
            raise EngineHung("gave up")
        return Reply(text='{"description": "Su', finish_reason="length") if reason == "length" else "no json"

    summary, _ = run(plain(*many(200)), answer)

    assert summary.failed is not None
    assert summary.text.startswith("Summary of")


def test_a_server_that_is_away_stops_the_run():
    """Only errors of one call are data."""

    def answer(request):
        raise EngineUnreachable("connection refused")

    with pytest.raises(EngineUnreachable):
        run(plain(*many(50)), answer)


def test_summaries_that_do_not_get_shorter_end_in_a_cut():
    """A model that copies cannot keep the tree going for ever."""
    summary, history = run(plain(*many(40)), lambda request: f'{{"description": "{"long words " * 300}"}}')

    assert summary.failed is not None
    assert len(summary.text) <= 300
    assert len(history) < 20


@pytest.mark.parametrize("window", [300, 900, 1500, 4000])
def test_small_windows_are_kept(window):
    """Whatever the window, no request exceeds it, and where none fits the descriptions are cut."""
    rules = DescribeSettings(threshold_tokens=200, max_reply_tokens=100)
    summary, history = run(plain(*many(60)), lambda request: f'{{"description": "Of {len(listed(request))}."}}', window=window, rules=rules)

    assert len(summary.text) <= 200
    assert all(sum(len(message.content) for message in request.messages) + 100 <= window for request in history)
    assert bool(history) == (summary.failed is None)


def test_grammar_replies_are_one_line_of_text():
    """Under a grammar the reply is the description itself; the grammar compiles and takes any script."""
    summary, history = run(plain(*many(12)), lambda request: " It grinds rye in 1903. 磨坊。 ", form="grammar")
    grammar = constraint("grammar")

    assert summary.text == "It grinds rye in 1903. 磨坊。"
    assert history[0].constraint == grammar
    assert isinstance(grammar, Grammar)
    assert not llguidance.LLMatcher.validate_grammar(llguidance.LLMatcher.grammar_from_lark(grammar.lark))


@pytest.mark.parametrize("reply", ['{"description": ""}', '{"description": 7}', "[]", '{"other": "x"}', "", '{"description": " . "}'])
def test_replies_without_a_description_are_refused(reply):
    """A reply is read the same whether its server obeys the schema or not."""
    assert isinstance(constraint("schema"), JsonSchema)
    with pytest.raises(ValueError, match=r"description|JSON"):
        reader("schema")(reply)


def test_replies_are_read_as_text():
    """Line breaks and control characters go, LaTeX stays LaTeX."""
    assert reader("schema")('```json\n{"description": "a\\nratio \\frac{a}{b}\\u0001"}\n```') == "a ratio \\frac{a}{b}"


def test_quotes_are_the_cited_sentences_in_the_order_of_the_text():
    """Each sentence once, documents apart, and both of two sentences that differ in a number."""
    text = "It is old.  It grinds 90 sacks.\nIt grinds 140 sacks."
    chunks = {"c0": chunk_at(text, start=100), "c1": chunk_at("It is old.", document="d1", key="c1")}
    said = [mention("", (132, 153), (112, 131)), mention("", (100, 110), (112, 131), number=1), mention("", (0, 10), document="d1", chunk="c1")]

    assert quotation(said, chunks, Characters(), 500) == "It is old. It grinds 90 sacks. It grinds 140 sacks."
    assert quotation(said, chunks, Characters(), 32) in ("It is old. It grinds 90 sacks.", "It is old. It grinds 140 sacks.")
    assert quotation(said, chunks, Characters(), 12) == "It is old."
    assert quotation(said, chunks, Characters(), 6) == "It is"


def hub(documents, sentences):
    """Mentions of one subject, each sentence of each document, and the chunks they stand in."""
    said, chunks = [], {}
    for number in range(documents):
        told = [f"Report {number} says that lock {place} of the mill held." for place in range(sentences)]
        text = " ".join(told)
        chunks[f"c{number}"] = chunk_at(text, document=f"d{number}", key=f"c{number}")
        starts = [text.index(sentence) for sentence in told]
        said += [
            mention("", (start, start + len(sentence)), document=f"d{number}", chunk=f"c{number}", number=place)
            for place, (start, sentence) in enumerate(zip(starts, told, strict=True))
        ]
    return said, chunks


def test_a_hubs_quotes_come_from_every_document():
    """Where not all fit, each document is quoted from its first sentence on, none more than one sentence oftener than another."""
    said, chunks = hub(10, 12)
    quoted = quotation(said, chunks, Characters(), 1200)
    counts = [quoted.count(f"Report {number} says") for number in range(10)]

    assert len(quoted) <= 1200
    assert min(counts) >= 1
    assert max(counts) - min(counts) <= 1
    assert all(f"Report {number} says that lock 0 of" in quoted for number in range(10))
    assert any(f"lock {place} of" in quoted for place in (9, 10, 11))


def test_a_new_mention_displaces_few_quotes():
    """One more document changes at most a few of a hub's quotes, wherever it stands in the order."""
    said, chunks = hub(40, 4)
    before = set(quotation(said[:-4], chunks, Characters(), 1500).split(". "))
    after = set(quotation(said, chunks, Characters(), 1500).split(". "))

    assert len(before) > 20
    assert len(before - after) <= 2


@pytest.mark.parametrize(("budget", "kept"), [(11, "One. Two."), (9, "One. Two."), (8, "One."), (3, "One"), (0, "")])
def test_cuts_fall_between_texts_then_words(budget, kept):
    """What is over a budget is left out whole; only a first text that does not fit is cut within."""
    assert cut(["One.", "Two.", "Three."], Characters(), budget) == kept


def test_a_single_long_text_is_cut_at_a_blank():
    """A cut within a text keeps whole words."""
    assert cut(["The mill stands on the river"], Characters(), 14) == "The mill"
    assert cut(["The mill stands"], Characters(), 8) == "The mill"


def test_the_groups_of_one_subject_are_asked_about_side_by_side():
    """A hub's groups do not wait for each other: all calls of a level are under way at once."""
    model, under_way, most = model_of(short), 0, 0

    async def generate(request):
        nonlocal under_way, most
        under_way, most = under_way + 1, max(most, under_way + 1)
        await asyncio.sleep(0)
        under_way -= 1
        return await model.generate(request)

    describer = Describer(model=replace(model, generate=generate), prompt=load("describe"), settings=RULES)
    said = plain(*many(200))
    leaves = groups(said, model.counter, describer.group_tokens(MILL))

    asyncio.run(summarise(MILL, said, describer))

    assert most == len(leaves) > 3
