"""Reports of tiny models: whatever ids they choose, the report is well formed and every sentence is a record's own."""

import asyncio
import random
import re
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from graphrag_local.engine.base import Grammar, Request
from graphrag_local.flow import Silent
from graphrag_local.records import Failed, Report
from graphrag_local.reports.context import build_context
from graphrag_local.reports.elements import Elements
from graphrag_local.reports.quote import MOST_NAMES, is_telling, quotable
from graphrag_local.reports.schema import constraint, parse_quoted
from graphrag_local.reports.stage import write_reports
from graphrag_local.reports.write import budget_of, write_report
from graphrag_local.tokens import count_messages
from tests.fakes import Bytes, model_of
from tests.reports.graphs import PROMPT, circle, claim, community, edge, entity, mention, settings, tree, valid_reply
from tests.reports.graphs import budget as plain_budget

BYTES = LLTokenizer("byte")
TOLD = (
    "The keeper of {} opened every gate before the flood.",
    "Nobody in {} would lend the miller a boat.",
    "At noon: Nobody in {} would lend the miller a boat.",
    "在{}，守闸人每年春天都要修理旧船和闸门。",
    "{}, 1931",
)


def village(seed: int, size: int):
    """A random group whose records say one to three sentences of several scripts, some of which several records share."""
    dice = random.Random(seed)

    def story() -> str:
        return " ".join(dice.choice(TOLD).format(dice.choice(["Aho", "Birk", "Corve", "Dale"]) + str(dice.randrange(size))) for _ in range(dice.randrange(4)))

    people = [entity(f"Person {'ABCDEFGHIJ'[n % 10]}{n // 10 or ''}", story()) for n in range(size)]
    pairs = {tuple(sorted(dice.sample(range(size), 2))) for _ in range(2 * size)}
    edges = [edge(people[a], people[b], story()) for a, b in sorted(pairs)]
    claims = [claim(dice.choice(people), f"{story()} {n}", dice.choice([None, *people])) for n in range(size // 3)]
    return people, edges, claims


def walked(lark: str, dice: random.Random) -> str:
    """A reply that a grammar allows, every character left to chance."""
    matcher = LLMatcher(BYTES, LLMatcher.grammar_from_lark(lark), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    written = bytearray()
    while not matcher.is_stopped():
        allowed = [token for token, bias in enumerate(matcher.compute_logit_bias()) if bias]
        token = dice.choice(allowed)
        assert matcher.consume_token(token)
        if token < 256:
            written.append(token)
    return written.decode()


def chancy(seed: int, history: list[Request] | None = None, **values: object):
    """A tiny model that chooses at random within its grammar."""
    dice = random.Random(seed)

    def answer(request: Request) -> str:
        assert isinstance(request.constraint, Grammar)
        return walked(request.constraint.lark, dice)

    return model_of(answer, form="grammar", tiny=True, history=history, **values)  # type: ignore[arg-type]


def written(model, people, edges, claims=(), *, mentions=(), **values: object) -> Report | Failed:
    """The report of a group."""
    elements, group = Elements(people, edges, claims, mentions), community(people)
    context = build_context(group, [], {}, elements, budget_of(model, PROMPT, settings(**values)))
    return asyncio.run(write_report(group, context, model, PROMPT, settings(**values)))


@effort(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 24), st.integers(1, 8))
def test_any_reply_makes_a_report_of_the_records_own_words(seed, size, findings):
    """Sources are records of the group, one to five and no two findings begin with the same; every sentence stands in a source; none comes twice."""
    people, edges, claims = village(seed, size)
    report = written(chancy(seed), people, edges, claims, max_findings=findings)

    assert isinstance(report, Report)
    records = {record.id: record for record in (*people, *edges, *claims)}
    names = {person.name for person in people}
    assert 1 <= len(report.findings) <= findings
    assert len({finding.sources[0] for finding in report.findings}) == len(report.findings)
    assert report.dropped == ()
    told = []
    for finding in report.findings:
        assert 1 <= len(set(finding.sources)) == len(finding.sources) <= 5
        own, *others = (records[source] for source in finding.sources)
        assert finding.summary in (own.description or "; ".join(names)) or finding.summary.startswith("Person ")
        rest = finding.explanation
        for other in others:
            sentence = next((s for s in re.split(r"(?<=[.。]) ", other.description) if s and rest.startswith(s)), "")
            rest = rest.removeprefix(sentence).lstrip()
            told.append(sentence)
        assert rest in own.description
        told.append(rest)
        told.append(finding.summary)
    told = [text for text in told if text]
    assert not [(a, b) for a, b in permutations(told, 2) if a in b]
    assert report.summary == " ".join(finding.summary for finding in report.findings[:2])
    assert 1 <= len(report.title.split(", ")) <= MOST_NAMES
    assert names.issuperset(report.title.split(", "))
    assert 0 <= report.rating <= 10
    assert report.rating_explanation == ""
    assert all(text == " ".join(text.split()) for text in (report.title, report.summary, *told))


@pytest.mark.parametrize(("size", "findings", "reply_tokens"), [(3, 10, 2000), (40, 10, 2000), (200, 10, 2000), (40, 10, 220), (40, 3, 5)])
def test_the_longest_reply_fits_its_room(size, findings, reply_tokens):
    """A writer that never stops ends within `max_tokens`, even where every byte is a token, and stays in the window."""
    history: list[Request] = []
    people, edges, claims = village(size, size)
    model = model_of(lambda request: longest(request.constraint.lark), form="grammar", tiny=True, history=history, counter=Bytes())
    report = written(model, people, edges, claims, max_findings=findings, max_reply_tokens=reply_tokens, context_tokens=20_000)

    assert isinstance(report, Report)
    assert len(history) == 1
    assert len(longest(history[0].constraint.lark)) < history[0].max_tokens <= max(reply_tokens, 46)  # type: ignore[union-attr]
    assert count_messages(Bytes(), history[0].messages) + history[0].max_tokens <= 32_000


def longest(lark: str) -> str:
    """A reply that goes on wherever it may."""
    matcher = LLMatcher(BYTES, LLMatcher.grammar_from_lark(lark), log_level=0)
    text = bytearray()
    while not matcher.is_stopped():
        allowed = {token for token, bias in enumerate(matcher.compute_logit_bias()) if bias}
        token = next((byte for byte in b",F09" if byte in allowed), min(allowed))
        assert matcher.consume_token(token)
        if token < 256:
            text.append(token)
    return text.decode()


def test_ids_from_elsewhere_and_repeats_cannot_be_written():
    """The grammar refuses an id that is not in the context, a lead named twice, too many findings and any word."""
    people, edges = circle("Person", 6, "The keeper of the old lock opened every gate.")
    context = build_context(community(people), [], {}, Elements(people, edges), budget_of(chancy(0), PROMPT, settings(max_findings=2)))
    lark = constraint("grammar", list(context.ids), 2, context.quotable).lark  # type: ignore[union-attr]
    good = walked(lark, random.Random(1))
    first = re.search(r"F\t.*\n", good)[0]  # type: ignore[index]

    assert accepts(lark, good)
    for bad in ("", "G\t7\n", f"{good}{first}", good.replace(first, first * 2), good.replace("F\t", "F\tThe "), good.replace("G\t", "G\t1"), "G\t7\nF\tE99\n"):
        assert not accepts(lark, bad), bad


def accepts(lark: str, text: str) -> bool:
    """Whether a text is a whole reply of a grammar."""
    matcher = LLMatcher(BYTES, LLMatcher.grammar_from_lark(lark), log_level=0)
    return all(matcher.consume_token(byte) for byte in text.encode()) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        ("The keeper opened the gate for nobody.", True), ("守闸人每年春天都要修理旧船和闸门。", True), ("حارس القفل يفتح البوابة كل ربيع.", True),
        ('He said that "it is late now."', True), ("Pike Lock, 3 May 1931.", False), ("To the Council of Lorne.", False), ("二〇二三年。", False),
        ("The keeper opened the gate for nobody", False), ("12.5", False), ("", False),
    ],
)  # fmt: skip
def test_headings_dates_and_addresses_tell_nothing(text, telling):
    """A sentence ends like one and has a few small words, or some length in a script without case."""
    assert is_telling(text) is telling


