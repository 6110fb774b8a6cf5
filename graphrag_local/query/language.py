"""The language of a question, and the one sentence that says in it that the documents do not answer. Pure, from script and function words."""

import re
from functools import lru_cache

from graphrag_local.text import words

DECLINED = {
    "en": "The documents do not answer this question.",
    "de": "Die Dokumente beantworten diese Frage nicht.",
    "fr": "Les documents ne répondent pas à cette question.",
    "es": "Los documentos no responden a esta pregunta.",
    "pt": "Os documentos não respondem a esta pergunta.",
    "it": "I documenti non rispondono a questa domanda.",
    "nl": "De documenten geven geen antwoord op deze vraag.",
    "pl": "Dokumenty nie odpowiadają na to pytanie.",
    "sv": "Dokumenten besvarar inte den här frågan.",
    "fi": "Asiakirjat eivät vastaa tähän kysymykseen.",
    "ru": "Документы не отвечают на этот вопрос.",
    "uk": "Документи не відповідають на це запитання.",
    "ar": "لا تجيب الوثائق عن هذا السؤال.",
    "zh": "文档中没有这个问题的答案。",
    "ja": "文書にはこの質問への答えがありません。",
    "ko": "문서에는 이 질문에 대한 답이 없습니다.",
}
NAMES = {
    "en": "English", "de": "German", "fr": "French", "es": "Spanish", "pt": "Portuguese", "it": "Italian", "nl": "Dutch", "pl": "Polish",
    "sv": "Swedish", "fi": "Finnish", "ru": "Russian", "uk": "Ukrainian", "ar": "Arabic", "zh": "Chinese", "ja": "Japanese", "ko": "Korean",
}  # fmt: skip
LONGEST_INSTRUCTION = f"{max(NAMES.values(), key=len)}, the language of the question"
_FUNCTION_WORDS = {
    "en": "what who when where why how which whose is are was were do does did the a an of in on at to for and or by with has have had can this that",
    "de": "was wer wann wo warum wie welche welcher welches wessen wem wen ist sind war waren wird werden der die das den dem des ein eine einen "
    "und oder von mit zu im in auf für nicht hat haben kann gibt es bei über",
    "fr": "que qui quoi quand où pourquoi comment quel quelle quels quelles est sont était le la les un une des du de et ou dans sur pour par avec "
    "a ont ce cette qu'est qu'il d'un d'une au aux y",
    "es": "qué quién quiénes cuándo dónde por cómo cuál cuáles cuánto es son era fue el la los las un una de del y o en con para que se ha hay al",
    "pt": "que quem quando onde por como qual quais quanto é são era foi o a os as um uma de do da dos das e ou em no na com para se há ao não",
    "it": "che chi cosa quando dove perché come quale quali quanto è sono era fu il lo la gli le un una di del della dei e o in nel con per si ha al",
    "nl": "wat wie wanneer waar waarom hoe welke welk is zijn was waren de het een van in op te voor en of met door heeft hebben kan dit dat niet er",
    "pl": "co kto kiedy gdzie dlaczego jak jaki jaka jakie który która które ile jest są był była było w na z do i oraz lub o od dla przez się nie czy",
    "sv": "vad vem när var varför hur vilken vilket vilka är var och eller en ett den det de av i på till för med som har kan inte om vid",
    "fi": "mikä mitä kuka ketä milloin missä miksi miten kuinka mitkä ketkä on ovat oli olivat ja tai ei että se ne tämä kun mistä mihin kenen",
    "ru": "что чего чему чем кто кого кому кем где когда куда откуда почему зачем как какой какая какое какие каких каком какого какую который которая "
    "которое которые чей чья чьё чье чьи сколько такой такая такое такие это эта этот эти был была было были есть быть ли же бы не ни и или а но да нет в во на "
    "с со из от до для по о об обо при за над под у к ко через между без",
    "uk": "що чого чому чим хто кого кому ким де коли куди звідки навіщо як який яка яке які яких якому якого яку чий чия чиє чиї скільки такий така таке "
    "такі це ця цей ці був була було були є бути чи же би не ні і й та або а але так в у на з із зі від до для по про при за над під к через між без",
}
# Words that stand for someone told of elsewhere, or for who asks and is asked: never what a question is about. They do not tell languages apart.
_PRONOUNS = {
    "en": "i me my mine we us our ours you your yours he him his she her hers it its they them their theirs these those there",
    "de": "ich mich mir mein meine wir uns unser unsere du dich dir dein deine ihr ihre ihren ihrem ihrer euch er ihn ihm sein seine seinen seinem seiner sie "
    "es ihnen dies diese dieser dieses diesen man sich",
    "fr": "je j me m moi mon ma mes nous notre nos tu te t toi ton ta tes vous votre vos il ils elle elles lui leur leurs son sa ses eux se s on cet cette "
    "ces ça cela l d qu c n",
    "es": "yo me mí mi mis nosotros nos nuestro nuestra tú te ti tu tus usted ustedes él ella ello ellos ellas le les lo su sus suyo este esta esto estos estas "
    "ese esa eso esos esas",
    "pt": "eu me mim meu minha nós nos nosso nossa tu te teu tua você vocês ele ela eles elas lhe lhes seu sua seus suas dele dela deles delas este esta isto "
    "esse essa isso",
    "it": "io mi me mio mia noi ci nostro nostra tu ti te tuo tua voi vi vostro lui lei egli ella essi esse loro suo sua suoi sue questo questa questi queste "
    "quello quella l d",
    "nl": "ik mij me mijn wij we ons onze jij je jou jouw u uw hij hem zijn zij ze haar hun hen deze die",
    "pl": "ja mnie mi mój moja my nas nam nasz ty ciebie ci twój wy was wam wasz on ona ono oni one jego go jemu mu jej ją ich im nim nią nich ten ta to ci te",
    "sv": "jag mig min mitt vi oss vår du dig din ditt ni er han honom hans hon henne hennes den dess de dem deras denna detta dessa sin sitt sina",
    "fi": "minä minun minua me meidän sinä sinun te teidän hän hänen häntä hänet he heidän heitä sen niiden nämä tämän tätä",
    "ru": "я меня мне мной мой моя моё мои мы нас нам нами наш наша ты тебя тебе твой вы вас вам ваш он его ему им нём нем она её ее ей ней оно они их ими "
    "них свой своя своё свои этого этой этом тот та те того той",
    "uk": "я мене мені мій моя моє мої ми нас нам наш ти тебе тобі твій ви вас вам ваш він його йому ним ньому вона її їй ній воно вони їх їм ними них їхній "
    "свій своя своє свої цього цієї той та те ті того тієї",
}
_MARKED = {"de": "ß", "es": "ñ¿¡", "pt": "ãõ", "pl": "ąęłśżźćń", "fr": "œçêâî", "sv": "å", "it": "ìò", "nl": "ĳ"}
_SETS = {code: frozenset(listed.split()) for code, listed in _FUNCTION_WORDS.items()}
_SMALL = {code: known.union(_PRONOUNS[code].split()) for code, known in _SETS.items()}  # what says nothing about what is asked for
FUNCTION_WORDS = frozenset().union(*_SETS.values())
_KANA, _HAN, _HANGUL = re.compile("[\u3040-\u30ff]"), re.compile("[\u3400-\u9fff]"), re.compile("[\uac00-\ud7af]")
_ARABIC, _CYRILLIC, _LATIN_WORD = re.compile("[\u0600-\u06ff]"), re.compile("[\u0400-\u04ff]"), re.compile("[a-zA-Z\u00c0-\u024f]+")
_UKRAINIAN = re.compile("[іїєґІЇЄҐ]")
LETTERS_PER_WORD = 5.0  # by which scripts with words are weighed against Latin words
CJK_PER_WORD = 2.0


