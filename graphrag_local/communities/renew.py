"""When an anchor has served its time, and what becomes of level 0 where the anchor is no good start.

A partition that only follows changes gets worse slowly, first in the number of its communities on level 0, then in its modularity.
"""

from collections.abc import Sequence

from graphrag_local.communities.anchor import Grower
from graphrag_local.communities.detect import Part, improve, modularity, partition

SMALL = 500  # nodes up to which level 0 is compared with a fresh partition: there it costs nothing, and a few moves are a large share (our choice)
MUCH = 0.03  # share of the edges that differ from which on it is compared in a larger graph too; in sparse ones level 0 loses 0.3% with each 2%
FEW = 50  # edges that may differ before a small graph's anchor is renewed, about what one document brings (our choice)
AS_GOOD = 0.99  # of a fresh partition's modularity, where it is compared
MORE_ROOTS = 4  # communities on level 0 that must be too many, whatever the share: three of them become four without harm (our choice)


def renewal(grower: Grower, roots: Sequence[Part], asked: str = "") -> tuple[str, Sequence[Part]]:
    """Why the anchor is due for renewal ("modularity", "roots", or what is asked), or "" where it stays; and level 0, these roots or better ones.

    That the graph is another by now is no reason: level 0 must be worse than the anchor's, by the settings' measure, and a warm pass, all nodes free,
    must mend it by the same measure (our choice: a document without structure lowers the modularity of every partition, and a topic of its own
    adds a root to each). Where the graph is small, or much differs, it must also come up to a fresh partition. Better roots are those of the warm
    pass, or a fresh partition's where the pass is worse than that by the settings' measure.

    In a small graph one document can do all this. The graph gets the better roots, but keeps its anchor while few edges differ, so that taking the
    document out again leaves no trace.
    """
    if not asked and grower.unchanged:
        return "", roots
    nodes, edges, rules = grower.nodes, grower.edges, grower.settings
    small = len(nodes) <= SMALL
    reached = modularity(roots, edges)
    fresh = partition(nodes, edges, rules.seed) if small or grower.differing > MUCH * len(edges) else None
    why = asked or ("modularity" if fresh and _worse(reached, modularity(fresh, edges), AS_GOOD) else "")
    fell = _worse(reached, modularity(grower.anchor.roots, grower.anchor.network.edges), rules.renew_modularity)
    spread = _scattered(roots, grower.anchor.roots, rules.renew_roots)
    if not (why or fell or spread):
        return "", roots
    warm = improve(roots, edges, nodes, rules.seed, iterations=1)
    mended = modularity(warm, edges)
    if not why and fell and _worse(reached, mended, rules.renew_modularity):
        why = "modularity"
    if not why and spread and _scattered(roots, warm, rules.renew_roots):
        why = "roots"
    if not why:
        return "", roots
    fresh = fresh or partition(nodes, edges, rules.seed)
    better = fresh if _worse(mended, modularity(fresh, edges), max(AS_GOOD, rules.renew_modularity)) else warm
    return ("" if small and not asked and grower.differing <= FEW else why), better


def _worse(value: float, of: float, share: float) -> bool:
    """Whether a modularity is below this share of another; below by as much where the other is negative."""
    return value < of - (1 - share) * abs(of)


def _scattered(roots: Sequence[Part], than: Sequence[Part], share: float) -> bool:
    """Whether there are too many communities on level 0. A node without edges is one in every partition, so single nodes do not count."""
    count, other = (sum(len(part) > 1 for part in parts) for parts in (roots, than))
    return count > share * other and count >= other + MORE_ROOTS
