"""Starting and stopping a model server, with a small program in its place."""

import os
import signal
import socket
import subprocess
import sys
import textwrap

import pytest

from graphrag_local.engine.launch import VllmServer, card_gb, detect_device, vllm_flags
from graphrag_local.engine.models import ModelEntry, entry_of
from graphrag_local.errors import ModelMissing, NoEngine, UsageError
from graphrag_local.settings import EngineSettings, ServerSettings, Settings
from tests.engine.test_models import chat_folder
from tests.engine.tools import until
from tests.ports import free_port

# Answers /health after a moment, with a child of its own, whose number it prints; what it is told to do otherwise is in its second argument.
PROGRAM = """
import http.server, os, signal, subprocess, sys, time
port, mode = int(sys.argv[1]), sys.argv[2]
print("(APIServer pid=1) INFO 11-30 04:00:00 [utils.py:1] loading the weights", flush=True)
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"])
print("child", child.pid, flush=True)
if mode.startswith("fails"):
    print("Traceback (most recent call last):", flush=True)
    print('  File "engine.py", line 3, in start', flush=True)
    sys.exit(mode.partition(":")[2])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
if mode == "silent":
    time.sleep(600)
time.sleep(0.3)
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def entry(tmp_path):
    return entry_of(chat_folder(tmp_path / "my-model"))


@pytest.fixture
def server_of(tmp_path, entry, port):
    servers = []

    def make(mode, grace_s=5.0):
        command = [sys.executable, "-c", PROGRAM, str(port), mode]
        settings = Settings(server=ServerSettings(engine_port=port))
        servers.append(VllmServer(entry, settings, log=tmp_path / "run" / "vllm.log", command=command, grace_s=grace_s))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


def group_is_empty(leader):
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return True
    # Orphans that are dead but not yet collected by the first process do not count.
    done = subprocess.run(["ps", "-o", "stat=", "-g", str(leader)], capture_output=True, text=True, check=False)
    return all(state.startswith("Z") for state in done.stdout.split())


# --- life


def test_a_server_is_started_and_stopped(server_of, tmp_path):
    """Inside the context the server answers; afterwards none of its processes is left, its own children included."""
    lines = []

    with server_of("good").running(lines.append) as server:
        leader = server.pid
        assert server.url.endswith("/v1")
        assert not group_is_empty(leader)
        assert "child" in server.log_path.read_text()

    assert "ready after" in lines[-1]
    assert until(lambda: group_is_empty(leader))


def test_a_server_that_does_not_want_to_end_is_killed(server_of):
    """A server that ignores the polite signal is ended once the grace is over."""
    server = server_of("stubborn", grace_s=0.3)
    server.start()
    server.wait_ready(print)
    leader = server.pid

    server.stop()

    assert until(lambda: group_is_empty(leader))


def test_stopping_twice_or_before_the_start_does_nothing(server_of):
    """Stop can be called at any time."""
    server = server_of("good")
    server.stop()
    server.start()
    server.stop()
    server.stop()

    assert server.pid == 0


def test_the_server_dies_with_its_owner(tmp_path, port):
    """When the program that started it is killed outright, the server and its children are gone within a second or two."""
    owner = textwrap.dedent(f"""
        import os, signal, sys, time
        from pathlib import Path
        from graphrag_local.engine.launch import VllmServer
        from graphrag_local.engine.models import entry_of
        from graphrag_local.settings import ServerSettings, Settings
        entry = entry_of(Path({str(chat_folder(tmp_path / "my-model"))!r}))
        command = [sys.executable, "-c", {PROGRAM!r}, "{port}", "good"]
        server = VllmServer(entry, Settings(server=ServerSettings(engine_port={port})), log=Path({str(tmp_path / "log")!r}), command=command)
        server.start()
        server.wait_ready(lambda text: None)
        print(server.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)

    done = subprocess.run([sys.executable, "-c", owner], capture_output=True, text=True, check=False)

    assert done.returncode == -signal.SIGKILL, done.stderr
    assert until(lambda: group_is_empty(int(done.stdout)))


def test_waiting_ends_with_the_server(server_of):
    """Wait returns the exit code of a server that ends by itself."""
    server = server_of("fails:bye")
    server.start()

    assert server.wait() == 1


# --- what goes wrong