@lru_cache(maxsize=256)  # one question asks this for every passage
def language_of(question: str) -> str:
    """The code of the question's language, "" where nothing speaks for one.

    Scripts are weighed by words, so that a name in another script does not decide.
    """
    weights = {
        "ja": len(_KANA.findall(question)) and len(_KANA.findall(question) + _HAN.findall(question)) / CJK_PER_WORD,
        "zh": 0.0 if _KANA.search(question) else len(_HAN.findall(question)) / CJK_PER_WORD,
        "ko": len(_HANGUL.findall(question)) / CJK_PER_WORD,
        "ar": len(_ARABIC.findall(question)) / LETTERS_PER_WORD,
        _cyrillic(question): len(_CYRILLIC.findall(question)) / LETTERS_PER_WORD,
    }
    script, weight = max(weights.items(), key=lambda pair: pair[1])
    if weight >= max(0.5, float(len(_LATIN_WORD.findall(question)))):
        return script
    said = list(words(question))
    lowered = question.lower()
    scores = {code: sum(word in known for word in said) + sum(lowered.count(c) for c in _MARKED.get(code, "")) for code, known in _SETS.items()}
    best = max(scores, key=lambda code: scores[code])
    return best if scores[best] else ""


def _cyrillic(question: str) -> str:
    """Ukrainian by letters that Russian does not have, or by its small words; else Russian."""
    said = set(words(question))
    return "uk" if _UKRAINIAN.search(question) or len(said & _SETS["uk"]) > len(said & _SETS["ru"]) else "ru"


def asked_for(question: str) -> list[str]:
    """The words of a question that say what it is about, each once: all but the function words of its language, or all where there are no others."""
    said = list(dict.fromkeys(words(question)))
    known = _SMALL.get(language_of(question), frozenset())
    return [word for word in said if word not in known] or said


def declined(question: str, wanted: str = "") -> str:
    """The sentence, in the wanted language (a code or an English name) where we have it, else in the question's, else in English."""
    folded = wanted.strip().casefold()
    asked = next((code for code, name in NAMES.items() if folded in (code, name.casefold())), "")
    return DECLINED[asked or language_of(question) or "en"]


def instruction(question: str, wanted: str = "") -> str:
    """The language of an answer as a prompt names it."""
    if wanted.strip():
        return NAMES.get(wanted.strip().casefold(), wanted.strip())
    code = language_of(question)
    return f"{NAMES[code]}, the language of the question" if code else "the language of the question"
