"""What can be checked of the container files without a Docker engine."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())
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
    """The compose file starts vLLM with the flags that this program needs."""
    command = " ".join(COMPOSE["services"]["vllm"]["command"])

    assert "backend=guidance" in command
    assert "--enable-prompt-tokens-details" in command
    assert "--scheduling-policy=priority" in command


def test_the_image_runs_without_root_and_without_weights():
    """The last stage switches to a user, and nothing of models/ but the catalogue is copied."""
    last = DOCKERFILE.rsplit("FROM ", 1)[1]

    assert re.search(r"^USER (?!root)", last, re.MULTILINE)
    assert [line for line in DOCKERFILE.splitlines() if line.startswith("COPY models")] == ["COPY models/models.toml models/models.toml"]


def test_everything_the_image_copies_exists():
    """Each COPY from the build context names a file or folder of the repository."""
    for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE):
        assert all((ROOT / source).exists() for source in line.split()[:-1]), line


def test_the_wheel_needs_what_the_image_copies():
    """The files that the wheel is told to include are among those copied into the build stage."""
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]

    assert all(source in DOCKERFILE for source in included)
