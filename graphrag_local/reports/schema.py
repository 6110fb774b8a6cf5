"""What the model may say about a community, in each form, and its reply read into a draft.

`grammar`: one line a part, fields separated by tabs, which lie outside the free-text class and so keep a mask at about 8 µs a row (cl100k, 230
ids). `schema`: plain JSON with an enum of ids. Either way a finding can name only ids of its own context, one to five of them; on servers
that ignore the constraint, what is not in the context is dropped here with its reason. A tiny model under a grammar writes no text at all (`quote`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphrag_local.engine.base import TEXT_TERMINAL, Constraint, Form, Grammar, closed, read_json, schema_of
from graphrag_local.records import Dropped, Finding
from graphrag_local.reports import quote
from graphrag_local.text import one_line

MAX_SOURCES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDraft:
    """One reply, read: what can be kept, with record ids as sources, and what cannot."""

    title: str
    summary: str
    rating: float
    rating_explanation: str
    findings: tuple[Finding, ...]
    dropped: tuple[Dropped, ...]


def constraint(form: Form, ids: Sequence[str], findings: int, given: quote.Quotable | None = None) -> Constraint:
    """The constraint of one report with 1 to `findings` findings that cite these short ids; with `given` (lines only) it holds ids and no text."""
    if form == "schema":
        return schema_of(_schema(ids, findings))
    if given:
        return Grammar(lark="\n".join(["%llguidance {}", *quote.rules(given, findings)]) + "\n")
    lines = [
        "%llguidance {}",
        f'start: "T\\t" TEXT "\\nS\\t" TEXT "\\nG\\t" RATING "\\t" TEXT "\\n" finding{{1,{findings}}}',
        f'finding: "F\\t" ID ("," ID){{0,{MAX_SOURCES - 1}}} "+"? "\\t" TEXT "\\t" TEXT "\\n"',
        "RATING: /10|[0-9]/",
        "ID: " + " | ".join(f'"{short}"' for short in ids),
        TEXT_TERMINAL,
    ]
    return Grammar(lark="\n".join(lines) + "\n")


def _schema(ids: Sequence[str], findings: int) -> dict[str, Any]:
    text = {"type": "string"}
    sources = {"type": "array", "items": {"enum": list(ids)}, "minItems": 1, "maxItems": MAX_SOURCES}
    finding = closed({"summary": text, "explanation": text, "sources": sources, "more": {"type": "boolean"}})
    rating = {"type": "number", "minimum": 0, "maximum": 10}
    listed = {"type": "array", "items": finding, "minItems": 1, "maxItems": findings}
    return closed({"title": text, "summary": text, "rating": rating, "rating_explanation": text, "findings": listed})


def parse(form: Form, text: str, ids: Mapping[str, str]) -> ReportDraft:
    """A reply as a draft; `ids` maps the short ids of the context to record ids. Raises ValueError, quoting the reply, where it is no report."""
    value = _json(text) if form == "schema" else _lines(text)
    if not isinstance(value, dict):
        raise ValueError(f"it is not a report; it begins {text[:80]!r}")
    kept: list[Finding] = []
    dropped: list[Dropped] = []
    for item in value["findings"] if isinstance(value.get("findings"), list) else []:
        finding, losses = _finding(item, ids)
        dropped += losses
        if finding and any((finding.summary, finding.explanation) == (one.summary, one.explanation) for one in kept):
            dropped.append(Dropped(what=finding.summary[:80], reason="the finding repeats an earlier one"))
        elif finding:
            kept.append(finding)
    title, summary, why = (_clean(value.get(key), ids) for key in ("title", "summary", "rating_explanation"))
    if not title or not summary:
        raise ValueError(f"the report has no title or no summary; it begins {text[:80]!r}")
    if not kept:
        reasons = "; ".join(dict.fromkeys(f"{loss.what}: {loss.reason}" for loss in dropped[:3])) or "it lists none"
        raise ValueError(f"the report has no finding that can be kept ({reasons}); it begins {text[:80]!r}")
    return ReportDraft(
        title=title, summary=summary, rating=_rating(value.get("rating"), text), rating_explanation=why, findings=tuple(kept), dropped=tuple(dropped)
    )


def parse_quoted(text: str, ids: Mapping[str, str], given: quote.Quotable) -> ReportDraft:
    """A reply of chosen ids as a draft that quotes what their records say. Raises ValueError, quoting the reply, where it is no report."""
    rating, cited, dropped = "", dict[str, list[str]](), []
    for line in text.split("\n"):
        match line.split("\t"):
            case ["G", number]:
                rating = number
            case ["F", listed]:
                found = list(dict.fromkeys(_ID.findall(listed)))
                dropped += [Dropped(what=short, reason="the id is not in the context") for short in found if short not in ids]
                known = [short for short in found if short in ids]
                if known and known[0] in cited:
                    dropped.append(Dropped(what=known[0], reason="the finding repeats an earlier one"))
                elif known:
                    cited[known[0]] = known
    findings = quote.compose(list(cited.values()), ids, given)
    if not findings:
        raise ValueError(f"the report has no finding that can be kept; it begins {text[:80]!r}")
    told = {finding.sources[0] for finding in findings}
    dropped += [Dropped(what=short, reason="the finding says nothing new") for short in cited if ids[short] not in told]
    return ReportDraft(
        title=quote.title((shorts for short, shorts in cited.items() if ids[short] in told), given),
        summary=" ".join(finding.summary for finding in findings[:2]),
        rating=_rating(rating, text),
        rating_explanation="",
        findings=tuple(findings),
        dropped=tuple(dropped),
    )


_BARE_MORE = re.compile(r"(?<=[\[,])\s*\+\s*more\b")  # a habit from prompts of other programs, written as a bare word into a list


def _json(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError:
        return read_json(_BARE_MORE.sub('"+more"', text))


def _lines(text: str) -> dict[str, Any] | None:
    value: dict[str, Any] = {"findings": []}
    for line in text.split("\n"):
        match line.split("\t"):
            case ["T", title]:
                value["title"] = title
            case ["S", summary]:
                value["summary"] = summary
            case ["G", rating, why]:
                value |= {"rating": rating, "rating_explanation": why}
            case ["F", sources, summary, explanation]:
                value["findings"].append({"sources": sources.split(","), "summary": summary, "explanation": explanation})
    return value if len(value) > 1 else None


_ID = re.compile(r"[A-Za-z]+\d+")


def _finding(item: Any, ids: Mapping[str, str]) -> tuple[Finding | None, list[Dropped]]:
    """A finding with the sources that are in the context, and what is lost of it."""
    if not isinstance(item, dict):
        return None, [Dropped(what=str(item)[:80], reason="it is not a finding")]
    cited = item.get("sources")
    words = [str(word) for word in (cited if isinstance(cited, list) else [cited])]
    found = [short for word in words for short in _ID.findall(word)]
    losses = [Dropped(what=short, reason="the id is not in the context") for short in dict.fromkeys(found) if short not in ids]
    sources = list(dict.fromkeys(ids[short] for short in found if short in ids))
    summary, explanation = _clean(item.get("summary"), ids), _clean(item.get("explanation"), ids)
    if not summary and not explanation:
        return None, [*losses, Dropped(what="finding", reason="it says nothing")]
    if not sources:
        return None, [*losses, Dropped(what=(summary or explanation)[:80], reason="the finding has no source in the context")]
    more = item.get("more") is True or any("+" in word for word in words) or len(sources) > MAX_SOURCES
    return Finding(summary=summary or explanation, explanation=explanation, sources=tuple(sources[:MAX_SOURCES]), more=more), losses


_LABEL = re.compile(r"([A-Z]\d+)(?:-([A-Z]\d+))?:\s+(?=\S)")
_CITED = re.compile(r"\s*[\[(]([A-Z]\d+(?:\s*,\s*[A-Z]\d+)*)(?:\s*,?\s*\+(?:\s*more)?)?[\])]")
_FORM_FEED, _BACKSPACE = re.compile("\x0c(?=[A-Za-z])"), re.compile("\x08(?=[A-Za-z])")


def _clean(value: Any, ids: Mapping[str, str]) -> str:
    r"""A text on one line without control characters; `\frac` and `\beta` that JSON made a control character and a rest are LaTeX again.

    Short ids in brackets, and in front of a copied line, go: outside this request they mean nothing.
    """
    text = value if isinstance(value, str) else ""
    text = one_line(_BACKSPACE.sub(r"\\b", _FORM_FEED.sub(r"\\f", text))).rstrip("\ufffd")
    if (label := _LABEL.match(text)) and all(short in ids for short in label.groups() if short):
        text = text[label.end() :]
    return _CITED.sub(lambda match: "" if all(s.strip() in ids for s in match[1].split(",")) else match[0], text).strip()


_NUMBER = re.compile(r"\s*(\d+(?:[.,]\d+)?)\s*(?:/\s*(\d+))?")


def _rating(value: Any, text: str) -> float:
    """A rating from 0 to 10; "8/10" is 8, "80/100" too."""
    match = _NUMBER.match(str(value)) if not isinstance(value, bool) else None
    number = float(match[1].replace(",", ".")) if match else -1.0
    scale = float(match[2]) if match and match[2] else 10.0
    if match is None or scale == 0 or not 0 <= number <= scale:
        raise ValueError(f"the rating {value!r} is not a number from 0 to 10; it begins {text[:80]!r}")
    return round(number * 10.0 / scale, 2)
