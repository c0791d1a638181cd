"""Concat: any axis, every source in its own layout, blocks that a source ends in the middle of."""

from __future__ import annotations

import pytest
import torch

from dnnl import (
    Arg,
    ConcatDesc,
    InvalidArguments,
    Memory,
    MemoryDesc,
    PrimitiveAttr,
    PrimitiveDesc,
    Unimplemented,
    config,
)
from dnnl.reference.concat import concat
from dnnl.reference.tolerance import EXACT
from tests.check import check, logical, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import (
    ENGINE,
    array,
    describe,
    every_isa,
    execute,
    source,
    tensor,
    typed_source,
)

DST_LAYOUTS = ["nchw", "nhwc", "nChw16c", "nChw8c", "ABcd4b16a4b", "part", None]


def sources(axis: int, extents: list[int], layouts: list[str]) -> list[Memory]:
    made = []
    for number, (extent, layout) in enumerate(zip(extents, layouts, strict=True)):
        dims = [2, 19, 3, 5]
        dims[axis] = extent
        made.append(source(tuple(dims), layout, number))
    return made


def run(axis: int, memories: list[Memory], layout: str | None) -> Memory:
    want = concat([logical(memory) for memory in memories], axis)
    dst = None if layout is None else describe(want.shape, layout)
    desc = ConcatDesc(axis, [memory.desc for memory in memories], dst)
    args = {Arg.multiple_src(i): memory for i, memory in enumerate(memories)}
    result = execute(desc, args)
    check(result, want, 0.0)
    return result


