"""Prelu and its gradients: weights shared along any dimensions, in any layouts and types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dnnl import (
    Arg,
    InvalidArguments,
    Memory,
    MemoryDesc,
    PreluDesc,
    PrimitiveDesc,
    Unimplemented,
    config,
)
from dnnl.reference import prelu as reference
from tests.check import assert_close, check, logical, memory_of, random_memory
from tests.pairs import every_pair
from tests.primitives.harness import (
    ENGINE,
    LAYOUTS,
    array,
    describe,
    every_isa,
    every_rounding_isa,
    execute,
    execute_all,
    source,
    tensor,
    typed_source,
)

DIMS = (2, 19, 5, 7)
LARGE = (8, 35, 24, 27)
SHARED = [(1, 0, 1, 1), (1, 1, 1, 1), (0, 0, 0, 0), (0, 1, 1, 0), (0, 0, 1, 1), (1, 1, 0, 0)]


def weights_of(dims: tuple[int, ...], shared: tuple[int, ...], layout: str = "any") -> MemoryDesc:
    own = [1 if one else extent for one, extent in zip(shared, dims, strict=True)]
    return MemoryDesc(own, "f32", layout)


def run(src: Memory, weights: MemoryDesc, dst: MemoryDesc) -> dict[int, Memory]:
    """Forward and backward, each against the reference; the gradients have the types of dst and of
    the weights."""
    forward = PreluDesc.forward("forward_training", src.desc, weights, dst)
    pd = PrimitiveDesc(forward, ENGINE)
    factors = random_memory(pd.weights_desc, ENGINE, 2)
    data, by = logical(src), logical(factors)
    args: dict[int, Memory] = {Arg.SRC: src, Arg.WEIGHTS: factors}
    made = execute_all(pd, args)
    check(made[Arg.DST], reference.prelu(data, by), reference.TOLERANCE(dst.data_type))
    args[Arg.DIFF_DST] = random_memory(pd.dst_desc, ENGINE, 3)
    open_weights = MemoryDesc(weights.dims, weights.data_type, "any")
    backward = PreluDesc.backward(src.desc, pd.weights_desc, dst, open_weights, pd.dst_desc)
    made = execute_all(PrimitiveDesc(backward, ENGINE, hint=pd), args)
    gradients = reference.prelu_backward(data, by, logical(args[Arg.DIFF_DST]))
    check(made[Arg.DIFF_SRC], gradients[0], reference.DIFF_SRC_TOLERANCE(dst.data_type))
    terms = data.size // max(1, by.size)
    bound = reference.DIFF_WEIGHTS_TOLERANCE(weights.data_type, terms)
    check(made[Arg.DIFF_WEIGHTS], gradients[1], bound)
    return made


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shared", SHARED, ids=str)
def test_layouts(shared: tuple[int, ...], layout: str) -> None:
    memory = source(DIMS, layout)
    run(memory, weights_of(DIMS, shared), memory.desc)


@every_pair(
    every_isa,
    pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw16c"]),
    pytest.mark.parametrize("shared", [SHARED[0], SHARED[1], SHARED[3]], ids=str),
)
def test_sums_that_are_shared_out(shared: tuple[int, ...], layout: str, isa: str) -> None:
    """They come in parts, behind each of which diff_src is padded where it has padding."""
    memory = source(LARGE, layout)
    with config.override("max_cpu_isa", isa):
        run(memory, weights_of(LARGE, shared), memory.desc)


@pytest.mark.parametrize(
    ("src", "weights", "dst"),
    [
        ("nchw", "abcd", "nhwc"),
        ("nChw16c", "acdb", "nchw"),
        ("nhwc", "aBcd16b", "nChw8c"),
        ("gaps", "ABcd8a8b", "part"),
        ("part", "dcba", "ABcd4b16a4b"),
    ],
)
@pytest.mark.parametrize("shared", SHARED[:4], ids=str)
def test_each_tensor_in_its_own_layout(
    shared: tuple[int, ...], src: str, weights: str, dst: str
) -> None:
    memory = source(DIMS, src)
    run(memory, weights_of(DIMS, shared, weights), describe(DIMS, dst))


@every_rounding_isa
@pytest.mark.parametrize(
    ("layout", "types"),
    [
        ("nchw", ("bf16", "f32", "bf16")),
        ("nhwc", ("f16", "bf16", "f32")),
        ("nChw16c", ("f32", "f16", "f16")),
        ("nhwc", ("s8", "f32", "bf16")),
        ("nchw", ("u8", "s8", "s8")),
        ("nhwc", ("s32", "s8", "s32")),
    ],
    ids=str,
)
def test_types(layout: str, types: tuple[str, str, str], isa: str) -> None:
    dims = (2, 40, 3, 5)
    memory = typed_source(dims, layout, types[0])
    weights = weights_of(dims, SHARED[0]).with_data_type(types[1])
    with config.override("max_cpu_isa", isa):
        run(memory, weights, memory.desc.with_data_type(types[2]))


@pytest.mark.parametrize(
    ("dims", "tag"),
    [
        ((1,), "a"),
        ((77,), "a"),
        ((3, 40), "ab"),
        ((33, 5), "ba"),
        ((2, 17, 33), "acb"),
        ((2, 20, 4, 3, 6), "acdeb"),
        ((2, 3, 4, 5, 2, 3), "abcdef"),
        ((1, 64, 1, 1), "aBcd16b"),
    ],
)
@pytest.mark.parametrize("shared", [0, 1], ids=["own", "one"])
def test_shapes(dims: tuple[int, ...], tag: str, shared: int) -> None:
    memory = source(dims, tag)
    run(memory, weights_of(dims, (shared,) * len(dims)), memory.desc)


@pytest.mark.parametrize("dims", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_no_elements(dims: tuple[int, ...]) -> None:
    """A weight that no element has does not change."""
    memory = source(dims, "abc")
    made = run(memory, weights_of(dims, (1, 0, 1), "abc"), memory.desc)
    assert not logical(made[Arg.DIFF_WEIGHTS]).any()


def test_elements_that_are_no_numbers() -> None:
    """A positive element gives its weight nothing, whatever its gradient is."""
    values = np.array([[np.inf, -np.inf, np.nan, 0.0, 1.0, -1.0, -0.0]])
    md, single = MemoryDesc(values.shape, "f32"), MemoryDesc((1, 7), "f32")
    src, weights = memory_of(values, md, ENGINE), memory_of(np.full((1, 7), 2.0), single, ENGINE)
    diff = memory_of([[np.inf, 1, 1, 3, np.nan, np.inf, 5]], md, ENGINE)
    forward = PreluDesc.forward("forward_inference", md, single, md)
    got = logical(execute(forward, {Arg.SRC: src, Arg.WEIGHTS: weights}))
    np.testing.assert_array_equal(got, [[np.inf, -np.inf, np.nan, 0, 1, -2, 0]])
    args: dict[int, Memory] = {Arg.SRC: src, Arg.WEIGHTS: weights, Arg.DIFF_DST: diff}
    backward = PrimitiveDesc(PreluDesc.backward(md, single, md, single, md), ENGINE)
    made = execute_all(backward, args)
    np.testing.assert_array_equal(
        logical(made[Arg.DIFF_SRC]), [[np.inf, 2, 2, 6, np.nan, np.inf, 10]]
    )
    np.testing.assert_array_equal(
        logical(made[Arg.DIFF_WEIGHTS]), [[0, -np.inf, np.nan, 0, 0, -np.inf, 0]]
    )


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw16c"])
def test_in_place(layout: str) -> None:
    src, diff = source(LARGE, layout), source(LARGE, layout, 2)
    weights = random_memory(weights_of(LARGE, SHARED[0], "abcd"), ENGINE, 3)
    forward = PreluDesc.forward("forward_training", src.desc, weights.desc, src.desc)
    data, by, gradient = logical(src), logical(weights), logical(diff)
    args: dict[int, Memory] = {Arg.SRC: src, Arg.WEIGHTS: weights}
    check(execute(forward, args, dst=src), reference.prelu(data, by), reference.TOLERANCE("f32"))
    backward = PreluDesc.backward(src.desc, weights.desc, diff.desc, weights.desc, diff.desc)
    args[Arg.DIFF_DST] = diff
    made = execute_all(PrimitiveDesc(backward, ENGINE), args, {Arg.DIFF_SRC: diff})
    want = reference.prelu_backward(data, by, gradient)
    check(made[Arg.DIFF_SRC], want[0], reference.DIFF_SRC_TOLERANCE("f32"))
    terms = data.size // by.size
    check(made[Arg.DIFF_WEIGHTS], want[1], reference.DIFF_WEIGHTS_TOLERANCE("f32", terms))


def test_as_pytorch() -> None:
    src, diff = source(LARGE, "abcd"), source(LARGE, "abcd", 2)
    weights = random_memory(weights_of(LARGE, SHARED[0], "abcd"), ENGINE, 3)
    leaves = tensor(src).requires_grad_(), tensor(weights).flatten().requires_grad_()
    result = torch.nn.functional.prelu(*leaves)
    result.backward(tensor(diff))  # type: ignore[no-untyped-call]
    md, own = src.desc, weights.desc
    args: dict[int, Memory] = {Arg.SRC: src, Arg.WEIGHTS: weights}
    dst = execute(PreluDesc.forward("forward_inference", md, own, md), args)
    assert_close(logical(dst), array(result.detach()), reference.TOLERANCE("f32"))
    backward = PrimitiveDesc(PreluDesc.backward(md, own, md, own, md), ENGINE)
    made = execute_all(backward, {**args, Arg.DIFF_DST: diff})
    assert leaves[0].grad is not None
    assert leaves[1].grad is not None
    bounds = reference.DIFF_SRC_TOLERANCE("f32"), reference.DIFF_WEIGHTS_TOLERANCE("f32", 5184)
    assert_close(logical(made[Arg.DIFF_SRC]), array(leaves[0].grad), bounds[0])
    assert_close(logical(made[Arg.DIFF_WEIGHTS]).ravel(), array(leaves[1].grad), bounds[1])


def test_any_follows_src() -> None:
    blocked, left = describe(DIMS, "nChw16c"), MemoryDesc(DIMS, "f32", "any")
    weights = weights_of(DIMS, SHARED[0])
    pd = PrimitiveDesc(PreluDesc.forward("forward_training", blocked, weights, left), ENGINE)
    assert pd.dst_desc == blocked
    assert pd.weights_desc == weights_of(DIMS, SHARED[0], "aBcd16b")
    backward = PreluDesc.backward(blocked, weights, left, weights, left)
    pd = PrimitiveDesc(backward, ENGINE, hint=pd)
    assert pd.diff_src_desc == pd.diff_dst_desc == blocked
    assert pd.diff_weights_desc == pd.weights_desc == weights_of(DIMS, SHARED[0], "aBcd16b")


def test_what_is_refused() -> None:
    weights, small = MemoryDesc((1, 3, 1), "f32"), MemoryDesc((2, 3, 4), "f4_e2m1")
    with pytest.raises(Unimplemented, match="unsupported data type: f4_e2m1"):
        PrimitiveDesc(PreluDesc.forward("forward_inference", small, weights, small), ENGINE)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ((3,), r"weights_desc = \(3,\).*one for each channel is \(1, 3, 1\)"),
        ((1, 4, 1), "each dimension must be 1 or that of src"),
        ((1, 3), "each dimension must be 1 or that of src"),
    ],
)
def test_bad_weights(dims: tuple[int, ...], message: str) -> None:
    a, weights = MemoryDesc((2, 3, 4), "f32"), MemoryDesc(dims, "f32")
    with pytest.raises(InvalidArguments, match=message):
        PreluDesc.forward("forward_inference", a, weights, a)


def test_bad_arguments() -> None:
    a, weights = MemoryDesc((2, 3, 4), "f32"), MemoryDesc((1, 3, 1), "f32")
    other: Any = MemoryDesc((2, 4, 3), "f32")
    with pytest.raises(InvalidArguments, match=r"dst_desc = \(2, 4, 3\)"):
        PreluDesc.forward("forward_inference", a, weights, other)
    with pytest.raises(InvalidArguments, match=r"diff_weights_desc = .*the dims of weights"):
        PreluDesc.backward(a, weights, a, a, a)
    with pytest.raises(InvalidArguments, match="prop_kind"):
        PreluDesc.forward("backward", a, weights, a)
