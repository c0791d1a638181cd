"""The workspace of a maximum: which tap of each window it was."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl.codegen.epilogue.attributes import Attributes
from dnnl.codegen.isa import Isa
from dnnl.kernels.windows import pooling
from dnnl.reference.arrays import Array
from dnnl.reference.tolerance import EXACT
from dnnl.runtime.memory import Memory
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc
from tests.check import check, logical, memory_of
from tests.codegen.lanes import runnable_rows
from tests.codegen.nests import ENGINE, described, launch_kernel
from tests.pairs import every_pair

EACH_ISA = pytest.mark.parametrize("isa", runnable_rows(), ids=lambda row: row.name)


def windows_of(src: Array, kernel: tuple[int, ...], stride: int, pad: int, dilation: int) -> Array:
    """The taps of each window of the last two dimensions; what lies outside src never wins."""
    padded = np.pad(src, [(0, 0), (0, 0), (pad, pad), (pad, pad)], constant_values=-np.inf)
    reach = tuple((k - 1) * (dilation + 1) + 1 for k in kernel)
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, (2, 3))
    windows = windows[:, :, ::stride, ::stride, :: dilation + 1, :: dilation + 1]
    return np.asarray(windows.reshape(*windows.shape[:4], -1))


@every_pair(
    EACH_ISA,
    pytest.mark.parametrize(
        ("source", "target", "places"),
        [
            ("f32:abcd", "f32:abcd", "abcd"),
            ("s8:acdb", "s8:acdb", "acdb"),
            ("f32:aBcd16b", "f32:aBcd16b", "aBcd16b"),
            ("bf16:gaps", "bf16:acdb", "aBcd8b"),
            ("u8:aBcd8b", "s32:dcba", "gaps"),
        ],
    ),
    pytest.mark.parametrize(
        ("kernel", "stride", "pad", "dilation"),
        [((3, 3), 2, 1, 0), ((2, 2), 2, 0, 0), ((3, 9), 1, 1, 1), ((17, 19), 3, 2, 0)],
    ),
)
def test_windows_of_maxima(
    kernel: tuple[int, int],
    stride: int,
    pad: int,
    dilation: int,
    source: str,
    target: str,
    places: str,
    isa: Isa,
) -> None:
    (src_type, src_layout), (dst_type, dst_layout) = source.split(":"), target.split(":")
    values = np.random.default_rng(1).integers(0, 9, (2, 19, 18, 23)).astype(np.float64)
    src = memory_of(values, described(values.shape, src_layout, src_type), ENGINE)
    windows = windows_of(logical(src), kernel, stride, pad, dilation)
    dst = described(windows.shape[:4], dst_layout, dst_type)
    workspace = described(dst.dims, places, "s32" if np.prod(kernel) > 255 else "u8")
    conf = pooling.configure(
        Alg.pooling_max,
        src.desc,
        dst,
        kernel,
        (stride,) * 2,
        (pad,) * 2,
        (dilation,) * 2,
        Attributes(),
        workspace,
    )
    assert isinstance(conf, pooling.PoolingConf)
    given: dict[int, Memory | MemoryDesc] = {Arg.SRC: src, Arg.DST: dst, Arg.WORKSPACE: workspace}
    made = launch_kernel(isa, conf, pooling.build, given)
    check(made[Arg.DST], windows.max(-1), EXACT(dst_type))
    check(made[Arg.WORKSPACE], windows.argmax(-1), EXACT(workspace.data_type))
