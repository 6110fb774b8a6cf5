"""Figures that a sentence states and its sources do not: what stands there in another form does, what is another figure does not."""

from datetime import date

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graphrag_local.query.figures import SCALES, SMALL, Known, denies, figures, lacking
from graphrag_local.query.numerals import chained, spelled

ZEROS = "0०০๐٠۰０"  # ASCII, Devanagari, Bengali, Thai, Arabic, Persian, full width
GROUPED = {"plain": "{}", "comma": "{:,}", "stop": "{:,}", "blank": "{:,}", "thin": "{:,}", "apostrophe": "{:,}"}
MARKS = {"stop": ".", "blank": " ", "thin": "\u202f", "apostrophe": "’"}
DATES = (
    "{d} {month} {y}", "{month} {d}, {y}", "{y}-{m:02}-{d:02}", "{d:02}/{m:02}/{y}", "{d}.{m}.{y}", "{d:02}.{m:02}.{y}", "{y}年{m}月{d}日",
    "{d}/{m}/{short:02}",
)  # fmt: skip
MONTHS = "January February March April May June July August September October November December".split()

forms = st.sampled_from(sorted(GROUPED))
scripts = st.sampled_from(ZEROS)


def written(number, form="plain", zero="0"):
    """A whole number with its thousands parted in some way, in the digits of some script."""
    text = GROUPED[form].format(number).replace(",", MARKS.get(form, ","))
    return "".join(chr(ord(zero) + int(character)) if character.isdecimal() else character for character in text)


SAME = [  # sentence, source
    ("It cost 1,000 crowns.", "Er kostete 1.000 Kronen."),
    ("It cost 4'000.50 francs.", "4000,5 Franken"),
    ("1.234,56 €", "€1,234.56"),
    ("कीमत १,००,००० थी।", "100,000"),
    ("A share of 3.5.", "3.50"),
    ("Ein Anteil von 3,5 Prozent.", "3.5 %"),
    ("2½ metres", "2.5 m"),
    ("It took 2.5 years.", "It took two and a half years."),
    ("39% of them", "39.6 %"),
    ("40% of them", "39.6 %"),
    ("25 percent", "0.25"),
    ("25%", "a quarter of the crew"),
    ("about 50 %", "die Hälfte der Mannschaft"),
    ("Some 2.4 million people", "2,412,345 people"),
    ("2,400,000 people", "2.4 million people"),
    ("2,4 Mio. Menschen", "2.4M"),
    ("2,4 Milliarden Kronen", "2.4 billion crowns"),
    ("5 mil millones de coronas", "5 billion"),
    ("240万人", "2.4 million people"),
    ("2.4 million people", "240万人"),
    ("35,000 people", "3万5千人"),
    ("3,000,000 people", "300만 명"),
    ("320 people", "三百二十人"),
    ("in 1931", "一九三一年"),
    ("5.2 million (see the table)", "Revenue in millions | 5.2"),
    ("From 3,000 to 5,000", "3 to 5 thousand"),
    ("the 24 barges", "the twenty-four barges"),
    ("die 24 Kähne", "die vierundzwanzig Kähne"),
    ("97 jours", "quatre-vingt-dix-sept jours"),
    ("34 días", "treinta y cuatro días"),
    ("24 giorni", "ventiquattro giorni"),
    ("25 يوما", "خمسة وعشرين يوما"),
    ("24 000 человек", "двадцать четыре тысячи человек"),
    ("in 1931", "in nineteen thirty-one"),
    ("Louis 16", "Louis XVI"),
    ("8% of it", "eight per cent of it"),
    ("the 21st barge", "barge 21"),
    ("a 15km road", "15 km"),
    ("in '24", "2024"),
    ("in 2024", "the summer of ’24"),
    ("from 2019 to 2021", "2019-21"),
    ("2019–21", "2019 and 2021"),
    ("in the 1990s", "in 1994"),
    ("in den 1990er Jahren", "1994"),
    ("en los años 90", "en 1994"),
    ("in the 19th century", "in 1843"),
    ("в 19 веке", "в XIX веке"),
    ("at 14:30", "at 2:30 pm"),
    ("um 14.30 Uhr", "14:30"),
    ("um 14.30 Uhr", "at 2:30 p.m."),
    ("at 14:30", "um 14.30 Uhr"),
    ("Rules 13,14,15 hold.", "Rules 13, 14 and 15 hold."),
    ("from 12 300 people", "On May 12, 300 people"),
    ("ב-1931", "1931"),
    ("In 1931 a storm came.", "In 1931² a storm came."),
    ("\u200f١٩٣١\u200e", "1931"),
    ("22 días", "veintidós días"),
    ("15 людей", "п’ятнадцять людей"),
    ("25 человек", "до двадцати пяти человек"),
    ("le 15e jour", "le quinzième jour"),
    ("2,5 Jahre", "zweieinhalb Jahre"),
    ("1,500,000 people", "a million and a half people"),
    ("30 minutes", "half an hour"),
    ("24 eggs", "two dozen eggs"),
    ("20 years", "two decades"),
    ("15,000円", "1万5,000円"),
    ("240,000,000", "2억 4천만"),
    ("2억 4천만", "240,000,000"),
    ("He died aged 34.", "1900–1934"),
    ("34 years later", "In 1900 and in 1934"),
]
OTHER = [  # sentence, source, and the figure that is missing
    ("It cost 4,001 crowns.", "It cost 4,000 crowns.", "4,001"),
    ("It cost 1,000 crowns.", "It cost 1,034 crowns.", "1,000"),
    ("It cost 4,000 crowns.", "4 barges for 3,000 crowns.", "4,000"),
    ("In 1930 a storm came.", "In 1931 a storm came.", "1930"),
    ("in the 1980s", "in 1994", "1980"),
    ("in the 19th century", "in 1931", "19"),
    ("in 2023", "in ’24", "2023"),
    ("on 23 March", "on 24 March", "23"),
    ("3.6 metres", "3.5 metres", "3.6"),
    ("3.03 metres", "3.04 metres", "3.03"),
    ("1751.07 metres", "1751.05 metres", "1751.07"),
    ("3.48 metres", "3.5 metres", "3.48"),
    ("3.5 metres", "3 or 5 metres", "3.5"),
    ("24 crowns", "24,500 crowns", "24"),
    ("8% of it", "7% of it", "8"),
    ("15 percent", "0.25", "15"),
    ("€5 a day", "€6 a day", "5"),
    ("5 million people", "5 thousand people", "5"),
    ("5.2 billion", "5.2 million", "5.2"),
    ("2.5 million", "2,412,345", "2.5"),
    ("24 barges", "twenty-five barges", "24"),
    ("24万人", "240万人", "24万"),
    ("٣٠١ كرونة", "٣٠٠ كرونة", "٣٠١"),
    ("१९३२ में", "१९३१ में", "१९३२"),
    ("13 barges", "twelve barges", "13"),
    ("34 barges", "In 1900 and in 1934", "34"),
    ("35 years later", "In 1900 and in 1934", "35"),
]
UNJUDGED = [
    "The trust owns 12 barges and 3 locks.",  # counts
    "14. The lock is old.",
    "14) The lock is old.",
    "[14] The lock is old.",
    "The lock is old (14).",
    "Open 24/7: see https://locks.example/2031/4711 or call +44 1632 960961.",
    "X-120, GPT-40, Covid-19, v2.15, A380, b2b15 and report_77",  # names
]


