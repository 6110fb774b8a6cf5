"""The hierarchy: every level is a partition of all nodes (paper §3.1.4, appendix B)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from graphrag_local.communities.detect import Edges, partition
from graphrag_local.ids import community_id
from graphrag_local.records import Community


@dataclass(slots=True)
class _Node:
    members: tuple[str, ...]
    level: int
    children: list["_Node"] = field(default_factory=list)


def grow(nodes: Sequence[str], edges: Edges, *, max_size: int, seed: int) -> tuple[Community, ...]:
    """The communities of a graph, by (first level, id); level 0 is the root, C0 in the paper's terms.

    A community of more than `max_size` nodes is split again while Leiden finds more than one part in it. One that stops splitting stays
    itself on the deeper levels: one row that reaches down to the deepest. Modularity does not split everything (a clique, a star), so
    `max_size` is an aim and not a bound.
    """
    neighbours: dict[str, list[tuple[str, str]]] = {}
    for pair in edges:
        for end in pair:
            neighbours.setdefault(end, []).append(pair)
    roots = [_Node(part, 0) for part in partition(nodes, edges, seed)]
    open_ = list(roots)
    deepest = 0
    while open_:
        node = open_.pop()
        deepest = max(deepest, node.level)
        if len(node.members) <= max_size:
            continue
        members = set(node.members)
        inside = {pair: edges[pair] for member in node.members for pair in neighbours.get(member, ()) if pair[0] in members and pair[1] in members}
        parts = partition(node.members, inside, seed)
        if len(parts) > 1:
            node.children = [_Node(part, node.level + 1) for part in parts]
            open_ += node.children
    rows: list[Community] = []
    for root in roots:
        _rows(root, "", deepest, rows)
    return tuple(sorted(rows, key=lambda row: (row.first_level, row.id)))


def _rows(root: _Node, parent: str, deepest: int, rows: list[Community]) -> None:
    stack = [(root, parent)]
    while stack:
        node, above = stack.pop()
        own = community_id(node.level, node.members)
        children = tuple(sorted(community_id(child.level, child.members) for child in node.children))
        last = node.level if children else deepest
        rows.append(
            Community(id=own, first_level=node.level, last_level=last, parent_id=above, child_ids=children, member_ids=tuple(sorted(node.members)))
        )
        stack += [(child, own) for child in node.children]