@pytest.mark.parametrize(
    ("last_words", "advice"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "smaller model"),
        ("ValueError: No available memory for the cache blocks.", "--max-model-len"),
        ("OSError: [Errno 98] Address already in use", "server.engine_port"),
        ("api_server.py: error: unrecognized arguments: --colour", "server.engine_args"),
        ("ValueError: Model architectures ['Odd'] are not supported for now.", "take another"),
        ("OSError: x does not appear to have a file named config.json", "models verify"),
        ("RuntimeError: something new", "The log says more"),
    ],
)
def test_a_start_that_fails_says_why_and_what_to_do(server_of, last_words, advice):
    """The error is the log's last error, the hint what helps and where the log is; the last lines are shown without frames and prefixes."""
    lines = []
    server = server_of(f"fails:{last_words}")

    with pytest.raises(NoEngine) as caught, server.running(lines.append):
        pass

    assert last_words in str(caught.value)
    assert "exit code 1" in str(caught.value)
    assert advice in caught.value.hint
    assert str(server.log_path) in caught.value.hint
    assert "  loading the weights" in lines
    assert not any("engine.py" in line or "Traceback" in line for line in lines)


def test_a_server_that_never_answers_is_given_up(server_of):
    """After the limit the server is ended, and the error says how long it had."""
    server = server_of("silent", grace_s=0.3)
    server.start()
    leader = server.pid

    with pytest.raises(NoEngine, match="did not answer within 1 s"):
        server.wait_ready(print, limit_s=1.0)

    assert until(lambda: group_is_empty(leader))


def test_a_port_that_is_taken_is_said_before_the_start(server_of, port):
    """The port is tried first; the error names the setting."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()

        with pytest.raises(UsageError, match=str(port)) as caught:
            server_of("good").start()

    assert "server.engine_port" in caught.value.hint


def test_a_model_that_is_not_here_is_not_served(tmp_path):
    """An entry without a folder gives the line that fetches it."""
    with pytest.raises(ModelMissing) as caught:
        VllmServer(ModelEntry(name="far", kind="chat", hub="a/far"), Settings(), log=tmp_path / "log")

    assert "models fetch far" in caught.value.hint


def test_the_server_is_kept_offline(server_of, tmp_path, entry, port):
    """The server program gets the switches that keep it off the network, whatever the user's environment says."""
    show = "import os, sys; sys.exit(' '.join(name + '=' + os.environ.get(name, '') for name in sys.argv[1:]))"
    names = ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"]
    settings = Settings(server=ServerSettings(engine_port=port))
    server = VllmServer(entry, settings, log=tmp_path / "log", command=[sys.executable, "-c", show, *names])
    server.start()
    server.wait()
    server.stop()

    assert " ".join(f"{name}=1" for name in names) in server.log_path.read_text()


# --- flags and devices


def test_flags_for_a_cpu(entry):
    """On a CPU: bfloat16, no compilation, a bounded window; on every device guidance, priorities, cache details and no foreign defaults."""
    flags = " ".join(vllm_flags(entry, Settings(server=ServerSettings(engine_port=9001)), "cpu", 0))

    for expected in (
        "--served-model-name my-model", "--host 127.0.0.1", "--port 9001", "--structured-outputs-config.backend guidance",
        "--structured-outputs-config.disable_any_whitespace true",
        "--enable-prompt-tokens-details", "--scheduling-policy priority", "--generation-config vllm", "--enforce-eager", "--dtype bfloat16",
        "--max-model-len 4096",
    ):  # fmt: skip
        assert expected in flags


def test_flags_for_a_gpu(entry):
    """On a GPU the catalogue's flags for the card are added, a set window goes before them, and the user's own flags come last."""
    known = entry.model_copy(update={"cards": {24: "--max-model-len 2048 --max-num-seqs 8"}})

    advised = vllm_flags(known, Settings(server=ServerSettings(engine_args=("--max-num-seqs", "4"))), "cuda", 24)
    chosen = vllm_flags(known, Settings(engine=EngineSettings(context_tokens=1024)), "cuda", 24)

    assert advised[-6:] == ["--max-model-len", "2048", "--max-num-seqs", "8", "--max-num-seqs", "4"]
    assert "--enforce-eager" not in advised
    assert [chosen[at + 1] for at, flag in enumerate(chosen) if flag == "--max-model-len"] == ["1024"]


def test_a_device_is_seen_by_its_files(tmp_path):
    """Device files tell; an empty list of visible devices hides the cards."""
    nothing = {"PATH": str(tmp_path)}
    (tmp_path / "dev").mkdir()
    assert detect_device(tmp_path, nothing) == "cpu"
    (tmp_path / "dev" / "kfd").touch()
    assert detect_device(tmp_path, nothing) == "rocm"
    (tmp_path / "dev" / "nvidia0").touch()
    assert detect_device(tmp_path, nothing) == "cuda"
    assert detect_device(tmp_path, nothing | {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "-1"}) == "cpu"


def test_the_smallest_card_counts(tmp_path, monkeypatch):
    """nvidia-smi tells the memory in MiB per card; without it the answer is 0."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 81559\necho 24564\n")
    tool.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    assert round(card_gb()) == 24
    monkeypatch.setenv("PATH", "/nowhere")
    assert card_gb() == 0
