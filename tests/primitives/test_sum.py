"""Sum: any number of tensors, each with a factor and a layout."""

from __future__ import annotations

import pytest

from dnnl import Arg, InvalidArguments, MemoryDesc, PrimitiveAttr, PrimitiveDesc, SumDesc, config
from dnnl.reference import sum as reference
from tests.check import check, logical
from tests.primitives.harness import ENGINE, LAYOUTS, describe, every_isa, execute, source

DIMS = (2, 19, 5, 7)


@every_isa
@pytest.mark.parametrize("count", [1, 2, 5])
def test_factors(isa: str, count: int) -> None:
    scales = (1.0, -0.5, 3.0, 1.0, 0.0)[:count]
    memories = [source(DIMS, LAYOUTS[i], i) for i in range(count)]
    with config.override("max_cpu_isa", isa):
        result = execute(
            SumDesc(scales, [memory.desc for memory in memories], describe(DIMS, "nChw16c")),
            {Arg.multiple_src(i): memory for i, memory in enumerate(memories)},
        )
    want = reference.sum_([logical(memory) for memory in memories], scales)
    check(result, want, reference.TOLERANCE("f32", count))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    a, b = source(DIMS, layout), source(DIMS, "nhwc", 2)
    desc = SumDesc((1, 2), (a.desc, b.desc), a.desc)
    result = execute(desc, {Arg.multiple_src(0): a, Arg.multiple_src(1): b})
    check(result, logical(a) + 2 * logical(b), 1e-6)


def test_many_sources() -> None:
    memories = [source((3, 33), "ab", seed) for seed in range(60)]
    desc = SumDesc([0.5] * 60, [memory.desc for memory in memories])
    result = execute(desc, {Arg.multiple_src(i): memory for i, memory in enumerate(memories)})
    want = reference.sum_([logical(memory) for memory in memories], [0.5] * 60)
    check(result, want, reference.TOLERANCE("f32", 60))


def test_in_place_and_the_layout_of_the_first() -> None:
    a, b = source(DIMS, "nChw16c"), source(DIMS, "nchw", 2)
    desc = SumDesc((1.0, 1.0), (a.desc, b.desc))
    assert PrimitiveDesc(desc, ENGINE).dst_desc == a.desc
    want = logical(a) + logical(b)
    check(execute(desc, {Arg.multiple_src(0): a, Arg.multiple_src(1): b}, dst=a), want, 1e-7)


def test_post_ops() -> None:
    a, b = source(DIMS, "nchw"), source(DIMS, "nchw", 2)
    attr = PrimitiveAttr()
    attr.post_ops.append_eltwise("eltwise_square")
    desc = SumDesc((1.0, -1.0), (a.desc, b.desc))
    result = execute(desc, {Arg.multiple_src(0): a, Arg.multiple_src(1): b}, attr)
    check(result, (logical(a) - logical(b)) ** 2, 1e-6)


def test_bad_arguments() -> None:
    a = MemoryDesc((2, 3), "f32")
    with pytest.raises(InvalidArguments, match=r"scales = \(1\.0,\).*2 sources"):
        SumDesc((1.0,), (a, a))
    with pytest.raises(InvalidArguments, match=r"src_descs\[1\] = \(3, 2\).*\(2, 3\)"):
        SumDesc((1.0, 1.0), (a, MemoryDesc((3, 2), "f32")))
    with pytest.raises(InvalidArguments, match=r"src_descs\[1\].*layout"):
        SumDesc((1.0, 1.0), (a, MemoryDesc((2, 3), "f32", "any")))
    with pytest.raises(InvalidArguments, match=r"src_descs.*at least one"):
        SumDesc((), ())
    with pytest.raises(InvalidArguments, match=r"src_descs.*sequence"):
        SumDesc((1.0,), a)  # type: ignore[arg-type]
    for wrong in (1, None, "12"):
        with pytest.raises(InvalidArguments, match=f"scales = {wrong!r}: expected a sequence"):
            SumDesc(wrong, (a,))  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match=r"src_descs = None: expected a sequence"):
        SumDesc([], None)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="scales = 'one'"):
        SumDesc(("one",), (a,))  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="dst_desc"):
        SumDesc((1.0,), (a,), MemoryDesc((2, 4), "f32"))
