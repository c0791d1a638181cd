"""Parametric relu: dst = src where src > 0, else src * weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import drawn, generator, integers
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Specification, Values, inputs, zero_limit
from dnnl.reference.tolerance import EXACT, PRODUCT_SUM
from dnnl.types.arg import Arg

TOLERANCE = EXACT  # one multiplication
DIFF_SRC_TOLERANCE = EXACT
# length: the number of elements that share a weight.
DIFF_WEIGHTS_TOLERANCE = PRODUCT_SUM


def prelu(src: ArrayLike, weights: ArrayLike) -> Array:
    """``weights`` has the rank of ``src``, each dimension 1 or that of ``src``."""
    data = f64(src)
    return np.where(data > 0, data, data * f64(weights))


def prelu_backward(src: ArrayLike, weights: ArrayLike, diff_dst: ArrayLike) -> tuple[Array, Array]:
    """Return diff_src and diff_weights, which have the dims of ``src`` and of ``weights``.

    A weight collects src * diff_dst of those of its elements that are not positive.
    """
    data, factors, gradient = f64(src), f64(weights), f64(diff_dst)
    diff_src = np.where(data > 0, gradient, gradient * factors)
    shares = np.where(data > 0, 0.0, data * gradient)
    shared = tuple(axis for axis, extent in enumerate(factors.shape) if extent == 1)
    return diff_src, np.sum(shares, axis=shared, keepdims=True)


# Of positive elements alone, as those of u8 are, no weight has a gradient.
_ALL = 100
_WEIGHTS = (-2.0, -1.0, -0.5, 0.25, 0.5, 2.0)


class _Prelu(Specification):
    """Small whole numbers, whose products with weights are exact, and so are their sums."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Numbers of both signs; no weight is 0."""
        values = {}
        for argument, tensor in inputs(desc):
            rng, kind = generator("prelu", argument, tensor.dims), tensor.data_type
            low = max(-8, int(kind.min)) if kind.is_integer else -8
            if argument != Arg.WEIGHTS:
                values[argument] = integers(rng, tensor.dims, low, 8)
            elif kind.is_integer:
                values[argument] = drawn(rng, [n for n in range(low, 9) if n], tensor.dims)
            else:
                values[argument] = drawn(rng, _WEIGHTS, tensor.dims)
        return values

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The function, or both gradients."""
        src, weights = values[Arg.SRC], values[Arg.WEIGHTS]
        if desc.propagation.is_forward:
            return {Arg.DST: prelu(src, weights)}
        diff_src, diff_weights = prelu_backward(src, weights, values[Arg.DIFF_DST])
        return {Arg.DIFF_SRC: diff_src, Arg.DIFF_WEIGHTS: diff_weights}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """One rounding."""
        kind = desc.desc_of(argument).data_type
        return Rule(kind.eps, _ALL if argument == Arg.DIFF_WEIGHTS else zero_limit(kind))


SPECIFICATION = _Prelu()
