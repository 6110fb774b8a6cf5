"""What models really reply about a passage: invented names, odd characters, records that make no sense. The graph holds what the text says."""

import json
from typing import Any

import pytest

from graphrag_local.prompting import load_all
from graphrag_local.records import Entity, Mention, Relationship, Report
from tests.cases.program import program

MANUAL = """# Handbuch der Seilwinde

Die Trommel des Seilwinders wird mit Knochen-
fett geschmiert. Meisterin Thea Brandt prüft
die Bremsbacken im Frühjahr. Das Öl der Bremse heißt Speiseöl.
"""
REAL = ["Seilwinder", "Knochenfett", "Thea Brandt", "Bremsbacke", "thea brandt", "„Thea Brandt“"]
INVENTED = ["Marathon von Korinth", "Dr. Ivo Quint", "Ring", "Art", "Winde 7", "Seil AG"]


def entity(name: Any, *sentences: Any, kind: Any = "other", description: Any = "Said of it.") -> dict[str, Any]:
    """One entity of a reply."""
    return {"name": name, "type": kind, "description": description, "sentences": list(sentences) or [1]}


def edge(source: Any, target: Any, strength: Any = 5, description: Any = "They go together.") -> dict[str, Any]:
    """One relationship of a reply."""
    return {"source": source, "target": target, "strength": strength, "description": description, "sentences": [1]}


def reply(entities: list[Any], edges: list[Any], **more: Any) -> str:
    """A whole reply."""
    return json.dumps({"entities": entities, "relationships": edges, "missed": "N", "more_entities": [], "more_relationships": [], **more})


def says(text: str) -> dict[str, Any]:
    """A script whose every extraction is this text."""
    return {"rules": [{"on": "extract", "do": {"text": text}}]}


def test_names_that_the_text_does_not_hold_stay_out(tmp_path):
    """Invented names are kept apart and counted; inflected, hyphenated, broken and requoted ones stay; no edge dangles; nothing shows them."""
    names = [*REAL, *INVENTED]
    edges = [edge(1, 3), edge(len(REAL) + 1, len(REAL) + 2), edge(3, len(REAL) + 1)]
    with program(tmp_path, {"winde.md": MANUAL}, says(reply([entity(name) for name in names], edges))) as it:
        done = it.index()
        assert done.code == 0
        assert it.names() == {"Seilwinder", "Knochenfett", "Thea Brandt", "Bremsbacke"}
        assert it.edges() == {("Seilwinder", "Thea Brandt")}
        assert done.json["apart"] == len(INVENTED)
        assert it.status()["apart"] == done.json["apart"]
        assert f"{done.json['apart']} are kept apart" in it.run("status").out
        told = " ".join(str(item) for kind in (Entity, Relationship, Mention, Report) for item in it.records(kind))
        prompts = " ".join(str(record.body) for record in it.server.requests("report", "describe"))
        for name in ("Korinth", "Quint"):
            assert name not in told + prompts
            assert it.run("show", "entity", name).code == 2


def test_examples_of_our_own_prompts_are_no_entities(tmp_path):
    """Every capitalised word of the program's own prompts, returned as an entity, stays out of a corpus that does not hold it."""
    words = sorted({word for prompt in load_all(tmp_path).values() for word in f"{prompt.system} {prompt.user}".split() if word.isalpha() and word.istitle()})
    assert words
    with program(tmp_path, {"a.txt": "xyz 123."}, says(reply([entity(word) for word in words[:50]], []))) as it:
        assert it.index().code == 0
        assert it.names() == set()


