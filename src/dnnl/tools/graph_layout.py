"""Layered drawing of a directed graph (Sugiyama's method), from top to bottom.

A vertex is one layer below the lowest of its sources. An edge that crosses layers has a bend in
each, so that every segment joins adjacent layers. Within a layer, vertices are ordered by the mean
position of their neighbours, and then placed as close to that as their widths allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 8
"""Sweeps of ordering: orders settle within a few, further ones swap equally good orders."""
_FIRM = 1000.0
"""The weight of a vertex relative to a bend, so that edges go around chains, which stay
straight."""


@dataclass(frozen=True, slots=True)
class Box:
    """The size of a vertex, and the gaps between vertices, between layers, and beside a bend, in
    px."""

    width: float = 216.0
    height: float = 44.0
    beside: float = 20.0
    below: float = 30.0
    bend: float = 14.0


@dataclass(frozen=True, slots=True)
class Layout:
    """The upper left corner of each vertex, the points of each edge, and the size of the
    drawing."""

    corners: Sequence[tuple[float, float]]
    paths: Sequence[Sequence[tuple[float, float]]]
    width: float
    height: float


def laid_out(count: int, edges: Sequence[tuple[int, int]], box: Box) -> Layout:
    """The layout of ``count`` vertices; each edge (source, target) has source < target."""
    return _Layers(count, edges, box).layout()


class _Layers:
    """Vertices in layers; numbers from ``count`` on are bends."""

    def __init__(self, count: int, edges: Sequence[tuple[int, int]], box: Box) -> None:
        self._count, self._box = count, box
        sources, targets = _ends(count, edges)
        self._depth = _depths(sources, targets)
        self._chains: list[list[int]] = []
        for source, target in edges:
            chain = [source]
            for depth in range(self._depth[source] + 1, self._depth[target]):
                chain.append(len(self._depth))
                self._depth.append(depth)
            self._chains.append([*chain, target])
        size = len(self._depth)
        self._above: list[list[int]] = [[] for _ in range(size)]
        self._below: list[list[int]] = [[] for _ in range(size)]
        for upper, lower in dict.fromkeys(
            pair for chain in self._chains for pair in pairwise(chain)
        ):
            self._above[lower].append(upper)
            self._below[upper].append(lower)
        # A vertex is placed by the ends of its edges: a chain that an edge goes around is straight.
        self._sources = [*sources, *self._above[count:]]
        self._targets = [*targets, *self._below[count:]]
        self._rows: list[list[int]] = [[] for _ in range(max(self._depth, default=-1) + 1)]
        for vertex, depth in enumerate(self._depth):
            self._rows[depth].append(vertex)

    def layout(self) -> Layout:
        """The layout of vertices and edges."""
        for down in [True, False] * (_SWEEPS // 2):
            self._order(down)
        centres = self._placed()
        box, step = self._box, self._box.height + self._box.below
        left = min((c - self._half(v) for v, c in enumerate(centres)), default=0.0)
        right = max((c + self._half(v) for v, c in enumerate(centres)), default=0.0)
        tops = [depth * step for depth in self._depth]
        corners = [(centres[v] - left - box.width / 2, tops[v]) for v in range(self._count)]
        paths = []
        for chain in self._chains:
            points = [(centres[chain[0]] - left, tops[chain[0]] + box.height)]
            for bend in chain[1:-1]:
                points += [(centres[bend] - left, tops[bend] + y) for y in (0.0, box.height)]
            paths.append([*points, (centres[chain[-1]] - left, tops[chain[-1]])])
        height = max(0.0, len(self._rows) * step - box.below)
        return Layout(corners, paths, right - left, height)

    def _half(self, vertex: int) -> float:
        return (self._box.width if vertex < self._count else self._box.bend) / 2

    def _order(self, down: bool) -> None:
        """Order each layer by the mean positions of neighbours in the previous one."""
        near = self._above if down else self._below
        place = {v: float(n) for row in self._rows for n, v in enumerate(row)}
        for row in self._rows if down else reversed(self._rows):
            wanted = {
                v: sum(place[n] for n in near[v]) / len(near[v]) if near[v] else place[v]
                for v in row
            }
            row.sort(key=wanted.__getitem__)
            place.update((v, float(n)) for n, v in enumerate(row))

    def _placed(self) -> list[float]:
        """The centre of each vertex: close to its neighbours, without overlaps in its layer."""
        centres = [0.0] * len(self._depth)
        for row in self._rows:
            for vertex, centre in zip(row, self._apart(row, [0.0] * len(row)), strict=True):
                centres[vertex] = centre
        for down in [True, False] * _SWEEPS:
            for row in self._rows if down else reversed(self._rows):
                near = self._sources if down else self._targets
                wanted = [
                    sum(centres[n] for n in near[v]) / len(near[v]) if near[v] else centres[v]
                    for v in row
                ]
                for vertex, centre in zip(row, self._apart(row, wanted), strict=True):
                    centres[vertex] = centre
        return centres

    def _apart(self, row: Sequence[int], wanted: Sequence[float]) -> list[float]:
        """The centres closest to ``wanted``, by weighted least squares, that leave the gaps.

        After subtracting the widths and gaps to their left, centres must not decrease (isotonic
        regression): neighbours that would are pooled and get their mean.
        """
        shift, shifts = 0.0, []
        for n, vertex in enumerate(row):
            if n:
                shift += self._half(row[n - 1]) + self._half(vertex) + self._box.beside
            shifts.append(shift)
        blocks: list[tuple[float, float, int]] = []  # mean, weight, how many
        for vertex, centre, own in zip(row, wanted, shifts, strict=True):
            block = (centre - own, _FIRM if vertex < self._count else 1.0, 1)
            while blocks and blocks[-1][0] > block[0]:
                mean, weight, size = blocks.pop()
                total = weight + block[1]
                mean = (mean * weight + block[0] * block[1]) / total
                block = (mean, total, size + block[2])
            blocks.append(block)
        means = [mean for mean, _, size in blocks for _ in range(size)]
        return [mean + own for mean, own in zip(means, shifts, strict=True)]


def _ends(count: int, edges: Sequence[tuple[int, int]]) -> tuple[list[list[int]], list[list[int]]]:
    """The sources and the targets of each vertex."""
    sources: list[list[int]] = [[] for _ in range(count)]
    targets: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        sources[target].append(source)
        targets[source].append(target)
    return sources, targets


def _depths(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[int]:
    """The layer of each vertex; those without a source are right above their first target."""
    depths: list[int] = []
    for own in sources:
        depths.append(max((depths[source] + 1 for source in own), default=0))
    for vertex, own in enumerate(targets):
        if own and not sources[vertex]:
            depths[vertex] = min(depths[target] for target in own) - 1
    return depths
