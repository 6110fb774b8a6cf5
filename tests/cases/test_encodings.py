"""Old encodings in one folder: each file is read rightly or refused by name, never read wrongly, and never stops the others."""

import codecs

import pytest

from graphrag_local.records import Document
from tests.cases.program import program

TEXTS = {
    "cp1252": "Die Brücke über die Mühle wurde von Jörg Böhm gebaut und ist für große Wagen gesperrt – „vorläufig“.\n",
    "cp1250": "Łukasz Żak napisał, że śluza nad Wartą jest zamknięta i będzie otwarta dopiero w październiku.\n",
    "cp1251": "Смотритель Пётр Лунин записал, что мост через реку закрыт и будет открыт только в октябре.\n",
    "koi8_r": "Смотритель Пётр Лунин записал, что мост через реку закрыт и будет открыт только в октябре.\n",
    "cp1253": "Ο φύλακας Νίκος Πέτρου έγραψε ότι η γέφυρα είναι κλειστή και θα ανοίξει τον Οκτώβριο.\n",
    "cp1256": "كتب الحارس سالم النجار أن الجسر مغلق وسوف يفتح في شهر تشرين الأول من هذه السنة.\n",
    "gb18030": "守桥人周平写道，这座桥已经关闭，要到十月才会重新开放，大家都在等他的消息。\n",
    "big5": "守橋人周平寫道，這座橋已經關閉，要到十月才會重新開放，大家都在等他的消息。\n",
    "shift_jis": "橋守の中村カズオは、この橋が閉鎖されており、十月まで開かないと書いた。\n",
    "euc_jp": "橋守の中村カズオは、この橋が閉鎖されており、十月まで開かないと書いた。\n",
    "euc_kr": "다리지기 김도윤은 이 다리가 닫혀 있으며 시월이 되어야 다시 열린다고 적었다.\n",
    "cp1254": "Bekçi Şule Çağlar köprünün kapalı olduğunu ve ancak ekim ayında açılacağını yazdı ve bir de not bıraktı.\n",
}
WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
MARKS = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE, "utf-32-le": codecs.BOM_UTF32_LE, "utf-32-be": codecs.BOM_UTF32_BE}
NAMES = {"fixture_pattern": {"entities": [r"\w+ \w+"], "types": ["person"], "relate": "none"}}


def test_one_folder_of_many_encodings(tmp_path):
    """Each file of a mixed folder has its right text or is refused with the setting to use; encodings and reasons are in `status`."""
    files = {f"{encoding}.txt": text.encode(encoding) for encoding, text in TEXTS.items()}
    files |= {f"{encoding}.md": MARKS[encoding] + TEXTS["cp1251"].encode(encoding) for encoding in WIDE}
    files |= {f"{encoding}-bare.txt": TEXTS["cp1252"].encode(encoding) for encoding in WIDE}
    files |= {"plain.txt": b"The bridge is closed.\n", "noise.txt": bytes((n * 7919 >> 3) & 255 for n in range(2000))}
    expected = {name: TEXTS.get(name.split(".")[0], TEXTS["cp1251"] if name.endswith(".md") else TEXTS["cp1252"]) for name in files}
    with program(tmp_path, files, NAMES) as it:
        done = it.index()
        assert done.code == 3
        status, texts = it.status(), it.texts()
        assert texts.pop("plain.txt") == "The bridge is closed.\n"
        assert {name: text for name, text in texts.items() if text != expected[name]} == {}
        refused = {f["input"]: f["reason"] for f in status["failures"]}
        assert "is not text" in refused.pop("noise.txt")
        assert set(refused) | set(texts) == set(files) - {"plain.txt", "noise.txt"}
        assert all("documents.encoding" in reason for reason in refused.values())
        assert len(texts) >= 18, f"too many were refused: {refused}"
        shown = {d["path"]: d["encoding"] for d in status["documents"]}
        assert all(shown[name] for name in texts)
        assert shown["cp1250.txt"] == "cp1250"
        assert not any("noise" in str(record.body) for record in it.server.requests("extract"))


@pytest.mark.parametrize(
    ("data", "text", "notice"),
    [
        ("Søren and the miller".encode() + b"\x92s house: " + "Gåsö.\n".encode(), "Søren and the miller’s house: Gåsö.\n", "offset 21"),
        ("Gåsö and Ærø and Łódź ".encode() + "Zoë".encode()[:-1] + b"\n", "Gåsö and Ærø and Łódź Zo\ufffd\n", "offset"),
        (b"\xef\xbb\xbfBo\0b went h\0ome and then he slept for a long time.\n", "Bob went home and then he slept for a long time.\n", "control characters"),
        (b"id,text and so on\n1,a\0b\n", "id,text and so on\n1,ab\n", "control characters"),
    ],
)
def test_a_few_bad_bytes_cost_a_notice_and_not_the_file(tmp_path, data, text, notice):
    """UTF-8 with stray or zero bytes is read, with a notice of what was mended; zero bytes do not make it another encoding."""
    with program(tmp_path, {"a.txt": data}) as it:
        assert it.index().code == 0
        (document,) = it.records(Document)
        assert document.text == text
        assert notice in " ".join(it.status()["documents"][0]["notices"])


def test_an_encoding_by_setting(tmp_path):
    """What is refused is read when documents.encoding names its encoding; files that are UTF-8 stay what they are."""
    unsure = "Köln\n".encode("cp850")
    with program(tmp_path, {"u.txt": "Łódź.\n", "k.txt": unsure}, documents__encoding="cp850") as it:
        assert it.index().code == 0
        assert it.texts() == {"u.txt": "Łódź.\n", "k.txt": "Köln\n"}


def test_a_console_that_is_not_utf_8(tmp_path):
    """Under an old locale every command works: replacement signs for people, lossless JSON for programs, the question as it was typed."""
    old = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": ""}
    with program(tmp_path, {"周.txt": "周平 看守 桥。"}, {"fixture_pattern": {"entities": ["周平"], "types": ["person"]}}) as it:
        assert it.index().code == 0
        people = it.run("show", "entity", "周平", environment=old)
        asked = it.run("query", "周平 是谁？", "--json", "--mode=basic", environment=old)
        assert (people.code, asked.code) == (0, 0), people.err + asked.err
        assert asked.out.isascii()
        assert "周平" in asked.json["citations"][0]["sources"][0]["quote"]
        assert any("周平 是谁" in message["content"] for message in it.server.requests("answer")[-1].body["messages"])
