"""The ledger forgets: whole replies, links and vectors, to the last byte; and it knows who has seen what."""

import asyncio
import random
import sqlite3
import time
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphrag_local.errors import IndexBusy
from graphrag_local.ids import digest_of
from graphrag_local.records import LedgerRow
from graphrag_local.store.ledger import Ledger
from graphrag_local.store.ledger_schema import SCHEMA
from tests.store.tools import reply


def put(ledger: Ledger, *rows: LedgerRow) -> None:
    """Put rows, all in flight at once."""

    async def all_of_them() -> None:
        await asyncio.gather(*map(ledger.put, rows))

    asyncio.run(all_of_them())


def files_with(folder, text: str) -> list[str]:
    """The files of a folder in whose bytes a text is."""
    return sorted(file.name for file in folder.iterdir() if text.encode() in file.read_bytes())


def raw(path):
    """A plain connection to a ledger's file, committing at once."""
    return closing(sqlite3.connect(path, isolation_level=None))


@pytest.fixture
def ledger(tmp_path):
    """An empty ledger in a folder of its own."""
    with Ledger.open(tmp_path / "ledger.sqlite", patience_s=0.1) as opened:
        yield opened


# --- which replies


def test_what_only_the_forgotten_document_asked_for_is_deleted(ledger):
    """A reply goes with its last group; shared ones stay without the groups of the document, and so do those the new index asks for."""
    rows = {
        "only": (("a",),),
        "with another": (("a", "b"),),
        "shared": (("a",), ("b",)),
        "used": (("a", "b"), ("b",)),
        "of others": (("b",), ("c",)),
    }
    put(ledger, *(reply(n, key=key, groups=groups) for n, (key, groups) in enumerate(rows.items())))

    assert ledger.documents() == {"a", "b", "c"}
    assert ledger.sweep(["a"], {"used", "of others"}) == 2
    assert {key: ledger.get(key) and ledger.get(key).groups for key in rows} == {
        "only": None, "with another": None, "shared": (("b",),), "used": (("b",),), "of others": (("b",), ("c",)),
    }  # fmt: skip
    assert ledger.verify() == []
    assert ledger.sweep(["a"], set()) == 0
    assert ledger.sweep([], set()) == 0
    assert ledger.sweep(["b", "c"], set()) == 3
    assert (ledger.counts()["replies"], ledger.documents()) == (0, set())


GROUPS = st.frozensets(st.sampled_from("abcd"), min_size=1).map(lambda names: tuple(sorted(names)))


@given(
    replies=st.dictionaries(st.integers(0, 9).map(lambda n: digest_of(str(n))), st.frozensets(GROUPS, min_size=1, max_size=4), max_size=10),
    gone=st.frozensets(st.sampled_from("abcd")),
    used=st.frozensets(st.integers(0, 9).map(lambda n: digest_of(str(n)))),
    late=st.booleans(),
)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sweep_leaves_what_the_rule_says(tmp_path, replies, gone, used, late):
    """Whatever is linked to whatever, with the first request or later, what is left is what a few lines over sets say."""
    (path := tmp_path / "any.sqlite").unlink(missing_ok=True)
    with Ledger.open(path, window_s=0) as ledger:
        put(ledger, *(reply(1, key=key, groups=tuple(sorted(groups))[: 1 if late else None]) for key, groups in replies.items()))
        asyncio.run(ledger.link(replies))
        asyncio.run(ledger.link(replies))
        assert {key: set(ledger.get(key).groups) for key in replies} == replies
        swept = ledger.sweep(gone, used)
        left = {key: {group for group in groups if not gone & set(group)} for key, groups in replies.items()}
        kept = {key: groups for key, groups in left.items() if groups or key in used}
        assert {key: set(row.groups) for key in replies if (row := ledger.get(key))} == kept
        assert swept == len(replies) - len(kept)
        assert ledger.verify() == []


def test_a_link_of_no_reply_is_passed_over(ledger):
    """Linking a key that has no reply writes nothing."""
    asyncio.run(ledger.link({"nobody": [("a",)]}))
    assert ledger.verify() == []
    put(ledger, reply(1, key="nobody", groups=()))
    assert ledger.get("nobody").groups == ()


def test_links_outlive_the_process(tmp_path):
    """A link is there when the ledger is opened again."""
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        put(ledger, reply(1, groups=(("a",),)))
        asyncio.run(ledger.link({reply(1).key: [("c", "b")]}))
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        assert ledger.get(reply(1).key).groups == (("a",), ("b", "c"))


