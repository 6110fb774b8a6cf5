"""Nothing but loopback: a process whose every connection and name look-up is written down indexes and answers."""

import importlib.util
import json
import subprocess
import sys

import pytest

from tests.cli.shell import environment, project, put

# Runs command lines in one process, whose socket calls and the state of the libraries it prints at the end.
WATCHED = """
import json, os, shlex, sys
seen = []
def watch(event, args):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname", "socket.bind"):
        seen.append([event, repr(args[1] if event in ("socket.connect", "socket.sendto", "socket.bind") else args[0])])
sys.addaudithook(watch)
from graphrag_local.cli import main as door
codes = []
for line in sys.argv[1:]:
    sys.argv = shlex.split(line)
    try:
        door.main()
        codes.append(0)
    except SystemExit as end:
        codes.append(end.code)
state = {"seen": seen, "codes": codes, "hub": os.environ.get("HF_HUB_OFFLINE", ""), "torch": "torch" in sys.modules}
print("\\n" + json.dumps(state), file=sys.stderr)
"""
LOOPBACK = ("'127.0.0.1'", "('127.0.0.1',", "'localhost'", "'::1'", "('::1',")


def watched(tmp_path, *lines: str) -> dict:
    """What a process with an empty home and no settings of libraries did while it ran these command lines."""
    home = tmp_path / "home"
    home.mkdir()
    env = {key: value for key, value in environment(HOME=str(home)).items() if not key.startswith(("HF_", "TRANSFORMERS_", "XDG_", "TIKTOKEN", "VLLM"))}
    done = subprocess.run([sys.executable, "-c", WATCHED, *lines], capture_output=True, text=True, env=env, check=True, timeout=900)
    return {**json.loads(done.stderr.splitlines()[-1]), "said": done.stderr, "out": done.stdout}


def test_a_run_with_a_model_server_opens_nothing_but_loopback(tmp_path):
    """Index, questions in every mode, status, doctor: the only addresses are those of the model server."""
    with project(tmp_path):
        questions = [f"graphrag-local query 'Who asked for a lamp?' {tmp_path} --mode {mode}" for mode in ("global", "source", "basic")]
        state = watched(tmp_path, f"graphrag-local index {tmp_path} --set vectors.kind=auto", *questions, f"graphrag-local doctor {tmp_path}")

    assert state["codes"] == [0] * 5, state["said"]
    assert any(event == "socket.connect" for event, _ in state["seen"])
    assert [(event, address) for event, address in state["seen"] if not address.startswith(LOOPBACK)] == []


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the extra `embedded` is not installed")
def test_a_run_with_the_model_in_this_process_opens_nothing_at_all(tmp_path):
    """Index and question with a tiny model in the process, empty caches and no settings: no socket, no name look-up; libraries are told to stay off."""
    from tests.engine.tinymodel import make_chat_model

    model = make_chat_model(tmp_path / "tiny")
    put(tmp_path, {"a.txt": "Mira Holt asked the Harbour Board for a lamp.\n"})
    (tmp_path / "graphrag.toml").write_text(
        f'preset = "demo"\n[engine]\nkind = "embedded"\nmodel = "{model}"\n[extraction]\nmax_reply_tokens = 48\n[reports]\nmax_reply_tokens = 48\n'
        "[query]\nmap_reply_tokens = 32\nreply_tokens = 32\n[vectors]\nkind = \"auto\"\n", encoding="utf-8",
    )  # fmt: skip
    state = watched(tmp_path, f"graphrag-local index {tmp_path}", f"graphrag-local query 'Who asked for a lamp?' {tmp_path} --mode basic")

    assert state["codes"][0] in (0, 3), state["said"]
    assert state["codes"][1] == 0, state["said"]
    assert state["torch"]
    assert state["hub"] == "1"
    assert [event for event, address in state["seen"] if event != "socket.bind" or not address.startswith(LOOPBACK)] == []  # urllib3 tries ::1
