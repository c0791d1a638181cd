"""Python functions as the operation itself: forward and backward, every float and layout."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

import dnnl
import dnnl.math as dm
from dnnl import (
    Arg,
    EltwiseDesc,
    InvalidArguments,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    Unimplemented,
    config,
)
from dnnl.primitives.desc import Desc
from dnnl.reference.eltwise import SPECIFICATION
from dnnl.reference.rule import compare
from dnnl.types.dtype import DataType
from dnnl.types.scalar import Scalar, traced
from tests.check import assert_padding_zero, check, logical, memory_of
from tests.primitives.harness import (
    ENGINE,
    LAYOUTS,
    array,
    describe,
    every_isa,
    execute_all,
    source,
    tensor,
    typed_source,
)

DIMS = (2, 19, 5, 7)
FLOATS = ["f32", "bf16", "f16", "f8_e5m2", "f8_e4m3", "f64"]
Function = Callable[..., Any]


def gate(x: Scalar) -> Any:
    """Something of most kinds of steps, with a corner at 0."""
    smooth = x * dm.sigmoid(1.702 * x) - 0.25 * dm.tanh(x)
    return dm.where(x > 0, smooth + dm.log(1 + x * x), dm.exp(x) * dm.sqrt(abs(x) + 0.5))


def forward(src: Memory, dst: MemoryDesc, fn: Function = gate) -> Memory:
    """dst, judged by the reference."""
    desc = EltwiseDesc.forward("forward_training", "eltwise_function", src.desc, dst, fn=fn)
    return judged(desc, {Arg.SRC: src})


def backward(src: Memory, gradient: Memory, diff_src: MemoryDesc, fn: Function = gate) -> Memory:
    """diff_src, judged by the reference."""
    desc = EltwiseDesc.backward("eltwise_function", diff_src, gradient.desc, src.desc, fn=fn)
    return judged(desc, {Arg.SRC: src, Arg.DIFF_DST: gradient})


def judged(desc: Desc, args: dict[int, Memory], outputs: dict[int, Memory] | None = None) -> Memory:
    """The output between guard pages, on one thread and two, right by the operation's rule."""
    pd = PrimitiveDesc(desc, ENGINE)
    values = {argument: logical(memory) for argument, memory in args.items()}
    ((argument, made),) = execute_all(pd, args, outputs).items()
    types = [memory.desc.data_type for memory in (*args.values(), made)]
    core = DataType.f64 if DataType.f64 in types else DataType.f32
    (want,) = SPECIFICATION.compute(pd.desc, values).values()
    rule = SPECIFICATION.rule(pd.desc, argument, values)
    verdict = compare("result", logical(made), want, made.desc.data_type, core, rule)
    assert not verdict.errors, verdict.lines
    assert_padding_zero(made)
    return made


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    src = source(DIMS, layout)
    forward(src, src.desc)
    backward(src, source(DIMS, layout, 2), src.desc)


def test_three_layouts_of_which_one_is_open() -> None:
    src, gradient = source(DIMS, "nChw16c"), source(DIMS, "nhwc", 2)
    forward(src, describe(DIMS, "nhwc"))
    backward(src, gradient, describe(DIMS, "gaps"))
    assert backward(src, gradient, MemoryDesc(DIMS, "f32", "any")).desc.matches_tag("nChw16c")


@pytest.mark.parametrize(("src", "dst"), [*zip(FLOATS, FLOATS, strict=True), ("f16", "f64")])
def test_types(src: str, dst: str) -> None:
    memory = typed_source(DIMS, "nChw16c", src)
    forward(memory, describe(DIMS, "nhwc").with_data_type(dst))
    gradient = typed_source(DIMS, "nhwc", dst, 2)
    backward(memory, gradient, describe(DIMS, "nchw").with_data_type(src))


@every_isa
@pytest.mark.parametrize("data_type", ["f32", "f64"])
def test_instruction_sets(data_type: str, isa: str) -> None:
    memory = typed_source(DIMS, "nChw16c", data_type)
    with config.override("max_cpu_isa", isa):
        forward(memory, describe(DIMS, "nhwc").with_data_type(data_type))


