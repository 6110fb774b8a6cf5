"""Sets of defaults that `preset = ...` in graphrag.toml takes in place of those of `settings`: section -> setting -> value."""

from typing import Any

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {
        "chunks": {"method": "window", "window_tokens": 600, "overlap_tokens": 100},
        "reports": {"write": "all", "min_tokens": 0, "context_tokens": 8000},
        "query": {"window_tokens": 8000, "reduce_tokens": 8000},
    },
    "graphrag": {
        "chunks": {"method": "window", "window_tokens": 1200, "overlap_tokens": 100},
        "communities": {"max_cluster_size": 10, "largest_component_only": True},
        "reports": {"write": "all", "min_tokens": 0, "context_tokens": 12000},
        "query": {"window_tokens": 12000, "reduce_tokens": 12000},
    },
    "demo": {
        "chunks": {"min_tokens": 100, "max_tokens": 400},
        "extraction": {"max_entities": 10, "max_relationships": 8, "max_gleanings": 0, "max_reply_tokens": 460, "canonical": False},
        "describe": {"max_reply_tokens": 80},
        "reports": {"write": "eager", "min_tokens": 60, "context_tokens": 900, "max_findings": 4, "max_reply_tokens": 220},
        "query": {"window_tokens": 1400, "reduce_tokens": 900, "max_points": 4, "max_paragraphs": 6, "map_reply_tokens": 120,
                  "reply_tokens": 220, "refusal_margin": -1.0, "gate": 0.0, "top_chunks": 4},
    },
}  # fmt: skip
