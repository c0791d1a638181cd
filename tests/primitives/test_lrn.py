"""Local response normalization and its gradient: windows along channels and in space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dnnl import Arg, InvalidArguments, LrnDesc, Memory, MemoryDesc, PrimitiveDesc, config
from dnnl.reference import lrn as reference
from tests.check import assert_close, check, logical, memory_of, random_memory
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
ALGS = ["lrn_across_channels", "lrn_within_channel"]
NUMBERS: dict[str, Any] = {"local_size": 5, "alpha": 0.5, "beta": 0.75, "k": 1.0}


def volume(alg: str, ndims: int, numbers: dict[str, Any]) -> int:
    exponent = 1 if alg == ALGS[0] else ndims - 2
    size: int = numbers["local_size"]
    return int(size**exponent)


def run(memory: Memory, dst: MemoryDesc, alg: str, numbers: dict[str, Any] = NUMBERS) -> None:
    """Training, and the gradient, which reads its workspace."""
    desc = LrnDesc.forward("forward_training", alg, memory.desc, dst, **numbers)
    made = execute_all(PrimitiveDesc(desc, ENGINE), {Arg.SRC: memory})
    data, terms = logical(memory), volume(alg, memory.desc.ndims, numbers)
    want = reference.lrn(data, alg, **numbers)
    check(made[Arg.DST], want, reference.TOLERANCE(dst.data_type, terms))
    kept = reference.lrn_workspace(data, alg, **numbers)
    check(made[Arg.WORKSPACE], kept, reference.TOLERANCE("f32", terms))
    gradient(memory, made[Arg.WORKSPACE], dst, alg, numbers)


def gradient(
    memory: Memory, workspace: Memory, diff: MemoryDesc, alg: str, numbers: dict[str, Any]
) -> None:
    diff_dst = memory_of(np.random.default_rng(3).standard_normal(diff.dims), diff, ENGINE)
    desc = LrnDesc.backward(alg, diff, diff, memory.desc, **numbers)
    args: dict[int, Memory] = {Arg.SRC: memory, Arg.DIFF_DST: diff_dst, Arg.WORKSPACE: workspace}
    (made,) = execute_all(PrimitiveDesc(desc, ENGINE), args).values()
    want = reference.lrn_backward(logical(memory), logical(diff_dst), alg, **numbers)
    terms = volume(alg, memory.desc.ndims, numbers)
    check(made, want, reference.BACKWARD_TOLERANCE(diff.data_type, terms))


@pytest.mark.parametrize(
    ("layout", "alg"),
    [
        *((layout, ALGS[0]) for layout in LAYOUTS),
        *((layout, ALGS[1]) for layout in ("nchw", "nhwc", "nChw16c", "part")),
    ],
)
def test_layouts(layout: str, alg: str) -> None:
    memory = source(DIMS, layout)
    run(memory, memory.desc, alg)


@pytest.mark.parametrize("channels", [12, 20, 31])
def test_a_region_that_ends_inside_of_a_block(channels: int) -> None:
    """Neighbours in blocks are found in two vectors, the second of which may not be whole."""
    part = MemoryDesc((2, 64, 3, 3), "f32", "aBcd32b").submemory((2, channels, 3, 3), (0, 0, 0, 0))
    run(random_memory(part, ENGINE), MemoryDesc((2, channels, 3, 3), "f32", "abcd"), ALGS[0])


@pytest.mark.parametrize(
    ("src", "dst", "alg"),
    [
        ("nchw", "nhwc", ALGS[0]),
        ("nChw16c", "nchw", ALGS[0]),
        ("nhwc", "nChw8c", ALGS[0]),
        ("gaps", "part", ALGS[1]),
    ],
)
def test_another_layout_for_the_result(src: str, dst: str, alg: str) -> None:
    memory, result = source(DIMS, src), describe(DIMS, dst)
    run(memory, result, alg)
    desc = LrnDesc.forward("forward_inference", alg, memory.desc, result, **NUMBERS)
    want = reference.lrn(logical(memory), alg, **NUMBERS)
    terms = volume(alg, 4, NUMBERS)
    check(execute(desc, {Arg.SRC: memory}), want, reference.TOLERANCE("f32", terms))


@every_isa
@pytest.mark.parametrize(
    ("layout", "alg", "types"),
    [
        ("nchw", ALGS[0], ("bf16", "bf16")),
        ("nhwc", ALGS[0], ("f16", "f32")),
        ("nhwc", ALGS[1], ("bf16", "bf16")),
        ("nhwc", ALGS[0], ("f32", "f32")),
    ],
    ids=str,
)
def test_types(layout: str, alg: str, types: tuple[str, str], isa: str) -> None:
    memory = typed_source((2, 40, 3, 5), layout, types[0])
    with config.override("max_cpu_isa", isa):
        run(memory, memory.desc.with_data_type(types[1]), alg)


@pytest.mark.parametrize(
    ("dims", "tag", "alg"),
    [
        ((3, 40), "ab", ALGS[0]),
        ((3, 40), "ab", ALGS[1]),
        ((2, 3), "ba", ALGS[0]),
        ((1, 1, 9), "abc", ALGS[0]),
        ((2, 17, 33), "acb", ALGS[1]),
        ((2, 20, 4, 3, 6), "abcde", ALGS[1]),
        ((2, 20, 4, 3, 6), "aBcde16b", ALGS[0]),
    ],
)
def test_ranks(dims: tuple[int, ...], tag: str, alg: str) -> None:
    memory = source(dims, tag)
    run(memory, memory.desc, alg)


@every_pair(isa=["avx2", "avx512_core"], local_size=[1, 4, 11, 99], layout=["nchw", "nhwc"])
def test_sizes(layout: str, local_size: int, isa: str) -> None:
    memory = source((2, 23, 3, 9), layout)
    with config.override("max_cpu_isa", isa):
        run(memory, memory.desc, ALGS[0], {**NUMBERS, "local_size": local_size})


@every_isa
@pytest.mark.parametrize("beta", [1.0, 0.5, 0.25, 0.6, -1.5, 0.0])
def test_powers(beta: float, isa: str) -> None:
    memory = source((3, 40), "ab")
    with config.override("max_cpu_isa", isa):
        run(memory, memory.desc, ALGS[0], {**NUMBERS, "beta": beta})


@pytest.mark.parametrize(
    "changed", [{"k": 14.2}, {"k": 1e-35}, {"alpha": 0.0}, {"alpha": -0.01, "k": 2.0}], ids=str
)
def test_numbers(changed: dict[str, Any]) -> None:
    memory = source((3, 40), "ab")
    run(memory, memory.desc, ALGS[0], {**NUMBERS, **changed})


def test_extreme_elements() -> None:
    """No square overflows, some vanish, one element is not a number, one is infinite."""
    values = np.zeros((1, 12, 1, 1))
    values[0, :, 0, 0] = [1e18, 1e-30, 0, 1, -2, 3, 4, 5, 6, 7, np.nan, 1]
    memory = memory_of(values, MemoryDesc(values.shape, "f32"), ENGINE)
    desc = LrnDesc.forward("forward_inference", ALGS[0], memory.desc, memory.desc, **NUMBERS)
    got = logical(execute(desc, {Arg.SRC: memory}))
    with np.errstate(all="ignore"):
        want = reference.lrn(logical(memory), ALGS[0], **NUMBERS)
    assert (np.isnan(got) == np.isnan(want)).all()
    finite = np.isfinite(want)
    assert_close(got[finite], want[finite], reference.TOLERANCE("f32", 5))


@every_isa
@pytest.mark.parametrize("beta", [0.25, 0.5, 0.75, 0.6])
def test_squares_that_overflow(beta: float, isa: str) -> None:
    """They make the result small, and not a number that is none."""
    values = np.ones((1, 24, 1, 1))
    values[0, 5] = 1e20
    memory = memory_of(values, MemoryDesc(values.shape, "f32"), ENGINE)
    numbers = {**NUMBERS, "beta": beta}
    desc = LrnDesc.forward("forward_inference", ALGS[0], memory.desc, memory.desc, **numbers)
    with config.override("max_cpu_isa", isa):
        got = logical(execute(desc, {Arg.SRC: memory}))
    near, far = got[0, 3:8, 0, 0], np.delete(got, range(3, 8), 1)
    assert (abs(near) < values[0, 3:8, 0, 0] * 1e-9).all()
    want = reference.lrn(values, ALGS[0], **numbers)
    assert_close(far, np.delete(want, range(3, 8), 1), reference.TOLERANCE("f32", 5))


@every_pair(
    every_isa,
    pytest.mark.parametrize("alg", ALGS),
    pytest.mark.parametrize("tag", ["abcd", "acdb", "aBcd16b"]),
)
def test_a_part_ends_where_its_tensor_goes_on(tag: str, alg: str, isa: str) -> None:
    """What lies beside a part of a larger tensor is no neighbour."""
    first = 16 if tag == "aBcd16b" else 1
    dims = (1, 16, 3, 4)
    whole = random_memory(MemoryDesc((2, 48, 6, 7), "f32", tag), ENGINE, 2)
    part = whole.desc.submemory(dims, (1, first, 1, 2))
    memory = Memory(part, ENGINE, whole.data[: part.size])
    values = logical(whole)[1:2, first : first + 16, 1:4, 2:6]
    assert (logical(memory) == values).all()
    diff = MemoryDesc(dims, "f32", tag)
    with config.override("max_cpu_isa", isa):
        run(memory, diff, alg)


def test_as_pytorch() -> None:
    memory, diff = source((2, 20, 6, 5), "abcd"), source((2, 20, 6, 5), "abcd", 2)
    md = memory.desc
    forward = LrnDesc.forward("forward_training", ALGS[0], md, md, **NUMBERS)
    made = execute_all(PrimitiveDesc(forward, ENGINE), {Arg.SRC: memory})
    leaf = tensor(memory).requires_grad_()
    result = torch.nn.functional.local_response_norm(leaf, 5, 0.5, 0.75, 1.0)
    assert_close(logical(made[Arg.DST]), array(result.detach()), reference.TOLERANCE("f32", 5))
    result.backward(tensor(diff))  # type: ignore[no-untyped-call]
    args: dict[int, Memory] = {
        Arg.SRC: memory,
        Arg.DIFF_DST: diff,
        Arg.WORKSPACE: made[Arg.WORKSPACE],
    }
    backward = LrnDesc.backward(ALGS[0], md, md, md, **NUMBERS)
    (gradients,) = execute_all(PrimitiveDesc(backward, ENGINE), args).values()
    assert leaf.grad is not None
    assert_close(logical(gradients), array(leaf.grad), reference.BACKWARD_TOLERANCE("f32", 5))


@pytest.mark.parametrize("dims", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_no_elements(dims: tuple[int, ...]) -> None:
    memory = source(dims, "abc")
    desc = LrnDesc.forward("forward_inference", ALGS[0], memory.desc, memory.desc, **NUMBERS)
    execute(desc, {Arg.SRC: memory})


def test_any_follows_src() -> None:
    blocked, open_desc = describe(DIMS, "nChw16c"), MemoryDesc(DIMS, "f32", "any")
    forward = LrnDesc.forward("forward_training", ALGS[0], blocked, open_desc, **NUMBERS)
    pd = PrimitiveDesc(forward, ENGINE)
    assert pd.dst_desc == pd.workspace_desc == blocked
    backward = LrnDesc.backward(ALGS[0], open_desc, open_desc, blocked, **NUMBERS)
    pd = PrimitiveDesc(backward, ENGINE, hint=pd)
    assert pd.diff_src_desc == pd.diff_dst_desc == pd.workspace_desc == blocked


def test_bad_arguments() -> None:
    a = MemoryDesc((2, 3, 4), "f32")
    for changed, message in (
        ({"local_size": 0}, "local_size = 0"),
        ({"local_size": 2.5}, "local_size"),
        ({"alpha": float("nan")}, "alpha"),
    ):
        with pytest.raises(InvalidArguments, match=message):
            LrnDesc.forward("forward_inference", ALGS[0], a, a, **{**NUMBERS, **changed})
    line, other = MemoryDesc((3,), "f32"), MemoryDesc((2, 4, 3), "f32")
    with pytest.raises(InvalidArguments, match="expected 2 to 5 dimensions"):
        LrnDesc.forward("forward_inference", ALGS[0], line, line, **NUMBERS)
    with pytest.raises(InvalidArguments, match=r"dst_desc = \(2, 4, 3\)"):
        LrnDesc.forward("forward_inference", ALGS[0], a, other, **NUMBERS)
    with pytest.raises(InvalidArguments, match="prop_kind"):
        LrnDesc.forward("backward_data", ALGS[0], a, a, **NUMBERS)
    with pytest.raises(InvalidArguments, match="alg_kind"):
        LrnDesc.forward("forward_inference", "pooling_max", a, a, **NUMBERS)
