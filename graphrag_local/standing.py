"""Whether the published index is already what a build would make, so that a run over an unchanged collection leaves off after reading it.

A build is a function of the documents, of what decides besides them (settings, prompts, models, how they count, the program and its libraries), of the
replies and of the anchor. A whole run notes beside the index which generation it left current and what decided it (`store.stand`); as long as both hold and
the documents are the same, another would make the same, unless something waits: replies that failed for now, reports that are asked for, an anchor that is due.
"""

from collections.abc import Collection, Mapping
from typing import Any

import graphrag_local
from graphrag_local.collection import Gathered
from graphrag_local.ids import fingerprint
from graphrag_local.records import Document, Failed
from graphrag_local.settings import Settings


def digest_of_all(deciding: Mapping[str, Any], settings: Settings) -> str:
    """The digest of all that can change what a build makes of the same documents and replies; settings that only say when to work among it."""
    return fingerprint([graphrag_local.__version__, deciding, settings.model_dump(mode="json", include={"communities", "reports"})])


def stands(
    documents: Collection[Document], failures: Collection[Failed], without_report: Mapping[str, int], *, gathered: Gathered, settle: bool, retry_failed: bool
) -> bool:
    """Whether the collection as it is `gathered` now is that of an index with these `documents` and `failures`, and nothing waits there."""
    waits = any(row.stage != "documents" and (row.retryable or retry_failed) for row in failures)
    unwritten = without_report["unwritten"] + without_report["stale"]
    return (
        not waits
        and not (settle and unwritten)
        and not gathered.changes.any
        and list(gathered.documents) == sorted(documents, key=lambda document: document.path)
        and set(gathered.failures) == {row for row in failures if row.stage == "documents"}
    )
