"""The sample collection is what its truth file says it is."""

import csv
import re
from pathlib import Path
from typing import Any

import docx
import pytest
from bs4 import BeautifulSoup

from graphrag_local.samples import collection, truth

FILES = sorted(path for path in collection().rglob("*") if path.is_file())
TRUTH = truth()


def word_text(path: Path) -> str:
    """The words of a Word file: paragraphs, then table cells."""
    file = docx.Document(str(path))
    cells = [cell.text for table in file.tables for row in table.rows for cell in row.cells]
    return "\n".join([paragraph.text for paragraph in file.paragraphs] + cells)


def read() -> dict[str, str]:
    """Document path (with `#id` for a record of the table) to its raw text; of a web page, what stands in `<main>`."""
    texts: dict[str, str] = {}
    for path in FILES:
        name = path.relative_to(collection()).as_posix()
        if path.suffix == ".csv":
            with path.open(encoding="utf-8", newline="") as file:
                texts |= {f"{name}#{row['id']}": row["text"] for row in csv.DictReader(file)}
        elif path.suffix == ".docx":
            texts[name] = word_text(path)
        elif path.suffix == ".html":
            main = BeautifulSoup(path.read_text(encoding="utf-8"), "lxml").main
            assert main is not None, name
            texts[name] = main.get_text()
        else:
            texts[name] = path.read_text(encoding="utf-8")
    return texts


TEXTS = read()


def occurs(names: list[str], document: str) -> bool:
    """Whether one of the names stands in the document, as whole words, letter for letter."""
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", TEXTS[document]) for name in names)


def listed(value: Any) -> set[str]:
    """Every document that some part of the truth names."""
    if isinstance(value, dict):
        return set().union(*map(listed, value.values()))
    if isinstance(value, list):
        return set().union(*map(listed, value))
    return {value} if isinstance(value, str) and re.fullmatch(r"[a-z]+/[\w./#-]+", value) else set()


def names_of(name: str) -> list[str]:
    """A name and all its aliases, over all bearers of the name."""
    bearers = [entity for entity in TRUTH["entities"] if entity["name"] == name]
    assert bearers, name
    return [name, *(alias for entity in bearers for alias in entity["aliases"])]


def test_the_truth_lists_exactly_the_documents_there_are() -> None:
    """The list of documents equals the collection, and no part of the truth names another document."""
    assert TRUTH["documents"] == sorted(TEXTS)
    assert listed(TRUTH) <= set(TEXTS)


def test_the_collection_is_small_and_has_every_format() -> None:
    """36 to 44 documents, none over 4000 characters, 45 to 70 kB in all, in five formats and in subfolders."""
    assert 36 <= len(FILES) <= len(TEXTS) <= 44
    assert max(map(len, TEXTS.values())) <= 4000
    assert 45_000 <= sum(len(text.encode()) for text in TEXTS.values()) <= 70_000
    assert {path.suffix for path in FILES} == {".txt", ".md", ".html", ".csv", ".docx"}
    assert all(path.parent != collection() for path in FILES)


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix != ".docx"], ids=lambda path: path.name)
def test_text_files_are_plain_utf8(path: Path) -> None:
    """Text files are UTF-8 without a mark at the start, with line feeds, and end with one."""
    raw = path.read_bytes()
    assert raw.decode("utf-8").endswith("\n")
    assert not raw.startswith(b"\xef\xbb\xbf")
    assert b"\r" not in raw


def test_no_document_repeats_another() -> None:
    """No paragraph of more than 60 characters stands in two documents."""
    seen: dict[str, str] = {}
    for name, text in TEXTS.items():
        for paragraph in {line.strip() for line in text.splitlines() if len(line.strip()) > 60}:
            assert seen.setdefault(paragraph, name) == name, paragraph


