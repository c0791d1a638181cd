"""Windows seen from what they slide over: which windows contain an element, and as which tap.

Tap ``k`` of window ``o`` lies at element ``i = o * stride + k * dilation - padding``. Going
forward, ``i`` is an affine form of ``o`` and ``k``. Going backward, what is wanted for each ``i``
are the pairs of ``o`` and ``k``; those exist only where ``i + padding - k * dilation`` is a
multiple of the stride. So elements are walked by residues, taps in steps: with stride 2 the even
elements meet the even taps alone. All is affine again, and no iteration tests whether it divides::

    stride 2, kernel 3          i + padding = 2 * q      taps 0, 2 of windows q, q - 1
                                i + padding = 2 * q + 1  tap  1    of window  q

The contributions to an element are gathered by the one who stores it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from dnnl.codegen.memory.access import Bound
from dnnl.codegen.memory.address import ZERO, Affine, Axis


@dataclass(frozen=True)
class Window:
    """One dimension of sliding windows: how many ``elements`` there are, padded ones of a block
    included, how many ``windows``, and how many taps each has (``kernel``). ``dilation`` is the
    distance of neighbouring taps; ``padding`` elements lie before the first."""

    elements: int
    windows: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    padding: int = 0

    @property
    def reached(self) -> range:
        """The taps that lie on an element in some window, one at least: kernels may be far larger
        than what they slide over."""
        first = -(-(self.padding - (self.windows - 1) * self.stride) // self.dilation)
        last = (self.elements - 1 + self.padding) // self.dilation
        begin = min(max(first, 0), self.kernel - 1)
        return range(begin, max(begin + 1, min(last + 1, self.kernel)))


@dataclass(frozen=True, eq=False)
class Containing:
    """The elements of a dimension, and the windows that contain each.

    A nest walks ``parallel`` and folds over ``reduced``; ``element`` is the index of what it
    stores, which exists inside ``where``. The window that an iteration looks at is ``window``; the
    element is its tap number ``tap``. That pair does not exist outside of ``pairs``, which belong
    to each operand that is indexed by windows (``Operand.inside``).
    """

    parallel: tuple[Axis, ...]
    reduced: Axis
    element: Affine
    window: Affine
    tap: Affine
    where: tuple[Bound, ...]
    pairs: tuple[Bound, ...]


def containing(dim: Window, name: str) -> Containing:
    """The windows that contain the elements of one dimension, on axes called after ``name``.

    Element ``stride * block + dilation * residue + between - padding`` has the taps ``residue``,
    ``residue + residues``, ... Where stride and dilation have a common divisor, elements lie
    ``between`` all taps.
    """
    common = gcd(dim.stride, dim.dilation)
    residues = dim.stride // common
    # The first block with an element: the last residues lie behind their own block.
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
    """The number of a tap among all of a window, the last dimension fastest."""
    number = ZERO
    for tap, extent in zip(taps, kernel, strict=True):
        number = number * extent + tap
    return number
