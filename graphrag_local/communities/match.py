"""Ids that last: a community takes the id of the anchor's community that it overlaps most."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from graphrag_local.ids import digest_of
from graphrag_local.records import AnchorCommunity, Community

OVERLAP = 0.5  # Jaccard index of the members from which on two communities are one (our choice: more than one half cannot be claimed twice)


def inherit(communities: Sequence[Community], anchor: Sequence[AnchorCommunity]) -> tuple[Community, ...]:
    """The communities with the anchor's ids, best overlap first, among those that begin on the same level; by (first level, id).

    One without a predecessor keeps the id of its birth. Where the anchor holds that id, for a community that has other members by now, the birth
    gets another.
    """
    ids = _pairs(communities, anchor)
    taken = {old.id for old in anchor}
    for community in communities:
        if community.id not in ids:
            fresh = community.id
            while fresh in taken:
                fresh = digest_of("community", "again", fresh)
            ids[community.id] = fresh
    named = (
        replace(
            community,
            id=ids[community.id],
            parent_id=ids.get(community.parent_id, ""),
            child_ids=tuple(sorted(ids[child] for child in community.child_ids)),
        )
        for community in communities
    )
    return tuple(sorted(named, key=lambda row: (row.first_level, row.id)))


def _pairs(communities: Sequence[Community], anchor: Sequence[AnchorCommunity]) -> dict[str, str]:
    """Id at birth -> the anchor's id, for communities that are one."""
    home = {(old.first_level, member): old.id for old in anchor for member in old.member_ids}
    sizes = {old.id: len(old.member_ids) for old in anchor}
    found = []
    for new in communities:
        places = ((new.first_level, member) for member in new.member_ids)
        for old_id, shared in Counter(home[place] for place in places if place in home).items():
            overlap = shared / (len(new.member_ids) + sizes[old_id] - shared)
            if overlap >= OVERLAP:
                found.append((-overlap, old_id, new.id))
    pairs: dict[str, str] = {}
    gone: set[str] = set()
    for _, old_id, new_id in sorted(found):
        if old_id not in gone and new_id not in pairs:
            pairs[new_id] = old_id
            gone.add(old_id)
    return pairs
