"""The language of a question, and the sentence that declines in it."""

import pytest

from graphrag_local.query.language import DECLINED, NAMES, asked_for, declined, instruction, language_of

QUESTIONS = {
    "en": ["What is the capital of Norway?", "Who is 李明?", "Tell me about the keeper of the lighthouse"],
    "de": ["Wann kommen die Graskarpfen in den Warmteich?", "Welche Themen gibt es?"],
    "fr": ["Quelle est la capitale de la Norvège ?", "Qui a écrit la pièce ?"],
    "es": ["¿Cuál es la capital de Noruega?"], "pt": ["Qual é a capital da Noruega?", "Quem são os autores?"],
    "it": ["Qual è la capitale della Norvegia?", "Chi sono gli autori?"], "nl": ["Wat is de hoofdstad van Noorwegen?"],
    "pl": ["Jaka jest stolica Norwegii?"], "sv": ["Vad är huvudstaden i Norge?"], "fi": ["Mikä on Norjan pääkaupunki?"],
    "ru": ["Какая столица Норвегии?"], "uk": ["Яка столиця Норвегії?", "Хто написав роман?"], "ar": ["ما هي عاصمة النرويج؟"],
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


@pytest.mark.parametrize(
    ("question", "about"),
    [
        ("What did she tell them about her boat, and where is it now?", ["tell", "about", "boat", "now"]), ("Wer hat ihm sein Boot gegeben?", ["boot", "gegeben"]),
        ("Où est-elle allée avec son bateau ?", ["allée", "bateau"]), ("¿Quién le dio su barco?", ["dio", "barco"]),
        ("Кто такая Мира Холт и где её лодка?", ["мира", "холт", "лодка"]), ("Хто така Міра Холт і де її човен?", ["міра", "холт", "човен"]),
        ("Где он это построил?", ["построил"]), ("Who is she?", ["who", "is", "she"]),
    ],
)  # fmt: skip
def test_small_words_are_not_what_a_question_is_about(question, about):
    """Question words, function words and pronouns fall away in the question's own language; a question of nothing else keeps them all."""
    assert asked_for(question) == about
