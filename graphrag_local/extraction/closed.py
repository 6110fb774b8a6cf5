"""Words that name nothing wherever they stand: closed classes of some languages, by their keys.

What a collection tells of itself needs no list (see `lexis`): a word that is written small elsewhere, or with a capital at the opening of sentences only,
names nothing. These are the ones that are written with a capital inside sentences too (English and German months, polite pronouns), and what shows verbs.
"""

from collections.abc import Iterator, Sequence

import regex

from graphrag_local.text import INSIDE, word_key


def _keys(text: str) -> frozenset[str]:
    return frozenset(map(word_key, text.split()))


# "us", "it" and "who" are missing: in capitals they are names, and in small letters the collection tells.
PRONOUNS = _keys(
    "i he she we you they me him her them yours hers ours theirs myself yourself himself herself itself ourselves yourselves themselves my your his our "
    "their its this that these those whom whose which what nobody nothing none nowhere anybody anyone anything somebody someone something everybody everyone "
    "everything each every either neither both another others such somewhat "
    "ich du er sie es wir ihr mich dich dir ihn ihm ihnen uns euch mein meine meiner meinem meinen dein deine sein seine seiner seinem seinen ihre ihrer "
    "ihrem ihren unser unsere euer eure niemand niemandem niemanden jemand jemandem jemanden nichts etwas alle alles jeder jede jedes jedem jeden keiner "
    "keine keines kein dieser diese dieses diesem diesen jener jene jenes wer wen wem welche welcher welches beide beides manche mancher viele wenige einige "
    "je tu il nous vous ils elles lui leur leurs toi soi ceci cela celui celle ceux celles quelqu'un quelque quelques personne chacun chacune "
    "tous toutes aucun aucune quoi yo él nosotros vosotros usted ustedes ellos ellas nadie alguien algo todos todas ninguno ninguna esto eso "
    "lui lei noi voi loro nessuno qualcuno qualcosa niente ognuno tutti tutte questo questa questi queste quello quella eu ele ela nós vós eles elas você "
    "vocês ninguém alguém isto isso aquilo nada tudo ik jij zij wij jullie haar niemand iemand iets niets alles iedereen "
    "jag du hon vi ni dem ingen någon något inget "
    "я ты он она оно мы вы они меня мне мной тебя тебе тобой его ему им нём нем её ее ей ею неё нее ней нас нам нами вас вам вами их ими них себя себе собой "
    "мой моя моё мои твой твоя твоё твои наш наша наше наши ваш ваша ваше ваши свой своя своё свои кто что кого чего кому чему кем чем никто ничто никого "
    "ничего никому некто нечто кто-то что-то кое-кто все всё всех всем всеми весь вся каждый каждая каждое этот эта это эти этого этой этих тот та то те того "
    "той тех сам сама само сами такой такая такие который которая которое которые "
    "ти він вона воно ми ви вони мене мені тебе тобі його йому її їй нас нам вас вам їх їм ними себе собі мій моя моє мої твій твоя твоє наш наша ваш ваша свій "
    "своя своє хто що кого чого кому чому ніхто ніщо нікого нічого хтось щось усі всі все увесь весь кожен кожна цей ця це ці цього той тією ті який яка яке які"
)
CALENDAR = _keys(
    "january february march april may june july august september october november december feb apr aug sep sept oct nov dec "
    "monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays saturdays sundays today tomorrow yesterday tonight "
    "januar jänner februar märz mai juni juli oktober dezember montag dienstag mittwoch donnerstag freitag samstag sonnabend sonntag montags dienstags "
    "mittwochs donnerstags freitags samstags sonntags heute gestern"
)
NUMBERS = _keys(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty "
    "sixty seventy eighty ninety hundred hundreds thousand thousands million millions billion billions dozen dozens half first second third fourth fifth sixth "
    "seventh eighth ninth tenth once twice zwei drei vier fünf sechs sieben acht neun zehn zwölf dreizehn vierzehn fünfzehn zwanzig dreißig vierzig "
    "fünfzig sechzig siebzig achtzig neunzig hundert tausend zweimal dreimal einmal"
)
# What makes the word after it a verb: who acts, and modals. Short forms have lost their apostrophe, as in any key.
ACTS = _keys(
    "i we you they he she who will would shall should can could may might must cannot cant couldnt wont wouldnt shouldnt mustnt dont didnt doesnt did does do "
    "youll theyll youd theyd lets ich du wir kann kannst können konnte muss müssen musste soll sollen sollte will wollen wollte wird werden würde darf dürfen "
    "je tu nous vous ils peut peux peuvent doit doivent yo nosotros puede pueden debe deben ik wij zij kan kunnen moet moeten zal zullen"
)
# What makes it a noun, or what belongs to one.
HOLDS = _keys(
    "the a an this these those my your his her its our their some any no each every whose der die das ein eine einen einem einer den dem le la les un una el los"
)
OBJECTS = HOLDS | _keys("me you him them us it that")
# Beside a phrase and never in one: modals and forms of "be" and "have", what compares, joins, or tells place and time.
LOOSE = _keys(
    "will would shall should can could may might must cannot do does did done doing have has had having be been am is are was were isnt arent wasnt werent "
    "cant dont didnt doesnt wont hasnt havent hadnt couldnt wouldnt shouldnt im ive id youre youve youll theyre theyve weve hes shes thats theres "
    "than but because although though unless until while whereas whether rather nor yet if when where why how there here then now "
    "very really quite just also even still too again ever never always often almost already perhaps maybe only instead "
    "much many more most less least few several same other some any no not not all "
    "past next last ago down up out off over away back together into onto upon about above below beneath beside besides between beyond during through throughout "
    "under across against along among around before after behind near since toward towards within without despite except per via like it who "
    "kann können könnte muss müssen musste soll sollte wird werden würde wurde wurden waren ist sind haben hatte hatten nicht auch noch nur schon sehr mehr "
    "als wenn weil dass aber oder doch für unter zwischen gegen ohne durch bei beim vom zum zur"
)
# At the opening of a sentence only: a capital there says nothing.
OPENERS = LOOSE | _keys(
    "one two some all so yes no well oh hey hello hi please thanks dear lately meanwhile afterwards elsewhere otherwise therefore thus hence nevertheless "
    "nonetheless furthermore moreover indeed finally eventually usually sometimes apart according "
    "dort hier dann jetzt was wann wo wie warum ja nein also so nun zwar zuerst zuletzt nachts tagsüber morgens abends mittags zusammen gestern heute liebe lieber "
    "sehr geehrte geehrter beim im am vom zum zur nach vor seit während trotz wegen neben hinter mit bei aus von auf an in um "
    "ce ici alors puis mais qui quand où oui non dans avec sans pour chez depuis après avant pendant cher chère "
    "aquí luego pero quién cuándo con sin para desde después antes durante sí no aqui mas quem quando qui poi ma chi con senza per dopo prima durante dit dat hier "
    "toen maar met zonder voor na sinds han hon de det här där sedan men med utan för efter "
    "здесь там потом но когда где как да нет вчера сегодня завтра тогда теперь затем после перед если также уже ещё только вот тут там потім але коли де як так ні"
)
# Forms of address and exclamations: a part of a name at most.
ADDRESSES = _keys("mr mrs ms messrs dr prof sir sirs madam herr frau monsieur madame señor señora signor signora yes oh hello hurrah hurray okay ok")
NAMELESS = PRONOUNS | CALENDAR | NUMBERS | ADDRESSES
BESIDE = NAMELESS | LOOSE
# In small letters, with which a passage tells that it is German, where every noun has a capital.
GERMAN = _keys("und ist nicht ein eine einen einem einer im dem der die das den mit auf für sich wird auch zu zum zur wir ich")
LEAST_GERMAN, GERMAN_SHARE = 3, 0.15  # of those words, and of all that are written small (German prose has 0.25 to 0.4, English and Dutch hardly any)
_RECORD = regex.compile(r"[recskd]\d{1,6}")


def is_nameless(keys: Sequence[str]) -> bool:
    """Whether words, by their keys, are pronouns, dates, numbers, forms of address, or short ids of records ("R1", "E7") throughout."""
    return all(key in NAMELESS or key in INSIDE or key.isdecimal() or _RECORD.fullmatch(key) is not None for key in keys)


def is_german(keys: Sequence[str]) -> bool:
    """Whether words written small, by their keys, are those of a German text."""
    own = sum(key in GERMAN for key in keys)
    return own >= LEAST_GERMAN and own >= GERMAN_SHARE * len(keys)


def uses(keys: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Words of a sentence, by their keys, that show whether they are verbs: each with True where it is used as one, False as a noun."""
    for place in range(1, len(keys)):
        before = keys[place - 1]
        if before in HOLDS:
            yield keys[place], False
        elif before in ACTS or (before == "to" and place + 1 < len(keys) and keys[place + 1] in OBJECTS):
            yield keys[place], True