@pytest.mark.parametrize(("sentence", "source"), SAME)
def test_a_figure_in_another_form_stands_there(sentence, source):
    """Marks for thousands, decimals, scales, words, scripts, dates, shares and roundings are no other figure."""
    assert lacking(sentence, [source]) == ()


@pytest.mark.parametrize(("sentence", "source", "figure"), OTHER)
def test_another_figure_is_found(sentence, source, figure):
    """What no reading of the sources gives is named as it is written."""
    assert lacking(sentence, [source]) == (figure,)


@pytest.mark.parametrize("sentence", UNJUDGED)
def test_what_may_be_counted_or_a_name_is_not_judged(sentence):
    """Small counts, numbers of lists and digits of names need no source."""
    assert lacking(sentence, ["Nothing of the kind."]) == ()


def test_all_sources_count_and_each_figure_is_named_once():
    """A figure may stand in any of the texts; the others are named in their order."""
    assert lacking("In 1931 it cost 400 crowns, in 1932 again 400 and 55.", ["minutes/1931.txt", "It cost 55 crowns."]) == ("400", "1932")


@given(number=st.integers(SMALL, 10**9), said=forms, told=forms, zero=scripts, other=scripts)
def test_thousands_and_scripts_make_no_other_figure(number, said, told, zero, other):
    """A whole number is the same however its thousands are parted, in the digits of every script."""
    assert lacking(f"It cost {written(number, said, zero)} crowns.", [f"The price: {written(number, told, other)}!"]) == ()


