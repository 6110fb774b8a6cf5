"""The whole product against a real vLLM server and a real, very small model: what must hold with any model, never what it says."""

import importlib.util
import json
import re

import pytest

from graphrag_local.engine.base import Grammar, Reply
from graphrag_local.store.reading import StoredIndex
from graphrag_local.text import one_line

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed (scripts/check.sh installs a build for CPUs)", allow_module_level=True)

from llguidance import LLMatcher, LLTokenizer

from tests.e2e.story import BEFORE_THE_KILL, COLLECTION, MODES, NEWS, NUMBERS, SCHEMA

pytestmark = pytest.mark.e2e


@pytest.fixture(name="index", scope="module")
def _index(story):
    index = StoredIndex.open(story.folder / "index")
    yield index
    index.close()


@pytest.fixture(name="texts", scope="module")
def _texts(index):
    """Texts of documents by id."""
    return {document.id: document.text for document in index.documents()}


# --- the index


def test_everything_is_indexed_although_the_server_died(story, index):
    """The server is killed in mid-index and comes back on its port; the run goes on by itself, and nothing failed for that."""
    assert BEFORE_THE_KILL <= story.replies_before_the_kill < len(story.rows)
    assert "Waiting for the model server" in story.first_said
    assert {document.path for document in index.documents()} >= {NUMBERS}
    assert story.first["counts"]["documents"] == len(index.documents()) == len(COLLECTION)
    assert story.first["published"]
    assert [failure for failure in story.first["failures"] if failure["retryable"]] == []


def test_every_chunk_is_read_or_named(story, index):
    """At least eight chunks hold all of the text; about each there is a good reply, or it is named among the failures."""
    chunks = index.chunks()
    read = {request.affinity for request, reply in story.used.values() if request.purpose == "extract" and isinstance(reply, Reply)}
    failed = {failure.input_id for failure in index.failures() if failure.stage == "extraction"}

    assert len(chunks) >= 8
    assert [chunk.id for chunk in chunks if chunk.id not in read | failed] == []
    assert read & {mention.chunk_id for mention in index.mentions()}
    for document in index.documents():
        own = sorted((chunk for chunk in chunks if chunk.document_id == document.id), key=lambda chunk: chunk.start)
        assert all(document.text[chunk.start : chunk.end] == chunk.text for chunk in own)
        assert "".join("".join(chunk.text for chunk in own).split()) == "".join(document.text.split())


def test_the_second_run_asks_nothing(story):
    """A run over an unchanged collection makes no model call and publishes nothing."""
    assert story.second["last_build"]["calls"] == story.second["last_build"]["completion_tokens"] == 0
    assert not story.second["published"]
    assert story.second["digest"] == story.first["digest"]
    assert story.second["failures"] == story.first["failures"]


def test_what_was_cut_off_is_named_and_not_asked_again(story):
    """Where every reply is cut off, each part of each chunk is named, and the next run asks nothing although none of them could be used."""
    first, second = story.cramped

    assert set(story.cramped_outcomes) <= {"cut_off", "loop"}
    assert story.cramped_outcomes.count("cut_off") >= first["counts"]["chunks"] >= 2
    assert first["counts"]["entities"] == 0
    assert len({failure["input"] for failure in first["failures"]}) >= first["counts"]["chunks"]
    assert second["last_build"]["calls"] == 0
    assert second["failures"] == first["failures"]
    assert second["digest"] == first["digest"]


# --- replies


def test_every_reply_that_was_used_is_a_sentence_of_its_grammar(story):
    """All replies in the ledger that count as good are what their constraint allows, checked here by a matcher of our own, byte by byte."""
    good = {key for key, row in story.rows.items() if row["outcome"] == "ok"}
    bytes_ = LLTokenizer("byte")

    assert good == {key for key, (_, reply) in story.used.items() if isinstance(reply, Reply)}
    for key in good:
        request, reply = story.used[key]
        assert isinstance(request.constraint, Grammar)
        without_counts = re.sub(r"\[max_tokens=\d+\]", "", request.constraint.lark)  # tokens of the model, not bytes
        matcher = LLMatcher(bytes_, LLMatcher.grammar_from_lark(without_counts))
        said = list(reply.text.encode())
        assert matcher.try_consume_tokens(said) == len(said), reply.text
        assert matcher.is_accepting(), reply.text


def test_every_reply_is_accounted_for(story):
    """A build from the ledger alone meets every reply that was paid for, the unusable ones too, and needs no other."""
    assert set(story.used) == set(story.rows)
    assert {key for key, (_, reply) in story.used.items() if not isinstance(reply, Reply)} == {key for key, row in story.rows.items() if row["outcome"] != "ok"}


