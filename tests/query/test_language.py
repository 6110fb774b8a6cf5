"""The language of a question, and the sentence that declines in it."""

import pytest

from graphrag_local.query.language import DECLINED, NAMES, declined, instruction, language_of

QUESTIONS = {
    "en": ["What is the capital of Norway?", "Who is 李明?", "Tell me about the keeper of the lighthouse"],
    "de": ["Wann kommen die Graskarpfen in den Warmteich?", "Welche Themen gibt es?"],
    "fr": ["Quelle est la capitale de la Norvège ?", "Qui a écrit la pièce ?"],
    "es": ["¿Cuál es la capital de Noruega?"], "pt": ["Qual é a capital da Noruega?", "Quem são os autores?"],
    "it": ["Qual è la capitale della Norvegia?", "Chi sono gli autori?"], "nl": ["Wat is de hoofdstad van Noorwegen?"],
    "pl": ["Jaka jest stolica Norwegii?"], "sv": ["Vad är huvudstaden i Norge?"], "fi": ["Mikä on Norjan pääkaupunki?"],
    "ru": ["Какая столица Норвегии?"], "uk": ["Яка столиця Норвегії?"], "ar": ["ما هي عاصمة النرويج؟"],
    "zh": ["法国的首都是哪里?", "Nils Aho 用什么喂草鱼,一天几次?"], "ja": ["ノルウェーの首都はどこですか。"], "ko": ["노르웨이의 수도는 어디입니까?"],
}  # fmt: skip


@pytest.mark.parametrize(("code", "question"), [(code, question) for code, asked in QUESTIONS.items() for question in asked])
def test_questions_are_told_apart(code, question):
    """Scripts decide first, weighed by words; then function words do."""
    assert language_of(question) == code
    assert declined(question) == DECLINED[code]


def test_a_wanted_language_goes_before_the_question():
    """The setting may be a code or a name; a language that we have no sentence in leaves the question's."""
    assert declined("What is it?", "de") == declined("What is it?", "German") == DECLINED["de"]
    assert declined("Was ist das?", "Danish") == DECLINED["de"]
    assert instruction("Was ist das?") == "German, the language of the question"
    assert instruction("Xyzzy") == "the language of the question"
    assert instruction("What?", "fr") == "French"
    assert instruction("What?", "Klingon") == "Klingon"


def test_every_language_has_a_name_and_a_sentence():
    """The tables agree."""
    assert set(NAMES) == set(DECLINED) == set(QUESTIONS)
