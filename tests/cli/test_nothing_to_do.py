"""A run that finds nothing to do loads nothing that computes vectors or text; a question nothing that builds an index."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import BertConfig, BertModel

from graphrag_local.cli.main import main
from tests.cli.shell import ROOT
from tests.engine.tinymodel import make_chat_model, tokenizer

HEAVY = ("torch", "transformers", "sentence_transformers", "outlines", "llguidance", "sklearn")
BUILDERS = ("lancedb", "igraph", "leidenalg", "rustworkx", "bm25s", "numba", "scipy", "graphrag_local.pipeline")
RUN = f"""
import json, sys
from graphrag_local.cli.main import main
try:
    main()
finally:
    print(json.dumps([name for name in {HEAVY + BUILDERS!r} if name in sys.modules]), file=sys.stderr)
"""


def make_embedder(folder: Path) -> None:
    """A folder with an embedder of sixteen random numbers a text."""
    words = tokenizer()
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 64}
    BertModel(BertConfig(vocab_size=len(words), **size)).save_pretrained(folder / "raw")
    words.save_pretrained(folder / "raw")
    inner = Transformer(str(folder / "raw"), max_seq_length=60)
    SentenceTransformer(modules=[inner, Pooling(16)], device="cpu").save(str(folder / "tiny-vectors"))


def run(*line: str) -> tuple[dict, list[str]]:
    """What a run in a process of its own said, and what of these it had loaded at its end."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", RUN, *line], capture_output=True, text=True, check=True, cwd=ROOT)
    return json.loads(done.stdout), json.loads(done.stderr.splitlines()[-1])


def test_an_unchanged_run_loads_no_model(tmp_path, monkeypatch, capsys):
    """With an embedder and a chat model in this process, a run over an unchanged collection is over before what computes with them is imported."""
    models, project = tmp_path / "models", tmp_path / "project"
    make_embedder(models)
    make_chat_model(models / "tiny-chat")
    monkeypatch.setenv("GRAPHRAG_LOCAL_MODELS", str(models))
    (project / "input").mkdir(parents=True)
    (project / "input" / "a.txt").write_text("Mira Holt gave the lamp to Piet Larsen at the Harbour Board.\n")
    settings = ("vectors.kind=local", "vectors.model=tiny-vectors", "engine.kind=embedded", "engine.model=tiny-chat")
    line = ("index", str(project), "--json", *(part for one in settings for part in ("--set", one)))
    monkeypatch.setattr(sys, "argv", ["graphrag-local", *line])
    with contextlib.suppress(SystemExit):
        main()
    first = json.loads(capsys.readouterr().out)
    assert (first["published"], first["last_build"]["calls"] > 0) == (True, True)

    said, loaded = run(*line)
    assert (said["published"], said["generation"], said["last_build"]["calls"]) == (False, first["generation"], 0)
    assert not set(loaded) & set(HEAVY)


def test_a_question_loads_nothing_that_builds(tmp_path):
    """A briefing from an index without vectors reads what the build keeps for questions, and imports neither the tables' library nor the graph's."""
    project = tmp_path / "project"
    (project / "input").mkdir(parents=True)
    (project / "input" / "a.txt").write_text("Mira Holt gave the lamp to Piet Larsen at the Harbour Board.\n")
    plain = ("--set", "vectors.kind=none")
    run("index", str(project), "--method", "fast", "--json", *plain)
    said, loaded = run("query", "Who gave Piet Larsen the lamp?", str(project), "--no-model", "--json", *plain)
    assert "Mira Holt gave the lamp" in json.dumps(said)
    assert loaded == []
