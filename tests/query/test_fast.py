"""What makes questions cheap finds what the plain way finds: pruned rankings by vectors and words, the first place of a record, groups, words by stems."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphrag_local.query import referring
from graphrag_local.query.arrays import Strings
from graphrag_local.query.briefing import _stem, having
from graphrag_local.query.cite import sources_of
from graphrag_local.query.context import Ref
from graphrag_local.query.lazy_search import groups_of
from graphrag_local.query.quote import MOST
from graphrag_local.query.retrieve import WordIndex, terms
from graphrag_local.query.shape import GROUP
from graphrag_local.query.view import View
from graphrag_local.store import rows
from graphrag_local.store.rows import Vectors
from graphrag_local.text import sentences
from tests.query.test_kept import collections, memory

SIZE = 24


def vectors_of(matrix):
    """The vectors of a matrix, with what bounds them."""
    length = np.maximum(np.sqrt(np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64)), 1e-30)
    ids = np.array([f"{number:06}".encode() for number in range(len(matrix))])
    return Vectors({"ids": ids, "matrix": matrix, "length": length, **rows._bounds(matrix, length)})


def like(kind):
    """A matrix of vectors that fall off, are all alike, lie in a few directions, or are partly no vectors at all."""
    dice = np.random.default_rng(5)
    matrix = dice.normal(size=(rows.LARGE + 77, SIZE))
    matrix *= {"falling": 1 / np.arange(1, SIZE + 1), "flat": np.ones(SIZE), "few": np.arange(SIZE) < 3}.get(kind, np.ones(SIZE))
    if kind == "equals":
        matrix = matrix[dice.integers(0, 40, len(matrix))]
    if kind == "empty":
        matrix[::3] = 0
    return matrix.astype(np.float32) * dice.uniform(0.5, 20, (len(matrix), 1)).astype(np.float32)


@pytest.mark.parametrize("kind", ["falling", "flat", "few", "equals", "empty"])
def test_bounded_search_finds_what_a_whole_product_finds(kind):
    """The same rows, in the same order, with the same similarities, whether or not much could be left out."""
    matrix = like(kind)
    near, dice = vectors_of(matrix), np.random.default_rng(6)
    exact = matrix.astype(np.float64)
    length = np.maximum(np.linalg.norm(exact, axis=1), 1e-30)
    few = []
    for k in (1, 5, 30, 400):
        for wanted in (matrix[50].astype(np.float64), dice.normal(size=SIZE), np.zeros(SIZE)):
            unit = wanted / (np.linalg.norm(wanted) or 1.0)
            scores = np.round(exact @ unit / length, 12)
            order = np.lexsort((np.arange(len(scores)), -scores))
            found = near.near(wanted.tolist(), k)
            assert [score for _, score in found] == pytest.approx(scores[order[:k]].tolist(), abs=1e-11)
            clear = [place for place in range(k) if place in (0, k - 1) or abs(scores[order[place]] - scores[order[place - 1]]) > 1e-9]
            assert kind in ("equals", "empty") or [found[place][0] for place in clear[:-1]] == [f"{order[place]:06}" for place in clear[:-1]]
            assert all(a > b or (a == b and x < y) for (x, a), (y, b) in pairwise(found))
            some = near._likely(unit, k)
            few += [k] if some is not None and len(some) < len(matrix) / 4 else []
    assert few or kind != "falling"  # else this test would test nothing


@settings(max_examples=150)
@given(
    texts=st.lists(st.lists(st.sampled_from("a b c d e f g h lamp кит 海 星".split()), max_size=12), min_size=1, max_size=60),
    asked=st.lists(st.sampled_from("a b c d e f lamp кит 海 星 z".split()), max_size=8),
    k=st.integers(1, 12),
    which=st.integers(1, 4),
)
def test_pruned_words_find_what_adding_all_up_finds(texts, asked, k, which):
    """The k best are those by the plain sums in the order of the question's words, of all texts or of some, to the last bit."""
    index = WordIndex.of((f"{number:03}", " ".join(text)) for number, text in enumerate(texts))
    question = " ".join(asked)
    scores = np.zeros(len(index.owners), np.float32)
    for word in dict.fromkeys(map(index.words.number, terms(question, pairs_only=True))):
        if word >= 0:
            own = slice(index._begin[word], index._begin[word + 1])
            scores[index._text[own]] += index._score[own]
    among = np.arange(len(scores)) % which == 0
    order = [number for number in np.argsort(-scores, kind="stable").tolist() if scores[number] > 0]
    for some, plain in ((None, order), (among, [number for number in order if among[number]])):
        assert index.best(question, k, some) == [(index.owners[number], float(scores[number])) for number in plain[:k]]


def test_common_words_bring_nobody_in():
    """With enough texts of a rare word, few of the texts that share only common words are looked at."""
    texts = (f"the of {'lamp' if number % 20 == 0 else 'mole'} w{number} {'kite' if number % 1000 == 0 else ''}" for number in range(4000))
    index = WordIndex.of((f"{number:05}", text) for number, text in enumerate(texts))
    asked = [index.words.number(word) for word in "the lamp of kite".split()]

    assert [owner for owner, _ in index.best("the lamp of kite", 3)] == ["00000", "01000", "02000"]
    assert index._likely(asked, 3, None).tolist() == [0, 1000, 2000, 3000]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(snapshot=collections())
