"""A published generation as questions see it: its records as lists, read once, and its nearest vectors."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from graphrag_local.errors import GraphragError, IndexMissing
from graphrag_local.records import Chunk, Claim, Community, Document, Entity, Failed, Mention, Relationship, Report
from graphrag_local.store.generations import Generation, open_current, verify
from graphrag_local.store.lance import Tables
from graphrag_local.store.ledger import Ledger

R = TypeVar("R")
_KINDS: dict[str, type] = {"chunk": Chunk, "entity": Entity, "report": Report}


class StoredIndex:
    """One open generation; it stays as it is, whatever is published meanwhile, until `close`."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._tables = Tables.of(generation)
        self._lists: dict[type, Sequence[Any]] = {}
        self.memo: dict[Any, Any] = {}

    @classmethod
    def open(cls, index: Path) -> Self:
        """The current generation; raises IndexMissing, IndexCorrupt or IndexMismatch."""
        generation = open_current(index)
        try:
            return cls(generation)
        except BaseException:
            generation.close()
            raise

    def close(self) -> None:
        """Let the generation go."""
        self._generation.close()

    @property
    def generation(self) -> str:
        """Id of the generation."""
        return self._generation.id

    @property
    def manifest(self) -> dict[str, Any]:
        """Its manifest."""
        return dataclasses.asdict(self._generation.manifest)

    def _all(self, record: type[R]) -> Sequence[R]:
        if record not in self._lists:
            self._lists[record] = self._tables.records(record)
        return self._lists[record]

    def documents(self) -> Sequence[Document]:
        """All documents."""
        return self._all(Document)

    def chunks(self) -> Sequence[Chunk]:
        """All chunks."""
        return self._all(Chunk)

    def entities(self) -> Sequence[Entity]:
        """All entities."""
        return self._all(Entity)

    def relationships(self) -> Sequence[Relationship]:
        """All relationships."""
        return self._all(Relationship)

    def claims(self) -> Sequence[Claim]:
        """All claims."""
        return self._all(Claim)

    def communities(self) -> Sequence[Community]:
        """All communities."""
        return self._all(Community)

    def reports(self) -> Sequence[Report]:
        """The reports that are written."""
        return self._all(Report)

    def mentions(self) -> Sequence[Mention]:
        """Every tie between a record and the words it came from."""
        return self._all(Mention)

    def failures(self) -> Sequence[Failed]:
        """What failed in the build that made this generation."""
        return self._all(Failed)

    def near(self, kind: str, vector: Sequence[float], k: int) -> list[tuple[str, float]]:
        """Ids and cosine similarities of the k nearest records of a kind, best first."""
        return self._tables.near(_KINDS[kind], vector, k)


def damages(index: Path) -> list[str]:
    """What does not match in the published generations and in the ledger, a sentence each; none when all is well or nothing is there yet."""
    try:
        found = list(verify(index))
    except IndexMissing:
        found = []
    except GraphragError as error:
        found = [str(error)]
    ledger = index / "ledger.sqlite"
    if ledger.exists():
        try:
            with Ledger.open(ledger) as opened:
                found += opened.verify()
        except GraphragError as error:
            found.append(str(error))
    return found
