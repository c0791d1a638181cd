"""Resampling by given taps: any number of them, in all layouts, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from dnnl import (
    Arg,
    InvalidArguments,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    ResamplingDesc,
    Taps,
    Unimplemented,
    config,
)
from dnnl.kernels.windows import resampling as kernel
from dnnl.reference import resampling as reference
from tests.check import check, logical, memory_of, random_memory
from tests.primitives.harness import (
    ENGINE,
    LAYOUTS,
    describe,
    every_isa,
    execute,
    execute_all,
    source,
    tensor,
    typed_source,
)

NEAREST, LINEAR = "resampling_nearest", "resampling_linear"
INFERENCE = "forward_inference"
DIMS = (2, 19, 9, 18)


def scattered(count: int, old: int, new: int, seed: int = 1) -> Taps:
    """``count`` taps near the place of each element, some of them negative, some 0."""
    rng = np.random.default_rng(seed)
    centre = (2 * np.arange(new) + 1) * old // (2 * new)
    places = np.clip(centre + np.arange(count)[:, np.newaxis] - count // 2, 0, old - 1)
    weights = rng.uniform(-0.2, 1, places.shape) * (rng.random(places.shape) < 0.8)
    weights[0] += 1.5
    return Taps(places, weights / weights.sum(0))


def same(extent: int) -> Taps:
    """Each element by itself."""
    return Taps([range(extent)], np.ones((1, extent)))


def bound(taps: Sequence[Taps], kind: str) -> Any:
    """How exact sums of so many terms are."""
    return reference.TOLERANCE[LINEAR](kind, int(np.prod([each.count for each in taps])))


def forward(src: Memory, dst: MemoryDesc, taps: Sequence[Taps], alg: str = LINEAR) -> None:
    """Compare dst."""
    desc = ResamplingDesc.forward(INFERENCE, alg, src.desc, dst, taps=taps)
    want = reference.resampling(logical(src), alg, dst.dims[2:], taps)
    check(execute(desc, {Arg.SRC: src}), want, bound(taps, str(dst.data_type)))


def backward(diff_dst: Memory, diff_src: MemoryDesc, taps: Sequence[Taps]) -> None:
    """Compare diff_src."""
    desc = ResamplingDesc.backward(LINEAR, diff_src, diff_dst.desc, taps=taps)
    results = execute_all(PrimitiveDesc(desc, ENGINE), {Arg.DIFF_DST: diff_dst})
    want = reference.resampling_backward(logical(diff_dst), LINEAR, diff_src.dims[2:], taps)
    length = 4 * int(np.prod([each.count for each in taps]))
    bounds = reference.BACKWARD_TOLERANCE(str(diff_src.data_type), length)
    check(results[Arg.DIFF_SRC], want, bounds)


@every_isa
@pytest.mark.parametrize(
    ("layout", "counts", "size"),
    [
        ("nchw", (4, 4), (20, 40)),
        ("nchw", (7, 1), (4, 18)),
        ("nchw", (2, 9), (9, 5)),
        ("nhwc", (4, 4), (20, 40)),
        ("nhwc", (1, 3), (9, 7)),
        ("nChw16c", (2, 9), (9, 5)),
    ],
)
def test_sizes(layout: str, counts: tuple[int, ...], size: tuple[int, ...], isa: str) -> None:
    taps = [scattered(*each) for each in zip(counts, DIMS[2:], size, strict=True)]
    with config.override("max_cpu_isa", isa):
        forward(source(DIMS, layout), describe((*DIMS[:2], *size), layout), taps)
        backward(source((*DIMS[:2], *size), layout), describe(DIMS, layout), taps)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    taps = [scattered(4, 9, 12), scattered(3, 18, 7)]
    dims = (*DIMS[:2], 12, 7)
    for other in ("nchw", "nhwc", "nChw8c"):
        forward(source(DIMS, layout), describe(dims, other), taps)
        forward(source(DIMS, other), describe(dims, layout), taps)


@pytest.mark.parametrize("kinds", [("f64", "f64"), ("bf16", "bf16"), ("f16", "f32"), ("u8", "s8")])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_types(layout: str, kinds: tuple[str, str]) -> None:
    dst = describe((*DIMS[:2], 20, 40), layout).with_data_type(kinds[1])
    src = typed_source(DIMS, layout, kinds[0])
    forward(src, dst, [scattered(4, 9, 20), scattered(4, 18, 40)])
    rng = np.random.default_rng(1)
    one = [
        Taps(rng.integers(0, old, (1, new)), np.ones((1, new)))
        for old, new in zip(DIMS[2:], (20, 40), strict=True)
    ]
    forward(src, dst, one, NEAREST)


def test_dimensions() -> None:
    for old, new in (((33,), (60,)), ((300,), (7,)), ((3, 4, 9), (5, 3, 20))):
        taps = [scattered(5, *each) for each in zip(old, new, strict=True)]
        for tag in ("abx", "axb"):
            name = tag.replace("x", "cde"[: len(old)])
            ends = [MemoryDesc((2, 20, *size), "f32", name) for size in (old, new)]
            forward(random_memory(ends[0], ENGINE), ends[1], taps)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_cubic_weights_are_pytorchs(layout: str) -> None:
    """Keys' convolution with -0.75, between the centres of elements."""
    taps = []
    for old, new in ((9, 20), (18, 40)):
        x = (np.arange(new) + 0.5) * old / new - 0.5
        places = np.floor(x).astype(int) + np.arange(-1, 3)[:, np.newaxis]
        d = np.abs(places - x)
        near, far = (1.25 * d - 2.25) * d * d + 1, -0.75 * (((d - 5) * d + 8) * d - 4)
        taps.append(Taps(np.clip(places, 0, old - 1), np.where(d <= 1, near, far)))
    src, dst = source(DIMS, layout), describe((*DIMS[:2], 20, 40), layout)
    desc = ResamplingDesc.forward(INFERENCE, LINEAR, src.desc, dst, taps=taps)
    want = torch.nn.functional.interpolate(tensor(src), (20, 40), mode="bicubic")
    check(execute(desc, {Arg.SRC: src}), want.numpy(), bound(taps, "f32"))


