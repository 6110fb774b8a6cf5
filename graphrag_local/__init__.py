"""GraphRAG on your own machine: read a collection with a local model, answer questions about all of it, with citations that open."""

__version__ = "0.1.0"