def test_what_tells_nothing_is_quoted_only_where_nothing_else_is():
    """Records with a date for a description lead no finding beside one that says something, and do where there is no other; names come last."""
    people = [entity("Pike Lock", "Pike Lock, 1931."), entity("Nils Aho", "Pike Lock, 1932.")]
    sentence = "Nils Aho kept the old lock for thirty years."

    def told(people, description):
        report = written(chancy(3), people, [edge(*people, description)])
        assert isinstance(report, Report)
        return {finding.summary for finding in report.findings}

    assert told(people, sentence) == {sentence}
    assert told(people, "") <= {"Pike Lock, 1931.", "Pike Lock, 1932."}
    assert told([entity("Pike Lock"), entity("Nils Aho")], "") <= {
        "Pike Lock (person)", "Nils Aho (person)", "Nils Aho (person), Pike Lock (person)", "Pike Lock (person), Nils Aho (person)",
    }  # fmt: skip


def test_headings_and_lead_ins_before_a_sentence_are_not_part_of_it():
    """A quoted heading that a description joins to the next sentence, a note in brackets, and bold words that open a paragraph are left out."""
    keeper = entity("Nils Aho", "Nils Aho He kept the lock for thirty years. Nils Aho saw the great flood of that spring.")
    lock = entity("Pike Lock", "[A note on a door] The lock was shut for the whole winter. **Fees.** Every barge had to pay for the opening.")
    heading = replace(mention(keeper, "d1"), description="Nils Aho")
    toll = entity("Toll", "*Toll* was due at the lock until the great flood.\n# Every boat pays two crowns for the lock.*")
    people = [keeper, lock, toll]
    found = quotable({f"E{n}": person.id for n, person in enumerate(people)}, Elements(people, [], (), [heading]), [person.id for person in people])

    assert dict(found.said) == {
        "E0": ("He kept the lock for thirty years.", "Nils Aho saw the great flood of that spring."),
        "E1": ("The lock was shut for the whole winter.", "Every barge had to pay for the opening."),
        "E2": ("*Toll* was due at the lock until the great flood.", "Every boat pays two crowns for the lock."),
    }


