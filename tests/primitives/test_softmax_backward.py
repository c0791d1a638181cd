"""The gradient of softmax: any axis, layout and float, in place and after a forward pass."""

from __future__ import annotations

import pytest
import torch

from dnnl import Arg, InvalidArguments, Memory, MemoryDesc, PrimitiveDesc, SoftmaxDesc, config
from dnnl.reference import softmax as reference
from tests.check import assert_close, check, logical
from tests.pairs import every_pair
from tests.primitives.harness import (
    ENGINE,
    LAYOUTS,
    array,
    describe,
    every_isa,
    execute,
    execute_all,
    source,
    tensor,
    typed_source,
)

DIMS = (2, 19, 5, 7)
ALGS = ["softmax_accurate", "softmax_log"]


def result_of(gradient: Memory, alg: str, axis: int, layout: str, data_type: str = "f32") -> Memory:
    """What a forward pass gives."""
    src = source(gradient.desc.dims, layout, 7)
    dst = src.desc.with_data_type(data_type)
    return execute(SoftmaxDesc.forward("forward_training", alg, src.desc, dst, axis), {1: src})


def run(
    gradient: Memory, result: Memory, diff_src: MemoryDesc, axis: int, alg: str = ALGS[0]
) -> None:
    desc = SoftmaxDesc.backward(alg, diff_src, gradient.desc, result.desc, axis)
    args: dict[int, Memory] = {Arg.DST: result, Arg.DIFF_DST: gradient}
    (made,) = execute_all(PrimitiveDesc(desc, ENGINE), args).values()
    want = reference.softmax_backward(logical(result), logical(gradient), axis, alg)
    length = gradient.desc.dims[axis]
    check(made, want, reference.BACKWARD_TOLERANCE(diff_src.data_type, length))


@every_pair(alg=ALGS, axis=[0, 1, 3], layout=LAYOUTS)
def test_axes_of_layouts(layout: str, axis: int, alg: str) -> None:
    gradient = source(DIMS, layout)
    run(gradient, result_of(gradient, alg, axis, layout), gradient.desc, axis, alg)


@pytest.mark.parametrize(
    ("diff_src", "diff_dst", "dst"),
    [("nchw", "nhwc", "nChw16c"), ("nChw8c", "nchw", "part"), ("gaps", "nhwc", "nhwc")],
)
@pytest.mark.parametrize("axis", [1, 2])
def test_three_layouts(diff_src: str, diff_dst: str, dst: str, axis: int) -> None:
    gradient = source(DIMS, diff_dst)
    run(gradient, result_of(gradient, ALGS[0], axis, dst), describe(DIMS, diff_src), axis)


@every_pair(
    every_isa,
    pytest.mark.parametrize("alg", ALGS),
    pytest.mark.parametrize(
        ("diff_src", "diff_dst", "dst"), [("bf16", "bf16", "bf16"), ("f16", "f32", "bf16")]
    ),
    pytest.mark.parametrize(("layout", "axis"), [("nchw", 3), ("nhwc", 1), ("nChw16c", 1)]),
)
def test_types(
    layout: str, axis: int, diff_src: str, diff_dst: str, dst: str, alg: str, isa: str
) -> None:
    gradient = typed_source(DIMS, layout, diff_dst)
    with config.override("max_cpu_isa", isa):
        result = result_of(gradient, alg, axis, layout, dst)
        run(gradient, result, gradient.desc.with_data_type(diff_src), axis, alg)


@pytest.mark.parametrize("alg", ALGS)
@pytest.mark.parametrize("layout", ["nchw", "nChw16c"])
def test_in_place(layout: str, alg: str) -> None:
    gradient = source(DIMS, layout)
    result = result_of(gradient, alg, 1, layout)
    want = reference.softmax_backward(logical(result), logical(gradient), 1, alg)
    desc = SoftmaxDesc.backward(alg, gradient.desc, gradient.desc, result.desc, 1)
    args: dict[int, Memory] = {Arg.DST: result, Arg.DIFF_DST: gradient}
    made = execute_all(PrimitiveDesc(desc, ENGINE), args, {Arg.DIFF_SRC: gradient})
    check(made[Arg.DIFF_SRC], want, reference.BACKWARD_TOLERANCE("f32", 19))


@pytest.mark.parametrize("alg", ALGS)
def test_as_pytorch(alg: str) -> None:
    src, gradient = source((40, 100), "ab"), source((40, 100), "ab", 2)
    forward = SoftmaxDesc.forward("forward_training", alg, src.desc, src.desc, 1)
    result = execute(forward, {Arg.SRC: src})
    desc = SoftmaxDesc.backward(alg, src.desc, src.desc, src.desc, 1)
    args: dict[int, Memory] = {Arg.DST: result, Arg.DIFF_DST: gradient}
    (made,) = execute_all(PrimitiveDesc(desc, ENGINE), args).values()
    leaf = tensor(src).requires_grad_()
    function = torch.softmax if alg == ALGS[0] else torch.log_softmax
    function(leaf, 1).backward(tensor(gradient))  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    assert_close(logical(made), array(leaf.grad), reference.BACKWARD_TOLERANCE("f32", 100))


def test_any_follows_the_hint() -> None:
    blocked, open_desc = describe(DIMS, "nChw16c"), MemoryDesc(DIMS, "f32", "any")
    forward = SoftmaxDesc.forward("forward_training", ALGS[0], blocked, open_desc, 1)
    hint = PrimitiveDesc(forward, ENGINE)
    desc = SoftmaxDesc.backward(ALGS[0], open_desc, open_desc, hint.dst_desc, 1)
    pd = PrimitiveDesc(desc, ENGINE, hint=hint)
    assert pd.diff_src_desc == pd.diff_dst_desc == blocked
    assert PrimitiveDesc(desc, ENGINE).diff_src_desc == blocked


def test_bad_arguments() -> None:
    a, other = MemoryDesc((2, 3), "f32"), MemoryDesc((3, 2), "f32")
    with pytest.raises(InvalidArguments, match=r"diff_src_desc = \(3, 2\).*the dims of dst"):
        SoftmaxDesc.backward(ALGS[0], other, a, a, 1)
    with pytest.raises(InvalidArguments, match=r"diff_dst_desc = \(3, 2\)"):
        SoftmaxDesc.backward(ALGS[0], a, other, a, 1)
    with pytest.raises(InvalidArguments, match=r"axis = 2"):
        SoftmaxDesc.backward(ALGS[0], a, a, a, 2)
