"""One report: a community and its context in, a report or a failure out."""

from collections.abc import Callable
from dataclasses import replace

from graphrag_local.engine.base import OUTCOME_WORDS, Model, Reply, Request, ask
from graphrag_local.errors import ContextOverflow, EngineHung, EngineRefused, ReplyInvalid, reason_of
from graphrag_local.ids import fingerprint, report_id
from graphrag_local.prompting import Message, Prompt
from graphrag_local.records import Community, Failed, Report
from graphrag_local.reports.central import extracted
from graphrag_local.reports.context import Budget, Context, Counted
from graphrag_local.reports.quote import FINDING_TOKENS as QUOTED_FINDING_TOKENS
from graphrag_local.reports.quote import HEAD_TOKENS as QUOTED_HEAD_TOKENS
from graphrag_local.reports.schema import ReportDraft, constraint, parse, parse_quoted
from graphrag_local.settings import ReportSettings
from graphrag_local.tokens import count_messages

STAGE = "reports"
# Tokens of a reply in lines, our estimate (not measured on a large model): what comes before the findings, and one finding with its ids.
HEAD_TOKENS = 240
FINDING_TOKENS = 190
# Room below which a head or a finding is not asked for.
LEAST_HEAD_TOKENS = 60
LEAST_FINDING_TOKENS = 110
JSON_OVERHEAD = 1.3  # keys and quotes
REPLY_SHARE = 3  # a reply takes at most a third of the window, so that a small one has room for what it is about
EXTRACTED_FINDINGS = 6  # of a report without a model, a quote and one that explains it each: more is read less and costs an embedder as much as the text
SMALLER = 0.7  # the share of its budget with which a context that overflowed is built again


