"""What cannot be had is named, the rest is there, and the next run does what is left."""

import re

import pytest

from graphrag_local.engine.base import Reply, Request
from graphrag_local.errors import EngineHung, EngineRefused, EngineUnreachable, GraphragError
from graphrag_local.status import status_of
from tests.pipeline.running import index, opened, project_of, scribe, scripted, told_as

SIZES = ("chunks.min_tokens=20", "chunks.max_tokens=60")


def collection() -> dict[str, str]:
    """Three documents of several chunks; each names people of its own."""
    return {f"{name}.txt": told_as([(f"{name}{n}x", f"{name}{n + 1}x") for n in range(30)]) for name in ("Ann", "Bo", "Cy")}


def about(request: Request, name: str) -> bool:
    return request.purpose == "extract" and name in request.messages[-1].content


def spoiled(name: str, reply: str | Exception):
    """A model that reads everything but passages with this name."""

    def answering(request: Request) -> str | Reply:
        if about(request, name):
            if isinstance(reply, Exception):
                raise reply
            return reply
        return scribe(request)

    return answering


def names(project) -> set[str]:
    with opened(project) as stored:
        return {entity.name for entity in stored.entities()}


def extracts(engine) -> list[Request]:
    return [request for request in engine.history if request.purpose == "extract"]


def test_a_chunk_that_fails_is_named_and_the_rest_is_there(tmp_path):
    """An unreadable reply costs its own part of the text: path and chunk are told, every name outside that part is in the graph."""
    project = project_of(tmp_path, collection(), *SIZES)
    made = index(project, scripted(spoiled("Bo15x", "nonsense")))
    (failure,) = made.summary()["failures"]

    assert re.fullmatch(r"Bo\.txt, (part of )?chunk \d+", failure["input"])
    assert (failure["stage"], failure["retryable"]) == ("extraction", False)
    assert "could not be read" in failure["reason"]
    with opened(project) as stored:
        assert [row.reason for row in stored.failures()] == [failure["reason"]]
        (chunk,) = [chunk for chunk in stored.chunks() if "Bo15x" in chunk.text and "Bo16x" in chunk.text]
    everybody = {f"{name}{n}x" for name in ("Ann", "Bo", "Cy") for n in range(31)}
    assert everybody - names(project) <= set(re.findall(r"Bo\d+x", chunk.text))
    assert names(project) <= everybody


def test_a_failed_chunk_is_asked_again_only_when_told_to(tmp_path):
    """A reply that could not be used is not asked for again by itself; `--retry-failed` asks for that chunk alone, and heals it."""
    project = project_of(tmp_path, collection(), *SIZES)
    index(project, scripted(spoiled("Bo15x", "nonsense")))
    idle = scripted()
    again = index(project, idle)

    assert extracts(idle) == []
    assert len(again.summary()["failures"]) == 1
    healing = scripted()
    healed = index(project, healing, retry_failed=True)
    assert 1 <= len(extracts(healing)) <= 3
    assert all("Bo15x" in request.messages[-1].content for request in extracts(healing))
    assert healed.summary()["failures"] == []
    fresh = index(project_of(tmp_path / "fresh", collection(), *SIZES))
    assert healed.digest == fresh.digest


def test_a_hung_chunk_is_asked_again_by_the_next_run(tmp_path):
    """What failed on the server's side is retryable: the next run asks for it, and for nothing else, by itself."""
    project = project_of(tmp_path, collection(), *SIZES)
    made = index(project, scripted(spoiled("Cy7x", EngineHung("it never came back"))))

    assert made.summary()["failures"]
    assert all(failure["retryable"] for failure in made.summary()["failures"])
    engine = scripted()
    again = index(project, engine)
    assert again.summary()["failures"] == []
    assert 1 <= len(extracts(engine)) <= 2
    assert all("Cy7x" in request.messages[-1].content for request in extracts(engine))


def test_a_refused_chunk_leaves_the_others_alone(tmp_path):
    """A request that the server calls wrong is a failure of its chunk, with the server's words."""
    project = project_of(tmp_path, collection(), *SIZES)
    made = index(project, scripted(spoiled("Ann3x", EngineRefused("the server says no"))))

    assert {failure["reason"] for failure in made.summary()["failures"]} == {"the server says no"}
    assert {f"Cy{n}x" for n in range(31)} <= names(project)


@pytest.mark.parametrize("after", [0, 4])
def test_a_run_that_stopped_continues_where_it_stopped(tmp_path, after):
    """A server that goes away ends the run with its own error; what was paid for is not paid again."""
    project = project_of(tmp_path, collection(), *SIZES, "engine.concurrency=1")
    replies = 0

    def answering(request: Request) -> str | Reply:
        nonlocal replies
        replies += 1
        if replies > after:
            raise EngineUnreachable("away")
        return scribe(request)

    with pytest.raises(EngineUnreachable):
        index(project, scripted(answering))
    whole, rest = scripted(), scripted()
    fresh = index(project_of(tmp_path / "fresh", collection(), *SIZES), whole)
    made = index(project, rest)

    assert made.digest == fresh.digest
    assert len(rest.history) == len(whole.history) - after


