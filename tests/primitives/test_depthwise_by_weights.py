"""The gradients of weights and bias of depthwise convolutions, between guard pages."""

from __future__ import annotations

from math import prod

import pytest

from dnnl import Arg, Memory, MemoryDesc
from dnnl.codegen import isa as rows
from dnnl.codegen.ir.kernel import Refusal
from dnnl.kernels.convolution.depthwise import by_weights
from dnnl.kernels.convolution.direct.gradient_problem import WeightsGradient
from dnnl.kernels.product.base.pixel_tiles import Spatial
from dnnl.reference.arrays import Array
from dnnl.reference.convolution import TOLERANCE
from dnnl.reference.sliding import correlation_backward_weights
from tests.check import check, logical, random_memory
from tests.codegen.nests import launch_kernel
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE
from tests.primitives.products import Window, lay_out

ROWS = {row.name: row for row in rows.available(ENGINE.features.arch, ENGINE.features.flags)}
WINDOWS = {
    "3x3": Window((9, 21), (3, 3), (), (1, 1)),
    "3x3, stride 2": Window((13, 30), (3, 3), (2, 2), (1, 1), (0, 1)),
    "3x3, dilated": Window((11, 19), (3, 3), (), (1, 1), dilations=(1, 1)),
    "5x5": Window((7, 7), (5, 5), (), (2, 2)),
    "7x7": Window((8, 17), (7, 7), (), (3, 3)),
    "3x3x3": Window((4, 5, 9), (3, 3, 3), (1, 2, 1), (1, 1, 1)),
    "1x3x3, padded depth": Window((2, 5, 9), (1, 3, 3), (), (1, 1, 1)),
    "4, stride 2": Window((37,), (4,), (2,), (1,)),
    "no border": Window((9, 10), (3, 2), (1, 3)),
    "most is padding": Window((2, 3), (3, 3), (), (3, 3)),
    "many taps": Window((1, 40), (1, 17), (), (0, 3)),
}
TYPES = [
    "f32:f32:f32", "bf16:bf16:bf16", "bf16:f32:bf16", "f16:f16:f32", "f64:f64:f64",
    "f8_e5m2:f8_e4m3:f8_e5m2", "f32:bf16:bf16",
]  # fmt: skip


def gradient(
    window: Window,
    channels: int,
    layouts: tuple[str, str, str],
    types: str,
    batch: int = 2,
    bias: str = "f32",
    *,
    of_src: bool = False,
) -> WeightsGradient:
    """A problem whose types and layouts are those of src, diff_weights and diff_dst."""
    dims = (
        (batch, channels, *window.src),
        (channels, 1, 1, *window.kernel),
        (batch, channels, *window.dst),
    )
    src, diff_weights, diff_dst = (
        lay_out(size, layout).with_data_type(kind)
        for size, layout, kind in zip(dims, layouts, types.split(":"), strict=True)
    )
    strides, left, _, dilations = window.filled
    sizes = zip(
        window.src, window.dst, window.kernel, strides, left, (d + 1 for d in dilations),
        strict=True,
    )  # fmt: skip
    missing = [Spatial(1, 1, 1, 1, 0, 1)] * (3 - len(window.src))
    d, h, w = (*missing, *(Spatial(*numbers) for numbers in sizes))
    return WeightsGradient(
        src=src,
        diff_weights=diff_weights,
        diff_bias=MemoryDesc((channels,), bias) if bias else MemoryDesc.zero(),
        diff_dst=diff_dst,
        space=(d, h, w),
        of_src=of_src,
    )


def verify(problem: WeightsGradient, window: Window, isa: str) -> by_weights.DepthwiseGradientConf:
    """The configuration, once its results have been found right."""
    row = ROWS[isa]
    problem = by_weights.resolve(problem, row)
    conf = by_weights.configure(problem, row)
    assert not isinstance(conf, Refusal)
    src, diff = random_memory(problem.src, ENGINE, 1), random_memory(problem.diff_dst, ENGINE, 2)
    given: dict[int, Memory | MemoryDesc] = {
        Arg.SRC: src,
        Arg.DIFF_DST: diff,
        Arg.DIFF_WEIGHTS: problem.diff_weights,
        Arg.DIFF_BIAS: problem.diff_bias,
        Arg.SCRATCHPAD: MemoryDesc((conf.scratchpad,), "u8"),
    }
    results = launch_kernel(row, conf, by_weights.build, given)
    strides, left, _, dilations = window.filled

    def products(source: Array, difference: Array) -> Array:
        return correlation_backward_weights(
            source,
            difference,
            problem.diff_weights.dims,
            strides=strides,
            padding_l=left,
            dilations=dilations,
        )

    terms = prod((problem.diff_dst.dims[0], *problem.diff_dst.dims[2:]))
    of = logical(src), logical(diff)
    want = products(*of), (of[0] if problem.of_src else of[1])
    result = problem.diff_weights, problem.diff_bias
    check(results[Arg.DIFF_WEIGHTS], want[0], TOLERANCE(result[0].data_type, terms))
    if not problem.diff_bias.is_zero:
        axes = (0, *range(2, want[1].ndim))
        summed = want[1].size // want[1].shape[1]
        check(results[Arg.DIFF_BIAS], want[1].sum(axes), TOLERANCE(result[1].data_type, summed))
    return conf


@every_pair(
    isa=[*ROWS],
    types=TYPES,
    layouts=["last", "any", "plain"],
    window=[*WINDOWS],
    channels=[19, 32, 3, 70],
    bias=["f32", "", "bf16"],
)
def test_gradients(
    isa: str, types: str, layouts: str, window: str, channels: int, bias: str
) -> None:
    problem = gradient(WINDOWS[window], channels, (layouts, "any", layouts), types, bias=bias)
    conf = verify(problem, WINDOWS[window], isa)
    tiled = ROWS[isa].lanes > 1 and window != "many taps" and types != "f64:f64:f64"
    assert (conf.tiles is not None) == tiled


@pytest.mark.parametrize("isa", [*ROWS][-2:])
@pytest.mark.parametrize("of_src", [False, True])
@pytest.mark.parametrize(
    ("layouts", "tag"),
    [
        (("block16", "Goihw16g", "block16"), "19 channels in blocks"),
        (("block8", "Goihw8g", "last"), "two layouts"),
        (("behind", "reversed", "reversed"), "nothing contiguous"),
    ],
)
def test_layouts(layouts: tuple[str, str, str], tag: str, isa: str, *, of_src: bool) -> None:
    """Padding of blocks counts for nothing, and is zero afterwards."""
    window = WINDOWS["3x3, stride 2"]
    verify(gradient(window, 19, layouts, "f32:f32:f32", 3, of_src=of_src), window, isa)


@pytest.mark.parametrize("types", ["f32:f32:f32", "f64:f64:f64"])
@pytest.mark.parametrize("batch", [0, 1, 17])
def test_images(batch: int, types: str) -> None:
    """Sums of no image are zero; those of many are divided."""
    window = WINDOWS["3x3"]
    given = gradient(window, 19, ("last", "any", "last"), types, batch)
    conf = verify(given, window, [*ROWS][-1])
    assert conf.tiles is None or conf.tiles.sums[1].dims[0] == batch * 9 * 21 // (16 * 9)
