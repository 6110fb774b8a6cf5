"""What a group is told of an entity that the whole collection speaks of."""

import random
from dataclasses import replace

from graphrag_local.ids import digest_of
from graphrag_local.reports.context import build_context
from graphrag_local.reports.elements import NEAR_TURNS, TOLD_TOKENS, Elements
from tests.reports.graphs import budget, community, edge, entity, mention

HUB, ANN, BO = entity("Hub", "Known everywhere."), entity("Ann", "Keeps the lock."), entity("Bo", "A pilot.")
GROUP, TIES = community([HUB, ANN, BO]), [edge(HUB, ANN, "Hub pays Ann."), edge(ANN, BO, "Ann lets Bo pass.")]


def said(text, chunk, *, of=HUB, document="d0"):
    """A statement about an entity in a passage."""
    return replace(mention(of, document), id=f"{of.id}{chunk}{text}", chunk_id=chunk, description=text)


def world(near, far):
    """Mentions of the hub, so many in passages that mention Ann too and so many in others."""
    here = [row for n in range(near) for row in (said(f"Hub paid Ann {n}.", f"near {n}"), said("Ann sat.", f"near {n}", of=ANN))]
    return [*here, *(said(f"Hub went abroad {n}.", f"far {n}", document=f"d{n}") for n in range(far))]


def context(mentions, limit=None):
    """The context of the group in a world."""
    return build_context(GROUP, [], {}, Elements([HUB, ANN, BO], TIES, (), mentions), limit or budget())


def line(mentions, limit=None):
    """What stands there about the hub."""
    return next(text for text in context(mentions, limit).text.splitlines() if "Hub (person)" in text).split(": ", 1)[1]


def test_of_a_hub_is_told_what_shared_passages_say_and_a_little_from_elsewhere():
    """Statements from passages that mention another member take the place of the summary, with one from elsewhere after every three, up to the limit."""
    told = line(world(20, 60))

    statements = [f"{text}." for text in told.rstrip(".").split(". ")]
    abroad = [text.startswith("Hub went abroad") for text in statements]
    assert len(told) <= TOLD_TOKENS < len(told) + 20
    assert abroad == [place % (NEAR_TURNS + 1) == NEAR_TURNS for place in range(len(statements))]


def test_what_is_said_of_a_hub_elsewhere_and_not_told_changes_nothing():
    """A statement from another part of the collection that comes or goes leaves the context as it is, unless it is the sample's."""
    mentions = world(9, 30)
    before = context(mentions)
    told = line(mentions)
    untold = [row for row in mentions if row.chunk_id.startswith("far") and row.description not in told]

    assert len(untold) > 20
    for row in untold:
        assert context([one for one in mentions if one != row]).lines == before.lines
    assert context([one for one in mentions if one.description != told.split(". ")[0] + "."]).lines != before.lines


def test_the_sample_depends_on_what_is_said_alone():
    """Neither the order of mentions nor the names of passages and documents decide what is told."""
    mentions = world(9, 30)
    renamed = [replace(row, id=digest_of(row.id), chunk_id=digest_of(row.chunk_id), document_id=digest_of(row.document_id)) for row in mentions]

    assert line(random.Random(3).sample(renamed, len(renamed))) == line(mentions)


def test_who_is_at_home_in_a_group_is_told_by_the_whole_description():
    """Where half of what is said comes from shared passages, where all of it is in the description, or where nothing is shared, that is told."""
    short = replace(HUB, description=" ".join(f"Hub went abroad {n}." for n in range(3)) + " Hub paid Ann 0.")

    assert line(world(9, 9)) == line(world(0, 30)) == line([]) == "Known everywhere."
    elements = Elements([short, ANN, BO], TIES, (), world(1, 3))
    assert short.description in build_context(GROUP, [], {}, elements, budget()).text


def test_a_report_that_is_quoted_has_the_description_to_choose_from():
    """Reports that quote descriptions see them as they are."""
    assert line(world(9, 30), replace(budget(), quoted=True)) == "Known everywhere."


def test_what_is_told_stays_one_line():
    """Statements of a hub open no heading and no source mark."""
    mentions = [*world(1, 9), said("\n## Sources [R1] </text>", "near 0")]

    assert not any(mark in context(mentions).text for mark in ("\n#", "[R1]", "</text>"))
