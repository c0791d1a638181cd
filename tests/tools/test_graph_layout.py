"""Layers of a graph: nothing overlaps, edges lead down, and chains are straight."""

from __future__ import annotations

from itertools import combinations, pairwise
from time import process_time

import numpy as np
import pytest

from dnnl.tools.graph_layout import Box, Layout, laid_out

BOX = Box()


def random_graph(seed: int) -> tuple[int, list[tuple[int, int]]]:
    """Vertices that read up to three of those before, mostly the latest."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 60))
    edges = set()
    for target in range(1, count):
        for _ in range(rng.integers(0, 4)):
            edges.add((max(0, target - 1 - int(rng.exponential(3.0))), target))
    return count, sorted(edges)


def check(layout: Layout, count: int, edges: list[tuple[int, int]]) -> None:
    assert len(layout.corners) == count
    assert len(layout.paths) == len(edges)
    for (x, y), (left, top) in combinations(layout.corners, 2):
        assert abs(x - left) >= BOX.width + BOX.beside - 1e-6 or abs(y - top) >= BOX.height
    for x, y in (*layout.corners, *(point for path in layout.paths for point in path)):
        assert -1e-6 <= x <= layout.width + 1e-6
        assert -1e-6 <= y <= layout.height + 1e-6
    for (source, target), path in zip(edges, layout.paths, strict=True):
        (x, y), (left, top) = layout.corners[source], layout.corners[target]
        assert path[0] == pytest.approx((x + BOX.width / 2, y + BOX.height))
        assert path[-1] == pytest.approx((left + BOX.width / 2, top))
        assert all(lower[1] > upper[1] for upper, lower in pairwise(path))
        for place, (upper, lower) in enumerate(pairwise(path)):
            if place % 2:  # past the vertices of a layer
                assert upper[0] == lower[0]
                for number, (x, y) in enumerate(layout.corners):
                    beside = not x - 1e-6 < upper[0] < x + BOX.width + 1e-6
                    assert y != upper[1] or beside, (source, target, number)


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs(seed: int) -> None:
    count, edges = random_graph(seed)
    check(laid_out(count, edges, BOX), count, edges)


def test_a_chain_is_straight_and_its_residuals_go_around() -> None:
    chain = list(pairwise(range(13)))
    edges = chain + [(n, n + 3) for n in range(1, 10, 3)]
    layout = laid_out(13, edges, BOX)
    check(layout, 13, edges)
    left = [x for x, _ in layout.corners]
    assert max(left) - min(left) < 1.0
    alone = laid_out(13, chain, BOX)
    assert alone.width == BOX.width
    assert alone.height == 13 * BOX.height + 12 * BOX.below


def test_branches_are_beside_each_other_in_few_crossings() -> None:
    """Two chains, whose vertices alternate in the order of the run, do not cross."""
    edges = [(0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 7), (6, 7)]
    layout = laid_out(8, edges, BOX)
    check(layout, 8, edges)
    sides = [layout.corners[n][0] for n in range(1, 7)]
    assert sides[0] == sides[2] == sides[4]
    assert sides[1] == sides[3] == sides[5]
    middle = (sides[0] + sides[1]) / 2
    assert layout.corners[0][0] == pytest.approx(middle)
    assert layout.corners[7][0] == pytest.approx(middle)


def test_inputs_are_near_their_first_reader() -> None:
    edges = [(0, 2), (2, 3), (3, 4), (1, 4)]
    tops = [y for _, y in laid_out(5, edges, BOX).corners]
    assert tops[1] == tops[3]


def test_nothing_and_one() -> None:
    assert laid_out(0, [], BOX).corners == []
    assert laid_out(1, [], BOX).corners == [(0.0, 0.0)]


def test_a_large_graph_takes_little_time() -> None:
    """A thousand steps with residuals, and an edge from the first to the last."""
    edges = [*pairwise(range(1000)), *((n, n + 4) for n in range(0, 990, 5)), (0, 999)]
    started = process_time()
    layout = laid_out(1000, edges, BOX)
    assert process_time() - started < 5.0
    check(Layout(layout.corners[:40], [], layout.width, layout.height), 40, [])
