"""Which algorithm and which size of tiles takes least, by operations and bytes.

The unit is a multiply-add of a product, of which a vector register does several at once.
"""

from __future__ import annotations

from math import prod

from dnnl.codegen.isa import Isa
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
from dnnl.kernels.convolution.winograd.layout import weights_bytes
from dnnl.kernels.convolution.winograd.tiling import Tiling
from dnnl.types.cook_toom import POINTS
from dnnl.types.kinds import FormatKind
from dnnl.types.size import typical

_TRANSFORM = 12
"""The cost of an element of transformed pixels or sums: it is computed, stored and loaded."""
_FAR = 32
"""The cost of a weight that is not in the second-level cache when it is used."""
_FILTER = 32
"""The cost of an element of weights that each execution transforms."""


def best_tiling(problem: ConvolutionProblem, isa: Isa) -> Tiling:
    """The tiles that take least."""
    tilings = (Tiling.of(problem, size) for size in sorted(POINTS, reverse=True))
    return min(tilings, key=lambda tiling: _cost(problem, tiling, isa))


def pays_off(problem: ConvolutionProblem, isa: Isa) -> bool:
    """Whether Winograd's algorithm takes less than the direct one."""
    pixels = problem.dst.dims[0] * prod(own.dst for own in problem.space)
    taps = problem.weights.nelems()
    direct = pixels * taps + _far(taps, isa)
    return _cost(problem, best_tiling(problem, isa), isa) < direct


def _cost(problem: ConvolutionProblem, tiling: Tiling, isa: Isa) -> int:
    pair = problem.channels * problem.outputs * problem.groups
    both = problem.groups * (problem.channels + problem.outputs)
    weights = weights_bytes(problem, tiling) // 4
    plain = problem.weights.format_kind is FormatKind.blocked
    each = pair + _TRANSFORM * both
    return (
        typical(tiling.count) * tiling.products * each
        + _far(weights, isa)
        + plain * _FILTER * weights
    )


def _far(weights: int, isa: Isa) -> int:
    return _FAR * weights if 4 * weights > isa.caches.l2 else 0
