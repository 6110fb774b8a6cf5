"""Starts and stops a vLLM server of our own, with the flags this program wants, and says what is wrong when it does not start.

The flags (see DECISIONS.md): guidance compiles a constraint in milliseconds where other back ends take seconds; priorities let questions go before
indexing; prompt details make cache hits visible; a model's own generation defaults are left out, because some hold a repetition penalty.
"""

import contextlib
import importlib.metadata
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import httpx

from graphrag_local.engine.models import OFFLINE, ModelEntry, refuse_unfit
from graphrag_local.engine.watch import GRACE_S
from graphrag_local.errors import MissingExtra, ModelMissing, NoEngine, UsageError
from graphrag_local.settings import Settings

Device = Literal["cuda", "rocm", "cpu"]
Say = Callable[[str], None]
CPU_WINDOW = 8192  # tokens; more than that takes minutes to read on a CPU
CPU_CACHE_GB = "2"
START_S = 1800.0  # the largest models take some minutes to load and compile
SAY_EVERY_S = 5.0
SHOWN_LINES = 8

# What a start that failed said, and what to do about it.
ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"out of memory|OutOfMemory|No available memory for the cache|[Ff]ree memory on device|available KV cache memory|exit code -9",
        "It does not fit into memory: take a smaller model, or lower --max-model-len or --gpu-memory-utilization in server.engine_args.",
    ),
    (r"[Aa]ddress already in use", "Another program has that port: set server.engine_port."),
    (r"unrecognized arguments|invalid choice", "This vLLM does not know one of the flags: use vLLM 0.20 or newer, and look at server.engine_args."),
    (r"No module named|No package metadata", 'vLLM is not installed completely: pip install "graphrag-local[vllm]".'),
    (r"are not supported for now|does not support|not recognized", "This vLLM cannot run this kind of model: take another or a newer vLLM."),
    (
        r"does not appear to have a file|valid model identifier|[Ss]afetensors|config\.json",
        "The model's files are not complete: run `graphrag-local models verify NAME`.",
    ),
)


def detect_device(root: Path = Path("/"), environment: Mapping[str, str] | None = None) -> Device:
    """Which accelerator the machine has, by its device files and nvidia-smi; torch is not asked, importing it takes seconds."""
    env = os.environ if environment is None else environment
    if env.get("CUDA_VISIBLE_DEVICES", "0") not in ("", "-1") and (any((root / "dev").glob("nvidia[0-9]*")) or _nvidia_memory_mb(env)):
        return "cuda"
    return "rocm" if (root / "dev/kfd").exists() and env.get("HIP_VISIBLE_DEVICES", "0") not in ("", "-1") else "cpu"


def card_gb(environment: Mapping[str, str] | None = None) -> float:
    """Memory of the smallest NVIDIA card in GB; 0 where there is none or it cannot be asked."""
    return min(_nvidia_memory_mb(os.environ if environment is None else environment), default=0) / 1024


def _nvidia_memory_mb(environment: Mapping[str, str]) -> list[int]:
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20, env=dict(environment))
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [int(line) for line in done.stdout.split() if line.isdigit()] if done.returncode == 0 else []


def vllm_program(folder: Path) -> list[str]:
    """How to start vLLM on a model folder; MissingExtra where it is not installed."""
    if importlib.util.find_spec("vllm") is None:
        raise MissingExtra("Starting a model server", "vllm")
    try:
        importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:  # builds for CPUs have another name, and their `vllm` command fails over it
        return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    return [str(Path(sys.executable).with_name("vllm")), "serve", str(folder)]


def vllm_flags(entry: ModelEntry, settings: Settings, device: Device, memory_gb: float) -> list[str]:
    """The flags of a server for a model; later ones win, so the user's come last."""
    window = settings.engine.context_tokens or entry.context_tokens
    server = settings.server
    flags = [
        "--served-model-name", entry.name, "--host", "127.0.0.1", "--port", str(server.engine_port),
        "--structured-outputs-config.backend", "guidance", "--structured-outputs-config.disable_any_whitespace", "true",
        "--enable-prompt-tokens-details", "--scheduling-policy", "priority", "--generation-config", "vllm",
    ]  # fmt: skip
    if device == "cpu":
        flags += ["--dtype", "bfloat16", "--enforce-eager"]
        window = min(window or CPU_WINDOW, settings.engine.context_tokens or CPU_WINDOW)
    if window:
        flags += ["--max-model-len", str(window)]
    if device != "cpu":
        advised = list(entry.flags(memory_gb))
        if settings.engine.context_tokens and "--max-model-len" in advised:
            at = advised.index("--max-model-len")
            del advised[at : at + 2]
        flags += advised
    return [*flags, *server.engine_args]


