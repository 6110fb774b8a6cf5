"""`doctor`: looks at everything that `index` and `query` need, and says what to do about each problem."""

import shutil
import time
from typing import Any

from graphrag_local.documents.scan import scan
from graphrag_local.engine.base import FreeText, Request
from graphrag_local.engine.launch import detect_device
from graphrag_local.engine.models import Catalogue, models_folder
from graphrag_local.engine.pipelines import find_pipeline
from graphrag_local.errors import GraphragError, IndexMissing
from graphrag_local.forecast.costs import Speed, at_once, first_build_replies
from graphrag_local.project import ProjectFolder
from graphrag_local.prompting import Message
from graphrag_local.store.generations import current_id
from graphrag_local.text import BYTES_PER_TOKEN
from graphrag_local.verify.index import damages
from graphrag_local.wiring import ModelSide, open_model_side

LOW_DISK_MB = 500
SPEED_TOKENS = 32


def _row(what: str, state: str, found: str, hint: str = "") -> dict[str, Any]:
    return {"what": what, "state": state, "found": found, "hint": hint}


async def examine(project: ProjectFolder) -> list[dict[str, Any]]:
    """One row per thing looked at: what, state (ok, warn, fail), found, hint."""
    rows = [_row("settings", "ok", str(project.folder)), _collection(project), _disk(project), _models()]
    rows.append(_row("device", "ok", detect_device()))
    rows += await _model_side(project)
    rows += _pipeline(project)
    rows += _index(project)
    return rows


def _collection(project: ProjectFolder) -> dict[str, Any]:
    state, rest = ("warn", "; the index answers without it, but its documents cannot be opened or brought up to date") if _indexed(project) else ("fail", "")
    try:
        found = scan(project.input_root, project.settings.documents)
    except GraphragError as error:
        return _row("collection", state, str(error).rstrip(".") + rest, error.hint)
    if not found.found:
        hint = "Put documents there, or point documents.input at them."
        return _row("collection", state, f"{project.input_root} holds no file to read{rest}", hint)
    problems = f", {len(found.failures)} that will not be read" if found.failures else ""
    return _row("collection", "ok", f"{len(found.found)} files{problems}")


def _indexed(project: ProjectFolder) -> bool:
    try:
        return bool(current_id(project.index))
    except GraphragError:
        return False


def _models() -> dict[str, Any]:
    here = [entry.name for entry in Catalogue.load().listed() if entry.folder is not None]
    return _row("models", "ok", f"{models_folder()} has {', '.join(here) if here else 'no model (`graphrag-local models list` says which there are)'}")


def _disk(project: ProjectFolder) -> dict[str, Any]:
    free = shutil.disk_usage(project.folder).free // 2**20
    state = "ok" if free >= LOW_DISK_MB else "warn"
    return _row("disk", state, f"{free:,} MB free", "" if state == "ok" else "Make room before indexing.")


def _pipeline(project: ProjectFolder) -> list[dict[str, Any]]:
    try:
        entry = find_pipeline(project.settings.extraction.spacy)
    except GraphragError as error:
        return [_row("spaCy pipeline", "fail" if project.settings.extraction.method == "fast" else "warn", str(error), error.hint)]
    return [_row("spaCy pipeline", "ok", str(entry.source))] if entry else []


async def _model_side(project: ProjectFolder) -> list[dict[str, Any]]:
    said: list[str] = []
    try:
        side = await open_model_side(project, None, said.append)
    except GraphragError as error:
        if project.settings.extraction.method == "fast":
            return [_row("model", "warn", f"{str(error).rstrip('.')}; `index` asks none here, and `query --no-model` answers without one", error.hint)]
        return [_row("model", "fail", str(error), error.hint)]
    try:
        card, embedder = side.model.card, side.embedder.card
        rows = [_row("model", "ok", f"{card.name} ({card.revision}), window {card.context_tokens:,}, {card.form} constraints")]
        rows += [_row("model", "warn", notice) for notice in side.notices]
        if side.model.counter.exact:
            rows.append(_row("token counts", "ok", "by the model's own tokenizer"))
        else:
            hint = f"Copy the model's folder, or only its tokenizer.json and config.json, to {models_folder() / card.name.rpartition('/')[2]}."
            rows.append(_row("token counts", "warn", f"{side.model.counter.name}: budgets are kept cautiously", hint))
        rows.append(await _speed(side, project))
        if embedder.dimension:
            return [*rows, _row("embedder", "ok", f"{embedder.name} ({embedder.revision}), {embedder.dimension} numbers")]
        wanted = project.settings.vectors.kind == "none"
        hint = "" if wanted else f"Run `graphrag-local models fetch {project.settings.vectors.model}`, or set vectors.url to an endpoint that embeds."
        return [*rows, _row("embedder", "ok" if wanted else "warn", "none: passages are found by words only", hint)]
    finally:
        await side.close()


async def _speed(side: ModelSide, project: ProjectFolder) -> dict[str, Any]:
    """How fast one reply comes, and what that means for a first index of the whole collection."""
    question = (Message(role="user", content="Count from one upwards, in words."),)
    began = time.monotonic()
    try:
        request = Request(messages=question, constraint=FreeText(), max_tokens=SPEED_TOKENS, purpose="probe", priority=0)
        tokens = (await side.model.generate(request)).usage.completion_tokens
    except GraphragError as error:
        if getattr(error, "outcome", "") != "cut_off":
            return _row("speed", "fail", str(error), error.hint)
        tokens = SPEED_TOKENS  # it wrote all it was allowed to
    speed = tokens / max(time.monotonic() - began, 1e-3)
    return _row("speed", "ok", f"{speed:.3g} tokens/s for one request alone{_whole(project, speed, at_once(side.kind, project.settings.engine))}")


def _whole(project: ProjectFolder, speed: float, together: int) -> str:
    try:
        text = sum(file.size for file in scan(project.input_root, project.settings.documents).found) / BYTES_PER_TOKEN
    except GraphragError:
        return ""
    between = Speed(slow=speed, fast=speed * together, call_s=0.0, source="").minutes(first_build_replies(text), 0)
    if_so = f"{between.low:,.0f} minutes if it answers {together} as fast as one, {between.high:,.0f} if one at a time"
    return f"; a first index of about {text:,.0f} tokens: {if_so} (`graphrag-local estimate` says it more closely)"


def _index(project: ProjectFolder) -> list[dict[str, Any]]:
    problems = damages(project.index)
    if problems:
        return [_row("index", "fail", problem, "Run `graphrag-local index`: it repairs from the ledger.") for problem in problems]
    try:
        return [_row("index", "ok", f"generation {current_id(project.index)}, every file and every reply as it was written")]
    except IndexMissing:
        return [_row("index", "warn", "there is no finished index yet", f"Run `graphrag-local index {project.folder}`.")]
