"""`serve` as people run it: one process beside a model server that runs already, asked over HTTP, and stopped."""

import json
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.cli.shell import FILES, SCRIPT, _alone, descendants, ended, project, put, runs, sh, start, until  # noqa: F401
from tests.cli.test_query import ANSWER
from tests.cli.test_show import opens, texts
from tests.engine.test_models import chat_folder
from tests.modelserver import ModelServer
from tests.ports import free_port

BODY = {"question": "Who asked for a lamp?"}
LONG_S = 300  # nothing takes so long, on any machine


@dataclass
class Service:
    """A running `serve`."""

    folder: Path
    process: subprocess.Popen[str]
    url: str
    models: ModelServer
    first_ready: httpx.Response
    first_answer: httpx.Response

    def post(self, body: object, **headers: str) -> httpx.Response:
        """One question; a string is sent as it is."""
        content = body if isinstance(body, str) else json.dumps(body)
        return httpx.post(f"{self.url}/v1/query", content=content, headers={"Content-Type": "application/json", **headers}, timeout=LONG_S, trust_env=False)

    def get(self, path: str, **headers: str) -> httpx.Response:
        """One page."""
        return httpx.get(f"{self.url}{path}", headers=headers, timeout=LONG_S, trust_env=False)

    def ready(self) -> httpx.Response:
        """What `/readyz` says once the model server has answered it, for which it leaves three seconds only."""
        return until(lambda: (reply := self.get("/readyz")).json()["model"] == "ok" and reply)


@pytest.fixture(scope="module", name="service")
def _service(tmp_path_factory):
    """A service that was started before there was an index, which was built while it ran."""
    folder, port = tmp_path_factory.mktemp("serve") / "town", free_port()
    with project(folder) as models:
        process = start(f"graphrag-local serve {folder} --engine-url {models.url} --set server.port={port} --json")
        url = f"http://127.0.0.1:{port}"
        try:
            until(lambda: process.poll() is not None or _alive(url))
            service = Service(folder, process, url, models, httpx.Response(0), httpx.Response(0))
            service.first_ready, service.first_answer = service.ready(), service.post(BODY)
            assert sh(f"graphrag-local index {folder}").code == 0
            yield service
        finally:
            process.kill()
            process.communicate()


def _alive(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=LONG_S, trust_env=False).json() == {"status": "alive"}
    except httpx.TransportError:
        return False


def test_without_an_index_the_service_is_alive_but_not_ready(service):
    """Before the first index `/readyz` is 503 with the reason and what to do, and a question gets the same."""
    assert service.first_ready.status_code == service.first_answer.status_code == 503
    assert service.first_ready.json()["index"].startswith("There is no finished index in ")
    assert f"graphrag-local index {service.folder}" in service.first_ready.json()["index"]
    assert service.first_ready.json()["model"] == "ok"
    assert service.first_answer.json()["error"]["hint"] == f"Build it: graphrag-local index {service.folder}"


def test_an_answer_is_the_same_object_as_on_the_command_line(service):
    """`POST /v1/query` gives the answer object with citations that open; once there is an index the service is ready without a restart."""
    reply, documents = service.post(BODY), texts(service.folder)
    answer = reply.json()

    assert service.ready().json() == {"index": "ok", "model": "ok"}
    assert reply.status_code == 200
    assert set(answer) == ANSWER
    assert answer["citations"]
    for citation in answer["citations"]:
        assert all(opens(source, documents) for source in citation["sources"])
    there = sh(f"graphrag-local query '{BODY['question']}' {service.folder} --json").json
    assert {key: answer[key] for key in ("answer", "citations", "generation")} == {key: there[key] for key in ("answer", "citations", "generation")}


def test_a_new_generation_is_picked_up(service):
    """After an `index` beside the running service the next answer is from the new generation."""
    before = service.post(BODY).json()["generation"]
    put(service.folder, {"later.txt": "Ada Brandt gave Tallow Bridge back to the Harbour Board.\n"})

    published = sh(f"graphrag-local index {service.folder} --json").json

    assert published["published"]
    assert service.post(BODY).json()["generation"] == published["generation"] != before


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ('{"question":', 422, "JSON"),
        ("{}", 422, "question: Field required"),
        ("[]", 422, "The body is not a question"),
        ({"question": ""}, 422, "question: String should have at least 1 character"),
        ({"question": "Who?", "level": "root"}, 422, "level: "),
        ({"question": "Who?", "levl": 1}, 422, "levl: "),
        ({"question": " ?! "}, 400, "The question is empty."),
        ({"question": "Who?", "mode": "nosuch"}, 400, "There is no mode 'nosuch'."),
        ({"question": "Who?", "history": "x"}, 422, "history: "),
        ({"question": "Who?", "history": [{"answer": "Ada."}]}, 400, "entry 1 is not as it must be"),
        ({"question": "Who?", "level": 9}, 400, "There is no community level 9"),
        ({"question": "x" * 300_000}, 413, "at most 262144 bytes"),
    ],
)
def test_a_wrong_body_gets_a_sentence(service, body, status, said):
    """What is wrong with a request is said in JSON, with what to do; no model is asked."""
    before = len(service.models.requests("answer"))
    reply = service.post(body)

    assert reply.status_code == status
    assert said in reply.json()["error"]["message"]
    assert reply.json()["error"]["hint"]
    assert len(service.models.requests("answer")) == before


