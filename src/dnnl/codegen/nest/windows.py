"""Backward windows: which windows contain an element, and as which tap.

Tap ``k`` of window ``o`` is at element ``i = o * stride + k * dilation - padding``. Forward, ``i``
is an affine form of ``o`` and ``k``. Backward, each ``i`` needs all pairs ``o``, ``k``. A pair
exists only if ``i + padding - k * dilation`` is a multiple of the stride. So elements are
enumerated by residue and taps in steps: with stride 2, even elements meet even taps only.
Everything stays affine, and no iteration tests divisibility::

    stride 2, kernel 3          i + padding = 2 * q      taps 0, 2 of windows q, q - 1
                                i + padding = 2 * q + 1  tap  1    of window  q

Each element gathers its contributions, so there are no atomic additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from dnnl.codegen.memory.access import Bound
from dnnl.codegen.memory.address import ZERO, Affine, Axis


@dataclass(frozen=True)
class Window:
    """One dimension of sliding windows: ``windows`` windows of ``kernel`` taps over ``elements``
    elements, including block padding. Neighbouring taps are ``dilation`` elements apart;
    ``padding`` elements precede the first."""

    elements: int
    windows: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    padding: int = 0

    @property
    def reached(self) -> range:
        """The taps that are on an element in some window, at least one. Kernels may be far larger
        than what they slide over."""
        first = -(-(self.padding - (self.windows - 1) * self.stride) // self.dilation)
        last = (self.elements - 1 + self.padding) // self.dilation
        begin = min(max(first, 0), self.kernel - 1)
        return range(begin, max(begin + 1, min(last + 1, self.kernel)))


@dataclass(frozen=True, eq=False)
class Containing:
    """The elements of a dimension, and the windows that contain each.

    A nest walks ``parallel`` and folds over ``reduced``. ``element`` is the index of the stored
    element, inside ``where``. ``window`` is the window of an iteration, and the element is its tap
    ``tap``. Iterations outside ``pairs`` have no such pair; these bounds belong to each operand
    that is indexed by windows (``Operand.inside``).
    """

    parallel: tuple[Axis, ...]
    reduced: Axis
    element: Affine
    window: Affine
    tap: Affine
    where: tuple[Bound, ...]
    pairs: tuple[Bound, ...]


def containing(dim: Window, name: str) -> Containing:
    """The windows that contain the elements of one dimension, on axes named after ``name``.

    Element ``stride * block + dilation * residue + between - padding`` has the taps ``residue``,
    ``residue + residues``, ... If stride and dilation have a common divisor, some elements are
    ``between`` all taps.
    """
    common = gcd(dim.stride, dim.dilation)
    residues = dim.stride // common
    # The first block with an element: the last residues are past their own block.
    reach = (residues - 1) * dim.dilation + common - 1
    first = -((reach - dim.padding) // dim.stride)
    block = Axis((dim.elements - 1 + dim.padding) // dim.stride - first + 1, name)
    residue, between = Axis(residues, f"{name}_residue"), Axis(common, f"{name}_between")
    begin, end = dim.reached.start // residues, -(-dim.reached.stop // residues)
    step = Axis(end - begin, f"{name}_tap")
    step_of_tap = Affine.of(step) + begin
    steps = Affine.of(block) + first
    tap = _if_any(residue) + step_of_tap * residues
    window = steps + step_of_tap * -(dim.dilation // common)
    element = steps * dim.stride + _if_any(residue) * dim.dilation + _if_any(between)
    element = element + -dim.padding
    pairs = (Bound(tap, dim.kernel), Bound(_if_any(between), 1), Bound(window, dim.windows))
    return Containing(
        parallel=(block, *(axis for axis in (residue, between) if axis.extent > 1)),
        reduced=step,
        element=element,
        window=window,
        tap=tap,
        where=(Bound(element, dim.elements),),
        pairs=tuple(bound for bound in pairs if bound.needed),
    )


def _if_any(axis: Axis) -> Affine:
    return Affine.of(axis) if axis.extent > 1 else ZERO


def tap_number(taps: Sequence[Affine], kernel: Sequence[int]) -> Affine:
    """The number of a tap in its window; the last dimension varies fastest."""
    number = ZERO
    for tap, extent in zip(taps, kernel, strict=True):
        number = number * extent + tap
    return number
