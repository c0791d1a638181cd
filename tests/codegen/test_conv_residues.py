"""How a transposed convolution is cut by residues, against walking every tap of every element."""

from __future__ import annotations

import random

import pytest

from dnnl.kernels.convolution.direct.residues import parts
from dnnl.kernels.product.base.pixel_tiles import Spatial

Pairs = dict[int, set[tuple[int, int]]]


def scattered(space: Spatial) -> Pairs:
    """For each output the elements of src and the taps that reach it."""
    found: Pairs = {out: set() for out in range(space.dst)}
    for element in range(space.src):
        for tap in range(space.kernel):
            out = element * space.stride + tap * space.dilation - space.padding
            if out in found:
                found[out].add((element, tap))
    return found


def gathered(space: Spatial) -> Pairs:
    """The same out of the parts."""
    found: Pairs = {}
    for own, residues in parts(space):
        for residue in range(residues.count):
            for place in range(own.dst):
                at = residues.outputs
                out = at.first + at.apart * residue + at.step * place
                assert out not in found
                found[out] = set()
                for step in range(own.kernel):
                    element = place * own.stride + step * own.dilation - own.padding
                    if 0 <= element < space.src:
                        at = residues.taps
                        found[out].add((element, at.first + at.apart * residue + at.step * step))
    return found


def test_every_output_gets_what_reaches_it() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        src, dst = rng.randint(0, 6), rng.randint(1, 25)
        sizes = rng.randint(1, 6), rng.randint(1, 6), rng.randint(0, 7), rng.randint(1, 5)
        space = Spatial(src, dst, *sizes)
        assert gathered(space) == scattered(space), space


@pytest.mark.parametrize(
    ("space", "count"),
    [
        (Spatial(5, 5, 3, 1, 1, 1), 1),
        (Spatial(5, 10, 4, 2, 1, 1), 2),
        (Spatial(5, 9, 3, 2, 1, 1), 2),
        (Spatial(5, 10, 2, 2, 0, 1), 1),
        (Spatial(3, 96, 64, 32, 16, 1), 2),
        (Spatial(3, 96, 1, 32, 0, 1), 2),
        (Spatial(4, 30, 2, 6, 0, 3), 3),
    ],
    ids=str,
)
def test_residues_alike_share_their_code(space: Spatial, count: int) -> None:
    assert len(parts(space)) == count
