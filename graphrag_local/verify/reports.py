"""Whether the reports that say they are of today's contexts are: the contexts are built anew, and counted as the model that wrote them counts.

No model is asked. Where its way of counting is not at hand (the tokenizer of a model whose files are not here), or other settings or another prompt hold now
than made the index, this cannot be told, and that is said.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graphrag_local.engine.base import Model
from graphrag_local.errors import GraphragError
from graphrag_local.prompting import Prompt
from graphrag_local.reports.stage import stale_reports
from graphrag_local.settings import Settings
from graphrag_local.store.generations import open_current
from graphrag_local.store.reading import snapshot_of

OPEN = "not checked: whether reports are of today's contexts"


def outdated(index: Path, prompt: Prompt, settings: Settings, model_of: Callable[[Mapping[str, Any]], Model]) -> tuple[list[str], str]:
    """The reports of the current generation that are not what they say, a sentence each; and why that was not looked at, "" where it was.

    `model_of` makes the model side from the `about` of a manifest. An index that cannot be read has no reports to look at: what is wrong with it says `damages`.
    """
    try:
        with open_current(index) as generation:
            about, folder, it = generation.manifest.about, generation.folder, snapshot_of(generation)
    except GraphragError:
        return [], ""
    if settings.decisive()["reports"] != about["decisive"]["reports"] or prompt.fingerprint() != about["prompts"]["report"]:
        return [], f"{OPEN}: other settings or another prompt for them hold now than made the index"
    try:
        model = model_of(about)
    except GraphragError as error:
        return [], f"{OPEN}: {error} {error.hint}".strip()
    rows = (it.communities, it.entities, it.relationships, it.claims, it.mentions, it.reports)
    stale = stale_reports(*rows, model, prompt, settings.reports)
    return [f"{folder}: the report of community {one} says that it is current, and its context is another one." for one in stale], ""
