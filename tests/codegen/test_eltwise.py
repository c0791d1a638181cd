"""The eltwise algorithms against their reference, over the whole range of f32."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from dnnl.codegen import isa as rows
from dnnl.codegen.functions import expression
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.isa import Isa
from dnnl.kernels.shared.pointwise import pointwise, source
from dnnl.reference import eltwise as reference
from dnnl.types import algorithms
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc
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
    ("relu", 0.0, 0.0), ("relu", 0.25, 0.0), ("relu", 1.0, 0.0), ("relu", 2.0, 0.0),
    ("relu", -0.5, 0.0), ("tanh", 0.0, 0.0), ("elu", 1.0, 0.0), ("elu", 0.5, 0.0),
    ("square", 0.0, 0.0), ("abs", 0.0, 0.0), ("sqrt", 0.0, 0.0), ("linear", 2.0, 0.0),
    ("linear", 1.0, -3.0), ("linear", 0.75, 1.5), ("soft_relu", 1.0, 0.0),
    ("soft_relu", 2.0, 0.0), ("soft_relu", -1.0, 0.0), ("hardsigmoid", 0.125, 0.5),
    ("logistic", 0.0, 0.0), ("exp", 0.0, 0.0), ("log", 0.0, 0.0), ("gelu_tanh", 0.0, 0.0),
    ("gelu_erf", 0.0, 0.0), ("swish", 1.0, 0.0), ("swish", 2.0, 0.0), ("clip", -0.5, 6.0),
    ("clip_v2", 0.0, 6.0), ("clip", -1.0, float("inf")), ("pow", 2.0, 3.0), ("pow", 1.0, -1.5),
    ("pow", 0.5, 0.0), ("round", 0.0, 0.0), ("mish", 0.0, 0.0), ("hardswish", 0.125, 0.5),
]  # fmt: skip

ISAS = pytest.mark.parametrize("isa", runnable_rows(), ids=lambda row: row.name)
ALGS = pytest.mark.parametrize(("alg", "alpha", "beta"), CASES)


def function(alg: str, alpha: float, beta: float) -> VectorFunction:
    computed = algorithms.eltwise(Alg[f"eltwise_{alg}"], alpha, beta)
    return lambda e, x: expression.emit(e, computed, [x])


@cache
def expected(alg: str, alpha: float, beta: float) -> NDArray[np.float64]:
    with np.errstate(all="ignore"):
        src = all_magnitudes().astype(np.float64)
    return reference.eltwise(f"eltwise_{alg}", src, alpha, beta)


@ISAS
@ALGS
def test_forward(alg: str, alpha: float, beta: float, isa: Isa) -> None:
    x = all_magnitudes()
    got, want = apply(isa, function(alg, alpha, beta), x), expected(alg, alpha, beta)
    bound = reference.tolerance(f"eltwise_{alg}")("f32")
    with np.errstate(all="ignore"):  # some NaNs are signalling
        right = bound.accepts(got.astype(np.float64), want)
        # Denormal factors have lost digits that their product has.
        right |= np.abs(got - want) < 2.0**-140
    if alg == "relu" and alpha == 0.0:
        right[x == -np.inf] = True  # 0 * -inf in the formula; see the test below
    wrong = np.flatnonzero(~right)
    first = wrong[:3]
    assert wrong.size == 0, f"{wrong.size} wrong: {x[first]} -> {got[first]}, not {want[first]}"


@ISAS
@pytest.mark.parametrize("alg", [alg.name[8:] for alg in Alg if alg.is_eltwise])
def test_every_algorithm_passes_nan_on(alg: str, isa: Isa) -> None:
    nan = np.full(isa.lanes, np.nan, np.float32)
    assert np.isnan(apply(isa, function(alg, 0.5, 2.0), nan)).all()


@ISAS
def test_relu_of_infinity_is_zero_and_of_minus_zero_itself(isa: Isa) -> None:
    got = apply(isa, function("relu", 0.0, 0.0), f32(-np.inf, -0.0, np.inf))
    assert got.tolist() == [0.0, 0.0, np.inf]


@ISAS
@pytest.mark.parametrize("alg", ["gelu_erf", "gelu_tanh", "swish", "mish"])
def test_gates_keep_the_digits_of_large_negative_sources(alg: str, isa: Isa) -> None:
    x = np.linspace(-4.75, -2, 10_001).astype(np.float32)
    got = apply(isa, function(alg, 1.0, 0.0), x)
    want = reference.eltwise(f"eltwise_{alg}", x, 1.0)
    assert np.abs(got / want - 1).max() < 4e-6


@ISAS
@pytest.mark.parametrize("name", [alg.name[8:] for alg in Alg if alg.uses_dst])
def test_the_form_for_backward_computes_the_same(name: str, isa: Isa) -> None:
    x = all_magnitudes()[::97]
    plain = apply(isa, function(name[:-16], 0.5, 2.0), x)
    other = apply(isa, function(name, 0.5, 2.0), x)
    assert np.array_equal(plain, other, equal_nan=True)


@pytest.mark.parametrize("isa", rows.ROWS, ids=lambda row: row.name)
@ALGS
def test_code_has_no_calls(alg: str, alpha: float, beta: float, isa: Isa) -> None:
    code = instructions(assembly(isa, function(alg, alpha, beta)))
    assert not {"call", "callq", "bl", "blr"}.intersection(code)


@pytest.mark.parametrize("name", ["sse41", "avx2", "avx512_core"])
def test_relu_is_one_instruction(name: str) -> None:
    isa = rows.find(name)
    plain = instructions(assembly(isa, lambda _, x: x))
    code = instructions(assembly(isa, function("relu", 0.0, 0.0)))
    assert sum("maxps" in word for word in code) == 1
    assert not any("cmp" in word and "ps" in word for word in code)
    # One more, and a zero for it to compare with.
    assert len(code) <= len(plain) + 3


@pytest.mark.parametrize(
    ("alg", "size", "registers"),
    [
        ("tanh", 1024, 4),
        ("tanh", 48, 2),  # four would leave a quarter of their lanes empty
        ("tanh", 40, 1),
        ("relu", 1024, 1),
    ],
)
def test_long_functions_run_several_registers_abreast(alg: str, size: int, registers: int) -> None:
    row, tensor, computed = (
        rows.find("avx2"),
        MemoryDesc((size,), "f32"),
        algorithms.eltwise(Alg[f"eltwise_{alg}"]),
    )
    nest = pointwise(
        Arguments(),
        [source(Arg.SRC, tensor)],
        tensor,
        lambda point, loaded: expression.emit(point.e, computed, loaded),
        instructions=expression.instructions(computed),
    )
    assert nest.planned(row).vectors.lanes == registers * row.lanes
