"""The binary algorithms on all pairs of awkward and ordinary numbers."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl.codegen import isa as rows
from dnnl.codegen.functions import expression
from dnnl.codegen.isa import Isa
from dnnl.reference import binary as reference
from dnnl.types import algorithms
from dnnl.types.kinds import Alg
from tests.codegen.lanes import VectorFunction, apply, assembly, f32, instructions, runnable_rows

ALGS = [alg for alg in Alg if alg.is_binary and alg is not Alg.binary_select]
EACH_ALG = pytest.mark.parametrize("alg", ALGS, ids=str)
VALUES = f32(0.0, -0.0, 1.0, -1.0, 1.5, 3.0, 1e-40, -1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan)


def function(alg: Alg) -> VectorFunction:
    return lambda e, *sources: expression.emit(e, algorithms.binary(alg), sources)


@pytest.mark.parametrize("isa", runnable_rows(), ids=lambda row: row.name)
@EACH_ALG
def test_apply(alg: Alg, isa: Isa) -> None:
    a, b = (side.ravel() for side in np.meshgrid(VALUES, VALUES))
    got = apply(isa, function(alg), a, b)
    with np.errstate(all="ignore"):
        want = reference.binary(alg, a, b).astype(np.float32)
    assert np.array_equal(got, want, equal_nan=True)


@pytest.mark.parametrize("isa", runnable_rows(), ids=lambda row: row.name)
def test_select(isa: Isa) -> None:
    """Any number but 0 chooses the first."""
    chosen = f32(0.0, -0.0, 1.0, -1.0, 127.0, -128.0, 1e-40, np.nan)
    a, b = (np.arange(8, dtype=np.float32) + start for start in (1, 100))

    got = apply(isa, function(Alg.binary_select), a, b, chosen)
    np.testing.assert_array_equal(got, np.where(chosen != 0, a, b))


@pytest.mark.parametrize("isa", rows.ROWS, ids=lambda row: row.name)
@EACH_ALG
def test_code_has_no_calls(alg: Alg, isa: Isa) -> None:
    code = instructions(assembly(isa, function(alg), arity=2))
    assert not {"call", "callq", "bl", "blr"}.intersection(code)
