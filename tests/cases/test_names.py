"""One thing under many names, many things under like names, and names in the script of their text."""

from itertools import pairwise
from typing import Any

import pytest

from graphrag_local.records import Document, Entity, Mention
from graphrag_local.text import clean_name, name_key
from tests.cases.program import Program, program

SAME = [
    ("Harbour Guard", "harbour guard"), ("HARBOUR Guard", "Harbour  Guard"), ("Siân Tŷ", "Sia\u0302n Ty\u0302"), ("ＤＥＦ工業", "DEF工業"),
    ("Alder Mill.", "Alder Mill"), ("D’Arcy Quay", "D'Arcy Quay"), ("“Old Nell”", "Old Nell"), ("東門書店", "东门书店"), ("한빛 서점", "한빛서점"),
    ("Straße 9", "STRASSE 9"), ("سَعِيد", "سعيد"), ("سعيـــد", "سعيد"), ("\u202bسعيد\u202c", "سعيد"), ("می\u200cترا", "میترا"), ("Nor\u00adholm", "Norholm"),
    ("Zero\u200bwidth", "Zerowidth"), ("Saint‑Luc", "Saint-Luc"), ("غرفة ٧", "غرفة 7"),
]  # fmt: skip
DIFFERENT = [
    ("Karl Ohm", "Karl Ohm Jr."), ("西安 Academy", "延安 Academy"), ("정민호", "정민후"), ("Gate 2", "Gate 22"), ("Gate 2", "Gate II"),
    ("C", "C++"), ("C", "C#"), ("Борки", "Горки"), ("سمير النجار", "سمر النجار"), ("IT", "it"), ("Ekström", "Ekstrom"), ("Vasa I", "Vasa II"),
    ("Ση", "Σκ"), ("नील", "नीला"), ("R&D", "RD"), ("Line -1", "Line 1"), ("王力", "王立"), ("ב", "ג"),
]  # fmt: skip


def script(names: list[str]) -> dict[str, Any]:
    """A server that lists these names, whatever the passage, where they stand in it."""
    return {"fixtures": [{"fixture_filter": False, "entities": [{"name": n, "type": "other", "description": f"Said of {clean_name(n)}."} for n in names]}]}


def register(names: list[str]) -> str:
    """A text that holds the names."""
    return " ".join(f"On line {number}: {name} was seen." for number, name in enumerate(names)) + "\n"


def owners(it: Program) -> dict[str, str]:
    """The node of every name that was mentioned."""
    return {mention.name: mention.owner_id for mention in it.records(Mention) if mention.owner_kind == "entity"}


def test_forms_of_one_name_are_one_node(tmp_path):
    """Case, width, composition, spaces, stops, quotes, vowel signs, joiners and Chinese forms make no second node; each form finds the node."""
    names = list(dict.fromkeys(name for pair in SAME for name in pair))
    with program(tmp_path, {"register.txt": register(names)}, script(names), extraction__canonical=False) as it:
        done = it.index()
        assert (done.code, done.json["apart"]) == (0, 0)
        node = owners(it)
        for first, second in SAME:
            assert node[clean_name(first)] == node[clean_name(second)] == it.show("entity", first)["id"], (first, second)
        keys = {name_key(name) for name in names}
        assert it.status()["counts"]["entities"] == len(keys) < len(names)
        text = it.texts()["register.txt"]
        for entity in it.records(Entity):
            bare = clean_name(entity.name)
            assert any(bare in clean_name(piece) for piece in text.split(":")), f"{entity.name!r} is not how the text writes it"


def test_like_names_of_different_things_stay_two(tmp_path):
    """Suffixes, numbers, signs, other scripts and single letters keep things apart, in the graph and when one of them is looked up."""
    names = list(dict.fromkeys(name for pair in DIFFERENT for name in pair))
    with program(tmp_path, {"register.txt": register(names)}, script(names), extraction__canonical=False) as it:
        done = it.index()
        assert (done.code, done.json["apart"]) == (0, 0)
        node = owners(it)
        for first, second in DIFFERENT:
            assert node[clean_name(first)] != node[clean_name(second)], (first, second)
        for name in ("Gate 2", "C", "IT", "it", "정민호"):
            assert it.show("entity", name)["id"] == node[name]
        assert it.status()["counts"]["entities"] == len(names)


def test_no_name_loses_all_its_letters(tmp_path):
    """Names of one letter in any script have keys of their own; what has no letter or digit is no entity."""
    names = ["Я", "Ж", "あ", "い", "井", "ا", "ك", "ঠ", "ก", "ข", "Ω", "Þ", "7", "8"]
    with program(tmp_path, {"a.txt": register(names)}, script([*names, "—", "🙂", "...", "\u200b", "\u0301"]), extraction__canonical=False) as it:
        assert it.index().code == 0
        assert it.names() == set(names)


