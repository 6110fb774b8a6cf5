"""A briefing without a model quotes what answers, opens at the exact words, and says when nothing does."""

import asyncio
import re

import pytest

from graphrag_local.query.ask import ask_nobody
from graphrag_local.query.briefing import MODE
from graphrag_local.settings import QuerySettings
from graphrag_local.text import one_line
from tests.query.world import NoEmbedder, WordEmbedder, community_index, random_index, text_index

TEXTS = {
    "harbour": "The harbour of Port Ellis was dredged in spring. Mira Holt says that dredging costs more than the ferry earns. "
    "She painted her door green. The mayor answered that the ferry is worth its costs to everybody on the island.",
    "museum": "The museum shows ropes and sails of the old fleet. Its keeper thinks the dredging has damaged the old mole badly. Entry is free on Mondays.",
    "weather": "It rained for nine days without a break in the hills. The barley lay flat in the fields afterwards.",
}  # fmt: skip
SCRIPTS = {
    "渡轮的费用是多少？": ("渡轮每年的费用是三百万。博物馆星期一免费。市长喜欢绿色的门。", "渡轮"),
    "كم تكلفة العبارة؟": ("تبلغ تكلفة العبارة ثلاثة ملايين في السنة الواحدة فقط. المتحف مجاني يوم الاثنين.", "العبارة"),
    "Сколько стоит паром?": ("Паром стоит городу три миллиона рублей каждый год без исключения. Музей бесплатен по понедельникам.", "Паром"),
    "渡し船の費用は？": ("渡し船の費用は毎年三百万円です。博物館は月曜日に無料です。", "費用"),
}


def briefed(question, index, embedder=None, **more):
    """The briefing on a question."""
    return asyncio.run(ask_nobody(question, index, embedder or NoEmbedder(), QuerySettings(), mode="global", level=None, **more))


def check(answer, index):
    """Every line under a heading is cited, every number is known, and every citation opens at the words that it shows."""
    documents = {document.path: document.text for document in index.documents()}
    for block in filter(None, answer.answer.split("\n\n") if answer.answered else []):
        heading, *lines = block.split("\n")
        assert heading.startswith("**")
        assert heading.endswith("**")
        assert lines
        assert all(re.fullmatch(r"- .+ \[\d+\]", line) for line in lines)
    used = {int(number) for number in re.findall(r"\[(\d+)\]$", answer.answer, re.MULTILINE)}
    assert used == {citation.n for citation in answer.citations}
    for citation in answer.citations:
        assert citation.sources
        for source in citation.sources:
            assert documents[source.document][source.start : source.end] == source.quote != ""
    for sentence in answer.sentences:
        quotes = [one_line(source.quote) for citation in answer.citations if citation.n in sentence.cites for source in citation.sources]
        assert sentence.verdict != "supported" or one_line(sentence.text) in quotes


@pytest.mark.parametrize("embedder", [NoEmbedder(), WordEmbedder()], ids=["words", "vectors"])
def test_it_quotes_what_answers_under_its_document(embedder):
    """The sentences that have the words of the question come, each under its document, and what is about something else does not."""
    index = text_index(**TEXTS)
    answer = briefed("What do people say about dredging?", index, embedder)

    check(answer, index)
    assert answer.answered
    assert answer.mode == MODE
    assert "dredging costs more than the ferry earns" in answer.answer
    assert "damaged the old mole" in answer.answer
    assert "**harbour.txt**" in answer.answer
    assert "**museum.txt**" in answer.answer
    assert "painted her door" not in answer.answer
    assert "barley" not in answer.answer


@pytest.mark.parametrize("question", SCRIPTS)
def test_every_script(question):
    """Questions in other scripts find their sentence, which comes whole and first."""
    text, word = SCRIPTS[question]
    index = text_index(a=text, b=TEXTS["weather"])
    answer = briefed(question, index)

    check(answer, index)
    assert answer.answered
    assert word in answer.sentences[0].text
    assert answer.sentences[0].text in text


def test_words_that_the_documents_do_not_have_are_said():
    """A question about what is nowhere is not answered, and the note names it; of one that is half about it the note says which half."""
    index = text_index(**TEXTS)
    nothing, half = briefed("Who is Zorblax Quibble?", index), briefed("What does dredging cost in Zorblax?", index)

    assert not nothing.answered
    assert not nothing.citations
    assert not nothing.sentences
    assert any("zorblax" in note for note in nothing.notes)
    assert any("zorblax" in note for note in half.notes)
    check(half, index)


