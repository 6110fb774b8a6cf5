"""A spaCy pipeline as a tagger: on the CPU, from files that are here, one text at a time, so that no text changes what is marked in another."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import spacy
from spacy.tokens import Doc, Span

from graphrag_local.engine.base import Marked
from graphrag_local.engine.models import go_offline, model_files, sha256_of
from graphrag_local.engine.pipelines import WITHOUT, PipelineEntry
from graphrag_local.errors import ModelMissing
from graphrag_local.ids import digest_of

_NOT_LOADED = (OSError, ValueError, KeyError, AttributeError, TypeError, ImportError)
_OUTSIDE = frozenset(("DET", "PRON", "NUM", "PUNCT", "SPACE", "ADP", "CCONJ", "SYM"))  # word classes that a phrase neither begins nor ends with


class SpacyTagger:
    """`mark` gives a pipeline's entities and, where it has a parser of a language with rules for them, its noun chunks."""

    def __init__(self, entry: PipelineEntry, say: Callable[[str], None]) -> None:
        """Loads the pipeline; `say` is told what spaCy warns of, such as a pipeline made for another version. Raises ModelMissing where it cannot be loaded."""
        go_offline()  # a pipeline may bring transformers
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always", UserWarning)
                self._nlp = spacy.load(entry.source)
        except _NOT_LOADED as error:
            reason = " ".join(str(error).split())[:300].rstrip(".")
            hint = f"Fetch it for spaCy {spacy.__version__}, with the packages that it needs. {WITHOUT}."
            raise ModelMissing(f"The spaCy pipeline {entry.name!r} cannot be loaded: {reason}.", hint=hint) from error
        for warning in warned:
            if issubclass(warning.category, UserWarning):
                say(f"spaCy about {entry.name}: {' '.join(str(warning.message).split())}")
        meta = self._nlp.meta
        self.version = f"spaCy {meta['lang']}_{meta['name']} {meta['version']} ({_digest(self._nlp.path)})"

    def mark(self, text: str) -> list[Marked]:
        """The names and noun phrases of a text."""
        doc = self._nlp(text)
        found = [Marked(span.start_char, span.end_char, span.label_ or "name") for span in doc.ents]
        found += [Marked(span.start_char, span.end_char) for span in _noun_phrases(doc)]
        return sorted(found, key=lambda mark: (mark.start, mark.end, mark.label))


def _noun_phrases(doc: Doc) -> Iterator[Span]:
    if not doc.has_annotation("DEP") or doc.vocab.get_noun_chunks is None:
        return
    for span in doc.noun_chunks:
        inner = [token.i for token in span if token.pos_ not in _OUTSIDE]
        if inner:
            yield doc[inner[0] : inner[-1] + 1]


def _digest(folder: Path | None) -> str:
    """Of all the files of a pipeline: the version that its author wrote down stays when somebody adds a rule."""
    parts = [part for name in model_files(folder) for part in (name, sha256_of(folder / name))] if folder else []
    return digest_of(*parts)[:12]