def test_a_conversation_is_read(service):
    """Earlier turns in the body cost the call that makes the question stand on its own; the answer is the same kind of object."""
    plain = service.post(BODY).json()
    later = service.post({**BODY, "history": [{"question": "What is Tallow Bridge?", "answer": "A bridge [1]."}]}).json()

    assert set(later) == set(plain)
    assert later["usage"]["calls"] > plain["usage"]["calls"]
    assert later["citations"]


def test_what_is_not_a_question_of_this_machine_is_refused(service):
    """Forms of other sites, other host names, other paths and other methods get an error object of their own."""
    refused = {
        415: httpx.post(f"{service.url}/v1/query", data={"question": "Who?"}, timeout=LONG_S, trust_env=False),
        421: service.get("/readyz", Host="elsewhere.example"),
        404: service.get("/v1/answers"),
        405: service.get("/v1/query"),
    }

    assert {status: reply.status_code for status, reply in refused.items()} == {status: status for status in refused}
    assert all(reply.json()["error"]["message"] and reply.json()["error"]["hint"] for reply in refused.values())


def test_a_model_server_that_is_away_makes_the_service_unready(tmp_path):
    """With nobody at the model server's address the service starts, answers `/readyz` soon with the reason, and stops on a signal with 0."""
    port = free_port()
    put(tmp_path, FILES)
    process = start(f"graphrag-local serve {tmp_path} --engine-url http://127.0.0.1:9/v1 --set server.port={port}")
    try:
        until(lambda: process.poll() is not None or _alive(f"http://127.0.0.1:{port}"))
        reply = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=LONG_S, trust_env=False)
        process.send_signal(signal.SIGTERM)
        out, err = ended(process)
    finally:
        process.kill()

    assert reply.status_code == 503
    assert "model server" in reply.json()["model"]
    assert (process.returncode, out) == (0, "")
    assert err.splitlines()[-1] == "Stopped."


def test_a_port_in_use_is_said_before_anything_starts(service):
    """A second service on the same port ends with a sentence and 2, and leaves the announcement of the first one alone."""
    announcement = service.folder / "index" / "run" / "serve.json"
    before = announcement.read_text(encoding="utf-8")

    done = sh(f"graphrag-local serve {service.folder} --engine-url {service.models.url} --set server.port={service.url.rpartition(':')[2]}")

    assert done.code == 2
    assert "cannot be used for the HTTP service: Address already in use." in done.err
    assert "server.port" in done.err
    assert announcement.read_text(encoding="utf-8") == before


def test_ctrl_c_ends_it_also_while_a_question_is_answered(service):
    """It ends within seconds with 0, also with a question in progress; the announcement goes, no process of it is left; `--json` told where to ask."""
    service.models.set_script({**SCRIPT, "rules": [{"on": "answer", "do": {"hold": True}}]})
    asked = len(service.models.requests("answer"))
    with socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2]))) as client:
        content = json.dumps(BODY)
        head = f"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        client.sendall(f"{head}{content}".encode())
        until(lambda: len(service.models.requests("answer")) > asked)
        family = descendants(service.process.pid)
        service.process.send_signal(signal.SIGINT)
        out, err = ended(service.process)

    assert service.process.returncode == 0, err
    assert json.loads(out) == {"engine": service.models.url, "query": f"{service.url}/v1/query"}
    assert err.splitlines()[0].startswith(f"Ask at {service.url}/v1/query (model server: {service.models.url}).")
    assert err.splitlines()[-1] == "Stopped."
    assert "Traceback" not in err
    assert [pid for pid in family if runs(pid)] == []
    assert not (service.folder / "index" / "run" / "serve.json").exists()


# --- starting a model server


def vllm_that_fails(folder: Path) -> Path:
    """A package `vllm` whose server says why it cannot start, and ends with 1."""
    package = folder / "vllm"
    for module in ("entrypoints/openai/api_server.py", "entrypoints/cli/main.py"):
        file = package / module
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("def main():\n    raise ValueError('No available memory for the cache blocks')\nmain()\n", encoding="utf-8")
    for inner in (package, *filter(Path.is_dir, package.rglob("*"))):
        (inner / "__init__.py").write_text("", encoding="utf-8")
    return folder


def test_a_model_server_that_does_not_start_says_why(tmp_path):
    """What the engine said is shown with advice and the place of the log; the exit code is 1 and nothing is left running."""
    put(tmp_path, FILES)
    model = chat_folder(tmp_path / "my-model")
    fake = vllm_that_fails(tmp_path / "fake")
    process = start(
        f"graphrag-local serve {tmp_path} --set engine.model={model} --set server.engine_port={free_port()} --set server.port={free_port()}",
        env={"PYTHONPATH": f"{fake}:{Path(__file__).parents[2]}"},
    )
    _, err = ended(process, LONG_S)

    assert process.returncode == 1, err
    assert "graphrag-local: The model server ended while it was starting (exit code 1): ValueError: No available memory for the cache blocks" in err
    assert "It does not fit into memory: take a smaller model" in err
    assert f"Log: {tmp_path / 'index' / 'run' / 'vllm.log'}" in err
    assert not (tmp_path / "index" / "run" / "serve.json").exists()


def test_a_model_that_is_not_here_is_not_served(tmp_path):
    """A wrong name is said with the names there are, before any port is announced."""
    put(tmp_path, FILES)

    done = sh(f"graphrag-local serve {tmp_path} --set engine.model=my-own --set server.port={free_port()}")

    assert done.code == 1
    assert "There is no model 'my-own' in" in done.err
    assert "take one of: smollm2-135m-instruct" in done.err
    assert not (tmp_path / "index" / "run" / "serve.json").exists()