@given(number=st.integers(SMALL, 10**9), others=st.lists(st.integers(0, 10**9), max_size=4), form=forms, zero=scripts)
@example(number=1000, others=[1, 0], form="stop", zero="0")
def test_a_number_that_is_not_there_is_found(number, others, form, zero):
    """A whole number that is none of those of the sources is missing, however it is written."""
    said = written(number, form, zero)
    found = lacking(f"It cost {said} crowns.", [f"First it was {other:,} crowns." for other in others if other != number])

    assert len(found) == 1


@given(places=st.integers(1, 3), digits=st.integers(1, 10**6), shift=st.integers(-9, 9), mark=st.sampled_from(".,"))
def test_decimals_are_compared_to_their_last_place(places, digits, shift, mark):
    """A decimal is the same with a comma or a nought more, and another one where a place differs."""
    said, told = (f"{value // 10**places}{mark}{value % 10**places:0{places}}" for value in (digits, abs(digits + shift)))

    if digits % 10**places:  # 13.00 would be read as thousands with one nought more
        assert lacking(f"It is {said} long.", [f"{said.replace('.', ',')}0 in all"]) == ()
    if said != told and places != 3 and digits % 10**places:
        assert lacking(f"It is {said} metres long.", [f"{told} metres"]) == (said,)


@given(day=st.dates(date(1800, 1, 1), date(2100, 1, 1)), said=st.sampled_from(DATES[:-1]), told=st.sampled_from(DATES[:-1]), years=st.integers(1, 40))
def test_a_date_in_another_form_stands_there(day, said, told, years):
    """The parts of a date are what counts; of another year it is missing."""

    def form(text, year):
        return text.format(d=day.day, m=day.month, y=year, short=year % 100, month=MONTHS[day.month - 1])

    assert lacking(f"It was on {form(said, day.year)}.", [f"Held {form(told, day.year)}"]) == ()
    assert lacking(f"It was on {form(said, day.year + years)}.", [f"Held {form(told, day.year)}"]) != ()


@given(day=st.dates(date(1950, 1, 1), date(2049, 12, 31)), told=st.sampled_from(DATES))
def test_a_short_year_is_that_of_the_sources(day, told):
    """Years of two digits stand for those of four in a date, both ways."""
    values = {"d": day.day, "m": day.month, "y": day.year, "short": day.year % 100, "month": MONTHS[day.month - 1]}

    assert lacking(f"Since {DATES[-1].format(**values)}.", [told.format(**values)]) == ()
    assert lacking(f"Since {DATES[0].format(**values)}.", [DATES[-1].format(**values)]) == ()


@given(text=st.text(st.sampled_from("0123456789٣௧９一万千億½²., '’-–/:%$€ab\u200f\u00ad X年年s\n"), max_size=40), more=st.text(max_size=30))
@example(text="9" * 5000 + ".5 half 1,000,000 000", more="½")
@example(text=f"1.{'9' * 5000}.22", more="")
def test_a_text_lacks_nothing_of_itself(text, more):
    """Whatever stands in a sentence stands in a source that is the sentence, and more sources never take away."""
    assert lacking(text, [text]) == ()
    assert set(lacking(text, [more, "12 of 1931"])) <= set(lacking(text, ["12 of 1931"]))


@given(sentence=st.text(max_size=60), source=st.text(max_size=60))
def test_any_text_is_read(sentence, source):
    """No text of any script raises, and what is missing was written in the sentence."""
    assert "77777" in lacking(f"{sentence} 77777", [source])


