"""The list of what is forgotten for good: kept as it was written, or not read at all."""

import pytest

from graphrag_local.errors import IndexCorrupt
from graphrag_local.ids import digest_of
from graphrag_local.store.forgotten import Forgotten, Unfinished, begin, bring_back, finish, read_forgotten, remember, unfinished
from graphrag_local.store.lock import BuildLock
from graphrag_local.verify.index import damages

AT = "2026-01-02T03:04:05+00:00"
ONE, TWO = (Forgotten(document=digest_of(name), texts=tuple(map(digest_of, texts)), at=AT) for name, texts in (("a", ""), ("b", "xy")))


def test_what_is_remembered_is_read_again(tmp_path):
    """Entries come back as they were put there, texts of two times together; what is brought back is off the list."""
    with BuildLock(tmp_path / "index") as lock:
        remember(lock, [ONE, TWO])
        assert read_forgotten(lock.index) == (ONE, TWO)
        remember(lock, [Forgotten(document=TWO.document, texts=(digest_of("z"),), at=AT)])
        assert read_forgotten(lock.index)[1].texts == (*TWO.texts, digest_of("z"))
        assert bring_back(lock, {ONE.document}) == 1
        assert [entry.document for entry in read_forgotten(lock.index)] == [TWO.document]


def test_every_altered_bit_is_found(tmp_path):
    """A list with any one bit the other way round, or without checksums, is refused, and the verification names it."""
    with BuildLock(tmp_path / "index") as lock:
        remember(lock, [ONE, TWO])
    path = tmp_path / "index" / "forgotten.jsonl"
    good = path.read_bytes()
    for place in range(len(good) * 8):
        bad = bytearray(good)
        bad[place // 8] ^= 1 << place % 8
        path.write_bytes(bad)
        with pytest.raises(IndexCorrupt, match=r"forgotten\.jsonl was altered"):
            read_forgotten(tmp_path / "index")
    assert any("forgotten.jsonl" in line for line in damages(tmp_path / "index"))
    path.write_bytes(b'{"document": "0", "texts": [], "at": ""}\n')
    with pytest.raises(IndexCorrupt):
        read_forgotten(tmp_path / "index")


def test_what_is_under_way_is_noted(tmp_path):
    """What a `forget` has left to do is read as it was noted, or not at all where a bit of it is the other way round; the verification names it."""
    work = Unfinished(documents=(ONE.document, TWO.document), at=AT, before="g", digest="d", keep_generations=False, sought=7)
    with BuildLock(tmp_path / "index") as lock:
        assert unfinished(lock.index) is None
        begin(lock, work)
        assert unfinished(lock.index) == work
        path = tmp_path / "index" / "forgetting.json"
        good = path.read_bytes()
        for place in range(len(good) * 8):
            bad = bytearray(good)
            bad[place // 8] ^= 1 << place % 8
            path.write_bytes(bad)
            with pytest.raises(IndexCorrupt, match=r"forgetting\.json was altered"):
                unfinished(lock.index)
        assert any("forgetting.json" in line for line in damages(lock.index))
        path.write_bytes(good)
        finish(lock)
        assert unfinished(lock.index) is None