class VllmServer:
    """A vLLM server as a child process. `command` replaces it by another program that answers on the port; for tests."""

    def __init__(
        self, entry: ModelEntry, settings: Settings, *, log: Path, command: Sequence[str] | None = None, grace_s: float = GRACE_S
    ) -> None:
        if entry.folder is None or not entry.folder.is_dir():
            raise ModelMissing(f"The model {entry.name!r} is not here.", hint=f"Run `graphrag-local models fetch {entry.name}`.")
        refuse_unfit(entry.folder, "chat")
        self.log_path = log
        self._entry, self._settings = entry, settings
        self._command = list(command) if command is not None else None
        self._grace_s = grace_s
        self._port = settings.server.engine_port
        self._process: subprocess.Popen[bytes] | None = None
        self._exit_code: int | None = None

    @property
    def url(self) -> str:
        """The base URL for the engine."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def pid(self) -> int:
        """The leader of the server's process group; 0 before the start."""
        return self._process.pid if self._process else 0

    def command(self) -> list[str]:
        """What is run."""
        if self._command is not None:
            return self._command
        assert self._entry.folder is not None
        device = detect_device()
        memory_gb = card_gb() if device == "cuda" else 0.0
        return vllm_program(self._entry.folder) + vllm_flags(self._entry, self._settings, device, memory_gb)

    def start(self) -> None:
        """Start the server in a process group of its own, which ends with this process however that ends."""
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self._port))
            except OSError as error:
                hint = "Set server.engine_port to a free one, or attach to the server that runs there with engine.url."
                raise UsageError(f"Port {self._port} on 127.0.0.1 cannot be used for the model server: {error.strerror}.", hint=hint) from error
        command = self.command()
        environment = os.environ | OFFLINE
        environment.setdefault("VLLM_CPU_KVCACHE_SPACE", CPU_CACHE_GB)  # GPUs do not look at it
        watch = Path(__file__).with_name("watch.py")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("wb") as log:
            log.write(f"$ {' '.join(command)}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(watch), str(self._grace_s), *command],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, start_new_session=True,
            )  # fmt: skip

    def wait_ready(self, say: Say, limit_s: float = START_S) -> None:
        """Return once the server answers; NoEngine with the log's last words when it ends before that or takes longer than the limit."""
        begun = said = time.monotonic()
        health = f"http://127.0.0.1:{self._port}/health"
        while True:
            if self._ended():
                raise self._failure(f"ended while it was starting (exit code {self._exit_code})", say)
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(health, timeout=2, trust_env=False).is_success:
                    say(f"The model server is ready after {time.monotonic() - begun:.0f} s.")
                    return
            now = time.monotonic()
            if now - begun > limit_s:
                self.stop()
                raise self._failure(f"did not answer within {limit_s:.0f} s", say)
            if now - said >= SAY_EVERY_S:
                said = now
                say(f"Starting the model server: {now - begun:.0f} s; {(_lines(self.log_path) or ['nothing said yet'])[-1][:120]}")
            time.sleep(0.2)

    def wait(self) -> int | None:
        """Block until the server ends by itself; its exit code."""
        while not self._ended():
            time.sleep(0.5)
        return self._exit_code

    def stop(self) -> None:
        """End the server and everything it started; returns when no process of it is left."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(BrokenPipeError):
            if process.stdin:
                process.stdin.close()
        try:
            process.wait(self._grace_s + 5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()
        deadline = time.monotonic() + 5
        with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: only processes that are about to vanish are left (macOS)
            while time.monotonic() < deadline:
                os.killpg(process.pid, signal.SIGKILL)
                time.sleep(0.02)

    @contextlib.contextmanager
    def running(self, say: Say) -> Iterator["VllmServer"]:
        """Started and ready inside, stopped afterwards."""
        self.start()
        try:
            self.wait_ready(say)
            yield self
        finally:
            self.stop()

    def _ended(self) -> bool:
        if self._process is None:
            return True
        if self._process.poll() is None:
            return False
        if self._exit_code is None and self._process.stdout and not self._process.stdout.closed:
            words = self._process.stdout.read().split()
            self._exit_code = int(words[1]) if len(words) == 2 and words[1] != b"None" else self._process.returncode
        return True

    def _failure(self, what: str, say: Say) -> NoEngine:
        lines = _lines(self.log_path)
        for line in lines[-SHOWN_LINES:]:
            say(f"  {line[:200]}")
        why = next((line for line in reversed(lines) if re.match(r"[\w.]*(Error|Exception)\b", line)), lines[-1] if lines else "it said nothing")
        text = "\n".join([what, why, *(line for line in lines[-60:] if re.search(r"[Ee]rror|Exception", line))])
        advice = next((advice for pattern, advice in ADVICE if re.search(pattern, text)), "The log says more.")
        return NoEngine(f"The model server {what}: {why[:300]}", hint=f"{advice} Log: {self.log_path}")


def _lines(log: Path) -> list[str]:
    """The lines of a log that say something to people: no frames of a traceback, no prefixes of processes, the command itself left out."""
    lines = []
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[1:]:
        bare = re.sub(r"^(\([^)]*pid=\d+\)\s*)?((INFO|WARNING|ERROR|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d (\[[^\]]*\] ?)?)?", "", line.split("\r")[-1])
        if bare.strip() and not re.match(r"\s*(File \"|\^+|Traceback )|\s{4}", bare):
            lines.append(bare.strip())
    return lines
