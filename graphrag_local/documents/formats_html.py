"""HTML -> text: what a reader sees, without the furniture around it. Nothing is fetched."""

import re
from collections import Counter
from dataclasses import replace
from typing import Any

from lxml import etree
from lxml import html as lxml_html

from graphrag_local.documents.clean import title_of
from graphrag_local.documents.parsed import Budget, Options, Parsed, ReadProblem, assemble
from graphrag_local.records import Cut

_SCRIPTS = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "object", "embed", "canvas", "head", "link", "meta"})
_CONTROLS = frozenset({"button", "select", "input", "textarea", "datalist", "dialog"})
_ROLES = frozenset({"navigation", "banner", "contentinfo", "search", "complementary"})
_FURNITURE = re.compile(
    r"(?:^|\s)(?:[\w-]*(?:cookie|consent|gdpr)[\w-]*|navbar|breadcrumbs?|pagination|sidebar|skip-?(?:link|to-?content|nav)\w*|toc|table-of-contents|tableOfContents\w*)(?:\s|$)",
    re.IGNORECASE,
)
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_BLOCKS = frozenset(
    "address article aside blockquote body center dd details div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr html main "
    "nav ol p pre section summary table caption tbody thead tfoot ul video audio".split()
)  # fmt: skip
_LINES = frozenset({"li", "tr", "br", "dt", "dd", "option"})
_SELF_CLOSED = re.compile(rb"<(?!(?:br|hr|img|input|meta|link|col|area|base|embed|param|source|track|wbr)\b)([A-Za-z][\w:-]*)([^<>]*)/>")
_SPACE = re.compile(r"[ \t\r\n\f]+")


def parse_html(text: str, options: Options) -> Parsed:
    """One HTML page."""
    root = parse_markup(text.encode("utf-8", "replace"))
    heading = root.find(".//title")
    title = "".join(heading.itertext()) if heading is not None else ""
    body, cuts = page_text(root, boilerplate=options.boilerplate)
    if not title.strip():
        first = root.find(".//h1")
        title = "".join(first.itertext()) if first is not None else ""
    piece = assemble([("", body)], Budget(options), title=title_of(title))
    return Parsed(pieces=(replace(piece, cuts=cuts + piece.cuts),))


def parse_markup(data: bytes) -> Any:
    """The tree of an HTML page in UTF-8; whatever it claims about its encoding is ignored."""
    if data.lstrip()[:5] == b"<?xml":
        data = _SELF_CLOSED.sub(rb"<\1\2></\1>", data)  # XHTML's <title/> would swallow the page
    parser = lxml_html.HTMLParser(encoding="utf-8", no_network=True, huge_tree=True, remove_comments=True, remove_pis=True)
    try:
        root = lxml_html.document_fromstring(data, parser=parser)
    except (etree.LxmlError, ValueError, AssertionError) as error:
        raise ReadProblem(f"is not readable HTML ({error})") from error
    if any(entry.type_name == "ERR_RESOURCE_LIMIT" for entry in parser.error_log):
        raise ReadProblem("nests its tags so deeply (over 2,048) that a part of it would be lost")
    return root


def page_text(root: Any, *, boilerplate: bool) -> tuple[str, tuple[Cut, ...]]:
    """The text of a page in paragraphs, and what was cut from it."""
    body = root.find(".//body")
    body = root if body is None else body
    size = len(_flat(body))
    writer = _Writer()
    cut: Counter[str] = Counter()
    walk = etree.iterwalk(body, events=("start", "end"))
    skipped: Any = None
    for event, element in walk:
        if event == "start" and (reason := _reason(element, boilerplate, size)):
            cut[reason] += len(_flat(element))
            skipped = element
            walk.skip_subtree()
        elif event == "start":
            writer.open(element)
        elif element is skipped:
            skipped = None
            writer.text(element.tail or "", keep=False)
        else:
            writer.close(element, tail=element is not body)
    return "".join(writer.parts).strip(), tuple(Cut(reason=reason, characters=count) for reason, count in sorted(cut.items()) if count)


def _reason(element: Any, boilerplate: bool, size: int) -> str:
    """Why an element is left out; "" for the others."""
    tag = element.tag
    if tag in _SCRIPTS:
        return "scripts and styles"
    if tag in _CONTROLS:
        return "page furniture: controls"
    if "hidden" in element.attrib or _HIDDEN.search(element.get("style", "")) or element.get("aria-hidden") == "true":
        return "hidden text"
    if not boilerplate or tag in ("body", "main", "article"):
        return ""
    inside = any(parent.tag in ("main", "article", "blockquote") for parent in element.iterancestors())
    if tag == "nav" or (tag == "footer" and not any(parent.tag == "blockquote" for parent in element.iterancestors())):
        return f"page furniture: {tag}"
    if (tag == "aside" and not inside) or (tag == "header" and not inside and element.find(".//h1") is None):
        return f"page furniture: {tag}"
    named = f"{element.get('class', '')} {element.get('id', '')}"
    if (element.get("role") in _ROLES or _FURNITURE.search(named)) and len(_flat(element)) < 0.4 * size:
        return "page furniture: by name"
    return ""


def _flat(element: Any) -> str:
    return " ".join("".join(element.itertext()).split())


class _Writer:
    """Collects text with the line structure that the tags mean: blocks are paragraphs, cells are tab-separated."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.breaks = 0  # line breaks owed before the next text
        self.pre = 0
        self.cells = 0
        self.tab = False

    def open(self, element: Any) -> None:
        """Begin an element and write its first text."""
        tag = element.tag
        if tag in ("td", "th") and element.find(".//p") is None and element.find(".//div") is None and element.find(".//table") is None:
            self.tab = self.tab or (self.breaks == 0 and bool(self.parts) and element.getprevious() is not None)
            self.cells += 1
        self._break(tag)
        self.pre += tag == "pre"
        self.text(element.text or "", keep=self.pre > 0)

    def close(self, element: Any, *, tail: bool) -> None:
        """End an element and write what follows it."""
        tag = element.tag
        self.pre -= tag == "pre"
        if tag in ("td", "th") and self.cells:
            self.cells -= 1
        if tag != "br":
            self._break(tag)
        if tail:
            self.text(element.tail or "", keep=self.pre > 0)

    def _break(self, tag: str) -> None:
        if self.cells:
            return
        if tag in _BLOCKS:
            self.breaks = 2
        elif tag in _LINES:
            self.breaks = max(self.breaks, 1)

    def text(self, raw: str, *, keep: bool) -> None:
        """Write text, white space collapsed unless it is to be kept."""
        said = raw if keep else _SPACE.sub(" ", raw)
        fresh = self.breaks > 0 or self.tab or not self.parts
        if not keep and (fresh or self.parts[-1].endswith((" ", "\n", "\t"))):
            said = said.lstrip(" ")
        if not said:
            return
        if self.parts:
            self.parts[-1] = self.parts[-1].rstrip(" ") if fresh else self.parts[-1]
            self.parts.append("\n" * self.breaks if self.breaks else "\t" if self.tab else "")
        self.breaks, self.tab = 0, False
        self.parts.append(said)