def test_the_title_names_the_strongest_that_are_cited():
    """Names come by their edges within the group, dates last, and none that is part of another."""
    hub, near, date, part = entity("Lorne Trust"), entity("Nils Aho"), entity("3 May 1931"), entity("Nils")
    edges = [edge(hub, near, "The trust pays the keeper of the lock."), edge(hub, date, "The trust was founded on that day."), edge(hub, part), edge(near, date)]
    people = [hub, near, date, part]
    context = build_context(community(people), [], {}, Elements(people, edges), budget_of(chancy(0), PROMPT, settings()))
    shorts = {record: short for short, record in context.ids.items()}
    assert context.quotable
    draft = parse_quoted(f"G\t3\nF\t{shorts[edges[1].id]},{shorts[edges[0].id]},{shorts[part.id]}\n", context.ids, context.quotable)

    assert draft.title == "Lorne Trust, Nils Aho, 3 May 1931"
    assert draft.rating == 3.0


def test_a_server_without_constraints_costs_only_what_it_invents():
    """Ids from elsewhere are dropped with their reason, as are findings that repeat; a reply without any id of the context is refused."""
    people, edges = circle("Person", 4, "The keeper of the old lock opened every gate.")
    context = build_context(community(people), [], {}, Elements(people, edges), budget_of(chancy(0), PROMPT, settings()))
    assert context.quotable
    lead = context.quotable.leads[0].short
    draft = parse_quoted(f"Sure:\nG\t8/10\nF\t{lead},E77\nF\t{lead}\nF\tK99\n", context.ids, context.quotable)

    assert [finding.sources for finding in draft.findings] == [(context.ids[lead],)]
    assert sorted((d.what, d.reason) for d in draft.dropped) == sorted([
        ("E77", "the id is not in the context"), ("K99", "the id is not in the context"), (lead, "the finding repeats an earlier one"),
    ])  # fmt: skip
    for reply in ("", "G\t7\nF\tE99\n", f"F\t{lead}\n", f"G\thigh\nF\t{lead}\n"):
        with pytest.raises(ValueError, match="it begins"):
            parse_quoted(reply, context.ids, context.quotable)


