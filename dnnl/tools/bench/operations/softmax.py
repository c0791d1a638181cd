"""``--softmax``."""

from __future__ import annotations

import numpy as np

from dnnl.primitives.desc import Desc
from dnnl.primitives.softmax import SoftmaxDesc
from dnnl.reference.arrays import Array
from dnnl.reference.softmax import softmax
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.compare import Rule
from dnnl.tools.bench.fill import generator
from dnnl.tools.bench.operations.base import (
    INVALID,
    Operation,
    Values,
    bad_in_place,
    desc_of,
    forward,
    shapes,
    tensor_desc,
)
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType

_RUN = 8
"""How many elements of a row are not negligible."""
_LARGE = 88


class Softmax(Operation):
    """Rows of which a few elements count, so that errors do not drown."""

    def skip(self, case: Case) -> str | None:
        """Tensors that differ have no common buffer."""
        types = case["sdt"], case["ddt"]
        return INVALID if bad_in_place(case, *types, case["stag"], case["dtag"]) else None

    def describe(self, case: Case) -> Desc:
        """The forward computation."""
        prop = forward(case)
        dims = shapes(case).dims
        alg = "softmax_log" if self._log(case) else "softmax_accurate"
        src = tensor_desc(dims, case["sdt"], case["stag"])
        dst = tensor_desc(dims, case["ddt"], case["dtag"])
        return SoftmaxDesc.forward(prop, alg, src, dst, case["axis"])

    def _log(self, case: Case) -> bool:
        return str(case["alg"]) in ("LOGSOFTMAX", "softmax_log")

    def fill(self, case: Case, desc: Desc) -> dict[int, Array]:
        """The least value everywhere but in one short run of each row."""
        src = desc_of(desc, Arg.SRC)
        axis: int = case["axis"]
        length = src.dims[axis]
        rng = generator("softmax", src.dims, axis)
        rows = [extent for d, extent in enumerate(src.dims) if d != axis]
        start = rng.integers(0, max(1, length - _RUN + 1), rows)[..., np.newaxis]
        place = np.arange(length)
        sign = rng.choice([-1, 1] if src.data_type.min < 0 else [1], rows)[..., np.newaxis]
        run = sign * _LARGE + rng.integers(0, 3, (*rows, length))
        values = np.where((place >= start) & (place < start + _RUN), run, src.data_type.min)
        return {Arg.SRC: np.moveaxis(values, -1, axis)}

    def compute(self, case: Case, desc: Desc, values: Values) -> Array:
        """The reference on the axis."""
        alg = "softmax_log" if self._log(case) else "softmax_accurate"
        return softmax(values[Arg.SRC], case["axis"], alg)

    def rule(self, case: Case, desc: Desc, values: Values) -> Rule:
        """A few epsilons for wide floats."""
        dst = desc_of(desc, Arg.DST)
        wide = dst.data_type in (DataType.f32, DataType.f64)
        threshold = 10 * dst.data_type.eps * (5 if self._log(case) else 1) if wide else 0.0
        length = max(1, dst.dims[case["axis"]])
        return Rule(threshold, zeros=max(30.0, 100 * (1 - _RUN / length)), slack=DataType.f32.eps)
