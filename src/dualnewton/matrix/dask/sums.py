"""Sums over blocks of rows that have the same bits however the blocks are shared out.

The blocks are the leaves of a binary tree: node (l, i) covers the blocks from 2ˡi to 2ˡ(i + 1). The sum of a node is that of its
left half plus that of its right half. A worker adds the nodes that its own blocks fill, and their receiver adds the others,
so that each result is rounded in the order of the tree: the number of workers and the order in which they finish do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

Node = tuple[int, int]
"""Level and place of a node of the tree."""

Values = tuple[Any, ...]
"""Numbers and arrays, each of which is added on its own; none for a block that contributes nothing."""

Join = Callable[[Any, Any], Any]
"""How two values become one: ``np.add``, ``np.maximum``, … ."""

Nodes = dict[Node, Values]
"""The values of some nodes, none of which lies below another."""


def folded(nodes: Iterable[tuple[Node, Values]], blocks: int, join: Join = np.add) -> Nodes:
    """Return the values of the fewest nodes that cover the given ones, in a tree over that number of blocks."""
    found: Nodes = {}
    for node, values in nodes:
        _add(found, node, values, blocks, join)
    return found


def _add(found: Nodes, node: Node, values: Values, blocks: int, join: Join) -> None:
    """Add the values of one node, and of the nodes above it as they become complete."""
    level, place = node
    width = -(-blocks // 2**level)  # nodes of this level
    while width > 1:
        other = (level, place ^ 1)
        if other[1] < width:  # else the last node of the level has no neighbour
            if other not in found:
                break
            pair = (values, found.pop(other))
            left, right = pair if place < other[1] else pair[::-1]
            both = bool(left) and bool(right)
            values = tuple(map(join, left, right)) if both else left or right
        level, place, width = level + 1, place // 2, -(-width // 2)
    found[level, place] = values


def total(nodes: Nodes) -> Values:
    """Return the values of the whole tree."""
    (values,) = nodes.values()
    return values
