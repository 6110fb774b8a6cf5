"""Bytes become the right text or none."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrag_local.documents.encoding import decode
from graphrag_local.documents.parsed import ReadProblem

SAMPLES = {
    "cp1250": "Skarbniczka Żaneta Wąsik schowała księgę w piwnicy na Śląsku. Od tej pory nikt jej nie widział, a klucz leży pod śniegiem.",
    "iso8859_2": "Kovář Bořivoj otevřel dílnu v Ústí. Každé ráno tam přichází žák a nosí uhlí, ale nikdo neví, proč se pec stále dýmí.",
    "cp1252": "La maîtresse Hélène a vendu le bateau à son frère. L’été passé, la rivière était si basse que les pêcheurs marchaient dans le lit.",
    "cp1254": "Değirmenci Şükrü sabahları çarşıya iner ve bir torba buğday satar. Kızı ise eski köprünün yanında bekler, çünkü yağmur yağıyor.",
    "cp1257": "Kalvis Jurgis Žemaitis atidarė dirbtuvę prie upės. Jo sūnus kiekvieną dieną neša anglį, bet niekas nežino, kodėl krosnis rūksta.",
    "cp1251": "Мельник Захар открыл лавку у реки. Каждый день сын приносит ему муку, но никто не знает, почему печь дымит.",
    "koi8_r": "Кузнец Игнат живёт за рекой. Утром он чинит колёса, а вечером пишет письма брату в город.",
    "mac_cyrillic": "Почтальон Семён ездит на старой лошади. Весной он привёз письмо, в котором было всего три слова.",
    "cp1256": "فتح الحداد سليم دكانه قرب النهر. في كل يوم يحمل ابنه الفحم، ولا أحد يعرف لماذا يدخن الموقد.",
    "cp1253": "Ο σιδεράς Πέτρος άνοιξε το μαγαζί του κοντά στο ποτάμι και κάθε μέρα ο γιος του φέρνει κάρβουνο.",
    "cp1255": "הנפח יעקב פתח את חנותו ליד הנהר, ובכל יום מביא בנו פחם, אבל איש אינו יודע מדוע התנור מעשן.",
    "gb18030": "铁匠老周在河边开了一家店。他的儿子每天送煤来，可是没有人知道炉子为什么冒烟。",
    "big5": "鐵匠老周在河邊開了一家店。他的兒子每天送煤來，可是沒有人知道爐子為什麼冒煙。",
    "shift_jis": "鍛冶屋の周さんは川のそばに店を開いた。息子は毎日石炭を運ぶが、かまどがなぜ煙るのか誰も知らない。",
    "euc_jp": "郵便屋の森さんは古い馬に乗っている。春に届いた手紙には、三つの言葉しか書かれていなかった。",
    "iso2022_jp": "船長は港で待っている。",
    "cp949": "대장장이 주 씨는 강가에 가게를 열었다. 아들이 날마다 석탄을 나르지만 화덕에서 왜 연기가 나는지 아무도 모른다.",
}  # fmt: skip


@pytest.mark.parametrize("encoding", SAMPLES)
def test_old_encodings_are_recognised_by_their_words(encoding):
    """A paragraph in an encoding that people really used is read exactly, and the encoding is named."""
    decoded = decode(SAMPLES[encoding].encode(encoding))

    assert decoded.text == SAMPLES[encoding]
    assert decoded.encoding
    assert decoded.notices == ()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-32-be"])
@pytest.mark.parametrize("text", ["Ålesund: the ferry.\nAt noon.\n", "铁匠老周在河边开了一家店。\n他不在。\n", "Кузнец Игнат живёт за рекой.\n"])
def test_unicode_is_read_with_and_without_a_mark(text, encoding):
    """UTF-8, 16 and 32 are read with their byte-order mark, which is not text, and the wide ones without it too."""
    assert decode(text.encode(encoding)).text == text


@pytest.mark.parametrize("encoding", SAMPLES)
@pytest.mark.parametrize("length", [8, 14, 20, 30, 45])
def test_a_short_text_is_read_rightly_or_refused(encoding, length):
    """Few words may be too few to tell, but they are not read as something else."""
    text = SAMPLES[encoding][:length]
    try:
        decoded = decode(text.encode(encoding)).text
    except ReadProblem as problem:
        decoded = text if "documents.encoding" in str(problem) else str(problem)

    assert decoded == text


def test_english_with_foreign_names_is_read():
    """English in cp1252 keeps the letters of the people it names."""
    text = "The café at Mørk Island belongs to Zoë and her brother Åge; it is open from May to June – “if the sun is out”."

    assert decode(text.encode("cp1252")).text == text


def test_a_stray_byte_in_utf8_is_read_as_cp1252_with_its_offset():
    """One bad byte does not cost the file; a notice says which byte and what it became."""
    decoded = decode("Søren’s boat, Åge".encode() + b"\x92s oar, caf\xe9".replace(b"\xe9", b"\xe9 ") + "Ørn".encode())

    assert decoded.text == "Søren’s boat, Åge’s oar, café Ørn"
    assert decoded.encoding == "utf-8"
    assert decoded.notices == (
        "byte offset 21: 92 is not UTF-8 and was read as '’'",
        "byte offset 32: E9 is not UTF-8 and was read as 'é'",
    )


def test_a_character_that_was_cut_off_becomes_the_replacement_character():
    """The first bytes of a character at the end of a file are not read as two letters of Latin."""
    assert decode("铁匠老周在河边开了一家店。".encode()[:-1]).text == "铁匠老周在河边开了一家店\ufffd"


def test_bytes_that_are_no_text_are_refused():
    """Random bytes, NUL blocks and well-known binary formats are recognised whatever their name."""
    for raw, said in ((bytes(range(256)) * 4, "not text"), (b"%PDF-1.4 and so on", "a PDF"), (b"\0" * 100, "not text"), (b"\x89PNG\r\n", "an image")):
        with pytest.raises(ReadProblem, match=said):
            decode(raw)


def test_a_guess_between_two_is_refused_with_the_way_out():
    """Where two encodings explain the words equally well, the refusal names them and the setting."""
    with pytest.raises(ReadProblem, match=r"could be .* or .*--set documents\.encoding=NAME"):
        decode("The ferry Ålesund Star is run by Køpmann & Søn.".encode("cp850"))


def test_the_encoding_in_the_settings_is_used_where_utf8_does_not_fit():
    """A forced encoding reads what cannot be guessed, leaves UTF-8 files alone, and is refused with the byte that does not fit."""
    assert decode("Вода.".encode("mac_cyrillic"), forced="mac_cyrillic").text == "Вода."
    assert decode("Вода.".encode(), forced="mac_cyrillic").text == "Вода."
    assert decode("铁匠".encode("utf-16-le"), forced="utf-16-le").text == "铁匠"
    with pytest.raises(ReadProblem, match="byte 0x81 at offset 1 does not fit"):
        decode(b"a\x81", forced="cp1252")
    with pytest.raises(ReadProblem, match="no such encoding"):
        decode(b"a\x81", forced="klingon")


def test_a_few_control_characters_do_not_make_a_binary():
    """A log with a NUL and terminal colours is text."""
    assert decode(b"Log \x01 of the keeper\n\x1b[31mred\x1b[0m at noon\0 end\n" * 3).encoding == "utf-8"


@given(st.binary(max_size=300))
def test_decoding_never_fails_otherwise(raw):
    """Whatever the bytes, the outcome is text or a ReadProblem."""
    with contextlib.suppress(ReadProblem):
        assert isinstance(decode(raw).text, str)


@given(st.text(max_size=200))
def test_utf8_is_read_back(text):
    """Text in UTF-8 comes back as it was, as long as it is not mostly control characters."""
    raw = text.encode("utf-8", "ignore")
    if sum(character < 32 or character == 127 for character in raw) == 0:
        assert decode(raw).text == raw.decode().removeprefix("\ufeff")