# --- to the last byte


@pytest.mark.parametrize("seed", [6, 11, 12, 16])  # with these, overwriting alone leaves something
def test_nothing_of_a_forgotten_document_is_in_any_byte(tmp_path, seed):
    """Of hundreds of replies of many kB, written one by one and some of them twice, no text, key or document is left in file, log or index."""
    chance, folder = random.Random(seed), tmp_path / "index"
    big = chance.choice([3, 20, 300])
    with Ledger.open(folder / "ledger.sqlite", window_s=0) as ledger:
        rows = []
        for n in range(500):
            secret = chance.random() < 0.4
            name = f"{'hidden' if secret else 'public'}-document-{n % 50}"
            text = f"{'QUILLHARROW' if secret else 'wheat'} {n} " * chance.randrange(1, big)
            rows.append(reply(n, key=f"{'5ec12e7' if secret else ''}{chance.getrandbits(100):x}", text=text, groups=((name,),)))
        put(ledger, *rows[:100], *(reply(1, key=row.key, outcome="loop", text=row.text, groups=row.groups) for row in rows[100:120]))

        async def one_by_one() -> None:
            for row in rows[100:]:
                await ledger.put(row)

        asyncio.run(one_by_one())
        hidden = {row.groups[0][0] for row in rows if row.groups[0][0].startswith("hidden")}
        assert files_with(folder, "QUILLHARROW")
        swept = ledger.sweep(hidden, [])

        assert swept == sum("QUILLHARROW" in row.text for row in rows)
        assert [files_with(folder, mark) for mark in ("QUILLHARROW", "hidden-document", "5ec12e7")] == [[], [], []]
        assert (folder / "ledger.sqlite").stat().st_size < 2 * sum(len(row.text) + 600 for row in rows if "wheat" in row.text) + 80_000
        assert ledger.verify() == []
        assert [row for row in rows if "wheat" in row.text and ledger.get(row.key) != row] == []


def test_vectors_of_gone_texts_are_dropped(ledger):
    """Vectors stay for the texts that are kept, of every embedder, and the numbers of the others are in no byte."""
    keep = {f"h{n}": [n / 8, -1.5] * 200 for n in range(100)}
    gone = {f"gone{n}": [0.7251, 0.1234] * 200 for n in range(100)}

    async def write() -> None:
        for embedder in ("one", "two"):
            for n in range(100):
                await ledger.put_vectors(embedder, {f"h{n}": keep[f"h{n}"], f"gone{n}": gone[f"gone{n}"]})

    asyncio.run(write())
    assert ledger.drop_vectors(keep) == 200
    assert ledger.drop_vectors(keep) == 0
    assert ledger.counts()["vectors"] == 200
    assert len(ledger.get_vectors("two", [*keep, *gone])) == 100
    assert files_with(ledger.path.parent, "gone1") == []
    assert not any(bytes.fromhex("24a1393f24b9fc3d") in file.read_bytes() for file in ledger.path.parent.iterdir())


def test_a_reader_in_the_way_is_said_and_the_next_try_finishes(ledger):
    """While another connection reads an old state the log cannot be emptied: that is said, and the next reclaiming, or sweeping, does the rest."""
    put(ledger, *(reply(n, text="QUILLHARROW " * 500, groups=(("a",),)) for n in range(20)), reply(99))
    with raw(ledger.path) as other:
        other.execute("BEGIN")
        assert other.execute("SELECT count(*) FROM replies").fetchone() == (21,)
        with pytest.raises(IndexBusy, match="cannot be emptied"):
            ledger.sweep(["a"], [])
        assert ledger.get(reply(1).key) is None
        assert files_with(ledger.path.parent, "QUILLHARROW")
        with pytest.raises(IndexBusy):
            ledger.reclaim()
        other.execute("COMMIT")
    assert ledger.sweep(["a"], []) == 0
    assert files_with(ledger.path.parent, "QUILLHARROW") == []
    assert ledger.get(reply(99).key) == reply(99)