ODD = r"""{"entities":[
{"name":"Ada \u0001Lund","type":"person","description":"keeper ]]> of <log> & \"lamp\" \ud83d","sentences":[1]},
{"name":"\u001b[1;31mred light\u001b[0m","type":"event","description":"at post\u000c4","sentences":[1]},
{"name":"$\frac{m}{n}$","type":"other","description":"the ratio $\beta \neq \tau$, of slope $\sigma$","sentences":[2]},
{"name":"Crab \ud83e","type":"other","description":"half","sentences":[3]},
{"name":"</script><script>run()</script>","type":"other","description":"markup","sentences":[3]},
{"name":"=SUM(A1)","type":"other","description":"formula","sentences":[3]},
{"name":"雾号 & 灯","type":"other","description":"two","sentences":[3]},
{"name":"NUL","type":"other","description":"device","sentences":[3]},
{"name":"nul","type":"other","description":"small","sentences":[3]},
{"name":"Nor\u0000vik\u200f","type":"geo","description":"a place","sentences":[1]}],
"relationships":[
{"source":1,"target":2,"description":"saw\u0007","strength":5,"sentences":[1]},
{"source":"$\frac{m}{n}$","target":"Crab \ud83e","description":"none","strength":5,"sentences":[3]},
{"source":"NUL","target":"nul","description":"differ","strength":5,"sentences":[3]},
{"source":10,"target":5,"description":"near","strength":5,"sentences":[1]}],"missed":"N","more_entities":[],"more_relationships":[]}"""
ODD_TEXT = (
    b"Log \x01 of Ada Lund of Norvik: \x1b[1;31mred light\x1b[0m at post\x0c4.\n\nThe ratio is $\\frac{m}{n}$. Zero: \x00 end.\n\n"
    + 'On the wall: Crab 🦀, </script><script>run()</script>, =SUM(A1), 雾号 & 灯, NUL and nul.\n'.encode()
)  # fmt: skip
FORBIDDEN = [*range(9), 11, 12, *range(14, 32), 0x7F, 0x200F, *range(0xD800, 0xE000)]


def test_control_characters_and_half_characters_end_where_they_arrive(tmp_path):
    """Names and descriptions hold no control character, terminal colour, direction mark or half emoji; LaTeX stays; edges keep their ends."""
    with program(tmp_path, {"odd.txt": ODD_TEXT}, says(ODD)) as it:
        assert it.index().code == 0
        assert it.names() == {"Ada Lund", "red light", "$\\frac{m}{n}$", "Crab", "</script><script>run()</script>", "=SUM(A1)", "雾号 & 灯", "NUL", "nul", "Norvik"}
        assert len(it.edges()) == 4
        stored = [text for item in it.records(Entity) for text in (item.name, item.description, *item.aliases)]
        stored += [text for item in it.records(Mention) for text in (item.name, item.description)]
        stored += [text for item in it.records(Report) for text in (item.title, item.summary, *(f.explanation for f in item.findings))]
        stored += list(it.texts().values())
        assert not {ord(character) for text in stored for character in text} & set(FORBIDDEN)
        assert it.show("entity", "$\\frac{m}{n}$")["description"] == "the ratio $\\beta \\neq \\tau$, of slope $\\sigma$"
        for name in it.names():
            shown = it.run("show", "entity", name, "--json")
            assert shown.json["name"] == name
            shown.out.encode("utf-8")
            assert it.run("show", "entity", name).code == 0


PAIR = [entity("Ada Lund", kind="person"), entity("Bo Falk", kind="person")]
BOTH = reply(PAIR, [edge(1, 2)])
ONE_EDGE = {("Ada Lund", "Bo Falk")}
FITTING = {
    "fence": f"```json\n{BOTH}\n```",
    "chatter": f"Certainly!\n{BOTH}\nAnything else? {{}}",
    "twice": f"{BOTH}\n{BOTH}",
    "thoughts": f"<think>a {{b}} [c]</think>{BOTH}",
    "trailing comma": f"{BOTH[:-1]},}}",
    "byte order mark": f"\ufeff{BOTH}",
    "raw line break": BOTH.replace("Said of", "Said\nof"),
    "bad escape": BOTH.replace("Said of", "Said \\of \\users"),
    "extra keys": reply([{**item, "confidence": 0.5} for item in PAIR], [{**edge(1, 2), "why": [1]}], comment="x"),
    "self loop": reply(PAIR, [edge(1, 1), edge(1, 2)]),
    "unknown ends": reply(PAIR, [edge(1, 99), edge(0, 1), edge(-1, 2), edge("Nobody", 1), edge(None, 2), edge([1], 2), edge(1, 2)]),
    "ends by name": reply(PAIR, [edge("ada lund", " Bo  Falk ")]),
    "ends as text": reply(PAIR, [edge("1", 2.0)]),
    "empty names": reply([entity(""), entity(" \t"), entity("\u200b"), entity("..."), *PAIR], [edge(5, 6), edge(1, 5)]),
    "no names": reply([{"type": "person"}, None, 5, "x", entity(None), entity(["Ada Lund"]), entity({"a": 1}), entity(True), *PAIR],
                      [None, "x", edge("Ada Lund", "Bo Falk")]),
    "repeated": reply([*PAIR, entity("ADA LUND", kind="person"), entity("Ada  Lund", kind="person"), entity("Ada Lund")], [edge(1, 2), edge(1, 2)]),
    "endless name": reply([entity("Ada Lund and " * 40), *PAIR], [edge(2, 3), edge(1, 2)]),
    "no descriptions": reply([entity("Ada Lund", description=None), entity("Bo Falk", description=["x"])], [edge(1, 2, description=None)]),
    "no such type": reply([entity("Ada Lund", kind="dragon"), entity("Bo Falk", kind=None)], [edge(1, 2)]),
    "no such sentences": reply([entity("Ada Lund", 0, 99, -1), entity("Bo Falk", "1", None, 1.5, [2])], [{**edge(1, 2), "sentences": [77]}]),
    "more in spite of N": reply([PAIR[0]], [], more_entities=[PAIR[1]], more_relationships=[edge(1, 2)]),
    "lists left out": json.dumps({"entities": PAIR, "relationships": [edge(1, 2)]}),
}  # fmt: skip


