"""Figures that a sentence states and its sources do not: numbers are read and compared, no model is asked. Pure.

A figure is a number in digits, of whatever script. It stands in a text where any way to read it does: with thousands parted or not, as a decimal, in words,
as part of a date, rounded to its own last place. Whatever is doubtful speaks for the sentence, since what is not supported may be left out of an answer. Not judged
are small counts, which whoever writes may have counted, numbers of lists, and digits that belong to a name (X-12), an address or a telephone. The question
speaks for no figure, since that its premise stands in the sources is what has to be shown, but where a sentence denies something: it may be that premise.
Whatever a text holds, reading it takes time in proportion, and nothing raises.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from graphrag_local.query.language import language_of
from graphrag_local.query.numerals import CHAIN, POWERS, chained, spelled
from graphrag_local.text import UNSEEN

SMALL = 13  # whole numbers below may be counted rather than read, and are mostly written in words
YEARS = range(1000, 2200)
HALF = Decimal("0.5")
CLOSE = 6  # characters between two numbers that belong together ("2 to 3 million", "13, 14")
LARGEST = Decimal(10) ** 15  # of which a remainder is taken
LONGEST = 100  # characters of a number; longer ones are rows of numbers, or none
SCALES = 3  # words in a row that may multiply a number
ROW = 8  # parts of a figure that have to follow on one another in the sources; of longer ones each has to be there
NEARBY = 40  # characters before and after a figure that tell what it is
_HIDDEN = re.compile(f"(?![\u200b\u2060])[{UNSEEN}]")
_RAISED = re.compile("[²³¹⁰⁴-⁹₀-₉①-⓿❶-➓]")  # marks of notes, powers, numbers of lists
_FRACTION = re.compile(r"(\d{0,15})\s?([¼-¾⅐-⅞])")
_RUN = re.compile(r"\d{1,3}(?: \d{3})++(?:[.,]\d++)?(?!\d)|\d++(?:[.,'’٫٬]\d++)*+")
_MARK = re.compile(r"[.,'’٫٬ ]")
_SCALE = re.compile(r"[ -]?([^\W\d_]+(?:'[^\W\d_]+)?)\.?")
_LETTER_SCALES = {"k": (3,), "m": (6,), "b": (9,), "bn": (9,), "mn": (6,)}  # glued to their number; the letters alone may be units as well
_PERCENT = re.compile(r"\s?(?:[%‰٪]|per ?cent|prozent|pour ?cent|por cien|por ?cento|per cento|pro ?cent|процент|відсот)", re.IGNORECASE)
_MONEY = re.compile(r"\s?[$€£¥₹₽₩₪₺₴฿]")
_MONEY_BEFORE = re.compile(r"[$€£¥₹₽₩₪₺₴฿]\s?$")
_AFTERNOON = re.compile(r"(?<!\d)(\d{1,2})(?:[.:](\d\d))?\s?p\.?\s?m\b", re.IGNORECASE)
_SHORT_YEARS = (  # ’24; 2019-21; 3/3/24
    re.compile(r"(?<!\d)['’](\d\d)(?!\d)"),
    re.compile(r"(?<!\d)(?:1\d|20)\d\d\s?[-–/]\s?(\d\d)(?![-–/.]?\d)"),
    re.compile(r"(?<!\d)\d{1,2}([-/.])\d{1,2}\1(?P<year>\d\d)(?!\d)"),
)
_DECADE = re.compile(r"(?:['’]?s|er|-?[хе]|-ті|-?tal\w*|年代|年間|년대)(?![^\W\d_])")
_DECADE_BEFORE = re.compile(r"(?:ann[ée]es|años|anos|anni|jaren|lata|latach|роки|годы|عقد)\W+$", re.IGNORECASE)
_CENTURY = re.compile(r"centur|jahrhundert|siècle|siglo|secolo|século|eeuw|århundrade|vuosisa|wiek|век|столет|століт|قرن|世[纪紀]|세기", re.IGNORECASE)
_LISTED = re.compile(r"\s*[(\[]?\d{1,3}[.)\]](?=\s|$)")
_BRACKETED_END = re.compile(r"\(\s*\d{1,3}\s*\)[\s.!?。！？]*$")
_ID_BEFORE = re.compile(r"(?:[^\W\d]+-|[^\W\d]|_)$")
_ADDRESS = re.compile(
    r"(?:https?://|www\.)\S+|(?<![\d+])\+\d[\d ()/-]{6,20}\d|(?<!\d)24/7(?!\d)|(?:tel|phone|telefon)\b[.:]{1,2} ?[\d(][\d ()/-]{4,20}\d", re.IGNORECASE
)
_SPAN = re.compile(
    r"[ -]?(?:(?:years?|jahre?n?|ans|années?|años?|anni|anos?|jaar|år|vuo\w*|lat|год\w*|года|лет\w*|рок\w*)\b|سنة|سنوات|عام|年|岁|歲|歳|년|세|살)", re.IGNORECASE
)
_AGED = re.compile(r"(?:\baged?|alter|âge|edad|età|idade|leeftijd|ålder|wieku?|возраст\w*|віці|عمر)\W(?:\w+\W){0,2}$", re.IGNORECASE)
_DENIAL = re.compile(  # words that deny, in the languages that answers are written in; none that is a common word of another one
    r"\b(?:not?|non|cannot|\w+n['’]t|never|neither|nor|none|nobody|nothing|without|instead|false|incorrect|wrong|contrary|nicht|nichts|kein\w*|nie|niemals|weder|falsch"
    r"|sondern|statt|n['’]\w+|pas|aucune?|jamais|rien|faux|nunca|jamás|ning[uú]n[ao]?|tampoco|falso|não|nenhuma?|nem|nessun[ao]?|niente|nulla|niet|niets|geen|nooit|onjuist"
    r"|inte|ej|icke|ingen|inget|inga|aldrig|ei|eivät|eikä|emme|ette|nigdy|żad\w+|нет|не|ни|нельзя|никто|ничего|никогда|нема|немає|ні|ніхто|нічого|ніколи|неправда"
    r"|[وف]?(?:لا|لم|لن|ليس\w*|غير|لیس\w*))\b"
    r"|不|没|沒|未|[并並而绝絕]非|无法|無法|ない|なかっ|なく|なし|ません|ず[、に]|않|아니|아닌|아닙|없|못",
    re.IGNORECASE,
)
_IN_THE = re.compile(r"\bno\b", re.IGNORECASE)  # Portuguese


@dataclass(frozen=True, slots=True)
class Figure:
    """A number in a text: what it may be, with its scale and, in `bare`, without; of what may be a date, a time or a list also its `parts`."""

    text: str
    start: int
    end: int
    values: tuple[Decimal, ...]
    bare: tuple[Decimal, ...] = ()
    parts: tuple[Decimal, ...] = ()
    dated: bool = False


def lacking(sentence: str, sources: Iterable[str], question: str = "") -> tuple[str, ...]:
    """The figures of a sentence that stand nowhere in its sources, as they are written, each once. One that denies something may name those of the question."""
    folded = _folded(sentence)
    apart = [match.span() for match in _ADDRESS.finditer(folded)]
    stated = [figure for figure in figures(folded) if _judged(figure, folded) and not any(start <= figure.start < end for start, end in apart)]
    if not stated:
        return ()
    known = [Known(sources), *([Known([question])] if question and denies(folded) else [])]
    return tuple(dict.fromkeys(figure.text for figure in stated if not any(texts.has(figure, folded) for texts in known)))


def denies(sentence: str) -> bool:
    """Whether a sentence may deny something: a word of it does."""
    return _DENIAL.search(_IN_THE.sub("", sentence) if language_of(sentence) == "pt" else sentence) is not None


def _folded(text: str) -> str:
    """The text with compatible forms made equal; raised digits are gone, and fractions of one character are decimals."""
    if text.isascii():
        return text
    text = _FRACTION.sub(lambda match: f"{round(int(match[1] or 0) + unicodedata.numeric(match[2]), 4)}", _RAISED.sub(" ", _HIDDEN.sub("", text)))
    return unicodedata.normalize("NFKC", text)


# --- reading numbers


def figures(folded: str) -> list[Figure]:
    """The numbers of a folded text in digits, in their order; those beside characters that are numbers too ("240万") are one with these."""
    found = []
    for match in CHAIN.finditer(folded):
        value = chained(match.group())
        if value is not None and any(map(str.isdecimal, match.group())):
            found.append(Figure(match.group(), *match.span(), (value,)))
    for match in _RUN.finditer(CHAIN.sub(lambda chain: "\0" * len(chain.group()), folded)):
        plain, parts, dated = _read(match.group())
        powers, bare = _powers(folded, match.end())
        scaled = tuple(value.scaleb(power) for value in plain for power in powers)
        found.append(Figure(match.group(), *match.span(), (*scaled, *(plain if bare else ())), plain if scaled else (), parts, dated))
    return sorted(found, key=lambda figure: figure.start)


def _read(run: str) -> tuple[tuple[Decimal, ...], tuple[Decimal, ...], bool]:
    """The numbers that digits with marks between them may be as a whole; the parts where it may be several; and whether these may be a date."""
    if len(run) > LONGEST:
        return (), tuple(Decimal(group) for group in _MARK.split(run) if len(group) <= LONGEST), False
    groups, marks = _MARK.split(run), _MARK.findall(run)
    if not marks:
        return (Decimal(run),), (), False
    whole, last = [], marks[-1]
    inner = groups[1:-1]
    thousands = len(set(marks)) == 1 and last != "٫" and _grouped(groups)
    if thousands:
        whole.append(Decimal("".join(groups)))
    decimal = last in ".,٫" and (not inner or (len(set(marks[:-1])) == 1 and marks[0] != last and _grouped(groups[:-1])))
    if decimal and not (thousands and int(groups[-1][:9]) == 0):  # nobody writes 4.000 for four
        whole.append(Decimal(f"{''.join(groups[:-1])}.{groups[-1]}"))
    lengths = [len(group) for group in groups]
    dated = "," not in marks and _is_date(groups)
    clock = last == "." and len(groups) == 2 and max(lengths) == lengths[1] == 2 and int(groups[0]) <= 24 and int(groups[1]) < 60
    several = dated or (not thousands and (len(groups) > 2 or clock)) or (last == " " and groups[-1][0] != "0")
    return tuple(whole), tuple(map(Decimal, groups)) if several else (), dated


def _is_date(groups: list[str]) -> bool:
    """Whether groups of digits may be a date: day, month and a year of two or four digits in some order, or month and year."""
    if not 2 <= len(groups) <= 3 or max(map(len, groups)) > 4:
        return False
    years = [group for group in groups if len(group) > 2]
    shorter = [int(group) for group in groups if len(group) <= 2]
    if not years:
        return len(groups) == 3 and len(groups[-1]) == 2 and max(shorter[:2]) <= 31
    return years in ([groups[-1]], [groups[0]] * (len(groups) == 3)) and int(years[0]) in YEARS and max(shorter) <= 31


def _grouped(groups: list[str]) -> bool:
    """Whether groups of digits are one number: of three, as in India of two before the last, or of four."""
    first, *middle, last = map(len, groups)
    if groups[0].startswith("0") or len(groups) < 2:
        return len(groups) == 1
    return (
        (first <= 3 and last == 3 and all(length == 3 for length in middle))
        or (first <= 2 and last == 3 and bool(middle) and all(length == 2 for length in middle))
        or (first <= 4 and last == 4 and bool(middle) and all(length == 4 for length in middle))
    )


def _powers(folded: str, at: int) -> tuple[tuple[int, ...], bool]:
    """The powers of ten that the words after a number may multiply it by, and whether it may stand without them."""
    found: tuple[int, ...] = ()
    for _ in range(SCALES):
        match = _SCALE.match(folded, at)
        if not match:
            break
        word = match[1].casefold()
        powers = POWERS.get(word, ())
        if not powers:
            glued = _LETTER_SCALES.get(word, ()) if not found and match.start(1) == at else ()
            return (found or glued), not found
        found = tuple(sorted({a + b for a in found or (0,) for b in powers}))
        at = match.end()
    return found, not found


def _judged(figure: Figure, folded: str) -> bool:
    """Whether a figure says something that only the sources can have told: no small count, no number of a list, no part of a name."""
    before, after = folded[max(0, figure.start - NEARBY) : figure.start], folded[figure.end : figure.end + NEARBY]
    listed, bracketed = _LISTED.match(folded), _BRACKETED_END.search(folded, max(0, len(folded) - 20))
    if (listed and figure.end <= listed.end()) or (bracketed and figure.start >= bracketed.start()) or _named(before, after):
        return False
    if _PERCENT.match(after) or _MONEY.match(after) or _MONEY_BEFORE.search(before):
        return True
    return any(map(_tells, figure.values or figure.parts))


def _tells(value: Decimal) -> bool:
    """Whether a number is more than a small count."""
    return value >= SMALL or value != value.to_integral_value()


def _exponent(value: Decimal) -> int:
    """The power of ten of the last place of a number, as it is written."""
    return int(value.as_tuple().exponent)


def _named(before: str, after: str) -> bool:
    """Whether digits belong to a name: after letters of a script with capitals, after a hyphen and a word with one, or with letters and digits behind."""
    match = _ID_BEFORE.search(before)
    glued = match.group() if match else ""
    if glued == "_" or (len(glued) == 1 and glued.lower() != glued.upper()) or (glued.endswith("-") and glued != glued.lower()):
        return True
    return re.match(r"[^\W\d_]+\d", after) is not None and after[0].lower() != after[0].upper()


# --- what sources know


class Known:
    """The numbers that texts state, each read in every way."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.written: set[str] = set()
        self.numbers: set[Decimal] = set()
        self.bare: set[Decimal] = set()  # those without a scale behind them, which a table may have in its head
        self.whole: set[Decimal] = set()  # those that are surely read as they are meant, and may be rounded
        self.dates: set[int] = set()  # years that are written with four digits
        self.order: list[Decimal | None] = []  # the numbers that follow closely on one another, parted by None
        for text in texts:
            self._add(_folded(text))
        self.shares = {100 * number for number in self.numbers if 0 < number < 1}
        self._sorted, self._sorted_shares = sorted(self.whole), sorted(self.shares)
        self._rows: dict[int, set[tuple[Decimal | None, ...]]] = {}
        self.half = HALF in self.numbers
        self.years = {int(number) for number in self.numbers if YEARS.start <= number < YEARS.stop}

    def _add(self, folded: str) -> None:
        found = figures(folded)
        for figure, after in zip(found, [*found[1:], None], strict=False):
            self.written.add(figure.text)
            self.numbers.update((*figure.values, *figure.bare, *figure.parts))
            self.bare.update(() if figure.bare else figure.values)
            self.whole.update(figure.values if figure.bare or len(figure.values) == 1 else ())
            self.dates.update(int(part) for part in _MARK.split(figure.text[:LONGEST]) if len(part) == 4 and part.isdecimal() and int(part) in YEARS)
            close = after is not None and after.start - figure.end <= CLOSE
            self.order += [*(figure.parts or figure.values[:1]), *(() if close else (None,))]
            if after and close and after.bare and not figure.bare:  # 2 to 3 million
                powers, _ = _powers(folded, after.end)
                self.numbers.update(value.scaleb(power) for value in figure.values for power in powers)
        words = set(spelled(folded))
        self.numbers |= words
        self.whole |= words
        for match in _AFTERNOON.finditer(folded):
            self.numbers.add(hour := Decimal(int(match[1]) + 12))
            self.order += [hour, Decimal(match[2] or 0), None]
        for pattern in _SHORT_YEARS:
            for match in pattern.finditer(folded):
                year = int(match["year"] if "year" in pattern.groupindex else match[1])
                self.numbers.update((Decimal(1900 + year), Decimal(2000 + year)))

    def has(self, figure: Figure, folded: str) -> bool:
        """Whether a figure of a folded sentence stands in the texts, in any way to read it."""
        if figure.text in self.written and not figure.bare:
            return True
        share = _PERCENT.match(folded, figure.end) is not None
        if any(self._near(value, share=share) for value in figure.values) or any(_tells(value) and value in self.bare for value in figure.bare):
            return True
        if figure.dated and all(part in self.numbers or part < SMALL or self._short(part) for part in figure.parts):
            return True
        if figure.parts and self._in_row(figure.parts):
            return True
        before, after = folded[max(0, figure.start - NEARBY) : figure.start], folded[figure.end : figure.end + NEARBY]
        if (_SPAN.match(after) or _AGED.search(before)) and any(year + value in self.dates for value in figure.values for year in self.dates):
            return True
        return any(self._as_year(value, figure, folded) for value in figure.values if value < YEARS.stop and value == value.to_integral_value())

    def _in_row(self, parts: tuple[Decimal, ...]) -> bool:
        """Whether numbers follow on one another in the texts; of very many, whether all are there."""
        length = len(parts)
        if length > ROW:
            return self.numbers.issuperset(parts)
        if length not in self._rows:
            self._rows[length] = {tuple(self.order[at : at + length]) for at in range(len(self.order))}
        return parts in self._rows[length]

    def _near(self, value: Decimal, *, share: bool) -> bool:
        """Whether a number is there or, of a share, among the shares, or one of them is it with further places, rounded or cut off."""
        if value in self.numbers or (share and value in self.shares) or (0 < value < 1 and 100 * value in self.numbers):
            return True
        if self.half and value < LARGEST and value % 1 == HALF and value - HALF in self.numbers:  # two and a half
            return True
        return _rounded(value, self._sorted) or (share and _rounded(value, self._sorted_shares))

    def _short(self, value: Decimal) -> bool:
        return value < 100 and any(year % 100 == value for year in self.years)

    def _as_year(self, value: Decimal, figure: Figure, folded: str) -> bool:
        """Whether a short year, a decade or a century is that of a year in the texts."""
        before, after = folded[max(0, figure.start - 16) : figure.start], folded[figure.end : figure.end + 24]
        if len(figure.text) == 2 and before[-1:] in ("'", "’", "-", "–", "/", ".") and self._short(value):
            return True
        if value % 10 == 0 and (_DECADE.match(after) or _DECADE_BEFORE.search(before)):
            decade = range(int(value), int(value) + 10)
            return any(year in self.numbers for year in map(Decimal, decade)) or any(year % 100 in decade for year in self.years)
        return bool(_CENTURY.search(before + after)) and any(value in (year // 100 + 1, (year - 1) // 100 + 1) for year in self.years)


def _rounded(value: Decimal, ordered: Sequence[Decimal]) -> bool:
    """Whether one of numbers in order is a number with further places, rounded or cut off. Those in reach without further places are the number itself."""
    place = _exponent(value)
    unit = Decimal(1).scaleb(place)
    at = bisect_left(ordered, value - unit / 2)
    return any(_exponent(number) < place and number < value + unit for number in ordered[at : at + 4])
