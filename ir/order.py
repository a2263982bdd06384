"""The order in which a graph's nodes are looked at and run: each behind what it reads, and among
those the one of the lowest rank first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from heapq import heappop, heappush

Rank = tuple[int, int]
"""Where a node belongs. No two nodes have the same one."""


def in_order(
    ranks: Mapping[str, Rank],
    late: Collection[str],
    readers: Mapping[str, Iterable[str]],
    makers: Mapping[str, Iterable[str]],
) -> list[str]:
    """Names in the lexicographical topological order by rank.

    Nodes are sorted by rank, which is their order where producers have lower ranks than their
    readers. A reader with a producer of a higher rank waits until that stands, and so do its own
    readers; the rest of the graph is not looked at.

    Args:
        ranks: the rank of each node.
        late: the nodes that read a node of a higher rank, or themselves.
        readers: the nodes that read a node, by its name.
        makers: the nodes that a node reads, by its name.

    Returns:
        All nodes; fewer where some wait for each other in a circle.
    """
    names = sorted(ranks, key=ranks.__getitem__)
    if not late:
        return names
    order: list[str] = []
    standing: set[str] = set()
    waiting: dict[str, int] = {}
    for name in names:
        if name in late or waiting:
            missing = sum(producer not in standing for producer in makers[name])
            if missing:
                waiting[name] = missing
                continue
        free = [(ranks[name], name)]
        while free:
            _, placed = heappop(free)
            order.append(placed)
            standing.add(placed)
            for reader in readers[placed] if waiting else ():
                if reader in waiting:
                    waiting[reader] -= 1
                    if not waiting[reader]:
                        del waiting[reader]
                        heappush(free, (ranks[reader], reader))
    return order
