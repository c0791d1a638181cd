"""Batch normalization: dst = scale * (src - mean) / sqrt(variance + epsilon) + shift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import drawn, generator, integers
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Specification, Values, inputs
from dnnl.reference.tolerance import Tolerance
from dnnl.types.arg import Arg
from dnnl.types.kinds import NormFlags

TOLERANCE = Tolerance(ulps=8, floor=None)


def batch_normalization(
    src: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    scale: ArrayLike | None = None,
    shift: ArrayLike | None = None,
    *,
    epsilon: float,
    fuse_relu: bool = False,
) -> Array:
    """With given statistics: ``src`` [N, C, spatial...], all others [C]."""
    data = f64(src)
    per_channel = (1, -1, *[1] * (data.ndim - 2))
    deviation = np.sqrt(f64(variance) + epsilon).reshape(per_channel)
    dst: Array = (data - f64(mean).reshape(per_channel)) / deviation
    if scale is not None:
        dst = dst * f64(scale).reshape(per_channel)
    if shift is not None:
        dst = dst + f64(shift).reshape(per_channel)
    return np.maximum(dst, 0.0) if fuse_relu else dst


_THRESHOLD = 6e-7
_POWERS = (0.25, 0.5, 1.0, 2.0, 4.0)


class _BatchNormalization(Specification):
    """Channels whose statistics are exact."""

    def fill(self, desc: Any) -> dict[int, Array]:
        """Deviations in pairs around a mean that is a power of two."""
        src = desc.src_desc
        channels = src.dims[1:2]
        rng = generator("bnorm", src.dims)
        mean = drawn(rng, _POWERS, channels)
        deviation = integers(rng, src.dims, 1, 7) * rng.choice([-1, 1], src.dims) / 4
        deviation.reshape(-1)[1::2] = -deviation.reshape(-1)[: deviation.size - 1 : 2]
        data = mean.reshape(1, -1, *[1] * (src.ndims - 2)) + deviation
        drawn_ones = {
            Arg.VARIANCE: drawn(rng, _POWERS, channels),
            Arg.SCALE: drawn(rng, _POWERS, channels),
            Arg.SHIFT: drawn(rng, _POWERS, channels),
        }
        values = {
            int(Arg.SRC): np.rint(data) if src.data_type.is_integer else data,
            int(Arg.MEAN): mean,
            **{int(argument): numbers for argument, numbers in drawn_ones.items()},
        }
        return {argument: values[argument] for argument, _ in inputs(desc)}

    def compute(self, desc: Any, values: Values) -> dict[int, Array]:
        """The normalization by the given statistics."""
        dst = batch_normalization(
            values[Arg.SRC], values[Arg.MEAN], values[Arg.VARIANCE],
            values.get(Arg.SCALE), values.get(Arg.SHIFT),
            epsilon=desc.epsilon, fuse_relu=NormFlags.fuse_norm_relu in desc.flags,
        )  # fmt: skip
        return {Arg.DST: dst}

    def rule(
        self, desc: Any, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """A few units of the least precise digit, relative to what the shift is added to."""
        threshold = _THRESHOLD * 2.0 ** (24 - desc.src_desc.data_type.digits)
        relu = NormFlags.fuse_norm_relu in desc.flags
        offset = None
        if Arg.SHIFT in values:
            rank = desc.src_desc.ndims
            offset = values[Arg.SHIFT].reshape(1, -1, *[1] * (rank - 2))
        return Rule(threshold, zeros=65 if relu else 30, offset=offset)


SPECIFICATION = _BatchNormalization()