def test_files_in_another_order_or_in_two_steps_give_the_same_names(tmp_path):
    """Which form is shown and which are aliases depends on the texts, not on file names, order, or on how many runs it took."""
    texts = ["The HARBOUR Guard came.", "The harbour guard slept.", "Then the Harbour Guard woke.", "The Harbour Guard left."]
    forms = {"fixture_pattern": {"entities": ["(?i)harbour guard"], "types": ["person"]}}

    def result(it: Program) -> list[tuple[str, tuple[str, ...], int]]:
        return sorted((entity.name, entity.aliases, entity.mentions) for entity in it.records(Entity))

    def run(folder: str, *steps: dict[str, str | bytes]) -> list[tuple[str, tuple[str, ...], int]]:
        with program(tmp_path / folder, {}, forms) as it:
            for step in steps:
                it.put(step)
                assert it.index().code == 0
            return result(it)

    there = {f"{number}.txt": text for number, text in enumerate(texts)}
    back = {f"{number}.txt": text for number, text in enumerate(reversed(texts))}
    first, second = dict(list(there.items())[:2]), dict(list(there.items())[2:])
    results = [run("a", there), run("b", back), run("c", first, second), run("d", second, first)]
    assert all(one == other for one, other in pairwise(results))
    assert [name for name, _, _ in results[0]] == ["Harbour Guard"]


FOLDER = {
    "zh.txt": "周平在东门看守老桥。他的老师林远一九六一年重修了桥塔“石牛”。东门运输公司（Eastgate Lines）付了钱。\n",
    "zh-tw.txt": "林遠的學生周平住在東門。\n",
    "ar.txt": "يحرس سَعِيد النجّار جسر الوادي. أصلح سعيـــد البرج سنة ١٩٦١ مع شركة \u200fEastgate\u200f للنقل.\n",
    "fa.txt": "می\u200cترا کنار رود زندگی می\u200cکند.\n",
    "fi.txt": "Siltavahti Päivi Löf asuu Koskelassa. Löfin sisko Aino korjasi tornin.\n",
    "th.txt": "สมชายดูแลสะพานที่บางปู\n",
    "en.txt": "Eastgate Lines paid for the tower between 1960 and 1965.\n",
}
IN_TEXT: dict[str, list[str]] = {
    "zh.txt": ["周平", "林远", "东门运输公司", "Eastgate Lines"], "zh-tw.txt": ["林远", "周平"],
    "ar.txt": ["سَعِيد النجّار", "سعيـــد", "\u200fEastgate\u200f", "\u202bجسر الوادي\u202c"],
    "fa.txt": ["میترا"], "fi.txt": ["Päivi Löf", "Koskela", "Aino"], "th.txt": ["สมชาย", "บางปู"], "en.txt": ["Eastgate Lines"],
}  # fmt: skip
NOT_IN_TEXT = {"zh.txt": ["Zhou Ping", "周远", "林平", "East Gate"], "ar.txt": ["Saeed", "سعد"], "fi.txt": ["Bridge Keeper"], "th.txt": ["Somchai", "ปูบาง"]}
MIXED = {
    "fixtures": [
        {"when_prompt_has": text[:8], "entities": [{"name": n, "type": "other", "description": n} for n in [*IN_TEXT[file], *NOT_IN_TEXT.get(file, ())]]}
        for file, text in FOLDER.items()
    ]
}


def test_names_keep_the_script_of_their_text(tmp_path):
    """Names that the text writes stay, in any script and in logical order, without marks; translated and made-up ones are kept apart."""
    with program(tmp_path, FOLDER, MIXED, extraction__canonical=False) as it:
        done = it.index()
        assert done.code == 0
        names = it.names()
        assert {clean_name(name) for found in IN_TEXT.values() for name in found} >= names
        assert {
            "周平",
            "林远",
            "东门运输公司",
            "Eastgate Lines",
            "Eastgate",
            "سعيد",
            "جسر الوادي",
            "میترا",
            "Päivi Löf",
            "Koskela",
            "Aino",
            "สมชาย",
            "บางปู",
        } <= names
        assert not names & {name for made_up in NOT_IN_TEXT.values() for name in made_up}
        assert done.json["apart"] == sum(map(len, NOT_IN_TEXT.values()))
        assert not {character for name in names for character in name} & set("\u200e\u200f\u202b\u202c\u0640")
        assert it.texts() == FOLDER
        assert {s["document"] for s in it.show("entity", "林遠")["sources"]} == {"zh.txt", "zh-tw.txt"}
        assert not any("\\u" in message["content"] for record in it.server.requests("extract", "report") for message in record.body["messages"])


@pytest.mark.parametrize(
    ("question", "file"),
    [("What was rebuilt in 1961?", "ar.txt"), ("١٩٦١", "ar.txt"), ("林遠", "zh.txt"), ("林远", "zh-tw.txt"), ("ماذا أصلح سعيد؟", "ar.txt"), ("PÄIVI LÖF", "fi.txt")],
)
def test_words_are_found_in_whatever_form_they_are_asked(tmp_path, question, file):
    """Digits of other scripts, vowel signs, traditional characters and case do not hide a passage from a question."""
    with program(tmp_path, FOLDER, extraction__canonical=False) as it:
        assert it.index().code == 0
        hits = it.run("query", question, "--retrieve-only", "--json", "--mode=basic").json
        assert file in {hit["document"] for hit in hits[:2]}
        assert len(it.records(Document)) == len(FOLDER)


def test_the_name_shown_is_as_the_text_writes_it(tmp_path):
    """A model that writes names in small letters or in capitals does not change how they are shown."""
    with program(tmp_path, {"a.txt": "The Harbour Guard met ADA Lund of McKay."}, script(["harbour guard", "ADA LUND", "Mckay"])) as it:
        assert it.index().code == 0
        assert it.names() == {"Harbour Guard", "ADA Lund", "McKay"}