@pytest.mark.parametrize("entity", TRUTH["entities"], ids=lambda entity: f"{entity['name']} ({entity['type']})")
def test_every_entity_stands_in_its_documents(entity: dict[str, Any]) -> None:
    """An entity has one of the five types, and its name or an alias stands in each document listed for it."""
    assert entity["type"] in {"organization", "person", "geo", "event", "object"}
    assert entity["documents"]
    assert [name for name in entity["documents"] if not occurs([entity["name"], *entity["aliases"]], name)] == []


@pytest.mark.parametrize("edge", TRUTH["relationships"], ids=lambda edge: f"{edge['source']} - {edge['target']}")
def test_every_relationship_has_both_ends_in_its_documents(edge: dict[str, Any]) -> None:
    """Both ends of a relationship are entities of the truth and stand in each document listed for it."""
    assert edge["documents"]
    for end in (edge["source"], edge["target"]):
        assert [name for name in edge["documents"] if not occurs(names_of(end), name)] == []


def test_no_document_holds_the_main_answer_alone() -> None:
    """The themes of the recommended question reach over most documents, and no document has more than half of them."""
    question = next(q for q in TRUTH["questions"]["global"] if q["question"] == TRUTH["recommended_question"])
    titles = [theme["title"] for theme in TRUTH["themes"]]
    spread = [name for theme in TRUTH["themes"] for name in theme["documents"]]
    assert question["themes"] == titles
    assert len(set(spread)) >= 0.8 * len(TEXTS)
    assert max(map(spread.count, spread)) <= len(titles) / 2
    assert all(set(q["themes"]) <= set(titles) for q in TRUTH["questions"]["global"])


def test_homonyms_are_bearers_of_one_name() -> None:
    """Each homonym is two entities of the same name, with the documents of each bearer, and says that they stay merged for now."""
    for homonym in TRUTH["homonyms"]:
        bearers = [entity for entity in TRUTH["entities"] if entity["name"] == homonym["name"]]
        assert [b["documents"] for b in homonym["bearers"]] == [sorted(b["documents"]) for b in bearers]
        assert [b["type"] for b in homonym["bearers"]] == [b["type"] for b in bearers]
        assert "until entity resolution exists" in homonym["note"]


def test_the_pen_name_meets_the_name_in_one_document() -> None:
    """Both names of the writer stand together in the document that reveals them, and nowhere else."""
    (pair,) = TRUTH["aliases"]
    both = [name for name in TEXTS if occurs([pair["name"]], name) and occurs([pair["alias"]], name)]
    assert both == [pair["revealed_in"]]
    assert pair["alias_documents"] == [name for name in sorted(TEXTS) if occurs([pair["alias"]], name)]


def test_contradiction_and_amendment_stand_where_the_truth_says() -> None:
    """Each side of the contradiction and each state of the rule stands in its own document alone."""
    sides = [*TRUTH["contradiction"]["sides"], TRUTH["amendment"]["old"], TRUTH["amendment"]["new"]]
    for side in sides:
        assert [name for name in TEXTS if occurs([side["says"]], name)] == [side["document"]]
    assert occurs([TRUTH["amendment"]["in_force_from"]], TRUTH["amendment"]["new"]["document"])


def test_one_document_is_in_german() -> None:
    """Only the listed document is written in another language."""
    german = [name for name, text in TEXTS.items() if len(re.findall(r"\b(?:der|die|das|und|ist|nicht)\b", text)) > 8]
    assert german == [TRUTH["other_language"]["document"]]


@pytest.mark.parametrize("fact", TRUTH["questions"]["fact"], ids=lambda fact: fact["question"])
def test_facts_stand_in_the_documents_to_cite(fact: dict[str, Any]) -> None:
    """Each expected part of a fact's answer stands in the documents that are to be cited."""
    cited = "\n".join(TEXTS[name] for name in fact["cites"]).lower()
    assert fact["expect"]
    assert [ways for ways in fact["expect"] if not any(way.lower() in cited for way in ways)] == []


def test_four_questions_have_no_answer() -> None:
    """Four questions are there to be declined."""
    assert len({question["question"] for question in TRUTH["questions"]["unanswerable"]}) == 4