def test_a_document_that_cannot_be_read_leaves_the_others_alone(tmp_path):
    """A broken file is a failure with its path; the other documents are indexed as if it were not there."""
    files = collection()
    project = project_of(tmp_path, files, *SIZES)
    (project.input_root / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing of a document")
    made = index(project)
    (failure,) = made.summary()["failures"]

    assert (failure["stage"], failure["input"]) == ("documents", "broken.pdf")
    assert names(project) == {f"{name}{n}x" for name in ("Ann", "Bo", "Cy") for n in range(31)}
    with opened(project) as stored:
        assert {document.path for document in stored.documents()} == set(files)


def test_a_document_that_becomes_unreadable_stays_as_it_was(tmp_path):
    """A file that is there but cannot be read any more keeps its place in the index, and the failure says so."""
    project = project_of(tmp_path, {**collection(), "notes.json": '[{"id": "1", "text": "Dee0x knows Dee1x (3)."}]'}, *SIZES)
    index(project)
    (project.input_root / "notes.json").write_bytes(b'[{"id": "1", "te')
    made = index(project)

    assert {"Dee0x", "Dee1x"} <= names(project)
    assert [failure["input"] for failure in made.summary()["failures"]] == ["notes.json"]
    assert made.built.changes.kept == ("notes.json#1",)


@pytest.mark.parametrize("name", ["C# and F#.txt", "a#1/notes.txt", "a.txt#1"])
def test_a_name_with_a_number_sign_is_a_name(tmp_path, name):
    """A file with `#` in its name or its folder's that cannot be read any more is kept like every other; one that is gone goes."""
    project = project_of(tmp_path, {**collection(), name: "Dee0x knows Dee1x (3)."}, *SIZES)
    index(project)
    (project.input_root / name).write_bytes(b"\0\1\2" * 50)
    made = index(project)

    assert {"Dee0x", "Dee1x"} <= names(project)
    assert made.built.changes.kept == (name,)
    assert [(f["input"], f["reason"].endswith("what was indexed of it before is kept")) for f in made.summary()["failures"]] == [(name, True)]
    (project.input_root / name).unlink()
    assert index(project).built.changes.gone == (name,)
    assert not {"Dee0x", "Dee1x"} & names(project)


def test_what_is_dropped_is_counted_with_its_reason(tmp_path):
    """What the model said and cannot be kept stands in `status` by stage and reason, and so do the chunks in which it found nothing, those that failed aside."""

    def answering(request: Request) -> str | Reply:
        if about(request, "Ann knows"):
            return "1\tAnn\tperson\t1\tOne.\n2\tBo\tperson\t1\tTwo.\n1-1\t5\t1\tSelf.\n1-9\t5\t1\tNobody.\n1-2\t5\t1\tMet.\n?\tN"
        if about(request, "Nothing"):
            return "?\tN"
        if about(request, "Spoiled"):
            return "nonsense"
        if request.purpose == "report":
            return "T\tThey\nS\tThey know.\nG\t5\tIt matters.\nF\tE1,E99\tThey meet.\tOften.\n"
        return scribe(request)

    project = project_of(tmp_path, {"a.txt": "Ann knows Bo well.", "b.txt": "Nothing is said here.", "c.txt": "Spoiled."})
    made = index(project, scripted(answering))
    expected = {"extraction": {"no such entity": 1, "self loop": 1}, "graph": {}, "reports": {"the id is not in the context": 1}}

    assert (made.built.dropped, made.built.empty_chunks) == (expected, 1)
    assert [status_of(project)[name] for name in ("dropped", "empty_chunks")] == [expected, 1]


def test_calls_are_counted_under_the_stage_that_makes_them(tmp_path):
    """A call about the names of a document is one of extraction, although it is no extraction; the stages add up to all."""
    project = project_of(tmp_path, {"a.txt": "Ann Moss knows Bo (3). Moss is here."})
    engine = scripted(lambda request: "1\tAnn Moss\tperson\t1\tx\n2\tMoss\tperson\t2\tx\n?\tN" if request.purpose == "extract" else scribe(request))
    build = index(project, engine).built.last_build

    assert [request.purpose for request in engine.history] == ["extract", "describe"]
    assert [stage for stage, row in build["by_stage"].items() for _ in range(row["calls"])] == ["extraction", "extraction"]
    assert build["calls"] == 2


@pytest.mark.parametrize("purpose", ["describe", "report"])
def test_what_fails_later_costs_its_own_record_only(tmp_path, purpose):
    """A description or report that cannot be had is named; nodes, edges and their weights are what they would have been."""

    def answering(request: Request) -> str | Reply:
        return "" if request.purpose == purpose else scribe(request)

    rules = (*SIZES, "describe.threshold_tokens=20", "describe.group_tokens=200")
    made = index(project_of(tmp_path, collection(), *rules), scripted(answering))
    fresh = index(project_of(tmp_path / "fresh", collection(), *rules))

    assert {failure["stage"] for failure in made.summary()["failures"]} >= ({"reports"} if purpose == "report" else {"graph"})
    ids = [{record.id for record in built.built.snapshot.entities} | {r.id for r in built.built.snapshot.relationships} for built in (made, fresh)]
    assert ids[0] == ids[1]
    assert sum(r.weight for r in made.built.snapshot.relationships) == sum(r.weight for r in fresh.built.snapshot.relationships)


def test_a_model_that_answers_nothing_does_not_replace_the_index(tmp_path):
    """Where every chunk fails and the index had entities, the run ends with an error, and the index answers as before."""
    project = project_of(tmp_path, collection(), *SIZES)
    index(project, scripted(scribe))
    before = names(project)
    other = project_of(tmp_path, collection(), *SIZES, "extraction.max_relationships=7")  # asks anew

    with pytest.raises(GraphragError, match=r"Nothing of \d+ chunks could be extracted .*; the index stays as it was"):
        index(other, scripted(lambda request: "nonsense"), yes=True)

    assert before
    assert names(other) == before
