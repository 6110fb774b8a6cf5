"""The other doors of the service: answers without a model, ranked records, reports by rating."""

import httpx
import pytest
from fastapi.testclient import TestClient

from graphrag_local.project import open_project
from graphrag_local.server.app import create_app
from tests.cli.shell import _alone, project, sh  # noqa: F401
from tests.cli.test_show import opens, texts

ASKED = {"question": "Who asked for a lamp?", "mode": "basic"}


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory):
    """An indexed project; its model server is gone."""
    folder = tmp_path_factory.mktemp("doors") / "town"
    with project(folder):
        assert sh(f"graphrag-local index {folder}").code == 0
    return folder


@pytest.fixture(name="post")
def _post(folder):
    """Asks a service without a model server: path and body."""
    project = open_project(folder, ("engine.url=http://127.0.0.1:9/v1", "vectors.kind=none"))
    with TestClient(create_app(project), base_url="http://127.0.0.1") as client:
        yield lambda path, **body: client.post(path, json={**ASKED, **body})


def test_an_answer_without_a_model(folder, post):
    """`no_model` gives the briefing that the command line gives, and its citations open; no server is needed."""
    reply: httpx.Response = post("/v1/query", no_model=True)
    answer, documents = reply.json(), texts(folder)
    there = sh(f"graphrag-local query '{ASKED['question']}' {folder} --no-model --mode basic --json").json

    assert reply.status_code == 200
    assert answer["citations"]
    assert all(opens(source, documents) for citation in answer["citations"] for source in citation["sources"])
    assert {key: value for key, value in answer.items() if key != "usage"} == {key: value for key, value in there.items() if key != "usage"}


@pytest.mark.parametrize("wish", [{"stream": True}, {"strict": True}, {"dynamic": True}, {"history": [{"question": "And?", "answer": "No."}]}])
def test_wishes_that_take_a_model_do_not_go_without(post, wish):
    """What only a model can do is refused together with `no_model`, by name."""
    reply = post("/v1/query", no_model=True, **wish)

    assert reply.status_code == 400
    assert next(iter(wish)) in reply.json()["error"]["message"]


def test_ranked_records(folder, post):
    """`/v1/retrieve` gives what `--retrieve-only` prints, best first, as many as asked for."""
    reply = post("/v1/retrieve", k=2)
    there = sh(f"graphrag-local query '{ASKED['question']}' {folder} --retrieve-only -k 2 --mode basic --json --set vectors.kind=none").json

    assert reply.json() == there
    assert 1 <= len(there) <= 2


@pytest.mark.parametrize(("body", "status", "said"), [({"k": 0}, 422, '"k"'), ({"strict": True}, 422, '"k"'), ({"mode": "odd"}, 400, "Modes:")])
def test_bad_requests_for_records(post, body, status, said):
    """A body that is none says what it may hold; an unknown mode which ones there are."""
    reply = post("/v1/retrieve", **body)

    assert reply.status_code == status
    assert said in reply.json()["error"]["hint"]


def test_reports_by_rating(folder):
    """`dynamic` has reports rated before they are read, as `--dynamic` does; it holds for one question."""
    asked = {"question": "What are the main themes?"}
    with project(folder), TestClient(create_app(open_project(folder)), base_url="http://127.0.0.1") as client:
        rated, whole = client.post("/v1/query", json={**asked, "dynamic": True}).json(), client.post("/v1/query", json=asked).json()

    assert (whole["mode"], rated["mode"]) == ("global", "global")
    assert any("rated" in note for note in rated["notes"])
    assert not any("rated" in note for note in whole["notes"])
