"""Python functions as post-ops: on every primitive, layout, type and instruction set."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dnnl.math as dm
from dnnl import (
    Arg,
    BatchNormalizationDesc,
    BinaryDesc,
    EltwiseDesc,
    InvalidArguments,
    LayerNormalizationDesc,
    MatmulDesc,
    Memory,
    MemoryDesc,
    PoolingDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    SoftmaxDesc,
    config,
)
from dnnl.primitives.desc import Desc
from dnnl.reference.expression import evaluate
from dnnl.types.scalar import Scalar, trace
from tests.check import assert_close, check, logical, memory_of, random_memory
from tests.primitives.harness import ENGINE, describe, every_isa, execute, source
from tests.primitives.products import Window, convolution_desc, inputs

DIMS = (2, 19, 5, 7)
FORWARD = "forward_inference"


def gated(value: Scalar, scale: Scalar, other: Scalar) -> Any:
    """Something of each kind of step."""
    return dm.where(value > other, value * dm.sigmoid(1.702 * value) + other, scale - value)


def with_gate(ndims: int, scale: MemoryDesc, other: MemoryDesc) -> PrimitiveAttr:
    attr = PrimitiveAttr()
    attr.post_ops.append_function(gated, scale, other)
    assert len(scale.dims) == len(other.dims) == ndims
    return attr


def copy(src: MemoryDesc, dst: MemoryDesc) -> EltwiseDesc:
    return EltwiseDesc.forward(FORWARD, "eltwise_linear", src, dst, 1.0, 0.0)


@pytest.mark.parametrize("src", ["nchw", "nChw16c", "part"])
@pytest.mark.parametrize("dst", ["nchw", "nhwc", "nChw8c", "gaps"])
def test_layouts(src: str, dst: str) -> None:
    memory, scale = source(DIMS, src), source((1, 19, 1, 1), "nchw", seed=2)
    other = source(DIMS, "nhwc", seed=3)
    attr = with_gate(4, scale.desc, other.desc)
    first = Arg.post_op(0)
    args = {Arg.SRC: memory, first | Arg.SRC_1: scale, first | (Arg.SRC_1 + 1): other}
    result = execute(copy(memory.desc, describe(DIMS, dst)), args, attr)
    check(result, evaluate(trace(gated, 3), [logical(m) for m in (memory, scale, other)]), 1e-6)


@pytest.mark.parametrize("kind", ["bf16", "f16", "s8", "u8", "s32", "f8_e4m3"])
def test_operands_of_other_types(kind: str) -> None:
    memory = source((3, 35), "ab")
    scale = random_memory(MemoryDesc((1, 35), kind), ENGINE, 2)
    attr = with_gate(2, scale.desc, scale.desc)
    first = Arg.post_op(0)
    args = {Arg.SRC: memory, first | Arg.SRC_1: scale, first | (Arg.SRC_1 + 1): scale}
    result = execute(copy(memory.desc, memory.desc), args, attr)
    check(
        result, evaluate(trace(gated, 3), [logical(memory), logical(scale), logical(scale)]), 1e-6
    )


DATA = describe(DIMS, "nhwc")
ROWS = MemoryDesc((6, 35), "f32")
OTHERS: dict[str, Desc] = {
    "eltwise": EltwiseDesc.forward(FORWARD, "eltwise_tanh", DATA, DATA),
    "binary": BinaryDesc("binary_mul", DATA, DATA, DATA),
    "softmax": SoftmaxDesc.forward(FORWARD, "softmax_accurate", ROWS, ROWS, 1),
    "softmax along rows": SoftmaxDesc.forward(FORWARD, "softmax_accurate", ROWS, ROWS, 0),
    "layer normalization": LayerNormalizationDesc.forward(FORWARD, ROWS, ROWS, 1e-5, "none"),
    "batch normalization": BatchNormalizationDesc.forward(FORWARD, DATA, DATA, 1e-5, "none"),
    "pooling": PoolingDesc.forward(
        FORWARD,
        "pooling_max",
        DATA,
        describe((2, 19, 3, 4), "nhwc"),
        (2, 2),
        (3, 3),
        (1, 1),
        (1, 1),
    ),
    "matmul": MatmulDesc(
        MemoryDesc((5, 70), "f32"), MemoryDesc((70, 35), "f32"), MemoryDesc((5, 35), "f32")
    ),
    "matmul of many rows": MatmulDesc(
        MemoryDesc((40, 70), "bf16"), MemoryDesc((70, 35), "bf16"), MemoryDesc((40, 35), "f32")
    ),
    "matmul by columns": MatmulDesc(
        MemoryDesc((5, 70), "f32"), MemoryDesc((70, 35), "f32"), MemoryDesc((5, 35), "f32", "ba")
    ),
    "pointwise convolution": convolution_desc(Window((6, 7), (1, 1)), 2, (21, 5)),
    "convolution": convolution_desc(Window((6, 7), (3, 3), padding_l=(1, 1)), 2, (21, 5)),
    "depthwise": convolution_desc(Window((6, 7), (3, 3), padding_l=(1, 1)), 2, (21, 1, 1)),
}


@every_isa
@pytest.mark.parametrize("name", OTHERS)
def test_every_primitive(name: str, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        plain = PrimitiveDesc(OTHERS[name], ENGINE)
        args = inputs(plain, "normal", 1)
        want = execute(plain.desc, args)
        dims = plain.dst_desc.dims
        one = random_memory(MemoryDesc([1] * len(dims), "f32"), ENGINE, 2)
        full = random_memory(MemoryDesc(dims, "f32"), ENGINE, 3)
        attr = with_gate(len(dims), one.desc, full.desc)
        first = Arg.post_op(0)
        result = execute(
            plain.desc, {**args, first | Arg.SRC_1: one, first | (Arg.SRC_1 + 1): full}, attr
        )
    values = evaluate(trace(gated, 3), [logical(memory) for memory in (want, one, full)])
    scale = max(1.0, float(np.abs(logical(want)).max()))
    assert_close(logical(result) / scale, values / scale, 2e-6)


SINGLE: dict[str, tuple[Callable[..., Any], float]] = {
    "add": (lambda x, y: x + y, 1e-7), "sub": (lambda x, y: x - y, 1e-7),
    "mul": (lambda x, y: x * y, 1e-7), "div": (lambda x, y: x / y, 1e-7),
    "fused": (lambda x, y: x * x + abs(y), 2e-7), "fused sub": (lambda x, y: x * x - -abs(y), 2e-7),
    "fused behind": (lambda x, y: -abs(y) - x * x, 2e-7),
    "minimum": (dm.minimum, 0), "maximum": (dm.maximum, 0), "pow": (lambda x, y: x**y, 1e-6),
    "neg": (lambda x, y: -x, 0), "abs": (lambda x, y: abs(x), 0),
    "floor": (lambda x, y: dm.floor(x), 0), "ceil": (lambda x, y: dm.ceil(x), 0),
    "round": (lambda x, y: round(x), 0),
    "sqrt": (lambda x, y: dm.sqrt(x), 1e-7), "rsqrt": (lambda x, y: dm.rsqrt(x), 2e-7),
    "exp": (lambda x, y: dm.exp(x), 3e-7), "log": (lambda x, y: dm.log(x), 3e-7),
    "expm1": (lambda x, y: dm.expm1(x), 3e-7), "log1p": (lambda x, y: dm.log1p(x), 3e-7),
    "sin": (lambda x, y: dm.sin(x), 3e-7), "cos": (lambda x, y: dm.cos(x), 3e-7),
    "tanh": (lambda x, y: dm.tanh(x), 3e-7), "erf": (lambda x, y: dm.erf(x), 3e-7),
    "sigmoid": (lambda x, y: dm.sigmoid(x), 5e-7), "softplus": (lambda x, y: dm.softplus(x), 5e-7),
    "tanh of softplus": (lambda x, y: dm.tanh(dm.softplus(x)), 8e-7),
    "lt": (lambda x, y: dm.where(x < y, 1, 0), 0), "le": (lambda x, y: dm.where(x <= y, 1, 0), 0),
    "gt": (lambda x, y: dm.where(x > y, 1, 0), 0), "ge": (lambda x, y: dm.where(x >= y, 1, 0), 0),
    "eq": (lambda x, y: dm.where(x == y, 1, 0), 0), "ne": (lambda x, y: dm.where(x != y, 1, 0), 0),
    "logic": (lambda x, y: dm.where((x < 0) & ~(y > 1) | (x > 2), 1, 0), 0),
}  # fmt: skip
SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    2.5,
    1e-30,
    1e30,
    math.inf,
    -math.inf,
    math.nan,
)


@every_isa
@pytest.mark.parametrize("name", SINGLE)
def test_each_function_with_special_values(name: str, isa: str) -> None:
    fn, tolerance = SINGLE[name]
    rng = np.random.default_rng(5)
    pairs = [(a, b) for a in SPECIAL for b in SPECIAL]
    x, y = np.concatenate([np.array(pairs), rng.uniform(-8, 8, (400, 2))]).astype(np.float32).T
    desc = MemoryDesc(x.shape, "f32")
    attr = PrimitiveAttr()
    attr.post_ops.append_function(fn, desc)
    args = {
        Arg.SRC: memory_of(x, desc, ENGINE),
        Arg.post_op(0) | Arg.SRC_1: memory_of(y, desc, ENGINE),
    }
    with config.override("max_cpu_isa", isa):
        result = logical(execute(copy(desc, desc), args, attr))
    with np.errstate(all="ignore"):
        want = evaluate(trace(fn, 2), [x, y]).astype(np.float32).astype(np.float64)
        if tolerance == 0:
            np.testing.assert_array_equal(result, want)
        np.testing.assert_allclose(result, want, rtol=tolerance, atol=1e-37)
    if name in ("floor", "ceil", "round", "neg"):
        np.testing.assert_array_equal(
            np.signbit(result), np.signbit(want) | np.isnan(want) & np.signbit(result)
        )


def test_functions_that_compute_the_same_share_a_kernel() -> None:
    desc = MemoryDesc((3, 5), "f32")
    made = []
    for fn in (lambda x: x * 2 + 1, lambda value: value * 2.0 + 1.0):
        attr = PrimitiveAttr()
        attr.post_ops.append_function(fn)
        made.append(PrimitiveDesc(copy(desc, desc), ENGINE, attr))
    assert made[0].key == made[1].key
    assert Primitive(made[0]).asm() == Primitive(made[1]).asm()


def test_a_product_that_is_added_is_one_instruction() -> None:
    desc = MemoryDesc((64,), "f32")
    attr, built_in = PrimitiveAttr(), PrimitiveAttr()
    attr.post_ops.append_function(lambda x: 2.5 * x + 1.5)
    built_in.post_ops.append_eltwise("eltwise_linear", 2.5, 1.5)
    texts = [
        Primitive(PrimitiveDesc(copy(desc, desc), ENGINE, given)).asm().count("fmadd")
        for given in (attr, built_in)
    ]
    assert texts[0] == texts[1]


def test_operands_that_do_not_fit() -> None:
    desc = MemoryDesc((3, 5), "f32")
    attr = with_gate(2, MemoryDesc((1, 5), "f32"), MemoryDesc((1, 4), "f32"))
    with pytest.raises(InvalidArguments, match=r"post_ops\[0\]\.operand_descs\[1\] = \(1, 4\)"):
        PrimitiveDesc(copy(desc, desc), ENGINE, attr)


def test_operands_may_be_any() -> None:
    desc = describe(DIMS, "nChw16c")
    attr = with_gate(4, MemoryDesc((1, 19, 1, 1), "f32", "any"), MemoryDesc(DIMS, "f32", "any"))
    pd = PrimitiveDesc(copy(desc, desc), ENGINE, attr)
    found = pd.arg_desc(Arg.post_op(0) | (Arg.SRC_1 + 1))
    assert found.matches_tag("nChw16c")
    args: dict[int, Memory] = {Arg.SRC: random_memory(desc, ENGINE, 1)}
    for number in (0, 1):
        argument = Arg.post_op(0) | (Arg.SRC_1 + number)
        args[argument] = random_memory(pd.arg_desc(argument), ENGINE, 2 + number)
    values = [logical(memory) for memory in args.values()]
    check(execute(copy(desc, desc), args, attr), evaluate(trace(gated, 3), values), 1e-6)
