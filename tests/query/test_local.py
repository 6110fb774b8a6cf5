"""Local search: what is linked, what its window holds in which shares, and what it does where nothing is linked."""

import asyncio
import itertools
import math
import re

import pytest

from graphrag_local import ids
from graphrag_local.engine.base import Reply
from graphrag_local.errors import ContextOverflow
from graphrag_local.prompting import load_all
from graphrag_local.query.ask import ask, retrieve
from graphrag_local.query.neighbourhood import evidence as window_of
from graphrag_local.query.neighbourhood import named_entities, neighbourhood
from graphrag_local.query.retrieve import rank_chunks
from graphrag_local.query.view import view_of
from graphrag_local.records import Claim, Community, Entity, Mention, Relationship, Span
from graphrag_local.settings import QuerySettings
from graphrag_local.text import name_key
from tests.fakes import model_of
from tests.query.test_linking import collection
from tests.query.world import NoEmbedder, Reader, WordEmbedder, evidence, report_of, text_index

PROMPTS = load_all()
PEOPLE = {
    "Ottilie Brandt": "Ottilie Brandt kept the lighthouse for thirty years. She was married to Karl Vessel. Her sister kept goats.",
    "Karl Vessel": "Karl Vessel painted ships. He came from Tarnholm and never learned to swim.",
    "Tarnholm": "Tarnholm lives on herring. Its harbour freezes in winter.",
    "Nils Aho": "Nils Aho feeds the carp with reed. He has a barge.",
}
NOISE = {f"Bank {n}": f"Bank {n} of the east side pays the husband of a clerk, who was born in a town, and it is number {n}." for n in range(40)}
QUESTION = "In which town was the husband of Ottilie Brandt born?"


class Quarters:
    """A tokenizer of four characters a token."""

    name = "four characters"
    exact = True

    def count(self, text):
        return math.ceil(len(text) / 4)


def village(*, long=1, embedded=True, reported=True):
    """People and places as entities with edges, a claim, and two communities with reports; `long` repeats the prose of each passage."""
    texts = {title: f"{text} " * (long - 1) + text for title, text in {**PEOPLE, **NOISE}.items()}
    index = collection(texts)
    chunks = {chunk.text: chunk for chunk in index.chunks()}
    entity = {name: ids.entity_id(name_key(name)) for name in PEOPLE}
    mentions = []

    def mention(owner, kind, title, name):
        chunk = chunks[texts[title]]
        at = chunk.text.index(name)
        mentions.append(Mention(
            id=ids.digest_of(owner, title), owner_id=owner, owner_kind=kind, chunk_id=chunk.id, document_id=chunk.document_id, number=0, name=name,
            type="", description="", strength=1.0, spans=(Span(start=at, end=at + len(name)),), grounding="anchored",
        ))  # fmt: skip

    edges = []
    for a, b, weight in (("Ottilie Brandt", "Karl Vessel", 3.0), ("Karl Vessel", "Tarnholm", 2.0), ("Nils Aho", "Tarnholm", 9.0)):
        owner, (source, target) = ids.relationship_id(entity[a], entity[b]), sorted((entity[a], entity[b]))
        said = f"{a} has to do with {b}."
        edges.append(Relationship(id=owner, source_id=source, target_id=target, description=said, weight=weight, mentions=1))
        mention(owner, "relationship", a, a)
    for name in PEOPLE:
        mention(entity[name], "entity", name, name)
    claim = Claim(
        id="claim1", subject_id=entity["Karl Vessel"], object_id="", type="HABIT", status="TRUE", period="NA", description="Karl Vessel never swam.",
        chunk_id=chunks[texts["Karl Vessel"]].id, document_id=chunks[texts["Karl Vessel"]].document_id,
    )  # fmt: skip
    mention("claim1", "claim", "Karl Vessel", "Karl Vessel")
    groups = [("Ottilie Brandt", "Karl Vessel"), ("Tarnholm", "Nils Aho")]
    communities, reports = [], []
    for group in groups:
        members = tuple(sorted(entity[name] for name in group))
        owner = ids.community_id(0, members)
        communities.append(Community(id=owner, first_level=0, last_level=0, parent_id="", child_ids=(), member_ids=members))
        reports.append(report_of(owner, f"{group[0]} and others", [(f"{name} is told of.", PEOPLE[name], (entity[name],)) for name in group]))
    rows = [
        Entity(id=entity[name], key=name_key(name), name=name, type="thing", types=("thing",), aliases=(), description=text, mentions=1)
        for name, text in PEOPLE.items()
    ]
    index.rows |= {"entities": rows, "relationships": edges, "mentions": mentions, "claims": [claim], "communities": communities}
    index.rows["reports"] = reports if reported else []
    if embedded:
        index.vectors["chunk"] = {chunk.id: WordEmbedder().vector(chunk.text) for chunk in index.chunks()}
        index.vectors["entity"] = {row.id: WordEmbedder().vector(f"{row.name} {row.description}") for row in rows}
    return index