@every_isa
@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw16c"])
def test_infinities_reach_no_element_but_their_own(layout: str, isa: str) -> None:
    values = logical(source(DIMS, "nchw")).copy()
    values[0, 3, 2, 5], values[1, 7, 1, 16:] = np.inf, np.nan
    taps = [scattered(4, 9, 15), scattered(6, 18, 44)]
    dst = describe((*DIMS[:2], 15, 44), layout)
    with config.override("max_cpu_isa", isa):
        src = memory_of(values, describe(DIMS, layout), ENGINE)
        desc = ResamplingDesc.forward(INFERENCE, LINEAR, src.desc, dst, taps=taps)
        result = logical(execute(desc, {Arg.SRC: src}))
    positive = [Taps(each.places, np.full(each.places.shape, 1 / each.count)) for each in taps]
    own = reference.resampling(~np.isfinite(values), LINEAR, (15, 44), positive) != 0
    np.testing.assert_array_equal(~np.isfinite(result), own)


def test_zero_points_are_those_of_a_mean() -> None:
    src = typed_source(DIMS, "nhwc", "u8")
    taps = [scattered(4, 9, 15), scattered(4, 18, 44)]
    attr = PrimitiveAttr()
    attr.set_zero_points(Arg.SRC)
    zero = memory_of(np.array([100]), MemoryDesc((1,), "s32"), ENGINE)
    dst = describe((*DIMS[:2], 15, 44), "nhwc")
    desc = ResamplingDesc.forward(INFERENCE, LINEAR, src.desc, dst, taps=taps)
    args = {int(Arg.SRC): src, Arg.ZERO_POINTS | Arg.SRC: zero}
    want = reference.resampling(logical(src) - 100, LINEAR, (15, 44), taps)
    check(execute(desc, args, attr), want, reference.TOLERANCE[LINEAR]("f32", 256))


def test_verbose_lines_say_how_many_there_are() -> None:
    taps = [scattered(4, 9, 20), scattered(3, 18, 40)]
    src, dst = describe(DIMS, "nchw"), describe((*DIMS[:2], 20, 40), "nchw")
    desc = ResamplingDesc.forward(INFERENCE, LINEAR, src, dst, taps=taps)
    assert desc.auxiliary == f"alg:resampling_linear taps:{taps[0].count}x{taps[1].count}"
    others = [*taps[:1], scattered(3, 18, 40, 2)]
    assert desc != ResamplingDesc.forward(INFERENCE, LINEAR, src, dst, taps=others)


@pytest.mark.parametrize(
    ("taps", "alg", "reason"),
    [
        ([same(9)], LINEAR, "one for each of 2 spatial dimensions"),
        ([same(9), same(17)], LINEAR, "those of 18 elements, out of 18"),
        ([same(9), Taps([[18] * 18], np.ones((1, 18)))], LINEAR, "those of 18 elements, out of 18"),
        ([same(9), scattered(4, 18, 18)], NEAREST, "weighted sums are resampling_linear"),
        ([1, 2], LINEAR, "expected a dnnl.Taps"),
        ("ab", LINEAR, "expected a dnnl.Taps"),
        (7, LINEAR, "expected a dnnl.Taps"),
    ],
)
def test_taps_that_do_not_fit(taps: Any, alg: str, reason: str) -> None:
    desc = describe(DIMS, "nchw")
    with pytest.raises(InvalidArguments, match=reason):
        ResamplingDesc.forward(INFERENCE, alg, desc, desc, taps=taps)
    with pytest.raises(InvalidArguments, match=reason):
        ResamplingDesc.backward(alg, desc, desc, taps=taps)


def test_tables_that_are_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_MOST_TAPS", 159)
    taps = [Taps(np.tile(np.arange(8)[:, np.newaxis], (1, 20)), np.full((8, 20), 1 / 8))]
    src, dst = (MemoryDesc((1, 1, size), "f32") for size in (8, 20))
    with pytest.raises(Unimplemented, match="160 taps of all elements along an axis; at most 159"):
        PrimitiveDesc(ResamplingDesc.forward(INFERENCE, LINEAR, src, dst, taps=taps), ENGINE)


@pytest.mark.parametrize("layout", ["nhwc", "nChw16c"])
def test_vectors_lie_along_channels_and_gather_nothing(layout: str) -> None:
    """Also where the image is longer than a vector of channels."""
    src, dst = (describe((1, 16, size, size), layout) for size in (64, 256))
    taps = [scattered(4, 64, 256)] * 2
    with config.override("max_cpu_isa", "avx2"):
        desc = ResamplingDesc.forward(INFERENCE, LINEAR, src, dst, taps=taps)
        assert "gather" not in Primitive(PrimitiveDesc(desc, ENGINE)).llvm_ir()
