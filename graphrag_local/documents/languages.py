"""What the old encodings were used for: the letters and the smallest words of the languages written in them.

Our own table, because a guess is only safe where the decoded words look like one language: charset-normalizer was wrong on a
third of our short samples, with full confidence. `decode` judges candidates by it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """A language in Latin script: its letters beyond a-z (lower case) and its commonest words spelt in a-z."""

    letters: frozenset[str]
    words: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A language in another alphabet: its letters in lower case, and the commonest of them, which make up most of any text."""

    letters: frozenset[str]
    common: frozenset[str]
    encodings: tuple[str, ...]


# Encodings of Latin script with how usual they are (our choice), for words that several of them explain.
LATIN_ENCODINGS = {
    "cp1252": 1.0, "cp1250": 0.5, "cp1254": 0.3, "cp1257": 0.3, "mac_roman": 0.3, "cp850": 0.3, "cp437": 0.3, "iso8859_15": 0.2, "iso8859_2": 0.2,
    "cp852": 0.2, "mac_latin2": 0.15, "iso8859_13": 0.15, "iso8859_9": 0.15, "cp857": 0.15, "mac_turkish": 0.15, "cp775": 0.15, "iso8859_3": 0.15,
}  # fmt: skip
CYRILLIC = ("cp1251", "koi8_r", "koi8_u", "mac_cyrillic", "cp866", "iso8859_5")

_LATIN = {
    "English": "àáâãäåæçèéêëíîïñòóôõöøùúûüœ|the of and to in is was that for with by it at on as from his her not are",
    "German": "äöüß|der die das und ist von mit den nicht ein eine auf zu im dem sich des war",
    "French": "àâæçéèêëîïôœùûüÿ|le la les de des et est du un une dans que pour qui au il sur pas",
    "Spanish": "áéíñóúü|el la los de y que en del las por una un se con su al es no",
    "Portuguese": "áâãàçéêíóôõúü|o os a de e que da do em um uma para com dos se as no na",
    "Italian": "àèéìíîòóùú|il di che la e un per del non gli della una si lo le con da in",
    "Dutch": "éëïóöüèêá|de het een van en is dat niet op te zijn voor met aan die",
    "Catalan": "àçèéíïòóúü|el la de i que els les amb per una del un en és es",
    "Swedish": "åäöé|och att det som en av den till har med inte var han ett hans",
    "Danish": "æøåéòô|og at det som en af den til har med ikke var han et hans i er",
    "Finnish": "äöåšž|ja on ei se oli joka mutta kun sen ovat ettei vain niin jos mukaan",
    "Icelandic": "áðéíóúýþæö|og er var sem hann um til ekki hans fyrir af sig en hann",
    "Irish": "áéíóú|an na agus ar is go sa leis do le ag",
    "Polish": "ąćęłńóśźż|i w na z do nie jest od za po oraz przy jak ale go aby tego",
    "Czech": "áčďéěíňóřšťúůýž|a se na je v z do ve pro jako tam s by ale jeho pak nebo",
    "Slovak with its rare letters": "áäčďéíĺľňóôŕšťúýž|",
    "Slovak": "áäčďéíľňóôšťúýž|a sa na je v z do vo pre ako som pri ale jeho potom alebo",
    "Hungarian": "áéíóöőúüű|a az egy hogy nem de volt meg is ki csak ezt mint minden",
    "Croatian": "čćđšž|i je u na se su za od da s kao iz bio sve ali nje bi",
    "Slovenian": "čšž|in je na se za so da ki ni z ter pa bil od",
    "Romanian": "ăâîșțşţ|a de la cu pe care din nu o un al ale sau mai",
    "Turkish": "çğıöşüi̇âî|ve bir bu da de ile olarak her var gibi daha ama",
    "Lithuanian": "ąčęėįšųūž|ir kad yra buvo tai su o bet nuo jo kas jos",
    "Latvian": "āčēģīķļņšūž|un ir no ar par uz ka to bija kas bet pie",
    "Estonian": "äõöüšž|ja on ei oli ta et see mis kui oma tema ning",
    "Esperanto": "ĉĝĥĵŝŭ|la kaj de estas ne en al kun por sur sed ke li oni jam",
    "Albanian": "çë|dhe e te nga me ka se i u do",
}  # fmt: skip

# English texts name people of all its neighbours, so its letters prove nothing about a single word.
LATIN = {name: Language(letters=frozenset(row.split("|")[0]), words=frozenset(row.split("|")[1].split())) for name, row in _LATIN.items()}
ALPHABETS = tuple(language.letters for name, language in LATIN.items() if name != "English")

_SCRIPTS = {
    "Russian": ("абвгдеёжзийклмнопрстуфхцчшщъыьэюя", "оеаинтсрвлкм", CYRILLIC),
    "Ukrainian": ("абвгґдеєжзиіїйклмнопрстуфхцчшщьюя", "оаиінвртескл", ("cp1251", "koi8_u", "mac_cyrillic", "cp866", "iso8859_5")),
    "Bulgarian": ("абвгдежзийклмнопрстуфхцчшщъьюя", "аоеинтрсвдлк", CYRILLIC),
    "Serbian": ("абвгдђежзијклљмнњопрстћуфхцчџш", "аоиенрстјкув", ("cp1251", "iso8859_5", "mac_cyrillic")),
    "Greek": ("αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώϊϋΐΰ", "αοιετσνηυρπκςόί", ("cp1253", "iso8859_7", "cp737")),
    "Hebrew": ("אבגדהוזחטיךכלםמןנסעףפץצקרשת", "יוהלאתרבמנש", ("cp1255", "iso8859_8")),
    "Arabic": ("ءآأؤإئابةتثجحخدذرزسشصضطظعغفقكلمنهوىيًٌٍَُِّْـ", "الينموترةبعدس", ("cp1256", "iso8859_6")),
    "Persian": ("ءآأؤئابپتثجچحخدذرزژسشصضطظعغفقكکگلمنوهةيی", "اردنيهيمتسشبوکك", ("cp1256",)),
    "Thai": ("".join(map(chr, range(0x0E01, 0x0E3B))) + "".join(map(chr, range(0x0E40, 0x0E5A))), "ากนรเอ่้งมดวลสทีั", ("cp874",)),
}  # fmt: skip

SCRIPTS = {
    name: Script(letters=frozenset(letters), common=frozenset(common), encodings=encodings)
    for name, (letters, common, encodings) in _SCRIPTS.items()
}

# Encodings of East Asia, the most telling first, with the lead bytes of their everyday characters in a reference encoding.
EAST_ASIA = {
    "cp949": ("euc_kr", ((0xA1, 0xA3), (0xB0, 0xC8))),
    "euc_jp": ("euc_jp", ((0xA1, 0xA5), (0xB0, 0xCF))),
    "cp932": ("cp932", ((0x81, 0x83), (0x88, 0x98))),
    "cp950": ("cp950", ((0xA1, 0xA3), (0xA4, 0xC6))),
    "gb18030": ("gb2312", ((0xA1, 0xA3), (0xB0, 0xD7))),
}

# Characters that make up a third of any running Chinese text, and little of Japanese or Korean read as Chinese.
EVERYDAY_CHINESE = "的一是了不在有人他这中大来上个们我到说和地出也时要就可以会生去子那得你着过里后下家天多好小么之然没都对起看把年月日工"
