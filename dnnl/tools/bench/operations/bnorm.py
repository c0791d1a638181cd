"""``--bnorm``."""

from __future__ import annotations

import numpy as np

from dnnl.primitives.batch_normalization import BatchNormalizationDesc
from dnnl.primitives.desc import Desc
from dnnl.reference.arrays import Array
from dnnl.reference.batch_normalization import batch_normalization
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.compare import Rule
from dnnl.tools.bench.fill import drawn, generator, integers
from dnnl.tools.bench.operations.base import (
    Operation,
    Values,
    desc_of,
    descriptor,
    forward,
    has,
    strides_of,
    tensor_desc,
)
from dnnl.types.arg import Arg
from dnnl.types.kinds import NormFlags
from dnnl.types.memory_desc import MemoryDesc

_FLAGS = {
    "G": NormFlags.use_global_stats,
    "C": NormFlags.use_scale,
    "H": NormFlags.use_shift,
    "R": NormFlags.fuse_norm_relu,
    "A": NormFlags.fuse_norm_add_relu,
}
_THRESHOLD = 6e-7
_POWERS = (0.25, 0.5, 1.0, 2.0, 4.0)


class BatchNormalization(Operation):
    """Channels whose statistics are exact."""

    def describe(self, case: Case) -> Desc:
        """The forward computation."""
        prop = forward(case)
        problem = descriptor(case)
        source, target = strides_of(case, "tag", "tag")
        src = tensor_desc(problem.src_dims, case["dt"], case["tag"], source)
        dst = MemoryDesc(src.dims, case["dt"], "any")
        if target:
            dst = tensor_desc(problem.src_dims, case["dt"], case["tag"], target)
        flags = NormFlags.none
        for letter in str(case["flags"]):
            flags |= _FLAGS[letter]
        epsilon = float(np.float32(problem.numbers["eps"]))
        return BatchNormalizationDesc.forward(prop, src, dst, epsilon, flags)

    def fill(self, case: Case, desc: Desc) -> dict[int, Array]:
        """Deviations in pairs around a mean that is a power of two."""
        dims = desc_of(desc, Arg.SRC).dims
        channels = dims[1:2]
        rng = generator("bnorm", dims)
        mean = drawn(rng, _POWERS, channels)
        deviation = integers(rng, dims, 1, 7) * rng.choice([-1, 1], dims) / 4
        deviation.reshape(-1)[1::2] = -deviation.reshape(-1)[: deviation.size - 1 : 2]
        column = (1, -1, *[1] * (len(dims) - 2))
        values = {int(Arg.SRC): mean.reshape(column) + deviation}
        if case["dt"].is_integer:
            values[Arg.SRC] = np.rint(values[Arg.SRC])
        tensors = {
            Arg.MEAN: mean,
            Arg.VARIANCE: drawn(rng, _POWERS, channels),
            Arg.SCALE: drawn(rng, _POWERS, channels),
            Arg.SHIFT: drawn(rng, _POWERS, channels),
        }
        for argument, numbers in tensors.items():
            if has(desc, argument):
                values[int(argument)] = numbers
        return values

    def compute(self, case: Case, desc: Desc, values: Values) -> Array:
        """The normalization by the given statistics."""
        assert isinstance(desc, BatchNormalizationDesc)
        return batch_normalization(
            values[Arg.SRC],
            values[Arg.MEAN],
            values[Arg.VARIANCE],
            values.get(Arg.SCALE),
            values.get(Arg.SHIFT),
            epsilon=desc.epsilon,
            fuse_relu=NormFlags.fuse_norm_relu in desc.flags,
        )

    def rule(self, case: Case, desc: Desc, values: Values) -> Rule:
        """A few units of the least precise digit, relative to what the shift is added to."""
        threshold = _THRESHOLD * 2.0 ** (24 - case["dt"].digits)
        relu = "R" in str(case["flags"])
        offset = None
        if Arg.SHIFT in values:
            rank = len(values[Arg.SRC].shape)
            offset = values[Arg.SHIFT].reshape(1, -1, *[1] * (rank - 2))
        return Rule(threshold, zeros=65 if relu else 30, offset=offset)