def test_a_sweep_that_was_cut_short_is_finished_by_the_next_process(tmp_path):
    """Deleting and reclaiming are two steps: after a stop between them, the next reclaiming knows that there is something to do, and then no more."""
    path, chance = tmp_path / "index" / "ledger.sqlite", random.Random(22)
    with Ledger.open(path, window_s=0) as ledger:
        put(ledger, *(reply(n, text=f"QUILLHARROW {chance.random()} " * 40, groups=(("a",),)) for n in range(200)), reply(1000))
        assert ledger.sweep(["a"], [], reclaim=False) == 200
    size = path.stat().st_size
    with Ledger.open(path) as ledger:
        ledger.reclaim()
        assert path.stat().st_size < size / 4
        assert files_with(path.parent, "QUILLHARROW") == []
        before = path.stat().st_mtime_ns
        ledger.reclaim()
        assert path.stat().st_mtime_ns == before


# --- damage


def flip(path, old: bytes, new: bytes) -> None:
    """Alter bytes of a closed ledger, everywhere they stand."""
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


@pytest.mark.parametrize("where", ["documents", "group", "link"])
def test_an_altered_link_is_found_mended_and_never_trusted(tmp_path, where):
    """A flipped bit in a link or a group is reported; asking again links anew; forgetting takes a reply whose groups are unsure."""
    path, key = tmp_path / "ledger.sqlite", digest_of("key")
    group = digest_of("doc-a")
    with Ledger.open(path) as ledger:
        put(ledger, reply(1, key=key, groups=(("doc-a",),)), reply(2, groups=(("doc-b",),)))
    with raw(path) as other:
        match where:
            case "documents":
                other.execute("UPDATE groups SET documents = ? WHERE grp = ?", ('["doc-q"]', group))
            case "group":
                other.execute("UPDATE groups SET grp = ? WHERE grp = ?", (group[:-1] + "~", group))
            case "link":
                other.execute("UPDATE reply_groups SET key = ? WHERE key = ?", (key[:-1] + "~", key))
    with Ledger.open(path) as ledger:
        assert ["a link" in problem for problem in ledger.verify()] == [True] * (2 if where == "group" else 1)
        assert ("doc-a",) not in ledger.get(key).groups
        asyncio.run(ledger.link({key: [("doc-a",)]}))
        assert ledger.get(key).groups == (("doc-a",),)
        assert ledger.sweep(["doc-a"], []) == 1
        assert ledger.verify() == []
    with Ledger.open(path) as ledger:
        put(ledger, reply(1, key=key, groups=(("doc-a",),)))
    with raw(path) as other:
        other.execute("UPDATE reply_groups SET grp = ? WHERE key = ?", (digest_of("doc-x"), key))
    with Ledger.open(path) as ledger:
        assert ledger.sweep(["something else"], [key]) == 0
        assert ledger.sweep(["something else"], []) == 1
        assert (ledger.get(key), ledger.get(reply(2).key)) == (None, reply(2, groups=(("doc-b",),)))
        assert ledger.verify() == []


def test_a_flipped_bit_of_a_link_on_the_disk_is_reported(tmp_path):
    """Bytes of a group that change in the file itself are found too."""
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path) as ledger:
        put(ledger, reply(1, groups=(("a document", "another"),)))
    flip(path, b'"a document"', b'"a docukent"')
    with Ledger.open(path) as ledger:
        assert len(ledger.verify()) == 1
        assert ledger.get(reply(1).key).groups == (("a docukent", "another"),)
    flip(path, b'"a docukent"', b'"a doc\xffkent"')
    with Ledger.open(path) as ledger:
        assert len(ledger.verify()) == 1
        assert ledger.get(reply(1).key) is not None
    flip(path, b'["a doc', b'{"a doc')
    with Ledger.open(path) as ledger:
        assert len(ledger.verify()) == 1
        assert ledger.get(reply(1).key).groups == ()
        assert ledger.sweep(["b"], []) == 1


# --- from schema 1

OLD = """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE replies (key TEXT PRIMARY KEY, purpose TEXT, model TEXT, revision TEXT, outcome TEXT, text TEXT, gate REAL, logprobs TEXT,
        prompt_tokens INTEGER, cached_tokens INTEGER, completion_tokens INTEGER, seconds REAL, checksum TEXT NOT NULL);
    CREATE TABLE reply_documents (key TEXT, position INTEGER, document TEXT NOT NULL, PRIMARY KEY (key, position)) WITHOUT ROWID;
    CREATE INDEX reply_documents_by_document ON reply_documents (document);
    CREATE TABLE vectors (embedder TEXT, text_hash TEXT, numbers BLOB NOT NULL, checksum TEXT NOT NULL, PRIMARY KEY (embedder, text_hash));
    INSERT INTO meta VALUES ('schema', '1');
"""