def test_places_groups_and_standing_are_those_of_the_records(snapshot):
    """The first place of records, the group of each chunk, where entities stand and what a community is behind are what going through all records finds."""
    view = View(memory(snapshot))
    entities = {entity.id: entity for entity in snapshot.entities}
    everything = [*entities, *(edge.id for edge in snapshot.relationships)]
    for owners in (everything, everything[::2], []):
        places = view.places(owners)
        by_path = view.shape["document.by_path"]
        best = min(places.tolist(), key=lambda row: (row[4], by_path[row[0]], row[2], row[3]), default=None)
        first = view.first_place(owners)
        assert (first is None) == (best is None)
        assert first is None or [first[column] for column in (4, 0, 2, 3)] == [best[column] for column in (4, 0, 2, 3)]
    ref = Ref(kind="entity", id=next(iter(entities), ""))
    if entities:
        assert len({(s.document, s.start, s.end) for s in sources_of(ref, view, "lamps of Tarnholm", 99)}) == len(sources_of(ref, view, "lamps of Tarnholm", 99))
    for chunk in snapshot.chunks:
        told = [(m.owner_id, s.start, s.end) for m in snapshot.mentions if m.chunk_id == chunk.id and m.owner_id in entities for s in m.spans]
        numbers, begin, end = view.standing(chunk.id)
        assert Counter(zip((view.entities.ids[number] for number in numbers.tolist()), begin.tolist(), end.tolist(), strict=True)) == Counter(told)
    group = view.entities.ids.numbers(sorted(entities)[::2])
    edges, claims = view.between(group), view.claims_about(group)
    ids = [view.entities.ids[number] for number in group.tolist()]
    assert [view.claims.at(number).id for number in claims.tolist()] == [claim.id for owner in ids for claim in view.claims_of.get(owner, ())]
    behind = [*ids, *(view.relationships.ids[number] for number in edges.tolist()), *(view.claims.ids[number] for number in claims.tolist())]
    assert view.documents_behind(group, edges, claims) == view.documents_of(behind)
    assert dict(groups_of(view)) == grouped(view, snapshot)
    assert MOST.make(view.index)["most"].tolist() == [most(view, snapshot)]


def grouped(view, snapshot):
    """The groups by going through everything."""
    for level in reversed(view.levels):
        home = {member: community.id for community in view.level(level) for member in community.member_ids}
        found = {}
        for chunk in snapshot.chunks:
            count = Counter(home[m.owner_id] for m in snapshot.mentions if m.chunk_id == chunk.id and m.owner_id in home)
            if count:
                found[chunk.id] = min(count, key=lambda community: (-count[community], community))
        if found and (level == 0 or len(found) >= GROUP * len(set(found.values()))):
            return {chunk.id: found.get(chunk.id, chunk.document_id) for chunk in snapshot.chunks}
    return {chunk.id: chunk.document_id for chunk in snapshot.chunks}


def most(view, snapshot):
    """The most mentions that entities told at one place have together."""
    best = 1
    told = [(m.chunk_id, m.owner_id, span) for m in snapshot.mentions if m.owner_id in view.entities for span in m.spans]
    for chunk, _, span in told:
        here = {owner for other, owner, place in told if other == chunk and place.start < span.end and span.start < place.end}
        best = max(best, sum(view.entities[owner].mentions for owner in here))
    return best


@given(st.lists(st.text(alphabet="abcкит", max_size=7), max_size=20), st.text(alphabet="abcкит", max_size=3))
def test_strings_that_begin_alike_are_a_run(texts, start):
    """All strings that begin with some characters are found, and no other."""
    found = Strings.of(texts).begun(start)

    assert sorted(found) == [number for number, text in enumerate(texts) if text.startswith(start)]


@given(st.lists(st.lists(st.text(alphabet="abs", min_size=1, max_size=7), max_size=6), max_size=8))
def test_a_stem_stands_for_all_its_words(texts):
    """The texts of a stem are those that have a word of that stem."""
    index = WordIndex.of((f"{number:03}", " ".join(text)) for number, text in enumerate(texts))

    for stem in {_stem(word) for text in texts for word in text}:
        wanted = [f"{number:03}" for number, text in enumerate(texts) if stem in map(_stem, text)]
        assert [index.owners[number] for number in having(stem, index).tolist()] == wanted


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from("of rule Rules § §§ 3 12 1998 7a 7b. . in \n 第 条 12条 No. 5a and - – 3. men ; x".split(" ")), max_size=12), st.sampled_from(["", " "])
)
def test_no_label_is_overlooked(pieces, joint):
    """Where any sentence of a text has a label, the quick look says so."""
    text = joint.join(pieces)
    if any(list(referring.labels(text[start:end])) for start, end in sentences(text)):
        assert referring._may_have_labels(text)
