"""Word documents: paragraphs and tables in order, with foot- and endnotes; tracked deletions are not text."""

import io
from collections import Counter
from collections.abc import Iterator
from typing import Any

import docx
from docx.opc.exceptions import OpcError
from lxml import etree

from graphrag_local.documents.clean import title_of
from graphrag_local.documents.packages import DAMAGE, open_package
from graphrag_local.documents.parsed import Budget, Options, Parsed, ReadProblem, assemble
from graphrag_local.records import Cut

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_LEFT_OUT = frozenset({f"{_W}del", f"{_W}moveFrom", f"{_W}instrText", f"{_W}pPr", f"{_W}rPr", f"{_W}delText",
                       "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"})  # fmt: skip
_SIGNS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "\u2011"}
_CUT_PARTS = {"comments": "comments", "header": "page headers and footers", "footer": "page headers and footers"}


def parse_docx(data: bytes, options: Options) -> Parsed:
    """One document; list items and table rows are lines, other paragraphs are set apart by a blank line."""
    open_package(data, options, "docx").close()
    try:
        document = docx.Document(io.BytesIO(data))
        title = document.core_properties.title or ""
        notes = [text for part in _parts(document, ("footnotes", "endnotes")) for text in _notes(part)]
        cut: Counter[str] = Counter()
        for kind, reason in _CUT_PARTS.items():
            cut[reason] += sum(len(" ".join("".join(part.itertext()).split())) for part in _parts(document, (kind,)))
    except (*DAMAGE, OpcError, etree.LxmlError, SyntaxError) as error:
        raise ReadProblem(f"is not a readable docx ({error})") from error
    cuts = tuple(Cut(reason=reason, characters=count) for reason, count in sorted(cut.items()) if count)
    body = _joined(_blocks(document.element.body), options)
    return Parsed(pieces=(assemble([("", body), *(("", note) for note in notes)], Budget(options), title=title_of(title), cuts=cuts),))


def _joined(blocks: Iterator[tuple[bool, str]], options: Options) -> str:
    """The blocks with a blank line between them, except between lines that belong together."""
    budget, parts, tight = Budget(options), [""], False
    for together, text in blocks:
        if text.strip():
            budget.spend(len(text) + 2)
            parts.append(("\n" if together and tight else "\n\n") + text)
        tight = together and (tight or bool(text.strip()))
    return "".join(parts)


def _blocks(container: Any) -> Iterator[tuple[bool, str]]:
    """(belongs to the line before, text) of every paragraph and table row below an element."""
    for child in container:
        if child.tag == f"{_W}p":
            yield child.find(f"{_W}pPr/{_W}numPr") is not None, _text(child)
        elif child.tag == f"{_W}tbl":
            yield False, ""
            for row in child.iter(f"{_W}tr"):
                if next(row.iterancestors(f"{_W}tbl")) is child:
                    yield True, "\t".join(" ".join(_text(cell).split()) for cell in row.iterchildren(f"{_W}tc"))
            yield False, ""
        elif child.tag in (f"{_W}sdt", f"{_W}sdtContent", f"{_W}ins", f"{_W}moveTo", f"{_W}customXml", f"{_W}smartTag"):
            yield from _blocks(child)


def _text(element: Any) -> str:
    """The visible text below an element, in order."""
    parts: list[str] = []
    walk = etree.iterwalk(element, events=("start",))
    for _, node in walk:
        if node.tag in _LEFT_OUT:
            walk.skip_subtree()
        elif node.tag == f"{_W}t":
            parts.append(node.text or "")
        elif node.tag == f"{_W}p" and parts:
            parts.append("\n")
        else:
            parts.append(_SIGNS.get(node.tag, ""))
    return "".join(parts)


def _parts(document: Any, kinds: tuple[str, ...]) -> Iterator[Any]:
    """The roots of related parts by the last word of their relationship type."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=False)
    for relation in document.part.rels.values():
        if relation.reltype.rsplit("/", 1)[-1] in kinds and not relation.is_external:
            yield etree.fromstring(relation.target_part.blob, parser)


def _notes(root: Any) -> list[str]:
    """The texts of foot- or endnotes; separators have a type, notes have none."""
    return [" ".join(_text(note).split()) for note in root if note.get(f"{_W}type") in (None, "normal")]