@pytest.mark.parametrize("data_type", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("layout", ["nchw", "nChw16c", "gaps"])
def test_in_place(layout: str, data_type: str) -> None:
    src, gradient = (typed_source(DIMS, layout, data_type, seed) for seed in (1, 2))
    desc = EltwiseDesc.backward("eltwise_function", gradient.desc, gradient.desc, src.desc, fn=gate)
    judged(desc, {Arg.SRC: src, Arg.DIFF_DST: gradient}, {Arg.DIFF_SRC: gradient})
    desc = EltwiseDesc.forward("forward_inference", "eltwise_function", src.desc, src.desc, fn=gate)
    judged(desc, {Arg.SRC: src}, {Arg.DST: src})


#: Each function of traced scalars, and the same of PyTorch, which differentiates it by itself.
CASES: dict[str, tuple[Function, Function]] = {
    "abs": (abs, torch.abs), "neg": (lambda x: -x, torch.neg),
    "add": (lambda x: 2 + x + x, lambda x: 2 + 2 * x), "sub": (lambda x: 1 - x, lambda x: 1 - x),
    "mul": (lambda x: x * x * x, lambda x: x**3), "div": (lambda x: 1 / x, torch.reciprocal),
    "quotient": (lambda x: x / (1 + x * x), lambda x: x / (1 + x * x)),
    "pow": (lambda x: abs(x) ** 2.5, lambda x: x.abs() ** 2.5),
    "pow of a constant": (lambda x: 2.0**x, torch.exp2),
    "pow of both": (lambda x: abs(x) ** x, lambda x: x.abs() ** x),
    "sqrt": (lambda x: dm.sqrt(abs(x)), lambda x: x.abs().sqrt()),
    "rsqrt": (lambda x: dm.rsqrt(abs(x)), lambda x: x.abs().rsqrt()),
    "exp": (dm.exp, torch.exp), "log": (lambda x: dm.log(abs(x)), lambda x: x.abs().log()),
    "tanh": (dm.tanh, torch.tanh), "erf": (dm.erf, torch.erf),
    "sigmoid": (dm.sigmoid, torch.sigmoid), "softplus": (dm.softplus, F.softplus),
    "mish": (lambda x: x * dm.tanh(dm.softplus(x)), F.mish),
    "gelu": (lambda x: 0.5 * x * (1 + dm.erf(x / 2**0.5)), F.gelu),
    "relu": (dm.relu, F.relu),
    "minimum": (lambda x: dm.minimum(x, x * x), lambda x: torch.minimum(x, x * x)),
    "maximum": (lambda x: dm.maximum(x, 0.5), lambda x: x.clamp(min=0.5)),
    "floor": (lambda x: x * dm.floor(x), lambda x: x * x.floor()),
    "ceil": (lambda x: x * dm.ceil(x), lambda x: x * x.ceil()),
    "round": (lambda x: x * round(x), lambda x: x * x.round()),
    "where": (lambda x: dm.where((x < 0) & ~(x < -1), x * x, dm.exp(x)),
        lambda x: torch.where((x < 0) & (x >= -1), x * x, x.exp())),
    "constant": (lambda x: 3.0, lambda x: 0 * x + 3),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch_has_it(name: str) -> None:
    fn, same = CASES[name]
    values = np.random.default_rng(3).uniform(-4, 4, (7, 35))
    values[0] /= 64
    src = memory_of(values, MemoryDesc(values.shape, "f64"), ENGINE)
    gradient = typed_source(values.shape, "ab", "f64", 2)
    x = tensor(src).requires_grad_()
    result = same(x)
    result.backward(tensor(gradient))
    assert x.grad is not None
    pairs = (
        (forward(src, src.desc, fn), result.detach()),
        (backward(src, gradient, src.desc, fn), x.grad),
    )
    for made, wanted in pairs:
        np.testing.assert_allclose(logical(made), array(wanted), rtol=1e-13, atol=1e-13)


def test_as_differences_have_it() -> None:
    values = np.random.default_rng(4).uniform(-3, 3, (5, 40))
    desc, step = MemoryDesc(values.shape, "f64"), 2.0**-17
    above, below = (
        logical(forward(memory_of(values + shift, desc, ENGINE), desc)) for shift in (step, -step)
    )
    ones = memory_of(np.ones_like(values), desc, ENGINE)
    slope = logical(backward(memory_of(values, desc, ENGINE), ones, desc))
    np.testing.assert_allclose(slope, (above - below) / (2 * step), rtol=1e-8, atol=1e-8)


def test_post_ops_follow() -> None:
    src = source((3, 35), "ab")
    attr = PrimitiveAttr()
    attr.post_ops.append_eltwise("eltwise_linear", 2.0, 1.0)
    desc = EltwiseDesc.forward(
        "forward_inference", "eltwise_function", src.desc, src.desc, fn=lambda x: x * x
    )
    (made,) = execute_all(PrimitiveDesc(desc, ENGINE, attr), {Arg.SRC: src}).values()
    check(made, 2 * logical(src) ** 2 + 1, 1e-6)


def test_descriptions_that_compute_the_same_are_equal() -> None:
    md = MemoryDesc((3, 5), "f32")
    made = [
        EltwiseDesc.forward("forward_inference", "eltwise_function", md, md, fn=fn)
        for fn in (lambda x: 2 * x + 1, lambda value: 2.0 * value + 1.0, lambda x: 2 * x - 1)
    ]
    assert made[0] == made[1] != made[2]
    assert hash(made[0]) == hash(made[1])
    assert pickle.loads(pickle.dumps(made[0])) == made[0]
    prims = [Primitive(PrimitiveDesc(desc, ENGINE)) for desc in made]
    assert prims[0].asm() == prims[1].asm() != prims[2].asm()


def test_verbose_lines_have_the_name() -> None:
    md = MemoryDesc((3, 5), "f32")
    desc = EltwiseDesc.forward("forward_inference", "eltwise_function", md, md, fn=gate)
    assert desc.auxiliary == "alg:eltwise_function alpha:0 beta:0 function:gate"
    assert EltwiseDesc.forward("forward_inference", "eltwise_relu", md, md).auxiliary == (
        "alg:eltwise_relu alpha:0 beta:0"
    )


def test_what_is_refused() -> None:
    md = MemoryDesc((3, 5), "f32")

    def described(alg: str, **more: Any) -> EltwiseDesc:
        return EltwiseDesc.forward("forward_inference", alg, md, md, **more)

    with pytest.raises(InvalidArguments, match="fn = None: eltwise_function takes one"):
        described("eltwise_function")
    with pytest.raises(InvalidArguments, match=r"fn = 'gate': .*the other algorithms take none"):
        described("eltwise_relu", fn=gate)
    with pytest.raises(InvalidArguments, match=r"alpha = 1.0: .*fn can hold them"):
        described("eltwise_function", fn=gate, alpha=1.0)
    with pytest.raises(InvalidArguments, match="fn = 3: expected a function"):
        described("eltwise_function", fn=3)
    with pytest.raises(InvalidArguments, match=r"expected a function of 1 value, not of 2"):
        described("eltwise_function", fn=traced(lambda x, y: x + y, 2))
    with pytest.raises(InvalidArguments, match=r"cannot be traced.*where"):
        described("eltwise_function", fn=lambda x: x if x > 0 else 0.0)
    with pytest.raises(InvalidArguments, match="append_function takes a Python function"):
        PrimitiveAttr().post_ops.append_eltwise("eltwise_function")


def test_functions_that_f64_has_not() -> None:
    """Forward it is the function that counts, and backward its derivative."""
    kinds = [MemoryDesc((3, 5), kind) for kind in ("f64", "f32")]
    f32 = kinds[1]
    for fn, missing in ((dm.sin, "cos"), (dm.expm1, ""), (lambda x: x * dm.log1p(x), "log1p")):
        for md in kinds:
            given = EltwiseDesc.forward(
                "forward_inference", "eltwise_function", md, kinds[1], fn=fn
            )
            slope = EltwiseDesc.backward("eltwise_function", md, f32, f32, fn=fn)
            for desc, refused in ((given, True), (slope, bool(missing))):
                if refused and md is kinds[0]:
                    with pytest.raises(Unimplemented, match="of f64; all tensors of f32 have it"):
                        PrimitiveDesc(desc, ENGINE)
                else:
                    PrimitiveDesc(desc, ENGINE)


@pytest.mark.parametrize("kind", ["eltwise", "binary", "softmax", "reduction", "reorder"])
def test_post_ops_that_f64_has_not(kind: str) -> None:
    """They compute in f64 where src is, though dst is f32."""
    src, dst = MemoryDesc((3, 5), "f64"), MemoryDesc((3, 5), "f32")
    inference = "forward_inference"
    made: dict[str, Callable[[], Desc]] = {
        "eltwise": lambda: EltwiseDesc.forward(inference, "eltwise_relu", src, dst),
        "binary": lambda: dnnl.BinaryDesc("binary_add", src, src, dst),
        "softmax": lambda: dnnl.SoftmaxDesc.forward(inference, "softmax_accurate", src, dst, 1),
        "reduction": lambda: dnnl.ReductionDesc("reduction_sum", src, MemoryDesc((3, 1), "f32")),
        "reorder": lambda: dnnl.ReorderDesc(src, dst),
    }
    attr = PrimitiveAttr()
    attr.post_ops.append_function(dm.expm1)
    with pytest.raises(Unimplemented, match="post-op 0: expm1 of f64; tensors of f32 have it"):
        PrimitiveDesc(made[kind](), ENGINE, attr)
