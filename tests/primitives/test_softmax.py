"""Softmax: any axis of any layout, blocks and tails in and across the axis."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dnnl import (
    Arg,
    InvalidArguments,
    LogSoftmaxDesc,
    Memory,
    MemoryDesc,
    PrimitiveAttr,
    PrimitiveDesc,
    SoftmaxDesc,
    SoftmaxV1Desc,
    config,
)
from dnnl.reference import softmax as reference
from tests.check import assert_close, check, logical, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import (
    ENGINE,
    LAYOUTS,
    array,
    describe,
    every_isa,
    execute,
    source,
    tensor,
)

DIMS = (2, 19, 5, 7)
ALGS = ["softmax_accurate", "softmax_log"]


def softmax(
    src: MemoryDesc, dst: MemoryDesc, axis: int, alg: str = ALGS[0], masked_rows: str = "zero"
) -> SoftmaxDesc:
    return SoftmaxDesc.forward("forward_inference", alg, src, dst, axis, masked_rows)


def run(memory: Memory, dst: MemoryDesc, axis: int, alg: str = ALGS[0]) -> None:
    result = execute(softmax(memory.desc, dst, axis, alg), {Arg.SRC: memory})
    want = reference.softmax(logical(memory), axis, alg)
    check(result, want, reference.TOLERANCE("f32", memory.desc.dims[axis]))


@every_pair(alg=ALGS, axis=[0, 1, 2, 3], layout=LAYOUTS)
def test_axes_of_layouts(layout: str, axis: int, alg: str) -> None:
    memory = source(DIMS, layout)
    run(memory, memory.desc, axis, alg)


@pytest.mark.parametrize("axis", [1, 3])
@pytest.mark.parametrize(
    ("src", "dst"), [("nchw", "nhwc"), ("nChw16c", "nchw"), ("nhwc", "nChw8c"), ("dcba", "part")]
)
def test_another_layout_for_the_result(src: str, dst: str, axis: int) -> None:
    run(source(DIMS, src), describe(DIMS, dst), axis)


@every_pair(
    every_isa,
    pytest.mark.parametrize("alg", ALGS),
    pytest.mark.parametrize(
        ("dims", "tag", "axis"),
        [
            ((5, 1), "ab", 1),
            ((3, 7), "ab", 1),
            ((2, 16), "ab", 1),
            ((7, 130), "ab", 1),
            ((130, 7), "ab", 0),
            ((1000,), "a", 0),
            ((2, 40, 3), "aBc16b", 1),
            ((2, 3, 2, 40, 2), "acdeb", 3),
            # Whole vectors of padding behind the last element.
            ((4, 3), "aB16b", 1),
            ((2, 19), "aB64b", 1),
        ],
    ),
)
def test_lengths(isa: str, dims: tuple[int, ...], tag: str, axis: int, alg: str) -> None:
    memory = source(dims, tag)
    with config.override("max_cpu_isa", isa):
        run(memory, memory.desc, axis, alg)


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw16c"])
@pytest.mark.parametrize("axis", [1, 3])
def test_in_place(layout: str, axis: int) -> None:
    memory = source(DIMS, layout)
    want = reference.softmax(logical(memory), axis)
    desc = softmax(memory.desc, memory.desc, axis)
    check(execute(desc, {Arg.SRC: memory}, dst=memory), want, reference.TOLERANCE("f32", 19))


@every_pair(every_isa, alg=ALGS, axis=[0, 1], masked_rows=["zero", "nan"])
def test_extreme_rows(isa: str, alg: str, axis: int, masked_rows: str) -> None:
    """Nothing but -inf; one finite value; values whose exponentials overflow or vanish; a NaN."""
    rows = np.full((5, 37), -np.inf)
    rows[1, 5] = -3e38
    rows[2] = np.linspace(-1.5e38, 1.5e38, 37)
    rows[3] = 1e4 + np.arange(37)
    rows[4] = np.arange(37)
    rows[4, 20] = np.nan
    values = rows if axis == 1 else rows.T
    memory = memory_of(values, MemoryDesc(values.shape, "f32"), ENGINE)
    with config.override("max_cpu_isa", isa):
        desc = softmax(memory.desc, memory.desc, axis, alg, masked_rows)
        result = logical(execute(desc, {Arg.SRC: memory}))
    want = reference.softmax(logical(memory), axis, alg, masked_rows)
    assert np.isnan(want if axis == 1 else want.T)[0].all() == (masked_rows == "nan")
    finite = np.isfinite(want)
    assert (np.isnan(result) == np.isnan(want)).all()
    assert (result[np.isinf(want)] == want[np.isinf(want)]).all()
    np.testing.assert_allclose(result[finite], want[finite], rtol=2e-5, atol=1e-37)


@pytest.mark.parametrize("sum_first", [False, True])
def test_post_ops(sum_first: bool) -> None:
    memory, old = source(DIMS, "nChw16c"), source(DIMS, "nChw16c", 2)
    other = source((1, 19, 1, 1), "nchw", 3)
    attr = PrimitiveAttr()
    number = attr.post_ops.append_binary("binary_mul", other.desc)
    attr.post_ops.append_eltwise("eltwise_linear", 3.0, 1.0)
    if sum_first:
        attr.post_ops.append_sum(2.0)
    args = {Arg.SRC: memory, Arg.post_op(number) | Arg.SRC_1: other}
    result = execute(softmax(memory.desc, old.desc, 1), args, attr, old)
    want = reference.softmax(logical(memory), 1) * logical(other) * 3.0 + 1.0
    check(result, want + 2 * logical(old) if sum_first else want, 2e-6)


@pytest.mark.parametrize("alg", ALGS)
def test_as_pytorch(alg: str) -> None:
    memory = source((64, 1000), "ab")
    function = torch.softmax if alg == ALGS[0] else torch.log_softmax
    result = execute(softmax(memory.desc, memory.desc, 1, alg), {Arg.SRC: memory})
    assert_close(logical(result), array(function(tensor(memory), 1)), 4e-6)


@pytest.mark.parametrize(("dims", "axis"), [((2, 0), 1), ((0, 2), 1)])
def test_no_elements(dims: tuple[int, ...], axis: int) -> None:
    memory = source(dims, "ab")
    execute(softmax(memory.desc, memory.desc, axis), {Arg.SRC: memory})


def test_any() -> None:
    blocked = describe(DIMS, "nChw16c")
    pd = PrimitiveDesc(softmax(blocked, MemoryDesc(DIMS, "f32", "any"), 1), ENGINE)
    assert pd.dst_desc == blocked


def test_bad_arguments() -> None:
    a = MemoryDesc((2, 3), "f32")
    with pytest.raises(InvalidArguments, match=r"axis = 2.*0\.\.1"):
        softmax(a, a, 2)
    with pytest.raises(InvalidArguments, match=r"axis = -1.*axis 1"):
        softmax(a, a, -1)
    with pytest.raises(InvalidArguments, match=r"axis = 1\.0"):
        softmax(a, a, 1.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match=r"alg_kind.*softmax_accurate"):
        softmax(a, a, 1, "softmax_exact")
    with pytest.raises(InvalidArguments, match=r"alg_kind.*expected one of softmax_accurate"):
        softmax(a, a, 1, "eltwise_relu")
    with pytest.raises(InvalidArguments, match=r"dst_desc = \(3, 2\)"):
        softmax(a, MemoryDesc((3, 2), "f32"), 1)
    with pytest.raises(InvalidArguments, match="prop_kind"):
        SoftmaxDesc.forward("backward_data", ALGS[0], a, a, 1)
    scalar = MemoryDesc((), "f32")
    with pytest.raises(InvalidArguments, match="axis = 0: the tensor has no dimensions"):
        softmax(scalar, scalar, 0)


def test_the_class_itself_takes_names_too() -> None:
    a = MemoryDesc((2, 3), "f32")
    named = SoftmaxDesc("forward_inference", ALGS[0], a, a, 1)  # type: ignore[arg-type]
    assert named == SoftmaxDesc.forward("forward_inference", ALGS[0], a, a, 1)


@pytest.mark.parametrize(
    ("former", "alg"), [(SoftmaxV1Desc, "softmax_accurate"), (LogSoftmaxDesc, "softmax_log")]
)
def test_former_spellings_are_descriptions_of_today(
    former: type[SoftmaxV1Desc | LogSoftmaxDesc], alg: str
) -> None:
    """Warnings are errors in all tests, so there is none."""
    data, gradient = MemoryDesc(DIMS, "bf16", "nhwc"), MemoryDesc(DIMS, "f32")
    assert former.forward("forward_training", data, 1) == SoftmaxDesc.forward(
        "forward_training", alg, data, data, 1
    )
    assert former.backward(gradient, data, 3) == SoftmaxDesc.backward(
        alg, gradient, gradient, data, 3
    )
    with pytest.raises(InvalidArguments, match="axis"):
        former.forward("forward_inference", data, 4)
