"""Places for the boxes of a layered graph: no two overlap, and edges run as straight as they can.

Each layer is a column.  Boxes are drawn towards the middles of their neighbours, in alternating
directions; within a column the places nearest to the wishes that keep order and distance are an
isotonic regression.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.plan.picture.layers import Layers

#: Between columns, and between the boxes of one; points.
COLUMN_GAP: Final = 56.0
BOX_GAP: Final = 16.0
_WAYPOINT: Final = (0.0, 6.0)
_SWEEPS: Final = 40


@dataclass(frozen=True, slots=True)
class Box:
    """Position and size of a box: the upper left corner, width and height."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """The height of its middle."""
        return self.y + self.height / 2


def places(layout: Layers, sizes: Mapping[str, tuple[float, float]]) -> dict[str, Box]:
    """A box for each node, by its width and height in ``sizes``, and for each waypoint."""
    size = {node: sizes.get(node, _WAYPOINT) for layer in layout.layers for node in layer}
    neighbours: dict[str, list[str]] = {node: [] for node in size}
    for path in layout.paths.values():
        for a, b in pairwise(path):
            neighbours[a].append(b)
            neighbours[b].append(a)
    layer_of = {node: n for n, layer in enumerate(layout.layers) for node in layer}
    middles: dict[str, float] = {}
    for layer in layout.layers:
        wishes = [0.0] * len(layer)
        middles |= zip(layer, _apart(layer, wishes, size), strict=True)
    for sweep in range(_SWEEPS):
        ahead = sweep % 2 == 0
        for number in range(len(layout.layers)) if ahead else reversed(range(len(layout.layers))):
            layer = layout.layers[number]
            wishes = []
            for node in layer:
                # At last both sides count, so that an edge bends on neither more than it must.
                both = sweep >= _SWEEPS - 4
                near = [
                    middles[one]
                    for one in neighbours[node]
                    if both or (layer_of[one] < number) == ahead
                ] or [middles[one] for one in neighbours[node]]
                wishes.append(sum(near) / len(near) if near else middles[node])
            middles |= zip(layer, _apart(layer, wishes, size), strict=True)
    top = min((middles[n] - size[n][1] / 2 for n in size), default=0.0)
    boxes: dict[str, Box] = {}
    x = 0.0
    for layer in layout.layers:
        column = max((size[node][0] for node in layer), default=0.0)
        for node in layer:
            width, height = size[node]
            width = width or column
            left = x + (column - width) / 2
            boxes[node] = Box(left, middles[node] - height / 2 - top, width, height)
        x += column + COLUMN_GAP
    return boxes


def _apart(
    layer: Sequence[str], wishes: Sequence[float], size: Mapping[str, tuple[float, float]]
) -> list[float]:
    """The middles nearest to ``wishes``, by their squares, that keep order and distance."""
    offsets = [0.0]
    for above, below in pairwise(layer):
        offsets.append(offsets[-1] + (size[above][1] + size[below][1]) / 2 + BOX_GAP)
    # Less the offsets, places may not fall: neighbours that would are pooled at their mean.
    pools: list[tuple[float, int]] = []
    for wish, offset in zip(wishes, offsets, strict=False):
        pools.append((wish - offset, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n)]
    flat = [value for value, count in pools for _ in range(count)]
    return [value + offset for value, offset in zip(flat, offsets, strict=False)]