def old_ledger(path, rows: dict[LedgerRow, tuple[str, ...]]) -> None:
    """A file as schema 1 wrote it: documents in the order of the request, and as part of the checksum."""
    with raw(path) as old:
        old.executescript(f"PRAGMA journal_mode = WAL; {OLD}")
        for row, documents in rows.items():
            fields = tuple(getattr(row, name) for name in LedgerRow.__slots__ if name != "groups")
            stored = [value.encode("utf-8", "surrogatepass") if isinstance(value, str) and "\ud83d" in value else value for value in fields]
            old.execute(f"INSERT INTO replies VALUES ({', '.join('?' * 13)})", (*stored, digest_of(repr((*fields, documents)))))
            old.executemany("INSERT INTO reply_documents VALUES (?, ?, ?)", [(row.key, n, name) for n, name in enumerate(documents)])
        old.execute("INSERT INTO vectors VALUES ('e', 'h', ?, ?)", (bytes(8), digest_of("e", "h", bytes(8))))


def test_a_ledger_of_schema_1_is_converted(tmp_path):
    """Every reply, outcome, document and vector is there afterwards, in today's form, and an altered reply is altered still."""
    path = tmp_path / "ledger.sqlite"
    rows = {
        reply(1, groups=()): ("z", "a", "z"),
        reply(2, groups=(), outcome="loop", text="lost", gate=0.25): ("a",),
        reply(3, groups=(), text="half \ud83d and 李明", logprobs='[["Y", -0.5]]'): ("a",),
        reply(4, groups=()): (),
        **{reply(n, groups=(), text="long " * n): (f"d{n % 9}", "all") for n in range(10, 400)},
    }
    old_ledger(path, rows | {reply(5, groups=(), text="altered later"): ("b",)})
    with raw(path) as old:
        old.execute("UPDATE replies SET text = 'by a flipped bit' WHERE key = ?", (reply(5).key,))
    with Ledger.open(path) as ledger:
        for row, documents in rows.items():
            found = ledger.get(row.key)
            assert found.groups == ((tuple(sorted(set(documents))),) if documents else ())
            assert LedgerRow(**{name: getattr(found, name) for name in LedgerRow.__slots__ if name != "groups"}, groups=()) == row
        assert ledger.get(reply(5).key) is None
        assert len(ledger.verify()) == 1
        assert ledger.get_vectors("e", ["h"]) == {"h": (0.0, 0.0)}
        assert ledger.sweep(["b"], []) == 2  # the altered one, and the one that was linked to nothing
    with Ledger.open(path) as again:
        assert (again.verify(), again.counts()["replies"]) == ([], len(rows) - 1)
    with raw(path) as plain:
        assert plain.execute("SELECT value FROM meta WHERE name = 'schema'").fetchall() == [(str(SCHEMA),)]
        assert {name for (name,) in plain.execute("SELECT name FROM sqlite_master")} >= {"groups", "reply_groups"}


def test_a_conversion_that_fails_leaves_the_old_ledger(tmp_path):
    """What goes wrong in the middle undoes all of it: the file is one of schema 1 still, whole."""
    path = tmp_path / "ledger.sqlite"
    old_ledger(path, {reply(n, groups=()): ("a",) for n in range(20)})
    with raw(path) as old:
        old.execute("CREATE TRIGGER never BEFORE UPDATE ON meta BEGIN SELECT RAISE(ABORT, 'no'); END")
        with pytest.raises(sqlite3.IntegrityError):
            Ledger.open(path)
        assert old.execute("SELECT count(*) FROM reply_documents").fetchall() == [(20,)]
        assert "groups" not in {name for (name,) in old.execute("SELECT name FROM sqlite_master")}
        old.execute("DROP TRIGGER never")
    with Ledger.open(path) as ledger:
        assert ledger.verify() == []
        assert ledger.get(reply(7).key).groups == (("a",),)


def test_sweeping_is_quick_with_much_in_use(tmp_path):
    """5,000 replies against 300,000 used keys and kept vectors: well under two seconds of processor time (measured 0.2 s)."""
    used = {digest_of(str(n)) for n in range(300_000)}
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        put(ledger, *(reply(n, key=digest_of(str(n)), text="x" * 1000, groups=((f"d{n % 100}",),)) for n in range(5000)))
        began = time.process_time()
        assert ledger.sweep([f"d{n}" for n in range(50)], used) == 0
        assert ledger.drop_vectors(used) == 0
        assert time.process_time() - began < 2