def local(index, *, question=QUESTION, mode="local", answer=None, form="grammar", window=32_000, tiny=False, embedder=None, history=None, **options):
    model = model_of(answer or Reader(form=form), form=form, window=window, tiny=tiny, counter=Quarters(), history=history)
    settings = QuerySettings(**{"support": "off", **options})
    return asyncio.run(ask(question, index, model, embedder or WordEmbedder(), PROMPTS, settings, mode=mode, level=None))


def near(index, question=QUESTION, embedder=None, **options):
    async def work():
        view, settings, vectors = view_of(index), QuerySettings(**options), embedder or WordEmbedder()
        ranked = await rank_chunks(question, view, vectors, settings.top_chunks)
        return await neighbourhood(question, ranked, view, vectors, settings)

    return asyncio.run(work())


def shown(request, letter):
    return [text for short, text in evidence(request).items() if short.startswith(letter)]


@pytest.mark.parametrize("embedder", [WordEmbedder(), NoEmbedder()])
@pytest.mark.parametrize("form", ["grammar", "schema"])
def test_one_call_over_reports_graph_and_passages(form, embedder):
    """One call is shown records of each kind; the entity that the question names comes first; all citations are of the window."""
    history = []
    done = local(village(), form=form, embedder=embedder, history=history)

    assert len(history) == done.usage.calls == 1
    assert all(shown(history[0], letter) for letter in "REKDC")
    assert shown(history[0], "E")[0].startswith("Ottilie Brandt (thing)")
    assert done.answered
    assert done.citations
    assert all(citation.sources for citation in done.citations)
    assert any(note.startswith("Linked to the question: Ottilie Brandt") and "(by name)" in note for note in done.notes)
    assert any("words alone" in note for note in done.notes) == (embedder.card.dimension == 0)


@pytest.mark.parametrize(("window", "long"), [(1500, 1), (2000, 1), (2000, 12), (8000, 12), (32_000, 12)])
def test_the_second_passage_is_in_the_window_whatever_its_size(window, long):
    """The passage that has the answer, which shares no word with the question, is read; prompt and reply fit the model, the window its budget."""
    history = []
    local(village(long=long), window=window, history=history, local_reports=0, local_graph=0)

    assert any("Tarnholm" in text for text in shown(history[0], "C"))
    assert sum(Quarters().count(message.content) + 10 for message in history[0].messages) + 16 + history[0].max_tokens <= window


@pytest.mark.parametrize("budget", [300, 800, 3000, 8000])
def test_shares_are_kept_and_what_one_leaves_goes_to_the_others(budget):
    """Where there is too much of everything each part has about its share; where the graph is small, passages have what it leaves."""
    index = village(long=40)
    long_reports = [
        report_of(report.community_id, report.title, [(f"Finding {n}", "It is told at length and in detail. " * 5, report.findings[0].sources) for n in range(40)])
        for report in index.reports()
    ]
    index.rows["reports"] = long_reports
    index.rows["entities"] = [Entity(**{**{f: getattr(e, f) for f in e.__slots__}, "description": e.description * 30}) for e in index.entities()]
    found = near(index)

    def tokens(**options):
        done = window_of(found, QUESTION, view_of(index), QuerySettings(**options), budget, Quarters(), whole=False)
        assert done.window.tokens <= budget
        parts = dict.fromkeys("REKDC", 0)
        for line in done.window.text.split("\n"):
            if match := re.match(r"([REKDC])\d+ ", line):
                parts[match.group(1)] += Quarters().count(line)
        return parts, done

    parts, done = tokens(local_graph=0.3)
    graph = parts["E"] + parts["K"] + parts["D"]
    assert parts["C"] >= 0.3 * budget
    if budget >= 3000:
        assert 0.05 * budget <= parts["R"] <= 0.25 * budget
        assert graph >= 0.15 * budget
    assert re.fullmatch(r"No room for .*\d+ passages?\.", done.note)
    only, _ = tokens(local_reports=0, local_graph=0)
    assert only["C"] >= parts["C"]