def english(number):
    """A whole number below a million in words."""
    small = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
    tens = "twenty thirty forty fifty sixty seventy eighty ninety".split()
    if number < 20:
        return small[number]
    if number < 100:
        return tens[number // 10 - 2] + (f"-{small[number % 10]}" if number % 10 else "")
    scale, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    rest = number % scale
    return f"{english(number // scale)} {name}" + (f"{' and' if rest < 100 else ''} {english(rest)}" if rest else "")


def han(number):
    """A whole number below a hundred million in Chinese characters."""
    if number >= 10_000:
        return f"{han(number // 10_000)}万" + (f"{'零' if number % 10_000 < 1000 else ''}{han(number % 10_000)}" if number % 10_000 else "")
    text = ""
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = number // unit % 10
        text += f"{'零一二三四五六七八九'[digit]}{name}" if digit else "零" if text and number % unit else ""
    return text.replace("零零", "零").replace("零零", "零")


@given(number=st.integers(SMALL, 999_999))
def test_numbers_in_words_and_characters_are_read(number):
    """English words and Chinese characters give the number that they state."""
    assert number in set(spelled(f"There were {english(number)} of them."))
    assert lacking(f"{number:,} people", [f"共{han(number)}人"]) == ()
    assert number < 10 or chained(han(number)) == number


SCALE_WORDS = st.sampled_from("billion million mil hundred thousand тысяч milliarden 亿 万 千 억 crore half and dozen einhalb 5 1.2.3 9,9 . % IV".split())


@settings(deadline=None)
@given(told=st.lists(SCALE_WORDS, max_size=60), said=st.lists(SCALE_WORDS, max_size=60), gap=st.sampled_from(["", " ", "-", ","]), times=st.sampled_from([1, 50]))
@example(told=["5"] + ["billion"] * 3000, said=["5"] + ["billion"] * 3000, gap=" ", times=1)
@example(told=["5"] + ["million"] * 200_000, said=["20"], gap=" ", times=1)
@example(told=["9" * 1_200_000, "9." * 50_000, "9亿" * 50_000], said=["1." + "9" * 1_200_000, "99"], gap=" ", times=1)
def test_no_text_is_too_much(told, said, gap, times):
    """Scales, marks and digits in any number are read: nothing raises, and what is missing was written."""
    sentence, source = gap.join(said * times), gap.join(told * times)

    assert set(lacking(sentence, [source], source)) <= {figure.text for figure in figures(sentence)}


def test_a_number_has_few_readings_whatever_scales_follow():
    """Words that are read both ways do not double the readings with each repeat."""
    found = figures("5 " + "billion " * 1000)

    assert len(found) == 1
    assert len(found[0].values) <= SCALES + 2


def test_a_figure_is_compared_with_few_numbers_of_the_sources():
    """The numbers near a figure are found among those of the sources without looking at each."""

    class Counted(list):
        reads = 0

        def __getitem__(self, key):
            Counted.reads += 1
            return super().__getitem__(key)

    known = Known([" ".join(f"{number}.25" for number in range(10_000, 14_000))])
    known._sorted = Counted(known._sorted)
    text = "It weighs 9000 or 11000.3 tons."

    assert [known.has(figure, text) for figure in figures(text)] == [False, True]
    assert Counted.reads < 60


DENIED = [
    ("The ship did not carry 300 men but 42.", "The ship carried 42 men.", "Why did the ship carry 300 men?"),
    ("The documents don’t say that 300 men died.", "42 men", "Where did the 300 men die?"),
    ("Die Dokumente nennen keine 300 Mann.", "42 Mann", "Wo starben die 300 Mann?"),
    ("Le navire n’a pas transporté 300 hommes.", "42 hommes", "Pourquoi 300 hommes ?"),
    ("El barco no llevaba 300 hombres.", "42 hombres", "¿Por qué 300 hombres?"),
    ("O navio não levava 300 homens.", "42 homens", "Por que 300 homens?"),
    ("La nave non portava 300 uomini.", "42 uomini", "Perché 300 uomini?"),
    ("Het schip had geen 300 man.", "42 man", "Waarom 300 man?"),
    ("Statek nie wiózł 300 ludzi.", "42 ludzi", "Dlaczego 300 ludzi?"),
    ("Skeppet hade inte 300 man.", "42 man", "Varför 300 man?"),
    ("Laivassa ei ollut 300 miestä.", "42 miestä", "Miksi 300 miestä?"),
    ("На корабле было не 300 человек.", "42 человека", "Почему 300 человек?"),
    ("На кораблі було не 300 людей.", "42 людини", "Чому 300 людей?"),
    ("لم تحمل السفينة 300 رجل.", "42 رجلا", "لماذا 300 رجل؟"),
    ("船上没有300人。", "42人", "为什么有300人？"),
    ("船に300人は乗っていませんでした。", "42人", "なぜ300人？"),
    ("배에는 300명이 타지 않았다.", "42명", "왜 300명인가?"),
]


@pytest.mark.parametrize(("sentence", "source", "question"), DENIED)
def test_what_denies_may_name_the_figures_of_the_question(sentence, source, question):
    """A premise that is set right is no claim; any other figure still needs its source, and so does the question's where nothing is denied."""
    assert lacking(sentence, [source], question) == ()
    assert lacking(sentence, [source]) == lacking(sentence, [source], "Why?") == ("300",)


@pytest.mark.parametrize("sentence", ["The ship carried 300 men.", "O navio levava 300 homens no porto.", "Das Schiff fuhr im Mai mit 300 Mann.", "船上有300人。"])
def test_what_denies_nothing_may_not(sentence):
    """That the question says it is no source."""
    assert not denies(sentence)
    assert lacking(sentence, ["42"], "Why did the ship carry 300 men?") == ("300",)
