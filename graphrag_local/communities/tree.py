"""The hierarchy: every level is a partition of all nodes (paper §3.1.4, appendix B)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from graphrag_local.communities.detect import Edges, Part, partition
from graphrag_local.ids import community_id
from graphrag_local.records import Community


@dataclass(slots=True)
class Branch:
    """A community and what it is split into; `whole`: its subtree is complete as it stands."""

    members: Part
    children: list["Branch"] = field(default_factory=list)
    whole: bool = False


class Network:
    """A graph's edges, and those inside a community without a look at all the others."""

    def __init__(self, edges: Edges) -> None:
        self.edges = edges

    @cached_property
    def _from(self) -> dict[str, list[tuple[str, str]]]:
        found: dict[str, list[tuple[str, str]]] = {}
        for pair in self.edges:
            found.setdefault(pair[0], []).append(pair)
        return found

    def inside(self, members: Iterable[str]) -> dict[tuple[str, str], float]:
        """The edges with both ends among these nodes."""
        wanted = set(members)
        return {pair: self.edges[pair] for member in members for pair in self._from.get(member, ()) if pair[1] in wanted}


def sprout(parts: Iterable[Part], divide: Callable[[Part], list[Branch]]) -> list[Branch]:
    """The trees over the parts of level 0; `divide` gives a community's children, none where it stops splitting."""
    roots = [Branch(part) for part in parts]
    open_ = list(roots)
    while open_:
        branch = open_.pop()
        branch.children = divide(branch.members)
        open_ += [child for child in branch.children if not child.whole]
    return roots


def split(parts: Sequence[Part]) -> list[Branch]:
    """The children that a partition of a community makes: none when it is in one part."""
    return [Branch(part) for part in parts] if len(parts) > 1 else []


def grow(nodes: Sequence[str], edges: Edges, *, max_size: int, seed: int) -> tuple[Community, ...]:
    """The communities of a graph, by (first level, id); level 0 is the root, C0 in the paper's terms.

    A community of more than `max_size` nodes is split again while Leiden finds more than one part in it. One that stops splitting stays
    itself on the deeper levels: one row that reaches down to the deepest. Modularity does not split everything (a clique, a star), so
    `max_size` is an aim and not a bound. What is inside a community is a pure function of its members and their edges.
    """
    network = Network(edges)

    def divide(members: Part) -> list[Branch]:
        return split(partition(members, network.inside(members), seed)) if len(members) > max_size else []

    return rows(sprout(partition(nodes, edges, seed), divide))


def rows(roots: Iterable[Branch]) -> tuple[Community, ...]:
    """The records of these trees, by (first level, id), with the ids of their birth."""
    stack = [(root, 0, "") for root in roots]
    found = []
    while stack:
        branch, level, parent = stack.pop()
        own = community_id(level, branch.members)
        children = tuple(sorted(community_id(level + 1, child.members) for child in branch.children))
        found.append((own, level, parent, children, branch.members))
        stack += [(child, level + 1, own) for child in branch.children]
    deepest = max((level for _, level, _, _, _ in found), default=0)
    return tuple(
        Community(id=own, first_level=level, last_level=level if children else deepest, parent_id=parent, child_ids=children, member_ids=members)
        for own, level, parent, children, members in sorted(found, key=lambda row: (row[1], row[0]))
    )