@pytest.mark.parametrize("said", FITTING.values(), ids=FITTING.keys())
def test_a_reply_with_a_fault_gives_what_is_sound_in_it(tmp_path, said):
    """Wrapping, extra keys and records without sense cost nothing but themselves: both names and their edge are in the graph, and nothing else."""
    with program(tmp_path, {"a.txt": "Ada Lund met Bo Falk in Tarn."}, says(said)) as it:
        done = it.index()
        assert done.code == 0, done.json["failures"]
        assert it.names() == {"Ada Lund", "Bo Falk"}
        assert it.edges() == ONE_EDGE
        assert all(item.description not in ("None", "") for item in it.records(Entity))
        assert len(it.server.requests("extract")) == 1


@pytest.mark.parametrize(
    ("strength", "weight"),
    [(-7, 1.0), (0, 1.0), (0.5, 1.0), (7, 7.0), (1e308, 10.0), (10**400, 10.0), (float("nan"), 1.0), (float("inf"), 10.0),
     ("9/10", 9.0), ("strong", 1.0), (None, 1.0), ([3], 1.0), (True, 1.0)],
    ids=lambda value: str(value)[:8],
)  # fmt: skip
def test_a_strength_of_any_kind_is_a_weight_from_one_to_ten(tmp_path, strength, weight):
    """Negative, huge, missing and wordy strengths give a finite weight within the scale."""
    with program(tmp_path, {"a.txt": "Ada Lund met Bo Falk in Tarn."}, says(reply(PAIR, [edge(1, 2, strength)]))) as it:
        assert it.index().code == 0
        assert [item.weight for item in it.records(Relationship)] == [weight]


UNFITTING = {
    "blank": "", "words": "I cannot help with that.", "null": "null", "an empty object": "{}", "no list": '{"entities": null}', "deep": '{"entities": ' + "[" * 3000,
    "long number": '{"entities": [], "relationships": [{"source": 1, "target": ' + "9" * 5000 + "}]}",
    "other keys": json.dumps({"entities": [{"entity": "Ada Lund", "label": "person"}], "relationships": []}), "torn": BOTH[:60],
}  # fmt: skip


@pytest.mark.parametrize("said", UNFITTING.values(), ids=UNFITTING.keys())
def test_a_reply_without_sense_is_a_failure_of_its_chunk_only(tmp_path, said):
    """A reply that cannot be used is asked again, then told with document, chunk and reason; the other documents are whole; the code is 3."""
    script = {"rules": [{"on": "extract", "when_prompt_has": "Ada", "do": {"text": said}}], "fixtures": [{"entities": [entity("Cleo Marr")]}]}
    with program(tmp_path, {"a.txt": "Ada Lund met Bo Falk in Tarn.", "b.txt": "Cleo Marr stayed."}, script) as it:
        done = it.index()
        assert done.code == 3
        assert it.names() == {"Cleo Marr"}
        assert {(f["stage"], f["input"].split(",")[0]) for f in done.json["failures"]} == {("extraction", "a.txt")}
        assert it.status()["failures"] == done.json["failures"]
        assert 1 < len(it.server.requests("extract")) <= 8