@pytest.mark.parametrize("layout", DST_LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_every_axis(axis: int, layout: str | None) -> None:
    run(axis, sources(axis, [3, 1, 4], ["nchw", "nhwc", "nChw16c"]), layout)


@every_pair(
    every_isa,
    pytest.mark.parametrize("layout", ["nChw16c", "nChw8c", "nhwc", "part16"]),
    pytest.mark.parametrize("extents", [[16, 32], [17, 15, 1], [3, 40], [32, 5], [1, 1, 1]]),
)
def test_channels_that_fill_blocks_and_that_do_not(
    isa: str, extents: list[int], layout: str
) -> None:
    layouts = ["nChw16c", "nchw", "nhwc"][: len(extents)]
    with config.override("max_cpu_isa", isa):
        run(1, sources(1, extents, layouts), layout)


@pytest.mark.parametrize("layout", ["nchw", "nChw16c"])
def test_sources_without_elements_and_a_single_one(layout: str) -> None:
    run(1, sources(1, [0, 5, 0, 7, 0], ["nchw"] * 5), layout)
    run(1, sources(1, [7], ["nhwc"]), layout)
    run(1, sources(1, [0, 0], ["nchw"] * 2), layout)


def test_the_same_source_twice() -> None:
    memory = sources(2, [3], ["nChw16c"])[0]
    run(2, [memory, memory], "nChw16c")


def test_many_sources() -> None:
    run(1, sources(1, [3] * 20, ["nchw"] * 20), "nhwc")


@pytest.mark.parametrize(
    ("extents", "layouts", "expected"),
    [
        ([16, 32, 7], ["nChw16c"] * 3, "nChw16c"),
        ([17, 16], ["nChw16c"] * 2, "nhwc"),
        ([17, 16], ["nChw16c", "nchw"], "nchw"),
        ([64, 16], ["nhwc", "nchw"], "nhwc"),
        ([16, 64], ["nChw16c", "nChw8c"], "nChw8c"),
        ([3, 40], ["part", "nchw"], "nchw"),
    ],
)
def test_the_layout_chosen_for_any(extents: list[int], layouts: list[str], expected: str) -> None:
    result = run(1, sources(1, extents, layouts), None)
    assert result.desc == describe(result.desc.dims, expected)


@pytest.mark.parametrize(
    ("dims", "axis"), [((4,), 0), ((2, 3, 4, 5, 6), 3), ((2, 1, 2, 1, 2, 1, 2), 6)]
)
def test_any_rank(dims: tuple[int, ...], axis: int) -> None:
    tag = "abcdefg"[: len(dims)]
    memories = [source(dims, tag), source(dims, tag[::-1], 2)]
    run(axis, memories, tag)


def test_as_pytorch() -> None:
    memories = sources(1, [16, 20], ["nChw16c", "nchw"])
    result = run(1, memories, "nhwc")
    check(result, array(torch.cat([tensor(memory) for memory in memories], 1)), 0.0)


@every_pair(
    every_isa,
    layout=["nhwc", "nChw16c"],
    types=[("f32", "f32"), ("s8", "bf16"), ("s32", "s8"), ("f64", "f64")],
    scaled=[(0,), (1, 2), (0, 1, 2)],
)
def test_scales(scaled: tuple[int, ...], types: tuple[str, str], layout: str, isa: str) -> None:
    """One number for each of some sources; an empty source may have one as well."""
    extents = [16, 0, 7] if layout == "nhwc" else [16, 3, 7]
    memories = [
        typed_source((2, extent, 3, 5), of, types[0], extent)
        for extent, of in zip(extents, ["nChw16c", "nchw", "nhwc"], strict=True)
    ]
    attr, wants = PrimitiveAttr(), [logical(memory) for memory in memories]
    args = {Arg.multiple_src(number): memory for number, memory in enumerate(memories)}
    for number in scaled:
        argument, factor = Arg.multiple_src(number), 0.5 * number + 1.5
        attr.set_scales(argument, mask=0)
        args[Arg.SCALES | argument] = memory_of([factor], MemoryDesc((1,), "f32"), ENGINE)
        wants[number] *= factor
    dst = describe((2, sum(extents), 3, 5), layout).with_data_type(types[1])
    desc = ConcatDesc(1, [memory.desc for memory in memories], dst)
    with config.override("max_cpu_isa", isa):
        check(execute(desc, args, attr), concat(wants, 1), EXACT(types[1]))


def test_scales_of_what_is_no_source() -> None:
    a, attr = MemoryDesc((2, 3), "f32"), PrimitiveAttr()
    attr.set_scales(Arg.multiple_src(2), mask=0)
    with pytest.raises(Unimplemented, match="unsupported attribute: scales of MULTIPLE_SRC"):
        PrimitiveDesc(ConcatDesc(0, [a, a]), ENGINE, attr)


def test_bad_arguments() -> None:
    a = MemoryDesc((2, 3), "f32")
    with pytest.raises(InvalidArguments, match=r"axis = 2.*0\.\.1"):
        ConcatDesc(2, (a, a))
    with pytest.raises(InvalidArguments, match=r"axis = -1.*axis 1"):
        ConcatDesc(-1, (a, a))
    with pytest.raises(InvalidArguments, match=r"src_descs\[1\] = \(3, 3\).*\(2, 3\)"):
        ConcatDesc(1, (a, MemoryDesc((3, 3), "f32")))
    with pytest.raises(InvalidArguments, match=r"src_descs\[1\] = \(2,\)"):
        ConcatDesc(1, (a, MemoryDesc((2,), "f32")))
    with pytest.raises(InvalidArguments, match=r"src_descs\[1\] = 's8'.*f32"):
        ConcatDesc(1, (a, MemoryDesc((2, 3), "s8")))
    with pytest.raises(InvalidArguments, match=r"dst_desc = \(2, 5\).*\(2, 6\).*axis 1"):
        ConcatDesc(1, (a, a), MemoryDesc((2, 5), "f32"))
    with pytest.raises(InvalidArguments, match=r"src_descs.*at least one"):
        ConcatDesc(0, ())
    with pytest.raises(InvalidArguments, match=r"src_descs = None: expected a sequence"):
        ConcatDesc(1, None)  # type: ignore[arg-type]
    scalar = MemoryDesc((), "f32")
    with pytest.raises(InvalidArguments, match="axis = 0: the tensor has no dimensions"):
        ConcatDesc(0, (scalar, scalar))
    attr = PrimitiveAttr()
    attr.post_ops.append_sum()
    with pytest.raises(Unimplemented, match="sum"):
        PrimitiveDesc(ConcatDesc(1, (a, a)), ENGINE, attr)
