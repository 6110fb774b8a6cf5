"""Small spaCy pipelines, made on the spot and saved as a user's would be."""

from pathlib import Path

import spacy
from spacy.language import Language
from spacy.tokens import Doc

NAMES = {"Mira Holt": "PER", "Tomas Brandt": "PER", "Salt Company": "ORG", "Port Ellis": "LOC", "1911": "DATE"}
CLASSES = {"the": "DET", "a": "DET", "old": "ADJ", "tidal": "ADJ", "she": "PRON", "basin": "NOUN", "ferry": "NOUN", "salt": "NOUN"}


def save_names(folder: Path, names: dict[str, str] | None = None, *, language: str = "xx", version: str = "") -> Path:
    """A pipeline that knows names by heart and has no parser."""
    pipeline = spacy.blank(language)
    pipeline.add_pipe("sentencizer")
    rules = [{"label": label, "pattern": [{"LOWER": word.casefold()} for word in name.split()]} for name, label in (NAMES if names is None else names).items()]
    pipeline.add_pipe("entity_ruler").add_patterns(rules)
    if version:
        pipeline.meta["version"] = version
    folder.parent.mkdir(parents=True, exist_ok=True)
    pipeline.to_disk(folder)
    return folder


@Language.component("graphrag_local_test_parser")
def parse(doc: Doc) -> Doc:
    """A parser for a few words: what stands before a noun hangs on it."""
    for token in doc:
        token.pos_ = CLASSES.get(token.lower_, "VERB")
        noun = next((later for later in doc[token.i :] if CLASSES.get(later.lower_, "") not in ("DET", "ADJ")), token)
        token.head, token.dep_ = (token, "nsubj" if token.pos_ in ("NOUN", "PRON") else "dep") if noun.i == token.i else (noun, "det")
    return doc


def save_parser(folder: Path) -> Path:
    """An English pipeline with that parser; it can be loaded where this module was imported."""
    pipeline = spacy.blank("en")
    pipeline.add_pipe("graphrag_local_test_parser")
    pipeline.to_disk(folder)
    return folder
