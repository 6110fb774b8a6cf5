"""EPUB: the pages of the spine in reading order."""

import posixpath
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from lxml import etree

from graphrag_local.documents.clean import title_of
from graphrag_local.documents.encoding import decode
from graphrag_local.documents.formats_html import page_text, parse_markup
from graphrag_local.documents.packages import DAMAGE, open_package
from graphrag_local.documents.parsed import Budget, Options, Parsed, ReadProblem, assemble
from graphrag_local.records import Cut

_OPF = "{http://www.idpf.org/2007/opf}"


def parse_epub(data: bytes, options: Options) -> Parsed:
    """One document per book; every section of the spine is a place, the table of contents is cut."""
    package = open_package(data, options, "epub")
    cut: Counter[str] = Counter()
    try:
        container = _xml(package.read("META-INF/container.xml"))
        opf_path = next(node.get("full-path") for node in container.iter("{*}rootfile"))
        opf = _xml(package.read(opf_path))
        title = next(("".join(node.itertext()) for node in opf.iter("{*}title")), "")
        piece = assemble(_sections(package, opf, posixpath.dirname(opf_path), options, cut), Budget(options))
    except (*DAMAGE, etree.LxmlError, SyntaxError, StopIteration) as error:
        raise ReadProblem(f"is not a readable epub ({error or 'it names no book'})") from error
    cuts = tuple(Cut(reason=reason, characters=count) for reason, count in sorted(cut.items()) if count)
    return Parsed(pieces=(replace(piece, title=title_of(title), cuts=cuts + piece.cuts),))


def _xml(data: bytes) -> Any:
    return etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=False))


def _sections(package: zipfile.ZipFile, opf: Any, folder: str, options: Options, cut: Counter[str]) -> Iterator[tuple[str, str]]:
    """(place, text) of every page of the spine; a page that the book names but lacks raises KeyError."""
    items = {item.get("id"): item for item in opf.iter(f"{_OPF}item")}
    for number, reference in enumerate(opf.iter(f"{_OPF}itemref"), 1):
        item = items[reference.get("idref")]
        page = package.read(posixpath.normpath(posixpath.join(folder, unquote(item.get("href")))))
        text, cuts = page_text(parse_markup(decode(page).text.encode("utf-8", "replace")), boilerplate=options.boilerplate)
        if options.boilerplate and "nav" in (item.get("properties") or "").split():
            cut["table of contents"] += len(text) + sum(part.characters for part in cuts)
            continue
        for part in cuts:
            cut[part.reason] += part.characters
        yield f"section {number}", text