def budget_of(model: Model, prompt: Prompt, settings: ReportSettings, count: Counted | None = None) -> Budget:
    """The room for elements beside the prompt and the reply; `tokens` is negative where the window is too small for any report."""
    if model.card.absent:
        return Budget(
            tokens=settings.context_tokens, findings=min(settings.max_findings, EXTRACTED_FINDINGS), count=count or Counted(model.counter),
            shape=fingerprint(["extracted"]), quoted=True,
        )  # fmt: skip
    room = _reply_room(settings.max_findings, model, settings)
    quoted = is_quoted(model)
    head, least = (QUOTED_HEAD_TOKENS, QUOTED_FINDING_TOKENS) if quoted else (LEAST_HEAD_TOKENS, LEAST_FINDING_TOKENS)
    findings = max(1, min(settings.max_findings, (room - head) // least))
    fixed = count_messages(model.counter, _messages("", findings, model, prompt, settings))
    return Budget(
        tokens=min(settings.context_tokens, model.card.context_tokens - fixed - room),
        findings=findings,
        count=count or Counted(model.counter),
        shape=fingerprint([
            prompt.fingerprint(), model.card.name, model.card.revision, model.card.form, model.temperature, model.seed, settings.language, room,
            "quoted" if quoted else "written",
        ]),
        quoted=quoted,
    )  # fmt: skip


def is_quoted(model: Model) -> bool:
    """Whether the model only chooses what a report quotes: it is too small to write one, and its server holds it to a grammar."""
    return model.card.tiny and model.card.form == "grammar"


def _reply_room(findings: int, model: Model, settings: ReportSettings) -> int:
    if is_quoted(model):  # exact, so that no reply is cut off; one finding has room whatever the settings say
        most = min(settings.max_reply_tokens, model.card.context_tokens // REPLY_SHARE)
        return QUOTED_HEAD_TOKENS + QUOTED_FINDING_TOKENS * max(1, min(findings, (most - QUOTED_HEAD_TOKENS) // QUOTED_FINDING_TOKENS))
    needed = (HEAD_TOKENS + FINDING_TOKENS * findings) * (JSON_OVERHEAD if model.card.form == "schema" else 1.0)
    return min(settings.max_reply_tokens, int(needed), model.card.context_tokens // REPLY_SHARE)


def _messages(text: str, findings: int, model: Model, prompt: Prompt, settings: ReportSettings) -> tuple[Message, ...]:
    return prompt.render(form="quote" if is_quoted(model) else model.card.form, findings=findings, language=settings.language, elements=text)


async def write_report(
    community: Community,
    context: Context,
    model: Model,
    prompt: Prompt,
    settings: ReportSettings,
    *,
    smaller: Callable[[], Context] | None = None,
) -> Report | Failed:
    """The report of a community. A context that overflows the window is replaced once by `smaller()`.

    The report keeps the fingerprint of the context it was asked with first, so that the same community is recognised again, and the lines and
    documents of the one it was written from. A server that is away raises; what went wrong with this report alone is a failure. Without a model it is
    put together from the context's own sentences.
    """
    try:
        draft, used = (extracted(context), context) if model.card.absent and context.ids else await _overflow_once(context, model, prompt, settings, smaller)
    except ReplyInvalid as error:
        return _failed(community, f"{OUTCOME_WORDS[error.outcome]}: {error}{_beginning(error)}")
    except ContextOverflow as error:
        return _failed(community, f"its context does not fit the model's window: {reason_of(error)}")
    except (EngineRefused, EngineHung) as error:
        return _failed(community, reason_of(error), retryable=error.retryable)
    return Report(
        id=report_id(community.id),
        community_id=community.id,
        fingerprint=context.fingerprint,
        title=draft.title,
        summary=draft.summary,
        rating=draft.rating,
        rating_explanation=draft.rating_explanation,
        findings=draft.findings,
        dropped=draft.dropped,
        left_out=used.left_out,
        untold=used.untold,
        shape=context.shape,
        documents=used.documents,
        context=used.lines,
    )


async def _overflow_once(
    context: Context, model: Model, prompt: Prompt, settings: ReportSettings, smaller: Callable[[], Context] | None
) -> tuple[ReportDraft, Context]:
    """The draft, and the context it was written from."""
    try:
        return await _ask(context, model, prompt, settings), context
    except ContextOverflow:
        if smaller is None:
            raise
        less = smaller()
        return await _ask(less, model, prompt, settings), less


async def _ask(context: Context, model: Model, prompt: Prompt, settings: ReportSettings) -> ReportDraft:
    """The draft; a reply that was unusable twice is asked for once more, with half the findings, since most such replies are too long."""

    def read(text: str) -> ReportDraft:
        return parse_quoted(text, context.ids, context.quotable) if context.quotable else parse(model.card.form, text, context.ids)

    try:
        return (await ask(model, _request(context, context.findings, model, prompt, settings), read, tries=2))[0]
    except ReplyInvalid:
        last = replace(model, seed=model.seed + 2, temperature=max(model.temperature, 0.3))
        request = _request(context, (context.findings + 1) // 2, model, prompt, settings)
        return (await ask(last, request, read, tries=1))[0]


def _request(context: Context, findings: int, model: Model, prompt: Prompt, settings: ReportSettings) -> Request:
    """The call for one report; ContextOverflow, before anything is sent, where it cannot fit."""
    messages = _messages(context.text, findings, model, prompt, settings)
    room = _reply_room(findings, model, settings)
    window = model.card.context_tokens
    if not context.ids:
        raise ContextOverflow(f"a window of {window} tokens has no room for the shortest element beside a reply of {room} tokens", window=window)
    if not model.fits(messages, room):
        needed = count_messages(model.counter, messages)
        raise ContextOverflow(f"{needed} tokens and a reply of {room} tokens exceed a window of {window} tokens", window=window, prompt_tokens=needed)
    return Request(
        messages=messages,
        constraint=constraint(model.card.form, list(context.ids), findings, context.quotable),
        max_tokens=room,
        purpose="report",
        affinity=context.fingerprint,
        documents=context.documents,
    )


def _beginning(error: ReplyInvalid) -> str:
    """The beginning of the offending reply, where it came along and the message does not show it already."""
    text = error.reply.text[:80] if isinstance(error.reply, Reply) else ""
    return f" It begins {text!r}." if text and "it begins" not in str(error) else ""


def _failed(community: Community, reason: str, *, retryable: bool = False) -> Failed:
    return Failed(stage=STAGE, input_id=community.id, input=f"community {community.id}", reason=reason, retryable=retryable)
