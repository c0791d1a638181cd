"""Contents of sums of products: sparse whole numbers whose sums no rounding changes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import generator, integers, sparse, stored_elements
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Specification, Values
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.encoding import Coo, Csr, Packed
from dnnl.types.kinds import PropKind

_STORED = Csr | Coo | Packed
"""The encodings that have some of the elements."""

_SMALL = {
    DataType.bf16: (-4, 4), DataType.f16: (-4, 4), DataType.s8: (-4, 4), DataType.u8: (0, 8),
    DataType.s4: (-4, 4), DataType.u4: (0, 8), DataType.f8_e5m2: (-4, 4),
    DataType.f8_e4m3: (-4, 4), DataType.f4_e2m1: (-2, 2),
}  # fmt: skip
_FORWARD = Arg.SRC, Arg.WEIGHTS, Arg.DST
_GRADIENTS = {
    PropKind.backward_data: (Arg.DIFF_DST, Arg.WEIGHTS, Arg.DIFF_SRC),
    PropKind.backward_weights: (Arg.SRC, Arg.DIFF_DST, Arg.DIFF_WEIGHTS),
}
_BIAS = 4
_FEW = (-4, 4)  # with sparse matrices, whose sums may be long as long as most terms are zero


def product_arguments(desc: Description) -> tuple[Arg, Arg, Arg]:
    """The two factors of a description and their product: src, weights and dst, or the tensors that
    have their places in a gradient."""
    return _GRADIENTS.get(desc.propagation, _FORWARD)


def bias_gradient(diff_dst: ArrayLike) -> Array:
    """The sum of ``diff_dst`` [N, OC, spatial...] over all but its channels."""
    gradient = f64(diff_dst)
    total: Array = np.sum(gradient, axis=(0, *range(2, gradient.ndim)))
    return total


class ProductSpecification(Specification):
    """What is exact: ``limits`` bound the numbers of both factors, and ``zeros`` is how many
    percent of the results may be zero."""

    limits = (32, 32)
    zeros = 70.0

    @abstractmethod
    def length(self, desc: Description) -> int:
        """The number of products in a sum."""

    @abstractmethod
    def product(self, desc: Description, values: Values) -> Array:
        """The result before post-ops, without the gradient of a bias."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """As many numbers as can be added exactly."""
        *factors, result = product_arguments(desc)
        sources = [desc.desc_of(factor) for factor in factors]
        ranges = [
            _SMALL.get(source.data_type, (-wide, wide))
            for source, wide in zip(sources, self.limits, strict=True)
        ]
        if any(isinstance(source.encoding, _STORED) for source in sources):
            ranges = [_SMALL.get(source.data_type, _FEW) for source in sources]
        kind = desc.desc_of(result).data_type
        largest = prod(max(map(abs, bounds)) for bounds in ranges)
        density = 2.0 ** min(kind.digits, 24) / (largest * max(1, self.length(desc)))
        if kind.bits == 8:
            density *= 3
        values = {}
        for argument, source, bounds in zip(factors, sources, ranges, strict=True):
            rng = generator("product", argument, source.dims)
            if isinstance(source.encoding, _STORED):
                values[int(argument)] = stored_elements(
                    rng, source.dims, *bounds, source.encoding.nnz
                )
                continue
            share = density if argument == factors[0] else 1.0
            values[int(argument)] = sparse(rng, source.dims, *bounds, share)
        bias = desc.desc_of(Arg.BIAS)
        if not bias.is_zero:
            dims = bias.dims
            values[int(Arg.BIAS)] = integers(generator("bias", dims), dims, -_BIAS, _BIAS)
        return values

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The product with the bias, or with its gradient."""
        results: dict[int, Array] = {product_arguments(desc)[2]: self.product(desc, values)}
        if not desc.desc_of(Arg.DIFF_BIAS).is_zero:
            results[Arg.DIFF_BIAS] = bias_gradient(values[Arg.DIFF_DST])
        return results

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Equality. Gradients are zero where no tap meets an element."""
        return Rule(0.0, zeros=self.zeros if desc.propagation.is_forward else 100)
