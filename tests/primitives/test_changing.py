"""Primitives for calls whose sizes change: which of them share one, and that results are right."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from dnnl import config
from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.primitives import changing
from dnnl.primitives.changing import Sized, primitive_for
from dnnl.primitives.convolution import ConvolutionDesc
from dnnl.primitives.eltwise import EltwiseDesc
from dnnl.primitives.inner_product import InnerProductDesc
from dnnl.primitives.matmul import MatmulDesc
from dnnl.primitives.primitive import Primitive
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.runtime.engine import Engine
from dnnl.runtime.stream import Stream
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.memory_desc import MemoryDesc

Array = NDArray[np.float32]
CPU = Engine("cpu")
pytestmark = pytest.mark.usefixtures("loaded")  # nothing has been met before


def drawn(*dims: int) -> Array:
    return np.random.default_rng(dims).standard_normal(dims, np.float32)


def desc_of(array: Array) -> MemoryDesc:
    return MemoryDesc(array.shape, "f32", [stride // 4 for stride in array.strides])


def execute(made: Primitive | Sized, arrays: dict[int, Array]) -> None:
    made.execute_at(Stream(CPU), [arrays[own].ctypes.data for own in made.arguments]).wait()


def multiplied(x: Array, y: Array, attr: PrimitiveAttr | None = None) -> Primitive | Sized:
    """What multiplies two matrices, checked."""
    dst = np.full((x.shape[0], y.shape[1]), np.nan, np.float32)
    made = primitive_for(MatmulDesc(desc_of(x), desc_of(y), desc_of(dst)), CPU, attr)
    execute(made, {Arg.SRC: x, Arg.WEIGHTS: y, Arg.DST: dst})
    np.testing.assert_allclose(dst, x.astype(np.float64) @ y, 1e-5, 1e-5)
    return made


def shared(made: Sequence[object]) -> list[bool]:
    return [isinstance(own, Sized) for own in made]


def test_the_first_sizes_have_kernels_of_their_own(loaded: list[PrimitiveDesc]) -> None:
    y = drawn(19, 35)
    made = [multiplied(drawn(rows, 19), y) for rows in (25, 27, 26, 31)]
    assert shared(made) == [False, False, False, True]
    before = len(loaded)
    made = [multiplied(drawn(rows, 19), y) for rows in (33, 29, 40, 28, 23)]
    assert (shared(made), len(loaded)) == ([True] * 5, before)
    assert shared([multiplied(drawn(rows, 19), y) for rows in (25, 27, 26)]) == [False] * 3


def test_all_sizes_change() -> None:
    numbers = np.random.default_rng(7).choice(np.arange(2, 90), (20, 3), replace=False)
    sizes = [tuple(map(int, own)) for own in numbers]
    made = [multiplied(drawn(m, k), drawn(k, n)) for m, k, n in sizes]
    assert shared(made[4:]) == [True] * 16


def test_another_size_changes_later() -> None:
    y, z = drawn(19, 35), drawn(19, 21)
    for rows in (5, 7, 6, 11):
        multiplied(drawn(rows, 19), y)
    made = [multiplied(drawn(rows, 19), z) for rows in (5, 7, 6, 11, 12, 13)]
    assert shared(made)[-1]


def test_views_of_rows_and_columns() -> None:
    whole, made = drawn(80, 120), list[object]()
    for rows, columns in ((5, 9), (30, 17), (41, 100), (80, 64), (21, 33), (55, 18), (9, 119)):
        made.append(multiplied(whole[:rows, :columns], drawn(columns, 23)))
        made.append(multiplied(whole[:rows].T[:columns], drawn(rows, 23)))
    assert all(shared(made)[6:])


def test_one_and_no_rows() -> None:
    y = drawn(19, 35)
    made = [multiplied(drawn(rows, 19), y) for rows in (5, 7, 6, 11, 1, 0, 12)]
    assert shared(made) == [False, False, False, True, False, False, True]
    one = [multiplied(drawn(1, k), drawn(k, 35)) for k in (5, 7, 11, 13)]
    assert shared(one) == [False, False, True, True]  # behind that of 19 columns


def test_layers_share_nothing() -> None:
    """Other weights are those of another layer, whose sizes stay."""
    made = []
    for outputs in (5, 8, 13, 21, 34, 55):
        x, w, dst = drawn(7, 19), drawn(outputs, 19), drawn(7, outputs)
        desc = InnerProductDesc.made(
            prop_kind="forward_inference",
            src_desc=desc_of(x),
            weights_desc=desc_of(w),
            dst_desc=desc_of(dst),
        )
        made.append(primitive_for(desc, CPU))
        execute(made[-1], {Arg.SRC: x, Arg.WEIGHTS: w, Arg.DST: dst})
        np.testing.assert_allclose(dst, x @ w.T, 1e-5, 1e-5)
    assert shared(made) == [False] * 6


@pytest.mark.parametrize(("policy", "alone"), [("always", 6), ("never", 1), ("often", 3)])
def test_policies(policy: str, alone: int) -> None:
    y = drawn(19, 35)
    with config.override("special_kernels", policy):
        made = [multiplied(drawn(rows, 19), y) for rows in (5, 7, 6, 11, 12, 13)]
    assert shared(made) == [number >= alone for number in range(6)]


def test_sizes_that_come_often_get_their_own(
    monkeypatch: pytest.MonkeyPatch, loaded: list[PrimitiveDesc]
) -> None:
    y, x = drawn(19, 35), drawn(23, 19)
    monkeypatch.setattr(changing, "_EXECUTIONS", 2)
    for rows in (5, 7, 6, 11):
        multiplied(drawn(rows, 19), y)
    dst = np.empty((23, 35), np.float32)
    made = primitive_for(MatmulDesc(desc_of(x), desc_of(y), desc_of(dst)), CPU)
    assert isinstance(made, Sized)
    before = len(loaded)
    for more in (0, 0, 1, 1):
        dst[:] = np.nan
        execute(made, {Arg.SRC: x, Arg.WEIGHTS: y, Arg.DST: dst})
        np.testing.assert_allclose(dst, x @ y, 1e-5, 1e-5)
        assert len(loaded) == before + more
    assert not loaded[-1].desc.has_runtime_values


def test_kernels_for_each_size_are_not_shared() -> None:
    """As those of depthwise convolutions in planes."""
    made = []
    for width in range(9, 32, 2):
        x, w, dst = drawn(1, 4, 5, width), drawn(4, 1, 1, 3, 3), drawn(1, 4, 5, width)
        desc = ConvolutionDesc.made(
            prop_kind="forward_inference",
            alg_kind="convolution_direct",
            src_desc=desc_of(x),
            weights_desc=desc_of(w),
            dst_desc=desc_of(dst),
            strides=(1, 1),
            dilations=(0, 0),
            padding_l=(1, 1),
            padding_r=(1, 1),
        )
        made.append(primitive_for(desc, CPU))
        execute(made[-1], {Arg.SRC: x, Arg.WEIGHTS: w, Arg.DST: dst})
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        want = np.einsum("nchwyx,cyx->nchw", windows, w[:, 0, 0], dtype=np.float64)
        np.testing.assert_allclose(dst, want, 1e-4, 1e-4)
    assert shared(made)[-1] is False


def test_operands_of_post_ops() -> None:
    made = []
    for rows, columns in ((5, 9), (7, 30), (6, 17), (11, 41), (13, 64), (8, 5)):
        x, y, dst = drawn(rows, columns), drawn(rows, columns), drawn(rows, columns)
        attr = PrimitiveAttr()
        attr.post_ops.append_binary("binary_mul", desc_of(y))
        desc = EltwiseDesc.made(
            prop_kind="forward_inference",
            alg_kind="eltwise_relu",
            src_desc=desc_of(x),
            dst_desc=desc_of(dst),
        )
        made.append(primitive_for(desc, CPU, attr))
        operands = {Arg.SRC: x, Arg.DST: dst, Arg.post_op(0) | Arg.SRC_1: y}
        execute(made[-1], operands)
        np.testing.assert_array_equal(dst, np.maximum(x, 0) * y)
    assert shared(made) == [False] * 3 + [True] * 3


def test_attributes_and_types_are_told_apart() -> None:
    y = drawn(19, 35)
    scaled = PrimitiveAttr()
    scaled.post_ops.append_eltwise("eltwise_linear", 1.0)
    made = [multiplied(drawn(rows, 19), y, attr) for rows in (5, 7) for attr in (None, scaled)]
    assert shared(made) == [False] * 4
    assert len(changing._families) == 2


def test_threads_that_meet_new_sizes() -> None:
    y = drawn(19, 35)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda own: multiplied(drawn(own, 19), y), range(2, 66)))
    assert sum(shared(made)) == len(made) - 3


def test_errors_are_those_of_a_description() -> None:
    x, y = desc_of(drawn(5, 19)), desc_of(drawn(19, 35))
    with pytest.raises(InvalidArguments, match="dst"):
        primitive_for(MatmulDesc(x, y, MemoryDesc((5, 35), "f32", (0, 1))), CPU)


def test_what_no_open_sizes_take_has_kernels_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise Unimplemented("open sizes")

    y = drawn(19, 35)
    monkeypatch.setattr(Primitive, "slots_of", refused)
    assert shared([multiplied(drawn(rows, 19), y) for rows in (5, 7, 6, 11, 12)]) == [False] * 5
