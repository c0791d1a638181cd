"""The gradients of every eltwise algorithm over the whole range of f32, on every instruction set of
this machine."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from dnnl.codegen import isa as rows
from dnnl.codegen.functions import expression
from dnnl.codegen.isa import Isa
from dnnl.reference import eltwise as reference
from dnnl.types import algorithms
from dnnl.types.kinds import Alg
from tests.codegen.lanes import (
    VectorFunction,
    all_magnitudes,
    apply,
    assembly,
    f32,
    instructions,
    runnable_rows,
)

# algorithm, alpha, beta; numbers that f32 represents, as kernels see no others.
CASES = [
    ("relu", 0.0, 0.0), ("relu", 0.25, 0.0), ("relu", 1.0, 0.0), ("relu", -0.5, 0.0),
    ("tanh", 0.0, 0.0), ("elu", 1.0, 0.0), ("elu", 0.5, 0.0), ("square", 0.0, 0.0),
    ("abs", 0.0, 0.0), ("sqrt", 0.0, 0.0), ("linear", 2.0, 3.0), ("linear", 1.0, 0.0),
    ("soft_relu", 1.0, 0.0), ("soft_relu", 2.0, 0.0), ("soft_relu", -1.0, 0.0),
    ("hardsigmoid", 0.125, 0.5), ("hardsigmoid", -2.0, 3.0), ("logistic", 0.0, 0.0),
    ("exp", 0.0, 0.0), ("log", 0.0, 0.0), ("gelu_tanh", 0.0, 0.0), ("gelu_erf", 0.0, 0.0),
    ("swish", 1.0, 0.0), ("swish", -2.0, 0.0), ("clip", -0.5, 6.0), ("clip", 1.0, 1.0),
    ("clip_v2", 0.0, 6.0), ("pow", 2.0, 3.0), ("pow", 1.0, -1.5), ("pow", 0.5, 0.0),
    ("pow", 3.0, 1.0), ("mish", 0.0, 0.0), ("hardswish", 0.125, 0.5), ("hardswish", -2.0, 3.0),
    ("relu_use_dst_for_bwd", 0.25, 0.0), ("tanh_use_dst_for_bwd", 0.0, 0.0),
    ("elu_use_dst_for_bwd", 0.5, 0.0), ("sqrt_use_dst_for_bwd", 0.0, 0.0),
    ("logistic_use_dst_for_bwd", 0.0, 0.0), ("exp_use_dst_for_bwd", 0.0, 0.0),
    ("clip_v2_use_dst_for_bwd", -0.5, 6.0),
]  # fmt: skip

ISAS = pytest.mark.parametrize("isa", runnable_rows(), ids=lambda row: row.name)
ALGS = pytest.mark.parametrize(("alg", "alpha", "beta"), CASES)
# The slopes below the source -1000 and above 1000.
ENDS = {
    "tanh": (0.0, 0.0), "logistic": (0.0, 0.0), "gelu_tanh": (0.0, 1.0), "gelu_erf": (0.0, 1.0),
    "swish": (0.0, 1.0), "mish": (0.0, 1.0), "elu": (0.0, 1.0), "soft_relu": (0.0, 1.0),
}  # fmt: skip


def function(alg: str, alpha: float, beta: float) -> VectorFunction:
    gradient = algorithms.eltwise_gradient(Alg[f"eltwise_{alg}"], alpha, beta)
    return lambda e, data, diff: expression.emit(e, gradient, [diff, data])


@cache
def sources() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Every magnitude, and gradients of about one."""
    data = all_magnitudes()
    size = np.random.default_rng(3).uniform(0.5, 2, data.size)
    return data, (size * np.where(np.arange(data.size) % 2, 1, -1)).astype(np.float32)


def test_there_is_a_gradient_of_every_function() -> None:
    tried = {f"eltwise_{alg}" for alg, _, _ in CASES}
    assert tried == {alg.name for alg in Alg if alg.is_eltwise} - {"eltwise_round"}


@ISAS
@ALGS
def test_whole_range(alg: str, alpha: float, beta: float, isa: Isa) -> None:
    data, diff = sources()
    got = apply(isa, function(alg, alpha, beta), data, diff).astype(np.float64)
    with np.errstate(all="ignore"):
        name = f"eltwise_{alg}"
        want = reference.eltwise_backward(name, data.astype(np.float64), diff, alpha, beta)
        right = reference.backward_tolerance(name)("f32").accepts(got, want)
        # Denormal factors have lost digits that their product has.
        right |= np.abs(got - want) < 2.0**-140
        if alg in ENDS:
            right |= np.isinf(data)  # the formula has no limits; see the test below
        if alg in ("square", "pow", "tanh_use_dst_for_bwd", "logistic_use_dst_for_bwd"):
            right |= np.abs(want) > 2.0**126  # a factor may be infinite first
        if "hard" in alg:
            gate = alpha * data.astype(np.float64) + beta
            right |= (np.abs(gate) < 1e-6) | (np.abs(gate - 1) < 1e-6)  # a rounding decides
        if alg in ("relu", "elu", "clip", "clip_v2") or "_dst_" in alg or "hard" in alg:
            right |= np.isnan(data)  # a comparison decides
    wrong = np.flatnonzero(~right)
    first = wrong[:3]
    assert wrong.size == 0, f"{wrong.size} wrong: {data[first]} -> {got[first]}, not {want[first]}"


@ISAS
@pytest.mark.parametrize("alg", ENDS)
def test_ends(alg: str, isa: Isa) -> None:
    """No large source makes a NaN: slopes come to their limits."""
    far = f32(1e3, 1e10, 3e38, np.inf)
    data = np.concatenate([-far, far])
    got = apply(isa, function(alg, 1.0, 0.0), data, np.ones_like(data))
    low, high = ENDS[alg]
    np.testing.assert_allclose(got, [low] * 4 + [high] * 4, rtol=2e-7)


@ISAS
@pytest.mark.parametrize("alg", ["tanh", "logistic", "gelu_tanh", "gelu_erf", "mish", "swish"])
def test_vanishing_slopes_keep_their_digits(alg: str, isa: Isa) -> None:
    data = np.linspace(-5, -2.5, 5_001).astype(np.float32)
    got = apply(isa, function(alg, 1.0, 0.0), data, np.ones_like(data))
    want = reference.eltwise_derivative(f"eltwise_{alg}", data, 1.0)
    assert np.abs(got / want - 1).max() < 4e-6


@pytest.mark.parametrize("isa", rows.ROWS, ids=lambda row: row.name)
@ALGS
def test_code_has_no_calls(alg: str, alpha: float, beta: float, isa: Isa) -> None:
    code = instructions(assembly(isa, function(alg, alpha, beta), 2))
    assert not {"call", "callq", "bl", "blr"}.intersection(code)