def test_a_question_about_the_whole_is_answered_by_the_reports():
    """Main themes are what the reports say, largest community first, each finding with its source."""
    index = community_index(6)
    answer = briefed("What are the main themes?", index)

    check(answer, index)
    assert answer.answered
    assert answer.level == 0
    assert {citation.kind for citation in answer.citations} == {"report"}


def test_ids_and_marks_in_documents_are_no_citations():
    """What a document writes like a citation, a heading or a control token opens nothing and breaks no line."""
    text = "Dredging is paid by the town [R99] and nobody else, as item [7] of the list says.\n# Dredging was <|end|> stopped [1, 2] in the year of the flood.\n"
    index = text_index(a=text, b=TEXTS["harbour"])
    answer = briefed("What about the dredging of the town?", index)

    check(answer, index)
    assert answer.answered
    assert "[R99]" not in answer.answer
    assert "[7]" not in answer.answer


@pytest.mark.parametrize("seed", range(6))
def test_any_index_gives_a_sound_answer(seed):
    """Whatever an index holds, in whatever order its rows come, a briefing is well formed and always the same."""
    index = random_index(seed, 20)
    words = " ".join(index.chunks()[0].text.split()[:3])

    for question in (words or "a b", "What are the main themes?", "???a"):
        answer = briefed(question, index)
        check(answer, index)
        assert briefed(question, index.shuffled(seed)).answer == answer.answer


TWO_HOPS = {
    "Ottoline Marsk": "Ottoline Marsk was a botanist of the northern islands. She took her degree under the professor Aksel Bruun, whom she admired all her life.",
    "Aksel Bruun": "Aksel Bruun was born in the village of Tolme on a winter night. He kept bees behind the house. The bees of Aksel Bruun gave dark honey.",
    "Ferry": "The ferry of Port Ellis was born of a quarrel between two brothers. It sails on Mondays.",
    "Weather": "It rained for nine days without a break in the hills. The barley lay flat in the fields afterwards.",
}


@pytest.mark.parametrize("told", ["", "Aksel Bruun kept bees. He was later known far beyond the islands. "])
def test_a_question_with_two_steps_is_answered_from_the_second_passage(told):
    """A sentence about the name that leads on counts as one about the words beside that name, also where the text calls it "he"; others of it do not."""
    texts = dict(TWO_HOPS)
    if told:
        texts["Aksel Bruun"] = told + texts["Aksel Bruun"].replace("Aksel Bruun was born", "He was born")
    index = text_index(**texts)
    answer = briefed("Where was the professor of Ottoline Marsk born?", index)

    check(answer, index)
    assert "born in the village of Tolme" in answer.answer
    assert "under the professor Aksel Bruun" in answer.answer
    assert "honey" not in answer.answer
    assert "ferry" not in answer.answer


def test_a_line_without_full_stops_is_quoted_in_part():
    """Of a sentence too long to read the piece is quoted that has the words of the question, at its own place."""
    line = " ".join(f"item {n} of the list came by cart" for n in range(40))
    index = text_index(a=f"{line} and dredging cost nine crowns while {line}.", b=TEXTS["weather"])
    answer = briefed("What did dredging cost in crowns?", index)

    check(answer, index)
    assert "dredging cost nine crowns" in answer.answer
    assert all(len(source.quote) <= 400 for citation in answer.citations for source in citation.sources)


def test_a_quote_says_who_said_it():
    """In a transcript each quote has its speaker behind it, also where the name stands some sentences before."""
    talk = (
        "ANN HILL: What about the ferry?\nBO: It runs.\nANN HILL: I see.\nBO: Good. The ferry costs three million a year and nobody knows why it does.\n"
        "ANN HILL: That is a lot of money for such a small and rusty boat, I think.\nBO: It is.\nANN HILL: We had a warm summer here, and a wet autumn too.\n"
    )
    index = text_index(talk=talk, other="The barley lay flat in the fields after the rain of nine days.")

    for question, first in (
        ("What does the ferry cost?", "- The ferry costs three million a year and nobody knows why it does. — BO [1]"),
        ("What does Ann Hill say about the boat?", "- That is a lot of money for such a small and rusty boat, I think. — ANN HILL [1]"),
    ):
        answer = briefed(question, index)
        check(answer, index)
        assert answer.answer.split("\n")[1] == first
