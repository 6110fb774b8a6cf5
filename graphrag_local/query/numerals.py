"""Numbers that are written in words, in the languages that answers are written in, in Roman letters and in Chinese characters. Pure.

They only speak for a figure that a sentence states (see `figures`), so whatever may be a number is read as one: a word that two languages share counts in
both, and forms that are missing here cost no more than a doubt.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache

# English, German, French, Spanish, Italian, Portuguese, Dutch, Swedish, Finnish, Polish, Russian, Ukrainian, Arabic; forms that stand in longer numbers too.
_LISTED = {
    1: "ún одного one first ein eins eine un une uno una um uma een één en ett yksi jeden один одна одне واحد",
    2: "dós двух двумя двох two second zwei deux dos due dois duas twee två kaksi dwa dwie два две дві اثنان اثنين",
    3: "trés трёх трех трьох three third drei trois tres tre tré três drie kolme trzy три ثلاثة ثلاث",
    4: "quatr четырёх четырех чотирьох четверт four vier quatre cuatro quattro quatro fyra neljä cztery четыре чотири أربعة أربع",
    5: "cinqu пяти пят п'яти п'ят five fif fünf cinq cinco cinque vijf fem viisi pięć пять п'ять خمسة خمس",
    6: "шести шест шост six sechs seis séis sei zes sex kuusi sześć шесть шість ستة ست",
    7: "семи седьм сьом seven sieben sept siete sette sete zeven sju seitsemän siedem семь сім سبعة سبع",
    8: "восьми восьм eight acht huit ocho otto oito åtta kahdeksan osiem восемь вісім ثمانية ثماني ثمان",
    9: "neuv девяти девят дев'яти дев'ят nine nin neun neuf nueve nove negen nio yhdeksän dziewięć девять дев'ять تسعة تسع",
    10: "десяти десят ten zehn dix diez dieci dez tien tio kymmenen dziesięć десять عشرة عشر",
    11: "onz eleven elf onze once undici elva yksitoista jedenaście одиннадцать одинадцять",
    12: "douz twelve twelf zwölf douze doce dodici doze twaalf tolv kaksitoista dwanaście двенадцать дванадцять",
    13: "treiz thirteen dreizehn treize trece tredici treze dertien tretton kolmetoista trzynaście тринадцать тринадцяти тринадцати тринадцять",
    14: "quatorz fourteen vierzehn quatorze catorce quattordici catorze veertien fjorton neljätoista czternaście четырнадцать четырнадцати чотирнадцять",
    15: "quinz п'ятнадцяти fifteen fünfzehn quinze quince quindici vijftien femton viisitoista piętnaście пятнадцать пятнадцати п'ятнадцять",
    16: "seiz sixteen sechzehn seize dieciséis sedici dezasseis dezesseis zestien sexton kuusitoista szesnaście шестнадцать шестнадцати шістнадцять",
    17: "seventeen siebzehn diecisiete diciassette dezassete dezessete zeventien sjutton seitsemäntoista siedemnaście семнадцать семнадцати сімнадцять",
    18: "eighteen achtzehn dieciocho diciotto dezoito achttien arton kahdeksantoista osiemnaście восемнадцать восемнадцати вісімнадцять",
    19: "nineteen neunzehn diecinueve diciannove dezanove dezenove negentien nitton yhdeksäntoista dziewiętnaście девятнадцать девятнадцати дев'ятнадцять",
    20: "twenty twentie zwanzig vingt vingts veinte veinti venti vent vinte twintig tjugo kaksikymmentä dwadzieścia dwudziestu "
    "двадцать двадцати двадцат двадцять двадцяти двадцят عشرون عشرين",
    30: "thirty thirtie dreißig dreissig trente treinta trenta trent trinta dertig trettio kolmekymmentä trzydzieści trzydziestu тридцать "
    "тридцати тридцат тридцять тридцяти ثلاثون ثلاثين",
    40: "forty fortie vierzig quarante cuarenta quaranta quarant quarenta veertig fyrtio neljäkymmentä czterdzieści czterdziestu сорок сорока أربعون أربعين",
    50: "fifty fiftie fünfzig cinquante cincuenta cinquanta cinquant cinquenta vijftig femtio viisikymmentä pięćdziesiąt pięćdziesięciu пятьдесят пятидесяти "
    "п'ятдесят п'ятдесяти خمسون خمسين",
    60: "sixty sixtie sechzig soixante sesenta sessanta sessant sessenta zestig sextio kuusikymmentä sześćdziesiąt sześćdziesięciu шестьдесят шестидесяти "
    "шістдесят ستون ستين",
    70: "seventy seventie siebzig septante setenta settanta settant zeventig sjuttio seitsemänkymmentä siedemdziesiąt siedemdziesięciu семьдесят семидесяти "
    "сімдесят سبعون سبعين",
    80: "eighty eightie achtzig octante huitante ochenta ottanta ottant oitenta tachtig åttio kahdeksankymmentä osiemdziesiąt osiemdziesięciu восемьдесят "
    "восьмидесяти вісімдесят ثمانون ثمانين",
    90: "ninety ninetie neunzig nonante noventa novanta novant negentig nittio yhdeksänkymmentä dziewięćdziesiąt dziewięćdziesięciu девяносто девяноста "
    "дев'яносто تسعون تسعين",
    100: "hundred hundert cent cents cien ciento cientos cento cem centos honderd hundra sata sataa sto сто ста مئة مائة",
    200: "doscientos doscientas duzentos duzentas dwieście двести двухсот двісті مئتان مئتين مائتان مائتين",
    300: "trescientos trescientas trezentos trezentas trzysta триста трёхсот трехсот",
    400: "cuatrocientos cuatrocientas quatrocentos quatrocentas czterysta четыреста четырёхсот четырехсот чотириста",
    500: "quinientos quinientas quinhentos quinhentas pięćset пятьсот пятисот п'ятсот",
    600: "seiscientos seiscientas seiscentos seiscentas sześćset шестьсот шестисот шістсот",
    700: "setecientos setecientas setecentos setecentas siedemset семьсот семисот сімсот",
    800: "ochocientos ochocientas oitocentos oitocentas osiemset восемьсот восьмисот вісімсот",
    900: "novecientos novecientas novecentos novecentas dziewięćset девятьсот девятисот дев'ятсот",
}
_POWERS = {  # of ten; a word with two is read both ways
    2: "hundred hundert",
    3: "thousand thousands tausend mille mil mila duizend tusen tuhat tuhatta tys tysiąc tysiące tysięcy тысяча тысячи тысяч тыс тисяча тисячі тисяч тис "
    "ألف آلاف ألفا",
    5: "lakh lakhs",
    6: "million millions millionen mio mill millón millones milione milioni milhão milhões miljoen miljon miljoner miljoona miljoonaa milj mln mn milion miliony "
    "milionów миллион миллиона миллионов млн мільйон мільйона мільйонів مليون ملايين",
    7: "crore crores",
    9: "billion billions bn bln milliarde milliarden mrd milliard milliards millardo miliardo miliardi bilhão bilhões miljard miljarder miljardi miljardia "
    "miliard miliardy miliardów миллиард миллиарда миллиардов млрд мільярд мільярда мільярдів مليار مليارات",
    12: "billion billionen billón billones bilione bilioni biljoen biljon biljoner biljoona biljoonaa bilion biliony bilionów trillion trillions trilhão trilhões "
    "триллион триллиона триллионов трлн трильйон трильйонів تريليون",
}
_SHARES = {
    "0.5": "half halves halb halbe halben halber halbes hälfte demi demie moitié medio mitad mezzo mezza metà meio meia metade helft halve hälften halv "
    "puoli puolet pół połowa połowę половина половины половину половини نصف 半",
    "1.5": "anderthalb anderthalbe anderthalben anderthalbes полтора полторы полутора півтора півтори",
    "0.25": "quarter quarters viertel quart quarts cuarto cuartos quarto quarti kwart fjärdedel neljännes ćwierć четверть четверти чверть ربع",
    "0.75": "quarters dreiviertel quarts cuartos quarti quartos",
    "0.3333": "third thirds drittel tiers tercio tercios terzo terzi terço terços derde tredjedel kolmannes треть трети третина ثلث",
    "0.6667": "thirds drittel tiers tercios terzi terços derde",
}
POWERS: dict[str, tuple[int, ...]] = {}
for _power, _line in _POWERS.items():
    for _word in _line.split():
        POWERS[_word] = (*POWERS.get(_word, ()), _power)
_VALUES = {word: 10 ** powers[0] for word, powers in POWERS.items()} | {word: value for value, line in _LISTED.items() for word in line.split()}
SHARES = {word: tuple(Decimal(share) for share, line in _SHARES.items() if word in line.split()) for line in _SHARES.values() for word in line.split()}
_HALF, _AND_HALF = Decimal("0.5"), "einhalb"
_HOUR = 60
_UNIT_LISTS = {
    12: "dozen dutzend douzaine douzaines docena docenas dozzina dozzine dúzia dúzias dozijn dussin tusina tuzin tuziny дюжина дюжины дюжин",
    20: "score",
    10: "decade decades jahrzehnte jahrzehnten décennies décadas decenni decennia decennier dekady десятилетия десятилетий десятиліття",
    100: "century centuries jahrhundert jahrhunderte siècle siècles siglo siglos secolo secoli século séculos eeuw eeuwen sekel wieku wieki века веков століття",
    _HOUR: "hour hours stunde stunden heure heures hora horas ora ore uur timme timmar tunti tuntia godziny часа години ساعة",
}
_UNIT_WORDS = {word: unit for unit, line in _UNIT_LISTS.items() for word in line.split()}
_JOINTS = frozenset(("and", "und", "et", "y", "e", "en", "ën", "i", "och", "و"))
_ENDINGS = (
    *("", "s", "th", "ths", "h", "st", "ste", "sten", "ster", "stes", "te", "ten", "ter", "tes", "ième", "ièmes"),
    *"ый ий ой ого ому ым ом ая ую ое ые ых им ої".split(),  # Russian and Ukrainian
)
_LONGEST = 60  # letters of a number that is one word
_ROW = 40  # numbers in a row that are read together
_YEAR_PARTS = 6  # numbers that a year in words is made of, at most
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_ROMAN = re.compile(r"\b(?=[MDCLXVI]{2})M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})\b")
_LETTERS = {"M": 1000, "D": 500, "C": 100, "L": 50, "X": 10, "V": 5, "I": 1}
_UNITS = {"만": 10**4, "억": 10**8, "조": 10**12, "천": 1000, "백": 100, "两": 2, "兩": 2}  # what Unicode tells no number for, or another one
_SMALL_HAN, _LARGE_HAN = "十百千拾佰仟천백", "万萬亿億兆만억조"
_HAN_DIGITS = "〇零一二三四五六七八九两兩壹貳贰參叁肆伍陸陆柒捌玖"
_NUMBER = r"\d++(?:[.,]\d++)*+"
# Characters, and digits before or after a unit; not the thousand in a kilometre or kilogram.
CHAIN = re.compile(
    rf"(?:(?:(?<=[억조만])[ ])?(?<![\d.,]){_NUMBER}(?=[{_SMALL_HAN}{_LARGE_HAN}](?![米克瓦卡]))|[{_HAN_DIGITS}{_SMALL_HAN}{_LARGE_HAN}](?![米克瓦卡]))+"
    rf"(?:(?<=[{_LARGE_HAN}])\d++(?:,\d{{3}})*+)?"
)
_LINK = re.compile(rf"{_NUMBER}|\D")


def spelled(text: str) -> Iterator[Decimal]:
    """The numbers that a folded text (NFKC) may state in words, Roman letters or Chinese characters."""
    run: list[list[int]] = [[]]  # the numbers in a row, parted at each "and"
    before = 0
    text = re.sub("[’ʼ]", "'", text)
    yield from _halves(text)
    for match in _WORD.finditer(text):
        word = match.group().casefold()
        yield from SHARES.get(word, ())
        values = _values(word)
        if text[before : match.start()] not in ("", " ", "-", "\n") or (values is None and word not in _JOINTS) or sum(map(len, run)) > _ROW:
            yield from _read(run)
            run = [[]]
        if values:
            run[-1] += values
        elif run[-1]:
            run.append([])
        before = match.end()
    yield from _read(run)
    yield from (Decimal(_roman(match.group())) for match in _ROMAN.finditer(text))
    yield from (value for match in CHAIN.finditer(text) if (value := chained(match.group())) is not None)


def _halves(text: str) -> Iterator[Decimal]:
    """What shares and units make of the words before them: half a million, a million and a half, two and a half in one word, half an hour, two decades."""
    before: list[str] = []
    for match in _WORD.finditer(text):
        word = match.group().casefold()
        shares = [share for earlier in before for share in SHARES.get(earlier, ())]
        if word.endswith(_AND_HALF) and (values := _values(word.removesuffix(_AND_HALF))):
            yield _total(values, twenties=False) + _HALF
        if _HALF in SHARES.get(word, ()):
            yield from (Decimal(10**power) * (1 + _HALF) for earlier in before for power in POWERS.get(earlier, ()))
        yield from (share.scaleb(power) for power in POWERS.get(word, ()) for share in shares)
        if unit := _UNIT_WORDS.get(word):
            yield from (share * unit for share in shares)
            if unit != _HOUR and before and (values := _values(before[-1])):
                yield Decimal(_total(values, twenties=False) * unit)
        before = [*before[-2:], word]


@lru_cache(maxsize=1 << 14)
def _values(word: str) -> tuple[int, ...] | None:
    """The numbers that a word is made of ("vierundzwanzig": 4, 20); None where it is no number."""
    if len(word) > _LONGEST:
        return None
    for ending in _ENDINGS:
        if word.endswith(ending) and (word.removesuffix(ending)) in _VALUES:
            return (_VALUES[word.removesuffix(ending)],)
    for end in range(len(word) - 1, 0, -1):
        begin = word[:end]
        if begin in _VALUES or (begin in _JOINTS and end < len(word)):
            rest = _values(word[end:])
            if rest:
                return (_VALUES[begin], *rest) if begin in _VALUES and begin not in _JOINTS else rest
    return None


def _read(run: Sequence[Sequence[int]]) -> Iterator[Decimal]:
    """What numbers in a row may mean: each part for itself, all together, or a year in two halves."""
    whole = [value for part in run for value in part]
    for part in (whole, *run):
        if part:
            yield from {Decimal(_total(part, twenties=twenties)) for twenties in (False, True)}
    for cut in range(1, len(whole) if len(whole) <= _YEAR_PARTS else 0):
        century, year = _total(whole[:cut], twenties=False), _total(whole[cut:], twenties=False)
        if 10 <= century <= 20 and 10 <= year < 100:
            yield Decimal(100 * century + year)


def _total(run: Sequence[int], *, twenties: bool) -> int:
    """The number that values in a row make; `twenties`: four and twenty are eighty."""
    total = current = 0
    for value in run:
        if value >= 1000:
            total, current = total + max(current, 1) * value, 0
        elif value == 100:
            current = max(current, 1) * value
        elif twenties and value == 20 and current % 100 == 4:
            current += 76
        else:
            current += value
    return total + current


def _roman(letters: str) -> int:
    values = [_LETTERS[letter] for letter in letters]
    return sum(-value if value < max(values[place:]) else value for place, value in enumerate(values))


def chained(text: str) -> Decimal | None:
    """The number that digits and Chinese or Korean characters make together ("240万", "三百二十", "一九三一"); None where it is none."""
    if len(text) > _LONGEST:
        return None
    text, links = text.replace(" ", ""), list[Decimal]()
    for link in _LINK.findall(text):
        known = _UNITS.get(link, unicodedata.numeric(link, None) if len(link) == 1 else None)
        links.append(Decimal(int(known)) if known is not None and not link.isdecimal() else Decimal(link.replace(",", "")) if link.count(".") < 2 else Decimal(0))
    if all(link < 10 for link in links):
        return Decimal("".join(map(str, map(int, links)))) if len(links) > 1 and not any(map(str.isdecimal, text)) else None
    total = section = current = Decimal(0)
    for link, unit in zip(links, _LINK.findall(text), strict=True):
        if unit in _LARGE_HAN:
            total, section, current = total + max(section + current, Decimal(1)) * link, Decimal(0), Decimal(0)
        elif unit in _SMALL_HAN:
            section, current = section + max(current, Decimal(1)) * link, Decimal(0)
        else:
            current = link
    return total + section + current