def test_a_parent_quotes_the_records_that_its_parts_reports_rest_on():
    """Where a part stands as its report, the ids of its findings are chosen and quoted like others."""
    left, left_edges = circle("Left", 12, "The keeper of the old lock opened every gate for nobody.")
    right, right_edges = circle("Right", 12, "The miller of the far bank would lend no boat to anybody.")
    history: list[Request] = []
    rows = tree([left, right])
    people, edges = [*left, *right], [*left_edges, *right_edges, edge(left[0], right[0], "The two banks trade in grain each spring.")]
    result = asyncio.run(
        write_reports(
            rows, people, edges, [], [], chancy(5, history), PROMPT, settings(context_tokens=1200, max_findings=4),
            previous={}, progress=Silent(), limit=1,
        )
    )  # fmt: skip

    assert {report.community_id for report in result.reports} == {row.id for row in rows}
    assert "## " in history[-1].messages[-1].content
    known = {record.id: record.description for record in (*people, *edges)}
    for report in result.reports:
        assert all(finding.summary in known[finding.sources[0]] for finding in report.findings)


def test_a_tiny_model_under_a_schema_writes_as_others_do():
    """Without a grammar nothing is quoted: the same schema, the same prompt and the same report as for a large model."""
    people, edges = circle("Person", 6, "Lives in the valley.")
    sent: list[list[Request]] = [[], []]
    small, large = (written(model_of(valid_reply, tiny=tiny, history=sent[tiny]), people, edges) for tiny in (True, False))

    assert [(r.messages, r.constraint, r.max_tokens) for r in sent[0]] == [(r.messages, r.constraint, r.max_tokens) for r in sent[1]]
    assert small == large


def test_the_form_of_a_report_is_part_of_its_fingerprint():
    """A report that was written is not kept where it would be quoted, nor one whose records say something else beyond what the context shows."""
    people, edges = circle("Person", 6, "The keeper of the old lock opened every gate.")
    group, elements = community(people), Elements(people, edges)
    models = [model_of(valid_reply, form="grammar", tiny=tiny) for tiny in (True, False)]
    marks = {build_context(group, [], {}, elements, budget_of(model, PROMPT, settings())).fingerprint for model in models}
    assert len(marks) == 2

    tight = plain_budget(tokens=260)
    long = "The keeper of the old lock opened every gate. " * 3
    changed = [[entity(p.name, f"{long}{tail}") for p in people] for tail in ("He left in spring with all he had.", "He stayed on for the whole winter.")]
    for quoted in (False, True):
        room = type(tight)(tokens=260, findings=3, count=tight.count, shape="test", quoted=quoted)
        contexts = [build_context(group, [], {}, Elements(people, edges), room) for people in changed]
        assert contexts[0].text == contexts[1].text
        assert (contexts[0].fingerprint == contexts[1].fingerprint) is not quoted


def test_a_quoted_request_asks_for_ids_and_says_so():
    """The prompt speaks of ids alone and holds the text once."""
    history: list[Request] = []
    people, edges = circle("Person", 6, "The keeper of the old lock opened every gate.")
    written(chancy(0, history), people, edges)
    whole = "\n".join(message.content for message in history[0].messages)

    assert whole.count("<text>\n") == 1
    assert not any(word in whole for word in ("JSON", "T, title", "Write in"))
