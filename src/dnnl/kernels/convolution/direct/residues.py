"""How the output of a transposed convolution is cut into convolutions of stride 1.

Element ``i`` of src contributes to output ``i * stride + k * dilation - padding`` by tap ``k``. So
an output has taps of one residue modulo the stride only, and all outputs of that residue have the
same taps::

    stride 2, kernel 3, padding 1      outputs 0 2 4 ...   tap  1
                                       outputs 1 3 5 ...   taps 2, 0

Each residue is an ordinary convolution with its taps in reverse order: there are no products with
zeros between the elements of src, and no output that two threads add to. Consecutive residues with
equal numbers of outputs and taps differ in constants that grow evenly, so that they share one piece
of code.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import gcd

from dnnl.codegen.memory.address import Affine, Axis
from dnnl.kernels.product.base.pixel_tiles import Spatial
from dnnl.types.size import surely_equal


@dataclass(frozen=True)
class Steps:
    """The numbers ``first + apart * residue + step * n``."""

    first: int = 0
    apart: int = 0
    step: int = 1

    def of(self, residue: Axis, n: Axis) -> Affine:
        """The number of each iteration."""
        return Affine.of(residue, self.apart) + Affine.of(n, self.step) + self.first


@dataclass(frozen=True)
class Residues:
    """Some residues of one dimension: how many, and which outputs and taps of the weights they
    have. By default one, with all of both."""

    count: int = 1
    outputs: Steps = Steps()
    taps: Steps = Steps()


Part = tuple[Spatial, Residues]
"""The convolution of some residues, and their outputs and taps."""


@dataclass(frozen=True)
class _Residue:
    """One residue: its first output, the element of src that its first tap reads there, its numbers
    of outputs and taps, and its first tap."""

    first: int
    outputs: int
    src: int = 0
    taps: int = 0
    tap: int = 0

    def alike(self, other: _Residue) -> bool:
        """Whether both are convolutions of the same sizes, for all that executions may know."""
        same = (self.src, self.taps) == (other.src, other.taps)
        return same and surely_equal(self.outputs, other.outputs)


def each(space: Spatial) -> tuple[tuple[Part, bool], ...]:
    """The convolution of each residue, one by one, and whether it has any taps."""
    return tuple((_part(space, [own]), own.taps > 0) for own in _residues(space))


def parts(space: Spatial) -> tuple[Part, ...]:
    """The convolutions that make up one dimension of a transposed one with the sizes ``space``."""
    runs: list[list[_Residue]] = []
    for residue in _residues(space):
        run = runs[-1] if runs else []
        even = len(run) < 2 or residue.first - run[-1].first == run[1].first - run[0].first
        if run and even and residue.alike(run[-1]):
            run.append(residue)
        else:
            runs.append([residue])
    return tuple(_part(space, run) for run in runs)


def _residues(space: Spatial) -> list[_Residue]:
    """Every residue that has outputs: first those with taps, in the order of the taps, then those
    without, in the order of their outputs.

    If stride and dilation have a common divisor, there are outputs between all taps.
    """
    common = gcd(space.stride, space.dilation)
    count = space.stride // common
    tapped, others = [], []
    for number, between in product(range(count), range(common)):
        offset = number * space.dilation + between - space.padding
        src = -(offset // space.stride)
        first = offset + src * space.stride
        outputs = -((first - space.dst) // space.stride)
        if outputs < 1:
            continue
        if between or number >= space.kernel:
            others.append(_Residue(first, outputs))
        else:
            taps = -((number - space.kernel) // count)
            tapped.append(_Residue(first, outputs, src, taps, number))
    return tapped + sorted(others, key=lambda residue: residue.first)


def _part(space: Spatial, run: list[_Residue]) -> Part:
    """The convolution of evenly spaced residues with equal sizes."""
    one, count = run[0], len(run)
    apart = run[1].first - one.first if count > 1 else 0
    outputs = Steps(one.first, apart, space.stride)
    if not one.taps:
        # A tap in front of all of src contributes nothing.
        nothing = Spatial(space.src, one.outputs, 1, 1, one.outputs, 1)
        return nothing, Residues(count, outputs, Steps())
    common = gcd(space.stride, space.dilation)
    step, dilation = space.stride // common, space.dilation // common
    back = (one.taps - 1) * dilation
    convolution = Spatial(space.src, one.outputs, one.taps, 1, back - one.src, dilation)
    last = one.tap + (one.taps - 1) * step
    return convolution, Residues(count, outputs, Steps(last, int(count > 1), -step))
