"""Eltwise: one function over any layout, in place, with post-ops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dnnl import (
    Alg,
    Arg,
    EltwiseDesc,
    InvalidArguments,
    MemoryDesc,
    PrimitiveAttr,
    PrimitiveDesc,
    Unimplemented,
    config,
)
from dnnl.reference import eltwise as reference
from dnnl.reference.post_ops import apply_post_ops
from dnnl.types.kinds import RUNTIME_DIM, FormatKind
from tests.check import assert_close, check, logical, random_memory
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
FORWARD = "forward_inference"


def relu(src: MemoryDesc, dst: MemoryDesc, alpha: float = 0.0) -> EltwiseDesc:
    return EltwiseDesc.forward(FORWARD, "eltwise_relu", src, dst, alpha)


@pytest.mark.parametrize("src", LAYOUTS)
@pytest.mark.parametrize("dst", ["nhwc", "nChw16c", "part"])
def test_layouts(src: str, dst: str) -> None:
    memory = source(DIMS, src)
    result = execute(relu(memory.desc, describe(DIMS, dst), 0.1), {Arg.SRC: memory})
    check(result, reference.eltwise("eltwise_relu", logical(memory), 0.1), 1e-7)


@every_pair(
    every_isa,
    pytest.mark.parametrize("alg", ["eltwise_exp", "eltwise_logistic", "eltwise_linear"]),
    pytest.mark.parametrize("layout", ["nChw16c", "nChw8c"]),
)
def test_padding_is_zero_though_the_function_is_not(isa: str, alg: str, layout: str) -> None:
    memory = source(DIMS, layout)
    desc = EltwiseDesc.forward(FORWARD, alg, memory.desc, memory.desc, 2.0, 3.0)
    with config.override("max_cpu_isa", isa):
        result = execute(desc, {Arg.SRC: memory})
    tolerance = reference.tolerance(alg)("f32")
    check(result, reference.eltwise(alg, logical(memory), 2.0, 3.0), tolerance)


@pytest.mark.parametrize("layout", ["nchw", "nChw16c", "gaps"])
def test_in_place(layout: str) -> None:
    memory = source(DIMS, layout)
    want = reference.eltwise("eltwise_relu", logical(memory))
    check(execute(relu(memory.desc, memory.desc), {Arg.SRC: memory}, dst=memory), want, 0.0)


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw16c", "part16"])
def test_any_takes_the_layout_of_the_source_without_its_gaps(layout: str) -> None:
    memory = source(DIMS, layout)
    desc = relu(memory.desc, MemoryDesc(DIMS, "f32", "any"))
    dst = PrimitiveDesc(desc, ENGINE).dst_desc
    assert dst.format_kind is FormatKind.blocked
    assert dst.is_dense(padded=True)
    assert dst.inner_blocks == memory.desc.inner_blocks
    check(execute(desc, {Arg.SRC: memory}), reference.eltwise("eltwise_relu", logical(memory)), 0.0)


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw16c", "part"])
def test_post_ops_of_every_kind_in_order(layout: str) -> None:
    memory, old = source(DIMS, layout), source(DIMS, layout, seed=2)
    channels = source((1, 19, 1, 1), "nhwc", seed=3)
    full = source(DIMS, "nchw", seed=4)
    one = source((1, 1, 1, 1), "nchw", seed=5)
    weights = source((1, 19, 1, 1), "nhwc", seed=6)
    attr = PrimitiveAttr()
    attr.post_ops.append_sum(0.5)
    attr.post_ops.append_binary("binary_mul", channels.desc)
    attr.post_ops.append_eltwise("eltwise_linear", 2.0, 1.0)
    attr.post_ops.append_prelu(1 << 1)
    attr.post_ops.append_binary("binary_add", full.desc)
    attr.post_ops.append_binary("binary_sub", one.desc)
    operands = {
        Arg.post_op(1) | Arg.SRC_1: channels,
        Arg.post_op(3) | Arg.WEIGHTS: weights,
        Arg.post_op(4) | Arg.SRC_1: full,
        Arg.post_op(5) | Arg.SRC_1: one,
    }
    desc = relu(memory.desc, old.desc, 0.25)
    result = execute(desc, {Arg.SRC: memory, **operands}, attr, old)
    values = reference.eltwise("eltwise_relu", logical(memory), 0.25)
    logicals = {arg: logical(operand) for arg, operand in operands.items()}
    check(result, apply_post_ops(values, attr.post_ops, logicals, logical(old)), 1e-6)


def test_32_post_ops() -> None:
    memory = source((3, 50), "ab")
    attr = PrimitiveAttr()
    for number in range(32):
        attr.post_ops.append_eltwise("eltwise_linear", 1.0, float(number))
    want = reference.eltwise("eltwise_relu", logical(memory)) + 496.0
    check(execute(relu(memory.desc, memory.desc), {Arg.SRC: memory}, attr), want, 1e-5)


def test_an_any_operand_takes_the_layout_of_the_destination() -> None:
    memory = source(DIMS, "nChw16c")
    attr = PrimitiveAttr()
    attr.post_ops.append_binary("binary_add", MemoryDesc(DIMS, "f32", "any"))
    pd = PrimitiveDesc(relu(memory.desc, memory.desc), ENGINE, attr)
    assert pd.arg_desc(Arg.post_op(0) | Arg.SRC_1) == memory.desc


@pytest.mark.parametrize(
    ("alg", "function"),
    [
        ("eltwise_relu", torch.relu),
        ("eltwise_gelu_erf", torch.nn.functional.gelu),
        ("eltwise_mish", torch.nn.functional.mish),
        ("eltwise_tanh", torch.tanh),
        ("eltwise_exp", torch.exp),
    ],
)
def test_as_pytorch(alg: str, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    memory = source((3, 1000), "ab")
    desc = EltwiseDesc.forward(FORWARD, alg, memory.desc, memory.desc)
    want = array(function(tensor(memory)))
    assert_close(logical(execute(desc, {Arg.SRC: memory})), want, 2e-6)


@pytest.mark.parametrize("dims", [(0,), (3, 0, 5)])
def test_no_elements(dims: tuple[int, ...]) -> None:
    desc = MemoryDesc(dims, "f32")
    memory = source(dims, "abc"[: len(dims)])
    execute(relu(desc, desc), {Arg.SRC: memory})


def test_a_scalar() -> None:
    memory = source((), "gaps")
    want = reference.eltwise("eltwise_relu", logical(memory), 0.5)
    check(execute(relu(memory.desc, memory.desc, 0.5), {Arg.SRC: memory}), want, 0.0)


def test_bad_arguments() -> None:
    plain = MemoryDesc((2, 3), "f32")
    with pytest.raises(InvalidArguments, match="alg_kind"):
        EltwiseDesc.forward(FORWARD, "binary_add", plain, plain)
    with pytest.raises(InvalidArguments, match=r"alg_kind = 'relu'.*eltwise_relu"):
        EltwiseDesc.forward(FORWARD, "relu", plain, plain)
    with pytest.raises(InvalidArguments, match="prop_kind"):
        EltwiseDesc.forward("backward_data", "eltwise_relu", plain, plain)
    with pytest.raises(InvalidArguments, match=r"beta = 0\.5"):
        EltwiseDesc.forward(FORWARD, Alg.eltwise_clip, plain, plain, 1.0, 0.5)
    with pytest.raises(InvalidArguments, match=r"dst_desc = \(2, 4\)"):
        relu(plain, MemoryDesc((2, 4), "f32"))
    for wrong in ("x", None, float("nan")):
        with pytest.raises(InvalidArguments, match=f"alpha = {wrong!r}: expected a number"):
            relu(plain, plain, wrong)  # type: ignore[arg-type]


def test_the_class_itself_takes_names_too() -> None:
    plain = MemoryDesc((2, 3), "f32")
    named = EltwiseDesc("forward_inference", "eltwise_relu", plain, plain)  # type: ignore[arg-type]
    assert named == EltwiseDesc.forward("forward_inference", Alg.eltwise_relu, plain, plain)
    with pytest.raises(InvalidArguments, match=r"alg_kind = 'relu'.*eltwise_relu"):
        EltwiseDesc("forward_inference", "relu", plain, plain)  # type: ignore[arg-type]


def test_a_runtime_dimension_is_shown_by_name() -> None:
    open_desc = MemoryDesc((RUNTIME_DIM, 3), "f32")
    assert relu(open_desc, open_desc).problem == "*x3"
    with pytest.raises(InvalidArguments, match=r"expected \(RUNTIME_DIM, 3\), the dims of src"):
        relu(open_desc, MemoryDesc((2, 3), "f32"))


def test_what_is_not_supported_is_refused_by_name() -> None:
    half = MemoryDesc((2, 3), "f4_e2m1")
    with pytest.raises(Unimplemented, match="unsupported data type: f4_e2m1"):
        PrimitiveDesc(relu(half, half), ENGINE)
    plain = MemoryDesc((2, 3), "f32")
    attr = PrimitiveAttr()
    attr.post_ops.append_binary("binary_add", MemoryDesc((4, 1), "f32"))
    with pytest.raises(InvalidArguments, match=r"post_ops\[0\].*\(2, 3\)"):
        PrimitiveDesc(relu(plain, plain), ENGINE, attr)


@every_isa
def test_rows_of_padding_behind_the_end_of_src(isa: str) -> None:
    """For whole vectors of padding nothing may be loaded, be it part of a multiply-add."""
    dims = (917, 6)
    src = random_memory(MemoryDesc(dims, "f32", "ba"), ENGINE)
    dst = MemoryDesc(dims, "f32", "bA32a16a")
    desc = EltwiseDesc.forward("forward_inference", "eltwise_linear", src.desc, dst, 2.0, 1.0)
    with config.override("max_cpu_isa", isa):
        result = execute(desc, {Arg.SRC: src})
    check(result, 2 * logical(src) + 1, 1e-6)
