"""Find the maps that enter the pooling, by walking back from what the head reads."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from torch import Tensor

from ._columns import Layer
from ._pooling import pool
from ._tracing import RESHAPES, Node

__all__ = ["Maps", "collapse", "find_maps"]


@dataclass(frozen=True, slots=True)
class Maps:
    """Where maps are read: argument ``slot`` of the call at ``position``; how they are laid out, and what they are."""

    position: int
    name: str
    slot: int
    channel: int
    patches: slice | None
    source: Node | None = None

    def pool(self, x: Tensor, mask: Tensor | None = None) -> Layer:
        return pool(x, self.channel, self.patches, mask=mask)


def find_maps(node: Node) -> Maps | None:
    """The last maps or tokens before the vector ``node``: those whose positions a call takes away.

    The latest calls are looked at first, so that a squeeze-and-excitation gate, which pools too, is never
    taken for the pooling before the head. Where a pooling reads single positions, an earlier one is looked for
    among the calls on single positions; without one, the maps are those single positions, whose std is 0.
    """
    queue, seen, order = [(-node.position, 0, node)], {id(node)}, 0
    single: Maps | None = None
    while queue:
        _, _, current = heapq.heappop(queue)
        maps = collapse(current) or (mixed(current) if single is None else None)
        if maps is not None and current.sources[0][1].positions == 1 and is_single(current.sources[0][1]):
            single = single or maps
        elif maps is not None:
            return maps
        for _, source in current.sources:
            if id(source) not in seen and (single is None or is_single(source)):
                seen.add(id(source))
                heapq.heappush(queue, (-source.position, order := order + 1, source))
    return single


def is_single(node: Node) -> bool:
    return node.shape[2:].count(1) == len(node.shape) - 2


def collapse(node: Node) -> Maps | None:
    """The maps that a pooling, a token's selection or a flattening turns into a vector."""
    if not node.sources:
        return None
    slot, source = node.sources[0]
    if len(source.shape) < 3 or not source.learned or source.shape[0] != node.shape[0]:
        return None

    if node.reduced and 0 not in node.reduced:
        return before_pooling(node, slot, source, node.reduced)
    if node.selected is not None and len(source.shape) == 3 and source.shape[1] > 1:
        tokens, index = source.shape[1], node.selected % source.shape[1]
        rest = {0: slice(1, None), tokens - 1: slice(0, -1)}.get(index)  # whatever the length of a batch
        return Maps(node.position, node.name, slot, 2, source.patches or rest, source)
    if node.name in RESHAPES and len(node.shape) == 2 and source.positions > 1:
        return before_pooling(node, slot, source, ())
    return None


def before_pooling(node: Node, slot: int, source: Node, reduced: tuple[int, ...]) -> Maps | None:
    # Pooling may come in steps: one axis after the other, or windows first and a flattening after.
    while len(source.shape) >= 3 and source.sources and is_average(source) and source.sources[0][1].learned:
        node, (slot, source), reduced = source, source.sources[0], source.reduced
    kept = [d for d in range(1, len(source.shape)) if d not in reduced]
    channel = kept[0] if len(kept) == 1 else source.channel
    return None if channel is None else Maps(node.position, node.name, slot, channel, source.patches, source)


def is_average(node: Node) -> bool:
    return "avg_pool" in node.name or (node.name == "mean" and bool(node.reduced) and 0 not in node.reduced)


def mixed(node: Node) -> Maps | None:
    """Maps that end in any other way: a convolution as large as the map, attention with one query."""
    batch = node.shape[0] if node.shape else 0
    for slot, source in node.sources:
        if source.learned and source.positions > 1 and source.channel is not None and source.shape[0] == batch:
            return Maps(node.position, node.name, slot, source.channel, source.patches, source)
    return None