def test_a_part_that_is_missing_leaves_its_room():
    """Without reports and with little graph nearly the whole window is passages."""
    index = village(long=30, reported=False)
    done = window_of(near(index), QUESTION, view_of(index), QuerySettings(), 2000, Quarters(), whole=False)

    assert not any(ref.kind == "report" for ref in done.window.ids.values())
    assert done.window.tokens > 1700


def test_relationships_between_linked_entities_come_first():
    """Both ends linked goes before weight; the heavier edge leads out."""
    index = village()
    view = view_of(index)
    edges = map(view.relationships.__getitem__, near(index, "Were Ottilie Brandt and Karl Vessel married?", local_entities=2).edges)
    names = [{view.entities[end].name for end in (edge.source_id, edge.target_id)} for edge in edges]

    assert names[0] == {"Ottilie Brandt", "Karl Vessel"}
    assert {"Nils Aho", "Tarnholm"} not in names


@pytest.mark.parametrize("question", ["Wer ist Ottilie Brandt?", "奥蒂莉 Ottilie Brandt 是谁?", "who is ottilie brandt", "Who is Ottilie Brand?"])
def test_names_are_linked_in_any_question(question):
    """Names are found whatever the language and case of the question, and with a misspelling."""
    index = village()

    assert view_of(index).entities[named_entities(question, view_of(index))[0][0]].name == "Ottilie Brandt"


def test_without_entities_it_reads_as_basic_does():
    """An index of text alone: the prompt is that of `basic`, and a note says why."""
    index, one, two = text_index(**{f"t{n}": f"The mole number {n} was paid by the board." for n in range(5)}), [], []
    done = local(index, question="Who paid for the mole?", history=one)
    local(index, question="Who paid for the mole?", mode="basic", history=two)

    assert one[0].messages == two[0].messages
    assert any("No entity" in note for note in done.notes)


def test_a_tiny_model_chooses_what_is_quoted():
    """A model too small to write gets ids to choose from, and what it chooses is quoted as it stands."""
    history = []

    def choose(request):
        return "Y\n" + "".join(f"{short}\n" for short in itertools.islice(re.findall(r'p\d+: "([A-Z]\d+)', request.constraint.lark), 3))

    index = village()
    done = local(index, tiny=True, answer=choose, history=history)

    assert len(history) == 1
    texts = [document.text for document in index.documents()]
    assert done.sentences
    assert all(any(sentence.text in text for text in texts) for sentence in done.sentences)


def test_a_window_that_the_server_refuses_is_made_smaller_once():
    """A server that counts more than we do is asked again with a quarter less."""
    history = []

    def answer(request):
        if len(history) == 1:
            raise ContextOverflow("too long", window=8000)
        return Reader()(request)

    assert local(village(long=20), window=8000, answer=answer, history=history).answered
    assert len(history[1].messages[-1].content) < len(history[0].messages[-1].content)


def test_a_refusal_is_no_answer():
    """The model's own N, and a citation of what it was not given, answer nothing."""
    assert not local(village(), answer=lambda request: "N").answered
    assert not local(village(), answer=lambda request: "Y\nIn Tarnholm.\tC999\n").answered


def test_the_order_of_rows_does_not_matter():
    """Two indexes of the same records in another order give the same prompt."""
    one, two = [], []
    local(village(), history=one)
    local(village().shuffled(3), history=two)

    assert one[0].messages == two[0].messages


def test_hits_are_what_it_reads():
    """Records of several kinds, each with a place, two passages before each other one; scores fall; no model is asked."""
    index = village()
    hits = asyncio.run(retrieve(QUESTION, index, WordEmbedder(), QuerySettings(), "local", None, 9))

    assert [hit.kind for hit in hits[:3]] == ["chunk", "chunk", "entity"]
    assert {hit.kind for hit in hits} == {"chunk", "entity", "relationship", "report"}
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len({hit.id for hit in hits}) == 9


def test_documents_of_a_request_are_those_of_its_text():
    """What a prompt shows is what a forgotten document takes with it."""
    history = []
    index = village()
    local(index, history=history, local_tokens=700, top_chunks=2)
    titles = {document.title: document.id for document in index.documents()}
    asked = history[0].messages[-1].content

    assert {titles[f"Bank {n}"] for n in range(40) if f": Bank {n}\n" in asked} <= set(history[0].documents)
    assert len(history[0].documents) < len(titles)


def test_replies_are_asked_again_before_they_fail():
    """A reply that cannot be used is asked for once more; the second counts."""
    said = iter(["nonsense", "Y\nIn Tarnholm.\tC1\n"])
    done = local(village(), answer=lambda request: Reply(text=next(said), finish_reason="stop"))

    assert done.answered
    assert done.usage.calls == 2