def test_no_call_exceeds_its_budget(story):
    """Prompts and replies fit the model's window, and no reply is longer than asked."""
    for key, (request, _) in story.used.items():
        row = story.rows[key]
        assert 0 < row["completion_tokens"] <= request.max_tokens
        assert 0 < row["prompt_tokens"] <= story.window - request.max_tokens


def test_the_server_writes_compact_json(story):
    """A schema in the plain form brings JSON without white space, because the server is started so."""
    assert story.compact == json.dumps(json.loads(story.compact), separators=(",", ":"))
    assert set(json.loads(story.compact)) == set(SCHEMA["properties"])


# --- grounding


def test_every_name_is_a_span_of_its_chunk(index):
    """Each entity's name stands in the chunk that names it, letter by letter but for white space."""
    chunks = {chunk.id: chunk for chunk in index.chunks()}
    named = [mention for mention in index.mentions() if mention.owner_kind == "entity"]

    assert named
    for mention in named:
        assert mention.grounding == "anchored"
        assert one_line(mention.name) in one_line(chunks[mention.chunk_id].text)


def test_every_quote_is_the_documents_text_at_its_span(index, texts):
    """Each fact's description is made of the very words at its spans, which lie within its chunk."""
    chunks = {chunk.id: chunk for chunk in index.chunks()}

    for mention in index.mentions():
        chunk, text = chunks[mention.chunk_id], texts[mention.document_id]
        assert mention.spans
        assert all(chunk.start <= span.start < span.end <= chunk.end for span in mention.spans)
        assert mention.description == " ".join(one_line(text[span.start : span.end]) for span in mention.spans)


@pytest.mark.parametrize("mode", MODES)
def test_every_citation_opens_at_the_words_it_quotes(story, index, mode):
    """Answers of every mode have citations; each number stands in the text, and each source is the document's text at its span."""
    answer = story.answers[mode]
    by_path = {document.path: document.text for document in index.documents()}
    chunks = {chunk.id for chunk in index.chunks()}
    cited = {int(number) for number in re.findall(r"\[(\d+)\]", answer["answer"])}

    assert answer["answered"], answer
    assert answer["generation"] == index.generation == story.first["generation"]
    assert cited == {citation["n"] for citation in answer["citations"]} != set()
    for citation in answer["citations"]:
        assert citation["sources"]
        for source in citation["sources"]:
            assert source["quote"] == by_path[source["document"]][source["start"] : source["end"]] != ""
            assert source["chunk"] in chunks


# --- the next day


def test_an_edit_reaches_the_next_question(story):
    """A sentence added to one document costs the calls about its surroundings only, is found first, and every citation quotes the texts of now."""
    day = story.after_edit
    changes, hit = day["index"]["changes"], day["found"][0]

    assert (changes["edited"], changes["new"], changes["gone"]) == ([story.edited], [], [])
    assert 0 < day["index"]["last_build"]["by_stage"]["extraction"]["calls"] < story.first["last_build"]["by_stage"]["extraction"]["calls"] / 2
    assert NEWS in day["texts"][story.edited]
    assert hit["document"] == story.edited
    assert NEWS in day["texts"][story.edited][hit["start"] : hit["end"]]
    quotes_of_now(day)


def test_no_citation_points_to_a_deleted_document(story):
    """After a document went, no extraction is asked for, and nothing that is found or cited comes from it."""
    day = story.after_deletion
    cited = [source["document"] for answer in day["answers"].values() for one in answer["citations"] for source in one["sources"]]

    assert day["index"]["changes"]["gone"] == [story.deleted]
    assert day["index"]["last_build"]["by_stage"]["extraction"]["calls"] == 0
    assert story.deleted not in [*day["texts"], *cited, *(hit["document"] for hit in day["found"])]
    quotes_of_now(day)


def quotes_of_now(day):
    """Every answer of a day comes from its generation, and each source is the present text at its span."""
    for answer in day["answers"].values():
        assert answer["generation"] == day["index"]["generation"]
        for citation in answer["citations"]:
            for source in citation["sources"]:
                assert source["quote"] == day["texts"][source["document"]][source["start"] : source["end"]] != ""


# --- processes


def test_nothing_is_left_running(story):
    """Neither a killed server nor one that Ctrl-C stops leaves a process, and the stopped one takes its announcement away."""
    assert story.left_after_the_kill == []
    assert story.left_at_the_end == []
    assert story.serve_code == 0
    assert not story.announced_at_the_end
