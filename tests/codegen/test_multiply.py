"""How operands of each type are multiplied, and tiles that are transposed in registers."""

from __future__ import annotations

import tempfile

import numpy as np
import pytest

from dnnl import config
from dnnl.codegen import isa as rows
from dnnl.codegen.compile import jit
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I8, I16, Module, i64
from dnnl.codegen.ir.kernel import Kernel, Recipe
from dnnl.codegen.ir.transpose import interleave_registers
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.product.brgemm import Tile, max_rows
from dnnl.codegen.product.multiply import multiply
from dnnl.runtime.engine import Engine
from dnnl.types.dtype import DataType
from tests.codegen.lanes import runnable_rows
from tests.launch import launch
from tests.pairs import every_pair

EACH_ROW = pytest.mark.parametrize("isa", rows.ROWS, ids=lambda row: row.name)
EACH_RUNNABLE = pytest.mark.parametrize("isa", runnable_rows(), ids=lambda row: row.name)
BYTES = [DataType.u8, DataType.s8]
FLOATS = [DataType.f32, DataType.bf16, DataType.f16]


@every_pair(EACH_ROW, pytest.mark.parametrize("b", BYTES), pytest.mark.parametrize("a", BYTES))
def test_bytes_stay_bytes_in_memory(a: DataType, b: DataType, isa: Isa) -> None:
    way = multiply(isa, a, b)
    assert way is not None
    assert (way.a, way.b, way.group) == (a, b, 4)
    assert way.is_integer
    # No pair of 16-bit products is summed in 16 bits.
    assert way.dot.accumulator == "s32"
    if any(dot.a == "u8" for dot in isa.dots):
        assert way.parts == 1
        assert (way.shift != 0) == (a is b)
    else:
        assert way.shift == 0


@EACH_ROW
@pytest.mark.parametrize("data_type", FLOATS)
def test_floats_are_paired_where_an_instruction_takes_pairs(data_type: DataType, isa: Isa) -> None:
    way = multiply(isa, data_type, data_type)
    single = multiply(isa, data_type, data_type, grouped=False)
    assert way is not None
    assert single is not None
    native = data_type.name in {dot.a for dot in isa.dots if dot.group == 2}
    assert way.group == (2 if native else 1)
    assert (single.a, single.b, single.group) == (DataType.f32, data_type, 1)


def test_what_is_not_multiplied() -> None:
    isa = rows.find("avx2")
    assert multiply(isa, DataType.f32, DataType.f64) is None
    assert multiply(isa, DataType.u8, DataType.s32) is None


@EACH_ROW
def test_tiles_of_several_parts_fit_the_registers(isa: Isa) -> None:
    for parts in (1, 2, 4):
        for vectors in (1, 2, 3):
            count = max_rows(isa, vectors, parts)
            needed = count * vectors + (vectors + 1) * parts
            assert needed <= isa.registers or count == 1
        others = max_rows(isa, vectors, ones=True)
        assert (others + 1) * vectors + vectors + 1 <= isa.registers or others == 1


def _transposed(size: int, isa: Isa) -> Kernel:
    """A tile of ``size`` rows of two vectors, whose columns are written one behind the other."""
    module = Module("transposed", isa)
    phase = PhaseFunction(module, f"transposed{size}", range(2))
    e = phase.e
    src, dst = phase.arguments.values()
    kind = vector.vector_type(F32, isa.lanes)
    cells = [
        vector.load(e, e.element(src, i64(number * isa.lanes), F32), kind)
        for number in range(2 * size)
    ]
    turned = Tile(2, tuple(cells)).transposed(e)
    assert turned.rows == 2 * isa.lanes
    for number, value in enumerate(turned.cells):
        vector.store(e, value, e.element(dst, i64(number * isa.lanes), F32))
    return Kernel(module, (phase.end(1),), (0, 1))


@EACH_RUNNABLE
@pytest.mark.parametrize("size", [1, 3, 4, 6, 8, 14, 16, 17])
def test_columns_become_rows(size: int, isa: Isa) -> None:
    src = np.random.default_rng(size).standard_normal((size, 2 * isa.lanes)).astype(np.float32)
    strips = -(-size // isa.lanes)
    dst = np.zeros((2 * isa.lanes, strips * isa.lanes), np.float32)
    with tempfile.TemporaryDirectory() as folder, config.override("cache_dir", folder):
        image, _ = jit.image(Recipe(size, isa, _transposed))
    launch(Engine("cpu").load(image), (src.ctypes.data, dst.ctypes.data))
    assert np.array_equal(dst[:, :size], src.T)


def _neighbours(group: int, isa: Isa) -> Kernel:
    """``group`` rows of one register each, whose elements are written in turns."""
    module = Module("neighbours", isa)
    phase = PhaseFunction(module, f"neighbours{group}", range(2))
    e = phase.e
    src, dst = phase.arguments.values()
    element = I8 if group == 4 else I16
    kind = vector.vector_type(element, isa.lanes * group)
    starts = [e.element(src, i64(number * kind.count), element) for number in range(group)]
    for number, value in enumerate(
        interleave_registers(e, [vector.load(e, at, kind) for at in starts])
    ):
        vector.store(e, value, e.element(dst, i64(number * kind.count), element))
    return Kernel(module, (phase.end(1),), (0, 1))


@EACH_RUNNABLE
@pytest.mark.parametrize(("group", "kind"), [(2, "uint16"), (4, "uint8")])
def test_elements_of_rows_become_neighbours(group: int, kind: str, isa: Isa) -> None:
    src = np.arange(group * group * isa.lanes, dtype=kind).reshape(group, -1)
    dst = np.zeros(src.size, kind)
    with tempfile.TemporaryDirectory() as folder, config.override("cache_dir", folder):
        image, _ = jit.image(Recipe(group, isa, _neighbours))
    launch(Engine("cpu").load(image), (src.ctypes.data, dst.ctypes.data))
    assert np.array_equal(dst, src.T.reshape(-1))
