"""What can be checked of the container files without a Docker engine."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

from graphrag_local.engine.launch import vllm_flags
from graphrag_local.engine.models import ModelEntry
from graphrag_local.settings import Settings

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()


def test_every_service_is_health_checked():
    """The model server has a health check and the application waits for it; the image checks itself."""
    assert "healthcheck" in COMPOSE["services"]["vllm"]
    assert COMPOSE["services"]["app"]["depends_on"] == {"vllm": {"condition": "service_healthy"}}
    assert "HEALTHCHECK" in DOCKERFILE


def test_ports_are_bound_to_loopback():
    """No service is published on another address."""
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]

    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_model_server_has_no_way_out():
    """vLLM sits on an internal network only and is told to stay offline."""
    assert COMPOSE["services"]["vllm"]["networks"] == ["inside"]
    assert COMPOSE["networks"]["inside"]["internal"] is True
    assert COMPOSE["services"]["vllm"]["environment"]["HF_HUB_OFFLINE"] == "1"


def test_the_server_flags_are_those_that_serve_uses():
    """The compose file, and the README's advice for a server of one's own, have the flags with which `serve` starts vLLM, but for names and ports."""
    flags = " ".join(vllm_flags(ModelEntry(name="m", kind="chat"), Settings(), "cuda", 0)).replace(" --", "\n--").splitlines()
    wanted = [flag for flag in flags if flag.split()[0] not in ("--served-model-name", "--host", "--port")]

    assert len(wanted) >= 5
    for flag in wanted:
        assert flag.replace(" ", "=") in COMPOSE["services"]["vllm"]["command"]
        assert flag in " ".join(README.split())


def test_the_image_runs_without_root_and_without_weights():
    """The last stage switches to a user, and nothing of models/ but the catalogue is copied."""
    last = DOCKERFILE.rsplit("FROM ", 1)[1]

    assert re.search(r"^USER [1-9]\d*$", last, re.MULTILINE)  # a number, so that a cluster can see that it is not root
    assert [line for line in DOCKERFILE.splitlines() if line.startswith("COPY models")] == ["COPY models/models.toml models/models.toml"]


def test_the_dockerfile_is_linted():
    """hadolint (of the extra `dev`) has nothing to say, not even as information."""
    done = subprocess.run([Path(sys.executable).with_name("hadolint"), "--no-color", ROOT / "docker/Dockerfile"], capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, ""), done.stdout


def test_everything_the_image_copies_exists():
    """Each COPY from the build context names a file or folder of the repository."""
    for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE):
        assert all((ROOT / source).exists() for source in line.split()[:-1]), line


def test_the_wheel_needs_what_the_image_copies():
    """The files that the wheel is told to include are among those copied into the build stage."""
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]

    assert all(source in DOCKERFILE for source in included)
