"""``--eltwise``."""

from __future__ import annotations

from math import inf

import numpy as np

from dnnl.primitives.desc import Desc
from dnnl.primitives.eltwise import EltwiseDesc
from dnnl.reference.arrays import Array
from dnnl.reference.eltwise import eltwise
from dnnl.tools.bench import attributes as parsed
from dnnl.tools.bench.attributes import ELTWISE
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.compare import Rule
from dnnl.tools.bench.fill import cycle, generator
from dnnl.tools.bench.operations.base import (
    INVALID,
    Operation,
    Values,
    desc_of,
    forward,
    has_sum,
    shapes,
    tensor_desc,
)
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType

_FINE, _COARSE = 4e-6, 4e-5
_HARD = ("gelu_tanh", "elu", "swish", "tanh", "soft_relu", "mish", "log")
_CANCELLING = ("gelu_tanh", "gelu_erf", "log")
_RELU_LIKE = 65
_COUNT = 1024


class Eltwise(Operation):
    """A function of one tensor."""

    def skip(self, case: Case) -> str | None:
        """What has no gradient, loses its source, or has parameters out of range."""
        name, alpha = str(case["alg"]), case["alpha"]
        backward = str(case["dir"]).startswith("BWD")
        wrong = (
            (bool(case["inplace"]) and backward and not name.endswith("_dst"))
            or (name.startswith("clip") and case["beta"] < alpha)
            or (name in ("elu_dst", "relu_dst") and alpha < 0)
            or (name == "round" and (backward or case["dt"] is not DataType.f32))
        )
        return INVALID if wrong else None

    def describe(self, case: Case) -> Desc:
        """The forward computation."""
        prop = forward(case)
        src = tensor_desc(shapes(case).dims, case["dt"], case["tag"])
        dst = src.with_tag("any")
        alg = ELTWISE[str(case["alg"])]
        return EltwiseDesc.forward(prop, alg, src, dst, case["alpha"], case["beta"])

    def fill(self, case: Case, desc: Desc) -> dict[int, Array]:
        """Whole numbers, small and large fractions of both signs, and where functions bend."""
        src = desc_of(desc, Arg.SRC)
        rng = generator("eltwise", src.dims)
        whole = rng.integers(0, 11, _COUNT).astype(np.float64)
        part = rng.uniform(0, 0.09, _COUNT)
        kinds = [whole, -whole, part, -part, 10 * whole, -10 * whole, 10 * part, -10 * part]
        kinds += [88 + part, 22 + part, 44 + part]
        kinds += [np.full(_COUNT, case["alpha"]), np.full(_COUNT, case["beta"])]
        if str(case["alg"]) == "log":
            kinds.append(np.full(_COUNT, inf))
        values = np.stack(kinds, axis=1).reshape(-1)
        return {Arg.SRC: cycle(values, src.dims)}

    def compute(self, case: Case, desc: Desc, values: Values) -> Array:
        """The function."""
        alg = ELTWISE[str(case["alg"])]
        return eltwise(alg, values[Arg.SRC], case["alpha"], case["beta"])

    def rule(self, case: Case, desc: Desc, values: Values) -> Rule:
        """Relative, but absolute where the terms of a function cancel; with a sum, relative to the
        function if that is more than what is left of it."""
        name, kind = str(case["alg"]).removesuffix("_dst"), case["dt"]
        threshold = _COARSE if name in _HARD else _FINE
        if kind is not DataType.f32:
            threshold = kind.eps
        with np.errstate(all="ignore"):
            result = np.abs(self.compute(case, desc, values))
        cancels = None
        if name in _CANCELLING:
            near = 2 * DataType.f32.eps / _COARSE
            cancels = result <= near * np.maximum(np.abs(values[Arg.SRC]), 1)
        follows = any(isinstance(e, parsed.Binary) for e in case["attr-post-ops"].items)
        return Rule(
            threshold,
            zeros=100 if kind.is_integer or follows else _RELU_LIKE,
            non_finite=name in ("exp", "log", "pow", "sqrt", "square"),
            size=result if has_sum(case) else None,
            absolute_at=cancels,
        )
